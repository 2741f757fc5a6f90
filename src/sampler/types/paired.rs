//! Profile types made of paired events: one begins an operation, with a stack; another ends it. The
//! operation is attributed to the stack of its beginning, with its count and duration.
//!
//! The file of a type defines the events that begin and end, the key that connects them, and the
//! meaning of their fields: [`PairedType`]. Each beginning is recorded, regardless of `-F`: samples
//! of beginnings and ends would not give durations.
//!
//! An operation that is open at the end of the recording counts until then; one that began before
//! the recording is not recorded. If records were lost during a pair, the end of one and the
//! beginning of another may be missing: it is left out, and counted.

mod open_pairs;
mod timed_calls;

use std::io;
use std::sync::Arc;

use perf_event_open_sys::bindings as abi;

use super::{
    End, EventTrial, KernelProgram, Needs, ProfileType, ProgramLoad, ProgramNeeds, SampleType,
    TypeEvent, TypeStart,
};
use crate::sampler::bpf::stack_parts;
use crate::sampler::bpf::syscalls::{CALL_SIZE, SyscallProgram, TimedCall, TracedCalls};
use crate::sampler::events::EventKind;
use crate::sampler::notes::notes_of_program;
use crate::sampler::permissions::{Wanted, refused};
use crate::sampler::stack_maker::StackMaker;
use crate::sampler::tracepoint::Tracepoint;
use crate::sampler::{EventSpec, TypeName};
use messages::Message;
use open_pairs::OpenPairs;
use sys::Error;
use sys::record::{Record, Sample};
use timed_calls::TimedCalls;

/// A profile type made of paired events.
pub trait PairedType: Send {
    /// See [`ProfileType::name`].
    const NAME: TypeName;

    /// The sample types: count, nanoseconds, and then others.
    fn sample_types(&self) -> Vec<SampleType>;

    /// Its events, those that begin first.
    ///
    /// # Errors
    ///
    /// One line that states which of them is not available here, and why.
    fn events(&self, scope: &Scope) -> Result<Vec<PairedEvent>, Error>;

    /// The calls that BPF programs time for it, if they can.
    fn timed_calls(&self) -> Option<TracedCalls> {
        None
    }

    /// The labels of a call that was timed by BPF programs.
    fn tags_of_call(&self, _call: &TimedCall) -> Tags {
        Tags::default()
    }

    /// True if open operations end with their thread.
    fn ends_with_thread(&self) -> bool {
        true
    }

    /// True if the third sample type is [`PairMark::Begin::amount`].
    fn has_amount(&self) -> bool {
        false
    }

    /// Words for a message about extrapolated calls.
    fn extrapolated(&self) -> ExtrapolatedWords {
        ExtrapolatedWords { what: "calls", known: "the number and time of each thread's calls" }
    }
}

/// Words for a message about extrapolated calls.
pub struct ExtrapolatedWords {
    /// `waits`
    pub what: &'static str,
    /// `the number and time of each thread's waits for a lock`
    pub known: &'static str,
}

/// The scope of the recording.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// True if whole CPUs (or a cgroup) are recorded instead of threads.
    pub cpu_wide: bool,
    /// True if BPF programs time the calls.
    pub timed: bool,
}

/// The key that connects an end to its beginning.
pub type PairKey = (u64, u64);

/// Labels in addition to those of the thread.
pub type Tags = [Option<Tag>; 3];

/// A label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// Its key.
    pub key: &'static str,
    /// Its value.
    pub value: TagValue,
}

impl Tag {
    /// A label, as an element of [`Tags`].
    pub fn some(key: &'static str, value: TagValue) -> Option<Tag> {
        Some(Tag { key, value })
    }
}

/// The value of a [`Tag`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TagValue {
    /// A word.
    Word(&'static str),
    /// An address.
    Address(u64),
    /// A block device, in the kernel's encoding (20 bits of minor number).
    Device(u32),
    /// `LCB_F_*` of the kernel's `include/trace/events/lock.h`.
    LockFlags(u32),
    /// A system call without a name, by its number.
    Number(u32),
    /// A system call of a 32-bit program, by its number.
    Compat(u32),
}

/// The meaning of a sample of a paired event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairMark {
    /// An operation begins.
    Begin {
        /// The key that connects it to its end.
        key: PairKey,
        /// Its labels.
        tags: Tags,
        /// Its value of the third sample type.
        amount: i64,
        /// The object for which it waits, as in [`PairMark::Release`].
        object: u64,
    },
    /// An operation ends.
    End {
        /// The key that connects it to its beginning.
        key: PairKey,
        /// True if it will be continued and is not counted again.
        again: bool,
        /// True if another thread ended it.
        released: bool,
    },
    /// A thread is about to wake others.
    Release {
        /// The object for which they wait.
        object: u64,
    },
}

/// Decodes a sample of an event; `None`: it neither begins nor ends an operation.
pub type MarkReader = Box<dyn Fn(&Sample<'_>) -> Option<PairMark> + Send>;

/// The meaning of the samples of a paired event.
pub enum PairReader {
    /// They begin or end operations.
    Marks(MarkReader),
    /// Calls that have ended, as reported by BPF programs.
    Calls,
}

/// An event that begins or ends an operation.
pub struct PairedEvent {
    /// The event.
    pub spec: EventSpec,
    /// Decodes its samples.
    pub read: PairReader,
}

/// The [`ProfileType`] of a [`PairedType`].
pub struct Paired<P> {
    paired: P,
    program: Option<Arc<SyscallProgram>>,
    readers: Vec<PairReader>,
    pairs: OpenPairs,
    calls: TimedCalls,
}

impl<P: PairedType + 'static> Paired<P> {
    /// Boxes a type for a recording.
    pub fn boxed(paired: P) -> Box<dyn ProfileType> {
        let pairs = OpenPairs::default();
        let calls = TimedCalls::default();
        Box::new(Paired { paired, program: None, readers: Vec::new(), pairs, calls })
    }
}

impl<P: PairedType + 'static> ProfileType for Paired<P> {
    fn name(&self) -> TypeName {
        P::NAME
    }

    fn sample_types(&self) -> Vec<SampleType> {
        self.paired.sample_types()
    }

    fn needs(&self) -> Needs {
        Needs { every_event: true, ..Needs::default() }
    }

    fn load_program(&mut self, load: &ProgramLoad<'_>) -> Option<Arc<dyn KernelProgram>> {
        let ProgramLoad { kernel, scope, walks } = *load;
        let calls = self.paired.timed_calls()?;
        // Kernels before Linux 6.9 have no programs that walk.
        let loaded = SyscallProgram::load(kernel, calls, scope, walks)
            .or_else(|_| SyscallProgram::load(kernel, calls, scope, None));
        self.program = Some(Arc::new(loaded.ok()?));
        self.program.clone().map(|program| program as Arc<dyn KernelProgram>)
    }

    fn program_needs(&self) -> ProgramNeeds {
        ProgramNeeds { thread_events: self.program.is_none(), ..ProgramNeeds::default() }
    }

    fn events(&mut self, trial: &mut EventTrial<'_>) -> Result<Vec<TypeEvent>, Error> {
        let scope = Scope { cpu_wide: trial.is_cpu_wide(), timed: self.program.is_some() };
        let events = self.paired.events(&scope)?;
        let (specs, readers): (Vec<_>, Vec<_>) =
            events.into_iter().map(|event| (event.spec, event.read)).unzip();
        self.readers = readers;
        Ok(specs.into_iter().map(TypeEvent::each_time).collect())
    }

    fn start(&mut self, _maker: &mut StackMaker, start: &TypeStart<'_>) {
        self.pairs.set_columns(start.first, self.paired.has_amount());
    }

    fn forget_labels(&mut self) {
        self.pairs.forget_labels();
        self.calls.forget_labels();
    }

    fn complete(&self, event: usize, sample: &mut Sample<'_>) {
        if let Some(PairReader::Calls) = self.readers.get(event) {
            stack_parts::complete(sample, CALL_SIZE);
        }
    }

    fn sample(&mut self, maker: &mut StackMaker, event: usize, sample: &Sample<'_>, _weight: u64) {
        match &self.readers[event] {
            PairReader::Marks(read) => {
                if let Some(mark) = read(sample) {
                    self.pairs.mark(maker, sample, &mark);
                }
            }
            PairReader::Calls => {
                if let Some(call) = TimedCall::parse(sample.raw) {
                    let tags = self.paired.tags_of_call(&call);
                    self.calls.call(maker, &mut self.pairs, sample, &call, &tags);
                }
            }
        }
    }

    fn record(&mut self, maker: &mut StackMaker, record: &Record<'_>) {
        match *record {
            Record::Exit { tid, time, .. } if self.paired.ends_with_thread() => {
                self.pairs.thread_ends(maker, tid, time);
            }
            Record::Lost(_) | Record::LostSamples(_) => self.pairs.lose_records(),
            _ => {}
        }
    }

    fn end(&mut self, maker: &mut StackMaker, end: &End) -> Vec<Message> {
        let mut notes = Vec::new();
        self.pairs.end(maker, end.time);
        if let Some(program) = &self.program {
            let tags = |call: &TimedCall| self.paired.tags_of_call(call);
            self.calls.end(maker, &mut self.pairs, program, end, tags);
            let ExtrapolatedWords { what, known } = self.paired.extrapolated();
            let known = (!end.is_last_part).then_some(known);
            notes.extend(notes_of_program(self.name().noun(), program.losses(), what, known));
        }
        notes.extend(self.pairs.notes(self.name().noun()));
        notes
    }
}

/// Bytes of stack that are copied at a beginning: there may be 100,000 per second, and the ring
/// stores the whole length even if the stack is shorter.
const COPY_EACH_TIME: u32 = 8 << 10;

/// Bytes of stack that are copied if BPF programs select the samples.
const COPY_OF_CHOSEN: u32 = 32 << 10;

/// A tracepoint: its system and its name.
pub type TracepointName = (&'static str, &'static str);

/// An event on a tracepoint, with the decoder of its samples.
pub fn beginning(
    name: TracepointName,
    filter: Option<&str>,
    reader: impl FnOnce(&Tracepoint) -> io::Result<MarkReader>,
) -> Result<PairedEvent, Error> {
    let (system, name) = name;
    let full = format!("{system}:{name}");
    let refused = |e: io::Error| match e.kind() {
        io::ErrorKind::InvalidData => Error::failed(format!("{full}: {e}")),
        _ => refused(&e, Wanted::Tracefs(full.clone())),
    };
    let found = Tracepoint::find(system, name).map_err(refused)?;
    let read = PairReader::Marks(reader(&found).map_err(refused)?);
    let spec = EventSpec::plain(&full, EventKind::OfType, abi::PERF_TYPE_TRACEPOINT, found.id);
    let filter = filter.map(str::to_owned);
    Ok(PairedEvent {
        spec: EventSpec { raw: true, most_dump: COPY_EACH_TIME, filter, ..spec },
        read,
    })
}

/// Like [`beginning`], for an event that only ends an operation, which needs no stack.
pub fn ending(
    name: TracepointName,
    filter: Option<&str>,
    reader: impl FnOnce(&Tracepoint) -> io::Result<MarkReader>,
) -> Result<PairedEvent, Error> {
    let event = beginning(name, filter, reader)?;
    Ok(PairedEvent { spec: EventSpec { stack: false, ..event.spec }, ..event })
}

/// The event to which BPF programs write the calls that have ended.
pub fn timed(name: &str) -> PairedEvent {
    let config = u64::from(abi::PERF_COUNT_SW_BPF_OUTPUT);
    let spec = EventSpec::plain(name, EventKind::OfType, abi::PERF_TYPE_SOFTWARE, config);
    let walked_at = Some(CALL_SIZE - 8);
    let spec =
        EventSpec { raw: true, anywhere: true, most_dump: COPY_OF_CHOSEN, walked_at, ..spec };
    PairedEvent { spec, read: PairReader::Calls }
}

/// The key of operations of which a thread has only one at a time.
pub fn key_of_thread(tid: i32) -> PairKey {
    (tid as u32 as u64, 0)
}
