//! The names of system calls by their numbers.
//!
//! From the kernel's tables (Linux 6.17). Numbers are never reused, so a newer kernel only adds
//! some.

use crate::sampler::arch;

/// Names of system calls with consecutive numbers.
pub struct NamedCalls {
    /// Number of the first one.
    pub first: usize,
    /// The names, separated by spaces.
    pub names: &'static str,
}

/// Calls that have the same number on all architectures.
const COMMON: NamedCalls = NamedCalls {
    first: 424,
    names: "\
    pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount \
    fsopen fsconfig fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2 \
    process_madvise epoll_pwait2 mount_setattr quotactl_fd landlock_create_ruleset \
    landlock_add_rule landlock_restrict_self memfd_secret process_mrelease futex_waitv \
    set_mempolicy_home_node cachestat fchmodat2 map_shadow_stack futex_wake futex_wait \
    futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal \
    setxattrat getxattrat listxattrat removexattrat open_tree_attr file_getattr file_setattr",
};

/// The names of all system calls by number; unknown ones are empty.
pub fn names() -> Vec<&'static str> {
    let mut names = Vec::new();
    for calls in arch::SYSTEM_CALLS.iter().chain([&COMMON]) {
        names.resize(calls.first, "");
        names.extend(calls.names.split(' '));
    }
    names
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_are_those_of_the_c_library() {
        let names = super::names();
        let name = |number: libc::c_long| names[number as usize];
        assert_eq!((name(libc::SYS_read), name(libc::SYS_futex)), ("read", "futex"));
        assert_eq!((name(libc::SYS_exit_group), name(libc::SYS_rseq)), ("exit_group", "rseq"));
        let new = [libc::SYS_pidfd_send_signal, libc::SYS_openat2, libc::SYS_mseal].map(name);
        assert_eq!(new, ["pidfd_send_signal", "openat2", "mseal"]);
        assert_eq!(names.iter().position(|n| *n == "file_setattr"), Some(469));
    }
}
