//! Options of `perf record` and other recorders, and what prof has instead.

use clap::Command;

use sys::suggest;

/// Options, and what the user is to know.
const ANSWERS: &[(&[&str], &str)] = &[
    (
        &["--timeout", "--time", "--seconds", "--sleep", "--window"],
        "use -d TIME for the length of the recording, for example -d 5s",
    ),
    (&["--mmap-pages", "-m"], "not needed: ring buffers have a size that fits the rate"),
    (&["--no-buffering", "--buffering"], "not needed: rings are read while recording"),
    (
        &["--switch-output", "--overwrite", "--snapshot", "-S"],
        "use --last 30s, which keeps the last seconds until Ctrl-C, a signal or --when",
    ),
    (
        &["--branch-any", "-b", "--branch-filter", "-j"],
        "prof does not record branches; -e branch-misses samples wrong predictions",
    ),
    (
        &["--weight", "-W", "--data", "--phys-data", "--intr-regs", "-I", "--user-regs"],
        "prof records neither addresses of data nor registers; --precise names the instruction",
    ),
    (
        &["--raw-samples", "-R", "--period", "-P", "--sample-cpu", "--sample-identifier"],
        "not needed: leave it out",
    ),
    (&["--stat"], "not needed: prof report --sort thread has the values of each thread"),
    (&["--per-thread"], "use -t TID for threads; prof report --sort thread has each thread"),
    (&["--inherit", "-i"], "not needed: what the target starts is recorded; see --no-inherit"),
    (
        &["--no-buildid", "-B", "--no-buildid-cache", "-N", "--buildid-all"],
        "not needed: a profile has the names themselves; see --no-symbolize",
    ),
    (&["--compression-level", "-z"], "not needed: profiles are compressed"),
    (&["--realtime", "-r"], "not needed: as root, prof runs with real-time priority"),
    (
        &["--force", "-f", "--append", "-A"],
        "not needed: an existing file is replaced, and stays as NAME.old.pb.gz",
    ),
    (&["--all-user", "--all-kernel"], "use a modifier: -e cycles:u or -e cycles:k"),
    (&["--clockid", "-k", "--timestamp"], "use --timestamps to keep the times of samples"),
    (
        &["--sort", "--no-children", "--children", "--stdio", "--percent-limit"],
        "an option of prof report, which shows the recording",
    ),
    (&["--rate", "--hz", "--frequency"], "use -F HZ for samples per second"),
    (&["--native", "--subprocesses", "-s"], "not needed: all frames and children are recorded"),
];

/// The line for an option of another recorder.
pub fn answer(option: &str) -> Option<String> {
    let (_, answer) = ANSWERS.iter().find(|(options, _)| options.contains(&option))?;
    Some(format!("{option}: {answer}"))
}

/// The long option of a subcommand that the user may have meant, with its dashes.
pub fn similar(command: &Command, option: &str) -> Option<String> {
    /// A longer word is no misspelled option.
    const LONGEST: usize = 40;
    let name = option.strip_prefix("--").filter(|name| name.len() <= LONGEST)?;
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let names: Vec<&str> = shown
        .flat_map(|arg| {
            arg.get_long().into_iter().chain(arg.get_visible_aliases().into_iter().flatten())
        })
        .collect();
    let beginning: Vec<&&str> = names.iter().filter(|long| long.starts_with(name)).collect();
    let near = match beginning.as_slice() {
        [only] if name.len() >= 2 => Some(**only),
        _ => suggest::nearest(name, names.iter().copied()),
    };
    near.map(|near| format!("--{near}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn misspelled_options_have_a_suggestion_of_their_subcommand() {
        let prof = Cli::command();
        let near = |command: &str, option: &str| {
            similar(prof.find_subcommand(command).unwrap(), option).unwrap_or_default()
        };
        assert_eq!(near("record", "--pdi"), "--pid");
        assert_eq!(near("record", "--call-grpah"), "--call-graph");
        assert_eq!(near("record", "--ouptut"), "--output");
        assert_eq!(near("record", "--dur"), "--duration");
        assert_eq!(near("record", "--iteratoins"), "");
        assert_eq!(near("top", "--iteratoins"), "--iterations");
        assert_eq!(near("report", "--pdi"), "");
        for none in ["--xyzzy", "-x", "--", &format!("--{}", "a".repeat(1 << 16))] {
            assert_eq!(near("record", none), "", "{none}");
        }
    }

    #[test]
    fn answers_are_about_options_that_prof_record_lacks() {
        let prof = Cli::command();
        let record = prof.find_subcommand("record").unwrap();
        for option in ANSWERS.iter().flat_map(|(options, _)| *options) {
            let is_it = |arg: &clap::Arg| match option.strip_prefix("--") {
                Some(long) => arg.get_long() == Some(long),
                None => arg.get_short() == option.chars().nth(1),
            };
            assert!(!record.get_arguments().any(is_it), "{option}");
        }
        assert!(answer("-m").unwrap().starts_with("-m: not needed"));
    }
}
