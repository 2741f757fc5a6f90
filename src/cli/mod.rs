//! The command line: one file a subcommand, each `Args` and `run(Args) -> Result<ExitCode>`.

mod completions;
mod doctor;
mod events;
mod filter;
mod flame;
mod heap;
mod list;
mod probes;
mod progress;
mod record;
mod report;
mod symbolize;
mod symbols;
mod target;
mod threads;
mod trust;

use std::borrow::Cow;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};

/// A profiler for Linux: shows where a running program spends its time.
#[derive(Debug, Parser)]
#[command(name = "prof", version, max_term_width = 100)]
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
    /// List the events of this machine, and the markers of programs
    List(list::Args),
    /// Print what each thread does now, with its stack
    Threads(threads::Args),
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
    let cli = Cli::try_parse().unwrap_or_else(|error| with_hint(error).exit());
    crate::process::mapped::outlive_cut_files();
    let result = match cli.command {
        Command::Record(args) => record::run(*args),
        Command::Report(args) => report::run(*args),
        Command::Flame(args) => flame::run(*args),
        Command::List(args) => list::run(args),
        Command::Threads(args) => threads::run(args),
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

/// `prof record ls -l`, as with perf: how to write that.
fn with_hint(mut error: clap::Error) -> clap::Error {
    let words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if error.kind() == ErrorKind::UnknownArgument
        && words.get(1).is_some_and(|subcommand| subcommand == "record")
        && let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg)
        && !word.starts_with('-')
        && let Some(at) = words.iter().position(|w| w == word)
    {
        let quoted =
            |words: &[String]| words.iter().map(|w| shell_word(w)).collect::<Vec<_>>().join(" ");
        let (options, command) = (quoted(&words[1..at]), quoted(&words[at..]));
        let tip = format!("a command stands behind '--': prof {options} -- {command}");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// What to type behind a command so that it reads the profile `file`: nothing for the default.
fn file_arg(file: &str) -> String {
    match file {
        report::DEFAULT_FILE => String::new(),
        file => format!(" {}", shell_word(file)),
    }
}

/// `text` as a word of a shell's command line.
fn shell_word(text: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_alphanumeric() || "_./:=@%+,-".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.into(),
        false => format!("'{}'", text.replace('\'', r"'\''")).into(),
    }
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

#[cfg(test)]
mod tests {
    use super::shell_word;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(shell_word("a/b-1.pb.gz"), "a/b-1.pb.gz");
        assert_eq!(shell_word("my file.gz"), "'my file.gz'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word(""), "''");
    }
}
