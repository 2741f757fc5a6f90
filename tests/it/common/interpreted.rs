//! Functions of interpreted programs in the stacks of a profile.

use std::collections::BTreeSet;

use super::Pprof;
use super::pprof::Sample;

/// A function's frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame<'p> {
    /// Its name, with that of its class and of enclosing functions where the language has it.
    pub function: &'p str,
    /// Its source file.
    pub file: &'p str,
    /// The line that it executes.
    pub line: i64,
}

fn is_in(p: &Pprof, location: u64, mapping: &str) -> bool {
    p.mapping_of.get(&location).is_some_and(|&number| p.mappings[number].file == mapping)
}

/// The locations that have called the frames of a language's mapping and are in another one.
pub fn outside(p: &Pprof, sample: &Sample, mapping: &str) -> BTreeSet<u64> {
    let pairs = sample.locations.windows(2);
    let calls = |pair: &&[u64]| is_in(p, pair[0], mapping) && !is_in(p, pair[1], mapping);
    pairs.filter(calls).map(|pair| pair[1]).collect()
}

/// The frames of a sample that are in a language's mapping, the innermost first.
pub fn frames<'p>(p: &'p Pprof, sample: &Sample, mapping: &str) -> Vec<Frame<'p>> {
    let own = sample.locations.iter().filter(|location| is_in(p, **location, mapping));
    let frames = |location: &u64| {
        let lines = p.lines[location].iter().zip(&p.all_sources[location]);
        lines.map(|(function, (file, line))| Frame { function, file, line: *line })
    };
    own.flat_map(frames).collect()
}

/// The last part of a qualified name.
pub fn plain(function: &str) -> &str {
    function.rsplit(['.', '#', ':']).next().unwrap()
}

/// The samples of a process, one for each time, in the order of time.
pub fn in_order<'p>(p: &'p Pprof, pid: &str) -> Vec<&'p Sample> {
    let own = p.samples.iter().filter(|sample| sample.labels["pid"] == pid);
    let times = |sample: &'p Sample| sample.times.iter().map(move |time| (*time, sample));
    let mut timed: Vec<(u64, &Sample)> = own.flat_map(times).collect();
    timed.sort_by_key(|(time, _)| *time);
    timed.into_iter().map(|(_, sample)| sample).collect()
}
