//! Code made at run time: the files that describe it, and the times at which it was sampled.
//!
//! Memory of such code is reused for other code. So prof keeps the time of the first and the last
//! sample at each address, and the time at which each part of a perf map was there; jitdump files
//! contain times themselves. A location represents one piece of code until the files show other
//! code at its address: then an *epoch* of the process ends, and its locations with it.

pub mod file_names;
mod files;
pub mod jitdump;
pub mod perf_map;

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use files::{Changes, DumpMapping, MAX_OF_ALL, PerfMapFile, open_dump, open_perf_map};
pub use files::{Clock, FileReader, SizeMark, Sources, is_as_recorded};

use super::maps::MapsLine;
use crate::record::Mmap;
use file_names::number_of_dump;

/// Most epochs of one process; with more, a location may represent several pieces of code, and such
/// locations are not named.
const MAX_EPOCHS: usize = 256;

/// Most epochs that begin because of code that has not been sampled yet.
const MAX_UNSAMPLED: usize = 128;

/// Most pieces of code of a process whose addresses are kept before they are sampled.
const MAX_FRESH: usize = 1024;

/// Most addresses whose times are kept.
const MAX_SPANS: usize = 7 << 14;

/// Most processes with JIT code that are tracked, each with two open files at most; code of others
/// has no names.
const MAX_PROGRAMS: usize = 2048;

/// Times of the first and the last sample at an address, in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First.
    pub first: u64,
    /// Last.
    pub last: u64,
}

impl Span {
    /// Unknown times: possibly any.
    pub const UNKNOWN: Span = Span { first: 0, last: u64::MAX };
    /// A time after everything in the files.
    pub const END: Span = Span { first: u64::MAX, last: u64::MAX };
}

/// The addresses of one epoch of a process, and the files that name them.
#[derive(Debug)]
pub struct Epoch {
    /// The files.
    pub sources: Arc<Sources>,
    /// Span of each address; a missing one is [`Span::UNKNOWN`].
    pub spans: FxHashMap<u64, Span>,
}

/// A program that makes code at run time: a process between two `execve`.
struct JitProgram {
    pid: i32,
    sources: Sources,
    /// Start time and number of each of its epochs.
    epochs: Vec<(u64, u32)>,
    /// It was sampled since the last search for a perf map.
    sampled: bool,
    fresh: Fresh,
}

/// New code that may not have been sampled yet: start, end, and latest time of its creation.
type Fresh = BTreeMap<u64, (u64, u64)>;

impl JitProgram {
    fn find_map(&mut self, clock: Clock) {
        match open_perf_map(self.pid, clock) {
            PerfMapFile::Map(map) => self.sources.set_map(map),
            PerfMapFile::Refused => self.sources.refused = true,
            PerfMapFile::Nothing => {}
        }
    }

    fn epoch_at(&self, time: u64) -> u32 {
        let i = self.epochs.partition_point(|&(from, _)| from <= time);
        self.epochs[i.max(1) - 1].1
    }
}

/// All code made at run time in a recording.
#[derive(Default)]
pub struct Jit {
    programs: Vec<JitProgram>,
    by_pid: FxHashMap<i32, u32>,
    /// Programs of parents; their children have inherited the code.
    inherited: FxHashMap<i32, u32>,
    /// Program and spans of each epoch.
    epochs: Vec<(u32, FxHashMap<u64, Span>)>,
    spans: usize,
    clock: Clock,
}

impl Jit {
    /// True if no process has code made at run time so far.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty()
    }

    /// True if this mapping announces a jitdump.
    pub fn is_announced_by(&self, mmap: &Mmap<'_>) -> bool {
        number_of_dump(mmap.path).is_some()
    }

    /// True if the program of a sample for [`Jit::sampled`] is known.
    pub fn knows(&self, pid: i32, maker: i32) -> bool {
        let inherited = pid != maker && self.inherited.contains_key(&pid);
        inherited || self.by_pid.contains_key(&maker) || self.programs.len() >= MAX_PROGRAMS
    }

    /// A process has mapped a file: perhaps its jitdump, which compilers map to announce it.
    pub fn mapped(&mut self, mmap: &Mmap<'_>) {
        if number_of_dump(mmap.path).is_some() {
            let path = String::from_utf8_lossy(mmap.path);
            let end = mmap.start.saturating_add(mmap.len);
            let Mmap { pid, start, file: id, .. } = *mmap;
            self.dump(&DumpMapping { pid, start, end, path: &path, id });
        }
    }

    /// The same for a mapping that existed before the recording.
    pub fn found(&mut self, pid: i32, line: &MapsLine<'_>) {
        if number_of_dump(line.path.as_bytes()).is_some() {
            let MapsLine { start, end, path, file: id, .. } = *line;
            self.dump(&DumpMapping { pid, start, end, path, id });
        }
    }

    fn dump(&mut self, dump: &DumpMapping<'_>) {
        if let Some(file) = open_dump(dump)
            && let Some(program) = self.program(dump.pid)
        {
            self.programs[program as usize].sources.set_dump(file, dump.path);
            // The next sample may come much later.
            self.read_changes_of(program, &mut MAX_OF_ALL.clone());
        }
    }

    /// A process or another program in it has started: the state of this PID is dropped.
    pub fn forget(&mut self, pid: i32) {
        self.by_pid.remove(&pid);
        self.inherited.remove(&pid);
    }

    /// A process was forked: it inherits the code of its parent.
    pub fn forked(&mut self, pid: i32, parent: i32) {
        self.forget(pid);
        let program = self.by_pid.get(&parent).or_else(|| self.inherited.get(&parent));
        if let Some(&program) = program {
            self.inherited.insert(pid, program);
        }
    }

    /// Records a sample of process `pid` in code that process `maker` created: the same, or an
    /// ancestor. Returns the epoch.
    pub fn sampled(&mut self, pid: i32, maker: i32, address: u64, time: u64) -> u32 {
        let inherited = self.inherited.get(&pid).copied().filter(|_| pid != maker);
        let Some(program) = inherited.or_else(|| self.program(maker)) else { return u32::MAX };
        let program = &mut self.programs[program as usize];
        program.sampled = true;
        let epoch = program.epoch_at(time);
        if program.sources.is_empty() {
            return epoch;
        }
        let spans = &mut self.epochs[epoch as usize].1;
        if let Some(span) = spans.get_mut(&address) {
            span.last = time;
        } else if self.spans < MAX_SPANS {
            self.spans += 1;
            spans.insert(address, Span { first: time, last: time });
        }
        epoch
    }

    fn program(&mut self, pid: i32) -> Option<u32> {
        if let Some(&program) = self.by_pid.get(&pid) {
            return Some(program);
        }
        if self.programs.len() >= MAX_PROGRAMS {
            return None;
        }
        let program = self.programs.len() as u32;
        let epoch = self.epochs.len() as u32;
        let mut new = JitProgram {
            pid,
            sources: Sources::default(),
            epochs: vec![(0, epoch)],
            sampled: false,
            fresh: Fresh::new(),
        };
        new.find_map(self.clock);
        self.programs.push(new);
        self.epochs.push((program, FxHashMap::default()));
        self.by_pid.insert(pid, program);
        self.read_changes_of(program, &mut MAX_OF_ALL.clone());
        Some(program)
    }

    /// Reads a bounded part of the additions to the files. Samples may be added only if they are
    /// older than the last call: code that the files do not describe yet would be taken for the code
    /// that it has replaced.
    pub fn read_changes(&mut self) {
        let mut left = MAX_OF_ALL;
        for index in 0..self.programs.len() as u32 {
            let program = &mut self.programs[index as usize];
            if std::mem::take(&mut program.sampled) && program.sources.map.is_none() {
                program.find_map(self.clock);
            }
            self.read_changes_of(index, &mut left);
        }
    }

    fn read_changes_of(&mut self, index: u32, left: &mut u64) {
        let program = &mut self.programs[index as usize];
        let last = program.epochs[program.epochs.len() - 1].1;
        let spans = &self.epochs[last as usize].1;
        if spans.is_empty() && program.sources.is_empty() {
            return;
        }
        let found = program.sources.read_changes(self.clock, left);
        let fresh = (program.epochs.len() < MAX_UNSAMPLED).then_some(&mut program.fresh);
        for from in replacement_times(spans, fresh, found) {
            let newer = program.epochs.last().is_none_or(|last| last.0 < from);
            if newer && program.epochs.len() < MAX_EPOCHS {
                program.epochs.push((from, self.epochs.len() as u32));
                self.epochs.push((index, FxHashMap::default()));
            }
        }
    }

    /// The file that names the code of an epoch, if there is one so far.
    pub fn file_of(&self, epoch: u32) -> Option<String> {
        let (program, _) = self.epochs.get(epoch as usize)?;
        let JitProgram { pid, sources, .. } = &self.programs[*program as usize];
        match (&sources.dump, &sources.map) {
            (Some(_), _) => Some(sources.dump_path.clone()),
            (None, Some(_)) => Some(format!("/tmp/perf-{pid}.map")),
            (None, None) => None,
        }
    }

    /// Ends the recording: searches once more for perf maps, which some programs write late.
    /// Returns the epochs, by number.
    pub fn finish(mut self) -> Vec<Arc<Epoch>> {
        let mut left = MAX_OF_ALL;
        for program in &mut self.programs {
            if program.sources.map.is_none() {
                program.find_map(self.clock);
            }
            program.sources.read_changes(self.clock, &mut left);
        }
        let sources: Vec<Arc<Sources>> =
            self.programs.into_iter().map(|p| Arc::new(p.sources)).collect();
        let epoch = |(program, spans): (u32, _)| {
            Arc::new(Epoch { sources: sources[program as usize].clone(), spans })
        };
        self.epochs.into_iter().map(epoch).collect()
    }
}

/// A range of addresses whose code was created between two times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Made {
    start: u64,
    end: u64,
    after: u64,
    by: u64,
}

/// Times at which epochs begin, ascending: new code replaced older code that was sampled, or may
/// still be. Samples between `after` and `by` may belong to either.
fn replacement_times(
    spans: &FxHashMap<u64, Span>,
    mut fresh: Option<&mut Fresh>,
    found: Changes,
) -> Vec<u64> {
    let ranges = match found {
        Changes::Nothing => return Vec::new(),
        Changes::Unread { after, by } if !spans.is_empty() => return vec![after + 1, by],
        Changes::Unread { .. } => return Vec::new(),
        Changes::New(ranges) => ranges,
    };
    let mut sampled: Vec<(u64, u64)> = spans.iter().map(|(&a, s)| (a, s.first)).collect();
    sampled.sort_unstable();
    let mut times = Vec::new();
    let at_once = fresh.as_ref().and_then(|_| newest_from(&ranges));
    for made in ranges {
        if fresh.as_mut().is_some_and(|fresh| replaces_unsampled(fresh, made)) {
            // Samples before that belong to the older code.
            times.extend((made.after < made.by).then_some(made.after + 1));
            times.push(made.by);
        }
        let from = sampled.partition_point(|s| s.0 < made.start);
        let mut inside = sampled[from..].iter().take_while(|s| s.0 < made.end);
        let begun = times.last().is_some_and(|&last| last >= made.by);
        if !begun && inside.any(|s| s.1 <= made.after) {
            times.extend((made.after < made.by).then_some(made.after + 1));
            times.push(made.by);
        }
    }
    times.extend(at_once);
    times.sort_unstable();
    times.dedup();
    times
}

/// Time after which all code in a map is the newest, if code at the same address was replaced
/// between two reads: later samples are unambiguous.
fn newest_from(ranges: &[Made]) -> Option<u64> {
    let mut from_map: Vec<&Made> = ranges.iter().filter(|made| made.after < made.by).collect();
    from_map.sort_unstable_by_key(|made| made.start);
    let mut end = 0;
    from_map.into_iter().find_map(|made| {
        let overlaps = made.start < end;
        end = end.max(made.end);
        overlaps.then_some(made.by)
    })
}

/// True if code replaced other code without known samples at a known time: samples of both may
/// follow.
fn replaces_unsampled(fresh: &mut Fresh, made: Made) -> bool {
    let below = fresh.range(..made.end).next_back().filter(|(_, old)| old.0 > made.start);
    let old = below.map(|(&start, &(_, by))| (start, by));
    if let Some((start, _)) = old {
        fresh.remove(&start);
    }
    if fresh.len() >= MAX_FRESH {
        fresh.clear();
    }
    fresh.insert(made.start, (made.end, made.by));
    // Entries of one read of a map have the same range of times.
    old.is_some_and(|(_, by)| by <= made.after || by < made.by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_code_at_older_samples_ends_an_epoch() {
        let spans = [(0x1000, 5), (0x2000, 50)];
        let spans = spans.map(|(a, first)| (a, Span { first, last: first })).into_iter().collect();
        let made = |start, end, after, by| Made { start, end, after, by };
        let times_of =
            |ranges: &[Made]| replacement_times(&spans, None, Changes::New(ranges.to_vec()));
        assert!(times_of(&[made(0x1001, 0x2000, 10, 12)]).is_empty());
        let other = made(0x3000, 0x4000, 10, 12);
        assert_eq!(times_of(&[other, made(0x1000, 0x1001, 10, 12)]), [11, 12]);
        // Exact times.
        assert_eq!(
            times_of(&[made(0x1000, 0x1001, 10, 10), made(0x1000, 0x1001, 20, 20)]),
            [10, 20]
        );
        // The sample at 0x2000 was taken after that: it may belong to the new code.
        assert!(times_of(&[made(0x2000, 0x2010, 10, 60)]).is_empty());
        assert_eq!(replacement_times(&spans, None, Changes::Unread { after: 7, by: 9 }), [8, 9]);
        let none = FxHashMap::default();
        assert!(
            replacement_times(&none, None, Changes::New(vec![made(0, u64::MAX, 10, 12)]))
                .is_empty()
        );
        assert!(replacement_times(&none, None, Changes::Unread { after: 7, by: 9 }).is_empty());
    }

    #[test]
    fn code_in_the_place_of_code_that_was_not_sampled_yet_ends_an_epoch() {
        let none = FxHashMap::default();
        let mut fresh = Fresh::new();
        let mut times_of = |start, end, after, by| {
            let found = Changes::New(vec![Made { start, end, after, by }]);
            replacement_times(&none, Some(&mut fresh), found)
        };
        assert!(times_of(0x5000, 0x5010, 10, 10).is_empty());
        assert!(times_of(0x5010, 0x5020, 15, 15).is_empty());
        assert_eq!(times_of(0x5008, 0x5010, 20, 20), [20]);
        assert_eq!(times_of(0x5000, 0x5020, 30, 30), [30]);
        // A map shows no time for each entry, only a time by which all existed.
        let none = FxHashMap::default();
        let mut empty = Fresh::new();
        let both = |end| {
            [(0x7000, 0x7010), (0x7008, end)]
                .map(|(start, end)| Made { start, end, after: 10, by: 12 })
                .to_vec()
        };
        assert_eq!(replacement_times(&none, Some(&mut empty), Changes::New(both(0x7018))), [12]);
        let apart = vec![both(0x7018)[0], Made { start: 0x7010, ..both(0x7018)[1] }];
        assert!(replacement_times(&none, Some(&mut Fresh::new()), Changes::New(apart)).is_empty());
        // A map shows no order of its entries, only those that a later read has added.
        assert!(times_of(0x6000, 0x6010, 10, 12).is_empty());
        assert!(times_of(0x6000, 0x6010, 10, 12).is_empty());
        assert_eq!(times_of(0x6000, 0x6010, 20, 22), [21, 22]);
        // The file has grown while its size was read.
        assert_eq!(times_of(0x6000, 0x6010, 21, 30), [22, 30]);
    }

    #[test]
    fn a_child_keeps_what_its_parent_made_before_it_ran_another_program() {
        let parent = i32::MAX - 1;
        let child = i32::MAX;
        let mut jit = Jit::default();
        let first = jit.sampled(parent, parent, 0x1000, 1);
        jit.forked(child, parent);
        jit.forget(parent);
        let second = jit.sampled(parent, parent, 0x1000, 2);
        assert_ne!(first, second);
        assert_eq!(jit.sampled(child, parent, 0x1000, 3), first);
        assert_ne!(jit.sampled(child, child, 0x1000, 4), first);
        jit.forget(child);
        assert_eq!(jit.sampled(child, parent, 0x1000, 5), second);
        assert_eq!(jit.finish().len(), 3);
    }

    #[test]
    fn epochs_are_distinguished_by_time() {
        let program = JitProgram {
            pid: 1,
            sources: Sources::default(),
            epochs: vec![(0, 4), (10, 7), (20, 9)],
            sampled: false,
            fresh: Fresh::new(),
        };
        for (time, epoch) in [(0, 4), (9, 4), (10, 7), (19, 7), (20, 9), (u64::MAX, 9)] {
            assert_eq!(program.epoch_at(time), epoch, "{time}");
        }
    }
}
