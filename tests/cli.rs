//! The command line itself: help, completions, the man page, wrong usage.

mod common;

use std::process::{Command, Stdio};

use common::{Prof, needs, temp_dir};

const SUBCOMMANDS: &[&str] = &["record", "report", "flame", "symbolize", "doctor"];

#[test]
fn help_names_every_subcommand() {
    let dir = temp_dir();
    let text = Prof::new(&dir, "--help").run().ok().text();
    for name in SUBCOMMANDS {
        assert!(text.contains(name), "{name} is not in: {text}");
        Prof::new(&dir, name).arg("--help").run().ok();
    }
}

#[test]
fn wrong_usage_exits_with_2() {
    let dir = temp_dir();
    for args in ["", "no-such-command", "record --no-such-option", "report --no-such-option"] {
        let out = Prof::new(&dir, args).run();
        assert_eq!(out.code(), 2, "prof {args}: {}", out.stderr);
        assert!(out.stdout.is_empty(), "prof {args}: {}", out.text());
        assert!(!out.stderr.is_empty());
    }
}

#[test]
fn help_is_a_subcommand_too() {
    let dir = temp_dir();
    let text = |args: &str| Prof::new(&dir, args).run().ok().text();
    assert_eq!(text("help record"), text("record --help"));
}

#[test]
fn a_command_without_its_dashes_is_shown_with_them() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "record -F 99 ls -l").run();
    assert_eq!(out.code(), 2);
    out.says(&["prof record -F 99 -- ls -l\n"]);
}

#[test]
fn negative_values_are_refused_as_such() {
    let dir = temp_dir();
    let refused = |args: &str, code, word: &str| Prof::new(&dir, args).run().refused(code, &[word]);
    for option in ["-d", "-D", "-F", "-c"] {
        refused(&format!("record {option} -1 -- true"), 2, "invalid value '-1'");
    }
    refused("record -p -1", 1, "no process -1");
    refused("record -t -1", 1, "no thread -1");
    refused("report -n -1", 2, "0 shows all");
    refused("report --percent-limit -1", 2, "from 0 to 100");
    refused("flame --min-width -1", 2, "from 0 to 100");
}

/// Feeds a script to a shell that only parses it.
fn parse(shell: &str, option: &str, script: &str) {
    let dir = temp_dir();
    let path = dir.path().join("script");
    std::fs::write(&path, script).unwrap();
    let mut command = Command::new(shell);
    command.arg(option).arg(&path).stdin(Stdio::null());
    let out = common::run::run(command).ok();
    assert!(out.stderr.is_empty(), "{shell}: {}", out.stderr);
}

#[test]
fn bash_parses_and_uses_its_completions() {
    if !needs(&["bash"]) {
        return;
    }
    let dir = temp_dir();
    let script = Prof::new(&dir, "completions bash").run().ok().text();
    parse("bash", "-n", &script);
    let path = dir.path().join("prof.bash");
    std::fs::write(&path, script).unwrap();
    let line = format!(
        "source {}; COMP_WORDS=(prof re); COMP_CWORD=1; _prof prof re prof; echo ${{COMPREPLY[@]}}",
        path.display()
    );
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &line]).stdin(Stdio::null());
    assert_eq!(common::run::run(bash).ok().text().trim(), "record report");
}

#[test]
fn zsh_parses_its_completions() {
    let dir = temp_dir();
    let script = Prof::new(&dir, "completions zsh").run().ok().text();
    assert!(script.starts_with("#compdef prof"));
    if needs(&["zsh"]) {
        parse("zsh", "-n", &script);
    }
}

#[test]
fn fish_parses_its_completions() {
    let dir = temp_dir();
    let script = Prof::new(&dir, "completions fish").run().ok().text();
    assert!(script.contains("complete -c prof"));
    if needs(&["fish"]) {
        parse("fish", "-n", &script);
    }
}

#[test]
fn the_man_page_renders_without_a_warning() {
    if !needs(&["groff"]) {
        return;
    }
    let dir = temp_dir();
    let page = Prof::new(&dir, "man").run().ok().text();
    let path = dir.path().join("prof.1");
    std::fs::write(&path, page).unwrap();
    let mut groff = Command::new("groff");
    groff.args(["-man", "-Tutf8", "-ww"]).arg(&path).stdin(Stdio::null());
    let out = common::run::run(groff).ok();
    assert!(out.stderr.is_empty(), "{}", out.stderr);
    let text = out.text();
    for name in SUBCOMMANDS {
        assert!(text.contains(name), "{name} is not in the man page: {text}");
    }
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let dir = temp_dir();
    let mut child =
        Prof::new(&dir, "completions bash").command_with(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}
