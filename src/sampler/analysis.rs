//! The second thread of a recording, which has an ordinary priority. The thread that reads the
//! rings handles what needs nothing but cached results; all else is kept and handed over: what reads
//! a file of another program, analyses code, or waits. What follows stays in the rings while these
//! hold little, and is kept, too, when they fill. So the rings are read in time whatever a target
//! maps, and events are handled in the order in which they came.

mod blocks;
mod kept;
mod memory;

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::aggregator::Aggregator;
use super::interpreters::ManagedProcesses;
use super::thinning::Thinning;
use super::types::{Poll, SampleSource};
use super::{Delivery, Event, Session};
use blocks::StackBlocks;
use kept::KeptEvent;
use memory::MemoryWatch;
use sys::cpu_allowance::{CpuAllowance, Deferrable, ThreadTime};
use sys::mmap;
use sys::record::{Record, Rest};

/// Most bytes of samples that wait, and of samples and records together: processes without records
/// about them cannot be attributed.
const MAX_SAMPLES: usize = 16 << 20;
const MAX_EVENTS: usize = 18 << 20;

/// Bytes and number of events that wait above which code is not analysed: a truncated stack is
/// better than none.
const MANY_BYTES: usize = 6 << 20;
const MANY_EVENTS: usize = 256;

/// Bytes of events that wait above which only the kernel's own copies of stacks are kept: few stacks
/// are longer, but all copies are.
const MAX_DEEP: usize = 8 << 20;

/// A piece of work.
#[derive(Debug)]
pub enum Work {
    /// An event, recorded at this time (`CLOCK_MONOTONIC`, nanoseconds).
    Event(u64, KeptEvent),
    /// See [`Aggregator::take_in`].
    TakeIn {
        /// `CLOCK_MONOTONIC`, nanoseconds.
        until: u64,
        /// These are the last samples.
        over: bool,
    },
    /// Reads the files of JIT compilers.
    RunTimeFiles,
    /// See [`Aggregator::poll`].
    Poll {
        /// Time since sampling started.
        elapsed: Duration,
        /// Events were thinned.
        thinned: bool,
    },
    /// Releases pages of files.
    DropPages,
    /// The profile types stop their own samples.
    Stop,
    /// The profile types release the target.
    Release,
}

/// What both threads access.
struct Shared {
    aggregator: Mutex<Aggregator>,
    /// Pieces of work that are not done.
    pending: AtomicUsize,
    /// Programs have made code at run time.
    has_run_time_code: AtomicBool,
    /// The reader of the rings waits for the end of all work.
    is_awaited: AtomicBool,
    /// Becomes readable at that end.
    idle: OwnedFd,
}

impl Shared {
    /// The aggregator, if no work is pending: the second thread does not touch it then.
    fn if_idle(&self) -> Option<Idle<'_>> {
        // Acquire: what the second thread has done is seen.
        let is_idle = self.pending.load(Ordering::Acquire) == 0;
        is_idle.then(|| self.aggregator.try_lock().ok()).flatten().map(Idle)
    }
}

/// The aggregator while the second thread has nothing to do.
pub struct Idle<'a>(MutexGuard<'a, Aggregator>);

impl Deref for Idle<'_> {
    type Target = Aggregator;

    fn deref(&self) -> &Aggregator {
        &self.0
    }
}

impl DerefMut for Idle<'_> {
    fn deref_mut(&mut self) -> &mut Aggregator {
        &mut self.0
    }
}

/// What the thread gets when the recording begins.
struct Beginning {
    shared: Arc<Shared>,
    pids: Vec<i32>,
    work: Receiver<Work>,
    /// Number of bytes of events that wait.
    held: Arc<AtomicUsize>,
    /// CPU time that the thread may use.
    allowance: Option<Arc<CpuAllowance>>,
}

/// The thread before the recording begins.
pub struct AnalysisThread {
    begin: Sender<Beginning>,
    idle: OwnedFd,
    thread: JoinHandle<bool>,
}

impl AnalysisThread {
    /// Starts the thread, with the priority of the calling thread. To be called before the rings
    /// are mapped.
    ///
    /// # Errors
    ///
    /// This user may start no more threads, or open no more files.
    pub fn start() -> io::Result<AnalysisThread> {
        let (begin, beginning) = mpsc::channel();
        let idle = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let run = move || {
            // Nothing is recorded if the other end is closed.
            if let Ok(beginning) = beginning.recv() {
                run(&beginning);
            }
            mmap::cut_pages() > 0
        };
        let thread = std::thread::Builder::new().name("analysis".to_owned()).spawn(run)?;
        Ok(AnalysisThread { begin, idle, thread })
    }

    /// Hands over the aggregator. `pids`: the processes found at the start. While the CPU time of an
    /// `allowance` is used up, stacks are unwound as far as that needs no analysis.
    pub fn begin(
        self,
        aggregator: Aggregator,
        pids: Vec<i32>,
        allowance: Option<Arc<CpuAllowance>>,
        thinning: Option<Thinning>,
    ) -> Analysis {
        let AnalysisThread { begin, idle, thread } = self;
        let (work, receiver) = mpsc::channel();
        let has_own_samples = aggregator.has_own_samples();
        let managed = aggregator.maker.interpreters.managed();
        let shared = Arc::new(Shared {
            aggregator: Mutex::new(aggregator),
            pending: AtomicUsize::new(0),
            has_run_time_code: AtomicBool::new(false),
            is_awaited: AtomicBool::new(false),
            idle,
        });
        let blocks = StackBlocks::default();
        let held = blocks.held().clone();
        // The thread waits for this and cannot have ended.
        let thread_pids = pids.clone();
        let shared_with = shared.clone();
        let beginning =
            Beginning { shared: shared_with, pids: thread_pids, work: receiver, held, allowance };
        let _ = begin.send(beginning);
        let waiting = Waiting { work, shared, blocks, reported: Reported::default() };
        Analysis { waiting, thread, has_own_samples, pids, thinning, taken_until: 0, managed }
    }
}

/// The thread while the recording goes on, and the events that wait for it.
pub struct Analysis {
    waiting: Waiting,
    thread: JoinHandle<bool>,
    /// Profile types have samples of their own. They come through a ring that the target fills within
    /// milliseconds, and need the priority of the thread that reads the rings: it does all work of
    /// such a recording.
    has_own_samples: bool,
    /// The processes found at the start.
    pids: Vec<i32>,
    /// Selects samples, if they are to be cheap.
    thinning: Option<Thinning>,
    /// All events before this time were taken from the rings.
    taken_until: u64,
    /// Processes whose code is read soon after a sample.
    managed: Arc<ManagedProcesses>,
}

/// Whether events stay in their rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayStay {
    /// While work is pending and the rings hold little: that saves copies.
    WhileWorkIsPending,
    /// Never.
    Never,
}

impl Analysis {
    /// The aggregator, if no work is pending.
    pub fn if_idle(&self) -> Option<Idle<'_>> {
        self.waiting.shared.if_idle()
    }

    /// True if programs have made code at run time: their files are to be read before samples.
    pub fn has_run_time_code(&self) -> bool {
        let shared = &self.waiting.shared;
        let found = |aggregator: Idle<'_>| !aggregator.maker.table.jit.is_empty();
        shared.has_run_time_code.load(Ordering::Relaxed) || self.if_idle().is_some_and(found)
    }

    /// True if code of processes is read soon after their samples.
    pub fn has_managed_code(&self) -> bool {
        self.managed.is_used()
    }

    /// Hands over a piece of work, or does it.
    pub fn send(&mut self, work: Work) {
        match self.waiting.shared.if_idle() {
            Some(mut aggregator) if self.has_own_samples => {
                work.run(&mut aggregator, &self.pids, &mut Vec::new());
            }
            idle => {
                drop(idle);
                self.waiting.send(work);
            }
        }
    }

    /// Becomes readable when no work is left, after [`Analysis::await_idle`].
    pub fn fd(&self) -> RawFd {
        self.waiting.shared.idle.as_raw_fd()
    }

    /// To be called before a wait for [`Analysis::fd`]. Returns false if no work is pending.
    pub fn await_idle(&self) -> bool {
        let shared = &self.waiting.shared;
        let _ = rustix::io::read(&shared.idle, &mut [0; 8]);
        shared.is_awaited.store(true, Ordering::SeqCst);
        // The thread looks at the flag after the last piece of work.
        shared.pending.load(Ordering::SeqCst) > 0
    }

    /// Delivers the events before `until`, in order of time. Returns the time before which all were
    /// delivered: if some wait for the other thread, the rest [may stay](MayStay) in the rings.
    pub fn take_in(
        &mut self,
        session: &mut Session,
        until: u64,
        stay: MayStay,
        mut observe: impl FnMut(&Event<'_>),
    ) -> u64 {
        let Analysis { waiting, has_own_samples, thinning, taken_until, .. } = self;
        // Those of a profile type must be taken before its ring is full.
        let stay = if *has_own_samples { MayStay::Never } else { stay };
        let shared = waiting.shared.clone();
        let mut direct = shared.if_idle();
        if stay == MayStay::WhileWorkIsPending && direct.is_none() && session.holds_little() {
            return *taken_until;
        }
        thinning.iter_mut().for_each(Thinning::adapt);
        if direct.is_some() && waiting.held() > MANY_BYTES / 2 {
            // Nothing waits: these are for comparison only.
            waiting.blocks.clear();
        }
        *taken_until = session.drain_timed(until, |time, mut event| {
            observe(&event);
            if thinning.as_mut().is_some_and(|thinning| !thinning.selects(&mut event)) {
                return Delivery::Represented;
            }
            direct = direct.take().or_else(|| shared.if_idle());
            if let Some(aggregator) = &mut direct
                && (*has_own_samples || aggregator.is_quick(&event))
            {
                aggregator.event(time, &event);
                return Delivery::Taken;
            }
            direct = None;
            match (waiting.keep(time, &event), stay) {
                (Delivery::Taken, MayStay::WhileWorkIsPending) => Delivery::Kept,
                (delivery, _) => delivery,
            }
        });
        *taken_until
    }

    /// Waits until all work is done, and returns the aggregator, and whether a binary was truncated
    /// while it was read.
    pub fn finish(self) -> (Aggregator, bool) {
        let Analysis { waiting: Waiting { work, shared, .. }, thread, .. } = self;
        drop(work);
        let has_cut_file = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let shared = Arc::into_inner(shared).expect("the thread has ended");
        (shared.aggregator.into_inner().expect("the thread did not panic"), has_cut_file)
    }
}

/// Kinds of losses that were reported to the aggregator since the last event was kept.
#[derive(Debug, Default)]
struct Reported {
    samples: bool,
    records: bool,
}

/// Events that wait for the thread.
struct Waiting {
    work: Sender<Work>,
    shared: Arc<Shared>,
    blocks: StackBlocks,
    reported: Reported,
}

impl Waiting {
    fn send(&mut self, work: Work) {
        self.shared.pending.fetch_add(1, Ordering::SeqCst);
        // If the thread has panicked, `finish` passes that on.
        let _ = self.work.send(work);
    }

    /// Keeps an event, if there is room.
    fn keep(&mut self, time: u64, event: &Event<'_>) -> Delivery {
        let is_sample = matches!(event, Event::Sample { .. });
        if !self.has_room(if is_sample { MAX_SAMPLES } else { MAX_EVENTS }) {
            let reported =
                if is_sample { &mut self.reported.samples } else { &mut self.reported.records };
            if !std::mem::replace(reported, true) {
                let lost = if is_sample { Record::LostSamples(1) } else { Record::Lost(1) };
                let kept = KeptEvent::new(&Event::Other(lost), &mut self.blocks);
                self.send(Work::Event(time, kept));
            }
            return Delivery::NoRoom;
        }
        self.reported = Reported::default();
        let kept = if self.held() < MAX_DEEP {
            KeptEvent::new(event, &mut self.blocks)
        } else {
            KeptEvent::new(&without_rest(event), &mut self.blocks)
        };
        self.send(Work::Event(time, kept));
        Delivery::Taken
    }

    /// Bytes of events that wait, and of blocks for comparison.
    fn held(&self) -> usize {
        self.blocks.held().load(Ordering::Relaxed)
    }

    fn has_room(&mut self, limit: usize) -> bool {
        if self.held() >= limit {
            self.blocks.clear();
        }
        self.held() < limit
    }
}

/// An event without the part of its stack beyond the kernel's copy.
fn without_rest<'a>(event: &Event<'a>) -> Event<'a> {
    let mut event = *event;
    if let Event::Sample { sample, .. } = &mut event
        && let Some(rest) = sample.rest_mut()
    {
        *rest = Rest::default();
    }
    event
}

/// Does the work of a recording.
fn run(Beginning { shared, pids, work, held, allowance }: &Beginning) {
    let mut memory = Vec::new();
    let mut watch = MemoryWatch::new();
    let allowance = allowance.as_deref();
    let mut time = ThreadTime::begin(allowance, Deferrable::Analysis);
    while let Ok(work) = work.recv() {
        let is_event = matches!(work, Work::Event(..));
        {
            let mut aggregator = shared.aggregator.lock().unwrap_or_else(|e| e.into_inner());
            let is_late = shared.pending.load(Ordering::Relaxed) > MANY_EVENTS
                && held.load(Ordering::Relaxed) > MANY_BYTES;
            aggregator.maker.set_hurried(is_late);
            let is_frugal = allowance.is_some_and(|a| !a.allows(Deferrable::Analysis));
            aggregator.maker.set_frugal(is_frugal);
            work.run(&mut aggregator, pids, &mut memory);
            if !aggregator.maker.table.jit.is_empty() {
                shared.has_run_time_code.store(true, Ordering::Relaxed);
            }
            if is_event {
                watch.release(&mut aggregator);
            }
        }
        time.add();
        if shared.pending.fetch_sub(1, Ordering::SeqCst) == 1
            && shared.is_awaited.swap(false, Ordering::SeqCst)
        {
            // It cannot fail: the counter is far from its limit.
            let _ = rustix::io::write(&shared.idle, &1_u64.to_ne_bytes());
        }
    }
}

impl Work {
    fn run(self, aggregator: &mut Aggregator, pids: &[i32], memory: &mut Vec<u8>) {
        match self {
            Work::Event(time, event) => {
                event.restore(memory, |event| aggregator.event(time, event));
            }
            Work::TakeIn { until, over } => aggregator.take_in(until, over),
            Work::RunTimeFiles => aggregator.maker.read_jit_files(),
            Work::Poll { elapsed, thinned } => aggregator.poll(&Poll { elapsed, pids, thinned }),
            Work::DropPages => aggregator.maker.table.images.drop_pages(),
            Work::Stop => aggregator.sources().for_each(SampleSource::stop),
            Work::Release => aggregator.sources().for_each(SampleSource::release),
        }
    }
}
