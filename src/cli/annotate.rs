//! `prof annotate`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use super::filter::{FilterArgs, FrameParts, failed};
use super::perf_options::{PerfAnnotate, PerfArgs};
use super::report::nothing_to_show;
use super::source::{InputArgs, ProfileSource};
use super::symbol_args::SymbolArgs;
use super::values::ValueArgs;
use super::{examples, usage};
use crate::report::annotate::{self, CodeOptions, Layout, Order};
use crate::report::text::{self, LineWidth};
use code::text::SourcePaths;
use sys::{printed, suggest};
use view::query::{Limits, Query, QueryError, Shown, ShownSource, Wanted};
use view::source::candidates;
use view::{Cancel, Model, Part, SourceModel, View};

/// Functions without `-n`.
const DEFAULT_FUNCTIONS: usize = 10;

/// Names that an error suggests.
const SUGGESTED: usize = 3;

/// Arguments of `prof annotate`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::short("annotate"), after_long_help = examples::long("annotate"))]
pub struct Args {
    /// A function, a source file, or a regular expression of functions
    ///
    /// The functions of this name; if there are none, the source files with this path or with these
    /// last parts of a path; if there are none, the functions whose names contain a match. Code
    /// without a name is selected by an address of it, as reports have it: libfoo.so.1+0x1234.
    #[arg(value_name = "WHAT", required_unless_present = "symbol")]
    what: Option<String>,

    /// Profiles; several are merged; - is standard input [default: profile.pb.gz]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    input: InputArgs,

    /// The same as WHAT, as in perf
    #[arg(short, long, value_name = "WHAT", help_heading = "View")]
    symbol: Option<String>,

    /// Print source lines with values, which is the default
    #[arg(long, help_heading = "View", conflicts_with = "asm")]
    source: bool,

    /// Print instructions with values, between their source lines
    ///
    /// Binaries are found by the paths in the profile and in --symbol-path, and checked by build
    /// ID. Large functions are cut around the hottest instruction: 64 KiB or 20,000 instructions
    /// are disassembled.
    #[arg(long, help_heading = "View")]
    asm: bool,

    /// Print whole files and functions, also parts without a value
    #[arg(long, help_heading = "View")]
    all_lines: bool,

    /// Print values in percent of the total
    #[arg(long, help_heading = "View")]
    percent: bool,

    /// Order of source lines; by value, only lines with a value are printed
    #[arg(long, value_enum, default_value = "line", value_name = "ORDER", help_heading = "View",
          conflicts_with_all = ["asm", "all_lines", "json"])]
    order: LineOrder,

    /// Print at most N functions or files; 0 prints all [default: 10]
    ///
    /// With --json, the default is all.
    #[arg(short, long, value_name = "N", help_heading = "View")]
    nodecount: Option<usize>,

    /// Look for source files in DIR (repeatable)
    ///
    /// In DIR, a file is found by its recorded path without the prefix of --trim-path, and, if the
    /// recorded path does not exist, by as many of its last parts as possible.
    #[arg(long, alias = "source_path", value_name = "DIR", help_heading = "Source")]
    source_path: Vec<PathBuf>,

    /// Remove PREFIX from recorded paths of source files (repeatable)
    #[arg(long, alias = "trim_path", value_name = "PREFIX", help_heading = "Source")]
    trim_path: Vec<String>,

    #[command(flatten)]
    values: ValueArgs,

    #[command(flatten)]
    filter: FilterArgs,

    #[command(flatten)]
    symbols: SymbolArgs,

    /// Print JSON, with exact values
    #[arg(long, help_heading = "Output")]
    json: bool,

    /// Print text, which is the default, as in perf
    #[arg(long, hide = true)]
    stdio: bool,

    #[command(flatten)]
    perf: PerfArgs<PerfAnnotate>,
}

/// The order of source lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LineOrder {
    /// As in the file.
    Line,
    /// Largest self value first.
    #[value(name = "self")]
    SelfValue,
    /// Largest total first.
    Total,
}

impl Args {
    /// What is annotated.
    fn what(&self) -> &str {
        self.symbol.as_ref().or(self.what.as_ref()).map_or("", |what| what)
    }

    /// The profiles; with `--symbol`, WHAT is the first.
    fn source(&self) -> ProfileSource {
        let first = self.what.as_ref().filter(|_| self.symbol.is_some()).map(PathBuf::from);
        let files: Vec<PathBuf> = first.into_iter().chain(self.files.iter().cloned()).collect();
        self.input.source(&files)
    }

    fn paths(&self) -> anyhow::Result<SourcePaths> {
        for directory in &self.source_path {
            if !directory.is_dir() {
                let directory = directory.display();
                return Err(usage(format!("--source-path: {directory} is not a directory")));
            }
        }
        Ok(SourcePaths { directories: self.source_path.clone(), trim: self.trim_path.clone() })
    }

    /// Fails if frames are to differ by other parts than lines or, with `--asm`, addresses.
    fn check_granularity(&self) -> anyhow::Result<()> {
        match self.filter.granularity {
            None | Some(FrameParts::Lines) => Ok(()),
            Some(FrameParts::Addresses) if self.asm => Ok(()),
            Some(FrameParts::Addresses) => {
                Err(usage("--granularity addresses needs --asm: prof annotate prints source lines"))
            }
            Some(_) => Err(usage(
                "--granularity: prof annotate prints lines, or addresses with --asm; prof report \
                 has the other parts",
            )),
        }
    }

    fn query(&self) -> Query {
        let name = self.what().to_owned();
        let shown = ShownSource { name, is_exact: false, assembly: self.asm };
        let default = if self.json { 0 } else { DEFAULT_FUNCTIONS };
        let limits = Limits { rows: self.nodecount.unwrap_or(default), ..Limits::NONE };
        let value_options = self.values.options();
        Query { limits, value_options, ..self.filter.query(Shown::Source(shown)) }
    }

    fn layout(&self) -> Layout {
        let order = match self.order {
            LineOrder::Line => Order::Line,
            LineOrder::SelfValue => Order::SelfValue,
            LineOrder::Total => Order::Total,
        };
        Layout { all_lines: self.all_lines, percent: self.percent, order }
    }

    /// Writes why there are no listings, if there are none.
    fn write_reason(
        &self,
        out: &mut dyn Write,
        view: &View,
        found: &SourceModel,
    ) -> std::io::Result<()> {
        if view.kept_total == 0 {
            writeln!(out, "{}", nothing_to_show(view, &self.filter.samples.time))
        } else if found.listing_count == 0 {
            writeln!(out, "No sample that passes the filter has a value there.")
        } else {
            Ok(())
        }
    }
}

/// Runs `prof annotate`.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    args.perf.check()?;
    let mut args = args;
    args.filter.no_inlines |= args.symbols.no_inlines();
    args.filter.names = args.symbols.clone().into();
    args.check_granularity()?;
    let places = CodeOptions { paths: args.paths()?, symbols: args.symbols.options()? };
    let profile = args.filter.load(&args.source())?;
    let type_index = args.filter.type_index(&profile)?;
    args.values.check(&profile, type_index)?;
    let query = Query { type_index, ..args.query() };
    let part = args.filter.part(profile, &query)?;
    let answer = annotate::answer(part.clone(), &query, &places, &Cancel::default());
    let answer = answer.map_err(|error| suggested(&error, &part, &query))?;
    let Model::Source(found) = &answer.model else {
        return Err(failed(&QueryError::NotAnswered));
    };
    let what = args.what();
    anyhow::ensure!(
        !(found.is_unnamed && args.source),
        "{what} has no name and no source lines; --asm prints it"
    );
    let (view, mut out) = (answer.view(), printed::stdout());
    if args.json {
        annotate::write_json(&mut out, &view, found, &places, args.all_lines)?;
    } else {
        text::write_summary(&mut out, &view, LineWidth::stdout())?;
        args.write_reason(&mut out, &view, found)?;
        annotate::write_text(&mut out, &view, found, &places, args.layout())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The error of a query without an answer, with names that are similar to a missing one.
fn suggested(error: &QueryError, part: &Part, query: &Query) -> anyhow::Error {
    let QueryError::NoFunction(Wanted::Source(what)) = error else { return failed(error) };
    let view = query.view(&part.profile, &Cancel::default());
    let names = candidates(&view);
    if names.is_empty() {
        return anyhow::anyhow!("the profile has no names of functions; prof symbolize adds them");
    }
    let near = suggest::similar(what, names.iter().copied(), SUGGESTED);
    match near.as_slice() {
        [] => failed(error),
        near => anyhow::anyhow!("{}; similar: {}", failed(error), near.join(", ")),
    }
}
