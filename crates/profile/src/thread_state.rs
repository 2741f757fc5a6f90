//! States of threads.

/// State of a thread: the values of the label [`label::STATE`](super::label::STATE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ThreadState {
    /// On a CPU.
    Running,
    /// Able to run, waiting for a CPU.
    Runnable,
    /// Waiting interruptibly: signals wake it.
    Sleeping,
    /// Waiting uninterruptibly, mostly for a disk: hence its name in files, `disk`.
    Uninterruptible,
    /// Stopped by a signal or a debugger.
    Stopped,
}

impl ThreadState {
    /// All states, in display order. The index of each is its number.
    pub const ALL: [ThreadState; 5] = [
        ThreadState::Running,
        ThreadState::Runnable,
        ThreadState::Sleeping,
        ThreadState::Uninterruptible,
        ThreadState::Stopped,
    ];

    /// Value of the label. Part of the file format: it never changes.
    pub fn name(self) -> &'static str {
        match self {
            ThreadState::Running => "running",
            ThreadState::Runnable => "runnable",
            ThreadState::Sleeping => "sleeping",
            ThreadState::Uninterruptible => "disk",
            ThreadState::Stopped => "stopped",
        }
    }

    /// The state with this name.
    pub fn from_name(name: &str) -> Option<ThreadState> {
        ThreadState::ALL.into_iter().find(|state| state.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_numbers_are_indexes() {
        for (number, state) in ThreadState::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, number);
            assert_eq!(ThreadState::from_name(state.name()), Some(state));
        }
        assert_eq!(ThreadState::from_name("dead"), None);
    }
}
