//! Reading of profiles: `prof report --stdio` compared with `go tool pprof -top` on the same files,
//! other views, differences and merges of many files, and the interactive views on a terminal.
//!
//! cargo bench --bench reading [-- --runs 3 --mb 100 --samples 1000000 --go 1000]
//!
//! Makes pprof files of 1, 10 and MB megabytes (uncompressed) and one of SAMPLES samples, always
//! the same ones, and records the compilation of a program. Both tools read them by turns. Go takes
//! minutes and gigabytes for the largest ones: it reads those above 50 MB once, and those above --go
//! megabytes never.

#![allow(unsafe_code)]

#[path = "support/generated.rs"]
mod generated;
mod support;
#[path = "support/terminal.rs"]
mod terminal;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use generated::{Shape, uncompressed_size};
use support::units::{NOT_MEASURED, count, number, size, time};
use support::{Figures, NOT_INSTALLED, Usage, claim, go_pprof, median, option, peer};
use terminal::Terminal;

/// Files of a comparison, and of a merge.
const MANY: u64 = 100;

const MIB: f64 = 1_048_576.0;

fn main() {
    if generated::maker() {
        return;
    }
    let mut bench = Bench {
        runs: option("runs", 3),
        go_limit: 0,
        figures: Figures::new(&[
            "Measurement",
            "prof, time",
            "CPU time",
            "memory",
            "`go tool pprof`, time",
            "CPU time of it",
            "memory of it",
        ]),
    };
    let mb: u64 = option("mb", 100);
    let samples: u64 = option("samples", 1_000_000);
    bench.go_limit = option("go", 1000) * 1_000_000;
    let dir = support::temp_dir();
    let file = |name: &str| dir.path().join(name);
    for mb in [1, 10, mb] {
        let file = file(&format!("{mb}.pb.gz"));
        generated::make(&file, Shape::of_size(mb * 1_000_000, mb * 3000));
        bench.against_go(&sized(&format!("{mb} MB"), &file), &file);
    }
    let large = file(&format!("{mb}.pb.gz"));
    bench.views(&format!("{mb} MB"), &large);
    bench.terminal(&large);
    if samples > 0 {
        let file = file("samples.pb.gz");
        let shape = Shape { depth: 50, ..Shape::of_samples(samples, 300_000) };
        generated::make(&file, shape);
        let name = format!("{} samples, 50 frames deep", count(samples));
        bench.against_go(&sized(&name, &file), &file);
    }
    if let Some(file) = recorded(dir.path()) {
        // Without its size, which differs each time: rows are found again by their names.
        bench.against_go("a recording of rustc", &file);
    }
    bench.heap(&file("heap.pb.gz"));
    bench.many(dir.path());
    bench.help();
    bench.figures.conditions(&format!(
        "Medians of {} runs. Sizes are uncompressed. A key is answered when the screen first changes \
         (work that takes longer shows a spinner), and done when it changes no more.",
        bench.runs
    ));
    bench.figures.publish();
}

/// Median costs of a command.
fn medians(costs: &[Usage]) -> Usage {
    let of = |field: fn(&Usage) -> f64| median(costs.iter().map(field).collect());
    Usage {
        cpu: of(|u| u.cpu),
        wall: of(|u| u.wall),
        peak: of(|u| u.peak as f64) as u64,
        ok: costs.iter().all(|u| u.ok),
    }
}

fn seconds(duration: Duration) -> String {
    time(duration.as_secs_f64())
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdout(Stdio::null()).stderr(Stdio::null())
}

fn prof(args: &[&str], files: &[&Path]) -> Command {
    let mut command = support::prof();
    command.args(args).args(files);
    command
}

struct Bench {
    runs: usize,
    /// Bytes of the largest file that Go reads.
    go_limit: u64,
    figures: Figures,
}

impl Bench {
    fn measure(&self, command: &mut Command, runs: usize) -> Usage {
        let runs: Vec<Usage> = (0..runs).map(|_| support::measure(quiet(command))).collect();
        let usage = medians(&runs);
        if !usage.ok {
            println!("FAIL  {command:?}");
        }
        usage
    }

    fn row(&mut self, name: &str, prof: &Usage, go: Option<&Usage>, other: &str) {
        let peak = prof.peak as f64 / MIB;
        println!("{name}: {:.3} s, CPU {:.3} s, {peak:.1} MiB", prof.wall, prof.cpu);
        let ours = [time(prof.wall), time(prof.cpu), size(prof.peak as f64)];
        let theirs = match go {
            Some(go) => [
                peer(Some(go.wall), time),
                peer(Some(go.cpu), time),
                peer(Some(go.peak as f64), size),
            ],
            None => [other, other, other].map(str::to_owned),
        };
        self.figures.row(name, ours.into_iter().chain(theirs));
    }

    /// `prof report` of a file, with `go tool pprof -top` by turns.
    fn against_go(&mut self, name: &str, file: &Path) {
        let bytes = uncompressed_size(file);
        let once = bytes > 50_000_000;
        let mut ours = Vec::new();
        let mut theirs = Vec::new();
        let pprof = go_pprof().filter(|_| bytes <= self.go_limit);
        for run in 0..self.runs {
            let mut command = prof(&["report", "--stdio", "-n", "20"], &[file]);
            ours.push(support::measure(quiet(&mut command)));
            if let Some(pprof) = pprof.as_ref().filter(|_| run == 0 || !once) {
                let mut command = Command::new(pprof);
                command.args(["-top", "-nodecount=20"]).arg(file);
                theirs.push(support::measure(quiet(&mut command)));
            }
        }
        let ours = medians(&ours);
        let theirs = (!theirs.is_empty()).then(|| medians(&theirs));
        let name = format!("`prof report`, {name}");
        let other = if bytes <= self.go_limit { NOT_INSTALLED } else { NOT_MEASURED };
        self.row(&name, &ours, theirs.as_ref(), other);
        if let Some(go) = theirs {
            let ratio = go.wall / ours.wall;
            claim(ratio >= 10.0, &format!("{name}: {ratio:.0} times faster than Go (10)"));
        }
        let share = ours.peak as f64 / bytes as f64;
        claim(share <= 2.0, &format!("{name}: {share:.2} times the uncompressed file (2)"));
    }

    /// Views of a file that `go tool pprof` does not have, or takes as long for as for a table.
    fn views(&mut self, name: &str, file: &Path) {
        for args in [
            &["report", "--stdio", "-g"][..],
            &["report", "--stdio", "--focus", "http", "--hide", "tokio"],
            &["report", "--json"],
            &["flame"],
        ] {
            let usage = self.measure(&mut prof(args, &[file]), self.runs);
            self.row(&format!("`prof {}`, {name}", args.join(" ")), &usage, None, NOT_MEASURED);
        }
    }

    /// A heap profile, whose leaf frames are left out, and the same with all frames.
    fn heap(&mut self, file: &Path) {
        let shape = Shape { allocator_frames: 3, ..Shape::of_size(10_000_000, 30_000) };
        generated::make(file, shape);
        for args in [&["report", "--stdio"][..], &["report", "--stdio", "--all-frames"]] {
            let usage = self.measure(&mut prof(args, &[file]), self.runs);
            let name = format!("`prof {}`, 10 MB of a heap profile", args.join(" "));
            self.row(&name, &usage, None, NOT_MEASURED);
        }
    }

    /// The interactive views: the first screen, and each key.
    fn terminal(&mut self, file: &Path) {
        let mut command = prof(&["report", "--stdio", "-n", "1"], &[file]);
        let table = command.stderr(Stdio::null()).output().expect("prof runs").stdout;
        let table = String::from_utf8_lossy(&table).into_owned();
        let hottest = table.split_whitespace().last().expect("a row").to_owned();
        let first = self.first_screen(file, &hottest);
        claim(first < 1.0, &format!("the first screen after {first:.2} s (1 s)"));
        self.one_figure("`prof report` on a terminal: first screen", time(first));
        let loops = BusyLoops::start(2);
        let first = self.first_screen(file, &hottest);
        drop(loops);
        claim(first < 1.0, &format!("the first screen beside two busy loops: {first:.2} s (1 s)"));
        let name = "`prof report` on a terminal: first screen beside two busy loops";
        self.one_figure(name, time(first));
        let mut terminal = Terminal::start(&mut prof(&["report"], &[file]));
        terminal.shows(&hottest);
        terminal.settle();
        let mut answered = Duration::ZERO;
        let mut done = Duration::ZERO;
        for Key { key, action } in KEYS {
            let answer = terminal.press(key);
            let text = |at: Option<Duration>| at.map_or("nothing".to_owned(), seconds);
            println!(
                "  {action:<32} first {:>8}, last {:>8}",
                text(answer.first),
                text(answer.last)
            );
            answered = answered.max(answer.first.unwrap_or_default());
            done = done.max(answer.last.unwrap_or_default());
        }
        let in_time = answered <= Duration::from_millis(50);
        claim(in_time, &format!("the slowest key is answered after {} (50 ms)", seconds(answered)));
        self.one_figure("`prof report` on a terminal: slowest answer to a key", seconds(answered));
        self.one_figure("`prof report` on a terminal: slowest key until done", seconds(done));
    }

    /// Seconds until the first screen, which has the function `hottest`; the median of the runs.
    fn first_screen(&self, file: &Path, hottest: &str) -> f64 {
        let first = |_| {
            let mut terminal = Terminal::start(&mut prof(&["report"], &[file]));
            terminal.shows(hottest).map_or(f64::NAN, |time| time.as_secs_f64())
        };
        median((0..self.runs).map(first).collect())
    }

    /// A row with one figure.
    fn one_figure(&mut self, name: &str, figure: String) {
        let rest = std::iter::repeat_n(NOT_MEASURED.to_owned(), 5);
        self.figures.row(name, std::iter::once(figure).chain(rest));
    }

    /// A difference and a merge of many files of 1 MB.
    fn many(&mut self, dir: &Path) {
        let files: Vec<PathBuf> = (0..MANY).map(|i| dir.join(format!("many-{i}.pb.gz"))).collect();
        for (seed, file) in files.iter().enumerate() {
            let seed = seed as u64 + 2;
            generated::make(file, Shape { seed, ..Shape::of_size(1_000_000, 3000) });
        }
        let (before, after) = files.split_at(files.len() / 2);
        let mut command = support::prof();
        command.args(["diff", "--base"]).args(before).arg("--with").args(after);
        let diff = self.measure(&mut command, self.runs);
        let mut command = support::prof();
        command.arg("merge").args(&files).arg("-o").arg(dir.join("merged.pb.gz"));
        let merge = self.measure(&mut command, self.runs);
        for (name, usage) in [("diff", diff), ("merge", merge)] {
            let name = format!("`prof {name}`, {MANY} files of 1 MB");
            self.row(&name, &usage, None, NOT_MEASURED);
            let cpu = usage.cpu;
            claim(cpu < 2.0, &format!("{name}: {} of CPU (2 s)", time(cpu)));
        }
    }

    fn help(&mut self) {
        let usage = self.measure(&mut prof(&["--help"], &[]), 20);
        self.row("`prof --help`", &usage, None, NOT_MEASURED);
        let milliseconds = usage.wall * 1e3;
        claim(milliseconds < 10.0, &format!("prof --help: {} ms (10 ms)", number(milliseconds)));
    }
}

/// A key as a terminal sends it, and its action.
struct Key {
    key: &'static str,
    action: &'static str,
}

const fn key(key: &'static str, action: &'static str) -> Key {
    Key { key, action }
}

/// Keys in an order in which each changes the screen.
const KEYS: &[Key] = &[
    key("j", "down"),
    key("\x1b[6~", "next page"),
    key("G", "to the end"),
    key("g", "to the beginning"),
    key("/", "search"),
    key("q", "type q"),
    key("z", "type z: no match"),
    key("\x1b", "leave the search"),
    key("s", "sort by total"),
    key("2", "call tree"),
    key("\r", "expand"),
    key("e", "expand all below"),
    key("G", "to the end of the tree"),
    key("c", "collapse all"),
    key("3", "callers"),
    key("4", "flame graph"),
    key("j", "down in the flame graph"),
    key("\r", "zoom"),
    key("1", "functions"),
    key("+", "focus on the selected function"),
    key("x", "hide the selected function"),
    key("u", "remove the filter"),
    key("u", "remove the other filter"),
    key("5", "lines"),
    key("6", "binaries"),
    key("7", "processes"),
    key("8", "threads"),
    key("T", "next sample type"),
    key("C", "coverage"),
    key("Q", "quality"),
    key("i", "header"),
    key("<", "back"),
    key("?", "help"),
];

/// Programs that use a CPU each until they are dropped.
struct BusyLoops(Vec<Child>);

impl BusyLoops {
    fn start(number: usize) -> BusyLoops {
        let start = |_| {
            let mut shell = Command::new("sh");
            shell.args(["-c", "while :; do :; done"]).spawn().expect("a shell")
        };
        BusyLoops((0..number).map(start).collect())
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().and_then(|()| child.wait()).expect("it ends");
        }
    }
}

/// The name of a file, with its size.
fn sized(name: &str, file: &Path) -> String {
    format!("{name} ({})", size(uncompressed_size(file) as f64))
}

/// A recording of the compiler, as it compiles a program.
fn recorded(dir: &Path) -> Option<PathBuf> {
    let file = dir.join("rustc.pb.gz");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/support/generic.rs");
    let program = dir.join("generic.rs");
    let mut text = std::fs::read_to_string(source).expect("a source file");
    text += "\nstatic STEPS: &[&(dyn Step + Sync)] = &[\n";
    (0..100).for_each(|n| text += &format!("    &Work::<{n}>,\n"));
    text += "];\n";
    std::fs::write(&program, text).expect("a file in target/");
    let mut command = Command::new(support::PROF);
    command.args(["record", "-F", "9999", "-e", "cpu-clock", "-o"]).arg(&file);
    command.args(["--", "rustc", "--edition=2024", "-O", "-g", "-o"]);
    command.arg(dir.join("generic")).arg(&program);
    let ok = support::measure(quiet(&mut command)).ok;
    if !ok {
        println!("rustc could not be recorded: it is not installed, or this user may not record");
    }
    ok.then_some(file)
}
