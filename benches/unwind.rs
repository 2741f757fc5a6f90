//! Cost of unwinding: of a frame, of a sample, of the first stack through a very large binary.
//!
//! cargo bench --bench unwind [-- --seconds 3 --rounds 7]
//!
//! perf records g++, C++, Rust, python3 and rustc with stack dumps; prof's own unwinder walks the same
//! registers and dumps, in the order in which they were taken. "alone" is without what a walk takes
//! over from the one before: each stack is walked to its end. The column of perf is the time of
//! `perf script` for the same file, beyond reading it.

mod support;

#[allow(dead_code)]
#[path = "../tests/it/common/recorded.rs"]
mod recorded;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use recorded::{Item, Replay, Sample};
use support::units::time;
use support::{Figures, claim, measure, option, target};

/// Times and counts over one recording.
#[derive(Default)]
struct Row {
    samples: u32,
    frames: u64,
    /// The first pass, which opens the files.
    first: Duration,
    /// The longest single stack of that, with the opening of files.
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

/// Records a command with perf; returns whether that has succeeded.
fn record(data: &Path, command: &[String]) -> bool {
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-e", "cpu-clock:u", "-F", "997", "--call-graph"]);
    support::perf_record(perf.args(["dwarf,32768", "-o"]).arg(data).arg("--").args(command))
}

/// Samples that a poll of the rings finds.
const POLL: usize = 100;

/// One pass over all samples.
#[derive(Default)]
struct Pass {
    /// The whole time.
    all: Duration,
    /// That of the longest stack.
    longest: Duration,
    frames: u64,
}

/// Walks all samples. While recording, the kernel has just written the samples that a poll finds,
/// so they are in the caches of the CPU: here they are copied just before they are walked.
fn pass(replay: &mut Replay, items: &[Item], alone: bool) -> Pass {
    let mut pass = Pass::default();
    let samples = items.iter().filter_map(|item| match item {
        Item::Sample(sample) => Some(sample),
        _ => None,
    });
    let samples: Vec<&Sample> = samples.collect();
    let mut ring: Vec<Sample> = samples.iter().take(POLL).map(|&s| s.clone()).collect();
    // A number of no thread, of which no earlier stack is known.
    let mut unused = 1 << 24;
    for poll in samples.chunks(POLL) {
        poll.iter().zip(&mut ring).for_each(|(sample, slot)| slot.clone_from(sample));
        for sample in &ring[..poll.len()] {
            unused += 1;
            let tid = if alone { unused } else { sample.tid };
            let start = Instant::now();
            replay.unwind_as(tid, sample);
            let took = start.elapsed();
            pass.all += took;
            pass.longest = pass.longest.max(took);
            pass.frames += replay.frames.len() as u64;
        }
    }
    pass
}

fn row(items: &[Item], rounds: usize) -> Row {
    let mut replay = Replay::default();
    for item in items.iter().filter(|i| !matches!(i, Item::Sample(_))) {
        replay.take(item);
    }
    let first = pass(&mut replay, items, false);
    let (hits, misses) = replay.unwinder.rule_lookups();
    let mut best = |alone| {
        let passes = (0..rounds).map(|_| pass(&mut replay, items, alone).all);
        passes.min().unwrap_or_default()
    };
    let samples = items.iter().filter(|i| matches!(i, Item::Sample(_))).count() as u32;
    let warm = best(false);
    let alone = best(true);
    let Pass { all, longest, frames } = first;
    Row { samples, frames, first: all, longest, warm, alone, hits, misses }
}

/// CPU seconds of `perf script` with these options.
fn perf_script(data: &Path, options: &[&str]) -> f64 {
    let mut perf = Command::new("perf");
    perf.arg("script").args(options).arg("-i").arg(data);
    perf.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    measure(&mut perf).cpu
}

/// A recorded program.
struct Program {
    name: &'static str,
    command: Vec<String>,
    /// Size in bytes of the large library in which it runs, if it does.
    library: Option<u64>,
}

/// The C++ compiler: its samples are in many functions, each of which is seldom seen twice.
const COMPILER: &str = "g++";

/// The Rust compiler: a large shared library that is on every machine that builds prof.
fn rustc(dir: &Path) -> Option<Program> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?.stdout;
    let lib = PathBuf::from(String::from_utf8(sysroot).ok()?.trim()).join("lib");
    let driver = std::fs::read_dir(lib)
        .ok()?
        .flatten()
        .find(|e| e.file_name().to_string_lossy().starts_with("librustc_driver"))?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets/stacks.rs");
    let out = dir.join("stacks").display().to_string();
    let command = ["rustc", "-O", "--edition=2024", "-o", &out, source.to_str()?];
    let library = Some(driver.metadata().ok()?.len());
    Some(Program { name: "rustc", command: command.map(String::from).to_vec(), library })
}

fn programs(dir: &Path, seconds: f64) -> Vec<Program> {
    let cpp = target("stacks.cpp", "g++", &["-O2", "-fomit-frame-pointer", "-pthread"]);
    let cpp = vec![cpp.display().to_string(), "inlined".into(), seconds.to_string()];
    let rust = dir.join("rust").display().to_string();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets");
    let built = Command::new("rustc")
        .args(["-O", "-Cdebuginfo=1", "--edition=2024", "-o", &rust])
        .arg(source.join("stacks.rs"))
        .status();
    assert!(built.is_ok_and(|s| s.success()), "rustc");
    let script = source.join("extensions.py").display().to_string();
    let python = ["/usr/bin/python3".into(), script, (2.0 * seconds).to_string()].to_vec();
    let out = dir.join("compiled.o").display().to_string();
    let compile = ["g++", "-O2", "-std=c++20", "-c", "-o", &out];
    let compile = compile.map(String::from).into_iter();
    let compile = compile.chain([source.join("stacks.cpp").display().to_string()]).collect();
    let mut programs = vec![
        Program { name: COMPILER, command: compile, library: None },
        Program { name: "C++", command: cpp, library: None },
        Program { name: "Rust", command: vec![rust, seconds.to_string()], library: None },
        Program { name: "python3", command: python, library: None },
    ];
    programs.extend(rustc(dir));
    programs
}

fn main() {
    // It records the samples; without it there is nothing to measure.
    if !support::has_or_advise("perf", "linux-perf") {
        return;
    }
    let seconds: f64 = option("seconds", 3.0);
    let rounds: usize = option("rounds", 7);
    let dir = support::temp_dir();
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
    let mut figures =
        Figures::new(&["Program", "prof, a sample", "prof, a frame", "`perf script`, a sample"]);
    figures.conditions(&format!("{seconds} s of each program; the least of {rounds} passes."));
    let mut claims = Vec::new();
    for program in programs(dir.path(), seconds) {
        compare(dir.path(), &program, rounds, &mut figures, &mut claims);
    }
    for (holds, text) in claims {
        claim(holds, &text);
    }
    figures.publish();
}

/// Records a program and walks its stacks; prints its row and adds it to the figures.
fn compare(
    dir: &Path,
    program: &Program,
    rounds: usize,
    figures: &mut Figures,
    claims: &mut Vec<(bool, String)>,
) {
    let name = program.name;
    let data = dir.join("perf.data");
    if !record(&data, &program.command) {
        println!("{name:<8} perf record failed");
        return figures.row(name, ["n/a"; 3].map(str::to_owned));
    }
    let items = recorded::read(&data);
    let row = row(&items, rounds);
    let walked = perf_script(&data, &["--no-inline", "-F", "tid,time,ip"]);
    let only_read = perf_script(&data, &["-G", "-F", "tid,time"]);
    let perf = (walked - only_read) / f64::from(row.samples.max(1));
    println!(
        "{name:<8} {:>7} {:>7} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>7.2} {:>11.1} {:>10.2}",
        row.samples,
        row.frames,
        row.per_sample(row.warm),
        row.per_frame(row.warm),
        row.per_sample(row.alone),
        row.per_frame(row.alone),
        100.0 * row.hits as f64 / (row.hits + row.misses).max(1) as f64,
        perf * 1e6,
        row.longest.as_secs_f64() * 1e3,
    );
    let ours = [row.per_sample(row.warm), row.per_frame(row.warm)];
    let [sample, frame] = ours.map(|nanoseconds| time(nanoseconds * 1e-9));
    figures.row(name, [sample, frame, time(perf)]);
    if name == COMPILER {
        let first = row.per_sample(row.first.saturating_sub(row.longest));
        println!("{name}: {first:.0} ns a sample at first, without the longest");
    }
    match program.library {
        Some(bytes) => large_binary(bytes >> 20, &row, &program.command, claims),
        None => {
            let frame = row.per_frame(row.alone);
            claims.push((frame <= 200.0, format!("{name}: {frame:.0} ns a frame (200)")));
            let sample = row.per_sample(row.warm);
            claims.push((sample <= 3000.0, format!("{name}: {sample:.0} ns a sample (3000)")));
        }
    }
}

/// The cost of the first stacks through a very large library, and that no sample is lost in the
/// meantime.
fn large_binary(megabytes: u64, row: &Row, command: &[String], claims: &mut Vec<(bool, String)>) {
    let once = (row.first.saturating_sub(row.warm)).as_secs_f64() * 1e3;
    println!("a library of {megabytes} MiB: {once:.1} ms once, over all of its first stacks");
    // The rings hold 256 samples.
    claims.push((once < 200.0, format!("{megabytes} MiB: {once:.1} ms once (a ring's 250)")));
    let dir = support::temp_dir();
    let mut prof = Command::new(support::PROF);
    prof.args(["record", "-v", "-F", "999", "--no-symbolize", "-o"]).arg(dir.path().join("p"));
    prof.arg("--").args(command).stdin(Stdio::null()).stdout(Stdio::null());
    let (_, stderr) = support::start(prof.stderr(Stdio::piped())).finish();
    let none = support::lost(&stderr) == Some(0);
    claims.push((none, format!("{megabytes} MiB: no sample lost while rustc is recorded")));
}
