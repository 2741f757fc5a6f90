//! `prof report`.

use std::process::ExitCode;

/// Arguments of `prof report`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs `prof report`.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not there yet")
}
