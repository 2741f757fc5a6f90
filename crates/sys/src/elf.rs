//! The parts of an ELF file that recording needs: executable segments, build ID, and unwind
//! information. The file is not trusted: damaged parts count as absent.

use std::ops::Range;

use object::LittleEndian;
use object::elf::{FileHeader64, PF_X, PT_GNU_EH_FRAME, PT_INTERP, PT_LOAD, PT_NOTE};
use object::read::elf::{
    CompressionHeader, FileHeader, NoteIterator, ProgramHeader, SectionHeader, SectionTable,
};

use crate::arch::PAGE;
use crate::{FileAddress, FileOffset};

/// Most program headers of a file that are read: 64 KiB, the most of a file that Linux executes.
pub const MAX_PROGRAM_HEADERS: usize = 1170;

/// Most sections of a file that are read. Only object files have more (`SHN_LORESERVE`).
pub const MAX_SECTIONS: usize = 0xff00;

/// Most notes of a file among which its build ID is searched.
pub const MAX_NOTES: usize = 4096;

/// Longest build ID, in bytes; linkers make 8 to 20.
pub const MAX_BUILD_ID: usize = 64;

/// Longest name of a section that is read, in bytes.
const MAX_SECTION_NAME: usize = 64;

/// An executable `PT_LOAD` segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Virtual address that the file states (`p_vaddr`).
    pub address: u64,
    /// Offset in the file (`p_offset`).
    pub offset: u64,
    /// Bytes in the file (`p_filesz`).
    pub size: u64,
}

/// A section: where it is loaded, and its bytes' range in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Virtual address that the file states.
    pub address: u64,
    /// Bytes in the file.
    pub range: Range<usize>,
}

/// A `.debug_frame` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugFrame {
    range: Range<usize>,
    /// Decompressed size in bytes, if it is compressed by zlib.
    compressed: Option<u64>,
}

impl DebugFrame {
    /// A section with these bytes in the file, and this decompressed size.
    #[cfg(any(test, feature = "testing"))]
    pub fn new(range: Range<usize>, compressed: Option<u64>) -> DebugFrame {
        DebugFrame { range, compressed }
    }

    /// Its bytes in the file, as they are.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Decompressed size in bytes that it states, if it is compressed.
    pub fn compressed(&self) -> Option<u64> {
        self.compressed
    }

    /// The contents of a compressed section, at most `most` bytes; `data` is the file.
    pub fn decompressed(&self, data: &[u8], most: usize) -> Option<Vec<u8>> {
        let bytes = data.get(self.range.clone())?;
        // zlib lets no input grow by more than 0.1 %: more than that are blocks without contents.
        let longest = most.saturating_add(most / 512).saturating_add(64);
        let reader = flate2::read::ZlibDecoder::new(&bytes[..bytes.len().min(longest)]);
        let mut out = Vec::new();
        out.try_reserve_exact(most).ok()?;
        let mut buffer = [0; 16 << 10];
        let mut reader = std::io::Read::take(reader, most as u64);
        loop {
            match std::io::Read::read(&mut reader, &mut buffer).ok()? {
                0 => break,
                read => out.extend_from_slice(&buffer[..read]),
            }
        }
        out.shrink_to_fit();
        Some(out)
    }
}

/// The parts that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// Executable segments.
    pub segments: Vec<Segment>,
    /// Lowest address of any loaded segment.
    pub base: u64,
    /// Entry point (`e_entry`); 0 for a library without one.
    pub entry: u64,
    /// True if it names a dynamic loader (`PT_INTERP`).
    pub has_interpreter: bool,
    /// GNU build ID; empty if there is none.
    pub build_id: Vec<u8>,
    /// `.eh_frame`.
    pub eh_frame: Option<Section>,
    /// `.eh_frame_hdr`.
    pub eh_frame_hdr: Option<Section>,
    /// `.debug_frame`: the only frame information, or what `.eh_frame` lacks (the Go part of a
    /// program that is linked with C).
    pub debug_frame: Option<DebugFrame>,
    /// True if Go's linker made it.
    pub is_go: bool,
    /// `.text`.
    pub text: Option<Section>,
    /// `.got`.
    pub got: Option<Section>,
}

type ElfHeader = FileHeader64<LittleEndian>;

/// Names of the sections that are used.
const SECTIONS: [&[u8]; 7] = [
    b".eh_frame",
    b".eh_frame_hdr",
    b".text",
    b".got",
    b".debug_frame",
    b".note.go.buildid",
    b".gopclntab",
];

impl Elf {
    /// Parses a 64-bit little-endian file; `None` if it is not one.
    pub fn parse(data: &[u8]) -> Option<Elf> {
        let header = ElfHeader::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let entry = header.e_entry(endian);
        let mut elf = Elf { base: u64::MAX, entry, ..Elf::default() };
        let mut notes_left = MAX_NOTES;
        for ph in header.program_headers(endian, data).ok()?.iter().take(MAX_PROGRAM_HEADERS) {
            elf.add_program_header(ph, endian, data, &mut notes_left);
        }
        if elf.base == u64::MAX {
            elf.base = 0;
        }
        elf.add_sections(header, endian, data);
        if elf.eh_frame.is_none() {
            elf.eh_frame = elf.eh_frame_from_header(data);
        }
        Some(elf)
    }

    fn add_program_header(
        &mut self,
        ph: &object::elf::ProgramHeader64<LittleEndian>,
        endian: LittleEndian,
        data: &[u8],
        notes_left: &mut usize,
    ) {
        let (address, offset, size) =
            (ph.p_vaddr(endian), ph.p_offset(endian), ph.p_filesz(endian));
        match ph.p_type(endian) {
            PT_LOAD => {
                self.base = self.base.min(address & !(PAGE - 1));
                if ph.p_flags(endian).0 & PF_X.0 != 0 {
                    self.segments.push(Segment { address, offset, size });
                }
            }
            PT_INTERP => self.has_interpreter = true,
            PT_GNU_EH_FRAME => self.eh_frame_hdr = section(address, offset, size, data),
            PT_NOTE if self.build_id.is_empty() => {
                let Ok(Some(notes)) = ph.notes(endian, data) else { return };
                self.build_id = build_id_of(endian, notes, notes_left).unwrap_or_default();
            }
            _ => {}
        }
    }

    fn add_sections(&mut self, header: &ElfHeader, endian: LittleEndian, data: &[u8]) {
        let Ok(sections) = header.sections(endian, data) else { return };
        let found = sections_named(header, endian, data, &sections, &SECTIONS);
        let find = |name: &[u8]| found[SECTIONS.iter().position(|n| *n == name)?];
        let range = |name: &[u8]| {
            let s = find(name)?;
            s.data_as_array::<u8, _>(endian, data).ok().filter(|d| !d.is_empty())?;
            section(s.sh_addr(endian), s.sh_offset(endian), s.sh_size(endian), data)
        };
        self.eh_frame = range(b".eh_frame");
        self.text = range(b".text");
        self.got = range(b".got");
        if self.eh_frame_hdr.is_none() {
            self.eh_frame_hdr = range(b".eh_frame_hdr");
        }
        self.is_go = find(b".note.go.buildid").is_some() || find(b".gopclntab").is_some();
        self.debug_frame = find(b".debug_frame").and_then(|s| debug_frame(s, endian, data));
    }

    /// `.eh_frame` of a file without section headers, from the pointer in `.eh_frame_hdr` (LSB
    /// Core, "Exception Frames"; only the usual encoding, pc-relative in four bytes).
    fn eh_frame_from_header(&self, data: &[u8]) -> Option<Section> {
        const PCREL_SDATA4: u8 = 0x1b;
        let hdr = self.eh_frame_hdr.as_ref()?;
        let bytes = data.get(hdr.range.clone())?;
        if *bytes.get(1)? != PCREL_SDATA4 {
            return None;
        }
        let relative = i32::from_le_bytes(*bytes.get(4..)?.first_chunk::<4>()?);
        let address = hdr.address.wrapping_add(4).wrapping_add_signed(i64::from(relative));
        let offset = (hdr.range.start as u64).wrapping_add(address.wrapping_sub(hdr.address));
        let size = (data.len() as u64).checked_sub(offset)?;
        section(address, offset, size, data)
    }

    /// Index of the executable segment that contains a file offset, and the address at that offset.
    pub fn address_of(&self, FileOffset(offset): FileOffset) -> Option<(usize, FileAddress)> {
        self.segments.iter().enumerate().find_map(|(i, s)| {
            let start = s.offset & !(PAGE - 1);
            let end = s.offset.checked_add(s.size)?.checked_next_multiple_of(PAGE)?;
            let address = FileAddress(offset.wrapping_sub(s.offset).wrapping_add(s.address));
            (start..end).contains(&offset).then_some((i, address))
        })
    }

    /// The mapping of a segment as the kernel creates it: first address, limit, file offset, all in
    /// whole pages.
    pub fn mapping_of(&self, segment: usize) -> (u64, u64, u64) {
        let s = &self.segments[segment];
        let slack = s.offset & (PAGE - 1);
        let start = s.address.wrapping_sub(slack);
        let end = s.address.saturating_add(s.size);
        (start, end.checked_next_multiple_of(PAGE).unwrap_or(end), s.offset - slack)
    }

    /// True if the address is in the first instructions of a program. They have no caller, but not
    /// every unwind information states that (the dynamic loader's does not).
    pub fn is_entry(&self, address: FileAddress) -> bool {
        const ENTRY_CODE: u64 = 64;
        self.entry != 0 && address.0.wrapping_sub(self.entry) < ENTRY_CODE
    }

    /// True if it has information to unwind with: call frame information, or Go's own table.
    pub fn can_unwind(&self) -> bool {
        self.eh_frame.is_some() || self.debug_frame.is_some() || self.is_go
    }
}

fn section(address: u64, offset: u64, size: u64, data: &[u8]) -> Option<Section> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    (end <= data.len()).then_some(Section { address, range: start..end })
}

fn debug_frame(
    section: &object::elf::SectionHeader64<LittleEndian>,
    endian: LittleEndian,
    data: &[u8],
) -> Option<DebugFrame> {
    let (offset, size, compressed) = match section.compression(endian, data).ok()? {
        None => (section.sh_offset(endian), section.sh_size(endian), None),
        Some((header, offset, size)) => {
            let length = header.ch_size(endian);
            let zlib = header.ch_type(endian) == object::elf::ELFCOMPRESS_ZLIB;
            if !zlib {
                return None;
            }
            (offset, size, Some(length))
        }
    };
    let range = self::section(0, offset, size, data)?.range;
    (!range.is_empty()).then_some(DebugFrame { range, compressed })
}

/// The build ID among notes, of which at most `left` are read. One that is too long is none.
pub fn build_id_of<E: FileHeader>(
    endian: E::Endian,
    mut notes: NoteIterator<'_, E>,
    left: &mut usize,
) -> Option<Vec<u8>> {
    while let Some(less) = left.checked_sub(1)
        && let Ok(Some(note)) = notes.next()
    {
        *left = less;
        // `Note::name` would read all of a name that consists of zeros.
        let is_gnu = matches!(note.name_bytes(), b"GNU\0" | b"GNU");
        if is_gnu && note.n_type(endian) == object::elf::NT_GNU_BUILD_ID {
            return Some(note.desc()).filter(|id| id.len() <= MAX_BUILD_ID).map(<[u8]>::to_vec);
        }
    }
    None
}

/// Names of the sections of a file: its table of them, see [`section_name`].
pub fn section_names<'a, E: FileHeader>(
    header: &E,
    endian: E::Endian,
    data: &'a [u8],
    sections: &SectionTable<'a, E>,
) -> &'a [u8] {
    let index = header.section_strings_index(endian, data);
    let table = index.and_then(|index| sections.section(index)?.data(endian, data));
    table.unwrap_or_default()
}

/// The name of a section in a table of names; `None` if it is outside of the table, empty if it is
/// long. Millions of sections may have one name, which may be as long as the file.
pub fn section_name<'a, E: FileHeader>(
    names: &'a [u8],
    endian: E::Endian,
    section: &E::SectionHeader,
) -> Option<&'a [u8]> {
    let rest = names.get(section.sh_name(endian) as usize..)?;
    let end = rest.iter().take(MAX_SECTION_NAME).position(|&byte| byte == 0);
    Some(&rest[..end.unwrap_or_default()])
}

/// The first section with each of these names.
pub fn sections_named<'a, E: FileHeader, const N: usize>(
    header: &E,
    endian: E::Endian,
    data: &'a [u8],
    sections: &SectionTable<'a, E>,
    wanted: &[&[u8]; N],
) -> [Option<&'a E::SectionHeader>; N] {
    let names = section_names(header, endian, data, sections);
    let mut found = [None; N];
    for section in sections.iter().take(MAX_SECTIONS) {
        let name = section_name::<E>(names, endian, section);
        if let Some(at) = name.and_then(|name| wanted.iter().position(|w| *w == name)) {
            found[at] = found[at].or(Some(section));
        }
    }
    found
}

/// Bytes of the names of a file's symbols that may still be read. Names share few bytes; those of a
/// hostile file may be millions, each as long as the file.
#[derive(Debug)]
pub struct NameBudget {
    left: usize,
    /// What a name without an end counts.
    endless: usize,
}

impl NameBudget {
    /// Largest budget, in bytes.
    const MAX: usize = 256 << 20;

    /// Most names without an end. Each is searched for up to the end of the names.
    const ENDLESS: usize = 64;

    /// The budget of a file.
    pub fn of(file: &[u8]) -> NameBudget {
        let left = file.len().saturating_mul(2).min(Self::MAX);
        NameBudget { left, endless: left.div_ceil(Self::ENDLESS) }
    }

    /// Counts a name that was looked up, and returns it; one without an end (an error) is empty.
    /// `None`: there are too many bytes of them, and no other may be looked up.
    pub fn found<'n, E>(&mut self, name: Result<&'n [u8], E>) -> Option<&'n [u8]> {
        let (name, size) = match name {
            Ok(name) => (name, name.len()),
            Err(_) => (&b""[..], self.endless),
        };
        let rest = self.left.checked_sub(size);
        self.left = rest.unwrap_or(0);
        rest.map(|_| name)
    }

    /// True if names may be read.
    pub fn has_rest(&self) -> bool {
        self.left > 0
    }
}

/// Build ID in `/sys/kernel/notes` or any other run of ELF notes.
pub fn build_id_in_notes(notes: &[u8]) -> Option<Vec<u8>> {
    let mut rest = notes;
    while rest.len() >= 12 {
        let word = |i: usize| {
            let bytes = rest[i * 4..i * 4 + 4].first_chunk::<4>().expect("four bytes");
            u32::from_le_bytes(*bytes) as usize
        };
        let name_len = word(0);
        let desc_len = word(1);
        let kind = word(2);
        let desc_at = 12 + name_len.checked_next_multiple_of(4)?;
        let desc = rest.get(desc_at..desc_at.checked_add(desc_len)?)?;
        if kind == object::elf::NT_GNU_BUILD_ID.0 as usize && rest.get(12..16) == Some(b"GNU\0") {
            return Some(desc.to_vec());
        }
        rest = rest.get(desc_at + desc_len.checked_next_multiple_of(4)?..)?;
    }
    None
}

/// Lower-case hexadecimal digits, as build IDs are written.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn own() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap()
    }

    #[test]
    fn own_binary_has_all_parts() {
        let data = own();
        let elf = Elf::parse(&data).unwrap();
        assert!(elf.can_unwind() && elf.eh_frame_hdr.is_some());
        assert!(!elf.segments.is_empty());
        let text = elf.text.clone().unwrap();
        let offset = FileOffset(text.range.start as u64);
        let (segment, FileAddress(address)) = elf.address_of(offset).unwrap();
        assert_eq!(address, text.address);
        let (start, limit, offset) = elf.mapping_of(segment);
        assert!((start..limit).contains(&address));
        assert_eq!(address - start + offset, text.range.start as u64);
    }

    #[test]
    fn without_section_headers_eh_frame_is_found_by_its_header() {
        let data = own();
        let elf = Elf::parse(&data).unwrap();
        let found = elf.eh_frame_from_header(&data).unwrap();
        assert_eq!(found.address, elf.eh_frame.as_ref().unwrap().address);
        assert_eq!(found.range.start, elf.eh_frame.unwrap().range.start);
    }

    /// A file with `count` headers of the same notes.
    fn with_notes(count: u16, notes: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        file[32] = 64;
        file[52] = 64;
        file[54] = 56;
        file[56..58].copy_from_slice(&count.to_le_bytes());
        let at = 64 + 56 * u64::from(count);
        for _ in 0..count {
            let size = notes.len() as u64;
            file.extend([4_u32, 4].iter().flat_map(|word| word.to_le_bytes()));
            file.extend([at, 0, 0, size, size, 4].iter().flat_map(|word| word.to_le_bytes()));
        }
        [&file, notes].concat()
    }

    fn note(description: &[u8]) -> Vec<u8> {
        let words = [4, description.len() as u32, 3];
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        [&words, &b"GNU\0"[..], description].concat()
    }

    #[test]
    fn a_build_id_is_found_among_the_first_notes_if_it_is_not_too_long() {
        let id = |count, notes: &[u8]| Elf::parse(&with_notes(count, notes)).unwrap().build_id;
        assert_eq!(id(1, &note(&[7; 20])), [7; 20]);
        assert!(id(1, &note(&[7; MAX_BUILD_ID + 4])).is_empty());
        let empty = |notes: usize| [vec![0; 12 * notes], note(&[7; 20])].concat();
        assert_eq!(id(3, &empty(MAX_NOTES - 1)), [7; 20]);
        // The budget is of all headers.
        assert!(id(3, &empty(MAX_NOTES)).is_empty());
    }

    #[test]
    fn a_name_without_an_end_is_none() {
        type Header = object::elf::SectionHeader64<LittleEndian>;
        let (header, _) = object::pod::from_bytes::<Header>(&[0; 64]).unwrap();
        let name = |names| section_name::<ElfHeader>(names, LittleEndian, header);
        assert_eq!(name(b".text\0.data\0"), Some(&b".text"[..]));
        assert_eq!(name(&[b'A'; 1000]), Some(&b""[..]));
        let mut budget = NameBudget::of(&[0; 50]);
        let mut found = |size: usize| budget.found(Ok::<_, ()>(&[b'A'; 60][..size])).is_some();
        assert!(found(60) && !found(60) && !found(1));
        assert!(!budget.has_rest());
        let mut budget = NameBudget::of(&[0; 50]);
        let found = (0..1000).map_while(|_| budget.found(Err::<&[u8], ()>(()))).count();
        assert!((1..=NameBudget::ENDLESS).contains(&found), "{found}");
    }

    #[test]
    fn the_kernel_has_a_build_id() {
        let Ok(notes) = std::fs::read("/sys/kernel/notes") else {
            return crate::testing::skip_hardware("the kernel has no /sys/kernel/notes");
        };
        assert!(build_id_in_notes(&notes).is_some_and(|id| id.len() >= 8));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
        #[test]
        fn a_damaged_file_is_parsed_without_panic(
            at in proptest::collection::vec((0usize..1000, any::<u8>()), 1..8), cut in 0usize..200_000,
        ) {
            let mut data = own();
            data.truncate(cut.max(64));
            for (at, to) in at {
                if let Some(b) = data.get_mut(at) { *b = to; }
            }
            if let Some(elf) = Elf::parse(&data) {
                for i in 0..elf.segments.len() { let _ = elf.mapping_of(i); }
                let _ = elf.address_of(FileOffset(4096));
            }
        }

        #[test]
        fn any_notes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = build_id_in_notes(&bytes);
        }
    }
}
