//! Opening a large profile: `prof report` against `go tool pprof -top`, and reading alone.
//!
//! `cargo bench --bench open` makes a pprof file of 100 MB (uncompressed), always the same one,
//! and runs both tools on it in turn. `-- --runs N` says how often, `-- --mb N` how large,
//! `-- --locations N` of how many places in code (half as many functions). Go takes more than a
//! minute a run. Without Go only prof's own figures are printed.

#![allow(unsafe_code)]

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use profile::{
    Builder, Column, Function, FunctionId, Label, LabelSetId, LabelValue, Limits, Line, LocationId,
    Mapping, MappingId, Profile, StrId,
};

const DEPTH: usize = 40;
/// Bytes of a sample, and of a location with its share of names, uncompressed, about.
const SAMPLE: u64 = 167;
const LOCATION: u64 = 90;

/// What one run of a tool took.
#[derive(Clone, Copy)]
struct Cost {
    wall: Duration,
    cpu: Duration,
    peak_kib: i64,
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match &args[..] {
        [_, mode, file] if mode == "read-alone" => return read_alone(file),
        [_, mode, file, mb, locations] if mode == "make" => {
            let number = |text: &String| text.parse::<u64>().expect("a number");
            return make(Path::new(file), number(mb) * 1_000_000, number(locations) as u32);
        }
        _ => {}
    }
    let option = |name: &str, default: u64| {
        let value = args.iter().skip_while(|a| *a != name).nth(1);
        value.map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("{name}: {v}: no number")))
    };
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("large.pb.gz");
    // By a process of its own: the kernel counts a parent's memory into its children's peak.
    let made = Command::new(&args[0])
        .arg("make")
        .arg(&file)
        .arg(option("--mb", 100).to_string())
        .arg(option("--locations", 300_000).to_string())
        .status();
    assert!(made.is_ok_and(|status| status.success()), "the file could not be made");
    compare(&file, option("--runs", 3) as usize);
}

fn read_alone(file: &str) {
    let profile = formats::read_file(Path::new(file)).expect("a profile");
    println!("{} samples, total {}", profile.samples.len(), profile.total(1));
}

fn compare(file: &Path, runs: usize) {
    let file = file.to_str().expect("a path in UTF-8");
    let this = std::env::current_exe().expect("this binary's path");
    let prof = env!("CARGO_BIN_EXE_prof");
    let mut tools: Vec<(&str, Vec<String>)> = vec![
        ("read alone", vec![this.display().to_string(), "read-alone".into(), file.into()]),
        ("prof report", [prof, "report", "-n", "20", file].map(String::from).into()),
    ];
    match go_pprof() {
        Some(pprof) => tools.push((
            "go tool pprof -top",
            [&pprof, "-top", "-nodecount=20", file].map(String::from).into(),
        )),
        None => println!("SKIPPED: go tool pprof (not installed)"),
    }
    let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); tools.len()];
    for _ in 0..runs {
        // In turn, so that a slow phase of the machine meets all of them.
        for ((name, command), costs) in tools.iter().zip(&mut costs) {
            costs.extend(run(name, command));
        }
    }
    println!("{:<20} {:>17} {:>17} {:>9}", "", "wall min/median", "cpu min/median", "peak RSS");
    for ((name, _), costs) in tools.iter().zip(&costs) {
        if !costs.is_empty() {
            row(name, costs);
        }
    }
    if let [_, ours, theirs] = &costs[..]
        && !ours.is_empty()
        && !theirs.is_empty()
    {
        let ratio = |of: fn(&Cost) -> f64| median(theirs, of) / median(ours, of);
        println!(
            "prof report: {:.1} times faster by wall, {:.1} times by CPU, {:.2} of the memory",
            ratio(|c| c.wall.as_secs_f64()),
            ratio(|c| c.cpu.as_secs_f64()),
            1.0 / ratio(|c| c.peak_kib as f64)
        );
    }
}

fn row(name: &str, costs: &[Cost]) {
    let both = |of: fn(&Cost) -> f64| {
        let min = costs.iter().map(of).fold(f64::INFINITY, f64::min);
        format!("{min:.3} / {:.3} s", median(costs, of))
    };
    let wall = both(|c| c.wall.as_secs_f64());
    let cpu = both(|c| c.cpu.as_secs_f64());
    let peak = median(costs, |c| c.peak_kib as f64) / 1024.0;
    println!("{name:<20} {wall:>17} {cpu:>17} {peak:>5.0} MiB");
}

fn median(costs: &[Cost], of: fn(&Cost) -> f64) -> f64 {
    let mut all: Vec<f64> = costs.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Path of Go's pprof itself; `go tool` in front of it would be counted too.
fn go_pprof() -> Option<String> {
    let out = Command::new("go").args(["tool", "-n", "pprof"]).output().ok()?;
    let path = String::from_utf8(out.stdout).ok()?.trim().to_string();
    (out.status.success() && Path::new(&path).exists()).then_some(path)
}

/// Runs a command; `None` when it fails, which is printed.
fn run(name: &str, command: &[String]) -> Option<Cost> {
    let start = Instant::now();
    // wait4 below waits for it.
    #[allow(clippy::zombie_processes)]
    let child = Command::new(&command[0])
        .args(&command[1..])
        .arg0(&command[0])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command starts");
    let mut status = 0;
    // SAFETY: an all-zero rusage is a valid one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: waits for our own child, which nobody else waits for; both pointers are live.
    let waited = unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut usage) };
    assert_eq!(waited, child.id() as i32, "wait4: {}", io::Error::last_os_error());
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    if status != 0 {
        println!("SKIPPED: {name} ended with status {status:#x}");
        return None;
    }
    Some(Cost {
        wall: start.elapsed(),
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        peak_kib: usage.ru_maxrss,
    })
}

/// A small generator of numbers, the same on every machine (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, n: u32) -> u32 {
        (self.next() % u64::from(n)) as u32
    }

    /// Below n, small numbers much more often: few functions are hot.
    fn skewed(&mut self, n: u32) -> u32 {
        let x = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        ((x * x * x) * f64::from(n)) as u32
    }
}

/// Counts the bytes of the uncompressed form.
fn uncompressed_size(file: &Path) -> u64 {
    let file = std::fs::File::open(file).expect("the file just written");
    let mut gzip = flate2::read::GzDecoder::new(file);
    io::copy(&mut gzip, &mut io::sink()).expect("sound gzip")
}

fn make(file: &Path, wanted: u64, locations: u32) {
    let samples = wanted.saturating_sub(u64::from(locations) * LOCATION) / SAMPLE;
    let profile = large_profile(samples.max(1000) as usize, locations.max(1000));
    let start = Instant::now();
    let output = std::fs::File::create(file).expect("a writable directory");
    formats::pprof::write(&profile, &output).expect("enough disk");
    let packed = output.metadata().expect("a file").len();
    let took = start.elapsed().as_secs_f64();
    println!(
        "{:.1} MiB ({:.1} MiB packed, written in {took:.2} s): {} samples, {} locations, {} functions",
        uncompressed_size(file) as f64 / f64::from(1 << 20),
        packed as f64 / f64::from(1 << 20),
        profile.samples.len(),
        profile.locations.len(),
        profile.functions.len(),
    );
    io::stdout().flush().expect("standard output");
}

fn large_profile(samples: usize, locations: u32) -> Profile {
    let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
    const N: usize = 1 << 30;
    b = b.with_limits(Limits {
        nodes: N,
        rows: N,
        locations: N,
        label_sets: N,
        thread_sets: N,
        ..Limits::default()
    });
    let mut random = Random(1);
    b.profile.time_nanos = 1_700_000_000_000_000_000;
    b.profile.duration_nanos = 60_000_000_000;
    b.profile.period = 1_001_001;
    b.profile.period_type = b.profile.sample_types[1];
    let mappings = mappings(&mut b);
    functions(&mut b, &mut random, locations / 2);
    let locations = add_locations(&mut b, &mut random, &mappings, locations);
    let labels = labels(&mut b, &mut random);

    // Stacks as a program makes them: callees of a function are a few, and neighbours share
    // their callers.
    let mut stack: Vec<LocationId> = Vec::new();
    let mut seen = 0;
    while seen < samples {
        let keep = random.below(stack.len() as u32 + 1) as usize;
        stack.truncate(keep.max(3));
        let depth = DEPTH - 15 + random.below(30) as usize;
        while stack.len() < depth {
            let caller = stack.last().map_or(0, |l| l.0);
            let callee = caller.wrapping_mul(31).wrapping_add(random.skewed(6) * 5077);
            stack.push(locations[callee as usize % locations.len()]);
        }
        let leaf_first: Vec<_> = stack.iter().rev().copied().collect();
        let before = b.distinct();
        let labels = labels[random.skewed(labels.len() as u32) as usize];
        b.add(&leaf_first, labels, Column(1), 1_001_001 * i64::from(1 + random.skewed(9)));
        seen += (b.distinct() > before) as usize;
    }
    b.finish(None)
}

fn mappings(b: &mut Builder) -> Vec<MappingId> {
    (0..40u64)
        .map(|i| {
            let file = match i {
                0 => "/usr/local/bin/server".to_string(),
                _ => format!("/usr/lib/x86_64-linux-gnu/libcomponent{i}.so.{i}.2.1"),
            };
            let start = 0x7f00_0000_0000 + (i << 28);
            let file = b.profile.strings.intern(&file);
            let build_id = b.profile.strings.intern(&format!("{:040x}", i * 0x1234_5678_9abc));
            b.add_mapping(Mapping {
                start,
                limit: start + (1 << 28),
                file_offset: 0,
                file,
                build_id,
                has_functions: true,
                has_filenames: true,
                has_line_numbers: true,
                has_inline_frames: true,
            })
        })
        .collect()
}

const PARTS: [&str; 16] = [
    "server",
    "http",
    "Connection",
    "poll_ready",
    "tokio",
    "runtime",
    "Scheduler",
    "execute",
    "hashbrown",
    "RawTable",
    "reserve_rehash",
    "serde",
    "Deserializer",
    "visit_map",
    "storage",
    "Iterator",
];

fn functions(b: &mut Builder, random: &mut Random, count: u32) {
    for i in 0..count {
        let mut part = || PARTS[random.below(16) as usize];
        let name = format!("{}::{}::<{}::{}>::{}_{i}", part(), part(), part(), part(), part());
        let file = format!("/src/{}/{}/{}_{}.rs", part(), part(), part(), i / 40);
        let strings = &mut b.profile.strings;
        let (name, filename) = (strings.intern(&name), strings.intern(&file));
        let start_line = i64::from(random.below(3000));
        b.profile.functions.push(Function { name, system_name: name, filename, start_line });
    }
}

fn add_locations(
    b: &mut Builder,
    random: &mut Random,
    mappings: &[MappingId],
    count: u32,
) -> Vec<LocationId> {
    let functions = b.profile.functions.len() as u32;
    (0..count)
        .map(|i| {
            let mapping = mappings[random.skewed(mappings.len() as u32) as usize];
            let start = b.profile.mappings[mapping.0 as usize].start;
            let id = b.location(Some(mapping), start + u64::from(i) * 37);
            let lines: Vec<Line> = (0..1 + random.skewed(4))
                .map(|_| Line {
                    function: FunctionId(random.below(functions)),
                    line: i64::from(random.below(3000)),
                    column: 0,
                })
                .collect();
            b.profile.set_lines(id, &lines);
            id
        })
        .collect()
}

fn labels(b: &mut Builder, random: &mut Random) -> Vec<LabelSetId> {
    let keys = ["pid", "process", "tid", "thread"].map(|k| b.profile.strings.intern(k));
    (0..200)
        .map(|i| {
            let process = b.profile.strings.intern(&format!("server-{}", i / 20));
            let thread = b.profile.strings.intern(&format!("worker-{}", i % 20));
            let number = |n: i64| LabelValue::Num { value: n, unit: StrId::EMPTY };
            let tid = 4000 + i * 3 + i64::from(random.below(3));
            let values = [
                number(4000 + i / 20),
                LabelValue::Str(process),
                number(tid),
                LabelValue::Str(thread),
            ];
            let set: Vec<Label> =
                keys.iter().zip(values).map(|(&key, value)| Label { key, value }).collect();
            b.profile.labels.intern(&set)
        })
        .collect()
}
