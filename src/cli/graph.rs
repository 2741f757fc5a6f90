//! `prof graph`.

use std::io::Write;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::address_names::BinaryArgs;
use super::filter::{FilterArgs, answered};
use super::output::Output;
use super::output::replaced::{self, Written};
use super::picture::{self, Picture};
use super::source::FileArgs;
use super::values::ValueArgs;
use super::{examples, report, usage};
use crate::report::answer::{self, OutputFormat};
use crate::report::graphviz;
use sys::printed;
use view::query::{Query, Shown};
use view::{Answer, Model, Trim};

/// The heading of options for the drawing in help.
const HEADING: &str = "Drawing";

/// Arguments of `prof graph`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::short("graph"), after_long_help = examples::long("graph"))]
pub struct Args {
    /// Profiles
    #[command(flatten)]
    files: FileArgs,

    #[command(flatten)]
    filter: FilterArgs,

    #[command(flatten)]
    binaries: BinaryArgs,

    #[command(flatten)]
    values: ValueArgs,

    /// Draw at most N functions; 0 draws all
    #[arg(short, long, value_name = "N", default_value = "80", value_parser = report::rows,
          allow_negative_numbers = true, help_heading = HEADING)]
    nodecount: usize,

    /// Leave out functions with a total below this fraction of the whole
    #[arg(long, value_name = "FRACTION", default_value = "0.005", value_parser = fraction,
          allow_negative_numbers = true, help_heading = HEADING)]
    nodefraction: f64,

    /// Leave out calls with a value below this fraction of the whole
    #[arg(long, value_name = "FRACTION", default_value = "0.001", value_parser = fraction,
          allow_negative_numbers = true, help_heading = HEADING)]
    edgefraction: f64,

    /// Write to FILE: an SVG if it ends in .svg [default: standard output]
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,

    /// Write an SVG, which Graphviz draws, instead of DOT
    #[arg(long, help_heading = "Output")]
    svg: bool,

    /// Write the graph as JSON, with exact values
    #[arg(long, conflicts_with = "svg", help_heading = "Output")]
    json: bool,
}

fn fraction(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(f) if (0.0..=1.0).contains(&f) => Ok(f),
        _ => Err("not a number from 0 to 1".to_string()),
    }
}

/// Runs `prof graph`.
pub fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    args.filter.names = (&args.binaries).into();
    if let Some(path) = args.output.as_deref().filter(|_| !args.json) {
        picture::check_name(path, Picture::Graph)?;
    }
    if args.is_svg() && args.output.is_none() && printed::stdout_is_terminal() {
        return Err(usage("will not write an SVG to the terminal; add > out.svg or -o out.svg"));
    }
    let path = args.output.as_deref().unwrap_or(Path::new("-"));
    replaced::check(path, args.written())?;
    let output = Output::create_any(path)?;
    let profile = args.filter.load(&args.files.source())?;
    let type_index = args.filter.type_index(&profile)?;
    args.values.check(&profile, type_index)?;
    let Args { nodecount, nodefraction, edgefraction, .. } = args;
    let trim = Trim { nodes: nodecount, node_fraction: nodefraction, edge_fraction: edgefraction };
    let value_options = args.values.options();
    let query = Query { type_index, value_options, ..args.filter.query(Shown::Graph(trim)) };
    let part = args.filter.part(profile, &query)?;
    // Kept, so that it is not freed: that takes longer, piece by piece, than the system needs for all.
    let answer = ManuallyDrop::new(answered(part, &query)?);
    draw(&args, &query, &answer, output)?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn written(&self) -> Written {
        match (self.json, self.is_svg()) {
            (true, _) => Written::Json,
            (false, true) => Written::Svg,
            (false, false) => Written::Dot,
        }
    }

    fn is_svg(&self) -> bool {
        let name = self.output.as_ref().filter(|_| !self.json);
        self.svg
            || name
                .is_some_and(|path| path.extension().is_some_and(|e| e.eq_ignore_ascii_case("svg")))
    }
}

fn draw(args: &Args, query: &Query, answer: &Answer, output: Output) -> anyhow::Result<()> {
    let text = |format: OutputFormat| {
        move |out: &mut dyn Write| answer::write(out, answer, query, format, None)
    };
    if args.json {
        output.write_text(text(OutputFormat::Json))?;
        return Ok(());
    }
    let view = answer.view();
    if view.kept_total == 0 {
        anyhow::bail!(
            "nothing to draw: {}",
            report::nothing_to_show(&view, &args.filter.samples.time)
        );
    }
    anyhow::ensure!(
        matches!(&answer.model, Model::Graph(graph) if !graph.nodes.is_empty()),
        "nothing to draw: every function is below --nodefraction {}; lower it",
        args.nodefraction
    );
    if args.is_svg() {
        let mut dot = Vec::new();
        text(OutputFormat::WHOLE_TEXT)(&mut dot)?;
        let svg = graphviz::svg(dot)?;
        output.write_text(|out| out.write_all(&svg))?;
    } else {
        output.write_text(text(OutputFormat::WHOLE_TEXT))?;
    }
    Ok(())
}
