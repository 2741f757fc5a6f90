//! Descriptions of code made at run time, by the processes that made it: perf maps and jitdump
//! files. Reading them has the cost of their size, in CPU time and memory.

use std::fs::File;
use std::io::{BufReader, Write};
use std::time::Duration;

use super::cost::Limits;

use sys::jit::{jitdump, perf_map};

/// Maximum number of entries taken from one file.
const MOST: usize = 4096;

const LIMITS: Limits = Limits {
    time: Duration::from_millis(50),
    time_for_a_byte: Duration::from_micros(10),
    memory: 1 << 20,
    memory_for_a_byte: 64,
};

/// Takes an input.
pub fn run(data: &[u8]) {
    let Some((&kind, data)) = data.split_first() else { return };
    if kind % 2 == 0 {
        return LIMITS.hold(data.len(), || read_perf_map(data));
    }
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(data).expect("room for it");
    LIMITS.hold(data.len(), || read_jitdump(&file, data.len() as u64));
}

fn read_perf_map(data: &[u8]) {
    let mut entries = 0;
    let _ = perf_map::read(&mut BufReader::new(data), 0, &mut |entry| {
        assert!(entry.start <= entry.end);
        entries += 1;
        entries < MOST
    });
}

fn read_jitdump(file: &File, size: u64) {
    let start = jitdump::header(file).map_or(0, |header| header.size);
    let mut records = Vec::new();
    let _ = jitdump::read(file, start..size, &mut |_, record| {
        records.push(record);
        records.len() < MOST
    });
    for record in records {
        if let jitdump::JitRecord::Lines { lines, .. } = record {
            let _ = jitdump::line_entries(file, lines);
        }
    }
}
