//! Subcommands of perf and of other tools, and what prof has instead.

/// Subcommands, the tool that has them, and the answer.
const ANSWERS: &[(&[&str], &str, &str)] = &[
    (&["stat"], "perf", "prof does not only count; prof record -e EVENTS COMMAND samples them"),
    (&["script"], "perf", "prof export --to perf-script"),
    (&["trace"], "perf", "prof record -T syscalls -p PID, then prof report"),
    (&["sched"], "perf", "prof record -T wall -a, then prof report"),
    (&["lock"], "perf", "prof record -T lock -a, then prof report"),
    (&["mem", "c2c"], "perf", "prof records no addresses of data; see prof list cache for misses"),
    (&["probe"], "perf", "prof record -e probe:FILE:FUNCTION, without a definition before"),
    (&["buildid-list", "evlist"], "perf", "prof report --header-only"),
    (&["buildid-cache"], "perf", "not needed: profiles have names and build IDs"),
    (&["kmem"], "perf", "prof record -e 'kmem:*' -a; for a program: prof record -T heap COMMAND"),
    (&["ftrace"], "perf", "prof record -e kprobe:FUNCTION -a"),
    (&["kwork"], "perf", "prof record -e 'irq:*' -a"),
    (&["timechart"], "perf", "prof record --timestamps -a, then prof report --over 1s"),
    (&["bench"], "perf", "prof has no benchmarks"),
    (&["iostat"], "perf", "prof record -T io -a, then prof report"),
    (&["archive"], "perf", "not needed: a profile has all names, and needs no other file"),
    (&["inject"], "perf", "not needed: prof reads build IDs and run-time code while it records"),
    (&["config"], "perf", "prof has no configuration file; its defaults are in each --help"),
    (&["data"], "perf", "prof export perf.data -o FILE"),
    (&["kvm"], "perf", "prof does not record inside of guests; run prof in the guest"),
    (&["daemon"], "perf", "prof record -d TIME, started by cron or a timer of systemd"),
    (&["test", "check"], "perf", "prof doctor checks what works on this machine"),
    (&["kallsyms"], "perf", "grep NAME /proc/kallsyms; prof list tracepoints has kernel events"),
    (&["dump"], "py-spy", "prof threads -p PID"),
    (&["load"], "samply", "prof report FILE"),
    (&["attach"], "", "prof record -p PID"),
    (&["run"], "", "prof record COMMAND"),
    (&["view", "open", "show"], "", "prof report FILE"),
    (&["web"], "", "prof flame FILE > out.svg, to open in a browser"),
    (&["flamegraph"], "", "prof flame FILE > out.svg"),
    (&["convert", "import"], "", "prof export FILE -o OTHER"),
];

/// The line for a subcommand of another tool.
pub fn answer(word: &str) -> Option<String> {
    let is_it = |(words, ..): &&(&[&str], &str, &str)| words.contains(&word);
    let (_, tool, answer) = ANSWERS.iter().find(is_it)?;
    Some(match *tool {
        "" => format!("there is no prof {word}: {answer}"),
        tool => format!("{tool} {word}: {answer}"),
    })
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::{Cli, words};

    #[test]
    fn each_subcommand_of_perf_has_an_answer_or_is_prof_s() {
        let all = "annotate archive bench buildid-cache buildid-list c2c config daemon data diff \
                   evlist ftrace inject iostat kallsyms kmem kvm kwork list lock mem probe record \
                   report sched script stat test timechart top trace check";
        let prof = Cli::command();
        for word in all.split_whitespace() {
            let line = answer(word);
            assert_ne!(line.is_some(), prof.find_subcommand(word).is_some(), "{word}");
            assert!(line.is_none_or(|line| line.len() <= 100), "{word}");
        }
        assert_eq!(answer("no-such"), None);
    }

    #[test]
    fn answers_are_valid_command_lines() {
        for (_, _, answer) in ANSWERS {
            for command in answer.split(['.', ',', ';', ':']).filter_map(|part| {
                let at = part.find("prof record ").or_else(|| part.find("prof report "))?;
                Some(&part[at..])
            }) {
                let line = command.replace('\'', "").replace(" samples them", "");
                let line = line.replace(" PID", " 1").replace(" TIME", " 1s");
                let line =
                    words::normalized(line.split(' ').map(Into::into).collect(), &Cli::command());
                assert!(Cli::try_parse_from(line.unwrap()).is_ok(), "{command}");
            }
        }
    }
}
