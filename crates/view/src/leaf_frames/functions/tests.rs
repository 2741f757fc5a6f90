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
fn allocators_are_known_in_each_language() {
    for name in [
        "malloc",
        "__libc_malloc",
        "__GI___libc_malloc",
        "_int_malloc",
        "calloc",
        "posix_memalign",
        "strdup",
        "operator new(unsigned long)",
        "operator new[](unsigned long, std::align_val_t)",
        "zmalloc_usable",
        "ztrycalloc_usable_internal",
        "_PyMem_RawMalloc",
        "PyObject_Malloc",
        "_PyObject_Malloc",
        "g_malloc0",
        "g_slice_alloc",
        "ngx_pcalloc",
        "sqlite3_realloc64",
        "AllocSetAlloc",
        "MemoryContextAllocZero",
        "palloc0",
        "je_mallocx",
        "ruby_xmalloc2_body",
        "_emalloc",
        "CRYPTO_zalloc",
        "std::allocator<int>::allocate(unsigned long)",
        "std::__new_allocator<int>::allocate(unsigned long, void const*)",
        "std::_Vector_base<int, std::allocator<int> >::_M_allocate(unsigned long)",
        "void std::vector<int, std::allocator<int> >::_M_realloc_insert<int const&>(\
         __gnu_cxx::__normal_iterator<int*, std::vector<int, std::allocator<int> > >, int const&)",
        "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::\
         _M_create(unsigned long&, unsigned long)",
        "alloc::alloc::alloc",
        "alloc::alloc::Global::alloc_impl",
        "<alloc::alloc::Global as core::alloc::Allocator>::allocate",
        "alloc::raw_vec::RawVec<T,A>::grow_one",
        "alloc::raw_vec::RawVecInner<A>::try_allocate_in",
        "alloc::raw_vec::finish_grow",
        "__rustc::__rust_alloc",
        "__rust_realloc",
        "__rdl_alloc",
        "std::sys::alloc::unix::<impl core::alloc::global::GlobalAlloc for std::alloc::System>::alloc",
    ] {
        assert!(is_allocator(name), "{name}");
    }
    for name in [
        "main",
        "allocate_buffers",
        "buffer_allocate",
        "Table::allocate(int)",
        "app::alloc::Pool::take",
        "std::vector<int, std::allocator<int> >::push_back(int const&)",
        "alloc::vec::Vec<T,A>::push",
        "alloc::string::String::push_str",
        "runtime.newobject",
        "createObject",
        "mallocated::reader::Reader::read",
        "parse(std::allocator<char> const&)",
    ] {
        assert!(!is_allocator(name), "{name}");
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
    for name in ["main", "Queue::push(std::mutex&)", "app::Cache::get", "read_locked"] {
        assert!(!is_lock_wrapper(name), "{name}");
    }
}
