//! Recordings that are made here, record by record.

use super::*;
use profile::{LabelValue, LocationId};
use record::kind;

/// Fields of all samples: ip, tid, time, identifier, period, call chain.
const FIELDS: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 5 | 1 << 8 | 1 << 16;

/// Start of the user part of a call chain.
const USER: u64 = -512i64 as u64;

fn word(value: u64) -> [u8; 8] {
    value.to_le_bytes()
}

fn ids(pid: u32, tid: u32) -> [u8; 8] {
    word(u64::from(pid) | u64::from(tid) << 32)
}

fn text(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize((name.len() + 1).next_multiple_of(8), 0);
    bytes
}

/// A record with a trailer of its time, but for samples and perf's own.
fn record(kind: u32, misc: u16, time: u64, parts: &[&[u8]]) -> Vec<u8> {
    let mut body = parts.concat();
    if kind < kind::FIRST_OF_PERF && kind != kind::SAMPLE {
        body.extend([ids(1, 1), word(time), word(1)].concat());
    }
    let size = (8 + body.len()) as u16;
    [&kind.to_le_bytes()[..], &misc.to_le_bytes(), &size.to_le_bytes(), &body].concat()
}

/// An event of software with this number, period and identifier.
fn event(config: u64, period: u64, id: u64) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    (bytes[0], bytes[4]) = (1, 128);
    bytes[8..16].copy_from_slice(&word(config));
    bytes[16..24].copy_from_slice(&word(period));
    bytes[24..32].copy_from_slice(&word(FIELDS));
    bytes[40..48].copy_from_slice(&word(1 << 18));
    record(kind::HEADER_ATTR, 0, 0, &[&bytes, &word(id)])
}

fn map(time: u64, pid: u32, start: u64, path: &str) -> Vec<u8> {
    let (length, offset) = (word(0x1000), word(0x2000));
    let flags = [5u32.to_le_bytes(), 2u32.to_le_bytes()].concat();
    let parts: [&[u8]; 7] =
        [&ids(pid, pid), &word(start), &length, &offset, &[0; 24], &flags, &text(path)];
    record(kind::MMAP2, 2, time, &parts)
}

fn comm(time: u64, pid: u32, tid: u32, name: &str) -> Vec<u8> {
    record(kind::COMM, 0, time, &[&ids(pid, tid), &text(name)])
}

fn sample(id: u64, time: u64, thread: [u8; 8], period: u64, chain: &[u64]) -> Vec<u8> {
    let chain: Vec<u8> = std::iter::once(&(chain.len() as u64 + 1))
        .chain(&[USER])
        .chain(chain)
        .flat_map(|&address| word(address))
        .collect();
    let ip = &chain[16..24];
    record(kind::SAMPLE, 2, 0, &[&word(id), ip, &thread, &word(time), &word(period), &chain])
}

fn stream(records: &[Vec<u8>]) -> Vec<u8> {
    [MAGIC, &word(16), &records.concat()].concat()
}

/// A recording of two threads and two events, whose records are not in the order of time.
fn example() -> Vec<Vec<u8>> {
    let chain = [0x40_1010, 0x40_1021];
    vec![
        event(0, 1_000_000, 1),
        event(2, 1, 2),
        comm(0, 5, 5, "prog"),
        map(0, 5, 0x40_1000, "/nowhere/prog"),
        sample(1, 3_000_000, ids(5, 6), 1_000_000, &chain),
        sample(2, 2_500_000, ids(5, 5), 1, &chain[..1]),
        record(kind::FINISHED_ROUND, 0, 0, &[]),
        sample(1, 1_000_000, ids(5, 5), 1_000_000, &chain),
        comm(2_000_000, 5, 6, "worker"),
        record(kind::LOST, 0, 2_100_000, &[&word(1), &word(7)]),
        sample(9, 1_500_000, ids(5, 5), 1, &chain),
        record(kind::FINISHED_ROUND, 0, 0, &[]),
    ]
}

fn read(bytes: &[u8]) -> Result<Profile, String> {
    PerfData.read(&mut &*bytes).map_err(|error| error.to_string())
}

/// The samples: thread, values, times and stack.
fn content(p: &Profile) -> Vec<String> {
    let place = |location: &LocationId| {
        let location = &p.locations[location.0 as usize];
        let file = location.mapping.map_or("", |m| p.str(p.mappings[m.0 as usize].file));
        format!("{file}+{:x}", location.address)
    };
    let mut rows: Vec<String> = (0..p.samples.len())
        .map(|row| {
            let sample = p.samples[row];
            let stack: Vec<_> = p.stacks.get(sample.stack).iter().map(place).collect();
            let labels = p.labels.get(sample.labels).iter();
            let labels: Vec<_> = labels
                .map(|label| match label.value {
                    LabelValue::Str(text) => p.str(text).to_owned(),
                    LabelValue::Num { value, .. } => value.to_string(),
                })
                .collect();
            let (values, times) = (p.values_of(row), p.times.get(sample.times));
            format!("{} {values:?} {times:?} {}", labels.join(","), stack.join(" "))
        })
        .collect();
    rows.sort();
    rows
}

/// perf repeats the kernel's losses at the end; what a filter left out is no loss.
#[test]
fn losses_are_counted_once() {
    let mut records = example();
    records.push(record(kind::LOST_SAMPLES, 0, 4_000_000, &[&word(7)]));
    records.push(record(kind::LOST_SAMPLES, 1 << 15, 4_000_000, &[&word(100)]));
    let p = read(&stream(&records)).unwrap();
    let lost = p.comments.iter().map(|&c| p.str(c)).find(|text| text.starts_with("lost: "));
    assert_eq!(lost, Some("lost: 7"));
}

/// Each of these records had made prof look at all events, or at the kernel's notes.
#[test]
fn records_about_the_machine_cost_what_they_are_long() {
    let mut records = example();
    let ids: Vec<u8> = (100..8000).flat_map(word).collect();
    let mut large = event(0, 1_000_000, 99);
    large.extend(ids);
    let size = (large.len() as u16).to_le_bytes();
    large[6..8].copy_from_slice(&size);
    records.push(large);
    for _ in 0..50_000 {
        records.push(record(kind::EVENT_UPDATE, 0, 0, &[&word(2), &word(99), &text("x")]));
        records.push(record(kind::HEADER_FEATURE, 0, 0, &[&word(3)]));
    }
    let p = read(&stream(&records)).unwrap();
    assert_eq!(p.sample_types.len(), 3);
}

#[test]
fn records_are_applied_in_the_order_of_time() {
    let p = read(&stream(&example())).unwrap();
    assert_eq!(p.type_names(), ["samples", "cpu", "page-faults"]);
    assert_eq!((p.default_type_index(), p.duration_nanos), (1, 2_000_000));
    assert_eq!((p.period, p.str(p.period_type.kind)), (1_000_000, "cpu"));
    // The return address is that of the call.
    let stack = "/nowhere/prog+2010 /nowhere/prog+2020";
    let expected = [
        "5,5,prog,prog [1, 0, 1] [1500] /nowhere/prog+2010".to_owned(),
        format!("5,5,prog,prog [1, 1000000, 0] [0] {stack}"),
        format!("5,6,prog,worker [1, 1000000, 0] [2000] {stack}"),
    ];
    assert_eq!(content(&p), expected);
    let comments: Vec<&str> = p.comments.iter().map(|&c| p.str(c)).collect();
    let unknown = "note: 1 samples belong to no event of the header, and are left out";
    for comment in ["samples: 3", "lost: 7", "truncated: 0 of 3", unknown] {
        assert!(comments.contains(&comment), "{comment}: {comments:?}");
    }
    assert!(p.mappings.iter().all(|mapping| !mapping.has_functions));
    let mapping = &p.mappings[0];
    assert_eq!((mapping.start, mapping.file_offset), (0x2000, 0x2000));
}

/// The names of the frames of the only sample, with copies of stacks of this kind of registers, and
/// comments that are figures of truncation.
fn truncated(architecture: &str, abi: u64) -> (Vec<String>, Vec<String>) {
    let mut event = event(0, 1, 1);
    event[8 + 24..8 + 32].copy_from_slice(&word(FIELDS | 1 << 12 | 1 << 13));
    let name = text(architecture);
    let size = (name.len() as u32).to_le_bytes();
    let architecture = record(kind::HEADER_FEATURE, 0, 0, &[&word(6), &size, &name]);
    let thread = ids(5, 5);
    let chain = [2, USER, 0x40_1010].map(word).concat();
    let copy = [word(abi), word(0)].concat();
    let (id, ip, time) = (word(1), word(0x40_1010), word(9));
    let parts: [&[u8]; 7] = [&id, &ip, &thread, &time, &word(1), &chain, &copy];
    let sample = record(kind::SAMPLE, 2, 0, &parts);
    let map = map(0, 5, 0x40_1000, "/nowhere/prog");
    let p = read(&stream(&[event, architecture, map, sample])).unwrap();
    let frame = |location: &LocationId| match p.lines_of(*location) {
        [] => format!("{:x}", p.locations[location.0 as usize].address),
        [line, ..] => p.str(p.functions[line.function.0 as usize].name).to_owned(),
    };
    let comments = p.comments.iter().map(|&c| p.str(c).to_owned());
    let comments = comments.filter(|c| c.starts_with("truncated") || c.starts_with("note"));
    (p.stacks.get(p.samples[0].stack).iter().map(frame).collect(), comments.collect())
}

#[test]
fn stacks_that_cannot_be_unwound_keep_their_leaf_and_the_reason() {
    let (frames, comments) = truncated("riscv64", 2);
    assert_eq!(frames, ["2010", "[truncated: recorded on riscv64]"]);
    let note = "note: 1 user stacks were recorded on another architecture and are not unwound";
    assert_eq!(comments, ["truncated: 1 of 1", note]);
    let (frames, comments) = truncated(std::env::consts::ARCH, 1);
    assert_eq!(frames, ["2010", "[truncated: 32-bit process]"]);
    assert_eq!(comments, ["truncated: 1 of 1", "truncated: 32-bit process: 1"]);
}

#[test]
fn a_compressed_stream_is_the_same() {
    let records = example();
    let (events, others) = records.split_at(2);
    let packed = zstd::bulk::compress(&others.concat(), 3).unwrap();
    let packed = packed.chunks(50).map(|part| record(kind::COMPRESSED, 0, 0, &[part]));
    let all: Vec<_> = events.iter().cloned().chain(packed).collect();
    let compressed = read(&stream(&all)).unwrap();
    assert_eq!(content(&compressed).len(), 3);
}

#[test]
fn damage_is_one_line() {
    let whole = stream(&example());
    assert!(PerfData.detect(&whole));
    let start = "not valid perf.data: ";
    for (bytes, error) in [
        (&whole[..whole.len() - 1], "it is cut off inside a record"),
        (&whole[..12], "it is cut off inside its header"),
        (&whole[..16], "it has no events"),
        (b"2ELIFREP\0\0\0\0\0\0\0\x10", "it was recorded on a machine of the other byte order"),
        (b"PERFILE2\x68\0\0\0\0\0\0\0", "it is cut off: it ends at byte 16"),
    ] {
        assert_eq!(read(bytes).err(), Some(format!("{start}{error}")));
    }
}

#[test]
fn no_change_of_a_byte_is_fatal() {
    let whole = stream(&example());
    for place in 0..whole.len() {
        for change in [0x01, 0x80, 0xff] {
            let mut changed = whole.clone();
            changed[place] ^= change;
            if let Ok(profile) = read(&changed) {
                assert!(profile.total(0) <= 4);
            }
        }
    }
}

/// An event whose samples have these fields in addition, in these formats.
fn event_with(config: u64, id: u64, fields: u64, read_format: u64, branches: u64) -> Vec<u8> {
    let mut event = event(config, 1_000_000, id);
    event[8 + 24..8 + 32].copy_from_slice(&word(FIELDS | fields));
    event[8 + 32..8 + 40].copy_from_slice(&word(read_format));
    event[8 + 72..8 + 80].copy_from_slice(&word(branches));
    event
}

/// The samples of a group are those of its leader: their values are the increases of all members.
#[test]
fn values_of_a_group_are_those_of_all_its_events() {
    let (read_field, group_and_id) = (1 << 4, 1 << 3 | 1 << 2);
    let events = [(0, 1), (2, 2)].map(|(n, id)| event_with(n, id, read_field, group_and_id, 0));
    let sample = |time: u64, tid: u32, counts: [u64; 2]| {
        let group = [2, counts[0], 1, counts[1], 2].map(word).concat();
        let chain = [2, USER, 0x40_1010].map(word).concat();
        let (id, ip, thread) = (word(1), word(0x40_1010), ids(5, tid));
        let parts: [&[u8]; 7] = [&id, &ip, &thread, &word(time), &word(77), &group, &chain];
        record(kind::SAMPLE, 2, 0, &parts)
    };
    let samples = [sample(1000, 5, [300, 7]), sample(2000, 5, [500, 7]), sample(3000, 6, [900, 9])];
    let records = [&events[..], &[map(0, 5, 0x40_1000, "/nowhere/prog")], &samples].concat();
    let p = read(&stream(&records)).unwrap();
    assert_eq!(p.type_names(), ["samples", "cpu", "page-faults"]);
    let values: Vec<&[i64]> = (0..3).map(|row| p.values_of(row)).collect();
    assert_eq!(values, [&[1, 300, 7][..], &[1, 200, 0], &[1, 400, 2]]);
}

/// The calls that the CPU has recorded replace the user part of the chain.
#[test]
fn recorded_calls_are_the_callers_of_the_leaf() {
    let event = event_with(0, 1, 1 << 11, 0, 1 << 11 | 1 << 17);
    let chain = [2, USER, 0x40_1010].map(word).concat();
    let calls = [2, 0, 0x40_1020, 0x40_1008, 0, 0x40_1030, 0x40_1018, 0].map(word).concat();
    let (id, ip, thread, time) = (word(1), word(0x40_1010), ids(5, 5), word(1000));
    let parts: [&[u8]; 7] = [&id, &ip, &thread, &time, &word(77), &chain, &calls];
    let sample = record(kind::SAMPLE, 2, 0, &parts);
    let records = [event, map(0, 5, 0x40_1000, "/nowhere/prog"), sample];
    let p = read(&stream(&records)).unwrap();
    let [row] = &content(&p)[..] else { panic!("one sample") };
    let stack = "/nowhere/prog+2010 /nowhere/prog+2020 /nowhere/prog+2030";
    assert!(row.ends_with(stack), "{row}");
}

/// The files of a recording with several threads of perf are one in the order of time.
#[test]
fn records_of_several_files_are_in_the_order_of_time() {
    let records = example();
    let (first, rest) = records.split_at(4);
    let files = [first.concat(), rest[..3].concat(), rest[3..].concat()];
    let sources = sources::Sources::new(files.iter().map(|file| Records::new(&**file)));
    let p = Reader::new(Header::default(), None, &ReadOptions::default()).read(sources).unwrap();
    assert_eq!(content(&p), content(&read(&stream(&records)).unwrap()));
}
