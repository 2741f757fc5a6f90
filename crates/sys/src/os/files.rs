//! Opening and naming files in ways that std lacks.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `openat2(2)`: resolves `path` below `dir` with the flags `resolve`.
///
/// # Errors
///
/// Those of the system call; `ENOSYS` before Linux 5.6.
pub fn openat2(dir: BorrowedFd<'_>, path: &CStr, flags: i32, resolve: u64) -> io::Result<OwnedFd> {
    // SAFETY: open_how is plain data for which zero is valid; the kernel reads it and the path,
    // which ends with a NUL, and prof owns the descriptor that it returns.
    unsafe {
        let mut how: libc::open_how = std::mem::zeroed();
        (how.flags, how.resolve) = (flags as u64, resolve);
        let how = &raw const how;
        let size = size_of::<libc::open_how>();
        match libc::syscall(libc::SYS_openat2, dir.as_raw_fd(), path.as_ptr(), how, size) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd as i32)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Links the file that `from` leads to, through symbolic links as well, under the name `to`.
///
/// # Errors
///
/// Those of `linkat(2)`.
pub fn link(from: &Path, to: &Path) -> io::Result<()> {
    let name = |path: &Path| CString::new(path.as_os_str().as_bytes());
    let from = name(from)?;
    let to = name(to)?;
    let at = libc::AT_FDCWD;
    let follow = libc::AT_SYMLINK_FOLLOW;
    // SAFETY: both names end with a NUL.
    match unsafe { libc::linkat(at, from.as_ptr(), at, to.as_ptr(), follow) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Type of the file system that an open file is on, as in `statfs(2)`.
///
/// # Errors
///
/// Those of `fstatfs(2)`.
pub fn file_system(file: BorrowedFd<'_>) -> io::Result<i64> {
    // SAFETY: statfs is plain data for which zero is valid; the call writes to it alone.
    unsafe {
        let mut found: libc::statfs = std::mem::zeroed();
        match libc::fstatfs(file.as_raw_fd(), &raw mut found) {
            0 => Ok(found.f_type as i64),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
