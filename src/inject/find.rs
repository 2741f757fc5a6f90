//! Finds a thread that may be borrowed, and stops it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::frame::Frame;
use super::judge::{Seen, Unsafe, judge, may_be_interrupted};
use super::objects::Objects;
use super::refuse;
use super::restart;
use super::trace::{Registers, Stop, Tracee};
use crate::os;
use crate::process::{ProcessTable, procfs};
use crate::sampler::Error;
use crate::sampler::record::{AllRegs, Regs, UserStack};
use crate::unwind::Unwinder;

/// How long a thread is sought, and how long one that was asked to stop is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
const STOPS_WITHIN: Duration = Duration::from_millis(20);

/// Between two looks at all threads, at first and at most.
const PAUSE: Duration = Duration::from_millis(3);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// What is mapped is read again so often.
const STALE: Duration = Duration::from_millis(300);

/// Threads that are looked at in one round: those that sleep, and those that have to be stopped.
const SLEEPERS: usize = 64;
const RUNNERS: usize = 4;

/// A thread that is in the allocator or the C library is led out of it for so long at most, one
/// instruction after the other.
const LED: Duration = Duration::from_millis(10);

/// Bytes of its stack that are copied at once.
const COPY: usize = 64 << 10;

/// Looks for a thread.
pub struct Finder {
    pid: i32,
    /// The target's memory.
    pub memory: File,
    table: ProcessTable,
    unwinder: Unwinder,
    /// What is mapped.
    pub objects: Objects,
    read: Instant,
    /// Where the last thread was that was not safe.
    last: Option<Unsafe>,
    /// Where it returns to from there, into code of the program's, if that is known.
    returns_to: Option<u64>,
    /// The next round begins with this thread.
    turn: usize,
}

/// A thread that stands still at a safe point.
pub struct Found {
    /// The thread.
    pub tracee: Tracee,
    /// Since when.
    pub since: Instant,
}

impl Finder {
    /// Reads what is mapped in a process.
    ///
    /// # Errors
    ///
    /// It has ended, or is not for this user to trace; it has nothing that could load a library.
    pub fn new(pid: i32) -> Result<Finder, Error> {
        refuse::check_state(pid)?;
        let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"));
        let memory = memory.map_err(|e| refuse::refused(pid, &e))?;
        let (table, objects) = look(pid)?;
        let (unwinder, read) = (Unwinder::default(), Instant::now());
        Ok(Finder {
            pid,
            memory,
            table,
            unwinder,
            objects,
            read,
            last: None,
            returns_to: None,
            turn: 0,
        })
    }

    /// Stops a thread at a safe point, if there is one within this time (`None`: some seconds).
    ///
    /// # Errors
    ///
    /// There is none; the process has ended, or may not be traced.
    pub fn stop_one(&mut self, patience: Option<Duration>) -> Result<Found, Error> {
        let (began, patience) = (Instant::now(), patience.unwrap_or(PATIENCE));
        let mut pause = PAUSE;
        loop {
            refuse::check_state(self.pid)?;
            if self.read.elapsed() > STALE {
                (self.table, self.objects) = look(self.pid)?;
                (self.unwinder, self.read) = (Unwinder::default(), Instant::now());
            }
            if let Some(found) = self.round()? {
                return Ok(found);
            }
            if began.elapsed() > patience {
                let place = self.last.map_or("not to be stopped", Unsafe::place);
                return Err(Error::other(format!(
                    "none of its threads came to a point where it could load a library within \
                     {patience:?}; the last one was {place}"
                )));
            }
            std::thread::sleep(pause);
            pause = (pause * 5 / 4).min(LONGEST_PAUSE);
        }
    }

    /// Looks at threads once: first at those that sleep, which costs them nothing.
    fn round(&mut self) -> Result<Option<Found>, Error> {
        let mut tids = procfs::threads(self.pid).map_err(|e| refuse::refused(self.pid, &e))?;
        let threads = tids.len().max(1);
        tids.rotate_left(self.turn % threads);
        self.turn = self.turn.wrapping_add(RUNNERS);
        let (mut awake, mut looked_at) = (Vec::new(), 0);
        for &tid in &tids {
            match procfs::asleep_at(self.pid, tid) {
                Ok(Some(asleep)) if looked_at < SLEEPERS => {
                    looked_at += 1;
                    match self.sleeps_safely(tid, asleep) {
                        Ok(()) => {
                            if let Some(found) = self.try_stop(tid)? {
                                return Ok(Some(found));
                            }
                        }
                        // With all registers, perhaps, which are known once it is stopped.
                        Err(Unsafe::UnknownStack) => awake.push(tid),
                        Err(_) => {}
                    }
                }
                Ok(None) => awake.push(tid),
                _ => {}
            }
        }
        for tid in awake.into_iter().take(RUNNERS) {
            if self.runs_safely(tid)?
                && let Some(found) = self.try_stop(tid)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn sleeps_safely(&mut self, tid: i32, asleep: procfs::Asleep) -> Result<(), Unsafe> {
        let procfs::Asleep { call, ip, sp } = asleep;
        let verdict = match sp != 0 && call.is_some_and(may_be_interrupted) {
            true => {
                let copy = self.copy(sp);
                self.judge(tid, Regs { ip, sp, bp: 0 }, AllRegs::default(), &copy)
            }
            false => Err(Unsafe::SystemCall),
        };
        self.last = verdict.err().or(self.last);
        verdict
    }

    /// Stops a thread if it is at a safe point, else lets it go on.
    fn try_stop(&mut self, tid: i32) -> Result<Option<Found>, Error> {
        let Some(mut found) = self.stop(tid)? else { return Ok(None) };
        let mut verdict = self.is_safe(&found.tracee);
        if verdict.is_err() && self.lead_out(&mut found) {
            verdict = self.is_safe(&found.tracee);
        }
        match verdict {
            Ok(()) => Ok(Some(found)),
            Err(why) => {
                self.last = Some(why);
                Ok(None)
            }
        }
    }

    /// Lets a thread go on, one instruction after the other, until it returns from the allocator or
    /// the C library to the program. There are programs that are hardly ever anywhere else.
    fn lead_out(&mut self, found: &mut Found) -> bool {
        const SYSCALL: u64 = 0x050f;
        let Some(to) = self.returns_to else { return false };
        let until = Instant::now() + LED;
        let Ok(Registers { rsp: from, .. }) = found.tracee.registers() else { return false };
        while Instant::now() < until {
            let Ok(registers) = found.tracee.registers() else { return false };
            if registers.rip == to && registers.rsp > from {
                return true;
            }
            // It may sleep in a system call, or be in one, and must not be disturbed there.
            let next = self.word(registers.rip).map(|code| code & 0xffff);
            let called = registers.orig_rax as i64 >= 0;
            if called || next.is_none_or(|code| code == SYSCALL) {
                return false;
            }
            if !found.tracee.step(until).is_ok_and(|stepped| stepped) {
                return false;
            }
        }
        false
    }

    /// A thread runs where it would be safe, by a quick look at it. What it takes to know that is
    /// read now, so that it need not stand still for it when it is stopped.
    fn runs_safely(&mut self, tid: i32) -> Result<bool, Error> {
        let Some(Found { tracee, .. }) = self.stop(tid)? else { return Ok(false) };
        let Ok(registers) = tracee.registers() else { return Ok(false) };
        let copy = self.copy(registers.rsp);
        drop(tracee);
        let all = all_of(&registers);
        let verdict = self.judge_copy(tid, AllRegs::new(&all), &registers, &copy);
        self.last = verdict.err().or(self.last);
        let led = matches!(verdict, Err(Unsafe::Allocator | Unsafe::CLibrary));
        Ok(verdict.is_ok() || (led && self.returns_to.is_some()))
    }

    /// Stops a thread.
    fn stop(&mut self, tid: i32) -> Result<Option<Found>, Error> {
        if !refuse::is_unconfined(self.pid, tid) {
            return Ok(None);
        }
        let mut tracee = match Tracee::seize(tid) {
            Ok(tracee) => tracee,
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
            Err(e) => return Err(refuse::refused(self.pid, &e)),
        };
        let since = Instant::now();
        if tracee.interrupt().is_err() {
            return Ok(None);
        }
        loop {
            match tracee.wait(since + STOPS_WITHIN) {
                Ok(Some(Stop::Interrupt)) => break,
                // Its handler, if it has one, is on the stack then.
                Ok(Some(Stop::Signal(signal))) => {
                    if tracee.go(signal).is_err() {
                        return Ok(None);
                    }
                }
                _ => return Ok(None),
            }
        }
        // Whatever becomes of it, it shall not see that it was stopped.
        if let Ok(registers) = tracee.registers()
            && may_be_interrupted(registers.orig_rax)
            && tracee.set_registers(&restart::for_the_kernel(&registers)).is_err()
        {
            return Ok(None);
        }
        Ok(Some(Found { tracee, since }))
    }

    /// Judges a thread that stands still.
    fn is_safe(&mut self, tracee: &Tracee) -> Result<(), Unsafe> {
        let registers = tracee.registers().map_err(|_| Unsafe::Registers)?;
        let xstate = tracee.xstate().map_err(|_| Unsafe::Registers)?;
        self.check_registers(tracee, &registers)?;
        self.check_room(&registers, Frame::room(&xstate))?;
        let copy = self.copy(registers.rsp);
        let all = all_of(&registers);
        self.judge_copy(tracee.tid, AllRegs::new(&all), &registers, &copy)
    }

    fn check_registers(&self, tracee: &Tracee, registers: &Registers) -> Result<(), Unsafe> {
        /// The segment of 64-bit code (`__USER_CS`).
        const LONG_MODE: u64 = 0x33;
        const SYSCALL: u64 = 0x050f;
        if registers.cs != LONG_MODE {
            return Err(Unsafe::Registers);
        }
        if restart::is_cut_short(registers) {
            let made_by = self.word(registers.rip.wrapping_sub(2)).map(|code| code & 0xffff);
            if made_by != Some(SYSCALL) || !may_be_interrupted(registers.orig_rax) {
                return Err(Unsafe::SystemCall);
            }
        }
        // C libraries keep the thread's own address where fs points; a thread without has not been
        // made by one.
        if self.word(registers.fs_base) != Some(registers.fs_base) {
            return Err(Unsafe::UnknownStack);
        }
        // In a restartable sequence, the kernel would not notice that the thread was elsewhere.
        let sequence = tracee.rseq().and_then(|rseq| self.word(rseq + 8));
        if sequence.unwrap_or(0) != 0 { Err(Unsafe::Registers) } else { Ok(()) }
    }

    /// There is so much room below its stack pointer.
    fn check_room(&self, registers: &Registers, room: u64) -> Result<(), Unsafe> {
        let mut bytes = vec![0; room as usize];
        let start = registers.rsp.checked_sub(room).ok_or(Unsafe::UnknownStack)?;
        match os::read_memory(self.pid, start, &mut bytes) {
            Ok(length) if length == bytes.len() => Ok(()),
            _ => Err(Unsafe::UnknownStack),
        }
    }

    fn word(&self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.memory.read_exact_at(&mut word, address).ok()?;
        Some(u64::from_ne_bytes(word))
    }

    /// The stack from here on.
    fn copy(&self, sp: u64) -> Vec<u8> {
        let mut copy = vec![0; COPY];
        let length = os::read_memory(self.pid, sp, &mut copy).unwrap_or(0);
        copy.truncate(length);
        copy
    }

    fn judge_copy(
        &mut self,
        tid: i32,
        all: AllRegs<'_>,
        registers: &Registers,
        copy: &[u8],
    ) -> Result<(), Unsafe> {
        let regs = Regs { ip: registers.rip, sp: registers.rsp, bp: registers.rbp };
        self.judge(tid, regs, all, copy)
    }

    fn judge(
        &mut self,
        tid: i32,
        regs: Regs,
        all: AllRegs<'_>,
        bytes: &[u8],
    ) -> Result<(), Unsafe> {
        let user = UserStack::Native { regs, all, bytes, full: bytes.len() == COPY };
        let now = os::monotonic_nanos();
        self.unwinder.look(now);
        let (process, images) = self.table.split(self.pid);
        let mut frames = Vec::new();
        let whose = (self.pid, tid, now);
        let end = self.unwinder.unwind(whose, &process.regions, images, user, &[], &mut frames);
        let objects = &self.objects;
        let seen = frames.iter().map(|frame| match frame.place.image {
            None => Seen::Program,
            Some(image) => Seen::of(objects.role(image), || objects.harmless(frame.address)),
        });
        let stack: Vec<Seen> = seen.collect();
        let program = stack.iter().position(|seen| *seen == Seen::Program);
        self.returns_to = program.filter(|&at| at > 0).map(|at| frames[at].address);
        judge(&stack, end, objects.program_allocates)
    }
}

/// In the kernel's order, see [`AllRegs`].
fn all_of(r: &Registers) -> Vec<u8> {
    let words = [
        r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.rip, r.r8, r.r9, r.r10, r.r11,
        r.r12, r.r13, r.r14, r.r15,
    ];
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn look(pid: i32) -> Result<(ProcessTable, Objects), Error> {
    let mut table = ProcessTable::default();
    let objects = Objects::read(&mut table, pid);
    refuse::check_objects(&objects)?;
    Ok((table, objects))
}
