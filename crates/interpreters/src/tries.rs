//! Checks of structures that a running process changes in the middle of the reading, repeated.

use std::time::Duration;

use crate::Refusal;
use crate::candidate::without_pointers;
use crate::memory::ReadError;

/// Tries for a process that runs.
pub const TRIES: usize = 64;

/// Tries after which a process runs no code.
const IDLE: usize = 4;

/// Pause between two tries. A thread that waits for a CPU in the middle of a call is there for some
/// milliseconds.
const PAUSE: Duration = Duration::from_millis(1);

/// The result of a check with at most `tries`: it is repeated while structures are not as expected, and
/// in the first tries while no code runs.
///
/// # Errors
///
/// What is not as expected in the last try, or in the last one before the budget was used up.
pub fn repeated<T>(
    tries: usize,
    mut check: impl FnMut() -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let mut last = Refusal::NotRunning;
    for number in 0..tries {
        if number > 0 {
            std::thread::sleep(PAUSE);
        }
        match check().map_err(without_pointers) {
            Err(Refusal::Memory(ReadError::Budget)) if last != Refusal::NotRunning => break,
            Err(refusal @ Refusal::Layout(_)) => last = refusal,
            Err(Refusal::NotRunning) if number < IDLE => last = Refusal::NotRunning,
            result => return result,
        }
    }
    Err(last)
}
