//! Options of perf's commands that prof has under another name, or not at all: an error names what
//! prof has instead. Those of `perf record` for what prof does in any case are accepted.

use std::marker::PhantomData;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

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

    /// Letters of perf for long options that the command of prof has.
    const LETTERS: &'static [(&'static str, char)] = &[];
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
    const LETTERS: &'static [(&'static str, char)] =
        &[("comms", 'c'), ("dsos", 'd'), ("symbols", 'S')];

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
        short('T', "threads", "use --sort thread; --type selects the sample type"),
        short(
            'M',
            "disassembler-style",
            "prof annotate --asm prints instructions, as GNU's assembler",
        ),
        short('x', "exclude-other", "--focus REGEX selects samples with a caller"),
        short('v', "verbose", "--header prints what was lost, --coverage why names are missing"),
        long("group", "--type TYPE,TYPE prints several sample types beside each other"),
        long("pretty", "names are printed; --json has addresses"),
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
        let has = |command: &Command, long| command.get_arguments().any(|arg| arg.get_id() == long);
        let add = |command: Command, &(long, letter): &(&'static str, char)| {
            if has(&command, long) {
                command.mut_arg(long, |arg| arg.short(letter))
            } else {
                command
            }
        };
        let command = C::LETTERS.iter().fold(command, add);
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
        let given = C::OPTIONS.iter().find(|option| option.is_given(matches));
        Ok(PerfArgs { given, command: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = PerfArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

/// An option of `perf record` for what prof does in any case, or does not need: it has no effect. The
/// letters `-r` and `-f` have other meanings in other recorders: a rate, a format.
#[derive(Debug)]
struct Needless {
    option: PerfOption,
    takes_value: bool,
}

const fn needless(letter: Option<char>, long: &'static str, why: &'static str) -> Needless {
    Needless { option: PerfOption { long, letter, instead: why }, takes_value: false }
}

const fn needless_with_value(
    letter: Option<char>,
    long: &'static str,
    why: &'static str,
) -> Needless {
    Needless { takes_value: true, ..needless(letter, long, why) }
}

const RINGS: &str = "ring buffers have a size that fits the rate";
const BUILD_IDS: &str = "a profile has the names and build IDs; see --no-symbolize";
const FIELDS: &str = "a profile has what its views need";

const NEEDLESS: &[Needless] = &[
    needless_with_value(Some('m'), "mmap-pages", RINGS),
    needless(None, "no-buffering", "rings are read while recording"),
    needless(Some('z'), "compression-level", "profiles are compressed"),
    needless(Some('B'), "no-buildid", BUILD_IDS),
    needless(Some('N'), "no-buildid-cache", BUILD_IDS),
    needless(None, "buildid-all", BUILD_IDS),
    needless(None, "buildid-mmap", BUILD_IDS),
    needless(Some('R'), "raw-samples", FIELDS),
    needless(Some('P'), "period", FIELDS),
    needless(None, "sample-cpu", FIELDS),
    needless(None, "sample-identifier", FIELDS),
    needless(Some('s'), "stat", "prof report --sort thread has the values of each thread"),
    needless_with_value(None, "realtime", "as root, prof runs with real-time priority"),
    needless(None, "force", "an existing profile is replaced, and stays as NAME.old.pb.gz"),
    needless(None, "strict-freq", "the rate is as requested, or a line says what it is"),
    needless(None, "no-bpf-event", "programs of the kernel have their names"),
    needless(None, "kcore", "names of the kernel are in the profile"),
];

/// The options of `perf record` without effect that were given.
#[derive(Debug, Default)]
pub(super) struct NeedlessArgs(Vec<&'static PerfOption>);

impl NeedlessArgs {
    /// A line for each.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        let line =
            |option: &&PerfOption| format!("--{}: not needed: {}", option.long, option.instead);
        self.0.iter().map(line)
    }
}

impl clap::Args for NeedlessArgs {
    fn augment_args(command: Command) -> Command {
        command.args(NEEDLESS.iter().map(|Needless { option, takes_value }| {
            // perf lets an option be repeated.
            let action = if *takes_value { ArgAction::Append } else { ArgAction::Count };
            let argument = Arg::new(option.id()).long(option.long).action(action).hide(true);
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

impl FromArgMatches for NeedlessArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<NeedlessArgs, clap::Error> {
        let options = NEEDLESS.iter().map(|needless| &needless.option);
        Ok(NeedlessArgs(options.filter(|option| option.is_given(matches)).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = NeedlessArgs::from_arg_matches(matches)?;
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

    fn is_given(&self, matches: &ArgMatches) -> bool {
        matches.value_source(&self.id()) == Some(ValueSource::CommandLine)
    }
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
