//! `prof annotate`.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use super::filter::FilterArgs;
use super::report::nothing_to_show;
use super::symbol_args::SymbolArgs;
use super::{examples, usage};
use crate::report::annotate::{
    self, Annotated, Annotation, BinaryCode, Layout, Newer, Text, by_binary, skids,
};
use crate::report::text;
use code::assembly::{Limits, Request, disassemble};
use code::text::{SourcePaths, SourceText};
use profile::{Profile, StrId};
use symbols::{Binary, SymbolOptions};
use sys::{printed, suggest};
use view::source::{Listing, Selection, Source, Unit, candidates};
use view::{Granularity, View};

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
    let paths = args.paths()?;
    let options = args.symbols.options()?;
    let profile = args.filter.load(&args.files)?;
    let type_index = args.filter.type_index(&profile)?;
    let granularity = Granularity { binary: false, line: true, ..Granularity::FUNCTION };
    let view = View::new(&profile, type_index, granularity);
    let mut out = printed::stdout();
    if !args.json {
        text::write_summary(&mut out, &view)?;
        if view.kept_total == 0 {
            writeln!(out, "{}", nothing_to_show(&view))?;
            out.flush()?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    let mut selection = select(&view, &args.what)?;
    if args.asm {
        selection.unit = Unit::Function;
    }
    let source = Source::new(&view, &selection);
    let mut lookup = Lookup { view: &view, options: &options, built: HashMap::new() };
    let shown = source.listings.iter().take(args.rows());
    let shown = shown.map(|listing| lookup.annotate(listing, &paths, args.asm)).collect();
    let annotation = Annotation { source: &source, shown, with_code: args.asm };
    if args.json {
        annotate::write_json(&mut out, &view, &annotation)?;
    } else {
        write(&args, &view, &annotation, &paths, &mut out)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn write(
    args: &Args,
    view: &View,
    annotation: &Annotation<'_>,
    paths: &SourcePaths,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let layout = Layout { all_lines: args.all_lines, percent: args.percent };
    for annotated in &annotation.shown {
        writeln!(out)?;
        if args.asm {
            annotate::write_assembly(out, view, annotated, layout, paths)?;
        } else {
            annotate::write_source(out, view, annotation.source.unit, annotated, layout)?;
        }
    }
    let left = annotation.source.listings.len() - annotation.shown.len();
    if left > 0 {
        writeln!(out, "\n… and {left} more; -n 0 shows all")?;
    }
    if annotation.source.listings.is_empty() {
        writeln!(out, "No sample that passes the filter has a value there.")?;
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
    /// Modification times of the binaries' files, by path.
    built: HashMap<StrId, Option<SystemTime>>,
}

impl Lookup<'_> {
    fn annotate<'l>(
        &mut self,
        listing: &'l Listing,
        paths: &SourcePaths,
        with_code: bool,
    ) -> Annotated<'l> {
        let profile = self.view.profile;
        let text = SourceText::find(profile.str(listing.file), paths);
        let newer_than = text.as_ref().ok().and_then(|text| self.newer(listing, text));
        let code = if with_code { self.code(listing) } else { Vec::new() };
        Annotated { listing, text: Text { text, newer_than }, code }
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
