//! Events that are kept as they were recorded, until the analysis thread takes them.

use std::iter;

use super::blocks::{HeldMemory, KeptBytes, StackBlocks, StackPart};
use crate::sampler::Event;
use sys::record::{
    AllRegs, Callchain, Chunk, FileId, GoStacks, GroupCounts, Mmap, Record, Regs, Rest, Sample,
    UserStack,
};

/// An event with its own memory.
#[derive(Debug)]
pub enum KeptEvent {
    /// A sample.
    Sample(Box<KeptSample>),
    /// Another record.
    Record(Box<KeptRecord>),
}

impl KeptEvent {
    /// Keeps an event.
    pub fn new(event: &Event<'_>, blocks: &mut StackBlocks) -> KeptEvent {
        match event {
            Event::Sample { event, weight, represents, sample } => {
                let kept = KeptSample::new(sample, blocks);
                let (event, weight, represents) = (*event, *weight, *represents);
                KeptEvent::Sample(Box::new(KeptSample { event, weight, represents, ..kept }))
            }
            Event::Other(record) => KeptEvent::Record(Box::new(KeptRecord::new(record, blocks))),
        }
    }

    /// Passes on the event.
    pub fn restore(&self, memory: &mut Vec<u8>, consume: impl FnOnce(&Event<'_>)) {
        match self {
            KeptEvent::Sample(kept) => kept.restore(memory, consume),
            KeptEvent::Record(kept) => consume(&Event::Other(kept.restore())),
        }
    }
}

/// A sample of event number `event`.
#[derive(Debug)]
pub struct KeptSample {
    event: usize,
    weight: u64,
    represents: u32,
    /// The sample without what it borrows.
    plain: Sample<'static>,
    /// The call chain, the group's counts, the fields of a tracepoint, and the copies of an
    /// interpreter's frames.
    parts: Box<[u8]>,
    lengths: PartLengths,
    user: KeptUser,
    _held: HeldMemory,
}

/// Lengths of the parts of a sample, except for the last one.
#[derive(Debug)]
struct PartLengths {
    callchain: usize,
    group: usize,
    raw: usize,
}

/// The user stack of a sample.
#[derive(Debug)]
enum KeptUser {
    None,
    Compat,
    Native(KeptStack),
}

/// A copy of a stack.
#[derive(Debug)]
struct KeptStack {
    regs: Regs,
    all: Box<[u8]>,
    full: bool,
    copy: KeptBytes,
    /// Address of the first chunk beyond the kernel's copy.
    rest: u64,
    /// Those chunks, with their holes.
    chunks: Vec<(KeptBytes, u8)>,
    /// Replaced return addresses.
    replaced: Box<[u8]>,
    /// The other stack of a thread of Go.
    go: Box<[u8]>,
}

impl KeptStack {
    /// The kernel's copy and the chunks; `memory` takes those that are kept in blocks.
    fn parts<'a>(&'a self, memory: &'a mut Vec<u8>) -> impl Iterator<Item = &'a [u8]> {
        let all = || iter::once(&self.copy).chain(self.chunks.iter().map(|(bytes, _)| bytes));
        memory.clear();
        let mut lengths = Vec::new();
        for bytes in all() {
            if let KeptBytes::Blocks(blocks) = bytes {
                let before = memory.len();
                blocks.append_to(memory);
                lengths.push(memory.len() - before);
            }
        }
        let mut lengths = lengths.into_iter();
        let mut left = &memory[..];
        all().map(move |bytes| match bytes {
            KeptBytes::Plain(plain) => plain.bytes(),
            KeptBytes::Blocks(_) => {
                let (part, behind) = left.split_at(lengths.next().unwrap_or_default());
                left = behind;
                part
            }
        })
    }
}

impl KeptSample {
    /// A sample of the first event, without weight.
    fn new(sample: &Sample<'_>, blocks: &mut StackBlocks) -> KeptSample {
        let Sample {
            id,
            ip,
            pid,
            tid,
            time,
            period,
            group,
            kernel,
            callchain,
            raw,
            user,
            cgroup: _,
            walked,
        } = *sample;
        let parts = [callchain.bytes(), group.bytes(), raw, walked].concat().into_boxed_slice();
        let (replaced, go) = match user {
            UserStack::Native { rest, .. } => (rest.replaced(), rest.go().all()),
            _ => (&[][..], &[][..]),
        };
        let size = size_of::<KeptSample>() + parts.len() + replaced.len() + go.len();
        let held = HeldMemory::new(blocks.held(), size);
        let user = match user {
            UserStack::None => KeptUser::None,
            UserStack::Compat => KeptUser::Compat,
            UserStack::Native { regs, all, bytes, full, rest } => {
                let copy = blocks.keep(tid, StackPart::Copy, regs.sp, bytes);
                let at = |i: usize| rest.from().wrapping_add((i * sys::record::CHUNK) as u64);
                let chunks = rest.chunks().iter().enumerate();
                let chunks = chunks.map(|(i, chunk)| {
                    let part = StackPart::Chunk(i);
                    (blocks.keep(tid, part, at(i), chunk.bytes()), chunk.holes())
                });
                let chunks = chunks.collect();
                let all = all.bytes().into();
                let rest = rest.from();
                KeptUser::Native(KeptStack {
                    regs,
                    all,
                    full,
                    copy,
                    rest,
                    chunks,
                    replaced: replaced.into(),
                    go: go.into(),
                })
            }
        };
        let lengths = PartLengths {
            callchain: callchain.bytes().len(),
            group: group.bytes().len(),
            raw: raw.len(),
        };
        let plain = Sample {
            id,
            ip,
            pid,
            tid,
            time,
            period,
            group: GroupCounts::default(),
            cgroup: None,
            walked: &[],
            kernel,
            callchain: Callchain::default(),
            raw: &[],
            user: UserStack::None,
        };
        let (event, weight, represents, _held) = (0, 0, 1, held);
        KeptSample { event, weight, represents, plain, parts, lengths, user, _held }
    }

    fn restore(&self, memory: &mut Vec<u8>, consume: impl FnOnce(&Event<'_>)) {
        let (callchain, rest) = self.parts.split_at(self.lengths.callchain);
        let (group, rest) = rest.split_at(self.lengths.group);
        let (raw, walked) = rest.split_at(self.lengths.raw);
        let mut chunks = Vec::new();
        let user = match &self.user {
            KeptUser::None => UserStack::None,
            KeptUser::Compat => UserStack::Compat,
            KeptUser::Native(stack) => {
                let mut parts = stack.parts(memory);
                let copy = parts.next().unwrap_or_default();
                let holes = stack.chunks.iter().map(|&(_, holes)| holes);
                chunks.extend(parts.zip(holes).map(|(bytes, holes)| Chunk::new(bytes, holes)));
                UserStack::Native {
                    regs: stack.regs,
                    all: AllRegs::new(&stack.all),
                    bytes: copy,
                    full: stack.full,
                    rest: Rest::new(stack.rest, &chunks)
                        .with_replaced(&stack.replaced)
                        .with_go(GoStacks::new(&stack.go)),
                }
            }
        };
        let sample = Sample {
            group: GroupCounts::new(group),
            callchain: Callchain::new(callchain),
            raw,
            walked,
            user,
            ..self.plain
        };
        let KeptSample { event, weight, represents, .. } = *self;
        consume(&Event::Sample { event, weight, represents, sample });
    }
}

/// A record that is not a sample.
#[derive(Debug)]
pub struct KeptRecord {
    kind: KeptKind,
    /// The name or path, and the build ID.
    text: Box<[u8]>,
    build_id: Option<Box<[u8]>>,
    _held: HeldMemory,
}

/// The record without its texts.
#[derive(Debug)]
enum KeptKind {
    Mmap { pid: i32, tid: i32, start: u64, len: u64, offset: u64, prot: u32, file: FileId },
    Comm { pid: i32, tid: i32, exec: bool },
    Ksymbol { start: u64, len: u64, gone: bool },
    Fork { pid: i32, parent: i32, tid: i32, parent_tid: i32, time: u64 },
    Exit { pid: i32, tid: i32, time: u64 },
    Switch { pid: i32, tid: i32, time: u64, out: bool, preempted: bool },
    Lost(u64),
    LostSamples(u64),
    Throttle,
    Other,
}

impl KeptRecord {
    fn new(record: &Record<'_>, blocks: &StackBlocks) -> KeptRecord {
        let mut build_id = None;
        let (kind, text): (_, &[u8]) = match *record {
            Record::Mmap(m) => {
                let Mmap { pid, tid, start, len, offset, prot, file, .. } = m;
                build_id = m.build_id.map(Box::from);
                (KeptKind::Mmap { pid, tid, start, len, offset, prot, file }, m.path)
            }
            Record::Comm { pid, tid, exec, name } => (KeptKind::Comm { pid, tid, exec }, name),
            Record::Ksymbol { start, len, gone, name } => {
                (KeptKind::Ksymbol { start, len, gone }, name)
            }
            Record::Fork { pid, parent, tid, parent_tid, time } => {
                (KeptKind::Fork { pid, parent, tid, parent_tid, time }, &[])
            }
            Record::Exit { pid, tid, time } => (KeptKind::Exit { pid, tid, time }, &[]),
            Record::Switch { pid, tid, time, out, preempted } => {
                (KeptKind::Switch { pid, tid, time, out, preempted }, &[])
            }
            Record::Lost(n) => (KeptKind::Lost(n), &[]),
            Record::LostSamples(n) => (KeptKind::LostSamples(n), &[]),
            Record::Throttle => (KeptKind::Throttle, &[]),
            // Samples are events of their own.
            Record::Sample(_) | Record::Other => (KeptKind::Other, &[]),
        };
        let text: Box<[u8]> = text.into();
        let held = HeldMemory::new(blocks.held(), size_of::<KeptRecord>() + text.len());
        KeptRecord { kind, text, build_id, _held: held }
    }

    fn restore(&self) -> Record<'_> {
        let text = &self.text;
        match self.kind {
            KeptKind::Mmap { pid, tid, start, len, offset, prot, file } => {
                let build_id = self.build_id.as_deref();
                let path = text;
                Record::Mmap(Mmap { pid, tid, start, len, offset, prot, build_id, file, path })
            }
            KeptKind::Comm { pid, tid, exec } => Record::Comm { pid, tid, exec, name: text },
            KeptKind::Ksymbol { start, len, gone } => {
                Record::Ksymbol { start, len, gone, name: text }
            }
            KeptKind::Fork { pid, parent, tid, parent_tid, time } => {
                Record::Fork { pid, parent, tid, parent_tid, time }
            }
            KeptKind::Exit { pid, tid, time } => Record::Exit { pid, tid, time },
            KeptKind::Switch { pid, tid, time, out, preempted } => {
                Record::Switch { pid, tid, time, out, preempted }
            }
            KeptKind::Lost(n) => Record::Lost(n),
            KeptKind::LostSamples(n) => Record::LostSamples(n),
            KeptKind::Throttle => Record::Throttle,
            KeptKind::Other => Record::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::blocks::MAX_PLAIN;
    use super::*;

    /// What is restored of an event.
    fn kept(event: Event<'_>, blocks: &mut StackBlocks) {
        let kept = KeptEvent::new(&event, blocks);
        let mut calls = 0;
        kept.restore(&mut vec![1, 2, 3], |restored| {
            assert_eq!(*restored, event);
            calls += 1;
        });
        assert_eq!(calls, 1);
    }

    #[test]
    fn an_event_is_restored_as_it_was() {
        let mut blocks = StackBlocks::default();
        events_are_restored_as_they_were(&mut blocks);
        // The same in blocks.
        let full = vec![7; MAX_PLAIN];
        let held = blocks.keep(1, StackPart::Copy, 0, &full);
        events_are_restored_as_they_were(&mut blocks);
        drop(held);
        blocks.clear();
        assert_eq!(blocks.held().load(std::sync::atomic::Ordering::Relaxed), 0);
    }

    fn events_are_restored_as_they_were(blocks: &mut StackBlocks) {
        let bytes: Vec<u8> = (0..70_000).map(|i: u32| (i / 3) as u8).collect();
        let all = [5; sys::arch::REGISTERS * 8];
        let chunks = [Chunk::new(&bytes[..32 << 10], 0b101), Chunk::new(&bytes[..999], 0)];
        let replaced = Rest::new(0x7000, &chunks).with_replaced(&bytes[..32]);
        let go = replaced.with_go(GoStacks::new(&bytes[..4096]));
        for rest in [Rest::default(), Rest::new(0x7000, &chunks), replaced, go] {
            let user = UserStack::Native {
                regs: Regs { ip: 1, sp: 0x7318, bp: 3 },
                all: AllRegs::new(&all),
                bytes: &bytes[..40_001],
                full: true,
                rest,
            };
            for user in [user, UserStack::None, UserStack::Compat] {
                let sample = Sample {
                    id: 1,
                    ip: 2,
                    pid: 3,
                    tid: 4,
                    time: 5,
                    period: Some(6),
                    group: GroupCounts::new(&bytes[..48]),
                    kernel: true,
                    callchain: Callchain::new(&bytes[..64]),
                    raw: &bytes[..11],
                    user,
                    cgroup: None,
                    walked: &bytes[..777],
                };
                kept(Event::Sample { event: 7, weight: 8, represents: 9, sample }, blocks);
            }
        }
        let mmap = |build_id| Mmap {
            pid: 1,
            tid: 2,
            start: 3,
            len: 4,
            offset: 5,
            prot: 6,
            build_id,
            file: FileId { device: 7, inode: 8 },
            path: b"/lib/x",
        };
        for record in [
            Record::Mmap(mmap(None)),
            Record::Mmap(mmap(Some(b"id"))),
            Record::Comm { pid: 1, tid: 2, exec: true, name: b"name" },
            Record::Ksymbol { start: 1, len: 2, gone: true, name: b"bpf" },
            Record::Fork { pid: 1, parent: 2, tid: 3, parent_tid: 4, time: 5 },
            Record::Exit { pid: 1, tid: 2, time: 3 },
            Record::Switch { pid: 1, tid: 2, time: 3, out: true, preempted: false },
            Record::Lost(1),
            Record::LostSamples(2),
            Record::Throttle,
            Record::Other,
        ] {
            kept(Event::Other(record), blocks);
        }
    }
}
