//! `prof flame` with a target: record and draw in one go.

use std::process::Command;

use crate::common::{Build, Prof, Running, system, target, temp_dir};

/// Fails unless this is a whole SVG that names the function.
#[track_caller]
fn is_flame_graph(svg: &str, function: &str) {
    assert!(svg.starts_with("<?xml") && svg.trim_end().ends_with("</svg>"), "no SVG: {svg:.200}");
    let mut reader = quick_xml::Reader::from_str(svg);
    while reader.read_event().expect("well-formed XML") != quick_xml::events::Event::Eof {}
    assert!(svg.contains(function), "{function} is not in the picture");
}

#[test]
fn a_process_is_drawn_without_leaving_a_file() {
    let dir = temp_dir();
    let known = Running::start(Command::new(target("known", Build::C)).arg("0"));
    let pid = known.pid().to_string();
    let out = Prof::new(&dir, "flame -F 999 -d 1s -p").arg(pid).run().ok();
    is_flame_graph(&out.text(), "foo1");
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "a file is left");
}

#[test]
fn a_command_is_drawn_and_keeps_its_own_output() {
    let dir = temp_dir();
    let prof = Prof::new(&dir, "flame -F 999 -o out.svg");
    let out = prof.target(target("known", Build::Rust), "1").run().ok();
    let out = out.says(&["prof: wrote out.svg"]);
    let svg = std::fs::read_to_string(dir.path().join("out.svg")).unwrap();
    is_flame_graph(&svg, "known::foo2");
    assert!(out.text().trim().parse::<u64>().is_ok(), "the command's own output: {}", out.text());
}

/// Both would go to the same file, which would then be no SVG.
#[test]
fn a_commands_output_stays_out_of_the_graph() {
    let dir = temp_dir();
    let prof = Prof::new(&dir, "flame -F 999");
    let out = prof.target(target("known", Build::C), "0.5").run().ok();
    is_flame_graph(&out.text(), "foo1");
    let out = out.says(&["the command's standard output goes to standard error"]);
    assert!(out.stderr.lines().any(|l| l.parse::<u64>().is_ok()), "{}", out.stderr);
}

#[test]
fn quiet_prints_nothing() {
    let dir = temp_dir();
    let prof = Prof::new(&dir, "flame -q -F 999 -o out.svg");
    assert_eq!(prof.target(target("known", Build::C), "0.2").run().ok().stderr, "");
}

#[test]
fn options_of_a_recording_need_a_target() {
    let dir = temp_dir();
    Prof::new(&dir, "record -F 999").target(target("known", Build::C), "0.2").run().ok();
    for option in ["-d 5", "-D 5", "-F 99", "-c 1000", "-e cycles", "-g fp", "--no-inherit"] {
        let name = option.split(' ').next().unwrap();
        let prof = |file: &str| Prof::new(&dir, "flame").args(file).args(option).run();
        prof("").refused(2, &[name, "-p PID", "-- COMMAND"]);
        prof("profile.pb.gz").refused(2, &[name, "FILE"]);
    }
}

#[test]
fn an_impossible_sample_type_is_refused_before_the_command_runs() {
    let dir = temp_dir();
    let refused = |args: &str| {
        Prof::new(&dir, "flame --type")
            .args(args)
            .target("touch", "RAN")
            .run()
            .refused(2, &["--type"]);
        assert!(!dir.path().join("RAN").exists());
    };
    refused("nosuch");
    refused("cpu-migrations -e page-faults");
    let prof = Prof::new(&dir, "flame -F 999 --type samples/count");
    prof.target(target("known", Build::C), "0.2").run().ok();
}

#[test]
fn the_whole_machine_is_drawn_with_processes_as_roots() {
    if !system::needs_root() {
        return;
    }
    let dir = temp_dir();
    let _known = Running::start(Command::new(target("known", Build::C)).arg("0"));
    let out = Prof::new(&dir, "flame -a -d 1 -F 499").run().ok();
    is_flame_graph(&out.text(), "foo1");
    // More than one process: their names are the lowest frames.
    assert!(out.text().contains(">known"), "no frame of the process");
}

#[test]
fn folded_stacks_of_a_command_are_written() {
    let dir = temp_dir();
    let prof = Prof::new(&dir, "flame -F 999 --folded -o stacks.txt");
    prof.target(target("known", Build::C), "1").run().ok();
    let text = std::fs::read_to_string(dir.path().join("stacks.txt")).unwrap();
    assert!(text.lines().any(|l| l.contains(";main;foo1;bar ")), "{text}");
}

#[test]
fn a_missing_command_exits_with_127() {
    let dir = temp_dir();
    Prof::new(&dir, "flame").target("no-such-command", "").run().refused(127, &["no-such-command"]);
}

#[test]
fn a_file_and_a_target_exclude_each_other() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "flame some.pb.gz -p 1").run();
    assert_eq!(out.code(), 2, "{}", out.stderr);
}
