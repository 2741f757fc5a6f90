//! Effects of injecting prof's heap library into a running process: the time for which a thread
//! does not run, and the time of a malloc and its free before, while recording, and afterwards.
//!
//! cargo bench --bench inject [-- --threads 0,100,1000 --rounds 5]
//!
//! One thread allocates all the time and reads the clock; the others sleep. Without others, it is
//! the thread that prof borrows.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use support::units::{count, time};
use support::{Figures, claim, median, option, prof, target, temp_dir};

/// A tenth of a second of the target.
struct Slice {
    end: Instant,
    /// Nanoseconds of a pair.
    pair: f64,
    /// The longest gap in milliseconds.
    gap: f64,
}

/// The milliseconds for which prof reports that a thread stood still.
fn stood_still(stderr: &str) -> f64 {
    let before = stderr.split("was stopped for ").nth(1);
    before.and_then(|rest| rest.split(' ').next()?.parse().ok()).expect("prof -v reports it")
}

/// One recording of the target.
struct Round {
    /// Nanoseconds of a pair before the recording.
    before: f64,
    /// The same while it is recorded.
    during: f64,
    afterwards: f64,
    /// The longest gap without prof, in milliseconds.
    gap_alone: f64,
    /// The same with prof.
    gap: f64,
    /// Milliseconds for which a thread stood still, as prof reports.
    reported: f64,
}

fn round(threads: usize) -> Round {
    let program = target("slices.c", "gcc", &["-O2", "-pthread"]);
    let mut command = Command::new(program);
    command.args(["6", &threads.to_string()]).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the target starts");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let (sender, slices) = mpsc::channel::<Slice>();
    let reader = std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let mut numbers = line.split(' ').filter_map(|n| n.parse().ok());
            let (Some(pair), Some(gap)) = (numbers.next(), numbers.next()) else { continue };
            sender.send(Slice { end: Instant::now(), pair, gap }).ok();
        }
    });
    support::settle(1500);
    let dir = temp_dir();
    let began = Instant::now();
    let mut record = prof();
    record.args(["record", "-v", "-T", "heap", "--inject", "-d", "2s", "--no-symbolize", "-p"]);
    record.arg(child.id().to_string()).arg("-o").arg(dir.path().join("p.pb.gz"));
    let out = record.stdin(Stdio::null()).output().expect("prof runs");
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{stderr}");
    let ended = Instant::now();
    child.wait().expect("it ends");
    reader.join().expect("it ends, too");
    let slices: Vec<Slice> = slices.iter().collect();
    let margin = Duration::from_millis(600);
    let nanos = |from: Instant, to: Instant| {
        let inside = slices.iter().filter(|s| s.end >= from && s.end < to);
        median(inside.map(|s| s.pair).collect())
    };
    let longest = |with: bool| {
        let end = ended + Duration::from_millis(150);
        let inside = |s: &&Slice| (s.end >= began && s.end < end) == with;
        slices.iter().filter(inside).map(|s| s.gap).fold(0.0, f64::max)
    };
    let first = slices.first().expect("a line of the target").end;
    Round {
        before: nanos(first, began),
        during: nanos(began + margin, ended - margin),
        afterwards: nanos(ended + Duration::from_millis(200), ended + Duration::from_secs(9)),
        gap_alone: longest(false),
        gap: longest(true),
        reported: stood_still(&stderr),
    }
}

fn main() {
    let rounds: usize = option("rounds", 5);
    let counts: String = option("threads", "0,100,1000".to_owned());
    println!("ns a pair: before, with prof, afterwards; ms that it did not run: alone, with prof");
    let mut figures = Figures::new(&[
        "Other threads",
        "stopped, as prof reports",
        "longest gap alone",
        "longest gap with prof",
        "a pair before",
        "a pair while recording",
        "a pair afterwards",
    ]);
    figures.conditions(&format!("Medians of {rounds} recordings."));
    for threads in counts.split(',').map(|n| n.parse::<usize>().expect("a number")) {
        let runs: Vec<Round> = (0..rounds).map(|_| round(threads)).collect();
        compare(threads, &runs, &mut figures);
    }
    figures.publish();
}

/// Prints the medians of the runs and adds them to the figures.
fn compare(threads: usize, runs: &[Round], figures: &mut Figures) {
    let of = |field: fn(&Round) -> f64| median(runs.iter().map(field).collect());
    let pairs = [of(|r| r.before), of(|r| r.during), of(|r| r.afterwards)];
    let gaps = [of(|r| r.gap_alone), of(|r| r.gap)];
    let reported = of(|r| r.reported);
    println!(
        "{threads:>5} threads: {:>6.2} {:>6.2} {:>6.2} ns   {:>7.3} {:>7.3} ms, prof reports \
         {reported:.1} ms",
        pairs[0], pairs[1], pairs[2], gaps[0], gaps[1]
    );
    let [gap_alone, gap] = gaps.map(|milliseconds| time(milliseconds * 1e-3));
    let [before, during, afterwards] = pairs.map(|nanoseconds| time(nanoseconds * 1e-9));
    figures.row(
        &count(threads as u64),
        [time(reported * 1e-3), gap_alone, gap, before, during, afterwards],
    );
    let more = of(|r| r.during - r.before);
    let after = of(|r| r.afterwards - r.before);
    claim(gaps[1] <= 50.0, &format!("it did not run for {:.3} ms at most, 50 allowed", gaps[1]));
    claim(more <= 3.0, &format!("{more:.2} ns more a pair while it is recorded, at most 3"));
    claim(after <= 0.5, &format!("{after:.2} ns more a pair afterwards"));
}
