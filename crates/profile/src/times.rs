//! Times of samples.

/// Index of a list of times in a [`TimeTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct TimesId(pub u32);

impl TimesId {
    /// The empty list, always the first of a table: times are not known.
    pub const NONE: TimesId = TimesId(0);
}

/// Lists of times, in microseconds since [`Profile::time_nanos`](super::Profile::time_nanos), each
/// in ascending order.
///
/// A row of a profile with N times represents N samples of equal values; its own values are their
/// sums.
#[derive(Clone, Debug)]
pub struct TimeTable {
    times: Vec<u64>,
    /// End of each list in `times`.
    ends: Vec<u32>,
}

impl Default for TimeTable {
    fn default() -> Self {
        TimeTable { times: Vec::new(), ends: vec![0] }
    }
}

impl TimeTable {
    /// Adds a list, sorted. An empty one is [`TimesId::NONE`], and so is one beyond 2³² times or
    /// lists.
    pub fn push(&mut self, times: impl Iterator<Item = u64>) -> TimesId {
        let start = self.times.len();
        self.times.extend(times);
        let (Ok(end), Ok(id)) = (u32::try_from(self.times.len()), u32::try_from(self.ends.len()))
        else {
            self.times.truncate(start);
            return TimesId::NONE;
        };
        if start == self.times.len() {
            return TimesId::NONE;
        }
        let list = &mut self.times[start..];
        if !list.is_sorted() {
            list.sort_unstable();
        }
        self.ends.push(end);
        TimesId(id)
    }

    /// The times of a list.
    pub fn get(&self, id: TimesId) -> &[u64] {
        let at = id.0 as usize;
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.times[start..self.ends[at] as usize]
    }

    /// True if no time is known.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Number of times in all lists.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Number of lists that are not empty.
    pub fn lists(&self) -> usize {
        self.ends.len() - 1
    }

    /// Memory of the table in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(self.times.as_slice()) + size_of_val(self.ends.as_slice())
    }

    /// The first and the last time of all lists.
    pub fn bounds(&self) -> Option<(u64, u64)> {
        let lists = (1..self.ends.len()).map(|i| self.get(TimesId(i as u32)));
        let bounds = lists.filter_map(|list| Some((*list.first()?, *list.last()?)));
        bounds.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }
}

/// The value of the first `part` of `count` samples of equal values, whose sum is `value`. Parts of
/// a partition add up to the whole.
pub fn share_of_times(value: i64, part: usize, count: usize) -> i64 {
    if part >= count {
        return value;
    }
    // At most |value|, so it fits.
    (i128::from(value) * part as i128).div_euclid(count as i128) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_and_the_first_is_empty() {
        let mut t = TimeTable::default();
        assert!(t.is_empty() && t.get(TimesId::NONE).is_empty());
        assert_eq!((t.push([].into_iter()), t.bounds()), (TimesId::NONE, None));
        let a = t.push([5, 3, 9].into_iter());
        let b = t.push([1].into_iter());
        assert_eq!((t.get(a), t.get(b), t.len()), (&[3, 5, 9][..], &[1][..], 4));
        assert_eq!(t.bounds(), Some((1, 9)));
    }

    #[test]
    fn shares_add_up_to_the_value() {
        for value in [0, 7, -7, 1, -1, i64::MAX, i64::MIN] {
            for count in [1, 2, 3, 10] {
                let parts = (0..count)
                    .map(|i| share_of_times(value, i + 1, count) - share_of_times(value, i, count));
                assert_eq!(parts.map(i128::from).sum::<i128>(), i128::from(value));
            }
        }
        assert_eq!([0, 1, 2, 3].map(|i| share_of_times(10, i, 3)), [0, 3, 6, 10]);
    }
}
