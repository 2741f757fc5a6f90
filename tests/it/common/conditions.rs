//! Waits for conditions. No test sleeps to guess a state: `tests/architecture.rs` lists the sleeps
//! of the tests, all of which have another purpose.

use std::io::Write;
use std::time::{Duration, Instant};

/// Every condition holds within this time.
const LIMIT: Duration = Duration::from_secs(60);

/// The time between two evaluations of a condition.
const PAUSE: Duration = Duration::from_millis(5);

/// Evaluates a condition until it holds; `false`: it did not until then.
pub fn holds_before(end: Instant, mut condition: impl FnMut() -> bool) -> bool {
    while !condition() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}

/// Evaluates a condition until it holds, for a minute; `false`: it never held.
pub fn holds(condition: impl FnMut() -> bool) -> bool {
    holds_before(Instant::now() + LIMIT, condition)
}

/// Waits until a condition holds, a minute at most.
#[track_caller]
pub fn until(condition: impl FnMut() -> bool) {
    assert!(holds(condition), "the condition never held");
}

/// Waits until a file that is written has a later time than those written before: times of files
/// have the resolution of the kernel's tick.
pub fn until_file_times_advance() {
    let mut file = tempfile::tempfile().unwrap();
    let mut time = || {
        file.write_all(b".").unwrap();
        file.metadata().unwrap().modified().unwrap()
    };
    let before = time();
    until(|| time() > before);
}
