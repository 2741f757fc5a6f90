//! The samples of a view in parts, each for a thread.

use std::ops::Range;
use std::thread;

use super::View;

/// Samples of a part, at least: a thread costs as much time as some thousand.
const SAMPLES: usize = if cfg!(test) { 3 } else { 1 << 15 };

/// Parts at most: each needs memory for its sums.
const PARTS: usize = 4;

/// Passes the samples' numbers to `work` in parts of equal size, by as many threads as there are
/// CPUs, and returns the results in the order of the samples.
pub(super) fn by_parts<T: Send>(view: &View, work: impl Fn(Range<usize>) -> T + Sync) -> Vec<T> {
    let samples = view.profile.samples.len();
    let most = (samples / SAMPLES).clamp(1, PARTS);
    let parts = if most > 1 { cpus().min(most) } else { 1 };
    let bound = |part: usize| samples * part / parts;
    let part = |part: usize| work(bound(part)..bound(part + 1));
    let part = &part;
    thread::scope(|scope| {
        let others: Vec<_> = (1..parts)
            .map(|number| thread::Builder::new().spawn_scoped(scope, move || part(number)))
            .collect();
        let mut results = vec![part(0)];
        for (number, thread) in (1..).zip(others) {
            // Without a thread, its part is added up here.
            let result = thread.map_or_else(|_| part(number), joined);
            results.push(result);
        }
        results
    })
}

/// The result of a thread; a panic goes on in this one.
fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
