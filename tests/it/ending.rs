//! The lines that a recording prints at its end, unless `-v` or `-q` changes them.

use std::process::Command;

use crate::common::run::{self, Output};
use crate::common::unprivileged::{can_drop_rights, open_dir, unprivileged_plain};
use crate::common::{Build, Prof, Running, needs, read, system, target, temp_dir, until};

/// The lines of prof, of which there are five at most.
#[track_caller]
fn lines(out: &Output) -> Vec<&str> {
    let lines: Vec<&str> = out.stderr.lines().collect();
    assert!((1..=5).contains(&lines.len()), "{}", out.stderr);
    assert!(lines.iter().all(|line| line.starts_with("prof: ")), "{}", out.stderr);
    lines
}

/// The line with the figures.
#[track_caller]
fn has_figures(line: &str) {
    let mut words = line.strip_prefix("prof: ").unwrap().split(' ');
    let mut next = || words.next().unwrap_or_default();
    let number = next().parse::<u64>().is_ok() && next().starts_with("sample") && next() == "in";
    let seconds = next().parse::<f64>().is_ok() && next() == "s,";
    assert!(number && seconds && line.contains(" distinct stack"), "{line}");
}

const NEXT: &str = "next: prof report, or prof flame > out.svg";

/// Debug symbols of the interpreter would not bring them.
#[test]
fn hidden_functions_of_python_are_reported() {
    if !needs(&["python3"]) {
        return;
    }
    let dir = temp_dir();
    let script = "for i in range(10**7): pass";
    let prof = Prof::plain(&dir, "record -g fp").target("python3", "-c").arg(script);
    let out = prof.run().ok();
    let lines = lines(&out);
    let line = lines.iter().find(|line| line.contains(" % of the samples are in "));
    let line = line.unwrap_or_else(|| panic!("{}", out.stderr));
    let expected = "Python's functions are not shown: they are read with copies of stacks; leave \
                    out -g";
    assert!(line.contains(expected), "{line}");
    assert!(!out.stderr.contains("java") && !out.stderr.contains("dbgsym"), "{}", out.stderr);
    let coverage = Prof::new(&dir, "report --coverage").run().ok().text();
    assert!(coverage.contains("Python's functions are not shown"), "{coverage}");
    // Not of other programs, whose functions are shown.
    let known = target("known", Build::C);
    let out = Prof::plain(&dir, "record").target(known, "0.3").run().ok();
    assert!(!out.stderr.contains("functions are not shown"), "{}", out.stderr);
}

/// The line after a recording and the coverage report that the program's functions are missing, and
/// offer no debug symbols for them.
#[test]
fn hidden_functions_of_other_interpreters_are_reported() {
    for (program, option, script, expected) in [
        ("perl", "-e", "$s += $_ for 1..9e6", "Perl's functions are not shown, only"),
        ("lua5.4", "-e", "for i = 1, 1e8 do s = i end", "Lua's functions are not shown, only"),
        ("luajit", "-joff", "-e for i = 1, 1e8 do s = i end", "luajit -jp=f shows them"),
        ("luajit", "-e", "for i = 1, 2e9 do s = i end", "luajit -jp=f"),
    ] {
        if !needs(&[program]) {
            continue;
        }
        let dir = temp_dir();
        let prof = Prof::plain(&dir, "record -F 499").target(program, option);
        let out = prof.arg(script).run().ok();
        assert!(out.stderr.contains(expected), "{program} {option}: {}", out.stderr);
        assert!(!out.stderr.contains("dbgsym"), "{program} {option}: {}", out.stderr);
        let coverage = Prof::new(&dir, "report --coverage").run().ok().text();
        assert!(coverage.contains(expected), "{program} {option}: {coverage}");
    }
}

#[test]
fn an_ordinary_recording_ends_in_two_lines() {
    let dir = temp_dir();
    for args in ["record", "record -F 499", "record -T cpu"] {
        let out = Prof::plain(&dir, args).target(target("known", Build::C), "0.5").run().ok();
        let lines = lines(&out);
        has_figures(lines[0]);
        assert!(lines.last().unwrap().ends_with(NEXT), "{}", out.stderr);
        let wrote = lines.last().unwrap().starts_with("prof: wrote profile.pb.gz (");
        assert!(wrote && lines.len() == 2, "{}", out.stderr);
    }
}

#[test]
fn a_recording_of_five_types_ends_in_five_lines() {
    let dir = temp_dir();
    let prof = Prof::plain(&dir, "record -T wall,lock,io,syscalls,heap");
    let out = prof.target(target("known", Build::C), "0.5").run().ok();
    let lines = lines(&out);
    assert!(lines.iter().any(|line| line.contains(" distinct stacks")), "{}", out.stderr);
    assert!(lines.last().unwrap().ends_with(NEXT), "{}", out.stderr);
}

/// One line has the share, the binary and one thing to do.
#[test]
fn a_stripped_program_is_named_with_what_gives_it_names() {
    if !needs(&["strip"]) {
        return;
    }
    let dir = temp_dir();
    let program = dir.path().join("bare");
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&program).arg(target("known", Build::C));
    run::run(strip).ok();
    let out = Prof::plain(&dir, "record -F 499").target(&program, "0.5").run().ok();
    let lines = lines(&out);
    has_figures(lines[0]);
    // Last, because package managers run for it.
    let names = lines[2];
    assert!(names.contains(" % of the samples have no function name (bare "), "{names}");
    assert!(names.contains("; for names: build it with -g"), "{names}");
    assert!(lines[1].ends_with(NEXT) && lines.len() == 3, "{}", out.stderr);
    // No advice about samples that the kernel could not name, if they are few.
    let out = Prof::plain(&dir, "flame -F 499 -o out.svg").target(&program, "0.5").run().ok();
    let lines = self::lines(&out);
    assert!(lines[1].starts_with("prof: wrote out.svg (") && lines[2].contains("for names: "));
}

/// One line has the reason, and nothing else is reported.
#[test]
fn an_empty_recording_names_the_reason() {
    let dir = temp_dir();
    let sleeper = Running::start(Command::new("sleep").arg("60"));
    let pid = sleeper.pid().to_string();
    let out = Prof::plain(&dir, "record -d 300ms -p").arg(&pid).run().ok();
    let lines = lines(&out);
    assert!(lines[0].starts_with("prof: 0 samples in 0.3 s, 0 distinct stacks"), "{}", out.stderr);
    assert!(lines[1].contains("no samples in 0.3 s: "), "{}", out.stderr);
    assert!(lines[1].ends_with("used no CPU in that time (it slept or waited)"), "{}", out.stderr);
    assert!(lines[2].starts_with("prof: wrote ") && !lines[2].contains("next"), "{}", out.stderr);
    assert_eq!(lines.len(), 3, "{}", out.stderr);
}

/// The figures are those of a process that waits for others, which were busy.
#[test]
fn an_idle_parent_with_busy_children_is_reported() {
    let dir = temp_dir();
    let mut shell = Command::new("sh");
    shell.arg("-c").arg("\"$0\" 5 & wait").arg(target("known", Build::C));
    let parent = Running::start(&mut shell);
    let pid = parent.pid();
    let children = || std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    until(|| !children().unwrap().trim().is_empty());
    let out = Prof::plain(&dir, &format!("record -d 1s -p {pid}")).run().ok();
    let idle = format!("prof: process {pid} was idle while its children used ");
    let line = lines(&out).into_iter().find(|line| line.starts_with(&idle));
    assert!(line.is_some_and(|line| line.contains("--tree records them too")), "{}", out.stderr);
}

/// The figures exclude the activity of processes after the COMMAND has ended.
#[test]
fn processes_that_outlive_the_command_are_reported() {
    let dir = temp_dir();
    let script = "sleep 3 > /dev/null 2>&1 & exec \"$0\" 0.3";
    let prof = Prof::plain(&dir, "record").target("sh", "-c").arg(script);
    let out = prof.arg(target("known", Build::C)).run().ok();
    let lines = lines(&out);
    has_figures(lines[0]);
    let ended = "prof: the recording ended with the command, but process ";
    let line = lines.iter().find(|line| line.starts_with(ended));
    assert!(line.is_some_and(|line| line.contains("still runs")), "{}", out.stderr);
    assert!(lines.last().unwrap().ends_with(NEXT), "{}", out.stderr);
}

/// The end of the COMMAND is reported in one more line.
#[test]
fn the_end_of_a_command_that_fails_is_among_the_lines() {
    let dir = temp_dir();
    let known = target("known", Build::C);
    let script = format!("'{}' 0.5; exit 7", known.display());
    for (flag, code) in [(None, 7), (Some("-q"), 7)] {
        let mut prof = Prof::plain(&dir, "record");
        prof.command.args(flag);
        let out = prof.target("sh", "-c").arg(&script).run().exits(code);
        if flag.is_some() {
            assert_eq!(out.stderr, "");
            continue;
        }
        let lines = lines(&out);
        assert!(lines.contains(&"prof: the command exited with 7"), "{}", out.stderr);
        assert!(lines.last().unwrap().ends_with(NEXT), "{}", out.stderr);
    }
}

/// Notes that the five lines leave out are in the file and with `-v`.
#[test]
fn all_notes_are_in_the_file_and_with_v() {
    let dir = temp_dir();
    let record = |flag: &str| {
        // Of the whole machine, a snapshot can take a fifth of a second beside other programs.
        let args = format!("record {flag} -T threads -d 2s --snapshots 3 -a");
        Prof::plain(&dir, &args).run().ok()
    };
    let note = "3 snapshots of threads were taken";
    let out = record("-v").says(&[note, "own CPU time ", "peak memory ", " lost, "]);
    assert!(out.stderr.lines().all(|line| line.starts_with("prof: ")), "{}", out.stderr);
    let out = record("");
    assert!(!lines(&out).iter().any(|line| line.contains("own CPU time")), "{}", out.stderr);
    let all = lines(&out).join("\n");
    assert!(all.contains(note) || all.contains(": prof report --header"), "{all}");
    for args in ["report --header", "report --coverage"] {
        let text = Prof::new(&dir, args).run().ok().text();
        assert!(text.contains(note), "prof {args}: {text}");
    }
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.comments.iter().any(|c| c.starts_with("own-cpu-seconds: ")), "{:?}", p.comments);
}

/// Losses that move a share by a percent are one line with the share and the remedy.
#[test]
fn losses_that_matter_are_a_line() {
    let dir = temp_dir();
    let busy = Running::start(Command::new(target("known", Build::C)).arg("600"));
    let options = format!("record -F 9999 -g dwarf -d 1h -p {}", busy.pid());
    // With -v, all notes are printed instead of the line.
    let recording = Prof::plain(&dir, &options).start();
    until(|| system::samples(recording.pid()));
    // While prof is stopped, it cannot read what the rings have no room for.
    recording.signal(libc::SIGSTOP);
    system::until_has_run(busy.pid(), 1.0);
    recording.signal(libc::SIGCONT);
    system::until_has_run(busy.pid(), 1.0);
    recording.signal(libc::SIGINT);
    let out = recording.finish().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let all = p.figure("lost") + p.figure("samples");
    let lines: Vec<&str> = out.stderr.lines().filter(|l| l.contains(" were lost")).collect();
    assert_eq!(lines.len(), 1, "{}", out.stderr);
    let share = format!(" of {all} samples were lost");
    assert!(lines[0].contains(&share) && lines[0].contains("lower -F"), "{}", lines[0]);
}

/// Kernel frames that are missing change the figures; the clock that takes the samples does not.
#[test]
fn what_is_recorded_instead_is_printed_if_it_changes_the_figures() {
    if !can_drop_rights() {
        return;
    }
    let dir = open_dir();
    let out = unprivileged_plain(dir.path(), "record -- ./known 0.2").run();
    if out.status.success() {
        let kernel = out.stderr.matches("kernel frames are left out: ").count();
        let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
        let hidden = paranoid.trim().parse::<i32>().unwrap() > 1;
        assert_eq!(kernel, usize::from(hidden), "{}", out.stderr);
        assert!(!out.stderr.contains("hardware counters"), "{}", out.stderr);
    }
    let out = Prof::plain(&dir, "record -e no-such-event,cpu-clock").target("true", "").run();
    assert!(out.stderr.contains("no-such-event"), "{}", out.stderr);
    let out = Prof::plain(&dir, "record -o true.pb.gz").target("true", "").run().ok();
    assert!(!out.stderr.contains("hardware counters"), "{}", out.stderr);
}

#[test]
fn a_snapshot_has_the_same_options() {
    let dir = temp_dir();
    let sleeper = Running::start(Command::new("sleep").arg("60"));
    let pid = sleeper.pid();
    let run = |flags: &str| Prof::plain(&dir, &format!("threads {flags} -p {pid}")).run().ok();
    assert_eq!(run("-q").stderr, "");
    let out = run("");
    assert!(out.stderr.lines().count() <= 2, "{}", out.stderr);
    run("-v").says(&["own CPU time "]);
    let out = run("-o t.pb.gz");
    let lines = lines(&out);
    assert_eq!(lines[0], "prof: 1 thread, 1 distinct stack");
    let next = "next: prof report t.pb.gz, or prof flame t.pb.gz > out.svg";
    assert!(lines.last().unwrap().ends_with(next), "{}", out.stderr);
    assert_eq!(run("-q -o t.pb.gz").stderr, "");
}

#[test]
fn symbolize_prints_as_the_others_do() {
    let dir = temp_dir();
    let prof = Prof::new(&dir, "record -q -F 499 --no-symbolize");
    prof.target(target("known", Build::C), "0.2").run().ok();
    std::fs::copy(dir.path().join("profile.pb.gz"), dir.path().join("copy")).unwrap();
    assert_eq!(Prof::new(&dir, "symbolize -q copy").run().ok().stderr, "");
    let out = Prof::new(&dir, "symbolize").run().ok();
    assert!(out.stderr.contains("addresses have names now"), "{}", out.stderr);
    assert!(out.stderr.lines().all(|line| line.starts_with("prof: ")), "{}", out.stderr);
}
