//! The shared memory as words that the program may write to at any time.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;
use std::sync::atomic::AtomicU64;

use memmap2::MmapRaw;

use super::super::layout::{
    FILE_NAME, FREES, FREES_AT, FreeSlot, GRANULE, GRANULES, Header, RING_AT, WORDS_AT,
};

/// Reason why reading ended.
pub type Damaged = &'static str;

/// Its header.
pub fn header(memory: &MmapRaw) -> &Header {
    // SAFETY: the mapping is as large as the layout; concurrent writes are atomic.
    unsafe { &*memory.as_ptr().cast() }
}

/// The words of the granules.
pub fn words(memory: &MmapRaw) -> &[AtomicU64] {
    let count = GRANULES as usize;
    // SAFETY: within the mapping, and all processes use them as atomic numbers.
    unsafe { std::slice::from_raw_parts(memory.as_ptr().add(WORDS_AT).cast(), count) }
}

/// The ring itself, as words that the program may write to at any time.
pub fn ring(memory: &MmapRaw) -> &[AtomicU64] {
    let count = GRANULES as usize * GRANULE / 8;
    // SAFETY: within the mapping; any bits are a valid number.
    unsafe { std::slice::from_raw_parts(memory.as_ptr().add(RING_AT).cast(), count) }
}

/// The slots for ends of allocations.
pub fn free_slots(memory: &MmapRaw) -> &[FreeSlot] {
    // SAFETY: within the mapping; the slots consist of atomic numbers.
    unsafe { std::slice::from_raw_parts(memory.as_ptr().add(FREES_AT).cast(), FREES) }
}

/// Words as bytes.
pub fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: eight bytes a word, each of which is a valid byte.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// A memory file without a path, whose size can be sealed.
pub fn memory_file() -> io::Result<File> {
    let name = std::ffi::CString::new(FILE_NAME).expect("it has no NUL");
    // SAFETY: the name ends with a NUL; the descriptor is new and ours.
    unsafe {
        match libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(File::from_raw_fd(fd)),
        }
    }
}
