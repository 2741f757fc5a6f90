//! Beginning and end of a recording, and the state of the COMMAND in between.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common;
use crate::common::system::{child, is_in_call, stolen_seconds, until_has_run};
use crate::common::{Build, Pprof, Prof, Running, holds, needs, read, target, temp_dir, until};

/// Starts a recording of `exits`, which ends at a signal, and waits until it has some samples.
fn recorded_exits(dir: &tempfile::TempDir, args: &str) -> Running {
    let prof = Prof::new(dir, args).target(target("exits", Build::C), "0 60000");
    let prof = prof.start().wait_for("ready").0.sampling();
    until_has_run(child(prof.pid()), 0.3);
    prof
}

#[test]
fn the_exit_code_of_the_command_is_passed_on() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "record -F 999").target(target("exits", Build::C), "3 300").run();
    let out = out.exits(3).says(&["3"]);
    let words = out.stderr.to_lowercase();
    assert!(words.contains("exit") && words.contains("3"), "{}", out.stderr);
    assert!(read(dir.path().join("profile.pb.gz")).total_share("before_exit") > 95.0);
}

#[test]
fn the_signal_that_ends_the_command_is_reported() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "record")
        .target("sh", "")
        .arg("-c")
        .arg("kill -SEGV $$")
        .run()
        .exits(128 + 11);
    let words = out.stderr.to_lowercase();
    assert!(words.contains("signal 11") || words.contains("sigsegv"), "{}", out.stderr);
    read(dir.path().join("profile.pb.gz"));
}

#[test]
fn a_missing_command_exits_with_127() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "record").target("no-such-command-anywhere", "").run();
    out.refused(127, &["no-such-command-anywhere"]);
    assert!(!dir.path().join("profile.pb.gz").exists());
    let out = Prof::new(&dir, "record").target("./no/such/file", "").run();
    out.refused(127, &["./no/such/file"]);
}

#[test]
fn a_command_that_is_not_executable_exits_with_126() {
    let dir = temp_dir();
    std::fs::write(dir.path().join("data"), "no program").unwrap();
    Prof::new(&dir, "record").target("./data", "").run().refused(126, &["data"]);
    Prof::new(&dir, "record").target("/", "").run().refused(126, &["/"]);
    assert!(!dir.path().join("profile.pb.gz").exists());
}

#[test]
fn standard_streams_of_the_command_are_untouched() {
    let dir = temp_dir();
    let mut command = Prof::new(&dir, "record -o out.pb.gz").target("sh", "").command;
    command.args(["-c", "cat; echo to-stderr >&2"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let mut stdin = child.stdin.take().unwrap();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent));
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(out.status.success());
    assert!(out.stdout == bytes, "standard output is not what the command wrote");
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(stderr.lines().any(|l| l == "to-stderr"), "{stderr}");
}

/// The command has the signal dispositions, the mask and the descriptors of a normal start.
#[test]
fn the_command_inherits_no_signals_or_descriptors_of_prof() {
    let dir = temp_dir();
    let script = "grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | wc -l";
    let state = |mut command: Command| {
        command.args(["-c", script]).stdin(Stdio::null());
        let text = common::run::run(command).ok().text();
        let words: Vec<&str> = text.split_whitespace().collect();
        // The C library uses the signals from 32 on.
        let signals = |hex: &str| u64::from_str_radix(hex, 16).unwrap() & 0x7fff_ffff;
        (signals(words[1]), signals(words[3]), words[4].to_string())
    };
    let prof = |mut before: Command| {
        before.arg(Prof::new(&dir, "").command.get_program()).args(["record", "-o"]);
        before.arg(dir.path().join("p.pb.gz")).args(["--", "sh"]);
        before
    };
    let plain = state(Command::new("sh"));
    assert_eq!(state(prof(Command::new("env"))), plain);
    // Ignored signals stay ignored: the hang-up; the signals of terminals, in the background of a
    // script; the others that prof handles.
    let ignoring = |signals: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("trap '' {signals}; exec \"$@\""), "sh"]);
        command
    };
    for (signals, bits) in [("HUP", 1), ("INT QUIT", 6), ("TERM USR1 USR2", 0x4a00)] {
        let ignored = state(prof(ignoring(signals)));
        let mut alone = ignoring(signals);
        alone.arg("sh");
        assert_eq!((ignored.1 & bits, &ignored), (bits, &state(alone)), "{signals}");
    }
}

/// Fails unless the recording lasted longer than `least` seconds, and not longer than the run of
/// prof.
#[track_caller]
fn assert_within(p: &Pprof, least: f64, run: Duration) {
    let (lasted, run) = (p.duration_nanos as f64 * 1e-9, run.as_secs_f64());
    assert!(lasted > least && lasted < run, "{lasted} s of {least} to {run} s");
}

fn ended_by(signal: i32) {
    let dir = temp_dir();
    let known = Running::start(std::process::Command::new(target("known", Build::C)).arg("0"));
    let pid = known.pid().to_string();
    let begin = Instant::now();
    let prof = Prof::new(&dir, "record -F 999 -e cpu-clock -d 1h -p").arg(pid).start().sampling();
    until_has_run(known.pid(), 0.3);
    prof.signal(signal);
    prof.finish().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.total_share("main") > 80.0);
    assert_within(&p, 0.0, begin.elapsed());
    // All of the time from then on, but for what the clocks of `/proc` are apart.
    let seconds = p.total(p.column("cpu")) as f64 * 1e-9;
    assert!(seconds > 0.25, "{seconds} s of 0.3 s");
}

#[test]
fn ctrl_c_ends_early_and_writes() {
    ended_by(libc::SIGINT);
}

#[test]
fn sigterm_ends_early_and_writes() {
    ended_by(libc::SIGTERM);
}

/// `timeout` signals prof and then its whole group: this is one request to end, not two.
#[test]
fn an_end_by_timeout_writes_the_profile() {
    let dir = temp_dir();
    for n in 0..5 {
        let file = format!("{n}.pb.gz");
        let prof = Prof::new(&dir, "record -F 999 -o").arg(&file);
        let prof = prof.target(target("exits", Build::C), "0 60000").command;
        let mut command = Command::new("timeout");
        command.arg("1").arg(prof.get_program()).args(prof.get_args());
        command.current_dir(dir.path()).stdout(Stdio::null()).stderr(Stdio::piped());
        let output = command.output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(124), "{words}");
        assert!(read(dir.path().join(file)).figure("samples") > 0, "{words}");
    }
}

/// A write into a full pipe that is not read blocks: a second Ctrl-C has to be enough.
#[test]
fn a_second_ctrl_c_ends_a_blocked_write() {
    let dir = temp_dir();
    let threads = target("threads", Build::C);
    let mut command = std::process::Command::new(threads);
    command.args(["300", "0", "0", "2000"]);
    let (threads, _) = Running::start(&mut command).wait_for("ready");
    let (reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: both descriptors are open; F_SETPIPE_SZ takes a number.
    unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&writer), libc::F_SETPIPE_SZ, 4096) };
    // Full from the beginning, so that even the smallest profile blocks.
    std::io::Write::write_all(&mut writer, &[0; 4096]).unwrap();
    let mut prof = Prof::new(&dir, "record -F 999 -d 1h -o - -p").arg(threads.pid().to_string());
    prof.command.stdin(Stdio::null());
    let mut prof = Running::start_into(&mut prof.command, Stdio::from(writer)).sampling();
    until_has_run(threads.pid(), 0.1);
    // Names are found faster without it.
    threads.signal(libc::SIGSTOP);
    prof.signal(libc::SIGINT);
    let pid = prof.pid();
    // The pipe blocks it.
    until(|| !prof.is_running() || is_in_call(pid, "prof", libc::SYS_write));
    assert!(prof.is_running(), "the pipe did not block it: {:?}", prof.finish());
    // Two signals in a short time are one request.
    let mut last: Option<Instant> = None;
    let ended = holds(|| {
        if prof.is_running() && last.is_none_or(|last| last.elapsed() > Duration::from_secs(1)) {
            prof.signal(libc::SIGINT);
            last = Some(Instant::now());
        }
        !prof.is_running()
    });
    assert!(ended, "Ctrl-C has no effect any more");
    let out = prof.finish();
    assert!(!out.status.success(), "{}", out.status);
    drop(reader);
}

#[test]
fn signals_are_passed_on_to_the_command() {
    let dir = temp_dir();
    let prof = recorded_exits(&dir, "record -F 999");
    prof.signal(libc::SIGTERM);
    let out = prof.finish().exits(40);
    assert!(out.text().contains("signal 15"), "{}{}", out.text(), out.stderr);
    assert!(read(dir.path().join("profile.pb.gz")).total_share("before_exit") > 80.0);
}

#[test]
fn sigusr1_is_passed_on_to_the_command() {
    let dir = temp_dir();
    let prof = recorded_exits(&dir, "record");
    prof.signal(libc::SIGUSR1);
    let out = prof.finish().exits(40);
    assert!(out.text().contains("signal 10"), "{}{}", out.text(), out.stderr);
}

#[test]
fn the_end_of_the_last_target_ends_the_recording() {
    let dir = temp_dir();
    let known = Running::start(std::process::Command::new(target("known", Build::C)).arg("1"));
    let pid = known.pid().to_string();
    let begin = Instant::now();
    let prof = Prof::new(&dir, "record -F 999 -d 1h -p").arg(pid).start();
    known.finish().ok();
    prof.finish().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.total_share("main") > 90.0);
    assert_within(&p, 0.0, begin.elapsed());
}

#[test]
fn the_window_has_the_requested_length() {
    let dir = temp_dir();
    let known = Running::start(std::process::Command::new(target("known", Build::C)).arg("0"));
    let pid = known.pid().to_string();
    let now = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as i64;
    let (begin, before, stolen) = (Instant::now(), now(), stolen_seconds());
    Prof::new(&dir, "record -F 999 -e cpu-clock -d 1500ms -p").arg(pid).run().ok();
    let (run, stolen) = (begin.elapsed(), stolen_seconds() - stolen);
    let p = read(dir.path().join("profile.pb.gz"));
    assert_within(&p, 1.499, run);
    assert!((before..now()).contains(&p.time_nanos), "{}", p.time_nanos);
    // By the target's clock, whatever else the machine does.
    let seconds = p.total(p.column("cpu")) as f64 * 1e-9;
    assert!(seconds < 1.6 + stolen, "{seconds} s of 1.5 s, {stolen} s stolen");
}

/// `exits` is busy for 2 s of CPU time, of which the first second of wall time is not recorded: it
/// prints how much it used in that second.
#[test]
fn a_delay_leaves_out_the_start() {
    let dir = temp_dir();
    let exits = target("exits", Build::C);
    let stolen = stolen_seconds();
    let prof = Prof::new(&dir, "record -e cpu-clock -F 999 -D 1000");
    let out = prof.target(exits, "0 2000 1000").run().ok().text();
    let stolen = stolen_seconds() - stolen;
    let p = read(dir.path().join("profile.pb.gz"));
    let seconds = p.total(p.column("cpu")) as f64 * 1e-9;
    let printed = out.lines().last().unwrap().split(' ').map(|ms| ms.parse::<f64>().unwrap() / 1e3);
    let [at_first, all] = printed.collect::<Vec<_>>()[..] else { panic!("{out}") };
    // The delay begins before the program does.
    let off = (seconds - (all - at_first)).abs();
    assert!(off < 0.1 + stolen, "{seconds} s of {all} s, {at_first} s at first, {stolen} s stolen");
}

#[test]
fn a_command_that_ends_before_the_delay_is_an_error() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "record -D 1h").target("true", "").run();
    out.refused(1, &["the command ended before"]);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "something was left behind");
}

#[test]
fn no_progress_bar_where_stderr_is_no_terminal() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "record -F 999").target(target("exits", Build::C), "0 300").run();
    let out = out.ok();
    assert!(!out.stderr.contains('\r') && !out.stderr.contains('\x1b'), "{:?}", out.stderr);
    for word in ["samples", "stacks", "lost", "prof report"] {
        assert!(out.stderr.contains(word), "{word} is not in: {}", out.stderr);
    }
}

#[test]
fn a_terminal_shows_a_progress_bar() {
    if !needs(&["script"]) {
        return;
    }
    let dir = temp_dir();
    let line = format!(
        "{} record -F 999 -- {} 0 1500",
        env!("CARGO_BIN_EXE_prof"),
        target("exits", Build::C).display()
    );
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(&dir).env("TERM", "xterm");
    command.env_remove("NO_COLOR").stdin(Stdio::null());
    let text = common::run::run(command).ok().text();
    assert!(text.contains('\x1b') && text.contains("samples"), "{text:?}");
}
