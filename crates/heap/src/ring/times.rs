//! Times of records, as far as their writers' clocks are credible.
//!
//! A process in a separate time namespace has another clock, which may always be ahead or behind.
//! But the reader knows by its own clock between which two reads each record arrived. The stated
//! time of a record is moved into that interval, so that it matches the kernel's records of the
//! same moment.

/// State of the queues at a read.
#[derive(Clone, Copy, Default)]
pub struct QueueMark {
    /// Positions of the next allocation and the next end.
    pub begun: u64,
    /// See `begun`.
    pub ended: u64,
    /// Time before the positions were read, and after.
    pub before: u64,
    /// See `before`.
    pub after: u64,
}

/// Bounds of the times of records, from earlier reads.
#[derive(Clone, Copy, Default)]
pub struct RecordTimes {
    /// The last read whose records have not all been passed on.
    mark: QueueMark,
    /// All present records arrived after this.
    oldest: u64,
}

impl RecordTimes {
    /// A read at a time, for records before `until`.
    pub fn bounds(self, until: u64, now: u64) -> ReadBounds {
        ReadBounds { times: self, until, now }
    }

    /// All records before `until` have been passed on.
    pub fn finish(&mut self, until: u64, mark: QueueMark) {
        if until > self.mark.after {
            (self.oldest, self.mark) = (self.mark.before, mark);
        }
    }
}

/// The bounds during a read.
#[derive(Clone, Copy)]
pub struct ReadBounds {
    times: RecordTimes,
    until: u64,
    now: u64,
}

impl ReadBounds {
    /// Records from this time on are left for the next read.
    pub fn until(self) -> u64 {
        self.until
    }

    /// Time of the allocation at a position with a stated time.
    pub fn allocated(self, position: u64, stated: u64) -> u64 {
        self.bounded(position < self.times.mark.begun, stated)
    }

    /// The same for an end.
    pub fn freed(self, position: u64, stated: u64) -> u64 {
        self.bounded(position < self.times.mark.ended, stated)
    }

    fn bounded(self, was_there: bool, stated: u64) -> u64 {
        let RecordTimes { mark, oldest } = self.times;
        match was_there {
            true => stated.clamp(oldest, mark.after.max(oldest)),
            // Not known yet.
            false if stated > self.now => self.now,
            false => stated.max(mark.before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_times_are_bounded_by_the_reads_around_them() {
        let mut times = RecordTimes::default();
        let mark = |begun, before, after| QueueMark { begun, ended: begun, before, after };
        times.finish(50, mark(10, 100, 101));
        // The first ten arrived before 101, others after 100.
        let bounds = times.bounds(150, 200);
        assert_eq!((bounds.allocated(9, 70), bounds.freed(9, 5000)), (70, 101));
        assert_eq!((bounds.allocated(10, 70), bounds.freed(10, 130)), (100, 130));
        // One that is ahead is left until its arrival is bounded.
        assert_eq!(bounds.allocated(10, 5000), 200);
        times.finish(90, mark(15, 195, 196));
        assert_eq!(times.mark.begun, 10);
        times.finish(150, mark(20, 200, 201));
        let bounds = times.bounds(250, 300);
        assert_eq!((bounds.allocated(15, 5000), bounds.allocated(15, 3)), (201, 100));
    }
}
