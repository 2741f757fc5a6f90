//! What it does to a running process to put prof's heap library into it: how long its thread does
//! not run, and what a malloc and its free take before, meanwhile and afterwards.
//!
//! cargo bench --bench inject [-- --threads 0,100,1000 --rounds 5]
//!
//! One thread allocates all the time and looks at the clock; the others sleep. Where there are
//! none, it is the one that prof borrows.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use support::{claim, median, option, prof, target, temp_dir};

/// A tenth of a second: when it was told, nanoseconds a pair, the longest gap in milliseconds.
type Slice = (Instant, f64, f64);

/// What prof says of how long a thread stood still, in milliseconds.
fn stood_still(said: &str) -> f64 {
    let before = said.split("was stopped for ").nth(1);
    before.and_then(|rest| rest.split(' ').next()?.parse().ok()).expect("prof says so")
}

/// Nanoseconds before, meanwhile and afterwards; the longest gap without and with prof; and how
/// long prof says.
fn round(threads: usize) -> [f64; 6] {
    let program = target("slices.c", "gcc", &["-O2", "-pthread"]);
    let mut command = Command::new(program);
    command.args(["6", &threads.to_string()]).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the target starts");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let (sender, slices) = mpsc::channel::<Slice>();
    let reader = std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let mut numbers = line.split(' ').filter_map(|n| n.parse().ok());
            let (Some(nanos), Some(gap)) = (numbers.next(), numbers.next()) else { continue };
            sender.send((Instant::now(), nanos, gap)).ok();
        }
    });
    support::settle(1500);
    let (dir, began) = (temp_dir(), Instant::now());
    let mut record = prof();
    record.args(["record", "-T", "heap", "--inject", "-d", "2s", "--no-symbolize", "-p"]);
    record.arg(child.id().to_string()).arg("-o").arg(dir.path().join("p.pb.gz"));
    let out = record.stdin(Stdio::null()).output().expect("prof runs");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    let ended = Instant::now();
    child.wait().expect("it ends");
    reader.join().expect("it ends, too");
    let slices: Vec<Slice> = slices.iter().collect();
    let margin = Duration::from_millis(600);
    let nanos = |from: Instant, to: Instant| {
        let inside = slices.iter().filter(|s| s.0 >= from && s.0 < to);
        median(inside.map(|s| s.1).collect())
    };
    let longest = |with: bool| {
        let inside =
            |s: &&Slice| (s.0 >= began && s.0 < ended + Duration::from_millis(150)) == with;
        slices.iter().filter(inside).map(|s| s.2).fold(0.0, f64::max)
    };
    let first = slices.first().expect("it speaks").0;
    [
        nanos(first, began),
        nanos(began + margin, ended - margin),
        nanos(ended + Duration::from_millis(200), ended + Duration::from_secs(9)),
        longest(false),
        longest(true),
        stood_still(&said),
    ]
}

fn main() {
    let rounds: usize = option("rounds", 5);
    let counts: String = option("threads", "0,100,1000".to_owned());
    println!("ns a pair: before, with prof, afterwards; ms that it did not run: alone, with prof");
    for count in counts.split(',').map(|n| n.parse::<usize>().expect("a number")) {
        let runs: Vec<[f64; 6]> = (0..rounds).map(|_| round(count)).collect();
        let of = |i: usize| median(runs.iter().map(|run| run[i]).collect());
        println!(
            "{count:>5} threads: {:>6.2} {:>6.2} {:>6.2} ns   {:>7.3} {:>7.3} ms, by prof's word {:.1} ms",
            of(0),
            of(1),
            of(2),
            of(3),
            of(4),
            of(5)
        );
        let more = median(runs.iter().map(|run| run[1] - run[0]).collect());
        let after = median(runs.iter().map(|run| run[2] - run[0]).collect());
        claim(of(4) <= 50.0, &format!("it did not run for {:.3} ms at most, 50 allowed", of(4)));
        claim(more <= 3.0, &format!("{more:.2} ns more a pair while it is recorded, at most 3"));
        claim(after <= 0.5, &format!("{after:.2} ns more a pair afterwards"));
    }
}
