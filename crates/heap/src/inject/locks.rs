//! Owners of the locks of glibc's dynamic loader.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// TIDs (in the process's namespace) of the threads that hold a lock in `_rtld_global`; none if it
/// cannot be read.
pub fn owners(memory: &File, address: u64, size: u64) -> Vec<i32> {
    /// Larger than in any glibc.
    const MOST: u64 = 64 << 10;
    let mut bytes = vec![0; size.min(MOST) as usize];
    match memory.read_exact_at(&mut bytes, address) {
        Ok(()) => owners_in(&bytes),
        Err(_) => Vec::new(),
    }
}

/// Held recursive mutexes are recognized by their fields: state 1 or 2, depth, owner, users, kind 1
/// (`struct __pthread_mutex_s` in glibc's sysdeps/nptl/bits/struct_mutex.h, for 64 bits).
fn owners_in(bytes: &[u8]) -> Vec<i32> {
    const DEEPEST: u32 = 1000;
    const USERS: u32 = 1 << 16;
    let words: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|w| u32::from_ne_bytes(*w)).collect();
    let held = |w: &&[u32]| {
        let [state, depth, owner, users, kind] = **w else { return false };
        matches!(state, 1 | 2)
            && (1..DEEPEST).contains(&depth)
            && (1..=i32::MAX as u32).contains(&owner)
            && (1..USERS).contains(&users)
            && kind == 1
    };
    words.windows(5).filter(held).map(|w| w[2] as i32).collect()
}

/// TID of a thread in its own PID namespace.
pub fn inner_tid(pid: i32, tid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutex_that_is_held() {
        let bytes =
            |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_ne_bytes()).collect() };
        let held = [0, 9, 2, 1, 4711, 1, 1, 0, 0, 0];
        assert_eq!(owners_in(&bytes(&held)), [4711]);
        let free = [0, 9, 0, 0, 0, 0, 1, 0, 0, 0];
        assert!(owners_in(&bytes(&free)).is_empty());
        assert!(owners_in(&[]).is_empty());
        let pid = std::process::id() as i32;
        assert!(inner_tid(pid, pid).is_some());
    }
}
