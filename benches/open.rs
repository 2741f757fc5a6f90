//! Opening a large profile: `prof report` compared with `go tool pprof -top`, and reading alone.
//!
//! cargo bench --bench open [-- --runs 3 --mb 100 --locations 300000]
//!
//! Makes a pprof file of MB megabytes (uncompressed), always the same one, of LOCATIONS places in
//! code (half as many functions), and runs both tools on it by turns. Go takes more than a minute a
//! run. Without Go only prof's own figures are measured.

#![allow(unsafe_code)]

mod support;

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use profile::{
    Builder, Column, Function, FunctionId, Label, LabelSetId, LabelValue, Limits, Line, LocationId,
    Mapping, MappingId, Profile, StrId,
};
use support::units::{size, time};
use support::{Figures, PROF, Usage, median, option, peer};

const DEPTH: usize = 40;
/// Bytes of a sample, and of a location with its share of names, uncompressed, about.
const SAMPLE: u64 = 167;
const LOCATION: u64 = 90;

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
    let mb: u64 = option("mb", 100);
    let locations: u64 = option("locations", 300_000);
    let dir = support::temp_dir();
    let file = dir.path().join("large.pb.gz");
    // In a process of its own: the kernel counts a parent's memory into its children's peak.
    let mut maker = Command::new(&args[0]);
    maker.arg("make").arg(&file).args([mb.to_string(), locations.to_string()]);
    assert!(support::measure(&mut maker).ok, "the file could not be made");
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

/// Path of Go's pprof itself; `go tool` in front of it would be counted too.
fn go_pprof() -> Option<String> {
    let out = Command::new("go").args(["tool", "-n", "pprof"]).output().ok()?;
    let path = String::from_utf8(out.stdout).ok()?.trim().to_string();
    (out.status.success() && Path::new(&path).exists()).then_some(path)
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

    // Stacks like those of a program: a function has few callees, and neighbours share their
    // callers.
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
        let name = strings.intern(&name);
        let filename = strings.intern(&file);
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
