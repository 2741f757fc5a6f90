//! The binary of a mapping, found as for symbolization and checked by build ID, with the bounds of
//! its functions.

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};

use super::SymbolOptions;
use super::headers::Headers;
use super::source::{Layer, find};
use profile::Cause;
use sys::{FileAddress, FileOffset, catch_panic, mmap};

/// A binary of the recorded build.
#[derive(Clone, Debug)]
pub struct Binary {
    /// Its path.
    pub path: PathBuf,
    /// The file, open.
    pub file: Arc<File>,
    headers: Headers,
    layers: Vec<Layer>,
}

impl Binary {
    /// Finds the binary with the path `name` and `build_id` (empty: unknown).
    ///
    /// # Errors
    ///
    /// It is missing, of another build, or no intact ELF file.
    pub fn find(name: &str, build_id: &str, options: &SymbolOptions) -> Result<Binary, Cause> {
        let found = find(name, build_id, None, options)?;
        let own = found.layers.last().filter(|_| found.binary).ok_or(Cause::FileMissing)?;
        let (path, file) = (own.path.clone(), own.file.clone());
        Ok(Binary { path, file, headers: found.headers, layers: found.layers })
    }

    /// The address of the byte at an offset of the file.
    pub fn address_of(&self, offset: FileOffset) -> Option<FileAddress> {
        self.headers.address_of(offset)
    }

    /// The offset of the byte at an address.
    pub fn offset_of(&self, address: FileAddress) -> Option<FileOffset> {
        super::functions::offset_of(&self.headers, address)
    }

    /// The address ranges of the functions with these addresses, by the symbol tables of the binary
    /// and of its debug file; `None` for an address that no symbol contains.
    pub fn functions_at(&self, addresses: &[FileAddress]) -> Vec<Option<Range<u64>>> {
        let mut ranges = vec![None; addresses.len()];
        for layer in &self.layers {
            if ranges.iter().all(Option::is_some) {
                break;
            }
            // A damaged table that makes its parser panic must not end prof.
            let bounds = catch_panic(|| FunctionBounds::read(&layer.file)).flatten();
            let Some(bounds) = bounds else { continue };
            for (range, address) in ranges.iter_mut().zip(addresses) {
                if range.is_none() {
                    *range = bounds.find(address.0);
                }
            }
        }
        ranges
    }
}

/// Bounds of the functions and the sections of a file.
struct FunctionBounds {
    /// First address and size, sorted; the largest of several at one address is the last.
    functions: Vec<(u64, u64)>,
    sections: Vec<Range<u64>>,
}

impl FunctionBounds {
    fn read(file: &File) -> Option<FunctionBounds> {
        let map = mmap::map(file).ok()?;
        let file = object::File::parse(&*map).ok()?;
        let code = file.sections().filter(|s| s.kind() == SectionKind::Text);
        let sections = code.map(|s| s.address()..s.address().saturating_add(s.size())).collect();
        let symbols = file.symbols().chain(file.dynamic_symbols());
        let is_code =
            |kind| matches!(kind, SymbolKind::Text | SymbolKind::Unknown | SymbolKind::Label);
        let mut functions: Vec<(u64, u64)> = symbols
            .filter(|s| is_code(s.kind()) && !s.is_undefined() && s.address() > 0)
            // Arm's mapping symbols: `$x`, `$d`.
            .filter(|s| !s.name_bytes().is_ok_and(|name| name.starts_with(b"$")))
            .map(|s| (s.address(), s.size()))
            .collect();
        functions.sort_unstable();
        Some(FunctionBounds { functions, sections })
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

    #[test]
    fn the_function_of_this_test_is_found() {
        let exe = std::env::current_exe().unwrap();
        let binary = Binary::find(&exe.to_string_lossy(), "", &SymbolOptions::default()).unwrap();
        let functions = super::super::functions::functions(&exe, "main").unwrap();
        let address = binary.address_of(functions[0].offset).unwrap();
        let found = binary.functions_at(&[address, FileAddress(1)]);
        assert_eq!(found, [Some(address.0..address.0 + functions[0].size), None]);
        assert_eq!(binary.offset_of(address), Some(functions[0].offset));
        let missing = Binary::find("/nothing", "", &SymbolOptions::default());
        assert!(missing.is_err_and(|why| why == Cause::FileMissing));
    }
}
