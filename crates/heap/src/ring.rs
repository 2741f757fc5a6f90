//! The reader's side of the queues in the memory that is shared with the sampled program.
//!
//! The contents are not trusted: the program can write anything, at any time. Every word is read
//! once, atomically, and checked; each read is bounded by the size of the memory; and an
//! inconsistency ends the reading, with a reason.

#![allow(unsafe_code)]

mod copied;
mod frees;
mod memory;
mod records;
mod stacks;
mod times;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use memmap2::MmapRaw;

use self::copied::Copied;
use self::frees::{FreeQueue, freed_by};
use self::memory::{Damaged, free_slots, header, memory_file};
pub use self::records::{Allocation, AllocationRecord, Shared, Writer};
use self::stacks::{StackQueue, time_at};
use self::times::{QueueMark, ReadBounds, RecordTimes};
use super::layout::granule;
use super::layout::{FILE_SIZE, FREES, GRANULES, Header, MAGIC};
use sys::os;

/// Interval from which a quarter of the ring is used, and up to the half of that before the
/// interval is raised; below, where each allocation may be recorded, all and up to three quarters.
const SPARSE: u64 = 4096;

/// Number of times that the interval can be doubled before the ring is full.
const DOUBLINGS: u64 = 32;

/// Counters of the library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapStats {
    /// Programs into which the library was loaded.
    pub loaded: u64,
    /// Sampled allocations without space.
    pub lost: u64,
    /// Bytes of these.
    pub lost_bytes: u64,
    /// Ends of sampled allocations without space.
    pub lost_frees: u64,
}

/// Memory that is shared with the sampled program.
pub struct AllocationRing {
    memory: MmapRaw,
    path: PathBuf,
    /// Keeps the path valid while it is open.
    file: File,
    inode: u64,
    stacks: StackQueue,
    frees: FreeQueue,
    times: RecordTimes,
    /// The current record.
    copy: Copied,
    /// Reason why reading has ended.
    damaged: Option<&'static str>,
}

impl AllocationRing {
    /// Memory for samples of this mean interval in bytes, with anonymous `mappings` or without;
    /// nothing is sampled yet.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn create(interval: u64, mappings: bool) -> io::Result<AllocationRing> {
        let file = memory_file()?;
        // If prof was given privileges by its file, other processes may not access its descriptors.
        let path = if os::is_dumpable() {
            format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
        } else {
            String::new()
        };
        AllocationRing::on(file, PathBuf::from(path), interval, mappings)
    }

    /// The same on an empty memory file with this path in the program.
    ///
    /// # Errors
    ///
    /// There is no memory, or the file is another one.
    pub fn on(
        file: File,
        path: PathBuf,
        interval: u64,
        mappings: bool,
    ) -> io::Result<AllocationRing> {
        file.set_len(FILE_SIZE as u64)?;
        // A process could truncate it, and prof would end by SIGBUS. Only memory files can be
        // sealed.
        os::seal_size(&file)?;
        let about = file.metadata()?;
        if about.len() != FILE_SIZE as u64 {
            return Err(io::Error::other("it has been replaced"));
        }
        let memory = MmapRaw::map_raw(&file)?;
        let (granules, pace_from) = if interval < SPARSE {
            (GRANULES, GRANULES / 4 * 3)
        } else {
            (GRANULES / 4, GRANULES / 8)
        };
        // Ids of an earlier recording of the same process are invalid now.
        let first_id = os::monotonic_nanos();
        // SAFETY: the file is as large as the layout; these fields are only written here.
        unsafe {
            let header = memory.as_mut_ptr().cast::<Header>();
            (&raw mut (*header).magic).write(MAGIC);
            (&raw mut (*header).interval).write(interval);
            (&raw mut (*header).mappings).write(u32::from(mappings));
            (&raw mut (*header).first_id).write(first_id);
            (&raw mut (*header).granules).write(granules);
            (&raw mut (*header).pace_from).write(pace_from);
            (&raw mut (*header).pace).write((granules - pace_from) / DOUBLINGS);
        }
        header(&memory).next_id.store(first_id, Relaxed);
        for (slot, turn) in free_slots(&memory).iter().zip(0..) {
            slot.turn.store(turn, Relaxed);
        }
        let stacks = StackQueue::new(granules);
        let copy = Copied::new();
        let frees = FreeQueue::default();
        let inode = about.ino();
        Ok(AllocationRing {
            memory,
            path,
            file,
            inode,
            stacks,
            frees,
            times: RecordTimes::default(),
            copy,
            damaged: None,
        })
    }

    /// Its path in the program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A descriptor for programs to inherit, with a number that they usually do not use.
    pub fn inherited(&self) -> Option<OwnedFd> {
        [900, 200, 50].into_iter().find_map(|least| os::inherited(&self.file, least).ok())
    }

    /// Begins or ends sampling.
    pub fn set_active(&self, active: bool) {
        header(&self.memory).active.store(u32::from(active), Release);
    }

    /// Makes exiting processes wait from now on; `watch`, which receives the file, begins to search
    /// them.
    ///
    /// # Errors
    ///
    /// Those of `watch`; processes then do not wait.
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
            lost: header.stacks.lost.load(Relaxed).saturating_add(self.stacks.late.len() as u64),
            lost_bytes: header.stacks.lost_bytes.load(Relaxed),
            lost_frees: header.frees.lost.load(Relaxed).saturating_add(self.frees.lost()),
        }
    }

    /// Adds to the number of tracked allocations that have ended, or whose end is lost.
    pub fn forget(&self, ended: u64) {
        header(&self.memory).live.fetch_sub(ended as i64, Relaxed);
    }

    /// Releases the memory, although the program still has it mapped.
    pub fn give_back(&self) {
        os::punch(&self.file, 0..FILE_SIZE as u64);
    }

    /// Share of the memory with unread data: 0 to 1.
    pub fn filled(&self) -> f64 {
        let header = header(&self.memory);
        let stacks = header.stacks.next.load(Relaxed).saturating_sub(self.stacks.read);
        let frees = header.frees.next.load(Relaxed).saturating_sub(self.frees.position);
        let filled = |part: u64, all: u64| part as f64 / all as f64;
        filled(stacks, self.stacks.granules / 2).max(filled(frees, FREES as u64)).min(1.0)
    }

    /// Reason why the memory is no longer read.
    pub fn damaged(&self) -> Option<&'static str> {
        self.damaged
    }

    /// Identification of the shared file.
    pub fn shared(&self) -> Shared {
        Shared { inode: self.inode }
    }

    /// Passes on the records before `until` (`CLOCK_MONOTONIC`, nanoseconds) in the order of time,
    /// as far as it is known, and an allocation always before its end.
    ///
    /// `over`: all writers have ended, so none is waited for.
    pub fn take(&mut self, until: u64, over: bool, consume: impl FnMut(AllocationRecord<'_>)) {
        if self.damaged.is_none()
            && let Err(damaged) = self.take_all(until, over, consume)
        {
            self.damaged = Some(damaged);
            self.set_active(false);
        }
    }

    fn take_all(
        &mut self,
        until: u64,
        over: bool,
        mut consume: impl FnMut(AllocationRecord<'_>),
    ) -> Result<(), Damaged> {
        let before = os::monotonic_nanos();
        let AllocationRing { memory, stacks, frees, .. } = &*self;
        let head = header(memory);
        // An allocation that has ended by now began before. Later records are left for the next
        // read.
        let ended = head.frees.next.load(Acquire);
        let begun = head.stacks.next.load(Acquire);
        if ended.checked_sub(frees.position).is_none_or(|n| n > FREES as u64)
            || begun.checked_sub(stacks.read).is_none_or(|n| n > stacks.granules)
            || begun < stacks.position
        {
            return Err("more records are announced than there is space for");
        }
        let mark = QueueMark { begun, ended, before, after: os::monotonic_nanos() };
        let times = self.times.bounds(until, mark.after);
        loop {
            self.copy.take_late(&mut self.stacks, &self.memory, times, over, &mut consume)?;
            self.take_in_order(&mark, times, &mut consume)?;
            let blocked = self.stacks.is_blocked() || self.frees.is_blocked();
            // If it is blocked, ends may belong to allocations that are not read yet.
            if over || !self.stacks.is_blocked() {
                let consume = |slot: &_| consume(freed_by(slot));
                self.frees.take_waiting(&self.memory, times, over, consume);
            }
            if !(over && blocked) {
                break;
            }
        }
        if over {
            self.copy.take_late(&mut self.stacks, &self.memory, times, over, &mut consume)?;
        }
        self.stacks.publish_read(&self.memory, &self.file);
        self.times.finish(until, mark);
        Ok(())
    }

    /// Passes on the records before the positions of the mark, without waiting.
    fn take_in_order(
        &mut self,
        mark: &QueueMark,
        times: ReadBounds,
        consume: &mut impl FnMut(AllocationRecord<'_>),
    ) -> Result<(), Damaged> {
        let AllocationRing { memory, stacks, frees, copy, .. } = self;
        loop {
            let allocation = stacks.next(memory, mark.begun)?;
            if allocation.is_none() && stacks.is_blocked() {
                return Ok(());
            }
            let allocated_at = allocation.map(|_| {
                times.allocated(stacks.position, time_at(memory, stacks.place(stacks.position)))
            });
            let freed = frees.next(memory, mark.ended)?;
            let freed_at = freed.map(|slot| times.freed(frees.position, slot.time.load(Relaxed)));
            let first = allocated_at.is_some_and(|at| freed_at.is_none_or(|freed| at <= freed));
            let time = if first { allocated_at } else { freed_at };
            if time.is_none_or(|time| time >= times.until()) {
                return Ok(());
            }
            match (allocation, freed) {
                (Some(word), _) if first => {
                    let count = granule::count(word);
                    copy.take(memory, stacks.place(stacks.position), count)?;
                    stacks.position += count;
                    copy.pass_on(consume)?;
                }
                (_, Some(slot)) => {
                    consume(freed_by(slot));
                    frees.pass(slot);
                }
                _ => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
