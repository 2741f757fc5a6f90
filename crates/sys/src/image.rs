//! Images: the files and other objects that address spaces map. A file is opened at its first
//! sample, while its process most likely still runs, and only once for all processes.

#![allow(unsafe_code)]

mod open;

use std::cell::Cell;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use std::hash::BuildHasher;

use hashbrown::HashTable;
use memmap2::Mmap;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::elf::Elf;
use super::foreign::{self, Resolved};
use super::image_limits::{ANONYMOUS, ImageLimits};
use super::os;
use crate::record::FileId;
pub(super) use open::id_of;
pub use open::{NotOpened, is_file};

/// Bytes of an image.
pub enum Bytes {
    /// A file.
    File(Mmap),
    /// A copy (the vDSO).
    Memory(Vec<u8>),
}

impl Bytes {
    /// Releases the memory of a file's pages; later reads come from the page cache again.
    pub fn drop_pages(&self) {
        if let Bytes::File(map) = self {
            // SAFETY: the map is of a file and never written to, so each byte reads the same
            // again. If it fails, the pages stay.
            let _ = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
        }
    }
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
    /// Its parsed headers.
    pub elf: Elf,
    /// Its bytes.
    pub bytes: Arc<Bytes>,
    /// Kept open so that symbols can be read after its name is removed or reused; if descriptors are
    /// scarce, only its bytes are.
    file: Option<File>,
    /// Identity and times of `file` when it was opened.
    stamp: Stamp,
}

/// File attributes that change with the contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stamp {
    id: FileId,
    size: u64,
    /// Seconds and nanoseconds since the Unix epoch.
    changed: (i64, i64),
}

impl Stamp {
    fn new(m: &Metadata) -> Stamp {
        Stamp { id: id_of(m), size: m.size(), changed: (m.mtime(), m.mtime_nsec()) }
    }
}

/// Result of opening an image.
pub enum State {
    /// Not opened yet.
    Unseen,
    /// An ELF file, or the vDSO.
    Elf(Box<Loaded>),
    /// Memory without a file, or a file that is not ELF: code made at run time.
    Anonymous,
    /// It could not be opened.
    Unreadable(NotOpened),
    /// The same file as another image.
    Same(u32),
}

/// An image.
pub struct Image {
    /// Path as the process sees it, or a name such as `[vdso]` or `//anon`.
    pub path: String,
    /// Build ID from the kernel, or from the file when it was opened; empty if unknown.
    pub build_id: Vec<u8>,
    /// Build ID from the kernel.
    kernel_build_id: Vec<u8>,
    /// File ID from the kernel; inode 0 if unknown.
    id: FileId,
    /// Result of opening it.
    pub state: State,
    /// Process that mapped it first.
    pub pid: i32,
    /// The process that it belongs to; 0 if several processes may share it.
    owner: i32,
    attempts: Attempts,
}

/// Attempts to open an image.
#[derive(Clone, Copy, Debug, Default)]
struct Attempts {
    number: u8,
    /// Process of the last one.
    pid: i32,
    /// Time of the last one.
    time: Option<Instant>,
}

impl Attempts {
    /// True if another attempt may succeed: through another process, or because time has passed
    /// and the file may have come back to its path or its addresses.
    fn may_succeed(&self, pid: i32) -> bool {
        let wait = FIRST_WAIT * (1 << self.number.min(MAX_TRIES));
        self.number < MAX_TRIES
            && (self.pid != pid || self.time.is_none_or(|last| last.elapsed() >= wait))
    }

    fn add(&mut self, pid: i32) {
        *self = Attempts { number: self.number + 1, pid, time: Some(Instant::now()) };
    }

    /// No attempt will follow.
    fn exhausted() -> Attempts {
        Attempts { number: MAX_TRIES, ..Attempts::default() }
    }
}

/// Paths where a file may be in addition, by its path in the process. What is there is taken only if
/// it has the recorded build ID.
pub type OtherPaths = Arc<dyn Fn(&str) -> Vec<PathBuf> + Send + Sync>;

/// All images of a recording.
#[derive(Default)]
pub struct Images {
    images: Vec<Image>,
    /// Images by path, build ID, file ID and owner.
    by_name: HashTable<u32>,
    hasher: FxBuildHasher,
    by_build_id: FxHashMap<(String, Vec<u8>), u32>,
    /// Parent of each process: it mostly sees the same files, and outlives its child.
    parents: FxHashMap<i32, i32>,
    limits: ImageLimits,
    others: Option<OtherPaths>,
    /// Files that may be kept open, if known yet.
    spare_files: Option<usize>,
    /// No file is opened.
    closed: bool,
    /// A file was needed that was not opened.
    lacking: Cell<bool>,
}

/// Most processes whose parents are kept, and most ancestors that are tried for a file.
const MAX_PARENTS: usize = 1 << 16;
const MAX_ANCESTORS: usize = 4;

/// Most attempts to open a file.
const MAX_TRIES: u8 = 16;

/// Time before the second attempt through the same process; each further one waits twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(5);

/// Mapping of the first sample in an image; used to open it.
#[derive(Clone, Copy, Debug)]
pub struct Hit {
    /// Process.
    pub pid: i32,
    /// First address of the mapping.
    pub start: u64,
    /// First address after it.
    pub end: u64,
}

impl Images {
    /// No images yet; their files are also looked for at `others`.
    pub fn with_other_paths(others: Option<OtherPaths>) -> Images {
        Images { others, ..Images::default() }
    }

    /// Image of a mapping of process `pid`, by what the kernel reported about it.
    ///
    /// Processes choose the names: the number of images without samples is bounded by the number of
    /// mappings (see [`Images::sweep`]), and beyond [`ImageLimits`] all share one image.
    pub fn intern(&mut self, pid: i32, path: &str, build_id: &[u8], id: FileId) -> u32 {
        let path = if path.is_empty() { ANONYMOUS } else { path };
        let anonymous = !path.starts_with('/') || path.starts_with(ANONYMOUS);
        let shared = path == "[vdso]" || path == "[vsyscall]";
        // Memory without a file belongs to one process.
        let owner = if anonymous && !shared { pid } else { 0 };
        let images = &self.images;
        let same = |&at: &u32| {
            let image = &images[at as usize];
            image.owner == owner
                && image.id == id
                && image.path == path
                && image.kernel_build_id == build_id
        };
        let hash = hash(&self.hasher, path, build_id, id, owner);
        if let Some(&found) = self.by_name.find(hash, same) {
            return found;
        }
        let image = Image {
            path: path.to_owned(),
            build_id: build_id.to_vec(),
            kernel_build_id: build_id.to_vec(),
            id,
            state: State::Unseen,
            pid,
            owner,
            attempts: Attempts::default(),
        };
        let (at, is_own) = self.limits.place(&mut self.images, image);
        if is_own {
            let images = &self.images;
            let hasher = &self.hasher;
            self.by_name.insert_unique(hash, at, |&at| images[at as usize].hash(hasher));
        }
        at
    }

    /// True if [`Images::sweep`] is due: many images have no samples.
    pub fn are_many(&self) -> bool {
        self.limits.is_scarce()
    }

    /// Forgets images without samples, except those that are `mapped`.
    pub fn sweep(&mut self, mapped: impl Iterator<Item = u32>) {
        let mut kept = vec![false; self.images.len()];
        mapped.for_each(|at| kept[at as usize] = true);
        for (at, image) in self.images.iter_mut().enumerate() {
            let id = at as u32;
            if kept[at] || self.limits.is_free(id, image) || !matches!(image.state, State::Unseen) {
                continue;
            }
            let hash = image.hash(&self.hasher);
            if let Ok(entry) = self.by_name.find_entry(hash, |&other| other == id) {
                entry.remove();
                self.limits.free(id, image);
            }
        }
        self.limits.swept();
    }

    /// Number of mappings that share one image because there were too many.
    pub fn left_out(&self) -> u64 {
        self.limits.left_out()
    }

    /// The image itself, or the one that it is identical to.
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

    /// Opens an image that was not opened before; `hit` is its mapping. Returns the image that it
    /// is identical to, or itself.
    pub fn load(&mut self, id: u32, hit: Hit) -> u32 {
        let image = &mut self.images[id as usize];
        match image.state {
            State::Unseen => {}
            State::Unreadable(_) if image.attempts.may_succeed(hit.pid) => {}
            _ => return self.resolve(id),
        }
        if self.lacks() {
            return id;
        }
        let image = &mut self.images[id as usize];
        if let State::Unseen = image.state {
            self.limits.is_hit(image);
        }
        image.attempts.add(hit.pid);
        let image = &self.images[id as usize];
        let ancestors = std::iter::successors(self.parents.get(&hit.pid), |p| self.parents.get(p));
        let others = self.others.as_ref();
        let mut state = open::open(image, hit, ancestors.take(MAX_ANCESTORS), others);
        if let State::Elf(loaded) = &mut state {
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
            if !self.may_stay_open() {
                loaded.file = None;
            }
        }
        self.images[id as usize].state = state;
        id
    }

    /// True if one more file may stay open.
    fn may_stay_open(&mut self) -> bool {
        let spare = self.spare_files.get_or_insert_with(|| {
            // Not earlier: a command that is recorded has the limit of its user.
            os::use_all_open_files();
            // Others need descriptors, too.
            os::spare_files() / 2
        });
        let rest = spare.checked_sub(1);
        *spare = rest.unwrap_or(0);
        rest.is_some()
    }

    /// Records a process's parent.
    pub fn set_parent(&mut self, pid: i32, parent: i32) {
        if self.parents.len() < MAX_PARENTS {
            self.parents.insert(pid, parent);
        }
    }

    /// Forgets the parent of a process that ended long ago; its children have been seen.
    pub fn forget_parent(&mut self, pid: i32) {
        self.parents.remove(&pid);
    }

    /// Releases prof's memory of the files' bytes; they are read again on demand.
    pub fn drop_pages(&self) {
        for image in &self.images {
            if let State::Elf(loaded) = &image.state {
                loaded.bytes.drop_pages();
            }
        }
    }

    /// From now on, opens no file; [`Images::end_closed`] ends that.
    pub fn begin_closed(&mut self) {
        self.closed = true;
        self.lacking.set(false);
    }

    /// Opens files again. Returns true if one was needed in the meantime.
    pub fn end_closed(&mut self) -> bool {
        self.closed = false;
        self.lacking.take()
    }

    /// True if no file may be read now, which is noted: see [`Images::end_closed`].
    pub fn lacks(&self) -> bool {
        if self.closed {
            self.lacking.set(true);
        }
        self.closed
    }

    /// True if a file was needed since [`Images::begin_closed`].
    pub fn is_lacking(&self) -> bool {
        self.lacking.get()
    }

    /// Number of images.
    pub fn len(&self) -> usize {
        self.images.len()
    }

    /// True if nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }
}

fn hash(hasher: &FxBuildHasher, path: &str, build_id: &[u8], id: FileId, owner: i32) -> u64 {
    hasher.hash_one((path, build_id, id, owner))
}

impl Image {
    fn hash(&self, hasher: &FxBuildHasher) -> u64 {
        hash(hasher, &self.path, &self.kernel_build_id, self.id, self.owner)
    }

    /// Placeholder for a forgotten image.
    pub(super) fn forgotten() -> Image {
        Image {
            path: String::new(),
            build_id: Vec::new(),
            kernel_build_id: Vec::new(),
            id: FileId::default(),
            state: State::Unseen,
            pid: 0,
            owner: 0,
            attempts: Attempts::default(),
        }
    }

    /// An image that is never opened.
    pub(super) fn unreadable(name: &str) -> Image {
        let path = name.to_owned();
        let state = State::Unreadable(NotOpened::TooMany);
        Image { path, state, attempts: Attempts::exhausted(), ..Image::forgotten() }
    }

    /// A path under which the file can be opened now, if its own path cannot be used: it was
    /// removed, refers to another file, or belongs to another mount namespace.
    pub fn path_now(&self) -> Option<PathBuf> {
        let State::Elf(loaded) = &self.state else { return None };
        let Bytes::File(map) = &*loaded.bytes else { return None };
        if loaded.is_at(Path::new(&self.path)) {
            return None;
        }
        match &loaded.file {
            Some(file) => Some(foreign::path_of(file)),
            None => {
                let path = open::path_of_mapping(map);
                foreign::resolve_link(&path).is_ok_and(|found| loaded.is(&found)).then_some(path)
            }
        }
    }

    /// True if there is no build ID that identifies the file, and it was written to since it was
    /// opened, or could not be opened and is not at its path now.
    pub fn has_changed(&self) -> bool {
        if !self.build_id.is_empty() {
            return false;
        }
        let now = || match self.path_now() {
            Some(path) => foreign::resolve_link(&path),
            None => foreign::resolve(Path::new(&self.path)),
        };
        match &self.state {
            State::Elf(loaded) => match (&loaded.file, &*loaded.bytes) {
                (Some(file), _) => file.metadata().map_or(true, |m| Stamp::new(&m) != loaded.stamp),
                (None, Bytes::File(_)) => {
                    now().map_or(true, |now| Stamp::new(&now.metadata) != loaded.stamp)
                }
                (None, Bytes::Memory(_)) => false,
            },
            State::Unreadable(_) => {
                let same = |now: Resolved| Some(is_file(&now.open().ok()?, &now.metadata, self.id));
                now().ok().and_then(same) == Some(false)
            }
            _ => false,
        }
    }
}

impl Loaded {
    /// True if this path leads to the file.
    fn is_at(&self, path: &Path) -> bool {
        foreign::resolve(path).is_ok_and(|found| self.is(&found))
    }

    /// True if this is the file.
    fn is(&self, found: &Resolved) -> bool {
        id_of(&found.metadata) == self.stamp.id
    }
}

#[cfg(test)]
mod tests;
