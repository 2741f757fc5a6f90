//! Files with more symbols, names and segments than any program.

use super::*;
use sys::elf::Segment;

/// Address of the code, which is at the beginning of the file.
const BASE: u64 = 0x40_0000;

/// An ELF file with some bytes of code, a string table, and symbols by value, size and name.
fn file(code: usize, strings: &[u8], symbols: impl Iterator<Item = (u64, u64, u32)>) -> Vec<u8> {
    const HEADER: usize = 64;
    let mut file = vec![0x90; code.max(HEADER).next_multiple_of(8)];
    let strings_at = file.len();
    file.extend_from_slice(strings);
    file.resize(file.len().next_multiple_of(8), 0);
    let symbols_at = file.len();
    for (value, size, name) in symbols {
        file.extend_from_slice(&name.to_le_bytes());
        // A global function in section 1.
        file.extend_from_slice(&[0x12, 0, 1, 0]);
        file.extend_from_slice(&value.to_le_bytes());
        file.extend_from_slice(&size.to_le_bytes());
    }
    let end = file.len();
    let mut section = |kind: u32, from: usize, to: usize, link: u32, entry: u64| {
        let mut header = [0; 64];
        header[4..8].copy_from_slice(&kind.to_le_bytes());
        header[24..32].copy_from_slice(&(from as u64).to_le_bytes());
        header[32..40].copy_from_slice(&((to - from) as u64).to_le_bytes());
        header[40..44].copy_from_slice(&link.to_le_bytes());
        header[56..].copy_from_slice(&entry.to_le_bytes());
        file.extend_from_slice(&header);
    };
    section(0, 0, 0, 0, 0);
    section(3, strings_at, strings_at + strings.len(), 0, 0);
    section(2, symbols_at, end, 1, 24);
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
    header[16..24].copy_from_slice(&[2, 0, 62, 0, 1, 0, 0, 0]);
    header[40..48].copy_from_slice(&(end as u64).to_le_bytes());
    header[52..].copy_from_slice(&[64, 0, 56, 0, 0, 0, 64, 0, 3, 0, 1, 0]);
    file[..HEADER].copy_from_slice(&header);
    file
}

fn functions(file: &[u8], segments: usize) -> Functions {
    let segments = vec![Segment { address: BASE, offset: 0, size: 1 << 20 }; segments];
    Functions::new(Text { segments: &segments, bytes: file }, 0, std::iter::empty(), &|| {})
}

#[test]
fn symbols_are_starts_and_ends() {
    let symbols = [(BASE + 0x40, 8, 0), (BASE + 0x60, 0, 0), (BASE - 1, 4, 0)];
    let found = functions(&file(0x100, b"\0", symbols.into_iter()), 1);
    assert_eq!(found.sized, [(BASE + 0x40, BASE + 0x48)]);
    assert_eq!((found.ends, found.starts), (vec![BASE + 0x48], vec![BASE + 0x60]));
    assert!(!found.is_haskell && !found.are_too_many);
}

#[test]
fn only_the_whole_name_is_haskell_s() {
    for (strings, name, expected) in [
        (&b"\0stg_upd_frame_info\0"[..], 1, true),
        (b"\0stg_upd_frame_info\0", 2, false),
        (b"\0stg_upd_frame_info_x\0", 1, false),
        // Cut off at the end of the table.
        (b"\0stg_upd_frame_info", 1, false),
        (b"\0stg_upd_frame_info\0", u32::MAX, false),
    ] {
        let symbols = [(BASE, 8, name)];
        let found = functions(&file(0x100, strings, symbols.into_iter()), 1);
        assert_eq!(found.is_haskell, expected, "{name}");
    }
}

/// Also where two parts meet that are searched one after the other.
#[test]
fn haskell_s_name_is_found_anywhere_in_a_table() {
    let length = HASKELL.len();
    for at in [1, BETWEEN_CHECKS - length, BETWEEN_CHECKS - 1, BETWEEN_CHECKS, 3 * BETWEEN_CHECKS] {
        let mut strings = vec![0; at + length];
        strings[at..].copy_from_slice(HASKELL);
        let symbols = [(BASE, 8, 0), (BASE + 8, 8, at as u32)];
        let found = functions(&file(0x100, &strings, symbols.into_iter()), 1);
        assert!(found.is_haskell, "{at}");
    }
}

/// A sparse file may state a table of terabytes, which takes minutes to read.
#[test]
fn larger_tables_of_names_are_not_read_as_a_whole() {
    let mut strings = vec![0; MAX_NAMES + HASKELL.len()];
    strings[MAX_NAMES..].copy_from_slice(HASKELL);
    for (name, expected) in [(0, false), (MAX_NAMES as u32, true)] {
        let found = functions(&file(0x100, &strings, std::iter::once((BASE, 8, name))), 1);
        assert_eq!(found.is_haskell, expected);
        // The code and the symbol.
        assert_eq!(found.read, (1 << 20) + 1);
    }
}

/// Reading each name to its end would take minutes.
#[test]
fn symbols_may_share_a_name_without_an_end() {
    let count = 1 << 20;
    let symbols = (0..count).map(|_| (0, 0, 0));
    let found = functions(&file(0x100, &vec![b'A'; 1 << 20], symbols), 1);
    assert!(!found.is_haskell && found.starts.len() < 100);
    assert!(found.read >= count);
}

#[test]
fn more_functions_than_are_kept_are_none() {
    for (count, are_too_many) in [(MAX_FUNCTIONS as u64, false), (MAX_FUNCTIONS as u64 + 1, true)] {
        for size in [1, 0] {
            let symbols = (0..count).map(|i| (BASE + i, size, 0));
            let found = functions(&file(1 << 20, b"\0", symbols), 1);
            assert_eq!(found.are_too_many(), are_too_many, "{count} {size}");
            assert_eq!(found.start(BASE + 9).is_none(), are_too_many);
        }
    }
    // The same ones again are no more.
    let symbols = (0..3 * MAX_FUNCTIONS as u64).map(|i| (BASE + i % 1000, 1, 0));
    let found = functions(&file(1 << 20, b"\0", symbols), 1);
    assert_eq!((found.are_too_many(), found.sized.len()), (false, 1000));
}

/// Each symbol's segment is looked for.
#[test]
fn files_with_many_segments_are_not_searched() {
    let file = file(0x100, b"\0", std::iter::once((BASE, 8, 0)));
    assert!(!functions(&file, MAX_SEGMENTS).are_too_many());
    assert!(functions(&file, MAX_SEGMENTS + 1).are_too_many());
}
