//! Threads that take another name, and processes that execute another program: time, waits and
//! calls belong to the name that a thread had then (tests/targets/renames.c).

use std::collections::BTreeMap;

use crate::common::pprof::Sample;
use crate::common::system::needs_tracefs;
use crate::common::waits::{is_most_of, label};
use crate::common::{Build, Pprof, Prof, read, target, temp_dir};

/// Seconds that the program measured of a function under the name.
type Measured = BTreeMap<(String, String), f64>;

/// Records the program, which prints `NAME FUNCTION SECONDS`; children print their own.
fn record(args: &str, mode: &str) -> (Pprof, Measured) {
    let dir = temp_dir();
    let out = Prof::new(&dir, args).target(target("renames", Build::C), mode).run().ok();
    let mut measured = Measured::new();
    for line in out.text().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, function, seconds] = words[..] else { panic!("{line}") };
        *measured.entry((name.into(), function.into())).or_default() +=
            seconds.parse::<f64>().unwrap();
    }
    assert_eq!(measured.len(), 6, "{measured:?}");
    (read(dir.path().join("profile.pb.gz")), measured)
}

/// A recording, and one of the two jobs.
struct Job<'a> {
    p: &'a Pprof,
    measured: &'a Measured,
    mode: &'a str,
    name: &'a str,
}

impl Job<'_> {
    fn sum(&self, kind: &str, keep: impl Fn(&Sample) -> bool) -> i64 {
        let column = self.p.column(kind);
        let own = self.p.samples.iter().filter(|s| label(s, "thread") == self.name && keep(s));
        own.map(|s| s.values[column]).sum()
    }

    /// What the profile has of one function of the job, and what the program measured; the job has
    /// nothing of the other one's function.
    fn pair(&self, kind: &str, function: &str, keep: impl Fn(&Sample) -> bool) -> (f64, f64) {
        let other = if self.name == "one" { "two" } else { "one" };
        let is_in = |s: &Sample, name: &str| {
            self.p.frames(s).contains(&format!("{function}_{name}").as_str())
        };
        assert_eq!(self.sum(kind, |s| is_in(s, other)), 0, "{} {}", self.mode, self.name);
        let got = self.sum(kind, |s| is_in(s, self.name) && keep(s)) as f64 / 1e9;
        (got, self.measured[&(self.name.into(), format!("{function}_{}", self.name))])
    }

    fn assert_wall_time(&self) {
        let Job { mode, name, .. } = self;
        let (ran, want) = self.pair("wall", "work", |s| label(s, "state") == "running");
        // An estimate of 200 samples and more: a quarter is eight standard deviations.
        assert!((ran - want).abs() < 0.25 * want, "{mode} {name}: ran {ran} s of {want} s");
        let queued = self.sum("wall", |s| label(s, "state") == "runnable") as f64 / 1e9;
        let (napped, want) = self.pair("wall", "nap", |_| true);
        let most = 0.01 * want + 0.01 + queued;
        assert!((napped - want).abs() < most, "{mode} {name}: napped {napped} s of {want} s");
    }
}

/// The jobs of a recording.
fn jobs<'a>(p: &'a Pprof, measured: &'a Measured, mode: &'a str) -> [Job<'a>; 2] {
    ["one", "two"].map(|name| Job { p, measured, mode, name })
}

#[test]
fn wall_time_belongs_to_the_name_that_the_thread_had() {
    let cpus = std::thread::available_parallelism().unwrap().get() - 1;
    for args in ["record -T wall -F 997", &format!("record -T wall -F 997 -C 0-{cpus}")] {
        for mode in ["thread", "exec", "vfork"] {
            let (p, measured) = record(args, mode);
            jobs(&p, &measured, mode).iter().for_each(Job::assert_wall_time);
        }
    }
}

#[test]
fn waits_and_calls_belong_to_the_name_that_the_thread_had() {
    if !needs_tracefs() {
        return;
    }
    for mode in ["thread", "exec", "vfork"] {
        let (p, measured) = record("record -T lock,syscalls", mode);
        for job in jobs(&p, &measured, mode) {
            let name = job.name;
            let (delay, want) = job.pair("delay", "take", |_| true);
            assert!(is_most_of(delay, want), "{mode} {name}: waited {delay} s of {want} s");
            let naps = |s: &Sample| label(s, "syscall") == "clock_nanosleep";
            assert_eq!(job.sum("syscalls", naps), 10, "{mode} {name}");
            let (napped, want) = job.pair("syscall_time", "nap", naps);
            assert!(is_most_of(napped, want), "{mode} {name}: napped {napped} s of {want} s");
        }
    }
}
