//! System calls, from the entry of a thread into the kernel to its return.

use std::sync::OnceLock;

use super::paired::{
    PairMark, Paired, PairedEvent, PairedType, Scope, Tag, TagValue, Tags, beginning, ending,
    key_of_thread, timed,
};
use super::syscall_names::names;
use super::{Registered, SampleType, ValuesKnown};
use crate::sampler::TypeName;
use crate::sampler::bpf::syscalls::{MARKED, TimedCall, TracedCalls};
use sys::Error;
use sys::record::UserStack;

/// `-T syscalls`.
pub const REGISTERED: Registered = Registered {
    name: "syscalls",
    help: "System calls: number and time",
    shown_first: &["syscall_time", "syscalls"],
    values: ValuesKnown::WhileRecording,
    options: None,
    clean_up: None,
    new: |selection| selection.has("syscalls").then(|| Paired::boxed(Syscalls)),
};

struct Syscalls;

impl PairedType for Syscalls {
    const NAME: TypeName = TypeName::Plural("system calls");

    fn sample_types(&self) -> Vec<SampleType> {
        vec![SampleType::count("syscalls"), SampleType::nanoseconds("syscall_time")]
    }

    fn events(&self, scope: &Scope) -> Result<Vec<PairedEvent>, Error> {
        events(scope)
    }

    fn timed_calls(&self) -> Option<TracedCalls> {
        Some(TracedCalls::All)
    }

    fn tags_of_call(&self, call: &TimedCall) -> Tags {
        labels(all_names(), call.object as u32, call.kind & MARKED != 0)
    }
}

fn events(scope: &Scope) -> Result<Vec<PairedEvent>, Error> {
    if scope.timed {
        return Ok(vec![timed("system calls")]);
    }
    // prof's own calls, which each sample causes, are left out.
    let others = scope.cpu_wide.then(|| format!("common_pid != {}", std::process::id()));
    let enter = beginning(("raw_syscalls", "sys_enter"), others.as_deref(), |found| {
        let id = found.field("id")?;
        let names = all_names();
        Ok(Box::new(move |sample| {
            let number = id.number(sample.raw)? as u32;
            let tags = labels(names, number, sample.user == UserStack::Compat);
            Some(PairMark::Begin { key: key_of_thread(sample.tid), tags, amount: 0, object: 0 })
        }))
    })?;
    let exit = ending(("raw_syscalls", "sys_exit"), others.as_deref(), |_| {
        Ok(Box::new(|sample| {
            Some(PairMark::End { key: key_of_thread(sample.tid), again: false, released: false })
        }))
    })?;
    Ok(vec![enter, exit])
}

fn all_names() -> &'static [&'static str] {
    static NAMES: OnceLock<Vec<&'static str>> = OnceLock::new();
    NAMES.get_or_init(names)
}

fn labels(names: &[&'static str], number: u32, compat: bool) -> Tags {
    let name = names.get(number as usize).filter(|name| !name.is_empty());
    let value = match name {
        _ if compat => TagValue::Compat(number),
        Some(name) => TagValue::Word(name),
        None => TagValue::Number(number),
    };
    [Tag::some(profile::label::SYSCALL, value), None, None]
}
