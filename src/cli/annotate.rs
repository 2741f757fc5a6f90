//! `prof annotate`.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use super::filter::FilterArgs;
use super::report::nothing_to_show;
use super::symbol_args::SymbolArgs;
use super::{examples, usage};
use crate::report::annotate::{self, Annotated, BinaryCode, Layout, Newer, Text, by_binary, skids};
use crate::report::text;
use code::assembly::{Limits, Request, disassemble};
use code::text::{NoText, SourcePaths, SourceText};
use profile::{Profile, StrId};
use symbols::{Binary, SymbolOptions};
use sys::{printed, suggest};
use view::source::{Listing, Selection, Source, Unit, candidates};
use view::{Granularity, View};

/// Functions without `-n`.
const DEFAULT_FUNCTIONS: usize = 10;

/// Names that an error suggests.
const SUGGESTED: usize = 3;

/// Bytes of source text that are kept for the next listings.
const MAX_TEXT: usize = 64 << 20;

/// Arguments of `prof annotate`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::short("annotate"), after_long_help = examples::long("annotate"))]
pub struct Args {
    /// A function, a source file, or a regular expression of functions
    ///
    /// The functions of this name; if there are none, the source files with this path or with these
    /// last parts of a path; if there are none, the functions whose names contain a match.
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
    let paths = args.paths()?;
    let options = args.symbols.options()?;
    let profile = args.filter.load(&args.files)?;
    let type_index = args.filter.type_index(&profile)?;
    let granularity = Granularity { binary: false, line: true, ..Granularity::FUNCTION };
    let view = View::new(&profile, type_index, granularity);
    let source = source(&view, &args)?;
    let mut out = printed::stdout();
    if !args.json {
        text::write_summary(&mut out, &view)?;
    }
    let mut lookup = Lookup {
        view: &view,
        options: &options,
        paths: &paths,
        with_code: args.asm,
        texts: HashMap::new(),
        size: 0,
        built: HashMap::new(),
    };
    if args.json {
        let shown = source.listings.iter().take(args.rows());
        let shown = shown.map(|listing| lookup.annotate(listing));
        annotate::write_json(&mut out, &view, &source, shown)?;
    } else {
        write(&args, &source, &mut lookup, &mut out)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The listings of WHAT; none of a view without samples, in which nothing has a name.
fn source(view: &View, args: &Args) -> anyhow::Result<Source> {
    let nothing = Source { unit: Unit::Function, listings: Vec::new() };
    if view.kept_total == 0 {
        return Ok(nothing);
    }
    let mut selection = select(view, &args.what)?;
    if args.asm {
        selection.unit = Unit::Function;
    }
    Ok(Source::new(view, &selection))
}

fn write(
    args: &Args,
    source: &Source,
    lookup: &mut Lookup<'_>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let view = lookup.view;
    if view.kept_total == 0 {
        writeln!(out, "{}", nothing_to_show(view))?;
    } else if source.listings.is_empty() {
        writeln!(out, "No sample that passes the filter has a value there.")?;
    }
    let layout = Layout { all_lines: args.all_lines, percent: args.percent };
    for listing in source.listings.iter().take(args.rows()) {
        writeln!(out)?;
        let annotated = lookup.annotate(listing);
        if args.asm {
            annotate::write_assembly(out, view, &annotated, layout, lookup.paths)?;
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
fn select(view: &View, what: &str) -> anyhow::Result<Selection> {
    let found = Selection::find(view, what).map_err(|error| {
        let message = error.to_string();
        let last = message.lines().last().unwrap_or_default().trim_start_matches("error: ");
        usage(format!("{what:?} is no function or file, and not a regular expression: {last}"))
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

/// Finds text and code of listings.
struct Lookup<'a> {
    view: &'a View<'a>,
    options: &'a SymbolOptions,
    paths: &'a SourcePaths,
    with_code: bool,
    /// Source files by recorded path, and the bytes of their lines.
    texts: HashMap<StrId, Result<Arc<SourceText>, NoText>>,
    size: usize,
    /// Modification times of the binaries' files, by path.
    built: HashMap<StrId, Option<SystemTime>>,
}

impl Lookup<'_> {
    fn annotate<'l>(&mut self, listing: &'l Listing) -> Annotated<'l> {
        let text = self.text(listing.file);
        let newer_than = text.as_ref().ok().and_then(|text| self.newer(listing, text));
        let code = self.with_code.then(|| self.code(listing));
        Annotated { listing, text: Text { text, newer_than }, code }
    }

    fn text(&mut self, file: StrId) -> Result<Arc<SourceText>, NoText> {
        if let Some(known) = self.texts.get(&file) {
            return known.clone();
        }
        if self.size > MAX_TEXT {
            self.texts.clear();
            self.size = 0;
        }
        let recorded = self.view.profile.str(file);
        let text = SourceText::find(recorded, self.paths).map(Arc::new);
        self.size += text.as_ref().map_or(0, |text| text.size());
        self.texts.insert(file, text.clone());
        text
    }

    /// The time that a source file is newer than: that of its binary, or of the recording if the
    /// binary is no longer there.
    fn newer(&mut self, listing: &Listing, text: &SourceText) -> Option<Newer> {
        let profile: &Profile = self.view.profile;
        let mapping = listing.mapping.map(|m| &profile.mappings[m.0 as usize]);
        let built = mapping.and_then(|mapping| {
            let (name, build_id) = (profile.str(mapping.file), profile.str(mapping.build_id));
            *self.built.entry(mapping.file).or_insert_with(|| {
                let options = SymbolOptions { debuginfod: None, ..self.options.clone() };
                let found = Path::new(name).is_absolute().then(|| {
                    let binary = Binary::find(name, build_id, &options).ok()?;
                    binary.file.metadata().ok()?.modified().ok()
                });
                found.flatten()
            })
        });
        let recorded = || code::text::time(profile.time_nanos);
        match built {
            Some(built) => text.is_newer_than(built).then_some(Newer::Binary),
            None => recorded()
                .is_some_and(|recorded| text.is_newer_than(recorded))
                .then_some(Newer::Recording),
        }
    }

    fn code(&self, listing: &Listing) -> Vec<BinaryCode> {
        let profile = self.view.profile;
        let (kind, unit) = self.view.value_type();
        let of_binaries = by_binary(self.view, listing).into_iter();
        let code = of_binaries.map(|found| {
            let request = Request {
                binary: profile.str(found.binary),
                build_id: profile.str(found.build_id),
                weights: &found.weights,
                skids: skids(kind, unit),
            };
            let code = disassemble(&request, self.options, Limits::default());
            BinaryCode { binary: found.binary, build_id: found.build_id, code }
        });
        code.collect()
    }
}
