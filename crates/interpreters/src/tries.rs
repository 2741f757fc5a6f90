//! Checks of structures that a running process changes in the middle of the reading.

use std::time::Duration;

use crate::Refusal;
use crate::memory::ReadError;

/// Pause between two tries. A thread that waits for a CPU in the middle of a call is there for some
/// milliseconds.
const PAUSE: Duration = Duration::from_millis(1);

/// The result of a check with at most `tries`: it is repeated while structures are not as expected, and
/// in the first `idle` tries while no code runs.
///
/// # Errors
///
/// What is not as expected in the last try, or in the last one before the budget was used up.
pub fn repeated(
    tries: usize,
    idle: usize,
    mut check: impl FnMut() -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut result = Err(Refusal::NotRunning);
    for number in 0..tries {
        if number > 0 {
            std::thread::sleep(PAUSE);
        }
        let last = std::mem::replace(&mut result, check());
        if result == Err(Refusal::Memory(ReadError::Budget)) && last != Err(Refusal::NotRunning) {
            result = last;
            break;
        }
        match result {
            Err(Refusal::Layout(_) | Refusal::Memory(ReadError::Unmapped)) => {}
            Err(Refusal::NotRunning) if number < idle => {}
            _ => break,
        }
    }
    match result {
        Err(Refusal::Memory(ReadError::Unmapped)) => {
            Err(Refusal::Layout("a pointer leads to memory that is not mapped"))
        }
        result => result,
    }
}
