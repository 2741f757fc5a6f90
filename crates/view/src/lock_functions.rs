//! Functions that wait for locks or for other things, and functions that release locks.
//!
//! The names are those of glibc and musl, of Rust's standard library and parking_lot, of C++'s
//! standard library and Abseil, of libgomp, GLib and oneTBB, and of the run times of Go, Java, node,
//! Mono and Python.

/// Role of a thread in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockRole {
    /// Waits.
    Waits,
    /// Releases a lock.
    Releases,
}

/// Object of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitRule {
    /// A lock of this kind.
    Lock(&'static str),
    /// Not a lock, but this.
    Other(&'static str),
}

use WaitRule::{Lock, Other};

const MUTEX: WaitRule = Lock("mutex");
const RWLOCK: WaitRule = Lock("rwlock");
/// Semaphores.
pub const SEMAPHORE: WaitRule = Lock("semaphore");
/// The global lock of Python.
pub const GIL: WaitRule = Lock("gil");
const ONCE: WaitRule = Lock("once");
/// Python's `threading`: its locks, and objects based on them (conditions, queues, joins).
const PYTHON: WaitRule = Lock("python lock");
/// Condition variables.
pub const CONDITION: WaitRule = Other("condition variables");
const PARKED: WaitRule = Other("parked threads");
const JOIN: WaitRule = Other("joins");
const CHANNEL: WaitRule = Other("channels");
const BARRIER: WaitRule = Other("barriers");

/// C functions that wait, by prefix; the first match decides.
const WAITING: &[(&str, WaitRule)] = &[
    ("lll_lock_wait", MUTEX),
    ("lll_mutex_lock", MUTEX),
    ("pthread_mutex_", MUTEX),
    ("pthread_rwlock_", RWLOCK),
    ("sem_wait", SEMAPHORE),
    ("sem_timedwait", SEMAPHORE),
    ("sem_clockwait", SEMAPHORE),
    ("new_sem_wait", SEMAPHORE),
    ("new_sem_clockwait", SEMAPHORE),
    ("new_sem_timedwait", SEMAPHORE),
    ("do_futex_wait", SEMAPHORE),
    ("pthread_once", ONCE),
    ("cxa_guard_acquire", ONCE),
    // For the lock within.
    ("pthread_cond_signal", MUTEX),
    ("pthread_cond_broadcast", MUTEX),
    ("pthread_cond_", CONDITION),
    ("pthread_join", JOIN),
    ("pthread_clockjoin", JOIN),
    ("pthread_timedjoin", JOIN),
    ("pthread_barrier_wait", BARRIER),
    ("gomp_mutex_lock", MUTEX),
    ("gomp_sem_wait", SEMAPHORE),
    ("gomp_barrier", BARRIER),
    ("gomp_team_barrier", BARRIER),
    ("gomp_simple_barrier", BARRIER),
    ("gomp_thread_start", PARKED),
    ("g_cond_wait", CONDITION),
    ("g_mutex_lock", MUTEX),
    ("g_rec_mutex_lock", MUTEX),
    ("g_rw_lock_", RWLOCK),
    ("runtime.lock", MUTEX),
    ("runtime.note", PARKED),
    ("runtime.mPark", PARKED),
    ("runtime.stop", PARKED),
    ("runtime.findRunnable", PARKED),
    ("runtime.sysmon", PARKED),
];

/// Functions with paths in their names that wait, by a part of the name.
const WAITING_IN: &[(&str, WaitRule)] = &[
    ("Mutex::lock_contended", MUTEX),
    ("RawMutex::lock_slow", MUTEX),
    ("Mutex::LockSlow", MUTEX),
    ("RwLock::read_contended", RWLOCK),
    ("RwLock::write_contended", RWLOCK),
    ("RawRwLock::", RWLOCK),
    ("counting_semaphore", SEMAPHORE),
    ("once::futex", ONCE),
    ("once::queue", ONCE),
    ("once::Once::", ONCE),
    ("Condvar::", CONDITION),
    ("CondVar::", CONDITION),
    ("std::condition_variable", CONDITION),
    ("std::__atomic_futex_unsigned", CONDITION),
    ("std::latch", BARRIER),
    ("std::barrier", BARRIER),
    ("thread::park", PARKED),
    ("Thread::park", PARKED),
    // parking_lot's ThreadParker implements its locks.
    ("::Parker::", PARKED),
    ("rml::private_worker::", PARKED),
    ("sync::mpmc::", CHANNEL),
    ("sync::mpsc::", CHANNEL),
    ("crossbeam_channel::", CHANNEL),
];

/// Behind a condition variable (or a parked thread): locks that are based on one.
const WAITING_BEHIND: &[(&str, WaitRule)] = &[
    ("ObjectMonitor::enter", Lock("monitor")),
    ("ObjectMonitor::Enter", Lock("monitor")),
    ("ObjectMonitor::ReenterI", Lock("monitor")),
    ("take_gil", GIL),
    // Until a waiter has acquired it.
    ("drop_gil", GIL),
    ("ReentrantLock.lock", MUTEX),
    ("ReentrantLock;::lock", MUTEX),
    ("ReentrantReadWriteLock$ReadLock.lock", RWLOCK),
    ("ReentrantReadWriteLock$ReadLock;::lock", RWLOCK),
    ("ReentrantReadWriteLock$WriteLock.lock", RWLOCK),
    ("ReentrantReadWriteLock$WriteLock;::lock", RWLOCK),
];

/// Behind a semaphore: locks that are based on one, and threads that wait for work.
const WAITING_BEHIND_SEMAPHORE: &[(&str, WaitRule)] = &[
    ("PyThread_acquire_lock", PYTHON),
    ("GangWorker::", PARKED),
    ("WorkerThread::run", PARKED),
    ("ConcurrentGCThread::run", PARKED),
    ("signal_thread_entry", PARKED),
    // node: the inspector's thread waits for a signal, others for the start of a thread.
    ("StartIoThreadMain", PARKED),
    ("DelayedTaskScheduler::", PARKED),
    ("WorkerThreadsTaskRunner", PARKED),
    ("uv_thread_create", PARKED),
    // Mono.
    ("finalizer_thread", PARKED),
];

/// C functions that release locks.
const RELEASING: &[(&str, WaitRule)] = &[
    ("lll_lock_wake", MUTEX),
    ("lll_unlock", MUTEX),
    ("pthread_mutex_", MUTEX),
    ("pthread_rwlock_", RWLOCK),
    ("sem_post", SEMAPHORE),
    ("new_sem_post", SEMAPHORE),
    ("pthread_once", ONCE),
    ("cxa_guard_release", ONCE),
    ("pthread_cond_", CONDITION),
    ("pthread_barrier_wait", BARRIER),
    ("gomp_mutex_unlock", MUTEX),
    ("gomp_sem_post", SEMAPHORE),
    ("g_cond_signal", CONDITION),
    ("g_cond_broadcast", CONDITION),
    ("g_mutex_unlock", MUTEX),
    ("g_rec_mutex_unlock", MUTEX),
    ("g_rw_lock_", RWLOCK),
    ("gomp_", BARRIER),
    ("runtime.unlock", MUTEX),
    ("runtime.note", PARKED),
];

const RELEASING_IN: &[(&str, WaitRule)] = &[
    ("RawMutex::unlock_slow", MUTEX),
    ("futex::Mutex::wake", MUTEX),
    ("futex::Mutex::unlock", MUTEX),
    ("futex_mutex::Mutex::", MUTEX),
    ("MutexGuard", MUTEX),
    ("Mutex::Unlock", MUTEX),
    ("RwLock::wake_writer", RWLOCK),
    ("RwLockReadGuard", RWLOCK),
    ("RwLockWriteGuard", RWLOCK),
    ("RawRwLock::", RWLOCK),
    ("counting_semaphore", SEMAPHORE),
    ("once::", ONCE),
    ("Condvar::", CONDITION),
    ("CondVar::", CONDITION),
    ("std::condition_variable", CONDITION),
    ("std::latch", BARRIER),
    ("std::barrier", BARRIER),
    ("Thread::unpark", PARKED),
    ("Unparker::", PARKED),
    ("::Parker::", PARKED),
    ("sync::mpmc::", CHANNEL),
    ("sync::mpsc::", CHANNEL),
    ("crossbeam_channel::", CHANNEL),
];

const RELEASING_BEHIND: &[(&str, WaitRule)] = &[
    ("ObjectMonitor::exit", Lock("monitor")),
    ("ObjectMonitor::Exit", Lock("monitor")),
    ("drop_gil", GIL),
    ("take_gil", GIL),
    ("ReentrantLock.unlock", MUTEX),
    ("ReentrantLock;::unlock", MUTEX),
];

/// Rule for a function.
pub fn find(name: &str, role: LockRole) -> Option<WaitRule> {
    let (c, paths) = match role {
        LockRole::Waits => (WAITING, WAITING_IN),
        LockRole::Releases => (RELEASING, RELEASING_IN),
    };
    if name.contains("::") {
        let name = plain(name, role == LockRole::Waits);
        return paths.iter().find(|(part, _)| has_part(&name, part)).map(|(_, rule)| *rule);
    }
    let name = bare(name);
    c.iter().find(|(start, _)| name.starts_with(start)).map(|(_, rule)| *rule)
}

/// True if a function of Python's calls one that takes or drops its global lock, whose name a
/// stripped Python lacks (CPython's `Python/ceval_gil.h`): a condition variable in the same binary
/// then belongs to that lock, as it has no others.
pub fn requests_the_gil(name: &str) -> bool {
    // Also when a thread begins or ends.
    let name = name.trim_start_matches('_');
    ["PyEval_", "PyGILState_", "PyThreadState_"].iter().any(|start| name.starts_with(start))
}

/// Rule for a function that uses a condition variable or parks its thread, or that uses a semaphore
/// if `semaphore` is set.
pub fn behind(name: &str, role: LockRole, semaphore: bool) -> Option<WaitRule> {
    let rules = match (role, semaphore) {
        (LockRole::Waits, false) => WAITING_BEHIND,
        (LockRole::Releases, false) => RELEASING_BEHIND,
        (LockRole::Waits, true) => WAITING_BEHIND_SEMAPHORE,
        (LockRole::Releases, true) => &[("PyThread_release_lock", PYTHON)],
    };
    rules.iter().find(|(part, _)| name.contains(part)).map(|(_, rule)| *rule)
}

/// True if a name has this part; one that begins with a module of a path, as a whole: `nonce::` is no
/// `once::`.
fn has_part(name: &str, part: &str) -> bool {
    let is_module = part.starts_with(|c: char| c.is_ascii_lowercase());
    let begins = |at: usize| !name[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    name.match_indices(part).any(|(at, _)| !is_module || begins(at))
}

/// A name with paths without the arguments of its types: `<path::Type<A>>::method`, as Rust writes it,
/// is `path::Type::method`.
pub fn without_arguments(name: &str) -> String {
    plain(name, true)
}

/// `<path::Type<A>>::method` (as Rust writes it) → `path::Type::method`; with the `A` unless
/// `leave_out` is set.
fn plain(name: &str, leave_out: bool) -> String {
    let mut plain = String::with_capacity(name.len());
    let mut open = Vec::new();
    // The number of those that are left out.
    let mut left_out = 0;
    let mut before = ' ';
    for c in name.chars() {
        match c {
            '<' => {
                let is_argument = leave_out && (before.is_alphanumeric() || "_:".contains(before));
                open.push(is_argument);
                left_out += usize::from(is_argument);
            }
            '>' if before != '-' => left_out -= usize::from(open.pop() == Some(true)),
            _ if left_out == 0 => plain.push(c),
            _ => {}
        }
        before = c;
    }
    plain
}

/// `__GI___lll_lock_wait` → `lll_lock_wait`: C libraries have several names for one function.
fn bare(name: &str) -> &str {
    let name = name.trim_start_matches('_');
    name.strip_prefix("GI_").unwrap_or(name).trim_start_matches('_')
}
