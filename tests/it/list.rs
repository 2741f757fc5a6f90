//! `prof list`: the events of this machine, and the features that work here.

use std::process::Command;

use crate::common::system::{self, needs_tracefs};
use crate::common::unprivileged::{can_drop_rights, open_dir, unprivileged};
use crate::common::{Build, Prof, Waiting, target, temp_dir};

fn list(args: &[&str]) -> String {
    let dir = temp_dir();
    let mut prof = Prof::new(&dir, "list");
    prof.command.args(args);
    prof.run().ok().text()
}

/// The names of a group's events, with the marks before them.
fn group<'a>(text: &'a str, title: &str) -> Vec<&'a str> {
    let block = text.split("\n\n").find(|block| block.starts_with(title));
    let block = block.unwrap_or_else(|| panic!("{title:?} is not in:\n{text}"));
    let name = |line: &'a str| &line[..2 + line[2..].find("  ").unwrap_or(line.len() - 2)];
    block.lines().skip(1).map(name).collect()
}

/// Events that are listed without a mark can be recorded, those with one cannot.
#[test]
fn events_without_a_mark_can_be_recorded_and_marked_ones_cannot() {
    let dir = temp_dir();
    let text = list(&[]);
    assert_eq!(text, list(&[]), "the order is stable");
    let titles = ["Hardware events", "Hardware events by names", "Hardware cache", "Software"];
    for title in titles {
        for event in group(&text, title) {
            let (mark, name) = event.split_at(2);
            let out = Prof::new(&dir, "record -e").arg(name).target("true", "").run();
            assert_eq!(out.status.success(), mark == "  ", "{event}: {}", out.stderr);
        }
    }
    assert!(group(&text, "Software").iter().any(|e| e.trim() == "page-faults"), "{text}");
}

#[test]
fn words_and_patterns_select_events() {
    let text = list(&["faults"]);
    assert_eq!(group(&text, "Software").len(), 5, "{text}");
    assert_eq!(group(&list(&["page-f*"]), "Software"), ["  page-faults"]);
    let software = list(&["software"]);
    assert!(software.starts_with("Software events") && !software.contains("\n\n"), "{software}");
    let dir = temp_dir();
    let out = Prof::new(&dir, "list nosuchthing").run();
    out.refused(2, &["no event matches 'nosuchthing'"]);
}

#[test]
fn tracepoints_are_those_of_tracefs() {
    if !needs_tracefs() {
        return;
    }
    let all = std::fs::read_to_string(system::tracefs().unwrap().join("available_events")).unwrap();
    let text = list(&["sched:sched_*"]);
    let listed = group(&text, "Tracepoints");
    let there = all.lines().filter(|name| name.starts_with("sched:sched_")).count();
    assert_eq!(listed.len(), there);
    assert!(listed.contains(&"  sched:sched_switch") && listed.is_sorted());
}

#[test]
fn markers_of_a_file_and_of_a_process_are_listed() {
    let program = target("probes", Build::C);
    let path = program.to_str().unwrap();
    let markers = [format!("  sdt:{path}:app:heard"), format!("  sdt:{path}:app:step")];
    assert_eq!(group(&list(&[path]), "Markers of"), markers);
    let waiting = Waiting::start(Command::new(&program).args(["1", "wait"]));
    let pid = waiting.pid().to_string();
    let text = list(&["-p", &pid, "app:*", "*app:step"]);
    assert_eq!(group(&text, "Markers of"), markers[1..]);
    assert!(list(&["/bin/true"]).contains("not available: no section .note.stapsdt"));
    let dir = temp_dir();
    Prof::new(&dir, "list -p 999999999").run().refused(1, &["999999999"]);
}

/// Without a slash, as a shell finds it; a word that is a part of events' names remains one.
#[test]
fn a_program_is_found_by_its_name() {
    let program = target("probes", Build::C);
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", program.parent().unwrap().display());
    let dir = temp_dir();
    let list = |args: &str| Prof::new(&dir, &format!("list {args}")).env("PATH", &path).run();
    let file = std::fs::canonicalize(&program).unwrap();
    let name = program.file_name().unwrap().to_str().unwrap();
    let markers = ["heard", "step"].map(|n| format!("  sdt:{}:app:{n}", file.display()));
    assert_eq!(group(&list(name).ok().text(), "Markers of"), markers);
    assert!(list("true").ok().text().contains("not available: no section .note.stapsdt"));
    list("no-such-program").refused(2, &["no event matches 'no-such-program'"]);
    let text = list("hardware").ok().text();
    assert!(!text.contains("Markers of"), "{text}");
}

#[test]
fn without_rights_the_obstacle_is_named() {
    if !can_drop_rights() || !needs_tracefs() {
        return;
    }
    let dir = open_dir();
    let text = unprivileged(dir.path(), "list").run().ok().text();
    let line = text.lines().find(|l| l.starts_with("Tracepoints")).unwrap();
    assert!(line.contains("not available") && line.contains("root only"), "{line}");
    assert!(group(&text, "Software").contains(&"  page-faults"), "{text}");
}
