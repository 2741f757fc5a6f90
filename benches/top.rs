//! CPU time that `prof top -a` takes on a terminal, with the processes that it starts, in each ten
//! seconds: beside two busy programs, beside a compiler, and beside a burst of new binaries.
//!
//! cargo bench --bench top [-- --seconds 60 --hz 0 --binaries 300]

#![allow(unsafe_code)]

mod support;
// Other benches press keys and read the screen.
#[allow(dead_code)]
#[path = "support/terminal.rs"]
mod terminal;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use support::units::percent;
use support::{Figures, claim, option};
use terminal::Terminal;

/// Length of a window, as the limit of prof is stated.
const WINDOW: Duration = Duration::from_secs(10);

/// Ticks of a process and of its children, ended ones and others: prof's symbolizing process lives
/// for a lookup.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, fields)) = stat.rsplit_once(") ") else { return 0 };
    let field = |i: usize| fields.split(' ').nth(i).and_then(|n| n.parse::<u64>().ok());
    // utime, stime, cutime and cstime: the fields 14 to 17.
    let own: u64 = (11..15).filter_map(field).sum();
    own + children(pid).into_iter().map(ticks).sum::<u64>()
}

/// The children of all threads of a process.
fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|t| std::fs::read_to_string(t.path().join("children")).ok());
    lists
        .flat_map(|l| l.split_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// Different sources of C++, of which each compilation takes about a second.
fn write_sources(dir: &Path) -> Vec<PathBuf> {
    let headers = ["map", "regex", "iostream", "algorithm", "functional", "unordered_map"];
    let write = |i: usize| {
        let (first, second) = (headers[i % 6], headers[(i + 1 + i / 6) % 6]);
        let text = format!(
            "#include <{first}>\n#include <{second}>\n#include <vector>\n#include <algorithm>\n\
             struct S{i} {{ int v; }};\n\
             int f{i}(std::vector<S{i}> &all) {{\n\
             std::sort(all.begin(), all.end(), [](auto &a, auto &b) {{ return a.v < b.v; }});\n\
             return all.empty() ? {i} : all[0].v; }}\n"
        );
        let file = dir.join(format!("source{i}.cc"));
        std::fs::write(&file, text).expect("a directory of this bench");
        file
    };
    (0..12).map(write).collect()
}

/// Runs copies of programs from /usr/bin, each a binary that nobody has seen.
fn burst(dir: &Path, programs: &[PathBuf], stop: &AtomicBool) {
    for (i, program) in programs.iter().cycle().enumerate() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let copy = dir.join(format!("new{i}"));
        if std::fs::copy(program, &copy).is_err() {
            continue;
        }
        // Most print their help; none reads a terminal or runs for long.
        let mut command = Command::new("timeout");
        let mut child = start(command.arg("1").arg(&copy).arg("--help"));
        child.wait().expect("a child");
        std::fs::remove_file(&copy).ok();
    }
}

/// Programs of /usr/bin.
fn programs(most: usize) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/usr/bin").expect("/usr/bin").flatten();
    let is_elf = |path: &PathBuf| {
        let bytes = std::fs::read(path).unwrap_or_default();
        bytes.starts_with(b"\x7fELF") && bytes.len() < 20 << 20
    };
    let mut paths: Vec<PathBuf> = entries.map(|e| e.path()).filter(|p| !p.is_symlink()).collect();
    paths.sort();
    paths.into_iter().filter(is_elf).take(most).collect()
}

/// The percentages of a core in each window of `prof top -a`, from its start.
fn windows(seconds: u64, hz: u32) -> Vec<f64> {
    let mut command = support::prof();
    command.args(["top", "-a"]);
    if hz > 0 {
        command.args(["-F", &hz.to_string()]);
    }
    let mut terminal = Terminal::start(&mut command);
    let began = Instant::now();
    let mut last = (Duration::ZERO, 0);
    let mut shares = Vec::new();
    while began.elapsed() < Duration::from_secs(seconds) {
        terminal.drain(WINDOW * (shares.len() as u32 + 1), began);
        let now = (began.elapsed(), ticks(terminal.pid()));
        // 100 ticks are a second.
        shares.push((now.1 - last.1) as f64 / (now.0 - last.0).as_secs_f64());
        last = now;
    }
    shares
}

fn row(figures: &mut Figures, name: &str, shares: &[f64]) {
    println!("{name}: {}", shares.iter().map(|s| format!("{s:.2}%")).collect::<Vec<_>>().join(" "));
    let most = shares[1..].iter().copied().fold(0.0, f64::max);
    let mean = shares[1..].iter().sum::<f64>() / (shares.len() - 1).max(1) as f64;
    figures.row(name, [percent(shares[0]), percent(mean), percent(most)]);
    claim(most < 1.0, &format!("{name}: {most:.2} % of a core in ten seconds"));
}

fn main() {
    let seconds: u64 = option("seconds", 60);
    let hz: u32 = option("hz", 0);
    let binaries: usize = option("binaries", 300);
    let columns =
        ["`prof top -a` beside", "first 10 s", "10 s after them, mean", "10 s after them, most"];
    let mut figures = Figures::new(&columns);
    figures.conditions(&format!(
        "{seconds} s on a terminal, without names from earlier runs; percent of a core, with the \
         processes that prof starts."
    ));
    let dir = support::temp_dir();
    let python = ["-c", "while True: x = sum(range(1000))"];
    let mut busy = [
        start(Command::new("python3").args(python)),
        start(Command::new("openssl").args(["speed", "-seconds", "600", "sha256"])),
    ];
    row(&mut figures, "two busy programs", &windows(seconds, hz));
    for program in &mut busy {
        program.kill().and_then(|()| program.wait()).expect("it ends");
    }
    let stop = AtomicBool::new(false);
    let sources = write_sources(dir.path());
    let compile = || {
        for source in sources.iter().cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
            let mut command = Command::new("g++");
            let object = source.with_extension("o");
            start(command.args(["-O1", "-c"]).arg(source).arg("-o").arg(object)).wait().ok();
        }
    };
    let programs = programs(binaries);
    std::thread::scope(|scope| {
        scope.spawn(compile);
        row(&mut figures, "g++", &windows(seconds, hz));
        scope.spawn(|| burst(dir.path(), &programs, &stop));
        row(&mut figures, "g++ and new binaries all the time", &windows(seconds, hz));
        stop.store(true, Ordering::Relaxed);
    });
    figures.publish();
}
