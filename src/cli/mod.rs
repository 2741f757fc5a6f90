//! The command line: one file for each subcommand, with `Args` and `run(Args) -> Result<ExitCode>`.

mod address_names;
mod annotate;
mod columns;
mod completions;
mod diff;
mod doctor;
mod events;
mod examples;
mod export;
mod filter;
mod flame;
mod graph;
#[cfg(test)]
mod guide_commands;
mod hints;
mod list;
mod merge;
mod naming;
mod output;
mod perf_options;
mod picture;
mod progress;
mod quality;
mod record;
mod report;
mod sort;
mod source;
mod summary;
mod symbol_args;
mod symbolize;
mod target;
mod threads;
mod time;
mod top;
mod values;
mod words;

use std::borrow::Cow;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use sys::printed::{self, Stderr};
use sys::{Error, ErrorKind};

/// A profiler for Linux: records and shows where programs spend their time
///
/// It samples processes, commands, cgroups or the whole machine, unwinds stacks while recording,
/// and writes pprof files. 'prof COMMAND --help' describes each command.
#[derive(Debug, Parser)]
#[command(name = "prof", version, max_term_width = 100)]
#[command(after_help = examples::short("prof"), after_long_help = examples::long("prof"))]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Record a process, a command, a cgroup or the whole machine into a pprof file
    ///
    /// Stacks are unwound while recording. At the end, addresses are symbolized, and the profile is
    /// written to profile.pb.gz, or to FILE with -o. Without -T and -e, CPU time is recorded.
    Record(Box<record::Args>),
    /// Show profiles as tables, call trees, flame graphs or JSON
    ///
    /// Reads profiles of prof and of other tools. On a terminal, the views are interactive: '?'
    /// lists the keys. Into a pipe, or with --stdio, text is printed.
    // pprof's name.
    #[command(mut_arg("fold_inlined", |arg| arg.alias("noinlines")))]
    Report(Box<report::Args>),
    /// Merge profiles into one, or write a part of one
    ///
    /// Values of equal stacks with equal labels are added. Filters select what is written.
    Merge(Box<merge::Args>),
    /// Write profiles in another format, for other tools
    ///
    /// Reads all formats that the other commands read. Filters select what is written.
    // An export has all parts of its frames.
    #[command(mut_arg("granularity", |arg| arg.hide(true)))]
    #[command(mut_arg("fold_inlined", |arg| arg.alias("noinlines")))]
    Export(Box<export::Args>),
    /// Print the source or the instructions of functions, with values
    ///
    /// Reads profiles of prof and of other tools. Source files are found by the paths in the
    /// profile and in --source-path; with --asm, binaries are disassembled.
    // --demangle none, which annotate has for files as well, replaces --no-demangle.
    // --no-inlines is that of symbolization.
    #[command(mut_arg("no_demangle", |arg| arg.hide(true)))]
    #[command(mut_arg("fold_inlined", |arg| arg.long("noinlines").hide(true)))]
    Annotate(Box<annotate::Args>),
    /// Show what runs now, each second: functions, processes, threads, flame graph
    ///
    /// Records a target, or the whole machine, without writing a file. On a terminal, the views are
    /// those of 'prof report': '?' lists the keys. Into a pipe, or with --batch, a table is printed
    /// for each interval.
    #[command(mut_args(top::argument))]
    Top(Box<top::Args>),
    /// Draw a flame graph of profiles, or of a target recorded now
    ///
    /// Without a target, profile.pb.gz or the FILEs are drawn. With a target, it is recorded as by
    /// 'prof record', and the recording is drawn without writing a profile.
    // --demangle none, which flame has for files as well, replaces --no-demangle.
    // --no-inlines is that of recordings.
    #[command(mut_arg("no_demangle", |arg| arg.hide(true)))]
    #[command(mut_arg("fold_inlined", |arg| arg.long("noinlines").hide(true)))]
    Flame(Box<flame::Args>),
    /// Draw the call graph of profiles: functions, and the calls between them
    ///
    /// Writes DOT, or an SVG if Graphviz is installed. The functions, calls and limits are those of
    /// pprof: a dotted line represents calls through functions that were left out.
    Graph(Box<graph::Args>),
    /// Compare two profiles, or several recordings before and after a change
    ///
    /// Prints each function with its values before and after, and whether they differ by more than
    /// sampling error. Functions are matched by name, binaries by base name.
    Diff(Box<diff::Args>),
    /// List events for -e: those of this machine, and USDT markers of programs
    ///
    /// Events that cannot be recorded are marked with '-', with the reason.
    List(list::Args),
    /// Print the state and the stack of each thread
    ///
    /// Takes one snapshot, without stopping any thread. Threads with equal stacks and states are
    /// printed as one group. As root, stacks include the kernel.
    Threads(threads::Args),
    /// Add symbols to a profile
    ///
    /// Looks up functions, source lines and inlined functions of addresses without a name, as
    /// after 'prof record --no-symbolize'. Binaries are found by the paths in the profile and
    /// checked by build ID; debug files also in /usr/lib/debug and in --symbol-path.
    Symbolize(symbolize::Args),
    /// Check what this user can record on this machine, and how to unlock the rest
    Doctor(doctor::Args),
    /// Print shell completions
    Completions(completions::CompletionArgs),
    /// Print man pages
    ///
    /// Without NAME, prints prof(1), which describes all commands.
    Man(completions::ManArgs),
}

/// Parses the arguments, runs the command, prints an error as one line.
///
/// Exit codes: see [`examples::statuses`].
pub fn main() -> ExitCode {
    let prof = Cli::command();
    let words = match words::normalized(std::env::args_os().collect(), &prof) {
        Ok(words) => words,
        Err(wrong) => return fail(&usage(wrong)),
    };
    let cli = match parsed(words, prof) {
        Ok(cli) => cli,
        Err(error) => return explain(error),
    };
    sys::mmap::outlive_cut_files();
    sys::os::outlive_file_size_limit();
    let result = match cli.command {
        Command::Record(args) => record::run(*args),
        Command::Report(args) => report::run(*args),
        Command::Merge(args) => merge::run(*args),
        Command::Export(args) => export::run(*args),
        Command::Annotate(args) => annotate::run(*args),
        Command::Top(args) => top::run(*args),
        Command::Flame(args) => flame::run(*args),
        Command::Graph(args) => graph::run(*args),
        Command::Diff(args) => diff::run(*args),
        Command::List(args) => list::run(args),
        Command::Threads(args) => threads::run(args),
        Command::Symbolize(args) => symbolize::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => completions::man(args),
    };
    result.unwrap_or_else(|error| fail(&error))
}

/// Parses the words with clap's description of prof, which takes a millisecond to make.
fn parsed(words: Vec<OsString>, mut prof: clap::Command) -> Result<Cli, clap::Error> {
    let mut matches = prof.try_get_matches_from_mut(words)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut prof))
}

/// Prints the requested help, or the error in the arguments.
fn explain(error: clap::Error) -> ExitCode {
    let words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(line) = hints::answer(&error, &words) {
        return fail(&usage(line));
    }
    let error = hints::with_hint(error, &words);
    if error.use_stderr() {
        // It contains arguments, which may come from elsewhere: each is kept on one line.
        let mut text = error.render().to_string();
        for word in std::env::args_os().filter_map(|word| word.into_string().ok()) {
            if let Cow::Owned(clean) = printed::line(&word) {
                text = text.replace(&word, &clean);
            }
        }
        Stderr::lines(&text);
        return ExitCode::from(2);
    }
    let text = error.render();
    match printed::help(&text.ansi().to_string(), &text.to_string()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.into()),
    }
}

/// An error with an exit code.
#[derive(Debug)]
pub struct Exit {
    /// The code.
    pub code: u8,
    /// One line: the failure, and the remedy.
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

/// The argument that makes a command read the profile `file`: none for the default file.
fn file_arg(file: &str) -> String {
    match file {
        source::DEFAULT_FILE => String::new(),
        file => format!(" {}", shell_word(file)),
    }
}

/// `text` as a word of a shell's command line.
fn shell_word(text: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_alphanumeric() || "_./:=@%+,-".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into()
    } else {
        format!("'{}'", text.replace('\'', r"'\''")).into()
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    if is_broken_pipe(error) {
        return ExitCode::SUCCESS;
    }
    Stderr::line(&format!("prof: {error:#}"));
    let own = error.downcast_ref::<Exit>().map(|e| e.code);
    let by_kind = || error.downcast_ref::<Error>().map(|e| exit_code(e.kind()));
    ExitCode::from(own.or_else(by_kind).unwrap_or(1))
}

/// The exit code of an error, as of a shell if a command cannot be started.
fn exit_code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Failed => 1,
        ErrorKind::Usage => 2,
        ErrorKind::CommandNotExecutable => 126,
        ErrorKind::CommandNotFound => 127,
    }
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
    use clap::CommandFactory;

    use super::{Cli, shell_word};

    /// The compiler checks neither headings nor the length of lines.
    #[test]
    fn each_option_of_long_helps_has_a_heading_and_one_line() {
        let cli = Cli::command();
        for command in cli.get_subcommands() {
            let options = command.get_arguments().filter(|a| !a.is_positional());
            for option in options.filter(|a| !a.is_hide_set()) {
                let name = format!("{} --{}", command.get_name(), option.get_id());
                let line = option.get_help().map(ToString::to_string).unwrap_or_default();
                assert!((10..=80).contains(&line.len()), "{name}: {line}");
                assert!(!line.contains('\n') && !line.ends_with('.'), "{name}: {line}");
                let long = command.get_arguments().count() > 8;
                let heading = option.get_help_heading();
                assert!(!long || heading.is_some(), "{name}");
            }
        }
    }

    /// `record`, `flame`, `threads` and others share options.
    #[test]
    fn options_of_the_same_name_have_the_same_letter() {
        let cli = Cli::command();
        let mut letters = std::collections::HashMap::new();
        for command in cli.get_subcommands() {
            // Those of perf have its letters.
            let options = command.get_arguments().filter(|option| !option.is_hide_set());
            for option in options {
                if let Some(long) = option.get_long() {
                    let (of, letter) =
                        *letters.entry(long).or_insert((command.get_name(), option.get_short()));
                    assert_eq!(
                        letter,
                        option.get_short(),
                        "--{long} of {}, {of}",
                        command.get_name()
                    );
                }
            }
        }
        assert_eq!(letters.get("all-cpus").map(|(_, letter)| *letter), Some(Some('a')));
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(shell_word("a/b-1.pb.gz"), "a/b-1.pb.gz");
        assert_eq!(shell_word("my file.gz"), "'my file.gz'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word(""), "''");
    }
}
