//! Hints for users of other profilers: the options that prof has instead.

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use sys::printed;

use super::{Cli, Command, shell_word, target::TargetArgs};

/// Options of other tools for the length of a recording.
const TIMES: &[&str] = &["--timeout", "--time", "--seconds", "--sleep", "--window"];

/// Adds to an error the replacement for `prof record ls -l`, as with perf, or `--timeout 5`.
pub fn with_hint(mut error: clap::Error) -> clap::Error {
    // The arguments of a script may contain names from elsewhere.
    let clean = |text: &str| printed::line(text).into_owned();
    let words: Vec<String> =
        std::env::args_os().map(|word| clean(&word.to_string_lossy())).collect();
    let kinds =
        [ContextKind::InvalidArg, ContextKind::InvalidValue, ContextKind::InvalidSubcommand];
    for kind in kinds {
        if let Some(ContextValue::String(text)) = error.get(kind) {
            let text = clean(text);
            error.insert(kind, ContextValue::String(text));
        }
    }
    let records = words.get(1).is_some_and(|word| word == "record" || word == "flame");
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    if error.kind() != ErrorKind::UnknownArgument || !records {
        return error;
    }
    let tip = if TIMES.iter().any(|time| wrong.split('=').next() == Some(time)) {
        Some("use -d TIME for the length of the recording, for example -d 5s".to_owned())
    } else if !wrong.starts_with('-') && words[1] == "record" {
        words.iter().position(|w| w == wrong).map(|at| with_dashes(&words[1..], at - 1))
    } else {
        None
    };
    if let Some(tip) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// The hint for a COMMAND without `--`, or the reason for which there cannot be one; `words[at]` is
/// its name.
fn with_dashes(words: &[String], at: usize) -> String {
    let quoted =
        |words: &[String]| words.iter().map(|w| shell_word(w)).collect::<Vec<_>>().join(" ");
    let (options, command) = words.split_at(at);
    let program = [String::from("prof")];
    if let Ok(cli) = Cli::try_parse_from(program.iter().chain(options))
        && let Command::Record(args) = cli.command
        && let Some(conflict) = args.target().conflict_with(command)
    {
        return conflict;
    }
    format!("put '--' before the command: prof {} -- {}", quoted(options), quoted(command))
}

impl TargetArgs {
    /// The option that gives the target, if it is not a COMMAND.
    fn target_option(&self) -> Option<String> {
        match self {
            _ if !self.processes.is_empty() => {
                Some(format!("-p {}", shell_word(&joined(&self.processes))))
            }
            _ if !self.tid.is_empty() => Some(format!("-t {}", joined(&self.tid))),
            TargetArgs { cgroup: Some(cgroup), .. } => {
                Some(format!("-G {}", shell_word(&cgroup.to_string_lossy())))
            }
            TargetArgs { user: Some(user), .. } => Some(format!("-u {}", shell_word(user))),
            _ if self.all_cpus => Some("-a".to_owned()),
            _ => None,
        }
    }

    /// The time in `-p PID -- sleep 5`, which records for five seconds as with perf.
    pub fn sleep_time(&self) -> Option<&str> {
        self.target_option()?;
        sleep_argument(&self.command)
    }

    /// The reason for which this COMMAND cannot be combined with the other arguments, if there is
    /// one.
    pub fn conflict_with(&self, command: &[String]) -> Option<String> {
        let named = self.target_option()?;
        if command.is_empty() {
            return None;
        }
        if sleep_argument(command).is_some() {
            return self.duration.map(|_| {
                format!(
                    "-d and '{}' both set the length of the recording: give one",
                    command.join(" ")
                )
            });
        }
        let option = named.split(' ').next().unwrap_or_default();
        Some(format!(
            "{option} cannot be combined with a COMMAND; to record for 5 seconds: prof record \
             {named} -d 5s"
        ))
    }
}

/// The values of an option, as one value.
pub fn joined(values: &[impl ToString]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The argument of a command that is `sleep` with one time.
fn sleep_argument(command: &[String]) -> Option<&str> {
    let [name, time] = command else { return None };
    let number = time.strip_suffix(['s', 'm', 'h']).unwrap_or(time);
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    (name == "sleep" && is_number).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn only_sleep_with_one_time_is_a_time() {
        for (command, time) in [("sleep 5", "5"), ("sleep 0.5", "0.5"), ("sleep 2m", "2m")] {
            assert_eq!(sleep_argument(&words(command)), Some(time));
        }
        for other in ["sleep", "sleep 1 2", "sleep 5ms", "sleep x", "sleep s", "ls 5", "sleep -1"] {
            assert_eq!(sleep_argument(&words(other)), None, "{other}");
        }
    }

    #[test]
    fn tips_are_valid_command_lines() {
        let tip = |words: &[&str], at| {
            with_dashes(&words.iter().map(|w| w.to_string()).collect::<Vec<_>>(), at)
        };
        assert_eq!(
            tip(&["record", "-F", "99", "ls", "-l"], 3),
            "put '--' before the command: prof record -F 99 -- ls -l"
        );
        assert_eq!(
            tip(&["record", "-p", "7", "sleep", "1"], 3),
            "put '--' before the command: prof record -p 7 -- sleep 1"
        );
        assert_eq!(
            tip(&["record", "-p", "7", "ls"], 3),
            "-p cannot be combined with a COMMAND; to record for 5 seconds: prof record -p 7 -d 5s"
        );
        assert_eq!(
            tip(&["record", "-ag", "-d", "2s", "sleep", "1"], 4),
            "-d and 'sleep 1' both set the length of the recording: give one"
        );
    }
}
