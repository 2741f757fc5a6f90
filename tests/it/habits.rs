//! What users of perf, `pgrep` and a shell write by habit.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::system;
use crate::common::unprivileged::{can_drop_rights, open_dir, unprivileged};
use crate::common::{Prof, Running, copy_program, needs, read, temp_dir, until};

/// A program of this name, which no other program on the machine has, that sleeps.
fn sleeper(dir: &Path, name: &str) -> (Running, PathBuf) {
    let path = dir.join(name);
    if !path.exists() {
        copy_program("/bin/sleep", &path);
    }
    let running = Running::start(Command::new(&path).arg("60"));
    let pid = running.pid();
    until(|| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == path));
    (running, path)
}

fn unique(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

#[test]
fn a_name_is_that_of_all_processes_which_have_it() {
    let dir = temp_dir();
    let here = dir.path().canonicalize().unwrap();
    // Longer than the kernel's names.
    let name = unique("a name of more than 15 bytes");
    let (first, _) = sleeper(&here, &name);
    let (second, _) = sleeper(&here, &name);
    let out = Prof::new(&dir, "record -d 100ms -p").arg(&name).run().ok();
    let line = format!("prof: -p {name}: 2 processes: ");
    let line = out.stderr.lines().find(|l| l.starts_with(&line)).unwrap_or(&out.stderr);
    for running in [&first, &second] {
        assert!(line.contains(&running.pid().to_string()), "{line}");
    }
    let part = name[..name.len() - 1].to_owned();
    let out = Prof::plain(&dir, "record -d 100ms -p").arg(&part).run();
    out.refused(1, &[&format!("no process is called '{part}'; did you mean {name}?")]);
    let ended = second.pid();
    drop(second);
    until(|| system::state(ended) == 'X');
    let out = Prof::plain(&dir, "threads -p").arg(&name).run().ok();
    out.says(&[&format!("prof: -p {name}: process {} (", first.pid())]);
    Prof::plain(&dir, "record -q -d 100ms -p").arg(&name).run().ok();
}

#[test]
fn a_script_has_its_own_name_and_an_ended_process_has_none() {
    if !needs(&["python3"]) {
        return;
    }
    let dir = temp_dir();
    let name = format!("{}.py", unique("app"));
    let script = dir.path().join(&name);
    std::fs::write(&script, "import sys, time\nprint('ready', flush=True)\ntime.sleep(60)")
        .unwrap();
    let mut python = Command::new("python3");
    let (running, _) = Running::start(python.arg("-u").arg(&script)).wait_for("ready");
    let out = Prof::plain(&dir, "record -d 100ms -p").arg(&name).run().ok();
    out.says(&[&format!("-p {name}: process {} (python3", running.pid())]);
    // It is a zombie until the test waits for it.
    running.signal(libc::SIGKILL);
    until(|| system::state(running.pid()) == 'Z');
    let out = Prof::plain(&dir, "record -d 100ms -p").arg(&name).run();
    out.refused(1, &[&format!("no process is called '{name}'")]);
}

/// The name is in the arguments of the shell that starts prof, and prof's own.
#[test]
fn prof_and_the_script_that_starts_it_are_not_found() {
    let dir = temp_dir();
    let name = unique("starts-prof");
    let script = dir.path().join(&name);
    std::fs::write(&script, format!("\"$0.prof\" record -d 100ms -p {name}; true")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_prof"), dir.path().join(format!("{name}.prof")))
        .unwrap();
    let mut shell = Command::new("sh");
    shell.arg(&script).current_dir(&dir);
    let out = crate::common::run::run(shell);
    assert!(out.stderr.contains("no process is called"), "{}", out.stderr);
}

#[test]
fn names_of_processes_reach_the_terminal_clean() {
    let dir = temp_dir();
    let here = dir.path().canonicalize().unwrap();
    let evil = format!("{}\nprof: \u{1b}[31m", std::process::id());
    let (running, _) = sleeper(&here, &evil);
    let out = Prof::plain(&dir, "record -d 100ms -p").arg(&evil).run().ok();
    assert!(out.stderr.contains(&running.pid().to_string()), "{}", out.stderr);
    let near = evil.replace('m', "n");
    let refused = Prof::plain(&dir, "record -d 100ms -p").arg(near).run().exits(1);
    for text in [&out.stderr, &refused.stderr] {
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("prof: \\") || line == "prof: "));
    }
}

/// What a shell makes of `-p $(pgrep x)` and `-p "$(pgrep x)"`.
#[test]
fn ids_may_be_words_or_lines() {
    let dir = temp_dir();
    let here = dir.path().canonicalize().unwrap();
    let name = unique("ids");
    let (a, _) = sleeper(&here, &name);
    let (b, _) = sleeper(&here, &name);
    let (a, b) = (a.pid(), b.pid());
    let listed = |prof: Prof| {
        let out = prof.run().ok();
        let text = out.text();
        assert!([a, b].iter().all(|pid| text.contains(&pid.to_string())), "{text}");
    };
    listed(Prof::plain(&dir, &format!("threads -p {a} {b} --each")));
    listed(Prof::plain(&dir, "threads --each -p").arg(format!("{a}\n{b}\n")));
    listed(Prof::plain(&dir, &format!("threads -t {a} {b}")));
    listed(Prof::plain(&dir, "threads -t").arg(format!("{a} {b}")));
    Prof::new(&dir, &format!("record -p {a} {b} -d 100ms")).run().ok();
    Prof::new(&dir, &format!("record -p {a} {b} sleep 0.1")).run().ok().says(&["as -d 0.1 does"]);
    Prof::new(&dir, &format!("top -p {a} {b} --iterations 1")).run().ok();
    let refused = |args: &str, words: &[&str]| {
        let out = Prof::plain(&dir, args).run();
        out.refused(2, words);
        assert_eq!(out.stderr.lines().count(), 1, "{}", out.stderr);
    };
    for args in ["record -p -d 5s", "record -p", "top -p", "flame -p -- sleep 1"] {
        refused(args, &["-p lacks its PID or name", "pgrep"]);
    }
    refused("threads -t -q", &["-t lacks its TID"]);
    let out = Prof::plain(&dir, "record -p").arg("").run();
    out.refused(2, &["-p lacks its PID or name"]);
}

#[test]
fn those_that_live_are_recorded_without_those_that_have_ended() {
    let dir = temp_dir();
    let here = dir.path().canonicalize().unwrap();
    let (running, _) = sleeper(&here, &unique("lives"));
    let pid = running.pid();
    let line = "has ended or never was: recording the other one";
    let out = Prof::plain(&dir, &format!("record -d 100ms -p 4194305,{pid}")).run().ok();
    out.says(&["prof: process 4194305 ", line]);
    let out = Prof::plain(&dir, &format!("threads -t 4194305,{pid}")).run().ok();
    out.says(&["prof: thread 4194305 ", line]);
    let out = Prof::plain(&dir, &format!("record -d 100ms -p no-such-name,{pid}")).run().ok();
    out.says(&["prof: no process is called 'no-such-name'"]);
    let out = Prof::plain(&dir, "record -d 100ms -p 4194305,4194306").run();
    out.refused(1, &["no process 4194305"]);
}

#[test]
fn a_command_needs_no_dashes() {
    let dir = temp_dir();
    let out = |args: &str| Prof::plain(&dir, args).run();
    assert_eq!(out("record -q echo -x -p").ok().text(), "-x -p\n");
    assert_eq!(out("record -q -F 99 -g echo -d").ok().text(), "-d\n");
    assert_eq!(out("record -qg fp -o a.gz echo fp").ok().text(), "fp\n");
    assert_eq!(out("record -q echo -- x").ok().text(), "-- x\n");
    assert!(dir.path().join("a.gz").exists());
    out("record -q sh -c true").ok();
    out("record -q no-such-program -x").refused(127, &["'no-such-program' does not exist"]);
    out("record -g lbr -- true").refused(2, &["'lbr'", "branch records"]);
    out("record -g dwraf -- true").refused(2, &["'dwraf'", "auto, fp, dwarf"]);
    out("record -d -- true").refused(2, &["-d lacks its value: write -d TIME before '--'"]);
    out("record -q -g -- true").ok();
    if system::needs_root() {
        out("record -F 99 -ag sleep 0.3").ok();
        let nanos = read(dir.path().join("profile.pb.gz")).duration_nanos;
        assert!((300_000_000..60_000_000_000).contains(&nanos), "{nanos}");
        out("record -a ls").refused(2, &["-a cannot be combined with a COMMAND"]);
    }
}

#[test]
fn a_pattern_records_all_tracepoints_that_match() {
    if !system::needs_root() || !system::needs_tracefs() {
        return;
    }
    let dir = temp_dir();
    let all = std::fs::read_to_string(system::tracefs().unwrap().join("available_events")).unwrap();
    let count = |system: &str| all.lines().filter(|name| name.starts_with(system)).count();
    let there = count("sched:sched_process_e");
    let out = Prof::new(&dir, "record -e sched:sched_process_e*,faults --").arg("true").run().ok();
    out.says(&[&format!("prof: -e 'sched:sched_process_e*': {there} tracepoints\n")]);
    let profile = read(dir.path().join("profile.pb.gz"));
    let types: Vec<&str> = profile.sample_types.iter().map(|t| t.0.as_str()).collect();
    for name in ["sched:sched_process_exec", "sched:sched_process_exit", "faults"] {
        assert!(types.contains(&name), "{types:?}");
    }
    let refused = |args: &str, words: &[&str]| Prof::new(&dir, args).run().refused(2, words);
    refused(
        "record -e sched:nosuch* true",
        &["no tracepoint matches 'sched:nosuch*'", "prof list"],
    );
    let many = format!("{} tracepoints match 'syscalls:*'", count("syscalls:"));
    refused("record -e syscalls:* true", &[&many, "100"]);
    refused("record -e {cs,sched:*} true", &["cannot be in a group"]);
    // A filter applies to all of the last pattern.
    let out = Prof::new(&dir, "record -e sched:sched_process_e* --filter").arg("no_such == 1");
    out.target("true", "").run().refused(2, &["no_such"]);
}

#[test]
fn tracepoints_that_cannot_be_read_are_not_reported_as_unknown() {
    if !can_drop_rights() || !system::needs_tracefs() {
        return;
    }
    let dir = open_dir();
    let out = unprivileged(dir.path(), "list sched:*").run();
    out.refused(1, &["'sched:*'", "tracepoints cannot be listed", "root"]);
    let out = unprivileged(dir.path(), "record -e sched:* true").run();
    out.refused(1, &["sched:*"]);
    assert!(!out.stderr.contains("no tracepoint matches"), "{}", out.stderr);
    let text = unprivileged(dir.path(), "list tracepoint").run().ok().text();
    assert!(text.starts_with("Tracepoints (not available: "), "{text}");
}

#[test]
fn kinds_of_events_have_the_names_of_perf() {
    let dir = temp_dir();
    let list = |word: &str| Prof::new(&dir, &format!("list {word}")).run().ok().text();
    for (short, long) in [("hw", "hardware"), ("sw", "software"), ("hwcache", "cache")] {
        assert_eq!(list(short), list(long));
    }
    assert!(list("hw").starts_with("Hardware events"), "{}", list("hw"));
    if !Path::new("/sys/bus/event_source/devices/cpu").exists() {
        let out = Prof::new(&dir, "record -e cpu/event=0x3c/ true").run();
        out.refused(1, &["no hardware counters", "cpu-clock"]);
    }
}

#[test]
fn a_user_is_all_of_the_user_s_processes() {
    let dir = temp_dir();
    let refused = |args: &str, code, words: &[&str]| {
        Prof::new(&dir, args).run().refused(code, words);
    };
    refused("record -u no-such-user", 2, &["no user 'no-such-user'"]);
    refused("record --uid 4294967294", 1, &["user '4294967294' has no process"]);
    refused("record -u root ls", 2, &["-u cannot be combined with a COMMAND"]);
    if !system::needs_root() || !needs(&["setpriv"]) {
        return;
    }
    // No other user has this number.
    let user = (3_000_000 + std::process::id()).to_string();
    let start = || {
        let mut command = Command::new("setpriv");
        let ids = [format!("--reuid={user}"), format!("--regid={user}")];
        command.args(ids).args(["--clear-groups", "sh", "-c", "echo ready; while :; do :; done"]);
        Running::start(&mut command).wait_for("ready").0
    };
    let (a, b) = (start(), start());
    let out = Prof::new(&dir, "record -F 999 -d 500ms -u").arg(&user).run().ok();
    out.says(&[&format!("prof: -u {user}: 2 processes: {} (", a.pid().min(b.pid()))]);
    let pids = [a.pid(), b.pid()].map(|pid| pid.to_string());
    let profile = read(dir.path().join("profile.pb.gz"));
    assert_eq!(profile.label_values("pid"), pids.iter().map(String::as_str).collect());
}

#[test]
fn words_of_other_tools_have_one_line_with_prof_s() {
    let dir = temp_dir();
    let line = |args: &str| {
        let out = Prof::plain(&dir, args).run().exits(2);
        assert_eq!(out.stderr.lines().count(), 1, "prof {args}: {}", out.stderr);
        out.stderr
    };
    assert_eq!(
        line("lock contention"),
        "prof: perf lock: prof record -T lock -a, then prof report\n"
    );
    assert!(line("stat -e cycles ls").contains("perf stat"));
    assert!(line("help stat").contains("perf stat"));
    assert_eq!(line("dump --pid 1"), "prof: py-spy dump: prof threads -p PID\n");
    assert_eq!(line("load a.json"), "prof: samply load: prof report FILE\n");
    for option in
        ["--switch-output", "-b", "-j any", "-W", "-r 99", "-f", "--freqency 99", "--usr root"]
    {
        let name = option.split([' ', '=']).next().unwrap();
        let name = name.replace("--freqency", "--frequency").replace("--usr", "--user");
        assert!(line(&format!("record {option} ls")).starts_with(&format!("prof: {name}: ")));
    }
    assert!(line("top -m 512").starts_with("prof: -m: not needed: "));
    assert!(line("top --no-children").contains("prof report"));
    for command in ["flame", "top", "report"] {
        assert!(line(&format!("{command} --last 1s")).contains("prof record --last TIME"));
    }
    assert!(line("export --to svg").contains("prof flame -o out.svg"));
    let version = Prof::plain(&dir, "version").run().ok().text();
    assert_eq!(version, Prof::plain(&dir, "--version").run().ok().text());
}

/// What perf needs an option for, prof does in any case.
#[test]
fn options_of_perf_record_without_effect_are_accepted() {
    let dir = temp_dir();
    let out =
        Prof::plain(&dir, "record -z -m 512 -BNRs --no-buffering --strict-freq -- true").run();
    let lines = out.ok().stderr;
    for name in ["mmap-pages", "compression-level", "no-buildid", "stat", "strict-freq"] {
        assert!(lines.contains(&format!("prof: --{name}: not needed: ")), "{lines}");
    }
    let out = Prof::plain(&dir, "record -q --mmap-pages=1M -m 8M -BB --force -- true").run().ok();
    assert_eq!(out.stderr, "");
    let refused = Prof::plain(&dir, "record -m -- true").run().exits(2).stderr;
    assert!(refused.contains("-m lacks its value"), "{refused}");
}

/// The subcommands that the perf of this machine lists.
#[test]
fn each_subcommand_of_perf_is_one_of_prof_or_has_one_line() {
    if !needs(&["perf"]) {
        return;
    }
    let dir = temp_dir();
    let mut count = 0;
    for args in [&["--help"][..], &["help", "-a"]] {
        let out = std::process::Command::new("perf").args(args).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let names = text.lines().filter(|line| line.starts_with("  "));
        for word in names.filter_map(|line| line.split_whitespace().next()) {
            count += 1;
            // An option that no subcommand has: each of prof's refuses it by its own name.
            let out = Prof::plain(&dir, &format!("{word} --no-such-option")).run();
            let text = out.stderr;
            let is_known = text.contains(&format!("Usage: prof {word}")) || word == "version";
            let is_answered = text.starts_with(&format!("prof: perf {word}: "));
            assert!(is_known || is_answered, "prof {word}: {text}");
        }
    }
    assert!(count > 20, "{count} subcommands");
}

#[test]
fn a_misspelled_option_has_the_nearest_of_its_subcommand() {
    let dir = temp_dir();
    let tip = |args: &str| Prof::plain(&dir, args).run().exits(2).stderr;
    for (args, near) in [
        ("record --pdi 1", "'--pid'"),
        ("record --call-grpah fp ls", "'--call-graph'"),
        ("top --iteratoins 1", "'--iterations'"),
        ("report --focsu x", "'--focus'"),
    ] {
        let text = tip(args);
        assert!(text.contains(near) && !text.contains("as a value"), "prof {args}: {text}");
    }
    let text = tip("report --frobnicate");
    assert!(!text.contains("tip:"), "{text}");
}
