//! One machine for all tests: most share it, some need it for themselves.
//!
//! Tests of all topics run at the same time, in threads of one process. `tests/classes.txt` names
//! those that need the machine for themselves ([`Class`]): no other test that starts a program runs
//! then, in this process or in another one of the same build directory. All others have a share of
//! the machine. Both hold what they have from the first temporary directory that they make, or the
//! first program that they start, to their end.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use sys::printed::Stderr;

use super::system::stolen_seconds;

/// What a test needs of the machine, and so how much its result says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Nothing: a failure is final.
    Hermetic,
    /// All of it, because the test loads it, changes its settings, or depends on its state.
    Machine,
    /// All of it, because the test decides on samples.
    Statistical,
}

/// A line of `tests/classes.txt`.
#[derive(Debug)]
pub struct Entry {
    /// The class of these tests.
    pub class: Class,
    /// A test, or with `*` at its end all that begin so.
    pub tests: String,
    /// Why they are in this class.
    pub reason: String,
}

/// The lines of `tests/classes.txt`.
pub fn classes() -> Vec<Entry> {
    let lines = include_str!("../../classes.txt").lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entry = |line: &str| {
        let mut words = line.split_whitespace();
        let class = match words.next().unwrap() {
            "machine" => Class::Machine,
            "statistical" => Class::Statistical,
            class => panic!("tests/classes.txt: no class {class:?}"),
        };
        let tests = words.next().unwrap_or_else(|| panic!("tests/classes.txt: {line}")).to_owned();
        Entry { class, tests, reason: words.collect::<Vec<_>>().join(" ") }
    };
    lines.map(entry).collect()
}

impl Entry {
    /// True if a test is one of these.
    pub fn has(&self, test: &str) -> bool {
        match self.tests.strip_suffix('*') {
            Some(beginning) => test.starts_with(beginning),
            None => test == self.tests,
        }
    }
}

/// The class of a test.
pub fn class_of(test: &str) -> Class {
    classes().iter().find(|entry| entry.has(test)).map_or(Class::Hermetic, |entry| entry.class)
}

/// The share of the CPUs' time that other virtual machines may have while a test measures.
const MOST_STOLEN: f64 = 0.05;

/// What a test holds of the machine, from some moment on.
struct Held {
    class: Class,
    test: String,
    since: Instant,
    stolen: f64,
    _lock: File,
}

impl Held {
    fn new(test: &str) -> Held {
        let class = class_of(test);
        let lock = match class {
            Class::Hermetic => machine(libc::LOCK_SH),
            Class::Machine | Class::Statistical => machine(libc::LOCK_EX),
        };
        let (since, stolen) = (Instant::now(), stolen_seconds());
        Held { class, test: test.to_owned(), since, stolen, _lock: lock }
    }
}

/// A test that measures has measured nothing if the machine was not its own: `tests/judge` reads
/// this line when the test failed.
impl Drop for Held {
    fn drop(&mut self) {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let all = self.since.elapsed().as_secs_f64() * cpus;
        let stolen = (stolen_seconds() - self.stolen) / all;
        if self.class != Class::Hermetic && stolen > MOST_STOLEN {
            let percent = 100.0 * stolen;
            let what = format!("{percent:.1} % of the CPUs' time went to other virtual machines");
            Stderr::line(&format!("NOT MEASURED: {}: {what}", self.test));
        }
    }
}

thread_local! {
    /// What the thread of a test holds of the machine: released when the thread ends.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Waits for a lock (`flock(2)`), which is free again when the file is closed, also by a panic or
/// a kill.
fn lock(name: &str, how: i32) -> File {
    let file = File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)).unwrap();
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::flock(file.as_raw_fd(), how) }, 0);
    file
}

/// Waits for the machine. A test that waits for all of it stands in a queue that new shares have to
/// pass, so that they cannot keep it waiting.
fn machine(how: i32) -> File {
    let _queue = lock("machine.queue", how);
    lock("machine.lock", how)
}

/// Waits for what this test needs of the machine, unless it has it.
///
/// To be called before any other lock is taken that a test with the whole machine may need.
pub fn share() {
    let thread = std::thread::current();
    // Only the thread of the test itself: threads that it starts belong to it, and have no name.
    let Some(test) = thread.name() else { return };
    HELD.with_borrow_mut(|held| {
        held.get_or_insert_with(|| Held::new(test));
    });
}

/// Files under /proc/sys with other values, restored when dropped.
pub struct Sysctl {
    /// Paths, and their previous contents.
    before: Vec<(PathBuf, String)>,
}

impl Sysctl {
    /// Sets `name` (as `kernel.perf_event_paranoid`); `None` when that is not allowed, which is
    /// reported. The test has to have the machine for itself.
    #[track_caller]
    pub fn set(name: &str, value: &str) -> Option<Sysctl> {
        let thread = std::thread::current();
        let test = thread.name().unwrap_or_default();
        assert_eq!(class_of(test), Class::Machine, "{test} changes a setting of the machine");
        share();
        Sysctl { before: Vec::new() }.and(name, value)
    }

    /// Sets another one, too.
    #[track_caller]
    pub fn and(mut self, name: &str, value: &str) -> Option<Sysctl> {
        let path = Path::new("/proc/sys").join(name.replace('.', "/"));
        let before = std::fs::read_to_string(&path).map(|text| text.trim().to_string());
        let written = before.and_then(|before| Ok((before, std::fs::write(&path, value)?)));
        match written {
            Ok((before, ())) => {
                self.before.push((path, before));
                Some(self)
            }
            Err(error) => {
                super::skip(&format!("{name} cannot be set: {error}"));
                None
            }
        }
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        for (path, before) in self.before.iter().rev() {
            std::fs::write(path, before).ok();
        }
    }
}
