//! Runs programs: the built prof, and the children that it records.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::conditions::holds_before;

/// Nothing that a test starts may run longer.
const LIMIT: Duration = Duration::from_secs(180);

/// The output of a program, and its exit status.
#[derive(Debug)]
pub struct Output {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Output {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The exit code; panics when a signal ended the program.
    #[track_caller]
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("{}: {}", self.status, self.stderr))
    }

    /// Fails unless the program exited with 0.
    #[track_caller]
    pub fn ok(self) -> Output {
        assert!(self.status.success(), "{}\n{}\n{}", self.status, self.text(), self.stderr);
        self
    }

    /// Fails unless the program exited with this code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Output {
        assert_eq!(self.status.code(), Some(code), "{}\n{}", self.text(), self.stderr);
        self
    }

    /// Fails unless prof refused with this code and one line that holds all `words`, and
    /// neither panicked nor printed anything on standard output.
    #[track_caller]
    pub fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code(), code, "{}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        // Notes may stand before it.
        let mut lines = self.stderr.lines().rev();
        let error = lines.find(|l| l.starts_with("prof: ") || l.starts_with("error: "));
        let error = error.unwrap_or_default();
        for word in words {
            assert!(error.contains(word), "{word:?} is not in: {}", self.stderr);
        }
        assert!(self.stdout.is_empty(), "on standard output: {}", self.text());
    }

    /// Fails unless standard error holds all `words`.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Output {
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is not in: {}", self.stderr);
        }
        self
    }
}

/// The built prof with arguments, not yet run.
pub struct Prof {
    pub command: Command,
}

impl Prof {
    /// `prof ARGS…` (words at white space) in a directory, without names of earlier recordings. A
    /// recording prints all that it can, for the messages of tests that fail.
    pub fn new(dir: impl AsRef<Path>, args: &str) -> Prof {
        let words: Vec<&str> = args.split_whitespace().collect();
        let records = matches!(words.first(), Some(&("record" | "flame" | "threads")));
        let ends = words.iter().position(|&word| word == "--").unwrap_or(words.len());
        let mut prof = Prof::plain(dir, "");
        prof.command.args(words.first());
        if records && !words[..ends].iter().any(|word| ["-q", "-v", "-h"].contains(word)) {
            prof.command.arg("-v");
        }
        prof.command.args(words.iter().skip(1));
        prof
    }

    /// The same, as verbose as `args` make it.
    pub fn plain(dir: impl AsRef<Path>, args: &str) -> Prof {
        let mut command = Command::new(env!("CARGO_BIN_EXE_prof"));
        command.current_dir(dir).args(args.split_whitespace()).env("PROF_CACHE_SIZE", "0");
        Prof { command }
    }

    /// With an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Prof {
        self.command.env(name, value);
        self
    }

    /// One more argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Prof {
        self.command.arg(arg);
        self
    }

    /// More arguments (words at white space).
    pub fn args(mut self, args: &str) -> Prof {
        self.command.args(args.split_whitespace());
        self
    }

    /// The command alone, with this standard output and nothing to read.
    pub fn command_with(mut self, stdout: Stdio) -> Command {
        self.command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::null());
        self.command
    }

    /// `-- COMMAND ARGS…` (arguments: words at white space).
    pub fn target(mut self, command: impl AsRef<OsStr>, args: &str) -> Prof {
        self.command.arg("--").arg(command).args(args.split_whitespace());
        self
    }

    /// Runs it to its end with nothing on standard input.
    #[track_caller]
    pub fn run(mut self) -> Output {
        self.command.stdin(Stdio::null());
        run(self.command)
    }

    /// Starts it, its standard output and error kept for [`Running::finish`].
    pub fn start(mut self) -> Running {
        self.command.stdin(Stdio::null());
        Running::start(&mut self.command)
    }
}

/// Runs a command to its end; panics when it hangs.
#[track_caller]
pub fn run(mut command: Command) -> Output {
    Running::start(&mut command).finish()
}

/// Runs a tool and returns its standard output; panics when it fails.
#[track_caller]
pub fn tool(name: &str, args: &[&OsStr]) -> String {
    let mut command = Command::new(name);
    command.args(args).stdin(Stdio::null());
    run(command).ok().text()
}

/// Runs perf, and again a while later when it aborts: while another profiler records build IDs on
/// all CPUs, the kernel (6.18) puts their mark on perf's mapping records, too, which perf 6.1 does
/// not survive.
#[track_caller]
pub fn perf(args: impl Fn(&mut Command)) -> Output {
    for _ in 0..15 {
        let mut command = Command::new("perf");
        args(&mut command);
        command.stdin(Stdio::null());
        let out = run(command);
        if !out.stderr.contains("build-id.c") {
            return out.ok();
        }
        // The other profiler may have ended by then; perf names nothing that shows it.
        std::thread::sleep(Duration::from_secs(2));
    }
    panic!("perf aborts each time")
}

/// A child that is killed when dropped.
pub struct Running {
    child: Option<Child>,
    stdout: mpsc::Receiver<Vec<u8>>,
    stderr: mpsc::Receiver<Vec<u8>>,
    lines: mpsc::Receiver<String>,
    errors: mpsc::Receiver<String>,
    deadline: Instant,
}

/// Reads a pipe to its end in a thread of its own; each line is also handed on at once.
fn drain(pipe: impl Read + Send + 'static, lines: mpsc::Sender<String>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut all = Vec::new();
        let mut reader = BufReader::new(pipe);
        let mut start = 0;
        while reader.read_until(b'\n', &mut all).is_ok_and(|n| n > 0) {
            lines.send(String::from_utf8_lossy(&all[start..]).trim_end().to_string()).ok();
            start = all.len();
        }
        sender.send(all).ok();
    });
    receiver
}

impl Running {
    /// Starts a command with pipes for its standard output and error.
    #[track_caller]
    pub fn start(command: &mut Command) -> Running {
        Running::start_into(command, Stdio::piped())
    }

    /// The same with another standard output, which is not kept.
    #[track_caller]
    pub fn start_into(command: &mut Command, stdout: Stdio) -> Running {
        super::machine::share();
        command.stdout(stdout).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        // The child alone has its standard output open.
        command.stdout(Stdio::null());
        let (sender, lines) = mpsc::channel();
        let (error_sender, errors) = mpsc::channel();
        let stdout = match child.stdout.take() {
            Some(pipe) => drain(pipe, sender),
            None => drain(std::io::empty(), sender),
        };
        let stderr = drain(child.stderr.take().unwrap(), error_sender);
        let deadline = Instant::now() + LIMIT;
        Running { child: Some(child), stdout, stderr, lines, errors, deadline }
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.as_ref().unwrap().id() as i32
    }

    /// Waits until the child has printed this line; returns the lines before it.
    #[track_caller]
    pub fn wait_for(self, line: &str) -> (Running, Vec<String>) {
        let mut before = Vec::new();
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(l) if l == line => return (self, before),
                Ok(l) => before.push(l),
                Err(e) => panic!("{line:?} never came ({e}): {before:?}"),
            }
        }
    }

    /// Waits until the child has printed a line with this beginning on standard error.
    #[track_caller]
    pub fn wait_for_error(&self, beginning: &str) {
        let mut before = Vec::new();
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            match self.errors.recv_timeout(left) {
                Ok(line) if line.starts_with(beginning) => return,
                Ok(line) => before.push(line),
                Err(e) => panic!("{beginning:?} never came ({e}): {before:?}"),
            }
        }
    }

    /// Waits until a recording that is verbose samples.
    #[track_caller]
    pub fn sampling(self) -> Running {
        self.wait_for_error("prof: sampling began after ");
        self
    }

    /// The other end of its standard input, if that is a pipe.
    pub fn stdin(&mut self) -> std::process::ChildStdin {
        self.child.as_mut().unwrap().stdin.take().expect("standard input is a pipe")
    }

    /// Sends a signal.
    pub fn signal(&self, number: i32) {
        // SAFETY: kill takes two numbers; the child is not reaped yet, so the pid is its own.
        assert_eq!(unsafe { libc::kill(self.pid(), number) }, 0);
    }

    /// True while the child has not ended.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_none()
    }

    /// Waits for the end; kills the child and panics when it takes too long.
    #[track_caller]
    pub fn finish(mut self) -> Output {
        let ended = holds_before(self.deadline, || !self.is_running());
        assert!(ended, "still running after {LIMIT:?}");
        let status = self.child.take().unwrap().wait().unwrap();
        // A grandchild may hold the pipe; it has a while to close it.
        let all = |r: &mpsc::Receiver<Vec<u8>>| r.recv_timeout(Duration::from_secs(20));
        let stdout = all(&self.stdout).expect("standard output stays open");
        let stderr = all(&self.stderr).expect("standard error stays open");
        Output { status, stdout, stderr: String::from_utf8_lossy(&stderr).into_owned() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}
