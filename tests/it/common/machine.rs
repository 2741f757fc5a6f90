//! One machine for all tests: most share it, some need it for themselves.
//!
//! Tests of all topics run at the same time, in threads of one process. One that changes a setting
//! of the whole machine, that loads more CPUs than one, or whose measurements depend on load, takes
//! [`MachineLock`]: no other test that starts a program runs then, in this process or in another
//! one of the same build directory. All others have a share of the machine from the first temporary
//! directory that they make, or the first program that they start, to their end.

use std::cell::RefCell;
use std::fs::File;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The part of the machine that the thread of a test holds.
enum Held {
    Nothing,
    /// Released when the thread ends.
    Share(#[allow(dead_code, reason = "held for its lock")] File),
    /// The lock, and the number of [`MachineLock`]s on it.
    Alone(#[allow(dead_code, reason = "held for its lock")] File, usize),
}

thread_local! {
    static HELD: RefCell<Held> = const { RefCell::new(Held::Nothing) };
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

/// Waits for a share of the machine, unless this test has one, or all of it.
///
/// To be called before any other lock is taken that a test with the whole machine may need.
pub fn share() {
    // Only the thread of the test itself: threads that it starts belong to it, and have no name.
    if std::thread::current().name().is_none() {
        return;
    }
    HELD.with_borrow_mut(|held| {
        if matches!(held, Held::Nothing) {
            *held = Held::Share(machine(libc::LOCK_SH));
        }
    });
}

/// The whole machine, for the test that holds this.
pub struct MachineLock {
    /// It belongs to one thread.
    _thread: PhantomData<*const ()>,
}

impl MachineLock {
    /// Waits until no other test uses the machine. To be called while none of the test's own
    /// programs run.
    pub fn take() -> MachineLock {
        HELD.with_borrow_mut(|held| match held {
            Held::Alone(_, locks) => *locks += 1,
            _ => {
                // Two tests that keep their shares would wait for each other.
                *held = Held::Nothing;
                *held = Held::Alone(machine(libc::LOCK_EX), 1);
            }
        });
        MachineLock { _thread: PhantomData }
    }
}

impl Drop for MachineLock {
    fn drop(&mut self) {
        HELD.with_borrow_mut(|held| match held {
            Held::Alone(_, locks) if *locks > 1 => *locks -= 1,
            _ => *held = Held::Nothing,
        });
    }
}

/// Files under /proc/sys with other values, restored when dropped.
pub struct Sysctl {
    /// Paths, and their previous contents.
    before: Vec<(PathBuf, String)>,
    _lock: MachineLock,
}

impl Sysctl {
    /// Sets `name` (as `kernel.perf_event_paranoid`); `None` when that is not allowed, which is
    /// reported.
    #[track_caller]
    pub fn set(name: &str, value: &str) -> Option<Sysctl> {
        Sysctl { before: Vec::new(), _lock: MachineLock::take() }.and(name, value)
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
