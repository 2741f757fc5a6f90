//! The command line: one file a subcommand, each `Args` and `run(Args) -> Result<ExitCode>`.

mod completions;
mod doctor;
mod flame;
mod progress;
mod record;
mod report;
mod symbolize;
mod target;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A profiler for Linux: shows where a running program spends its time.
#[derive(Debug, Parser)]
#[command(name = "prof", version, max_term_width = 100, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Sample a process, a command, a cgroup or the whole machine into a pprof file
    Record(Box<record::Args>),
    /// Print where the time goes, from pprof files
    Report(Box<report::Args>),
    /// Draw a flame graph, from pprof files or of a target recorded now
    Flame(Box<flame::Args>),
    /// Give a recording made with --no-symbolize its names
    Symbolize(symbolize::Args),
    /// Say what this user can record on this machine, and how to unlock the rest
    Doctor(doctor::Args),
    /// Print shell completions
    Completions(completions::CompletionArgs),
    /// Print the man page
    Man(completions::ManArgs),
}

/// Parses the arguments, runs the command, prints an error as one line.
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage, 126 and 127 for a COMMAND that cannot be
/// executed or does not exist.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    crate::sampler::os::outlive_cut_files();
    let result = match cli.command {
        Command::Record(args) => record::run(*args),
        Command::Report(args) => report::run(*args),
        Command::Flame(args) => flame::run(*args),
        Command::Symbolize(args) => symbolize::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => completions::man(args),
    };
    result.unwrap_or_else(|error| fail(&error))
}

/// An error that chooses its own exit code.
#[derive(Debug)]
pub struct Exit {
    /// The code.
    pub code: u8,
    /// The line that says what happened and what to do.
    pub message: String,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Exit {}

/// Wrong usage: exit code 2.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    Exit { code: 2, message: message.into() }.into()
}

fn fail(error: &anyhow::Error) -> ExitCode {
    if is_broken_pipe(error) {
        return ExitCode::SUCCESS;
    }
    eprintln!("prof: {error:#}");
    let own = error.downcast_ref::<Exit>().map(|e| e.code);
    let sampler = error.downcast_ref::<crate::sampler::Error>().map(crate::sampler::Error::code);
    ExitCode::from(own.or(sampler).unwrap_or(1))
}

/// `prof report | head` is no failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
