use super::*;

/// The functions between `__sched_text_start` and `__sched_text_end` of Linux 6.18.
const SCHED_TEXT: &str = "\
    __cond_resched __down __down_common __down_interruptible __down_killable __down_timeout \
    __mutex_lock.constprop.0 __mutex_lock_interruptible_slowpath __mutex_lock_killable_slowpath \
    __mutex_lock_slowpath __mutex_unlock_slowpath.isra.0 __percpu_down_read \
    __rt_mutex_futex_trylock __rt_mutex_futex_unlock __rt_mutex_init __rt_mutex_start_proxy_lock \
    __schedule __up.isra.0 __wait_for_common __wait_on_bit __wait_on_bit_lock \
    __ww_mutex_lock.constprop.0 __ww_mutex_lock_interruptible_slowpath __ww_mutex_lock_slowpath \
    bit_wait bit_wait_io bit_wait_timeout console_conditional_schedule do_nanosleep down \
    down_interruptible down_killable down_read down_read_interruptible down_read_killable \
    down_timeout down_trylock down_write down_write_killable hrtimer_nanosleep_restart \
    io_schedule io_schedule_timeout ldsem_down_read ldsem_down_write mark_wakeup_next_waiter \
    mutex_lock mutex_lock_interruptible mutex_lock_io mutex_lock_killable mutex_trylock \
    mutex_unlock out_of_line_wait_on_bit out_of_line_wait_on_bit_lock \
    out_of_line_wait_on_bit_timeout percpu_down_write preempt_schedule preempt_schedule_irq \
    preempt_schedule_notrace remove_waiter rt_mutex_adjust_pi rt_mutex_adjust_prio_chain \
    rt_mutex_cleanup_proxy_lock rt_mutex_futex_trylock rt_mutex_futex_unlock \
    rt_mutex_init_proxy_locked rt_mutex_lock rt_mutex_lock_interruptible rt_mutex_lock_killable \
    rt_mutex_postunlock rt_mutex_proxy_unlock rt_mutex_slowlock.constprop.0 \
    rt_mutex_slowlock_block.constprop.0 rt_mutex_start_proxy_lock rt_mutex_trylock \
    rt_mutex_unlock rt_mutex_wait_proxy_lock rwsem_down_read_slowpath rwsem_down_write_slowpath \
    schedule schedule_hrtimeout schedule_hrtimeout_range schedule_hrtimeout_range_clock \
    schedule_idle schedule_preempt_disabled schedule_timeout schedule_timeout_idle \
    schedule_timeout_interruptible schedule_timeout_killable schedule_timeout_uninterruptible \
    task_blocks_on_rt_mutex.constprop.0 try_to_take_rt_mutex up usleep_range_state \
    wait_for_completion wait_for_completion_interruptible \
    wait_for_completion_interruptible_timeout wait_for_completion_io \
    wait_for_completion_io_timeout wait_for_completion_killable \
    wait_for_completion_killable_timeout wait_for_completion_state wait_for_completion_timeout \
    ww_mutex_lock ww_mutex_lock_interruptible ww_mutex_unlock yield yield_to";

#[test]
fn the_functions_that_the_kernel_skips_are_the_schedulers() {
    let others: Vec<&str> = SCHED_TEXT.split_whitespace().filter(|n| !is_scheduler(n)).collect();
    assert_eq!(others, [""; 0]);
    for name in ["do_epoll_wait", "futex_do_wait", "pipe_read", "do_wait", "hrtimer_nanosleep"] {
        assert!(!is_scheduler(name), "{name}");
    }
    // Of the kernel, but no scheduling functions.
    for name in ["downgrade_write", "updatedb", "scheduler_tick", "do_sched_yield"] {
        assert!(!is_scheduler(name), "{name}");
    }
}

#[test]
fn methods_of_locks_are_known_in_each_language() {
    for name in [
        "std::mutex::lock()",
        "std::lock_guard<std::mutex>::lock_guard(std::mutex&)",
        "std::unique_lock<std::mutex>::lock()",
        "__gthread_mutex_lock(pthread_mutex_t*)",
        "std::sync::poison::mutex::Mutex<T>::lock",
        "lock_api::mutex::Mutex<R,T>::lock",
        "absl::Mutex::Lock()",
        "ObjectSynchronizer::enter(Handle, BasicLock*, JavaThread*)",
        "uv_mutex_lock",
    ] {
        assert!(is_lock_wrapper(name), "{name}");
    }
    for name in ["pthread_mutex_lock", "boost::mutex::lock()", "LWLockAcquire"] {
        let is_lock = crate::lock_functions::find(name, crate::lock_functions::LockRole::Waits);
        assert!(is_lock.is_some() || is_lock_wrapper(name), "{name}");
    }
    for name in ["main", "Queue::push(std::mutex&)", "app::Cache::get", "read_locked"] {
        assert!(!is_lock_wrapper(name), "{name}");
    }
}
