//! Options of `perf record` and other recorders, and what prof has instead.

use clap::{Command, CommandFactory};

use sys::suggest;

use crate::cli::Cli;

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
        "use prof record --last 30s, which keeps the last seconds until Ctrl-C or --when",
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
        "not needed: a profile has the names themselves; see prof record --no-symbolize",
    ),
    (&["--compression-level", "-z"], "not needed: profiles are compressed"),
    (&["--realtime", "-r"], "not needed: as root, prof runs with real-time priority"),
    (
        &["--force", "-f", "--append", "-A"],
        "not needed: an existing profile is replaced, and stays as NAME.old.pb.gz",
    ),
    (&["--all-user", "--all-kernel"], "use a modifier: -e cycles:u or -e cycles:k"),
    (&["--clockid", "-k", "--timestamp"], "prof record --timestamps keeps the times of samples"),
    (
        &["--sort", "--no-children", "--children", "--stdio", "--percent-limit"],
        "an option of prof report, which shows the recording",
    ),
    (&["--rate", "--hz", "--frequency"], "use -F HZ for samples per second"),
    (&["--user", "--username"], "use -u USER for the processes of a user"),
    (&["--type", "--types", "--profile-type"], "use -T TYPE, such as wall, lock or heap"),
    (
        &["--native", "--subprocesses", "-s"],
        "not needed: all is recorded, also children; prof report --native shows all frames",
    ),
];

/// The line for an option of another recorder.
pub fn answer(option: &str) -> Option<String> {
    let (_, answer) = ANSWERS.iter().find(|(options, _)| options.contains(&option))?;
    Some(format!("{option}: {answer}"))
}

/// The line for an option of another recorder that is spelled almost so.
pub fn answer_near(option: &str) -> Option<String> {
    let name = option.strip_prefix("--").filter(|name| name.len() <= LONGEST)?;
    let names = ANSWERS.iter().flat_map(|(options, _)| *options);
    let near = suggest::nearest(name, names.filter_map(|option| option.strip_prefix("--")))?;
    answer(&format!("--{near}"))
}

/// Length of the longest word that may be a misspelled option.
const LONGEST: usize = 40;

/// Subcommands that show profiles, and the one that shows a finished recording.
const SHOWN_BY: &[(&str, &str)] = &[
    ("annotate", "annotate"),
    ("diff", "diff"),
    ("export", "export"),
    ("flame", "flame"),
    ("graph", "graph"),
    ("quality", "quality"),
    ("report", "report"),
    ("top", "report"),
];

/// The line for an option that `prof record` has, and this subcommand lacks.
pub fn of_record(command: &str, option: &str) -> Option<String> {
    let (_, next) = SHOWN_BY.iter().find(|(name, _)| *name == command)?;
    let name = option.strip_prefix("--")?;
    let prof = Cli::command();
    let record = prof.find_subcommand("record")?;
    let mut shown = record.get_arguments().filter(|arg| !arg.is_hide_set());
    let arg = shown.find(|arg| arg.get_long() == Some(name))?;
    let value = arg.get_value_names().filter(|_| arg.get_action().takes_values());
    let value = value.and_then(|names| names.first()).map_or(String::new(), |v| format!(" {v}"));
    Some(format!(
        "{option}: an option of prof record: prof record {option}{value}, then prof {next}"
    ))
}

/// The long option of a subcommand that the user may have meant, with its dashes. Names of other
/// recorders lead to the option that prof has.
pub fn similar(command: &Command, option: &str) -> Option<String> {
    let name = option.strip_prefix("--").filter(|name| name.len() <= LONGEST)?;
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    // Each name, and the one that is suggested for it.
    let names: Vec<(&str, &str)> = shown
        .filter_map(|arg| Some((arg, arg.get_long()?)))
        .flat_map(|(arg, long)| {
            let visible = arg.get_visible_aliases().into_iter().flatten();
            let hidden = arg.get_aliases().into_iter().flatten();
            let visible = visible.map(|alias| (alias, alias));
            [(long, long)].into_iter().chain(visible).chain(hidden.map(move |name| (name, long)))
        })
        .collect();
    let beginning: Vec<&(&str, &str)> =
        names.iter().filter(|(long, _)| long.starts_with(name)).collect();
    let near = match beginning.as_slice() {
        [(_, only)] if name.len() >= 2 => Some(*only),
        _ => {
            let near = suggest::nearest(name, names.iter().map(|(long, _)| *long))?;
            names.iter().find(|(long, _)| *long == near).map(|(_, long)| *long)
        }
    };
    near.map(|near| format!("--{near}"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(near("report", "--sampleindex"), "--type");
        assert_eq!(near("report", "--showfrom"), "--show-from");
        assert!(answer_near("--freqency").unwrap().starts_with("--frequency: use -F"));
        assert!(answer_near("--usr").unwrap().contains("-u USER"));
        assert!(answer_near("--typ").unwrap().contains("-T TYPE"));
        assert_eq!(answer_near("--xyzzy"), None);
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
            let mut shown = record.get_arguments().filter(|arg| !arg.is_hide_set());
            assert!(!shown.any(is_it), "{option}");
        }
        assert!(answer("-m").unwrap().starts_with("-m: not needed"));
    }

    #[test]
    fn an_option_of_prof_record_is_answered_with_it() {
        assert_eq!(
            of_record("flame", "--last").unwrap(),
            "--last: an option of prof record: prof record --last TIME, then prof flame"
        );
        assert!(of_record("top", "--when").unwrap().ends_with(", then prof report"));
        assert!(of_record("report", "--no-symbolize").unwrap().contains("--no-symbolize, then"));
        for (command, option) in [("record", "--last"), ("flame", "--pdi"), ("doctor", "--last")] {
            assert_eq!(of_record(command, option), None, "prof {command} {option}");
        }
    }

    /// An answer names options with their subcommand, or options of all three that have answers.
    #[test]
    fn answers_name_options_that_exist() {
        let prof = Cli::command();
        let has = |command: &str, option: &str| {
            let command = prof.find_subcommand(command).unwrap();
            command.get_arguments().any(|arg| arg.get_long() == option.strip_prefix("--"))
        };
        for (_, answer) in ANSWERS {
            let words: Vec<&str> = answer.split([' ', ',', ';']).collect();
            for option in words.iter().filter(|word| word.starts_with("--")) {
                let named = answer.split("prof ").nth(1).and_then(|rest| rest.split(' ').next());
                let named = named.filter(|named| prof.find_subcommand(named).is_some());
                let commands = named.map_or(vec!["record", "flame", "top"], |named| vec![named]);
                for command in commands {
                    assert!(has(command, option), "{answer}: prof {command} {option}");
                }
            }
        }
    }
}
