//! Features and rights of the machine.

use std::path::{Path, PathBuf};
use std::process::Command;

pub use sys::testing::{skip, skip_hardware};

use super::{holds, run, until};

/// True when all these programs are installed; else reports the missing one.
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

/// True when the tests run as root; else reports that.
#[track_caller]
pub fn needs_root() -> bool {
    // SAFETY: geteuid has no conditions.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        skip("only root can do this");
    }
    root
}

/// True when `prof doctor` reports that programs in the kernel measure times that otherwise follow
/// from events.
pub fn has_kernel_programs() -> bool {
    let out = run::Prof::new(std::env::temp_dir(), "doctor --json").run().text();
    let checks: Vec<serde_json::Value> = serde_json::from_str(&out).unwrap();
    let check = checks.iter().find(|c| c["name"] == "kernel programs").expect("such a check");
    check["ok"].as_bool().expect("yes or no")
}

/// True when `prof doctor` reports that stacks beyond the kernel's own copy are copied; else
/// reports the reason.
#[track_caller]
pub fn has_deep_stacks() -> bool {
    let out = run::Prof::new(std::env::temp_dir(), "doctor --json").run().text();
    let checks: Vec<serde_json::Value> = serde_json::from_str(&out).unwrap();
    let check = checks.iter().find(|c| c["name"] == "deep stacks").expect("such a check");
    let has = check["ok"].as_bool().expect("yes or no");
    if !has {
        skip(&format!("deep stacks are not available: {}", check["why"]));
    }
    has
}

/// The time in which this virtual machine's CPUs were another's, since it started (`proc(5)`).
pub fn stolen_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let ticks = stat.lines().next().and_then(|cpus| cpus.split_whitespace().nth(8));
    // USER_HZ is 100 on all machines that prof runs on.
    ticks.and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0) / 100.0
}

/// True when the tests run as root and tracepoints are there; else reports the obstacle.
#[track_caller]
pub fn needs_tracefs() -> bool {
    if !needs_root() {
        return false;
    }
    let there = tracefs().is_some();
    if !there {
        skip("tracefs is not mounted, and cannot be");
    }
    there
}

/// The directory of tracefs with its events, mounted when it was empty; `None`: not available.
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

/// Removes a cgroup whose processes were killed: they are gone a moment later.
pub fn remove_cgroup(path: &Path) {
    holds(|| std::fs::remove_dir(path).is_ok());
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        remove_cgroup(&self.path);
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

/// Waits until a process has used this CPU time from now on.
#[track_caller]
pub fn until_has_run(pid: i32, seconds: f64) {
    let before = cpu_seconds(pid);
    until(|| cpu_seconds(pid) - before >= seconds);
}

/// The first child of a process, as soon as it has one.
#[track_caller]
pub fn child(pid: i32) -> i32 {
    let child = || -> Option<i32> {
        let path = format!("/proc/{pid}/task/{pid}/children");
        std::fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
    };
    until(|| child().is_some());
    child().unwrap()
}

/// True if a thread of this name waits in this system call.
pub fn is_in_call(pid: i32, thread: &str, number: i64) -> bool {
    threads_in_call(pid, thread, number) > 0
}

/// The number of threads of this name that wait in this system call (`proc(5)`).
pub fn threads_in_call(pid: i32, thread: &str, number: i64) -> usize {
    let is = |task: &std::fs::DirEntry| {
        let read = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        read("comm").trim_end() == thread && read("syscall").starts_with(&format!("{number} "))
    };
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    tasks.flatten().filter(is).count()
}

/// True if a prof that is not verbose samples: it has events open, and waits for their records.
pub fn samples(prof: i32) -> bool {
    let files = std::fs::read_dir(format!("/proc/{prof}/fd")).into_iter().flatten().flatten();
    let mut names = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    names.any(|name| name.as_os_str() == "anon_inode:[perf_event]")
        && is_in_call(prof, "prof", libc::SYS_poll)
}

/// The state of a process's first thread, as `R` or `S` (`proc(5)`).
pub fn state(pid: i32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('X')
}
