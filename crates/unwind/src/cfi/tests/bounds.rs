//! Memory and work are bounded, whatever a file contains.

use std::io::Write;

use super::super::memory::{self, MAX_BUILDS, MAX_BYTES, MAX_ENTRIES};
use super::super::rows::MAX_ROWS;
use super::*;
use crate::cfi::memory::{MAX_DECOMPRESSED, MAX_INDEXED};

/// A `.debug_frame`, or an `.eh_frame`.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Debug,
    Eh,
}

/// A section with a CIE, and functions of 16 bytes from an address on, with these instructions.
fn section(kind: Kind, start: u64, functions: usize, instructions: &[u8]) -> Vec<u8> {
    let id = if kind == Kind::Eh { 0 } else { u32::MAX };
    let cie = [&[1, 0, 1, 0x78, 16][..], &[0x0c, 7, 8, 0x80 | 16, 1], &[0, 0]].concat();
    let mut bytes = Vec::new();
    bytes.extend((cie.len() as u32 + 4).to_le_bytes());
    bytes.extend(id.to_le_bytes());
    bytes.extend(&cie);
    bytes.reserve(functions * (24 + instructions.len()));
    for number in 0..functions as u64 {
        bytes.extend((20 + instructions.len() as u32).to_le_bytes());
        let to_cie = if kind == Kind::Eh { bytes.len() as u32 } else { 0 };
        bytes.extend(to_cie.to_le_bytes());
        bytes.extend((start + number * 16).to_le_bytes());
        bytes.extend(16u64.to_le_bytes());
        bytes.extend(instructions);
    }
    bytes
}

/// Tables of a file with a compressed `.debug_frame` that states this size.
fn compressed(contents: &[u8], states: u64, memory: &TableMemory) -> UnwindTables {
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(6));
    zlib.write_all(contents).unwrap();
    let file = zlib.finish().unwrap();
    let section = sys::elf::DebugFrame::new(0..file.len(), Some(states));
    let file = Arc::new(Bytes::Memory(file));
    UnwindTables::new(BaseAddresses::default(), None, None, Some((section, file)))
        .with_memory(memory, &CopyMemory::default())
}

/// The same of a file with an `.eh_frame` without a search table.
fn plain(contents: Vec<u8>, memory: &TableMemory) -> UnwindTables {
    let frame = Some(SectionBytes::from(contents));
    UnwindTables::new(BaseAddresses::default(), frame, None, None)
        .with_memory(memory, &CopyMemory::default())
}

/// Looks up rules of images by what is cached, as while recording.
#[derive(Default)]
struct Lookups {
    rows: Rows,
    context: UnwindContext,
}

impl Lookups {
    fn rule(&mut self, image: u32, tables: &UnwindTables, address: u64) -> Rule {
        tables.described_in(image, &mut self.rows, &mut self.context, address).rule
    }
}

const PLAIN: Rule = Rule::Offset { register: SP, cfa: 8, bp: Saved::Same, ra: ReturnAddress };

#[test]
fn a_section_that_is_too_large_is_not_decompressed() {
    let memory = TableMemory::default();
    let contents = section(Kind::Debug, START, 2, &[]);
    let mut lookups = Lookups::default();
    for states in [MAX_DECOMPRESSED as u64 + 1, 260_000_000, u64::MAX] {
        let tables = compressed(&contents, states, &memory);
        assert_eq!(lookups.rule(1, &tables, START), Rule::Uncovered);
        assert!(tables.over_budget() && !tables.is_damaged(&mut lookups.context, START));
        assert_eq!((memory.bytes(), memory.work()), (0, 0));
    }
    // What it states is its size, even if it has more.
    let contents = section(Kind::Debug, START, 1000, &[]);
    let tables = compressed(&contents, 1024, &memory);
    assert_eq!(lookups.rule(2, &tables, START), PLAIN);
    assert_eq!(lookups.rule(2, &tables, START + 16 * 999), Rule::Uncovered);
    assert!(memory.bytes() <= 1024 + 8 * 1024 / 24, "{}", memory.bytes());
}

/// Six programs of 12 MiB of `.debug_frame` each.
#[test]
fn tables_of_all_images_together_are_bounded() {
    let memory = TableMemory::default();
    let functions = MAX_DECOMPRESSED / 24 - 1;
    let contents = section(Kind::Debug, START, functions, &[]);
    let all: Vec<UnwindTables> =
        (0..6).map(|_| compressed(&contents, contents.len() as u64, &memory)).collect();
    let mut lookups = Lookups::default();
    let last = START + 16 * (functions as u64 - 1);
    let mut found = 0;
    for round in 0..20 {
        for (image, tables) in (0..).zip(&all) {
            let rule = lookups.rule(image, tables, last - 16 * round);
            assert!([PLAIN, Rule::Uncovered].contains(&rule));
            found += usize::from(rule == PLAIN);
            assert!(memory.bytes() <= MAX_BYTES && memory.most() <= MAX_BYTES);
        }
    }
    // The budget of all suffices for two of them, and then for what the lookups add.
    let lookups = 20 * 6;
    assert!(memory.work() <= memory::BUDGET + lookups * memory::REFILL);
    assert!(memory.builds() >= 2 && found >= 2, "{found}");
    assert!(all.iter().any(UnwindTables::over_budget));
}

/// Each needs the memory of the other.
#[test]
fn alternating_files_are_not_rebuilt_for_ever() {
    let memory = TableMemory::default();
    let contents = section(Kind::Debug, START, MAX_DECOMPRESSED / 24 - 1, &[]);
    let all = [(); 2].map(|()| compressed(&contents, contents.len() as u64, &memory));
    let mut lookups = Lookups::default();
    let mut found = [0; 2];
    const ROUNDS: u64 = 250_000;
    for round in 0..ROUNDS {
        for (image, tables) in all.iter().enumerate() {
            let address = START + 16 * (round % 400_000);
            let is_found = lookups.rule(image as u32, tables, address) == PLAIN;
            found[image] += usize::from(is_found);
        }
    }
    assert!(memory.builds() <= 2 * usize::from(MAX_BUILDS), "{}", memory.builds());
    assert!(memory.work() <= memory::BUDGET + 2 * ROUNDS * memory::REFILL);
    // The one that was built last keeps its memory.
    assert!(found.iter().max().is_some_and(|&most| most as u64 > ROUNDS / 4), "{found:?}");
    assert!(all.iter().any(UnwindTables::over_budget));
}

/// Small tables of other programs stay usable.
#[test]
fn large_tables_displace_small_ones_only_while_they_are_used() {
    let memory = TableMemory::default();
    let mut lookups = Lookups::default();
    let small: Vec<UnwindTables> =
        (0..50).map(|_| plain(section(Kind::Eh, START, 1000, &[]), &memory)).collect();
    for (image, tables) in (0..).zip(&small) {
        assert_eq!(lookups.rule(image, tables, START), PLAIN);
    }
    assert_eq!(memory.bytes(), 50 * 8 * 1000);
    let contents = section(Kind::Debug, START, MAX_DECOMPRESSED / 24 - 1, &[]);
    let large = compressed(&contents, contents.len() as u64, &memory);
    assert_eq!(lookups.rule(100, &large, START), PLAIN);
    assert!(memory.most() <= MAX_BYTES);
    for (image, tables) in (0..).zip(&small) {
        assert_eq!(lookups.rule(image, tables, START + 16), PLAIN);
        assert!(!tables.over_budget());
    }
}

#[test]
fn an_index_has_a_largest_size() {
    let memory = TableMemory::default();
    let mut lookups = Lookups::default();
    let functions = MAX_ENTRIES + 1000;
    let tables = plain(section(Kind::Eh, START, functions, &[]), &memory);
    for (number, rule) in [(0, PLAIN), (MAX_ENTRIES - 1, PLAIN), (functions - 1, Rule::Uncovered)] {
        assert_eq!(lookups.rule(1, &tables, START + 16 * number as u64), rule, "{number}");
    }
    assert!(tables.over_budget());
    assert_eq!(memory.bytes(), 8 * MAX_ENTRIES);
}

/// An entry that cannot be read costs as much as another.
#[test]
fn empty_and_damaged_sections_take_bounded_work_and_no_memory() {
    let memory = TableMemory::default();
    let mut lookups = Lookups::default();
    for (image, byte) in (0..).zip([0u8, 1, 0x10, 0xff]) {
        let tables = plain(vec![byte; 3 * MAX_INDEXED], &memory);
        assert_eq!(lookups.rule(image, &tables, START), Rule::Uncovered);
        assert_eq!(memory.bytes(), 0);
    }
    assert!(memory.work() <= memory::BUDGET);
}

/// Two CIEs of 4 KB, in turn: each entry would have to read one again.
#[test]
fn alternating_cies_do_not_make_an_index_quadratic() {
    let memory = TableMemory::default();
    let mut bytes = Vec::new();
    let augmentation = [&b"z"[..], &[b'S'; 4000], &[0]].concat();
    let cie = [&[1][..], &augmentation, &[1, 0x78, 16, 0, 0x0c, 7, 8, 0x90, 1]].concat();
    for _ in 0..2 {
        bytes.extend((cie.len() as u32 + 4).to_le_bytes());
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(&cie);
    }
    let functions = 100_000u64;
    for number in 0..functions {
        bytes.extend(24u32.to_le_bytes());
        let cie = if number % 2 == 0 { 0 } else { cie.len() + 8 };
        bytes.extend(((bytes.len() - cie) as u32).to_le_bytes());
        bytes.extend((START + number * 16).to_le_bytes());
        bytes.extend(16u64.to_le_bytes());
        bytes.extend([0; 4]);
    }
    let size = bytes.len();
    let tables = plain(bytes, &memory);
    let mut lookups = Lookups::default();
    assert_eq!(lookups.rule(1, &tables, START), PLAIN);
    assert_eq!(lookups.rule(1, &tables, START + 16 * (functions - 1)), Rule::Uncovered);
    assert!(tables.over_budget());
    let entries = memory.bytes() / 8;
    assert!(entries * 4000 <= 5 * size, "{entries} entries of {size} bytes");
}

/// An entry with more rows than are stored: each of its addresses has the right rule, as long as
/// the budget lasts.
#[test]
fn an_entry_with_very_many_rows_costs_a_bounded_amount() {
    let memory = TableMemory::default();
    // Each byte of code has a row: advance by 1, and set the CFA.
    let rows = MAX_ROWS + 1000;
    let mut instructions: Vec<u8> =
        (0..rows).flat_map(|i| [0x41, 0x0e, 16 + i as u8 % 2]).collect();
    instructions.push(0);
    let size = instructions.len() as u64;
    let mut bytes = section(Kind::Eh, START, 1, &instructions);
    let of_code = section(Kind::Eh, START, 0, &[]).len() + 16;
    bytes[of_code..of_code + 8].copy_from_slice(&(rows as u64).to_le_bytes());
    let tables = plain(bytes, &memory);
    let mut lookups = Lookups::default();
    let lookups_made = 10_000;
    let mut right = 0;
    for number in 0..lookups_made {
        let at = 1 + number * 31 % (rows as u64 - 1);
        let cfa = 16 + (at - 1) as i32 % 2;
        match lookups.rule(1, &tables, START + at) {
            Rule::Uncovered => {}
            rule => {
                right += 1;
                let bp = Saved::Same;
                assert_eq!(rule, Rule::Offset { register: SP, cfa, bp, ra: ReturnAddress });
            }
        }
    }
    assert!(right > 0 && right * size <= BUDGET + lookups_made * REFILL, "{right}");
    assert!(tables.over_budget() && lookups.rows.bytes() <= 10 << 20);
}

#[test]
fn an_entry_that_is_too_large_is_not_evaluated() {
    let memory = TableMemory::default();
    let mut lookups = Lookups::default();
    for (image, size, rule) in [(1, 60 << 10, PLAIN), (2, 70 << 10, Rule::Uncovered)] {
        let tables = plain(section(Kind::Eh, START, 1, &vec![0; size]), &memory);
        assert_eq!(lookups.rule(image, &tables, START), rule);
        assert_eq!(tables.over_budget(), rule == Rule::Uncovered);
    }
}

/// More different rules than are numbered, several times.
#[test]
fn any_number_of_different_rules_is_told_apart() {
    let memory = TableMemory::default();
    let functions = 40_000u64;
    let mut bytes = section(Kind::Eh, START, 0, &[]);
    for number in 0..functions {
        // The CFA is rsp + 16384 + number, in three bytes.
        let [low, high] = [number & 127 | 128, number >> 7 & 127 | 128].map(|b| b as u8);
        let cfa = [0x0e, low, high, 1 + (number >> 14) as u8];
        let function = section(Kind::Eh, START + number * 16, 1, &cfa);
        // The offset of its CIE, backwards.
        let at = section(Kind::Eh, START, 0, &[]).len();
        let length = bytes.len() as u32 + 4;
        bytes.extend(&function[at..at + 4]);
        bytes.extend(length.to_le_bytes());
        bytes.extend(&function[at + 8..]);
    }
    let tables = plain(bytes, &memory);
    let mut rows = Rows::default();
    let mut context = UnwindContext::new_in();
    let mut most = 0;
    for number in (0..functions).chain(0..functions).chain(0..100) {
        let address = START + number * 16;
        let cached = rows.at(1, address);
        let rule = tables.described_in(1, &mut rows, &mut context, address).rule;
        let cfa = 16384 + number as i32;
        let expected = Rule::Offset { register: SP, cfa, bp: Saved::Same, ra: ReturnAddress };
        assert_eq!(rule, expected);
        assert!(cached.is_none_or(|cached| cached == rule));
        rows.keep_at(1, address, rule);
        most = most.max(rows.bytes());
    }
    assert!(most <= 10 << 20, "{most}");
    assert!(!tables.over_budget());
}

/// Of entries that begin at one address, the last one counts; those far from the code are left out.
#[test]
fn an_index_finds_the_last_of_equal_entries_and_none_far_away() {
    let memory = TableMemory::default();
    let cie = section(Kind::Eh, START, 0, &[]).len();
    let mut bytes = section(Kind::Eh, START, 1, &[0x0e, 16]);
    for (start, cfa) in [(START, 24), (START + (1 << 40), 32), (0, 40), (u64::MAX - 15, 48)] {
        let entry = section(Kind::Eh, start, 1, &[0x0e, cfa]);
        let back = bytes.len() as u32 + 4;
        bytes.extend(&entry[cie..cie + 4]);
        bytes.extend(back.to_le_bytes());
        bytes.extend(&entry[cie + 8..]);
    }
    let tables = plain(bytes, &memory);
    let mut lookups = Lookups::default();
    let of = |cfa| Rule::Offset { register: SP, cfa, bp: Saved::Same, ra: ReturnAddress };
    assert_eq!(lookups.rule(1, &tables, START + 1), of(24));
    assert_eq!(lookups.rule(1, &tables, 1), of(40));
    assert_eq!(lookups.rule(1, &tables, START + (1 << 40)), Rule::Uncovered);
    assert_eq!(memory.bytes(), 4 * 8);
}
