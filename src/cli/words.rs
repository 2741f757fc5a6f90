//! The words of the command line, before they are parsed: what users of perf and of a shell write in
//! another form than the parser takes.
//!
//! | Written | Parsed |
//! |---|---|
//! | `-p $(pgrep x)`: several PIDs, separated by blanks, lines or as words | `-p 1,2,3` |
//! | `-g` before a word that is no method of `-g` | `-g=auto` before that word |
//! | `record ls -l`: the first word that belongs to no option | `record -- ls -l` |
//! | `version` | `--version` |

use std::ffi::OsString;

use clap::{Arg, Command};

use super::target::is_stack_method;

/// The subcommands that record, and whether a COMMAND may follow their options without `--`.
const RECORDING: [(&str, CommandWord); 5] = [
    ("record", CommandWord::Begins),
    ("top", CommandWord::Begins),
    // Its words are FILEs.
    ("flame", CommandWord::NeedsDashes),
    ("threads", CommandWord::NeedsDashes),
    ("list", CommandWord::NeedsDashes),
];

/// The meaning of a word that belongs to no option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandWord {
    /// It begins the COMMAND.
    Begins,
    /// A COMMAND comes after `--`.
    NeedsDashes,
}

/// The words of a command line as the parser takes them; the first is prof's name.
///
/// # Errors
///
/// One line: an option lacks its value.
pub fn normalized(words: Vec<OsString>, prof: &Command) -> Result<Vec<OsString>, String> {
    let name = words.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let known = RECORDING.iter().find(|(recording, _)| *recording == name);
    match (known, prof.find_subcommand(name)) {
        (Some((_, command_word)), Some(command)) => {
            let mut line =
                Line { command, command_word: *command_word, words, at: 2, out: Vec::new() };
            line.out.extend(line.words[..2].iter().cloned());
            line.read()?;
            Ok(line.out)
        }
        _ if name == "version" => Ok(vec![words[0].clone(), "--version".into()]),
        _ => Ok(words),
    }
}

/// A command line that is read from its beginning to its end.
struct Line<'c> {
    command: &'c Command,
    command_word: CommandWord,
    words: Vec<OsString>,
    /// Index of the next word.
    at: usize,
    /// The words for the parser.
    out: Vec<OsString>,
}

impl Line<'_> {
    fn read(&mut self) -> Result<(), String> {
        while let Some(word) = self.words.get(self.at).cloned() {
            self.at += 1;
            let text = word.to_str().unwrap_or_default();
            let is_option = text.len() > 1 && text.starts_with('-') && !is_number(text);
            if text == "--" {
                self.out.push(word);
                self.out.extend(self.words.drain(self.at..));
            } else if let Some(long) = text.strip_prefix("--") {
                self.long(long)?;
            } else if is_option {
                self.letters(&text[1..])?;
            } else if self.command_word == CommandWord::Begins {
                self.out.extend(["--".into(), word]);
                self.out.extend(self.words.drain(self.at..));
            } else {
                self.out.push(word);
            }
        }
        Ok(())
    }

    /// `--NAME`, `--NAME=VALUE` or `--NAME VALUE`.
    fn long(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text.split_once('=').map_or((text, None), |(n, v)| (n, Some(v)));
        let is_it = |arg: &&Arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(name) || aliases.contains(&name)
        };
        let command = self.command;
        match command.get_arguments().find(is_it) {
            Some(arg) if arg.get_action().takes_values() => {
                self.with_value(arg, &format!("--{name}"), value)
            }
            _ => {
                self.out.push(format!("--{text}").into());
                Ok(())
            }
        }
    }

    /// `-ap1`: letters of options without a value, then perhaps one with its value.
    fn letters(&mut self, text: &str) -> Result<(), String> {
        let command = self.command;
        for (at, letter) in text.char_indices() {
            let arg = command.get_arguments().find(|arg| arg.get_short() == Some(letter));
            let Some(arg) = arg.filter(|arg| arg.get_action().takes_values()) else { continue };
            if at > 0 {
                self.out.push(format!("-{}", &text[..at]).into());
            }
            let rest = &text[at + letter.len_utf8()..];
            let is_letters = is_optional(arg) && !rest.starts_with('=') && !is_stack_method(rest);
            if is_letters && !rest.is_empty() {
                self.out.push("-g=auto".into());
                return self.letters(rest);
            }
            let value = (!rest.is_empty()).then(|| rest.strip_prefix('=').unwrap_or(rest));
            return self.with_value(arg, &format!("-{letter}"), value);
        }
        self.out.push(format!("-{text}").into());
        Ok(())
    }

    /// An option as the user wrote it, with the value that is attached to it or in the next words.
    fn with_value(&mut self, arg: &Arg, option: &str, value: Option<&str>) -> Result<(), String> {
        if is_optional(arg) {
            let value = value.map(str::to_owned).or_else(|| self.stack_method());
            self.out.push(format!("{option}={}", value.as_deref().unwrap_or("auto")).into());
            return Ok(());
        }
        let is_list = matches!(arg.get_id().as_str(), "pid" | "tid");
        if is_list {
            let list = self.list(option, value)?;
            self.out.push(format!("{option}={list}").into());
            return Ok(());
        }
        if let Some(value) = value {
            self.out.push(format!("{option}={value}").into());
            return Ok(());
        }
        let next = self.words.get(self.at).cloned();
        if next.as_ref().is_some_and(|next| next == "--") {
            let name = arg.get_value_names().and_then(|names| names.first());
            let name = name.map_or("VALUE", |name| name.as_str());
            return Err(format!("{option} lacks its value: write {option} {name} before '--'"));
        }
        self.out.push(option.into());
        if let Some(next) = next {
            self.at += 1;
            self.out.push(next);
        }
        Ok(())
    }

    /// The next word, if it is a method of `-g`, or can only be a wrong one.
    fn stack_method(&mut self) -> Option<String> {
        let word = self.words.get(self.at)?.to_str()?;
        let ends_options = self.words.get(self.at + 1).is_some_and(|next| next == "--");
        if !is_stack_method(word) && (!ends_options || word.starts_with('-')) {
            return None;
        }
        self.at += 1;
        Some(word.to_owned())
    }

    /// The value of `-p` or `-t`: words of digits that follow it directly are part of it.
    fn list(&mut self, option: &str, value: Option<&str>) -> Result<String, String> {
        let next = self.words.get(self.at).and_then(|word| word.to_str());
        let mut list = match value.or(next) {
            Some(first) if value.is_some() || !first.starts_with('-') || is_number(first) => {
                self.at += usize::from(value.is_none());
                first.trim().to_owned()
            }
            _ => String::new(),
        };
        if list.is_empty() {
            let (kind, name) = match option {
                "-t" | "--tid" => ("TID", ""),
                _ => ("PID", " or name"),
            };
            return Err(format!(
                "{option} lacks its {kind}{name}; if pgrep or pidof was to give it, no process \
                 matches"
            ));
        }
        if !list.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_whitespace() || b == b',') {
            return Ok(list);
        }
        // SEARCH follows the options of prof list.
        while self.command.get_name() != "list"
            && let Some(next) = self.words.get(self.at).and_then(|word| word.to_str())
            && !next.is_empty()
            && next.bytes().all(|b| b.is_ascii_digit() || b == b',')
        {
            list = format!("{list} {next}");
            self.at += 1;
        }
        let mut joined = String::new();
        for word in list.split_ascii_whitespace() {
            if !joined.is_empty() && !joined.ends_with(',') && !word.starts_with(',') {
                joined.push(',');
            }
            joined.push_str(word);
        }
        Ok(joined)
    }
}

/// True for an option that need not have a value: `-g`.
fn is_optional(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|range| range.min_values() == 0)
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::Cli;

    fn words(line: &str) -> Vec<OsString> {
        // A '_' is a blank within a word.
        let words = line.split(' ').map(|word| word.replace('_', " ").into());
        ["prof".into()].into_iter().chain(words).collect()
    }

    fn parsed(line: &str) -> String {
        let words = normalized(words(line), &Cli::command()).unwrap();
        assert!(Cli::try_parse_from(&words).is_ok(), "{line}: {words:?}");
        let words: Vec<_> = words[2..].iter().map(|word| word.to_str().unwrap()).collect();
        words.join(" ")
    }

    #[test]
    fn a_word_without_an_option_begins_the_command() {
        assert_eq!(parsed("record ls -l"), "-- ls -l");
        assert_eq!(parsed("record -F 99 ls -p 1"), "-F 99 -- ls -p 1");
        assert_eq!(parsed("record -p 7 sleep 5"), "-p=7 -- sleep 5");
        assert_eq!(parsed("record -o out.gz git log -- file"), "-o out.gz -- git log -- file");
        assert_eq!(parsed("record -qao- -Ccpu sleep 5"), "-qa -o=- -C=cpu -- sleep 5");
        assert_eq!(parsed("top --interval 2s make"), "--interval 2s -- make");
        assert_eq!(parsed("record --leaks -T heap ls"), "--leaks -T heap -- ls");
        for same in ["record -F 99 -- ls -l", "flame a.gz b.gz", "report -g caller x.gz"] {
            assert_eq!(parsed(same), same.split_once(' ').unwrap().1);
        }
    }

    #[test]
    fn a_word_after_g_is_its_method_or_begins_the_command() {
        assert_eq!(parsed("record -g ls -l"), "-g=auto -- ls -l");
        assert_eq!(parsed("record -ag sleep 5"), "-a -g=auto -- sleep 5");
        assert_eq!(parsed("record -g -F 99 ./prog x"), "-g=auto -F 99 -- ./prog x");
        assert_eq!(parsed("record -ga -- sleep 5"), "-g=auto -a -- sleep 5");
        assert_eq!(parsed("record -gp 7"), "-g=auto -p=7");
        assert_eq!(parsed("record -g fp ls"), "-g=fp -- ls");
        assert_eq!(parsed("record --call-graph dwarf,8192 ls"), "--call-graph=dwarf,8192 -- ls");
        assert_eq!(parsed("record -gdwarf -- ls"), "-g=dwarf -- ls");
        assert_eq!(parsed("record -g"), "-g=auto");
        assert_eq!(parsed("flame -ag"), "-a -g=auto");
        assert_eq!(parsed("flame -g a.gz"), "-g=auto a.gz");
        let wrong = normalized(words("record -g dwraf -- ls"), &Cli::command()).unwrap();
        assert!(Cli::try_parse_from(wrong).unwrap_err().to_string().contains("'dwraf'"));
    }

    #[test]
    fn lists_of_ids_may_be_separated_in_any_way() {
        assert_eq!(parsed("record -p 12 34 -d 5s"), "-p=12,34 -d 5s");
        assert_eq!(parsed("top -p 1 2"), "-p=1,2");
        assert_eq!(parsed("threads -t 1 2,3"), "-t=1,2,3");
        assert_eq!(parsed("record -p_1 -p 1\n2\n3\t4_5, 6 -- sleep 1"), {
            "-p=1 -p=1,2,3,4,5,6 -- sleep 1"
        });
        assert_eq!(parsed("record -p nginx 12"), "-p=nginx -- 12");
        assert_eq!(parsed("record -p my_program"), "-p=my program");
        assert_eq!(parsed("record --pid=7,8"), "--pid=7,8");
        assert_eq!(parsed("list -p 1 2"), "-p=1 2");
    }

    #[test]
    fn an_option_without_its_value_is_named() {
        let refused = |line: &str| normalized(words(line), &Cli::command()).unwrap_err();
        for line in ["record -p", "record -p -d 5s", "record -p -- ls", "top --pid=", "record -ap"]
        {
            let reason = refused(line);
            assert!(reason.contains("lacks its PID or name"), "{line}: {reason}");
        }
        assert!(refused("threads -t_ -q").contains("lacks its TID;"));
        assert_eq!(refused("record -d -- true"), "-d lacks its value: write -d TIME before '--'");
    }

    #[test]
    fn words_of_other_subcommands_stay() {
        for line in ["report -p -- x", "help", "stat -p 1", "diff a b", "no-such -d -- x"] {
            let words = words(line);
            assert_eq!(normalized(words.clone(), &Cli::command()), Ok(words));
        }
        assert_eq!(normalized(words("version"), &Cli::command()), Ok(words("--version")));
        assert_eq!(normalized(Vec::new(), &Cli::command()), Ok(Vec::new()));
    }
}
