//! Finds the files that can name the addresses of one binary, and makes sure that they are the
//! binary that was recorded.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object::elf;
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endian, Endianness, FileKind, ReadRef};

use super::{Options, Why, mini, split};
pub use crate::process::elf::hex;

/// A loaded segment: which bytes of the file stand at which addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset of its first byte in the file.
    pub offset: u64,
    /// Bytes of it that the file holds.
    pub size: u64,
    /// Link-time address of its first byte.
    pub address: u64,
    /// It holds code.
    pub executable: bool,
}

/// What the headers of an ELF file say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// Loaded segments, as in the program header table.
    pub segments: Vec<Segment>,
    /// GNU build id in lower-case hexadecimal, empty when there is none.
    pub build_id: String,
    /// There is DWARF (`.debug_info`).
    pub has_debug_info: bool,
    /// Its DWARF is split, or compressed the old way (see [`super::split`]).
    pub is_split: bool,
    /// There is a symbol table (`.symtab`), not only the dynamic symbols.
    pub has_symtab: bool,
    /// Its section headers cannot be read; the parser's words.
    pub damage: Option<String>,
    /// Name and checksum of the file with the debug information (`.gnu_debuglink`).
    pub debug_link: Option<(String, u32)>,
    /// Where in the file the symbols lie that were stripped and packed (`.gnu_debugdata`).
    pub packed_symbols: Option<(u64, u64)>,
}

impl Headers {
    /// Link-time address of the byte at `offset` of the file.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let inside = |s: &&Segment| offset >= s.offset && offset - s.offset < s.size;
        let s = self.segments.iter().find(inside)?;
        s.address.checked_add(offset - s.offset)
    }

    fn has_names(&self) -> bool {
        self.has_debug_info || self.has_symtab
    }
}

/// A file to ask for names.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The file.
    pub path: PathBuf,
    /// Its DWARF is worth parsing.
    pub debug_info: bool,
    /// [`super::split`] has to do it.
    pub split: bool,
    /// `path` names this open file, which is gone when nobody holds it.
    pub _unpacked: Option<Arc<File>>,
}

impl Layer {
    /// A file with these headers that has its path from others.
    pub fn of(path: &Path, headers: &Headers) -> Layer {
        let (debug_info, split) = (headers.has_debug_info, headers.is_split);
        Layer { path: path.to_owned(), debug_info, split, _unpacked: None }
    }

    /// It came out of another one.
    pub fn is_unpacked(&self) -> bool {
        self._unpacked.is_some()
    }
}

/// The files that can name a binary's addresses.
#[derive(Clone, Debug)]
pub struct Found {
    /// Headers of the binary, or of its debug file when that is all that was found.
    pub headers: Headers,
    /// The binary itself was found.
    pub binary: bool,
    /// Files to ask, best first: what one cannot name, the next may.
    pub layers: Vec<Layer>,
    /// Neither debug information nor a symbol table was found.
    pub stripped: bool,
    /// Why there is no debug information, if something is wrong with it.
    pub flaw: Option<Why>,
}

impl Found {
    /// Link-time address of `address`, which lies in the mapping that begins at `start` and
    /// shows the file from `file_offset` on.
    pub fn link_address(&self, address: u64, start: u64, file_offset: u64) -> Option<u64> {
        let inside = address.checked_sub(start)?;
        if self.binary {
            return self.headers.address_of(inside.checked_add(file_offset)?);
        }
        // File offsets mean nothing in a debug file, but its segments keep their addresses.
        let code = self.headers.segments.iter().find(|s| s.executable)?;
        (code.address & !(PAGE - 1)).checked_add(inside)
    }
}

/// Granularity of mappings; larger pages only make the low bits of a segment's address zero.
const PAGE: u64 = 4096;

/// Looks for the binary that is called `name` and has `build_id` (empty: unknown), first at
/// `instead`, and for its debug file, in the folders of the options.
///
/// # Errors
///
/// Why there is nothing to ask.
pub fn find(
    name: &str,
    build_id: &str,
    instead: Option<&Path>,
    options: &Options,
) -> Result<Found, Why> {
    let places = &Places::of(name, options);
    // The kernel says so of a file that was unlinked; the name may hold a new one by now.
    let unlinked = name.strip_suffix(" (deleted)").filter(|_| !build_id.is_empty());
    let names = [Some(name), unlinked].into_iter().flatten().map(Path::new);
    let own = instead.into_iter().chain(names).map(Path::to_owned);
    let mut why = Why::FileMissing;
    // One that merely has the name may be any build.
    let others = places.binaries().filter(|_| !build_id.is_empty());
    for path in own.chain(others) {
        match open_checked(&path, build_id) {
            Ok(headers) => return Ok(with_debug_file(&path, headers, places)),
            // A file that is there says more than one that is not.
            Err(Why::FileMissing) => {}
            Err(other) => why = other,
        }
    }
    // The binary is gone, but its debug file may still name it.
    let debug = by_build_id(build_id, places)
        .or_else(|| by_name(build_id, places))
        .or_else(|| fetched(build_id, places));
    match debug {
        Some((path, headers)) => Ok(Found {
            layers: vec![Layer::of(&path, &headers)],
            stripped: !headers.has_names(),
            binary: false,
            flaw: headers.damage.clone().map(Why::Damaged),
            headers,
        }),
        None => Err(why),
    }
}

fn open_checked(path: &Path, build_id: &str) -> Result<Headers, Why> {
    let headers = read_headers(path)?;
    if same_build(build_id, &headers.build_id) {
        Ok(headers)
    } else {
        Err(Why::BuildIdDiffers { found: headers.build_id })
    }
}

/// Whether a file with the id `found` is the recorded binary.
fn same_build(recorded: &str, found: &str) -> bool {
    // The kernel keeps 20 bytes of a build id at most.
    recorded.is_empty() || recorded == found || recorded.len() == 40 && found.starts_with(recorded)
}

fn with_debug_file(path: &Path, headers: Headers, places: &Places<'_>) -> Found {
    let own = Layer::of(path, &headers);
    if headers.has_debug_info {
        return Found { headers, binary: true, layers: vec![own], stripped: false, flaw: None };
    }
    let named = |found: Option<(PathBuf, Headers)>| found.filter(|(_, debug)| debug.has_names());
    let mut other = None;
    let debug = named(by_debug_link(path, &headers, places, &mut other))
        .or_else(|| named(by_build_id(&headers.build_id, places)))
        .or_else(|| named(by_name(&headers.build_id, places)))
        .or_else(|| named(fetched(&headers.build_id, places)));
    // It has the functions that are not exported; the binary keeps the others.
    let mini = match debug {
        None if !headers.has_symtab => mini::unpack(path, &headers),
        _ => None,
    };
    let stripped = !headers.has_symtab && debug.is_none() && mini.is_none();
    let debug = debug.map(|(path, debug)| Layer::of(&path, &debug));
    let other = other.filter(|_| debug.is_none());
    let other = other.map(|path| Why::OtherDebugFile(path.display().to_string()));
    let flaw = headers.damage.clone().map(Why::Damaged).or(other);
    let layers = debug.into_iter().chain(mini).chain(Some(own)).collect();
    Found { headers, binary: true, layers, stripped, flaw }
}

fn by_build_id(build_id: &str, places: &Places<'_>) -> Option<(PathBuf, Headers)> {
    // The id may come from a file of anyone's: nothing but hexadecimal digits goes into a path.
    if build_id.len() < 8 || !build_id.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let file = format!(".build-id/{}/{}.debug", &build_id[..2], &build_id[2..]);
    places.all().find_map(|dir| of_build(dir.join(&file), build_id))
}

/// The file, if it is of this build, which is known.
fn of_build(path: PathBuf, build_id: &str) -> Option<(PathBuf, Headers)> {
    let headers = read_headers(&path).ok().filter(|_| !build_id.is_empty())?;
    same_build(build_id, &headers.build_id).then_some((path, headers))
}

/// A debug file from a debuginfod server.
fn fetched(build_id: &str, places: &Places<'_>) -> Option<(PathBuf, Headers)> {
    let debuginfod = places.options.debuginfod.as_ref()?;
    let path = debuginfod.debug_file(build_id)?;
    let found = of_build(path.clone(), build_id);
    if found.is_none() {
        debuginfod.refuse(build_id, &path);
    }
    found
}

/// A file of this build with names that the user keeps under the binary's.
fn by_name(build_id: &str, places: &Places<'_>) -> Option<(PathBuf, Headers)> {
    let found = places.binaries().filter_map(|path| of_build(path, build_id));
    let debug = places.binaries().filter_map(|mut path| {
        path.as_mut_os_string().push(".debug");
        of_build(path, build_id)
    });
    found.chain(debug).find(|(_, headers)| headers.has_names())
}

/// Where files are looked for.
struct Places<'a> {
    /// The binary's path in the recording.
    name: &'a str,
    options: &'a Options,
}

impl<'a> Places<'a> {
    fn of(name: &'a str, options: &'a Options) -> Places<'a> {
        Places { name, options }
    }

    /// All folders, the user's last.
    fn all(&self) -> impl Iterator<Item = &'a PathBuf> + 'a {
        self.options.debug_dirs.iter().chain(&self.options.symbol_path)
    }

    /// Where the user may keep the binary: under its whole path, or by its name.
    fn binaries(&self) -> impl Iterator<Item = PathBuf> + 'a {
        let name = self.name.strip_suffix(" (deleted)").unwrap_or(self.name);
        let base = name.rsplit('/').next().filter(|n| !n.is_empty() && *n != "..");
        // The name may come from a file of anyone's: it must not lead out of the folder.
        let whole = name.strip_prefix('/').filter(|n| !n.split('/').any(|part| part == ".."));
        let folders = self.options.symbol_path.iter();
        folders.flat_map(move |dir| whole.into_iter().chain(base).map(|n| dir.join(n)))
    }
}

/// The file in one of the places where gdb looks for a `.gnu_debuglink`; `other` is set to one that
/// is there and belongs to another build.
fn by_debug_link(
    binary: &Path,
    headers: &Headers,
    places: &Places<'_>,
    other: &mut Option<PathBuf>,
) -> Option<(PathBuf, Headers)> {
    let (link, crc) = headers.debug_link.as_ref()?;
    if link.contains('/') {
        return None;
    }
    let binary = binary.canonicalize().ok()?;
    let folder = binary.parent()?;
    let global = places.all().map(|d| d.join(folder.strip_prefix("/").unwrap_or(folder)));
    let local = [folder.to_owned(), folder.join(".debug")];
    let users = places.options.symbol_path.iter().cloned();
    local.into_iter().chain(global).chain(users).find_map(|dir| {
        let path = dir.join(link);
        let found = read_headers(&path).ok().filter(|_| path != binary)?;
        let same = if headers.build_id.is_empty() || found.build_id.is_empty() {
            checksum(&path).ok()? == *crc
        } else {
            headers.build_id == found.build_id
        };
        if !same {
            other.get_or_insert_with(|| path.clone());
        }
        same.then_some((path, found))
    })
}

fn checksum(path: &Path) -> io::Result<u32> {
    let mut reader = flate2::CrcReader::new(File::open(path)?);
    let mut buffer = vec![0; 1 << 16];
    while reader.read(&mut buffer)? > 0 {}
    Ok(reader.crc().sum())
}

/// Reads the headers of the ELF file at `path`.
///
/// # Errors
///
/// It does not exist, cannot be read, or is no intact ELF file.
pub fn read_headers(path: &Path) -> Result<Headers, Why> {
    let unreadable = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Why::FileMissing,
        _ => Why::Unreadable(e.to_string()),
    };
    if path.as_os_str().is_empty() {
        return Err(Why::FileMissing);
    }
    // Opening a pipe or a device could block or worse; the path may come from anyone's file.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(Why::NotElf);
    }
    let cache = ReadCache::new(File::open(path).map_err(unreadable)?);
    match FileKind::parse(&cache) {
        Ok(FileKind::Elf64) => parse::<elf::FileHeader64<Endianness>>(&cache),
        Ok(FileKind::Elf32) => parse::<elf::FileHeader32<Endianness>>(&cache),
        _ => Err(Why::NotElf),
    }
}

type Cache = ReadCache<File>;

fn parse<E: FileHeader<Endian = Endianness>>(cache: &Cache) -> Result<Headers, Why> {
    let damaged = |e: object::Error| Why::Damaged(e.to_string());
    let header = E::parse(cache).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    let mut headers = Headers::default();
    for segment in header.program_headers(endian, cache).map_err(damaged)? {
        match segment.p_type(endian) {
            elf::PT_LOAD => headers.segments.push(Segment {
                offset: segment.p_offset(endian).into(),
                size: segment.p_filesz(endian).into(),
                address: segment.p_vaddr(endian).into(),
                executable: segment.p_flags(endian).contains(elf::PF_X),
            }),
            elf::PT_NOTE if headers.build_id.is_empty() => {
                if let Ok(Some(notes)) = segment.notes(endian, cache) {
                    headers.build_id = build_id_of(endian, notes);
                }
            }
            _ => {}
        }
    }
    let mut has_debug_addr = false;
    let mut debug_info = None;
    // A file without (intact) section headers still has its segments.
    let sections = header.sections(endian, cache);
    headers.damage = sections.as_ref().err().map(|e| format!("its section headers: {e}"));
    if let Ok(sections) = sections {
        for section in sections.iter() {
            let name = sections.section_name(endian, section).unwrap_or_else(|e| {
                headers.damage.get_or_insert_with(|| format!("its section headers: {e}"));
                Default::default()
            });
            let in_file = section.sh_type(endian) != elf::SHT_NOBITS;
            match name {
                b".debug_info" if in_file => debug_info = Some(section),
                b".zdebug_info" if in_file => {
                    (headers.has_debug_info, headers.is_split) = (true, true);
                }
                b".debug_addr" => has_debug_addr = true,
                b".gnu_debugdata" => {
                    let range = section.file_range(endian);
                    headers.packed_symbols = range;
                }
                b".gnu_debuglink" => {
                    let data = section.data(endian, cache).unwrap_or_default();
                    headers.debug_link = debug_link(endian, data);
                }
                // Debug files keep the note's section, but their segments point nowhere.
                b".note.gnu.build-id" => {
                    if let Ok(Some(notes)) = section.notes(endian, cache) {
                        headers.build_id = build_id_of(endian, notes);
                    }
                }
                _ => headers.has_symtab |= section.sh_type(endian) == elf::SHT_SYMTAB,
            }
        }
    }
    if let Some(section) = debug_info {
        headers.has_debug_info = true;
        headers.is_split = has_debug_addr && is_split(endian, cache, section);
    }
    Ok(headers)
}

fn is_split<S: SectionHeader<Endian = Endianness>>(
    endian: Endianness,
    cache: &Cache,
    section: &S,
) -> bool {
    match section.compression(endian, cache) {
        // Only the headers of its units are read.
        Ok(None) => section.file_range(endian).is_some_and(|(start, length)| {
            split::is_split(endian, |at, size| {
                at.checked_add(size).filter(|&end| end <= length)?;
                cache.read_bytes_at(start.checked_add(at)?, size).ok()
            })
        }),
        // To find out would cost as much as what is saved: what can read split ones reads all.
        Ok(Some(_)) => true,
        Err(_) => false,
    }
}

/// A name, zero bytes up to a multiple of four, a checksum.
fn debug_link(endian: Endianness, section: &[u8]) -> Option<(String, u32)> {
    let length = section.iter().position(|&b| b == 0)?;
    let name = std::str::from_utf8(&section[..length]).ok()?;
    let crc = section.get((length + 1).next_multiple_of(4)..)?.first_chunk::<4>()?;
    Some((name.to_owned(), endian.read_u32(*crc)))
}

fn build_id_of<E: FileHeader>(
    endian: E::Endian,
    mut notes: object::read::elf::NoteIterator<'_, E>,
) -> String {
    while let Ok(Some(note)) = notes.next() {
        if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
            return hex(note.desc());
        }
    }
    String::new()
}
