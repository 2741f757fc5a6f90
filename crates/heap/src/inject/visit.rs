//! What a thread does for prof while it is borrowed: system calls and function calls.
//!
//! At any moment of it, the thread would come back by itself if prof died: before it leaves its
//! place, a signal frame lies on its stack, and whatever it is led to returns into that frame.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::frame::{Back, Context, Frame, NOTHING, Undo, Way};
use super::locks;
use super::objects::Objects;
use super::restart;
use super::trace::{Registers, Stop, Tracee};
use sys::Error;

/// Memory that functions run on: the thread's own stack may be small.
const STACK: u64 = 256 << 10;

/// How long a function may take before it is looked at what it waits for, and before it is left to
/// come back by itself.
const PATIENCE: Duration = Duration::from_secs(3);
const LAST_PATIENCE: Duration = Duration::from_secs(30);

/// Signals that a thread raises by what it does, and must not block then.
const RAISED: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// A borrowed thread; it goes back to its place when this is dropped.
pub struct Visit<'a> {
    pid: i32,
    tracee: Tracee,
    memory: &'a File,
    objects: &'a Objects,
    way: Way,
    back: Back,
    /// Where it was.
    registers: Registers,
    xstate: Vec<u8>,
    blocked: u64,
    /// The way back, on its own stack.
    own: Frame,
    /// The same on the stack that was made for it, and where that begins.
    made: Option<(Frame, u64)>,
    /// The number of a file that is open in the process meanwhile.
    open: Option<u64>,
    /// Where its `errno` is, and what it was.
    errno: Option<(u64, [u8; 4])>,
    state: Place,
    /// Signals that came meanwhile although they cannot be blocked.
    later: Vec<i32>,
}

/// Where the thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Where it was found.
    Home,
    /// Back from what it was led to.
    Idle,
    /// In what it was led to.
    Busy,
    /// It comes back by itself, or has ended.
    Lost,
}

impl<'a> Visit<'a> {
    /// Borrows a thread that is stopped at a safe point, by this signal.
    ///
    /// # Errors
    ///
    /// It has ended; no memory for a stack; something is missing in the C library.
    pub fn begin(
        pid: i32,
        (tracee, signal): (Tracee, i32),
        memory: &'a File,
        objects: &'a Objects,
    ) -> Result<Visit<'a>, Error> {
        let Some(way) = objects.gadgets.way() else {
            return Err(Error::failed("its C library is of a kind that prof does not know"));
        };
        let Some(tid) = locks::inner_tid(pid, tracee.tid) else {
            return Err(Error::failed("it ended meanwhile"));
        };
        let back = Back { tid, signal };
        let (registers, xstate) = (tracee.registers().map_err(failed)?, tracee.xstate());
        let (xstate, blocked) = (xstate.map_err(failed)?, tracee.blocked().map_err(failed)?);
        let own = Frame::below(
            registers.rsp,
            &Context { registers: &restart::by_itself(&registers), xstate: &xstate, blocked },
            way,
            back,
            Undo { call: libc::SYS_munmap, second: STACK },
        );
        memory.write_all_at(&own.bytes, own.entry).map_err(failed)?;
        let (state, made, open, errno, later) = (Place::Home, None, None, None, Vec::new());
        let mut visit = Visit {
            pid,
            tracee,
            memory,
            objects,
            way,
            back,
            registers,
            xstate,
            blocked,
            own,
            made,
            open,
            errno,
            state,
            later,
        };
        visit.make_stack()?;
        Ok(visit)
    }

    /// Gives the thread a stack, and notes its `errno`.
    fn make_stack(&mut self) -> Result<(), Error> {
        let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        let flags = kind | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let arguments = [0, STACK, protection as u64, flags as u64, u64::MAX, 0];
        let base = self.makes(libc::SYS_mmap, arguments)?;
        // From there, it goes on to what gives the stack back.
        let registers = self.own.undoing(self.way, &self.registers);
        let blocked = self.blocks_meanwhile();
        let context = Context { registers: &registers, xstate: &self.xstate, blocked };
        let undo = Undo { call: libc::SYS_close, second: 0 };
        let frame = Frame::below(base + STACK, &context, self.way, self.back, undo);
        self.memory.write_all_at(&frame.bytes, frame.entry).map_err(failed)?;
        self.made = Some((frame, base));
        if let Some((errno_location, _)) = self.objects.symbol("__errno_location") {
            let at = self.call(errno_location, &[])?;
            let mut errno = [0; 4];
            self.memory.read_exact_at(&mut errno, at).map_err(failed)?;
            self.errno = Some((at, errno));
        }
        Ok(())
    }

    /// What it blocks while it is borrowed.
    fn blocks_meanwhile(&self) -> u64 {
        let raised = RAISED.iter().chain([&self.back.signal]);
        raised.fold(u64::MAX, |mask, signal| mask & !(1 << (signal - 1)))
    }

    /// Makes a system call that is undone when the thread goes back, whoever sees to that.
    fn makes(&mut self, call: libc::c_long, arguments: [u64; 6]) -> Result<u64, Error> {
        let at = self.frame().made;
        let result = self.lead(self.way.syscall, call as u64, arguments, at)?;
        match result as i64 {
            error @ -4095..0 => Err(failed(io::Error::from_raw_os_error(-error as i32))),
            _ => Ok(result),
        }
    }

    /// Calls a function with up to six numbers.
    ///
    /// # Errors
    ///
    /// The thread does not come back from it.
    pub fn call(&mut self, function: u64, arguments: &[u64]) -> Result<u64, Error> {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        self.lead(function, 0, all, self.frame().slot)
    }

    fn frame(&self) -> &Frame {
        self.made.as_ref().map_or(&self.own, |made| &made.0)
    }

    /// Puts a text, of less than a page, where the thread can read it until the next one is put
    /// there.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn text(&mut self, text: &str) -> Result<u64, Error> {
        let base = self.made.as_ref().map_or(0, |made| made.1);
        self.memory.write_all_at(&[text.as_bytes(), &[0]].concat(), base).map_err(failed)?;
        Ok(base)
    }

    /// Reads a text of the target's.
    pub fn read_text(&self, at: u64) -> String {
        let mut bytes = [0; 512];
        let length = self.memory.read_at(&mut bytes, at).unwrap_or(0);
        let end = bytes[..length].iter().position(|b| *b == 0).unwrap_or(length);
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    /// A file in the memory of the target, with this name and content, open there by the number
    /// and here as well. It is closed there when the thread goes back, or by [`Visit::close`].
    ///
    /// # Errors
    ///
    /// It cannot be made or written; there is one already.
    pub fn memory_file(&mut self, name: &str, content: &[u8]) -> Result<(u64, File), Error> {
        if self.open.is_some() {
            return Err(Error::failed("only one file may be open at a time"));
        }
        let name = self.text(name)?;
        let flags = u64::from(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        let fd = self.makes(libc::SYS_memfd_create, [name, flags, 0, 0, 0, 0])?;
        self.open = Some(fd);
        let path = format!("/proc/{}/fd/{fd}", self.pid);
        let file = File::options().read(true).write(true).open(path);
        let written = file.and_then(|mut file| file.write_all(content).map(|()| file));
        written.map(|file| (fd, file)).map_err(failed)
    }

    /// Closes the file that it has made.
    ///
    /// # Errors
    ///
    /// The thread does not come back from it.
    pub fn close(&mut self) -> Result<(), Error> {
        match self.open.take() {
            Some(_) => self.undo(),
            None => Ok(()),
        }
    }

    /// Undoes what the frame has to undo, once.
    fn undo(&mut self) -> Result<(), Error> {
        let frame = self.frame();
        let (undone, made) = (frame.undone, frame.made);
        let registers = frame.undoing(self.way, &self.registers);
        self.tracee.set_registers(&registers).map_err(failed)?;
        self.state = Place::Busy;
        self.wait_for_return(undone)?;
        self.state = Place::Idle;
        self.memory.write_all_at(&NOTHING.to_le_bytes(), made).map_err(failed)
    }

    /// What `dlopen` has to say when it has failed.
    pub fn loader_error(&mut self) -> Option<String> {
        let (dlerror, _) = self.objects.symbol("dlerror")?;
        let at = self.call(dlerror, &[]).ok().filter(|at| *at != 0)?;
        Some(self.read_text(at))
    }

    /// Leads the thread to some code, and waits until it has come back with a result, which it leaves
    /// at `slot`.
    fn lead(&mut self, to: u64, rax: u64, arguments: [u64; 6], slot: u64) -> Result<u64, Error> {
        let frame = self.frame();
        let (entry, end) = (frame.entry, frame.end);
        let at_slot = slot.wrapping_add_signed(-i64::from(self.way.displacement));
        let [rdi, rsi, rdx, fourth, r8, r9] = arguments;
        /// Only that interrupts are enabled, as they always are.
        const FLAGS: u64 = 0x202;
        let registers = Registers {
            rip: to,
            rax,
            rdi,
            rsi,
            rdx,
            r8,
            r9,
            // The fourth argument of a function, and of a system call.
            rcx: fourth,
            r10: fourth,
            rsp: entry,
            rbx: at_slot,
            rbp: at_slot,
            r12: at_slot,
            r13: at_slot,
            r14: at_slot,
            r15: at_slot,
            eflags: FLAGS,
            orig_rax: u64::MAX,
            ..self.registers
        };
        self.tracee.set_registers(&registers).map_err(failed)?;
        if self.state == Place::Home {
            // In this order: from here on, the frame brings back what is changed.
            self.tracee.set_xstate(&initial(&self.xstate)).map_err(failed)?;
            self.tracee.set_blocked(self.blocks_meanwhile()).map_err(failed)?;
        }
        self.state = Place::Busy;
        self.wait_for_return(end)?;
        self.state = Place::Idle;
        let mut result = [0; 8];
        self.memory.read_exact_at(&mut result, slot).map_err(failed)?;
        Ok(u64::from_le_bytes(result))
    }

    /// Lets the thread run until it stops itself with this stack pointer.
    fn wait_for_return(&mut self, end: u64) -> Result<(), Error> {
        let began = Instant::now();
        let mut until = began + PATIENCE;
        loop {
            self.tracee.go(0).map_err(|e| self.lost(e))?;
            match self.tracee.wait(until).map_err(|e| self.lost(e))? {
                Some(Stop::Signal(signal)) => {
                    let now = self.tracee.registers().map_err(|e| self.lost(e))?;
                    if signal == self.back.signal && now.rsp == end {
                        return Ok(());
                    }
                    if self.tracee.is_fault() {
                        return Err(Error::failed(format!(
                            "what prof called in it failed with signal {signal} at {:#x}; the \
                             thread is back where it was, but may have left something locked",
                            now.rip
                        )));
                    }
                    self.later.push(signal);
                }
                Some(Stop::Interrupt | Stop::Group | Stop::Other) => {}
                None => until = self.look_why(began)?,
            }
        }
    }

    /// It takes long: it is taken away from a lock that it waits for, if it holds none itself.
    /// Returns until when it is waited for otherwise.
    fn look_why(&mut self, began: Instant) -> Result<Instant, Error> {
        self.tracee.interrupt().map_err(|e| self.lost(e))?;
        let stopped = self.tracee.wait(Instant::now() + PATIENCE).map_err(|e| self.lost(e))?;
        let waited = began.elapsed();
        if stopped == Some(Stop::Interrupt) && self.waits_in_vain() {
            return Err(Error::failed(format!(
                "the dynamic loader was held by another thread for {:.0} s",
                waited.as_secs_f64()
            )));
        }
        if waited > LAST_PATIENCE {
            self.state = Place::Lost;
            return Err(Error::failed(format!(
                "what prof called in thread {} has not come back for {:.0} s; the thread does when \
                 it has",
                self.tracee.tid,
                waited.as_secs_f64()
            )));
        }
        Ok(Instant::now() + PATIENCE)
    }

    /// It waits for a lock of the loader's, and holds none.
    fn waits_in_vain(&self) -> bool {
        let Ok(now) = self.tracee.registers() else { return false };
        let Some((address, size)) = self.objects.symbol("_rtld_global") else { return false };
        let in_futex = now.orig_rax == libc::SYS_futex as u64 && restart::is_cut_short(&now);
        let mut owners = locks::owners(self.memory, address, size).into_iter();
        in_futex
            && (address..address + size).contains(&now.rdi)
            && owners.all(|owner| owner != self.back.tid)
    }

    fn lost(&mut self, error: io::Error) -> Error {
        self.state = Place::Lost;
        failed(error)
    }

    /// Gives the stack back, and lets the thread go on where it was.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub fn end(mut self) -> Result<(), Error> {
        self.go_home()
    }

    fn go_home(&mut self) -> Result<(), Error> {
        if matches!(self.state, Place::Home | Place::Lost) {
            return Ok(());
        }
        // Where prof cannot, nothing was open.
        self.close()?;
        if self.made.take().is_some() {
            self.undo()?;
        }
        if let Some((at, errno)) = self.errno {
            self.memory.write_all_at(&errno, at).ok();
        }
        let tracee = &mut self.tracee;
        tracee.set_xstate(&self.xstate).map_err(failed)?;
        tracee.set_blocked(self.blocked).map_err(failed)?;
        tracee.set_registers(&restart::by_itself(&self.registers)).map_err(failed)?;
        self.state = Place::Home;
        for signal in self.later.drain(..) {
            super::trace::send(self.pid, self.tracee.tid, signal);
        }
        Ok(())
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.go_home().ok();
    }
}

/// The registers beyond the general ones as a function finds them at its start: as they are when a
/// program is.
fn initial(xstate: &[u8]) -> Vec<u8> {
    const CONTROL: [u8; 2] = 0x37f_u16.to_le_bytes();
    const MXCSR: [u8; 4] = 0x1f80_u32.to_le_bytes();
    /// What is in use.
    const IN_USE: std::ops::Range<usize> = 512..520;
    let mut clean = xstate.to_vec();
    clean[..2].copy_from_slice(&CONTROL);
    clean[24..28].copy_from_slice(&MXCSR);
    clean[IN_USE].fill(0);
    clean
}

fn failed(error: io::Error) -> Error {
    Error::failed(match error.raw_os_error() {
        Some(libc::ESRCH) => "it ended meanwhile".to_owned(),
        _ => error.to_string(),
    })
}
