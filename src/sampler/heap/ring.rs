//! The reader's side of the queues in the memory that is shared with the sampled program.
//!
//! Nothing there is trusted: the program can write whatever it likes, so every number is checked
//! or taken for what it is, and bytes are copied before they are looked at.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use memmap2::MmapRaw;

use super::layout::{
    FILE_SIZE, FREES, FREES_AT, FreeSlot, Head, Header, Kind, LOST, MAGIC, MAX_STACK, STACKS,
    STACKS_AT, StackSlot, register,
};
use crate::os;
use crate::sampler::record::{AllRegs, Regs, UserStack};

/// A writer that takes longer is not waited for any more: its process was killed, or stopped.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the library tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A sampled allocation.
    Allocation(Allocation<'a>),
    /// One has come to its end.
    Free {
        /// Its name.
        id: u64,
        /// Process.
        pid: i32,
        /// It was freed by the thread that allocated it, before that allocated anything else.
        temporary: bool,
        /// `CLOCK_MONOTONIC`, nanoseconds.
        time: u64,
    },
    /// A process begins to be sampled, or has become another program.
    Process {
        /// The process.
        pid: i32,
        /// Pairs of addresses, eight bytes each, where functions begin and end that call the
        /// allocator for others.
        wrappers: &'a [u8],
    },
}

/// A sampled allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation<'a> {
    /// Its name.
    pub id: u64,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time: u64,
    /// Process.
    pub pid: i32,
    /// Thread.
    pub tid: i32,
    /// Bytes that were asked for.
    pub size: u64,
    /// Its end will be told.
    pub tracked: bool,
    /// Where: registers and stack of the call of the allocating function.
    pub user: UserStack<'a>,
}

/// Counters of the library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapStats {
    /// Programs into which the library was loaded.
    pub loaded: u64,
    /// Sampled allocations that found no place in the memory.
    pub lost: u64,
    /// Bytes of these.
    pub lost_bytes: u64,
    /// Ends of sampled allocations that found no place.
    pub lost_frees: u64,
}

/// Memory that is shared with the sampled program.
pub struct Ring {
    memory: MmapRaw,
    path: PathBuf,
    /// Keeps the path valid, as long as it is open.
    file: File,
    stacks: Queue,
    frees: Queue,
    /// The record that is looked at.
    copy: Box<StackSlot>,
}

/// Where a queue is, and how far it is read.
struct Queue {
    /// Where the first slot begins, and the bytes and number of them.
    first: usize,
    size: usize,
    slots: usize,
    head: fn(&Header) -> &Head,
    position: u64,
    /// The writer of this position is waited for since then.
    waiting: Option<Instant>,
}

impl Queue {
    fn stacks() -> Queue {
        let (first, size, slots) = (STACKS_AT, size_of::<StackSlot>(), STACKS);
        Queue { first, size, slots, head: |header| &header.stacks, position: 0, waiting: None }
    }

    fn frees() -> Queue {
        let (first, size, slots) = (FREES_AT, size_of::<FreeSlot>(), FREES);
        Queue { first, size, slots, head: |header| &header.frees, position: 0, waiting: None }
    }

    /// The slot of a position.
    fn slot(&self, memory: &MmapRaw, position: u64) -> *const u8 {
        let at = self.first + position as usize % self.slots * self.size;
        // SAFETY: the slots are within the mapping, see `layout`.
        unsafe { memory.as_ptr().add(at) }
    }

    fn turn<'a>(&self, memory: &'a MmapRaw, position: u64) -> &'a AtomicU64 {
        // SAFETY: each slot begins with its turn, which everybody uses as an atomic number.
        unsafe { &*self.slot(memory, position).cast() }
    }

    /// Gives every slot its first turn.
    fn open(&self, memory: &MmapRaw) {
        for position in 0..self.slots as u64 {
            self.turn(memory, position).store(position, Relaxed);
        }
    }

    /// How many records there are, read ones included.
    fn written(&self, memory: &MmapRaw) -> u64 {
        (self.head)(header(memory)).next.load(Acquire)
    }

    /// The next record, if it is written. A writer that does not come back is given up after a
    /// while, or at once when all is over.
    fn next(&mut self, memory: &MmapRaw, over: bool) -> Option<*const u8> {
        loop {
            if self.written(memory) <= self.position {
                self.waiting = None;
                return None;
            }
            let turn = self.turn(memory, self.position);
            match turn.load(Acquire) {
                LOST => {}
                now if now == self.position + 1 => {
                    self.waiting = None;
                    return Some(self.slot(memory, self.position));
                }
                now => {
                    let since = self.waiting.get_or_insert_with(Instant::now);
                    if !over && since.elapsed() < PATIENCE {
                        return None;
                    }
                    // It may come back just now.
                    if turn.compare_exchange(now, LOST, Acquire, Acquire).is_err() {
                        continue;
                    }
                    (self.head)(header(memory)).lost.fetch_add(1, Relaxed);
                }
            }
            self.waiting = None;
            self.position += 1;
        }
    }

    /// The next record has been read.
    fn pass(&mut self, memory: &MmapRaw) {
        let turn = self.position + self.slots as u64;
        self.turn(memory, self.position).store(turn, Release);
        self.position += 1;
    }

    /// How much of it waits to be read: 0 to 1.
    fn filled(&self, memory: &MmapRaw) -> f64 {
        self.written(memory).saturating_sub(self.position) as f64 / self.slots as f64
    }
}

fn header(memory: &MmapRaw) -> &Header {
    // SAFETY: the mapping is as large as the layout; what others write meanwhile is atomic.
    unsafe { &*memory.as_ptr().cast() }
}

impl Ring {
    /// Memory for samples of this mean distance in bytes, of anonymous `mappings`, too; nothing is
    /// sampled yet.
    ///
    /// `folder` is where the file is made if nobody else may look at prof's descriptors.
    pub fn create(interval: u64, mappings: bool, folder: &Path) -> io::Result<Ring> {
        let (file, path) = if os::is_dumpable() {
            let file = memory_file()?;
            let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
            (file, PathBuf::from(path))
        } else {
            let path = folder.join("ring");
            (File::options().read(true).write(true).create_new(true).open(&path)?, path)
        };
        Ring::on(file, path, interval, mappings)
    }

    /// The same on an empty file that the program finds at this path.
    pub fn on(file: File, path: PathBuf, interval: u64, mappings: bool) -> io::Result<Ring> {
        file.set_len(FILE_SIZE as u64)?;
        let memory = MmapRaw::map_raw(&file)?;
        // SAFETY: the file is as large as the layout, and nobody else has it yet.
        unsafe {
            let header = memory.as_mut_ptr().cast::<Header>();
            (*header).magic = MAGIC;
            (*header).interval = interval;
            (*header).mappings = u32::from(mappings);
            // Names of an earlier recording of the same process mean nothing any more.
            (*header).next_id = os::monotonic_nanos().into();
        }
        let (stacks, frees) = (Queue::stacks(), Queue::frees());
        stacks.open(&memory);
        frees.open(&memory);
        Ok(Ring { memory, path, file, stacks, frees, copy: zeroed_slot() })
    }

    /// Where the program finds it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sampling begins or ends.
    pub fn set_active(&self, active: bool) {
        header(&self.memory).active.store(u32::from(active), Release);
    }

    /// Processes that exit wait from now on; `watch`, which gets the file, begins to look at them.
    ///
    /// # Errors
    ///
    /// Those of `watch`; nobody waits then.
    pub fn watch_exits<T>(&self, watch: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        let watch = watch(&self.file)?;
        header(&self.memory).leaks.store(1, Relaxed);
        Ok(watch)
    }

    /// The counters so far.
    pub fn stats(&self) -> HeapStats {
        let header = header(&self.memory);
        HeapStats {
            loaded: header.loaded.load(Relaxed),
            lost: header.stacks.lost.load(Relaxed),
            lost_bytes: header.stacks.lost_bytes.load(Relaxed),
            lost_frees: header.frees.lost.load(Relaxed),
        }
    }

    /// Gives the memory back, although the program still has it mapped.
    pub fn give_back(&self) {
        os::punch(&self.file, FILE_SIZE as u64);
    }

    /// How much of the memory waits to be read: 0 to 1.
    pub fn filled(&self) -> f64 {
        self.stacks.filled(&self.memory).max(self.frees.filled(&self.memory))
    }

    /// Hands out what happened before `until` (`CLOCK_MONOTONIC`, nanoseconds) in the order of
    /// time, as far as it is known, and an allocation always before its end.
    ///
    /// `over`: nobody writes any more, so nobody is waited for.
    pub fn take(&mut self, until: u64, over: bool, mut consume: impl FnMut(Record<'_>)) {
        header(&self.memory).beat.store(os::monotonic_nanos(), Relaxed);
        let Ring { memory, stacks, frees, copy, .. } = self;
        // Whatever has ended by now was begun before.
        let ended = frees.written(memory);
        loop {
            let begun = stacks.next(memory, over).map(<*const u8>::cast::<StackSlot>);
            let freed = if frees.position < ended { frees.next(memory, over) } else { None };
            // SAFETY: slots that nobody writes to until they are passed on; any bits are a valid
            // value.
            let (begun_at, freed) = unsafe {
                (begun.map(|slot| (*slot).time), freed.map(|slot| slot.cast::<FreeSlot>().read()))
            };
            let begun_at = begun_at.filter(|&time| time < until);
            let freed = freed.filter(|slot| slot.time < until);
            match (begun, begun_at, freed) {
                (Some(slot), Some(time), freed)
                    if freed.as_ref().is_none_or(|f| time <= f.time) =>
                {
                    // SAFETY: as above.
                    unsafe { copy_slot(slot, copy) };
                    stacks.pass(memory);
                    tell(copy, &mut consume);
                }
                (_, _, Some(FreeSlot { id, pid, time, temporary, .. })) => {
                    frees.pass(memory);
                    consume(Record::Free { id, pid, temporary: temporary != 0, time });
                }
                _ => return,
            }
        }
    }
}

/// Copies a record of an allocation.
///
/// # Safety
///
/// `from` is a slot.
unsafe fn copy_slot(from: *const StackSlot, to: &mut StackSlot) {
    let to: *mut StackSlot = &raw mut *to;
    // SAFETY: all fields are plain numbers; of the stack as much is copied as both can hold.
    unsafe {
        let before_stack = std::mem::offset_of!(StackSlot, stack);
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), before_stack);
        let length = ((*to).length as usize).min(MAX_STACK);
        let stack = (&raw const (*from).stack).cast::<u8>();
        std::ptr::copy_nonoverlapping(stack, (&raw mut (*to).stack).cast(), length);
    }
}

fn tell(slot: &StackSlot, consume: &mut impl FnMut(Record<'_>)) {
    const ALLOCATION: u32 = Kind::Allocation as u32;
    const UNTRACKED: u32 = Kind::Untracked as u32;
    const PROCESS: u32 = Kind::Process as u32;
    let stack = &slot.stack[..(slot.length as usize).min(MAX_STACK)];
    match slot.kind {
        ALLOCATION | UNTRACKED => {
            let registers = bytes_of(&slot.registers);
            let all = AllRegs::new(registers);
            let regs = Regs {
                ip: slot.registers[register::IP],
                sp: slot.registers[register::SP],
                bp: slot.registers[register::BP],
            };
            let full = stack.len() == MAX_STACK;
            consume(Record::Allocation(Allocation {
                id: slot.id,
                time: slot.time,
                pid: slot.pid,
                tid: slot.tid,
                size: slot.size,
                tracked: slot.kind == ALLOCATION,
                user: UserStack::Native { regs, all, bytes: stack, full },
            }));
        }
        PROCESS => consume(Record::Process { pid: slot.pid, wrappers: stack }),
        // Nothing that the library writes.
        _ => {}
    }
}

fn bytes_of(words: &[u64; 17]) -> &[u8] {
    // SAFETY: eight bytes a word, each of which is a valid byte.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

fn zeroed_slot() -> Box<StackSlot> {
    let mut slot = Box::<StackSlot>::new_uninit();
    // SAFETY: the slot is made of plain numbers, for which zero is a valid value.
    unsafe {
        slot.as_mut_ptr().write_bytes(0, 1);
        slot.assume_init()
    }
}

/// Memory that is a file without a name.
fn memory_file() -> io::Result<File> {
    // SAFETY: the name ends with a NUL; the descriptor is new and ours.
    unsafe {
        match libc::memfd_create(c"prof-heap".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(File::from_raw_fd(fd)),
        }
    }
}
