//! ELF headers that affect symbolization.

use std::fs::File;
use std::path::PathBuf;

use object::elf;
use object::read::elf::{CompressionHeader, FileHeader, ProgramHeader, SectionHeader};
use object::{Endian, Endianness, FileKind, ReadRef};

use super::skeleton;
use profile::Cause;
use sys::elf::{
    MAX_NOTES, MAX_PROGRAM_HEADERS, MAX_SECTIONS, build_id_of, hex, section_name, section_names,
};
use sys::mmap;
use sys::{FileAddress, FileOffset};

/// A loaded segment: a file range and its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadSegment {
    /// Offset of its first byte in the file.
    pub offset: u64,
    /// Its bytes in the file.
    pub size: u64,
    /// Link-time address of its first byte.
    pub address: u64,
    /// True if it contains code.
    pub executable: bool,
}

/// Information from the headers of an ELF file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// Loaded segments, as in the program header table.
    pub segments: Vec<LoadSegment>,
    /// GNU build ID in lower-case hexadecimal, empty if there is none.
    pub build_id: String,
    /// True if there is DWARF (`.debug_info`).
    pub has_debug_info: bool,
    /// True if its DWARF is split, or compressed in the old format (see [`super::split`]).
    pub is_split: bool,
    /// True if there is a symbol table (`.symtab`), not only dynamic symbols.
    pub has_symtab: bool,
    /// Error in its section headers; the parser's message.
    pub damage: Option<String>,
    /// Name and checksum of the file with the debug information (`.gnu_debuglink`).
    pub debug_link: Option<(String, u32)>,
    /// File range of the stripped and packed symbols (`.gnu_debugdata`).
    pub packed_symbols: Option<(u64, u64)>,
    /// The file with debug information that several files share (`dwz -m`).
    pub shared: Option<SharedLink>,
    /// Stated sizes of its compressed sections.
    pub packing: Packing,
}

/// Stated compression of the sections of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packing {
    unpacked: u64,
    beyond_belief: bool,
}

/// Most bytes of a link to another file: a path and a build ID.
const MAX_LINK: usize = 8 << 10;

/// Limit of the total unpacked size of one file's compressed sections, in bytes.
const MAX_UNPACKED: u64 = 1 << 30;

/// Largest credible compression ratio (debug information shrinks to between a half and a tenth) of
/// sections above the size `SMALL`, in bytes.
const MAX_RATIO: u64 = 200;
const SMALL: u64 = 16 << 20;

const NO_NAME: &str = "its section headers: Invalid ELF section name offset";

const TOO_LARGE: &str =
    "its compressed sections unpack to more than 1 GiB, or to more than 200 times their size";

impl Packing {
    fn add<S: SectionHeader<Endian = Endianness>>(
        &mut self,
        endian: Endianness,
        data: &[u8],
        section: &S,
    ) {
        let Ok(Some((header, _, size))) = section.compression(endian, data) else { return };
        let claimed: u64 = header.ch_size(endian).into();
        self.unpacked = self.unpacked.saturating_add(claimed);
        self.beyond_belief |= claimed > SMALL && claimed / MAX_RATIO > size;
    }

    fn is_too_large(self) -> bool {
        self.beyond_belief || self.unpacked > MAX_UNPACKED
    }
}

/// Name and build ID of a file that several others share (`.gnu_debugaltlink`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedLink {
    pub(super) name: PathBuf,
    pub(super) build_id: String,
}

impl SharedLink {
    fn parse(section: &[u8]) -> SharedLink {
        let end = section.iter().position(|&b| b == 0).unwrap_or(section.len());
        let name = PathBuf::from(String::from_utf8_lossy(&section[..end]).into_owned());
        let build_id = section.get(end + 1..).map(hex).unwrap_or_default();
        SharedLink { name, build_id }
    }

    /// Its name, as stored in the other file.
    pub fn name(&self) -> String {
        self.name.display().to_string()
    }
}

impl Headers {
    /// Address of the byte at an offset of the file.
    pub fn address_of(&self, FileOffset(offset): FileOffset) -> Option<FileAddress> {
        let inside = |s: &&LoadSegment| offset >= s.offset && offset - s.offset < s.size;
        let s = self.segments.iter().find(inside)?;
        s.address.checked_add(offset - s.offset).map(FileAddress)
    }

    /// True if it can name functions.
    pub fn has_names(&self) -> bool {
        self.has_debug_info || self.has_symtab
    }

    /// Adds a section.
    fn take_in<'a, S: SectionHeader<Endian = Endianness>>(
        &mut self,
        endian: Endianness,
        data: &[u8],
        name: &[u8],
        section: &'a S,
        debug: &mut DebugSections<'a, S>,
    ) {
        let in_file = section.sh_type(endian) != elf::SHT_NOBITS;
        self.packing.add(endian, data, section);
        match name {
            b".debug_info" if in_file => debug.info = Some(section),
            b".zdebug_info" if in_file => {
                (self.has_debug_info, self.is_split) = (true, true);
            }
            b".debug_addr" => debug.has_addresses = true,
            b".gnu_debugdata" => {
                let range = section.file_range(endian);
                self.packed_symbols = range;
            }
            b".gnu_debuglink" => {
                self.debug_link = debug_link(endian, link(endian, data, section));
            }
            b".gnu_debugaltlink" => {
                self.shared = Some(SharedLink::parse(link(endian, data, section)));
            }
            b".debug_sup" => self.shared = Some(SharedLink::default()),
            // Debug files keep the note's section, but the contents of their segments are missing.
            b".note.gnu.build-id" => {
                if let Ok(Some(notes)) = section.notes(endian, data) {
                    let build_id = build_id_of(endian, notes, &mut debug.notes_left);
                    self.build_id = build_id.map(|id| hex(&id)).unwrap_or_default();
                }
            }
            _ => self.has_symtab |= section.sh_type(endian) == elf::SHT_SYMTAB,
        }
    }
}

/// Sections that determine a file's kind of DWARF.
struct DebugSections<'a, S> {
    info: Option<&'a S>,
    has_addresses: bool,
    /// Notes that may still be read.
    notes_left: usize,
}

/// Reads the headers of an ELF file.
///
/// # Errors
///
/// It cannot be read, or is not an intact ELF file.
pub fn read_headers(file: &File) -> Result<Headers, Cause> {
    let cut_before = mmap::cut_pages();
    let map = mmap::map(file).map_err(|_| Cause::NotElf)?;
    let headers = match FileKind::parse(&*map) {
        Ok(FileKind::Elf64) => parse::<elf::FileHeader64<Endianness>>(&map),
        Ok(FileKind::Elf32) => parse::<elf::FileHeader32<Endianness>>(&map),
        _ => Err(Cause::NotElf),
    };
    if mmap::cut_pages() > cut_before { Err(Cause::Cut) } else { headers }
}

fn parse<E: FileHeader<Endian = Endianness>>(cache: &[u8]) -> Result<Headers, Cause> {
    let damaged = |e: object::Error| Cause::Damaged(e.to_string());
    let header = E::parse(cache).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    let mut headers = Headers::default();
    let mut debug = DebugSections { info: None, has_addresses: false, notes_left: MAX_NOTES };
    let segments = header.program_headers(endian, cache).map_err(damaged)?;
    for segment in segments.iter().take(MAX_PROGRAM_HEADERS) {
        match segment.p_type(endian) {
            elf::PT_LOAD => headers.segments.push(LoadSegment {
                offset: segment.p_offset(endian).into(),
                size: segment.p_filesz(endian).into(),
                address: segment.p_vaddr(endian).into(),
                executable: segment.p_flags(endian).contains(elf::PF_X),
            }),
            elf::PT_NOTE if headers.build_id.is_empty() => {
                if let Ok(Some(notes)) = segment.notes(endian, cache) {
                    let build_id = build_id_of(endian, notes, &mut debug.notes_left);
                    headers.build_id = build_id.map(|id| hex(&id)).unwrap_or_default();
                }
            }
            _ => {}
        }
    }
    // A file without (intact) section headers still has its segments.
    let sections = header.sections(endian, cache);
    headers.damage = sections.as_ref().err().map(|e| format!("its section headers: {e}"));
    if let Ok(sections) = sections {
        let names = section_names(header, endian, cache, &sections);
        for section in sections.iter().take(MAX_SECTIONS) {
            let name = section_name::<E>(names, endian, section).unwrap_or_else(|| {
                headers.damage.get_or_insert_with(|| NO_NAME.to_owned());
                Default::default()
            });
            headers.take_in(endian, cache, name, section, &mut debug);
        }
    }
    if let Some(section) = debug.info {
        headers.has_debug_info = true;
        headers.is_split = debug.has_addresses && is_split(endian, cache, section);
        // blazesym would follow links to other files by their names.
        headers.is_split |= headers.shared.is_some() || headers.debug_link.is_some();
    }
    if headers.packing.is_too_large() {
        // Symbols are rarely compressed.
        headers.has_debug_info = false;
        headers.damage.get_or_insert_with(|| TOO_LARGE.to_owned());
    }
    Ok(headers)
}

fn is_split<S: SectionHeader<Endian = Endianness>>(
    endian: Endianness,
    cache: &[u8],
    section: &S,
) -> bool {
    match section.compression(endian, cache) {
        // Only the headers of its units are read.
        Ok(None) => section.file_range(endian).is_some_and(|(start, length)| {
            skeleton::is_split(endian, |at, size| {
                at.checked_add(size).filter(|&end| end <= length)?;
                cache.read_bytes_at(start.checked_add(at)?, size).ok()
            })
        }),
        // Testing would cost as much as it saves: the reader of split DWARF reads all DWARF.
        Ok(Some(_)) => true,
        Err(_) => false,
    }
}

/// The first bytes of a section that names another file.
fn link<'a, S: SectionHeader<Endian = Endianness>>(
    endian: Endianness,
    data: &'a [u8],
    section: &S,
) -> &'a [u8] {
    let bytes = section.data(endian, data).unwrap_or_default();
    &bytes[..bytes.len().min(MAX_LINK)]
}

/// A name, zero bytes up to a multiple of four, a checksum.
fn debug_link(endian: Endianness, section: &[u8]) -> Option<(String, u32)> {
    let length = section.iter().position(|&b| b == 0)?;
    let name = std::str::from_utf8(&section[..length]).ok()?;
    let crc = section.get((length + 1).next_multiple_of(4)..)?.first_chunk::<4>()?;
    Some((name.to_owned(), endian.read_u32(*crc)))
}
