//! Copies of parts of sections have the rules of their files, and are bounded.

use super::super::copied::{FEW, PAIRS};
use super::super::pieces::Part;
use super::functions::File;
use super::*;

const LIBRARY: &str = "/lib/x86_64-linux-gnu/libc.so.6";

fn skip() {
    sys::testing::skip(&format!("there is no {LIBRARY}"));
}

/// A library, and what looks rules up in copies of it.
struct Copying {
    file: File,
    tables: UnwindTables,
    rows: Rows,
    context: UnwindContext,
}

impl Copying {
    fn new(path: &str, copies: &CopyMemory) -> Option<Copying> {
        let file = File::open(path)?;
        let tables = file.tables(true).with_memory(&TableMemory::default(), copies);
        (0..FEW).for_each(|_| tables.prepare_copy(1, file.code().start));
        let context = UnwindContext::new_in();
        Some(Copying { file, tables, rows: Rows::default(), context })
    }

    fn find(&mut self, address: u64) -> Option<Described> {
        self.tables.described_in_copy(1, &mut self.rows, &mut self.context, address)
    }
}

#[test]
fn a_copy_has_the_rules_of_its_file() {
    let Some(mut copying) = Copying::new(LIBRARY, &CopyMemory::default()) else { return skip() };
    let (mut covered, mut missing) = (0, 0);
    let (mut own, mut context) = (Rows::default(), UnwindContext::new_in());
    for address in copying.file.code().step_by(7) {
        let expected = copying.tables.described_in(1, &mut own, &mut context, address);
        copying.tables.prepare_copy(1, address);
        let is_covered = expected.rule != Rule::Uncovered;
        covered += usize::from(is_covered);
        match copying.find(address) {
            Some(described) => assert_eq!(described, expected, "{address:#x}"),
            None => missing += usize::from(is_covered),
        }
    }
    // The largest functions are not evaluated from a copy.
    assert!(missing * 20 < covered, "{missing} of {covered}");
}

#[test]
fn files_of_which_few_rules_are_needed_are_not_copied() {
    let Some(file) = File::open(LIBRARY) else { return skip() };
    let copies = CopyMemory::default();
    let tables = file.tables(true).with_memory(&TableMemory::default(), &copies);
    for _ in 1..FEW {
        tables.prepare_copy(1, file.code().start);
        assert_eq!(copies.pieces().size(), 0);
    }
    tables.prepare_copy(1, file.code().start);
    assert!(copies.pieces().size() > 0);
}

/// Bytes of an image's sections.
fn size(file: &File) -> usize {
    let sections = [&file.elf.eh_frame_hdr, &file.elf.eh_frame].into_iter().flatten();
    sections.map(|section| section.range.len()).sum()
}

#[test]
fn an_image_is_copied_whole_if_there_is_room() {
    let Some(file) = File::open(LIBRARY) else { return skip() };
    let size = size(&file);
    for (most, is_whole) in [(size + size / 8, true), (size, false)] {
        let copies = CopyMemory::of(most);
        let Some(mut copying) = Copying::new(LIBRARY, &copies) else { return skip() };
        assert!(copies.pieces().size() <= most);
        let mut found = 0;
        let addresses = copying.file.code().step_by(0x1000);
        let all = addresses.clone().count();
        addresses.for_each(|address| found += usize::from(copying.find(address).is_some()));
        // The rest is without unwind information, or in large functions.
        assert_eq!(found * 10 > all * 9, is_whole, "{found} of {all}");
    }
}

#[test]
fn copies_in_use_stay_while_others_come_and_go() {
    let part = 32 << 10;
    let most = part * 10;
    let copies = CopyMemory::of(most);
    let mut pieces = copies.pieces();
    let copy = |length: usize| move || Some(vec![0; length]);
    let used = [(1, Part::Firsts), (1, Part::Table(2)), (2, Part::Frame(3))];
    for (image, kind) in used {
        assert!(pieces.provide(image, kind, part, copy(part)));
    }
    for number in 0..1000 {
        pieces.count_lookup();
        assert!(pieces.provide(3, Part::Frame(number), part, copy(part)));
        assert!(pieces.get(3, Part::Frame(number)).is_some());
        assert!(used.iter().all(|&(image, kind)| pieces.get(image, kind).is_some()), "{number}");
        assert!(pieces.size() <= most);
    }
    assert!(pieces.get(3, Part::Frame(990)).is_none());
    // There are never too many.
    for number in 0..10_000 {
        pieces.count_lookup();
        pieces.provide(4, Part::Frame(number), 0, copy(0));
    }
    let left = (0..10_000).filter(|&number| pieces.get(4, Part::Frame(number)).is_some()).count();
    assert_eq!(left, most / 1024);
}

#[test]
fn copies_are_made_again_after_they_were_released() {
    let copies = CopyMemory::default();
    let Some(mut copying) = Copying::new(LIBRARY, &copies) else { return skip() };
    let address = copying.file.code().start + 0x1000;
    copying.tables.prepare_copy(1, address);
    assert!(copying.find(address).is_some());
    copies.clear();
    copying.rows = Rows::default();
    assert_eq!(copies.pieces().size(), 0);
    assert_eq!(copying.find(address), None);
    copying.tables.prepare_copy(1, address);
    assert!(copying.find(address).is_some());
}

#[test]
fn half_of_the_copies_is_released_oldest_first() {
    let copies = CopyMemory::default();
    for number in 0..10 {
        let mut pieces = copies.pieces();
        pieces.count_lookup();
        pieces.provide(1, Part::Frame(number), 4096, || Some(vec![0; 4096]));
    }
    copies.halve();
    let mut pieces = copies.pieces();
    let left: Vec<u32> = (0..10).filter(|&n| pieces.get(1, Part::Frame(n)).is_some()).collect();
    assert_eq!(left, [5, 6, 7, 8, 9]);
    assert_eq!(pieces.size(), 5 * 4096);
}

#[test]
fn copying_takes_no_more_than_the_lookups_that_it_serves() {
    let copies = CopyMemory::of(64 << 10);
    let mut pieces = copies.pieces();
    let mut bytes = 0;
    for number in 0..100_000 {
        pieces.count_lookup();
        let copy = || Some(vec![0; 32 << 10]);
        bytes += u64::from(pieces.provide(1, Part::Frame(number), 32 << 10, copy)) * (32 << 10);
    }
    // Those of the first 64 MiB, and 1 KiB for each lookup.
    assert!(((64 << 20)..(64 << 20) + (100_000 << 10)).contains(&bytes), "{bytes}");
    assert!(!pieces.provide(1, Part::Firsts, 64 << 10, || Some(vec![0; 64 << 10])), "too large");
}

#[test]
fn the_parts_of_a_search_table_find_the_entries_that_it_finds() {
    let pairs = 3 * PAIRS as i32 / 2;
    let mut hdr = vec![1, 0x1b, 0x03, 0x3b];
    // `.eh_frame` is at the same address; then the number of pairs.
    hdr.extend_from_slice(&(-4_i32).to_le_bytes());
    hdr.extend_from_slice(&pairs.to_le_bytes());
    for pair in 0..pairs {
        // Some functions have the same address.
        let start = pair / 3 * 48;
        hdr.extend([start, pair * 40].into_iter().flat_map(i32::to_le_bytes));
    }
    let bases = BaseAddresses::default().set_eh_frame_hdr(0x1000);
    let search = Search::new(Some(SectionBytes::from(hdr)), &bases);
    let Search::Usual(table) = search else { panic!("a usual table") };
    assert_eq!(table.parts(), 2);
    let firsts = table.firsts();
    let mut found = std::collections::BTreeSet::new();
    for address in (0x1000..0x1000 + pairs as u64 * 16).step_by(7) {
        let part = table.part_of(&firsts, address).unwrap();
        let offset = table.offset_in(table.part(part).unwrap(), address).unwrap();
        let same = table.offset(address).unwrap();
        // Of entries with the same address, any.
        assert_eq!(offset / 120, same / 120, "{address:#x}");
        found.insert(offset / 120);
    }
    assert_eq!(found.len(), pairs as usize / 3);
}
