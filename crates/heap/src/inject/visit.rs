//! System calls and function calls of a borrowed thread.
//!
//! At any moment, the thread would return by itself if prof died: before it leaves its original
//! code, a signal frame is on its stack, and all code that it is led to returns into that frame.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::frame::{Back, Context, Destination, NOTHING, SignalFrame, Target, Undo};
use super::locks;
use super::objects::Objects;
use super::trace::{Stop, Tracee};
use crate::arch::{self, Registers, ReturnPath};
use sys::Error;

/// Size of the stack for functions: the thread's own may be small.
const STACK: u64 = 256 << 10;

/// Time that a function may take before its wait is examined, and before it is left to return by
/// itself.
const PATIENCE: Duration = Duration::from_secs(3);
const LAST_PATIENCE: Duration = Duration::from_secs(30);

/// Signals that a thread raises by its own actions, and must not block then.
const RAISED: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// A borrowed thread; it returns to its original code when this is dropped.
pub struct Visit<'a> {
    pid: i32,
    tracee: Tracee,
    memory: &'a File,
    objects: &'a Objects,
    way: ReturnPath,
    back: Back,
    /// Its original registers.
    registers: Registers,
    others: Vec<u8>,
    blocked: u64,
    /// The way back, on its own stack.
    own: SignalFrame,
    /// The same on the stack that was created for it, and the address of that stack.
    made: Option<(SignalFrame, u64)>,
    /// Descriptor that is temporarily open in the process.
    open: Option<u64>,
    /// Address and original value of its `errno`.
    errno: Option<(u64, [u8; 4])>,
    state: VisitState,
    /// Signals that arrived although they cannot be blocked.
    later: Vec<i32>,
}

/// State of the borrowed thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VisitState {
    /// At its original code.
    Home,
    /// Back from a call.
    Idle,
    /// In a call.
    Busy,
    /// It returns by itself, or has ended.
    Lost,
}

impl<'a> Visit<'a> {
    /// Borrows a thread that this signal has stopped at a safe point.
    ///
    /// # Errors
    ///
    /// It has ended; no memory for a stack; a part of the C library is missing.
    pub fn begin(
        pid: i32,
        tracee: Tracee,
        signal: i32,
        memory: &'a File,
        objects: &'a Objects,
    ) -> Result<Visit<'a>, Error> {
        let Some(way) = objects.gadgets.way() else {
            return Err(Error::failed("its C library is not supported"));
        };
        let Some(tid) = locks::inner_tid(pid, tracee.tid) else {
            return Err(Error::failed("it has ended"));
        };
        let back = Back { tid, signal };
        let registers = tracee.registers().map_err(failed)?;
        let others = tracee.other_registers().map_err(failed)?;
        let blocked = tracee.blocked().map_err(failed)?;
        let own = arch::frame_below(
            arch::unwound(&registers).sp,
            &Context { registers: &arch::to_continue(&registers), others: &others, blocked },
            way,
            back,
            Undo { call: libc::SYS_munmap, second: STACK },
        );
        memory.write_all_at(&own.bytes, own.entry).map_err(failed)?;
        let mut visit = Visit {
            pid,
            tracee,
            memory,
            objects,
            way,
            back,
            registers,
            others,
            blocked,
            own,
            made: None,
            open: None,
            errno: None,
            state: VisitState::Home,
            later: Vec::new(),
        };
        visit.make_stack()?;
        Ok(visit)
    }

    /// Creates a stack for the thread, and saves its `errno`.
    fn make_stack(&mut self) -> Result<(), Error> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE;
        let flags = kind | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let arguments = [0, STACK, protection as u64, flags as u64, u64::MAX, 0];
        let base = self.make_call(libc::SYS_mmap, arguments)?;
        // From there, it continues to the code that removes the stack.
        let registers = arch::undoing(&self.own, self.way, &self.registers);
        let blocked = self.blocked_while_borrowed();
        let context = Context { registers: &registers, others: &self.others, blocked };
        let undo = Undo { call: libc::SYS_close, second: 0 };
        let frame = arch::frame_below(base + STACK, &context, self.way, self.back, undo);
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

    /// Signals that it blocks while it is borrowed.
    fn blocked_while_borrowed(&self) -> u64 {
        let raised = RAISED.iter().chain([&self.back.signal]);
        raised.fold(u64::MAX, |mask, signal| mask & !(1 << (signal - 1)))
    }

    /// Makes a system call that is undone when the thread returns, with or without prof.
    fn make_call(&mut self, call: libc::c_long, arguments: [u64; 6]) -> Result<u64, Error> {
        let at = self.frame().made;
        let result = self.lead_to(Target::Call(call), arguments, at)?;
        match result as i64 {
            error @ -4095..0 => Err(failed(io::Error::from_raw_os_error(-error as i32))),
            _ => Ok(result),
        }
    }

    /// Calls a function with up to six numbers.
    ///
    /// # Errors
    ///
    /// The thread does not return from it.
    pub fn call(&mut self, function: u64, arguments: &[u64]) -> Result<u64, Error> {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        self.lead_to(Target::Function(function), all, self.frame().slot)
    }

    fn frame(&self) -> &SignalFrame {
        self.made.as_ref().map_or(&self.own, |made| &made.0)
    }

    /// Writes a text, of less than a page, where the thread can read it until the next one is
    /// written.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn text(&mut self, text: &str) -> Result<u64, Error> {
        let base = self.made.as_ref().map_or(0, |made| made.1);
        self.memory.write_all_at(&[text.as_bytes(), &[0]].concat(), base).map_err(failed)?;
        Ok(base)
    }

    /// Reads a text of the target.
    pub fn read_text(&self, at: u64) -> String {
        let mut bytes = [0; 512];
        let length = self.memory.read_at(&mut bytes, at).unwrap_or(0);
        let end = bytes[..length].iter().position(|b| *b == 0).unwrap_or(length);
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    /// Creates a memory file in the target with this name and content, open there under the number
    /// and here as well. It is closed there when the thread returns, or by [`Visit::close`].
    ///
    /// # Errors
    ///
    /// It cannot be created or written; there is one already.
    pub fn memory_file(&mut self, name: &str, content: &[u8]) -> Result<(u64, File), Error> {
        if self.open.is_some() {
            return Err(Error::failed("only one file may be open at a time"));
        }
        let name = self.text(name)?;
        let flags = u64::from(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        let fd = self.make_call(libc::SYS_memfd_create, [name, flags, 0, 0, 0, 0])?;
        self.open = Some(fd);
        let path = format!("/proc/{}/fd/{fd}", self.pid);
        let file = File::options().read(true).write(true).open(path);
        let written = file.and_then(|mut file| file.write_all(content).map(|()| file));
        written.map(|file| (fd, file)).map_err(failed)
    }

    /// Closes the memory file.
    ///
    /// # Errors
    ///
    /// The thread does not return from it.
    pub fn close(&mut self) -> Result<(), Error> {
        match self.open.take() {
            Some(_) => self.undo(),
            None => Ok(()),
        }
    }

    /// Performs the undo of the frame, once.
    fn undo(&mut self) -> Result<(), Error> {
        let frame = self.frame();
        let undone = frame.undone;
        let made = frame.made;
        let registers = arch::undoing(frame, self.way, &self.registers);
        self.tracee.set_registers(&registers).map_err(failed)?;
        self.state = VisitState::Busy;
        self.wait_for_return(undone)?;
        self.state = VisitState::Idle;
        self.memory.write_all_at(&NOTHING.to_le_bytes(), made).map_err(failed)
    }

    /// Error message of a failed `dlopen`.
    pub fn loader_error(&mut self) -> Option<String> {
        let (dlerror, _) = self.objects.symbol("dlerror")?;
        let at = self.call(dlerror, &[]).ok().filter(|at| *at != 0)?;
        Some(self.read_text(at))
    }

    /// Leads the thread to some code, and waits until it has returned with a result, which it
    /// stores at `slot`.
    fn lead_to(&mut self, to: Target, arguments: [u64; 6], slot: u64) -> Result<u64, Error> {
        let frame = self.frame();
        let entry = frame.entry;
        let end = frame.end;
        let destination = Destination { to, arguments, entry, slot };
        let registers = arch::led_to(destination, self.way, &self.registers);
        self.tracee.set_registers(&registers).map_err(failed)?;
        if self.state == VisitState::Home {
            // In this order: from here on, the frame restores changes.
            self.tracee.set_other_registers(&arch::initial(&self.others)).map_err(failed)?;
            self.tracee.set_blocked(self.blocked_while_borrowed()).map_err(failed)?;
        }
        self.state = VisitState::Busy;
        self.wait_for_return(end)?;
        self.state = VisitState::Idle;
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
                    let now = arch::unwound(&now);
                    if signal == self.back.signal && now.sp == end {
                        return Ok(());
                    }
                    if self.tracee.is_fault() {
                        return Err(Error::failed(format!(
                            "what prof called in it failed with signal {signal} at {:#x}; the \
                             thread is back where it was, but may have left something locked",
                            now.ip
                        )));
                    }
                    self.later.push(signal);
                }
                Some(Stop::Interrupt | Stop::Group | Stop::Other) => {}
                None => until = self.examine_wait(began)?,
            }
        }
    }

    /// Examines a long call: the thread is withdrawn from a lock that it waits for, if it holds
    /// none itself. Returns the time limit otherwise.
    fn examine_wait(&mut self, began: Instant) -> Result<Instant, Error> {
        self.tracee.interrupt().map_err(|e| self.lost(e))?;
        let stopped = self.tracee.wait(Instant::now() + PATIENCE).map_err(|e| self.lost(e))?;
        let waited = began.elapsed();
        if stopped == Some(Stop::Interrupt) && self.waits_for_loader() {
            return Err(Error::failed(format!(
                "the dynamic loader was held by another thread for {:.0} s",
                waited.as_secs_f64()
            )));
        }
        if waited > LAST_PATIENCE {
            self.state = VisitState::Lost;
            return Err(Error::failed(format!(
                "the function that prof called in thread {} has not returned for {:.0} s; the \
                 thread continues when it does",
                self.tracee.tid,
                waited.as_secs_f64()
            )));
        }
        Ok(Instant::now() + PATIENCE)
    }

    /// True if it waits for a lock of the loader, and holds none.
    fn waits_for_loader(&self) -> bool {
        let Ok(now) = self.tracee.registers() else { return false };
        let Some((address, size)) = self.objects.symbol("_rtld_global") else { return false };
        let mut owners = locks::owners(self.memory, address, size).into_iter();
        arch::futex_of(&now).is_some_and(|futex| (address..address + size).contains(&futex))
            && owners.all(|owner| owner != self.back.tid)
    }

    fn lost(&mut self, error: io::Error) -> Error {
        self.state = VisitState::Lost;
        failed(error)
    }

    /// Removes the stack, and lets the thread continue its original code.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub fn end(mut self) -> Result<(), Error> {
        self.return_home()
    }

    fn return_home(&mut self) -> Result<(), Error> {
        if matches!(self.state, VisitState::Home | VisitState::Lost) {
            return Ok(());
        }
        // If prof cannot, nothing was open.
        self.close()?;
        if self.made.take().is_some() {
            self.undo()?;
        }
        if let Some((at, errno)) = self.errno {
            self.memory.write_all_at(&errno, at).ok();
        }
        let tracee = &mut self.tracee;
        tracee.set_other_registers(&self.others).map_err(failed)?;
        tracee.set_blocked(self.blocked).map_err(failed)?;
        tracee.set_registers(&arch::to_continue(&self.registers)).map_err(failed)?;
        self.state = VisitState::Home;
        for signal in self.later.drain(..) {
            super::trace::send(self.pid, self.tracee.tid, signal);
        }
        Ok(())
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.return_home().ok();
    }
}

fn failed(error: io::Error) -> Error {
    Error::failed(match error.raw_os_error() {
        Some(libc::ESRCH) => "it has ended".to_owned(),
        _ => error.to_string(),
    })
}
