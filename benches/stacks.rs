//! Share of stacks that reach the entry of their thread, by program, compared with perf.
//!
//! cargo bench --bench stacks [-- --seconds 5]
//!
//! prof records at its default settings, perf with `--call-graph dwarf` and `fp`. Java, tokio and
//! the whole machine run for SECONDS, the other programs for a second or two.
//! tests/it/whole_stacks.rs records the others, too, and fails when prof falls below a bound.

mod support;

#[allow(dead_code)]
#[path = "../tests/it/common/pprof.rs"]
mod pprof;
#[path = "../tests/it/common/whole.rs"]
mod whole;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::units::share;
use support::{Figures, NOT_INSTALLED, PROF, claim, compile_as, has, option};
use whole::Share;

/// A claim, and whether it holds.
type Claim = (bool, String);

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null())
}

/// A recording of prof.
struct Recorded {
    share: Share,
    pids: Vec<String>,
}

impl Recorded {
    /// Removes the perf maps that its processes left behind.
    fn remove_maps(&self) {
        for pid in &self.pids {
            std::fs::remove_file(format!("/tmp/perf-{pid}.map")).ok();
        }
    }
}

/// Records with prof; `arguments`: the last ones.
fn prof(dir: &Path, arguments: &[String]) -> Recorded {
    let file = dir.join("profile.pb.gz");
    let mut prof = Command::new(PROF);
    prof.args(["record", "-F", "999", "-o"]).arg(&file).args(arguments).current_dir(dir);
    let (usage, stderr) = support::start(quiet(&mut prof).stderr(Stdio::piped())).finish();
    assert!(usage.ok, "{stderr}");
    let p = pprof::Pprof::decode(&std::fs::read(&file).expect("a profile"));
    let pids = p.label_values("pid").iter().map(ToString::to_string).collect();
    Recorded { share: whole::of_profile(&p, |_| true), pids }
}

fn perf(dir: &Path, mode: &str, arguments: &[String]) -> Option<Share> {
    let data = dir.join("perf.data");
    let mut record = Command::new("perf");
    record.args(["record", "-q", "-e", "cpu-clock", "-F", "499", "--call-graph", mode, "-o"]);
    if !support::perf_record(record.arg(&data).args(arguments).current_dir(dir)) {
        return None;
    }
    let mut script = Command::new("perf");
    script.args(["script", "--no-inline", "-F", "ip,sym,dso", "-i"]).arg(&data);
    let printed = script.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    std::fs::remove_file(&data).ok();
    Some(whole::of_perf_script(&String::from_utf8_lossy(&printed.stdout)))
}

/// The rows so far.
struct Table {
    dir: tempfile::TempDir,
    figures: Figures,
    with_perf: bool,
}

impl Table {
    /// Records a program with prof and perf.
    fn row(&mut self, name: &str, arguments: &[String]) -> Recorded {
        let ours = prof(self.dir.path(), arguments);
        self.add(name, &ours.share, arguments);
        ours
    }

    /// Records with perf, and prints and adds the row.
    fn add(&mut self, name: &str, ours: &Share, arguments: &[String]) {
        let mut line = format!("{name:<34} {:>9.3} {:>9}", ours.percent(), ours.all);
        let mut cells = vec![share(ours.percent())];
        for mode in ["dwarf", "fp"] {
            let theirs = self.with_perf.then(|| perf(self.dir.path(), mode, arguments));
            let cell = match &theirs {
                None => NOT_INSTALLED.to_owned(),
                Some(None) => "failed".to_owned(),
                Some(Some(theirs)) => share(theirs.percent()),
            };
            line += &format!(" {cell:>9}");
            cells.push(cell);
        }
        println!("{line}");
        for (end, n) in ours.others.iter().filter(|(_, n)| **n * 200 > ours.all) {
            println!("    {n:>6} end at {end}");
        }
        self.figures.row(name, cells);
    }

    /// Adds a row of a program that cannot run here.
    fn absent(&mut self, name: &str, why: &str) {
        println!("{name:<34} {why}");
        self.figures.row(name, [why, why, why].map(str::to_owned));
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets").join(name)
}

/// The command of a program, for prof and perf.
fn run(program: &Path, args: &[&str]) -> Vec<String> {
    let mut command = vec!["--".to_owned(), program.display().to_string()];
    command.extend(args.iter().map(|arg| (*arg).to_owned()));
    command
}

const CPP: &[&str] = &["-O2", "-fomit-frame-pointer", "-pthread"];

fn cpp(table: &mut Table) {
    let build = |name: &str, flags: &[&str]| {
        compile_as(name, &source("stacks.cpp"), "g++", &[CPP, flags].concat())
    };
    let plain = build("stacks", &[]);
    let fixed = build("stacks-static", &["-static", "-DWITHOUT_PLUGINS"]);
    let pie = build("stacks-static-pie", &["-static-pie", "-DWITHOUT_PLUGINS"]);
    let plugin = ["-O2", "-fomit-frame-pointer", "-shared", "-fPIC"];
    let plugin = compile_as("plugin.so", &source("plugin.cpp"), "g++", &plugin);
    for (name, program, mode) in [
        ("C++, inlined functions", &plain, "inlined"),
        ("C++, exceptions", &plain, "exceptions"),
        ("C++, `dlopen`", &plain, "plugin"),
        ("C++, 1,000 frames deep", &plain, "deep"),
        ("C++, stack-aligned frames", &plain, "aligned"),
        ("C++, static", &fixed, "inlined"),
        ("C++, static-pie", &pie, "aligned"),
    ] {
        // The other modes ignore the plugin.
        table.row(name, &run(program, &[mode, "1.2", &plugin.display().to_string()]));
    }
}

fn openssl(table: &mut Table) {
    for (name, args) in [
        ("OpenSSL, sha512", "-seconds 2 -bytes 8192 -evp sha512"),
        ("OpenSSL, aes-gcm", "-seconds 2 -bytes 8192 -evp aes-256-gcm"),
        ("OpenSSL, chacha20", "-seconds 2 -bytes 8192 -evp chacha20-poly1305"),
        ("OpenSSL, rsa", "-seconds 1 rsa2048 ecdsap256"),
    ] {
        if has("openssl") {
            table.row(name, &words(&format!("-- openssl speed {args}")));
        } else {
            table.absent(name, NOT_INSTALLED);
        }
    }
}

fn rust(table: &mut Table) {
    let flags = ["-O", "-Cdebuginfo=1", "--edition=2024"];
    let program = compile_as("stacks-rust", &source("stacks.rs"), "rustc", &flags);
    table.row("Rust, release build", &run(&program, &["1.2"]));
}

fn python(table: &mut Table) {
    const NAME: &str = "python3 with C extensions";
    // Debian's, also where another one comes first in PATH.
    let python = Path::new("/usr/bin/python3");
    if !python.exists() {
        return table.absent(NAME, NOT_INSTALLED);
    }
    table.row(NAME, &run(python, &[&source("extensions.py").display().to_string(), "3"]));
}

fn node(table: &mut Table) {
    const NAME: &str = "node with `--perf-basic-prof`";
    if !has("node") {
        return table.absent(NAME, NOT_INSTALLED);
    }
    let script = source("busy.js").display().to_string();
    table.row(NAME, &run(Path::new("node"), &["--perf-basic-prof", &script, "2"])).remove_maps();
}

fn go(table: &mut Table) {
    if !has("go") {
        return table.absent("Go, with cgo", NOT_INSTALLED);
    }
    let program = compile_as("stacks-go", &source("stacks.go"), "go", &["build"]);
    table.row("Go, with cgo", &run(&program, &["3"]));
}

fn signals(table: &mut Table) {
    let program = compile_as("switches", &source("switches.c"), "gcc", CPP);
    table.row("signal handlers", &run(&program, &["signals", "1"]));
}

fn java(table: &mut Table, seconds: f64, claims: &mut Vec<Claim>) {
    const NAMES: [&str; 2] = ["Java with `-XX:+PreserveFramePointer`", "Java"];
    if !support::has_or_advise("javac", "openjdk-17-jdk-headless") {
        return NAMES.into_iter().for_each(|name| table.absent(name, NOT_INSTALLED));
    }
    let mut javac = Command::new("javac");
    javac.arg("-d").arg(table.dir.path()).arg(source("Stacks.java"));
    if !javac.status().is_ok_and(|s| s.success()) {
        return NAMES.into_iter().for_each(|name| table.absent(name, "failed"));
    }
    let flags = "-XX:+PreserveFramePointer -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit";
    let with = words(&format!("-- java {flags} -cp . Stacks {seconds}"));
    let recorded = table.row(NAMES[0], &with);
    recorded.remove_maps();
    let share = recorded.share;
    claims
        .push((share.percent() >= 99.5, format!("Java with it: {:.3} % (99.5)", share.percent())));
    let without = table.row(NAMES[1], &words(&format!("-- java -cp . Stacks {seconds}"))).share;
    claims.push((without.percent() >= 97.0, format!("Java: {:.3} % (97)", without.percent())));
}

fn tokio(table: &mut Table, seconds: f64, claims: &mut Vec<Claim>) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tokio");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--manifest-path"]).arg(source("tokio/Cargo.toml"));
    cargo.arg("--target-dir").arg(&target);
    if !quiet(&mut cargo).status().is_ok_and(|s| s.success()) {
        return table.absent("Rust, tokio", "failed");
    }
    let program = target.join("release/busy-tokio");
    let share = table.row("Rust, tokio", &run(&program, &[&seconds.to_string()])).share;
    claims.push((share.percent() >= 99.9, format!("tokio: {:.3} % (99.9)", share.percent())));
}

/// Records the whole machine while rustc and cc1plus run, each again and again.
fn compiling(table: &mut Table, seconds: f64, claims: &mut Vec<Claim>) {
    let script = format!(
        "while :; do g++ -O2 -pthread -o {0}/a {1}; done & g=$!
         while :; do rustc -O --edition=2024 -o {0}/b {2}; done & r=$!
         trap 'kill $g $r; exit' TERM; wait",
        table.dir.path().display(),
        source("stacks.cpp").display(),
        source("stacks.rs").display()
    );
    let mut shell = Command::new("sh");
    let load = support::start(quiet(shell.arg("-c").arg(script)).stderr(Stdio::null()));
    support::settle(300);
    let ours = prof(table.dir.path(), &words(&format!("-a -d {seconds}s"))).share;
    let sleep = words(&format!("-a -- sleep {seconds}"));
    table.add("the whole machine while rustc and cc1plus compile", &ours, &sleep);
    load.signal(libc::SIGTERM);
    load.finish();
    claims.push((ours.percent() >= 98.0, format!("-a: {:.3} % (98)", ours.percent())));
}

fn main() {
    let seconds: f64 = option("seconds", 5.0);
    let with_perf = support::has_or_advise("perf", "linux-perf");
    let figures = Figures::new(&["Program", "prof", "perf, dwarf", "perf, fp"]);
    let mut table = Table { dir: support::temp_dir(), figures, with_perf };
    println!("{:<34} {:>9} {:>9} {:>9} {:>9}", "whole stacks", "prof %", "stacks", "dwarf", "fp");
    let mut claims = Vec::new();
    cpp(&mut table);
    openssl(&mut table);
    rust(&mut table);
    tokio(&mut table, seconds, &mut claims);
    python(&mut table);
    node(&mut table);
    go(&mut table);
    java(&mut table, seconds, &mut claims);
    signals(&mut table);
    compiling(&mut table, seconds, &mut claims);
    for (holds, text) in claims {
        claim(holds, &text);
    }
    table.figures.publish();
}
