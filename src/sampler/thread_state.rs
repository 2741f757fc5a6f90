//! The kernel's encodings of a thread's state.

use profile::ThreadState;

/// Bit of `task_struct.__state` (`include/linux/sched.h`).
pub const INTERRUPTIBLE: u64 = 1;
/// See [`INTERRUPTIBLE`].
pub const UNINTERRUPTIBLE: u64 = 2;
/// `TASK_NOLOAD`: with [`UNINTERRUPTIBLE`], an idle thread of the kernel (`TASK_IDLE`).
pub const NO_LOAD: u64 = 0x400;
/// `__TASK_STOPPED` and `__TASK_TRACED`.
pub const STOPPED: u64 = 4 | 8;

/// From `prev_state` of `sched:sched_switch`.
pub fn from_bits(bits: u64) -> ThreadState {
    /// Not a state: the thread was preempted.
    const PREEMPTED: u64 = 0x100;
    match bits {
        0 => ThreadState::Runnable,
        _ if bits & PREEMPTED != 0 => ThreadState::Runnable,
        _ if bits & STOPPED != 0 => ThreadState::Stopped,
        _ if bits & INTERRUPTIBLE != 0 => ThreadState::Sleeping,
        _ if bits & (UNINTERRUPTIBLE | NO_LOAD) == UNINTERRUPTIBLE => ThreadState::Uninterruptible,
        _ => ThreadState::Sleeping,
    }
}

/// From the letter in `/proc/PID/task/TID/stat`.
pub fn from_letter(letter: char) -> ThreadState {
    match letter {
        'R' => ThreadState::Runnable,
        'D' => ThreadState::Uninterruptible,
        'T' | 't' => ThreadState::Stopped,
        _ => ThreadState::Sleeping,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_letters_mean_the_same_states() {
        use ThreadState::{Runnable, Sleeping, Stopped, Uninterruptible};
        for (bits, letter, state) in
            [(0, 'R', Runnable), (1, 'S', Sleeping), (2, 'D', Uninterruptible), (4, 'T', Stopped)]
        {
            assert_eq!(from_bits(bits), state);
            assert_eq!(from_letter(letter), state);
        }
        // Preempted while it was about to sleep.
        assert_eq!(from_bits(0x101), Runnable);
    }

    #[test]
    fn idle_threads_of_the_kernel_sleep() {
        // As the kernel has it, and as `sched:sched_switch` does.
        for bits in [0x402, 0x80] {
            assert_eq!(from_bits(bits), ThreadState::Sleeping);
        }
        assert_eq!(from_letter('I'), ThreadState::Sleeping);
    }
}
