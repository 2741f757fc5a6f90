//! System calls, from when a thread enters the kernel to when it leaves.

use std::sync::OnceLock;

use super::syscall_names::names;
use super::{
    Mark, Scope, SpanEvent, SpanType, Tag, TagValue, Tags, ending, event, of_thread, told,
};
use crate::sampler::bpf::calls::{Call, MARKED};
use sys::Error;
use sys::record::UserStack;

/// The events.
pub fn events(of: &Scope) -> Result<Vec<SpanEvent>, Error> {
    if of.told {
        return Ok(vec![told(SpanType::Syscalls)]);
    }
    // What prof does because of what it sees is not to be seen.
    let others = of.cpu_wide.then(|| format!("common_pid != {}", std::process::id()));
    let enter = event(("raw_syscalls", "sys_enter"), others.as_deref(), |found| {
        let (id, names) = (found.field("id")?, all_names());
        Ok(Box::new(move |sample| {
            let number = id.number(sample.raw)? as u32;
            let tags = labels(names, number, sample.user == UserStack::Compat);
            Some(Mark::Begin { key: of_thread(sample), tags, amount: 0, object: 0 })
        }))
    })?;
    let exit = ending(("raw_syscalls", "sys_exit"), others.as_deref(), |_| {
        Ok(Box::new(|sample| {
            Some(Mark::End { key: of_thread(sample), again: false, released: false })
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

/// The labels of a call that is over.
pub fn tags(call: &Call) -> Tags {
    labels(all_names(), call.object as u32, call.kind & MARKED != 0)
}
