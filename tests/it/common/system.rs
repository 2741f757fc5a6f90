//! What the machine has and allows, and settings that a test changes and gives back.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::run;

/// Says that this test does not run here; under `CI=true` that is a failure.
#[track_caller]
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let line = format!("SKIPPED: {}: {why}\n", thread.name().unwrap_or("?"));
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{line}");
    // Not eprintln: the test harness would swallow that.
    std::io::stderr().write_all(line.as_bytes()).ok();
}

/// True when all these programs are installed; else says which is missing.
#[track_caller]
pub fn needs(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has = |program: &&&str| !std::env::split_paths(&path).any(|d| d.join(program).exists());
    match programs.iter().find(has) {
        Some(program) => {
            skip(&format!("{program} is not installed"));
            false
        }
        None => true,
    }
}

/// True when the tests run as root; else says so.
#[track_caller]
pub fn needs_root() -> bool {
    // SAFETY: geteuid has no conditions.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        skip("only root can do this");
    }
    root
}

/// True when programs in the kernel time what events tell of elsewhere, as `prof doctor` says.
pub fn has_kernel_programs() -> bool {
    let out = run::Prof::new(std::env::temp_dir(), "doctor --json").run().text();
    let checks: Vec<serde_json::Value> = serde_json::from_str(&out).unwrap();
    let check = checks.iter().find(|c| c["name"] == "kernel programs").expect("such a check");
    check["ok"].as_bool().expect("yes or no")
}

/// True when stacks beyond the kernel's own copy are copied, as `prof doctor` says; else says so.
#[track_caller]
pub fn has_deep_stacks() -> bool {
    let out = run::Prof::new(std::env::temp_dir(), "doctor --json").run().text();
    let checks: Vec<serde_json::Value> = serde_json::from_str(&out).unwrap();
    let check = checks.iter().find(|c| c["name"] == "deep stacks").expect("such a check");
    let has = check["ok"].as_bool().expect("yes or no");
    if !has {
        skip(&format!("no deep stacks here: {}", check["why"]));
    }
    has
}

/// How long this virtual machine's CPUs were another's, since it started (`proc(5)`).
pub fn stolen_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let ticks = stat.lines().next().and_then(|cpus| cpus.split_whitespace().nth(8));
    // USER_HZ is 100 on all that prof runs on.
    ticks.and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0) / 100.0
}

/// Held by a test that changes, or depends on, a setting of the whole machine.
pub struct MachineLock {
    _file: File,
}

impl MachineLock {
    /// Waits for the lock; it is free again when dropped, also by a panic or a kill.
    pub fn take() -> MachineLock {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("machine.lock");
        let file = File::create(path).unwrap();
        // SAFETY: the descriptor is open.
        assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }, 0);
        MachineLock { _file: file }
    }
}

/// Files under /proc/sys with other values, given back when dropped.
pub struct Sysctl {
    /// Paths, and what they held.
    before: Vec<(PathBuf, String)>,
    _lock: MachineLock,
}

impl Sysctl {
    /// Sets `name` (as `kernel.perf_event_paranoid`); `None` when that is not allowed.
    pub fn set(name: &str, value: &str) -> Option<Sysctl> {
        Sysctl { before: Vec::new(), _lock: MachineLock::take() }.and(name, value)
    }

    /// Sets another one, too.
    pub fn and(mut self, name: &str, value: &str) -> Option<Sysctl> {
        let path = Path::new("/proc/sys").join(name.replace('.', "/"));
        let before = std::fs::read_to_string(&path).ok()?.trim().to_string();
        std::fs::write(&path, value).ok()?;
        self.before.push((path, before));
        Some(self)
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        for (path, before) in &self.before {
            std::fs::write(path, before).ok();
        }
    }
}

/// The folder of tracefs with its events, mounted when it was empty; `None`: not to be had.
pub fn tracefs() -> Option<PathBuf> {
    let dirs = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].map(PathBuf::from);
    let there = || dirs.iter().find(|d| d.join("events/sched").is_dir()).cloned();
    there().or_else(|| {
        Command::new("mount").args(["-t", "tracefs", "nodev"]).arg(&dirs[0]).output().ok()?;
        there()
    })
}

/// Mount point of cgroup v2.
pub fn cgroup2() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
    let mut words = mounts.lines().map(|l| l.split(' ').collect::<Vec<_>>());
    words.find(|w| w.get(2) == Some(&"cgroup2")).map(|w| PathBuf::from(w[1]))
}

/// A fresh cgroup, removed when dropped.
pub struct Cgroup {
    pub path: PathBuf,
}

impl Cgroup {
    /// `None` when there is no cgroup v2 or none may be made.
    pub fn new(name: &str) -> Option<Cgroup> {
        let path = cgroup2()?.join(format!("prof-test-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        Some(Cgroup { path })
    }

    /// Moves a process into it.
    pub fn add(&self, pid: i32) {
        std::fs::write(self.path.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its processes are gone a moment after they were killed.
        for _ in 0..200 {
            if std::fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// A small file system in memory, unmounted when dropped.
pub struct SmallDisk {
    pub path: PathBuf,
}

impl SmallDisk {
    /// Mounts `kib` KiB at `path`; `None` when that is not allowed.
    pub fn mount(path: PathBuf, kib: u32) -> Option<SmallDisk> {
        std::fs::create_dir(&path).ok()?;
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "prof-test"]).arg(&path);
        run::run(command).status.success().then_some(SmallDisk { path })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.path).status().ok();
    }
}

/// CPU seconds that a process and its threads (also those that ended) have used so far.
pub fn cpu_seconds(pid: i32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let rest: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: f64 = rest[11].parse::<f64>().unwrap() + rest[12].parse::<f64>().unwrap();
    // SAFETY: sysconf has no conditions.
    ticks / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64
}
