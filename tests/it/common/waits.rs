//! Waits for locks in recordings, and programs' own measurements of them.

use std::path::Path;

use super::pprof::Sample;
use super::{Pprof, Prof, read};

pub fn label<'a>(sample: &'a Sample, key: &str) -> &'a str {
    sample.labels.get(key).map_or("", String::as_str)
}

/// Seconds and number of waits of the samples that `keep` selects.
pub fn waits(p: &Pprof, keep: impl Fn(&Sample) -> bool) -> (f64, i64) {
    let (count, delay) = (p.column("contentions"), p.column("delay"));
    let kept = || p.samples.iter().filter(|s| keep(s));
    let seconds = kept().map(|s| s.values[delay]).sum::<i64>() as f64 / 1e9;
    (seconds, kept().map(|s| s.values[count]).sum())
}

/// A program's own measurement: seconds that it waited, and the address of its lock.
pub fn said(text: &str) -> (f64, u64) {
    let (seconds, address) = text.trim().split_once(' ').unwrap_or_else(|| panic!("{text}"));
    let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap();
    (seconds.parse().unwrap(), address)
}

/// Not more than a program measured itself, and no less but for its way to the kernel and back, on
/// which a busy machine may stop it. (`benches/lock.rs` measures the difference.)
pub fn is_most_of(got: f64, want: f64) -> bool {
    got <= 1.01 * want + 0.001 && got > 0.8 * want - 0.01
}

/// Records the program and compares its own measurement with its waits of `kind` in `function`.
/// Such programs hold a lock for 10 ms, 20 times, from the moment when another thread waits for it.
#[track_caller]
pub fn assert_waits(dir: &Path, program: &Path, args: &str, kind: &str, function: &str) -> Pprof {
    let out = Prof::new(dir, "record -T lock").target(program, args).run().ok();
    let p = read(dir.join("profile.pb.gz"));
    let (want, address) = said(&out.text());
    let in_it = |s: &Sample| p.frames(s).iter().any(|f| f.contains(function));
    let (got, count) = waits(&p, |s| in_it(s) && label(s, "kind") == kind);
    let name = format!("{program:?} {args}: {}", out.stderr);
    assert!(want > 0.2 && is_most_of(got, want), "{got} s of {want} s: {name}");
    // A thread that is overtaken waits twice.
    assert!((20..=30).contains(&count), "{count} waits: {name}");
    let lock = |s: &Sample| u64::from_str_radix(&label(s, "lock")[2..], 16).unwrap();
    // The word that is waited for lies within the lock.
    let near = |s: &Sample| lock(s).wrapping_sub(address) < 16;
    assert!(address == 0 || p.samples.iter().filter(|s| in_it(s)).all(near), "{name}");
    p
}
