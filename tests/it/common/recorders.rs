//! Several recorders on one run of a program that prints "ready", begins when its standard input
//! ends, and prints its figures.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::run::{Output, Prof, Running};
use super::{Counts, Pprof, read};

/// A program that is ready, and its standard input.
pub struct Waiting {
    program: Running,
    stdin: Option<fs::File>,
}

impl Waiting {
    /// Starts a program and waits until it is ready.
    #[track_caller]
    pub fn start(command: &mut Command) -> Waiting {
        let (reader, writer) = pipe();
        let program = Running::start(command.stdin(Stdio::from(reader)));
        let (program, _) = program.wait_for("ready");
        Waiting { program, stdin: Some(writer) }
    }

    pub fn pid(&self) -> i32 {
        self.program.pid()
    }

    /// Starts its work, and waits for its end.
    #[track_caller]
    pub fn work(mut self) -> Output {
        self.stdin = None;
        self.program.finish().ok()
    }

    /// Starts its work, and does not wait.
    pub fn go(&mut self) {
        self.stdin = None;
    }

    /// Kills it.
    pub fn stop(self) {
        drop(self.program);
    }
}

/// A pipe whose ends no other child inherits.
fn pipe() -> (fs::File, fs::File) {
    use std::os::fd::FromRawFd;
    let mut fds = [0; 2];
    // SAFETY: the array has room for both descriptors, which have no other owner.
    unsafe {
        assert_eq!(libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (fs::File::from_raw_fd(fds[0]), fs::File::from_raw_fd(fds[1]))
    }
}

/// The figures that a program printed: `NAME NUMBER` in each line.
pub fn figures(out: &Output) -> BTreeMap<String, f64> {
    let pair = |line: &str| {
        let (name, number) = line.rsplit_once(' ')?;
        Some((name.to_string(), number.parse().ok()?))
    };
    out.text().lines().filter_map(pair).collect()
}

/// A recording of prof's that is under way.
pub struct ProfRecording {
    running: Running,
    file: PathBuf,
}

impl ProfRecording {
    /// Runs `prof record ARGS` (which name the target) and waits until it samples.
    #[track_caller]
    pub fn start(dir: &Path, name: &str, args: &str) -> ProfRecording {
        let file = dir.join(name);
        let running = Prof::new(dir, "record -o").arg(&file).args(args).start().sampling();
        ProfRecording { running, file }
    }

    /// Ends it.
    #[track_caller]
    pub fn stop(self) -> Pprof {
        self.running.signal(libc::SIGINT);
        self.finish()
    }

    /// Waits for its end.
    #[track_caller]
    pub fn finish(self) -> Pprof {
        self.running.finish().ok();
        read(&self.file)
    }
}

/// A recording of perf's that is under way.
pub struct PerfRecording {
    child: Child,
    file: PathBuf,
    /// Its commands; perf ends them when it is closed.
    _control: fs::File,
}

impl PerfRecording {
    /// Runs `perf record ARGS` and waits until it samples: then it answers a ping.
    #[track_caller]
    pub fn start(dir: &Path, name: &str, args: &str) -> PerfRecording {
        let file = dir.join(name);
        let fifo = |end: &str| {
            let path = dir.join(format!("{name}.{end}"));
            let text = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
            // SAFETY: the path ends with a zero byte.
            assert_eq!(unsafe { libc::mkfifo(text.as_ptr(), 0o600) }, 0);
            // Read and write: neither end waits for the other.
            (fs::File::options().read(true).write(true).open(&path).unwrap(), path)
        };
        let ((mut control, control_path), (mut answer, answer_path)) = (fifo("ctl"), fifo("ack"));
        let fifos = format!("--control=fifo:{},{}", control_path.display(), answer_path.display());
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", &fifos, "-o"]).arg(&file).args(args.split_whitespace());
        let errors = fs::File::create(file.with_extension("err")).unwrap();
        perf.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        let mut child = perf.spawn().unwrap();
        control.write_all(b"ping\n").unwrap();
        let mut word = [0; 4];
        // SAFETY: the descriptor is open.
        let flags = unsafe {
            use std::os::fd::AsRawFd;
            libc::fcntl(answer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK)
        };
        assert_eq!(flags, 0);
        let begins = super::holds(|| {
            assert!(child.try_wait().unwrap().is_none(), "perf record {args} has ended");
            answer.read(&mut word).is_ok_and(|n| n > 0)
        });
        assert!(begins, "perf does not begin");
        PerfRecording { child, file, _control: control }
    }

    /// Ends it and counts the samples of each leaf, as `FUNCTION BINARY`.
    #[track_caller]
    pub fn finish(mut self) -> Counts {
        // SAFETY: the child is not reaped yet, so the pid is its own.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) };
        self.child.wait().unwrap();
        let mut script = Command::new("perf");
        script.args(["script", "-Fip,sym,dso", "--no-demangle", "-i"]).arg(&self.file);
        script.stdin(Stdio::null());
        let out = super::run::run(script);
        let errors = fs::read_to_string(self.file.with_extension("err")).unwrap();
        assert!(out.status.success(), "perf script: {}\nperf record: {errors}", out.stderr);
        let text = out.text();
        let mut counts = Counts::new();
        for line in text.lines().filter(|l| !l.trim().is_empty()) {
            *counts.entry(leaf(line)).or_default() += 1;
        }
        counts
    }
}

impl Drop for PerfRecording {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// `   5581 burn (/usr/bin/app)` → `burn app`.
fn leaf(line: &str) -> String {
    let (_, rest) = line.trim().split_once(' ').unwrap_or_default();
    let (function, binary) = rest.rsplit_once(" (").unwrap_or((rest, ""));
    let binary = binary.trim_end_matches(')').rsplit('/').next().unwrap_or_default();
    format!("{function} {binary}")
}
