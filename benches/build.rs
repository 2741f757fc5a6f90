//! The README's first build, from a clean clone with an empty target directory: its time, and the
//! size of the binary that it leaves.
//!
//! cargo bench --bench build [-- --rounds 1]
//!
//! Packages are fetched before: the time of a network is not that of a build. Uses all CPUs.

mod support;

use std::path::Path;
use std::process::Command;

use support::units::{number, time};
use support::{Figures, Usage, claim, measure_family, median, option};

/// Seconds on two cores: half of what the build took before it was made faster.
const LONGEST: f64 = 270.0;

/// In megabytes.
const LARGEST: f64 = 15.0;

fn main() {
    let rounds: usize = option("rounds", 1);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = support::temp_dir();
    let clone = dir.path().join("prof");
    let git = Command::new("git").args(["clone", "-q"]).arg(root).arg(&clone).status();
    assert!(git.is_ok_and(|status| status.success()), "git clone");
    assert!(cargo(&clone).arg("fetch").status().is_ok_and(|s| s.success()), "cargo fetch");
    let builds: Vec<Usage> = (0..rounds).map(|_| build(&clone)).collect();
    let wall = median(builds.iter().map(|usage| usage.wall).collect());
    let cpu = median(builds.iter().map(|usage| usage.cpu).collect());
    let binary = clone.join("target/release/prof");
    let megabytes = binary.metadata().expect("cargo wrote it").len() as f64 / 1e6;
    println!("cargo build --release: {wall:.0} s, CPU {cpu:.0} s");
    println!("target/release/prof: {megabytes:.2} MB");
    let mut figures = Figures::new(&["Measurement", "prof"]);
    figures.conditions(&format!("Clean clone, {rounds} build(s), packages fetched before."));
    figures.row("`cargo build --release`", [time(wall)]);
    figures.row("its CPU time", [time(cpu)]);
    figures.row("size of the binary", [format!("{} MB", number(megabytes))]);
    claim(wall < LONGEST, &format!("the first build takes less than {LONGEST} s"));
    claim(megabytes < LARGEST, &format!("the binary has less than {LARGEST} MB"));
    figures.publish();
}

/// Cargo in this directory, without the settings of the build of this bench.
fn cargo(directory: &Path) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(directory);
    for name in ["CARGO_TARGET_DIR", "CARGO_INCREMENTAL", "RUSTFLAGS"] {
        command.env_remove(name);
    }
    command
}

/// Builds the clone from nothing.
fn build(clone: &Path) -> Usage {
    // There is none in the first round.
    std::fs::remove_dir_all(clone.join("target")).ok();
    let (usage, _) = measure_family(cargo(clone).args(["build", "--release", "-q"]));
    assert!(usage.ok, "cargo build --release");
    usage
}
