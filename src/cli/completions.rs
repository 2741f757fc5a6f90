//! `prof completions` and `prof man`.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::CommandFactory;

/// Arguments of `prof completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionArgs {
    /// The shell to complete for
    shell: clap_complete::Shell,
}

/// Arguments of `prof man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {}

/// Prints the completions of a shell.
pub fn run(args: CompletionArgs) -> anyhow::Result<ExitCode> {
    let mut out = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "prof", &mut out);
    io::stdout().write_all(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the man page, the subcommands' options included.
pub fn man(_args: ManArgs) -> anyhow::Result<ExitCode> {
    let mut out = Vec::new();
    clap_mangen::Man::new(super::Cli::command()).render(&mut out)?;
    io::stdout().write_all(&out)?;
    Ok(ExitCode::SUCCESS)
}
