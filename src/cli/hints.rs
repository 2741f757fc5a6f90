//! Hints for users of other profilers: what prof has instead of their commands and options.

mod commands;
mod options;

use std::path::Path;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use sys::printed;

use super::{Cli, export, shell_word, target::TargetArgs};

/// The line that answers a subcommand or an option of another tool, if the error is about one.
pub fn answer(error: &clap::Error, words: &[String]) -> Option<String> {
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        // Of `prof help stat`, too.
        (ErrorKind::InvalidSubcommand, _) => {
            words.iter().skip(1).find(|word| *word != "help").and_then(|w| commands::answer(w))
        }
        (ErrorKind::UnknownArgument, Some(ContextValue::String(wrong))) => {
            let (name, option) = (words.get(1)?.as_str(), wrong.split('=').next()?);
            let answer = if ["record", "flame", "top"].contains(&name) {
                answer_of_recorder(name, option)
            } else {
                None
            };
            answer.or_else(|| options::of_record(name, option))
        }
        (ErrorKind::InvalidValue, Some(ContextValue::String(option)))
            if option.starts_with("--to ") =>
        {
            let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else {
                return None;
            };
            export::other_way(Path::new(&format!("out.{value}")))
                .map(|way| format!("--to {}: {way}", printed::line(value)))
        }
        _ => None,
    }
}

/// The line for an option of another recorder, unless one of this subcommand is meant.
fn answer_of_recorder(subcommand: &str, option: &str) -> Option<String> {
    let prof = Cli::command();
    let command = prof.find_subcommand(subcommand)?;
    options::answer(option).or_else(|| {
        let near = options::answer_near(option)?;
        options::similar(command, option).is_none().then_some(near)
    })
}

/// The error with clean texts, and with the option that the user may have meant.
pub fn with_hint(mut error: clap::Error, words: &[String]) -> clap::Error {
    let kinds =
        [ContextKind::InvalidArg, ContextKind::InvalidValue, ContextKind::InvalidSubcommand];
    for kind in kinds {
        if let Some(ContextValue::String(text)) = error.get(kind) {
            let text = printed::line(text).into_owned();
            error.insert(kind, ContextValue::String(text));
        }
    }
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let prof = Cli::command();
    let command = words.get(1).and_then(|word| prof.find_subcommand(word)).unwrap_or(&prof);
    let option = wrong.split('=').next().unwrap_or_default();
    let similar = options::similar(command, option);
    // No COMMAND or FILE begins with dashes.
    error.remove(ContextKind::Suggested);
    error.remove(ContextKind::SuggestedArg);
    if let Some(similar) = similar {
        error.insert(ContextKind::SuggestedArg, ContextValue::String(similar));
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
    use crate::cli::Command;

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

    #[test]
    fn no_option_is_passed_as_a_value() {
        let line = ["prof", "record", "--pdi", "7"].map(str::to_owned);
        let error = Cli::try_parse_from(&line).unwrap_err();
        assert_eq!(answer(&error, &line), None);
        let text = with_hint(error, &line).to_string();
        assert!(text.contains("'--pid'") && !text.contains("-- --pdi"), "{text}");
    }
}
