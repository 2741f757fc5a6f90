//! `prof flame`.

use std::process::ExitCode;

/// Arguments of `prof flame`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs `prof flame`.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not there yet")
}
