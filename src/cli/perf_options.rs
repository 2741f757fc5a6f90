//! Options of perf's reading commands that prof has under another name, or not at all: an error
//! names what prof has instead.

use std::marker::PhantomData;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, FromArgMatches};

use super::usage;

/// An option of perf.
#[derive(Debug)]
pub(super) struct PerfOption {
    long: &'static str,
    letter: Option<char>,
    /// What prof has instead.
    instead: &'static str,
}

const fn long(long: &'static str, instead: &'static str) -> PerfOption {
    PerfOption { long, letter: None, instead }
}

const fn short(letter: char, long: &'static str, instead: &'static str) -> PerfOption {
    PerfOption { long, letter: Some(letter), instead }
}

/// A command of perf.
pub(super) trait PerfCommand {
    /// Its options that the command of prof does not have, or has under another name.
    const OPTIONS: &'static [PerfOption];
}

const STYLE: &str = "instructions are written as by GNU's assembler (AT&T)";
const PLACES: &str = "names are in the profile; prof symbolize --symbol-path DIR adds missing ones";
const BRANCHES: &str = "prof records no branches";
const WIDTHS: &str = "columns are as wide as their contents";
const TERMINAL: &str = "without --stdio, prof report and prof diff are interactive on a terminal";

/// `perf report`.
#[derive(Debug)]
pub(super) struct PerfReport;

impl PerfCommand for PerfReport {
    const OPTIONS: &'static [PerfOption] = &[
        short(
            'D',
            "dump-raw-trace",
            "a profile has no single records; --traces prints its stacks one by one",
        ),
        long("stats", "--header prints the number of samples, and what was lost"),
        long("tasks", "--sort process,pid,thread,tid prints processes and threads"),
        long("mmaps", "--header prints the mapped files"),
        short('I', "show-info", "--header prints what is known of the recording"),
        short('w', "column-widths", WIDTHS),
        short('t', "field-separator", "--json prints exact values for programs"),
        long(
            "max-stack",
            "stacks are whole; --show-from and --prune-from leave out callers and callees",
        ),
        long("pid", "use --process PID"),
        long("tid", "use --thread TID"),
        short('C', "cpu", "samples have no CPU; prof record -C records some CPUs only"),
        short('G', "inverted", "-g prints a tree from callers to callees, which is perf's -G"),
        short(
            'p',
            "parent",
            "--focus REGEX selects samples with a caller, --show-from its callees",
        ),
        short('T', "threads", "use --sort thread"),
        short('U', "hide-unresolved", "--coverage reports frames without a name, and what helps"),
        short('k', "vmlinux", PLACES),
        long("kallsyms", PLACES),
        short('m', "modules", PLACES),
        long("symfs", PLACES),
        long("percentage", "--relative-percentages is perf's relative; the default is absolute"),
        long("hierarchy", "-g --sort process prints a tree for each process"),
        long("show-total-period", "self and total are sums of periods"),
        long("ignore-callees", "use --prune-from REGEX"),
        long("inline", "inlined functions are shown; --no-inlines leaves them out"),
        long("no-inline", "use --no-inlines"),
        long("no-demangle", "use --demangle none"),
        short('b', "branch-stack", BRANCHES),
        long("branch-history", BRANCHES),
        long("itrace", "prof records no traces of instructions"),
        short('f', "force", "files of other owners are read as well"),
        long("tui", TERMINAL),
        long("gtk", TERMINAL),
    ];
}

/// `perf annotate`.
#[derive(Debug)]
pub(super) struct PerfAnnotate;

impl PerfCommand for PerfAnnotate {
    const OPTIONS: &'static [PerfOption] = &[
        short('M', "disassembler-style", STYLE),
        short('l', "print-line", "lines are printed; --asm prints instructions between them"),
        short('P', "full-paths", "paths are whole"),
        long("objdump", "prof disassembles by itself"),
        long("percent-type", "--relative-percentages are those of what passes the filters"),
        long("show-total-period", "values are sums of periods; --percent prints percentages"),
        short('k', "vmlinux", PLACES),
        short('m', "modules", PLACES),
        long("symfs", PLACES),
        short('D', "dump-raw-trace", "prof report --traces prints stacks one by one"),
        short('f', "force", "files of other owners are read as well"),
        long("tui", "prof report is interactive on a terminal: 'a' shows source, 'i' assembly"),
        long("gtk", "prof report is interactive on a terminal: 'a' shows source, 'i' assembly"),
    ];
}

/// `perf diff`.
#[derive(Debug)]
pub(super) struct PerfDiff;

impl PerfCommand for PerfDiff {
    const OPTIONS: &'static [PerfOption] = &[
        short(
            'c',
            "compute",
            "rows have both values, the change, its ratio, and whether it is beyond sampling error",
        ),
        short('o', "order", "use --sort self, total or name"),
        short('b', "baseline-only", "functions of both profiles are compared"),
        short('p', "period", "values are sums of periods"),
        short('F', "formula", "rows have both values, the change and its ratio"),
        short('D', "dump-raw-trace", "prof report --traces prints stacks one by one"),
        short('t', "field-separator", "--json prints exact values for programs"),
        long("children", "totals are compared by --sort total"),
        short('f', "force", "files of other owners are read as well"),
    ];
}

/// `perf top`.
#[derive(Debug)]
pub(super) struct PerfTop;

impl PerfCommand for PerfTop {
    const OPTIONS: &'static [PerfOption] = &[
        short('K', "hide_kernel_symbols", r"use --hide '\[kernel'"),
        short('U', "hide_user_symbols", "-e cpu-clock:k or cycles:k records the kernel only"),
        short('z', "zero", "--window last shows the last interval only, all is with a half-life"),
        short('E', "entries", "use -n N with --batch"),
        short('w', "column-widths", WIDTHS),
        long("max-stack", "stacks are whole"),
        long("children", "use --sort total"),
        long("tui", "without --batch, prof top is interactive on a terminal"),
    ];
}

/// The option of perf that was given, if one was.
#[derive(Debug)]
pub(super) struct PerfArgs<C: PerfCommand> {
    given: Option<&'static PerfOption>,
    command: PhantomData<C>,
}

impl<C: PerfCommand> Default for PerfArgs<C> {
    fn default() -> PerfArgs<C> {
        PerfArgs { given: None, command: PhantomData }
    }
}

impl<C: PerfCommand> PerfArgs<C> {
    /// Fails if an option of perf was given.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let Some(PerfOption { long, instead, .. }) = self.given else { return Ok(()) };
        Err(usage(format!("--{long} is an option of perf, not of prof: {instead}")))
    }
}

impl<C: PerfCommand> clap::Args for PerfArgs<C> {
    fn augment_args(command: Command) -> Command {
        command.args(C::OPTIONS.iter().map(|option| {
            let argument = Arg::new(option.id()).long(option.long).num_args(0..=1).hide(true);
            match option.letter {
                Some(letter) => argument.short(letter),
                None => argument,
            }
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<C: PerfCommand> FromArgMatches for PerfArgs<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<PerfArgs<C>, clap::Error> {
        let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let given = C::OPTIONS.iter().find(|option| is_given(&option.id()));
        Ok(PerfArgs { given, command: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = PerfArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The beginning of the names in clap, which no option of prof has.
const PREFIX: &str = "perf-";

impl PerfOption {
    /// Its name in clap.
    fn id(&self) -> String {
        format!("{PREFIX}{}", self.long)
    }
}

/// True if prof does not have this option, but names what it has instead.
#[cfg(test)]
pub(super) fn is_of_perf(argument: &Arg) -> bool {
    argument.get_id().as_str().starts_with(PREFIX)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line<C: PerfCommand + Send + Sync + 'static> {
        #[command(flatten)]
        perf: PerfArgs<C>,
    }

    fn error(words: &[&str]) -> String {
        let words = ["report"].iter().chain(words);
        Line::<PerfReport>::try_parse_from(words).unwrap().perf.check().unwrap_err().to_string()
    }

    #[test]
    fn an_option_of_perf_names_what_prof_has() {
        for words in [&["--pid", "7"][..], &["--pid=7"], &["--pid"]] {
            assert_eq!(error(words), "--pid is an option of perf, not of prof: use --process PID");
        }
        assert!(error(&["-D"]).starts_with("--dump-raw-trace is an option of perf"));
        assert!(error(&["-w", "10,20"]).contains("as wide as their contents"));
        let none = Line::<PerfReport>::try_parse_from(["report"]).unwrap();
        assert!(none.perf.check().is_ok());
    }
}
