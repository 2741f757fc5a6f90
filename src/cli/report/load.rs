//! Reading of FILEs.

use std::path::{Path, PathBuf};

use anyhow::Context;

use profile::Profile;
use sys::printed::Stderr;

/// The file that is read if no FILE is given.
pub const DEFAULT_FILE: &str = "profile.pb.gz";

/// What was read.
pub struct Loaded {
    /// The profile, or the sum of several.
    pub profile: Profile,
    /// Lines for the user.
    pub notes: Vec<String>,
}

impl Loaded {
    /// Prints the notes.
    pub fn noted(self) -> Profile {
        self.notes.iter().for_each(|note| Stderr::line(&format!("prof: {note}")));
        self.profile
    }
}

/// Reads and merges FILEs (`profile.pb.gz` if there are none). Names may contain any characters; see
/// [`FilterArgs::load`](super::super::filter::FilterArgs::load).
pub fn load_unchanged(files: &[PathBuf]) -> anyhow::Result<Loaded> {
    if files.is_empty() {
        let default = Path::new(DEFAULT_FILE);
        if !default.exists() {
            anyhow::bail!(
                "no {DEFAULT_FILE} in this directory; name a FILE, or create one with prof record"
            );
        }
        return load_unchanged(&[default.to_owned()]);
    }
    let mut profiles = Vec::with_capacity(files.len());
    for file in files {
        profiles.push(formats::read_file(file)?);
    }
    profile::align_units(&mut profiles);
    let types = profiles.iter().flat_map(value_types).collect::<Vec<_>>();
    let profile = profile::merge(profiles).context("the profiles cannot be merged")?;
    let kept = value_types(&profile);
    let mut left: Vec<String> = Vec::new();
    for [kind, unit] in types {
        if !kept.contains(&[kind.clone(), unit]) && !left.contains(&kind) {
            left.push(kind);
        }
    }
    let mut notes: Vec<String> = Vec::new();
    if !left.is_empty() {
        notes.push(format!("not all files have {}: left out", left.join(", ")));
    }
    notes.extend(beyond_63_bits(&profile));
    Ok(Loaded { profile, notes })
}

/// Kinds and units of the sample types.
fn value_types(profile: &Profile) -> Vec<[String; 2]> {
    let text = |id| profile.str(id).to_owned();
    profile.sample_types.iter().map(|t| [text(t.kind), text(t.unit)]).collect()
}

/// The note about sums that are beyond 63 bits, if there are such.
pub fn beyond_63_bits(profile: &Profile) -> Option<String> {
    let names = profile.type_names();
    let all: Vec<&str> =
        (0..names.len()).filter(|&i| profile.exceeds(i)).map(|i| &*names[i]).collect();
    (!all.is_empty())
        .then(|| format!("sums of {} are beyond 63 bits: they are not exact", all.join(", ")))
}
