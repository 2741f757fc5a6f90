//! Descriptions of code made at run time, by the processes that made it: perf maps and jitdump
//! files.
#![no_main]

use std::io::{BufReader, Write};

use libfuzzer_sys::fuzz_target;
use sys::jit::{jitdump, perf_map};

/// Maximum number of entries taken from one file.
const MOST: usize = 4096;

fuzz_target!(|data: &[u8]| {
    let Some((&kind, data)) = data.split_first() else { return };
    if kind % 2 == 0 {
        let mut entries = 0;
        let _ = perf_map::read(&mut BufReader::new(data), 0, &mut |entry| {
            assert!(entry.start <= entry.end);
            entries += 1;
            entries < MOST
        });
        return;
    }
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(data).expect("room for it");
    let start = jitdump::header(&file).map_or(0, |header| header.size);
    let mut records = Vec::new();
    let _ = jitdump::read(&file, start..data.len() as u64, &mut |_, record| {
        records.push(record);
        records.len() < MOST
    });
    for record in records {
        if let jitdump::JitRecord::Lines { lines, .. } = record {
            let _ = jitdump::line_entries(&file, lines);
        }
    }
});
