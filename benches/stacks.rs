//! Which share of stacks is whole, in programs that take long or need much: Java, tokio, a machine
//! that compiles. The others are in tests/it/whole_stacks.rs.
//!
//! cargo bench --bench stacks [-- --seconds 5]
//!
//! prof records at its default settings, perf with `--call-graph dwarf` and `fp`.

mod support;

#[allow(dead_code)]
#[path = "../tests/it/common/pprof.rs"]
mod pprof;
#[path = "../tests/it/common/whole.rs"]
mod whole;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{PROF, claim, option};
use whole::Share;

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null())
}

/// prof's share and what it said; `what`: what to record.
fn prof(dir: &Path, what: &[String]) -> (Share, String) {
    let file = dir.join("profile.pb.gz");
    let mut prof = Command::new(PROF);
    prof.args(["record", "-F", "999", "-o"]).arg(&file).args(what).current_dir(dir);
    let (usage, said) = support::start(quiet(&mut prof).stderr(Stdio::piped())).finish();
    assert!(usage.ok, "{said}");
    let p = pprof::Pprof::decode(&std::fs::read(&file).expect("a profile"));
    (whole::of_profile(&p, |_| true), said)
}

fn perf(dir: &Path, mode: &str, what: &[String]) -> Option<Share> {
    let data = dir.join("perf.data");
    let mut record = Command::new("perf");
    record.args(["record", "-q", "-e", "cpu-clock", "-F", "499", "--call-graph", mode, "-o"]);
    record.arg(&data).args(what).current_dir(dir);
    quiet(&mut record).stderr(Stdio::null()).status().ok().filter(|s| s.success())?;
    let mut script = Command::new("perf");
    script.args(["script", "--no-inline", "-F", "ip,sym,dso", "-i"]).arg(&data);
    let said = script.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    std::fs::remove_file(&data).ok();
    Some(whole::of_perf_script(&String::from_utf8_lossy(&said.stdout)))
}

/// Prints the row of one program; returns prof's share and what it said.
fn row(dir: &Path, name: &str, what: &[String]) -> (Share, String) {
    let (ours, said) = prof(dir, what);
    let mut line = format!("{name:<28} {:>9.3} {:>9}", ours.percent(), ours.all);
    for mode in ["dwarf", "fp"] {
        line += &match perf(dir, mode, what) {
            Some(share) => format!(" {:>9.1}", share.percent()),
            None => format!(" {:>9}", "failed"),
        };
    }
    println!("{line}");
    for (end, n) in ours.others.iter().filter(|(_, n)| **n * 200 > ours.all) {
        println!("    {n:>6} end at {end}");
    }
    (ours, said)
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets").join(name)
}

fn java(dir: &Path, seconds: f64, claims: &mut Vec<(bool, String)>) {
    let mut javac = Command::new("javac");
    javac.arg("-d").arg(dir).arg(source("Stacks.java"));
    if !javac.status().is_ok_and(|s| s.success()) {
        return println!("javac failed");
    }
    let flags = "-XX:+PreserveFramePointer -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit";
    let with = words(&format!("-- java {flags} -cp . Stacks {seconds}"));
    let (share, _) = row(dir, "Java, frame pointers", &with);
    claims.push((share.percent() >= 99.5, format!("Java: {:.3} % (99.5)", share.percent())));
    let (_, said) = row(dir, "Java without", &words(&format!("-- java -cp . Stacks {seconds}")));
    let named = said.contains("for whole stacks") && said.contains("-XX:+PreserveFramePointer");
    claims.push((named, "Java without: the missing flag is said".to_owned()));
}

fn tokio(dir: &Path, seconds: f64, claims: &mut Vec<(bool, String)>) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tokio");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--manifest-path"]).arg(source("tokio/Cargo.toml"));
    cargo.arg("--target-dir").arg(&target);
    if !quiet(&mut cargo).status().is_ok_and(|s| s.success()) {
        return println!("tokio could not be built");
    }
    let program = target.join("release/busy-tokio");
    let what = ["--".to_owned(), program.display().to_string(), seconds.to_string()];
    let (share, _) = row(dir, "Rust, tokio", &what);
    claims.push((share.percent() >= 99.9, format!("tokio: {:.3} % (99.9)", share.percent())));
}

/// rustc and cc1plus, each over and over, while the whole machine is recorded.
fn compiling(dir: &Path, seconds: f64, claims: &mut Vec<(bool, String)>) {
    let script = format!(
        "while :; do g++ -O2 -pthread -o {0}/a {1}; done & g=$!
         while :; do rustc -O --edition=2024 -o {0}/b {2}; done & r=$!
         trap 'kill $g $r; exit' TERM; wait",
        dir.display(),
        source("stacks.cpp").display(),
        source("stacks.rs").display()
    );
    let mut shell = Command::new("sh");
    let load = support::start(quiet(shell.arg("-c").arg(script)).stderr(Stdio::null()));
    support::settle(300);
    let ours = prof(dir, &words(&format!("-a -d {seconds}s"))).0;
    let sleep = words(&format!("-a -- sleep {seconds}"));
    let theirs =
        ["dwarf", "fp"].map(|mode| perf(dir, mode, &sleep).map_or(f64::NAN, |s| s.percent()));
    load.signal(libc::SIGTERM);
    load.finish();
    println!(
        "{:<28} {:>9.3} {:>9} {:>9.1} {:>9.1}",
        "-a, rustc and cc1plus",
        ours.percent(),
        ours.all,
        theirs[0],
        theirs[1]
    );
    for (end, n) in ours.others.iter().filter(|(_, n)| **n * 200 > ours.all) {
        println!("    {n:>6} end at {end}");
    }
    claims.push((ours.percent() >= 98.0, format!("-a: {:.3} % (98)", ours.percent())));
}

fn main() {
    let seconds: f64 = option("seconds", 5.0);
    let dir = support::temp_dir();
    println!(
        "{:<28} {:>9} {:>9} {:>9} {:>9}",
        "whole stacks", "prof %", "stacks", "dwarf %", "fp %"
    );
    let mut claims = Vec::new();
    if support::has("javac") {
        java(dir.path(), seconds, &mut claims);
    } else {
        println!("javac is not installed; on Debian: apt-get install openjdk-17-jdk-headless");
    }
    tokio(dir.path(), seconds, &mut claims);
    compiling(dir.path(), seconds, &mut claims);
    for (holds, what) in claims {
        claim(holds, &what);
    }
}
