//! Decodes the records of a perf ring buffer.
//!
//! Layout: `perf_event_open(2)`, section "MMAP layout". Every record is checked against its own
//! length: a short or inconsistent one decodes to `None` and is counted by the caller, so bytes
//! from a hostile or newer kernel cannot make us panic or read out of bounds.

mod go_stacks;
mod interrupted;
mod rest;
mod sideband;

use perf_event_open_sys::bindings as abi;

use crate::{ThreadId, arch};
pub use go_stacks::GoStacks;
pub use rest::{CHUNK, Chunk, Rest};
pub use sideband::other;

/// Bytes of the longest stack copy in a record: a multiple of eight below 64 KiB (perf's limit,
/// too).
pub const MAX_DUMP: u32 = 65_528;

/// Bytes of a record's header (`struct perf_event_header`).
pub const HEADER: usize = 8;

/// Bytes that `sample_id_all` appends to every record except samples: tid, time, identifier.
pub const TRAILER: usize = 24;

/// Marks the kernel part of a call chain (`PERF_CONTEXT_KERNEL`).
const CONTEXT_KERNEL: u64 = -128i64 as u64;
/// Marks the user part of a call chain (`PERF_CONTEXT_USER`).
const CONTEXT_USER: u64 = -512i64 as u64;
/// Lowest marker; smaller values are addresses (`PERF_CONTEXT_MAX`).
const CONTEXT_MAX: u64 = -4095i64 as u64;

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// `PERF_RECORD_*`.
    pub kind: u32,
    /// `PERF_RECORD_MISC_*`.
    pub misc: u16,
    /// Bytes of the record, header included.
    pub size: u16,
}

impl Header {
    /// Decodes eight bytes.
    pub fn parse(bytes: [u8; HEADER]) -> Header {
        let word = u64::from_ne_bytes(bytes);
        Header { kind: word as u32, misc: (word >> 32) as u16, size: (word >> 48) as u16 }
    }
}

/// Optional fields in an event's samples. Identifier, ip, tid and time are always present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// `PERF_SAMPLE_PERIOD`.
    pub period: bool,
    /// `PERF_SAMPLE_READ`, of a whole group with the fields of [`GroupCounts`].
    pub group: bool,
    /// `PERF_SAMPLE_CALLCHAIN`.
    pub callchain: bool,
    /// `PERF_SAMPLE_RAW`: the fields of a tracepoint.
    pub raw: bool,
    /// `PERF_SAMPLE_REGS_USER` and `PERF_SAMPLE_STACK_USER`, with the registers of [`Regs`].
    pub user_stack: bool,
    /// `PERF_SAMPLE_REGS_INTR`, with the registers [`arch::INTERRUPTED_REGISTERS`].
    pub interrupted: bool,
    /// `PERF_SAMPLE_CGROUP`.
    pub cgroup: bool,
}

/// The user registers that unwinding needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regs {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer.
    pub bp: u64,
}

/// All general registers ([`arch::SAMPLED_REGISTERS`]), as the kernel wrote them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllRegs<'a>(&'a [u8]);

impl<'a> AllRegs<'a> {
    /// From the kernel's bytes; with any other length, no register is available.
    pub fn new(bytes: &'a [u8]) -> AllRegs<'a> {
        AllRegs(if bytes.len() == arch::REGISTERS * 8 { bytes } else { &[] })
    }

    /// The kernel's bytes; empty if no register is available.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The registers in DWARF's numbering. `None` if they are not available.
    pub fn in_dwarf_order(self) -> Option<[u64; arch::DWARF_ORDER.len()]> {
        (!self.0.is_empty()).then(|| arch::DWARF_ORDER.map(|i| self.word(i)))
    }

    /// The instruction pointer; `None` without registers.
    pub fn instruction_pointer(self) -> Option<u64> {
        (!self.0.is_empty()).then(|| self.word(arch::IP))
    }

    fn word(self, i: usize) -> u64 {
        let bytes = self.0[i * 8..].first_chunk().expect("all registers");
        u64::from_ne_bytes(*bytes)
    }

    fn regs(self) -> Regs {
        Regs { ip: self.word(arch::IP), sp: self.word(arch::SP), bp: self.word(arch::BP) }
    }
}

/// User registers and a copy of the stack from `sp` upwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserStack<'a> {
    /// The event carries none, the thread has no user part (a kernel thread), or the kernel had not
    /// saved the registers at the sample.
    None,
    /// A 32-bit process, which is not unwound.
    Compat,
    /// A 64-bit process.
    Native {
        /// The registers.
        regs: Regs,
        /// All registers, for the few frames that are described by others.
        all: AllRegs<'a>,
        /// The bytes from `regs.sp` upwards; fewer than requested near the stack's end.
        bytes: &'a [u8],
        /// The copy has the requested length.
        full: bool,
        /// Stack bytes beyond the copy that were read at the same moment.
        rest: Rest<'a>,
    },
}

/// A sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample<'a> {
    /// Identifier of the event that was opened (its parent's, for an inherited one).
    pub id: u64,
    /// Instruction pointer.
    pub ip: u64,
    /// Process; -1 if the thread has already ended.
    pub pid: i32,
    /// Thread.
    pub tid: i32,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time: u64,
    /// Events since the last sample, if the layout has it.
    pub period: Option<u64>,
    /// Counts of the events of its group at that time, if the layout has them.
    pub group: GroupCounts<'a>,
    /// The sample hit kernel code.
    pub kernel: bool,
    /// The call chain from the kernel: kernel part and user part, with markers.
    pub callchain: Callchain<'a>,
    /// The fields of a tracepoint, if the layout has them.
    pub raw: &'a [u8],
    /// User registers and stack.
    pub user: UserStack<'a>,
    /// Identifier of the cgroup (v2) of its process, if the layout has it.
    pub cgroup: Option<u64>,
    /// What a program at the sample has copied of the frames of an interpreter, in its own records;
    /// empty without one.
    pub walked: &'a [u8],
}

impl<'a> Sample<'a> {
    /// The thread that was sampled.
    pub fn thread(&self) -> ThreadId {
        ThreadId { pid: self.pid, tid: self.tid }
    }

    /// What was read of its stack in addition to the kernel's copy; `None` without a copy.
    pub fn rest_mut(&mut self) -> Option<&mut Rest<'a>> {
        match &mut self.user {
            UserStack::Native { rest, .. } => Some(rest),
            UserStack::None | UserStack::Compat => None,
        }
    }

    /// A sample that the kernel did not take: of a thread's user stack, as something else has read
    /// it. `time` is `CLOCK_MONOTONIC`, nanoseconds.
    pub fn with_user_stack(
        thread: ThreadId,
        time: u64,
        ip: u64,
        user: UserStack<'a>,
    ) -> Sample<'a> {
        Sample {
            id: 0,
            ip,
            pid: thread.pid,
            tid: thread.tid,
            time,
            period: None,
            group: GroupCounts::default(),
            kernel: false,
            callchain: Callchain::default(),
            raw: &[],
            user,
            cgroup: None,
            walked: &[],
        }
    }
}

/// Words of each event in [`GroupCounts`]: its count, its identifier, and the samples it lost.
const GROUP_WORDS: usize = 3;

/// Counts of the events of a group: `read_format` with `PERF_FORMAT_GROUP`, `PERF_FORMAT_ID`,
/// `PERF_FORMAT_LOST` and both times, undecoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts<'a>(&'a [u8]);

impl<'a> GroupCounts<'a> {
    /// From the kernel's bytes.
    pub fn new(bytes: &'a [u8]) -> GroupCounts<'a> {
        GroupCounts(bytes)
    }

    /// The identifier of each event (its parent's, for an inherited one) and its count. Counts of a
    /// thread's event are the thread's own, also if the event is inherited.
    pub fn iter(self) -> impl Iterator<Item = (u64, u64)> + 'a {
        self.0.chunks_exact(GROUP_WORDS * 8).map(|event| {
            let word = |i: usize| u64::from_ne_bytes(*event[i * 8..].first_chunk().expect("words"));
            (word(1), word(0))
        })
    }

    /// The kernel's bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The sample has none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

/// A call chain, undecoded: words of eight bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Callchain<'a>(&'a [u8]);

impl<'a> Callchain<'a> {
    /// From the kernel's bytes.
    pub fn new(bytes: &'a [u8]) -> Callchain<'a> {
        Callchain(bytes)
    }

    /// The kernel's bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Appends the addresses to `kernel` and `user`, leaf first, without the markers.
    pub fn split(&self, kernel: &mut Vec<u64>, user: &mut Vec<u64>) {
        let mut in_kernel = false;
        let mut in_known_part = false;
        for word in self.0.as_chunks::<8>().0 {
            let address = u64::from_ne_bytes(*word);
            if address >= CONTEXT_MAX {
                in_kernel = address == CONTEXT_KERNEL;
                in_known_part = in_kernel || address == CONTEXT_USER;
            } else if in_known_part {
                if in_kernel { kernel.push(address) } else { user.push(address) }
            }
        }
    }
}

/// A file: its device and inode; both 0 if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Device, as in `stat(2)`.
    pub device: u64,
    /// Inode.
    pub inode: u64,
}

/// A new executable mapping (`PERF_RECORD_MMAP2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mmap<'a> {
    /// Process.
    pub pid: i32,
    /// Thread.
    pub tid: i32,
    /// First address.
    pub start: u64,
    /// Size in bytes.
    pub len: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// `PROT_*` bits.
    pub prot: u32,
    /// Build ID, if the kernel could read one.
    pub build_id: Option<&'a [u8]>,
    /// The file, if there is no build ID.
    pub file: FileId,
    /// Path, or `//anon`, `[vdso]`, ….
    pub path: &'a [u8],
}

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A sample.
    Sample(Sample<'a>),
    /// A mapping.
    Mmap(Mmap<'a>),
    /// A thread was named (`PERF_RECORD_COMM`).
    Comm {
        /// Process.
        pid: i32,
        /// Thread.
        tid: i32,
        /// By `execve`: everything that was mapped is gone.
        exec: bool,
        /// The name, 15 bytes at most.
        name: &'a [u8],
    },
    /// A thread or process started (`PERF_RECORD_FORK`).
    Fork {
        /// Process.
        pid: i32,
        /// Process that forked.
        parent: i32,
        /// Thread.
        tid: i32,
        /// Thread that forked.
        parent_tid: i32,
        /// `CLOCK_MONOTONIC`, nanoseconds.
        time: u64,
    },
    /// A thread ended (`PERF_RECORD_EXIT`).
    Exit {
        /// Process.
        pid: i32,
        /// Thread.
        tid: i32,
        /// `CLOCK_MONOTONIC`, nanoseconds.
        time: u64,
    },
    /// A thread was switched in or out (`PERF_RECORD_SWITCH`).
    Switch {
        /// Process.
        pid: i32,
        /// Thread.
        tid: i32,
        /// `CLOCK_MONOTONIC`, nanoseconds.
        time: u64,
        /// Switched out.
        out: bool,
        /// Still runnable.
        preempted: bool,
    },
    /// Number of records about processes that were lost because their ring was full.
    Lost(u64),
    /// Number of samples that were lost because their ring was full.
    LostSamples(u64),
    /// Kernel code was added or removed (`PERF_RECORD_KSYMBOL`): BPF programs, trampolines.
    Ksymbol {
        /// First address.
        start: u64,
        /// Size in bytes.
        len: u64,
        /// It was removed.
        gone: bool,
        /// Its name.
        name: &'a [u8],
    },
    /// The kernel throttled an event because it fired too often.
    Throttle,
    /// Not used by prof.
    Other,
}

struct RecordReader<'a>(&'a [u8]);

impl<'a> RecordReader<'a> {
    fn u64(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*word))
    }

    fn two_u32(&mut self) -> Option<(u32, u32)> {
        let word = self.u64()?;
        Some((word as u32, (word >> 32) as u32))
    }

    fn pair(&mut self) -> Option<(i32, i32)> {
        self.two_u32().map(|(a, b)| (a as i32, b as i32))
    }

    fn bytes(&mut self, len: u64) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }

    /// A NUL-terminated text that fills the rest.
    fn text(self) -> &'a [u8] {
        let end = self.0.iter().position(|&b| b == 0).unwrap_or(self.0.len());
        &self.0[..end]
    }
}

/// `CLOCK_MONOTONIC` of a record (header included), in nanoseconds.
pub fn time_of(header: Header, record: &[u8]) -> Option<u64> {
    let at = match header.kind {
        abi::PERF_RECORD_SAMPLE => HEADER + 24,
        abi::PERF_RECORD_KSYMBOL => ksymbol_end(record)? + 8,
        _ => record.len().checked_sub(TRAILER - 8)?,
    };
    Some(u64::from_ne_bytes(*record.get(at..)?.first_chunk::<8>()?))
}

/// Start of the trailer of a `PERF_RECORD_KSYMBOL`: after its name, which is padded to words.
///
/// The end of the record does not give it: for each other event that receives the same record, for
/// instance of another recording, the kernel adds the trailer to its size once more
/// (`perf_event_ksymbol_output` in kernel/events/core.c, up to Linux 6.18 at least).
fn ksymbol_end(record: &[u8]) -> Option<usize> {
    const NAME: usize = HEADER + 16;
    let length = record.get(NAME..)?.iter().position(|&b| b == 0)? + 1;
    Some(NAME + length.next_multiple_of(8))
}

/// Identifier of the event that wrote a sample (header included).
pub fn sample_id(record: &[u8]) -> Option<u64> {
    RecordReader(record.get(HEADER..)?).u64()
}

/// Decodes a sample of an event with this layout (header included).
pub fn sample(header: Header, record: &[u8], layout: Layout) -> Option<Sample<'_>> {
    let mut r = RecordReader(record.get(HEADER..)?);
    let id = r.u64()?;
    let ip = r.u64()?;
    let (pid, tid) = r.pair()?;
    let time = r.u64()?;
    let period = if layout.period { Some(r.u64()?) } else { None };
    let group = if layout.group { group(&mut r)? } else { GroupCounts::default() };
    let mut callchain = Callchain::default();
    if layout.callchain {
        let count = r.u64()?;
        callchain = Callchain(r.bytes(count.checked_mul(8)?)?);
    }
    let raw = if layout.raw { raw(&mut r)? } else { &[] };
    let mut user = if layout.user_stack { user_stack(&mut r)? } else { UserStack::None };
    let kernel =
        u32::from(header.misc) & abi::PERF_RECORD_MISC_CPUMODE_MASK == abi::PERF_RECORD_MISC_KERNEL;
    if layout.interrupted {
        let interrupted = interrupted::Interrupted::read(&mut r)?;
        if kernel
            && let UserStack::Native { all, .. } = user
            && !interrupted.leaves_saved(all, callchain)
        {
            user = UserStack::None;
        }
    }
    let cgroup = if layout.cgroup { Some(r.u64()?) } else { None };
    Some(Sample {
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
        cgroup,
        walked: &[],
    })
}

fn group<'a>(r: &mut RecordReader<'a>) -> Option<GroupCounts<'a>> {
    let events = r.u64()?;
    // Times for which the group was enabled, and counted.
    r.bytes(16)?;
    Some(GroupCounts(r.bytes(events.checked_mul(GROUP_WORDS as u64 * 8)?)?))
}

/// A length of four bytes, and that many bytes.
fn raw<'a>(r: &mut RecordReader<'a>) -> Option<&'a [u8]> {
    let (size, rest) = r.0.split_first_chunk::<4>()?;
    let (raw, rest) = rest.split_at_checked(u32::from_ne_bytes(*size) as usize)?;
    r.0 = rest;
    Some(raw)
}

fn user_stack<'a>(r: &mut RecordReader<'a>) -> Option<UserStack<'a>> {
    let abi = r.u64()? as u32;
    let mut all = AllRegs::default();
    let mut regs = Regs::default();
    if abi != abi::PERF_SAMPLE_REGS_ABI_NONE {
        all = AllRegs(r.bytes(arch::REGISTERS as u64 * 8)?);
        regs = all.regs();
    }
    let size = r.u64()?;
    let mut bytes: &[u8] = &[];
    if size > 0 {
        let dump = r.bytes(size)?;
        let used = r.u64()?;
        bytes = dump.get(..usize::try_from(used).ok()?)?;
    }
    Some(match abi {
        abi::PERF_SAMPLE_REGS_ABI_NONE => UserStack::None,
        abi::PERF_SAMPLE_REGS_ABI_32 => UserStack::Compat,
        _ => {
            let full = bytes.len() as u64 == size && size > 0;
            UserStack::Native { regs, all, bytes, full, rest: Rest::default() }
        }
    })
}

#[cfg(test)]
mod tests;
