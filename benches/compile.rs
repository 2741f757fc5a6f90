//! CPU time of a recording of the whole machine while compilers run, compared with `perf record` in
//! the same run: large programs that live for a second or two, whose stacks are deep and differ.
//!
//! cargo bench --bench compile [-- --seconds 15 --rounds 3 --hz 999]
//! cargo bench --bench compile -- --compiler rustc --jobs 3
//!
//! With more jobs than CPUs, prof has to share them.
//!
//! Neither looks up symbols. The time includes that of starting and ending.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use support::units::{count, percent, size};
use support::{Figures, claim, median, option, peer};

/// The largest part of perf's CPU time that prof may take.
const SHARE: f64 = 0.2;

/// A compiler, and a source whose compilation takes it a second or two.
struct Compiler {
    /// The command, with `$0` for the source and `$1` for the result.
    command: &'static str,
    file: &'static str,
    text: String,
}

impl Compiler {
    fn new(name: &str) -> Compiler {
        match name {
            "g++" => Compiler { command: "g++ -O2 -c $0 -o $1", file: "many.cc", text: cpp() },
            "rustc" => Compiler {
                command: "rustc -O --edition 2024 --crate-type lib $0 -o $1",
                file: "many.rs",
                text: rust(),
            },
            _ => panic!("--compiler: g++ or rustc"),
        }
    }

    /// Compiles again and again, with so many jobs.
    fn start(&self, dir: &Path, jobs: usize) -> Vec<support::Started> {
        let source = dir.join(self.file);
        std::fs::write(&source, &self.text).expect("a file below target/");
        let script = format!("while :; do {}; done", self.command);
        let start = |job: usize| {
            let mut command = Command::new("setsid");
            command.args(["sh", "-c", &script]).arg(&source).arg(dir.join(format!("many{job}.o")));
            support::start(command.stdin(Stdio::null()).stderr(Stdio::null()))
        };
        (0..jobs).map(start).collect()
    }
}

fn cpp() -> String {
    let mut text = "#include <map>\n#include <regex>\n#include <string>\n".to_owned();
    for i in 0..40 {
        text += &format!(
            "bool f{i}(const std::string &s, std::map<std::string, int> &m) {{ m[s] += {i}; return \
             std::regex_search(s, std::regex(\"a{i}+b*\")); }}\n"
        );
    }
    text
}

fn rust() -> String {
    let mut text = "use std::collections::BTreeMap;\n".to_owned();
    for i in 0..60 {
        text += &format!(
            "#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]\n\
             pub struct S{i} {{ a: String, b: Vec<u8>, c: Option<u64> }}\n\
             pub fn f{i}(m: &mut BTreeMap<S{i}, Vec<S{i}>>, s: &S{i}) -> String {{\n\
             m.entry(s.clone()).or_default().push(s.clone());\n\
             let mut all: Vec<_> = m.values().flatten().cloned().collect();\n\
             all.sort_by_key(|s| s.b.len() + {i});\n\
             format!(\"{{all:?}}\") }}\n"
        );
    }
    text
}

/// A recording: CPU seconds, and the bytes of its file.
struct Run {
    cpu: f64,
    bytes: f64,
    lost: Option<u64>,
}

fn run(command: &mut Command, file: &Path) -> Run {
    let (usage, stderr) =
        support::start(command.stdin(Stdio::null()).stderr(Stdio::piped())).finish();
    assert!(usage.ok, "{command:?}\n{stderr}");
    let bytes = file.metadata().map_or(0, |m| m.len()) as f64;
    std::fs::remove_file(file).ok();
    Run { cpu: usage.cpu, bytes, lost: support::lost(&stderr) }
}

fn prof(dir: &Path, hz: u32, seconds: u32) -> Run {
    let file = dir.join("prof.pb.gz");
    let mut command = support::prof();
    command.args(["record", "-v", "--no-symbolize", "-a", "-F", &hz.to_string()]);
    command.args(["-d", &format!("{seconds}s"), "-o"]).arg(&file);
    run(&mut command, &file)
}

fn perf(dir: &Path, hz: u32, seconds: u32) -> Run {
    let file = dir.join("perf.data");
    let mut command = Command::new("perf");
    command.args(["record", "-e", "cpu-clock", "--call-graph", "dwarf,32768", "-a", "-F"]);
    command.arg(hz.to_string()).arg("-o").arg(&file).args(["--", "sleep", &seconds.to_string()]);
    run(&mut command, &file)
}

fn main() {
    let seconds: u32 = option("seconds", 15);
    let rounds: usize = option("rounds", 3);
    let hz: u32 = option("hz", 999);
    let with_perf = support::has_or_advise("perf", "linux-perf");
    let dir = support::temp_dir();
    let name: String = option("compiler", "g++".to_owned());
    let jobs: usize = option("jobs", 1);
    let compiler = Compiler::new(&name);
    let started = compiler.start(dir.path(), jobs);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(prof(dir.path(), hz, seconds));
        if with_perf {
            theirs.push(perf(dir.path(), hz, seconds));
        }
    }
    for job in started {
        // The shell leads a process group of its own.
        let group = format!("-{}", job.pid());
        Command::new("kill").args(["-KILL", "--", &group]).status().expect("kill");
        job.finish();
    }
    let share = |runs: &[Run]| {
        let cpu = median(runs.iter().map(|run| run.cpu).collect());
        100.0 * cpu / f64::from(seconds)
    };
    let bytes = |runs: &[Run]| median(runs.iter().map(|run| run.bytes).collect());
    let lost: Option<u64> = ours.iter().map(|run| run.lost).sum();
    let mut figures = Figures::new(&["Tool", "CPU time, of a core", "written", "lost"]);
    figures.conditions(&format!(
        "`-a -F {hz}` for {seconds} s while `{name}` runs again and again, {jobs} at once; {rounds} \
         runs of each."
    ));
    let lost = lost.map_or(support::units::NOT_MEASURED.to_owned(), count);
    figures.row("prof", [percent(share(&ours)), size(bytes(&ours)), lost]);
    let peers = with_perf.then(|| (share(&theirs), bytes(&theirs)));
    figures.row(
        "perf, copies of 32 KiB",
        [
            peer(peers.map(|(cpu, _)| cpu), percent),
            peer(peers.map(|(_, bytes)| bytes), size),
            support::units::NOT_MEASURED.to_owned(),
        ],
    );
    if let Some((cpu, _)) = peers {
        let ratio = share(&ours) / cpu;
        let text = format!("at most a fifth of perf's CPU time while {name} compiles: {ratio:.2}");
        claim(ratio <= SHARE, &text);
    }
    figures.publish();
}
