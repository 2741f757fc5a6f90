//! `prof graph`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::filter::FilterArgs;
use super::output::Output;
use super::source::ProfileSource;
use super::{examples, report, usage};
use crate::report::summary::title;
use crate::report::{dot, graphviz, json};
use profile::Profile;
use sys::printed;
use view::answer::GraphAnswer;
use view::{Granularity, Graph, NodeOrder, Trim, View};

/// The heading of options for the drawing in help.
const HEADING: &str = "Drawing";

/// Arguments of `prof graph`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::short("graph"), after_long_help = examples::long("graph"))]
pub struct Args {
    /// pprof files; several are merged; - is standard input [default: profile.pb.gz]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    filter: FilterArgs,

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
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.is_svg() && args.output.is_none() && printed::stdout_is_terminal() {
        return Err(usage("will not write an SVG to the terminal; add > out.svg or -o out.svg"));
    }
    let output = Output::create_any(args.output.as_deref().unwrap_or(Path::new("-")))?;
    let profile = args.filter.load(&ProfileSource::Files(args.files.clone()))?;
    let type_index = args.filter.type_index(&profile)?;
    let granularity = args.filter.granularity().unwrap_or(Granularity::SYMBOL);
    let view = View::new(&profile, type_index, granularity);
    draw(&args, &view, output)?;
    // Freeing a large profile piece by piece takes longer than the system needs for all.
    std::mem::forget::<Profile>(profile);
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn is_svg(&self) -> bool {
        let name = self.output.as_ref().filter(|_| !self.json);
        self.svg || name.is_some_and(|path| path.extension().is_some_and(|e| e == "svg"))
    }
}

fn draw(args: &Args, view: &View, output: Output) -> anyhow::Result<()> {
    let Args { nodecount, nodefraction, edgefraction, .. } = *args;
    let trim = Trim { nodes: nodecount, node_fraction: nodefraction, edge_fraction: edgefraction };
    let graph = Graph::new(view, NodeOrder::Drawing, trim);
    if args.json {
        output.write_text(|out| json::write(out, &GraphAnswer::new(view, &graph)))?;
        return Ok(());
    }
    if view.kept_total == 0 {
        anyhow::bail!(
            "nothing to draw: {}",
            report::nothing_to_show(view, &args.filter.samples.time)
        );
    }
    anyhow::ensure!(
        !graph.nodes.is_empty(),
        "nothing to draw: every function is below --nodefraction {nodefraction}; lower it"
    );
    let title = title(view);
    if args.is_svg() {
        let mut text = Vec::new();
        dot::write(&mut text, view, &graph, &title)?;
        let svg = graphviz::svg(text)?;
        output.write_text(|out| out.write_all(&svg))?;
    } else {
        output.write_text(|out| dot::write(out, view, &graph, &title))?;
    }
    Ok(())
}
