//! Mapped files: survives their truncation, for example of a library that is overwritten in place,
//! and releases their memory.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;

use memmap2::{Mmap, MmapOptions};

use super::{arch, maps};
use crate::record::FileId;

thread_local! {
    /// Number of pages that this thread read as zeros. It needs no destructor, so a signal handler
    /// may access it at any time.
    static CUT_PAGES: Cell<usize> = const { Cell::new(0) };
}

/// From now on, reading mapped bytes of a file that has been truncated (such as a library that is
/// overwritten in place) yields zeros instead of ending the process by `SIGBUS`.
pub fn outlive_cut_files() {
    let handler: extern "C" fn(i32, *const libc::siginfo_t, *const libc::c_void) = on_bus_error;
    // SAFETY: sigaction is plain data for which zero is valid; the handler makes only calls that
    // are safe in a handler (mmap, sigaction) and accesses only a counter of this thread.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

/// Number of pages that this thread read as zeros because their file was truncated.
pub fn cut_pages() -> usize {
    CUT_PAGES.get()
}

/// Maps a file for reading; callers must not trust its contents.
///
/// # Errors
///
/// Those of `mmap(2)`.
pub fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: the file is only read. If it is truncated, it reads as zeros (see
    // `outlive_cut_files`).
    unsafe { Mmap::map(file) }
}

/// ID that the kernel reports for mappings of this file.
pub fn mapped_id(file: &File) -> Option<FileId> {
    // SAFETY: as for `map`; nothing is read.
    let page = unsafe { MmapOptions::new().len(1).map(file) }.ok()?;
    let address = page.as_ptr() as u64;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let mut lines = maps.lines().filter_map(maps::parse_line);
    lines.find(|l| (l.start..l.end).contains(&address)).map(|l| l.file)
}

/// The same for a file that cannot be mapped shared, such as the kernel's in `/sys/kernel/btf`.
///
/// # Errors
///
/// Those of `mmap(2)`.
pub fn map_privately(file: &File) -> io::Result<Mmap> {
    // SAFETY: as for `map`.
    unsafe { MmapOptions::new().map_copy_read_only(file) }
}

extern "C" fn on_bus_error(_: i32, info: *const libc::siginfo_t, _: *const libc::c_void) {
    const PAGE: usize = arch::PAGE as usize;
    /// "Nonexistent physical address", see `sigaction(2)`: beyond the end of the file.
    const BUS_ADRERR: i32 = 2;
    // SAFETY: the kernel passes a valid siginfo. The page that is replaced could not be read, so no
    // data is lost; if that fails, the default action ends the process at once.
    unsafe {
        if (*info).si_code == BUS_ADRERR {
            let page = ((*info).si_addr() as usize & !(PAGE - 1)) as *mut libc::c_void;
            let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            if libc::mmap(page, PAGE, libc::PROT_READ, flags, -1, 0) != libc::MAP_FAILED {
                CUT_PAGES.set(CUT_PAGES.get() + 1);
                return;
            }
        }
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
    }
}

/// Releases the memory of the mapping around `inside`, if it is read-only and covers the whole of
/// `file`; later reads come from the file again. Returns true if it did.
pub fn forget_pages(inside: &[u8], file: &Metadata) -> bool {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return false };
    let at = inside.as_ptr() as u64;
    let ours = |line: &&str| {
        let map = maps::parse_line(line);
        let holds = map.is_some_and(|m| {
            let whole = m.offset == 0 && m.end - m.start >= file.len();
            whole && m.file.inode == file.ino() && (m.start..m.end).contains(&at)
        });
        holds && line.split(' ').nth(1).is_some_and(|mode| mode.starts_with("r--"))
    };
    let Some(map) = maps.lines().find(ours).and_then(maps::parse_line) else { return false };
    let length = (map.end - map.start) as usize;
    // SAFETY: `inside` is borrowed, so its mapping stays. It cannot be written to and
    // shows a file from its first byte to its last one (as no loaded program's mapping does, which
    // relocations may have changed): its bytes are those of the file before and after.
    unsafe { libc::madvise(map.start as *mut libc::c_void, length, libc::MADV_DONTNEED) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_mapped_file_are_forgotten_and_read_again() {
        use std::io::Write;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 1 << 20]).unwrap();
        // SAFETY: no process writes to the file.
        let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
        let resident = || {
            let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let start = format!("{:x}-", map.as_ptr() as usize);
            let of_it = smaps.lines().skip_while(|l| !l.starts_with(&start));
            let rss = of_it.clone().find(|l| l.starts_with("Rss:")).unwrap();
            rss.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        assert!(map.iter().all(|&b| b == 7));
        assert_eq!(resident(), 1024);
        let meta = file.metadata().unwrap();
        assert!(forget_pages(&map[5000..5001], &meta));
        assert_eq!(resident(), 0);
        assert!(map.iter().all(|&b| b == 7));
        // Another file; not a file; a loaded program, whose first part is mapped so.
        let program = std::fs::metadata("/proc/self/exe").unwrap();
        assert!(!forget_pages(&map, &program));
        assert!(!forget_pages(&[1, 2, 3], &meta));
        assert!(!forget_pages(b"a static string", &program));
    }

    #[test]
    fn a_file_that_is_cut_off_reads_as_zeros() {
        outlive_cut_files();
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        // SAFETY: the truncation of the file is what is tested.
        let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
        file.set_len(100).unwrap();
        assert!(map[4096..].iter().all(|&b| b == 0));
        assert!(cut_pages() >= 1);
    }
}
