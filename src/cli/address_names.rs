//! Names for profiles of other tools that have addresses in their place
//! ([`Format::unnamed_frames`](formats::Format::unnamed_frames)): they are looked up
//! once, after the file was read, as those of a recording.

use std::path::PathBuf;
use std::sync::Arc;

use formats::{Format, Opened, ReadOptions, UnnamedFrames};
use profile::{Mapping, Profile, StrId, UNIDENTIFIED_KERNEL, set_unsymbolized};
use symbols::SymbolOptions;

use super::naming::LookupResult;
use super::progress::Bar;
use super::symbol_args::{SymbolArgs, debuginfod_client};
use super::symbolize;

/// Places of binaries and debug files, for commands that read profiles only.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct BinaryArgs {
    /// Also look for binaries of perf.data files in DIR (repeatable)
    ///
    /// For files whose frames are addresses, such as perf's. As in prof symbolize.
    #[arg(long, value_name = "DIR", help_heading = "Symbols")]
    pub symbol_path: Vec<PathBuf>,
}

/// Where names are looked up, and whether that is shown.
#[derive(Clone, Debug, Default)]
pub struct AddressNames {
    symbols: SymbolArgs,
    is_quiet: bool,
}

impl From<SymbolArgs> for AddressNames {
    fn from(symbols: SymbolArgs) -> AddressNames {
        AddressNames { symbols, is_quiet: false }
    }
}

impl From<&BinaryArgs> for AddressNames {
    fn from(binaries: &BinaryArgs) -> AddressNames {
        SymbolArgs::with_places(binaries.symbol_path.clone(), Vec::new()).into()
    }
}

impl AddressNames {
    /// The same without progress, because something else has the screen.
    pub fn quiet(&self) -> AddressNames {
        AddressNames { is_quiet: true, ..self.clone() }
    }

    /// What a reader of the file uses.
    pub fn read_options(&self) -> ReadOptions {
        self.symbols.read_options()
    }

    /// The profile of a file, with names. Notes about missing ones are added.
    ///
    /// # Errors
    ///
    /// Those of the options, if they are needed.
    pub fn named(&self, opened: Opened, notes: &mut Vec<String>) -> anyhow::Result<Profile> {
        let Opened { mut profile, format } = opened;
        if !has_unnamed(&profile, format) {
            return Ok(profile);
        }
        let mut options = SymbolOptions { at_any_time: true, ..self.symbols.options()? };
        if self.is_quiet {
            let servers = self.symbols.servers();
            options.debuginfod = debuginfod_client(servers, |_| {})?.map(Arc::new);
        }
        leave_unidentified(&mut profile);
        place(&mut profile, format, &options);
        let unidentified = files_without_build_id(&profile);
        let bar = Bar::new(symbolize::BAR, !self.is_quiet);
        let progress = |done, total| bar.set(done, total);
        let found = LookupResult::look_up(&mut profile, &options, &progress);
        bar.finish();
        let shares = symbols::unsymbolized(&profile);
        set_unsymbolized(&mut profile, &shares, &found.outcome.reasons());
        notes.extend(found.outcome.errors);
        let has_unknown_kernel =
            profile.mappings.iter().any(|mapping| profile.str(mapping.file) == UNIDENTIFIED_KERNEL);
        if has_unknown_kernel {
            let note = "the kernel's functions have no names: the recording has no build ID of it \
                        (perf record --buildid-mmap), or it was at other addresses";
            notes.push(note.to_owned());
        }
        if unidentified.into_iter().any(|id| profile.mappings[id].has_functions) {
            let note = "the profile has no build IDs: its names are of the files that are at the \
                        recorded paths now";
            notes.push(note.to_owned());
        }
        Ok(profile)
    }
}

/// True if the profile has addresses to look up that no one has looked up yet.
fn has_unnamed(profile: &Profile, format: &dyn Format) -> bool {
    let is_new = |location: &profile::Location| {
        let mapping = location.mapping.map(|id| &profile.mappings[id.0 as usize]);
        let is_unnamed = |mapping: &Mapping| !mapping.has_functions && mapping.file != StrId::EMPTY;
        location.line_count == 0 && mapping.is_some_and(is_unnamed)
    };
    format.unnamed_frames() != UnnamedFrames::Unknown && profile.locations.iter().any(is_new)
}

/// Lets the kernel's code without a build ID pass for looked up: it may be another kernel's.
fn leave_unidentified(profile: &mut Profile) {
    for mapping in &mut profile.mappings {
        let is_file = !profile.strings.get(mapping.file).starts_with('[');
        mapping.has_functions |= mapping.build_id == StrId::EMPTY && !is_file;
    }
}

/// Numbers of the mappings that are looked up by their paths alone.
fn files_without_build_id(profile: &Profile) -> Vec<usize> {
    let mappings = profile.mappings.iter().enumerate();
    let by_path = mappings.filter(|(_, mapping)| {
        let is_run_time = view::is_run_time(profile.str(mapping.file));
        mapping.build_id == StrId::EMPTY && !mapping.has_functions && !is_run_time
    });
    by_path.map(|(number, _)| number).collect()
}

/// Makes addresses relative to images offsets in their files.
pub(super) fn place(profile: &mut Profile, format: &dyn Format, options: &SymbolOptions) {
    if format.unnamed_frames() == UnnamedFrames::ImageAddresses {
        symbols::place_in_files(profile, options);
    }
}
