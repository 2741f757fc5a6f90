//! The events of a recording (`struct perf_event_attr`), and the fields of their samples.

use super::counts::{CallBranches, GroupCounts};
use super::fields::{Fields, words};

/// Bits of `sample_type` (`PERF_SAMPLE_*`).
mod sample_bit {
    pub const IP: u64 = 1;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const READ: u64 = 1 << 4;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const ID: u64 = 1 << 6;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const STREAM_ID: u64 = 1 << 9;
    pub const RAW: u64 = 1 << 10;
    pub const BRANCH_STACK: u64 = 1 << 11;
    pub const REGS_USER: u64 = 1 << 12;
    pub const STACK_USER: u64 = 1 << 13;
    pub const IDENTIFIER: u64 = 1 << 16;
}

use sample_bit as bit;

/// Bits of `read_format` (`PERF_FORMAT_*`).
const READ_ENABLED: u64 = 1;
const READ_RUNNING: u64 = 1 << 1;
const READ_ID: u64 = 1 << 2;
const READ_GROUP: u64 = 1 << 3;
const READ_LOST: u64 = 1 << 4;

/// `PERF_SAMPLE_BRANCH_CALL_STACK`, `_HW_INDEX` and `_COUNTERS`.
const BRANCH_CALL_STACK: u64 = 1 << 11;
const BRANCH_INDEX: u64 = 1 << 17;
const BRANCH_COUNTERS: u64 = 1 << 19;

/// Bits of the flags.
const INHERIT: u64 = 1 << 1;
const FREQUENCY: u64 = 1 << 10;
const ALL_HAVE_IDS: u64 = 1 << 18;

/// `PERF_TYPE_SOFTWARE`.
const SOFTWARE: u32 = 1;

/// Bytes of the first version of the structure.
const SHORTEST: u32 = 64;

/// Distance between the samples of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// A number of events.
    Period(u64),
    /// Samples per second.
    Frequency(u64),
}

/// The parts of `struct perf_event_attr` that determine its samples.
#[derive(Clone, Debug)]
pub struct Attribute {
    kind: u32,
    config: u64,
    pub interval: Interval,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    branch_type: u64,
    /// Mask of the user registers.
    pub registers: u64,
    max_stack: u16,
}

/// An event of a recording.
#[derive(Clone, Debug)]
pub struct Event {
    pub attribute: Attribute,
    pub name: String,
    /// The numbers by which records refer to it.
    pub ids: Vec<u64>,
}

/// User registers of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserRegisters<'a> {
    /// There are none.
    None,
    /// Those of a 32-bit process.
    Compat,
    /// Those of a 64-bit process, by [`Attribute::registers`].
    Native(&'a [u8]),
}

/// A copy of a user stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackCopy<'a> {
    /// The bytes from the stack pointer upwards.
    pub bytes: &'a [u8],
    /// It has the requested length.
    pub is_full: bool,
}

/// The fields of a sample.
#[derive(Clone, Copy, Debug)]
pub struct SampleFields<'a> {
    pub ip: Option<u64>,
    pub pid: i32,
    pub tid: i32,
    /// Nanoseconds.
    pub time: Option<u64>,
    pub period: Option<u64>,
    /// The values of all events of the group.
    pub counts: GroupCounts<'a>,
    /// The kernel's call chain, with markers.
    pub chain: &'a [u8],
    /// The calls on the user stack that the CPU has recorded.
    pub branches: CallBranches<'a>,
    pub registers: UserRegisters<'a>,
    pub stack: StackCopy<'a>,
}

/// The fields that records other than samples have at their end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trailer {
    pub time: Option<u64>,
    pub id: Option<u64>,
}

impl Attribute {
    /// Parses the structure, which states its size.
    pub fn parse(bytes: &[u8]) -> Option<Attribute> {
        if bytes.len() < SHORTEST as usize {
            return None;
        }
        let mut fields = Fields::new(bytes);
        let kind = fields.u32()?;
        let size = fields.u32()?;
        let rest = fields.bytes(u64::from(size.max(SHORTEST)).min(bytes.len() as u64) - 8)?;
        // Older versions end earlier: what they lack is 0.
        let mut whole = [0; 104];
        let length = rest.len().min(whole.len());
        whole[..length].copy_from_slice(&rest[..length]);
        let mut fields = Fields::new(&whole);
        let config = fields.u64()?;
        let interval = fields.u64()?;
        let sample_type = fields.u64()?;
        let read_format = fields.u64()?;
        let flags = fields.u64()?;
        fields.bytes(24)?;
        let branch_type = fields.u64()?;
        let registers = fields.u64()?;
        // sample_stack_user, clockid, sample_regs_intr, aux_watermark
        fields.bytes(20)?;
        let max_stack = fields.u16()?;
        let interval = match flags & FREQUENCY {
            0 => Interval::Period(interval),
            _ => Interval::Frequency(interval),
        };
        Some(Attribute {
            kind,
            config,
            interval,
            sample_type,
            read_format,
            flags,
            branch_type,
            registers,
            max_stack,
        })
    }

    /// Bytes of the structure at the beginning of `bytes`.
    pub fn size(bytes: &[u8]) -> Option<u64> {
        let size = Fields::new(bytes.get(4..)?).u32()?;
        Some(size.max(SHORTEST).into())
    }

    /// The name of an event for which the recording has none.
    pub fn name(&self) -> String {
        const SOFTWARE_NAMES: [&str; 12] = [
            "cpu-clock",
            "task-clock",
            "page-faults",
            "context-switches",
            "cpu-migrations",
            "minor-faults",
            "major-faults",
            "alignment-faults",
            "emulation-faults",
            "dummy",
            "bpf-output",
            "cgroup-switches",
        ];
        const HARDWARE_NAMES: [&str; 10] = [
            "cycles",
            "instructions",
            "cache-references",
            "cache-misses",
            "branches",
            "branch-misses",
            "bus-cycles",
            "stalled-cycles-frontend",
            "stalled-cycles-backend",
            "ref-cycles",
        ];
        let names: &[&str] = match self.kind {
            0 => &HARDWARE_NAMES,
            SOFTWARE => &SOFTWARE_NAMES,
            _ => &[],
        };
        let name = usize::try_from(self.config).ok().and_then(|config| names.get(config));
        name.map_or_else(|| format!("event {}:{:#x}", self.kind, self.config), |n| (*n).to_owned())
    }

    /// True if its samples have registers and copies of the user stack.
    pub fn copies_stacks(&self) -> bool {
        self.has(bit::REGS_USER) && self.has(bit::STACK_USER)
    }

    /// True if its samples have call chains.
    pub fn has_chains(&self) -> bool {
        self.has(bit::CALLCHAIN)
    }

    /// Most addresses of the kernel's call chains.
    pub fn max_chain(&self) -> usize {
        /// The kernel's default (`PERF_MAX_STACK_DEPTH`).
        const DEFAULT: u16 = 127;
        usize::from(if self.max_stack == 0 { DEFAULT } else { self.max_stack })
    }

    /// True if samples have periods, or all the same.
    pub fn has_periods(&self) -> bool {
        self.has(bit::PERIOD) || matches!(self.interval, Interval::Period(1..))
    }

    fn has(&self, field: u64) -> bool {
        self.sample_type & field != 0
    }

    /// The identifier of a sample's event, if it has any.
    pub fn id_of_sample(&self, body: &[u8]) -> Option<u64> {
        let before = if self.has(bit::IDENTIFIER) {
            0
        } else if self.has(bit::ID) {
            [bit::IP, bit::TID, bit::TIME, bit::ADDR].iter().filter(|&&b| self.has(b)).count()
        } else {
            return None;
        };
        words(body).nth(before)
    }

    /// The time of a sample.
    pub fn time_of_sample(&self, body: &[u8]) -> Option<u64> {
        let before = [bit::IDENTIFIER, bit::IP, bit::TID];
        let before = before.iter().filter(|&&b| self.has(b)).count();
        words(body).nth(before).filter(|_| self.has(bit::TIME))
    }

    /// The trailer of a record that is no sample.
    pub fn trailer(&self, body: &[u8]) -> Trailer {
        if self.flags & ALL_HAVE_IDS == 0 {
            return Trailer::default();
        }
        let all = [bit::TID, bit::TIME, bit::ID, bit::STREAM_ID, bit::CPU, bit::IDENTIFIER];
        let all: Vec<u64> = all.into_iter().filter(|&b| self.has(b)).collect();
        let Some(start) = body.len().checked_sub(all.len() * 8) else { return Trailer::default() };
        let word = |field: u64| {
            let place = all.iter().position(|&b| b == field)?;
            words(&body[start..]).nth(place)
        };
        Trailer { time: word(bit::TIME), id: word(bit::IDENTIFIER).or_else(|| word(bit::ID)) }
    }

    /// Bytes of that trailer.
    pub fn trailer_size(&self) -> usize {
        let all = [bit::TID, bit::TIME, bit::ID, bit::STREAM_ID, bit::CPU, bit::IDENTIFIER];
        let count = all.iter().filter(|&&b| self.has(b)).count();
        if self.flags & ALL_HAVE_IDS == 0 { 0 } else { count * 8 }
    }

    /// The fields of a sample; `None` if it is shorter than they are.
    pub fn sample<'a>(&self, body: &'a [u8]) -> Option<SampleFields<'a>> {
        let mut fields = Fields::new(body);
        let word = |fields: &mut Fields<'a>, field: u64| {
            if self.has(field) { fields.u64().map(Some) } else { Some(None) }
        };
        word(&mut fields, bit::IDENTIFIER)?;
        let ip = word(&mut fields, bit::IP)?;
        let thread = word(&mut fields, bit::TID)?;
        let time = word(&mut fields, bit::TIME)?;
        for field in [bit::ADDR, bit::ID, bit::STREAM_ID, bit::CPU] {
            word(&mut fields, field)?;
        }
        let period = word(&mut fields, bit::PERIOD)?;
        let counts = if self.has(bit::READ) { self.counts(&mut fields)? } else { None };
        let mut chain: &[u8] = &[];
        if self.has(bit::CALLCHAIN) {
            let count = fields.u64()?;
            chain = fields.words(count)?;
        }
        if self.has(bit::RAW) {
            let size = fields.u32()?;
            fields.bytes(size.into())?;
        }
        let mut branches = CallBranches::default();
        if self.has(bit::BRANCH_STACK) {
            branches = self.branches(&mut fields)?;
        }
        let registers = self.user_registers(&mut fields)?;
        let stack = self.stack_copy(&mut fields)?;
        let (pid, tid) = thread.map_or((-1, -1), |ids| (ids as i32, (ids >> 32) as i32));
        let counts = counts.unwrap_or_default();
        Some(SampleFields { ip, pid, tid, time, period, counts, chain, branches, registers, stack })
    }

    fn user_registers<'a>(&self, fields: &mut Fields<'a>) -> Option<UserRegisters<'a>> {
        if !self.has(bit::REGS_USER) {
            return Some(UserRegisters::None);
        }
        let abi = fields.u64()?;
        if abi == 0 {
            return Some(UserRegisters::None);
        }
        let all = fields.words(self.registers.count_ones().into())?;
        Some(if abi == 2 { UserRegisters::Native(all) } else { UserRegisters::Compat })
    }

    fn stack_copy<'a>(&self, fields: &mut Fields<'a>) -> Option<StackCopy<'a>> {
        if !self.has(bit::STACK_USER) {
            return Some(StackCopy::default());
        }
        let size = fields.u64()?;
        if size == 0 {
            return Some(StackCopy::default());
        }
        let requested = fields.bytes(size)?;
        let used = fields.u64()?;
        let bytes = requested.get(..usize::try_from(used).ok()?)?;
        Some(StackCopy { bytes, is_full: used == size })
    }

    /// The values of a group. `Some(None)`: those of a single event, or without identifiers.
    fn counts<'a>(&self, fields: &mut Fields<'a>) -> Option<Option<GroupCounts<'a>>> {
        let count = |bits: &[u64]| bits.iter().filter(|&&b| self.read_format & b != 0).count();
        let times = count(&[READ_ENABLED, READ_RUNNING]) as u64;
        let each = 1 + count(&[READ_ID, READ_LOST]);
        let is_group = self.read_format & READ_GROUP != 0;
        let events = if is_group { fields.u64()? } else { 1 };
        if !is_group {
            fields.words(times + each as u64)?;
            return Some(None);
        }
        fields.words(times)?;
        let words = fields.words(events.checked_mul(each as u64)?)?;
        let has_ids = self.read_format & READ_ID != 0;
        Some(has_ids.then_some(GroupCounts { words, each }))
    }

    /// The calls of a branch stack; of one of other branches, none.
    fn branches<'a>(&self, fields: &mut Fields<'a>) -> Option<CallBranches<'a>> {
        let count = fields.u64()?;
        if self.branch_type & BRANCH_INDEX != 0 {
            fields.u64()?;
        }
        let words = fields.words(count.checked_mul(CallBranches::WORDS)?)?;
        if self.branch_type & BRANCH_COUNTERS != 0 {
            fields.words(count)?;
        }
        let are_calls = self.branch_type & BRANCH_CALL_STACK != 0;
        Some(if are_calls { CallBranches { words } } else { CallBranches::default() })
    }

    /// True if threads that are created later have counters of their own.
    pub fn is_inherited(&self) -> bool {
        self.flags & INHERIT != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An attribute with these fields, as in a file.
    fn attribute(sample_type: u64, flags: u64) -> Attribute {
        let mut bytes = vec![0; 128];
        bytes[0] = 1;
        bytes[4] = 128;
        bytes[16..24].copy_from_slice(&997u64.to_le_bytes());
        bytes[24..32].copy_from_slice(&sample_type.to_le_bytes());
        bytes[40..48].copy_from_slice(&flags.to_le_bytes());
        Attribute::parse(&bytes).unwrap()
    }

    #[test]
    fn samples_have_the_fields_of_their_event() {
        let all = bit::IP | bit::TID | bit::TIME | bit::CALLCHAIN | bit::PERIOD | bit::RAW;
        let event = attribute(all | bit::IDENTIFIER, FREQUENCY | ALL_HAVE_IDS);
        assert_eq!((event.name(), event.interval), ("cpu-clock".into(), Interval::Frequency(997)));
        let mut body = Vec::new();
        for word in [77, 0x1000, 5 | 6 << 32, 123, 1_000_000, 2, u64::MAX - 511, 0x1000] {
            body.extend(u64::to_le_bytes(word));
        }
        body.extend(4u32.to_le_bytes());
        body.extend([0; 4]);
        let sample = event.sample(&body).unwrap();
        assert_eq!((sample.ip, sample.pid, sample.tid), (Some(0x1000), 5, 6));
        assert_eq!((sample.time, sample.period), (Some(123), Some(1_000_000)));
        assert_eq!((sample.chain.len(), sample.registers), (16, UserRegisters::None));
        assert_eq!(event.id_of_sample(&body), Some(77));
        assert_eq!(event.time_of_sample(&body), Some(123));
        assert!((0..body.len()).all(|length| event.sample(&body[..length]).is_none()));
    }

    #[test]
    fn other_records_end_with_the_fields_of_their_event() {
        let event = attribute(bit::IP | bit::TID | bit::TIME | bit::IDENTIFIER, ALL_HAVE_IDS);
        let body: Vec<u8> = [1u64, 2, 9, 99, 77].iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(event.trailer(&body), Trailer { time: Some(99), id: Some(77) });
        assert_eq!(event.trailer(&body[..8]), Trailer::default());
        assert_eq!((event.trailer_size(), attribute(bit::TID, 0).trailer_size()), (24, 0));
    }

    #[test]
    fn short_and_garbled_attributes_are_refused() {
        assert!(Attribute::parse(&[0; 63]).is_none());
        assert!(Attribute::parse(&[]).is_none());
        assert!(Attribute::parse(&[0xff; 64]).is_some());
    }
}
