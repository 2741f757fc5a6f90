//! Support for helper processes with few privileges: passing open files through a socket, and
//! limits.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Most descriptors in one message.
pub const MAX_SENT: usize = 16;

/// Buffer for the control message with that many descriptors; `u64` for its alignment.
type Control = [u64; 12];

/// Sends bytes and open files through a Unix socket; returns the number of bytes that were sent.
///
/// # Errors
///
/// Those of `sendmsg(2)`.
pub fn send_files(socket: BorrowedFd<'_>, bytes: &[u8], files: &[RawFd]) -> io::Result<usize> {
    assert!(files.len() <= MAX_SENT && !bytes.is_empty());
    let mut control: Control = [0; 12];
    let mut part = libc::iovec { iov_base: bytes.as_ptr() as *mut _, iov_len: bytes.len() };
    let length = size_of_val(files);
    // SAFETY: msghdr is plain data for which zero is valid. The control buffer is large enough for
    // MAX_SENT descriptors (16 bytes of header and 4 for each) and aligned; all referenced bytes
    // and descriptors outlive the call.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        if !files.is_empty() {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(length as u32) as usize;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            ((*header).cmsg_level, (*header).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
            (*header).cmsg_len = libc::CMSG_LEN(length as u32) as usize;
            let data = libc::CMSG_DATA(header);
            std::ptr::copy_nonoverlapping(files.as_ptr().cast::<u8>(), data, length);
        }
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives bytes from a Unix socket, and the open files that came with them.
///
/// # Errors
///
/// Those of `recvmsg(2)`.
pub fn receive_files(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    files: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut control: Control = [0; 12];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: msghdr is plain data for which zero is valid, and both buffers have the stated
    // lengths. The kernel writes whole control messages; prof owns the descriptors in them.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of::<Control>();
        let flags = libc::MSG_CMSG_CLOEXEC;
        let got = libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags);
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if !header.is_null()
            && ((*header).cmsg_level, (*header).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS)
        {
            let length = (*header).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
            let data = libc::CMSG_DATA(header).cast::<RawFd>();
            for i in 0..length / size_of::<RawFd>() {
                files.push(OwnedFd::from_raw_fd(data.add(i).read_unaligned()));
            }
        }
        Ok(got)
    }
}

/// Removes from this process what a parser of foreign files does not need: memory beyond `bytes`,
/// core dumps, writing files, new privileges, and all capabilities except that to read the files
/// that it receives. It ends with the thread that started it.
pub fn confine(bytes: u64) {
    #[repr(C)]
    struct CapabilityHeader {
        version: u32,
        pid: i32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    const DAC_READ_SEARCH: u32 = 1 << 2;
    let limit = |what, at_most: u64| {
        let limit = libc::rlimit { rlim_cur: at_most, rlim_max: at_most };
        // SAFETY: setrlimit reads a local of the right type. If it fails, a lower limit stays in
        // force.
        unsafe { libc::setrlimit(what, &raw const limit) };
    };
    limit(libc::RLIMIT_DATA, bytes);
    limit(libc::RLIMIT_CORE, 0);
    limit(libc::RLIMIT_FSIZE, 0);
    // SAFETY: these options take numbers; capset reads two locals of the types of its version;
    // signal sets a disposition. All affect this process alone.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let header = CapabilityHeader { version: VERSION_3, pid: 0 };
        // Effective, permitted, inheritable; the upper halves follow. Without the right to have
        // that one, none.
        for kept in [DAC_READ_SEARCH, 0] {
            let sets = [kept, kept, 0, 0, 0, 0];
            if libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) == 0 {
                break;
            }
        }
        // A terminal sends these to all of its processes; only the parent handles them.
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

/// Exit code of a helper process that needed more memory than it may have.
pub const OUT_OF_MEMORY: i32 = 112;

/// Whether this process exits when it gets no memory.
static EXITS_WITHOUT_MEMORY: AtomicBool = AtomicBool::new(false);

/// From now on, this process exits with [`OUT_OF_MEMORY`] when its [`ReportingAllocator`] gets no
/// memory.
pub fn exit_without_memory() {
    EXITS_WITHOUT_MEMORY.store(true, Ordering::Relaxed);
}

/// The system's allocator, for a program whose helper processes report that their memory was not
/// enough: the standard library's way to end is the same as that of a crash.
pub struct ReportingAllocator;

fn reported(memory: *mut u8) -> *mut u8 {
    if memory.is_null() && EXITS_WITHOUT_MEMORY.load(Ordering::Relaxed) {
        // SAFETY: it ends the process, and runs nothing of it before.
        unsafe { libc::_exit(OUT_OF_MEMORY) };
    }
    memory
}

// SAFETY: all calls are passed on to the system's allocator with the caller's guarantees, and their
// results are returned unchanged.
unsafe impl GlobalAlloc for ReportingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        reported(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        reported(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        reported(unsafe { System.realloc(memory, layout, size) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// CPU time of a child that has not been waited for.
pub fn cpu_time_of(pid: i32) -> Option<Duration> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls write to a local of the right type.
    let has_clock = unsafe {
        libc::clock_getcpuclockid(pid, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    has_clock.then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Nanoseconds of CPU time of prof's processes that have ended.
static HELPERS: AtomicU64 = AtomicU64::new(0);

/// Adds the CPU time of a helper process to prof's own.
pub fn count_as_own(cpu_time: Duration) {
    HELPERS.fetch_add(cpu_time.as_nanos() as u64, Ordering::Relaxed);
}

/// CPU time that was added so.
pub(super) fn counted() -> Duration {
    Duration::from_nanos(HELPERS.load(Ordering::Relaxed))
}
