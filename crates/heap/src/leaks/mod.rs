//! Which sampled allocations of a process that exits are lost: no pointer leads to them any more.
//!
//! As LeakSanitizer does it: what registers, stacks and the data of the program point to is
//! reachable, and what that points to, and so on; any word whose value is an address within a block
//! counts as a pointer to it. Blocks that were not sampled are found by the headers that glibc puts
//! before each ([`glibc`]). Of other allocators' nobody knows where they begin and end, nor which
//! are in use: what only that memory points to is perhaps reachable.
//!
//! The process is only read. It waits in its exit handlers meanwhile, and its other threads are
//! held, all for a bounded time.

mod areas;
mod blocks;
mod glibc;
mod memory;
mod threads;

use std::fmt;
use std::io;
use std::time::Instant;

use areas::{Area, Areas, Kind};
use blocks::Blocks;
use memory::Memory;
use threads::{Held, Seen};

use crate::Asked;
use crate::table::copy::{FEW_AT, MANY_AT, OVERFLOWN_AT, entries};

/// Addresses that a program can have.
const LOWEST: u64 = memory::PAGE;
const HIGHEST: u64 = 1 << 56;

/// What is known of a block that was never freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Pointers lead to it.
    Reachable,
    /// Pointers lead to it from memory of which nobody knows whether it is in use.
    Perhaps,
    /// None does.
    Lost,
}

/// Why nothing is known.
#[derive(Debug)]
pub enum Failure {
    /// It would have taken too long.
    TooLong,
    /// The process is gone, or may not be looked at.
    System(io::Error),
    /// A thread of it could not be held.
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
                _ => write!(f, "the kernel does not let prof look into it ({error})"),
            },
            Failure::Thread => f.write_str("one of its threads did not stop in time"),
        }
    }
}

/// A sampled block that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    address: u64,
    id: u64,
    size: u64,
}

/// Tells of each sampled block of a process, by its name, whether pointers lead to it. `mappings`:
/// some may be mappings that the program made itself.
///
/// # Errors
///
/// The process may not be looked at, or not in time.
pub fn look(asked: &Asked, mappings: bool, until: Instant) -> Result<Vec<(u64, Verdict)>, Failure> {
    let held = Held::hold(asked.pid, asked.tid, asked.fs, until)?;
    let mut memory = Memory::new(asked.pid, until);
    let sampled = sampled(&mut memory, asked.table)?;
    let mut areas = Areas::read(asked.pid)?;
    areas.leave_out(asked.table, asked.table.saturating_add(table_size()));
    areas.leave_out(asked.shared.0, asked.shared.1);
    let mut threads: Vec<Seen> = held.seen().to_vec();
    threads.push(Seen { sp: asked.sp, fs: asked.fs, words: Vec::new() });
    areas.stacks(&threads, &mut memory)?;
    let mut look = Look::new(areas, memory, &sampled, mappings)?;
    look.see_threads(&threads)?;
    look.see_areas(Kind::Root)?;
    let reachable = look.verdicts(&sampled, Verdict::Reachable);
    look.see_areas(Kind::Unknown)?;
    let perhaps = look.verdicts(&sampled, Verdict::Perhaps);
    drop(held);
    let better = |a: Verdict, b: Verdict| if a == Verdict::Lost { b } else { a };
    let both = reachable.into_iter().zip(perhaps);
    Ok(both.map(|((id, a), (_, b))| (id, better(a, b))).collect())
}

/// Bytes of the table of sampled addresses.
fn table_size() -> u64 {
    size_of::<crate::table::Process>() as u64
}

/// What was sampled and not freed.
fn sampled(memory: &mut Memory, table: u64) -> Result<Vec<Sampled>, Failure> {
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
        sampled.extend(entries.map(|(address, id, size)| Sampled { address, id, size }));
    }
    Ok(sampled)
}

/// A look at a process.
struct Look {
    areas: Vec<Area>,
    memory: Memory,
    blocks: Blocks,
}

impl Look {
    fn new(
        mut areas: Areas,
        mut memory: Memory,
        sampled: &[Sampled],
        mappings: bool,
    ) -> Result<Look, Failure> {
        let (mut blocks, freed) = glibc::blocks(&areas, &mut memory, sampled)?;
        blocks.sort()?;
        let others = sampled.iter().filter(|s| !blocks.begins_at(s.address));
        let others: Vec<Sampled> = others.copied().collect();
        let mapping = |s: &Sampled| mappings && s.address.is_multiple_of(memory::PAGE);
        if !others.iter().all(mapping) {
            areas.are_of_another_allocator();
        }
        for Sampled { address, size, .. } in others {
            blocks.add(address, address.saturating_add(size.max(1)).min(HIGHEST));
        }
        blocks.sort()?;
        blocks.read_pointers(&mut memory, &freed)?;
        let areas = areas.without(blocks.ranges());
        Ok(Look { areas, memory, blocks })
    }

    /// Registers, and the blocks that threads have their stacks in.
    fn see_threads(&mut self, threads: &[Seen]) -> Result<(), Failure> {
        for thread in threads {
            thread.words.iter().for_each(|&word| self.blocks.point(word));
            self.blocks.point(thread.sp);
        }
        self.blocks.follow(&mut self.memory)
    }

    /// All memory of a kind that is no block.
    fn see_areas(&mut self, kind: Kind) -> Result<(), Failure> {
        let Look { areas, memory, blocks } = self;
        for area in areas.iter().filter(|area| area.kind == kind) {
            memory.each_word(area.start, area.end, |_, word| blocks.point(word))?;
        }
        blocks.follow(memory)
    }

    fn verdicts(&self, sampled: &[Sampled], if_reached: Verdict) -> Vec<(u64, Verdict)> {
        let verdict = |s: &Sampled| match self.blocks.is_reached(s.address) {
            true => (s.id, if_reached),
            false => (s.id, Verdict::Lost),
        };
        sampled.iter().map(verdict).collect()
    }
}
