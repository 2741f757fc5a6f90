//! Where the stack of a greenlet begins.
//!
//! greenlet (of gevent and eventlet) has the stacks of all greenlets of a thread at the same addresses,
//! and copies those of the others away. What it copies ends in the frame of `UserGreenlet::g_switch`
//! that started the greenlet (`stack_stop`, `TUserGreenlet.cpp` of greenlet 2 and 3): what lies above is
//! of whichever greenlet used these addresses last. Its caller is no caller of the greenlet's functions,
//! and may be garbage. `UserGreenlet::inner_bootstrap`, which never returns, calls the greenlet's function.

use std::ops::Range;

use object::LittleEndian;
use object::elf::{FileHeader64, SHN_UNDEF, SHT_DYNSYM};
use object::read::elf::{FileHeader, Sym};

/// The mangled name without its parameters, which differ between versions.
const FIRST: &[u8] = b"_ZN8greenlet12UserGreenlet15inner_bootstrapE";

/// Most symbols that are read: the library exports 300 to 700.
const MAX_SYMBOLS: usize = 1 << 14;

/// The function with which greenlets begin, if the file is greenlet's library.
pub(super) fn first_function(path: &str, file: &[u8]) -> Option<Range<u64>> {
    let name = path.rsplit('/').next().unwrap_or(path);
    if !name.starts_with("_greenlet.") {
        return None;
    }
    let header = FileHeader64::<LittleEndian>::parse(file).ok()?;
    let sections = header.sections(LittleEndian, file).ok()?;
    let table = sections.symbols(LittleEndian, file, SHT_DYNSYM).ok()?;
    let is_first = |symbol: &&object::elf::Sym64<LittleEndian>| {
        symbol.st_shndx(LittleEndian) != SHN_UNDEF
            && table.symbol_name(LittleEndian, symbol).is_ok_and(|name| name.starts_with(FIRST))
    };
    let symbol = table.iter().take(MAX_SYMBOLS).find(is_first)?;
    let start = symbol.st_value(LittleEndian);
    Some(start..start.checked_add(symbol.st_size(LittleEndian))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: &str = "/usr/lib/python3/dist-packages/greenlet";

    #[test]
    fn the_first_function_of_greenlets_is_known_in_their_library_alone() {
        let entries = std::fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
        let mut paths = entries.map(|entry| entry.path().to_str().unwrap().to_owned());
        let Some(path) = paths.find(|path| path.contains("/_greenlet.")) else {
            return sys::testing::skip("python3-greenlet is not installed");
        };
        let file = std::fs::read(&path).unwrap();
        let first = first_function(&path, &file).unwrap();
        assert!(first.end > first.start + 500, "{first:x?}");
        // Other files are not read, and a damaged one has none.
        assert_eq!(first_function("/usr/lib/libgreenlet.so", &file), None);
        for length in [0, 16, 64, file.len() / 2] {
            assert_eq!(first_function(&path, &file[..length]), None, "{length}");
        }
    }
}
