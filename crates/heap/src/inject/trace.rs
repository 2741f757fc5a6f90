//! A thread that is held by `ptrace(2)`: stopped without a signal that it could see, its registers
//! read and written, and let go again.

#![allow(unsafe_code)]
// musl's requests are signed.
#![allow(clippy::unnecessary_cast)]

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// The general registers.
pub type Registers = libc::user_regs_struct;

/// `NT_X86_XSTATE` (linux/elf.h): all other registers, as `XSAVE` writes them.
const NT_X86_XSTATE: usize = 0x202;

/// `PTRACE_GET_RSEQ_CONFIGURATION` (linux/ptrace.h).
const GET_RSEQ_CONFIGURATION: u32 = 0x420f;

/// More than any processor's (AMX makes it 11 KiB).
const MAX_XSTATE: usize = 64 << 10;

/// Bytes of the kernel's set of signals.
const SIGNALS: usize = 8;

/// Why a thread stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It was asked to.
    Interrupt,
    /// A signal is about to be delivered.
    Signal(i32),
    /// The whole process was stopped by a signal (`SIGSTOP`, say).
    Group,
    /// Something else of ptrace's.
    Other,
}

/// A thread that prof traces. It is let go when this is dropped, if it is stopped or was asked to
/// stop; else when the thread that traces it ends, which the target does not notice.
pub struct Tracee {
    /// Its number.
    pub tid: i32,
    stopped: bool,
    asked: bool,
    gone: bool,
}

/// `ptrace` with a request that takes plain numbers.
fn request(what: u32, tid: i32, data: i32) -> io::Result<()> {
    // SAFETY: this is called with requests for which the last argument is no address.
    unsafe { request_at(what, tid, 0, data as usize as *mut c_void) }
}

/// `ptrace` with a request that reads or writes what `at` points to.
///
/// # Safety
///
/// `at` must point to what the request is documented to read and write there.
unsafe fn request_at(what: u32, tid: i32, number: usize, at: *mut c_void) -> io::Result<()> {
    // SAFETY: by the caller's word; the kernel checks all else.
    match unsafe { libc::ptrace(what as _, tid, number as *mut c_void, at) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

impl Tracee {
    /// Begins to trace a thread, which runs on.
    ///
    /// # Errors
    ///
    /// `EPERM`: this user may not, or somebody else traces it already; `ESRCH`: it has ended.
    pub fn seize(tid: i32) -> io::Result<Tracee> {
        request(libc::PTRACE_SEIZE as u32, tid, 0)?;
        Ok(Tracee { tid, stopped: false, asked: false, gone: false })
    }

    /// Asks it to stop, without a signal. If it sleeps in a system call, that is broken off.
    ///
    /// # Errors
    ///
    /// `ESRCH`: it has ended.
    pub fn interrupt(&mut self) -> io::Result<()> {
        self.asked = true;
        request(libc::PTRACE_INTERRUPT as u32, self.tid, 0)
    }

    /// Waits until it stops; `None`: it has not until then.
    ///
    /// # Errors
    ///
    /// `ESRCH`: it has ended.
    pub fn wait(&mut self, until: Instant) -> io::Result<Option<Stop>> {
        /// It stops within microseconds, as a rule; to yield the CPU would be to wait for all
        /// others that want it.
        const SPINS: u32 = 50;
        let mut pause = Duration::from_micros(10);
        let mut status = 0;
        for looks in 0.. {
            // SAFETY: the status is a local of the right type.
            match unsafe { libc::waitpid(self.tid, &mut status, libc::__WALL | libc::WNOHANG) } {
                0 if looks < SPINS => std::hint::spin_loop(),
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
                    (self.stopped, self.asked) = (true, false);
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

    /// Lets it run, with this signal (0: none).
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
        // SAFETY: the kernel writes a whole `user_regs_struct`, for which any bytes are valid.
        unsafe {
            request_at(libc::PTRACE_GETREGS as u32, self.tid, 0, into.as_mut_ptr().cast())?;
            Ok(into.assume_init())
        }
    }

    /// Sets its general registers.
    ///
    /// # Errors
    ///
    /// `ESRCH`: it has ended.
    pub fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        let from = std::ptr::from_ref(registers).cast_mut().cast();
        // SAFETY: the kernel reads a `user_regs_struct`.
        unsafe { request_at(libc::PTRACE_SETREGS as u32, self.tid, 0, from) }
    }

    /// All other registers, as `XSAVE` writes them (not compacted).
    ///
    /// # Errors
    ///
    /// `ESRCH`: it has ended; `ENODEV`: this processor has no `XSAVE`.
    pub fn xstate(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; MAX_XSTATE];
        let mut into = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let at = (&raw mut into).cast();
        // SAFETY: the kernel writes to the buffer that the iovec names, and how much to the iovec.
        unsafe { request_at(libc::PTRACE_GETREGSET as u32, self.tid, NT_X86_XSTATE, at)? };
        bytes.truncate(into.iov_len);
        Ok(bytes)
    }

    /// Sets them.
    ///
    /// # Errors
    ///
    /// `ESRCH`: it has ended.
    pub fn set_xstate(&self, bytes: &[u8]) -> io::Result<()> {
        let base = bytes.as_ptr().cast_mut().cast();
        let mut from = libc::iovec { iov_base: base, iov_len: bytes.len() };
        let at = (&raw mut from).cast();
        // SAFETY: the kernel reads the buffer that the iovec names.
        unsafe { request_at(libc::PTRACE_SETREGSET as u32, self.tid, NT_X86_XSTATE, at) }
    }

    /// The signals that it blocks.
    ///
    /// # Errors
    ///
    /// `ESRCH`: it has ended.
    pub fn blocked(&self) -> io::Result<u64> {
        let mut mask = 0u64;
        let at = (&raw mut mask).cast();
        // SAFETY: the kernel writes so many bytes.
        unsafe { request_at(libc::PTRACE_GETSIGMASK as u32, self.tid, SIGNALS, at)? };
        Ok(mask)
    }

    /// Sets them.
    ///
    /// # Errors
    ///
    /// `ESRCH`: it has ended.
    pub fn set_blocked(&self, mut mask: u64) -> io::Result<()> {
        let at = (&raw mut mask).cast();
        // SAFETY: the kernel reads so many bytes.
        unsafe { request_at(libc::PTRACE_SETSIGMASK as u32, self.tid, SIGNALS, at) }
    }

    /// The signal that is about to be delivered was raised by the kernel, because of what the
    /// thread itself did.
    pub fn is_fault(&self) -> bool {
        // SAFETY: siginfo is plain data for which zero is valid, and the kernel writes to it.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let at = (&raw mut info).cast();
            let told = request_at(libc::PTRACE_GETSIGINFO as u32, self.tid, 0, at);
            told.is_ok() && info.si_code > 0
        }
    }

    /// Where the thread's restartable sequences are registered (`rseq(2)`), if they are.
    pub fn rseq(&self) -> Option<u64> {
        let mut told = [0u64; 3];
        let at = told.as_mut_ptr().cast();
        // SAFETY: the kernel writes no more than so many bytes, numbers.
        unsafe {
            request_at(GET_RSEQ_CONFIGURATION, self.tid, size_of_val(&told), at).ok()?;
        }
        (told[0] != 0).then_some(told[0])
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        if !self.stopped && self.asked && !self.gone {
            // What cannot be let go now is when prof ends, by the kernel.
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

/// Lets the calling thread run before all others for the rest of its life, as far as this user may:
/// somebody stands still meanwhile.
pub fn hurry() {
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
