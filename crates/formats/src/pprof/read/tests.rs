use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::wire::{put_bytes, put_number, put_tag, put_varint};
use super::*;
use profile::{LocationId, StackId};

/// A message: numbers by field.
fn message(numbers: &[(u32, u64)]) -> Vec<u8> {
    let mut out = Vec::new();
    for &(field, number) in numbers {
        put_number(&mut out, field, number);
    }
    out
}

fn file(fields: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (field, content) in fields {
        put_bytes(&mut out, *field, content);
    }
    out
}

fn strings(texts: &[&str]) -> Vec<(u32, Vec<u8>)> {
    texts.iter().map(|t| (6, t.as_bytes().to_vec())).collect()
}

fn packed(numbers: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    numbers.iter().for_each(|&n| put_varint(&mut out, n));
    out
}

fn sample(locations: &[u64], values: &[u64]) -> Vec<u8> {
    file(&[(1, packed(locations)), (2, packed(values))])
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut e = GzEncoder::new(Vec::new(), Compression::fast());
    e.write_all(bytes).unwrap();
    e.finish().unwrap()
}

/// A small typical file.
fn ordinary() -> Vec<(u32, Vec<u8>)> {
    let mut fields = vec![
        (1, message(&[(1, 1), (2, 2)])),
        (2, sample(&[1, 2], &[10])),
        (2, sample(&[2], &[5])),
        (3, message(&[(1, 1), (2, 0x1000), (3, 0x2000), (5, 3)])),
        (4, file(&[(4, message(&[(1, 1), (2, 7)]))])),
        (4, message(&[(1, 2), (2, 1), (3, 0x1100)])),
        (5, message(&[(1, 1), (2, 4), (3, 4)])),
    ];
    put_number(&mut fields[4].1, 1, 1);
    fields.extend(strings(&["", "cpu", "nanoseconds", "/bin/x", "main"]));
    fields
}

fn error(fields: &[(u32, Vec<u8>)]) -> String {
    let text = read(&file(fields)[..]).unwrap_err().to_string();
    assert!(!text.contains('\n'));
    text
}

#[test]
fn an_ordinary_file() {
    let bytes = file(&ordinary());
    for bytes in [bytes.clone(), gzip(&bytes)] {
        let p = read(&bytes[..]).unwrap();
        assert_eq!(p.values, [10, 5]);
        assert_eq!(p.stacks.get(p.samples[0].stack), [LocationId(0), LocationId(1)]);
        let line = p.lines_of(LocationId(0))[0];
        assert_eq!((p.str(p.functions[line.function.0 as usize].name), line.line), ("main", 7));
        assert_eq!(p.locations[1].mapping, Some(MappingId(0)));
        assert_eq!(p.str(p.mappings[0].file), "/bin/x");
        assert_eq!(p.str(p.sample_types[0].kind), "cpu");
    }
}

#[test]
fn gzip_in_several_members_is_one_stream() {
    let bytes = file(&ordinary());
    let (a, b) = bytes.split_at(20);
    let p = read(&[gzip(a), gzip(b)].concat()[..]).unwrap();
    assert_eq!(p.samples.len(), 2);
}

#[test]
fn any_order_of_fields_and_any_ids() {
    let far = 0xffff_ffff_8100_0000;
    let mut fields = strings(&["", "cpu", "ns", "f", "cpu", "bin"]);
    fields.extend([
        (5, message(&[(1, 900), (2, 3)])),
        (4, message(&[(1, far), (2, 77), (3, 5)])),
        (4, file(&[(4, message(&[(1, 900)])), (4, message(&[(2, 3)]))])),
        (3, message(&[(1, 77), (5, 5)])),
        (2, sample(&[far, 3, far], &[1])),
        (1, message(&[(1, 4), (2, 2)])),
    ]);
    put_number(&mut fields[8].1, 1, 3);
    let p = read(&file(&fields)[..]).unwrap();
    let ids: Vec<_> = p.stacks.get(StackId(0)).iter().map(|l| l.0).collect();
    assert_eq!(ids, [0, 1, 0]);
    assert_eq!(p.lines_of(LocationId(1)).len(), 1, "a line without function is dropped");
    assert_eq!(p.locations[0].mapping, Some(MappingId(0)));
    assert_eq!(p.str(p.mappings[0].file), "bin");
    assert_eq!(p.str(p.sample_types[0].kind), "cpu");
    assert_eq!(p.strings.len(), 5, "the second cpu is the first");
}

#[test]
fn unpacked_numbers_and_unknown_fields() {
    let mut s = message(&[(1, 1), (2, 10)]);
    put_number(&mut s, 1, 2);
    put_bytes(&mut s, 9, b"unknown");
    let mut fields = ordinary();
    fields[1].1 = s;
    fields.push((200, vec![0xff; 300]));
    let mut bytes = file(&fields);
    put_number(&mut bytes, 13, 4);
    put_bytes(&mut bytes, 13, &[1, 2]);
    put_tag(&mut bytes, 100, 1);
    bytes.extend([0xff; 8]);
    put_tag(&mut bytes, 100, 5);
    bytes.extend([0xff; 4]);
    let p = read(&bytes[..]).unwrap();
    assert_eq!(p.stacks.get(p.samples[0].stack).len(), 2);
    let comments: Vec<_> = p.comments.iter().map(|&c| p.str(c)).collect();
    assert_eq!(comments, ["main", "cpu", "nanoseconds"]);
}

#[test]
fn labels_before_values_and_equal_ones() {
    let label = message(&[(1, 1), (2, 3)]);
    let number = message(&[(1, 1), (3, -5i64 as u64), (4, 2)]);
    let mut fields = ordinary();
    for (i, labels) in [(1, [&label, &number]), (2, [&label, &number])] {
        let mut s = Vec::new();
        labels.iter().for_each(|l| put_bytes(&mut s, 3, l));
        put_number(&mut s, 2, 40 + i as u64);
        fields[i].1 = s;
    }
    for value in [7, 8] {
        let labels = [(3, label.clone()), (3, number.clone())];
        fields.push((2, [sample(&[1], &[value]), file(&labels)].concat()));
    }
    let p = read(&file(&fields)[..]).unwrap();
    assert_eq!(p.values, [41, 42, 7, 8]);
    assert!(p.samples.iter().all(|s| s.labels == p.samples[0].labels));
    let set = p.labels.get(p.samples[0].labels);
    let unit = p.strings.find("nanoseconds").unwrap();
    assert_eq!(set[1].value, LabelValue::Num { value: -5, unit });
    assert_eq!(set[0].value, LabelValue::Str(p.strings.find("/bin/x").unwrap()));
}

#[test]
fn labels_of_many_threads_by_turns_are_read_back() {
    let mut p = profile::Builder::new(&[("cpu", "nanoseconds")]).finish(None);
    let key = p.strings.intern("thread");
    let stack = p.stacks.push(&[]);
    let thread = |i: i64| i * 37 % 701;
    for i in 0..4000 {
        let names = if i % 5 == 0 { 40 } else { 1 };
        let value = LabelValue::Num { value: thread(i), unit: StrId::EMPTY };
        let labels = p.labels.intern(&vec![Label { key, value }; names]);
        let times = p.times.push((0..i as u64 % 7 / 5).map(|time| time + 1));
        p.samples.push(profile::SampleRow { stack, labels, times });
        p.values.push(1);
    }
    let mut bytes = Vec::new();
    super::super::write(&p, &mut bytes).unwrap();
    let back = read(&bytes[..]).unwrap();
    assert_eq!(back.samples.len(), 4000);
    for (i, (a, b)) in (0..).zip(p.samples.iter().zip(&back.samples)) {
        let labels = back.labels.get(b.labels);
        assert_eq!(labels.len(), p.labels.get(a.labels).len());
        let value = LabelValue::Num { value: thread(i), unit: StrId::EMPTY };
        assert!(labels.iter().all(|label| label.value == value));
        assert_eq!(back.times.get(b.times), p.times.get(a.times));
    }
}

#[test]
fn invalid_utf8_is_replaced() {
    let mut fields = ordinary();
    fields.last_mut().unwrap().1 = b"ma\xffn".to_vec();
    let p = read(&file(&fields)[..]).unwrap();
    assert_eq!(p.str(p.functions[0].name), "ma\u{fffd}n");
}

#[test]
fn indexes_out_of_range_are_errors() {
    let mut fields = ordinary();
    fields[1].1 = sample(&[1, 3], &[10]);
    let text = error(&fields);
    assert!(text.contains("location 3 is used") && text.contains("at byte 8:"), "{text}");
    fields[1].1 = sample(&[0], &[10]);
    assert!(error(&fields).contains("location id 0"));
    fields[1].1 = sample(&[1 << 40], &[10]);
    assert!(error(&fields).contains(&format!("location {} is used", 1u64 << 40)));

    let mut fields = ordinary();
    fields[4].1 = file(&[(4, message(&[(1, 9)]))]);
    put_number(&mut fields[4].1, 1, 1);
    assert!(error(&fields).contains("function 9 is used"));

    let mut fields = ordinary();
    fields[6].1 = message(&[(1, 1), (2, 5)]);
    assert!(error(&fields).contains("string number 5 is used, but the table has 5"));
    fields[6].1 = message(&[(1, 1), (2, -1i64 as u64)]);
    assert!(error(&fields).contains("string number -1 cannot exist"));
    fields[6].1 = message(&[(1, 1), (2, 1 << 40)]);
    assert!(error(&fields).contains("cannot exist"));
}

#[test]
fn inconsistencies_are_errors() {
    let mut fields = ordinary();
    fields.push((4, message(&[(1, 2)])));
    assert!(error(&fields).contains("two locations have the id 2"));
    let mut fields = ordinary();
    fields.push((5, message(&[(2, 1)])));
    assert!(error(&fields).contains("a function without an id"));
    let mut fields = ordinary();
    fields[2].1 = sample(&[1], &[1, 2]);
    assert!(error(&fields).contains("2 values"));
    let mut fields = ordinary();
    fields.push((1, message(&[(1, 2)])));
    assert!(error(&fields).contains("1 values, but it names 2 sample types"));
    let fields: Vec<_> = ordinary().into_iter().filter(|f| f.0 != 1).collect();
    assert!(error(&fields).contains("names no sample type"));
    let mut fields = ordinary();
    fields[7].1 = b"x".to_vec();
    assert!(error(&fields).contains("first string"));
    let mut twice = file(&ordinary());
    put_number(&mut twice, 9, 1);
    put_number(&mut twice, 9, 2);
    assert!(read(&twice[..]).unwrap_err().to_string().contains("second profile"));
}

#[test]
fn every_cut_of_a_file_is_an_error() {
    let bytes = file(&ordinary());
    for cut in 0..bytes.len() {
        let e = read(&bytes[..cut]).expect_err("a string is missing at least");
        assert!(e.is_malformed() && !e.to_string().contains('\n'));
    }
    let packed = gzip(&bytes);
    for cut in 1..packed.len() {
        let text = read(&packed[..cut]).unwrap_err().to_string();
        assert!(text.contains("cut off") || text.contains("not a"), "{cut}: {text}");
    }
}

#[test]
fn other_files_are_named() {
    let of = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    assert_eq!(of(b""), "the file is empty");
    assert!(of(b"some words\nof a text\n").contains("looks like text"));
    assert!(of(b"\x28\xb5\x2f\xfd1234").contains("zstd"));
    assert!(of(b"\x7fELF\x02\x01").contains("ELF"));
    let mut damaged = gzip(&file(&ordinary()));
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x55;
    assert!(read(&damaged[..]).is_err());
}

#[test]
fn wrong_lengths_allocate_nothing() {
    let mut bytes = file(&ordinary());
    for len in [1u64 << 28, 1 << 40, u64::MAX] {
        let mut lying = bytes.clone();
        put_tag(&mut lying, 6, LEN);
        put_varint(&mut lying, len);
        lying.extend(b"short");
        let text = read(&lying[..]).unwrap_err().to_string();
        assert!(text.contains("cut off") || text.contains("no profile of this size"), "{text}");
    }
    put_tag(&mut bytes, 99, LEN);
    put_varint(&mut bytes, u64::MAX);
    assert!(read(&bytes[..]).unwrap_err().to_string().contains("cut off"));
}

const SMALL: InputLimits = InputLimits {
    stream: 64 << 20,
    ratio: 256,
    free_stream: 1 << 20,
    memory_ratio: 64,
    free_memory: 1 << 20,
};

/// `unit` repeated up to `bytes`, gzipped.
fn bomb(unit: &[u8], bytes: usize) -> Vec<u8> {
    let mut e = GzEncoder::new(Vec::new(), Compression::best());
    e.write_all(&file(&strings(&[""]))).unwrap();
    let block = unit.repeat((64 << 10) / unit.len());
    for _ in 0..bytes / block.len() {
        e.write_all(&block).unwrap();
    }
    e.finish().unwrap()
}

#[test]
fn bombs_are_refused_early() {
    let units: [&[u8]; 5] = [
        &[0x32, 0],                   // empty strings
        &[0x12, 4, 0x08, 1, 0x10, 1], // samples
        &[0x5a, 0],                   // period types
        &[0xfa, 0x3f, 1, 0],          // an unknown field
        &[0x22, 4, 0x22, 2, 0x08, 1], // locations without id
    ];
    for unit in units {
        let bytes = bomb(unit, 16 << 20);
        let text = read_within(&mut &bytes[..], SMALL).unwrap_err().to_string();
        assert!(
            ["times its size", "of memory", "without an id"].iter().any(|t| text.contains(t)),
            "{text}"
        );
    }
    let endless = file(&[(99, vec![0; 1 << 20])]).repeat(65);
    let text = read_within(&mut &endless[..], SMALL).unwrap_err().to_string();
    assert!(text.contains("larger than 64 MiB"), "{text}");
}

#[test]
fn memory_follows_the_size_of_the_file() {
    // Unpacked, one byte of packed values makes eight in the table: allowed.
    let mut fields = ordinary();
    fields[0..3].iter_mut().for_each(|f| f.0 = 99);
    fields.extend(vec![(1, message(&[(1, 1)])); 1000]);
    fields.extend(vec![(2, sample(&[1], &[1; 1000])); 2000]);
    let bytes = file(&fields);
    assert_eq!(read_within(&mut &bytes[..], SMALL).unwrap().values.len(), 2_000_000);
    // Gzipped 500:1 (but not by much in size), the same is out of proportion.
    let text = read_within(&mut &gzip(&bytes)[..], SMALL).unwrap_err().to_string();
    assert!(text.contains("of memory"), "{text}");
}
