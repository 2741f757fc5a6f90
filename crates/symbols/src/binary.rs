//! The binary of a mapping, found as for symbolization and checked by build ID, with the bounds of
//! its functions.

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::headers::Headers;
use super::source::{Access, Layer, find};
use super::{SymbolOptions, bounds};
use profile::Cause;
use sys::{FileAddress, FileOffset, catch_panic};

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
        let found = find(name, build_id, Access::default(), options)?;
        let own = found.layers.last().filter(|_| found.binary).ok_or(Cause::FileMissing)?;
        let (path, file) = (own.place.path.clone(), own.file.clone());
        Ok(Binary { path, file, headers: found.headers, layers: found.layers })
    }

    /// Its files with names, best first.
    pub(super) fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The address of the byte at an offset of the file.
    pub fn address_of(&self, offset: FileOffset) -> Option<FileAddress> {
        self.headers.address_of(offset)
    }

    /// The offset of the byte at an address.
    pub fn offset_of(&self, address: FileAddress) -> Option<FileOffset> {
        super::functions::offset_of(&self.headers, address)
    }

    /// The address ranges of the functions with these addresses: by the symbol tables of the binary
    /// and of its debug file, by the table of a Go program, else by the call frame information,
    /// which a stripped binary has as well. `None` for an address that none of them contains.
    pub fn functions_at(&self, addresses: &[FileAddress]) -> Vec<Option<Range<u64>>> {
        let mut ranges = vec![None; addresses.len()];
        for find in [bounds::by_symbols, bounds::by_go_table, bounds::by_frame_information] {
            for layer in &self.layers {
                let missing: Vec<usize> =
                    (0..ranges.len()).filter(|&i| ranges[i].is_none()).collect();
                if missing.is_empty() {
                    return ranges;
                }
                let requested: Vec<u64> = missing.iter().map(|&i| addresses[i].0).collect();
                // A damaged table that makes its parser panic must not end prof.
                let found = catch_panic(|| find(&layer.file, &requested)).flatten();
                for (i, range) in missing.into_iter().zip(found.unwrap_or_default()) {
                    ranges[i] = range;
                }
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
