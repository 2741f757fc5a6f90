//! The heap library in processes that run already.

use std::path::Path;

use super::{Prof, Running};

/// `prof record -p PID -T heap --inject`, to be interrupted.
pub fn endless(dir: impl AsRef<Path>, pid: i32, more: &str) -> Running {
    Prof::new(dir, &format!("record -T heap --inject -d 120s -p {pid} {more}")).start()
}

/// Waits until prof has put its library into a process, and samples.
#[track_caller]
pub fn wait_for_library(prof: Running, pid: i32) -> Running {
    let prof = prof.sampling();
    assert!(maps(pid).contains("memfd:prof-heap-ring"), "{}", maps(pid));
    prof
}

/// True when the memory that prof shares is mapped there, and prof waits for records.
pub fn samples(prof: &Running, pid: i32) -> bool {
    let call = std::fs::read_to_string(format!("/proc/{}/syscall", prof.pid()));
    let polls = call.unwrap_or_default().starts_with(&format!("{} ", libc::SYS_poll));
    polls && maps(pid).contains("memfd:prof-heap-ring")
}

/// The mappings of a process.
pub fn maps(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default()
}
