//! Examples and exit status: sections at the end of each help and of each man page.

use clap::builder::{StyledStr, Styles};

/// A command line and its effect.
#[derive(Debug)]
pub struct Example {
    /// The command line.
    pub command: &'static str,
    /// Its effect, in one line.
    pub effect: &'static str,
}

const fn example(command: &'static str, effect: &'static str) -> Example {
    Example { command, effect }
}

/// Examples of prof as a whole.
const PROF: &[Example] = &[
    example("prof record -- make test", "Record the CPU time of a command and its children"),
    example("prof record -p 1234 -d 5s", "Record a process for 5 seconds"),
    example("prof report", "Print the functions of profile.pb.gz by CPU time"),
    example("sudo prof flame -a -d 5s > out.svg", "Draw a flame graph of the whole machine"),
    example("prof doctor", "Check what this user can record on this machine"),
];

/// Examples of `prof record`.
const RECORD: &[Example] = &[
    example("prof record -- make test", "Record a command and its children until it exits"),
    example("prof record -p 1234 -d 5s", "Record a process for 5 seconds"),
    example(
        "prof record -T wall -p 1234 -o wall.pb.gz",
        "Record time on and off the CPU, into another file",
    ),
    example(
        "prof record -T heap --leaks --heap-interval 1 -- perl -e 1",
        "Record every allocation, memory in use at the end, and leaks",
    ),
    example(
        "sudo prof record -a -e sched:sched_switch -d 1s",
        "Record a tracepoint on the whole machine",
    ),
];

/// Examples of `prof report`.
const REPORT: &[Example] = &[
    example("prof report", "Print the functions of profile.pb.gz by self time"),
    example("prof report --cum -n 10", "Print the 10 functions with the largest totals"),
    example(
        "prof report -g callee --focus malloc",
        "Print the callers of functions, in samples that contain malloc",
    ),
    example("prof report --sort process,thread", "Print a row for each thread"),
    example("prof report --coverage", "Print which binaries lack names, and the remedy"),
];

/// Examples of `prof merge`.
const MERGE: &[Example] = &[
    example("prof merge a.pb.gz b.pb.gz -o all.pb.gz", "Merge two profiles"),
    example(
        "prof merge profile.pb.gz --process nginx -o nginx.pb.gz",
        "Write the samples of one process",
    ),
];

/// Examples of `prof export`.
const EXPORT: &[Example] = &[
    example("prof export --to collapsed", "Print profile.pb.gz as collapsed stacks"),
    example("prof export perf.folded -o profile.pb.gz", "Convert another format to pprof"),
    example(
        "prof export --type samples --process nginx -o nginx.folded",
        "Write one sample type of one process",
    ),
];

/// Examples of `prof annotate`.
const ANNOTATE: &[Example] = &[
    example("prof annotate main.work", "Print the lines of a function in profile.pb.gz"),
    example("prof annotate src/parse.c", "Print the lines of a source file"),
    example("prof annotate --asm 'hash|compare'", "Print the instructions of several functions"),
    example(
        "prof annotate work --source-path src --trim-path /build",
        "Look for source that was compiled in /build in src",
    ),
];

/// Examples of `prof flame`.
const FLAME: &[Example] = &[
    example("prof flame > out.svg", "Draw profile.pb.gz; open out.svg in a browser"),
    example("prof flame -p 1234 -d 5s > out.svg", "Record a process for 5 seconds and draw it"),
    example(
        "prof flame -T wall -o out.svg -- make test",
        "Record a command and draw its time on and off the CPU",
    ),
    example(
        "prof flame --sandwich malloc -o out.svg",
        "Draw all callers of a function above it, and what it calls below it",
    ),
    example("prof flame --folded > out.folded", "Write folded stacks for other tools"),
];

/// Examples of `prof top`.
const TOP: &[Example] = &[
    example("sudo prof top", "Show the functions of the whole machine, each second"),
    example("prof top -p 1234", "Show those of a process"),
    example("prof top -T wall -p 1234 --sort thread", "Show its threads on and off the CPU"),
    example("prof top --batch -p 1234 --iterations 5", "Print five tables into a pipe or file"),
];

/// Examples of `prof graph`.
const GRAPH: &[Example] = &[
    example("prof graph -o out.svg", "Draw the call graph of profile.pb.gz; needs Graphviz"),
    example("prof graph > out.dot", "Write it in DOT, for any program of Graphviz"),
    example("prof graph -n 20 --focus malloc -o out.svg", "Draw 20 functions around malloc"),
];

/// Examples of `prof diff`.
const DIFF: &[Example] = &[
    example("prof diff old.pb.gz new.pb.gz", "Print the functions that changed, then the others"),
    example("prof diff old.pb.gz", "Compare with profile.pb.gz"),
    example(
        "prof diff --base a1.pb.gz a2.pb.gz a3.pb.gz --with b1.pb.gz b2.pb.gz b3.pb.gz",
        "Compare three recordings each, whose differences among them count",
    ),
    example("prof diff --sort binary old.pb.gz new.pb.gz", "Compare binaries"),
    example("prof diff --per-second 10s.pb.gz 60s.pb.gz", "Compare rates of unequal recordings"),
];

/// Examples of `prof list`.
const LIST: &[Example] = &[
    example("prof list", "List all events of this machine"),
    example("prof list hardware cache", "List events of two kinds"),
    example("prof list 'sched:*wak*'", "List tracepoints by a pattern"),
    example("prof list python3", "List the USDT markers of a program"),
];

/// Examples of `prof threads`.
const THREADS: &[Example] = &[
    example("prof threads -p 1234", "Print the threads of a process, grouped by stack"),
    example("prof threads -p 1234 --each", "Print each thread by itself"),
    example("sudo prof threads -a", "Print all threads, with their stacks in the kernel"),
];

/// Examples of `prof symbolize`.
const SYMBOLIZE: &[Example] = &[
    example("prof symbolize", "Add symbols to profile.pb.gz"),
    example(
        "prof symbolize --force --symbol-path build",
        "Look up all names again, also in the binaries in build",
    ),
    example(
        "prof symbolize in.pb.gz -o out.pb.gz --debuginfod",
        "Fetch debug files from the servers in DEBUGINFOD_URLS",
    ),
];

/// Examples of `prof doctor`.
const DOCTOR: &[Example] = &[
    example("prof doctor", "Print a table of checks, with the commands that help"),
    example("sudo prof doctor", "The same for root"),
    example("prof doctor --json", "Print the checks as JSON"),
];

/// Examples of `prof completions`.
const COMPLETIONS: &[Example] = &[
    example("source <(prof completions bash)", "Complete in this bash"),
    example(
        "prof completions fish > ~/.config/fish/completions/prof.fish",
        "Complete in each fish from now on",
    ),
];

/// Examples of `prof man`.
const MAN: &[Example] = &[
    example("prof man | man -l -", "Read prof(1)"),
    example("prof man record | man -l -", "Read prof-record(1)"),
    example("prof man --output-dir ~/.local/share/man/man1", "Install all pages for 'man prof'"),
];

/// An exit status.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// The number.
    pub code: &'static str,
    /// Its meaning, as a sentence.
    pub meaning: &'static str,
}

const fn status(code: &'static str, meaning: &'static str) -> Status {
    Status { code, meaning }
}

/// The exit statuses of all subcommands but `prof doctor`.
const STATUS: &[Status] = &[
    status("0", "Success."),
    status("1", "Failure, with one line on standard error."),
    status("2", "Wrong usage."),
];

/// The exit statuses of `prof doctor`.
const DOCTOR_STATUS: &[Status] = &[
    status("0", "This user can record its own processes."),
    status("1", "It cannot, or the checks failed."),
    status("2", "Wrong usage."),
];

/// Further exit statuses of subcommands that run a COMMAND.
const COMMAND_STATUS: &[Status] =
    &[status("126", "COMMAND cannot be executed."), status("127", "COMMAND does not exist.")];

/// The exit status with a COMMAND.
pub const COMMAND_NOTE: &str = "With a COMMAND, prof exits with its exit status (128 + N if signal \
N ended it) unless the recording failed, and with 0 if COMMAND still runs at the end of the \
recording.";

/// Whether a subcommand, or prof, runs a COMMAND.
pub fn runs_command(subcommand: &str) -> bool {
    matches!(subcommand, "prof" | "record" | "flame" | "top")
}

/// The exit statuses of a subcommand, or of prof.
pub fn statuses(subcommand: &str) -> Vec<Status> {
    match subcommand {
        "doctor" => DOCTOR_STATUS.to_vec(),
        _ if runs_command(subcommand) => [STATUS, COMMAND_STATUS].concat(),
        _ => STATUS.to_vec(),
    }
}

/// The examples of a subcommand, or of prof.
pub fn examples(subcommand: &str) -> &'static [Example] {
    match subcommand {
        "prof" => PROF,
        "record" => RECORD,
        "report" => REPORT,
        "merge" => MERGE,
        "export" => EXPORT,
        "annotate" => ANNOTATE,
        "flame" => FLAME,
        "top" => TOP,
        "graph" => GRAPH,
        "diff" => DIFF,
        "list" => LIST,
        "threads" => THREADS,
        "symbolize" => SYMBOLIZE,
        "doctor" => DOCTOR,
        "completions" => COMPLETIONS,
        "man" => MAN,
        _ => &[],
    }
}

/// The end of `-h`: examples.
pub fn short(subcommand: &str) -> StyledStr {
    let mut text = heading("Examples");
    for Example { command, effect } in examples(subcommand) {
        text += &format!("\n  {command}\n          {effect}");
    }
    text.into()
}

/// The end of `--help`: examples and exit status.
pub fn long(subcommand: &str) -> StyledStr {
    let mut text = short(subcommand).ansi().to_string();
    text += "\n\n";
    text += &heading("Exit status");
    for Status { code, meaning } in statuses(subcommand) {
        text += &format!("\n  {code:3}  {meaning}");
    }
    if runs_command(subcommand) {
        text += &format!("\n\n{COMMAND_NOTE}");
    }
    text.into()
}

/// A heading as clap writes its own.
fn heading(text: &str) -> String {
    let styles = Styles::styled();
    let style = styles.get_header();
    format!("{style}{text}:{style:#}")
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::super::Cli;
    use super::*;

    /// The words of a command line that begins with prof, up to a pipe or redirection.
    fn words(line: &str) -> Vec<String> {
        let words = line.split_whitespace().skip_while(|&word| word != "prof");
        let own = words.take_while(|&word| word != ">" && word != "|");
        own.map(|word| word.trim_matches('\'').to_owned()).collect()
    }

    #[test]
    fn each_example_is_a_valid_command_line_of_its_subcommand() {
        let cli = Cli::command();
        let names = cli.get_subcommands().map(|c| c.get_name());
        for name in names.chain(["prof"]) {
            let examples = examples(name);
            assert!((2..=5).contains(&examples.len()), "{name}: {} examples", examples.len());
            for Example { command, effect } in examples {
                if command.starts_with("source") {
                    continue;
                }
                let words = words(command);
                assert!(name == "prof" || words[1] == name, "{command}");
                let parsed = Cli::try_parse_from(&words);
                assert!(parsed.is_ok(), "{command}: {}", parsed.unwrap_err());
                assert!(effect.len() <= 70 && !effect.ends_with('.'), "{effect}");
            }
        }
    }
}
