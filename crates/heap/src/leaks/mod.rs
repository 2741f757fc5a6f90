//! Finds lost sampled allocations of an exiting process: those that no pointer leads to.
//!
//! As in LeakSanitizer, targets of registers, stacks and the data of the program are reachable, and
//! the targets of these, and so on; any word whose value is an address within a block counts as a
//! pointer to it. Blocks that were not sampled are found by glibc's headers ([`glibc`]). Blocks of
//! other allocators have unknown bounds and states: targets of pointers in that memory only are
//! possibly lost.
//!
//! The process is only read. It waits in its exit handlers, and its other threads are stopped, all
//! for a bounded time.

mod areas;
mod blocks;
mod glibc;
mod memory;
mod threads;

use std::fmt;
use std::io;
use std::time::Instant;

use areas::{Area, AreaKind, Areas};
use blocks::Blocks;
use memory::ProcessMemory;
use threads::{StoppedThreads, ThreadMemory};

use crate::ExitRequest;
use crate::table::copy::{FEW_AT, MANY_AT, OVERFLOWN_AT, entries};

/// Range of addresses that a program can have.
const LOWEST: u64 = memory::PAGE;
const HIGHEST: u64 = 1 << 56;

/// Reachability of a block that was never freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Pointers lead to it.
    Reachable,
    /// Pointers lead to it only from memory that may not be in use.
    PossiblyLost,
    /// No pointer leads to it.
    Lost,
}

/// Error of a search.
#[derive(Debug)]
pub enum Failure {
    /// It would have taken too long.
    TooLong,
    /// The process has ended, or may not be inspected.
    System(io::Error),
    /// One of its threads could not be stopped.
    Thread,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::System(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::TooLong => f.write_str("it would have taken longer than a second"),
            Failure::System(error) => match error.raw_os_error() {
                Some(libc::ESRCH) => f.write_str("it was gone"),
                _ => write!(f, "the kernel denies access to its memory ({error})"),
            },
            Failure::Thread => f.write_str("one of its threads did not stop in time"),
        }
    }
}

/// A sampled block that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledBlock {
    address: u64,
    id: u64,
    size: u64,
}

/// Determines the verdict of each sampled block of a process, by its id. `mappings`: some may be
/// mappings that the program made itself.
///
/// # Errors
///
/// The process may not be inspected, or not in time.
pub fn analyze(
    process: &ExitRequest,
    mappings: bool,
    until: Instant,
) -> Result<Vec<(u64, Verdict)>, Failure> {
    let held = StoppedThreads::hold(process.pid, process.tid, process.control_block, until)?;
    let mut memory = ProcessMemory::new(process.pid, until);
    let sampled = sampled(&mut memory, process.table)?;
    let mut areas = Areas::read(process.pid)?;
    areas.leave_out(process.table, process.table.saturating_add(table_size()));
    areas.leave_out(process.shared.0, process.shared.1);
    let mut threads: Vec<ThreadMemory> = held.threads().to_vec();
    threads.push(ThreadMemory {
        sp: process.sp,
        control_block: process.control_block,
        words: Vec::new(),
    });
    areas.stacks(&threads, &mut memory)?;
    let mut search = Search::new(areas, memory, &sampled, mappings)?;
    search.scan_threads(&threads)?;
    search.scan_areas(AreaKind::Root)?;
    let reachable = search.verdicts(&sampled, Verdict::Reachable);
    search.scan_areas(AreaKind::Unknown)?;
    let possible = search.verdicts(&sampled, Verdict::PossiblyLost);
    drop(held);
    let better = |a: Verdict, b: Verdict| if a == Verdict::Lost { b } else { a };
    let both = reachable.into_iter().zip(possible);
    Ok(both.map(|((id, a), (_, b))| (id, better(a, b))).collect())
}

/// Bytes of the table of sampled addresses.
fn table_size() -> u64 {
    size_of::<crate::table::Process>() as u64
}

/// Sampled allocations that were not freed.
fn sampled(memory: &mut ProcessMemory, table: u64) -> Result<Vec<SampledBlock>, Failure> {
    let mut parts = vec![FEW_AT];
    let mut overflown = [0];
    memory.copy(table.wrapping_add(OVERFLOWN_AT as u64), &mut overflown)?;
    if overflown[0] != 0 {
        parts.push(MANY_AT);
    }
    let mut sampled = Vec::new();
    for (at, length) in parts {
        let mut bytes = vec![0; length];
        memory.copy(table.wrapping_add(at as u64), &mut bytes)?;
        let entries = entries(&bytes).filter(|(address, ..)| (LOWEST..HIGHEST).contains(address));
        sampled.extend(entries.map(|(address, id, size)| SampledBlock { address, id, size }));
    }
    Ok(sampled)
}

/// A search of a process.
struct Search {
    areas: Vec<Area>,
    memory: ProcessMemory,
    blocks: Blocks,
}

impl Search {
    fn new(
        mut areas: Areas,
        mut memory: ProcessMemory,
        sampled: &[SampledBlock],
        mappings: bool,
    ) -> Result<Search, Failure> {
        let (mut blocks, freed) = glibc::blocks(&areas, &mut memory, sampled)?;
        blocks.sort()?;
        let others = sampled.iter().filter(|s| !blocks.begins_at(s.address));
        let others: Vec<SampledBlock> = others.copied().collect();
        let mapping = |s: &SampledBlock| mappings && s.address.is_multiple_of(memory::PAGE);
        if !others.iter().all(mapping) {
            areas.are_of_another_allocator();
        }
        for SampledBlock { address, size, .. } in others {
            blocks.add(address, address.saturating_add(size.max(1)).min(HIGHEST));
        }
        blocks.sort()?;
        blocks.read_pointers(&mut memory, &freed)?;
        let areas = areas.without(blocks.ranges());
        Ok(Search { areas, memory, blocks })
    }

    /// Scans registers, and the blocks that contain threads' stacks.
    fn scan_threads(&mut self, threads: &[ThreadMemory]) -> Result<(), Failure> {
        for thread in threads {
            thread.words.iter().for_each(|&word| self.blocks.point(word));
            self.blocks.point(thread.sp);
        }
        self.blocks.follow(&mut self.memory)
    }

    /// Scans all memory of a kind outside blocks.
    fn scan_areas(&mut self, kind: AreaKind) -> Result<(), Failure> {
        let Search { areas, memory, blocks } = self;
        for area in areas.iter().filter(|area| area.kind == kind) {
            memory.each_word(area.start, area.end, |_, word| blocks.point(word))?;
        }
        blocks.follow(memory)
    }

    fn verdicts(&self, sampled: &[SampledBlock], if_reached: Verdict) -> Vec<(u64, Verdict)> {
        let verdict = |s: &SampledBlock| {
            if self.blocks.is_reached(s.address) {
                (s.id, if_reached)
            } else {
                (s.id, Verdict::Lost)
            }
        };
        sampled.iter().map(verdict).collect()
    }
}
