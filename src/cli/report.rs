//! `prof report`.

use std::io::Write;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::process::ExitCode;

use super::columns::ColumnArgs;
use super::diff::{DiffPlan, ScaleArgs, TestArgs};
use super::filter::{FilterArgs, answered, failed, samples, style_word};
use super::perf_options::{PerfArgs, PerfReport};
use super::sort::{SortKey, check_labels, sort_key};
use super::source::{ComparedSources, FileArgs, ProfileSource};
use super::time::{self, TimeArgs};
use super::values::ValueArgs;
use super::{examples, usage};
use crate::report::answer::{self, OutputFormat};
use crate::report::json;
use crate::report::terminal::Start;
use crate::report::text::{self, LineWidth};
use profile::Profile;
use sys::printed;
use view::answer::HeaderAnswer;
use view::query::{
    Intervals, Limits, Query, QueryError, Roots, Rows, Shown, Statistic, Table, Timed,
    ValueOptions, Values,
};
use view::{Cancel, Cut, Part, Sort, View};

mod call_graph;
mod command;
pub(super) mod interactive;
mod plan;
mod view_args;

use plan::Plan;
use view_args::ViewArgs;

pub use interactive::has_terminal;

/// Arguments of `prof report`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::short("report"), after_long_help = examples::long("report"))]
pub struct Args {
    /// Profiles
    #[command(flatten)]
    files: FileArgs,

    /// Print a call tree; with 'callee', from functions to their callers
    ///
    /// ORDER is perf's: caller (the default) begins with the outermost callers, callee with each
    /// function, followed by its callers; none prints a table. A list may have a percentage, below
    /// which rows are left out, and a number of rows, such as caller,0.5 or graph,0.5,100,callee.
    #[arg(
        short = 'g',
        long,
        value_name = "ORDER",
        num_args = 0..=1,
        default_missing_value = "caller",
        help_heading = "View"
    )]
    call_graph: Option<String>,

    /// Print source lines instead of functions
    #[arg(long, help_heading = "View")]
    lines: bool,

    /// Order and group rows by KEYS, separated by commas
    #[arg(
        short,
        long,
        value_name = "KEYS",
        value_delimiter = ',',
        value_parser = sort_key,
        default_value = "self",
        help_heading = "View",
        long_help = "Order and group rows by KEYS, separated by commas\n\n\
            - order: self, total, name\n\
            - parts of stacks: binary (dso), symbol, line, file, package\n\
            - labels: process (comm) and any other label of the profile, such as pid, thread, \
              tid, cgroup, container, state, lock, device or syscall; label:KEY if it has the \
              name of another key\n"
    )]
    sort: Vec<SortKey>,

    /// Order rows by total: the same as --sort total
    #[arg(long, help_heading = "View")]
    cum: bool,

    /// Print totals, which include callees [default]
    #[arg(long, overrides_with = "no_children", help_heading = "View")]
    children: bool,

    /// Print self values only
    #[arg(long, overrides_with = "children", help_heading = "View")]
    no_children: bool,

    #[command(flatten)]
    columns: ColumnArgs,

    /// Compare with the profile BASE, as prof diff BASE FILE
    ///
    /// Given several times, the BASEs are several recordings before, and the FILEs those after.
    #[arg(long, value_name = "BASE", help_heading = "View",
          conflicts_with_all = ["call_graph", "ratio", "columns", "header", "header_only",
                                "percent_limit"])]
    diff: Vec<PathBuf>,

    /// Unit of comparison of --diff
    #[command(flatten)]
    scale: ScaleArgs,

    /// Test of --diff
    #[command(flatten)]
    test: TestArgs,

    #[command(flatten)]
    view: ViewArgs,

    /// Print values over time: a column for each INTERVAL, such as 1s or 100ms
    ///
    /// The columns are self values, or totals with --cum. Text has at most 60: the interval is
    /// widened if there would be more. It needs a profile of 'prof record --timestamps'.
    #[arg(long, value_name = "INTERVAL", value_parser = time::interval, help_heading = "View",
          conflicts_with_all = ["call_graph", "ratio"])]
    over: Option<u64>,

    #[command(flatten)]
    values: ValueArgs,

    /// Print means: values divided by those of the first sample type
    ///
    /// Such as bytes per object, or time per contention. Flame graphs have sums.
    #[arg(long, help_heading = "View", conflicts_with_all = ["coverage", "quality", "diff"])]
    mean: bool,

    #[command(flatten)]
    filter: FilterArgs,

    #[command(flatten)]
    code: interactive::CodeArgs,

    /// Print direct recursion as one frame, in call trees
    #[arg(long, help_heading = "View")]
    collapse_recursion: bool,

    /// Print at most N rows; 0 prints all [default: 30, or 200 with -g]
    ///
    /// With --json, the default is all.
    #[arg(short, long, value_name = "N", value_parser = rows_of_report, allow_negative_numbers = true,
          help_heading = "View")]
    nodecount: Option<usize>,

    /// Leave out rows below PERCENT [default: 0, or 0.5 with -g]
    #[arg(long, value_name = "PERCENT", value_parser = percent, allow_negative_numbers = true,
          help_heading = "View")]
    percent_limit: Option<f64>,

    /// Print JSON, with exact values
    #[arg(long, help_heading = "Output")]
    json: bool,

    /// Print the metadata of the file first: comments, mappings, time, period
    #[arg(long, help_heading = "Output")]
    header: bool,

    /// Print the metadata of the file only
    #[arg(long, help_heading = "Output")]
    header_only: bool,

    /// Write the samples that pass the filters to FILE, as a profile
    #[arg(short, long, value_name = "FILE", help_heading = "Output",
          conflicts_with_all = ["json", "header", "header_only", "call_graph", "traces", "tags",
                                "relative_percentages", "divide_by", "unit", "mean"])]
    output: Option<PathBuf>,

    /// Print text also on a terminal, where the views are interactive otherwise
    #[arg(long, help_heading = "Output")]
    stdio: bool,

    #[command(flatten)]
    perf: PerfArgs<PerfReport>,
}

pub(super) fn rows(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "not a number of rows; 0 shows all".to_string())
}

/// The same with a hint for perf's `-n`, which has no value.
fn rows_of_report(text: &str) -> Result<usize, String> {
    rows(text).map_err(|reason| format!("{reason}; perf's -n is --show-nr-samples"))
}

pub(super) fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(p) if (0.0..=100.0).contains(&p) => Ok(p),
        _ => Err("not a number from 0 to 100".to_string()),
    }
}

impl Args {
    /// Shows or prints the difference to the bases.
    fn compare(self, plan: Plan) -> anyhow::Result<ExitCode> {
        let other = self.view.option().map(|option| format!("--{option}"));
        let other = other.or_else(|| self.over.map(|_| "--over".to_owned()));
        let other = other.or_else(|| self.values.given().map(str::to_owned));
        let other = other.or_else(|| self.output.as_ref().map(|_| "--output".to_owned()));
        if let Some(option) = other {
            return Err(usage(format!("{option} cannot be combined with --diff")));
        }
        let before = ProfileSource::Files(self.diff.clone());
        let diff = DiffPlan {
            sources: ComparedSources { before, after: plan.source },
            comparison: self.scale.comparison(self.test),
            groups: plan.groups,
            order: plan.order,
            must_exist: plan.must_exist,
            children: !self.no_children,
            rows: self.nodecount,
            filter: &self.filter,
            json: self.json,
        };
        match diff.start(interactive::selects_text(&self)) {
            Some(start) => {
                let sources = diff.sources;
                let start = Start { code: self.code.options()?, ..start };
                interactive::compare(self.filter, sources, start)
            }
            None => diff.print(),
        }
    }

    /// The options that no key of the interactive views changes.
    fn fixed_options(&self) -> Vec<String> {
        let style = self.filter.demangle.map(|style| format!("--demangle={}", style_word(style)));
        style.into_iter().chain(self.code.words()).collect()
    }

    /// Room for a line of text.
    fn line_width(&self) -> LineWidth {
        // Names of a requested style are whole.
        if self.filter.demangle.is_some() { LineWidth::Unlimited } else { LineWidth::stdout() }
    }

    fn format(&self) -> OutputFormat {
        if self.json { OutputFormat::Json } else { OutputFormat::Text(self.line_width()) }
    }

    /// The table. Its columns follow from the profile.
    fn table(&self, plan: &Plan) -> Table {
        let values = if plan.order == Sort::Total { Values::Total } else { Values::Own };
        let most = self.format().most_intervals();
        let over = self.over.map(|interval| Intervals { interval, most, values });
        Table { over, ..Table::new(Rows::from(plan.groups.clone()), plan.order.into()) }
    }

    /// What values and percentages are.
    fn value_options(&self) -> ValueOptions {
        let statistic = if self.mean { Statistic::Mean } else { Statistic::Sum };
        ValueOptions { statistic, ..self.values.options() }
    }

    /// The query. Its sample type and columns follow from the profile.
    fn query(&self, plan: &Plan) -> Query {
        let shown = match (self.view.shown(plan.order), plan.direction) {
            (Some(shown), _) => shown,
            (None, Some(direction)) if self.over.is_none() => Shown::Tree(direction),
            (None, _) => Shown::Table(self.table(plan)),
        };
        let usual = self.format().limits(&shown);
        let cut = |percent| if percent > 0.0 { Cut::Percent(percent) } else { Cut::Nothing };
        let percent_limit = self.percent_limit.or(plan.limits.percent_limit);
        let limits = Limits {
            rows: self.nodecount.or(plan.limits.rows).unwrap_or(usual.rows),
            // A caller's mean may be smaller than those of its callees.
            cut: percent_limit.map_or(if self.mean { Cut::Nothing } else { usual.cut }, cut),
            values: if self.no_children { Values::Own } else { Values::Total },
        };
        let roots = match shown {
            Shown::Table(_) => Vec::new(),
            _ => plan.groups.labels.clone(),
        };
        let roots = Roots::Labels(roots);
        Query {
            granularity: Some(plan.groups.granularity),
            roots,
            collapses_recursion: self.collapse_recursion,
            limits,
            value_options: self.value_options(),
            ..self.filter.query(shown)
        }
    }
}

impl Args {
    /// Adds to the query what follows from the profile: its sample type, and columns and rows of its
    /// table.
    fn complete(&self, plan: &Plan, query: &mut Query, profile: &Profile) -> anyhow::Result<()> {
        let Shown::Table(table) = &mut query.shown else {
            query.type_index = self.filter.type_index(profile)?;
            return Ok(());
        };
        table.columns =
            self.columns.request(profile, self.filter.type_indices(profile)?, !self.no_children)?;
        query.type_index = match table.columns.types.first() {
            Some(&first) => first,
            None => self.filter.type_index(profile)?,
        };
        if plan.has_usual_rows {
            table.rows = Rows::usual(profile, query.type_index);
            query.granularity = Some(table.rows.granularity());
        }
        Ok(())
    }
}

/// Runs `prof report`.
pub fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    args.perf.check()?;
    args.filter.names = args.code.names();
    let plan = args.plan()?;
    if !args.diff.is_empty() {
        return args.compare(plan);
    }
    if let Some(option) = args.scale.given().or(args.test.given()) {
        return Err(usage(format!("{option} belongs to a comparison: add --diff BASE")));
    }
    if let Some(start) = interactive::start(&args, &plan)? {
        return interactive::run(args, plan, start);
    }
    let mut query = args.query(&plan);
    query.check().map_err(|error| usage(answer::reason(&error)))?;
    if let Some(path) = &args.output {
        let output = samples::output(path)?;
        samples::write(args.filter.load_for_file(&plan.source)?.noted(), output)?;
        return Ok(ExitCode::SUCCESS);
    }
    let profile = args.filter.load(&plan.source)?;
    // Kept, so that it is not freed: that takes longer, piece by piece, than the system needs for all.
    args.complete(&plan, &mut query, &profile)?;
    let part = ManuallyDrop::new(args.filter.part(profile, &query)?);
    check_labels(&part.profile, &plan.must_exist)?;
    let mut out = printed::stdout();
    print(&args, query, plan.source.file_word(), &part, &mut out)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn print(
    args: &Args,
    query: Query,
    file: Option<String>,
    part: &Part,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let profile = &*part.profile;
    args.values.check(profile, query.type_index)?;
    if (args.header || args.header_only) && !args.json {
        text::write_header(out, profile)?;
    }
    if args.header_only {
        if args.json {
            let view = View::new(profile, query.type_index, query.granularity());
            json::write(out, &HeaderAnswer::new(&view))?;
        }
        return Ok(());
    }
    if args.over.is_some() && !part.has_times {
        return Err(failed(&QueryError::NoTimes(Timed::Table)));
    }
    if !args.json && !part.has_values(query.type_index) {
        let view = query.view(profile, &Cancel::default());
        text::write_summary(out, &view, args.line_width())?;
        writeln!(out, "{}", nothing_to_show(&view, &args.filter.samples.time))?;
        return Ok(());
    }
    let answer = answered(part.clone(), &query)?;
    if !args.json {
        text::write_summary(out, &answer.view(), args.line_width())?;
    }
    Ok(answer::write(out, &answer, &query, args.format(), file)?)
}

/// The message for an empty view of the part `time` of a recording, with the reason.
pub fn nothing_to_show(view: &View, time: &TimeArgs) -> String {
    let (kind, _) = view.value_type();
    let samples = view.profile.samples.len();
    let before_filter = view.profile.unfiltered.as_ref().map_or(samples, |all| all.samples);
    if before_filter == 0 && time.is_given() {
        // A profile without times of samples is refused.
        "No sample is in the range of --time.".to_string()
    } else if before_filter == 0 {
        "The profile contains no samples.".to_string()
    } else if view.total == 0 {
        format!("No sample has a value of type {kind}.")
    } else {
        "No sample passes the filter.".to_string()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn refused(line: &str) -> String {
        let words = std::iter::once("report").chain(line.split_whitespace());
        match Line::try_parse_from(words) {
            Ok(_) => panic!("{line} was accepted"),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn only_labels_of_the_profile_sort() {
        let profile = view::testing::processes();
        let check = |key: &str| check_labels(&profile, &[key.to_string()]);
        assert!(check("process").is_ok());
        // A key of prof's, which this profile happens to lack.
        assert!(check("device").is_ok());
        let error = check("nonsense").unwrap_err().to_string();
        assert!(error.starts_with("--sort nonsense: no such label; the labels of this"), "{error}");
        assert!(error.contains("process") && error.contains("symbol"), "{error}");
    }

    #[test]
    fn bad_values_are_refused() {
        assert!(refused("--percent-limit 101").contains("from 0 to 100"));
        assert!(refused("--percent-limit NaN").contains("from 0 to 100"));
        assert!(refused("--percent-limit -1").contains("from 0 to 100"));
        assert!(refused("-n -1").contains("not a number of rows"));
    }

    #[test]
    fn only_a_table_has_columns() {
        for view in ["--sandwich f", "--peek f", "--coverage", "--quality", "--states", "-g"] {
            for columns in ["--over 1s", "--ratio a/b"] {
                let error = refused(&format!("{columns} {view}"));
                assert!(error.contains("cannot be used with"), "{view} {columns}: {error}");
            }
        }
    }
}
