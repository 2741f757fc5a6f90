//! Generated profiles with labels, inlined functions and two binaries.

use std::fs::File;
use std::path::{Path, PathBuf};

use formats::pprof;
use profile::{
    Builder, Column, Function, FunctionId, Label, LabelValue, Line, LocationId, Mapping, MappingId,
    StrId,
};

/// A function, its source file and a line.
type Source = (&'static str, &'static str, i64);

/// Names, source files and inlining as in the profiles of pprof's own tests.
const LOCATIONS: &[(u64, &[Source])] = &[
    (0x1000, &[("line1000", "testdata/file1000.src", 1)]),
    (0x2000, &[("line2001", "testdata/file2000.src", 9), ("line2000", "testdata/file2000.src", 4)]),
    (
        0x3000,
        &[
            ("line3002", "testdata/file3000.src", 2),
            ("line3001", "testdata/file3000.src", 5),
            ("line3000", "testdata/file3000.src", 6),
        ],
    ),
    (0x3001, &[("line3001", "testdata/file3000.src", 8), ("line3000", "testdata/file3000.src", 9)]),
    (0x3002, &[("(anonymous namespace)::run(int)", "a.cc", 3)]),
    (0x3003, &[("A::operator()(int) const", "b.cc", 0), ("main.(*T).Run", "t.go", 7)]),
    (0x4000, &[]),
    (0x4100, &[]),
];

/// The sample types and labels of a profile.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Cpu,
    Heap,
    Contention,
}

impl Kind {
    fn types(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Kind::Cpu => &[("samples", "count"), ("cpu", "milliseconds")],
            Kind::Heap => &[
                ("alloc_objects", "count"),
                ("alloc_space", "bytes"),
                ("inuse_objects", "count"),
                ("inuse_space", "bytes"),
            ],
            Kind::Contention => &[("contentions", "count"), ("delay", "nanoseconds")],
        }
    }

    /// Unit of the default type.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Kind::Cpu => "milliseconds",
            Kind::Heap => "bytes",
            Kind::Contention => "nanoseconds",
        }
    }
}

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

fn labels(b: &mut Builder, kind: Kind, random: &mut Random) -> profile::LabelSetId {
    let mut labels = Vec::new();
    let strings = &mut b.profile.strings;
    let mut text = |key: &str, value: String| {
        let value = LabelValue::Str(strings.intern(&value));
        labels.push(Label { key: strings.intern(key), value });
    };
    if random.below(4) > 0 {
        text("key1", format!("tag{}", random.below(3)));
    }
    if random.below(2) > 0 {
        text("key2", format!("tag{}", random.below(2)));
    }
    if let Kind::Heap = kind {
        let bytes = 512 << random.below(12);
        let mebibytes = strings.intern("megabytes");
        let mut number = |key: &str, value, unit| {
            labels.push(Label { key: strings.intern(key), value: LabelValue::Num { value, unit } });
        };
        number("bytes", bytes, StrId::EMPTY);
        number("request", bytes - 7, StrId::EMPTY);
        if bytes > 8192 {
            number("arena", bytes >> 9, mebibytes);
        }
    }
    labels.sort_unstable();
    b.profile.labels.intern(&labels)
}

fn locations(b: &mut Builder, app: MappingId, lib: MappingId) -> Vec<LocationId> {
    let mut all = Vec::new();
    for (address, lines) in LOCATIONS {
        let mapping = if *address < 0x3002 { app } else { lib };
        let id = b.location(Some(mapping), *address);
        let mut out = Vec::new();
        for &(name, file, line) in *lines {
            let strings = &mut b.profile.strings;
            let [name, filename] = [name, file].map(|text| strings.intern(text));
            let function = Function { name, system_name: name, filename, start_line: 0 };
            let known = b.profile.functions.iter().position(|f| *f == function);
            let index = known.unwrap_or(b.profile.functions.len());
            if known.is_none() {
                b.profile.functions.push(function);
            }
            out.push(Line { function: FunctionId(index as u32), line, column: 0 });
        }
        b.profile.set_lines(id, &out);
        all.push(id);
    }
    all
}

/// Writes a profile of this kind with random stacks.
pub(super) fn built(dir: &Path, kind: Kind) -> PathBuf {
    let mut random = Random(kind as u64 + 5);
    let mut b = Builder::new(kind.types());
    let mut mapping = |path: &str, start| {
        let file = b.profile.strings.intern(path);
        let file_offset = start;
        b.add_mapping(Mapping {
            start,
            limit: start + 0x2002,
            file,
            file_offset,
            ..Mapping::default()
        })
    };
    let app = mapping("/path/to/testbinary", 0x1000);
    let lib = mapping("/path/to/library.so", 0x3002);
    let locations = locations(&mut b, app, lib);
    for _ in 0..60 {
        let stack: Vec<LocationId> =
            (0..1 + random.below(6)).map(|_| locations[random.below(8) as usize]).collect();
        let labels = labels(&mut b, kind, &mut random);
        let weights: Vec<(Column, i64)> = (0..kind.types().len())
            .map(|column| (Column(column), 1 + random.below(100_000) as i64))
            .collect();
        let root_first: Vec<LocationId> = stack.into_iter().rev().collect();
        b.add_stack(&root_first, None, labels, 0, &weights);
    }
    let mut profile = b.finish(Some(app));
    profile.period = 1;
    profile.period_type = profile.sample_types[0];
    let path = dir.join(format!("{kind:?}.pb.gz"));
    pprof::write(&profile, File::create(&path).unwrap()).unwrap();
    path
}
