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
