//! Requests to block devices, from issue to the driver until completion by the device.
//!
//! The stack is that of the thread that issued the request to the driver: a thread that reads,
//! syncs or bypasses the page cache itself; a kernel worker for write-back, and for requests that
//! were queued.

use super::paired::{
    PairMark, Paired, PairedEvent, PairedType, Scope, Tag, TagValue, beginning, ending,
};
use super::{Registered, SampleType, ValuesKnown};
use crate::sampler::EventSpec;
use crate::sampler::TypeName;
use sys::Error;

/// `-T io`.
pub const REGISTERED: Registered = Registered {
    name: "io",
    help: "Requests to block devices: number, latency, bytes",
    shown_first: &["io_delay", "io_requests"],
    values: ValuesKnown::WhileRecording,
    options: None,
    clean_up: None,
    new: |selection| selection.has("io").then(|| Paired::boxed(BlockIo)),
};

struct BlockIo;

impl PairedType for BlockIo {
    const NAME: TypeName = TypeName::Singular("block I/O");

    fn sample_types(&self) -> Vec<SampleType> {
        vec![
            SampleType::count("io_requests"),
            SampleType::nanoseconds("io_delay"),
            SampleType::bytes("io_bytes"),
        ]
    }

    fn events(&self, _scope: &Scope) -> Result<Vec<PairedEvent>, Error> {
        events()
    }

    fn has_amount(&self) -> bool {
        true
    }

    /// A kernel worker may exit before the device has completed the request.
    fn ends_with_thread(&self) -> bool {
        false
    }
}

/// The events. A request completes on the CPU of the device's interrupt, in the context of any
/// thread.
fn events() -> Result<Vec<PairedEvent>, Error> {
    let issue = beginning(("block", "block_rq_issue"), None, |found| {
        let [device, sector] = [found.field("dev")?, found.field("sector")?];
        let [bytes, what] = [found.field("bytes")?, found.field("rwbs")?];
        Ok(Box::new(move |sample| {
            let number = device.number(sample.raw)?;
            let tags = [
                Tag::some(profile::label::DEVICE, TagValue::Device(number as u32)),
                Tag::some(profile::label::RW, TagValue::Word(direction(what.text(sample.raw)?))),
                None,
            ];
            let key = (number, sector.number(sample.raw)?);
            let amount = bytes.number(sample.raw)? as i64;
            Some(PairMark::Begin { key, tags, amount, object: 0 })
        }))
    })?;
    let complete = ending(("block", "block_rq_complete"), None, |found| {
        let [device, sector] = [found.field("dev")?, found.field("sector")?];
        Ok(Box::new(move |sample| {
            let key = (device.number(sample.raw)?, sector.number(sample.raw)?);
            Some(PairMark::End { key, again: false, released: false })
        }))
    })?;
    let complete =
        PairedEvent { spec: EventSpec { anywhere: true, ..complete.spec }, read: complete.read };
    Ok(vec![issue, complete])
}

/// The kind of a request, from the kernel's letters (`blk_fill_rwbs` in kernel/trace/blktrace.c):
/// an F in front is a preceding flush.
fn direction(rwbs: &[u8]) -> &'static str {
    let letter = match rwbs {
        [b'F', next @ (b'R' | b'W' | b'D' | b'F'), ..] => Some(next),
        _ => rwbs.first(),
    };
    match letter {
        Some(b'R') => "read",
        Some(b'W') => "write",
        Some(b'D') => "discard",
        Some(b'F') => "flush",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::direction;

    #[test]
    fn what_a_request_does() {
        let all = ["R", "RA", "WS", "WSM", "FWFS", "DS", "FF", "N", ""];
        let kinds = all.map(|rwbs| direction(rwbs.as_bytes()));
        assert_eq!(kinds[..5], ["read", "read", "write", "write", "write"]);
        assert_eq!(kinds[5..], ["discard", "flush", "other", "other"]);
    }
}
