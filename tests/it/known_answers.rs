//! A program whose profile is known: every share has to be right, in each mode of unwinding. It has
//! the machine to itself: with others on its CPU, there would be too few samples for the tolerance.
//!
//! Error rate of a test: ten shares, each refused if it is off by 1.5 points in eight recordings
//! together. That is 5.4 standard deviations of 32,000 independent samples, which has a chance of
//! 7e-8; 7e-7 together.

use crate::common::{Build, Pprof, Prof, Running, assert_share, read, target, temp_dir};

/// Percent that a share may be off.
const TOLERANCE: f64 = 1.5;

/// The most recordings that are judged together.
const MOST_RECORDINGS: usize = 8;

/// A share of a profile's samples, in percent.
struct KnownShare {
    what: String,
    is: f64,
    should_be: f64,
}

/// main works 2 parts itself and calls foo1 (1.5 itself) and foo2 (0.5 itself), which both call
/// bar (2.5): 9 parts.
fn shares(p: &Pprof) -> Vec<KnownShare> {
    let part = 100.0 / 9.0;
    let mut shares = Vec::new();
    let mut add = |what: String, is: f64, parts: f64| {
        shares.push(KnownShare { what, is, should_be: parts * part });
    };
    for (function, own, total) in
        [("bar", 5.0, 5.0), ("main", 2.0, 9.0), ("foo1", 1.5, 4.0), ("foo2", 0.5, 3.0)]
    {
        let leaf =
            |f: &&str| f.strip_suffix(function).is_some_and(|m| m.is_empty() || m == "known::");
        let found = p.share(|s| p.user_frames(s).first().is_some_and(leaf));
        add(format!("{function} self"), found, own);
        add(format!("{function} total"), p.total_share(function), total);
    }
    // bar's own time, by caller.
    let below = |caller: &str| {
        p.share(|s| {
            let frames = p.user_frames(s);
            frames.first().is_some_and(|f| f.ends_with("bar"))
                && frames.get(1).is_some_and(|f| f.ends_with(caller))
        })
    };
    add("bar below foo1".to_owned(), below("foo1"), 2.5);
    add("bar below foo2".to_owned(), below("foo2"), 2.5);
    shares
}

/// Records until all shares are right in the recordings together, [`MOST_RECORDINGS`] times at most.
#[track_caller]
fn check(record: impl Fn() -> Pprof) {
    let mut sums = shares(&record());
    for recordings in 1.. {
        let mean = |share: &KnownShare| share.is / recordings as f64;
        let is_off = |share: &&KnownShare| (mean(share) - share.should_be).abs() > TOLERANCE;
        let Some(share) = sums.iter().find(is_off) else { return };
        if recordings == MOST_RECORDINGS {
            assert_share(&share.what, mean(share), share.should_be, TOLERANCE);
        }
        println!("{}: {:.2} % in {recordings} recordings; once more", share.what, mean(share));
        sums.iter_mut().zip(shares(&record())).for_each(|(sum, share)| sum.is += share.is);
    }
}

fn command(build: Build, options: &str) -> Pprof {
    let dir = temp_dir();
    let known = target("known", build);
    Prof::new(&dir, "record -F 999").args(options).target(known, "4").run().ok();
    read(dir.path().join("profile.pb.gz"))
}

fn attached(build: Build, options: &str) -> Pprof {
    let dir = temp_dir();
    let known = Running::start(std::process::Command::new(target("known", build)).arg("0"));
    let pid = known.pid().to_string();
    Prof::new(&dir, "record -F 999 -d 5s -p").arg(pid).args(options).run().ok();
    read(dir.path().join("profile.pb.gz"))
}

#[test]
fn c_without_frame_pointers_has_the_known_shares() {
    check(|| command(Build::C, ""));
}

/// 4 s of CPU time at 999 Hz: the samples add up to the time that was used.
#[test]
fn the_sum_of_the_samples_is_the_cpu_time() {
    let p = command(Build::C, "-e cpu-clock");
    let seconds = p.total(p.column("cpu")) as f64 * 1e-9;
    assert!((3.8..4.3).contains(&seconds), "{seconds} s");
    assert!((3800..4300).contains(&p.total(p.column("samples"))));
    assert_eq!(p.sample_types[0], ("samples".into(), "count".into()));
    assert_eq!(p.sample_types[1], ("cpu".into(), "nanoseconds".into()));
    assert_eq!(p.period_type, ("cpu".into(), "nanoseconds".into()));
    assert!((1_000_000..=1_002_000).contains(&p.period), "{}", p.period);
}

#[test]
fn c_with_frame_pointers_has_the_known_shares() {
    check(|| command(Build::CFramePointers, ""));
}

#[test]
fn rust_has_the_known_shares() {
    check(|| command(Build::Rust, ""));
}

#[test]
fn an_attached_c_program_has_the_known_shares() {
    check(|| attached(Build::C, ""));
}

#[test]
fn an_attached_rust_program_has_the_known_shares() {
    check(|| attached(Build::Rust, ""));
}

#[test]
fn frame_pointer_mode_gives_the_known_shares() {
    check(|| command(Build::CFramePointers, "-g fp"));
}

#[test]
fn a_small_dwarf_dump_gives_the_known_shares() {
    check(|| command(Build::C, "-g dwarf,4096"));
}

#[test]
fn the_perf_spelling_of_the_mode_gives_the_known_shares() {
    check(|| command(Build::C, "--call-graph dwarf"));
}

#[test]
fn without_stacks_only_self_values_are_recorded() {
    let p = command(Build::C, "-g none");
    let in_bar = p.self_share("bar");
    assert!((45.0..58.0).contains(&in_bar), "{in_bar} % in bar, and interrupts");
    assert!(p.samples.iter().all(|s| s.locations.len() <= 1), "a stack with -g none");
}

#[test]
fn every_stack_reaches_the_entry() {
    let p = command(Build::C, "");
    let whole = p.share(|s| {
        p.frames(s).last().is_some_and(|f| *f == "_start" || f.starts_with("__libc_start"))
    });
    assert!(whole > 99.0, "only {whole} % of the stacks are whole: {:?}", p.comments);
}
