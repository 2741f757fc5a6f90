//! Properties of the reader and the writer on generated profiles and bytes.

use proptest::collection::vec;
use proptest::prelude::*;

use profile::*;

use super::{read, write};

/// A profile's content, independent of the ids in its tables.
pub(crate) fn content(p: &Profile) -> String {
    use std::fmt::Write;
    let s = |id: StrId| p.str(id);
    let t = |t: ValueType| format!("{}/{}", p.str(t.kind), p.str(t.unit));
    let mapping = |m: &Mapping| {
        let Mapping { start, limit, file_offset, .. } = *m;
        let flags = [m.has_functions, m.has_filenames, m.has_line_numbers, m.has_inline_frames];
        let file = s(m.file);
        let build_id = s(m.build_id);
        format!("{start:x} {limit:x} {file_offset:x} {file:?} {build_id:?} {flags:?}")
    };
    let mut out = String::new();
    let types: Vec<_> = p.sample_types.iter().map(|&ty| t(ty)).collect();
    let comments: Vec<_> = p.comments.iter().map(|&c| s(c)).collect();
    writeln!(out, "{types:?} {} {} {comments:?}", t(p.period_type), p.period).unwrap();
    writeln!(out, "{} {} {:?}", p.time_nanos, p.duration_nanos, s(p.doc_url)).unwrap();
    let rest = [p.default_sample_type, p.drop_frames, p.keep_frames].map(s);
    writeln!(out, "{rest:?} {:?}", p.mappings.iter().map(mapping).collect::<Vec<_>>()).unwrap();
    for (i, sample) in p.samples.iter().enumerate() {
        writeln!(out, "sample {:?} {:?}", p.values_of(i), p.times.get(sample.times)).unwrap();
        for label in p.labels.get(sample.labels) {
            let value = match label.value {
                LabelValue::Str(v) => format!("{:?}", s(v)),
                LabelValue::Num { value, unit } => format!("{value} {:?}", s(unit)),
            };
            writeln!(out, "  {:?}={value}", s(label.key)).unwrap();
        }
        for &location in p.stacks.get(sample.stack) {
            let l = &p.locations[location.0 as usize];
            let m = l.mapping.map(|m| mapping(&p.mappings[m.0 as usize]));
            writeln!(out, "  at {:x} {m:?} {}", l.address, l.is_folded).unwrap();
            for line in p.lines_of(location) {
                let f = &p.functions[line.function.0 as usize];
                let names = [f.name, f.system_name, f.filename].map(s);
                let numbers = [f.start_line, line.line, line.column];
                writeln!(out, "    {names:?} {numbers:?}").unwrap();
            }
        }
    }
    out
}

const WORDS: [&str; 12] = [
    "",
    "main",
    "cpu",
    "nanoseconds",
    "a;b <c> & d",
    "ünï",
    "/bin/x",
    "thread",
    "x\ny",
    "[kernel]",
    "count",
    "0123456789abcdef",
];

type Numbers = Vec<(u64, u32, u32, u32)>;

/// A valid profile from generated numbers.
fn build(types: usize, tables: [Numbers; 4], samples: Vec<(Vec<u32>, Vec<u32>, i64)>) -> Profile {
    let mut p = Profile::default();
    let ids: Vec<StrId> = WORDS.iter().map(|w| p.strings.intern(w)).collect();
    let word = |n: u32| ids[n as usize % ids.len()];
    let [header, mappings, functions, locations] = tables;
    p.sample_types = (0..types as u32)
        .map(|i| ValueType { kind: word(i + 1), unit: word(i * 5 + types as u32) })
        .collect();
    for (a, b, c, d) in header {
        p.period = a as i64;
        p.time_nanos = (a as i64).wrapping_mul(77);
        p.duration_nanos = i64::from(b);
        p.comments.push(word(c));
        p.period_type = ValueType { kind: word(b), unit: word(d) };
        (p.default_sample_type, p.drop_frames) = (word(c), word(d));
        (p.keep_frames, p.doc_url) = (word(b), word(c + d % 7));
    }
    p.mappings = mappings
        .iter()
        .map(|&(a, b, c, d)| Mapping {
            start: a,
            limit: a.wrapping_add(u64::from(b)),
            file_offset: u64::from(d) << 12,
            file: word(c),
            build_id: word(d),
            has_functions: b % 2 == 0,
            has_filenames: b % 3 == 0,
            has_line_numbers: c % 2 == 0,
            has_inline_frames: d % 2 == 0,
        })
        .collect();
    p.functions = functions
        .iter()
        .map(|&(a, b, c, d)| Function {
            name: word(b),
            system_name: word(c),
            filename: word(d),
            start_line: a as i64,
        })
        .collect();
    add_locations(&mut p, &locations);
    add_samples(&mut p, types, samples, &word);
    p
}

fn add_locations(p: &mut Profile, locations: &Numbers) {
    let functions = p.functions.len() as u32;
    let mappings = p.mappings.len() as u32;
    for &(a, b, c, d) in locations {
        let first_line = p.lines.len() as u32;
        let function = |i: u32| FunctionId(i % functions);
        if functions > 0 {
            p.lines.extend((0..d % 4).map(|i| Line {
                function: function(c + i),
                line: i64::from(b),
                column: i64::from(c),
            }));
        }
        let line_count = p.lines.len() as u32 - first_line;
        let mapping = (mappings > 0 && b % 3 != 0).then(|| MappingId(b % mappings));
        let is_folded = c % 5 == 0;
        p.locations.push(Location { mapping, address: a, first_line, line_count, is_folded });
    }
}

fn add_samples(
    p: &mut Profile,
    types: usize,
    samples: Vec<(Vec<u32>, Vec<u32>, i64)>,
    word: &dyn Fn(u32) -> StrId,
) {
    let locations = p.locations.len() as u32;
    for (stack_of, labels, value) in samples {
        let frames = stack_of.iter().filter(|_| locations > 0);
        let stack = p.stacks.push_iter(frames.map(|&f| LocationId(f % locations)));
        let set: Vec<Label> = labels
            .iter()
            .map(|&n| {
                let value = match word(n / 16) {
                    StrId::EMPTY => LabelValue::Num { value, unit: word(n / 7) },
                    text => LabelValue::Str(text),
                };
                Label { key: word(n), value }
            })
            .collect();
        let labels = p.labels.intern(&set);
        let times =
            p.times.push(stack_of.iter().take(3).map(|&n| value as u64 >> 1 ^ u64::from(n)));
        p.samples.push(SampleRow { stack, labels, times });
        p.values.extend((0..types as i64).map(|i| value.wrapping_mul(i + 1)));
    }
}

fn profiles() -> impl Strategy<Value = Profile> {
    let number = prop_oneof![0..300u64, any::<u64>()];
    let tables = || vec((number.clone(), any::<u32>(), any::<u32>(), 0..1000u32), 0..8);
    let sample = (vec(any::<u32>(), 0..12), vec(0..1000u32, 0..4), any::<i64>());
    (1..5usize, [tables(), tables(), tables(), tables()], vec(sample, 0..10))
        .prop_map(|(types, tables, samples)| build(types, tables, samples))
}

fn written(p: &Profile) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(p, &mut bytes).unwrap();
    bytes
}

fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes), &mut out).unwrap();
    out
}

/// Panics if an id of a profile is out of range.
fn walk(p: &Profile) {
    let text = content(p);
    assert!(text.len() < 64 << 20);
    for i in 0..p.locations.len() as u32 {
        for line in p.lines_of(LocationId(i)) {
            let _ = p.functions[line.function.0 as usize];
        }
    }
}

/// Change of a byte sequence.
#[derive(Clone, Debug)]
enum Change {
    Set(usize, u8),
    Cut(usize),
    Splice(usize, usize, usize),
    Insert(usize, Vec<u8>),
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    let at = |n: usize| n % (bytes.len() + 1);
    match *change {
        Change::Set(i, value) if !bytes.is_empty() => {
            let i = i % bytes.len();
            bytes[i] = value;
        }
        Change::Set(..) => {}
        Change::Cut(n) => bytes.truncate(at(n)),
        Change::Splice(from, to, target) => {
            let from = at(from);
            let to = at(to);
            let target = at(target);
            let part = bytes[from.min(to)..from.max(to)].to_vec();
            bytes.splice(target..target, part);
        }
        Change::Insert(target, ref part) => {
            let target = at(target);
            bytes.splice(target..target, part.iter().copied());
        }
    }
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let n = || any::<usize>();
    let interesting = prop_oneof![
        Just(vec![0xff; 9]),
        Just(vec![0x32, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        Just(vec![0x80; 11]),
        Just(vec![0x0b]),
        vec(any::<u8>(), 1..6),
    ];
    let change = prop_oneof![
        4 => (n(), any::<u8>()).prop_map(|(i, v)| Change::Set(i, v)),
        1 => n().prop_map(Change::Cut),
        1 => (n(), n(), n()).prop_map(|(a, b, c)| Change::Splice(a, b, c)),
        2 => (n(), interesting).prop_map(|(i, part)| Change::Insert(i, part)),
    ];
    vec(change, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn written_profiles_are_read_back(p in profiles()) {
        let bytes = written(&p);
        prop_assert_eq!(content(&read(&bytes[..]).unwrap()), content(&p));
        prop_assert_eq!(content(&read(&unpacked(&bytes)[..]).unwrap()), content(&p));
    }

    #[test]
    fn any_bytes_are_a_profile_or_an_error(bytes in vec(any::<u8>(), 0..400)) {
        if let Ok(p) = read(&bytes[..]) {
            walk(&p);
        }
    }

    #[test]
    fn changed_profiles_are_a_profile_or_an_error(p in profiles(), changes in changes()) {
        let mut bytes = unpacked(&written(&p));
        changes.iter().for_each(|c| apply(&mut bytes, c));
        match read(&bytes[..]) {
            Ok(p) => walk(&p),
            Err(e) => prop_assert!(!e.to_string().contains('\n')),
        }
    }

    #[test]
    fn changed_gzip_is_a_profile_or_an_error(p in profiles(), changes in changes()) {
        let mut bytes = written(&p);
        changes.iter().for_each(|c| apply(&mut bytes, c));
        if let Ok(p) = read(&bytes[..]) {
            walk(&p);
        }
    }
}
