//! Names, lines and inlined functions of 100,000 distinct addresses in a Rust binary of 160 MB,
//! without and with prof's cache, compared with `llvm-symbolizer`, `addr2line -i` and `perf
//! report`.
//!
//! cargo bench --bench symbols [-- --addresses 100000 --functions 2050 --limit 60 --runs 3]
//!
//! The first run compiles the program, which takes one to three minutes. `addr2line` and
//! `perf report` are stopped after LIMIT seconds, which is printed.

#![allow(unsafe_code)]

mod support;

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use object::read::ReadCache;
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};
use profile::{Builder, LabelSetId, Mapping, Profile};
use support::units::{NOT_MEASURED, size, time};
use support::{Busy, Figures, NOT_INSTALLED, PROF, Usage, claim, measure, median, option};
use symbols::SymbolOptions;

/// Rounds of the program that are timed, to calculate those of a recording, and seconds that perf
/// records it: thousands of distinct addresses.
const PROBE: u64 = 20_000;
const SECONDS: f64 = 5.0;

/// The argument with which this bench starts itself, to measure the library without files.
const LIBRARY: &str = "--symbolize-only";

/// Addresses in the functions of a binary, and the fields of a mapping of its code.
struct Code {
    addresses: Vec<u64>,
    start: u64,
    limit: u64,
    file_offset: u64,
    build_id: String,
}

/// Picks `count` distinct addresses in functions, evenly over their bytes; always the same.
fn pick(program: &Path, count: usize) -> Code {
    // Not read whole: the kernel counts this process's memory into the peak of its children.
    let data = ReadCache::new(File::open(program).expect("the program can be read"));
    let elf = object::File::parse(&data).expect("an ELF file");
    let text = elf.symbols().filter(|s| s.kind() == SymbolKind::Text && s.size() > 0);
    let mut functions: Vec<(u64, u64)> = text.map(|s| (s.address(), s.size())).collect();
    functions.sort_unstable();
    functions.dedup_by_key(|f| f.0);
    let total: u64 = functions.iter().map(|f| f.1).sum();
    assert!(total > count as u64 * 4, "too little code");
    let mut addresses = std::collections::BTreeSet::new();
    let mut seed = 1_u64;
    while addresses.len() < count {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mut at = (seed >> 16) % total;
        let inside = functions.iter().find_map(|&(start, size)| {
            let here = (at < size).then(|| start + at);
            at = at.saturating_sub(size);
            here
        });
        addresses.extend(inside);
    }
    let code = elf.segments().find(|s| s.permissions().executable()).expect("a segment of code");
    let page = |n: u64| n & !4095;
    let hex = |id: &[u8]| id.iter().map(|b| format!("{b:02x}")).collect();
    Code {
        addresses: addresses.into_iter().collect(),
        start: page(code.address()),
        limit: code.address() + code.size(),
        file_offset: page(code.file_range().0),
        build_id: elf.build_id().expect("intact notes").map(hex).unwrap_or_default(),
    }
}

/// A recording of one sample at each address, without names.
fn recording(program: &Path, code: &Code) -> Profile {
    let mut b = Builder::new(&[("samples", "count")]);
    let file = b.profile.strings.intern(program.to_str().expect("a path in UTF-8"));
    let build_id = b.profile.strings.intern(&code.build_id);
    let mapping = Mapping {
        start: code.start,
        limit: code.limit,
        file_offset: code.file_offset,
        file,
        build_id,
        ..Mapping::default()
    };
    let id = b.add_mapping(mapping);
    for &address in &code.addresses {
        let location = b.location(Some(id), address);
        b.add(&[location], LabelSetId::default(), 1, &[]);
    }
    b.finish(None)
}

fn row(name: &str, usage: Usage) {
    let peak = usage.peak as f64 / f64::from(1 << 20);
    println!("{name:<44} {:>7.3} s CPU {:>7.3} s {peak:>6.0} MiB", usage.cpu, usage.wall);
    assert!(usage.ok, "{name}");
}

/// The run with the middle CPU time.
fn middle(runs: usize, mut run: impl FnMut() -> Usage) -> Usage {
    let mut all: Vec<Usage> = (0..runs.max(1)).map(|_| run()).collect();
    all.sort_by(|a, b| a.cpu.total_cmp(&b.cpu));
    all[all.len() / 2]
}

struct Bench<'a> {
    dir: &'a Path,
    runs: usize,
}

impl Bench<'_> {
    /// `prof symbolize` from `input` to a file.
    fn prof(&self, input: &str, args: &[&str]) -> Usage {
        let mut command = Command::new(PROF);
        command.arg("symbolize").arg(self.dir.join(input)).args(args);
        command.arg("-o").arg(self.dir.join("named.pb.gz"));
        self.run(&mut command)
    }

    /// The library's part of it alone, as it measures it.
    fn library(&self, args: &[&str]) -> Usage {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg(LIBRARY).arg(self.dir.join("raw.pb.gz")).args(args);
        command.env("XDG_CACHE_HOME", self.dir.join("cache")).env_remove("PROF_CACHE_SIZE");
        let output = command.stderr(Stdio::inherit()).output().expect("this program starts");
        let text = String::from_utf8_lossy(&output.stdout);
        let mut words = text.split_whitespace().map(|w| w.parse::<f64>().expect("a number"));
        let mut next = || words.next().expect("two numbers");
        Usage { cpu: next(), wall: next(), peak: 0, ok: output.status.success() }
    }

    fn run(&self, command: &mut Command) -> Usage {
        command.env("XDG_CACHE_HOME", self.dir.join("cache")).env_remove("PROF_CACHE_SIZE");
        measure(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
    }

    fn forget(&self) {
        std::fs::remove_dir_all(self.dir.join("cache")).ok();
    }

    /// The costs of prof, which are printed.
    fn ours(&self) -> Ours {
        let cold = middle(self.runs, || self.prof("raw.pb.gz", &["--no-cache"]));
        row("prof symbolize --no-cache", cold);
        let one = middle(self.runs, || self.prof("raw.pb.gz", &["--no-cache", "-j", "1"]));
        row("  with one thread", one);
        let proper = middle(self.runs, || self.library(&["--no-cache"]));
        row("  the symbolization alone", proper);
        let fill = middle(self.runs, || {
            self.forget();
            self.prof("raw.pb.gz", &[])
        });
        row("prof symbolize, filling the cache", fill);
        let size: u64 = walk(&self.dir.join("cache"));
        println!("{:<44} {:>7} KiB", "  the cache", size / 1024);
        let warm = middle(self.runs, || self.prof("raw.pb.gz", &[]));
        row("prof symbolize, from the cache", warm);
        // Its own entries: each build of prof has its own part of the cache.
        self.library(&[]);
        let cached = middle(self.runs, || self.library(&[]));
        row("  the symbolization alone", cached);
        let nothing = middle(self.runs, || self.prof("named.pb.gz", &["--no-cache"]));
        row("  a recording with names: nothing to do", nothing);
        let peak = [cold, one, fill, warm].iter().map(|u| u.peak).max().unwrap_or(0) >> 20;
        claim(cold.cpu <= 1.0, &format!("{:.2} s of CPU (1 s)", cold.cpu));
        claim(peak <= 250, &format!("{peak} MiB at most (250 MiB)"));
        claim(
            cached.cpu * 10.0 < proper.cpu,
            &format!("from the cache in 1/{:.0} of the CPU (1/10)", proper.cpu / cached.cpu),
        );
        println!("the whole command from the cache: 1/{:.1} of the CPU", cold.cpu / warm.cpu);
        Ours { cold, warm, proper, cached, peak }
    }
}

/// The costs of prof.
struct Ours {
    /// `prof symbolize` without the cache.
    cold: Usage,
    /// The same from the cache.
    warm: Usage,
    /// The symbolization alone, without the cache.
    proper: Usage,
    /// The same from the cache.
    cached: Usage,
    /// Largest memory of all runs of `prof symbolize`, in MiB.
    peak: u64,
}

/// Bytes in the files below a directory.
fn walk(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let size = |e: std::fs::DirEntry| match e.file_type() {
        Ok(t) if t.is_dir() => walk(&e.path()),
        _ => e.metadata().map_or(0, |m| m.len()),
    };
    entries.flatten().map(size).sum()
}

/// Another tool, which reads addresses from standard input, and its exit code.
fn peer(
    bench: &Bench<'_>,
    command: &[&str],
    program: &Path,
    addresses: &[u64],
) -> (Usage, Option<i32>) {
    let input = bench.dir.join("addresses");
    let mut file = File::create(&input).expect("a file");
    let text: String = addresses.iter().map(|a| format!("{a:#x}\n")).collect();
    file.write_all(text.as_bytes()).expect("the disk takes it");
    let mut run = Command::new(command[0]);
    run.args(&command[1..]).arg(program).stdin(File::open(&input).expect("a file"));
    let (usage, code) = support::measure_family(run.stdout(Stdio::null()).stderr(Stdio::null()));
    println!("{:<44} {:>7.3} s CPU {:>7.3} s", command.join(" "), usage.cpu, usage.wall);
    (usage, code)
}

/// The CPU time of another tool, in seconds.
enum Cost {
    Whole(f64),
    /// It was stopped after that time.
    Over(f64),
    /// Scaled from fewer addresses.
    Scaled(f64),
    Failed,
}

impl Cost {
    /// The text of its cell.
    fn text(&self) -> String {
        match self {
            Cost::Whole(seconds) => time(*seconds),
            Cost::Over(seconds) => format!("over {}", time(*seconds)),
            Cost::Scaled(seconds) => format!("{}, scaled", time(*seconds)),
            Cost::Failed => "failed".to_owned(),
        }
    }

    /// Prints its ratio to prof.
    fn compare(&self, name: &str, ours: f64) {
        match self {
            Cost::Whole(seconds) => println!("ratio to {name} {:.1}x", seconds / ours),
            Cost::Over(seconds) => println!("ratio to {name} over {:.0}x", seconds / ours),
            Cost::Scaled(seconds) => {
                println!("ratio to {name}, scaled by addresses, {:.1}x", seconds / ours);
            }
            Cost::Failed => println!("no ratio to {name}: it failed"),
        }
    }
}

fn llvm_symbolizer(bench: &Bench<'_>, program: &Path, code: &Code) -> Cost {
    let command = ["llvm-symbolizer", "--inlines", "--obj"];
    let run = |_| {
        let (usage, code) = peer(bench, &command, program, &code.addresses);
        assert_eq!(code, Some(0), "llvm-symbolizer");
        usage.cpu
    };
    Cost::Whole(median((0..bench.runs.max(1)).map(run).collect()))
}

fn addr2line(bench: &Bench<'_>, program: &Path, code: &Code, limit: u64) -> Cost {
    let limit = limit.to_string();
    let command = ["timeout", &limit, "addr2line", "-a", "-i", "-f", "-C", "-e"];
    let (usage, code) = peer(bench, &command, program, &code.addresses);
    match code {
        Some(0) => Cost::Whole(usage.cpu),
        Some(124) => {
            println!("addr2line was stopped after {limit} s: it needs more than that");
            Cost::Over(usage.cpu)
        }
        other => panic!("addr2line: {other:?}"),
    }
}

/// `perf report` with source lines, scaled to `all` addresses.
fn perf(bench: &Bench<'_>, program: &Path, all: usize, limit: u64) -> Cost {
    let data = bench.dir.join("perf.data");
    let probe = Busy::program(program, PROBE).work();
    let busy = Busy::program(program, (PROBE as f64 * SECONDS / probe.wall) as u64);
    let mut command = Command::new("perf");
    command.args(["record", "-e", "cpu-clock:u", "-F", "9999", "-p", &busy.pid(), "-o"]);
    let perf = support::start(command.arg(&data).stdout(Stdio::null()).stderr(Stdio::null()));
    support::settle(1000);
    busy.work();
    if !perf.finish().0.ok {
        return Cost::Failed;
    }
    let mut script = Command::new("perf");
    script.args(["script", "-F", "ip", "-i"]).arg(&data).stderr(Stdio::null());
    let output = script.output().expect("perf script starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let distinct = text.lines().collect::<std::collections::HashSet<_>>().len();
    let mut command = Command::new("timeout");
    command.arg(limit.to_string()).args(["perf", "report", "--stdio", "-s", "sym,srcline", "-i"]);
    command.arg(&data).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let (usage, code) = support::measure_family(&mut command);
    println!(
        "{:<44} {:>7.3} s CPU {:>7.3} s",
        format!("perf report -s sym,srcline, {distinct} addresses"),
        usage.cpu,
        usage.wall
    );
    let scaled = usage.cpu * all as f64 / distinct as f64;
    match code {
        Some(0) => Cost::Scaled(scaled),
        Some(124) => {
            println!("perf report was stopped after {limit} s: it needs more than that");
            Cost::Over(scaled)
        }
        _ => Cost::Failed,
    }
}

/// Prints CPU and wall-clock seconds of the symbolization in this process.
fn symbolize_only(input: &Path, cached: bool) {
    let mut profile = formats::read_file(input).expect("a recording");
    let cache = symbols::Cache::for_user().expect("a size").filter(|_| cached).map(Into::into);
    let options = SymbolOptions { cache, ..SymbolOptions::default() };
    let cpu = || {
        // SAFETY: rusage is plain numbers, for which zero is a valid value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a local that lives through the call.
        unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
        let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
        seconds(usage.ru_utime) + seconds(usage.ru_stime)
    };
    let before = cpu();
    let since = std::time::Instant::now();
    let outcome = symbols::symbolize(&mut profile, &options, &|_, _| {});
    println!("{} {}", cpu() - before, since.elapsed().as_secs_f64());
    assert!(outcome.named() * 100 > outcome.requested() * 99, "{outcome:?}");
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|a| a == LIBRARY) {
        return symbolize_only(Path::new(&args[2]), !args.iter().any(|a| a == "--no-cache"));
    }
    let count: usize = option("addresses", 100_000);
    let limit: u64 = option("limit", 60);
    let program = support::generic_program(option("functions", 2050));
    let dir = support::temp_dir();
    let bench = Bench { dir: dir.path(), runs: option("runs", 3) };
    let code = pick(&program, count);
    let size = program.metadata().map_or(0, |m| m.len()) as f64 / 1e6;
    println!("{} distinct addresses in a Rust program of {size:.0} MB", code.addresses.len());
    let output = std::fs::File::create(dir.path().join("raw.pb.gz")).expect("a file");
    formats::pprof::write(&recording(&program, &code), output).expect("the disk takes it");
    let ours = bench.ours();
    let others: [(&str, &str, &dyn Fn() -> Cost); 3] = [
        ("llvm-symbolizer", "llvm", &|| llvm_symbolizer(&bench, &program, &code)),
        ("addr2line", "binutils", &|| addr2line(&bench, &program, &code, limit)),
        ("perf", "linux-perf", &|| perf(&bench, &program, count, limit)),
    ];
    let mut times = Vec::new();
    for (name, package, run) in others {
        if !support::has_or_advise(name, package) {
            times.push(NOT_INSTALLED.to_owned());
            continue;
        }
        let cost = run();
        cost.compare(name, ours.cold.cpu);
        times.push(cost.text());
    }
    let mut figures =
        Figures::new(&["Measurement", "prof", "llvm-symbolizer", "addr2line", "`perf report`"]);
    figures.conditions(&format!(
        "{} addresses of a Rust program of {size:.0} MB.",
        support::units::count(code.addresses.len() as u64)
    ));
    add(&mut figures, &ours, times);
    figures.publish();
}

fn add(figures: &mut Figures, ours: &Ours, times: Vec<String>) {
    let mut cells = vec![time(ours.cold.cpu)];
    cells.extend(times);
    figures.row("CPU time of the command", cells);
    for (name, usage) in [
        ("CPU time of the command, from the cache", ours.warm),
        ("CPU time of the symbolization alone", ours.proper),
        ("CPU time of the symbolization alone, from the cache", ours.cached),
    ] {
        figures.row(name, alone(time(usage.cpu)));
    }
    figures.row("memory", alone(size((ours.peak << 20) as f64)));
}

/// The cells of a row that is measured of prof alone.
fn alone(cell: String) -> [String; 4] {
    [cell, NOT_MEASURED.into(), NOT_MEASURED.into(), NOT_MEASURED.into()]
}
