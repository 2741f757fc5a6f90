//! Images: what regions of address spaces are mapped from. A file is opened when the first
//! sample hits it, while its process most likely still lives, and only once for all processes.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;
use rustc_hash::FxHashMap;

use super::elf::Elf;

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
    inode: u64,
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
    /// Inode by the kernel's word; 0 when unknown.
    inode: u64,
    /// What is known.
    pub state: State,
    /// Process that mapped it first.
    pid: i32,
    perf_map: Option<File>,
}

/// What makes two mappings one image.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    path: String,
    build_id: Vec<u8>,
    inode: u64,
    /// Memory without a file belongs to one process.
    pid: i32,
}

/// All images of a recording.
#[derive(Default)]
pub struct Images {
    images: Vec<Image>,
    by_key: FxHashMap<Key, u32>,
    by_build_id: FxHashMap<(String, Vec<u8>), u32>,
}

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
    pub fn intern(&mut self, pid: i32, path: &str, build_id: &[u8], inode: u64) -> u32 {
        let anonymous = !path.starts_with('/') || path.starts_with("//anon");
        let shared = path == "[vdso]" || path == "[vsyscall]";
        let key = Key {
            path: path.to_owned(),
            build_id: build_id.to_vec(),
            inode,
            pid: if anonymous && !shared { pid } else { 0 },
        };
        let images = &mut self.images;
        *self.by_key.entry(key).or_insert_with(|| {
            images.push(Image {
                path: if path.is_empty() { "//anon".to_owned() } else { path.to_owned() },
                build_id: build_id.to_vec(),
                inode,
                state: State::Unseen,
                pid,
                perf_map: None,
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
        let image = &self.images[id as usize];
        if !matches!(image.state, State::Unseen) {
            return self.resolve(id);
        }
        let state = open(image, hit);
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
        if matches!(state, State::Anonymous) {
            self.images[id as usize].perf_map = open_perf_map(hit.pid);
        }
        self.images[id as usize].state = state;
        id
    }

    /// Looks once more for the perf maps of code made at run time; some programs write theirs
    /// late.
    pub fn find_perf_maps(&mut self) {
        for image in &mut self.images {
            if matches!(image.state, State::Anonymous) && image.perf_map.is_none() {
                image.perf_map = open_perf_map(image.pid);
            }
        }
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
    /// Name for the profile: the path, or for code made at run time the perf map that names it,
    /// as perf does.
    pub fn name(&self) -> String {
        match self.perf_map {
            Some(_) => format!("/tmp/perf-{}.map", self.pid),
            None => self.path.clone(),
        }
    }

    /// A path under which the file can be opened now, if its own name will not do: the name is
    /// gone, means another file, or is one of another mount namespace.
    pub fn path_now(&self) -> Option<PathBuf> {
        let (file, inode) = match &self.state {
            State::Elf(loaded) => (loaded.file.as_ref()?, loaded.inode),
            _ => (self.perf_map.as_ref()?, self.perf_map.as_ref()?.metadata().ok()?.ino()),
        };
        if std::fs::metadata(self.name()).is_ok_and(|m| m.ino() == inode) {
            return None;
        }
        Some(PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())))
    }
}

fn open(image: &Image, hit: Hit) -> State {
    match image.path.as_str() {
        "[vdso]" => return own_vdso().map_or(State::Unreadable, |bytes| loaded(bytes, None, 0)),
        path if !path.starts_with('/') || path.starts_with("//anon") => return State::Anonymous,
        _ => {}
    }
    let Hit { pid, start, end } = hit;
    let exact = format!("/proc/{pid}/map_files/{start:x}-{end:x}");
    let in_root = format!("/proc/{pid}/root{}", image.path);
    for (path, is_exact) in [(exact, true), (in_root, false), (image.path.clone(), false)] {
        match open_file(Path::new(&path), image, is_exact) {
            State::Unreadable => {}
            found => return found,
        }
    }
    State::Unreadable
}

/// Opens one candidate; `Unreadable` also when it is another file than the kernel spoke of.
fn open_file(path: &Path, image: &Image, is_exact: bool) -> State {
    let Ok(file) = File::open(path) else { return State::Unreadable };
    let Ok(metadata) = file.metadata() else { return State::Unreadable };
    if !metadata.is_file() {
        return State::Anonymous;
    }
    let inode = metadata.ino();
    if !is_exact && image.inode != 0 && image.inode != inode {
        return State::Unreadable;
    }
    // SAFETY: the file is only read. Should somebody cut it off meanwhile, it reads as zeros
    // (`super::mapped::outlive_cut_files`); nothing here trusts what it reads.
    let Ok(map) = (unsafe { Mmap::map(&file) }) else { return State::Anonymous };
    let state = loaded(Bytes::File(map), Some(file), inode);
    match &state {
        State::Elf(l) if !is_exact && !image.build_id.is_empty() => {
            if l.elf.build_id == image.build_id { state } else { State::Unreadable }
        }
        _ => state,
    }
}

fn loaded(bytes: Bytes, file: Option<File>, inode: u64) -> State {
    match Elf::parse(&bytes) {
        Some(elf) => State::Elf(Box::new(Loaded { elf, bytes: Arc::new(bytes), file, inode })),
        None => State::Anonymous,
    }
}

/// `/tmp/perf-PID.map` of a process, as the process itself sees `/tmp` and its PID.
fn open_perf_map(pid: i32) -> Option<File> {
    let inner = super::procfs::inner_pid(pid).unwrap_or(pid);
    let inside = format!("/proc/{pid}/root/tmp/perf-{inner}.map");
    File::open(inside).or_else(|_| File::open(format!("/tmp/perf-{pid}.map"))).ok()
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

    fn own_hit() -> (Hit, String, u64) {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let exe = std::fs::read_link("/proc/self/exe").unwrap();
        let exe = exe.to_str().unwrap().to_owned();
        let line = maps
            .lines()
            .filter_map(super::super::maps::parse_line)
            .find(|m| m.path == exe && m.executable)
            .unwrap();
        let hit = Hit { pid: std::process::id() as i32, start: line.start, end: line.end };
        (hit, exe.clone(), line.inode)
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
        let by_id = images.intern(hit.pid, &exe, &build_id, 0);
        assert_ne!(by_id, by_inode);
        assert_eq!(images.load(by_id, hit), by_inode);
        assert!(images.get(by_inode).path_now().is_none());
    }

    #[test]
    fn another_build_is_not_taken_for_the_file() {
        let (mut hit, exe, _) = own_hit();
        let mut images = Images::default();
        let id = images.intern(hit.pid, &exe, &[1, 2, 3], 0);
        hit.start = 0; // so that map_files does not have it
        images.load(id, hit);
        assert!(matches!(images.get(id).state, State::Unreadable));
    }

    #[test]
    fn the_vdso_unwinds() {
        let mut images = Images::default();
        let id = images.intern(1, "[vdso]", &[], 0);
        assert_eq!(images.intern(2, "[vdso]", &[], 0), id);
        images.load(id, Hit { pid: 1, start: 0, end: 0 });
        let State::Elf(loaded) = &images.get(id).state else { panic!("no vdso") };
        assert!(loaded.elf.can_unwind());
    }

    #[test]
    fn memory_without_a_file_belongs_to_its_process() {
        let mut images = Images::default();
        assert_ne!(images.intern(1, "", &[], 0), images.intern(2, "", &[], 0));
        assert_eq!(images.intern(1, "/lib/x", &[], 7), images.intern(2, "/lib/x", &[], 7));
    }
}
