//! The choice among several symbols at one address, the same for all readers of symbol tables.
//!
//! Preferred, in this order: the largest symbol; one that other programs link to (in the dynamic
//! symbol table), then a global or weak one, then a local one; a name without a version; one with
//! fewer leading underscores; a global one to a weak one. What is left is a matter of style: of
//! exported names the shortest (`open` to `open64`, `strtol` to `strtoimax`), of a program's own
//! names the longest, as in perf, if possible without a number at its end.

use std::cmp::Reverse;
use std::fs::File;

use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{Endianness, FileKind, elf};
use rustc_hash::FxHashMap;

use super::source::Layer;
use sys::{catch_panic, mmap};

/// Longest name that is used.
const MAX_NAME: usize = 64 << 10;

/// Most names that are compared at one address; a damaged table may have any number.
const MAX_NAMES: usize = 256;

/// Most bytes of names that are compared in one file.
const MAX_BYTES: usize = 64 << 20;

/// The code that can refer to a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    /// That of other binaries.
    Exported,
    /// That of the same binary.
    Global,
    /// That of the same source file.
    Local,
}

/// Rank of a symbol among those at its address; the lowest is preferred.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    size: Reverse<u64>,
    reach: Reach,
    is_versioned: bool,
    underscores: usize,
    is_weak: bool,
    ends_with_digit: bool,
    length: usize,
    name: String,
}

impl Rank {
    fn new(name: &str, size: u64, binding: elf::SymbolBind, is_dynamic: bool) -> Rank {
        let reach = match binding {
            elf::STB_LOCAL => Reach::Local,
            _ if is_dynamic => Reach::Exported,
            _ => Reach::Global,
        };
        let exported = reach == Reach::Exported;
        Rank {
            size: Reverse(size),
            reach,
            is_versioned: name.contains('@'),
            underscores: name.bytes().take_while(|&b| b == b'_').count(),
            is_weak: binding == elf::STB_WEAK,
            ends_with_digit: !exported && name.ends_with(|c: char| c.is_ascii_digit()),
            length: if exported { name.len() } else { usize::MAX - name.len() },
            name: name.to_owned(),
        }
    }
}

/// The symbols that begin at one address.
#[derive(Clone, Debug, Default)]
pub struct Names {
    ranks: Vec<Rank>,
}

impl Names {
    /// The preferred name.
    pub fn best(&self) -> Option<&str> {
        self.ranks.iter().min().map(|rank| rank.name.as_str())
    }

    /// True if a symbol has this name.
    pub fn contains(&self, name: &str) -> bool {
        self.ranks.iter().any(|rank| rank.name == name)
    }

    /// The name to show for a function that debug information calls `name`: the preferred one if
    /// it is a public form of that (`malloc` of `__GI___libc_malloc`). Functions that a linker
    /// folded into one share nothing but their address.
    pub fn public_form(&self, name: &str) -> Option<&str> {
        self.best().filter(|best| self.contains(name) && is_part(name, best))
    }
}

/// True if `part` is a sequence of whole words of `name`, which underscores separate.
fn is_part(name: &str, part: &str) -> bool {
    let mut places = name.match_indices(part);
    places.any(|(at, _)| {
        let (before, after) = (&name[..at], &name[at + part.len()..]);
        (before.is_empty() || before.ends_with('_')) && (after.is_empty() || after.starts_with('_'))
    })
}

/// Names of the symbols that begin at these addresses, in any of a binary's files: whether a name
/// is exported does not depend on which of them has it.
pub fn at(layers: &[Layer], starts: impl IntoIterator<Item = u64>) -> FxHashMap<u64, Names> {
    let mut names: FxHashMap<u64, Names> =
        starts.into_iter().map(|start| (start, Names::default())).collect();
    let is_empty = names.is_empty();
    for layer in layers.iter().filter(|_| !is_empty) {
        // A damaged table can make its parser panic; what was read until then is good.
        catch_panic(|| add(&layer.file, &mut names));
    }
    names
}

/// Adds the names of a file's symbols at the addresses of `names`.
fn add(file: &File, names: &mut FxHashMap<u64, Names>) {
    let Ok(map) = mmap::map(file) else { return };
    match FileKind::parse(&*map) {
        Ok(FileKind::Elf64) => add_of::<elf::FileHeader64<Endianness>>(&map, names),
        Ok(FileKind::Elf32) => add_of::<elf::FileHeader32<Endianness>>(&map, names),
        _ => None,
    };
}

fn add_of<E: FileHeader<Endian = Endianness>>(
    data: &[u8],
    names: &mut FxHashMap<u64, Names>,
) -> Option<()> {
    let header = E::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, data).ok()?;
    let mut left = MAX_BYTES;
    for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
        // Separate debug files state a dynamic table without contents.
        let Ok(table) = sections.symbols(endian, data, kind) else { continue };
        let Ok(strings) = sections.section(table.string_section()) else { continue };
        let strings = strings.data(endian, data).unwrap_or_default();
        for symbol in table.iter() {
            let Some(names) = names.get_mut(&symbol.st_value(endian).into()) else { continue };
            if names.ranks.len() >= MAX_NAMES || !is_code_or_data(endian, symbol) {
                continue;
            }
            let at = symbol.st_name(endian) as usize;
            let Some(name) = name_at(strings, at) else { continue };
            left = left.checked_sub(name.len())?;
            let size = symbol.st_size(endian).into();
            let is_dynamic = kind == elf::SHT_DYNSYM;
            names.ranks.push(Rank::new(name, size, symbol.st_bind(), is_dynamic));
        }
    }
    Some(())
}

fn is_code_or_data<S: Sym<Endian = Endianness>>(endian: Endianness, symbol: &S) -> bool {
    let other = [elf::STT_SECTION, elf::STT_FILE, elf::STT_TLS];
    !symbol.is_undefined(endian) && !other.contains(&symbol.st_type())
}

/// The string at an offset; without Arm's mapping symbols, the compiler's labels, and what is too
/// long.
fn name_at(strings: &[u8], at: usize) -> Option<&str> {
    let rest = strings.get(at..)?;
    let end = rest.iter().take(MAX_NAME).position(|&byte| byte == 0)?;
    let name = std::str::from_utf8(&rest[..end]).ok()?;
    (!name.is_empty() && !name.starts_with(['$', '.'])).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[(&str, elf::SymbolBind, bool)]) -> Names {
        let rank = |&(name, bind, dynamic): &(&str, _, _)| Rank::new(name, 16, bind, dynamic);
        Names { ranks: all.iter().map(rank).collect() }
    }

    #[test]
    fn the_public_name_is_preferred_in_any_order() {
        use elf::{STB_GLOBAL as GLOBAL, STB_LOCAL as LOCAL, STB_WEAK as WEAK};
        // The first is the best.
        let cases: &[&[(&str, elf::SymbolBind, bool)]] = &[
            &[
                ("malloc", GLOBAL, true),
                ("__libc_malloc", GLOBAL, true),
                ("malloc", GLOBAL, false),
                ("__GI___libc_malloc", LOCAL, false),
            ],
            &[("strdup", WEAK, true), ("__strdup", GLOBAL, true)],
            &[("puts", WEAK, true), ("_IO_puts", GLOBAL, true)],
            &[("open", WEAK, true), ("open64", WEAK, true), ("__open", GLOBAL, true)],
            &[("free", GLOBAL, true), ("cfree", GLOBAL, true), ("cfree@GLIBC_2.2.5", GLOBAL, true)],
            &[("strtol", WEAK, true), ("strtoimax", WEAK, true)],
            &[
                ("the_real_name", GLOBAL, false),
                ("zz_public", GLOBAL, false),
                ("weak_one_with_a_long_name", WEAK, false),
                ("__aa_internal", GLOBAL, false),
            ],
            &[("open", WEAK, false), ("open64", WEAK, false)],
            &[("_ZN1AC1Ev", WEAK, false), ("_ZN1AC2Ev", WEAK, false)],
            &[("exported", GLOBAL, true), ("only_inside_of_the_library", GLOBAL, false)],
        ];
        for case in cases {
            let mut case = case.to_vec();
            let best = case[0].0;
            for _ in 0..case.len() {
                case.rotate_left(1);
                assert_eq!(names(&case).best(), Some(best), "{case:?}");
                case.reverse();
                assert_eq!(names(&case).best(), Some(best), "{case:?}");
            }
        }
    }

    #[test]
    fn labels_without_a_size_do_not_name_functions() {
        let mut names = names(&[("function", elf::STB_LOCAL, false)]);
        names.ranks.push(Rank::new("begin", 0, elf::STB_GLOBAL, true));
        assert_eq!(names.best(), Some("function"));
    }

    #[test]
    fn a_public_form_is_a_part_of_the_name() {
        let glibc =
            [("malloc", elf::STB_GLOBAL, true), ("__GI___libc_malloc", elf::STB_LOCAL, false)];
        assert_eq!(names(&glibc).public_form("__GI___libc_malloc"), Some("malloc"));
        assert_eq!(names(&glibc).public_form("malloc"), Some("malloc"));
        assert_eq!(names(&glibc).public_form("another"), None);
        let folded = [("first", elf::STB_GLOBAL, true), ("second", elf::STB_LOCAL, false)];
        assert_eq!(names(&folded).public_form("second"), None);
        let start = [
            ("__libc_start_main", elf::STB_GLOBAL, true),
            ("__libc_start_main_impl", elf::STB_LOCAL, false),
        ];
        assert_eq!(names(&start).public_form("__libc_start_main_impl"), Some("__libc_start_main"));
        let other = [("read", elf::STB_GLOBAL, true), ("my_thread", elf::STB_LOCAL, false)];
        assert_eq!(names(&other).public_form("my_thread"), None);
    }
}
