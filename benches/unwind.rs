//! What unwinding costs: a frame, a sample, the first stack through a very large binary.
//!
//! cargo bench --bench unwind [-- --seconds 3 --rounds 7]
//!
//! perf records C++, Rust, python3 and rustc with stack dumps; prof's own unwinder walks the same
//! registers and dumps, in the order in which they were taken. "alone" is without what the walks
//! have from each other: each stack is walked to its end. Beside it: what `perf script` takes for
//! the same file, beyond reading it.

mod support;

#[allow(dead_code)]
#[path = "../tests/it/common/recorded.rs"]
mod recorded;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use recorded::{Item, Replay, Sample};
use support::{claim, measure, option, target};

/// Times and counts over one recording.
#[derive(Default)]
struct Row {
    samples: u32,
    frames: u64,
    /// The first pass, which opens the files.
    first: Duration,
    /// The longest single stack of that, with the files' opening.
    longest: Duration,
    /// The least of the other passes.
    warm: Duration,
    /// The same, each stack alone.
    alone: Duration,
    hits: u64,
    misses: u64,
}

impl Row {
    fn per_sample(&self, time: Duration) -> f64 {
        time.as_nanos() as f64 / f64::from(self.samples.max(1))
    }

    fn per_frame(&self, time: Duration) -> f64 {
        time.as_nanos() as f64 / self.frames.max(1) as f64
    }
}

/// Records a command with perf; `None` when that does not work.
fn record(data: &Path, command: &[String]) -> Option<()> {
    // It aborts while another profiler records build ids on all CPUs.
    for _ in 0..10 {
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", "-e", "cpu-clock:u", "-F", "997", "--call-graph"]);
        perf.args(["dwarf,32768", "-o"]).arg(data).arg("--").args(command);
        perf.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if perf.status().ok()?.success() {
            return Some(());
        }
        support::settle(2000);
    }
    None
}

/// Samples that a look at the rings finds.
const LOOK: usize = 100;

/// One pass over all samples: the whole time, the longest, the frames. The kernel has just written
/// what a look finds, so what has been copied here just before is what is walked; from where it
/// waits for its turn, it would come as slowly as memory is.
fn pass(replay: &mut Replay, items: &[Item], alone: bool) -> (Duration, Duration, u64) {
    let (mut all, mut longest, mut frames) = (Duration::ZERO, Duration::ZERO, 0);
    let samples = items.iter().filter_map(|item| match item {
        Item::Sample(sample) => Some(sample),
        _ => None,
    });
    let samples: Vec<&Sample> = samples.collect();
    let mut ring: Vec<Sample> = samples.iter().take(LOOK).map(|&s| s.clone()).collect();
    // No thread has the last one's number, so nothing is known of its last stack.
    let mut nobody = 1 << 24;
    for look in samples.chunks(LOOK) {
        look.iter().zip(&mut ring).for_each(|(sample, slot)| slot.clone_from(sample));
        for sample in &ring[..look.len()] {
            nobody += 1;
            let tid = if alone { nobody } else { sample.tid };
            let start = Instant::now();
            replay.unwind_as(tid, sample);
            let took = start.elapsed();
            (all, longest) = (all + took, longest.max(took));
            frames += replay.frames.len() as u64;
        }
    }
    (all, longest, frames)
}

fn row(items: &[Item], rounds: usize) -> Row {
    let mut replay = Replay::default();
    for item in items.iter().filter(|i| !matches!(i, Item::Sample(_))) {
        replay.take(item);
    }
    let (first, longest, frames) = pass(&mut replay, items, false);
    let (hits, misses) = replay.unwinder.rule_lookups();
    let mut best = |alone| {
        let passes = (0..rounds).map(|_| pass(&mut replay, items, alone).0);
        passes.min().unwrap_or_default()
    };
    let samples = items.iter().filter(|i| matches!(i, Item::Sample(_))).count() as u32;
    let (warm, alone) = (best(false), best(true));
    Row { samples, frames, first, longest, warm, alone, hits, misses }
}

/// CPU seconds of `perf script` with these options.
fn perf_script(data: &Path, options: &[&str]) -> f64 {
    let mut perf = Command::new("perf");
    perf.arg("script").args(options).arg("-i").arg(data);
    perf.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    measure(&mut perf).cpu
}

/// A large shared library that everyone who builds prof has, and a command that runs in it.
fn rustc(dir: &Path) -> Option<(u64, Vec<String>)> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?.stdout;
    let lib = PathBuf::from(String::from_utf8(sysroot).ok()?.trim()).join("lib");
    let driver = std::fs::read_dir(lib)
        .ok()?
        .flatten()
        .find(|e| e.file_name().to_string_lossy().starts_with("librustc_driver"))?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets/stacks.rs");
    let out = dir.join("stacks").display().to_string();
    let command = ["rustc", "-O", "--edition=2024", "-o", &out, source.to_str()?];
    Some((driver.metadata().ok()?.len(), command.map(String::from).to_vec()))
}

fn main() {
    if !support::has("perf") {
        println!("perf is not installed; on Debian: apt-get install linux-perf");
        return;
    }
    let seconds: f64 = option("seconds", 3.0);
    let rounds: usize = option("rounds", 7);
    let dir = support::temp_dir();
    let cpp = target("stacks.cpp", "g++", &["-O2", "-fomit-frame-pointer", "-pthread"]);
    let cpp = vec![cpp.display().to_string(), "inlined".into(), seconds.to_string()];
    let rust = dir.path().join("rust").display().to_string();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets");
    let built = Command::new("rustc")
        .args(["-O", "-Cdebuginfo=1", "--edition=2024", "-o", &rust])
        .arg(source.join("stacks.rs"))
        .status();
    assert!(built.is_ok_and(|s| s.success()), "rustc");
    let script = source.join("extensions.py").display().to_string();
    let python = ["/usr/bin/python3".into(), script, (2.0 * seconds).to_string()].to_vec();
    let large = rustc(dir.path());
    let mut programs = vec![
        ("C++", cpp, true),
        ("Rust", vec![rust, seconds.to_string()], true),
        ("python3", python, true),
    ];
    programs.extend(large.iter().map(|(_, command)| ("rustc", command.clone(), false)));
    println!(
        "{:<8} {:>7} {:>7} {:>9} {:>9} {:>9} {:>9} {:>7} {:>11} {:>10}",
        "program",
        "samples",
        "frames",
        "ns/sample",
        "ns/frame",
        "alone",
        "ns/frame",
        "hits %",
        "perf µs",
        "first ms"
    );
    let mut claims = Vec::new();
    for (name, command, judged) in programs {
        let data = dir.path().join("perf.data");
        if record(&data, &command).is_none() {
            println!("{name:<8} perf record failed");
            continue;
        }
        let items = recorded::read(&data);
        let row = row(&items, rounds);
        let walked = perf_script(&data, &["--no-inline", "-F", "tid,time,ip"]);
        let only_read = perf_script(&data, &["-G", "-F", "tid,time"]);
        let perf = 1e6 * (walked - only_read) / f64::from(row.samples.max(1));
        println!(
            "{name:<8} {:>7} {:>7} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>7.2} {perf:>11.1} {:>10.2}",
            row.samples,
            row.frames,
            row.per_sample(row.warm),
            row.per_frame(row.warm),
            row.per_sample(row.alone),
            row.per_frame(row.alone),
            100.0 * row.hits as f64 / (row.hits + row.misses).max(1) as f64,
            row.longest.as_secs_f64() * 1e3,
        );
        if judged {
            let (frame, sample) = (row.per_frame(row.alone), row.per_sample(row.warm));
            claims.push((frame <= 200.0, format!("{name}: {frame:.0} ns a frame (200)")));
            claims.push((sample <= 3000.0, format!("{name}: {sample:.0} ns a sample (3000)")));
        } else {
            large_binary(&large, &row, &command, &mut claims);
        }
    }
    for (holds, what) in claims {
        claim(holds, &what);
    }
}

/// What the first stacks through a very large library cost, and that no sample is lost meanwhile.
fn large_binary(
    large: &Option<(u64, Vec<String>)>,
    row: &Row,
    command: &[String],
    claims: &mut Vec<(bool, String)>,
) {
    let megabytes = large.as_ref().map_or(0, |l| l.0 >> 20);
    let once = (row.first.saturating_sub(row.warm)).as_secs_f64() * 1e3;
    println!("a library of {megabytes} MiB: {once:.1} ms once, over all of its first stacks");
    // The rings hold 256 samples.
    claims.push((once < 200.0, format!("{megabytes} MiB: {once:.1} ms once (a ring's 250)")));
    let dir = support::temp_dir();
    let mut prof = Command::new(support::PROF);
    prof.args(["record", "-F", "999", "--no-symbolize", "-o"]).arg(dir.path().join("p"));
    prof.arg("--").args(command).stdin(Stdio::null()).stdout(Stdio::null());
    let (_, said) = support::start(prof.stderr(Stdio::piped())).finish();
    let none = said.contains("; 0 lost");
    claims.push((none, format!("{megabytes} MiB: no sample lost while rustc is recorded")));
}
