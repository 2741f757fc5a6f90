//! What threads do.

/// What a thread does: the label `state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadState {
    /// It runs on a CPU.
    Running,
    /// It could run, and waits for a CPU.
    Runnable,
    /// It waits for something, and signals wake it.
    Sleeping,
    /// It waits for something that ends by itself soon, a disk mostly; signals do not wake it.
    Disk,
    /// It was stopped, by a signal or a debugger.
    Stopped,
}

impl ThreadState {
    /// How many states there are.
    pub const COUNT: usize = 5;

    /// As the label says it.
    pub fn name(self) -> &'static str {
        match self {
            ThreadState::Running => "running",
            ThreadState::Runnable => "runnable",
            ThreadState::Sleeping => "sleeping",
            ThreadState::Disk => "disk",
            ThreadState::Stopped => "stopped",
        }
    }

    /// From `prev_state` of `sched:sched_switch`: bits of `task_struct.__state`
    /// (`include/linux/sched.h`).
    pub(super) fn of_bits(bits: u64) -> ThreadState {
        const INTERRUPTIBLE: u64 = 1;
        const UNINTERRUPTIBLE: u64 = 2;
        const STOPPED: u64 = 4 | 8;
        /// Not a state to report, but that the thread was preempted.
        const PREEMPTED: u64 = 0x100;
        match bits {
            0 => ThreadState::Runnable,
            _ if bits & PREEMPTED != 0 => ThreadState::Runnable,
            _ if bits & STOPPED != 0 => ThreadState::Stopped,
            _ if bits & INTERRUPTIBLE != 0 => ThreadState::Sleeping,
            _ if bits & UNINTERRUPTIBLE != 0 => ThreadState::Disk,
            _ => ThreadState::Sleeping,
        }
    }

    /// From the letter in `/proc/PID/task/TID/stat`.
    pub fn of_letter(letter: char) -> ThreadState {
        match letter {
            'R' => ThreadState::Runnable,
            'D' => ThreadState::Disk,
            'T' | 't' => ThreadState::Stopped,
            _ => ThreadState::Sleeping,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_told_by_bits_and_letters() {
        use ThreadState::{Disk, Runnable, Sleeping, Stopped};
        for (bits, letter, state) in
            [(0, 'R', Runnable), (1, 'S', Sleeping), (2, 'D', Disk), (4, 'T', Stopped)]
        {
            assert_eq!(ThreadState::of_bits(bits), state);
            assert_eq!(ThreadState::of_letter(letter), state);
        }
        // Preempted while it was about to sleep; an idle kernel thread.
        assert_eq!(ThreadState::of_bits(0x101), Runnable);
        assert_eq!(ThreadState::of_bits(0x402), Disk);
    }
}
