//! Generated profiles, always the same ones: stacks like those of a program with few hot functions.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use profile::{
    Builder, Column, Function, FunctionId, Label, LabelSetId, LabelValue, Limits, Line, LocationId,
    Mapping, MappingId, Profile, StrId,
};

use super::support::measure;

/// Bytes of a sample at the usual depth, and of a location with its share of names, uncompressed,
/// about.
const SAMPLE: u64 = 167;
const LOCATION: u64 = 90;

/// Size and contents of a generated profile.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Number of samples, all with distinct stacks.
    pub samples: u64,
    /// Number of frames of a stack, on average.
    pub depth: u64,
    /// Number of places in code. There are half as many functions.
    pub locations: u64,
    /// Number of distinct sets of labels.
    pub label_sets: u64,
    /// Number of binaries.
    pub mappings: u64,
    /// Least bytes of a function's name.
    pub name_bytes: u64,
    /// Selects the stacks. Names are the same with each seed.
    pub seed: u64,
    /// Number of an allocator's frames at the leaf of each stack, at most three: the values are those
    /// of memory. 0: CPU time.
    pub allocator_frames: u64,
}

impl Shape {
    /// Of samples at the usual depth in this many locations.
    pub fn of_samples(samples: u64, locations: u64) -> Shape {
        Shape {
            samples,
            depth: 40,
            locations,
            label_sets: 200,
            mappings: 40,
            name_bytes: 0,
            seed: 1,
            allocator_frames: 0,
        }
    }

    /// A file of about BYTES, uncompressed, with this many locations.
    pub fn of_size(bytes: u64, locations: u64) -> Shape {
        let samples = bytes.saturating_sub(locations * LOCATION) / SAMPLE;
        Shape::of_samples(samples.max(1000), locations.max(1000))
    }

    fn to_args(self) -> [String; 8] {
        let Shape { samples, depth, locations, label_sets, mappings, name_bytes, seed, .. } = self;
        let frames = self.allocator_frames;
        let numbers = [samples, depth, locations, label_sets, mappings, name_bytes, seed, frames];
        numbers.map(|n| n.to_string())
    }

    fn from_args(args: &[String]) -> Shape {
        let numbers: Vec<u64> = args.iter().map(|a| a.parse().expect("a number")).collect();
        let [samples, depth, locations, label_sets, mappings, name_bytes, seed, frames] =
            numbers[..]
        else {
            panic!("eight numbers: {args:?}")
        };
        Shape {
            samples,
            depth,
            locations,
            label_sets,
            mappings,
            name_bytes,
            seed,
            allocator_frames: frames,
        }
    }
}

/// Makes a file, in a process of its own, because the kernel counts a parent's memory into its
/// children's peak. The bench's `main` has to begin with [`maker`].
pub fn make(file: &Path, shape: Shape) {
    let mut command = Command::new(std::env::current_exe().expect("this binary's path"));
    command.arg("make").arg(file).args(shape.to_args());
    assert!(measure(&mut command).ok, "the file could not be made");
}

/// Does the work of [`make`]; returns whether this is a process that it started.
pub fn maker() -> bool {
    let args: Vec<String> = std::env::args().collect();
    let [_, mode, file, shape @ ..] = &args[..] else { return false };
    if mode != "make" {
        return false;
    }
    write(Path::new(file), Shape::from_args(shape));
    true
}

/// Counts the bytes of the uncompressed form.
pub fn uncompressed_size(file: &Path) -> u64 {
    let file = std::fs::File::open(file).expect("the file just written");
    let mut gzip = flate2::read::GzDecoder::new(file);
    io::copy(&mut gzip, &mut io::sink()).expect("sound gzip")
}

fn write(file: &Path, shape: Shape) {
    let profile = generated(shape);
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

fn generated(shape: Shape) -> Profile {
    let types = match shape.allocator_frames {
        0 => [("samples", "count"), ("cpu", "nanoseconds")],
        _ => [("inuse_objects", "count"), ("inuse_space", "bytes")],
    };
    let mut b = Builder::new(&types);
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
    let mappings = mappings(&mut b, shape.mappings);
    functions(&mut b, &mut random, shape);
    let locations = add_locations(&mut b, &mut random, &mappings, shape.locations as u32);
    let labels = labels(&mut b, &mut random, shape.label_sets);
    let allocator = allocator(&mut b, shape.allocator_frames);
    if shape.seed != 1 {
        random = Random(shape.seed);
    }

    // Stacks like those of a program: a function has few callees, and neighbours share their
    // callers.
    let mut stack: Vec<LocationId> = Vec::new();
    let mut seen = 0;
    while seen < shape.samples {
        let keep = random.below(stack.len() as u32 + 1) as usize;
        stack.truncate(keep.max(3));
        let depth = shape.depth as usize - 15 + random.below(30) as usize;
        while stack.len() < depth {
            let caller = stack.last().map_or(0, |l| l.0);
            let callee = caller.wrapping_mul(31).wrapping_add(random.skewed(6) * 5077);
            stack.push(locations[callee as usize % locations.len()]);
        }
        let leaf_first: Vec<_> = allocator.iter().chain(stack.iter().rev()).copied().collect();
        let before = b.distinct();
        let labels = labels[random.skewed(labels.len() as u32) as usize];
        b.add(&leaf_first, labels, 1, &[(Column(1), 1_001_001 * i64::from(1 + random.skewed(9)))]);
        seen += u64::from(b.distinct() > before);
    }
    b.finish(None)
}

fn mappings(b: &mut Builder, count: u64) -> Vec<MappingId> {
    (0..count)
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

fn functions(b: &mut Builder, random: &mut Random, shape: Shape) {
    for i in 0..shape.locations / 2 {
        let mut part = || PARTS[random.below(16) as usize];
        let mut name = format!("{}::{}::<{}::{}>::{}_{i}", part(), part(), part(), part(), part());
        while name.len() < shape.name_bytes as usize {
            name += "::";
            name += part();
        }
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

/// The frames of an allocator, leaf first.
fn allocator(b: &mut Builder, count: u64) -> Vec<LocationId> {
    let names = ["malloc", "operator new", "std::vector<int>::reserve"];
    names.into_iter().take(count as usize).map(|name| b.named_location(name)).collect()
}

fn labels(b: &mut Builder, random: &mut Random, sets: u64) -> Vec<LabelSetId> {
    let keys = ["pid", "process", "tid", "thread"].map(|k| b.profile.strings.intern(k));
    (0..sets as i64)
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
