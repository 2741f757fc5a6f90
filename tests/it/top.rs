//! `prof top`: tables into a pipe, and the interactive views in a real terminal.

use std::process::Command;

use crate::common::machine::Sysctl;
use crate::common::run::tool;
use crate::common::system::until_has_run;
use crate::common::unprivileged::{can_drop_rights, open_dir, unprivileged_plain};
use crate::common::{Build, Prof, Running, assert_share, needs, target, temp_dir, until};
use crate::terminal::{Terminal, ends_with_the_terminal};

fn known() -> Running {
    Running::start(Command::new(target("known", Build::C)).arg("0"))
}

/// The tables of an output, each with its header line.
fn tables(text: &str) -> Vec<Vec<&str>> {
    let mut tables: Vec<Vec<&str>> = Vec::new();
    for line in text.lines() {
        if line.contains(" since the last table; ") {
            tables.push(Vec::new());
        }
        tables.last_mut().expect("a header comes first").push(line);
    }
    tables
}

/// The figures of a table's header.
#[derive(Debug)]
struct Header {
    /// Seconds from the beginning of the recording.
    elapsed: f64,
    /// Samples since the last table.
    samples: f64,
    /// Seconds that the table covers.
    shown: f64,
}

impl Header {
    #[track_caller]
    fn read(line: &str) -> Header {
        let number = |text: &str| text.split(' ').next().unwrap().parse().unwrap();
        let (elapsed, rest) = line.split_once(" s: ").unwrap();
        let (_, shown) = rest.split_once("shown: ").unwrap();
        Header { elapsed: number(elapsed), samples: number(rest), shown: number(shown) }
    }
}

/// Fails unless a share in a table is that of a number of samples, but for once in 20 million.
#[track_caller]
fn assert_drawn(what: &str, got: f64, want: f64, samples: f64) {
    let deviation = (want * (100.0 - want) / samples).sqrt();
    assert_share(what, got, want, 5.5 * deviation);
}

/// The self percentage of a function in a table.
fn share(table: &[&str], function: &str) -> f64 {
    let row = table.iter().find(|line| line.ends_with(&format!(" {function}")));
    let row = row.unwrap_or_else(|| panic!("no {function} in {table:#?}"));
    let percent = row.split_whitespace().find(|word| word.ends_with('%')).unwrap();
    percent.trim_end_matches('%').parse().unwrap()
}

#[test]
fn the_end_of_the_terminal_is_that_of_prof() {
    if needs(&["tmux"]) {
        let known = known();
        ends_with_the_terminal(&format!("prof top -p {}", known.pid()), "bar  (known)");
    }
}

#[test]
fn each_table_has_the_names_and_shares_of_its_interval() {
    let dir = temp_dir();
    let known = known();
    let prof = Prof::new(&dir, "top -F 999 --iterations 3 -p").arg(known.pid().to_string());
    let text = prof.run().ok().text();
    let tables = tables(&text);
    assert_eq!(tables.len(), 3, "{text}");
    let mut last = 0.0;
    for table in &tables {
        let header = Header::read(table[0]);
        assert!(header.samples > 50.0, "{header:?}");
        assert_drawn("bar", share(table, "bar"), 55.6, header.samples);
        assert_drawn("main", share(table, "main"), 22.2, header.samples);
        // An interval of a second is longer on a busy machine; figures are rounded to 0.1 s.
        let interval = header.elapsed - last;
        assert!(interval > 0.85 && (header.shown - interval).abs() < 0.21, "{last} s, {header:?}");
        assert!(table[0].contains("% of a core"), "{}", table[0]);
        last = header.elapsed;
    }
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "a file is left");
}

#[test]
fn a_longer_window_covers_several_intervals() {
    let dir = temp_dir();
    let known = known();
    for window in ["recent", "all"] {
        let prof = Prof::new(&dir, "top -F 999 --interval 500ms --iterations 4 --window");
        let text = prof.arg(window).arg("-p").arg(known.pid().to_string()).run().ok().text();
        let tables = tables(&text);
        assert_eq!(tables.len(), 4, "{text}");
        let header = tables[3][0];
        let (elapsed, _) = header.split_once(" s: ").unwrap();
        // In `all`, older parts count less.
        let is_whole = header.contains(&format!("shown: {elapsed} s;"));
        assert!(is_whole || window == "all", "{window}: {header}");
        let samples = tables.iter().map(|table| Header::read(table[0]).samples).sum();
        assert_drawn("bar", share(&tables[3], "bar"), 55.6, samples);
    }
}

#[test]
fn each_table_can_be_json() {
    let dir = temp_dir();
    let known = known();
    let prof = Prof::new(&dir, "top -F 999 --json --iterations 2 --interval 500ms -p");
    let text = prof.arg(known.pid().to_string()).run().ok().text();
    let objects = serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>();
    let objects: Vec<serde_json::Value> = objects.map(Result::unwrap).collect();
    assert_eq!(objects.len(), 2, "{text}");
    for object in objects {
        assert_eq!(object["version"], 1);
        assert!(object["duration_nanos"].as_i64().is_some_and(|n| n >= 500_000_000));
        let rows = object["rows"].as_array().unwrap();
        assert!(rows.iter().any(|row| row["function"] == "bar"), "{rows:?}");
    }
}

#[test]
fn the_end_of_the_target_is_that_of_prof() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "top -F 999 --interval 300ms").target(target("known", Build::C), "1");
    let out = out.run().ok();
    let text = out.text();
    assert!(tables(&text).len() >= 3, "{text}");
    assert!(out.stderr.lines().any(|line| line.parse::<u64>().is_ok()), "the command's output");
    Prof::new(&dir, "top").target("sh", "-c exit\\ 3").run().exits(127);
    Prof::new(&dir, "top").target("false", "").run().exits(1);
    Prof::new(&dir, "top -d 700ms --interval 200ms").target("sleep", "5").run().exits(0);
}

#[test]
fn several_types_and_labels_are_shown() {
    let dir = temp_dir();
    let known = known();
    let pid = known.pid().to_string();
    let run = |args: &str| {
        let prof = Prof::new(&dir, "top --iterations 2 --interval 500ms");
        prof.args(args).arg("-p").arg(&pid).run().ok().text()
    };
    let by_process = run("-T wall --sort process");
    assert!(by_process.lines().any(|line| line.ends_with(" known")), "{by_process}");
    let faults = run("-T cpu -e page-faults --type cpu -F 999");
    assert!(share(&tables(&faults)[1], "bar") > 30.0, "{faults}");
    let focused = run("--focus ^foo2$ -F 999");
    assert!(!focused.contains(" foo1"), "{focused}");
}

#[test]
fn what_cannot_be_shown_live_is_refused() {
    let dir = temp_dir();
    let refused = |args: &str, words: &[&str]| Prof::plain(&dir, args).run().refused(2, words);
    refused("top -T heap -p 1", &["-T heap", "prof record"]);
    refused("top -T threads -p 1", &["prof threads"]);
    for times in ["--timestamps", "--max-samples 9", "--time 1s..2s"] {
        refused(&format!("top {times} -p 1"), &["prof record --timestamps"]);
    }
    refused("top --snapshots 2 -p 1", &["prof threads"]);
    refused("top --leaks -p 1", &["--leaks", "prof record -T heap"]);
    refused("top --interval 1ms -p 1", &["100ms"]);
    refused("top --focus ( -p 1", &["--focus"]);
    Prof::plain(&dir, "top -p 4194305").run().refused(1, &["no process 4194305"]);
    Prof::plain(&dir, "top -- ./none").run().refused(127, &["./none"]);
}

#[test]
fn without_rights_the_message_is_that_of_a_recording() {
    if !can_drop_rights() {
        return;
    }
    let Some(_paranoid) = Sysctl::set("kernel.perf_event_paranoid", "2") else { return };
    let dir = open_dir();
    let top = unprivileged_plain(dir.path(), "top").run().exits(1);
    let record = unprivileged_plain(dir.path(), "record -a -d 1").run().exits(1);
    assert_eq!(top.stderr, record.stderr);
}

#[test]
fn the_views_follow_a_process() {
    if !needs(&["tmux", "go"]) {
        return;
    }
    let known = known();
    let terminal = Terminal::start(100, 12, &[]);
    terminal.run(&format!("prof top -F 999 -p {}", known.pid()));
    terminal.wait_for("bar  (known)");
    terminal.wait_for("last 10 s  ");
    terminal.wait_for(&format!("PID {}", known.pid()));
    // A selected function stays selected.
    terminal.keys(&["/", "f", "o", "o", "1", "Enter"]);
    terminal.changes(3);
    terminal.keys(&["y"]);
    terminal.wait_for("copied foo1");
    // Windows.
    terminal.keys(&["W"]);
    terminal.wait_for("half-life 30 s");
    terminal.keys(&["W"]);
    terminal.wait_for("last 1 s");
    // The rest of the screen stays while it is paused.
    terminal.keys(&["p"]);
    terminal.wait_for("PAUSED");
    let rows = |screen: String| screen.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    let paused = rows(terminal.settled());
    // There are samples of more than two intervals by then.
    until_has_run(known.pid(), 2.5);
    assert_eq!(rows(terminal.screen()), paused);
    terminal.keys(&["p"]);
    terminal.wait_until("it goes on", |screen| !screen.contains("PAUSED"));
    for (key, text) in [("F", "flame graph"), ("t", "call tree"), ("8", "thread")] {
        terminal.keys(&[key]);
        terminal.wait_for(text);
    }
    // The current data as a profile.
    let file = terminal.export("now.pb.gz");
    let top = tool("go", &["tool".as_ref(), "pprof".as_ref(), "-top".as_ref(), file.as_os_str()]);
    assert!(top.contains("File: known") && top.lines().any(|l| l.ends_with(" bar")), "{top}");
    // The end of the process leaves the views.
    drop(known);
    terminal.wait_for("ended");
    terminal.keys(&["f"]);
    terminal.wait_for("main  (known)");
    terminal.keys(&["q"]);
    terminal.wait_for("$ prof top");
    terminal.is_restored();
}

/// The names are found after the end of the recording.
#[test]
fn a_short_command_gets_its_names() {
    if !needs(&["tmux"]) {
        return;
    }
    let terminal = Terminal::start(100, 12, &["PROF_CACHE_SIZE=0"]);
    let known = target("known", Build::C);
    for _ in 0..3 {
        terminal.run(&format!("clear; prof top -F 999 -- timeout 0.4 {} 0", known.display()));
        terminal.wait_for("  ended");
        terminal.wait_for("bar  (known)");
        terminal.keys(&["q"]);
        terminal.is_restored();
    }
    // What is paused shows them when it goes on.
    terminal.run(&format!("clear; prof top -F 999 -- timeout 3 {} 0", known.display()));
    terminal.wait_for("last 10 s  ");
    terminal.keys(&["p"]);
    terminal.wait_for("PAUSED");
    terminal.wait_for("  ended");
    terminal.keys(&["p"]);
    terminal.wait_for("bar  (known)");
    terminal.keys(&["q"]);
    terminal.is_restored();
}

#[test]
fn the_end_of_the_views_interrupts_the_command() {
    if !needs(&["tmux"]) {
        return;
    }
    let terminal = Terminal::start(100, 12, &[]);
    let script = "#!/bin/sh\ntrap 'touch ended; exit' INT\necho noise\nwhile :; do :; done\n";
    std::fs::write(terminal.dir.path().join("loop.sh"), script).unwrap();
    terminal.run("prof top -F 999 -- sh loop.sh");
    terminal.wait_for("last 10 s  ");
    terminal.wait_for("(");
    assert!(!terminal.screen().contains("noise"), "{}", terminal.screen());
    terminal.keys(&["q"]);
    let ended = terminal.dir.path().join("ended");
    until(|| ended.exists());
    terminal.wait_for("$ prof top");
    terminal.is_restored();
}

/// Types what is to be recorded.
fn record_instead(terminal: &Terminal, typed: &str) {
    terminal.keys(&["E"]);
    terminal.wait_for("record (");
    terminal.run(typed);
}

#[test]
fn other_data_is_recorded_without_a_new_start() {
    if !needs(&["tmux"]) {
        return;
    }
    let known = known();
    let terminal = Terminal::start(100, 12, &[]);
    terminal.run(&format!("prof top -F 999 -p {}", known.pid()));
    terminal.wait_for("bar  (known)");
    terminal.wait_for("cpu");
    // What is refused leaves the recording as it is.
    record_instead(&terminal, "no-such-event");
    terminal.wait_for("'no-such-event' is unknown");
    record_instead(&terminal, "heap");
    terminal.wait_for("use prof record -T heap");
    record_instead(&terminal, "wall -p 1");
    terminal.wait_for("only what is recorded can change");
    terminal.wait_for("functions  cpu");
    record_instead(&terminal, "wall");
    terminal.wait_for("functions  wall");
    terminal.wait_for("bar  (known)");
    record_instead(&terminal, "-e task-clock,page-faults -F 99");
    terminal.wait_for("functions  cpu");
    terminal.wait_for("bar  (known)");
    terminal.keys(&["T"]);
    terminal.wait_for("page-faults");
    drop(known);
    terminal.wait_for("ended");
    record_instead(&terminal, "wall");
    terminal.wait_for("no process");
    terminal.keys(&["q"]);
    terminal.wait_for("$ prof top");
    terminal.is_restored();
}

#[test]
fn other_data_of_a_command_that_runs() {
    if !needs(&["tmux"]) {
        return;
    }
    let terminal = Terminal::start(100, 12, &[]);
    let script = "#!/bin/sh\ntrap 'touch ended; exit 7' INT\nwhile :; do :; done\n";
    std::fs::write(terminal.dir.path().join("loop.sh"), script).unwrap();
    terminal.run("prof top -F 999 -- sh loop.sh; echo \"exit code $?\"");
    terminal.wait_for("last 10 s  ");
    terminal.wait_for("(");
    record_instead(&terminal, "wall");
    terminal.wait_for("functions  wall");
    terminal.wait_for("(");
    terminal.keys(&["q"]);
    let ended = terminal.dir.path().join("ended");
    until(|| ended.exists());
    terminal.wait_for("exit code 0");
    // One that has ended gives its exit code.
    terminal.run("clear; prof top -F 999 -- sh -c 'sleep 4; exit 7'; echo \"exit code $?\"");
    terminal.wait_for("last 10 s  ");
    record_instead(&terminal, "wall");
    terminal.wait_for("functions  wall");
    terminal.wait_for("ended");
    terminal.keys(&["q"]);
    terminal.wait_for("exit code 7");
}
