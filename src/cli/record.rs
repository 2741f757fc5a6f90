//! `prof record`.

use std::process::ExitCode;

/// Arguments of `prof record`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs `prof record`.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not there yet")
}
