//! Rules that are cached by function equal those that gimli evaluates for one address.

use std::ops::Range;
use std::process::Command;

use super::*;
use crate::cfi::entries::debug_section;
use sys::elf::Elf;

/// Tables of a file, and gimli's own view of them.
pub(super) struct File {
    bases: BaseAddresses,
    pub elf: Elf,
    bytes: Arc<Bytes>,
}

impl File {
    pub fn open(path: &str) -> Option<File> {
        let bytes = Arc::new(Bytes::Memory(std::fs::read(path).ok()?));
        let elf = Elf::parse(&bytes)?;
        let address = |s: &Option<sys::elf::Section>| s.as_ref().map_or(0, |s| s.address);
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(address(&elf.eh_frame_hdr))
            .set_eh_frame(address(&elf.eh_frame))
            .set_text(address(&elf.text))
            .set_got(address(&elf.got));
        Some(File { bases, elf, bytes })
    }

    pub fn tables(&self, with_hdr: bool) -> UnwindTables {
        let bytes = |s: &sys::elf::Section| SectionBytes::part(&self.bytes, s.range.clone());
        let hdr = self.elf.eh_frame_hdr.as_ref().filter(|_| with_hdr).map(bytes);
        let debug_frame = self.elf.debug_frame.clone().map(|s| (s, self.bytes.clone()));
        let frame = self.elf.eh_frame.as_ref().map(bytes);
        UnwindTables::new(self.bases.clone(), frame, hdr, debug_frame)
    }

    pub fn code(&self) -> Range<u64> {
        let text = self.elf.text.as_ref().unwrap();
        text.address..text.address + text.range.len() as u64
    }
}

/// The row that gimli evaluates for an address, and the addresses for which it is the same.
fn row_of<'a, S: Table<'a>>(
    section: &S,
    bases: &BaseAddresses,
    fde: gimli::Result<FrameDescriptionEntry<Slice<'a>>>,
    address: u64,
) -> (Described, Range<u64>) {
    let none = (Described::UNCOVERED, address..address + 1);
    let mut context = UnwindContext::<gimli::StoreOnHeap>::new();
    let Ok(fde) = fde else { return none };
    let row = fde.unwind_info_for_address(section, bases, &mut context, address);
    let Ok(row) = row else { return none };
    let range = address..row.end_address().min(fde.end_address());
    (Shorten.visit(section, row, fde.cie().encoding()), range)
}

/// The same by `.eh_frame_hdr`, or else by a search through all of `.debug_frame`.
fn direct(file: &File, debug: &[u8], address: u64) -> (Described, Range<u64>) {
    let bytes = |s: &Option<sys::elf::Section>| &file.bytes[s.as_ref().unwrap().range.clone()];
    if !debug.is_empty() {
        let section = debug_section(debug);
        let cie = DebugFrame::cie_from_offset;
        let fde = section.fde_for_address(&file.bases, address, cie);
        return row_of(&section, &file.bases, fde, address);
    }
    let section = eh_section(bytes(&file.elf.eh_frame));
    let hdr = EhFrameHdr::new(bytes(&file.elf.eh_frame_hdr), LittleEndian);
    let hdr = hdr.parse(&file.bases, 8).unwrap();
    let cie = EhFrame::cie_from_offset;
    let fde = hdr.table().unwrap().fde_for_address(&section, &file.bases, address, cie);
    row_of(&section, &file.bases, fde, address)
}

/// Compares rules of addresses in any order; returns the number of those with unwind information.
fn compare(
    file: &File,
    debug: &[u8],
    tables: &[UnwindTables],
    addresses: impl Iterator<Item = u64>,
) -> usize {
    let mut rows: Vec<Rows> = tables.iter().map(|_| Rows::default()).collect();
    let mut context = UnwindContext::new_in();
    let mut covered = 0;
    let mut in_functions = 0;
    let (mut expected, mut range) = (Described::UNCOVERED, 0..0);
    for address in addresses {
        if !range.contains(&address) {
            (expected, range) = direct(file, debug, address);
        }
        covered += usize::from(expected.rule != Rule::Uncovered);
        for (number, (tables, rows)) in (0..).zip(tables.iter().zip(&mut rows)) {
            if let Some(rule) = rows.in_function(number, address) {
                in_functions += 1;
                assert!(!expected.may_deliver, "{address:#x}, tables {number}");
                assert_eq!(rule, expected.rule, "{address:#x}, tables {number}");
            }
            rows.forget_last();
            let found = tables.described_in(number, rows, &mut context, address);
            assert_eq!(found, expected, "{address:#x}, tables {number}");
            rows.serve_last_function(number, address);
        }
    }
    for tables in tables {
        assert!(!tables.over_budget());
    }
    // All but the first address of each, and those that the cache has lost.
    assert!(in_functions > covered * tables.len() / 8, "{in_functions} of {covered}");
    covered
}

fn exhaustive(path: &str) {
    let Some(file) = File::open(path) else {
        return sys::testing::skip(&format!("there is no {path}"));
    };
    let tables = [file.tables(true), file.tables(false)];
    assert!(matches!(&tables[0].eh_frame, Some((_, Search::Usual(..)))));
    assert!(matches!(&tables[1].eh_frame, Some((_, Search::Index(..)))));
    let code = file.code();
    let size = code.end - code.start;
    let around = code.start - 64..code.end + 64;
    let covered = compare(&file, &[], &tables, around);
    assert!(covered as u64 * 10 > size * 8, "{covered} of {size}");
}

#[test]
fn all_rules_of_the_c_library_are_gimli_s() {
    exhaustive("/lib/x86_64-linux-gnu/libc.so.6");
}

#[test]
fn all_rules_of_this_program_are_gimli_s() {
    exhaustive("/proc/self/exe");
}

/// Numbers at random, always the same ones.
fn random(below: u64) -> impl Iterator<Item = u64> {
    let mut state = 88_172_645_463_325_252_u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    })
}

/// The functions of a large program do not all fit into the cache.
#[test]
fn rules_of_a_large_program_are_gimli_s_in_any_order() {
    const FILES: [&str; 2] =
        ["/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus", "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1"];
    let files: Vec<File> = FILES.iter().filter_map(|path| File::open(path)).collect();
    if files.is_empty() {
        return sys::testing::skip("neither g++ nor LLVM is installed");
    }
    for file in files {
        let code = file.code();
        let addresses = random(code.end - code.start).map(|at| code.start + at).take(150_000);
        let covered = compare(&file, &[], &[file.tables(true), file.tables(false)], addresses);
        assert!(covered > 130_000, "{covered}");
    }
}

const FUNCTIONS: usize = 100;

/// A library whose unwind information is in `.debug_frame` only, compressed if `gz`.
fn debug_library(dir: &std::path::Path, gz: bool) -> Option<String> {
    let mut source = "typedef long l; extern l other(l *, l);\n".to_owned();
    for i in 0..FUNCTIONS {
        let size = 8 + i * 24;
        source.push_str(&format!(
            "l f{i}(l a, l n) {{ l b[{size}]; l s = other(b, a); for (l j = 0; j < n; j++) \
             s += other(b + j, s ^ a) * b[j]; if (s & {i}) {{ l v[n]; s += other(v, s); }} \
             return s + {i}; }}\n"
        ));
    }
    let at = dir.join("library.c");
    std::fs::write(&at, source).unwrap();
    let out = dir.join(format!("library-{gz}.so"));
    let status = Command::new("cc")
        .args(["-g1", "-O2", "-fPIC", "-shared", "-nostdlib", "-fno-asynchronous-unwind-tables"])
        .args(["-fno-exceptions", if gz { "-gz=zlib" } else { "-gz=none" }, "-o"])
        .args([&out, &at])
        .status();
    status.ok()?.success().then(|| out.display().to_string())
}

#[test]
fn all_rules_of_debug_frame_are_gimli_s() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(plain), Some(compressed)) =
        (debug_library(dir.path(), false), debug_library(dir.path(), true))
    else {
        return sys::testing::skip("there is no C compiler");
    };
    let [plain, compressed] = [plain, compressed].map(|path| File::open(&path).unwrap());
    let section = plain.elf.debug_frame.clone().unwrap();
    assert!(section.compressed().is_none());
    assert!(compressed.elf.debug_frame.as_ref().unwrap().compressed().is_some());
    let tables = [plain.tables(true), compressed.tables(true)];
    let size = (plain.code().end - plain.code().start) as usize;
    let covered = compare(&plain, &plain.bytes[section.range()], &tables, plain.code());
    assert!(covered * 10 > size * 8, "{covered} of {size}");
    // Only what had to be decompressed is in memory, and the indexes.
    let index = 8 * FUNCTIONS;
    assert!((index..index + 64).contains(&tables[0].memory.bytes()));
    let both = index + section.range().len();
    assert!((both..both + 64).contains(&tables[1].memory.bytes()));
}

proptest! {
    /// Instructions at random: those behind a fault are not read, those before it are.
    #[test]
    fn rows_of_any_instructions_are_gimli_s(
        instructions in proptest::collection::vec(
            prop_oneof![
                3 => any::<u8>().prop_map(|b| vec![b]),
                4 => (0u8..64).prop_map(|by| vec![0x40 | by]),
                2 => (0u8..32, 0u8..64).prop_map(|(r, at)| vec![0x80 | r, at]),
                2 => (0u8..100).prop_map(|cfa| vec![0x0e, cfa]),
                1 => prop_oneof![Just(vec![0x0a]), Just(vec![0x0b])],
            ],
            0..40,
        ),
    ) {
        let tables = tables(&instructions.concat());
        let mut rows = Rows::default();
        let mut context = UnwindContext::new_in();
        let mut fresh = UnwindContext::<gimli::StoreOnHeap>::new();
        for address in START - 2..START + 258 {
            let direct = tables.described(&mut fresh, address);
            let found = tables.described_in(7, &mut rows, &mut context, address);
            prop_assert_eq!(found, direct, "{:#x}", address);
        }
    }
}
