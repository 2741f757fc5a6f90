//! The times of samples while they are recorded: a log of row, time and values, in a file from some
//! size on.
//!
//! Rows are aggregated as without times. At the end, [`TimeLog::distribute`] divides each of them
//! into rows of samples with equal values, with their times.

use std::collections::VecDeque;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};

use hashbrown::HashTable;
use rustc_hash::FxHasher;

use super::builder::{Builder, Column};
use super::spill::OpenSpill;
use super::tables::StackRow;
use super::{Profile, SampleRow, StackId, TimesId};

/// Bytes that are kept in memory if there is a file.
const BUFFER: usize = 1 << 18;

/// In place of a row: the rows before it were moved to a file, and others follow.
const PART_ENDS: u64 = u32::MAX as u64;

/// The times that a [`Builder`] keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimits {
    /// Start of the recording; the unit and clock are those of [`Builder::set_time`].
    pub start: u64,
    /// Most samples whose time is kept. The others are aggregated without a time, and counted.
    pub max_samples: u64,
}

/// The times of samples, in the order in which they were added.
pub struct TimeLog {
    limits: TimeLimits,
    /// Time of the samples that are added now; `None`: they have none.
    now: Option<u64>,
    /// Time of the last entry.
    last: u64,
    kept: u64,
    beyond: u64,
    /// Entries that are not in the file.
    buffer: Vec<u8>,
    open: Option<OpenSpill>,
    file: Option<File>,
    /// Bytes in the file.
    length: u64,
    /// The rows after [`Builder::settle`] of each part's rows.
    parts: Vec<Vec<u32>>,
    /// The values of all rows before they were scaled.
    unscaled: Option<Vec<i64>>,
    /// The parts of the buffer, if the oldest may be dropped.
    in_buffer: VecDeque<PartStart>,
}

/// The start of a part of the log.
#[derive(Clone, Copy, Default)]
struct PartStart {
    /// Its place in the buffer.
    at: usize,
    /// Time of the last entry before it.
    last: u64,
    /// The number of samples whose time was kept before it.
    kept: u64,
}

/// A sample of the log.
struct Entry {
    row: u32,
    /// In microseconds since the start.
    time: u64,
    /// Its value in [`Column::SAMPLES`].
    samples: i64,
}

/// A sample of one row: number of its values in the table of values, and its time as two halves.
/// Sorts by values, then by time, in 12 bytes.
type Taken = [u32; 3];

/// The samples of all rows.
struct Samples {
    /// End of each row's samples in `taken`.
    ends: Vec<usize>,
    taken: Vec<Taken>,
    sets: ValueSets,
}

fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)) as u64
}

fn unzigzag(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}

impl TimeLog {
    fn new(limits: TimeLimits, open: Option<OpenSpill>) -> TimeLog {
        TimeLog {
            limits,
            now: None,
            last: 0,
            kept: 0,
            beyond: 0,
            buffer: Vec::new(),
            open,
            file: None,
            length: 0,
            parts: Vec::new(),
            unscaled: None,
            in_buffer: VecDeque::new(),
        }
    }

    /// The parts stay in memory, and [`TimeLog::drop_part`] drops the oldest.
    pub fn keep_parts(&mut self) {
        self.open = None;
        self.in_buffer.push_back(PartStart::default());
    }

    /// Adds a sample of a row.
    pub fn add(&mut self, row: usize, samples: u32, values: &[(Column, i64)]) {
        let Some(now) = self.now else { return };
        if self.kept >= self.limits.max_samples {
            self.beyond += 1;
            return;
        }
        self.kept += 1;
        put(&mut self.buffer, row as u64);
        put(&mut self.buffer, zigzag(now.wrapping_sub(self.last) as i64));
        self.last = now;
        put(&mut self.buffer, u64::from(samples));
        put(&mut self.buffer, values.len() as u64);
        for &(column, value) in values {
            put(&mut self.buffer, column.0 as u64);
            put(&mut self.buffer, zigzag(value));
        }
        if self.buffer.len() >= BUFFER {
            self.flush();
        }
    }

    /// The rows so far were moved to a file.
    pub fn end_part(&mut self) {
        put(&mut self.buffer, PART_ENDS);
        if !self.in_buffer.is_empty() {
            let TimeLog { last, kept, .. } = *self;
            self.in_buffer.push_back(PartStart { at: self.buffer.len(), last, kept });
        }
    }

    /// Drops the times of the oldest part that has ended, with its rows.
    pub fn drop_part(&mut self) {
        let oldest = self.in_buffer.pop_front();
        let (Some(oldest), Some(next)) = (oldest, self.in_buffer.front().copied()) else { return };
        let dropped = next.at - oldest.at;
        self.buffer.drain(..dropped);
        self.kept -= next.kept - oldest.kept;
        self.in_buffer.iter_mut().for_each(|part| {
            part.at -= dropped;
            part.kept -= next.kept - oldest.kept;
        });
    }

    /// Size in memory.
    pub fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The profile begins at this time.
    pub fn set_start(&mut self, start: u64) {
        self.limits.start = start;
    }

    /// The rows of the next part are `rows` from now on.
    pub fn place_part(&mut self, rows: Vec<u32>) {
        self.parts.push(rows);
    }

    /// Keeps the values of all rows as they were before the first scaling.
    pub fn before_scaling(&mut self, values: &[i64]) {
        self.unscaled.get_or_insert_with(|| values.to_vec());
    }

    /// Moves the buffer to the file; without one, the log stays in memory.
    fn flush(&mut self) {
        let Some(open) = self.open else { return };
        let file = match (&mut self.file, open) {
            (Some(file), _) => file,
            (none, open) => match open() {
                Ok(file) => none.insert(file),
                Err(_) => return self.open = None,
            },
        };
        let end = SeekFrom::Start(self.length);
        match file.seek(end).and_then(|_| file.write_all(&self.buffer)) {
            Ok(()) => {
                self.length += self.buffer.len() as u64;
                self.buffer.clear();
            }
            Err(_) => self.open = None,
        }
    }

    /// Drops all times, because the rows of some are missing.
    pub fn give_up(&mut self) {
        self.beyond += std::mem::take(&mut self.kept);
        self.limits.max_samples = 0;
        self.length = 0;
        self.buffer.clear();
    }

    /// Passes every sample with its values to `each`.
    fn read(&mut self, mut each: impl FnMut(Entry, &[(Column, i64)])) -> io::Result<()> {
        let start = self.limits.start;
        let parts = &self.parts;
        let in_file: Box<dyn Read + '_> = match &mut self.file {
            Some(file) => {
                file.seek(SeekFrom::Start(0))?;
                Box::new(file.take(self.length))
            }
            None => Box::new(io::empty()),
        };
        let mut from = Varints(BufReader::with_capacity(1 << 16, in_file.chain(&self.buffer[..])));
        let mut part = 0;
        let mut time = self.in_buffer.front().map_or(0, |oldest| oldest.last);
        let mut values = Vec::new();
        while let Some(row) = from.next()? {
            if row == PART_ENDS {
                part += 1;
                continue;
            }
            time = time.wrapping_add(unzigzag(from.must()?) as u64);
            let samples = from.must()? as i64;
            values.clear();
            for _ in 0..from.must()? {
                let column = Column(from.must()? as usize);
                values.push((column, unzigzag(from.must()?)));
            }
            let row = match parts.get(part) {
                Some(rows) => rows.get(row as usize).copied(),
                None => Some(row as u32).filter(|_| parts.is_empty()),
            };
            if let Some(row) = row {
                each(Entry { row, time: time.saturating_sub(start) / 1000, samples }, &values);
            }
        }
        Ok(())
    }

    /// All samples, by row.
    fn samples(&mut self, rows: usize, width: usize) -> io::Result<Samples> {
        let mut ends = vec![0usize; rows];
        self.read(|entry, _| {
            if let Some(count) = ends.get_mut(entry.row as usize) {
                *count += 1;
            }
        })?;
        let mut all = 0;
        let starts = ends.iter_mut().map(|end| {
            all += *end;
            all - std::mem::replace(end, all)
        });
        let mut next: Vec<usize> = starts.collect();
        let mut samples = Samples { ends, taken: vec![[0; 3]; all], sets: ValueSets::new(width) };
        self.read(|Entry { row, time, samples: count }, values| {
            if let Some(at) = next.get_mut(row as usize) {
                let set = samples.sets.intern(count, values);
                samples.taken[*at] = [set, (time >> 32) as u32, time as u32];
                *at += 1;
            }
        })?;
        Ok(samples)
    }

    /// Adds the samples of `rows`, whose values are `values`, to a profile: those with times by
    /// equal values, and what remains of each row without a time.
    pub fn distribute(
        mut self,
        profile: &mut Profile,
        rows: &[StackRow],
        values: Vec<i64>,
        stacks: &[StackId],
    ) {
        let width = profile.sample_types.len();
        let none = |_| Samples {
            ends: vec![0; rows.len()],
            taken: Vec::new(),
            sets: ValueSets::new(width),
        };
        let mut samples = self.samples(rows.len(), width).unwrap_or_else(none);
        let unscaled = self.unscaled.take();
        let unscaled = unscaled.as_ref().unwrap_or(&values);
        for (i, row) in rows.iter().enumerate() {
            let sample = SampleRow { stack: stacks[i], labels: row.labels, times: TimesId::NONE };
            let cells = i * width..(i + 1) * width;
            let start = if i == 0 { 0 } else { samples.ends[i - 1] };
            let taken = &mut samples.taken[start..samples.ends[i]];
            taken.sort_unstable();
            let mut scaled = Scaled::new(&unscaled[cells.clone()], &values[cells]);
            for equal in taken.chunk_by(|a, b| a[0] == b[0]) {
                let times =
                    equal.iter().map(|&[_, high, low]| u64::from(high) << 32 | u64::from(low));
                let times = profile.times.push(times);
                profile.samples.push(SampleRow { times, ..sample });
                profile.values.extend(scaled.next(samples.sets.get(equal[0][0]), equal.len()));
            }
            let rest = scaled.rest();
            if taken.is_empty() || rest.iter().any(|&v| v != 0) {
                profile.samples.push(sample);
                profile.values.extend(rest);
            }
        }
    }
}

/// Distributes the scaled values of a row in proportion to the unscaled values of its samples.
struct Scaled<'a> {
    unscaled: &'a [i64],
    scaled: &'a [i64],
    /// Unscaled values so far.
    passed: Vec<i128>,
    /// Scaled values so far.
    given: Vec<i64>,
}

impl<'a> Scaled<'a> {
    fn new(unscaled: &'a [i64], scaled: &'a [i64]) -> Scaled<'a> {
        let width = scaled.len();
        Scaled { unscaled, scaled, passed: vec![0; width], given: vec![0; width] }
    }

    /// The values of the next `count` samples of `values` each.
    fn next(&mut self, values: &[i64], count: usize) -> impl Iterator<Item = i64> + use<'_, 'a> {
        for (passed, &value) in self.passed.iter_mut().zip(values) {
            *passed += i128::from(value) * count as i128;
        }
        (0..self.scaled.len()).map(|i| {
            let whole = i128::from(self.unscaled[i]);
            let scaled = i128::from(self.scaled[i]);
            let so_far = match whole {
                _ if whole == scaled => self.passed[i],
                0 => 0,
                _ => (self.passed[i] * scaled).div_euclid(whole),
            };
            let so_far = so_far.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
            let value = so_far.wrapping_sub(self.given[i]);
            self.given[i] = so_far;
            value
        })
    }

    /// The values of samples without a time.
    fn rest(&self) -> Vec<i64> {
        self.scaled.iter().zip(&self.given).map(|(all, given)| all.wrapping_sub(*given)).collect()
    }
}

/// Distinct values of samples.
struct ValueSets {
    width: usize,
    values: Vec<i64>,
    index: HashTable<u32>,
    scratch: Vec<i64>,
}

impl ValueSets {
    fn new(width: usize) -> ValueSets {
        ValueSets { width, values: Vec::new(), index: HashTable::new(), scratch: Vec::new() }
    }

    fn intern(&mut self, samples: i64, values: &[(Column, i64)]) -> u32 {
        self.scratch.clear();
        self.scratch.resize(self.width, 0);
        self.scratch[Column::SAMPLES.0] = samples;
        for &(column, value) in values {
            if let Some(cell) = self.scratch.get_mut(column.0) {
                *cell += value;
            }
        }
        let ValueSets { width, values, index, scratch } = self;
        let set = |id: u32| id as usize * *width..(id as usize + 1) * *width;
        let h = hash(scratch);
        if let Some(&id) = index.find(h, |&id| values[set(id)] == **scratch) {
            return id;
        }
        let id = index.len() as u32;
        values.extend_from_slice(scratch);
        index.insert_unique(h, id, |&id| hash(&values[set(id)]));
        id
    }

    fn get(&self, id: u32) -> &[i64] {
        &self.values[id as usize * self.width..][..self.width]
    }
}

fn hash(values: &[i64]) -> u64 {
    let mut h = FxHasher::default();
    values.hash(&mut h);
    h.finish()
}

/// A reader of variable-length numbers.
struct Varints<R>(BufReader<R>);

impl<R: Read> Varints<R> {
    /// The next number; `None` at the end.
    fn next(&mut self) -> io::Result<Option<u64>> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let mut byte = [0];
            if self.0.read(&mut byte)? == 0 {
                return if shift == 0 {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
            value |= u64::from(byte[0] & 0x7f) << shift.min(63);
            if byte[0] < 0x80 {
                break;
            }
        }
        Ok(Some(value))
    }

    fn must(&mut self) -> io::Result<u64> {
        self.next()?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Builder {
    /// Keeps the times of samples from now on.
    pub fn keep_times(&mut self, limits: TimeLimits) {
        let open = self.spill.as_ref().map(|spill| spill.open);
        self.times = Some(TimeLog::new(limits, open));
    }

    /// Sets the time of the samples that follow, in nanoseconds; `None`: they have no time.
    pub fn set_time(&mut self, nanos: Option<u64>) {
        if let Some(times) = &mut self.times {
            times.now = nanos;
        }
        if let Some(slices) = &mut self.slices {
            slices.set_time(nanos);
        }
    }

    /// Number of samples whose time was not kept, because there were more than
    /// [`TimeLimits::max_samples`]; `None`: no times are kept.
    pub fn without_time(&self) -> Option<u64> {
        self.times.as_ref().map(|times| times.beyond)
    }
}

#[cfg(test)]
mod tests;
