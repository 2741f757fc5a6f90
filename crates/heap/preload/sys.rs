//! System calls without the C library: nothing here touches `errno`, allocates or can be interposed
//! by the program.

use crate::arch::{
    STAT_SIZE, STAT_WORDS, SYS_CLOCK_GETTIME, SYS_CLOSE, SYS_FSTAT, SYS_GETPID, SYS_GETTID,
    SYS_MADVISE, SYS_MMAP, SYS_MPROTECT, SYS_MUNMAP, SYS_NANOSLEEP, SYS_READ, SYS_RT_SIGPROCMASK,
    call, open,
};

const O_RDONLY: usize = 0;
const O_RDWR: usize = 2;
const O_CLOEXEC: usize = 0o2_000_000;
const PROT_READ: usize = 1;
const PROT_READ_WRITE: usize = 3;
const PROT_READ_EXEC: usize = 5;
const MAP_SHARED: usize = 1;
const MAP_PRIVATE: usize = 2;
const MAP_FIXED: usize = 0x10;
const MAP_ANONYMOUS: usize = 0x20;
const MAP_NORESERVE: usize = 0x4000;
const MADV_WIPEONFORK: usize = 18;
const MADV_POPULATE_WRITE: usize = 23;
const CLOCK_MONOTONIC: usize = 1;

/// The kernel's error numbers are -4095 to -1.
const MAX_ERROR: isize = 4095;
const EFAULT: isize = 14;
const EINVAL: isize = 22;

/// This process.
pub fn pid() -> i32 {
    // SAFETY: it takes nothing and changes nothing.
    unsafe { call(SYS_GETPID, [0; 6]) as i32 }
}

/// This thread.
pub fn tid() -> i32 {
    // SAFETY: it takes nothing and changes nothing.
    unsafe { call(SYS_GETTID, [0; 6]) as i32 }
}

/// `CLOCK_MONOTONIC` in nanoseconds, by a system call.
pub fn monotonic() -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: `time` is a struct timespec.
    unsafe { call(SYS_CLOCK_GETTIME, [CLOCK_MONOTONIC, &raw mut time as usize, 0, 0, 0, 0]) };
    time[0] * 1_000_000_000 + time[1]
}

/// Sleeps for this time, less than 1 s, or until a signal arrives.
pub fn sleep(nanoseconds: u64) {
    let time = [0u64, nanoseconds];
    // SAFETY: `time` is a struct timespec; the remaining time is not requested.
    unsafe { call(SYS_NANOSLEEP, [&raw const time as usize, 0, 0, 0, 0, 0]) };
}

/// Maps a whole file as shared memory, replacing the mapping at `old` unless that is null; the file
/// must have this size.
///
/// # Safety
///
/// `path` ends with a NUL; `old` was mapped by this, with the same size.
pub unsafe fn map_file(path: *const u8, size: usize, old: *mut u8) -> Result<*mut u8, isize> {
    // SAFETY: the caller guarantees the path's end; the descriptor is our own from open to close.
    unsafe {
        let fd = open(path, O_RDWR | O_CLOEXEC);
        if fd < 0 {
            return Err(fd);
        }
        let mapped = map_open_file(fd as usize, size, old);
        call(SYS_CLOSE, [fd as usize, 0, 0, 0, 0, 0]);
        mapped
    }
}

/// The same with a descriptor, which may refer to any file.
///
/// # Errors
///
/// The kernel's number, negative.
///
/// # Safety
///
/// `old` was mapped by this, with the same size.
pub unsafe fn map_open_file(fd: usize, size: usize, old: *mut u8) -> Result<*mut u8, isize> {
    let mut about = [0usize; STAT_WORDS];
    let fixed = if old.is_null() { 0 } else { MAP_FIXED };
    // SAFETY: the kernel writes no more than the buffer; a replaced mapping was created by this
    // function.
    unsafe {
        let status = call(SYS_FSTAT, [fd, &raw mut about as usize, 0, 0, 0, 0]);
        if status < 0 || about[STAT_SIZE] != size {
            return Err(if status < 0 { status } else { -EINVAL });
        }
        let flags = MAP_SHARED | fixed;
        address(call(SYS_MMAP, [old as usize, size, PROT_READ_WRITE, flags, fd, 0]))
    }
}

/// Passes the contents of a file to `take`, piece by piece; none if it cannot be read.
///
/// # Safety
///
/// `path` ends with a NUL.
pub unsafe fn read_file(path: *const u8, mut take: impl FnMut(&[u8])) {
    let mut buffer = [0u8; 1024];
    // SAFETY: the caller guarantees the path's end; the descriptor is our own from open to close,
    // and the kernel writes no more than the buffer.
    unsafe {
        let fd = open(path, O_RDONLY | O_CLOEXEC);
        if fd < 0 {
            return;
        }
        let args = [fd as usize, &raw mut buffer as usize, buffer.len(), 0, 0, 0];
        while let count @ 1.. = call(SYS_READ, args) {
            buffer.get(..count as usize).into_iter().for_each(&mut take);
        }
        call(SYS_CLOSE, [fd as usize, 0, 0, 0, 0, 0]);
    }
}

/// Private zeroed memory, which is zeroed again in a child after fork.
///
/// # Errors
///
/// The kernel's number, negative.
pub fn private_memory(size: usize) -> Result<*mut u8, isize> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: new memory; no other is affected.
    unsafe {
        let memory = call(SYS_MMAP, [0, size, PROT_READ_WRITE, flags, usize::MAX, 0]);
        let memory = address(memory)?;
        let advised = call(SYS_MADVISE, [memory as usize, size, MADV_WIPEONFORK, 0, 0, 0]);
        if advised < 0 {
            unmap(memory, size);
            return Err(advised);
        }
        Ok(memory)
    }
}

/// Unmaps memory.
///
/// # Safety
///
/// It was mapped by one of these functions, and is no longer used.
pub unsafe fn unmap(memory: *mut u8, size: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { call(SYS_MUNMAP, [memory as usize, size, 0, 0, 0, 0]) };
}

fn address(result: isize) -> Result<*mut u8, isize> {
    if (-MAX_ERROR..0).contains(&result) { Err(result) } else { Ok(result as *mut u8) }
}

/// True if the eight bytes at an address are readable.
///
/// The kernel reads a new signal mask before it checks the operation; this operation does not
/// exist, so nothing is changed.
pub fn is_readable(address: usize) -> bool {
    const NOTHING: usize = !0;
    // SAFETY: the kernel reads what is readable; the operation on the mask is invalid.
    let result = unsafe { call(SYS_RT_SIGPROCMASK, [NOTHING, address, 0, 8, 0, 0]) };
    result != -EFAULT
}

/// True if whole pages are writable; false on kernels before 5.14, which cannot determine it.
pub fn is_writable(address: usize, size: usize) -> bool {
    // SAFETY: writable pages are populated, with their contents.
    unsafe { call(SYS_MADVISE, [address, size, MADV_POPULATE_WRITE, 0, 0, 0]) == 0 }
}

/// Makes whole pages writable, or read-only; false if that failed.
pub fn protect(address: usize, size: usize, write: bool) -> bool {
    let protection = if write { PROT_READ_WRITE } else { PROT_READ };
    // SAFETY: pages of data that the dynamic linker has made read-only itself.
    unsafe { call(SYS_MPROTECT, [address, size, protection, 0, 0, 0]) == 0 }
}

/// Makes a page of a shared file executable, which the kernel reports to recorders of this process,
/// and restores it; false if that is not permitted.
pub fn show(address: usize, size: usize) -> bool {
    // SAFETY: a page of the shared file that is neither read nor written.
    unsafe {
        let shown = call(SYS_MPROTECT, [address, size, PROT_READ_EXEC, 0, 0, 0]);
        call(SYS_MPROTECT, [address, size, PROT_READ_WRITE, 0, 0, 0]);
        shown == 0
    }
}
