//! `prof merge`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::examples;
use super::filter::samples::{self, SampleArgs};
use super::source::ProfileSource;

/// Arguments of `prof merge`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::short("merge"), after_long_help = examples::long("merge"))]
pub struct Args {
    /// pprof files; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Write to FILE, which is replaced if it is a profile; - is standard output
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: PathBuf,

    #[command(flatten)]
    samples: SampleArgs,
}

/// Runs `prof merge`.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let filter = args.samples.filter()?;
    // First, so that an unwritable path is reported before the work.
    let output = samples::output(&args.output)?;
    let profile = ProfileSource::Files(args.files).read()?.noted();
    // As it was recorded: the frames that a profile drops are dropped where it is shown.
    let merged = if filter.is_empty() && !args.samples.time.is_given() {
        profile
    } else {
        args.samples.apply(&filter, profile)?.0
    };
    samples::write(&merged, output)?;
    Ok(ExitCode::SUCCESS)
}
