//! The kernel's settings and the user's privileges.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use messages::PackageManager;
use sys::os;

const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Settings and privileges that determine what can be recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Effective user ID.
    pub uid: u32,
    /// Effective capabilities, one bit each; none counts in a user namespace.
    pub capabilities: u64,
    /// True in an unprivileged container, whose capabilities do not apply to the whole kernel.
    pub user_namespace: bool,
    /// True if system calls are filtered by the seccomp filter of a container or sandbox.
    pub seccomp: bool,
    /// `kernel.perf_event_paranoid`; `None` when the kernel has no perf events.
    pub paranoid: Option<i32>,
    /// `kernel.kptr_restrict`.
    pub kptr_restrict: Option<i32>,
    /// `kernel.perf_event_mlock_kb`: limit of a user's ring memory for each CPU, in KiB.
    pub mlock_kb: u64,
    /// `RLIMIT_MEMLOCK`, soft, in bytes; `u64::MAX` is none.
    pub memlock: u64,
    /// `RLIMIT_NOFILE`, soft and hard; `u64::MAX` is none.
    pub open_files: (u64, u64),
    /// Number of online CPUs.
    pub cpus: u64,
    /// Path of this program.
    pub program: PathBuf,
}

impl Facts {
    /// Reads them.
    pub fn read() -> Facts {
        let number = |name: &str| {
            fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse::<i64>().ok()
        };
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let uid_map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        let limits = |resource| {
            os::limits(resource).map_or((0, 0), |limit| (limit.rlim_cur, limit.rlim_max))
        };
        Facts {
            uid: os::uid(),
            capabilities: field(&status, "CapEff:")
                .and_then(|v| u64::from_str_radix(v, 16).ok())
                .unwrap_or(0),
            user_namespace: !uid_map.is_empty() && !is_whole(&uid_map),
            seccomp: field(&status, "Seccomp:").is_some_and(|v| v != "0"),
            paranoid: number("perf_event_paranoid").map(|n| n as i32),
            kptr_restrict: number("kptr_restrict").map(|n| n as i32),
            mlock_kb: number("perf_event_mlock_kb").map_or(516, |n| n.max(0) as u64),
            memlock: limits(libc::RLIMIT_MEMLOCK).0,
            open_files: limits(libc::RLIMIT_NOFILE),
            cpus: count_cpus(&online),
            program: std::env::current_exe().unwrap_or_else(|_| "prof".into()),
        }
    }

    fn has(&self, capability: u32) -> bool {
        !self.user_namespace && self.capabilities & (1 << capability) != 0
    }

    /// True if root's commands need `sudo`.
    pub fn needs_sudo(&self) -> bool {
        self.uid != 0
    }

    /// Path of this program as text.
    pub fn program_path(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }

    /// The same, if the program may not read other users' processes.
    pub fn program_without_trace(&self) -> Option<String> {
        (!self.may_trace()).then(|| self.program_path())
    }

    /// True if the paranoid level does not apply (CAP_PERFMON or CAP_SYS_ADMIN).
    pub fn may_perf(&self) -> bool {
        self.has(CAP_PERFMON) || self.has(CAP_SYS_ADMIN)
    }

    /// True if BPF programs that read memory may be loaded (CAP_BPF and CAP_PERFMON, or
    /// CAP_SYS_ADMIN).
    pub fn may_load_programs(&self) -> bool {
        self.has(CAP_SYS_ADMIN) || (self.has(CAP_BPF) && self.has(CAP_PERFMON))
    }

    /// True if other users' processes may be read (CAP_SYS_PTRACE).
    pub fn may_trace(&self) -> bool {
        self.has(CAP_SYS_PTRACE)
    }

    /// True if every file may be read (CAP_DAC_READ_SEARCH or CAP_DAC_OVERRIDE).
    pub fn may_read_all(&self) -> bool {
        self.has(CAP_DAC_READ_SEARCH) || self.has(CAP_DAC_OVERRIDE)
    }

    /// Size in bytes of the largest ring buffer that is available on every CPU at once; `None`: no
    /// limit.
    pub fn ring_limit(&self) -> Option<u64> {
        let unlimited = self.has(CAP_IPC_LOCK) || self.paranoid.is_some_and(|p| p < 0);
        if unlimited || self.memlock == u64::MAX {
            return None;
        }
        let cpus = self.cpus.max(1);
        let all = (self.mlock_kb * 1024).saturating_mul(cpus).saturating_add(self.memlock);
        // One page of each ring is its header, and rings have a power of two of pages.
        let share = (all / cpus).saturating_sub(4096);
        Some(if share < 4096 { 0 } else { 1 << share.ilog2() })
    }
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|l| l.strip_prefix(name)).map(str::trim)
}

/// True for a map of all IDs to themselves: the first user namespace.
fn is_whole(uid_map: &str) -> bool {
    let mut fields = uid_map.split_whitespace();
    let numbers = [fields.next(), fields.next(), fields.next()];
    numbers == [Some("0"), Some("0"), Some("4294967295")]
}

/// Number of CPUs in a list such as `0-3,8`; at least one.
fn count_cpus(list: &str) -> u64 {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let first = first.parse::<u64>().ok()?;
        let last = last.parse::<u64>().ok()?;
        Some(last.checked_sub(first)?.saturating_add(1))
    };
    list.trim().split(',').filter_map(count).sum::<u64>().max(1)
}

/// User ID of a process's owner.
pub fn owner(pid: u32) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|m| m.uid())
}

/// A process of another user for a trial: the first one that does not exit.
pub fn process_of_another(uid: u32) -> Option<u32> {
    let foreign = |pid: u32| {
        owner(pid).is_some_and(|owner| owner != uid)
            // Kernel threads have no readable memory.
            && fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|c| !c.is_empty())
    };
    if foreign(1) {
        return Some(1);
    }
    let entries = fs::read_dir("/proc").ok()?;
    entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).find(|&pid| foreign(pid))
}

/// ID of a tracepoint, from tracefs.
///
/// # Errors
///
/// `NotFound` when tracefs is not mounted or has no such tracepoint, `PermissionDenied` when this
/// user may not read it.
pub fn tracepoint_id(system: &str, name: &str) -> io::Result<u64> {
    let mut result = Err(io::ErrorKind::NotFound.into());
    for root in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
        match fs::read_to_string(format!("{root}/events/{system}/{name}/id")) {
            Ok(text) => {
                return text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into());
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => result = Err(e),
        }
    }
    result
}

/// True if tracefs is mounted at a usual mount point, as far as this user can see.
pub fn tracefs_is_mounted() -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|l| l.split(' ').nth(2) == Some("tracefs"))
}

/// What installs packages on this distribution.
pub fn package_manager(os_release: &str) -> Option<PackageManager> {
    let value = |key: &str| {
        let line = os_release.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_default().trim_matches('"').to_owned()
    };
    let ids = format!("{} {}", value("ID"), value("ID_LIKE"));
    let is = |name: &str| ids.split_whitespace().any(|id| id == name);
    if is("debian") || is("ubuntu") {
        Some(PackageManager::Apt)
    } else if is("fedora") || is("rhel") {
        Some(PackageManager::Dnf)
    } else if is("suse") || is("opensuse") {
        Some(PackageManager::Zypper)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_counted() {
        for (list, count) in [("0-1\n", 2), ("0", 1), ("0-3,8,10-11\n", 7), ("", 1), ("5-2", 1)] {
            assert_eq!(count_cpus(list), count, "{list}");
        }
    }

    #[test]
    fn capabilities_count_only_outside_user_namespaces() {
        let mut facts = Facts { capabilities: 1 << CAP_PERFMON, ..Facts::default() };
        assert!(facts.may_perf() && !facts.may_trace());
        facts.user_namespace = true;
        assert!(!facts.may_perf());
        assert!(is_whole("         0          0 4294967295\n"));
        assert!(!is_whole("         0       1000          1\n"));
    }

    #[test]
    fn the_ring_limit_follows_the_kernels_rule() {
        let mut facts =
            Facts { mlock_kb: 516, memlock: 0, cpus: 2, paranoid: Some(2), ..Facts::default() };
        assert_eq!(facts.ring_limit(), Some(512 << 10));
        facts.memlock = 8 << 20;
        assert_eq!(facts.ring_limit(), Some(4 << 20));
        facts.mlock_kb = 8196;
        assert_eq!(facts.ring_limit(), Some(8 << 20));
        facts.mlock_kb = 0;
        facts.memlock = 0;
        assert_eq!(facts.ring_limit(), Some(0));
        facts.paranoid = Some(-1);
        assert_eq!(facts.ring_limit(), None);
        facts.paranoid = Some(2);
        facts.capabilities = 1 << CAP_IPC_LOCK;
        assert_eq!(facts.ring_limit(), None);
    }

    #[test]
    fn each_distribution_has_its_package_manager() {
        assert_eq!(package_manager("NAME=x\nID=debian\n"), Some(PackageManager::Apt));
        let mint = "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n";
        assert_eq!(package_manager(mint), Some(PackageManager::Apt));
        let rocky = "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n";
        assert_eq!(package_manager(rocky), Some(PackageManager::Dnf));
        let tumbleweed = "ID=\"opensuse-tumbleweed\"\nID_LIKE=\"opensuse suse\"\n";
        assert_eq!(package_manager(tumbleweed), Some(PackageManager::Zypper));
        assert_eq!(package_manager("ID=arch\n"), None);
        assert_eq!(package_manager(""), None);
    }

    #[test]
    fn this_machine_has_facts() {
        let facts = Facts::read();
        assert!(facts.cpus >= 1 && facts.open_files.1 > 0);
        assert!(facts.program.is_absolute());
    }
}
