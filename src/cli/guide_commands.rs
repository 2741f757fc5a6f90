//! The commands of the guide's chapters for users of other tools.

use std::ffi::OsString;

use clap::{CommandFactory, Parser};

use super::Cli;
use super::words::normalized;

/// The chapters.
const CHAPTERS: [(&str, &str); 3] = [
    ("for-perf-users.md", include_str!("../../docs/guide/for-perf-users.md")),
    ("for-pprof-users.md", include_str!("../../docs/guide/for-pprof-users.md")),
    (
        "for-users-of-other-profilers.md",
        include_str!("../../docs/guide/for-users-of-other-profilers.md"),
    ),
];

/// The commands of prof in a document: code that begins with its name.
fn commands(document: &str) -> Vec<&str> {
    let code = document.split('`').skip(1).step_by(2);
    code.filter(|code| code.starts_with("prof ") || code.starts_with("sudo prof ")).collect()
}

/// The words of a command, as a shell splits them, up to a redirection or a pipe.
fn words(command: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let mut is_quoted = false;
    for c in command.trim_start_matches("sudo ").chars() {
        let word = words.last_mut().expect("there is a word");
        match c {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(String::new()),
            c => word.push(c),
        }
    }
    let end = words.iter().position(|word| [">", "|", r"\|"].contains(&word.as_str()));
    words.truncate(end.unwrap_or(words.len()));
    words.into_iter().map(|word| if word == "PID" { "1".to_owned() } else { word }).collect()
}

#[test]
fn the_commands_for_users_of_other_tools_are_valid() {
    for (chapter, document) in CHAPTERS {
        let commands = commands(document);
        assert!(commands.len() > 20, "{chapter}: {}", commands.len());
        for command in commands {
            let words = words(command).into_iter().map(OsString::from).collect();
            let words = normalized(words, &Cli::command());
            let words = words.unwrap_or_else(|error| panic!("{chapter}: {command}: {error}"));
            if let Err(error) = Cli::try_parse_from(words) {
                panic!("{chapter}: {command}: {error}");
            }
        }
    }
}
