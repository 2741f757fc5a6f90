//! Profile types made of paired events: one begins something, with a stack; another ends it a while
//! later. It is counted by the stack of its beginning, with its number and its time.
//!
//! A type says in a file of its own which events begin and end, what ties the two together, and what
//! their fields mean: [`PairedType`]. Each beginning is recorded, whatever `-F` says: from some of the
//! beginnings and some of the ends, no time can be known.
//!
//! What lasts until the end of the recording counts until then; what had begun before the recording
//! is not known. A pair during which records were lost may be two of which the end of the one and the
//! beginning of the other are missing: it is left out, and counted.

mod open_pairs;
mod timed_calls;

use std::io;
use std::rc::Rc;

use perf_event_open_sys::bindings as abi;

use super::{End, EventTrial, KernelProgram, ProfileType, SampleType, TypeEvent, TypeStart};
use crate::sampler::EventSpec;
use crate::sampler::bpf::ThreadScope;
use crate::sampler::bpf::btf::Btf;
use crate::sampler::bpf::syscalls::{Calls, TimedCall, Which};
use crate::sampler::events::EventKind;
use crate::sampler::permissions::{Wanted, explain};
use crate::sampler::stack_maker::StackMaker;
use crate::sampler::tracepoint::Tracepoint;
use open_pairs::OpenPairs;
use sys::Error;
use sys::record::{Record, Sample};
use timed_calls::TimedCalls;

/// A profile type made of paired events.
pub trait PairedType {
    /// As [`ProfileType::subject`].
    const SUBJECT: &'static str;

    /// The sample types: number, nanoseconds, and then what else there is.
    fn sample_types(&self) -> Vec<SampleType>;

    /// Its events, those that begin first.
    ///
    /// # Errors
    ///
    /// One line that says which of them cannot be had here, and why.
    fn events(&self, scope: &Scope) -> Result<Vec<PairedEvent>, Error>;

    /// The calls that programs in the kernel time for it, if they can.
    fn timed_calls(&self) -> Option<Which> {
        None
    }

    /// The labels of a call that was timed in the kernel.
    fn tags_of_call(&self, _call: &TimedCall) -> Tags {
        Tags::default()
    }

    /// What is open ends with its thread.
    fn ends_with_thread(&self) -> bool {
        true
    }

    /// The third sample type is [`PairMark::Begin::amount`].
    fn has_amount(&self) -> bool {
        false
    }

    /// Of calls that are extrapolated: what they are, and what is known of all.
    fn extrapolated(&self) -> ExtrapolatedWords {
        ExtrapolatedWords { what: "calls", known: "the number and time of each thread's calls" }
    }
}

/// Words for a sentence about extrapolated calls.
pub struct ExtrapolatedWords {
    /// `waits`
    pub what: &'static str,
    /// `the number and time of each thread's waits for a lock`
    pub known: &'static str,
}

/// What is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// Everything on a CPU (or all of a cgroup), not some threads.
    pub cpu_wide: bool,
    /// Programs in the kernel time the calls.
    pub timed: bool,
}

/// What ties the end to its beginning.
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
    /// A block device, as the kernel numbers them (20 bits of minor number).
    Device(u32),
    /// `LCB_F_*` of the kernel's `include/trace/events/lock.h`.
    LockFlags(u32),
    /// A system call that has no name, by its number.
    Number(u32),
    /// A system call of a 32-bit program, by its number.
    Compat(u32),
}

/// What a sample of a paired event means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairMark {
    /// Something begins.
    Begin {
        /// What ties it to its end.
        key: PairKey,
        /// Its labels.
        tags: Tags,
        /// Its value of the third sample type.
        amount: i64,
        /// The object that it waits for, as [`PairMark::Release`] names it.
        object: u64,
    },
    /// A call is over, as programs in the kernel report.
    Call(TimedCall),
    /// It ends.
    End {
        /// What ties it to its beginning.
        key: PairKey,
        /// It will be continued, so this is not one more.
        again: bool,
        /// Another thread ended it.
        released: bool,
    },
    /// A thread is about to wake others.
    Release {
        /// The object that they wait for.
        object: u64,
    },
}

/// Decodes a sample of an event; `None`: it neither begins nor ends anything.
pub type PairReader = Box<dyn Fn(&Sample<'_>) -> Option<PairMark>>;

/// An event that begins or ends something.
pub struct PairedEvent {
    /// The event.
    pub spec: EventSpec,
    /// Decodes its samples.
    pub read: PairReader,
}

/// [`ProfileType`] of a [`PairedType`].
pub struct Paired<P> {
    paired: P,
    program: Option<Rc<Calls>>,
    readers: Vec<PairReader>,
    pairs: OpenPairs,
    calls: TimedCalls,
}

impl<P: PairedType + 'static> Paired<P> {
    /// Records a type.
    pub fn boxed(paired: P) -> Box<dyn ProfileType> {
        let (pairs, calls) = (OpenPairs::default(), TimedCalls::default());
        Box::new(Paired { paired, program: None, readers: Vec::new(), pairs, calls })
    }
}

impl<P: PairedType + 'static> ProfileType for Paired<P> {
    fn subject(&self) -> &'static str {
        P::SUBJECT
    }

    fn sample_types(&self) -> Vec<SampleType> {
        self.paired.sample_types()
    }

    fn is_each_time(&self) -> bool {
        true
    }

    fn load_program(&mut self, kernel: &Btf, scope: ThreadScope) -> Option<Rc<dyn KernelProgram>> {
        self.program = Some(Rc::new(Calls::load(kernel, self.paired.timed_calls()?, scope).ok()?));
        self.program.clone().map(|program| program as Rc<dyn KernelProgram>)
    }

    fn needs_thread_events(&self) -> bool {
        self.program.is_none()
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

    fn sample(&mut self, maker: &mut StackMaker, event: usize, sample: &Sample<'_>, _weight: u64) {
        match (self.readers[event])(sample) {
            Some(PairMark::Call(call)) => {
                let tags = self.paired.tags_of_call(&call);
                self.calls.call(maker, &mut self.pairs, sample, &call, &tags);
            }
            Some(mark) => self.pairs.mark(maker, sample, &mark),
            None => {}
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

    fn end(&mut self, maker: &mut StackMaker, end: &End) -> Vec<String> {
        let mut notes = Vec::new();
        self.pairs.end(maker, end.time);
        if let Some(program) = &self.program {
            let tags = |call: &TimedCall| self.paired.tags_of_call(call);
            self.calls.end(maker, &mut self.pairs, program, end.time, tags);
            let ExtrapolatedWords { what, known } = self.paired.extrapolated();
            notes.extend(program.losses().notes(self.noun(), what, known));
        }
        notes.extend(self.pairs.notes(self.noun()));
        notes
    }
}

/// Bytes of stack that are copied at a beginning: there may be 100,000 a second, and the ring holds
/// the whole length even if the stack is shorter.
const COPY_EACH_TIME: u32 = 8 << 10;

/// The same where programs in the kernel choose which of them are sampled.
const COPY_OF_CHOSEN: u32 = 32 << 10;

/// A tracepoint: its system and its name.
pub type TracepointName = (&'static str, &'static str);

/// An event on a tracepoint, and how its samples are decoded.
pub fn beginning(
    name: TracepointName,
    filter: Option<&str>,
    reader: impl FnOnce(&Tracepoint) -> io::Result<PairReader>,
) -> Result<PairedEvent, Error> {
    let (system, name) = name;
    let full = format!("{system}:{name}");
    let refused = |e: io::Error| match e.kind() {
        io::ErrorKind::InvalidData => Error::failed(format!("{full}: {e}")),
        _ => Error::failed(explain(&e, Wanted::Tracefs(full.clone()))),
    };
    let found = Tracepoint::find(system, name).map_err(refused)?;
    let read = reader(&found).map_err(refused)?;
    let spec = EventSpec::plain(&full, EventKind::OfType, abi::PERF_TYPE_TRACEPOINT, found.id);
    let filter = filter.map(str::to_owned);
    Ok(PairedEvent {
        spec: EventSpec { raw: true, most_dump: COPY_EACH_TIME, filter, ..spec },
        read,
    })
}

/// The same for an event that only ends something, which needs no stack.
pub fn ending(
    name: TracepointName,
    filter: Option<&str>,
    reader: impl FnOnce(&Tracepoint) -> io::Result<PairReader>,
) -> Result<PairedEvent, Error> {
    let event = beginning(name, filter, reader)?;
    Ok(PairedEvent { spec: EventSpec { stack: false, ..event.spec }, ..event })
}

/// The event to which programs in the kernel write the calls that are over.
pub fn timed(name: &str) -> PairedEvent {
    let config = u64::from(abi::PERF_COUNT_SW_BPF_OUTPUT);
    let spec = EventSpec::plain(name, EventKind::OfType, abi::PERF_TYPE_SOFTWARE, config);
    let spec = EventSpec { raw: true, anywhere: true, most_dump: COPY_OF_CHOSEN, ..spec };
    PairedEvent { spec, read: Box::new(|sample| TimedCall::parse(sample.raw).map(PairMark::Call)) }
}

/// The key of what a thread does one at a time.
pub fn key_of_thread(tid: i32) -> PairKey {
    (tid as u32 as u64, 0)
}
