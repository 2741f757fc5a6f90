//! Finds a thread that may be borrowed.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::judge::{FrameClass, Unsafe, judge};
use super::objects::{ObjectRole, Objects};
use super::refuse;
use super::stops::{StopEvents, StoppedThread, Stops};
use super::trace::Tracee;
use crate::arch::{self, Registers};
use sys::Error;
use sys::os;
use sys::record::{AllRegs, Regs, Rest, UserStack};
use sys::{ThreadId, processes::ProcessTable, procfs};
use unwind::{Frame, Unwinder};

/// Shortest and longest pause between two threads that are stopped and checked, since that takes
/// their time.
const PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(3);

/// Age at which the list of mappings is read again.
const STALE: Duration = Duration::from_millis(300);

/// Bytes of a stack that are copied at a time.
const COPY: usize = 64 << 10;

/// Number of sleeping threads whose stacks are read before one is stopped.
const SLEEPERS: usize = 8;

/// Searches for a thread.
pub struct Finder {
    pid: i32,
    /// The target's memory.
    pub memory: File,
    table: ProcessTable,
    unwinder: Unwinder,
    /// Mapped objects.
    pub objects: Objects,
    read: Instant,
    /// Hash of the executable mappings.
    mapped: u64,
    /// A stack has been unwound with this table.
    warm: bool,
    stops: Stops,
    /// State of the last thread that was not safe.
    last: Option<Unsafe>,
    pause: Duration,
}

impl Finder {
    /// Reads the mappings of a process.
    ///
    /// # Errors
    ///
    /// It has ended, or this user may not trace it; it has nothing that could load a library.
    pub fn new(pid: i32, events: &'static dyn StopEvents) -> Result<Finder, Error> {
        refuse::check_state(pid)?;
        let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"));
        let memory = memory.map_err(|e| refuse::refused(pid, &e))?;
        let mapped = executable(pid);
        let (table, objects) = read_mappings(pid)?;
        let unwinder = Unwinder::default();
        let read = Instant::now();
        let stops = Stops::new(pid, events)?;
        let mut finder = Finder {
            pid,
            memory,
            table,
            unwinder,
            objects,
            read,
            mapped,
            warm: false,
            stops,
            last: None,
            pause: PAUSE,
        };
        finder.unwind_sleepers();
        Ok(finder)
    }

    /// Signal that stops threads.
    pub fn signal(&self) -> i32 {
        self.stops.signal
    }

    /// Begins a search.
    pub fn begin(&mut self) {
        self.last = None;
        self.pause = PAUSE;
        self.stops.begin();
    }

    /// Ends a search.
    pub fn end(&mut self) {
        self.stops.end();
    }

    /// Error if no thread was found.
    pub fn none_found(&self, patience: Duration) -> Error {
        Error::failed(match self.last {
            Some(last) => format!(
                "none of its threads reached a point where it could load a library within \
                 {patience:?}; the last one was {}",
                last.place()
            ),
            None if self.stops.all_block() => format!(
                "all of its threads blocked the signal that stops them (SIGURG or SIGWINCH) for \
                 {patience:?}"
            ),
            None if self.stops.any_ran => format!(
                "none of its threads could be stopped within {patience:?} without interrupting a \
                 system call"
            ),
            None => format!(
                "none of its threads ran within {patience:?}, and prof does not wake one that \
                 sleeps; try again when it runs"
            ),
        })
    }

    /// Stops a thread at a safe point, if there is one before `until`. The calling thread has to
    /// end afterwards, see [`Stops::stop_one`].
    ///
    /// # Errors
    ///
    /// The process has ended, or may not be traced.
    pub fn stop_one(&mut self, until: Instant) -> Result<Option<StoppedThread>, Error> {
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
                    self.unwind_and_release(stopped);
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

    /// Reads the mappings again if they have changed.
    fn refresh(&mut self) -> Result<(), Error> {
        if self.read.elapsed() < STALE {
            return Ok(());
        }
        self.read = Instant::now();
        let mapped = executable(self.pid);
        if mapped != self.mapped {
            (self.table, self.objects) = read_mappings(self.pid)?;
            (self.unwinder, self.mapped, self.warm) = (Unwinder::default(), mapped, false);
            self.unwind_sleepers();
        }
        Ok(())
    }

    /// Unwinds stacks of sleeping threads without stopping them: it loads the data for judging a
    /// thread before one has to be stopped.
    fn unwind_sleepers(&mut self) {
        for tid in procfs::threads(self.pid).unwrap_or_default().into_iter().take(SLEEPERS) {
            let asleep = procfs::asleep_at(ThreadId { pid: self.pid, tid });
            if let Ok(Some(procfs::Asleep { ip, sp, .. })) = asleep
                && sp != 0
            {
                let copy = self.copy(sp);
                self.judge(tid, AllRegs::default(), Regs { ip, sp, bp: 0 }, &copy).ok();
                self.warm = true;
            }
        }
    }

    /// The same with a stopped thread, which continues first.
    fn unwind_and_release(&mut self, stopped: StoppedThread) {
        self.warm = true;
        let Ok(registers) = stopped.tracee.registers() else { return };
        let tid = stopped.tracee.tid;
        let copy = self.copy(arch::unwound(&registers).sp);
        drop(stopped);
        let all = arch::sampled(&registers);
        self.judge(tid, AllRegs::new(&all), arch::unwound(&registers), &copy).ok();
    }

    /// Judges a stopped thread.
    fn is_safe(&mut self, tracee: &Tracee) -> Result<(), Unsafe> {
        let registers = tracee.registers().map_err(|_| Unsafe::Registers)?;
        let others = tracee.other_registers().map_err(|_| Unsafe::Registers)?;
        self.check_registers(tracee, &registers)?;
        self.check_room(&registers, arch::frame_room(&others))?;
        let regs = arch::unwound(&registers);
        let copy = self.copy(regs.sp);
        let all = arch::sampled(&registers);
        self.judge(tracee.tid, AllRegs::new(&all), regs, &copy)
    }

    fn check_registers(&self, tracee: &Tracee, registers: &Registers) -> Result<(), Unsafe> {
        if !arch::is_native(registers) {
            return Err(Unsafe::Registers);
        }
        if arch::is_cut_short(registers) {
            return Err(Unsafe::SystemCall);
        }
        // A thread without a control block was not created by a C library.
        if !arch::has_control_block(registers, |address| self.word(address)) {
            return Err(Unsafe::UnknownStack);
        }
        // In a restartable sequence, the kernel would not notice the detour.
        let sequence = tracee.rseq().and_then(|rseq| self.word(rseq + 8));
        if sequence.unwrap_or(0) != 0 { Err(Unsafe::Registers) } else { Ok(()) }
    }

    /// Checks for `room` bytes below its stack pointer.
    fn check_room(&self, registers: &Registers, room: u64) -> Result<(), Unsafe> {
        let mut bytes = vec![0; room as usize];
        let start = arch::unwound(registers).sp.checked_sub(room).ok_or(Unsafe::UnknownStack)?;
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
        let full = bytes.len() == COPY;
        let rest = Rest::default();
        let user = UserStack::Native { regs, all, bytes, full, rest };
        let (process, images) = self.table.split(self.pid);
        let mut frames = Vec::new();
        let thread = ThreadId { pid: self.pid, tid };
        let end = self.unwinder.unwind(thread, &process.regions, images, user, &[], &mut frames);
        let objects = &self.objects;
        let role =
            |frame: &Frame| frame.place.image().map_or(ObjectRole::Program, |i| objects.role(i));
        let called = |caller: &Frame| {
            let by_program = caller.kind.is_return() && role(caller) == ObjectRole::Program;
            by_program.then(|| objects.calls(&self.memory, caller.address)).flatten()
        };
        let seen = frames.iter().enumerate().map(|(i, frame)| {
            let by_call = || frames.get(i + 1).and_then(called);
            FrameClass::for_role(role(frame), || objects.harmless(frame.address).or_else(by_call))
        });
        let stack: Vec<FrameClass> = seen.collect();
        judge(&stack, end, objects.program_allocates)
    }
}

/// Hash of the executable mappings.
fn executable(pid: i32) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    let executable = maps.lines().filter(|l| l.split(' ').nth(1).is_some_and(|p| p.contains('x')));
    executable.for_each(|line| line.hash(&mut hasher));
    hasher.finish()
}

fn read_mappings(pid: i32) -> Result<(ProcessTable, Objects), Error> {
    let mut table = ProcessTable::default();
    let objects = Objects::read(&mut table, pid);
    refuse::check_objects(&objects)?;
    Ok((table, objects))
}
