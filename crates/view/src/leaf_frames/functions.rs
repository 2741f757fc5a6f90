//! The functions of the scheduler, of the block layer, of locks and of allocators, by name.

use super::arch;
use crate::filter::without_parameters;
use crate::lock_functions::without_arguments;

/// The kernel's scheduling functions, without leading underscores: those that the kernel itself skips
/// to find where a thread waits (`/proc/PID/wchan`), which lie between `__sched_text_start` and
/// `__sched_text_end`; and those of poll(2) and of wait queues that only call them.
const SCHEDULER: &[&str] = &[
    "schedule_",
    "preempt_schedule",
    "io_schedule",
    "sched_submit_work",
    "poll_schedule_timeout",
    "cond_resched",
    "console_conditional_schedule",
    "yield",
    "do_nanosleep",
    "hrtimer_nanosleep_restart",
    "usleep_range",
    "bit_wait",
    "wait_on_bit",
    "out_of_line_wait_on",
    "wait_for_common",
    "wait_for_completion",
    "wait_woken",
    "mutex_",
    "ww_mutex_",
    "rt_mutex_",
    "rtlock_",
    "rwsem_",
    "rwbase_",
    "ldsem_",
    "percpu_down",
    "percpu_rwsem",
    "down_",
    "task_blocks_on_rt_mutex",
    "try_to_take_rt_mutex",
    "remove_waiter",
    "mark_wakeup_next_waiter",
];

/// The same, of which nothing else may follow the name.
const SCHEDULER_EXACTLY: &[&str] = &["schedule", "down", "up"];

/// The scheduling functions in which waits begin.
const SLEEP: &[&str] =
    &["schedule_", "preempt_schedule", "io_schedule", "poll_schedule_timeout", "wait_woken"];

/// Functions between a scheduling function and the code that an interrupt or a system call preempts,
/// from Linux 4.14 on, in addition to those of an [architecture](arch::PREEMPTION).
const PREEMPTION: &[&str] = &[
    "exit_to_user_mode",
    "exit_to_usermode_loop",
    "prepare_exit_to_usermode",
    "syscall_exit_work",
    "do_notify_resume",
    "ret_to_user",
    "work_pending",
    "irqentry_exit",
    "syscall_exit_to_user_mode",
    "raw_irqentry_exit_cond_resched",
];

/// The kernel's spin locks, and the waits of futexes.
const KERNEL_LOCKS: &[&str] = &[
    "raw_spin_",
    "raw_read_",
    "raw_write_",
    "queued_spin_lock",
    "queued_read_lock",
    "queued_write_lock",
    "pv_queued_spin",
    "native_queued_spin",
    "resilient_",
    "futex_",
    "do_futex",
    "se_sys_futex",
    "do_sys_futex",
];

/// The block layer, device mapper and software RAID, and drivers.
const BLOCK_LAYER: &[&str] = &[
    "blk_",
    "submit_bio",
    "bio_",
    "elv_",
    "dd_",
    "bfq_",
    "kyber_",
    "scsi_",
    "sd_",
    "nvme_",
    "virtblk_",
    "virtio_queue_rq",
    "ata_",
    "ahci_",
    "mmc_",
    "dm_",
    "md_",
    "raid",
    "loop_",
    "nbd_",
    "zram_",
    "blkif_",
    "xen_blk",
    "rq_qos_",
    "wbt_",
];

/// True for a function of the kernel's scheduler.
pub(super) fn is_scheduler(name: &str) -> bool {
    let name = kernel_name(name);
    SCHEDULER_EXACTLY.contains(&name) || starts(name, SCHEDULER) || is_in(name, &arch::SCHEDULER)
}

/// True for the function of the kernel's scheduler that a thread calls to wait.
pub(super) fn is_sleep(name: &str) -> bool {
    let name = kernel_name(name);
    name == "schedule" || starts(name, SLEEP) || is_in(name, &arch::SCHEDULER)
}

/// True for a function of the kernel between the scheduler and the code that was preempted.
pub(super) fn is_preemption(name: &str) -> bool {
    let name = kernel_name(name);
    starts(name, PREEMPTION) || is_in(name, &arch::PREEMPTION) || is_in(name, &arch::SYSTEM_CALL)
}

/// True for a function of the kernel that belongs to a lock.
pub(super) fn is_kernel_lock(name: &str) -> bool {
    let name = kernel_name(name);
    starts(name, KERNEL_LOCKS) || is_in(name, &arch::FUTEX)
}

/// True for the entry of a system call.
pub(super) fn is_system_call(name: &str) -> bool {
    is_in(kernel_name(name), &arch::SYSTEM_CALL)
}

/// True for a function of the kernel that handles a request of a block device.
pub(super) fn is_block_layer(name: &str) -> bool {
    starts(kernel_name(name), BLOCK_LAYER)
}

/// `__mutex_lock.constprop.0` → `mutex_lock`.
fn kernel_name(name: &str) -> &str {
    let name = name.trim_start_matches('_');
    name.split_once('.').map_or(name, |(name, _)| name)
}

/// True for a function that makes a system call for a lock, or parks a thread for one.
pub(super) fn is_below_lock(name: &str) -> bool {
    ["futex", "syscall", "park", "Park"].iter().any(|part| name.contains(part))
}

/// True if a name begins as one of these of an architecture.
fn is_in(name: &str, beginnings: &[&[&str]]) -> bool {
    beginnings.iter().any(|beginnings| starts(name, beginnings))
}

pub(super) fn starts(name: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| name.starts_with(start))
}

/// Methods of locks above those of [`lock_functions`](crate::lock_functions), by a part of the name
/// without type arguments.
const LOCK_METHODS: &[&str] = &[
    "Mutex::lock",
    "Mutex::Lock",
    "boost::mutex::",
    "boost::unique_lock::",
    "boost::lock_guard::",
    "Monitor::lock",
    "MutexLock",
    "RwLock::read",
    "RwLock::write",
    "std::mutex::",
    "std::timed_mutex::",
    "std::recursive_mutex::",
    "std::recursive_timed_mutex::",
    "std::shared_mutex::",
    "std::__shared_mutex",
    "std::shared_timed_mutex::",
    "std::__mutex_base::",
    "std::__timed_mutex_impl::",
    "std::lock_guard::",
    "std::unique_lock::",
    "std::shared_lock::",
    "std::scoped_lock::",
    "std::call_once",
    "std::__1::mutex::",
    "std::__1::lock_guard::",
    "std::__1::unique_lock::",
    "lock_api::",
    "OnceLock::",
    "LazyLock::",
    "sync::once::",
    "ObjectSynchronizer::",
    "SharedRuntime::complete_monitor_locking",
    "SharedRuntime::monitor_enter_helper",
];

/// C functions of locks above those of [`lock_functions`](crate::lock_functions).
const LOCK_WRAPPERS: &[&str] = &[
    "gthread_",
    "uv_mutex_",
    "uv_rwlock_",
    "uv_sem_",
    "mtx_lock",
    // PostgreSQL.
    "PGSemaphoreLock",
    "LWLockAcquire",
    "LWLockQueue",
    "LWLockWait",
];

/// True for a function that is a lock's method, or wraps one.
pub(super) fn is_lock_wrapper(name: &str) -> bool {
    if name.contains("::") {
        let name = without_arguments(without_parameters(name));
        return LOCK_METHODS.iter().any(|part| name.contains(part));
    }
    starts(name.trim_start_matches('_'), LOCK_WRAPPERS)
}

#[cfg(test)]
mod tests;
