//! Where profiles are read from.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::address_names::AddressNames;
use messages::Message;
use profile::{Profile, comment};
use sys::printed::Stderr;

/// The file that is read if no FILE is given.
pub const DEFAULT_FILE: &str = "profile.pb.gz";

/// Where a profile is read from, or several that are merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileSource {
    /// FILEs, of which `-` is standard input; the default file if there are none.
    Files(Vec<PathBuf>),
}

/// FILEs to read.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct FileArgs {
    /// Profiles; several are merged; - is standard input [default: profile.pb.gz]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    input: InputArgs,
}

/// perf's option for a file.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct InputArgs {
    /// The same as FILE, as in perf
    #[arg(short, long, value_name = "FILE", hide = true)]
    input: Vec<PathBuf>,
}

impl InputArgs {
    /// The source: these `files`, and those of the option.
    pub fn source(&self, files: &[PathBuf]) -> ProfileSource {
        ProfileSource::Files(files.iter().chain(&self.input).cloned().collect())
    }
}

impl FileArgs {
    /// The source: all FILEs, and another one.
    pub fn source_with(&self, other: Option<PathBuf>) -> ProfileSource {
        let ProfileSource::Files(files) = self.source();
        ProfileSource::Files(files.into_iter().chain(other).collect())
    }

    /// The source: all FILEs.
    pub fn source(&self) -> ProfileSource {
        self.input.source(&self.files)
    }
}

/// The sources of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparedSources {
    /// That of the profiles before.
    pub before: ProfileSource,
    /// That of the profiles after.
    pub after: ProfileSource,
}

/// What was read.
#[derive(Debug)]
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

impl ProfileSource {
    /// Reads and merges the profiles, as they are, with the names of those that have addresses.
    /// Names may contain any characters; see [`FilterArgs::load`](super::filter::FilterArgs::load).
    pub fn read(&self, names: &AddressNames) -> anyhow::Result<Loaded> {
        match self {
            ProfileSource::Files(files) if files.is_empty() => read_default(Path::new(""), names),
            ProfileSource::Files(files) => read_files(files, names),
        }
    }

    /// The names of the profiles, as the user gave them; at least one.
    pub fn names(&self) -> Vec<String> {
        match self {
            ProfileSource::Files(files) if files.is_empty() => vec![DEFAULT_FILE.to_owned()],
            ProfileSource::Files(files) => {
                files.iter().map(|file| file.to_string_lossy().into_owned()).collect()
            }
        }
    }

    /// The sources of each profile alone, in the order of [`ProfileSource::names`].
    pub fn parts(&self) -> Vec<ProfileSource> {
        match self {
            ProfileSource::Files(files) if files.is_empty() => vec![self.clone()],
            ProfileSource::Files(files) => files.iter().map(|file| part(file)).collect(),
        }
    }

    /// The file as a word of a shell's command line, if it is a single one that can be read again.
    pub fn file_word(&self) -> Option<String> {
        let ProfileSource::Files(files) = self;
        let is_single = files.len() <= 1 && !files.iter().any(|file| file.as_os_str() == "-");
        let name = self.names().into_iter().next().filter(|_| is_single)?;
        Some(super::shell_word(&name).into_owned())
    }
}

impl ComparedSources {
    /// The names of the profiles before and of those after.
    pub fn names(&self) -> [Vec<String>; 2] {
        [self.before.names(), self.after.names()]
    }

    /// The sources of each profile alone, before and after.
    pub fn parts(&self) -> [Vec<ProfileSource>; 2] {
        [self.before.parts(), self.after.parts()]
    }
}

/// The source of one of several files. The default file has its own error if it is missing, also if
/// a comparison names it.
fn part(file: &Path) -> ProfileSource {
    let is_default = file.as_os_str() == DEFAULT_FILE;
    ProfileSource::Files(if is_default { Vec::new() } else { vec![file.to_owned()] })
}

/// Reads the default file of a directory.
fn read_default(directory: &Path, names: &AddressNames) -> anyhow::Result<Loaded> {
    let file = directory.join(DEFAULT_FILE);
    if !file.exists() {
        anyhow::bail!(
            "no {DEFAULT_FILE} in this directory; name a FILE, or create one with prof record"
        );
    }
    read_files(&[file], names)
}

/// Reads and merges files.
fn read_files(files: &[PathBuf], names: &AddressNames) -> anyhow::Result<Loaded> {
    let mut profiles = Vec::with_capacity(files.len());
    let mut notes: Vec<String> = Vec::new();
    for file in files {
        let opened = formats::open_file(file, &names.read_options())?;
        notes.extend(incomplete(&opened.profile, file).map(|message| message.to_string()));
        profiles.push(names.named(opened, &mut notes)?);
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
    if !left.is_empty() {
        notes.push(format!("not all files have {}: left out", left.join(", ")));
    }
    notes.extend(beyond_63_bits(&profile));
    Ok(Loaded { profile, notes })
}

/// The message about a file that lacks its end or another part.
fn incomplete(profile: &Profile, file: &Path) -> Option<Message> {
    let why = comment::values(profile, comment::INCOMPLETE).next()?.to_owned();
    let is_input = file.as_os_str() == "-";
    let name = if is_input { "standard input".into() } else { file.to_string_lossy() };
    Some(Message::FileIncomplete { file: name.into_owned(), why })
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

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{Builder, Column, LabelSetId};
    use std::fs::File;

    fn files(names: &[&str]) -> ProfileSource {
        ProfileSource::Files(names.iter().map(PathBuf::from).collect())
    }

    /// Writes a profile with a sample of the value 1 of each of these types.
    fn write(path: &Path, kinds: &[&str]) {
        let types: Vec<(&str, &str)> = kinds.iter().map(|kind| (*kind, "count")).collect();
        let mut builder = Builder::new(&types);
        let main = builder.named_location("main");
        let values: Vec<(Column, i64)> = (0..kinds.len()).map(|i| (Column(i), 1)).collect();
        builder.add(&[main], LabelSetId::EMPTY, 0, &values);
        formats::pprof::write(&builder.finish(None), File::create(path).unwrap()).unwrap();
    }

    #[test]
    fn a_missing_default_file_has_its_own_error() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(
            read_default(directory.path(), &AddressNames::default()).unwrap_err().to_string(),
            "no profile.pb.gz in this directory; name a FILE, or create one with prof record"
        );
        write(&directory.path().join(DEFAULT_FILE), &["cpu"]);
        assert_eq!(
            read_default(directory.path(), &AddressNames::default()).unwrap().profile.type_names(),
            ["cpu"]
        );
        let missing = directory.path().join("missing").join(DEFAULT_FILE);
        let error = ProfileSource::Files(vec![missing])
            .read(&AddressNames::default())
            .unwrap_err()
            .to_string();
        assert!(!error.contains("in this directory"), "{error}");
    }

    #[test]
    fn several_files_are_merged_with_the_types_that_all_have() {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| directory.path().join(name));
        write(&paths[0], &["cpu", "samples"]);
        write(&paths[1], &["samples"]);
        let one =
            ProfileSource::Files(vec![paths[0].clone()]).read(&AddressNames::default()).unwrap();
        assert_eq!((one.profile.type_names().len(), one.notes.len()), (2, 0));
        let Loaded { profile, notes } =
            ProfileSource::Files(paths.to_vec()).read(&AddressNames::default()).unwrap();
        assert_eq!(profile.type_names(), ["samples"]);
        assert_eq!(notes, ["not all files have cpu: left out"]);
        let view = view::View::new(&profile, 0, view::Granularity::FUNCTION);
        assert_eq!(view.total, 2);
    }

    #[test]
    fn names_are_those_of_the_user() {
        assert_eq!(files(&[]).names(), [DEFAULT_FILE]);
        assert_eq!(files(&["b", "./a", "-"]).names(), ["b", "./a", "-"]);
        let sources = ComparedSources { before: files(&["a", "b"]), after: files(&[]) };
        assert_eq!(sources.names(), [vec!["a", "b"], vec![DEFAULT_FILE]]);
    }

    #[test]
    fn each_file_is_a_part() {
        assert_eq!(files(&[]).parts(), [files(&[])]);
        assert_eq!(files(&["b", "a"]).parts(), [files(&["b"]), files(&["a"])]);
        // With the error of the default file.
        assert_eq!(files(&["a", DEFAULT_FILE]).parts(), [files(&["a"]), files(&[])]);
        let sources = ComparedSources { before: files(&["a", "b"]), after: files(&[]) };
        assert_eq!(sources.parts(), [vec![files(&["a"]), files(&["b"])], vec![files(&[])]]);
    }

    #[test]
    fn a_single_file_is_a_word_of_a_shell() {
        let word = |names: &[&str]| files(names).file_word();
        assert_eq!(word(&[]).as_deref(), Some(DEFAULT_FILE));
        assert_eq!(word(&["a b.pb"]).as_deref(), Some("'a b.pb'"));
        assert_eq!(word(&["-"]), None);
        assert_eq!(word(&["a", "b"]), None);
    }
}
