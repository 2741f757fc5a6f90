//! `prof annotate`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use super::filter::{FilterArgs, FrameParts};
use super::report::nothing_to_show;
use super::source::ProfileSource;
use super::symbol_args::SymbolArgs;
use super::{examples, usage};
use crate::report::annotate::{self, Annotated, Layout, Lookup, Order};
use crate::report::text::{self, quoted};
use code::text::SourcePaths;
use sys::{printed, suggest};
use view::View;
use view::query::{Query, Shown, ShownSource, regex_reason};
use view::source::{Listing, Selection, Source, Unit, candidates};

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
    #[arg(value_name = "WHAT")]
    what: String,

    /// pprof files; several are merged; - is standard input [default: profile.pb.gz]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

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
    filter: FilterArgs,

    #[command(flatten)]
    symbols: SymbolArgs,

    /// Print JSON, with exact values
    #[arg(long, help_heading = "Output")]
    json: bool,
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

    fn rows(&self) -> usize {
        match self.nodecount {
            None if self.json => usize::MAX,
            None => DEFAULT_FUNCTIONS,
            Some(0) => usize::MAX,
            Some(most) => most,
        }
    }
}

/// Runs `prof annotate`.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut args = args;
    args.filter.no_inlines |= args.symbols.no_inlines();
    args.check_granularity()?;
    let paths = args.paths()?;
    let options = args.symbols.options()?;
    let profile = args.filter.load(&ProfileSource::Files(args.files.clone()))?;
    let type_index = args.filter.type_index(&profile)?;
    let shown = ShownSource { name: args.what.clone(), assembly: args.asm };
    let query = Query { granularity: None, ..args.filter.query(Shown::Source(shown)) };
    let part = args.filter.part(profile, &query)?;
    let view = View::new(&part.profile, type_index, query.granularity());
    let mut lookup = Lookup::new(&view, &paths, &options);
    let source = source(&view, &lookup, &mut args)?;
    let mut out = printed::stdout();
    if !args.json {
        text::write_summary(&mut out, &view)?;
    }
    if args.json {
        let shown = source.listings.iter().take(args.rows());
        let shown = shown.map(|listing| annotate(listing, &mut lookup, args.asm));
        let notes = || annotate::server_notes(&options);
        annotate::write_json(&mut out, &view, &source, shown, args.all_lines, notes)?;
    } else {
        write(&args, &view, &source, &mut lookup, &mut out)?;
        for note in annotate::server_notes(&options) {
            writeln!(out, "\n{note}")?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The listings of WHAT; none of a view without samples, in which nothing has a name. Code without a
/// name has instructions only.
fn source(view: &View, lookup: &Lookup<'_>, args: &mut Args) -> anyhow::Result<Source> {
    let nothing = Source { unit: Unit::Function, listings: Vec::new() };
    if view.kept_total == 0 {
        return Ok(nothing);
    }
    let mut selection = select(view, lookup, &args.what)?;
    if selection.is_unnamed() {
        let what = &args.what;
        anyhow::ensure!(!args.source, "{what} has no name and no source lines; --asm prints it");
        args.asm = true;
    }
    if args.asm {
        selection.unit = Unit::Function;
    }
    Ok(Source::new(view, &selection))
}

/// The text of a listing, and with `--asm` its instructions.
fn annotate<'l>(listing: &'l Listing, lookup: &mut Lookup<'_>, with_code: bool) -> Annotated<'l> {
    let code = with_code.then(|| lookup.code(listing));
    Annotated { listing, text: lookup.text(listing), code }
}

fn write(
    args: &Args,
    view: &View,
    source: &Source,
    lookup: &mut Lookup<'_>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if view.kept_total == 0 {
        writeln!(out, "{}", nothing_to_show(view, &args.filter.samples.time))?;
    } else if source.listings.is_empty() {
        writeln!(out, "No sample that passes the filter has a value there.")?;
    }
    let order = match args.order {
        LineOrder::Line => Order::Line,
        LineOrder::SelfValue => Order::SelfValue,
        LineOrder::Total => Order::Total,
    };
    let layout = Layout { all_lines: args.all_lines, percent: args.percent, order };
    for listing in source.listings.iter().take(args.rows()) {
        writeln!(out)?;
        let annotated = annotate(listing, lookup, args.asm);
        if args.asm {
            annotate::write_assembly(out, view, &annotated, layout, &mut lookup.sources)?;
        } else {
            annotate::write_source(out, view, source.unit, &annotated, layout)?;
        }
    }
    let left = source.listings.len().saturating_sub(args.rows());
    if left > 0 {
        writeln!(out, "\n… and {left} more; -n 0 shows all")?;
    }
    Ok(())
}

/// The frames that WHAT selects. Fails if there are none, with suggestions.
fn select(view: &View, lookup: &Lookup<'_>, what: &str) -> anyhow::Result<Selection> {
    if let Some(selection) = Selection::function(view, what).or_else(|| lookup.unnamed(what)) {
        return Ok(selection);
    }
    let found = Selection::find(view, what).map_err(|error| {
        let reason = regex_reason(&error);
        usage(format!(
            "{} is no function or file, and not a regular expression: {reason}",
            quoted(what)
        ))
    })?;
    if let Some(selection) = found {
        return Ok(selection);
    }
    let names = candidates(view);
    if names.is_empty() {
        anyhow::bail!("the profile has no names of functions; prof symbolize adds them");
    }
    let near = suggest::similar(what, names.iter().copied(), SUGGESTED);
    match near.as_slice() {
        [] => anyhow::bail!("no function or file of the profile matches {what:?}"),
        near => {
            let near = near.join(", ");
            anyhow::bail!("no function or file of the profile matches {what:?}; similar: {near}")
        }
    }
}
