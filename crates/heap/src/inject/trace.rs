//! A thread that is traced by `ptrace(2)`: stopped without a visible signal, its registers read and
//! written, and released again.

#![allow(unsafe_code)]
// musl's requests are signed.
#![allow(clippy::unnecessary_cast)]

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use crate::arch::{self, OTHER_REGISTERS, Registers};

/// Way of ptrace(2) to the general registers.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "each architecture has one of them")]
pub enum RegisterAccess {
    /// Requests of their own.
    Requests {
        /// The one that reads them.
        get: u32,
        /// The one that writes them.
        set: u32,
    },
    /// Sets of registers, which fill the struct one after the other.
    Sets(&'static [RegisterSet]),
}

/// A set of registers.
#[derive(Clone, Copy, Debug)]
pub struct RegisterSet {
    /// Its number (`NT_*` in linux/elf.h).
    pub number: usize,
    /// Its bytes.
    pub size: usize,
}

/// `PTRACE_GET_RSEQ_CONFIGURATION` (linux/ptrace.h).
const GET_RSEQ_CONFIGURATION: u32 = 0x420f;

/// Requests that read and write a set of registers.
const GET_SET: u32 = libc::PTRACE_GETREGSET as u32;
const SET_SET: u32 = libc::PTRACE_SETREGSET as u32;

/// Larger than the other registers on any CPU (AMX makes them 11 KiB).
const MAX_OTHERS: usize = 64 << 10;

/// Bytes of the kernel's signal sets.
const SIGNALS: usize = 8;

/// Cause of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It was requested.
    Interrupt,
    /// A signal is about to be delivered.
    Signal(i32),
    /// The whole process was stopped by a signal (such as `SIGSTOP`).
    Group,
    /// Another ptrace event.
    Other,
}

/// A thread that prof traces. It is released when this is dropped, if it is stopped or a stop was
/// requested; else when the tracing thread ends, which the target does not notice.
pub struct Tracee {
    /// Its TID.
    pub tid: i32,
    stopped: bool,
    stop_requested: bool,
    gone: bool,
}

/// `ptrace` with a request that takes plain numbers.
fn request(what: u32, tid: i32, data: i32) -> io::Result<()> {
    // SAFETY: this is called with requests whose last argument is not an address.
    unsafe { request_at(what, tid, 0, data as usize as *mut c_void) }
}

/// `ptrace` with a request that reads or writes the target of `at`.
///
/// # Safety
///
/// `at` must point to the data that the request is documented to read and write.
unsafe fn request_at(what: u32, tid: i32, number: usize, at: *mut c_void) -> io::Result<()> {
    // SAFETY: guaranteed by the caller; the kernel checks the rest.
    match unsafe { libc::ptrace(what as _, tid, number as *mut c_void, at) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

impl Tracee {
    /// Begins to trace a thread, which keeps running.
    ///
    /// # Errors
    ///
    /// `EPERM`: this user has no permission, or another process traces it already; `ESRCH`: it has
    /// ended.
    pub fn seize(tid: i32) -> io::Result<Tracee> {
        request(libc::PTRACE_SEIZE as u32, tid, 0)?;
        Ok(Tracee { tid, stopped: false, stop_requested: false, gone: false })
    }

    /// Requests a stop, without a signal. A sleeping system call is interrupted.
    ///
    /// # Errors
    ///
    /// `ESRCH`: it has ended.
    pub fn interrupt(&mut self) -> io::Result<()> {
        self.stop_requested = true;
        request(libc::PTRACE_INTERRUPT as u32, self.tid, 0)
    }

    /// Waits for a stop; `None` if there was none before `until`.
    ///
    /// # Errors
    ///
    /// `ESRCH`: it has ended.
    pub fn wait(&mut self, until: Instant) -> io::Result<Option<Stop>> {
        /// It usually stops within microseconds; yielding the CPU would mean waiting for all other
        /// runnable threads.
        const SPINS: u32 = 50;
        let mut pause = Duration::from_micros(10);
        let mut status = 0;
        for polls in 0.. {
            // SAFETY: the status is a local of the right type.
            match unsafe { libc::waitpid(self.tid, &mut status, libc::__WALL | libc::WNOHANG) } {
                0 if polls < SPINS => std::hint::spin_loop(),
                0 if Instant::now() >= until => return Ok(None),
                0 => {
                    std::thread::sleep(pause);
                    pause = (pause * 5 / 4).min(Duration::from_millis(1));
                }
                -1 => {
                    let error = io::Error::last_os_error();
                    if error.raw_os_error() == Some(libc::EINTR) {
                        continue;
                    }
                    return Err(self.ended());
                }
                _ if libc::WIFSTOPPED(status) => {
                    (self.stopped, self.stop_requested) = (true, false);
                    return Ok(Some(stop_of(status)));
                }
                _ => return Err(self.ended()),
            }
        }
        Ok(None)
    }

    fn ended(&mut self) -> io::Error {
        self.gone = true;
        io::Error::from_raw_os_error(libc::ESRCH)
    }

    /// Continues it, with this signal (0: none).
    ///
    /// # Errors
    ///
    /// `ESRCH`: it has ended.
    pub fn go(&mut self, signal: i32) -> io::Result<()> {
        self.stopped = false;
        request(libc::PTRACE_CONT as u32, self.tid, signal)
    }

    /// Its general registers, while it is stopped.
    ///
    /// # Errors
    ///
    /// `ESRCH`: it has ended.
    pub fn registers(&self) -> io::Result<Registers> {
        let mut into = MaybeUninit::<Registers>::zeroed();
        let start = into.as_mut_ptr().cast::<u8>();
        // SAFETY: the kernel writes no more than a whole `Registers`, of plain numbers, for which
        // any bytes are valid.
        unsafe {
            match arch::REGISTER_ACCESS {
                RegisterAccess::Requests { get, .. } => {
                    request_at(get, self.tid, 0, start.cast())?;
                }
                RegisterAccess::Sets(sets) => self.each_set(GET_SET, sets, start)?,
            }
            Ok(into.assume_init())
        }
    }

    /// Sets its general registers.
    ///
    /// # Errors
    ///
    /// `ESRCH`: it has ended.
    pub fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        let from = std::ptr::from_ref(registers).cast_mut();
        // SAFETY: the kernel reads no more than a whole `Registers`.
        unsafe {
            match arch::REGISTER_ACCESS {
                RegisterAccess::Requests { set, .. } => request_at(set, self.tid, 0, from.cast()),
                RegisterAccess::Sets(sets) => self.each_set(SET_SET, sets, from.cast()),
            }
        }
    }

    /// `PTRACE_GETREGSET` or `PTRACE_SETREGSET` for sets of registers.
    ///
    /// # Safety
    ///
    /// `start` must point to as many bytes as all of them have, which may be read or written.
    unsafe fn each_set(&self, what: u32, sets: &[RegisterSet], start: *mut u8) -> io::Result<()> {
        let mut done = 0;
        for set in sets {
            // SAFETY: guaranteed by the caller.
            let iov_base = unsafe { start.add(done) }.cast();
            let mut vector = libc::iovec { iov_base, iov_len: set.size };
            // SAFETY: the kernel reads or writes the buffer of the iovec, and the iovec.
            unsafe { request_at(what, self.tid, set.number, (&raw mut vector).cast())? };
            done += set.size;
        }
        Ok(())
    }

    /// All other registers, in the kernel's form ([`OTHER_REGISTERS`]).
    ///
    /// # Errors
    ///
    /// `ESRCH`: it has ended; `ENODEV`: this CPU has none.
    pub fn other_registers(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; MAX_OTHERS];
        let mut into = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let at = (&raw mut into).cast();
        // SAFETY: the kernel writes to the buffer of the iovec, and the length to the iovec.
        unsafe { request_at(GET_SET, self.tid, OTHER_REGISTERS, at)? };
        bytes.truncate(into.iov_len);
        Ok(bytes)
    }

    /// Sets the other registers.
    ///
    /// # Errors
    ///
    /// `ESRCH`: it has ended.
    pub fn set_other_registers(&self, bytes: &[u8]) -> io::Result<()> {
        let base = bytes.as_ptr().cast_mut().cast();
        let mut from = libc::iovec { iov_base: base, iov_len: bytes.len() };
        let at = (&raw mut from).cast();
        // SAFETY: the kernel reads the buffer of the iovec.
        unsafe { request_at(SET_SET, self.tid, OTHER_REGISTERS, at) }
    }

    /// Its blocked signals.
    ///
    /// # Errors
    ///
    /// `ESRCH`: it has ended.
    pub fn blocked(&self) -> io::Result<u64> {
        let mut mask = 0u64;
        let at = (&raw mut mask).cast();
        // SAFETY: the kernel writes `SIGNALS` bytes.
        unsafe { request_at(libc::PTRACE_GETSIGMASK as u32, self.tid, SIGNALS, at)? };
        Ok(mask)
    }

    /// Sets its blocked signals.
    ///
    /// # Errors
    ///
    /// `ESRCH`: it has ended.
    pub fn set_blocked(&self, mut mask: u64) -> io::Result<()> {
        let at = (&raw mut mask).cast();
        // SAFETY: the kernel reads `SIGNALS` bytes.
        unsafe { request_at(libc::PTRACE_SETSIGMASK as u32, self.tid, SIGNALS, at) }
    }

    /// True if the kernel raised the signal that is about to be delivered because of an action of
    /// the thread itself.
    pub fn is_fault(&self) -> bool {
        // SAFETY: siginfo is plain data for which zero is valid, and the kernel writes to it.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let at = (&raw mut info).cast();
            let read = request_at(libc::PTRACE_GETSIGINFO as u32, self.tid, 0, at);
            read.is_ok() && info.si_code > 0
        }
    }

    /// Address of the thread's registered restartable sequence area (`rseq(2)`), if there is one.
    pub fn rseq(&self) -> Option<u64> {
        let mut area = [0u64; 3];
        let at = area.as_mut_ptr().cast();
        // SAFETY: the kernel writes no more than this many bytes, numbers.
        unsafe {
            request_at(GET_RSEQ_CONFIGURATION, self.tid, size_of_val(&area), at).ok()?;
        }
        (area[0] != 0).then_some(area[0])
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        if !self.stopped && self.stop_requested && !self.gone {
            // A thread that cannot be released now is released by the kernel when prof ends.
            self.wait(Instant::now() + Duration::from_secs(1)).ok();
        }
        if self.stopped {
            request(libc::PTRACE_DETACH as u32, self.tid, 0).ok();
        }
    }
}

fn stop_of(status: i32) -> Stop {
    /// `PTRACE_EVENT_STOP` (linux/ptrace.h).
    const STOPPED: i32 = 128;
    match (libc::WSTOPSIG(status), status >> 16) {
        (libc::SIGTRAP, STOPPED) => Stop::Interrupt,
        (_, STOPPED) => Stop::Group,
        (signal, 0) => Stop::Signal(signal),
        _ => Stop::Other,
    }
}

/// Gives the calling thread precedence over all others for the rest of its life, if this user may:
/// a thread of the target is stopped.
pub fn take_precedence() {
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads a local of the right type.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &first) };
}

/// All zero.
#[cfg(test)]
pub fn no_registers() -> Registers {
    // SAFETY: plain numbers, for which zero is valid.
    unsafe { std::mem::zeroed() }
}

/// Sends a signal to a thread.
pub fn send(pid: i32, tid: i32, signal: i32) {
    // SAFETY: the call takes numbers.
    unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, signal) };
}
