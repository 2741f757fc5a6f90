//! The mappings of addresses.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use profile::{Mapping, MappingId, Profile, StrId};

/// Where programs without a variable address begin.
const PROGRAM_START: u64 = 0x40_0000;

/// Most mappings of a file whose beginnings are found by addresses before them.
const EXTENDED: usize = 64;

/// Adds mappings to a profile, and finds those of its locations.
///
/// As with pprof, parts of one mapping are joined, the program comes first, and addresses without a
/// mapping belong to one of all addresses that has no file.
pub(super) fn add_mappings(profile: &mut Profile, mut mappings: Vec<Mapping>) {
    join(&mut mappings);
    move_program(profile, &mut mappings);
    if let [first, second, ..] = &*mappings {
        let is_huge_page = profile.str(first.file).starts_with("/anon_hugepage");
        if is_huge_page && first.limit == second.start {
            mappings.remove(0);
        }
    }
    if let Some(first) = mappings.first_mut()
        && first.start.wrapping_sub(first.file_offset) == PROGRAM_START
    {
        extend(first);
    }
    find(profile, mappings);
}

/// Joins each mapping with the one before, if they are parts of one.
fn join(mappings: &mut Vec<Mapping>) {
    let is_same = |a: StrId, b: StrId| a == b || a == StrId::EMPTY || b == StrId::EMPTY;
    mappings.dedup_by(|next, last| {
        let is_part = is_same(last.file, next.file)
            && is_same(last.build_id, next.build_id)
            && last.limit == next.start;
        let length = last.limit.wrapping_sub(last.start);
        let is_next = last.file_offset == 0
            || next.file_offset == 0
            || last.file_offset.wrapping_add(length) == next.file_offset;
        if is_part && is_next {
            last.limit = next.limit;
            last.file = if next.file == StrId::EMPTY { last.file } else { next.file };
            last.build_id =
                if next.build_id == StrId::EMPTY { last.build_id } else { next.build_id };
        }
        is_part && is_next
    });
}

/// Exchanges the first mapping with that of the program: the first that is no library and has a
/// path.
fn move_program(profile: &Profile, mappings: &mut [Mapping]) {
    let is_program = |mapping: &Mapping| {
        let file = profile.str(mapping.file).replace("(deleted)", "");
        let file = file.trim();
        !file.is_empty() && !file.starts_with('[') && !is_library(file)
    };
    if let Some(program) = mappings.iter().position(is_program) {
        mappings.swap(0, program);
    }
}

fn is_library(file: &str) -> bool {
    let has_version = |end: &str| {
        let version = end.strip_prefix(['.', '_']);
        version.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
    };
    file.ends_with(".so")
        || file.match_indices(".so").any(|(at, so)| has_version(&file[at + so.len()..]))
}

/// Extends a mapping to the beginning of its file.
fn extend(mapping: &mut Mapping) {
    mapping.start = mapping.start.wrapping_sub(mapping.file_offset);
    mapping.file_offset = 0;
}

/// Sets the mapping of each location.
fn find(profile: &mut Profile, mut mappings: Vec<Mapping>) {
    let mut within = Index::new(mappings.iter().map(|m| m.start..m.limit));
    let mut before = Index::new(mappings.iter().map(beginning));
    let mut extended = 0;
    let mut other = None;
    for location in &mut profile.locations {
        let address = location.address;
        if location.mapping.is_some() || address == 0 {
            continue;
        }
        let found = within.first(address).or_else(|| {
            let found = before.first(address).filter(|_| extended < EXTENDED)?;
            extended += 1;
            extend(&mut mappings[found]);
            within = Index::new(mappings.iter().map(|m| m.start..m.limit));
            before = Index::new(mappings.iter().map(beginning));
            Some(found)
        });
        let found = found.or(other).unwrap_or_else(|| {
            mappings.push(Mapping { limit: u64::MAX, ..Mapping::default() });
            other = Some(mappings.len() - 1);
            mappings.len() - 1
        });
        location.mapping = Some(MappingId(found as u32));
    }
    profile.mappings = mappings;
}

/// The addresses before a mapping at which its file begins.
fn beginning(mapping: &Mapping) -> Range<u64> {
    mapping.start.saturating_sub(mapping.file_offset)..mapping.start
}

/// The first of several ranges that contains an address.
struct Index {
    /// Disjoint and in order.
    parts: Vec<Part>,
}

/// A range of addresses, and the first of the ranges that contain it.
struct Part {
    addresses: Range<u64>,
    first: usize,
}

impl Index {
    fn new(ranges: impl Iterator<Item = Range<u64>>) -> Index {
        let ranges: Vec<_> = ranges.collect();
        let mut order: Vec<_> = (0..ranges.len()).filter(|&n| !ranges[n].is_empty()).collect();
        order.sort_unstable_by_key(|&n| ranges[n].start);
        let mut ends: Vec<_> =
            order.iter().flat_map(|&n| [ranges[n].start, ranges[n].end]).collect();
        ends.sort_unstable();
        ends.dedup();
        let mut parts = Vec::new();
        let mut open = BinaryHeap::new();
        let mut order = order.into_iter().peekable();
        for pair in ends.windows(2) {
            let addresses = pair[0]..pair[1];
            while let Some(n) = order.next_if(|&n| ranges[n].start == addresses.start) {
                open.push(Reverse(n));
            }
            while open.peek().is_some_and(|&Reverse(n)| ranges[n].end <= addresses.start) {
                open.pop();
            }
            if let Some(&Reverse(first)) = open.peek() {
                parts.push(Part { addresses, first });
            }
        }
        Index { parts }
    }

    fn first(&self, address: u64) -> Option<usize> {
        let next = self.parts.partition_point(|part| part.addresses.start <= address);
        let part = &self.parts[next.checked_sub(1)?];
        part.addresses.contains(&address).then_some(part.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assembly::Assembly;

    /// The mappings with these starts, limits, offsets and files, and those of the addresses.
    fn added(mappings: &[(u64, u64, u64, &str)], addresses: &[u64]) -> Vec<String> {
        let mut all = Assembly::new(&[]);
        for &address in addresses {
            all.location(None, address, &[]);
        }
        let mappings = mappings.iter().map(|&(start, limit, file_offset, file)| {
            let file = all.string(file);
            Mapping { start, limit, file_offset, file, ..Mapping::default() }
        });
        let mappings = mappings.collect();
        let mut profile = all.finish();
        add_mappings(&mut profile, mappings);
        let describe = |m: &Mapping| {
            format!("{:x}-{:x} {:x} {}", m.start, m.limit, m.file_offset, profile.str(m.file))
        };
        let ids = profile.locations.iter().map(|l| l.mapping.map_or(9, |m| m.0).to_string());
        profile.mappings.iter().map(describe).chain(ids).collect()
    }

    #[test]
    fn parts_are_joined_and_the_program_is_first() {
        let libc = (0x7000, 0x8000, 0, "/lib/libc.so.6");
        let parts = [libc, (0x1000, 0x2000, 0x100, "/bin/a"), (0x2000, 0x3000, 0x1100, "")];
        assert_eq!(
            added(&parts, &[0x2fff, 0x7000, 0x3000, 0]),
            [
                "1000-3000 100 /bin/a",
                "7000-8000 0 /lib/libc.so.6",
                "0-ffffffffffffffff 0 ",
                "0",
                "1",
                "2",
                "9"
            ]
        );
    }

    #[test]
    fn beginnings_belong_to_their_mappings() {
        let parts =
            [(0x40_1000, 0x40_2000, 0x1000, "/bin/a"), (0x9000, 0xa000, 0x800, "/lib/b.so")];
        assert_eq!(
            added(&parts, &[0x40_0001, 0x8900, 0x8801]),
            ["400000-402000 0 /bin/a", "8800-a000 0 /lib/b.so", "0", "1", "1"]
        );
        let parts =
            [(0x1000, 0x2000, 0, "/anon_hugepage (deleted)"), (0x2000, 0x3000, 0, "/bin/a")];
        assert_eq!(added(&parts, &[0x2000]), ["2000-3000 0 /bin/a", "0"]);
    }

    #[test]
    fn the_first_mapping_of_several_is_taken() {
        let parts = [(0x30, 0x40, 0, "a.so"), (0x10, 0x90, 0, "b.so"), (0x20, 0x50, 0, "c.so")];
        let found = added(&parts, &[0x10, 0x25, 0x30, 0x3f, 0x40, 0x8f]);
        assert_eq!(found[3..], ["1", "1", "0", "0", "1", "1"]);
        for (file, is) in [("a.so", true), ("a.so.6", true), ("a.so_1", true), ("a.sob", false)] {
            assert_eq!(is_library(file), is, "{file}");
        }
    }
}
