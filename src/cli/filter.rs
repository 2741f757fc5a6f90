//! Arguments that select samples and frames, and the style of names.

mod perf_names;
pub mod samples;

use std::sync::Arc;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::address_names::AddressNames;
use super::source::{Loaded, ProfileSource};
use super::{columns, usage};
use crate::report::answer;
use crate::report::style::{Style, restyle};
use profile::Profile;
use symbols::refused;
use sys::printed;
use view::query::{Query, QueryError, Shown, Timed};
use view::{Answer, Cancel, Granularity, Part, without_dropped_frames};

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

    /// Show all leaf frames, also of the scheduler, locks and allocators
    ///
    /// Otherwise they are left out, and their callers have their values: of wall time the kernel's
    /// scheduler, of lock waits the functions of locks, of block I/O the kernel's block layer, and of
    /// memory the functions that allocate it. Views of a single function have all frames.
    #[arg(long, help_heading = "View")]
    pub all_frames: bool,

    /// Show an interpreter's own frames, too
    ///
    /// Otherwise stacks have the functions of interpreted programs in place of those of the interpreter,
    /// and whatever else is in them: extensions, libraries, the kernel.
    #[arg(long, help_heading = "View")]
    pub native: bool,

    #[command(flatten)]
    pub samples: SampleArgs,

    /// Names for files with addresses.
    #[arg(skip)]
    pub names: AddressNames,

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

/// The word of `--demangle` for a style.
pub fn style_word(style: Style) -> &'static str {
    match style {
        Style::None => "none",
        Style::Short => "short",
        Style::Templates => "templates",
        Style::Full => "full",
    }
}

impl FilterArgs {
    /// Fails if a value is no filter. Called before profiles are read or recorded.
    pub fn check(&self) -> anyhow::Result<()> {
        self.samples.check()
    }

    /// A query about the samples and frames that the arguments select.
    pub fn query(&self, shown: Shown) -> Query {
        Query {
            filters: self.samples.added(),
            granularity: self.granularity(),
            folds_inlined: self.no_inlines,
            folds_leaf_frames: !self.all_frames,
            hides_interpreters: !self.native,
            ..Query::new(shown)
        }
    }

    /// Reads and merges profiles, as [`ProfileSource::read`], with the names of `--demangle`, and
    /// without the frames that they drop. Prints the notes.
    pub fn load(&self, source: &ProfileSource) -> anyhow::Result<Arc<Profile>> {
        // Before the profiles, so that an error is reported at once.
        self.check()?;
        Ok(Arc::new(self.read(source, &self.names)?.noted()))
    }

    /// The same for the interactive views, whose filters match the names that are shown.
    pub fn open(&self, source: &ProfileSource) -> anyhow::Result<Loaded> {
        let Loaded { mut profile, notes } = self.read(source, &self.names.quiet())?;
        if self.samples.time.is_given() && profile.times.is_empty() {
            return Err(failed(&QueryError::NoTimes(Timed::Filter)));
        }
        clean(&mut profile);
        Ok(Loaded { profile, notes })
    }

    /// The same of a recording that goes on, with inlined functions folded if `--no-inlines` is given.
    pub fn open_live(&self, mut profile: Profile) -> Profile {
        self.restyled(&mut profile);
        clean(&mut profile);
        // Not in the query: that would copy each profile for it.
        if self.no_inlines {
            view::fold_inlined(&mut profile);
        }
        profile
    }

    fn read(&self, source: &ProfileSource, names: &AddressNames) -> anyhow::Result<Loaded> {
        let Loaded { mut profile, mut notes } = source.read(names)?;
        notes.extend(self.restyled(&mut profile));
        Ok(Loaded { profile: without_dropped_frames(profile), notes })
    }

    /// What a query is about, with clean names. As in pprof, the filters match the names in the
    /// profile. Prints those that nothing meets.
    pub fn part(&self, profile: Arc<Profile>, query: &Query) -> anyhow::Result<Part> {
        let naming = query.naming(&profile);
        let mut part = self.samples.part(profile)?;
        clean(Arc::make_mut(&mut part.profile));
        part.named(naming, &Cancel::default()).map_err(|error| failed(&error))
    }

    /// The samples of profiles that pass the filters, for a file: names have all their characters, and
    /// inlined functions stay. The notes are not printed.
    pub fn load_for_file(&self, source: &ProfileSource) -> anyhow::Result<Loaded> {
        self.check()?;
        let Loaded { profile, notes } = self.read(source, &self.names)?;
        let part = self.samples.part(Arc::new(profile))?;
        Ok(Loaded { profile: Arc::unwrap_or_clone(part.profile), notes })
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

    /// Writes the names in the style of `--demangle`. Returns the note about those that it could not.
    pub fn restyled(&self, profile: &mut Profile) -> Option<String> {
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

/// The answer to a query about this part.
pub fn answered(part: Part, query: &Query) -> anyhow::Result<Answer> {
    Answer::new(part, query, &Cancel::default()).map_err(|error| failed(&error))
}

/// The error of a command whose query has no answer.
pub fn failed(error: &QueryError) -> anyhow::Error {
    let reason = answer::reason(error);
    match error {
        QueryError::NoFilter(..)
        | QueryError::NoRegex(..)
        | QueryError::NeedsFunctions
        | QueryError::HasOwnRows(_) => usage(reason),
        _ => anyhow::anyhow!(reason),
    }
}

/// Cleans the names of a profile for views: no name may break or control a line of output, and each
/// source file has one name.
fn clean(profile: &mut Profile) {
    profile.strings.replace(printed::line);
    view::cut_long_texts(profile);
    view::clean_file_names(profile);
}
