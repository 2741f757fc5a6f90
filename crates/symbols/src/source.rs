//! Finds the files that can name the addresses of one binary, and verifies that they belong to the
//! recorded build.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::headers::{Headers, LoadSegment, SharedLink, read_headers};
use super::opener::{DirectOpener, Opener, Place, Side};
use super::{SymbolOptions, mini_debug_info};
use profile::{Cause, Mapping};
use sys::foreign::{self, Root};
use sys::jit::FileReader;
use sys::{FileAddress, FileOffset};

/// A file that provides names.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Its place, for finding files next to it.
    pub place: Place,
    /// The file. It is read only through this descriptor: its path may lead to another file now.
    pub file: Arc<File>,
    /// Its DWARF is worth parsing.
    pub debug_info: bool,
    /// [`super::split`] has to read it.
    pub split: bool,
    /// Debug information that it shares with other files.
    pub shared: Option<Arc<File>>,
    /// It was unpacked from another file.
    pub unpacked: bool,
}

impl Layer {
    /// A layer of a file that was found.
    pub fn new(found: &Candidate, places: &SearchPaths<'_>) -> Layer {
        let Candidate { place, file, headers } = found;
        let debug_info = headers.has_debug_info;
        let split = headers.is_split;
        let link = headers.shared.as_ref().filter(|_| debug_info);
        let shared = link.and_then(|link| shared(link, found, places));
        let place = place.clone();
        let file = file.clone();
        Layer { place, file, debug_info, split, shared, unpacked: false }
    }

    /// A path to the file, valid while the layer lives.
    pub fn open_path(&self) -> PathBuf {
        foreign::path_of(&self.file)
    }
}

/// An open file with its headers.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its place.
    place: Place,
    /// The file.
    file: Arc<File>,
    /// Its headers.
    headers: Headers,
}

impl Candidate {
    /// Opens a file that a recording kept open, or that prof itself has found.
    fn through(link: &Path) -> Result<Candidate, Cause> {
        let found = foreign::resolve_link(link).and_then(|found| found.open());
        let file = found.map_err(|e| unreadable(&e))?;
        // A path such as /proc/self/fd/7 has no neighbours.
        let path = link.canonicalize().unwrap_or_else(|_| link.to_owned());
        Candidate::new(Place::own(&path), file)
    }

    fn new(place: Place, file: File) -> Result<Candidate, Cause> {
        let headers = read_headers(&file)?;
        Ok(Candidate { place, file: Arc::new(file), headers })
    }

    /// The same with this path in the root directory of its process: what is next to it must not
    /// lead out of there.
    fn in_process(self, path: &Path) -> Candidate {
        Candidate { place: Place { side: Side::Process, path: path.to_owned() }, ..self }
    }
}

/// The files that can name a binary's addresses.
#[derive(Clone, Debug)]
pub struct SymbolFiles {
    /// Headers of the binary, or of its debug file if only that was found.
    pub headers: Headers,
    /// True if the binary itself was found.
    pub binary: bool,
    /// Files with names, best first: each names what the previous ones lack.
    pub layers: Vec<Layer>,
    /// True if neither debug information nor a symbol table was found.
    pub stripped: bool,
    /// Error of the debug information, if it was not found.
    pub flaw: Option<Cause>,
}

impl SymbolFiles {
    /// The address in the file of `address` in a mapping of a profile.
    pub fn file_address(&self, address: u64, mapping: &Mapping) -> Option<FileAddress> {
        let inside = address.checked_sub(mapping.start)?;
        if self.binary {
            let offset = inside.checked_add(mapping.file_offset)?;
            return self.headers.address_of(FileOffset(offset));
        }
        // File offsets do not apply to a debug file, but its segments keep their addresses.
        let code = self.headers.segments.iter().find(|s| s.executable)?;
        (code.address & !(PAGE - 1)).checked_add(inside).map(FileAddress)
    }

    /// The address in a mapping from 0 of the file's address `address`; the reverse of
    /// [`SymbolFiles::file_address`].
    pub fn address_in_mapping(&self, address: u64) -> Option<u64> {
        let segments = &self.headers.segments;
        if self.binary {
            let contains = |s: &&LoadSegment| address >= s.address && address - s.address < s.size;
            let segment = segments.iter().find(contains)?;
            return segment.offset.checked_add(address - segment.address);
        }
        let code = segments.iter().find(|segment| segment.executable)?;
        address.checked_sub(code.address & !(PAGE - 1))
    }
}

/// Granularity of mappings; larger pages only zero the low bits of a segment's address.
pub const PAGE: u64 = 4096;

/// Access to the file of a mapping by the process that mapped it.
#[derive(Clone, Copy, Default)]
pub struct Access<'a> {
    /// A path to open instead of the mapping's own.
    pub file: Option<&'a Path>,
    /// The process's root directory, if it is not prof's own.
    pub root: Option<&'a Arc<Root>>,
}

/// Finds the binary with the path `name` and `build_id` (empty: unknown), first through `access`,
/// and its debug file, in the paths of the options.
///
/// # Errors
///
/// The cause if no file has names.
pub fn find(
    name: &str,
    build_id: &str,
    access: Access<'_>,
    options: &SymbolOptions,
) -> Result<SymbolFiles, Cause> {
    let places =
        &SearchPaths { name, opener: DirectOpener { root: access.root.cloned() }, options };
    // The kernel adds this to the path of an unlinked file; the path may lead to a new one now.
    let unlinked = name.strip_suffix(" (deleted)").filter(|_| !build_id.is_empty());
    let names = [Some(name), unlinked].into_iter().flatten().map(Path::new);
    let own = names.map(Path::to_owned);
    let mut why = Cause::FileMissing;
    // A file that only has the same name may be any build.
    let others = places.binaries().filter(|_| !build_id.is_empty());
    let through = access.file.into_iter().map(|link| {
        let found = Candidate::through(link)?;
        Ok(match access.root {
            Some(_) => found.in_process(Path::new(places.bare_name())),
            None => found,
        })
    });
    for found in through.chain(own.chain(others).map(|path| places.open(Place::own(&path)))) {
        match found.and_then(|found| checked(found, build_id)) {
            Ok(found) => return with_debug_file(found, places),
            // The cause of an existing file is more specific than that of a missing one.
            Err(Cause::FileMissing) => {}
            Err(other) => why = other,
        }
    }
    // The binary is missing, but its debug file may still have names.
    let debug = by_build_id(build_id, places)
        .or_else(|| by_name(build_id, places))
        .or_else(|| fetched(build_id, places));
    match debug {
        Some(found) => Ok(SymbolFiles {
            layers: vec![Layer::new(&found, places)],
            stripped: !found.headers.has_names(),
            binary: false,
            flaw: found.headers.damage.clone().map(Cause::Damaged),
            headers: found.headers,
        }),
        None => Err(why),
    }
}

fn checked(found: Candidate, build_id: &str) -> Result<Candidate, Cause> {
    if same_build(build_id, &found.headers.build_id) {
        Ok(found)
    } else {
        Err(Cause::BuildIdDiffers { found: found.headers.build_id })
    }
}

/// True if a file with the ID `found` is the recorded binary.
fn same_build(recorded: &str, found: &str) -> bool {
    // The kernel keeps at most 20 bytes of a build ID.
    recorded.is_empty() || recorded == found || recorded.len() == 40 && found.starts_with(recorded)
}

fn with_debug_file(binary: Candidate, places: &SearchPaths<'_>) -> Result<SymbolFiles, Cause> {
    let own = Layer::new(&binary, places);
    let headers = &binary.headers;
    if headers.has_debug_info {
        return Ok(SymbolFiles {
            headers: binary.headers,
            binary: true,
            layers: vec![own],
            stripped: false,
            flaw: None,
        });
    }
    let named = |found: Option<Candidate>| found.filter(|debug| debug.headers.has_names());
    let mut other = None;
    let debug = named(by_debug_link(&binary, places, &mut other))
        .or_else(|| named(by_build_id(&headers.build_id, places)))
        .or_else(|| named(by_name(&headers.build_id, places)))
        .or_else(|| named(fetched(&headers.build_id, places)));
    // It has the functions that are not exported; the binary keeps the others.
    let mini = match debug {
        None if !headers.has_symtab => mini_debug_info::unpack(&binary.file, headers),
        _ => None,
    };
    let stripped = !headers.has_symtab && debug.is_none() && mini.is_none();
    let debug = debug.map(|debug| Layer::new(&debug, places));
    let mini = mini.map(|unpacked| Layer {
        file: Arc::new(unpacked.file),
        debug_info: unpacked.headers.has_debug_info,
        split: unpacked.headers.is_split,
        shared: None,
        unpacked: true,
        ..own.clone()
    });
    let other = other.filter(|_| debug.is_none());
    let other = other.map(|path| Cause::OtherDebugFile(path.display().to_string()));
    let flaw = headers.damage.clone().map(Cause::Damaged).or(other);
    let layers = debug.into_iter().chain(mini).chain(Some(own)).collect();
    Ok(SymbolFiles { headers: binary.headers, binary: true, layers, stripped, flaw })
}

fn by_build_id(build_id: &str, places: &SearchPaths<'_>) -> Option<Candidate> {
    let file = build_id_path(build_id)?;
    places.debug_dirs().find_map(|dir| matching(places.open(dir.join(file.as_ref())), build_id))
}

/// Path of a build's debug file within a directory of debug files.
pub fn build_id_path(build_id: &str) -> Option<String> {
    // The ID may come from an untrusted file: only hexadecimal digits become part of a path.
    if build_id.len() < 8 || !build_id.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    Some(format!(".build-id/{}/{}.debug", &build_id[..2], &build_id[2..]))
}

/// The file, if it belongs to this build, which is known.
fn matching(found: Result<Candidate, Cause>, build_id: &str) -> Option<Candidate> {
    let found = found.ok().filter(|_| !build_id.is_empty())?;
    same_build(build_id, &found.headers.build_id).then_some(found)
}

/// A debug file from a debuginfod server.
fn fetched(build_id: &str, places: &SearchPaths<'_>) -> Option<Candidate> {
    let debuginfod = places.options.debuginfod.as_ref()?;
    let (path, file) = debuginfod.debug_file(build_id)?;
    let found = Candidate::new(Place::own(&path), file).and_then(|found| checked(found, build_id));
    if found.is_err() {
        debuginfod.refuse(build_id);
    }
    found.ok()
}

/// A file of this build with names, which the user keeps under the binary's name.
fn by_name(build_id: &str, places: &SearchPaths<'_>) -> Option<Candidate> {
    let found =
        places.binaries().filter_map(|path| matching(places.open(Place::own(&path)), build_id));
    let debug = places.binaries().filter_map(|mut path| {
        path.as_mut_os_string().push(".debug");
        matching(places.open(Place::own(&path)), build_id)
    });
    found.chain(debug).find(|found| found.headers.has_names())
}

/// Paths to search for files.
pub struct SearchPaths<'a> {
    /// The binary's path in the recording.
    name: &'a str,
    opener: DirectOpener,
    options: &'a SymbolOptions,
}

impl<'a> SearchPaths<'a> {
    /// The file at this place.
    fn open(&self, place: Place) -> Result<Candidate, Cause> {
        let file = self.opener.open(&place).map_err(|e| unreadable(&e))?;
        Candidate::new(place, file)
    }

    /// All directories of debug files: of the system, of the user, and of a container.
    fn debug_dirs(&self) -> impl Iterator<Item = Place> {
        let own = self.options.debug_dirs.iter().chain(&self.options.symbol_path);
        own.map(|path| Place::own(path)).chain(self.process_dirs())
    }

    /// The directories of debug files that a process's own root directory has.
    fn process_dirs(&self) -> impl Iterator<Item = Place> {
        let dirs = self.options.debug_dirs.iter().filter(|_| self.opener.root.is_some());
        dirs.map(|path| Place { side: Side::Process, path: path.clone() })
    }

    /// The binary's path, without what the kernel adds to that of an unlinked file.
    fn bare_name(&self) -> &'a str {
        self.name.strip_suffix(" (deleted)").unwrap_or(self.name)
    }

    /// gdb's directories for the file that a `.gnu_debuglink` of the binary names, in prof's own
    /// root directory and in that of the process.
    fn link_dirs(&self, binary: &Candidate) -> Vec<Place> {
        let options = self.options;
        let dirs = |side, parent: &Path| {
            let below = parent.strip_prefix("/").unwrap_or(parent);
            let global = options.debug_dirs.iter().map(|dir| dir.join(below));
            let local = [parent.to_owned(), parent.join(".debug")];
            let all: Vec<PathBuf> = local.into_iter().chain(global).collect();
            all.into_iter().map(move |path| Place { side, path })
        };
        let mut all = Vec::new();
        if let Some(Place { path, .. }) = binary.place.resolved().parent() {
            all.extend(dirs(Side::Own, &path));
            let below = path.strip_prefix("/").unwrap_or(&path);
            all.extend(options.symbol_path.iter().map(|dir| Place::own(&dir.join(below))));
        }
        all.extend(options.symbol_path.iter().map(|path| Place::own(path)));
        let inside = Path::new(self.bare_name()).parent().filter(|_| self.opener.root.is_some());
        all.extend(inside.into_iter().flat_map(|parent| dirs(Side::Process, parent)));
        all
    }

    /// Possible paths of the binary in the user's paths: by its full path, or by its name.
    fn binaries(&self) -> impl Iterator<Item = PathBuf> + 'a {
        binary_paths(self.bare_name(), &self.options.symbol_path)
    }
}

/// Possible paths of the binary that a recording names `name`, in the user's directories: by its
/// whole path, or by its name. What is there may be another build.
pub fn binary_paths<'a>(
    name: &'a str,
    directories: &'a [PathBuf],
) -> impl Iterator<Item = PathBuf> + 'a {
    let base = name.rsplit('/').next().filter(|n| !n.is_empty() && *n != "..");
    // The name may come from an untrusted file: it must not lead out of the directory.
    let whole = name.strip_prefix('/').filter(|n| !n.split('/').any(|part| part == ".."));
    directories.iter().flat_map(move |dir| whole.into_iter().chain(base).map(|n| dir.join(n)))
}

/// The file in one of gdb's search paths for a `.gnu_debuglink`; `other` is set to one that belongs
/// to another build.
fn by_debug_link(
    binary: &Candidate,
    places: &SearchPaths<'_>,
    other: &mut Option<PathBuf>,
) -> Option<Candidate> {
    let headers = &binary.headers;
    let (link, crc) = headers.debug_link.as_ref()?;
    if link.contains('/') {
        return None;
    }
    places.link_dirs(binary).into_iter().find_map(|dir| {
        let place = dir.join(link.as_ref());
        let path = place.path.clone();
        let found = places.open(place).ok()?;
        if same_file(&found.file, &binary.file) {
            return None;
        }
        let same = if headers.build_id.is_empty() || found.headers.build_id.is_empty() {
            checksum(&found.file).ok()? == *crc
        } else {
            headers.build_id == found.headers.build_id
        };
        if !same {
            other.get_or_insert(path);
        }
        same.then_some(found)
    })
}

fn same_file(a: &File, b: &File) -> bool {
    let id = |file: &File| file.metadata().map(|m| (m.dev(), m.ino())).ok();
    id(a).is_some_and(|a| Some(a) == id(b))
}

/// Largest file with a checksum, in bytes: it takes 1 s for each GiB.
const MAX_CHECKSUM: u64 = 1 << 30;

fn checksum(file: &File) -> io::Result<u32> {
    if file.metadata()?.len() > MAX_CHECKSUM {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let input = FileReader { file, offset: 0 }.take(MAX_CHECKSUM);
    let mut reader = flate2::CrcReader::new(input);
    let mut buffer = vec![0; 1 << 16];
    while reader.read(&mut buffer)? > 0 {}
    Ok(reader.crc().sum())
}

fn unreadable(e: &io::Error) -> Cause {
    match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Cause::FileMissing,
        _ if foreign::is_refused(e) => Cause::NotElf,
        _ => Cause::Unreadable(e.to_string()),
    }
}

/// The file that a link of `from` refers to: by its build ID in the directories of debug files, else
/// by its name there and next to `from`. Another build is not accepted.
fn shared(link: &SharedLink, from: &Candidate, places: &SearchPaths<'_>) -> Option<Arc<File>> {
    let by_id = build_id_path(&link.build_id)?;
    let own = places.options.debug_dirs.iter().map(|path| Place::own(path));
    let dirs: Vec<Place> = own.chain(places.process_dirs()).collect();
    let by_id = dirs.iter().map(|dir| dir.join(by_id.as_ref()));
    let by_name = dirs.iter().map(|dir| dir.join(&link.name));
    let siblings = from.place.resolved().parent().into_iter().flat_map(Place::alternatives);
    let siblings = siblings.map(|dir| dir.join(&link.name));
    let mut found = by_id.chain(by_name).chain(siblings).map(|place| places.open(place));
    found.find_map(|found| Some(matching(found, &link.build_id)?.file))
}
