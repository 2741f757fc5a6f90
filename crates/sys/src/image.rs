//! Images: what regions of address spaces are mapped from. A file is opened when the first
//! sample hits it, while its process most likely still lives, and only once for all processes.

#![allow(unsafe_code)]

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use std::hash::BuildHasher;

use hashbrown::HashTable;
use memmap2::Mmap;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::elf::Elf;
use super::foreign::{self, Links, Looked, Root};
use super::mmap;
use super::room::{ANONYMOUS, Room};
use crate::record::FileId;

/// Bytes of an image.
pub enum Bytes {
    /// A file.
    File(Mmap),
    /// A copy (the vDSO).
    Memory(Vec<u8>),
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::File(map) => map,
            Bytes::Memory(bytes) => bytes,
        }
    }
}

/// An ELF image that was opened.
pub struct Loaded {
    /// What it says.
    pub elf: Elf,
    /// Its bytes.
    pub bytes: Arc<Bytes>,
    /// Kept open so that symbols can be read from it when its name is gone or means another
    /// file by then.
    file: Option<File>,
    /// What `file` was when it was opened.
    stamp: Stamp,
}

/// What changes when a file does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stamp {
    id: FileId,
    size: u64,
    /// Seconds and nanoseconds since the Unix epoch.
    changed: (i64, i64),
}

impl Stamp {
    fn of(m: &Metadata) -> Stamp {
        Stamp { id: id_of(m), size: m.size(), changed: (m.mtime(), m.mtime_nsec()) }
    }
}

fn id_of(m: &Metadata) -> FileId {
    FileId { device: m.dev(), inode: m.ino() }
}

/// What is known of an image.
pub enum State {
    /// Nothing has been looked up yet.
    Unseen,
    /// An ELF file, or the vDSO.
    Elf(Box<Loaded>),
    /// Memory without a file, or a file that is no ELF: code made at run time.
    Anonymous,
    /// It could not be opened (its process is gone, or permission is missing).
    Unreadable,
    /// The same file as another image.
    Same(u32),
}

/// An image.
pub struct Image {
    /// Path as the process sees it, or a name such as `[vdso]` or `//anon`.
    pub path: String,
    /// Build id by the kernel's word, or the file's when it was opened; empty when unknown.
    pub build_id: Vec<u8>,
    /// Build id by the kernel's word.
    told: Vec<u8>,
    /// The file by the kernel's word; inode 0 when unknown.
    id: FileId,
    /// What is known.
    pub state: State,
    /// Process that mapped it first.
    pub pid: i32,
    /// The process that it belongs to; 0: it may be several processes'.
    owner: i32,
    /// How often it was tried to open it, and through which process last.
    tries: u8,
    tried: i32,
}

/// All images of a recording.
#[derive(Default)]
pub struct Images {
    images: Vec<Image>,
    /// Those that can be found, by what the kernel says of them.
    by_name: HashTable<u32>,
    hasher: FxBuildHasher,
    by_build_id: FxHashMap<(String, Vec<u8>), u32>,
    /// Who forked whom: a parent mostly sees the same files, and outlives its child.
    parents: FxHashMap<i32, i32>,
    room: Room,
}

/// Most processes whose parents are known, and how far up their files are looked for.
const MAX_PARENTS: usize = 1 << 16;
const MAX_ANCESTORS: usize = 4;

/// How often it is tried to open a file, each time through another process.
const MAX_TRIES: u8 = 16;

/// Where the first sample hit an image; used to open it.
#[derive(Clone, Copy, Debug)]
pub struct Hit {
    /// Process.
    pub pid: i32,
    /// First address of the region.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
}

impl Images {
    /// Image of a mapping of process `pid`, by what the kernel says of it.
    ///
    /// Names are up to the processes: of images that no sample has hit there are as many as are
    /// mapped (see [`Images::sweep`]), and beyond [`Room`]'s limits all are one.
    pub fn intern(&mut self, pid: i32, path: &str, build_id: &[u8], id: FileId) -> u32 {
        let path = if path.is_empty() { ANONYMOUS } else { path };
        let anonymous = !path.starts_with('/') || path.starts_with(ANONYMOUS);
        let shared = path == "[vdso]" || path == "[vsyscall]";
        // Memory without a file belongs to one process.
        let owner = if anonymous && !shared { pid } else { 0 };
        let images = &self.images;
        let same = |&at: &u32| {
            let image = &images[at as usize];
            image.owner == owner && image.id == id && image.path == path && image.told == build_id
        };
        let hash = hash(&self.hasher, path, build_id, id, owner);
        if let Some(&known) = self.by_name.find(hash, same) {
            return known;
        }
        let image = Image {
            path: path.to_owned(),
            build_id: build_id.to_vec(),
            told: build_id.to_vec(),
            id,
            state: State::Unseen,
            pid,
            owner,
            tries: 0,
            tried: 0,
        };
        let (at, known) = self.room.place(&mut self.images, image);
        if known {
            let (images, hasher) = (&self.images, &self.hasher);
            self.by_name.insert_unique(hash, at, |&at| images[at as usize].hash(hasher));
        }
        at
    }

    /// There are many images that no sample has hit: they should be swept.
    pub fn are_many(&self) -> bool {
        self.room.is_scarce()
    }

    /// Forgets the images that no sample has hit, but those that are `mapped`.
    pub fn sweep(&mut self, mapped: impl Iterator<Item = u32>) {
        let mut kept = vec![false; self.images.len()];
        mapped.for_each(|at| kept[at as usize] = true);
        for (at, image) in self.images.iter_mut().enumerate() {
            let id = at as u32;
            if kept[at] || self.room.is_free(id, image) || !matches!(image.state, State::Unseen) {
                continue;
            }
            let hash = image.hash(&self.hasher);
            if let Ok(entry) = self.by_name.find_entry(hash, |&other| other == id) {
                entry.remove();
                self.room.free(id, image);
            }
        }
        self.room.swept();
    }

    /// Mappings that were not told apart, because there were too many.
    pub fn left_out(&self) -> u64 {
        self.room.left_out()
    }

    /// The image itself, or the one that it is the same as.
    pub fn resolve(&self, id: u32) -> u32 {
        match self.images[id as usize].state {
            State::Same(other) => other,
            _ => id,
        }
    }

    /// An image.
    pub fn get(&self, id: u32) -> &Image {
        &self.images[id as usize]
    }

    /// Opens an image that nothing is known of yet; `hit` says where it is mapped. Returns the
    /// image that it turned out to be.
    pub fn load(&mut self, id: u32, hit: Hit) -> u32 {
        let image = &mut self.images[id as usize];
        match image.state {
            State::Unseen => {}
            // Its process may have ended just then; another one still leads to the file.
            State::Unreadable if image.tries < MAX_TRIES && image.tried != hit.pid => {}
            _ => return self.resolve(id),
        }
        if let State::Unseen = image.state {
            self.room.is_hit(image);
        }
        (image.tries, image.tried) = (image.tries + 1, hit.pid);
        let image = &self.images[id as usize];
        let ancestors = std::iter::successors(self.parents.get(&hit.pid), |p| self.parents.get(p));
        let state = open(image, hit, ancestors.take(MAX_ANCESTORS));
        if let State::Elf(loaded) = &state {
            let build_id = &loaded.elf.build_id;
            if !build_id.is_empty() {
                let key = (image.path.clone(), build_id.clone());
                let first = *self.by_build_id.entry(key).or_insert(id);
                if first != id {
                    self.images[id as usize].state = State::Same(first);
                    return first;
                }
            }
            self.images[id as usize].build_id = loaded.elf.build_id.clone();
        }
        self.images[id as usize].state = state;
        id
    }

    /// A process was forked.
    pub fn set_parent(&mut self, pid: i32, parent: i32) {
        if self.parents.len() < MAX_PARENTS {
            self.parents.insert(pid, parent);
        }
    }

    /// A process has ended, long enough ago for its children to have been seen.
    pub fn forget_parent(&mut self, pid: i32) {
        self.parents.remove(&pid);
    }

    /// Gives back the memory that the files' bytes take in prof; they are read again when they
    /// are needed.
    pub fn drop_pages(&self) {
        for image in &self.images {
            if let State::Elf(loaded) = &image.state
                && let Bytes::File(map) = &*loaded.bytes
            {
                // SAFETY: the map is of a file and never written to, so each byte reads the same
                // again. When it fails, the pages stay.
                let _ = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
            }
        }
    }

    /// Number of images.
    pub fn len(&self) -> usize {
        self.images.len()
    }

    /// True when nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }
}

fn hash(hasher: &FxBuildHasher, path: &str, told: &[u8], id: FileId, owner: i32) -> u64 {
    hasher.hash_one((path, told, id, owner))
}

impl Image {
    fn hash(&self, hasher: &FxBuildHasher) -> u64 {
        hash(hasher, &self.path, &self.told, self.id, self.owner)
    }

    /// An image in whose place nothing is.
    pub(super) fn forgotten() -> Image {
        Image {
            path: String::new(),
            build_id: Vec::new(),
            told: Vec::new(),
            id: FileId::default(),
            state: State::Unseen,
            pid: 0,
            owner: 0,
            tries: 0,
            tried: 0,
        }
    }

    /// An image that is never opened.
    pub(super) fn unreadable(name: &str) -> Image {
        let (path, state) = (name.to_owned(), State::Unreadable);
        Image { path, state, tries: MAX_TRIES, ..Image::forgotten() }
    }

    /// A path under which the file can be opened now, if its own name will not do: the name is
    /// gone, means another file, or is one of another mount namespace.
    pub fn path_now(&self) -> Option<PathBuf> {
        let State::Elf(loaded) = &self.state else { return None };
        let file = loaded.file.as_ref()?;
        let named = foreign::look(Path::new(&self.path));
        if named.is_ok_and(|named| id_of(&named.metadata) == loaded.stamp.id) {
            return None;
        }
        Some(foreign::path_of(file))
    }

    /// The file was written to since it was opened, and has no build id to tell what it was.
    pub fn has_changed(&self) -> bool {
        let State::Elf(loaded) = &self.state else { return false };
        let Some(file) = loaded.file.as_ref().filter(|_| self.build_id.is_empty()) else {
            return false;
        };
        file.metadata().map_or(true, |m| Stamp::of(&m) != loaded.stamp)
    }
}

fn open<'a>(image: &Image, hit: Hit, ancestors: impl Iterator<Item = &'a i32>) -> State {
    match image.path.as_str() {
        "[vdso]" => {
            let bytes = own_vdso();
            return bytes.map_or(State::Unreadable, |b| loaded(b, None, Stamp::default()));
        }
        path if !path.starts_with('/') || path.starts_with("//anon") => return State::Anonymous,
        _ => {}
    }
    let Hit { pid, start, end } = hit;
    let path = &image.path;
    let exact = format!("/proc/{pid}/map_files/{start:x}-{end:x}");
    let exact = || foreign::look_through(Path::new(&exact));
    let in_root = |pid: i32| Root::of(pid)?.look(Path::new(path), Links::Follow);
    let of = |found: io::Result<Looked>, sure| open_file(found.ok()?, image, sure);
    let mut ancestors = ancestors.map(|&pid| of(in_root(pid), Sure::Device));
    of(exact(), Sure::Exact)
        .or_else(|| of(in_root(pid), Sure::Inode))
        .or_else(|| ancestors.find_map(|state| state))
        .or_else(|| of(foreign::look(Path::new(path)), Sure::Device))
        .unwrap_or(State::Unreadable)
}

/// How a candidate is known to be the file, where there is no build id.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sure {
    /// It is the mapping itself.
    Exact,
    /// By path and inode as its process sees them.
    Inode,
    /// By device, too: as others see it, the path may be another file system's.
    Device,
}

/// Opens one candidate; `None` when it is another file than the kernel spoke of, or cannot be
/// opened.
fn open_file(found: Looked, image: &Image, sure: Sure) -> Option<State> {
    let id = id_of(&found.metadata);
    let same = image.id.inode == 0 || sure == Sure::Exact || id.inode == image.id.inode;
    if !same {
        return None;
    }
    // A device, say; its memory is no file's.
    if !found.metadata.is_file() {
        return Some(State::Anonymous);
    }
    let file = found.open().ok()?;
    let Ok(map) = mmap::map(&file) else { return Some(State::Anonymous) };
    // The devices of overlayfs and btrfs are others in mappings than in `stat(2)`.
    if sure == Sure::Device
        && image.id.inode != 0
        && id != image.id
        && mapped_id(map.as_ptr() as u64) != Some(image.id)
    {
        return None;
    }
    let state = loaded(Bytes::File(map), Some(file), Stamp::of(&found.metadata));
    match &state {
        State::Elf(l) if sure != Sure::Exact && !image.build_id.is_empty() => {
            (l.elf.build_id == image.build_id).then_some(state)
        }
        _ => Some(state),
    }
}

/// The file that prof has mapped at this address, by the kernel's word.
fn mapped_id(address: u64) -> Option<FileId> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let mut lines = maps.lines().filter_map(super::maps::parse_line);
    lines.find(|l| (l.start..l.end).contains(&address)).map(|l| l.file)
}

fn loaded(bytes: Bytes, file: Option<File>, stamp: Stamp) -> State {
    match Elf::parse(&bytes) {
        Some(elf) => State::Elf(Box::new(Loaded { elf, bytes: Arc::new(bytes), file, stamp })),
        None => State::Anonymous,
    }
}

/// The vDSO is the same in every 64-bit process, so our own will do.
fn own_vdso() -> Option<Bytes> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().filter_map(super::maps::parse_line).find(|m| m.path == "[vdso]")?;
    let mut memory = File::open("/proc/self/mem").ok()?;
    std::io::Seek::seek(&mut memory, std::io::SeekFrom::Start(line.start)).ok()?;
    let mut bytes = vec![0; (line.end - line.start) as usize];
    memory.read_exact(&mut bytes).ok()?;
    Some(Bytes::Memory(bytes))
}

#[cfg(test)]
mod tests;
