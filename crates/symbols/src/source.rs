//! Finds the files that can name the addresses of one binary, and makes sure that they are the
//! binary that was recorded.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::headers::{Headers, SharedLink, read_headers};
use super::{Options, mini};
use profile::Cause;
use sys::foreign;
use sys::jit::At;

/// A file to ask for names.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Where the file lies, to look beside it.
    pub path: PathBuf,
    /// The file. It is read through this alone: its name may mean another one by now.
    pub file: Arc<File>,
    /// Its DWARF is worth parsing.
    pub debug_info: bool,
    /// [`super::split`] has to do it.
    pub split: bool,
    /// What its debug information shares with that of other files.
    pub shared: Option<Arc<File>>,
    /// It came out of another one.
    pub unpacked: bool,
}

impl Layer {
    /// A file that was found.
    pub fn of(found: &Candidate, places: &Places<'_>) -> Layer {
        let Candidate { path, file, headers } = found;
        let (debug_info, split) = (headers.has_debug_info, headers.is_split);
        let link = headers.shared.as_ref().filter(|_| debug_info);
        let shared = link.and_then(|link| shared(link, path, places.options));
        let file = file.clone();
        Layer { path: path.clone(), file, debug_info, split, shared, unpacked: false }
    }

    /// A path that opens the file as long as the layer lives.
    pub fn open_path(&self) -> PathBuf {
        foreign::path_of(&self.file)
    }
}

/// A file that was opened, and what its headers say.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Where it lies.
    pub path: PathBuf,
    /// It.
    pub file: Arc<File>,
    /// What its headers say.
    pub headers: Headers,
}

impl Candidate {
    /// Opens the file that others call `path`.
    fn open(path: &Path) -> Result<Candidate, Cause> {
        let file = foreign::open(path).map_err(|e| unreadable(&e))?;
        Candidate::of(path, file)
    }

    /// Opens the file that a recording kept open, or that prof has found by itself.
    fn through(link: &Path) -> Result<Candidate, Cause> {
        let found = foreign::resolve_link(link).and_then(|found| found.open());
        let file = found.map_err(|e| unreadable(&e))?;
        // A path such as /proc/self/fd/7 has nothing beside it.
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
    pub flaw: Option<Cause>,
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
) -> Result<Found, Cause> {
    let places = &Places::of(name, options);
    // The kernel says so of a file that was unlinked; the name may hold a new one by now.
    let unlinked = name.strip_suffix(" (deleted)").filter(|_| !build_id.is_empty());
    let names = [Some(name), unlinked].into_iter().flatten().map(Path::new);
    let own = names.map(Path::to_owned);
    let mut why = Cause::FileMissing;
    // One that merely has the name may be any build.
    let others = places.binaries().filter(|_| !build_id.is_empty());
    let instead = instead.into_iter().map(Candidate::through);
    for found in instead.chain(own.chain(others).map(|path| Candidate::open(&path))) {
        match found.and_then(|found| checked(found, build_id)) {
            Ok(found) => return with_debug_file(found, places),
            // A file that is there says more than one that is not.
            Err(Cause::FileMissing) => {}
            Err(other) => why = other,
        }
    }
    // The binary is gone, but its debug file may still name it.
    let debug = by_build_id(build_id, places)
        .or_else(|| by_name(build_id, places))
        .or_else(|| fetched(build_id, places));
    match debug {
        Some(found) => Ok(Found {
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

/// Whether a file with the id `found` is the recorded binary.
fn same_build(recorded: &str, found: &str) -> bool {
    // The kernel keeps 20 bytes of a build id at most.
    recorded.is_empty() || recorded == found || recorded.len() == 40 && found.starts_with(recorded)
}

fn with_debug_file(binary: Candidate, places: &Places<'_>) -> Result<Found, Cause> {
    let own = Layer::of(&binary, places);
    let headers = &binary.headers;
    if headers.has_debug_info {
        let (headers, layers) = (binary.headers, vec![own]);
        return Ok(Found { headers, binary: true, layers, stripped: false, flaw: None });
    }
    let named = |found: Option<Candidate>| found.filter(|debug| debug.headers.has_names());
    let mut other = None;
    let debug = named(by_debug_link(&binary, places, &mut other))
        .or_else(|| named(by_build_id(&headers.build_id, places)))
        .or_else(|| named(by_name(&headers.build_id, places)))
        .or_else(|| named(fetched(&headers.build_id, places)));
    // It has the functions that are not exported; the binary keeps the others.
    let mini = match debug {
        None if !headers.has_symtab => mini::unpack(&binary),
        _ => None,
    };
    let stripped = !headers.has_symtab && debug.is_none() && mini.is_none();
    let debug = debug.map(|debug| Layer::of(&debug, places));
    let other = other.filter(|_| debug.is_none());
    let other = other.map(|path| Cause::OtherDebugFile(path.display().to_string()));
    let flaw = headers.damage.clone().map(Cause::Damaged).or(other);
    let layers = debug.into_iter().chain(mini).chain(Some(own)).collect();
    Ok(Found { headers: binary.headers, binary: true, layers, stripped, flaw })
}

fn by_build_id(build_id: &str, places: &Places<'_>) -> Option<Candidate> {
    let file = build_id_path(build_id)?;
    places.all().find_map(|dir| of_build(&dir.join(&file), build_id))
}

/// Where the debug file of a build lies in a folder of debug files.
pub fn build_id_path(build_id: &str) -> Option<String> {
    // The id may come from a file of anyone's: nothing but hexadecimal digits goes into a path.
    if build_id.len() < 8 || !build_id.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    Some(format!(".build-id/{}/{}.debug", &build_id[..2], &build_id[2..]))
}

/// The file, if it is of this build, which is known.
fn of_build(path: &Path, build_id: &str) -> Option<Candidate> {
    let found = Candidate::open(path).ok().filter(|_| !build_id.is_empty())?;
    same_build(build_id, &found.headers.build_id).then_some(found)
}

/// A debug file from a debuginfod server.
fn fetched(build_id: &str, places: &Places<'_>) -> Option<Candidate> {
    let debuginfod = places.options.debuginfod.as_ref()?;
    let (path, file) = debuginfod.debug_file(build_id)?;
    let found = Candidate::of(&path, file).and_then(|found| checked(found, build_id));
    if found.is_err() {
        debuginfod.refuse(build_id);
    }
    found.ok()
}

/// A file of this build with names that the user keeps under the binary's.
fn by_name(build_id: &str, places: &Places<'_>) -> Option<Candidate> {
    let found = places.binaries().filter_map(|path| of_build(&path, build_id));
    let debug = places.binaries().filter_map(|mut path| {
        path.as_mut_os_string().push(".debug");
        of_build(&path, build_id)
    });
    found.chain(debug).find(|found| found.headers.has_names())
}

/// Where files are looked for.
pub struct Places<'a> {
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
    binary: &Candidate,
    places: &Places<'_>,
    other: &mut Option<PathBuf>,
) -> Option<Candidate> {
    let headers = &binary.headers;
    let (link, crc) = headers.debug_link.as_ref()?;
    if link.contains('/') {
        return None;
    }
    let path = binary.path.canonicalize().ok()?;
    let folder = path.parent()?;
    let global = places.all().map(|d| d.join(folder.strip_prefix("/").unwrap_or(folder)));
    let local = [folder.to_owned(), folder.join(".debug")];
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

/// Larger files have no checksum: it takes a second for each GiB, whatever is in them. In bytes.
const MAX_CHECKSUM: u64 = 1 << 30;

fn checksum(file: &File) -> io::Result<u32> {
    if file.metadata()?.len() > MAX_CHECKSUM {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let input = At { file, offset: 0 }.take(MAX_CHECKSUM);
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

/// The file that the one at `path` means by this link: by its build id in the directories
/// of debug files, else by its name. Another build is not taken for it.
fn shared(link: &SharedLink, path: &Path, options: &Options) -> Option<Arc<File>> {
    let dirs = options.debug_dirs.iter();
    let by_id = build_id_path(&link.build_id)?;
    let beside = path.canonicalize().ok().and_then(|p| Some(p.parent()?.join(&link.name)));
    let places = dirs.clone().map(|dir| dir.join(&by_id));
    let mut places = places.chain(dirs.map(|dir| dir.join(&link.name))).chain(beside);
    places.find_map(|path| Some(of_build(&path, &link.build_id)?.file))
}
