//! When records were written, as far as their writers' clocks can be believed.
//!
//! In a time namespace of its own a process has another clock, which may be ahead or behind for
//! ever. But the reader knows between which two looks each record came, by its own clock. What a
//! record states is moved into that time, so that it meets the kernel's records of its moment.

/// What the reader has seen at a look.
#[derive(Clone, Copy, Default)]
pub struct Mark {
    /// Where the next allocation and the next end were to come.
    pub begun: u64,
    /// See `begun`.
    pub ended: u64,
    /// The time before this was read, and after it was.
    pub before: u64,
    /// See `before`.
    pub after: u64,
}

/// What earlier looks say of the time of records.
#[derive(Clone, Copy, Default)]
pub struct Times {
    /// The last look of which not all has been handed out.
    mark: Mark,
    /// What is there came after this.
    oldest: u64,
}

impl Times {
    /// A look at a time, for what happened before `until`.
    pub fn look(self, until: u64, now: u64) -> Look {
        Look { times: self, until, now }
    }

    /// All that happened before `until` has been handed out.
    pub fn looked(&mut self, until: u64, mark: Mark) {
        if until > self.mark.after {
            (self.oldest, self.mark) = (self.mark.before, mark);
        }
    }
}

/// The same while the reader looks.
#[derive(Clone, Copy)]
pub struct Look {
    times: Times,
    until: u64,
    now: u64,
}

impl Look {
    /// What happened from then on is left for the next look.
    pub fn until(self) -> u64 {
        self.until
    }

    /// The time of the allocation at a position, which states one.
    pub fn allocated(self, position: u64, stated: u64) -> u64 {
        self.of(position < self.times.mark.begun, stated)
    }

    /// The same of an end.
    pub fn freed(self, position: u64, stated: u64) -> u64 {
        self.of(position < self.times.mark.ended, stated)
    }

    fn of(self, was_there: bool, stated: u64) -> u64 {
        let Times { mark, oldest } = self.times;
        match was_there {
            true => stated.clamp(oldest, mark.after.max(oldest)),
            // Nobody knows yet.
            false if stated > self.now => self.now,
            false => stated.max(mark.before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_time_of_the_looks_between_which_they_came() {
        let mut times = Times::default();
        let mark = |begun, before, after| Mark { begun, ended: begun, before, after };
        times.looked(50, mark(10, 100, 101));
        // The first ten came before 101, others after 100.
        let look = times.look(150, 200);
        assert_eq!((look.allocated(9, 70), look.freed(9, 5000)), (70, 101));
        assert_eq!((look.allocated(10, 70), look.freed(10, 130)), (100, 130));
        // One that is ahead is left until it is known when it came.
        assert_eq!(look.allocated(10, 5000), 200);
        times.looked(90, mark(15, 195, 196));
        assert_eq!(times.mark.begun, 10);
        times.looked(150, mark(20, 200, 201));
        let look = times.look(250, 300);
        assert_eq!((look.allocated(15, 5000), look.allocated(15, 3)), (201, 100));
    }
}
