//! Cost of sampling the heap for the program: nanoseconds of CPU time for a malloc and its free,
//! alone, with `prof record -T heap`, and with heaptrack, which records each of them.
//!
//! cargo bench --bench heap [-- --pairs 20000000 --rounds 9]
//!
//! The runs take turns. Each figure is the least of all rounds: other programs on the machine only
//! add to it.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use support::units::{added, time};
use support::{Figures, claim, option, peer, prof, target, temp_dir};

/// Runs a command that is, or starts, the program; returns the nanoseconds that the program prints.
fn nanos(mut command: Command) -> Option<[f64; 2]> {
    let out = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout);
    let numbers = |line: &str| {
        let numbers: Vec<f64> = line.split(' ').filter_map(|n| n.parse().ok()).collect();
        <[f64; 2]>::try_from(numbers).ok()
    };
    text.lines().find_map(numbers)
}

fn bare(program: &Path, pairs: u64) -> Command {
    let mut command = Command::new(program);
    command.arg(pairs.to_string());
    command
}

fn with_prof(program: &Path, pairs: u64, out: &Path) -> Command {
    let mut command = prof();
    command.args(["record", "-q", "-T", "heap", "--no-symbolize", "-o"]).arg(out.join("p.pb.gz"));
    command.arg("--").arg(program).arg(pairs.to_string());
    command
}

fn with_heaptrack(program: &Path, pairs: u64, out: &Path) -> Command {
    let mut command = Command::new("heaptrack");
    command.current_dir(out).arg(program).arg(pairs.to_string());
    command
}

fn main() {
    let pairs: u64 = option("pairs", 20_000_000);
    let rounds: usize = option("rounds", 9);
    let program = target("pairs.c", "gcc", &["-O2"]);
    let dir = temp_dir();
    let heaptrack = support::has_or_advise("heaptrack", "heaptrack");
    let mut runs: Vec<[[f64; 2]; 3]> = Vec::new();
    for _ in 0..rounds {
        let alone = nanos(bare(&program, pairs)).expect("the program prints its times");
        let ours = nanos(with_prof(&program, pairs, dir.path())).expect("prof runs the program");
        // All pairs would take minutes.
        let theirs = heaptrack.then(|| with_heaptrack(&program, pairs / 40, dir.path()));
        runs.push([alone, ours, theirs.and_then(nanos).unwrap_or([f64::NAN; 2])]);
    }
    println!("ns a pair        bare    prof  heaptrack  prof - bare");
    let mut figures = Figures::new(&["Sizes", "without a profiler", "prof `-T heap`", "heaptrack"]);
    figures.conditions(&format!("The least of {rounds} runs."));
    for (i, sizes) in ["64 bytes", "many sizes"].into_iter().enumerate() {
        let of = |tool: usize| runs.iter().map(|run| run[tool][i]).fold(f64::NAN, f64::min);
        let more = of(1) - of(0);
        println!("{sizes:<12} {:>8.2} {:>7.2} {:>10.2} {more:>12.2}", of(0), of(1), of(2));
        let theirs = heaptrack.then(|| of(2) - of(0));
        let cells =
            [time(of(0) * 1e-9), added(more * 1e-9), peer(theirs.map(|ns| ns * 1e-9), added)];
        figures.row(sizes, cells);
        claim(more <= 3.0, &format!("{sizes}: {more:.2} ns more a pair, at most 3"));
        if heaptrack {
            claim(of(1) < of(2), &format!("{sizes}: prof slows it down less than heaptrack"));
        }
    }
    figures.publish();
}
