//! The start-up time of prof, and the size of its binary.
//!
//! cargo bench --bench startup [-- --rounds 100]

mod support;

use std::process::{Command, Stdio};

use support::units::{number, time};
use support::{Figures, PROF, claim, measure, median, option};

fn main() {
    let times: usize = option("rounds", 100);
    let mut figures = Figures::new(&["Measurement", "prof"]);
    figures.conditions(&format!("Medians of {times} runs."));
    for args in [["--help"].as_slice(), &["--version"], &["record", "--help"]] {
        let run = || measure(Command::new(PROF).args(args).stdout(Stdio::null()));
        for _ in 0..5 {
            run();
        }
        let runs: Vec<_> = (0..times).map(|_| run()).collect();
        let wall = median(runs.iter().map(|u| u.wall * 1e3).collect());
        let slowest = runs.iter().map(|u| u.wall * 1e3).fold(0.0, f64::max);
        let cpu = median(runs.iter().map(|u| u.cpu * 1e3).collect());
        let line = format!("prof {}", args.join(" "));
        println!("{line:<20} {wall:.2} ms (slowest {slowest:.2} ms), CPU {cpu:.2} ms");
        figures.row(&format!("`{line}`"), [time(wall / 1e3)]);
        if args == ["--help"] {
            claim(wall < 10.0, "prof --help starts in under 10 ms");
        }
    }
    let dir = support::temp_dir();
    let stripped = dir.path().join("prof");
    let ok = Command::new("strip").arg("-o").arg(&stripped).arg(PROF).status();
    assert!(ok.is_ok_and(|s| s.success()), "strip: install binutils");
    let mb = stripped.metadata().expect("strip wrote it").len() as f64 / 1e6;
    println!("stripped: {mb:.2} MB");
    figures.row("size of the stripped binary", [format!("{} MB", number(mb))]);
    claim(mb < 15.0, "the stripped release binary stays under 15 MB");
    figures.publish();
}
