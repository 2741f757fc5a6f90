//! prof's side of a BPF ring buffer (`Documentation/bpf/ringbuf.rst` of the kernel): a page with
//! the consumer position, a page with the producer position, and the data, mapped twice in a row so
//! that no record wraps around.

#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use crate::sampler::bpf::syscall::Map;
use sys::arch;

const PAGE: usize = arch::PAGE as usize;

/// Bytes before each record: its length, with two flags, and its offset.
const PREFIX: usize = 8;

/// The program has not finished or discarded the record.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;

/// The state of a record in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Complete.
    Done,
    /// In progress.
    Busy,
    /// Discarded, without content.
    Discarded,
}

/// What is known of a record in a ring.
pub trait CopyRecord {
    /// Records of one sample have the same time, and follow each other in this order.
    type Order: Ord;

    /// The time of its sample.
    fn time(&self) -> u64;

    /// See [`CopyRecord::Order`]; begins with the time.
    fn order(&self) -> Self::Order;
}

/// The records in a ring whose samples were not delivered.
#[derive(Debug)]
pub struct Undelivered<R> {
    /// In their order, and the number of those before the time of the last release.
    records: Vec<R>,
    passed: usize,
    /// End and time of each record, in the order of the ring, and the number of released ones.
    ends: Vec<(u64, u64)>,
    released: usize,
}

impl<R> Default for Undelivered<R> {
    fn default() -> Undelivered<R> {
        Undelivered { records: Vec::new(), passed: 0, ends: Vec::new(), released: 0 }
    }
}

impl<R: CopyRecord> Undelivered<R> {
    /// Reads the positions in the ring. `parse` gets the bytes of a record and their offset.
    pub fn refresh(&mut self, ring: &CopyRing, parse: impl Fn(&[u8], usize) -> Option<R>) {
        (self.passed, self.released) = (0, 0);
        self.records.clear();
        self.ends.clear();
        let mut position = ring.read_to();
        let end = ring.written_to();
        while position < end {
            let (state, at, length, next) = ring.record(position);
            let record = match state {
                SlotState::Done => parse(ring.bytes(at, length), at),
                SlotState::Busy | SlotState::Discarded => None,
            };
            // A record in progress stays, and so do those behind it.
            let busy = if state == SlotState::Busy { u64::MAX } else { 0 };
            self.ends.push((next, record.as_ref().map_or(busy, R::time)));
            self.records.extend(record);
            position = next;
        }
        self.records.sort_unstable_by_key(R::order);
    }

    /// Releases everything before this time, whose samples were delivered.
    pub fn release(&mut self, ring: &CopyRing, time: u64) {
        if let Some(end) = self.pass(time) {
            ring.release(end);
        }
    }

    /// Forgets what is before this time. Returns the position in the ring up to which nothing is
    /// needed any more, if that is a later one than before.
    fn pass(&mut self, time: u64) -> Option<u64> {
        while self.records.get(self.passed).is_some_and(|record| record.time() < time) {
            self.passed += 1;
        }
        let older = self.ends[self.released..].iter().take_while(|end| end.1 < time).count();
        self.released += older;
        (older > 0).then(|| self.ends[self.released - 1].0)
    }

    /// The records of this time, unless they were released.
    pub fn at(&self, time: u64) -> impl Iterator<Item = &R> {
        let kept = &self.records[self.passed..];
        // Most often it is the first one.
        let is_first = kept.first().is_none_or(|record| record.time() >= time);
        let from = if is_first { 0 } else { kept.partition_point(|record| record.time() < time) };
        kept[from..].iter().take_while(move |record| record.time() == time)
    }

    /// All that were not released.
    #[cfg(test)]
    pub fn all(&self) -> &[R] {
        &self.records[self.passed..]
    }
}

/// The ring, mapped.
#[derive(Debug)]
pub struct CopyRing {
    /// The page with the consumer position.
    read: MmapRaw,
    /// The page with the producer position, and the data behind it.
    written: MmapRaw,
    size: usize,
}

impl CopyRing {
    /// Maps a ring of `size` bytes.
    ///
    /// # Errors
    ///
    /// There is not enough memory.
    pub fn map(map: &Map, size: usize) -> io::Result<CopyRing> {
        assert!(size.is_power_of_two() && size >= PAGE);
        let read = MmapOptions::new().len(PAGE).map_raw(map.fd())?;
        let all = PAGE + 2 * size;
        let written =
            MmapOptions::new().offset(PAGE as u64).len(all).map_raw_read_only(map.fd())?;
        Ok(CopyRing { read, written, size })
    }

    /// The consumer position.
    pub fn read_to(&self) -> u64 {
        self.position(&self.read).load(Ordering::Relaxed)
    }

    /// The producer position.
    pub fn written_to(&self) -> u64 {
        // Acquire: prefixes before this position are read after it (pairs with the kernel).
        self.position(&self.written).load(Ordering::Acquire)
    }

    fn position<'a>(&self, page: &'a MmapRaw) -> &'a AtomicU64 {
        // SAFETY: both mappings begin with a page whose first word is a position that the kernel and
        // user space access atomically, for as long as the mapping lives.
        unsafe { &*page.as_ptr().cast::<AtomicU64>() }
    }

    /// Releases the records before a position to the kernel.
    pub fn release(&self, position: u64) {
        // Release: what was read of the records is read before the kernel may overwrite it.
        self.position(&self.read).store(position, Ordering::Release);
    }

    /// The record at a position: its state, the offset and number of its bytes, and the position of
    /// the next one. `position` must lie between the consumer and the producer position.
    pub fn record(&self, position: u64) -> (SlotState, usize, usize, u64) {
        let at = (position as usize & (self.size - 1)) + PAGE;
        // SAFETY: records begin at multiples of eight within the data; the word before each is
        // written by the kernel atomically.
        let prefix = unsafe { &*self.written.as_ptr().add(at).cast::<AtomicU32>() };
        // Acquire: the record is read after the kernel has cleared the flag.
        let prefix = prefix.load(Ordering::Acquire);
        let length = (prefix & !(BUSY | DISCARDED)) as usize;
        let state = match prefix {
            p if p & BUSY != 0 => SlotState::Busy,
            p if p & DISCARDED != 0 => SlotState::Discarded,
            _ => SlotState::Done,
        };
        let next = position + (length + PREFIX).next_multiple_of(8) as u64;
        (state, at - PAGE + PREFIX, length, next)
    }

    /// Bytes of a complete record that was not released.
    pub fn bytes(&self, at: usize, length: usize) -> &[u8] {
        assert!(at <= 2 * self.size && length <= 2 * self.size - at);
        // SAFETY: the range is within the data (asserted). The kernel does not write to a complete
        // record until it is released, which its users do only when its bytes are not borrowed.
        unsafe { std::slice::from_raw_parts(self.written.as_ptr().add(PAGE + at), length) }
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// True if a quarter or more of it is used.
    pub fn is_filling(&self) -> bool {
        (self.written_to() - self.read_to()) as usize * 4 >= self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of this time, with a number.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Timed(u64, u64);

    impl CopyRecord for Timed {
        type Order = (u64, u64);

        fn time(&self) -> u64 {
            self.0
        }

        fn order(&self) -> Self::Order {
            (self.0, self.1)
        }
    }

    /// Records in the order of the ring, of which each ends at its number.
    fn undelivered(times: &[u64]) -> Undelivered<Timed> {
        let ends: Vec<(u64, u64)> = times.iter().zip(1..).map(|(time, end)| (end, *time)).collect();
        let mut records: Vec<Timed> = ends.iter().map(|(end, time)| Timed(*time, *end)).collect();
        records.sort_unstable_by_key(Timed::order);
        Undelivered { records, ends, ..Undelivered::default() }
    }

    fn at(undelivered: &Undelivered<Timed>, time: u64) -> Vec<u64> {
        undelivered.at(time).map(|record| record.1).collect()
    }

    #[test]
    fn records_are_found_in_any_order_of_time() {
        let kept = undelivered(&[20, 10, 20, 40, 30, 10]);
        assert_eq!(at(&kept, 20), [1, 3]);
        assert_eq!(at(&kept, 10), [2, 6]);
        assert_eq!(at(&kept, 40), [4]);
        for missing in [0, 15, 35, 50] {
            assert_eq!(at(&kept, missing), [0_u64; 0], "{missing}");
        }
        assert_eq!(at(&undelivered(&[]), 10), [0_u64; 0]);
    }

    #[test]
    fn what_is_released_is_not_found() {
        let mut kept = undelivered(&[20, 10, 20, 40, 30, 10]);
        // Only the beginning of the ring can be released.
        assert_eq!(kept.pass(15), None);
        assert_eq!((at(&kept, 10), at(&kept, 20)), (vec![], vec![1, 3]));
        assert_eq!(kept.pass(30), Some(3));
        assert_eq!((at(&kept, 20), at(&kept, 30)), (vec![], vec![5]));
        assert_eq!(kept.pass(30), None);
        assert_eq!(at(&kept, 40), [4]);
        assert_eq!(kept.pass(u64::MAX), Some(6));
        assert_eq!(at(&kept, 40), [0_u64; 0]);
    }
}
