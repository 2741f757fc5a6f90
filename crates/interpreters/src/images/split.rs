//! Parts of a function that the compiler has split off, such as GCC's `.cold` ones, in stripped files:
//! there, nothing names them.
//!
//! A part has an entry of call frame information of its own. The function jumps to it, and its frame is
//! the same behind the jump as before it; what is called, also by a jump, has a new one.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, FrameDescriptionEntry, LittleEndian,
    UnwindContext, UnwindSection,
};
use object::elf::PT_GNU_EH_FRAME;
use sys::arch;

use super::{LoadedImage, Symbol};

/// Bytes of a function in which jumps are looked for; CPython's evaluation has 60,000.
const MAX_CODE: usize = 1 << 20;
/// Jumps out of a function that are followed; CPython's evaluation has 313.
const MAX_JUMPS: usize = 1 << 12;
/// Bytes that look like a jump may be part of another instruction: one alone is no proof.
const LEAST_JUMPS: u32 = 2;
/// Parts of a function at most: GCC and clang make one.
const MOST: usize = 4;
/// Bytes of an entry of call frame information that is read; that of CPython's part has 300.
const MAX_ENTRY: usize = 1 << 12;

/// How an index of call frame information begins that is as linkers write it: its version, and the
/// encodings of the address of the entries, of their number, and of its rows (`DW_EH_PE_pcrel |
/// DW_EH_PE_sdata4`, `DW_EH_PE_udata4`, `DW_EH_PE_datarel | DW_EH_PE_sdata4`).
const USUAL: [u8; 4] = [1, 0x1b, 0x03, 0x3b];

type Bytes<'a> = EndianSlice<'a, LittleEndian>;
type Entry<'a> = FrameDescriptionEntry<Bytes<'a>>;

/// The entries of call frame information of a file, at the addresses of its process.
struct Entries<'a> {
    index: gimli::ParsedEhFrameHdr<Bytes<'a>>,
    frames: EhFrame<Bytes<'a>>,
    /// Address of the first entry.
    first: u64,
    bases: BaseAddresses,
}

impl<'a> Entries<'a> {
    /// `None` if the file has no usual index of them.
    fn read(image: &LoadedImage<'a>) -> Option<Entries<'a>> {
        let start = image.segment(PT_GNU_EH_FRAME, |address, _| address)?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(start);
        let index = image.bytes(start).filter(|index| index.starts_with(&USUAL))?;
        let index = EhFrameHdr::new(index, LittleEndian).parse(&bases, 8).ok()?;
        index.table()?;
        let gimli::Pointer::Direct(first) = index.eh_frame_ptr() else { return None };
        let frames = EhFrame::new(image.bytes(first)?, LittleEndian);
        Some(Entries { index, frames, first, bases: bases.set_eh_frame(first) })
    }

    /// The entry that has an address.
    fn entry(&self, address: u64) -> Option<Entry<'a>> {
        let row = self.index.table()?.lookup(address, &self.bases).ok()?;
        let gimli::Pointer::Direct(row) = row else { return None };
        let at = usize::try_from(row.checked_sub(self.first)?).ok()?;
        let cie = EhFrame::cie_from_offset;
        let entry = self.frames.fde_from_offset(&self.bases, at.into(), cie).ok()?;
        let is_bounded = entry.entry_len().max(entry.cie().entry_len()) <= MAX_ENTRY;
        (is_bounded && entry.contains(address)).then_some(entry)
    }

    /// Where the frame of the code at an address is.
    fn frame(
        &self,
        entry: &Entry<'a>,
        address: u64,
        context: &mut UnwindContext<usize>,
    ) -> Option<CfaRule<usize>> {
        let row = entry.unwind_info_for_address(&self.frames, &self.bases, context, address);
        Some(row.ok()?.cfa().clone())
    }
}

/// A jump of a function, or what only looks so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Jump {
    from: u64,
    to: u64,
}

/// Code outside of a function that it seems to jump to.
struct Part {
    code: Range<u64>,
    jumps: u32,
}

impl LoadedImage<'_> {
    /// The code of a function that is split: its own, and its parts, by symbols (`NAME.cold`) or by
    /// call frame information.
    pub(crate) fn code(&self, name: &str, function: Symbol) -> Vec<Range<u64>> {
        let mut code = vec![function.range()];
        code.extend(self.parts(&format!("{name}.")).into_iter().map(Symbol::range));
        let parts = self.unnamed_parts(function, &code).unwrap_or_default();
        code.extend(parts.into_iter().map(|part| part.code));
        code
    }

    /// Parts of a function that are not known: those with the most jumps first.
    fn unnamed_parts(&self, function: Symbol, known: &[Range<u64>]) -> Option<Vec<Part>> {
        let entries = Entries::read(self)?;
        let own = entries.entry(function.address)?;
        let bytes = self.bytes(function.address)?;
        let length = usize::try_from(function.size).map_or(MAX_CODE, |size| size.min(MAX_CODE));
        let jumps = jumps(&bytes[..length.min(bytes.len())], function.address);
        let leaves = |jump: &Jump| !known.iter().any(|part| part.contains(&jump.to));
        let mut context = UnwindContext::new();
        let mut frame = |entry: &Entry<'_>, address| entries.frame(entry, address, &mut context);
        let (called, image) = (frame(&own, function.address), self.extent());
        let is_bounded = |code: &Range<u64>| {
            let size = code.end.saturating_sub(code.start);
            image.contains(&code.start) && code.end <= image.end && size <= MAX_CODE as u64
        };
        let mut parts: HashMap<u64, Part> = HashMap::new();
        for jump in jumps.filter(leaves).take(MAX_JUMPS) {
            let Some(entry) = entries.entry(jump.to) else { continue };
            let code = entry.initial_address()..entry.end_address();
            let at_target = frame(&entry, jump.to);
            let is_same = at_target.is_some() && at_target == frame(&own, jump.from);
            // What is called begins with another frame.
            let is_called = at_target == called || frame(&entry, code.start) == called;
            if is_same && !is_called && is_bounded(&code) {
                parts.entry(code.start).or_insert(Part { code, jumps: 0 }).jumps += 1;
            }
        }
        let mut parts: Vec<Part> =
            parts.into_values().filter(|part| part.jumps >= LEAST_JUMPS).collect();
        parts.sort_unstable_by_key(|part| (Reverse(part.jumps), part.code.start));
        parts.truncate(MOST);
        Some(parts)
    }
}

/// Jumps of the code at an address, and what only looks so.
fn jumps(code: &[u8], start: u64) -> impl Iterator<Item = Jump> {
    arch::jumps(code).map(move |(at, to)| Jump {
        from: start.wrapping_add(at as u64),
        to: start.wrapping_add_signed(to),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use sys::{FileAddress, LoadBias, ProcessAddress};

    /// `work` has a part of its own for what is rarely done; `other` is called by a jump.
    const PROGRAM: &str = "
        __attribute__((cold, noinline)) void rare(int *value) { *value += 7; }
        __attribute__((noinline)) int other(int *value) { return *value * 3; }
        int work(int *values, int count) {
            int local[40], sum = 0;
            for (int i = 0; i < count; i++) {
                local[i % 40] = values[i];
                if (__builtin_expect(values[i] == 3, 0)) { rare(local); sum += local[3]; }
                if (__builtin_expect(values[i] == 5, 0)) { rare(values); sum -= local[7]; }
                sum += values[i] ^ local[(sum & 31)];
            }
            if (sum == 9) { values[1] = 4; return other(values + 1); }
            values[0] = sum;
            return other(values);
        }";

    /// The program's library, with symbols and without; `None`, which is reported, without a compiler.
    fn libraries(dir: &Path) -> Option<[Vec<u8>; 2]> {
        let (source, whole, stripped) = (dir.join("a.c"), dir.join("a.so"), dir.join("b.so"));
        std::fs::write(&source, PROGRAM).unwrap();
        let mut gcc = Command::new("gcc");
        // Calls between its functions are direct, and equal ends are not merged.
        gcc.args(["-fno-semantic-interposition", "-fno-crossjumping", "-fno-tree-tail-merge"]);
        gcc.args(["-O2", "-shared", "-fPIC", "-o"]).args([&whole, &source]);
        let mut strip = Command::new("strip");
        strip.arg("-o").args([&stripped, &whole]);
        for mut tool in [gcc, strip] {
            let Ok(status) = tool.status() else {
                sys::testing::skip("there is no GCC");
                return None;
            };
            assert!(status.success());
        }
        Some([whole, stripped].map(|file| std::fs::read(file).unwrap()))
    }

    fn image(file: &[u8]) -> LoadedImage<'_> {
        LoadedImage { file, bias: LoadBias::between(FileAddress(0), ProcessAddress(0x70_0000)) }
    }

    fn code(file: &[u8]) -> Vec<Range<u64>> {
        let function = image(file).symbols(&["work"]).get("work").copied();
        function.map_or(Vec::new(), |function| image(file).code("work", function))
    }

    #[test]
    fn a_part_without_a_symbol_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let Some([whole, stripped]) = libraries(dir.path()) else { return };
        assert_eq!(image(&whole).parts("work.").len(), 1);
        assert_eq!(image(&stripped).parts("work."), []);
        assert_eq!((code(&whole), code(&stripped).len()), (code(&stripped), 2));
    }

    #[test]
    fn a_function_that_is_called_by_jumps_is_no_part() {
        let dir = tempfile::tempdir().unwrap();
        let Some([_, stripped]) = libraries(dir.path()) else { return };
        let other = image(&stripped).symbols(&["other"])["other"];
        let work = image(&stripped).symbols(&["work"])["work"];
        let bytes = &image(&stripped).bytes(work.address).unwrap()[..work.size as usize];
        let tail_calls = jumps(bytes, work.address).filter(|jump| jump.to == other.address);
        assert!(tail_calls.count() >= LEAST_JUMPS as usize);
        assert!(!code(&stripped).iter().any(|part| part.contains(&other.address)));
    }

    #[test]
    fn damaged_call_frame_information_has_bounded_parts() {
        let dir = tempfile::tempdir().unwrap();
        let Some([_, stripped]) = libraries(dir.path()) else { return };
        let start = image(&stripped).segment(PT_GNU_EH_FRAME, |address, _| address).unwrap();
        let at = usize::try_from(start).unwrap() - 0x70_0000;
        for at in at..(at + 0x300).min(stripped.len()) {
            for value in [0, 0x7f, 0xff] {
                let mut damaged = stripped.clone();
                damaged[at] = value;
                assert!(code(&damaged).len() <= 1 + MOST);
            }
        }
        for cut in [64, at, at + 4, at + 40] {
            assert!(code(&stripped[..cut]).len() <= 1);
        }
    }

    #[test]
    fn jumps_lead_where_the_processor_goes() {
        // jmp +0x100; je -0x10; call (no jump); a jump that is cut.
        let code = b"\xe9\0\x01\0\0\x0f\x84\xf0\xff\xff\xff\xe8\0\0\0\0\xe9\0";
        let expected = [Jump { from: 0x1000, to: 0x1105 }, Jump { from: 0x1005, to: 0xffb }];
        assert_eq!(jumps(code, 0x1000).collect::<Vec<_>>(), expected);
        assert_eq!(jumps(b"", 0).count(), 0);
    }
}
