//! Profile types that are made of spans: something begins with a stack, and ends a while later.
//!
//! One file a type says which events begin and end its spans, what ties the two together, and
//! what their fields mean. A span begins each time, whatever `-F` says: what lasts cannot be known
//! from some of the beginnings and some of the ends.

mod block_io;
mod lock;
mod syscall_names;
mod syscalls;

use std::io;

use perf_event_open_sys::bindings as abi;

use super::EventSpec;
use super::bpf::Told;
use super::bpf::calls::Call;
use super::events::Kind;
use super::permissions::{Wanted, explain};
use super::tracepoint::Tracepoint;
use sys::Error;
use sys::record::Sample;

/// The labels of a call that programs in the kernel have told of.
pub fn tags_of_call(of: SpanType, call: &Call) -> Tags {
    match of {
        SpanType::Lock { .. } => lock::tags(call),
        _ => syscalls::tags(call),
    }
}

/// A profile type that is made of spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanType {
    /// Waits for locks.
    Lock {
        /// Also who let the waiting go on.
        holders: bool,
    },
    /// Requests to block devices.
    Io,
    /// System calls.
    Syscalls,
}

impl SpanType {
    /// What it is called in sentences.
    pub fn name(self) -> &'static str {
        match self {
            SpanType::Lock { .. } => "lock contention",
            SpanType::Io => "block I/O",
            SpanType::Syscalls => "system calls",
        }
    }

    /// It as the subject of a sentence, with its verb.
    pub fn subject(self) -> &'static str {
        match self {
            SpanType::Lock { .. } => "lock contention is",
            SpanType::Io => "block I/O is",
            SpanType::Syscalls => "system calls are",
        }
    }

    /// Its sample types as (kind, unit) of pprof: how many, for how long, and then how much.
    pub fn value_types(self) -> &'static [(&'static str, &'static str)] {
        match self {
            // As Go's profiles of mutexes have it.
            SpanType::Lock { holders: false } => {
                &[("contentions", "count"), ("delay", "nanoseconds")]
            }
            SpanType::Lock { holders: true } => &[
                ("contentions", "count"),
                ("delay", "nanoseconds"),
                ("holder_contentions", "count"),
                ("holder_delay", "nanoseconds"),
            ],
            SpanType::Io => {
                &[("io_requests", "count"), ("io_delay", "nanoseconds"), ("io_bytes", "bytes")]
            }
            SpanType::Syscalls => &[("syscalls", "count"), ("syscall_time", "nanoseconds")],
        }
    }

    /// Programs in the kernel tell of it.
    pub fn is_told(self, told: Told) -> bool {
        match self {
            SpanType::Lock { holders } => told.lock && !holders,
            SpanType::Syscalls => told.syscalls,
            SpanType::Io => false,
        }
    }

    /// The name of the event to which programs in the kernel write.
    pub fn told_event(self) -> &'static str {
        match self {
            SpanType::Lock { .. } => "lock waits",
            SpanType::Io => "block I/O",
            SpanType::Syscalls => "system calls",
        }
    }

    /// Its events, those that begin spans first.
    ///
    /// Errors: one line that says which of them cannot be had here, and why.
    pub fn events(self, of: &Scope) -> Result<Vec<SpanEvent>, Error> {
        match self {
            SpanType::Lock { holders } => lock::events(of, holders),
            SpanType::Io => block_io::events(),
            SpanType::Syscalls => syscalls::events(of),
        }
    }
}

/// What spans are recorded of.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// Everything on a CPU (or all of a cgroup), not some threads.
    pub cpu_wide: bool,
    /// Programs in the kernel tell of them.
    pub told: bool,
}

/// What ties the end of a span to its beginning.
pub type Key = (u64, u64);

/// What tells spans apart besides their stacks and threads: labels of the profile.
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
    fn some(key: &'static str, value: TagValue) -> Option<Tag> {
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

/// What a sample says of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// One begins.
    Begin {
        /// What ties it to its end.
        key: Key,
        /// Its labels.
        tags: Tags,
        /// What it weighs in the third sample type.
        amount: i64,
        /// What it is about, as [`Mark::Release`] names it.
        object: u64,
    },
    /// One was, as programs in the kernel tell.
    Call(Call),
    /// One ends.
    End {
        /// What ties it to its beginning.
        key: Key,
        /// It will be gone on with: this is not another one.
        again: bool,
        /// Somebody else ended it.
        released: bool,
    },
    /// Somebody is about to let others go on that wait for this.
    Release {
        /// What they wait for.
        object: u64,
    },
}

/// How the samples of an event are to be understood.
pub type Reader = Box<dyn Fn(&Sample<'_>) -> Option<Mark>>;

/// An event that begins or ends spans.
pub struct SpanEvent {
    /// The event.
    pub spec: EventSpec,
    /// What a sample of it says; `None`: nothing of a span.
    pub read: Reader,
}

/// The events of a profile type, as they were opened.
pub struct SpanSet {
    /// The type.
    pub of: SpanType,
    /// What the samples of each event say.
    pub readers: Vec<Reader>,
}

/// Bytes of stack copied where spans begin: there may be 100,000 a second, and of a copy that ends
/// at the stack's end the ring holds the whole length all the same.
const SPAN_DUMP: u32 = 8 << 10;

/// The same where programs in the kernel tell of some of them.
const TOLD_DUMP: u32 = 32 << 10;

/// An event on the tracepoint `system:name`, and how to read it.
fn event(
    (system, name): (&str, &str),
    filter: Option<&str>,
    reader: impl FnOnce(&Tracepoint) -> io::Result<Reader>,
) -> Result<SpanEvent, Error> {
    let full = format!("{system}:{name}");
    let refused = |e: io::Error| match e.kind() {
        io::ErrorKind::InvalidData => Error::failed(format!("{full}: {e}")),
        _ => Error::failed(explain(&e, Wanted::Tracefs(full.clone()))),
    };
    let found = Tracepoint::find(system, name).map_err(refused)?;
    let read = reader(&found).map_err(refused)?;
    let spec = EventSpec::plain(&full, Kind::Span, abi::PERF_TYPE_TRACEPOINT, found.id);
    Ok(SpanEvent {
        spec: EventSpec {
            raw: true,
            most_dump: SPAN_DUMP,
            filter: filter.map(str::to_owned),
            ..spec
        },
        read,
    })
}

/// The same for one that only ends spans, which needs no stack.
fn ending(
    name: (&str, &str),
    filter: Option<&str>,
    reader: impl FnOnce(&Tracepoint) -> io::Result<Reader>,
) -> Result<SpanEvent, Error> {
    let event = event(name, filter, reader)?;
    Ok(SpanEvent { spec: EventSpec { stack: false, ..event.spec }, ..event })
}

/// The event to which programs in the kernel write of system calls that are over.
fn told(of: SpanType) -> SpanEvent {
    let config = u64::from(abi::PERF_COUNT_SW_BPF_OUTPUT);
    let spec = EventSpec::plain(of.told_event(), Kind::Span, abi::PERF_TYPE_SOFTWARE, config);
    let spec = EventSpec { raw: true, anywhere: true, most_dump: TOLD_DUMP, ..spec };
    SpanEvent { spec, read: Box::new(|sample| Call::parse(sample.raw).map(Mark::Call)) }
}

/// The key of what a thread does one at a time.
fn of_thread(sample: &Sample<'_>) -> Key {
    (sample.tid as u32 as u64, 0)
}
