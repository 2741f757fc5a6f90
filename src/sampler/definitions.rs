//! Probes that the target's later threads and children have, too.
//!
//! A probe that `perf_event_open` makes by itself must not be inherited: the kernel (6.18) reads
//! its file's name once more when the target starts a thread, out of the target's memory, and the
//! target's `clone` then fails with `EFAULT`. Such probes are defined in tracefs
//! (`Documentation/trace/uprobetracer.rst`). A definition does nothing as long as no event uses
//! it; it is removed at the end of the recording, or by the next prof if this one is killed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use super::tracefs;

/// Group of the definitions of a process, which stands behind this.
const GROUP: &str = "prof_";

/// What is defined.
#[derive(Clone, Copy, Debug)]
pub struct Definition<'a> {
    /// The file, or the kernel's function.
    pub subject: &'a str,
    /// It is the kernel's.
    pub in_kernel: bool,
    /// Bytes from the beginning of that.
    pub offset: u64,
    /// Returns are probed.
    pub returns: bool,
    /// Offset of a marker's counter; 0: none.
    pub counter: u64,
}

/// Definitions of this process, removed when dropped.
#[derive(Debug, Default)]
pub struct Definitions {
    /// Files of tracefs, and the names defined there.
    names: Vec<(PathBuf, String)>,
}

impl Definitions {
    /// Defines a probe; returns its number as a tracepoint.
    ///
    /// Errors: tracefs is not there, or the kernel cannot put a probe there.
    pub fn add(&mut self, what: &Definition<'_>) -> io::Result<u64> {
        let root = tracefs::root()?;
        let list = root.join(if what.in_kernel { "kprobe_events" } else { "uprobe_events" });
        if self.names.is_empty() {
            remove_of_the_dead(&list);
        }
        let (group, event) = (format!("{GROUP}{}", std::process::id()), self.names.len());
        let name = format!("{group}/e{event}");
        let kind = if what.returns { 'r' } else { 'p' };
        let Definition { subject, offset, .. } = what;
        if what.in_kernel {
            write(&list, &format!("{kind}:{name} {subject}+{offset}"))?;
        } else {
            // Through the descriptor: names with spaces are not understood.
            let file = File::open(subject)?;
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
            // What cannot be removed does nothing, and the next prof tries again.
            let _ = write(list, &format!("-:{name}"));
        }
    }
}

fn write(list: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().append(true).open(list)?.write_all(line.as_bytes())
}

/// Removes what processes have defined that were killed.
fn remove_of_the_dead(list: &Path) {
    let all = fs::read_to_string(list).unwrap_or_default();
    for name in all.lines().filter_map(of_a_prof) {
        let pid = name.trim_start_matches(GROUP).split('/').next().unwrap_or_default();
        if !Path::new("/proc").join(pid).exists() {
            let _ = write(list, &format!("-:{name}"));
        }
    }
}

/// `p:prof_1234/e0 /proc/1234/fd/5:0x0000000000001310` → `prof_1234/e0`
fn of_a_prof(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(':')?;
    let name = rest.split_whitespace().next()?;
    let (pid, _) = name.strip_prefix(GROUP)?.split_once('/')?;
    pid.parse::<u32>().is_ok().then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_prof_defined_is_removed() {
        let ours = "p:prof_1234/e0 /proc/1234/fd/5:0x0000000000001310";
        assert_eq!(of_a_prof(ours), Some("prof_1234/e0"));
        for other in ["p:probe_libc/malloc /lib/libc.so.6:0x1", "r:prof_x/e0 f", "p:prof_1", ""] {
            assert_eq!(of_a_prof(other), None, "{other}");
        }
    }
}
