//! Recordings that prof is not allowed, or not able, to make as requested.

use std::process::Command;

use crate::common;
use crate::common::machine::Sysctl;
use crate::common::system::{self, Cgroup};
use crate::common::unprivileged::{can_drop_rights, open_dir, unprivileged};
use crate::common::{Build, Prof, Running, needs, read, skip, target, temp_dir};

fn known() -> Running {
    Running::start(Command::new(target("known", Build::C)).arg("0"))
}

#[test]
fn a_directory_as_command_exits_with_126() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "record").target("/tmp", "").run();
    out.refused(126, &["'/tmp' is a directory"]);
}

#[test]
fn a_cpu_number_beyond_all_machines_is_refused() {
    let dir = temp_dir();
    Prof::new(&dir, "record -C 0-99999999").run().refused(2, &["no CPU 99999999"]);
    Prof::new(&dir, "record -C some").run().refused(2, &["not a list of CPUs"]);
}

#[test]
fn a_process_that_has_ended_is_refused_and_leaves_no_file() {
    let dir = temp_dir();
    let ended = Running::start(&mut Command::new("true"));
    let pid = ended.pid().to_string();
    ended.finish().ok();
    let out = Prof::new(&dir, "record -p").arg(&pid).run();
    out.refused(1, &[&pid]);
    assert!(!dir.path().join("profile.pb.gz").exists(), "a file was written");
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "something was left behind");
}

#[test]
fn invalid_process_ids_are_refused() {
    let dir = temp_dir();
    let refused = |pid: &str, code, words: &[&str]| {
        Prof::new(&dir, "record").arg(format!("-p={pid}")).run().refused(code, words);
    };
    // Numbers that no process can have, the last of them above the limit of `pid_max`.
    for pid in ["0", "-1", "4194305"] {
        refused(pid, 1, &[&format!("no process {pid}")]);
    }
    for (pid, wrong) in [("99999999999", "'99999999999'"), ("1,,2", "''")] {
        refused(pid, 2, &["invalid value", wrong, "--pid"]);
    }
    refused("no-such-name", 1, &["no process is called 'no-such-name'"]);
    refused("", 2, &["-p lacks its PID or name"]);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "something was left behind");
}

#[test]
fn a_missing_target_is_refused_with_the_choices() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "record").run();
    out.refused(2, &["-p", "-a", "COMMAND"]);
}

#[test]
fn a_process_of_another_user_is_refused_and_leaves_no_file() {
    if !can_drop_rights() {
        return;
    }
    let (dir, known) = (open_dir(), known());
    let pid = known.pid().to_string();
    let out = unprivileged(dir.path(), "record -d 1s -p").arg(&pid).run();
    out.refused(1, &[&pid]);
    assert!(!dir.path().join("profile.pb.gz").exists(), "a file was written");
}

#[test]
fn a_thread_of_another_process_is_refused() {
    let dir = temp_dir();
    let (a, b) = (known(), known());
    let (pid, tid) = (a.pid().to_string(), b.pid().to_string());
    let out = Prof::new(&dir, "record -d 1s -p").arg(&pid).arg("-t").arg(&tid).run();
    out.refused(2, &[&tid, &pid]);
}

#[test]
fn a_thread_that_has_ended_is_refused() {
    let dir = temp_dir();
    let ended = Running::start(&mut Command::new("true"));
    let tid = ended.pid().to_string();
    ended.finish().ok();
    Prof::new(&dir, "record -t").arg(&tid).run().refused(1, &[&tid]);
}

#[test]
fn an_empty_cgroup_is_refused() {
    if !system::needs_root() {
        return;
    }
    let Some(group) = Cgroup::new("empty") else { return skip("no cgroup v2 can be made") };
    let dir = temp_dir();
    let out = Prof::new(&dir, "record -d 1s -G").arg(&group.path).run();
    out.refused(1, &[group.path.to_str().unwrap(), "no process"]);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "something was left behind");
}

#[test]
fn a_missing_cgroup_is_refused() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "record -d 1s -G no/such/group").run();
    out.refused(2, &["no/such/group"]);
}

#[test]
fn invalid_cpu_lists_are_refused() {
    let dir = temp_dir();
    let refused = |cpus: &str, why: &str| {
        let out = Prof::new(&dir, "record -d 1s").arg(format!("-C={cpus}")).run();
        out.refused(2, &[&format!("-C {cpus}"), why]);
    };
    refused("100000", "there is no CPU 100000");
    for cpus in ["x", "3-1", "1-", ""] {
        refused(cpus, "not a list of CPUs");
    }
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "something was left behind");
}

#[test]
fn an_unprivileged_user_records_their_own_processes() {
    if !can_drop_rights() {
        return;
    }
    let Some(_paranoid) = Sysctl::set("kernel.perf_event_paranoid", "2") else { return };
    let dir = open_dir();
    let out = unprivileged(dir.path(), "record -F 999").target("./known", "1").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.total_share("bar") > 40.0, "{}", out.stderr);
    // The missing part is reported, with the command that enables it.
    assert!(out.stderr.contains("kernel"), "{}", out.stderr);
    assert!(out.stderr.contains("perf_event_paranoid"), "{}", out.stderr);
}

#[test]
fn the_whole_machine_is_refused_without_rights() {
    if !can_drop_rights() {
        return;
    }
    let Some(_paranoid) = Sysctl::set("kernel.perf_event_paranoid", "2") else { return };
    let dir = open_dir();
    let out = unprivileged(dir.path(), "record -a -d 1s").run();
    out.refused(1, &["perf_event_paranoid"]);
    assert!(!dir.path().join("profile.pb.gz").exists(), "a file was written");
}

#[test]
fn paranoid_level_1_allows_kernel_frames() {
    if !can_drop_rights() {
        return;
    }
    let Some(_paranoid) = Sysctl::set("kernel.perf_event_paranoid", "1") else { return };
    let dir = open_dir();
    let prof = unprivileged(dir.path(), "record -F 999 -e cpu-clock");
    let out = prof.target("dd", "if=/dev/zero of=/dev/null bs=1M count=20000").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let kernel = p.share(|s| {
        s.locations
            .iter()
            .any(|l| p.mapping_of.get(l).is_some_and(|&m| p.mappings[m].file.contains("kernel")))
    });
    assert!(kernel > 50.0, "{kernel} % with kernel frames: {}", out.stderr);
}

#[test]
fn kernel_code_alone_is_refused_with_the_setting_to_change() {
    if !can_drop_rights() {
        return;
    }
    let Some(_paranoid) = Sysctl::set("kernel.perf_event_paranoid", "2") else { return };
    let dir = open_dir();
    let setting = "sudo sysctl kernel.perf_event_paranoid=1";
    let record =
        |events| unprivileged(dir.path(), "record -e").arg(events).target("true", "").run();
    record("cpu-clock:k").refused(1, &["kernel code", setting]);
    record("page-faults,cpu-clock:k").ok().says(&["'cpu-clock:k' is left out: ", setting]);
}

/// Only root may read tracefs, so the right to profile is not enough.
#[test]
fn tracepoints_need_a_right_of_their_own() {
    if !can_drop_rights() || !system::needs_tracefs() || !needs(&["setcap"]) {
        return;
    }
    let dir = open_dir();
    let prof = dir.path().join("prof");
    let record = || {
        let prof = unprivileged(dir.path(), "record -e sched:sched_switch");
        prof.target("sleep", "0.01").run()
    };
    let unlock = || {
        let out = unprivileged(dir.path(), "doctor --json").run();
        let checks: Vec<serde_json::Value> = serde_json::from_str(&out.text()).unwrap();
        let check = checks.into_iter().find(|c| c["name"] == "tracepoints").unwrap();
        check["unlock"].as_str().map(str::to_owned)
    };
    if record().status.success() {
        return skip("every user may read tracefs");
    }
    let give = |rights: &str| common::run::tool("setcap", &[rights.as_ref(), prof.as_ref()]);
    for rights in ["cap_syslog=ep", "cap_perfmon,cap_sys_ptrace=ep"] {
        give(rights);
        let command = unlock().expect("doctor has a command");
        record().refused(1, &["sched:sched_switch", &format!("try: {command}")]);
    }
    let command = unlock().unwrap();
    let rights = command.split("sudo setcap ").nth(1).unwrap().split('=').next().unwrap();
    give(&format!("{rights}=ep"));
    record().ok();
    assert_eq!(unlock(), None);
}

/// Samples of all users without access to their processes: reported once, with the command that
/// helps.
#[test]
fn unreadable_mappings_of_the_whole_machine_are_reported_once() {
    if !can_drop_rights() {
        return;
    }
    let Some(_paranoid) = Sysctl::set("kernel.perf_event_paranoid", "0") else { return };
    let (dir, _known) = (open_dir(), known());
    for stacks in ["auto", "fp", "none"] {
        let prof = unprivileged(dir.path(), "record -a -d 300ms -F 999 -e cpu-clock -g");
        let out = prof.arg(stacks).run().ok();
        let line = "/proc/PID/maps cannot be read; try: sudo ";
        assert_eq!(out.stderr.matches(line).count(), 1, "-g {stacks}: {}", out.stderr);
        assert!(!out.stderr.contains("bad return address"), "-g {stacks}: {}", out.stderr);
        let truncated = out.stderr.contains("mappings not readable");
        assert_eq!(truncated, stacks != "none", "-g {stacks}: {}", out.stderr);
    }
}

/// Without enough locked memory: smaller ring buffers, a message, and a valid recording.
#[test]
fn a_low_memlock_limit_means_smaller_rings() {
    if !can_drop_rights() || !needs(&["prlimit"]) {
        return;
    }
    let Some(_paranoid) = Sysctl::set("kernel.perf_event_paranoid", "1") else { return };
    let dir = open_dir();
    let inner = unprivileged(dir.path(), "record -F 999 -o locked.pb.gz").target("./known", "1");
    let mut command = Command::new("prlimit");
    command.args(["--memlock=0:0"]).current_dir(&dir).arg(inner.command.get_program());
    command.args(inner.command.get_args());
    let out = Prof { command }.run().ok();
    assert!(read(dir.path().join("locked.pb.gz")).total_share("bar") > 40.0);
    let words = out.stderr.to_lowercase();
    assert!(words.contains("mlock") || words.contains("memlock"), "{}", out.stderr);
}

/// Enough for the ring buffers with which a recording of whole CPUs begins, not for those of busy
/// CPUs.
#[test]
fn a_memlock_limit_met_later_keeps_the_smaller_rings() {
    if !can_drop_rights() || !needs(&["prlimit"]) {
        return;
    }
    let paranoid = Sysctl::set("kernel.perf_event_paranoid", "0");
    let Some(_limits) = paranoid.and_then(|p| p.and("kernel.perf_event_mlock_kb", "2600")) else {
        return;
    };
    let dir = open_dir();
    let inner = unprivileged(dir.path(), "record -F 999 -e cpu-clock -g dwarf,65528");
    let inner = inner.target("./known", "2");
    let mut command = Command::new("prlimit");
    command.args(["--memlock=0:0"]).current_dir(&dir).arg(inner.command.get_program());
    command.args(inner.command.get_args());
    let out = Prof { command }.run().ok();
    out.says(&["ring buffers are 2048 KiB a CPU instead of 16384 KiB", "perf_event_mlock_kb"]);
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.total_share("bar") > 40.0);
    let seconds = p.total(p.column("cpu")) as f64 * 1e-9;
    assert!((1.85..2.25).contains(&seconds), "{seconds} s");
}

/// Not enough even for the smallest ring buffers.
#[test]
fn without_locked_memory_a_recording_is_refused_with_the_remedy() {
    if !can_drop_rights() || !needs(&["prlimit"]) {
        return;
    }
    let Some(_limit) = Sysctl::set("kernel.perf_event_mlock_kb", "8") else { return };
    let dir = open_dir();
    let limited = |prof: Prof| {
        let mut command = Command::new("prlimit");
        command.args(["--memlock=0:0"]).current_dir(&dir).arg(prof.command.get_program());
        command.args(prof.command.get_args());
        Prof { command }.run()
    };
    let out = limited(unprivileged(dir.path(), "record -e cpu-clock").target("true", ""));
    out.refused(1, &["kernel.perf_event_mlock_kb", "ulimit -l", "try: sudo sysctl"]);
    let out = limited(unprivileged(dir.path(), "doctor"));
    assert_eq!(out.code(), 1, "{}", out.text());
    let row = out.text();
    let row = row.lines().find(|l| l.starts_with("own processes")).unwrap();
    assert!(row.contains(" no ") && row.contains("kernel.perf_event_mlock_kb"), "{row}");
}

/// Runs an unprivileged prof on 300 threads, with limits of open files in the format of prlimit.
fn with_open_files(limits: &str) -> (tempfile::TempDir, common::Output) {
    let dir = open_dir();
    common::copy_program(target("threads", Build::C), dir.path().join("threads"));
    let mut threads = Command::new("setpriv");
    threads.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    threads.args(["./threads", "300", "0", "0", "100"]).current_dir(&dir);
    let (threads, _) = Running::start(&mut threads).wait_for("ready");
    let prof = unprivileged(dir.path(), "record -e cpu-clock -F 999 -d 1s -p");
    let prof = prof.arg(threads.pid().to_string());
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={limits}")).current_dir(&dir);
    command.arg(prof.command.get_program()).args(prof.command.get_args());
    (dir, Prof { command }.run())
}

/// The soft limit is raised, and this is reported.
#[test]
fn a_soft_limit_of_open_files_is_raised() {
    if !can_drop_rights() || !needs(&["prlimit"]) {
        return;
    }
    let (dir, out) = with_open_files("64:8192");
    out.ok().says(&["open files", "64"]);
    assert!(read(dir.path().join("profile.pb.gz")).total_share("thread_work") > 20.0);
}

/// If the hard limit is too low, an unprivileged recording is refused in one line with the remedy.
#[test]
fn a_hard_limit_of_open_files_is_refused_with_the_remedy() {
    if !can_drop_rights() || !needs(&["prlimit"]) {
        return;
    }
    let (dir, out) = with_open_files("64:64");
    out.refused(1, &["file", "ulimit -n"]);
    assert!(!dir.path().join("profile.pb.gz").exists(), "a file was written");
}
