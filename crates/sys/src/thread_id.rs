//! The identity of a thread.

/// A thread and its process, by their numbers in prof's PID namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId {
    /// The process; -1 in samples of a thread that is just ending.
    pub pid: i32,
    /// The thread; 0 is the idle thread of a CPU.
    pub tid: i32,
}

impl ThreadId {
    /// The first thread of a process.
    pub fn main_thread(pid: i32) -> ThreadId {
        ThreadId { pid, tid: pid }
    }
}
