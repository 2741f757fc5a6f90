//! `prof merge`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use super::address_names::BinaryArgs;
use super::examples;
use super::filter::samples::{self, SampleArgs};
use super::source::ProfileSource;
use view::without_dropped_frames;

/// Arguments of `prof merge`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::short("merge"), after_long_help = examples::long("merge"))]
pub struct Args {
    /// Profiles; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Write to FILE, which is replaced if it is a profile; - is standard output
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: PathBuf,

    #[command(flatten)]
    samples: SampleArgs,

    #[command(flatten)]
    binaries: BinaryArgs,
}

/// Runs `prof merge`.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    args.samples.check()?;
    // First, so that an unwritable path is reported before the work.
    let output = samples::output(&args.output)?;
    let profile = ProfileSource::Files(args.files).read(&(&args.binaries).into())?.noted();
    // As it was recorded: the frames that a profile drops are dropped where it is shown.
    let merged = if args.samples.added().is_empty() {
        profile
    } else {
        let part = args.samples.part(Arc::new(without_dropped_frames(profile)))?;
        Arc::unwrap_or_clone(part.profile)
    };
    samples::write(merged, output)?;
    Ok(ExitCode::SUCCESS)
}
