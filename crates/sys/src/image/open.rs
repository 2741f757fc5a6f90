//! Opening the file behind a mapping: it, or none.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;

use super::{Bytes, Hit, Image, Loaded, OtherPaths, Stamp, State};
use crate::elf::Elf;
use crate::foreign::{self, Links, Resolved, Root};
use crate::record::FileId;
use crate::{maps, mmap, os};

/// Reason why an image could not be opened, the most helpful one of all candidates: later ones win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NotOpened {
    /// Its process has ended, and nothing is at its path.
    Gone,
    /// Another file is at its path, and at its addresses.
    Replaced,
    /// The operating system's error number.
    Failed(i32),
    /// This user may not open it.
    Forbidden,
    /// prof, or the machine, has no file descriptor left.
    NoDescriptor,
    /// There are too many images.
    TooMany,
}

impl From<io::Error> for NotOpened {
    fn from(error: io::Error) -> NotOpened {
        match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => NotOpened::NoDescriptor,
            Some(libc::EACCES | libc::EPERM) => NotOpened::Forbidden,
            Some(number) if error.kind() != io::ErrorKind::NotFound && number != libc::ESRCH => {
                NotOpened::Failed(number)
            }
            _ => NotOpened::Gone,
        }
    }
}

/// True if this is the file that the kernel named by `id` in a mapping; unknown IDs are of any file.
pub fn is_file(file: &File, metadata: &Metadata, id: FileId) -> bool {
    // In mappings, overlayfs and btrfs report other IDs than in `stat(2)`.
    id.inode == 0 || id_of(metadata) == id || mmap::mapped_id(file) == Some(id)
}

/// ID of a file in its file system.
pub fn id_of(m: &Metadata) -> FileId {
    FileId { device: m.dev(), inode: m.ino() }
}

/// Path of a file that prof has mapped from its beginning; only root may use it
/// (proc_pid_map_files(5)).
pub fn path_of_mapping(map: &Mmap) -> PathBuf {
    let start = map.as_ptr() as usize;
    let end = start + map.len().next_multiple_of(os::page_size());
    PathBuf::from(format!("/proc/self/map_files/{start:x}-{end:x}"))
}

/// Opens an image, through a mapping of it, or by its path in the process, its ancestors, and here;
/// with a build ID, also at one of the `others`.
pub fn open<'a>(
    image: &Image,
    hit: Hit,
    ancestors: impl Iterator<Item = &'a i32>,
    others: Option<&OtherPaths>,
) -> State {
    match image.path.as_str() {
        "[vdso]" => {
            let bytes = own_vdso().ok_or(NotOpened::Gone);
            return bytes.map_or_else(State::Unreadable, |b| loaded(b, None, Stamp::default()));
        }
        path if !path.starts_with('/') || path.starts_with("//anon") => return State::Anonymous,
        _ => {}
    }
    let Hit { pid, start, end } = hit;
    let path = Path::new(&image.path);
    let exact = format!("/proc/{pid}/map_files/{start:x}-{end:x}");
    let in_root = |pid: i32| Root::for_process(pid)?.resolve(path, Links::Follow);
    let mut why = NotOpened::Gone;
    let mut candidate = |found: io::Result<Resolved>| {
        let state = found.map_err(NotOpened::from).and_then(|found| open_file(found, image));
        state.inspect_err(|&error| why = why.max(error)).ok()
    };
    candidate(foreign::resolve_link(Path::new(&exact)))
        .or_else(|| candidate(in_root(pid)))
        .or_else(|| ancestors.into_iter().find_map(|&pid| candidate(in_root(pid))))
        .or_else(|| candidate(foreign::resolve(path)))
        .or_else(|| {
            let others = others.filter(|_| !image.kernel_build_id.is_empty())?;
            others(&image.path).iter().find_map(|other| candidate(foreign::resolve(other)))
        })
        .unwrap_or(State::Unreadable(why))
}

/// Opens one candidate, if it is the mapped file. Another file may be at its path, or mapped at its
/// addresses, by now.
fn open_file(found: Resolved, image: &Image) -> Result<State, NotOpened> {
    // The kernel names a file by its build ID, if it has one.
    let by_build_id = !image.kernel_build_id.is_empty();
    let only_if = |same: bool, state| if same { Ok(state) } else { Err(NotOpened::Replaced) };
    if !found.metadata.is_file() {
        // A device, for example.
        let same = [FileId::default(), id_of(&found.metadata)].contains(&image.id);
        return only_if(same && !by_build_id, State::Anonymous);
    }
    let file = found.open()?;
    if !is_file(&file, &found.metadata, image.id) {
        return Err(NotOpened::Replaced);
    }
    let state = match mmap::map(&file) {
        Ok(map) => loaded(Bytes::File(map), Some(file), Stamp::new(&found.metadata)),
        Err(_) => State::Anonymous,
    };
    match &state {
        State::Elf(l) if by_build_id => only_if(l.elf.build_id == image.kernel_build_id, state),
        _ => only_if(!by_build_id, state),
    }
}

fn loaded(bytes: Bytes, file: Option<File>, stamp: Stamp) -> State {
    match Elf::parse(&bytes) {
        Some(elf) => State::Elf(Box::new(Loaded { elf, bytes: Arc::new(bytes), file, stamp })),
        None => State::Anonymous,
    }
}

/// The vDSO is the same in all 64-bit processes, so prof's own is used.
fn own_vdso() -> Option<Bytes> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().filter_map(maps::parse_line).find(|m| m.path == "[vdso]")?;
    let mut memory = File::open("/proc/self/mem").ok()?;
    std::io::Seek::seek(&mut memory, std::io::SeekFrom::Start(line.start)).ok()?;
    let mut bytes = vec![0; (line.end - line.start) as usize];
    memory.read_exact(&mut bytes).ok()?;
    Some(Bytes::Memory(bytes))
}
