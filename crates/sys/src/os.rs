//! System calls that std lacks: limits, clocks, signals, waiting.

#![allow(unsafe_code)]

mod files;
mod helper_process;
mod precedence;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use files::{file_system, link, openat2};
pub use helper_process::{
    OUT_OF_MEMORY, ReportingAllocator, confine, count_as_own, cpu_time_of, exit_without_memory,
    receive_files, send_files,
};
pub use precedence::{Precedence, pause_briefly};

/// Text of an I/O error, without Rust's ` (os error N)`.
pub fn describe(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

/// Lets writes beyond the limit of file sizes (`ulimit -f`) fail instead of ending prof. Programs
/// that prof starts are not affected.
pub fn outlive_file_size_limit() {
    extern "C" fn ignore(_: i32) {}
    // SAFETY: sigaction is plain data for which zero is valid; the handler does nothing. Unlike an
    // ignored signal, a handled one has its default again after `execve`.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGXFSZ, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_DFL
        {
            action.sa_sigaction = ignore as extern "C" fn(i32) as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGXFSZ, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Set before `main`: Rust opens /dev/null in place of a closed descriptor.
static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the C library calls it once, before `main`; it makes one system call.
#[used]
#[unsafe(link_section = ".init_array")]
static CHECK_STDOUT: extern "C" fn() = check_stdout;

extern "C" fn check_stdout() {
    // SAFETY: it changes nothing.
    let closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } < 0;
    STDOUT_WAS_CLOSED.store(closed, Ordering::Relaxed);
}

/// True if prof was started without a standard output, as by `>&-`.
pub fn stdout_was_closed() -> bool {
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}

/// Raises the soft limit of open files so that `needed` further ones can be opened.
///
/// Returns the old and the new limit if it was raised.
///
/// # Errors
///
/// The hard limit is too low.
pub fn raise_open_files(needed: u64) -> io::Result<Option<(u64, u64)>> {
    let mut limit = limits(libc::RLIMIT_NOFILE)?;
    if needed <= limit.rlim_cur {
        return Ok(None);
    }
    let old = limit.rlim_cur;
    limit.rlim_cur = needed;
    // Raises the hard limit too, which root may.
    limit.rlim_max = limit.rlim_max.max(needed);
    if set(&limit).is_err() {
        let hard = limits(libc::RLIMIT_NOFILE)?.rlim_max;
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

/// Raises the soft limit of open files to the hard one; as root, to no less than 65,536. Processes
/// that are started later inherit it.
pub fn use_all_open_files() {
    const ENOUGH: u64 = 1 << 16;
    // If it fails, fewer files are kept open.
    if let Ok(limit) = limits(libc::RLIMIT_NOFILE) {
        let _ = raise_open_files(limit.rlim_max.max(ENOUGH));
    }
}

/// Bytes of a page of memory.
pub fn page_size() -> usize {
    // SAFETY: sysconf has no preconditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Number of files that can still be opened.
pub fn spare_files() -> usize {
    let Ok(limit) = limits(libc::RLIMIT_NOFILE) else { return 0 };
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX).saturating_sub(open)
}

/// The soft and hard limit of a resource (`RLIMIT_NOFILE`, ...); `RLIM_INFINITY` is none.
///
/// # Errors
///
/// Those of `getrlimit(2)`.
pub fn limits(resource: libc::__rlimit_resource_t) -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes to a local of the right type.
    match unsafe { libc::getrlimit(resource, &raw mut limit) } {
        0 => Ok(limit),
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

/// `CLOCK_MONOTONIC` in nanoseconds, the clock of all records.
pub fn monotonic_nanos() -> u64 {
    nanos_of(libc::CLOCK_MONOTONIC)
}

/// CPU time of prof itself, with that of its helper processes so far.
pub fn own_cpu_time() -> Duration {
    Duration::from_nanos(nanos_of(libc::CLOCK_PROCESS_CPUTIME_ID)) + helper_process::counted()
}

/// CPU time of the calling thread.
pub fn thread_cpu_time() -> Duration {
    Duration::from_nanos(nanos_of(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// The time of a clock that always exists, in nanoseconds.
fn nanos_of(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes to a local of the right type.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// CPU time (seconds) and peak resident memory (bytes) of prof itself. `ru_maxrss` would include the
/// memory of the program that started prof: it is kept across `execve`.
pub fn own_usage() -> (f64, u64) {
    let usage = usage_of(libc::RUSAGE_SELF);
    let peak = crate::procfs::own_peak_bytes().unwrap_or(usage.ru_maxrss as u64 * 1024);
    (cpu_of(&usage) + helper_process::counted().as_secs_f64(), peak)
}

/// CPU time in seconds of children that have been waited for, and of theirs.
pub fn children_cpu() -> f64 {
    cpu_of(&usage_of(libc::RUSAGE_CHILDREN))
}

/// Page faults of the calling thread, without those that were read from a disk.
pub fn thread_faults() -> u64 {
    usage_of(libc::RUSAGE_THREAD).ru_minflt as u64
}

/// Returns free memory of the allocator to the kernel, where the C library can do that.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes a number, and changes no memory that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
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

/// Waits until one of these descriptors is readable, for at most `timeout_ms`. Returns at a signal.
pub fn poll(fds: &mut [libc::pollfd], timeout_ms: i32) {
    // SAFETY: the slice is valid for its length; poll writes only to `revents`.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms) };
}

/// Moves this thread off a CPU if it runs there and may run elsewhere; it may return later. Returns
/// true if it ran there.
///
/// Where CPUs share no cache (as in many virtual machines), the kernel wakes a thread on the CPU
/// where it slept, even if another CPU is idle (`select_idle_sibling` in kernel/sched/fair.c).
pub fn leave_cpu(cpu: u32) -> bool {
    // SAFETY: the sets are plain bits, for which zero is valid; the calls receive their size and
    // affect the calling thread alone.
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

/// Moves this thread off the CPU on which it runs, if it may run on another; it may return later.
pub fn leave_this_cpu() {
    // SAFETY: the call takes nothing.
    if let Ok(cpu) = u32::try_from(unsafe { libc::sched_getcpu() }) {
        leave_cpu(cpu);
    }
}

/// A descriptor that becomes readable when a process ends.
///
/// # Errors
///
/// `ESRCH` if the process has ended.
pub fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two integers; prof owns the descriptor that it returns.
    unsafe {
        match libc::syscall(libc::SYS_pidfd_open, pid, 0) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd as i32)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Reads memory of a process into `buffer`; returns the number of bytes read.
///
/// # Errors
///
/// No byte could be read, usually because it is not mapped (`EFAULT`), the process has ended
/// (`ESRCH`) or may not be inspected (`EPERM`).
pub fn read_memory(pid: i32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: buffer.len() };
    // SAFETY: the kernel writes to the local buffer only, and checks the remote addresses.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// Sends a signal to a process.
///
/// # Errors
///
/// Those of `kill(2)`.
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: the call takes two integers.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// True for a process or thread that exists, a zombie too. Cheaper than a look into `/proc`, where
/// the kernel creates an entry for each number that it is asked for.
pub fn exists(tid: i32) -> bool {
    // Other numbers stand for groups of processes.
    tid > 0 && kill(tid, 0).err().is_none_or(|e| e.raw_os_error() != Some(libc::ESRCH))
}

/// Exit status of a child, if it has ended and was not waited for before.
pub fn reap(pid: i32) -> Option<std::process::ExitStatus> {
    use std::os::unix::process::ExitStatusExt;
    let mut status = 0;
    // SAFETY: waitpid writes to a local of the right type.
    let ended = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) };
    (ended == pid).then(|| std::process::ExitStatus::from_raw(status))
}

/// True if this process ignores a signal.
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

/// Releases a part of the memory of a file in memory: it reads as zeros from then on.
pub fn punch(file: &std::fs::File, part: std::ops::Range<u64>) {
    use std::os::fd::AsRawFd;
    let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let start = part.start as libc::off_t;
    let length = (part.end - part.start) as libc::off_t;
    // SAFETY: the call takes numbers; the descriptor is open.
    unsafe { libc::fallocate(file.as_raw_fd(), how, start, length) };
}

/// Prevents any change of the size of a file in memory.
///
/// # Errors
///
/// It is another kind of file, or cannot be sealed.
pub fn seal_size(file: &std::fs::File) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the call takes numbers; the descriptor is open.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Another descriptor of a file, with the first free number from `least` on, which child processes
/// inherit.
///
/// # Errors
///
/// There is no such number.
pub fn inherited(file: &std::fs::File, least: i32) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::{AsRawFd, FromRawFd};
    // SAFETY: the call takes numbers; the descriptor is open, and prof owns the new one.
    unsafe {
        match libc::fcntl(file.as_raw_fd(), libc::F_DUPFD, least) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(std::os::fd::OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// The effective group id.
pub fn gid() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::getegid() }
}

/// True if others of the same user may inspect this process; false if its file gave it privileges.
pub fn is_dumpable() -> bool {
    // SAFETY: this option takes numbers and returns one.
    unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) == 1 }
}

/// True if executing this file grants capabilities.
pub fn has_capabilities(path: &std::path::Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    let name = c"security.capability";
    // SAFETY: both names end with a NUL; nothing is written, as the space has no size.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_zombies_and_threads_exist_until_they_are_gone() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        let is_zombie = || crate::procfs::stat(pid).is_some_and(|stat| stat.state == 'Z');
        while !is_zombie() {
            assert!(exists(pid));
        }
        assert!(exists(pid), "a zombie");
        child.wait().unwrap();
        assert!(!exists(pid));
        let is_there = std::thread::spawn(|| {
            // SAFETY: the call has no arguments.
            exists(unsafe { libc::gettid() })
        });
        assert!(is_there.join().unwrap(), "a thread");
        assert!(!exists(0) && !exists(-1));
    }
}
