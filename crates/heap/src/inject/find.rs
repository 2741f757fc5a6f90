//! Finds a thread that may be borrowed.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::frame::Frame as SignalFrame;
use super::judge::{Seen, Unsafe, judge};
use super::objects::{Objects, Role};
use super::refuse;
use super::restart;
use super::stops::{StopEvents, Stopped, Stops};
use super::trace::{Registers, Tracee};
use sys::Error;
use sys::os;
use sys::record::{AllRegs, Regs, Rest, UserStack};
use sys::{processes::ProcessTable, procfs};
use unwind::{Frame, Unwinder};

/// Between two threads that are looked at, at first and at most: it is their time.
const PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(3);

/// What is mapped is read again so often.
const STALE: Duration = Duration::from_millis(300);

/// Bytes of its stack that are copied at once.
const COPY: usize = 64 << 10;

/// Sleeping threads whose stacks are looked at before one is stopped.
const SLEEPERS: usize = 8;

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
    /// What tells executable mappings from others.
    mapped: u64,
    /// A stack has been looked at with this table.
    warm: bool,
    stops: Stops,
    /// Where the last thread was that was not safe.
    last: Option<Unsafe>,
    pause: Duration,
}

impl Finder {
    /// Reads what is mapped in a process.
    ///
    /// # Errors
    ///
    /// It has ended, or is not for this user to trace; it has nothing that could load a library.
    pub fn new(pid: i32, events: &'static dyn StopEvents) -> Result<Finder, Error> {
        refuse::check_state(pid)?;
        let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"));
        let memory = memory.map_err(|e| refuse::refused(pid, &e))?;
        let (mapped, (table, objects)) = (executable(pid), look(pid)?);
        let (unwinder, read) = (Unwinder::default(), Instant::now());
        let (stops, last, pause) = (Stops::new(pid, events)?, None, PAUSE);
        let warm = false;
        let mut finder = Finder {
            pid,
            memory,
            table,
            unwinder,
            objects,
            read,
            mapped,
            warm,
            stops,
            last,
            pause,
        };
        finder.look_at_sleepers();
        Ok(finder)
    }

    /// What threads are stopped by.
    pub fn signal(&self) -> i32 {
        self.stops.signal
    }

    /// A thread is sought from now on.
    pub fn begin(&mut self) {
        (self.last, self.pause) = (None, PAUSE);
        self.stops.begin();
    }

    /// None is sought any more.
    pub fn end(&mut self) {
        self.stops.end();
    }

    /// Why none was found.
    pub fn nobody(&self, patience: Duration) -> Error {
        Error::failed(match self.last {
            Some(last) => format!(
                "none of its threads came to a point where it could load a library within \
                 {patience:?}; the last one was {}",
                last.place()
            ),
            None if self.stops.all_block() => format!(
                "all of its threads blocked the signal that stops them (SIGURG or SIGWINCH) for \
                 {patience:?}"
            ),
            None if self.stops.any_ran => format!(
                "none of its threads could be stopped within {patience:?} without breaking off a \
                 system call"
            ),
            None => format!(
                "none of its threads ran within {patience:?}, and prof does not wake one that \
                 sleeps; try again when it works"
            ),
        })
    }

    /// Stops a thread at a safe point, if there is one until then. The calling thread has to end
    /// after this, see [`Stops::stop_one`].
    ///
    /// # Errors
    ///
    /// The process has ended, or may not be traced.
    pub fn stop_one(&mut self, until: Instant) -> Result<Option<Stopped>, Error> {
        while Instant::now() < until {
            refuse::check_state(self.pid)?;
            self.refresh()?;
            let stopped = self.stops.stop_one(until);
            let Some(stopped) = stopped.map_err(|e| refuse::refused(self.pid, &e))? else {
                return Ok(None);
            };
            let tid = stopped.tracee.tid;
            let verdict = match refuse::is_unconfined(self.pid, tid) {
                true if !self.warm => {
                    self.look_at(stopped);
                    continue;
                }
                true => self.is_safe(&stopped.tracee),
                false => Err(Unsafe::Confined),
            };
            match verdict {
                Ok(()) => return Ok(Some(stopped)),
                Err(why) => self.last = Some(why),
            }
            drop(stopped);
            std::thread::sleep(self.pause);
            self.pause = (self.pause * 5 / 4).min(LONGEST_PAUSE);
        }
        Ok(None)
    }

    /// Reads again what is mapped, if that has changed.
    fn refresh(&mut self) -> Result<(), Error> {
        if self.read.elapsed() < STALE {
            return Ok(());
        }
        self.read = Instant::now();
        let mapped = executable(self.pid);
        if mapped != self.mapped {
            (self.table, self.objects) = look(self.pid)?;
            (self.unwinder, self.mapped, self.warm) = (Unwinder::default(), mapped, false);
            self.look_at_sleepers();
        }
        Ok(())
    }

    /// Looks at stacks of threads that sleep, which they do not notice: what it takes to judge a thread
    /// is read now, so that none need stand still for it.
    fn look_at_sleepers(&mut self) {
        for tid in procfs::threads(self.pid).unwrap_or_default().into_iter().take(SLEEPERS) {
            let asleep = procfs::asleep_at(self.pid, tid);
            if let Ok(Some(procfs::Asleep { ip, sp, .. })) = asleep
                && sp != 0
            {
                let copy = self.copy(sp);
                self.judge(tid, AllRegs::default(), Regs { ip, sp, bp: 0 }, &copy).ok();
                self.warm = true;
            }
        }
    }

    /// The same of a thread that is let go for that.
    fn look_at(&mut self, stopped: Stopped) {
        self.warm = true;
        let Ok(registers) = stopped.tracee.registers() else { return };
        let (tid, copy) = (stopped.tracee.tid, self.copy(registers.rsp));
        drop(stopped);
        self.judge(tid, AllRegs::new(&all_of(&registers)), regs_of(&registers), &copy).ok();
    }

    /// Judges a thread that stands still.
    fn is_safe(&mut self, tracee: &Tracee) -> Result<(), Unsafe> {
        let registers = tracee.registers().map_err(|_| Unsafe::Registers)?;
        let xstate = tracee.xstate().map_err(|_| Unsafe::Registers)?;
        self.check_registers(tracee, &registers)?;
        self.check_room(&registers, SignalFrame::room(&xstate))?;
        let copy = self.copy(registers.rsp);
        let all = all_of(&registers);
        self.judge(tracee.tid, AllRegs::new(&all), regs_of(&registers), &copy)
    }

    fn check_registers(&self, tracee: &Tracee, registers: &Registers) -> Result<(), Unsafe> {
        /// The segment of 64-bit code (`__USER_CS`).
        const LONG_MODE: u64 = 0x33;
        if registers.cs != LONG_MODE {
            return Err(Unsafe::Registers);
        }
        if restart::is_cut_short(registers) {
            return Err(Unsafe::SystemCall);
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

    fn judge(
        &mut self,
        tid: i32,
        all: AllRegs<'_>,
        regs: Regs,
        bytes: &[u8],
    ) -> Result<(), Unsafe> {
        let (full, rest) = (bytes.len() == COPY, Rest::default());
        let user = UserStack::Native { regs, all, bytes, full, rest };
        let (process, images) = self.table.split(self.pid);
        let mut frames = Vec::new();
        let whose = (self.pid, tid);
        let end = self.unwinder.unwind(whose, &process.regions, images, user, &[], &mut frames);
        let objects = &self.objects;
        let role = |frame: &Frame| frame.place.image.map_or(Role::Program, |i| objects.role(i));
        let called = |caller: &Frame| {
            let by_program = caller.kind.is_return() && role(caller) == Role::Program;
            by_program.then(|| objects.calls(&self.memory, caller.address)).flatten()
        };
        let seen = frames.iter().enumerate().map(|(i, frame)| {
            let by_call = || frames.get(i + 1).and_then(called);
            Seen::of(role(frame), || objects.harmless(frame.address).or_else(by_call))
        });
        let stack: Vec<Seen> = seen.collect();
        judge(&stack, end, objects.program_allocates)
    }
}

fn regs_of(r: &Registers) -> Regs {
    Regs { ip: r.rip, sp: r.rsp, bp: r.rbp }
}

/// In the kernel's order, see [`AllRegs`].
fn all_of(r: &Registers) -> Vec<u8> {
    let words = [
        r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.rip, r.r8, r.r9, r.r10, r.r11,
        r.r12, r.r13, r.r14, r.r15,
    ];
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// What is mapped executable, in a word.
fn executable(pid: i32) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    let executable = maps.lines().filter(|l| l.split(' ').nth(1).is_some_and(|p| p.contains('x')));
    executable.for_each(|line| line.hash(&mut hasher));
    hasher.finish()
}

fn look(pid: i32) -> Result<(ProcessTable, Objects), Error> {
    let mut table = ProcessTable::default();
    let objects = Objects::read(&mut table, pid);
    refuse::check_objects(&objects)?;
    Ok((table, objects))
}
