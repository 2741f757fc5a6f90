//! Waits for locks: those of programs, which are system calls, and with whole CPUs also those of
//! the kernel.
//!
//! An uncontended lock of a program is a word in memory; under contention, the program has the
//! kernel wait for a change of the word (`futex(2)`). So do condition variables, idle thread pools
//! and joins: the stack distinguishes them, after symbolization (`report::locks`). Until then, a
//! label has what is known.

use clap::Args;

use super::paired::{
    ExtrapolatedWords, PairKey, PairMark, Paired, PairedEvent, PairedType, Scope, Tag, TagValue,
    Tags, beginning, ending, key_of_thread, timed,
};
use super::{OptionGroup, Registered, SampleType, ValuesKnown};
use crate::sampler::TypeName;
use crate::sampler::bpf::syscalls::{MARKED, TimedCall, TracedCalls};
use crate::sampler::tracepoint::Tracepoint;
use profile::label::{self, LIKELY_MUTEX, UNKNOWN_WAIT};
use sys::Error;
use sys::record::Sample;

/// `linux/futex.h`: without the flags for a private word and for the clock.
const FUTEX_CMD_MASK: u64 = !(128 | 256);
const FUTEX_WAIT: u64 = 0;
const FUTEX_WAKE: u64 = 1;
const FUTEX_CMP_REQUEUE: u64 = 4;
const FUTEX_WAKE_OP: u64 = 5;
const FUTEX_LOCK_PI: u64 = 6;
const FUTEX_UNLOCK_PI: u64 = 7;
const FUTEX_WAIT_BITSET: u64 = 9;
const FUTEX_WAKE_BITSET: u64 = 10;
const FUTEX_LOCK_PI2: u64 = 13;

/// Drops all operations that do not wait for a lock, the most frequent first: a call then costs the
/// target 0.1 µs instead of 1. (A condition variable waits by the same call as a mutex.)
const WAITS: &str = "op != 129 && op != 1 && op != 138 && op != 10 && op != 135 && op != 7 && \
                     op != 131 && op != 3 && op != 132 && op != 4 && op != 133 && op != 5 && \
                     op != 136 && op != 8 && op != 139 && op != 395 && op != 140 && op != 12";

/// Calls that wake threads return their number: they do not end a wait.
const ENDED: &str = "ret <= 0";

/// A signal arrived, and the kernel restarts the call (`ERESTARTSYS` to `ERESTART_RESTARTBLOCK` of
/// `linux/errno.h`).
const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;

/// The value of a contended mutex of glibc, Rust and Go.
const CONTENDED: u64 = 2;

/// `-T lock`.
pub const REGISTERED: Registered = Registered {
    name: "lock",
    help: "Contention: waits for locks, their number and delay",
    shown_first: &["delay", "contentions"],
    values: ValuesKnown::WhileRecording,
    options: Some(OptionGroup {
        add: LockOptions::augment_args,
        given: |options| options.lock.holders.then_some("--holders"),
        applies: |selection| selection.has("lock"),
        needs: "-T lock",
    }),
    clean_up: None,
    new: |selection| {
        let holders = selection.options.lock.holders;
        selection.has("lock").then(|| Paired::boxed(Contention { holders }))
    },
};

/// The options of `-T lock`.
#[derive(Clone, Debug, Default, Args)]
pub struct LockOptions {
    /// Also attribute each wait for a lock to the code that released it
    ///
    /// For -T lock. Adds the sample types holder_contentions and holder_delay.
    #[arg(long, help_heading = "Profile types")]
    pub holders: bool,
}

struct Contention {
    /// True to attribute waits also to the stack that released the lock.
    holders: bool,
}

impl PairedType for Contention {
    const NAME: TypeName = TypeName::Singular("lock contention");

    /// The first two as in Go's mutex profiles.
    fn sample_types(&self) -> Vec<SampleType> {
        let mut types = vec![SampleType::count("contentions"), SampleType::nanoseconds("delay")];
        if self.holders {
            types.push(SampleType::count("holder_contentions"));
            types.push(SampleType::nanoseconds("holder_delay"));
        }
        types
    }

    fn events(&self, scope: &Scope) -> Result<Vec<PairedEvent>, Error> {
        events(scope, self.holders)
    }

    /// The BPF programs do not record who released a lock.
    fn timed_calls(&self) -> Option<TracedCalls> {
        (!self.holders).then_some(TracedCalls::Waits)
    }

    fn tags_of_call(&self, call: &TimedCall) -> Tags {
        tags(call)
    }

    fn extrapolated(&self) -> ExtrapolatedWords {
        let known = "the number and time of each thread's waits for a lock";
        ExtrapolatedWords { what: "waits", known }
    }
}

fn events(scope: &Scope, holders: bool) -> Result<Vec<PairedEvent>, Error> {
    if scope.timed {
        let mut events = vec![timed("lock waits")];
        if scope.cpu_wide
            && let Some(begin) = kernel()
        {
            events.extend([begin, kernel_end()?]);
        }
        return Ok(events);
    }
    let filter = (!holders).then_some(WAITS);
    let mut events = vec![futex(filter)?];
    if scope.cpu_wide {
        events.extend([new_futex()?, kernel()].into_iter().flatten());
    }
    let ended = |name| {
        ending(("syscalls", name), Some(ENDED), |found| {
            let ret = found.field("ret")?;
            Ok(Box::new(move |sample| {
                let ret = ret.number(sample.raw)? as i64;
                let again = RESTARTS.contains(&ret);
                Some(PairMark::End { key: key_of_thread(sample.tid), again, released: ret == 0 })
            }))
        })
    };
    events.push(ended("sys_exit_futex")?);
    if scope.cpu_wide {
        if events.iter().any(|e| e.spec.name == NEW) {
            events.push(ended("sys_exit_futex_wait")?);
        }
        if events.iter().any(|e| e.spec.name == KERNEL) {
            events.push(kernel_end()?);
        }
    }
    Ok(events)
}

fn futex(filter: Option<&str>) -> Result<PairedEvent, Error> {
    beginning(("syscalls", "sys_enter_futex"), filter, |found| {
        let [address, op, value] = [found.field("uaddr")?, found.field("op")?, found.field("val")?];
        Ok(Box::new(move |sample| {
            let object = address.number(sample.raw)?;
            let kind = match op.number(sample.raw)? & FUTEX_CMD_MASK {
                FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => "pi",
                FUTEX_WAIT | FUTEX_WAIT_BITSET => {
                    let contended = value.number(sample.raw)? as u32 as u64 == CONTENDED;
                    if contended { LIKELY_MUTEX } else { UNKNOWN_WAIT }
                }
                FUTEX_WAKE | FUTEX_WAKE_BITSET | FUTEX_WAKE_OP | FUTEX_CMP_REQUEUE
                | FUTEX_UNLOCK_PI => return Some(PairMark::Release { object }),
                _ => return None,
            };
            Some(begins(sample, object, kind))
        }))
    })
}

fn begins(sample: &Sample<'_>, object: u64, kind: &'static str) -> PairMark {
    PairMark::Begin {
        key: key_of_thread(sample.tid),
        tags: labels(object, kind),
        amount: 0,
        object,
    }
}

fn labels(object: u64, kind: &'static str) -> Tags {
    let lock = Tag::some(label::LOCK, TagValue::Address(object));
    [lock, Tag::some(label::KIND, TagValue::Word(kind)), None]
}

/// The labels of a wait that has ended.
fn tags(call: &TimedCall) -> Tags {
    let kind = match call.kind & !MARKED {
        FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => "pi",
        _ if call.kind & MARKED != 0 => LIKELY_MUTEX,
        _ => UNKNOWN_WAIT,
    };
    labels(call.object, kind)
}

/// The call that waits for one word since Linux 6.7; C libraries do not use it yet. (The one that
/// waits for the first of several words does not wait for a lock.)
const NEW: &str = "syscalls:sys_enter_futex_wait";

fn new_futex() -> Result<Option<PairedEvent>, Error> {
    let name = ("syscalls", "sys_enter_futex_wait");
    if Tracepoint::find(name.0, name.1).is_err() {
        return Ok(None);
    }
    let event = beginning(name, None, |found| {
        let [address, value] = [found.field("uaddr")?, found.field("val")?];
        Ok(Box::new(move |sample| {
            let contended = value.number(sample.raw)? == CONTENDED;
            let kind = if contended { LIKELY_MUTEX } else { UNKNOWN_WAIT };
            Some(begins(sample, address.number(sample.raw)?, kind))
        }))
    })?;
    Ok(Some(event))
}

const KERNEL: &str = "lock:contention_begin";

/// Locks of the kernel (Linux 5.19); `None`: this kernel does not report them.
fn kernel() -> Option<PairedEvent> {
    let begin = beginning(("lock", "contention_begin"), None, |found| {
        let [address, flags] = [found.field("lock_addr")?, found.field("flags")?];
        Ok(Box::new(move |sample| {
            let object = address.number(sample.raw)?;
            let flags = flags.number(sample.raw)? as u32;
            let tags = [
                Tag::some(label::LOCK, TagValue::Address(object)),
                Tag::some(label::KIND, TagValue::Word(kernel_kind(flags))),
                Tag::some(label::FLAGS, TagValue::LockFlags(flags)),
            ];
            Some(PairMark::Begin { key: kernel_key(sample, object), tags, amount: 0, object })
        }))
    });
    begin.ok()
}

fn kernel_end() -> Result<PairedEvent, Error> {
    ending(("lock", "contention_end"), None, |found| {
        let address = found.field("lock_addr")?;
        Ok(Box::new(move |sample| {
            let key = kernel_key(sample, address.number(sample.raw)?);
            Some(PairMark::End { key, again: false, released: false })
        }))
    })
}

/// While a thread waits for one lock, an interrupt may wait for another. No lock has address 0,
/// which is the key of the thread's own wait.
fn kernel_key(sample: &Sample<'_>, lock: u64) -> PairKey {
    (key_of_thread(sample.tid).0, lock)
}

/// `LCB_F_*` of the kernel's `include/trace/events/lock.h`, and the meaning of their combinations.
fn kernel_kind(flags: u32) -> &'static str {
    const SPIN: u32 = 1;
    const RT: u32 = 8;
    const PERCPU: u32 = 16;
    const MUTEX: u32 = 32;
    const READ_WRITE: u32 = 6;
    match flags {
        f if f & MUTEX != 0 => "kernel mutex",
        f if f & PERCPU != 0 => "kernel percpu rwsem",
        f if f & RT != 0 => "kernel rtmutex",
        f if f & SPIN != 0 && f & READ_WRITE != 0 => "kernel rwlock",
        f if f & SPIN != 0 => "kernel spinlock",
        f if f & READ_WRITE != 0 => "kernel rwsem",
        _ => "kernel semaphore",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_locks_are_told_by_their_flags() {
        let kinds = [0, 1, 2, 3, 4, 5, 8, 18, 32, 33].map(kernel_kind);
        let short = kinds.map(|kind| kind.strip_prefix("kernel ").unwrap());
        assert_eq!(short[..5], ["semaphore", "spinlock", "rwsem", "rwlock", "rwsem"]);
        assert_eq!(short[5..], ["rwlock", "rtmutex", "percpu rwsem", "mutex", "mutex"]);
    }
}
