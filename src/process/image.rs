//! Images: what regions of address spaces are mapped from. A file is opened when the first
//! sample hits it, while its process most likely still lives, and only once for all processes.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;
use rustc_hash::FxHashMap;

use super::elf::Elf;
use super::mapped;
use crate::sampler::record::FileId;

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
    /// Build id by the kernel's word; empty when unknown.
    pub build_id: Vec<u8>,
    /// The file by the kernel's word; inode 0 when unknown.
    id: FileId,
    /// What is known.
    pub state: State,
    /// Process that mapped it first.
    pub pid: i32,
    /// How often it was tried to open it, and through which process last.
    tries: u8,
    tried: i32,
}

/// What makes two mappings one image.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    path: String,
    build_id: Vec<u8>,
    id: FileId,
    /// Memory without a file belongs to one process.
    pid: i32,
}

/// All images of a recording.
#[derive(Default)]
pub struct Images {
    images: Vec<Image>,
    by_key: FxHashMap<Key, u32>,
    by_build_id: FxHashMap<(String, Vec<u8>), u32>,
    /// Who forked whom: a parent mostly sees the same files, and outlives its child.
    parents: FxHashMap<i32, i32>,
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
    pub fn intern(&mut self, pid: i32, path: &str, build_id: &[u8], id: FileId) -> u32 {
        let anonymous = !path.starts_with('/') || path.starts_with("//anon");
        let shared = path == "[vdso]" || path == "[vsyscall]";
        let key = Key {
            path: path.to_owned(),
            build_id: build_id.to_vec(),
            id,
            pid: if anonymous && !shared { pid } else { 0 },
        };
        let images = &mut self.images;
        *self.by_key.entry(key).or_insert_with(|| {
            images.push(Image {
                path: if path.is_empty() { "//anon".to_owned() } else { path.to_owned() },
                build_id: build_id.to_vec(),
                id,
                state: State::Unseen,
                pid,
                tries: 0,
                tried: 0,
            });
            images.len() as u32 - 1
        })
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

impl Image {
    /// A path under which the file can be opened now, if its own name will not do: the name is
    /// gone, means another file, or is one of another mount namespace.
    pub fn path_now(&self) -> Option<PathBuf> {
        let State::Elf(loaded) = &self.state else { return None };
        let file = loaded.file.as_ref()?;
        if std::fs::metadata(&self.path).is_ok_and(|m| id_of(&m) == loaded.stamp.id) {
            return None;
        }
        Some(PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())))
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
    let in_root = |pid: i32| format!("/proc/{pid}/root{path}");
    [(exact, Sure::Exact), (in_root(pid), Sure::Inode)]
        .into_iter()
        .chain(ancestors.map(|&pid| (in_root(pid), Sure::Device)))
        .chain([(path.clone(), Sure::Device)])
        .map(|(path, sure)| open_file(Path::new(&path), image, sure))
        .find(|state| !matches!(state, State::Unreadable))
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

/// Opens one candidate; `Unreadable` also when it is another file than the kernel spoke of.
fn open_file(path: &Path, image: &Image, sure: Sure) -> State {
    let Ok(file) = File::open(path) else { return State::Unreadable };
    let Ok(metadata) = file.metadata() else { return State::Unreadable };
    let found = id_of(&metadata);
    let same = match sure {
        _ if image.id.inode == 0 => true,
        Sure::Exact => true,
        Sure::Inode | Sure::Device => found.inode == image.id.inode,
    };
    if !same {
        return State::Unreadable;
    }
    if !metadata.is_file() {
        return State::Anonymous;
    }
    let Ok(map) = mapped::map(&file) else { return State::Anonymous };
    // The devices of overlayfs and btrfs are others in mappings than in `stat(2)`.
    if sure == Sure::Device
        && image.id.inode != 0
        && found != image.id
        && mapped_id(map.as_ptr() as u64) != Some(image.id)
    {
        return State::Unreadable;
    }
    let state = loaded(Bytes::File(map), Some(file), Stamp::of(&metadata));
    match &state {
        State::Elf(l) if sure != Sure::Exact && !image.build_id.is_empty() => {
            if l.elf.build_id == image.build_id { state } else { State::Unreadable }
        }
        _ => state,
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
mod tests {
    use super::*;

    const NONE: FileId = FileId { device: 0, inode: 0 };

    fn own_hit() -> (Hit, String, FileId) {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let exe = std::fs::read_link("/proc/self/exe").unwrap();
        let exe = exe.to_str().unwrap().to_owned();
        let line = maps
            .lines()
            .filter_map(super::super::maps::parse_line)
            .find(|m| m.path == exe && m.executable)
            .unwrap();
        let hit = Hit { pid: std::process::id() as i32, start: line.start, end: line.end };
        (hit, exe.clone(), line.file)
    }

    #[test]
    fn a_file_found_in_two_ways_is_one_image() {
        let (hit, exe, inode) = own_hit();
        let mut images = Images::default();
        let by_inode = images.intern(hit.pid, &exe, &[], inode);
        assert_eq!(images.load(by_inode, hit), by_inode);
        let build_id = images.get(by_inode).build_id.clone();
        if build_id.is_empty() {
            println!("SKIPPED: a_file_found_in_two_ways_is_one_image: built without a build id");
            return;
        }
        let by_id = images.intern(hit.pid, &exe, &build_id, NONE);
        assert_ne!(by_id, by_inode);
        assert_eq!(images.load(by_id, hit), by_inode);
        assert!(images.get(by_inode).path_now().is_none());
    }

    #[test]
    fn another_build_is_not_taken_for_the_file() {
        let (mut hit, exe, _) = own_hit();
        let mut images = Images::default();
        let id = images.intern(hit.pid, &exe, &[1, 2, 3], NONE);
        hit.start = 0; // so that map_files does not have it
        images.load(id, hit);
        assert!(matches!(images.get(id).state, State::Unreadable));
    }

    #[test]
    fn another_file_of_the_same_name_is_not_taken_for_it() {
        let (_, exe, id) = own_hit();
        // No such process: only the path is left.
        let gone = Hit { pid: i32::MAX, start: 0, end: 0 };
        let other = [FileId { inode: id.inode + 1, ..id }, FileId { device: id.device + 1, ..id }];
        for id in other {
            let mut images = Images::default();
            let image = images.intern(gone.pid, &exe, &[], id);
            images.load(image, gone);
            assert!(matches!(images.get(image).state, State::Unreadable), "{id:?}");
        }
    }

    #[test]
    fn a_file_that_one_process_does_not_lead_to_is_sought_through_the_next() {
        let (hit, exe, id) = own_hit();
        assert_eq!(mapped_id(hit.start), Some(id));
        let mut images = Images::default();
        // A device that leads nowhere, as overlayfs has it: the path alone will not do.
        let image = images.intern(1, &exe, &[], FileId { device: id.device + 1, ..id });
        for gone in 0..2 {
            images.load(image, Hit { pid: i32::MAX - gone, start: 0, end: 0 });
            assert!(matches!(images.get(image).state, State::Unreadable));
        }
        images.load(image, hit);
        assert!(matches!(images.get(image).state, State::Elf(_)));
        assert!(!images.get(image).has_changed());
    }

    #[test]
    fn the_vdso_unwinds() {
        let mut images = Images::default();
        let id = images.intern(1, "[vdso]", &[], NONE);
        assert_eq!(images.intern(2, "[vdso]", &[], NONE), id);
        images.load(id, Hit { pid: 1, start: 0, end: 0 });
        let State::Elf(loaded) = &images.get(id).state else { panic!("no vdso") };
        assert!(loaded.elf.can_unwind());
    }

    #[test]
    fn memory_without_a_file_belongs_to_its_process() {
        let mut images = Images::default();
        assert_ne!(images.intern(1, "", &[], NONE), images.intern(2, "", &[], NONE));
        let id = FileId { device: 1, inode: 7 };
        assert_eq!(images.intern(1, "/lib/x", &[], id), images.intern(2, "/lib/x", &[], id));
    }
}
