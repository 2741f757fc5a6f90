//! Puts records into the order of time. perf writes what the buffers of the CPUs contain one after
//! the other, and marks the end of each round: what is older than all of the round before comes
//! before all that follows.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::record::RawRecord;

/// Bytes of records beyond which the oldest are released before the end of a round: more than the
/// buffers of 256 CPUs hold.
const MOST_BYTES: usize = 512 << 20;

/// Memory of a record in addition to its body.
const OVERHEAD: usize = 80;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Queued {
    time: u64,
    /// Place in the file: the order of records of equal times.
    number: u64,
    record: RawRecord,
}

/// Records that wait for older ones.
#[derive(Default)]
pub struct Queue {
    waiting: BinaryHeap<Reverse<Queued>>,
    bytes: usize,
    number: u64,
    /// The latest time so far, and at the end of the last round.
    latest: u64,
    last_round: u64,
}

impl Queue {
    pub fn push(&mut self, time: u64, record: RawRecord) {
        self.bytes += record.body.len() + OVERHEAD;
        self.latest = self.latest.max(time);
        self.number += 1;
        self.waiting.push(Reverse(Queued { time, number: self.number, record }));
    }

    /// The oldest record, if no older one can follow: to be called until there is none at the end of
    /// a round.
    pub fn pop_due(&mut self) -> Option<RawRecord> {
        let Reverse(oldest) = self.waiting.peek()?;
        if oldest.time <= self.last_round { self.pop() } else { None }
    }

    /// Begins the next round.
    pub fn end_round(&mut self) {
        self.last_round = self.latest;
    }

    /// The oldest record if they take too much memory.
    pub fn pop_excess(&mut self) -> Option<RawRecord> {
        if self.bytes > MOST_BYTES { self.pop() } else { None }
    }

    /// The oldest record.
    pub fn pop(&mut self) -> Option<RawRecord> {
        let Reverse(oldest) = self.waiting.pop()?;
        self.bytes -= oldest.record.body.len() + OVERHEAD;
        Some(oldest.record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u8) -> RawRecord {
        RawRecord { kind: 9, misc: 0, body: vec![number] }
    }

    #[test]
    fn records_of_two_rounds_are_sorted() {
        let mut queue = Queue::default();
        let mut order = Vec::new();
        for (times, due) in [(&[5u8, 9, 3, 8][..], 0), (&[7, 6, 20][..], 6), (&[15, 10], 1)] {
            times.iter().for_each(|&time| queue.push(time.into(), record(time)));
            let before = order.len();
            order.extend(std::iter::from_fn(|| queue.pop_due()).map(|r| r.body[0]));
            queue.end_round();
            // The third round may contain what is newer than the first only.
            assert!(order.len() - before >= due.min(order.len()), "{order:?}");
        }
        order.extend(std::iter::from_fn(|| queue.pop()).map(|r| r.body[0]));
        assert_eq!(order, [3, 5, 6, 7, 8, 9, 10, 15, 20]);
        assert_eq!(queue.bytes, 0);
    }

    #[test]
    fn records_of_one_time_keep_their_order() {
        let mut queue = Queue::default();
        [3, 1, 2].iter().for_each(|&number| queue.push(7, record(number)));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|r| r.body[0]).collect();
        assert_eq!(order, [3, 1, 2]);
    }
}
