//! Keys of the labels that prof writes. Part of the file format (`docs/file-format.md`): a key
//! never changes its meaning.

/// Id of the process, a number.
pub const PID: &str = "pid";
/// Id of the thread, a number.
pub const TID: &str = "tid";
/// Name of the process.
pub const PROCESS: &str = "process";
/// Name of the thread.
pub const THREAD: &str = "thread";
/// Path of the cgroup.
pub const CGROUP: &str = "cgroup";
/// Name of the container.
pub const CONTAINER: &str = "container";
/// Id of the container.
pub const CONTAINER_ID: &str = "container_id";
/// State of the thread: the name of a [`ThreadState`](super::ThreadState).
pub const STATE: &str = "state";
/// Address of the lock.
pub const LOCK: &str = "lock";
/// Kind of the lock.
pub const KIND: &str = "kind";
/// Flags of a lock of the kernel.
pub const FLAGS: &str = "flags";
/// Name of the block device.
pub const DEVICE: &str = "device";
/// Direction of a request to a block device.
pub const RW: &str = "rw";
/// Name of the system call.
pub const SYSCALL: &str = "syscall";
/// Leak state of memory that was not freed.
pub const LEAK: &str = "leak";

/// Time of a sample, a number of microseconds since the start of the recording. Not in a set of
/// labels: see [`TimeTable`](super::TimeTable).
pub const TIMESTAMP: &str = "timestamp";
/// The unit of [`TIMESTAMP`].
pub const TIMESTAMP_UNIT: &str = "microseconds";

/// All keys of sets of labels.
pub const ALL: [&str; 15] = [
    PID,
    TID,
    PROCESS,
    THREAD,
    CGROUP,
    CONTAINER,
    CONTAINER_ID,
    STATE,
    LOCK,
    KIND,
    FLAGS,
    DEVICE,
    RW,
    SYSCALL,
    LEAK,
];

/// Value of [`KIND`] of an unclassified wait, until names decide.
pub const UNKNOWN_WAIT: &str = "unknown";
/// Value of [`KIND`] of a wait that looks like a contended mutex, until names decide.
pub const LIKELY_MUTEX: &str = "mutex?";
