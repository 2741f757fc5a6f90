//! `prof report`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use super::columns::ColumnArgs;
use super::diff::{Comparison, ScaleArgs, TestArgs};
use super::filter::{FilterArgs, samples};
use super::sort::{Grouping, SortKey, check_labels, sort_key};
use super::time::{self, TimeArgs};
use super::{examples, usage};
use crate::report::over::OverRequest;
use crate::report::terminal::Start;
use crate::report::views::{self, OutputFormat, Registered, Request};
use crate::report::{json, text};
use profile::Profile;
use sys::printed;
use view::answer::HeaderAnswer;
use view::{ColumnRequest, Direction, Granularity, Sort, View};

pub(super) mod interactive;
mod load;
mod view_args;

use interactive::Files;
use view_args::ViewArgs;

pub use interactive::has_terminal;
pub use load::{DEFAULT_FILE, Loaded, beyond_63_bits, load_unchanged};

/// Arguments of `prof report`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::short("report"), after_long_help = examples::long("report"))]
pub struct Args {
    /// pprof files; several are merged; - is standard input [default: profile.pb.gz]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The same as FILE, as in perf
    #[arg(short, long = "input", value_name = "FILE", hide = true)]
    input: Vec<PathBuf>,

    /// Print a call tree; with 'caller', from functions to their callers
    ///
    /// ORDER is callee (the default, from callers to callees) or caller.
    #[arg(
        short = 'g',
        long,
        value_name = "ORDER",
        num_args = 0..=1,
        default_missing_value = "callee",
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
          conflicts_with_all = ["call_graph", "ratio", "coverage", "quality"])]
    over: Option<u64>,

    #[command(flatten)]
    filter: FilterArgs,

    #[command(flatten)]
    source: interactive::SourceArgs,

    /// Print direct recursion as one frame, in call trees
    #[arg(long, help_heading = "View")]
    collapse_recursion: bool,

    /// Print at most N rows; 0 prints all [default: 30, or 200 with -g]
    ///
    /// With --json, the default is all.
    #[arg(short, long, value_name = "N", value_parser = rows, allow_negative_numbers = true,
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
          conflicts_with_all = ["json", "header", "header_only", "call_graph"])]
    output: Option<PathBuf>,

    /// Print text also on a terminal, where the views are interactive otherwise
    #[arg(long, help_heading = "Output")]
    stdio: bool,
}

pub(super) fn rows(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "not a number of rows; 0 shows all".to_string())
}

pub(super) fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(p) if (0.0..=100.0).contains(&p) => Ok(p),
        _ => Err("not a number from 0 to 100".to_string()),
    }
}

/// The files and the view that the arguments select.
struct Plan {
    files: Vec<PathBuf>,
    direction: Option<Direction>,
    granularity: Granularity,
    order: Sort,
    labels: Vec<String>,
    /// The subset of `labels` that have to be labels of the profile.
    must_exist: Vec<String>,
}

impl Args {
    /// Resolves arguments that depend on each other.
    fn plan(&self) -> Plan {
        let mut files = self.files.clone();
        files.extend(self.input.iter().cloned());
        let direction = match self.call_graph.as_deref() {
            None => None,
            Some("caller" | "callers") => Some(Direction::Callers),
            Some("callee" | "callees") => Some(Direction::Callees),
            // `prof report -g FILE`: not a value of -g, so a FILE.
            Some(file) => {
                files.push(file.into());
                Some(Direction::Callees)
            }
        };
        let grouping = Grouping::parse(&self.sort);
        let granularity = grouping.resolved(self.filter.granularity());
        let Grouping { order, labels, must_exist, .. } = grouping;
        let order = if self.cum { Sort::Total } else { order };
        let mut plan = Plan { files, direction, granularity, order, labels, must_exist };
        if plan.direction.is_some()
            && !plan.granularity.function
            && self.filter.granularity.is_none()
        {
            plan.granularity = Granularity::FUNCTION;
        }
        if self.lines {
            (plan.granularity.function, plan.granularity.line) = (true, true);
        }
        plan
    }

    /// Shows or prints the difference to the bases.
    fn compare(self, plan: Plan) -> anyhow::Result<ExitCode> {
        let other = self.view.chosen.map(|view| format!("--{view}"));
        let other = other.or_else(|| self.over.map(|_| "--over".to_owned()));
        let other = other.or_else(|| self.output.as_ref().map(|_| "--output".to_owned()));
        if let Some(option) = other {
            return Err(usage(format!("{option} cannot be combined with --diff")));
        }
        let files = if plan.files.is_empty() { vec![DEFAULT_FILE.into()] } else { plan.files };
        let comparison = Comparison {
            files: [self.diff.clone(), files],
            scale: self.scale.scale(),
            absolute: self.test.absolute,
            granularity: plan.granularity,
            order: plan.order,
            labels: plan.labels,
            must_exist: plan.must_exist,
            children: !self.no_children,
            rows: self.nodecount,
            filter: &self.filter,
            json: self.json,
        };
        match comparison.start(interactive::selects_text(&self)) {
            Some(start) => {
                let sides = comparison.files.clone();
                let (scale, absolute) = (comparison.scale, comparison.absolute);
                let files = Files { sides, scale, absolute };
                let start = Start { code: self.source.options()?, ..start };
                interactive::compare(self.filter, files, start)
            }
            None => comparison.print(),
        }
    }

    /// The values over time that are requested, from the start of the recording.
    fn over_request(&self, plan: &Plan) -> Option<OverRequest> {
        let totals = plan.order == Sort::Total;
        self.over.map(|interval| OverRequest { interval, from: 0, totals })
    }

    /// The arguments of the view.
    fn request<'a>(&'a self, plan: &'a Plan) -> Request<'a> {
        let file = match plan.files.as_slice() {
            [] => Some(DEFAULT_FILE.into()),
            [file] if file.as_os_str() != "-" => Some(file.to_string_lossy()),
            _ => None,
        };
        Request {
            format: if self.json { OutputFormat::Json } else { OutputFormat::Text },
            argument: self.view.argument.as_deref(),
            direction: plan.direction,
            granularity: plan.granularity,
            labels: &plan.labels,
            order: plan.order.into(),
            children: !self.no_children,
            rows: self.nodecount,
            min_percent: self.percent_limit,
            columns: ColumnRequest::default(),
            over: self.over_request(plan),
            file: file.map(|file| super::shell_word(&file).into_owned()),
        }
    }
}

/// Runs `prof report`.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let plan = args.plan();
    if !args.diff.is_empty() {
        return args.compare(plan);
    }
    if let Some(option) = args.scale.given().or(args.test.given()) {
        return Err(usage(format!("{option} belongs to a comparison: add --diff BASE")));
    }
    if let Some(start) = interactive::start(&args, &plan)? {
        return interactive::run(args, plan, start);
    }
    let request = args.request(&plan);
    let chosen = views::find(args.view.chosen, &request);
    (chosen.check)(&request).map_err(usage)?;
    if let Some(path) = &args.output {
        let output = samples::output(path)?;
        samples::write(&args.filter.load_for_file(&plan.files)?, output)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut profile, from) = args.filter.load_part(&plan.files)?;
    args.filter.name_packages(&mut profile, plan.granularity);
    if args.over.is_some() {
        time::check("--over", &profile)?;
    }
    let over = request.over.map(|over| OverRequest { from, ..over });
    let request = Request { over, ..request };
    check_labels(&profile, &plan.must_exist)?;
    let mut out = printed::stdout();
    print(&args, chosen, request, &profile, &mut out)?;
    out.flush()?;
    // Freeing a large profile piece by piece takes longer than the system needs for all of it.
    std::mem::forget(profile);
    Ok(ExitCode::SUCCESS)
}

fn print(
    args: &Args,
    chosen: &Registered,
    request: Request<'_>,
    profile: &Profile,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let has_columns = views::COLUMNED.contains(&chosen.name);
    let columns = if has_columns {
        args.columns.request(profile, args.filter.type_indices(profile)?)?
    } else {
        ColumnRequest::default()
    };
    let type_index = match columns.types.first() {
        Some(&first) => first,
        None => args.filter.type_index(profile)?,
    };
    if (args.header || args.header_only) && !args.json {
        text::write_header(out, profile)?;
    }
    let request = Request { columns, ..request };
    if args.header_only {
        if args.json {
            let view = View::new(profile, type_index, request.granularity);
            json::write(out, &HeaderAnswer::new(&view))?;
        }
        return Ok(());
    }
    let mut view = View::new(profile, type_index, request.granularity);
    view.collapse_recursion = args.collapse_recursion;
    if chosen.option.as_ref().is_some_and(|option| option.value_name.is_some()) {
        // Nothing is printed if the value is wrong.
        let mut text = Vec::new();
        write_view(args, chosen, &request, &mut view, &mut text)?;
        return Ok(out.write_all(&text)?);
    }
    write_view(args, chosen, &request, &mut view, out)
}

/// Writes the summary and the view.
fn write_view(
    args: &Args,
    chosen: &Registered,
    request: &Request<'_>,
    view: &mut View<'_>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if !args.json {
        text::write_summary(out, view)?;
        if view.kept_total == 0 {
            writeln!(out, "{}", nothing_to_show(view, &args.filter.samples.time))?;
            return Ok(());
        }
    }
    Ok((chosen.write)(request, view, out)?)
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

    fn plan(line: &str) -> Plan {
        let words = std::iter::once("report").chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap_or_else(|e| panic!("{line}: {e}")).args.plan()
    }

    fn refused(line: &str) -> String {
        let words = std::iter::once("report").chain(line.split_whitespace());
        match Line::try_parse_from(words) {
            Ok(_) => panic!("{line} was accepted"),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn g_takes_a_direction_and_leaves_a_file() {
        let cases = [
            ("a.pb", None, vec!["a.pb"]),
            ("-g", Some(Direction::Callees), vec![]),
            ("-g a.pb", Some(Direction::Callees), vec!["a.pb"]),
            ("a.pb -g", Some(Direction::Callees), vec!["a.pb"]),
            ("-g caller a.pb", Some(Direction::Callers), vec!["a.pb"]),
            ("-g callee a.pb", Some(Direction::Callees), vec!["a.pb"]),
            ("a.pb -g caller", Some(Direction::Callers), vec!["a.pb"]),
            ("-g -", Some(Direction::Callees), vec!["-"]),
            ("-g -n 5 a.pb", Some(Direction::Callees), vec!["a.pb"]),
            ("-gcaller -i a.pb", Some(Direction::Callers), vec!["a.pb"]),
            ("-g a.pb b.pb", Some(Direction::Callees), vec!["b.pb", "a.pb"]),
        ];
        for (line, direction, files) in cases {
            let plan = plan(line);
            assert_eq!(plan.direction, direction, "{line}");
            let expected: Vec<PathBuf> = files.into_iter().map(PathBuf::from).collect();
            assert_eq!(plan.files, expected, "{line}");
        }
    }

    #[test]
    fn sort_orders_and_groups() {
        let p = plan("--sort comm,dso,symbol");
        assert_eq!((p.granularity, p.labels), (Granularity::FUNCTION, vec!["process".to_string()]));
        assert_eq!(plan("--sort symbol").granularity, Granularity::SYMBOL);
        assert_eq!(plan("").granularity, Granularity::FUNCTION);
        let p = plan("--sort process,total");
        assert_eq!((p.granularity, p.order), (Granularity::NONE, Sort::Total));
        assert_eq!(plan("-s name").order, Sort::Name);
        assert_eq!(plan("--cum").order, Sort::Total);
        assert!(plan("--lines").granularity.line);
        assert_eq!(plan("--sort label:request").labels, ["request"]);
        assert!(refused("--sort label:").contains("label:KEY"));
        let p = plan("--sort request,process");
        assert_eq!((p.labels.len(), p.must_exist), (2, vec!["request".to_string()]));
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
}
