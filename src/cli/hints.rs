//! Hints for users of other profilers: the options that prof has instead.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use sys::printed;

use super::{shell_word, target::TargetArgs};

/// Options of other tools for the length of a recording.
const TIMES: &[&str] = &["--timeout", "--time", "--seconds", "--sleep", "--window"];

/// Adds to an error the replacement for `--timeout 5`.
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
    let tip = TIMES
        .iter()
        .any(|time| wrong.split('=').next() == Some(time))
        .then(|| "use -d TIME for the length of the recording, for example -d 5s".to_owned());
    if let Some(tip) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
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
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

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
    fn the_reason_for_which_a_command_is_refused_has_another_way() {
        let conflict = |line: &str, command: &str| {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            let Command::Record(args) = cli.command else { panic!("{line}") };
            args.target().conflict_with(&words(command))
        };
        assert_eq!(conflict("prof record -p 7", "sleep 1"), None);
        assert_eq!(
            conflict("prof record -p 7", "ls").unwrap(),
            "-p cannot be combined with a COMMAND; to record for 5 seconds: prof record -p 7 -d 5s"
        );
        assert_eq!(
            conflict("prof record -a -d 2s", "sleep 1").unwrap(),
            "-d and 'sleep 1' both set the length of the recording: give one"
        );
    }
}
