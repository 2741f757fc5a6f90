//! Shared code of the benches: targets, children with their CPU time and memory, medians, claims,
//! and the section of each in `docs/benchmarks.md`.

#![allow(unsafe_code)]
// Each bench is a crate of its own and uses a part of this.
#![allow(dead_code, unused_imports)]

pub mod document;
pub mod figures;
pub mod machine;
pub mod options;
pub mod units;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

pub use figures::{Figures, NOT_INSTALLED, peer};
pub use options::{flag, option};

/// The built prof.
pub const PROF: &str = env!("CARGO_BIN_EXE_prof");

/// The built prof, without names from earlier runs.
pub fn prof() -> Command {
    let mut command = Command::new(PROF);
    command.env("PROF_CACHE_SIZE", "0");
    command
}

/// A new directory below target/ for the files of a bench, removed when dropped.
pub fn temp_dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory below target/")
}

/// True when the program is installed.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|d| d.join(program).exists())
}

/// Path of Go's pprof itself; `go tool` in front of it would be counted too.
pub fn go_pprof() -> Option<String> {
    let out = Command::new("go").args(["tool", "-n", "pprof"]).output().ok()?;
    let path = String::from_utf8(out.stdout).ok()?.trim().to_string();
    (out.status.success() && Path::new(&path).exists()).then_some(path)
}

/// Compiles a target of tests/targets/ unless that has been done.
pub fn target(source: &str, compiler: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets").join(source);
    compile(&source, compiler, flags)
}

/// Compiles a source file into target/tmp/bench-targets unless that has been done.
pub fn compile(source: &Path, compiler: &str, flags: &[&str]) -> PathBuf {
    let name = source.file_stem().expect("a source file").to_string_lossy();
    compile_as(&name, source, compiler, flags)
}

/// The same with a name for the program, for sources that are compiled in several ways.
pub fn compile_as(name: &str, source: &Path, compiler: &str, flags: &[&str]) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-targets");
    std::fs::create_dir_all(&dir).expect("target/tmp can be written");
    let program = dir.join(name);
    let changed = |p: &Path| p.metadata().and_then(|m| m.modified()).ok();
    if changed(&program) < changed(source) || !program.exists() {
        let mut command = Command::new(compiler);
        command.args(flags).arg("-o").arg(&program).arg(source);
        let status = command.status().unwrap_or_else(|e| panic!("{compiler}: {e}"));
        assert!(status.success(), "{command:?}: {status}");
    }
    program
}

/// A Rust program of N generic functions, with debug information: 2,200 make 160 MB of it. It is
/// compiled unless that has been done.
pub fn generic_program(functions: usize) -> PathBuf {
    let mut text = include_str!("generic.rs").to_string();
    text.push_str("\nstatic STEPS: &[&(dyn Step + Sync)] = &[\n");
    for n in 0..functions {
        text += &format!("    &Work::<{n}>,\n");
    }
    text.push_str("];\n");
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("generic_{functions}.rs"));
    if std::fs::read_to_string(&source).ok().as_deref() != Some(&text) {
        std::fs::write(&source, text).expect("target/tmp can be written");
    }
    compile(&source, "rustc", &["--edition=2024", "-O", "-g", "-Ccodegen-units=32"])
}

/// The cost of a child.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// User and system CPU time in seconds.
    pub cpu: f64,
    /// Wall-clock time in seconds.
    pub wall: f64,
    /// Largest resident set in bytes.
    pub peak: u64,
    /// It exited with 0.
    pub ok: bool,
}

/// A started child, of which the cost is measured at its end.
pub struct Started {
    child: Child,
    since: Instant,
}

/// Starts a command with the standard streams that it has.
pub fn start(command: &mut Command) -> Started {
    let since = Instant::now();
    let child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    Started { child, since }
}

impl Started {
    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Sends a signal.
    pub fn signal(&self, number: i32) {
        // SAFETY: kill takes two numbers; the child is not reaped yet, so the pid is its own.
        unsafe { libc::kill(self.pid(), number) };
    }

    /// Waits for its end. Returns its cost, and its standard error if that is a pipe.
    pub fn finish(mut self) -> (Usage, String) {
        let mut text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut text).ok();
        }
        let mut status = 0;
        // SAFETY: rusage is plain numbers, for which zero is a valid value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to locals that live through the call.
        let pid = unsafe { libc::wait4(self.pid(), &mut status, 0, &mut usage) };
        assert_eq!(pid, self.pid(), "{}", std::io::Error::last_os_error());
        let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
        let usage = Usage {
            cpu: seconds(usage.ru_utime) + seconds(usage.ru_stime),
            wall: self.since.elapsed().as_secs_f64(),
            peak: usage.ru_maxrss as u64 * 1024,
            ok: libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        };
        (usage, text)
    }
}

/// Runs a command to its end.
pub fn measure(command: &mut Command) -> Usage {
    start(command).finish().0
}

/// Runs a command to its end, and counts also the CPU time of its helpers that outlived it.
///
/// Returns the usage and the exit code (`None`: a signal ended it). No other child may run.
pub fn measure_family(command: &mut Command) -> (Usage, Option<i32>) {
    // SAFETY: prctl takes numbers here; orphans of our children become our children.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let before = children_cpu();
    let since = Instant::now();
    let status = command.status().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let wall = since.elapsed().as_secs_f64();
    // SAFETY: waitpid takes a null status; it ends when there is no child left.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } > 0 {}
    let cpu = children_cpu() - before;
    (Usage { cpu, wall, peak: 0, ok: status.success() }, status.code())
}

/// Nanoseconds that the living threads of a process have run (`/proc/PID/task/TID/schedstat`).
pub fn running_time(pid: i32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let time = |path: PathBuf| {
        let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    threads.filter_map(|thread| time(thread.path())).sum()
}

/// CPU seconds of all children that were waited for.
pub fn children_cpu() -> f64 {
    // SAFETY: rusage is plain numbers, for which zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local that lives through the call.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// The busy program, which waits for a line before it works.
pub struct Busy {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

/// The work of the busy program as it measures it, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    pub cpu: f64,
    pub wall: f64,
}

impl Busy {
    /// Starts it; it waits with its work for [`Busy::work`].
    pub fn start(rounds: u64) -> Busy {
        let program = target("busy.cpp", "g++", &["-O2", "-fomit-frame-pointer"]);
        Busy::program(&program, rounds)
    }

    /// The same with another program of that protocol.
    pub fn program(program: &Path, rounds: u64) -> Busy {
        Busy::command(Command::new(program).arg(rounds.to_string()))
    }

    /// The same with a command that starts such a program.
    pub fn command(command: &mut Command) -> Busy {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the busy program starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("the busy program prints a line");
        assert_eq!(line, "ready\n");
        Busy { child, stdout }
    }

    /// Its process id.
    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Lets it work, and waits for its end.
    pub fn work(mut self) -> Work {
        self.go();
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("the busy program prints a line");
        let numbers: Vec<f64> = line.split(' ').filter_map(|w| w.trim().parse().ok()).collect();
        self.child.wait().expect("the busy program ends");
        Work { cpu: numbers[0] * 1e-9, wall: numbers[1] * 1e-9 }
    }

    /// Lets it work.
    pub fn go(&mut self) {
        let mut stdin = self.child.stdin.take().expect("a pipe");
        stdin.write_all(b"\n").expect("the busy program reads a line");
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Rounds of work that take about that time here.
pub fn rounds_for(seconds: f64) -> u64 {
    let probe = Busy::start(100).work();
    (100.0 * seconds / probe.cpu).max(1.0) as u64
}

/// The middle value.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// Runs `perf record` until it succeeds, a few times: it aborts while another profiler records build
/// IDs on all CPUs. Returns whether it has succeeded.
pub fn perf_record(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    for _ in 0..10 {
        if command.status().is_ok_and(|status| status.success()) {
            return true;
        }
        settle(2000);
    }
    false
}

/// The number of lost samples that prof prints with `-v`: `prof: 12 lost, 0 throttled`.
pub fn lost(stderr: &str) -> Option<u64> {
    let (before, _) = stderr.split_once(" lost, ")?;
    before.rsplit(' ').next()?.parse().ok()
}

/// Prints that a tool is not installed, and the command that installs it; returns whether it is
/// installed.
pub fn has_or_advise(program: &str, package: &str) -> bool {
    let installed = has(program);
    if !installed {
        println!("{program} is not installed; on Debian: apt-get install {package}");
    }
    installed
}

/// Prints whether a claim holds here.
pub fn claim(holds: bool, text: &str) {
    println!("{}  {text}", if holds { "PASS" } else { "FAIL" });
}

/// Sleeps, for a child to attach.
pub fn settle(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}
