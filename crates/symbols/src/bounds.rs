//! Bounds of functions, by the tables of a file that has any.

use std::fs::File;
use std::ops::Range;

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, RunTimeEndian, UnwindSection};
use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};

use super::go;
use sys::elf::NameBudget;
use sys::mmap;

/// Entries of call frame information that are read at most, if they have no index.
const MAX_ENTRIES: usize = 1 << 22;

/// The range of the function with each address.
type Ranges = Vec<Option<Range<u64>>>;

/// Bounds by symbol tables.
pub fn by_symbols(file: &File, addresses: &[u64]) -> Option<Ranges> {
    let map = mmap::map(file).ok()?;
    let file = object::File::parse(&*map).ok()?;
    let bounds = FunctionBounds::read(&file, NameBudget::of(&map));
    Some(addresses.iter().map(|&address| bounds.find(address)).collect())
}

/// Bounds by the table of functions of a Go program.
pub fn by_go_table(file: &File, addresses: &[u64]) -> Option<Ranges> {
    let ranges = go::bounds(file, addresses)?;
    let map = mmap::map(file).ok()?;
    let sections = code_sections(&object::File::parse(&*map).ok()?);
    Some(ranges.into_iter().map(|range| within_section(range?, &sections)).collect())
}

/// Bounds by call frame information (`.eh_frame`), of which each entry covers a function or its
/// cold part.
pub fn by_frame_information(file: &File, addresses: &[u64]) -> Option<Ranges> {
    let map = mmap::map(file).ok()?;
    let file = object::File::parse(&*map).ok()?;
    let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let section = file.section_by_name(".eh_frame")?;
    let data = section.data().ok().filter(|data| !data.is_empty())?;
    let frames = EhFrame::new(data, endian);
    let address_of = |name| file.section_by_name(name).map_or(0, |s| s.address());
    let bases = BaseAddresses::default()
        .set_eh_frame(section.address())
        .set_eh_frame_hdr(address_of(".eh_frame_hdr"))
        .set_text(address_of(".text"))
        .set_got(address_of(".got"));
    let sections = code_sections(&file);
    let index = file.section_by_name(".eh_frame_hdr").and_then(|s| s.data().ok());
    let index = EhFrameHdr::new(index.unwrap_or_default(), endian);
    let ranges = by_index(&index, &frames, &bases, addresses)
        .unwrap_or_else(|| by_all_entries(&frames, &bases, addresses));
    Some(ranges.into_iter().map(|range| within_section(range?, &sections)).collect())
}

type Frames<'a> = EhFrame<EndianSlice<'a, RunTimeEndian>>;

/// Bounds by the index of call frame information (`.eh_frame_hdr`); `None` if there is none.
fn by_index(
    index: &EhFrameHdr<EndianSlice<'_, RunTimeEndian>>,
    frames: &Frames<'_>,
    bases: &BaseAddresses,
    addresses: &[u64],
) -> Option<Ranges> {
    let index = index.parse(bases, 8).ok()?;
    let table = index.table()?;
    let range = |&address: &u64| {
        let found = table.fde_for_address(frames, bases, address, EhFrame::cie_from_offset);
        let entry = found.ok()?;
        Some(entry.initial_address()..entry.end_address())
    };
    Some(addresses.iter().map(range).collect())
}

/// Bounds by all entries of call frame information.
fn by_all_entries(frames: &Frames<'_>, bases: &BaseAddresses, addresses: &[u64]) -> Ranges {
    let mut order: Vec<usize> = (0..addresses.len()).collect();
    order.sort_by_key(|&i| addresses[i]);
    let mut ranges = vec![None; addresses.len()];
    let mut entries = frames.entries(bases);
    for _ in 0..MAX_ENTRIES {
        let Ok(Some(entry)) = entries.next() else { break };
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let Ok(entry) = partial.parse(EhFrame::cie_from_offset) else { continue };
        let range = entry.initial_address()..entry.end_address();
        let first = order.partition_point(|&i| addresses[i] < range.start);
        let inside = order[first..].iter().take_while(|&&i| addresses[i] < range.end);
        inside.for_each(|&i| ranges[i] = Some(range.clone()));
    }
    ranges
}

/// Address ranges of the sections with code.
fn code_sections(file: &object::File) -> Vec<Range<u64>> {
    let code = file.sections().filter(|s| s.kind() == SectionKind::Text);
    code.map(|s| s.address()..s.address().saturating_add(s.size())).collect()
}

/// The part of a range that is in the section of its begin.
fn within_section(range: Range<u64>, sections: &[Range<u64>]) -> Option<Range<u64>> {
    let section = sections.iter().find(|section| section.contains(&range.start))?;
    Some(range.start..range.end.min(section.end)).filter(|range| !range.is_empty())
}

/// Bounds of the functions and the sections of a file.
struct FunctionBounds {
    /// First address and size, sorted; the largest of several at one address is the last.
    functions: Vec<(u64, u64)>,
    sections: Vec<Range<u64>>,
}

impl FunctionBounds {
    fn read(file: &object::File, mut names: NameBudget) -> FunctionBounds {
        let sections = code_sections(file);
        let symbols = file.symbols().chain(file.dynamic_symbols());
        let is_code =
            |kind| matches!(kind, SymbolKind::Text | SymbolKind::Unknown | SymbolKind::Label);
        // Arm's mapping symbols: `$x`, `$d`.
        let mut is_mark = |symbol: &object::Symbol<'_, '_>| {
            let is_named = symbol.kind() != SymbolKind::Text && names.has_rest();
            is_named && names.found(symbol.name_bytes()).is_some_and(|name| name.starts_with(b"$"))
        };
        let mut functions: Vec<(u64, u64)> = symbols
            .filter(|s| is_code(s.kind()) && !s.is_undefined() && s.address() > 0)
            .filter(|s| !is_mark(s))
            .map(|s| (s.address(), s.size()))
            .collect();
        functions.sort_unstable();
        FunctionBounds { functions, sections }
    }

    /// The range of the function with an address.
    fn find(&self, address: u64) -> Option<Range<u64>> {
        /// Labels without a size that may precede an address within its function.
        const LABELS: usize = 256;
        let after = self.functions.partition_point(|&(start, _)| start <= address);
        let before = &self.functions[..after];
        let sized = before.iter().rev().take(LABELS).find(|(_, size)| *size > 0);
        let sized = sized.map(|&(start, size)| start..start.saturating_add(size));
        let section = self.sections.iter().find(|s| s.contains(&address))?;
        let range = sized.filter(|range| range.contains(&address)).or_else(|| {
            // Hand-written assembly may omit the size.
            let &(start, 0) = before.last()? else { return None };
            let next = self.functions.get(after).map_or(section.end, |&(next, _)| next);
            Some(start..next)
        })?;
        section.contains(&range.start).then(|| range.start..range.end.min(section.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_ends_at_its_size_or_at_the_next_one() {
        let bounds = FunctionBounds {
            functions: vec![(0x100, 0), (0x100, 0x20), (0x140, 0), (0x180, 0)],
            sections: vec![0x100..0x200, 0x300..0x310],
        };
        assert_eq!(bounds.find(0xff), None);
        assert_eq!(bounds.find(0x100), Some(0x100..0x120));
        assert_eq!(bounds.find(0x11f), Some(0x100..0x120));
        assert_eq!(bounds.find(0x120), None);
        let labels = FunctionBounds {
            functions: vec![(0x100, 0x20), (0x108, 0)],
            sections: vec![0x100..0x200, 0x300..0x310],
        };
        assert_eq!(labels.find(0x110), Some(0x100..0x120));
        assert_eq!(bounds.find(0x150), Some(0x140..0x180));
        assert_eq!(bounds.find(0x1ff), Some(0x180..0x200));
        assert_eq!(bounds.find(0x305), None);
    }

    /// The functions of a binary have the same bounds without their symbols.
    #[test]
    fn call_frame_information_has_the_bounds_of_functions() {
        let exe = std::env::current_exe().unwrap();
        let main = crate::functions::functions(&exe, "main").unwrap().remove(0);
        let options = crate::SymbolOptions::default();
        let binary = crate::Binary::find(&exe.to_string_lossy(), "", &options).unwrap();
        let start = binary.address_of(main.offset).unwrap().0;
        let expected = [Some(start..start + main.size), None];
        let addresses = [start + 1, 1];
        assert_eq!(by_symbols(&binary.file, &addresses).unwrap(), expected);
        assert_eq!(by_frame_information(&binary.file, &addresses).unwrap(), expected);
        assert_eq!(by_go_table(&binary.file, &addresses), None);

        let map = mmap::map(&binary.file).unwrap();
        let file = object::File::parse(&*map).unwrap();
        let section = file.section_by_name(".eh_frame").unwrap();
        let frames = EhFrame::new(section.data().unwrap(), RunTimeEndian::Little);
        let bases = BaseAddresses::default().set_eh_frame(section.address());
        assert_eq!(by_all_entries(&frames, &bases, &addresses), expected);
        let no_index = EhFrameHdr::new(b"", RunTimeEndian::Little);
        assert_eq!(by_index(&no_index, &frames, &bases, &addresses), None);
    }
}
