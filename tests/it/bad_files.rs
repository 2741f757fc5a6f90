//! Files that are missing, broken or hostile: one clear line, no panic, bounded memory.

use std::io::Write;
use std::path::Path;

use crate::common::{Output, Prof, temp_dir};

/// Every command that reads a profile.
const READERS: &[&str] =
    &["report", "report --json", "report -g", "flame", "flame --folded", "symbolize"];

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut z = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    z.write_all(bytes).unwrap();
    z.finish().unwrap()
}

fn varint(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn number(field: u64, n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint(field << 3, &mut out);
    varint(n, &mut out);
    out
}

fn bytes(field: u64, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint(field << 3 | 2, &mut out);
    varint(content.len() as u64, &mut out);
    out.extend_from_slice(content);
    out
}

/// A profile of one sample type and these further fields.
fn profile(rest: &[Vec<u8>]) -> Vec<u8> {
    let mut p = bytes(1, &[number(1, 1), number(2, 2)].concat());
    for s in ["", "samples", "count", "main"] {
        p.extend(bytes(6, s.as_bytes()));
    }
    p.extend(rest.concat());
    p
}

/// Runs a reader with at most 2 GiB of address space for data.
fn limited(dir: &Path, command: &str, file: &str) -> Output {
    use std::os::unix::process::CommandExt;
    let mut prof = Prof::new(dir, command).arg(file);
    let limit = || {
        let bytes = libc::rlimit { rlim_cur: 2 << 30, rlim_max: 2 << 30 };
        // SAFETY: setrlimit reads the struct that it is given.
        match unsafe { libc::setrlimit(libc::RLIMIT_DATA, &bytes) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: setrlimit is async-signal-safe.
    unsafe { prof.command.pre_exec(limit) };
    prof.run()
}

#[track_caller]
fn refused(content: &[u8]) {
    let dir = temp_dir();
    std::fs::write(dir.path().join("bad.pb.gz"), content).unwrap();
    for reader in READERS {
        let out = limited(dir.path(), reader, "bad.pb.gz");
        out.refused(1, &["bad.pb.gz"]);
        assert_eq!(out.stderr.lines().count(), 1, "prof {reader}: {}", out.stderr);
        assert!(out.stderr.len() < 500, "prof {reader}: {}", out.stderr);
    }
    assert_eq!(std::fs::read(dir.path().join("bad.pb.gz")).unwrap(), content);
}

#[test]
fn a_missing_file_is_refused_with_its_name() {
    let dir = temp_dir();
    for reader in READERS {
        Prof::new(&dir, reader).arg("no-such.pb.gz").run().refused(1, &["no-such.pb.gz"]);
    }
    // Without a FILE it is profile.pb.gz, and the message names the command that makes one.
    Prof::new(&dir, "report").run().refused(1, &["profile.pb.gz", "prof record"]);
    Prof::new(&dir, "flame").run().refused(1, &["profile.pb.gz", "prof record"]);
}

#[test]
fn a_directory_is_refused_with_its_name() {
    let dir = temp_dir();
    for reader in READERS {
        Prof::new(&dir, reader).arg("/tmp").run().refused(1, &["/tmp"]);
    }
}

#[test]
fn a_file_that_is_no_profile_is_refused_in_one_line() {
    refused(b"");
    refused(b"hello, this is no profile\n");
    refused(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    refused(&gzip(b"hello, this is no profile\n"));
    refused(&[0xff; 4096]);
}

#[test]
fn a_truncated_or_damaged_file_is_refused_in_one_line() {
    let whole = gzip(&profile(&[bytes(2, &[bytes(2, &[7])].concat())]));
    for length in [1, 2, 9, 10, 11, whole.len() / 2, whole.len() - 9, whole.len() - 1] {
        refused(&whole[..length]);
    }
    let mut damaged = whole.clone();
    let middle = damaged.len() - 6;
    damaged[middle] ^= 0x55;
    refused(&damaged);
}

#[test]
fn an_index_out_of_range_is_refused() {
    let location = bytes(4, &[number(1, 1), bytes(4, &number(1, 99))].concat());
    let function = bytes(5, &[number(1, 1), number(2, 77)].concat());
    let no_location = bytes(2, &[bytes(1, &[9]), bytes(2, &[1])].concat());
    let no_string = bytes(1, &[number(1, 1 << 40), number(2, 2)].concat());
    let negative = bytes(5, &[number(1, 1), number(2, u64::MAX)].concat());
    for rest in [location, function, no_location, no_string, negative] {
        refused(&gzip(&profile(std::slice::from_ref(&rest))));
        refused(&profile(&[rest]));
    }
}

#[test]
fn a_sample_with_too_many_values_is_refused() {
    let two = bytes(2, &bytes(2, &[1, 2]));
    refused(&gzip(&profile(&[two])));
}

#[test]
fn a_length_beyond_the_end_is_refused() {
    let mut lie = profile(&[]);
    varint(2 << 3 | 2, &mut lie);
    varint(1 << 40, &mut lie);
    refused(&lie);
    refused(&gzip(&lie));
    let mut endless = profile(&[]);
    endless.extend([0xff; 20]);
    refused(&endless);
}

/// 10 MB of gzip that are 10 GB of zeros.
#[test]
fn a_gzip_bomb_is_refused_in_bounded_memory() {
    // Whole members of zeros, one after another: as one gzip file.
    let member = gzip(&vec![0u8; 64 << 20]);
    let mut bomb = gzip(&profile(&[]));
    while bomb.len() < 10 << 20 {
        bomb.extend_from_slice(&member);
    }
    refused(&bomb);
}

/// One string of 8 GiB of zeros, in 8 MB of gzip.
#[test]
fn a_string_of_8_gib_is_refused_in_bounded_memory() {
    let mut head = profile(&[]);
    varint(6 << 3 | 2, &mut head);
    varint(8 << 30, &mut head);
    let mut bomb = gzip(&head);
    let member = gzip(&vec![0u8; 64 << 20]);
    (0..128).for_each(|_| bomb.extend_from_slice(&member));
    refused(&bomb);
}

/// Hundreds of millions of empty strings: two bytes each in the file, many more in memory.
#[test]
fn an_endless_string_table_causes_no_crash() {
    let mut many = gzip(&profile(&[]));
    let member = gzip(&bytes(6, b"").repeat(16 << 20));
    (0..32).for_each(|_| many.extend_from_slice(&member));
    let dir = temp_dir();
    std::fs::write(dir.path().join("many.pb.gz"), many).unwrap();
    let out = limited(dir.path(), "report", "many.pb.gz");
    // Either it is refused or it fits: never a crash for want of memory.
    assert!([0, 1].contains(&out.code()), "{}: {}", out.status, out.stderr);
    assert!(!out.stderr.contains("panicked"), "{}", out.stderr);
}

#[test]
fn one_bad_file_among_good_ones_is_named() {
    let dir = temp_dir();
    std::fs::write(dir.path().join("good.pb.gz"), gzip(&profile(&[]))).unwrap();
    std::fs::write(dir.path().join("bad.pb.gz"), "bad").unwrap();
    let out = Prof::new(&dir, "report good.pb.gz bad.pb.gz").run();
    out.refused(1, &["bad.pb.gz"]);
}

/// A function (and the location of the same number), named by a string of [`profile`] or a further
/// one, and a sample of this stack.
fn function(id: u64, name: u64, file: u64) -> Vec<u8> {
    let function = [number(1, id), number(2, name), number(4, file)].concat();
    let location = [number(1, id), bytes(4, &number(1, id))].concat();
    [bytes(5, &function), bytes(4, &location)].concat()
}

fn sample(stack: &[u64], values: usize) -> Vec<u8> {
    let packed = |numbers: &[u64]| {
        let mut out = Vec::new();
        numbers.iter().for_each(|&n| varint(n, &mut out));
        out
    };
    bytes(2, &[bytes(1, &packed(stack)), bytes(2, &packed(&vec![7; values]))].concat())
}

/// Files of some kilobytes, whose views would have gigabytes of text: a name in many functions, on
/// deep stacks, of many sample types, and functions inlined into each other without end.
#[test]
fn a_small_file_whose_contents_multiply_is_shown_in_proportion() {
    const MOST: usize = 256 << 20;
    let long = bytes(6, &[b'n'; 400_000]);
    let functions = |of: &dyn Fn(u64) -> Vec<u8>| (1..=2000).flat_map(of).collect::<Vec<u8>>();
    let named = functions(&|id| [function(id, 4, 3), sample(&[id], 1)].concat());
    let of_file = functions(&|id| [function(id, 3, 4), sample(&[id], 1)].concat());
    let deep = [function(1, 4, 3), function(2, 3, 3)].concat();
    let deep = [deep, sample(&[vec![2], vec![1; 3000]].concat(), 1)].concat();
    let types = vec![bytes(1, &[number(1, 4), number(2, 2)].concat()); 2000].concat();
    let types = [types, function(1, 3, 3), sample(&[1], 2001)].concat();
    let inlined = [number(1, 1), vec![bytes(4, &number(1, 1)); 500_000].concat()].concat();
    let inlined = [bytes(5, &[number(1, 1), number(2, 3)].concat()), bytes(4, &inlined)].concat();
    let inlined = [inlined, sample(&[1], 1), sample(&vec![1; 3000], 1)].concat();
    let dir = temp_dir();
    for (what, rest, is_cut) in [
        ("a name", named, true),
        ("a file", of_file, true),
        ("deep", deep, true),
        ("types", types, true),
        ("inlined", inlined, false),
    ] {
        let file = gzip(&profile(&[long.clone(), rest]));
        assert!(file.len() < 300_000, "{what}: {} bytes", file.len());
        std::fs::write(dir.path().join("x.pb.gz"), file).unwrap();
        let viewers = ["report", "report -g", "report --header", "report --json", "flame"];
        for viewer in viewers.into_iter().chain(["flame --folded", "flame --json", "graph"]) {
            let out = limited(dir.path(), viewer, "x.pb.gz").ok();
            let shown = &out.stdout;
            assert!(shown.len() < MOST, "{what}, {viewer}: {} bytes", shown.len());
            let mark = b"[cut: 400000 bytes, ";
            if is_cut && viewer == "report --json" {
                assert!(shown.windows(mark.len()).any(|at| at == mark), "{what}");
            }
        }
        // A file has each name once.
        if is_cut {
            let merged = Prof::new(&dir, "merge -o merged.pb.gz x.pb.gz").run().ok();
            assert!(merged.stderr.len() < 1000);
            let size = std::fs::metadata(dir.path().join("merged.pb.gz")).unwrap().len();
            assert!(size < 300_000, "{what}: {size} bytes");
        }
    }
}
