//! Source text that the compiler put into debug information: `DW_LNCT_LLVM_source` in the line
//! tables of DWARF 5 (`clang -gembed-source`).

use addr2line::gimli::{
    AttributeValue, DebugLine, DebugLineOffset, DebugLineStr, DebugStr, EndianSlice, FileEntry,
    LineProgramHeader, Reader, RunTimeEndian, SectionId,
};

use super::binary::Binary;
use super::source::Layer;
use super::split::SectionMemory;
use sys::catch_panic;

type Slice<'a> = EndianSlice<'a, RunTimeEndian>;

impl Binary {
    /// True if debug information of the binary has the text of any source file.
    pub fn has_embedded_source(&self) -> bool {
        self.layers().iter().any(|layer| in_layer(layer, &mut |_, _| Some(())).is_some())
    }

    /// The text of the source file with this path, as the debug information has it; `None` without
    /// it, or above `limit` bytes.
    pub fn embedded_source(&self, path: &str, limit: usize) -> Option<Vec<u8>> {
        self.layers().iter().find_map(|layer| {
            in_layer(layer, &mut |file, text| {
                let found = text.len() <= limit && is_same(&file.path()?, path);
                found.then(|| text.to_vec())
            })
        })
    }
}

/// True if two paths are equal by text alone, without what `..` leads out of.
fn is_same(a: &str, b: &str) -> bool {
    a.starts_with('/') == b.starts_with('/') && parts_of(a) == parts_of(b)
}

fn parts_of(path: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part == ".." && parts.last().is_some_and(|&last| last != "..") {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts
}

/// A file of a line table.
struct TableFile<'a, 'h> {
    header: &'h LineProgramHeader<Slice<'a>>,
    file: &'h FileEntry<Slice<'a>>,
    strings: &'h Strings<'a>,
}

impl TableFile<'_, '_> {
    /// Its path: below its directory, below the directory of the compiler.
    fn path(&self) -> Option<String> {
        let text =
            |value| self.strings.text(value).map(|text| String::from_utf8_lossy(text.slice()));
        let mut path = text(self.file.path_name())?.into_owned();
        for directory in [self.file.directory_index(), 0] {
            if path.starts_with('/') {
                break;
            }
            let directory = text(self.header.directory(directory)?)?;
            path = format!("{directory}/{path}");
        }
        Some(path)
    }
}

/// Sections with the texts of line tables.
struct Strings<'a> {
    line_strings: DebugLineStr<Slice<'a>>,
    others: DebugStr<Slice<'a>>,
}

impl<'a> Strings<'a> {
    fn text(&self, value: AttributeValue<Slice<'a>>) -> Option<Slice<'a>> {
        match value {
            AttributeValue::String(text) => Some(text),
            AttributeValue::DebugLineStrRef(at) => self.line_strings.get_str(at).ok(),
            AttributeValue::DebugStrRef(at) => self.others.get_str(at).ok(),
            _ => None,
        }
    }
}

/// Calls `take` with each file of a layer that has text, until it returns a result.
fn in_layer<T>(
    layer: &Layer,
    take: &mut dyn FnMut(&TableFile<'_, '_>, &[u8]) -> Option<T>,
) -> Option<T> {
    if !layer.debug_info {
        return None;
    }
    // Damaged debug information can make its parser panic.
    catch_panic(|| in_line_tables(layer, take)).flatten()
}

fn in_line_tables<T>(
    layer: &Layer,
    take: &mut dyn FnMut(&TableFile<'_, '_>, &[u8]) -> Option<T>,
) -> Option<T> {
    let memory = SectionMemory::default();
    let object = memory.parse(&layer.file)?;
    let section = |id: SectionId| memory.section(&object, Some(id.name())).ok();
    // Only tables of DWARF 5 refer to it.
    let line_strings = section(SectionId::DebugLineStr).filter(|section| !section.is_empty())?;
    let lines = section(SectionId::DebugLine)?;
    let others = DebugStr::from(section(SectionId::DebugStr)?);
    let strings = Strings { line_strings: DebugLineStr::from(line_strings), others };
    let endian = lines.endian();
    let tables = DebugLine::new(lines.slice(), endian);
    let mut at = 0;
    while at < lines.len() {
        let size = size_of(&lines.slice()[at..], endian)?;
        if let Ok(table) = tables.program(DebugLineOffset(at), 8, None, None) {
            let header = table.header();
            for file in header.file_names().iter().filter(|_| header.file_has_source()) {
                let text = file.source().and_then(|value| strings.text(value));
                let Some(text) = text.filter(|text| !text.is_empty()) else { continue };
                let entry = TableFile { header, file, strings: &strings };
                let found = take(&entry, text.slice());
                if found.is_some() {
                    return found;
                }
            }
        }
        at = at.checked_add(size)?;
    }
    None
}

/// Bytes of the line table at the start of `data`, with its length.
fn size_of(data: &[u8], endian: RunTimeEndian) -> Option<usize> {
    use addr2line::gimli::Endianity;
    let short = endian.read_u32(data.first_chunk::<4>()?);
    if short < 0xffff_fff0 {
        return 4_usize.checked_add(short as usize);
    }
    let long = endian.read_u64(data.get(4..)?.first_chunk::<8>()?);
    12_usize.checked_add(usize::try_from(long).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SymbolOptions;
    use crate::tests::Lab;
    use std::process::Command;

    const C: &str = "int main(void) { return 0; }\n";

    #[test]
    fn equal_paths_are_those_of_one_file() {
        for path in ["/b/a/x.c", "/b//a/./x.c", "/b/c/../a/x.c", "/b/c/d/../../a/x.c"] {
            assert!(is_same(path, "/b/a/x.c"), "{path}");
        }
        for path in ["b/a/x.c", "/b/a/../x.c", "/b/a/x.h", "/../b/x.c"] {
            assert!(!is_same(path, "/b/a/x.c"), "{path}");
        }
        assert!(!is_same("../x.c", "x.c") && is_same("../a/../x.c", "../x.c"));
    }

    #[test]
    fn embedded_source_is_found_by_its_path() {
        let lab = Lab::new();
        std::fs::create_dir(lab.path("src")).unwrap();
        std::fs::write(lab.path("src/a.c"), C).unwrap();
        let compile = |options: &[&str], name: &str| {
            let mut clang = Command::new("clang");
            clang.current_dir(lab.path(".")).args(options).args(["-o", name, "src/a.c"]);
            clang.status().is_ok_and(|status| status.success())
        };
        if !compile(&["-gdwarf-5", "-gembed-source"], "with") {
            return sys::testing::skip("clang is not installed");
        }
        assert!(compile(&["-gdwarf-5"], "without"));
        let binary = |name: &str| {
            let path = lab.path(name);
            Binary::find(&path.to_string_lossy(), "", &SymbolOptions::default()).unwrap()
        };
        let with = binary("with");
        assert!(with.has_embedded_source() && !binary("without").has_embedded_source());
        let directory = lab.path(".").canonicalize().unwrap();
        let recorded = format!("{}/src/a.c", directory.display());
        assert_eq!(with.embedded_source(&recorded, 100).as_deref(), Some(C.as_bytes()));
        let dotted = format!("{}//./src/a.c", directory.display());
        assert_eq!(with.embedded_source(&dotted, 100).as_deref(), Some(C.as_bytes()));
        assert_eq!(with.embedded_source(&recorded, 10), None);
        for other in ["a.c", "src/a.c", "/src/a.c", ""] {
            assert_eq!(with.embedded_source(other, 100), None, "{other}");
        }
        assert_eq!(binary("without").embedded_source(&recorded, 100), None);
    }

    #[test]
    fn a_damaged_length_ends_the_search() {
        let little = RunTimeEndian::Little;
        assert_eq!(size_of(&[5, 0, 0, 0, 9], little), Some(9));
        assert_eq!(size_of(&[0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 0, 0, 0], little), Some(14));
        assert_eq!(size_of(&[0xff; 12], little), None);
        assert_eq!(size_of(&[1, 2], little), None);
    }
}
