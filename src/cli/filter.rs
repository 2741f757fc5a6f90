//! Arguments that select samples and frames, and the style of names.

pub mod samples;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::source::{Loaded, ProfileSource};
use super::{columns, usage};
use crate::report::style::{Style, restyle};
use profile::Profile;
use symbols::refused;
use sys::printed::{self, Stderr};
use view::query::AddedFilter;
use view::{Condition, Filter, Granularity};

use samples::SampleArgs;

/// pprof's granularities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FrameParts {
    /// Functions
    Functions,
    /// Functions and their source files
    #[value(name = "filefunctions")]
    FileFunctions,
    /// Source files
    Files,
    /// Functions and source lines
    Lines,
    /// Instructions
    Addresses,
    /// Packages: crates, namespaces, Go and Java packages, Python modules
    Packages,
}

/// A profile for the interactive views.
pub struct OpenedFile {
    /// The profile.
    pub profile: Profile,
    /// Notes for the line at the bottom.
    pub notes: Vec<String>,
}

/// The samples and frames that a view shows; the names are pprof's.
#[derive(Debug, clap::Args)]
pub struct FilterArgs {
    /// Sample type to show, such as cpu, samples or inuse_space
    ///
    /// The default is the profile's default type, or its last type if it has none. pprof's name of
    /// this option, --sample_index, works too. The tables of prof report show several types, in
    /// columns: --type cpu,samples; rows are in the order of the first.
    #[arg(
        long = "type",
        value_name = "SAMPLE_TYPE",
        alias = "sample_index",
        help_heading = "View"
    )]
    pub sample_type: Option<String>,

    /// Parts of frames by which rows and boxes differ, as in pprof
    #[arg(long, value_name = "PARTS", value_enum, help_heading = "View")]
    pub granularity: Option<FrameParts>,

    /// Attribute inlined functions to the functions that they were inlined into
    #[arg(id = "fold_inlined", long = "no-inlines", help_heading = "View")]
    pub no_inlines: bool,

    #[command(flatten)]
    pub samples: SampleArgs,

    /// Style of C++, Rust, D and OCaml names [default: as in the profile]
    #[arg(long, value_name = "STYLE", value_parser = style(), help_heading = "Symbols")]
    pub demangle: Option<Style>,
}

fn style() -> impl TypedValueParser<Value = Style> {
    let value = |name, help| PossibleValue::new(name).help(help);
    let values = PossibleValuesParser::new([
        value("none", "Mangled, as in the binary"),
        value("short", "Without template arguments and parameters"),
        value("templates", "With template arguments"),
        value("full", "With template arguments and parameters"),
    ]);
    values.map(|name| match name.as_str() {
        "none" => Style::None,
        "short" => Style::Short,
        "templates" => Style::Templates,
        _ => Style::Full,
    })
}

impl FilterArgs {
    /// The filter. Fails if a value is not a regular expression.
    pub fn filter(&self) -> anyhow::Result<Filter> {
        self.samples.filter()
    }

    /// Reads and merges profiles, as [`ProfileSource::read`], with the names of `--demangle`, and
    /// applies the filter.
    pub fn load(&self, source: &ProfileSource) -> anyhow::Result<Profile> {
        Ok(self.load_part(source)?.0)
    }

    /// The same, with the beginning of the part that `--time` selects, in microseconds since that of
    /// the recording.
    pub fn load_part(&self, source: &ProfileSource) -> anyhow::Result<(Profile, u64)> {
        let (mut profile, from) = self.load_part_for_file(source)?;
        self.prepare(&mut profile);
        Ok((profile, from))
    }

    /// The same for a file: with all characters of its names, and with inlined functions.
    pub fn load_for_file(&self, source: &ProfileSource) -> anyhow::Result<Profile> {
        Ok(self.load_part_for_file(source)?.0)
    }

    fn load_part_for_file(&self, source: &ProfileSource) -> anyhow::Result<(Profile, u64)> {
        // Before the profiles, so that an error is reported at once.
        let filter = self.filter()?;
        self.samples.apply(&filter, self.read(source)?)
    }

    /// Reads and merges profiles, with the names of `--demangle`; [`FilterArgs::apply`] is to follow.
    pub fn read(&self, source: &ProfileSource) -> anyhow::Result<Profile> {
        let mut profile = source.read()?.noted();
        self.restyle(&mut profile);
        Ok(profile)
    }

    /// Applies the filter to a recording.
    pub fn apply(&self, profile: Profile) -> anyhow::Result<Profile> {
        let (mut profile, _) = self.samples.apply(&self.filter()?, profile)?;
        self.prepare(&mut profile);
        Ok(profile)
    }

    /// The same for a recording that goes on: nothing is printed.
    pub fn apply_live(&self, mut profile: Profile) -> anyhow::Result<Profile> {
        self.restyled(&mut profile);
        self.apply(profile)
    }

    /// Prepares a profile for the interactive views, which have the filters as conditions.
    pub fn prepare_for_views(&self, profile: &mut Profile) {
        self.restyled(profile);
        self.prepare(profile);
    }

    /// Reads and merges profiles for the interactive views, which have the filters as conditions, and
    /// show the notes.
    pub fn open(&self, source: &ProfileSource) -> anyhow::Result<OpenedFile> {
        let Loaded { mut profile, mut notes } = source.read()?;
        notes.extend(self.restyled(&mut profile));
        if self.samples.time.is_given() {
            super::time::check("--time", &profile)?;
        }
        // A file may have frames to drop also without a filter.
        profile = Filter::default().apply(profile).profile;
        self.prepare(&mut profile);
        Ok(OpenedFile { profile, notes })
    }

    /// Cleans the names of a profile, and names its functions as the options select.
    fn prepare(&self, profile: &mut Profile) {
        // No name may break or control a line of output.
        profile.strings.replace(printed::line);
        view::cut_long_texts(profile);
        // After the filter, which matches the names in the file, as in pprof.
        view::clean_file_names(profile);
        if self.no_inlines {
            view::fold_inlined(profile);
        }
        if self.granularity == Some(FrameParts::Packages) {
            view::name_packages(profile);
        }
    }

    /// True if rows are packages, and `--granularity` has not named functions by them.
    pub fn has_to_name_packages(&self, granularity: Granularity) -> bool {
        granularity.package && self.granularity != Some(FrameParts::Packages)
    }

    /// Names functions by their packages if rows are packages, and `--granularity` has not done it.
    pub fn name_packages(&self, profile: &mut Profile, granularity: Granularity) {
        if self.has_to_name_packages(granularity) {
            view::name_packages(profile);
        }
    }

    /// The granularity, if one is requested.
    pub fn granularity(&self) -> Option<Granularity> {
        self.granularity.map(|parts| match parts {
            FrameParts::Functions => Granularity::FUNCTIONS,
            FrameParts::FileFunctions => Granularity::FILE_FUNCTIONS,
            FrameParts::Files => Granularity::FILES,
            FrameParts::Lines => Granularity::LINES,
            FrameParts::Addresses => Granularity::ADDRESSES,
            FrameParts::Packages => Granularity::PACKAGES,
        })
    }

    /// The filters as those of the interactive views, one by one, in the order in which they apply.
    pub fn added(&self) -> Vec<AddedFilter> {
        const ORDER: [Condition; 16] = [
            Condition::Time,
            Condition::Process,
            Condition::Thread,
            Condition::TagRoot,
            Condition::TagLeaf,
            Condition::Binary,
            Condition::Focus,
            Condition::Ignore,
            Condition::Hide,
            Condition::Show,
            Condition::ShowFrom,
            Condition::TagFocus,
            Condition::TagIgnore,
            Condition::TagShow,
            Condition::TagHide,
            Condition::PruneFrom,
        ];
        let given = ORDER.into_iter().filter_map(|condition| {
            let value = self.samples.value(condition).filter(|value| !value.is_empty())?;
            Some(AddedFilter { condition, value })
        });
        given.collect()
    }

    /// Writes the names in the style of `--demangle`. Prints if it could not with some of them.
    pub fn restyle(&self, profile: &mut Profile) {
        if let Some(note) = self.restyled(profile) {
            Stderr::line(&format!("prof: {note}"));
        }
    }

    /// The same, and returns the note.
    fn restyled(&self, profile: &mut Profile) -> Option<String> {
        let style = self.demangle?;
        let left = if style == Style::None { 0 } else { refused(profile) };
        restyle(profile, style);
        (left > 0).then(|| {
            let s = if left == 1 { " is" } else { "s are" };
            format!("{left} name{s} left mangled: demangled, they would be too long")
        })
    }

    /// Index of the sample type to show. Fails when the profile has no such type, or there are
    /// several.
    pub fn type_index(&self, profile: &Profile) -> anyhow::Result<usize> {
        match *self.type_indices(profile)?.as_slice() {
            [file] => Ok(file),
            _ => Err(usage("--type: only the table of prof report shows several sample types")),
        }
    }

    /// The same of all sample types to show; there is at least one.
    pub fn type_indices(&self, profile: &Profile) -> anyhow::Result<Vec<usize>> {
        let Some(wanted) = &self.sample_type else { return Ok(vec![profile.default_type_index()]) };
        columns::types(profile, wanted).ok_or_else(|| {
            let kinds = profile.type_names();
            let there = if kinds.is_empty() { "none".to_string() } else { kinds.join(", ") };
            usage(format!("--type: the profile has no sample type {wanted:?}; it has: {there}"))
        })
    }
}
