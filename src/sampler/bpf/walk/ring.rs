//! The records that the program writes, and the copies that are made of them.

use std::collections::HashMap;

use interpreters::walk::{MAX_BEHIND, MAX_BEHIND_SIZE, MAX_BLOCK, Status, WalkCopy};

use super::Walked;
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
    /// Address of the object, or 0.
    pub const OBJECT: i16 = 72;
    /// Address of the first frame of the walk, or 0.
    pub const FIRST: i16 = 80;
    /// Number of bytes of frames.
    pub const LENGTH: i16 = 88;
    /// Nanoseconds since the walk began.
    pub const TOOK: i16 = 96;
    /// The CPU, whose records of a walk follow each other.
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

/// Walks of which records are missing so far, by CPU.
#[derive(Debug, Default)]
pub struct Parts(HashMap<u64, (u64, Walked)>);

impl Parts {
    /// Adds a record; the copy, if it is the last one of a walk of which none was lost.
    pub fn add(&mut self, record: &[u8]) -> Option<Walked> {
        let field = |at| number(record, at);
        let (cpu, part) = (field(header::CPU)?, field(header::PART)?);
        let length = usize::try_from(field(header::LENGTH)?).ok()?;
        let frames = record.get(header::SIZE..)?.get(..length)?;
        let before = self.0.remove(&cpu);
        let mut walked = match before {
            _ if part == 0 => Walked::parse(record)?,
            Some((count, walked)) if part == count && walked.is_continued_by(record) => walked,
            _ => return None,
        };
        walked.copy.bytes.extend_from_slice(frames);
        walked.took = field(header::TOOK)?;
        match end(field(header::STATUS)?) {
            Some(status) => {
                walked.copy.status = status;
                Some(walked)
            }
            None => {
                self.0.insert(cpu, (part + 1, walked));
                None
            }
        }
    }
}

impl Walked {
    /// The walk of a record, without its frames.
    fn parse(record: &[u8]) -> Option<Walked> {
        let field = |at| number(record, at);
        let object = field(header::OBJECT)?;
        let first = field(header::FIRST)?;
        Some(Walked {
            time: field(header::TIME)?,
            pid: field(header::PID)? as i32,
            tid: field(header::TID)? as i32,
            ip: field(header::IP)?,
            sp: field(header::SP)?,
            id: field(header::ID)?,
            walk: usize::try_from(field(header::WALK)?).ok()?,
            took: 0,
            copy: WalkCopy { object, first, ..WalkCopy::nothing() },
        })
    }

    /// True if a record has more frames of the same walk.
    fn is_continued_by(&self, record: &[u8]) -> bool {
        let same = |at, value| number(record, at) == Some(value);
        same(header::TIME, self.time)
            && same(header::TID, self.tid as u64)
            && same(header::ID, self.id)
            && same(header::WALK, self.walk as u64)
    }
}
