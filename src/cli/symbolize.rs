//! `prof symbolize`.

use std::process::ExitCode;

/// Arguments of `prof symbolize`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs `prof symbolize`.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not there yet")
}
