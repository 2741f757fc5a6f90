//! AArch64: the kernel's `arch/arm64`.

use std::io;

use super::CallArguments;
use crate::sampler::events::EventSpec;
use crate::sampler::probes::At;
use crate::sampler::types::NamedCalls;

/// Longest instruction in bytes.
pub const LONGEST_INSTRUCTION: u64 = 4;

/// First instruction of functions that may be called indirectly, behind which a probe is cheaper:
/// none. The kernel emulates `bti`, and `paciasp` belongs to the frame.
pub const ENTRY_MARK: &[u8; 0] = &[];

/// Field of `thread_info` that marks system calls of 32-bit programs.
pub const COMPAT_FIELD: &str = "flags";
/// Its bit: `TIF_32BIT`.
pub const COMPAT_BIT: i32 = 1 << 22;

/// Field of `task_struct` with the address of the thread's control block, above its stack.
pub const THREAD_POINTER: &[&str] = &["thread", "uw", "tp_value"];

/// Name of the CPU's performance monitoring unit in sysfs, if all cores are alike.
pub const CPU_PMU: &str = "armv8_pmuv3_0";

/// Field of `pt_regs` with the instruction pointer.
pub const IP_FIELD: &str = "pc";

/// Field of `pt_regs` with the frame pointer, and its offset in that field.
pub const FRAME_POINTER: (&str, i16) = ("regs", 29 * 8);

/// Offsets of a system call's number and arguments in `pt_regs`, whose fields `offset` finds.
///
/// The number is in x8, the arguments are in x0 to x5. The result replaces x0, which is kept in
/// `orig_x0`.
pub fn call_arguments(offset: impl Fn(&str) -> io::Result<i16>) -> io::Result<CallArguments> {
    let registers = offset("regs")?;
    Ok(CallArguments {
        number: registers + 8 * 8,
        first: offset("orig_x0")?,
        second: registers + 8,
        third: registers + 2 * 8,
    })
}

/// Loads the cache line at an address soon: not yet, as stable Rust has no intrinsic for `prfm`.
#[inline]
pub fn prefetch(_at: *const u8) {}

/// The instruction `into` bytes behind the start of this code. All have four bytes. Which of them
/// the kernel emulates is not distinguished: each counts as single-stepped.
pub fn instruction_at(code: &[u8], into: u64) -> At {
    match into % LONGEST_INSTRUCTION {
        0 if into + LONGEST_INSTRUCTION <= code.len() as u64 => At::Stepped,
        0 => At::Unknown,
        _ => At::Middle,
    }
}

/// Misses in the second-level cache, for the CPU described by `/proc/cpuinfo`: not known. The event
/// is 0x17 (`L2D_CACHE_REFILL`), of a PMU whose type depends on the CPU's cores.
pub fn l2_misses(_cpuinfo: &str) -> Option<EventSpec> {
    None
}

/// System calls that other architectures number differently (`scripts/syscall.tbl`, with
/// `renameat` and `rlimit`).
pub const SYSTEM_CALLS: &[NamedCalls] = &[
    NamedCalls {
        first: 0,
        names: "\
        io_setup io_destroy io_submit io_cancel io_getevents setxattr lsetxattr fsetxattr \
        getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr \
        fremovexattr getcwd lookup_dcookie eventfd2 epoll_create1 epoll_ctl epoll_pwait dup \
        dup3 fcntl inotify_init1 inotify_add_watch inotify_rm_watch ioctl ioprio_set \
        ioprio_get flock mknodat mkdirat unlinkat symlinkat linkat renameat umount2 mount \
        pivot_root nfsservctl statfs fstatfs truncate ftruncate fallocate faccessat chdir \
        fchdir chroot fchmod fchmodat fchownat fchown openat close vhangup pipe2 quotactl \
        getdents64 lseek read write readv writev pread64 pwrite64 preadv pwritev sendfile \
        pselect6 ppoll signalfd4 vmsplice splice tee readlinkat newfstatat fstat sync fsync \
        fdatasync sync_file_range timerfd_create timerfd_settime timerfd_gettime utimensat \
        acct capget capset personality exit exit_group waitid set_tid_address unshare futex \
        set_robust_list get_robust_list nanosleep getitimer setitimer kexec_load init_module \
        delete_module timer_create timer_gettime timer_getoverrun timer_settime timer_delete \
        clock_settime clock_gettime clock_getres clock_nanosleep syslog ptrace sched_setparam \
        sched_setscheduler sched_getscheduler sched_getparam sched_setaffinity \
        sched_getaffinity sched_yield sched_get_priority_max sched_get_priority_min \
        sched_rr_get_interval restart_syscall kill tkill tgkill sigaltstack rt_sigsuspend \
        rt_sigaction rt_sigprocmask rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigreturn \
        setpriority getpriority reboot setregid setgid setreuid setuid setresuid getresuid \
        setresgid getresgid setfsuid setfsgid times setpgid getpgid getsid setsid getgroups \
        setgroups uname sethostname setdomainname getrlimit setrlimit getrusage umask prctl \
        getcpu gettimeofday settimeofday adjtimex getpid getppid getuid geteuid getgid getegid \
        gettid sysinfo mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr \
        msgget msgctl msgrcv msgsnd semget semctl semtimedop semop shmget shmctl shmat shmdt \
        socket socketpair bind listen accept connect getsockname getpeername sendto recvfrom \
        setsockopt getsockopt shutdown sendmsg recvmsg readahead brk munmap mremap add_key \
        request_key keyctl clone execve mmap fadvise64 swapon swapoff mprotect msync mlock \
        munlock mlockall munlockall mincore madvise remap_file_pages mbind get_mempolicy \
        set_mempolicy migrate_pages move_pages rt_tgsigqueueinfo perf_event_open accept4 \
        recvmmsg",
    },
    NamedCalls {
        first: 260,
        names: "\
        wait4 prlimit64 fanotify_init fanotify_mark name_to_handle_at open_by_handle_at \
        clock_adjtime syncfs setns sendmmsg process_vm_readv process_vm_writev kcmp \
        finit_module sched_setattr sched_getattr renameat2 seccomp getrandom memfd_create bpf \
        execveat userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect \
        pkey_alloc pkey_free statx io_pgetevents rseq kexec_file_load",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_have_four_bytes() {
        let code = [0; 10];
        let at: Vec<At> = [0, 1, 4, 8, 9].map(|into| instruction_at(&code, into)).into();
        assert_eq!(at, [At::Stepped, At::Middle, At::Stepped, At::Unknown, At::Middle]);
    }

    #[test]
    fn arguments_are_in_the_first_registers() {
        let offset = |name: &str| match name {
            "regs" => Ok(0),
            "orig_x0" => Ok(272),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        let found = call_arguments(offset).unwrap();
        assert_eq!((found.number, found.first, found.second, found.third), (64, 272, 8, 16));
    }

    /// As `asm-generic/unistd.h` numbers them.
    #[test]
    fn system_calls_have_their_numbers() {
        let name = |number: usize| {
            let calls = SYSTEM_CALLS.iter().rfind(|calls| calls.first <= number).unwrap();
            calls.names.split(' ').nth(number - calls.first)
        };
        let some = [63, 93, 98, 139, 222, 243, 244, 260, 279, 294, 295].map(name);
        let expected = [
            Some("read"),
            Some("exit"),
            Some("futex"),
            Some("rt_sigreturn"),
            Some("mmap"),
            Some("recvmmsg"),
            None,
            Some("wait4"),
            Some("memfd_create"),
            Some("kexec_file_load"),
            None,
        ];
        assert_eq!(some, expected);
    }
}
