//! Fields of samples beyond the usual: the values of a group of events (`{a,b}:S`), and calls that
//! the CPU has recorded (`--call-graph lbr`).

use std::collections::HashMap;

use super::fields::words;

/// The values of all events of a group at a sample (`PERF_SAMPLE_READ`): sums since their begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts<'a> {
    pub(super) words: &'a [u8],
    /// Words of each event: the value, the identifier, and others.
    pub(super) each: usize,
}

/// The value of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventCount {
    /// The identifier of the event.
    pub id: u64,
    /// Its sum.
    pub value: u64,
}

impl<'a> GroupCounts<'a> {
    /// The values.
    pub fn iter(self) -> impl Iterator<Item = EventCount> + 'a {
        let events = self.words.chunks_exact(8 * self.each.max(1));
        events.filter_map(|event| {
            let mut words = words(event);
            Some(EventCount { value: words.next()?, id: words.next()? })
        })
    }
}

/// The counter of an event: of a thread, if threads inherit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Counter {
    id: u64,
    thread: Option<i32>,
}

/// The last values of counters.
// The standard hasher, because the keys come from the file.
#[derive(Debug, Default)]
pub struct LastCounts(HashMap<Counter, u64>);

impl LastCounts {
    /// The increase of a counter since its last value.
    pub fn increase(&mut self, count: EventCount, thread: Option<i32>) -> u64 {
        let last = self.0.entry(Counter { id: count.id, thread }).or_default();
        let increase = count.value.saturating_sub(*last);
        *last = count.value;
        increase
    }

    /// Memory in bytes.
    pub fn memory(&self) -> u64 {
        48 * self.0.capacity() as u64
    }
}

/// Calls of the user stack that have not returned, the innermost first (last branch records).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallBranches<'a> {
    pub(super) words: &'a [u8],
}

impl CallBranches<'_> {
    /// Words of a branch: from, to, flags.
    pub(super) const WORDS: u64 = 3;

    /// Calls that CPUs record at most: from Skylake on, Haswell and Broadwell, Atom.
    const MOST: [usize; 3] = [32, 16, 8];

    /// True if there are none.
    pub fn is_empty(self) -> bool {
        self.words.is_empty()
    }

    /// True if older calls may have been dropped.
    pub fn is_full(self) -> bool {
        let calls = self.words.len() / (8 * Self::WORDS as usize);
        calls > Self::MOST[0] || Self::MOST.contains(&calls)
    }

    /// The user part of a call chain: the instruction `ip` of the leaf, or the address that was
    /// called last, and return addresses.
    pub fn chain(self, ip: Option<u64>, chain: &mut Vec<u64>) {
        let mut branches = self.words.chunks_exact(8 * Self::WORDS as usize).map(|branch| {
            let mut words = words(branch);
            (words.next().unwrap_or(0), words.next().unwrap_or(0))
        });
        let Some((from, to)) = branches.next() else { return };
        chain.clear();
        chain.push(ip.unwrap_or(to));
        // Any byte of the call but its first leads back to it, as its return address does.
        chain.push(from.wrapping_add(1));
        chain.extend(branches.map(|(from, _)| from.wrapping_add(1)));
    }
}
