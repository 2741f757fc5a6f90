//! A program on a pseudo-terminal: keys in, the time until the screen changes out.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The screen is complete when nothing was drawn for this time. The spinner turns every 100 ms.
const QUIET: Duration = Duration::from_millis(250);

/// Nothing takes longer.
const LIMIT: Duration = Duration::from_secs(30);

/// Size of the screen.
const ROWS: u16 = 50;
const COLUMNS: u16 = 160;

/// The answer to a key, as times since it was written.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The first change of the screen; `None`: nothing changed.
    pub first: Option<Duration>,
    /// The last one, when the screen is complete.
    pub last: Option<Duration>,
}

/// A program and its terminal.
pub struct Terminal {
    master: File,
    child: Child,
    started: Instant,
}

impl Terminal {
    /// Starts a program on a terminal of its own.
    pub fn start(command: &mut Command) -> Terminal {
        let (master, slave) = open();
        let stream = || Stdio::from(slave.try_clone().expect("a descriptor"));
        command.stdin(stream()).stdout(stream()).stderr(stream()).env("TERM", "xterm-256color");
        // SAFETY: between fork and exec only async-signal-safe functions are called.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let started = Instant::now();
        let child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        // The command keeps its copies of the slave, which would keep the master open.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Terminal { master, child, started }
    }

    /// Waits for a text to be drawn; returns the time since the start.
    pub fn shows(&mut self, text: &str) -> Option<Duration> {
        let mut drawn = Vec::new();
        while self.started.elapsed() < LIMIT {
            if self.waits(LIMIT) {
                drawn.extend(self.read());
            }
            if contains(&drawn, text.as_bytes()) {
                return Some(self.started.elapsed());
            }
        }
        None
    }

    /// The process.
    #[allow(dead_code, reason = "for benches/top.rs")]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads what is drawn until a time after `began`.
    #[allow(dead_code, reason = "for benches/top.rs")]
    pub fn drain(&mut self, until: Duration, began: Instant) {
        while let Some(left) = until.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
            if self.waits(left) {
                self.read();
            }
        }
    }

    /// Waits until the screen is complete.
    pub fn settle(&mut self) {
        while self.waits(QUIET) && !self.read().is_empty() {}
    }

    /// Writes a key to a screen that is complete, and waits until it is complete again.
    pub fn press(&mut self, key: &str) -> Answer {
        let since = Instant::now();
        self.master.write_all(key.as_bytes()).expect("a terminal");
        let mut answer = Answer { first: None, last: None };
        while since.elapsed() < LIMIT && self.waits(QUIET) && !self.read().is_empty() {
            let now = since.elapsed();
            answer.first.get_or_insert(now);
            answer.last = Some(now);
        }
        answer
    }

    /// True when something was drawn within this time.
    fn waits(&self, limit: Duration) -> bool {
        let fd = self.master.as_raw_fd();
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: the pointer is to a local that lives through the call.
        unsafe { libc::poll(&mut poll, 1, limit.as_millis() as i32) > 0 }
    }

    /// What was drawn; nothing at the end.
    fn read(&mut self) -> Vec<u8> {
        let mut drawn = vec![0; 1 << 16];
        let length = self.master.read(&mut drawn).unwrap_or(0);
        drawn.truncate(length);
        drawn
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A new pseudo-terminal: the side of this program, and that of the other.
fn open() -> (File, OwnedFd) {
    let mut master = 0;
    let mut slave = 0;
    let size = libc::winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
    let none = std::ptr::null_mut();
    // SAFETY: the pointers are to locals that live through the call; the others may be null.
    let ok = unsafe { libc::openpty(&mut master, &mut slave, none, none.cast(), &raw const size) };
    assert_eq!(ok, 0, "openpty: {}", std::io::Error::last_os_error());
    for fd in [master, slave] {
        // SAFETY: fcntl takes numbers here.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    // SAFETY: both descriptors are open, and nothing else owns them.
    unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) }
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|part| part == text)
}
