//! The heap library in processes that run already (`--inject`): their allocations, and their
//! undisturbed execution.

use std::io::{PipeWriter, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common;
use crate::common::injected::{endless, maps, wait_for_library};
use crate::common::targets::built;
use crate::common::unprivileged::{can_drop_rights, open_dir, unprivileged};
use crate::common::{Build, Prof, Running, needs, read, target, temp_dir, until};

/// A program that reads words and answers them, see `inject.cpp`.
struct Checked {
    running: Running,
    words: PipeWriter,
}

impl Checked {
    fn start(churning: usize) -> Checked {
        let (theirs, words) = std::io::pipe().unwrap();
        let flags = ["-shared", "-fPIC", "-O2"];
        let plugin = built("inject_plugin.so", "inject_plugin.cpp", "g++", &flags);
        let mut command = Command::new(target("inject", Build::Cpp));
        command.arg(churning.to_string()).env("PLUGIN", plugin).stdin(Stdio::from(theirs));
        let (running, _) = Running::start(&mut command).wait_for("ready");
        Checked { running, words }
    }

    fn pid(&self) -> i32 {
        self.running.pid()
    }

    fn performs(mut self, word: &str) -> Checked {
        writeln!(self.words, "{word}").unwrap();
        self.running = self.running.wait_for("done").0;
        self
    }

    /// Fails unless it has worked on without a mistake.
    #[track_caller]
    fn ends_well(mut self) {
        writeln!(self.words, "end").unwrap();
        let out = self.running.finish();
        assert_eq!(out.stderr, "");
        assert!(out.ok().text().ends_with("\n0 wrong\n"));
    }
}

#[test]
fn every_allocation_after_the_injection_is_counted() {
    let dir = temp_dir();
    let target = Checked::start(0);
    let prof = endless(&dir, target.pid(), "--heap-interval 1");
    let prof = wait_for_library(prof, target.pid());
    let target = target.performs("go");
    prof.signal(libc::SIGINT);
    let out =
        prof.finish().ok().says(&["since the injection of prof's library", "was stopped for"]);
    assert!(!out.stderr.contains("missing"), "{}", out.stderr);
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.heap_below("keeps"), [500, 500_000, 500, 500_000]);
    assert_eq!(p.heap_below("gives_back"), [300, 600_000, 0, 0]);
    // The caller is the innermost frame, and the stack goes up to the beginning.
    let sample = p.samples.iter().find(|s| p.frames(s).contains(&"keeps")).unwrap();
    let frames = p.frames(sample);
    assert_eq!((frames[0], *frames.last().unwrap()), ("keeps", "_start"));
    target.performs("go").ends_well();
}

/// Allocations of a library that is loaded later are recorded, too.
#[test]
fn libraries_loaded_after_the_injection_are_counted() {
    let dir = temp_dir();
    let target = Checked::start(0);
    let prof = endless(&dir, target.pid(), "--heap-interval 1");
    let prof = wait_for_library(prof, target.pid());
    let target = target.performs("load");
    prof.signal(libc::SIGINT);
    prof.finish().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.heap_below("plugin_allocates"), [200, 600_000, 200, 600_000]);
    target.ends_well();
}

/// All its allocations come from one function, under load, and it works on without a mistake.
#[test]
fn a_loaded_process_survives_20_injections() {
    let dir = temp_dir();
    let target = Checked::start(3);
    for round in 0..20 {
        let args =
            format!("record -T heap --inject -d 200ms -p {} --heap-interval 4M", target.pid());
        Prof::new(&dir, &args).run().ok().says(&["stays there without effect"]);
        let p = read(dir.path().join("profile.pb.gz"));
        let (churned, all) = (p.sum_below("fills", "alloc_space"), p.column("alloc_space"));
        let all: i64 = p.samples.iter().map(|s| s.values[all]).sum();
        assert!(churned > 0 && churned * 100 >= all * 99, "round {round}: {churned} of {all}");
    }
    // The library is mapped once, and so is the memory that was shared.
    for file in ["memfd:prof-heap-ring", "r-xp"] {
        let maps = maps(target.pid());
        let times =
            maps.lines().filter(|l| l.contains("memfd:prof-heap") && l.contains(file)).count();
        assert_eq!(times, 1, "{file}: {maps}");
    }
    let files = std::fs::read_dir(format!("/proc/{}/fd", target.pid())).unwrap();
    let names = files.filter_map(|f| std::fs::read_link(f.ok()?.path()).ok());
    assert!(!names.map(|n| n.display().to_string()).any(|n| n.contains("prof-heap")));
    target.performs("go").ends_well();
}

/// The state of each thread, for the message of a failure.
fn states(pid: i32) -> String {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let state = |thread: std::io::Result<std::fs::DirEntry>| {
        let read = |name| std::fs::read_to_string(thread.as_ref().unwrap().path().join(name));
        ["stat", "syscall", "wchan", "schedstat"].map(|name| read(name).unwrap_or_default())
    };
    threads.map(|thread| state(thread).join(" ") + "\n").collect()
}

/// prof may be killed at any moment: the target is not affected, and can be recorded again.
#[test]
fn a_process_survives_when_prof_is_killed() {
    let dir = temp_dir();
    let target = Checked::start(2);
    for round in 0..40u64 {
        let prof = endless(&dir, target.pid(), "");
        // The subject: each round kills prof at another step of its work.
        std::thread::sleep(Duration::from_micros(1700 * (1 + round * 7 % 53)));
        prof.signal(libc::SIGKILL);
        prof.finish();
    }
    let args = format!("record -T heap --inject -d 500ms -p {}", target.pid());
    let out = Prof::new(&dir, &args).run();
    if !out.status.success() {
        eprintln!("{}", states(target.pid()));
    }
    out.ok().says(&["stays there without effect"]);
    assert!(read(dir.path().join("profile.pb.gz")).sum_below("fills", "alloc_space") > 0);
    target.performs("go").ends_well();
}

/// A program whose threads check that no call of theirs is interrupted, see `interrupted.c`.
struct Waits {
    running: Running,
    words: PipeWriter,
}

impl Waits {
    fn start(call: &str) -> Waits {
        let (theirs, words) = std::io::pipe().unwrap();
        let mut command = Command::new(target("interrupted", Build::C));
        command.args([call, "30"]).stdin(Stdio::from(theirs));
        let (running, _) = Running::start(&mut command).wait_for("ready");
        Waits { running, words }
    }

    /// Injects the library and takes it out of use again.
    #[track_caller]
    fn is_recorded(&self, dir: &tempfile::TempDir) {
        let pid = self.running.pid();
        let args = format!("record -T heap --inject -d 20ms --no-symbolize -p {pid}");
        let out = Prof::new(dir, &args).run().ok();
        // Or no thread could be stopped in time, which is reported; the next recording tries again.
        let notes = ["stays there without effect", "the next prof record --inject tries again"];
        assert!(notes.iter().any(|s| out.stderr.contains(s)), "{}", out.stderr);
    }

    /// Fails unless each call has waited for its whole time without an error.
    #[track_caller]
    fn ends_well(self) {
        drop(self.words);
        let out = self.running.finish();
        assert_eq!(out.stderr, "");
        let text = out.ok().text();
        assert!(text.ends_with(" calls, 0 wrong\n") && !text.starts_with("0 "), "{text}");
    }
}

/// Processes that take the CPUs away from all others, until this is dropped.
fn load(programs: usize) -> Vec<Running> {
    let busy = || Running::start(Command::new("sh").args(["-c", "while :; do :; done"]));
    (0..programs).map(|_| busy()).collect()
}

const CALLS: [&str; 19] = [
    "epoll_wait",
    "epoll_pwait",
    "poll",
    "ppoll",
    "select",
    "pselect",
    "nanosleep",
    "clock_nanosleep",
    "futex",
    "sem_timedwait",
    "condition",
    "sigtimedwait",
    "any_signal",
    "recv",
    "accept",
    "semtimedop",
    "io_getevents",
    "children",
    "read",
];

/// Also those that fail with `EINTR` whenever a thread is interrupted, and those whose time-out
/// would begin from the start; also in a thread that has nothing else to do.
#[test]
fn no_system_call_is_interrupted() {
    let dir = temp_dir();
    let all = Waits::start("all");
    (0..10).for_each(|_| all.is_recorded(&dir));
    all.ends_well();
    // A thread that sleeps nearly always can be stopped by programs in the kernel only.
    if !common::system::needs_root() {
        return;
    }
    for call in CALLS {
        let alone = Waits::start(call);
        eprintln!("{call} alone");
        alone.is_recorded(&dir);
        alone.ends_well();
    }
}

#[test]
fn no_system_call_is_interrupted_where_cpus_are_scarce() {
    let (dir, _load) = (temp_dir(), load(8));
    let all = Waits::start("all");
    (0..8).for_each(|_| all.is_recorded(&dir));
    all.ends_well();
}

/// prof is killed at any moment: no call fails, no file stays open, and no memory of prof's stays
/// mapped but the library and the memory that it writes to.
#[test]
fn nothing_is_left_in_a_process_when_prof_is_killed() {
    let (dir, _load) = (temp_dir(), load(2));
    let all = Waits::start("all");
    let pid = all.running.pid();
    all.is_recorded(&dir);
    let before = (open_files(pid), maps(pid).lines().count());
    for round in 0..60u64 {
        let prof = endless(&dir, pid, "--no-symbolize");
        // The subject: each round kills prof at another step of its work.
        std::thread::sleep(Duration::from_micros(5_000 * (1 + round * 7 % 61)));
        prof.signal(libc::SIGKILL);
        prof.finish();
    }
    // A thread needs a moment to leave the code at which the last recording stopped it.
    until(|| !open_files(pid).iter().any(|file| file.contains("prof-heap")));
    all.is_recorded(&dir);
    let after = (open_files(pid), maps(pid).lines().count());
    assert!(after.0.len() <= before.0.len() + 1, "{before:?} {after:?}");
    assert!(after.1 <= before.1 + 4, "{} mappings, {} before", after.1, before.1);
    all.ends_well();
}

fn open_files(pid: i32) -> Vec<String> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let names = files.filter_map(|f| std::fs::read_link(f.ok()?.path()).ok());
    names.map(|name| name.display().to_string()).collect()
}

/// A program that is always in the allocator when it is stopped is not led out of it: a thread that
/// runs one instruction at a time would die if prof were killed.
#[test]
fn a_process_that_only_allocates_survives_when_prof_is_killed() {
    let dir = temp_dir();
    let target = Checked::start(1);
    for round in 0..40u64 {
        let prof = endless(&dir, target.pid(), "--no-symbolize");
        // The subject: each round kills prof at another step of its work.
        std::thread::sleep(Duration::from_micros(5_000 * (1 + round * 11 % 61)));
        prof.signal(libc::SIGKILL);
        prof.finish();
        assert_ne!(status(target.pid(), "State").chars().next(), Some('t'), "stopped by a tracer");
    }
    target.performs("go").ends_well();
}

/// A sleeping thread is not woken; the reason is reported, and the thread is unchanged.
#[test]
fn a_process_that_sleeps_all_the_time_is_refused() {
    let (dir, sleeps) = (temp_dir(), Running::start(Command::new("sleep").arg("1000")));
    until(|| status(sleeps.pid(), "State").starts_with('S'));
    let args = format!("record -T heap --inject -d 1s -p {}", sleeps.pid());
    let out = Prof::new(&dir, &args).run();
    out.refused(1, &["continues unchanged", "none of its threads ran within 5s"]);
}

/// A static program has no dynamic linker, a stopped one does not run, and so on: one line, and the
/// process goes on.
#[test]
fn impossible_injections_are_refused_in_one_line() {
    let dir = temp_dir();
    let refused = |running: &Running, words: &[&str]| {
        let args = format!("record -T heap --inject -d 1s -p {}", running.pid());
        let out = Prof::new(&dir, &args).run();
        let about = [&["continues unchanged"], words].concat();
        out.refused(1, &about);
        assert_eq!(out.stderr.lines().count(), 1, "{}", out.stderr);
    };
    let flags = ["-static", "-O2", "-pthread"];
    let program = built("gaps-static", "gaps.c", "gcc", &flags);
    let (mut running, _) =
        Running::start(Command::new(program).args(["1", "300"])).wait_for("ready");
    refused(&running, &["linked statically"]);
    assert!(running.is_running());

    let stopped = Checked::start(0);
    stopped.running.signal(libc::SIGSTOP);
    until(|| status(stopped.pid(), "State").contains('T'));
    refused(&stopped.running, &["stopped by a signal", "kill -CONT"]);
    assert!(status(stopped.pid(), "State").contains('T'));
    stopped.running.signal(libc::SIGCONT);
    // `epoll_wait` fails when a process is stopped this way; that is no mistake of prof's.
    stopped.performs("go");

    let mut confined = Running::start(Command::new(target("confined", Build::C)).arg("30"));
    confined = confined.wait_for("ready").0;
    refused(&confined, &["confined by seccomp"]);
    assert!(confined.is_running());

    if needs(&["strace"]) {
        let traced = Checked::start(0);
        let pid = traced.pid().to_string();
        let mut tracer = Command::new("strace");
        tracer.args(["-q", "-e", "trace=none", "-p", &pid]);
        let tracer = Running::start(&mut tracer);
        until(|| status(traced.pid(), "TracerPid") != "0");
        refused(&traced.running, &["traces it already", "strace"]);
        drop(tracer);
        traced.performs("go");
    }
}

fn status(pid: i32, field: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().to_owned()
}

#[test]
fn only_processes_of_the_user_are_injected() {
    if !can_drop_rights() {
        return;
    }
    let (dir, target) = (open_dir(), Checked::start(0));
    let args = format!("record -T heap --inject -d 1s -p {}", target.pid());
    unprivileged(dir.path(), &args).run().refused(1, &["another user's", "as root"]);
    // The target goes on undisturbed.
    target.ends_well();
    // A process of the same user.
    let program = dir.path().join("program");
    common::copy_program(common::target("inject", Build::Cpp), &program);
    let (theirs, words) = std::io::pipe().unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
    command.arg(&program).arg("1").stdin(Stdio::from(theirs));
    let (running, _) = Running::start(&mut command).wait_for("ready");
    let target = Checked { running, words };
    let args = format!("record -T heap --inject -d 1s -p {}", target.pid());
    unprivileged(dir.path(), &args).run().ok().says(&["stays there without effect"]);
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.sum_below("fills", "alloc_space") > 0);
    target.ends_well();
}

/// A process that ends during the injection: prof reports that, and does not hang.
#[test]
fn a_process_that_ends_during_the_injection_is_reported() {
    let dir = temp_dir();
    let mut refusals = 0;
    for round in 0..12u64 {
        let target = Checked::start(1);
        let args = format!("record -T heap --inject -d 1s -p {}", target.pid());
        let prof = Prof::new(&dir, &args).start();
        // The subject: each round ends the process at another step of the injection.
        std::thread::sleep(Duration::from_millis(5 + 9 * round));
        target.running.signal(libc::SIGKILL);
        let out = prof.finish();
        assert!(!out.stderr.contains("panicked"), "{}", out.stderr);
        refusals += usize::from(out.code() == 1);
        assert!(out.code() == 0 || out.stderr.lines().count() <= 2, "{}", out.stderr);
    }
    assert!(refusals > 0, "all recordings succeeded");
}

/// Without --inject, the kernel reports where memory grows, and prof the option that records more.
#[test]
fn without_inject_page_faults_are_recorded() {
    let dir = temp_dir();
    let grows = Running::start(Command::new(target("heap", Build::C)).arg("long"));
    let args = format!("record -T heap -d 1s -p {}", grows.pid());
    let out = Prof::new(&dir, &args).run().ok();
    out.says(&["page faults", "add --inject", "prof record -T heap -- COMMAND"]);
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.sample_types.iter().any(|(kind, _)| kind == "page-faults"), "{:?}", p.sample_types);
    assert!(p.sample_types.iter().all(|(kind, _)| !kind.contains("inuse")));
}

#[test]
fn inject_needs_a_heap_profile_of_one_process() {
    let dir = temp_dir();
    let own = std::process::id();
    let refused = |args: &str, words: &[&str]| {
        Prof::new(&dir, args).run().refused(2, words);
    };
    refused(&format!("record --inject -p {own} -d 1s"), &["--inject needs -T heap"]);
    refused("record -T heap --inject -a -d 1s", &["-p"]);
    refused(&format!("record -T heap --inject -p {own},1 -d 1s"), &["one process"]);
}
