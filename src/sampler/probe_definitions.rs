//! Probe definitions in tracefs, for probes that later threads and children inherit.
//!
//! A probe that `perf_event_open` creates must not be inherited: the kernel (6.18) reads its file's
//! name again when the target starts a thread, from the target's memory, and the target's `clone`
//! then fails with `EFAULT`. Such probes are defined in tracefs
//! (`Documentation/trace/uprobetracer.rst`). A definition has no effect without an event that uses
//! it; it is removed at the end of the recording, or by the next recording if this prof is killed.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use super::tracefs;
use sys::{foreign, procfs};

/// Prefix of the group of a process's definitions; its PID and start time follow, since PIDs are
/// reused.
const GROUP: &str = "prof_";

/// The files of tracefs that list definitions.
const LISTS: [&str; 2] = ["uprobe_events", "kprobe_events"];

/// A probe to define.
#[derive(Clone, Copy, Debug)]
pub struct Definition<'a> {
    /// The file, or the kernel function.
    pub subject: &'a str,
    /// True for a kernel function.
    pub in_kernel: bool,
    /// Offset in the file or function, in bytes.
    pub offset: u64,
    /// True for a probe of returns.
    pub returns: bool,
    /// Offset of a marker's semaphore; 0: none.
    pub counter: u64,
}

/// Definitions of this process, removed when dropped.
#[derive(Debug, Default)]
pub struct Definitions {
    /// Files of tracefs, with the names defined there.
    names: Vec<(PathBuf, String)>,
}

impl Definitions {
    /// Defines a probe; returns the ID of its tracepoint.
    ///
    /// # Errors
    ///
    /// Tracefs is missing, or the kernel cannot put a probe there.
    pub fn add(&mut self, what: &Definition<'_>) -> io::Result<u64> {
        let root = tracefs::root()?;
        let list = root.join(LISTS[usize::from(what.in_kernel)]);
        let own = std::process::id();
        let began = procfs::stat(own as i32).map_or(0, |stat| stat.start_ticks);
        let name = format!("{GROUP}{own}_{began}/e{}", self.names.len());
        let kind = if what.returns { 'r' } else { 'p' };
        let Definition { subject, offset, .. } = what;
        if what.in_kernel {
            write(&list, &format!("{kind}:{name} {subject}+{offset}"))?;
        } else {
            // By descriptor, because names with spaces are not supported.
            let file = foreign::open(Path::new(subject))?;
            let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
            let counter = match what.counter {
                0 => String::new(),
                counter => format!("({counter:#x})"),
            };
            write(&list, &format!("{kind}:{name} {path}:{offset:#x}{counter}"))?;
        }
        self.names.push((list, name.clone()));
        let id = fs::read_to_string(root.join("events").join(&name).join("id"))?;
        id.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
    }
}

impl Drop for Definitions {
    fn drop(&mut self) {
        for (list, name) in &self.names {
            // A definition that cannot be removed has no effect, and the next prof tries again.
            let _ = write(list, &format!("-:{name}"));
        }
    }
}

fn write(list: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().append(true).open(list)?.write_all(line.as_bytes())
}

/// Removes the definitions of prof processes that were killed.
pub fn remove_leftovers() {
    // In another PID namespace, processes have other PIDs.
    let Ok(root) = tracefs::root() else { return };
    if !procfs::is_first_pid_namespace() {
        return;
    }
    for list in LISTS.map(|list| root.join(list)) {
        let all = fs::read_to_string(&list).unwrap_or_default();
        for (name, pid, began) in all.lines().filter_map(own_probe) {
            let lives = procfs::stat(pid).is_some_and(|stat| stat.start_ticks == began);
            if !lives {
                let _ = write(&list, &format!("-:{name}"));
            }
        }
    }
}

/// `p:prof_1234_567/e0 /proc/1234/fd/5:0x0000000000001310` → `prof_1234_567/e0`, PID and start
/// time.
fn own_probe(line: &str) -> Option<(&str, i32, u64)> {
    let (_, rest) = line.split_once(':')?;
    let name = rest.split_whitespace().next()?;
    let (owner, _) = name.strip_prefix(GROUP)?.split_once('/')?;
    // Older versions did not write the start time.
    let (pid, began) = owner.split_once('_').unwrap_or((owner, "0"));
    Some((name, pid.parse().ok()?, began.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_prof_defined_is_removed() {
        let ours = "p:prof_1234_567/e0 /proc/1234/fd/5:0x0000000000001310";
        assert_eq!(own_probe(ours), Some(("prof_1234_567/e0", 1234, 567)));
        let older = "p:prof_1234/e0 /proc/1234/fd/5:0x0000000000001310";
        assert_eq!(own_probe(older), Some(("prof_1234/e0", 1234, 0)));
        for other in ["p:probe_libc/malloc /lib/libc.so.6:0x1", "r:prof_x/e0 f", "p:prof_1", ""] {
            assert_eq!(own_probe(other), None, "{other}");
        }
    }
}
