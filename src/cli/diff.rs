//! `prof diff`, and `prof report --diff`.

use std::borrow::Borrow;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use super::filter::{FilterArgs, failed};
use super::perf_options::{PerfArgs, PerfDiff};
use super::report::interactive::CodeArgs;
use super::report::{self, interactive};
use super::sort::{Grouping, SortKey, check_labels, sort_key};
use super::source::{ComparedSources, ProfileSource, beyond_63_bits};
use super::{examples, usage};
use crate::report::diff::{DiffLayout, lines};
use crate::report::json;
use crate::report::terminal::Start;
use profile::{Profile, ValueType};
use sys::printed::{self, Lines, Stderr};
use view::answer::DiffAnswer;
use view::query::{Comparison, Groups, Query, Rows, Shown, Values};
use view::{Cancel, Compared, Diff, Part, Renamed, Scale, Sort};

/// Arguments of `prof diff`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::short("diff"), after_long_help = examples::long("diff"))]
pub struct Args {
    /// The profile before
    #[arg(value_name = "BASE")]
    before: Option<PathBuf>,

    /// The profile after [default: profile.pb.gz]
    #[arg(value_name = "FILE")]
    after: Option<PathBuf>,

    /// Several recordings before, instead of BASE
    ///
    /// With three or more on a side, the differences among them count as sampling error.
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "with", conflicts_with = "before",
          help_heading = "Profiles")]
    base: Vec<PathBuf>,

    /// Several recordings after, instead of FILE
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "base", help_heading = "Profiles")]
    with: Vec<PathBuf>,

    #[command(flatten)]
    scale: ScaleArgs,

    #[command(flatten)]
    test: TestArgs,

    /// Order and group rows by KEYS, separated by commas
    ///
    /// As in prof report: self, total and name order rows, by the change; binary, symbol, line,
    /// process and other labels group them.
    #[arg(short, long, value_name = "KEYS", value_delimiter = ',', value_parser = sort_key,
          default_value = "self", help_heading = "View")]
    sort: Vec<SortKey>,

    /// Compare source lines instead of functions
    #[arg(long, help_heading = "View")]
    lines: bool,

    /// Print self values only
    #[arg(long, help_heading = "View")]
    no_children: bool,

    #[command(flatten)]
    filter: FilterArgs,

    #[command(flatten)]
    code: CodeArgs,

    /// Print at most N rows; 0 prints all [default: 30; all with --json]
    #[arg(short, long, value_name = "N", value_parser = report::rows, allow_negative_numbers = true,
          help_heading = "View")]
    nodecount: Option<usize>,

    /// Print JSON, with exact values
    #[arg(long, help_heading = "Output")]
    json: bool,

    /// Print text also on a terminal, where the difference is interactive otherwise
    #[arg(long, help_heading = "Output")]
    stdio: bool,

    #[command(flatten)]
    perf: PerfArgs<PerfDiff>,
}

/// The unit of comparison.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct ScaleArgs {
    /// Scale the profile after to the total of the one before
    #[arg(long, help_heading = "View", conflicts_with = "per_second")]
    normalize: bool,

    /// Compare values per second of the recordings, for unequal lengths
    #[arg(long, help_heading = "View")]
    per_second: bool,
}

/// The test of changes.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct TestArgs {
    /// Test whether values are equal, rather than whether they changed as the rest
    ///
    /// Without it, a row is tested against the ratio of what did not change, so that another load
    /// or clock of the machine, or more work, does not make all rows differ.
    #[arg(long, help_heading = "View")]
    pub(super) absolute: bool,
}

impl TestArgs {
    /// The option that is given.
    pub(super) fn given(self) -> Option<&'static str> {
        self.absolute.then_some("--absolute")
    }
}

impl ScaleArgs {
    /// The option that is given.
    pub(super) fn given(self) -> Option<&'static str> {
        match self {
            ScaleArgs { per_second: true, .. } => Some("--per-second"),
            ScaleArgs { normalize: true, .. } => Some("--normalize"),
            ScaleArgs { .. } => None,
        }
    }

    /// The way in which differences compare.
    pub(super) fn comparison(self, test: TestArgs) -> Comparison {
        let scale = match self {
            ScaleArgs { per_second: true, .. } => Scale::PerSecond,
            ScaleArgs { normalize: true, .. } => Scale::Total,
            ScaleArgs { .. } => Scale::AsRecorded,
        };
        Comparison { scale, absolute: test.absolute }
    }
}

/// A difference to show or print.
pub(super) struct DiffPlan<'a> {
    pub(super) sources: ComparedSources,
    pub(super) comparison: Comparison,
    pub(super) groups: Groups,
    pub(super) order: Sort,
    /// The subset of the labels of `groups` that have to be labels of a profile.
    pub(super) must_exist: Vec<String>,
    pub(super) children: bool,
    pub(super) rows: Option<usize>,
    pub(super) filter: &'a FilterArgs,
    pub(super) json: bool,
}

/// Runs `prof diff`.
pub fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    args.perf.check()?;
    args.filter.names = args.code.names();
    let (before, after) = match (&args.before, &args.after) {
        (None, _) if !args.base.is_empty() => (args.base.clone(), args.with.clone()),
        (None, _) => {
            return Err(usage("name the profile to compare with: prof diff BASE [FILE]"));
        }
        (Some(base), file) => (vec![base.clone()], file.iter().cloned().collect()),
    };
    let (before, after) = (ProfileSource::Files(before), ProfileSource::Files(after));
    let grouping = Grouping::parse(&args.sort);
    let mut groups = grouping.resolved(args.filter.granularity());
    let Grouping { order, must_exist, .. } = grouping;
    if args.lines {
        (groups.granularity.function, groups.granularity.line) = (true, true);
    }
    let diff = DiffPlan {
        sources: ComparedSources { before, after },
        comparison: args.scale.comparison(args.test),
        groups,
        order,
        must_exist,
        children: !args.no_children,
        rows: args.nodecount,
        filter: &args.filter,
        json: args.json,
    };
    let is_text = args.json || args.stdio || args.nodecount.is_some() || args.no_children;
    match diff.start(is_text) {
        Some(start) => {
            let sources = diff.sources;
            let start = Start { code: args.code.options()?, ..start };
            interactive::compare(args.filter, sources, start)
        }
        None => diff.print(),
    }
}

impl DiffPlan<'_> {
    /// The first page of the interactive views; `None`: text is printed.
    pub(super) fn start(&self, is_text: bool) -> Option<Start> {
        // Labels that have to exist are checked with an error.
        let is_text = is_text || !self.must_exist.is_empty();
        let rows = interactive::rows(self.groups.clone()).filter(|_| !is_text)?;
        let query = self.query(rows);
        interactive::start_of_difference(&self.sources, query)
    }

    fn query(&self, rows: Rows) -> Query {
        let mut shown = Shown::diff(rows);
        if let Shown::Diff { values, order, .. } = &mut shown {
            match self.order {
                Sort::Total => *values = Values::Total,
                Sort::Name => *order = Sort::Name.into(),
                Sort::SelfValue => {}
            }
        }
        let granularity = Some(self.groups.granularity);
        Query { granularity, comparison: self.comparison, ..self.filter.query(shown) }
    }

    /// Prints the difference.
    pub(super) fn print(self) -> anyhow::Result<ExitCode> {
        let query = self.query(Rows::from(self.groups.clone()));
        let compared = load(&self.sources, self.filter, &query)?;
        // Freeing large profiles piece by piece takes longer than the system needs for all.
        let compared = ManuallyDrop::new(compared);
        self.check_labels(&compared)?;
        let difference = view::compare(&compared, &query, &Cancel::default());
        let diff = difference.map_err(|error| failed(&error))?.diff;
        let layout = DiffLayout {
            labels: self.groups.labels,
            children: self.children,
            rows: self.rows.unwrap_or(if self.json { 0 } else { 30 }),
            ..DiffLayout::for_frames(self.sources.names(), self.groups.granularity)
        };
        if self.json {
            let mut out = printed::stdout();
            let DiffLayout { files, granularity, labels, rows, .. } = &layout;
            let answer = DiffAnswer::new(&diff, files, *granularity, labels, *rows);
            json::write(&mut out, &answer)?;
            std::io::Write::flush(&mut out)?;
        } else {
            let mut out = Lines::stdout();
            for line in lines(&diff, &layout) {
                out.line(&line.text, line.emphasis)?;
            }
            out.flush()?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Fails if no profile has a label that has to exist.
    fn check_labels(&self, compared: &Compared) -> anyhow::Result<()> {
        let parts = compared.before.iter().chain(&compared.after);
        let checked = parts.map(|part| check_labels(&part.profile, &self.must_exist));
        let checked: Vec<anyhow::Result<()>> = checked.collect();
        let is_known = checked.iter().any(Result::is_ok);
        checked.into_iter().find(|_| !is_known).unwrap_or(Ok(()))
    }
}

/// The profiles of a comparison, in common units.
pub(super) struct Sides {
    /// Those before.
    pub(super) before: Vec<Profile>,
    /// Those after.
    pub(super) after: Vec<Profile>,
    /// The main binaries that are compared as one.
    pub(super) renamed: Option<Renamed>,
    /// The note about values that are too large for common units.
    pub(super) note: Option<String>,
}

impl Sides {
    /// Reads both sides.
    pub(super) fn new(
        sources: &ComparedSources,
        read: impl FnMut(&ProfileSource) -> anyhow::Result<Profile>,
    ) -> anyhow::Result<Sides> {
        let [parts_before, parts_after] = sources.parts();
        let read = parts_before.iter().chain(&parts_after).map(read);
        let mut before = read.collect::<anyhow::Result<Vec<Profile>>>()?;
        let note = aligned(&mut before);
        let after = before.split_off(parts_before.len());
        // Before any filter, which may select a binary.
        let renamed = Renamed::unite(&mut before, &after);
        Ok(Sides { before, after, renamed, note })
    }
}

/// Converts profiles into common units. Returns the note about values that are too large for that.
fn aligned(profiles: &mut [Profile]) -> Option<String> {
    let note = |profiles: &[Profile]| profiles.iter().find_map(beyond_63_bits);
    // Of files, it was printed when they were read.
    let is_noted = note(profiles).is_some();
    profile::align_units(profiles);
    note(profiles).filter(|_| !is_noted)
}

/// The index of the compared sample type in each of the profiles, which have these `names`: that
/// of `--type`, or the default type of the first one. Fails if not all have it.
pub(super) fn common_types<P: Borrow<Profile>>(
    profiles: &[P],
    names: &[String],
    filter: &FilterArgs,
) -> anyhow::Result<Vec<usize>> {
    let Some(first) = profiles.first() else { return Ok(Vec::new()) };
    let first_index = filter.type_index(first.borrow())?;
    Diff::common_type(profiles, 0, first_index).map_err(|number| {
        let kinds = |p: &Profile, with_units: bool| -> Vec<String> {
            let name = |t: &ValueType| {
                let (kind, unit) = (p.str(t.kind), p.str(t.unit));
                if with_units { format!("{kind}/{unit}") } else { kind.to_owned() }
            };
            p.sample_types.iter().map(name).collect()
        };
        let (first, other) = (first.borrow(), profiles[number].borrow());
        let wanted = kinds(first, false).get(first_index).cloned().unwrap_or_default();
        // Types of one kind differ in what their units measure.
        let with_units = kinds(other, false).contains(&wanted);
        usage(format!(
            "{} has no sample type {:?}, which {} has, but: {}; {}",
            names[number],
            kinds(first, with_units).get(first_index).map_or("", |kind| kind),
            names[0],
            kinds(other, with_units).join(", "),
            type_remedy(first, other),
        ))
    })
}

/// What helps to compare profiles that lack the type of each other: a common one, if there is one
/// with comparable values.
fn type_remedy(first: &Profile, other: &Profile) -> &'static str {
    /// Ratio of numbers of samples from which on one of them is in another unit.
    const OTHER_UNIT: i64 = 10_000;
    let names = |p: &Profile, t: &ValueType| [t.kind, t.unit].map(|id| p.str(id).to_owned());
    let totals = |column: usize| {
        let wanted = names(first, &first.sample_types[column]);
        let place = other.sample_types.iter().position(|t| names(other, t) == wanted)?;
        Some((first.total(column).max(1), other.total(place).max(1)))
    };
    let all: Vec<(i64, i64)> = (0..first.sample_types.len()).filter_map(totals).collect();
    let is_alike = |&(a, b): &(i64, i64)| a / OTHER_UNIT <= b && b / OTHER_UNIT <= a;
    if all.iter().any(is_alike) {
        "choose a common one with --type"
    } else if all.is_empty() {
        "they have no sample type in common"
    } else {
        "its numbers are no numbers of samples, and their unit is not in the file: write it with \
         prof export --type samples"
    }
}

/// Reads the profiles of both sides: the parts that `query` is about.
pub(super) fn load(
    sources: &ComparedSources,
    filter: &FilterArgs,
    query: &Query,
) -> anyhow::Result<Compared> {
    // Before the profiles, so that an error is reported at once.
    filter.check()?;
    let read = |part: &ProfileSource| filter.load(part).map(Arc::unwrap_or_clone);
    let Sides { before, after, renamed, note } = Sides::new(sources, read)?;
    note.iter().for_each(|note| Stderr::line(&format!("prof: {note}")));
    let profiles: Vec<&Profile> = before.iter().chain(&after).collect();
    let types = common_types(&profiles, &sources.names().concat(), filter)?;
    let parts = |side: Vec<Profile>, types: &[usize]| -> anyhow::Result<Vec<Part>> {
        let typed = side.into_iter().zip(types);
        let query = |&type_index| Query { type_index, ..query.clone() };
        typed.map(|(profile, index)| filter.part(Arc::new(profile), &query(index))).collect()
    };
    let (types_before, types_after) = types.split_at(before.len());
    let (before, after) = (parts(before, types_before)?, parts(after, types_after)?);
    Ok(Compared { before, after, types, renamed })
}
