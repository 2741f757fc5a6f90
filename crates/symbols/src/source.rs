//! Finds the files that can name the addresses of one binary, and verifies that they belong to the
//! recorded build.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::headers::{Headers, SharedLink, read_headers};
use super::{SymbolOptions, mini_debug_info};
use profile::{Cause, Mapping};
use sys::foreign;
use sys::jit::FileReader;
use sys::{FileAddress, FileOffset};

/// A file that provides names.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Its path, for finding files next to it.
    pub path: PathBuf,
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
    pub fn of(found: &Candidate, places: &SearchPaths<'_>) -> Layer {
        let Candidate { path, file, headers } = found;
        let debug_info = headers.has_debug_info;
        let split = headers.is_split;
        let link = headers.shared.as_ref().filter(|_| debug_info);
        let shared = link.and_then(|link| shared(link, path, places.options));
        let file = file.clone();
        Layer { path: path.clone(), file, debug_info, split, shared, unpacked: false }
    }

    /// A path to the file, valid while the layer lives.
    pub fn open_path(&self) -> PathBuf {
        foreign::path_of(&self.file)
    }
}

/// An open file with its headers.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its path.
    pub path: PathBuf,
    /// The file.
    pub file: Arc<File>,
    /// Its headers.
    pub headers: Headers,
}

impl Candidate {
    /// Opens the file at a foreign `path`.
    fn open(path: &Path) -> Result<Candidate, Cause> {
        let file = foreign::open(path).map_err(|e| unreadable(&e))?;
        Candidate::of(path, file)
    }

    /// Opens a file that a recording kept open, or that prof itself has found.
    fn through(link: &Path) -> Result<Candidate, Cause> {
        let found = foreign::resolve_link(link).and_then(|found| found.open());
        let file = found.map_err(|e| unreadable(&e))?;
        // A path such as /proc/self/fd/7 has no neighbours.
        let path = link.canonicalize().unwrap_or_else(|_| link.to_owned());
        Candidate::of(&path, file)
    }

    fn of(path: &Path, file: File) -> Result<Candidate, Cause> {
        let headers = read_headers(&file)?;
        Ok(Candidate { path: path.to_owned(), file: Arc::new(file), headers })
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
}

/// Granularity of mappings; larger pages only zero the low bits of a segment's address.
const PAGE: u64 = 4096;

/// Finds the binary with the path `name` and `build_id` (empty: unknown), first at `instead`, and
/// its debug file, in the paths of the options.
///
/// # Errors
///
/// The cause if no file has names.
pub fn find(
    name: &str,
    build_id: &str,
    instead: Option<&Path>,
    options: &SymbolOptions,
) -> Result<SymbolFiles, Cause> {
    let places = &SearchPaths::of(name, options);
    // The kernel adds this to the path of an unlinked file; the path may lead to a new one now.
    let unlinked = name.strip_suffix(" (deleted)").filter(|_| !build_id.is_empty());
    let names = [Some(name), unlinked].into_iter().flatten().map(Path::new);
    let own = names.map(Path::to_owned);
    let mut why = Cause::FileMissing;
    // A file that only has the same name may be any build.
    let others = places.binaries().filter(|_| !build_id.is_empty());
    let instead = instead.into_iter().map(Candidate::through);
    for found in instead.chain(own.chain(others).map(|path| Candidate::open(&path))) {
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
            layers: vec![Layer::of(&found, places)],
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
    let own = Layer::of(&binary, places);
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
        None if !headers.has_symtab => mini_debug_info::unpack(&binary),
        _ => None,
    };
    let stripped = !headers.has_symtab && debug.is_none() && mini.is_none();
    let debug = debug.map(|debug| Layer::of(&debug, places));
    let other = other.filter(|_| debug.is_none());
    let other = other.map(|path| Cause::OtherDebugFile(path.display().to_string()));
    let flaw = headers.damage.clone().map(Cause::Damaged).or(other);
    let layers = debug.into_iter().chain(mini).chain(Some(own)).collect();
    Ok(SymbolFiles { headers: binary.headers, binary: true, layers, stripped, flaw })
}

fn by_build_id(build_id: &str, places: &SearchPaths<'_>) -> Option<Candidate> {
    let file = build_id_path(build_id)?;
    places.all().find_map(|dir| of_build(&dir.join(&file), build_id))
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
fn of_build(path: &Path, build_id: &str) -> Option<Candidate> {
    let found = Candidate::open(path).ok().filter(|_| !build_id.is_empty())?;
    same_build(build_id, &found.headers.build_id).then_some(found)
}

/// A debug file from a debuginfod server.
fn fetched(build_id: &str, places: &SearchPaths<'_>) -> Option<Candidate> {
    let debuginfod = places.options.debuginfod.as_ref()?;
    let (path, file) = debuginfod.debug_file(build_id)?;
    let found = Candidate::of(&path, file).and_then(|found| checked(found, build_id));
    if found.is_err() {
        debuginfod.refuse(build_id);
    }
    found.ok()
}

/// A file of this build with names, which the user keeps under the binary's name.
fn by_name(build_id: &str, places: &SearchPaths<'_>) -> Option<Candidate> {
    let found = places.binaries().filter_map(|path| of_build(&path, build_id));
    let debug = places.binaries().filter_map(|mut path| {
        path.as_mut_os_string().push(".debug");
        of_build(&path, build_id)
    });
    found.chain(debug).find(|found| found.headers.has_names())
}

/// Paths to search for files.
pub struct SearchPaths<'a> {
    /// The binary's path in the recording.
    name: &'a str,
    options: &'a SymbolOptions,
}

impl<'a> SearchPaths<'a> {
    fn of(name: &'a str, options: &'a SymbolOptions) -> SearchPaths<'a> {
        SearchPaths { name, options }
    }

    /// All paths, the user's last.
    fn all(&self) -> impl Iterator<Item = &'a PathBuf> + 'a {
        self.options.debug_dirs.iter().chain(&self.options.symbol_path)
    }

    /// Possible paths of the binary in the user's paths: by its full path, or by its name.
    fn binaries(&self) -> impl Iterator<Item = PathBuf> + 'a {
        let name = self.name.strip_suffix(" (deleted)").unwrap_or(self.name);
        let base = name.rsplit('/').next().filter(|n| !n.is_empty() && *n != "..");
        // The name may come from an untrusted file: it must not lead out of the directory.
        let whole = name.strip_prefix('/').filter(|n| !n.split('/').any(|part| part == ".."));
        let paths = self.options.symbol_path.iter();
        paths.flat_map(move |dir| whole.into_iter().chain(base).map(|n| dir.join(n)))
    }
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
    let path = binary.path.canonicalize().ok()?;
    let parent = path.parent()?;
    let global = places.all().map(|d| d.join(parent.strip_prefix("/").unwrap_or(parent)));
    let local = [parent.to_owned(), parent.join(".debug")];
    let users = places.options.symbol_path.iter().cloned();
    local.into_iter().chain(global).chain(users).find_map(|dir| {
        let path = dir.join(link);
        let found = Candidate::open(&path).ok()?;
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

fn same_file(one: &File, other: &File) -> bool {
    let id = |file: &File| file.metadata().map(|m| (m.dev(), m.ino())).ok();
    id(one).is_some_and(|one| Some(one) == id(other))
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

/// The file that a link of the file at `path` refers to: by its build ID in the paths of
/// debug files, else by its name. Another build is not accepted.
fn shared(link: &SharedLink, path: &Path, options: &SymbolOptions) -> Option<Arc<File>> {
    let dirs = options.debug_dirs.iter();
    let by_id = build_id_path(&link.build_id)?;
    let sibling = path.canonicalize().ok().and_then(|p| Some(p.parent()?.join(&link.name)));
    let places = dirs.clone().map(|dir| dir.join(&by_id));
    let mut places = places.chain(dirs.map(|dir| dir.join(&link.name))).chain(sibling);
    places.find_map(|path| Some(of_build(&path, &link.build_id)?.file))
}
