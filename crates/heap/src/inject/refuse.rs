//! Obstacles to an injection that can be found before the target is touched.

use std::io;

use super::objects::Objects;
use crate::arch;
use sys::{Error, ThreadId, os, procfs};

/// A field of a `status` file in `/proc`.
pub fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let rest = status.lines().find_map(|l| l.strip_prefix(name))?;
    Some(rest.strip_prefix(':')?.trim())
}

/// Checks the kernel's information about the process.
///
/// # Errors
///
/// The obstacle.
pub fn check_state(pid: i32) -> Result<(), Error> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(path).map_err(|e| refused(pid, &e))?;
    match field(&status, "State").and_then(|s| s.chars().next()) {
        Some('T') => {
            return Err(Error::failed(format!(
                "it is stopped by a signal; continue it first: kill -CONT {pid}"
            )));
        }
        Some('Z' | 'X') => return Err(Error::failed("it has ended")),
        _ => {}
    }
    // A thread of prof's that has just ended may still be listed.
    let own = std::process::id().to_string();
    if let Some(tracer) = field(&status, "TracerPid").filter(|t| *t != "0" && *t != own) {
        let name =
            tracer.parse().ok().and_then(|tracer| procfs::comm(ThreadId::main_thread(tracer)));
        let name = name.map_or(String::new(), |name| format!(" ({name})"));
        return Err(Error::failed(format!(
            "process {tracer}{name} traces it already; end that first"
        )));
    }
    if arch::has_shadow_stack(|name| field(&status, name)) {
        return Err(Error::failed(
            "its shadow stack (CET) does not let it be led to other code; start it with \
             prof record -T heap -- COMMAND instead",
        ));
    }
    // Each thread has its own, but a filter usually restricts the whole process.
    if field(&status, "Seccomp").is_some_and(|mode| mode != "0") {
        return Err(Error::failed(
            "it is confined by seccomp, which may end it when it loads a library; start it with \
             prof record -T heap -- COMMAND instead",
        ));
    }
    let mounts = std::fs::read_to_string(format!("/proc/{pid}/mountinfo"));
    if mounts.is_ok_and(|mounts| !has_proc(&mounts)) {
        return Err(Error::failed(
            "its root directory has no /proc, through which it would open prof's library; mount \
             one there: mount -t proc proc ROOT/proc",
        ));
    }
    Ok(())
}

/// True if a `mountinfo` file lists a proc file system (`proc_pid_mountinfo(5)`).
fn has_proc(mounts: &str) -> bool {
    let kinds = mounts.lines().filter_map(|line| line.split_once(" - "));
    kinds.into_iter().any(|(_, kind)| kind.starts_with("proc "))
}

/// True if a thread is not confined by seccomp.
pub fn is_unconfined(pid: i32, tid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status"));
    status.is_ok_and(|status| field(&status, "Seccomp").is_none_or(|mode| mode == "0"))
}

/// Checks the mapped objects.
///
/// # Errors
///
/// The missing part.
pub fn check_objects(objects: &Objects) -> Result<(), Error> {
    if objects.is_go {
        return Err(Error::failed(
            "it is a Go program, which does not allocate by malloc; its own heap profile \
             (net/http/pprof) records that, and prof report reads it",
        ));
    }
    if !objects.has_c_library() {
        return Err(Error::failed(
            "it is linked statically (or a 32-bit program): there is no dlopen in it; start it \
             with a shared C library",
        ));
    }
    if objects.dlopen().is_none() {
        return Err(Error::failed(
            "its C library exports no dlopen (older than glibc 2.34 and libdl.so.2 is not loaded)",
        ));
    }
    Ok(())
}

/// Cause for which a process may not be inspected or traced.
pub fn refused(pid: i32, error: &io::Error) -> Error {
    let denied = matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES));
    match error.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) => Error::failed("it has ended"),
        // The kernel refuses to trace a process that is ending.
        _ if denied && !lives(pid) => Error::failed("it has ended"),
        _ if denied && os::uid() == 0 => Error::failed(format!(
            "tracing it is not permitted, even as root ({error}): prof lacks CAP_SYS_PTRACE, or a \
             security module forbids it"
        )),
        _ if denied => {
            let own = procfs::owner(pid).is_some_and(|(_, user)| user == os::uid());
            let scope = procfs::sysctl("kernel/yama/ptrace_scope").unwrap_or(0);
            Error::failed(match (own, scope) {
                (true, 1..) => format!(
                    "tracing is restricted (kernel.yama.ptrace_scope is {scope}); run prof as root"
                ),
                (true, _) => {
                    "it has other privileges than you (a setuid program, for example); run prof as \
                              root"
                        .to_owned()
                }
                (false, _) => "it is another user's; run prof as root".to_owned(),
            })
        }
        _ => Error::failed(error.to_string()),
    }
}

/// True if it has not ended, and is not ending: an ending process has no memory any more.
fn lives(pid: i32) -> bool {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(path).unwrap_or_default();
    field(&status, "VmSize").is_some()
        && field(&status, "State").is_some_and(|s| !s.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::has_proc;

    #[test]
    fn mounts_with_and_without_proc() {
        let root = "75 45 254:0 / / rw,relatime - ext4 /dev/vda rw\n";
        let proc = "76 75 0:22 / /proc rw,nosuid shared:5 - proc proc rw\n";
        assert!(!has_proc(root) && has_proc(&format!("{root}{proc}")));
        assert!(!has_proc("") && !has_proc("1 2 0:1 / /a - procfs x rw"));
    }
}
