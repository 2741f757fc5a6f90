//! `prof doctor`.

use std::process::ExitCode;

/// Arguments of `prof doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs `prof doctor`.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not there yet")
}
