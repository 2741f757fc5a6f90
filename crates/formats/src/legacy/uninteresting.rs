//! Frames of profilers and allocators: the expressions that pprof adds to these formats, as
//! `drop_frames` and `keep_frames`.

use crate::assembly::Assembly;

/// Functions that allocate or free memory.
const ALLOCATORS: &str = concat!(
    r"calloc|cfree|malloc|free|memalign|do_memalign|(__)?posix_memalign|pvalloc|valloc|realloc|",
    r"tcmalloc::.*|tc_calloc|tc_cfree|tc_malloc|tc_free|tc_memalign|tc_posix_memalign|tc_pvalloc|",
    r"tc_valloc|tc_realloc|tc_new|tc_delete|tc_newarray|tc_deletearray|tc_new_nothrow|",
    r"tc_newarray_nothrow|",
    r"malloc_zone_malloc|malloc_zone_calloc|malloc_zone_valloc|malloc_zone_realloc|",
    r"malloc_zone_memalign|malloc_zone_free|",
    r"runtime\..*|",
    r"BaseArena::.*|(::)?do_malloc_no_errno|(::)?do_malloc_pages|(::)?do_malloc|",
    r"DoSampledAllocation|MallocedMemBlock::MallocedMemBlock|_M_allocate|",
    r"__builtin_(vec_)?delete|__builtin_(vec_)?new|__gnu_cxx::new_allocator::allocate|",
    r"__libc_malloc|__malloc_alloc_template::allocate|allocate|cpp_alloc|operator new(\[\])?|",
    r"simple_alloc::allocate",
);

/// Functions of jemalloc, in addition to [`ALLOCATORS`].
const JEMALLOC: &str = concat!(
    r"aligned_alloc|mallocx|rallocx|xallocx|dallocx|sdallocx|sdallocx_noflags|(je|_rjem)_.*|",
    r"newImpl|void\* newImpl|fallback_impl",
);

/// Functions of Go's runtime that are of interest in the middle of a stack.
const KEPT: &str = r"runtime\.panic|runtime\.reflectcall|runtime\.call[0-9]*";

/// Functions of locks, and of the profiler of locks.
const LOCKS: &str = concat!(
    r"RecordLockProfileData|(base::)?RecordLockProfileData.*|(base::)?SubmitMutexProfileData.*|",
    r"(base::)?SubmitSpinLockProfileData.*|(base::Mutex::)?AwaitCommon.*|(base::Mutex::)?Unlock.*|",
    r"(base::Mutex::)?UnlockSlow.*|(base::Mutex::)?ReaderUnlock.*|(base::MutexLock::)?~MutexLock.*|",
    r"(Mutex::)?AwaitCommon.*|(Mutex::)?Unlock.*|(Mutex::)?UnlockSlow.*|(Mutex::)?ReaderUnlock.*|",
    r"(MutexLock::)?~MutexLock.*|(SpinLock::)?Unlock.*|(SpinLock::)?SlowUnlock.*|",
    r"(SpinLockHolder::)?~SpinLockHolder.*",
);

/// Functions of the profiler of CPU time.
const PROFILER: &str = concat!(
    r"ProfileData::Add|ProfileData::prof_handler|CpuProfiler::prof_handler|__pthread_sighandler|",
    r"__restore",
);

/// What a profile is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Memory,
    /// Memory of jemalloc.
    Jemalloc,
    Locks,
    /// CPU time, or threads.
    Others,
}

/// Sets the frames to drop and to keep.
pub(super) fn set_uninteresting(all: &mut Assembly, subject: Subject) {
    let (drop, keep) = match subject {
        Subject::Memory => (ALLOCATORS.to_owned(), KEPT),
        Subject::Jemalloc => (format!("{ALLOCATORS}|{JEMALLOC}"), KEPT),
        Subject::Locks => (LOCKS.to_owned(), ""),
        Subject::Others => (PROFILER.to_owned(), ""),
    };
    all.profile.drop_frames = all.string(&drop);
    all.profile.keep_frames = all.string(keep);
}
