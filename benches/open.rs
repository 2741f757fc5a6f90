//! Opening a large profile: `prof report` compared with `go tool pprof -top`, and reading alone.
//!
//! cargo bench --bench open [-- --runs 3 --mb 100 --locations 300000]
//!
//! Makes a pprof file of MB megabytes (uncompressed), always the same one, of LOCATIONS places in
//! code (half as many functions), and runs both tools on it by turns. Go takes more than a minute a
//! run. Without Go only prof's own figures are measured.

#![allow(unsafe_code)]

#[path = "support/generated.rs"]
mod generated;
mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use generated::{Shape, uncompressed_size};
use support::units::{size, time};
use support::{Figures, PROF, Usage, go_pprof, median, option, peer};

fn main() {
    if generated::maker() {
        return;
    }
    let args: Vec<String> = std::env::args().collect();
    if let [_, mode, file] = &args[..]
        && mode == "read-alone"
    {
        return read_alone(file);
    }
    let mb: u64 = option("mb", 100);
    let locations: u64 = option("locations", 300_000);
    let dir = support::temp_dir();
    let file = dir.path().join("large.pb.gz");
    generated::make(&file, Shape::of_size(mb * 1_000_000, locations));
    compare(&file, option("runs", 3));
}

fn read_alone(file: &str) {
    let profile = formats::read_file(Path::new(file)).expect("a profile");
    println!("{} samples, total {}", profile.samples.len(), profile.total(1));
}

/// A command on the file, and its costs.
struct Tool {
    name: &'static str,
    command: Command,
    costs: Vec<Usage>,
}

impl Tool {
    fn new(name: &'static str, program: &Path, args: &[&str], file: &Path) -> Tool {
        let mut command = Command::new(program);
        command.args(args).arg(file).stdout(Stdio::null()).stderr(Stdio::null());
        Tool { name, command, costs: Vec::new() }
    }

    fn run(&mut self) {
        let usage = support::measure(&mut self.command);
        if usage.ok {
            self.costs.push(usage);
        } else {
            println!("{} failed: {:?}", self.name, self.command);
        }
    }

    fn median(&self, of: fn(&Usage) -> f64) -> f64 {
        median(self.costs.iter().map(of).collect())
    }
}

fn wall(usage: &Usage) -> f64 {
    usage.wall
}

fn cpu(usage: &Usage) -> f64 {
    usage.cpu
}

fn peak(usage: &Usage) -> f64 {
    usage.peak as f64
}

fn compare(file: &Path, runs: usize) {
    let this = std::env::current_exe().expect("this binary's path");
    let mut tools = vec![
        Tool::new("read alone", &this, &["read-alone"], file),
        Tool::new("prof report", Path::new(PROF), &["report", "-n", "20"], file),
    ];
    match go_pprof() {
        Some(pprof) => tools.push(Tool::new(
            "go tool pprof -top",
            Path::new(&pprof),
            &["-top", "-nodecount=20"],
            file,
        )),
        None => println!("go tool pprof is not installed; on Debian: apt-get install golang-go"),
    }
    for _ in 0..runs {
        // By turns, so that a slow phase of the machine meets all of them.
        tools.iter_mut().for_each(Tool::run);
    }
    println!("{:<20} {:>17} {:>17} {:>9}", "", "wall min/median", "cpu min/median", "peak RSS");
    tools.iter().for_each(print);
    if let [_, ours, theirs] = &tools[..] {
        let ratio = |of| theirs.median(of) / ours.median(of);
        println!(
            "prof report: {:.1} times faster by wall, {:.1} times by CPU, {:.2} of the memory",
            ratio(wall),
            ratio(cpu),
            1.0 / ratio(peak)
        );
    }
    publish(file, &tools);
}

fn print(tool: &Tool) {
    let both = |of: fn(&Usage) -> f64| {
        let min = tool.costs.iter().map(of).fold(f64::INFINITY, f64::min);
        format!("{min:.3} / {:.3} s", tool.median(of))
    };
    let peak = tool.median(peak) / f64::from(1 << 20);
    println!("{:<20} {:>17} {:>17} {peak:>5.0} MiB", tool.name, both(wall), both(cpu));
}

fn publish(file: &Path, tools: &[Tool]) {
    let mut figures =
        Figures::new(&["Measurement", "prof", "prof, reading alone", "`go tool pprof`"]);
    figures.conditions(&format!(
        "A pprof file of {}, medians of {} runs.",
        size(uncompressed_size(file) as f64),
        tools[0].costs.len()
    ));
    let mut add = |name, of: fn(&Usage) -> f64, text: fn(f64) -> String| {
        let go = tools.get(2).map(|tool| tool.median(of));
        figures.row(name, [text(tools[1].median(of)), text(tools[0].median(of)), peer(go, text)]);
    };
    add("time", wall, time);
    add("CPU time", cpu, time);
    add("memory", peak, size);
    figures.publish();
}
