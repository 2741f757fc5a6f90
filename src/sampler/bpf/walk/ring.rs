//! The records that the program writes, and the copies that are made of them.

use interpreters::walk::{MAX_BEHIND, MAX_BEHIND_SIZE, MAX_BLOCK, Status, WalkCopy};

use super::Walked;
use crate::sampler::bpf::deep::ring::CopyRecord;
use crate::sampler::bpf::number;

/// Largest number of bytes that are copied for a frame.
pub const MAX_FRAME: usize = MAX_BLOCK + MAX_BEHIND * MAX_BEHIND_SIZE;

/// Bytes of frames in a record: a CPU's memory has to have less than 32 KiB.
pub const CAPACITY: usize = 28 << 10;

/// Offsets in the header of a record, in bytes.
pub mod header {
    /// The time of the sample.
    pub const TIME: i16 = 0;
    /// Its process, in the kernel's PID namespace.
    pub const PID: i16 = 8;
    /// Its thread, as well.
    pub const TID: i16 = 16;
    /// Instruction pointer and stack pointer in user mode.
    pub const IP: i16 = 24;
    pub const SP: i16 = 32;
    /// The number that the process's walks were given.
    pub const ID: i16 = 40;
    /// Number of the walk.
    pub const WALK: i16 = 48;
    /// Number of this record among those of the walk.
    pub const PART: i16 = 56;
    /// The end of the walk, or [`super::status::CONTINUED`].
    pub const STATUS: i16 = 64;
    /// Address of the object, or 0; of new code, the context of its key.
    pub const OBJECT: i16 = 72;
    /// Address of the first frame of the walk, or 0.
    pub const FIRST: i16 = 80;
    /// Number of bytes of frames.
    pub const LENGTH: i16 = 88;
    /// Nanoseconds since the walk began.
    pub const TOOK: i16 = 96;
    /// The CPU.
    pub const CPU: i16 = 104;
    /// Size of the header.
    pub const SIZE: usize = 112;
}

/// Values of [`header::STATUS`].
pub mod status {
    pub const COMPLETE: i32 = 0;
    pub const FAULT: i32 = 1;
    pub const TOO_MANY: i32 = 2;
    pub const NOTHING: i32 = 3;
    /// Another record has more frames of the walk.
    pub const CONTINUED: i32 = 4;
    /// No walk: new code of the frames of a sample's walks.
    pub const CODE: i32 = 5;
}

/// The end of a walk, if this record is the last one of it.
fn end(value: u64) -> Option<Status> {
    Some(match i32::try_from(value).ok()? {
        status::COMPLETE => Status::Complete,
        status::FAULT => Status::Fault,
        status::TOO_MANY => Status::TooMany,
        status::NOTHING => Status::Nothing,
        _ => return None,
    })
}

/// A record in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkRecord {
    /// The time of its sample.
    pub time: u64,
    /// Its thread, in the kernel's PID namespace.
    pub tid: u64,
    /// Stack pointer and instruction pointer in user mode.
    pub sp: u64,
    pub ip: u64,
    walk: u64,
    part: u64,
    /// Offset of the record in the data, and its number of bytes.
    pub at: usize,
    pub length: usize,
}

impl WalkRecord {
    /// Decodes the header of a record; `None` if it is damaged.
    pub fn parse(record: &[u8], at: usize) -> Option<WalkRecord> {
        let field = |at| number(record, at);
        let frames = usize::try_from(field(header::LENGTH)?).ok()?;
        let length = header::SIZE.checked_add(frames).filter(|length| *length <= record.len())?;
        Some(WalkRecord {
            time: field(header::TIME)?,
            tid: field(header::TID)?,
            sp: field(header::SP)?,
            ip: field(header::IP)?,
            walk: field(header::WALK)?,
            part: field(header::PART)?,
            at,
            length,
        })
    }
}

impl CopyRecord for WalkRecord {
    type Order = (u64, u64, u64, u64, u64);

    fn time(&self) -> u64 {
        self.time
    }

    fn order(&self) -> Self::Order {
        (self.time, self.tid, self.sp, self.walk, self.part)
    }
}

/// The records of one walk.
struct Parts<'r> {
    first: &'r [u8],
    last: &'r [u8],
    all: &'r [u8],
}

impl<'r> Parts<'r> {
    /// Bytes of frames, of each record.
    fn frames(&self) -> impl Iterator<Item = &'r [u8]> + use<'r> {
        let mut rest = self.all;
        std::iter::from_fn(move || {
            let (record, more) = split(rest)?;
            rest = more;
            Some(&record[header::SIZE..])
        })
    }

    /// Replaces a copy by that of this walk; `None` if the records are damaged.
    fn read_into(&self, copy: &mut WalkCopy) -> Option<()> {
        copy.status = end(number(self.last, header::STATUS)?)?;
        copy.object = number(self.first, header::OBJECT)?;
        copy.first = number(self.first, header::FIRST)?;
        copy.bytes.clear();
        self.frames().for_each(|frames| copy.bytes.extend_from_slice(frames));
        Some(())
    }
}

/// The walks in records of one sample, which lie one behind the other in their order. Ends before one
/// of which a record is missing.
fn walks(mut records: &[u8]) -> impl Iterator<Item = Parts<'_>> {
    std::iter::from_fn(move || {
        let (first, mut rest) = split(records)?;
        if number(first, header::PART)? != 0 {
            return None;
        }
        let (mut last, mut count) = (first, 1);
        while number(last, header::STATUS)? == status::CONTINUED as u64 {
            (last, rest) = split(rest)?;
            if number(last, header::PART)? != count || !continues(first, last) {
                return None;
            }
            count += 1;
        }
        let all = &records[..records.len() - rest.len()];
        records = rest;
        Some(Parts { first, last, all })
    })
}

/// True if a record has more frames of the walk of another one.
fn continues(first: &[u8], record: &[u8]) -> bool {
    let fields = [header::TIME, header::TID, header::ID, header::WALK];
    fields.iter().all(|at| number(first, *at) == number(record, *at))
}

/// The walks in records of one sample.
pub fn walked(records: &[u8]) -> impl Iterator<Item = Walked> {
    walks(records).map_while(|parts| Walked::new(&parts))
}

/// The copies in records of one sample, if they are of the walks with this number. The memory of
/// `copies` is used again.
pub fn read_copies<'c>(records: &[u8], id: u64, copies: &'c mut Vec<WalkCopy>) -> &'c [WalkCopy] {
    let mut count = 0;
    for parts in walks(records) {
        if number(parts.first, header::ID) != Some(id) {
            continue;
        }
        if copies.len() == count {
            copies.push(WalkCopy::nothing());
        }
        if parts.read_into(&mut copies[count]).is_none() {
            break;
        }
        count += 1;
    }
    &copies[..count]
}

/// A copy of new code.
#[derive(Clone, Copy, Debug)]
pub struct NewCode<'r> {
    /// The context of its key.
    pub context: u64,
    /// The copy.
    pub bytes: &'r [u8],
}

/// The copies of new code in records of one sample, if they are of the walks with this number.
pub fn read_code(mut records: &[u8], id: u64) -> impl Iterator<Item = NewCode<'_>> {
    std::iter::from_fn(move || {
        loop {
            let (record, rest) = split(records)?;
            records = rest;
            let is_code = number(record, header::STATUS) == Some(status::CODE as u64);
            if is_code && number(record, header::ID) == Some(id) {
                let context = number(record, header::OBJECT)?;
                return Some(NewCode { context, bytes: &record[header::SIZE..] });
            }
        }
    })
}

/// The first record, and those behind it.
fn split(records: &[u8]) -> Option<(&[u8], &[u8])> {
    records.split_at_checked(WalkRecord::parse(records, 0)?.length)
}

impl Walked {
    /// The record of this walk, as a program would write it if one had the room for it.
    pub fn record(&self) -> Vec<u8> {
        let status = match self.copy.status {
            Status::Complete => status::COMPLETE,
            Status::Fault => status::FAULT,
            Status::TooMany => status::TOO_MANY,
            Status::Nothing => status::NOTHING,
        };
        let mut record = vec![0; header::SIZE];
        for (at, value) in [
            (header::TIME, self.time),
            (header::PID, self.pid as u64),
            (header::TID, self.tid as u64),
            (header::IP, self.ip),
            (header::SP, self.sp),
            (header::ID, self.id),
            (header::WALK, self.walk as u64),
            (header::STATUS, status as u64),
            (header::OBJECT, self.copy.object),
            (header::FIRST, self.copy.first),
            (header::LENGTH, self.copy.bytes.len() as u64),
            (header::TOOK, self.took),
        ] {
            record[at as usize..][..8].copy_from_slice(&value.to_ne_bytes());
        }
        record.extend_from_slice(&self.copy.bytes);
        record
    }

    /// `None` if the records are damaged.
    fn new(parts: &Parts<'_>) -> Option<Walked> {
        let field = |at| number(parts.first, at);
        let mut copy = WalkCopy::nothing();
        parts.read_into(&mut copy)?;
        Some(Walked {
            time: field(header::TIME)?,
            pid: field(header::PID)? as i32,
            tid: field(header::TID)? as i32,
            ip: field(header::IP)?,
            sp: field(header::SP)?,
            id: field(header::ID)?,
            walk: usize::try_from(field(header::WALK)?).ok()?,
            took: number(parts.last, header::TOOK)?,
            copy,
        })
    }
}
