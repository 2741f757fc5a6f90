//! The end of a terminal, and signals, in every state of the interactive views: prof ends.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::common::{Build, Running, holds, target, temp_dir, until, views};

/// prof on a terminal of its own, whose other end is `master`.
struct OnTerminal {
    child: Child,
    /// `None` after the terminal was closed.
    master: Option<File>,
    /// All output.
    output: Vec<u8>,
}

/// A terminal of 24 lines with 80 columns: the end of a terminal emulator, and that of programs.
fn terminal() -> (File, File) {
    // SAFETY: the descriptor is new, and numbers and a buffer of this function are passed on.
    let (master, name) = unsafe {
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC | libc::O_NONBLOCK;
        let fd = libc::posix_openpt(flags);
        assert!(fd >= 0 && libc::grantpt(fd) == 0 && libc::unlockpt(fd) == 0);
        let mut name = [0u8; 64];
        assert_eq!(libc::ptsname_r(fd, name.as_mut_ptr().cast(), name.len()), 0);
        let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        assert_eq!(libc::ioctl(fd, libc::TIOCSWINSZ, &size), 0);
        (OwnedFd::from_raw_fd(fd), name)
    };
    let name = std::ffi::CStr::from_bytes_until_nul(&name).unwrap().to_str().unwrap();
    let mut slave = OpenOptions::new();
    slave.read(true).write(true).custom_flags(libc::O_NOCTTY | libc::O_CLOEXEC);
    (File::from(master), slave.open(name).unwrap())
}

impl OnTerminal {
    fn start(dir: &Path, args: &[&str]) -> OnTerminal {
        let (master, slave) = terminal();
        let stdio = || Stdio::from(slave.try_clone().unwrap());
        let mut prof = Command::new(env!("CARGO_BIN_EXE_prof"));
        prof.args(args).current_dir(dir).env("TERM", "xterm").env("PROF_CACHE_SIZE", "0");
        prof.stdin(stdio()).stdout(stdio()).stderr(stdio());
        // The shell of a terminal that was closed is gone: the session is prof's.
        let session = || {
            // SAFETY: both calls take numbers only, and may be called between fork and exec.
            let is_leader =
                unsafe { libc::setsid() > 0 && libc::ioctl(0, libc::TIOCSCTTY, 0) == 0 };
            if is_leader { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        // SAFETY: `session` allocates nothing.
        unsafe { prof.pre_exec(session) };
        let child = prof.spawn().unwrap();
        OnTerminal { child, master: Some(master), output: Vec::new() }
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn signal(&self, number: i32) {
        // SAFETY: kill takes numbers; the process was not waited for.
        assert_eq!(unsafe { libc::kill(self.pid(), number) }, 0);
    }

    /// Takes what was written to the terminal until now.
    fn read(&mut self) {
        let mut buffer = [0; 65536];
        while let Some(read) = self.master.as_mut().and_then(|m| m.read(&mut buffer).ok()) {
            if read == 0 {
                return;
            }
            self.output.extend_from_slice(&buffer[..read]);
        }
    }

    /// Waits until the output contains a text.
    fn wait_for(&mut self, text: &str) {
        let came = holds(|| {
            self.read();
            !self.output.is_empty() && String::from_utf8_lossy(&self.output).contains(text)
        });
        let output = String::from_utf8_lossy(&self.output);
        assert!(came, "never came: {text:?} in {output:?}");
    }

    fn press(&mut self, keys: &str) {
        self.output.clear();
        self.master.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for its end; nothing reads the terminal if `reads` is false.
    fn ended(&mut self, context: &str, reads: bool) -> ExitStatus {
        let mut status = None;
        holds(|| {
            if reads {
                self.read();
            }
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap_or_else(|| panic!("{context}: prof runs on"))
    }

    /// The word after a key in a file of `/proc/PID/`.
    fn state(&self, file: &str, key: &str) -> String {
        let text = std::fs::read_to_string(format!("/proc/{}/{file}", self.pid())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        line.split_whitespace().next().unwrap_or_default().to_owned()
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// What happens to prof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The window is closed.
    Closed,
    /// A signal.
    Signal(i32),
    /// A signal while it is stopped, before it continues.
    SignalWhileStopped(i32),
}

const EVENTS: [Event; 4] = [
    Event::Closed,
    Event::Signal(libc::SIGHUP),
    Event::Signal(libc::SIGTERM),
    Event::SignalWhileStopped(libc::SIGTERM),
];

/// Shows the cursor, as where a text is typed.
const CURSOR: &str = "\x1b[?25h";

/// A state of the views: the text that shows it, after some keys.
#[derive(Clone, Copy, Debug)]
struct State {
    first: &'static str,
    keys: &'static str,
    then: &'static str,
}

const fn state(first: &'static str) -> State {
    State { first, keys: "", then: "" }
}

const fn after(first: &'static str, keys: &'static str, then: &'static str) -> State {
    State { first, keys, then }
}

/// Fails unless prof ends in this state by all events.
fn ends(dir: &Path, args: &[&str], State { first, keys, then }: State) {
    for event in EVENTS {
        let mut prof = OnTerminal::start(dir, args);
        prof.wait_for(first);
        if !keys.is_empty() {
            prof.press(keys);
            prof.wait_for(then);
        }
        let signal = match event {
            Event::Closed => {
                prof.master = None;
                None
            }
            Event::Signal(signal) => {
                prof.signal(signal);
                Some(signal)
            }
            Event::SignalWhileStopped(signal) => {
                prof.signal(libc::SIGSTOP);
                until(|| prof.state("status", "State:") == "T");
                prof.signal(signal);
                prof.signal(libc::SIGCONT);
                Some(signal)
            }
        };
        let context = format!("{args:?} {first:?} {keys:?} {event:?}");
        let status = prof.ended(&context, true);
        let output = String::from_utf8_lossy(&prof.output);
        assert!(!output.contains("panicked"), "{context}: {output}");
        match signal {
            Some(_) => assert_eq!(status.signal(), signal, "{context}: {status}"),
            // An error or a panic has an exit code.
            None => assert!(matches!(status.code(), None | Some(0)), "{context}: {status}"),
        }
    }
}

/// A file that is never complete.
fn endless(dir: &Path) -> File {
    let path = dir.join("endless.pb.gz");
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the name ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn known(dir: &Path) -> PathBuf {
    let file = views::known(dir);
    std::fs::copy(&file, dir.join("again.pb.gz")).unwrap();
    file
}

#[test]
fn a_report_ends_with_its_terminal_and_by_signals() {
    let dir = temp_dir();
    known(dir.path());
    let _endless = endless(dir.path());
    ends(dir.path(), &["report", "endless.pb.gz"], state("reading"));
    let report = ["report", "known.pb.gz"];
    for shown in [
        state("(known)"),
        after("(known)", "/x", CURSOR),
        after("(known)", "?", ""),
        after("(known)", "F", "lame graph"),
    ] {
        ends(dir.path(), &report, shown);
    }
}

#[test]
fn a_difference_ends_with_its_terminal_and_by_signals() {
    let dir = temp_dir();
    known(dir.path());
    let _endless = endless(dir.path());
    ends(dir.path(), &["diff", "known.pb.gz", "endless.pb.gz"], state("reading"));
    ends(dir.path(), &["diff", "known.pb.gz", "again.pb.gz"], state("▾change"));
    ends(
        dir.path(),
        &["report", "--diff", "known.pb.gz", "again.pb.gz"],
        after("▾change", "/x", CURSOR),
    );
}

#[test]
fn top_ends_with_its_terminal_and_by_signals() {
    let dir = temp_dir();
    let busy = Running::start(Command::new(target("known", Build::C)).arg("0"));
    let pid = busy.pid().to_string();
    let top = ["top", "-p", &pid];
    for shown in [
        state("(known)"),
        after("(known)", "p", "PAUSED"),
        after("(known)", "/x", CURSOR),
        after("(known)", "E", CURSOR),
    ] {
        ends(dir.path(), &top, shown);
    }
    ends(dir.path(), &["top", "--", "sleep", "0.1"], state("ended"));
    ends(dir.path(), &["top", "-a"], state("% CPU"));
}

#[test]
fn a_signal_before_the_views_ends_top() {
    let dir = temp_dir();
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGTERM, libc::SIGHUP] {
        for args in [&["top", "-a"][..], &["top", "--", "sleep", "60"]] {
            let mut prof = OnTerminal::start(dir.path(), args);
            let is_caught = |caught: &str| {
                u64::from_str_radix(caught, 16).is_ok_and(|all| all >> (signal - 1) & 1 == 1)
            };
            // The recording catches signals some time before the views do.
            while !is_caught(&prof.state("status", "SigCgt:")) {
                std::hint::spin_loop();
            }
            prof.signal(signal);
            prof.ended(&format!("{args:?} {signal}"), true);
        }
    }
}

#[test]
fn a_signal_ends_views_whose_terminal_takes_no_output() {
    let dir = temp_dir();
    let busy = Running::start(Command::new(target("known", Build::C)).arg("0"));
    let pid = busy.pid().to_string();
    for signal in [libc::SIGTERM, libc::SIGHUP] {
        let mut prof = OnTerminal::start(dir.path(), &["top", "-p", &pid, "--interval", "100ms"]);
        prof.wait_for("(known)");
        // Other pages, each with other cells, until the terminal is full and prof waits.
        let is_writing =
            |prof: &OnTerminal| prof.state("syscall", "") == libc::SYS_write.to_string();
        let mut pages = "tF57".chars().cycle();
        let is_full = holds(|| {
            let page = pages.next().unwrap().to_string();
            // Full in this direction, too, when prof does not read any more.
            prof.master.as_mut().unwrap().write_all(page.as_bytes()).ok();
            is_writing(&prof)
        });
        assert!(is_full, "the terminal never was full");
        prof.signal(signal);
        let status = prof.ended("a full terminal", false);
        assert_eq!(status.signal(), Some(signal), "{status}");
    }
}
