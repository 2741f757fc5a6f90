//! Lock contention of libraries that make their locks of futexes themselves, or of others' locks:
//! parking_lot, Python's global lock and its `threading`, musl.

use crate::common::pprof::Sample;
use crate::common::system::needs_tracefs;
use crate::common::targets::{built, package};
use crate::common::waits::{is_most_of, label, said, waits};
use crate::common::{Prof, needs, read, temp_dir};

/// They park their threads, which is no contention by itself.
#[test]
fn parking_lot_locks_are_classified_with_their_holders() {
    if !needs_tracefs() {
        return;
    }
    let Some(program) = package("parking") else { return };
    let dir = temp_dir();
    let record = |args: &str| {
        let prof = Prof::new(&dir, "record -T lock --holders").target(&program, args);
        (prof.run().ok(), read(dir.path().join("profile.pb.gz")))
    };
    for (kind, class) in [("mutex", "mutex"), ("read", "rwlock"), ("write", "rwlock")] {
        let (out, p) = record(&format!("{kind} 20"));
        let text = out.text();
        let (waited, slept) = text.trim().split_once(' ').expect("two times");
        let (waited, slept): (f64, f64) = (waited.parse().unwrap(), slept.parse().unwrap());
        let in_it = |s: &Sample, function| p.frames(s).iter().any(|f| f.contains(function));
        let (got, count) = waits(&p, |s| in_it(s, "take") && label(s, "kind") == class);
        let name = format!("{kind}: {}", out.stderr);
        // A thread that is overtaken waits twice.
        assert!((20..=40).contains(&count), "{count} waits: {name}");
        assert!(got <= 1.01 * waited && got > 0.9 * slept - 0.01, "{got} s, {text}: {name}");
        let held = p.column("holder_delay");
        let gives = |s: &&Sample| in_it(s, "give") && label(s, "kind") == class;
        let given = p.samples.iter().filter(gives).map(|s| s.values[held]).sum::<i64>();
        assert!(is_most_of(given as f64 / 1e9, got), "{given} ns of {got} s: {name}");
    }
    let (out, p) = record("condition 20");
    assert!(waits(&p, |_| true).0 < 0.02, "{}", out.stderr);
    out.says(&[" at condition variables"]);
}

/// node's inspector waits for a signal, at a semaphore.
#[test]
fn nodes_idle_threads_are_no_contention() {
    if !needs_tracefs() || !needs(&["node"]) {
        return;
    }
    let dir = temp_dir();
    let script = "setTimeout(() => {}, 500)";
    let out = Prof::new(&dir, "record -T lock").target("node", "-e").arg(script).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let semaphores: Vec<_> = p.samples.iter().filter(|s| label(s, "kind") == "semaphore").collect();
    let frames = semaphores.iter().map(|s| p.frames(s));
    assert!(semaphores.is_empty(), "{:?}: {}", frames.collect::<Vec<_>>(), out.stderr);
    out.says(&[" at parked threads"]);
}

/// Two threads that compute: one of them waits for the global lock at any time. Debian's Python has
/// no names of the functions that take it.
#[test]
fn waits_for_pythons_global_lock_are_recorded() {
    const PYTHON: &str = "/usr/bin/python3";
    if !needs_tracefs() || !needs(&[PYTHON]) {
        return;
    }
    let dir = temp_dir();
    let script = "import threading, time\n\
        def burn():\n\
        \x20   end = time.monotonic() + 1\n\
        \x20   while time.monotonic() < end:\n\
        \x20       sum(range(500))\n\
        threads = [threading.Thread(target=burn) for _ in range(2)]\n\
        [t.start() for t in threads]\n\
        [t.join() for t in threads]";
    let out = Prof::new(&dir, "record -T lock").target(PYTHON, "-c").arg(script).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let computing = |s: &Sample| label(s, "tid") != label(s, "pid");
    let (seconds, count) = waits(&p, |s| computing(s) && label(s, "kind") == "gil");
    // The handover takes time, too, in which both wait; on a busy machine, they wait for a CPU.
    assert!((0.25..1.5).contains(&seconds), "{seconds} s, {count} waits: {}", out.stderr);
    assert!(!out.stderr.contains("at condition variables"), "{}", out.stderr);
    // The wait for the threads' ends uses one of Python's own locks.
    let joins = |s: &Sample| !computing(s) && label(s, "kind") == "python lock";
    let (seconds, _) = waits(&p, joins);
    assert!((0.25..2.5).contains(&seconds), "{seconds} s: {}", out.stderr);
}

/// Debian's musl has no unwind information: its stack frames are found by its instructions.
#[test]
fn musl_locks_are_classified() {
    if !needs_tracefs() || !needs(&["musl-gcc"]) {
        return;
    }
    let dir = temp_dir();
    let flags = ["-O2", "-pthread"];
    for flags in [&flags[..], &[flags[0], flags[1], "-static"]] {
        let program = built("locks-musl", "locks.c", "musl-gcc", flags);
        for (kind, right) in [("mutex", "mutex"), ("write", "rwlock"), ("semaphore", "semaphore")] {
            let args = format!("{kind} 20");
            let out = Prof::new(&dir, "record -T lock").target(&program, &args).run().ok();
            let p = read(dir.path().join("profile.pb.gz"));
            let (want, address) = said(&out.text());
            let ours = |s: &Sample| {
                let lock = u64::from_str_radix(&label(s, "lock")[2..], 16).unwrap();
                label(s, "thread") == "waiter" && lock.wrapping_sub(address) < 64
            };
            let (got, count) = waits(&p, ours);
            let name = format!("{flags:?} {kind}: {}", out.stderr);
            assert!(want > 0.19 && is_most_of(got, want), "{got} s of {want} s: {name}");
            assert!((20..=30).contains(&count), "{count} waits: {name}");
            let known = waits(&p, |s| ours(s) && label(s, "kind") == right).1;
            assert_eq!(known, count, "{name}");
            // Waits of unknown kind are reported.
            let unknown = waits(&p, |s| label(s, "kind") == "unknown").1 > 0;
            assert_eq!(out.stderr.contains("may be for locks or not"), unknown, "{name}");
        }
    }
}
