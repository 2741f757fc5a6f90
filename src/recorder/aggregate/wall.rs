//! Where the time of each thread goes: on a CPU, by the stacks that were sampled there; off it, by
//! the stack that it stopped with.
//!
//! The kernel tells of each switch, so the time in each state is exact. A sample on a CPU stands
//! for the time that its thread has run since the sample before it. Where threads stop so often
//! that only every so many times is sampled, a sample stands for those since the one before, and
//! the time of each thread in each state is divided by them; waits that last are looked at while
//! they do, and stand for themselves.

use rustc_hash::{FxHashMap, FxHashSet};

use super::estimates::{Known, Twins};
use super::held::Held;
use super::{Aggregator, Shares};
use crate::sampler::Field;
use crate::sampler::bpf::waits::{Last, Times};
use crate::sampler::thread_state;
use profile::{Column, LabelSetId, ThreadState};
use sys::os;
use sys::procfs;
use sys::record::{Record, Sample};

/// What a thread does since when.
struct Thread {
    pid: i32,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    since: u64,
    /// `None`: nothing has been heard of it yet.
    state: Option<ThreadState>,
    /// What it seemed to do when the recording began.
    seemed: ThreadState,
    /// Nanoseconds that it has run and that no sample stands for yet.
    unsampled: u64,
    /// The last sample on a CPU.
    ran: Held,
    /// Why it stops, as told just before it does.
    why: Option<ThreadState>,
    /// When it was woken while it waited: since then it waits for a CPU.
    woken: Option<u64>,
    /// The stack that it has stopped with.
    off: Held,
    /// That is the stack of this time that it has stopped.
    known: bool,
    /// It was sampled as it stopped this time.
    sampled: bool,
    /// So many times it has stopped since it was sampled.
    times: i64,
    /// When its stack was looked up, if that was not sampled.
    seen: Option<u64>,
}

impl Thread {
    fn new(pid: i32, since: u64, state: Option<ThreadState>) -> Thread {
        let (ran, off) = Default::default();
        let seemed = ThreadState::Sleeping;
        Thread {
            pid,
            since,
            state,
            seemed,
            unsampled: 0,
            ran,
            why: None,
            woken: None,
            off,
            known: false,
            sampled: false,
            times: 0,
            seen: None,
        }
    }

    /// Time passes until `now`, in which it has run or not.
    fn elapse(&mut self, now: u64) -> u64 {
        let elapsed = now.saturating_sub(self.since);
        self.since = self.since.max(now);
        elapsed
    }

    /// It stops running.
    fn stops(&mut self, preempted: bool) {
        self.times = if self.known { 1 } else { self.times + 1 };
        self.known = std::mem::take(&mut self.sampled);
        self.seen = None;
        let why = self.why.take().unwrap_or(ThreadState::Sleeping);
        self.state = Some(if preempted { ThreadState::Runnable } else { why });
    }
}

/// Which time is wanted, and where it goes.
pub struct WallSpec {
    /// The column of wall time.
    pub column: Column,
    /// Also time on a CPU.
    pub running: bool,
    /// Shorter waits are not counted by stack, in nanoseconds.
    pub min_block: u64,
    /// When the recording begins (`CLOCK_MONOTONIC`, nanoseconds).
    pub began: u64,
    /// The column of CPU time, with what a sample of the clock weighs there.
    pub cpu: Option<(Column, i64)>,
    /// What a thread does that stops, of the fields of `sched:sched_switch` (`prev_state`).
    pub prev_state: Option<Field>,
    /// Which thread is woken, of the fields of `sched:sched_wakeup`.
    pub woken: Option<Field>,
    /// Programs in the kernel add up each thread's time, and tell of waits when they are over.
    pub programs: bool,
}

/// The time of all threads.
pub struct Wall {
    spec: WallSpec,
    threads: FxHashMap<i32, Thread>,
    /// Threads that have ended: where whole CPUs are recorded, they stop running after that.
    ended: FxHashSet<i32>,
    /// What each thread has waited in each state, by its labels.
    waits: FxHashMap<LabelSetId, Waits>,
    /// When waits that last were looked for.
    looked: u64,
    twins: Twins,
}

/// Nanoseconds of waits.
#[derive(Clone, Copy, Default)]
struct Waits {
    /// As they were.
    all: i64,
    /// As their samples say.
    sampled: i64,
    /// As those samples say that stand for others, too; they have [`Wall::twins`] of these labels.
    estimated: i64,
}

/// A wait, or a part of one.
struct Wait {
    column: Column,
    nanos: i64,
    state: ThreadState,
    /// Why it has no stack of its own.
    nowhere: Option<&'static str>,
    /// Its stack was looked up.
    looked: bool,
}

/// Most threads of [`Wall::ended`], which are of interest for some microseconds.
const MAX_ENDED: usize = 4096;

/// Threads that are looked at in one go, of those that wait with a stack that is not known; and
/// how long they have to have waited, in nanoseconds.
const MAX_LOOKS: usize = 64;
const LASTS: u64 = 20_000_000;

impl Wall {
    /// Of a recording that begins.
    pub fn new(spec: WallSpec) -> Wall {
        let (threads, ended, waits) = Default::default();
        Wall { spec, threads, ended, waits, looked: 0, twins: Twins::default() }
    }

    /// It is a thread, and has not ended.
    fn is_alive(&self, pid: i32, tid: i32) -> bool {
        // Samples of what is just ending have the number -1; 0 is the idle thread.
        pid >= 0 && tid > 0 && !self.ended.contains(&tid)
    }

    fn thread(&mut self, pid: i32, tid: i32) -> &mut Thread {
        let began = self.spec.began;
        self.threads.entry(tid).or_insert_with(|| Thread::new(pid, began, None))
    }
}

impl Aggregator {
    /// Wants where the time of each thread goes.
    pub fn set_wall(&mut self, wall: Wall) {
        self.wall = Some(wall);
    }

    /// A thread runs: the sample stands for the time since the one before, or for `period`, where the
    /// kernel adds up how long it has run.
    pub(super) fn runs(&mut self, sample: &Sample<'_>, period: u64) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let leaf = self.stack(sample, &mut scratch);
        if let Some(wall) = &mut self.wall {
            let mut values = [(wall.spec.column, 0); 2];
            let mut count = 0;
            if wall.is_alive(sample.pid, sample.tid) {
                let column = wall.spec.column;
                let (running, programs) = (wall.spec.running, wall.spec.programs);
                let thread = wall.thread(sample.pid, sample.tid);
                let time = match programs {
                    true => period,
                    false => thread.elapse(sample.time) + std::mem::take(&mut thread.unsampled),
                };
                (thread.state, thread.woken) = (Some(ThreadState::Running), None);
                thread.ran.set(&scratch, leaf);
                if running {
                    values[count] = (column, time as i64);
                    count += 1;
                }
            }
            if let Some(cpu) = wall.spec.cpu {
                values[count] = cpu;
                count += 1;
            }
            if count > 0 {
                let state = Some(ThreadState::Running);
                let labels = self.labels_of(sample.pid, sample.tid, state);
                self.builder.add_stack(&scratch.callers, leaf, labels, &values[..count]);
                self.note_run(labels, values[0]);
            }
        }
        self.scratch = scratch;
    }

    /// A thread is about to stop running.
    pub(super) fn goes_off(&mut self, sample: &Sample<'_>) {
        if !self.wall.as_ref().is_some_and(|wall| wall.is_alive(sample.pid, sample.tid)) {
            return;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let leaf = self.stack(sample, &mut scratch);
        if let Some(wall) = &mut self.wall {
            let state = wall.spec.prev_state.and_then(|field| field.number(sample.raw));
            let thread = wall.thread(sample.pid, sample.tid);
            thread.off.set(&scratch, leaf);
            thread.sampled = true;
            thread.woken = None;
            thread.why = state.map(thread_state::of_bits);
        }
        self.scratch = scratch;
    }

    /// Somebody wakes a thread. The same is told again where both are recorded.
    pub(super) fn wakes(&mut self, sample: &Sample<'_>) {
        let Some(wall) = &mut self.wall else { return };
        let woken = wall.spec.woken.and_then(|field| field.number(sample.raw));
        let thread = woken.and_then(|tid| wall.threads.get_mut(&(tid as i32)));
        let Some(thread) = thread else { return };
        // It may be woken when it has not quite stopped; else what runs needs no waking.
        if thread.state != Some(ThreadState::Running) || thread.sampled {
            thread.woken.get_or_insert(sample.time);
        }
    }

    /// Births, ends and switches.
    pub(super) fn switches(&mut self, record: &Record<'_>) {
        match *record {
            Record::Fork { pid, tid, time, .. } => {
                let Some(wall) = &mut self.wall else { return };
                let born = Thread::new(pid, time.max(wall.spec.began), Some(ThreadState::Runnable));
                wall.ended.remove(&tid);
                wall.threads.insert(tid, born);
            }
            Record::Switch { pid, tid, time, out, preempted } => {
                let Some(mut thread) = self.take_thread(pid, tid) else { return };
                match (out, thread.state) {
                    // What had not been heard of ran when the recording began.
                    (true, None) => {
                        thread.unsampled += thread.elapse(time);
                        thread.woken = None;
                    }
                    _ => self.waited(&mut thread, tid, time),
                }
                if out {
                    thread.stops(preempted);
                } else {
                    thread.state = Some(ThreadState::Running);
                }
                if let Some(wall) = &mut self.wall {
                    wall.threads.insert(tid, thread);
                }
            }
            Record::Exit { tid, time, .. } => {
                let Some(wall) = &mut self.wall else { return };
                if wall.ended.len() >= MAX_ENDED {
                    wall.ended.clear();
                }
                wall.ended.insert(tid);
                let Some(mut thread) = wall.threads.remove(&tid) else { return };
                self.ends(&mut thread, tid, time);
            }
            _ => {}
        }
    }

    /// Takes a living thread out of the table.
    fn take_thread(&mut self, pid: i32, tid: i32) -> Option<Thread> {
        let wall = self.wall.as_mut().filter(|wall| wall.is_alive(pid, tid))?;
        wall.thread(pid, tid);
        wall.threads.remove(&tid)
    }

    /// Counts what a thread has waited until `time`, by the stack that it stopped with.
    fn waited(&mut self, thread: &mut Thread, tid: i32, time: u64) {
        let Some((column, min_block)) =
            self.wall.as_ref().map(|w| (w.spec.column, w.spec.min_block))
        else {
            return;
        };
        let state = thread.state.unwrap_or(thread.seemed);
        // It may have moved on when it was looked at.
        let looked = thread.seen.take().is_some_and(|seen| seen < time);
        let waited = thread.elapse(time);
        if state == ThreadState::Running || waited == 0 {
            thread.unsampled += waited;
            return;
        }
        let nowhere = match waited < min_block {
            true => Some("[waits shorter than --min-block]"),
            false if thread.times == 0 && !looked => {
                Some("[stack not known: it did not run before]")
            }
            false => None,
        };
        let woken = thread.woken.take().filter(|_| state != ThreadState::Runnable);
        let queued = woken.map_or(0, |woken| time.saturating_sub(woken).min(waited));
        for (waited, state) in [(waited - queued, state), (queued, ThreadState::Runnable)] {
            if waited > 0 {
                let wait = Wait { column, nanos: waited as i64, state, nowhere, looked };
                self.wait(thread, tid, wait);
            }
        }
    }

    /// Counts a wait in one state by its stack, if that is known.
    fn wait(&mut self, thread: &Thread, tid: i32, wait: Wait) {
        let Wait { column, nanos, state, nowhere, looked } = wait;
        let labels = self.labels_of(thread.pid, tid, Some(state));
        if let Some(name) = nowhere {
            let nowhere = [self.builder.named_location(name)];
            self.builder.add_stack(&nowhere, None, labels, &[(column, nanos)]);
            return self.note_wait(labels, nanos, nanos);
        }
        let times = if thread.known { thread.times } else { i64::from(looked) };
        let stands_for = nanos.saturating_mul(times);
        if stands_for > 0 {
            let values = [(column, stands_for)];
            self.builder.add_stack(&thread.off.callers, thread.off.innermost, labels, &values);
        }
        self.note_wait(labels, nanos, stands_for);
    }

    fn note_wait(&mut self, labels: LabelSetId, all: i64, sampled: i64) {
        let Some(wall) = &mut self.wall else { return };
        let waits = wall.waits.entry(labels).or_default();
        waits.all += all;
        waits.sampled = waits.sampled.saturating_add(sampled);
    }

    /// Looks at some of the threads that have waited for long by now with a stack that is not
    /// known, unless that has just been done.
    pub fn look_at_waits(&mut self) {
        let now = os::monotonic_nanos();
        let Some(wall) = self.wall.as_mut().filter(|wall| wall.looked + LASTS < now) else {
            return;
        };
        wall.looked = now;
        let waits = |thread: &Thread| {
            let unknown = !thread.known && thread.seen.is_none();
            let off = thread.state.is_some_and(|s| s != ThreadState::Running);
            unknown && off && thread.since + LASTS < now
        };
        let found = wall.threads.iter().filter(|(_, thread)| waits(thread));
        let found: Vec<(i32, i32)> =
            found.take(MAX_LOOKS).map(|(&tid, thread)| (thread.pid, tid)).collect();
        for (pid, tid) in found {
            let mut scratch = std::mem::take(&mut self.scratch);
            let stack = self.stack_of_sleeper(pid, tid, &mut scratch).ok().flatten();
            if let (Some(leaf), Some(wall)) = (stack, &mut self.wall) {
                let thread = wall.thread(pid, tid);
                thread.off.set(&scratch, leaf);
                thread.seen = Some(os::monotonic_nanos());
            }
            self.scratch = scratch;
        }
    }

    /// A thread, or the recording of it, ends.
    fn ends(&mut self, thread: &mut Thread, tid: i32, time: u64) {
        let Some((column, running)) = self.wall.as_ref().map(|w| (w.spec.column, w.spec.running))
        else {
            return;
        };
        self.waited(thread, tid, time);
        if !running || thread.unsampled == 0 {
            return;
        }
        // The last sample of it is the nearest to what it did then; a thread that ran for less
        // than a period has none, and stopped somewhere.
        let held = if thread.ran.is_empty() { &thread.off } else { &thread.ran };
        let labels = self.labels_of(thread.pid, tid, Some(ThreadState::Running));
        let values = [(column, thread.unsampled as i64)];
        if held.is_empty() {
            let nowhere = [self.builder.named_location("[stack not known: it was not sampled]")];
            self.builder.add_stack(&nowhere, None, labels, &values);
        } else {
            self.builder.add_stack(&held.callers, held.innermost, labels, &values);
        }
    }

    /// A thread was there when the recording began. Where it sleeps is looked up: it may do so
    /// until the end.
    pub fn was_there(&mut self, pid: i32, tid: i32) {
        let Some(stat) = procfs::stat(tid).filter(|stat| !matches!(stat.state, 'Z' | 'X')) else {
            return;
        };
        let seemed = thread_state::of_letter(stat.state);
        let mut scratch = std::mem::take(&mut self.scratch);
        let stack = match seemed {
            ThreadState::Runnable => None,
            _ => self.stack_of_sleeper(pid, tid, &mut scratch).ok().flatten(),
        };
        if let Some(wall) = &mut self.wall {
            let thread = wall.thread(pid, tid);
            thread.seemed = seemed;
            if let Some(leaf) = stack {
                thread.off.set(&scratch, leaf);
                thread.seen = Some(os::monotonic_nanos());
            }
        }
        self.scratch = scratch;
    }

    /// The recording ends at `time`; `told`: what programs in the kernel have added up.
    pub fn end_of_wall(&mut self, time: u64, told: Vec<(Times, Last)>) {
        let Some(wall) = &mut self.wall else { return };
        if wall.spec.programs {
            return self.end_of_told(time, told);
        }
        let threads = std::mem::take(&mut wall.threads);
        for (tid, mut thread) in threads {
            self.ends(&mut thread, tid, time);
        }
        self.divide_what_was_thinned();
    }

    /// Scales the samples of waits of which only some were taken to the time that all took.
    fn divide_what_was_thinned(&mut self) {
        let Some(wall) = &mut self.wall else { return };
        let (column, mut waits) = (wall.spec.column, std::mem::take(&mut wall.waits));
        let twins = std::mem::take(&mut wall.twins);
        waits.retain(|_, waits| waits.all != waits.sampled);
        let mut shares = Shares::default();
        for (labels, Waits { all, sampled, estimated }) in waits {
            if sampled == 0 && estimated == 0 {
                let nowhere =
                    [self.builder.named_location("[stack not known: it was not sampled]")];
                self.builder.add_stack(&nowhere, None, labels, &[(column, all)]);
            }
            let known = Known { all, exact: sampled, estimated };
            twins.share(&mut shares, labels, known);
        }
        self.shares.push((column, shares));
    }
}

mod told;

#[cfg(test)]
mod tests;
