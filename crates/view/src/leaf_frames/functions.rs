//! The functions of the scheduler, of the block layer, of locks and of allocators, by name.

use crate::filter::without_parameters;
use crate::lock_functions::without_arguments;

/// The kernel's scheduling functions, without leading underscores: those that the kernel itself skips
/// to find where a thread waits (`/proc/PID/wchan`), which lie between `__sched_text_start` and
/// `__sched_text_end`.
const SCHEDULER: &[&str] = &[
    "schedule_",
    "preempt_schedule",
    "io_schedule",
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
    "up_",
    "task_blocks_on_rt_mutex",
    "try_to_take_rt_mutex",
    "remove_waiter",
    "mark_wakeup_next_waiter",
];

/// The same, of which nothing else may follow the name.
const SCHEDULER_EXACTLY: &[&str] = &["schedule", "down", "up"];

/// Functions between a scheduling function and the code that an interrupt or a system call preempts.
const PREEMPTION: &[&str] = &[
    "exit_to_user_mode",
    "irqentry_exit",
    "syscall_exit_to_user_mode",
    "raw_irqentry_exit_cond_resched",
    "asm_sysvec_",
    "sysvec_",
    "asm_common_interrupt",
    "common_interrupt",
    "asm_exc_",
    "exc_page_fault",
    "el0_interrupt",
    "el1_interrupt",
    "el0t_64_irq",
    "el1h_64_irq",
];

/// Functions from a system call's entry to the part that does its work.
const SYSTEM_CALL: &[&str] = &[
    "do_syscall_64",
    "entry_SYSCALL_64",
    "x64_sys_call",
    "entry_SYSENTER",
    "do_el0_svc",
    "el0_svc",
    "el0t_64_sync",
    "invoke_syscall",
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
    "x64_sys_futex",
    "arm64_sys_futex",
    "ia32_sys_futex",
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
    SCHEDULER_EXACTLY.contains(&name) || starts(name, SCHEDULER)
}

/// True for a function of the kernel between the scheduler and the code that was preempted.
pub(super) fn is_preemption(name: &str) -> bool {
    let name = kernel_name(name);
    starts(name, PREEMPTION) || starts(name, SYSTEM_CALL)
}

/// True for a function of the kernel that belongs to a lock.
pub(super) fn is_kernel_lock(name: &str) -> bool {
    starts(kernel_name(name), KERNEL_LOCKS)
}

/// True for the entry of a system call.
pub(super) fn is_system_call(name: &str) -> bool {
    starts(kernel_name(name), SYSTEM_CALL)
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

fn starts(name: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| name.starts_with(start))
}

/// Methods of locks above those of [`lock_functions`](crate::lock_functions), by a part of the name
/// without type arguments.
const LOCK_METHODS: &[&str] = &[
    "Mutex::lock",
    "Mutex::Lock",
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
const LOCK_WRAPPERS: &[&str] = &["gthread_", "uv_mutex_", "uv_rwlock_", "uv_sem_", "mtx_lock"];

/// True for a function that is a lock's method, or wraps one.
pub(super) fn is_lock_wrapper(name: &str) -> bool {
    if name.contains("::") {
        let name = without_arguments(without_parameters(name));
        return LOCK_METHODS.iter().any(|part| name.contains(part));
    }
    starts(name.trim_start_matches('_'), LOCK_WRAPPERS)
}

/// Names of C functions that allocate, or parts of such names: `xmalloc`, `ngx_pcalloc`,
/// `sqlite3_realloc64`, `PyObject_Malloc`.
const ALLOCATING_PARTS: &[&str] = &[
    "malloc", "calloc", "realloc", "zalloc", "palloc", "valloc", "memalign", "Malloc", "Calloc",
    "Realloc", "MALLOC",
];

/// C functions that allocate, by the start of the name without leading underscores.
const ALLOCATING: &[&str] = &[
    "aligned_alloc",
    "strdup",
    "strndup",
    "wcsdup",
    "mmap",
    "mremap",
    "brk",
    "sbrk",
    "libc_alloc",
    "sysmalloc",
    "int_memalign",
    "new_heap",
    "arena_get",
    "tcache_init",
    "je_",
    "jemalloc",
    "tc_new",
    "mi_new",
    "mi_heap_",
    "rust_alloc",
    "rust_realloc",
    "rdl_alloc",
    "rdl_realloc",
    "rg_alloc",
    "rg_realloc",
    "Znwm",
    "Znam",
    "ZnwmS",
    "g_slice_alloc",
    "g_slice_copy",
    "g_strdup",
    "g_strndup",
    "g_memdup",
    "emalloc",
    "estrdup",
    "estrndup",
    "ecalloc",
    "erealloc",
    "zend_mm_",
    "apr_palloc",
    "AllocSet",
    "GenerationAlloc",
    "SlabAlloc",
    "MemoryContext",
    "new_arena",
    "arena_map",
    "allocate_from_new_pool",
    "PyObject_ArenaMmap",
    "PyObject_ArenaAlloc",
    "PyMem_",
    "xstrdup",
    "pstrdup",
    "objspace_x",
    "rb_xmalloc",
];

/// Functions with paths in their names that allocate, by the start of the name without type
/// arguments.
const ALLOCATING_PATHS: &[&str] = &[
    "operator new",
    "std::allocator::",
    "std::allocator_traits::",
    "std::__new_allocator::",
    "__gnu_cxx::new_allocator::",
    "__gnu_cxx::__alloc_traits::",
    "std::__1::allocator",
    "std::__1::__libcpp_allocate",
    "std::__1::__libcpp_operator_new",
    "std::__1::__allocate_at_least",
    "std::__allocate_guarded",
    "tcmalloc::",
    "alloc::alloc::",
    "alloc::raw_vec::",
    "std::alloc::",
    "std::sys::alloc::",
    "std::sys::pal::unix::alloc::",
    "core::alloc::",
    "hashbrown::raw::alloc::",
    "__rustc::__rust_",
    "__rustc::__rdl_",
    "__rustc::__rg_",
];

/// True for a function of a memory allocator, or one that wraps it.
pub(super) fn is_allocator(name: &str) -> bool {
    if name.starts_with("operator new") {
        return true;
    }
    if !name.contains("::") {
        // Its parameters, if it has any, are no part of the name.
        let name = name.split_once('(').map_or(name, |(name, _)| name);
        let is_plain = !name.contains(['.', '/', ' ', '<']) || name.contains(".part.");
        let is_listed = starts(name.trim_start_matches('_'), ALLOCATING);
        return is_plain && (is_listed || ALLOCATING_PARTS.iter().any(|part| name.contains(part)));
    }
    let name = path(name);
    starts(&name, ALLOCATING_PATHS) || is_storage_of_container(&name)
}

/// The path of a function without types and parameters: `T std::f<T>(T)` → `std::f`; of
/// `<A as B>::f`, as Rust writes it, `A`.
fn path(name: &str) -> String {
    let name = without_arguments(without_parameters(name));
    let name = name.split_once(" as ").map_or(&*name, |(implementor, _)| implementor);
    name.rsplit(' ').next().unwrap_or_default().to_owned()
}

/// True for a method in which containers of libstdc++ allocate: `std::vector::_M_realloc_insert`.
fn is_storage_of_container(name: &str) -> bool {
    const METHODS: &[&str] = &[
        "_M_allocate",
        "_M_create",
        "_M_get_node",
        "_M_realloc",
        "_S_allocate",
        "_M_new_elements",
    ];
    let method = name.rsplit("::").next().unwrap_or_default();
    name.contains("std::") && starts(method, METHODS)
}

#[cfg(test)]
mod tests;
