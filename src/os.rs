//! The few system calls that std does not have: limits, clocks, signals, waiting.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Raises the soft limit of open files so that `needed` further ones can be had.
///
/// Returns the old and the new limit when it was raised. Errors: the hard limit is too low.
pub fn raise_open_files(needed: u64) -> io::Result<Option<(u64, u64)>> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes to a local of the right type.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if needed <= limit.rlim_cur {
        return Ok(None);
    }
    let old = limit.rlim_cur;
    limit.rlim_cur = needed;
    // The hard limit too, which root may.
    limit.rlim_max = limit.rlim_max.max(needed);
    if set(&limit).is_err() {
        let hard = hard_limit()?;
        if hard < needed {
            limit = libc::rlimit { rlim_cur: hard, rlim_max: hard };
            set(&limit)?;
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        limit.rlim_max = hard;
        set(&limit)?;
    }
    Ok(Some((old, needed)))
}

fn hard_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes to a local of the right type.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => Ok(limit.rlim_max),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set(limit: &libc::rlimit) -> io::Result<()> {
    // SAFETY: setrlimit reads a value of the right type.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, std::ptr::from_ref(limit)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the calling thread precedence over others, as far as this user may, so that the rings
/// are emptied in time on an overloaded machine; undone when dropped.
pub struct Precedence(Option<i32>);

impl Precedence {
    /// Raises the calling thread's priority.
    pub fn take() -> Precedence {
        // SAFETY: both calls take integers; -1 is also a priority, so errno would have to be
        // asked, but restoring -1 instead of 0 would be harmless.
        unsafe {
            let before = libc::getpriority(libc::PRIO_PROCESS, 0);
            let raised = libc::setpriority(libc::PRIO_PROCESS, 0, -20) == 0;
            Precedence(raised.then_some(before))
        }
    }
}

impl Drop for Precedence {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            // SAFETY: the call takes integers.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, before) };
        }
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds, the clock of all records.
pub fn monotonic_nanos() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes to a local of the right type; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// CPU time (seconds) and peak resident memory (bytes) of prof itself.
pub fn own_usage() -> (f64, u64) {
    let usage = usage_of(libc::RUSAGE_SELF);
    (cpu_of(&usage), usage.ru_maxrss as u64 * 1024)
}

/// CPU time in seconds of children that have been waited for, and of theirs.
pub fn children_cpu() -> f64 {
    cpu_of(&usage_of(libc::RUSAGE_CHILDREN))
}

fn usage_of(who: i32) -> libc::rusage {
    // SAFETY: an all-zero rusage is valid, and getrusage writes to it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &raw mut usage);
        usage
    }
}

fn cpu_of(usage: &libc::rusage) -> f64 {
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Waits until one of these descriptors is readable, or for `timeout_ms`. Returns at a signal.
pub fn poll(fds: &mut [libc::pollfd], timeout_ms: i32) {
    // SAFETY: the slice is valid for its length; poll writes only to `revents`.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms) };
}

/// Moves this thread off a CPU if it runs there and may run elsewhere; it may come back.
/// Returns whether it was there.
///
/// Where CPUs share no cache (as many virtual machines have it), the kernel wakes a thread up
/// where it slept, even if another CPU is idle (`select_idle_sibling` in kernel/sched/fair.c).
pub fn leave_cpu(cpu: u32) -> bool {
    // SAFETY: the sets are plain bits, for which zero is valid; the calls are given their size
    // and concern the calling thread alone.
    unsafe {
        if libc::sched_getcpu() != cpu as i32 {
            return false;
        }
        let size = size_of::<libc::cpu_set_t>();
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        if cpu as usize >= size * 8 || libc::sched_getaffinity(0, size, &mut allowed) != 0 {
            return true;
        }
        let mut others = allowed;
        libc::CPU_CLR(cpu as usize, &mut others);
        if libc::CPU_COUNT(&others) > 0 && libc::sched_setaffinity(0, size, &others) == 0 {
            libc::sched_setaffinity(0, size, &allowed);
        }
        true
    }
}

/// A descriptor that becomes readable when a process ends.
///
/// Errors: `ESRCH` when it is gone.
pub fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two integers; a descriptor that it returns is ours alone.
    unsafe {
        match libc::syscall(libc::SYS_pidfd_open, pid, 0) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd as i32)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Reads memory of a process into `buffer`; returns how many bytes could be read.
///
/// Errors: none could, as a rule because it is not mapped (`EFAULT`), the process is gone
/// (`ESRCH`) or may not be looked into (`EPERM`).
pub fn read_memory(pid: i32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: buffer.len() };
    // SAFETY: the kernel writes to the local buffer only, and checks the remote addresses.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// Sends a signal to a process.
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: the call takes two integers.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// This process ignores a signal.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: sigaction is plain data for which zero is valid; the call only writes to it.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    }
}

/// Clock ticks a second, the unit of CPU time in `/proc/PID/stat`.
pub fn ticks_per_second() -> u64 {
    // SAFETY: sysconf takes an integer and has no side effect.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100).max(1)
}

/// The effective user id.
pub fn uid() -> u32 {
    // SAFETY: always succeeds and touches no memory.
    unsafe { libc::geteuid() }
}

/// Gives the memory of a file in memory back: it reads as zeros from then on.
pub fn punch(file: &std::fs::File, size: u64) {
    use std::os::fd::AsRawFd;
    let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: the call takes numbers; the descriptor is open.
    unsafe { libc::fallocate(file.as_raw_fd(), how, 0, size as libc::off_t) };
}

/// The effective group id.
pub fn gid() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::getegid() }
}

/// Others of the same user may look at this process; not so when it was given rights by its file.
pub fn is_dumpable() -> bool {
    // SAFETY: this option takes numbers and returns one.
    unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) == 1 }
}

/// Who executes this file gets capabilities by it.
pub fn has_capabilities(path: &std::path::Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    let name = c"security.capability";
    // SAFETY: both names end with a NUL; nothing is written, as the space has no size.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}
