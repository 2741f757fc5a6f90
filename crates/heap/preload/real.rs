//! The real functions behind the hooks.

use core::ffi::CStr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize};

use crate::arch::{nothing, stub};
use crate::layout::MAX_RANGES;
use crate::symbols::{Object, each_object, this_library};

macro_rules! real_functions {
    ($($name:ident = $symbol:literal,)*) => {
        /// An interposed function.
        #[derive(Clone, Copy)]
        #[repr(usize)]
        pub enum Real { $($name,)* }

        /// Their names.
        const NAMES: &[&CStr] = &[$($symbol,)*];

        /// Addresses of the functions; initially of stubs that resolve them.
        pub static REAL: [AtomicPtr<u8>; NAMES.len()] =
            [$(AtomicPtr::new(stub::<{ Real::$name as usize }> as *mut u8),)*];

        /// The stubs.
        const STUBS: &[unsafe extern "C" fn()] = &[$(stub::<{ Real::$name as usize }>,)*];
    };
}

real_functions! {
    Malloc = c"malloc",
    Calloc = c"calloc",
    Realloc = c"realloc",
    ReallocArray = c"reallocarray",
    Free = c"free",
    Memalign = c"memalign",
    AlignedAlloc = c"aligned_alloc",
    PosixMemalign = c"posix_memalign",
    Valloc = c"valloc",
    Pvalloc = c"pvalloc",
    New = c"_Znwm",
    NewArray = c"_Znam",
    NewNothrow = c"_ZnwmRKSt9nothrow_t",
    NewArrayNothrow = c"_ZnamRKSt9nothrow_t",
    NewAligned = c"_ZnwmSt11align_val_t",
    NewArrayAligned = c"_ZnamSt11align_val_t",
    NewAlignedNothrow = c"_ZnwmSt11align_val_tRKSt9nothrow_t",
    NewArrayAlignedNothrow = c"_ZnamSt11align_val_tRKSt9nothrow_t",
    Delete = c"_ZdlPv",
    DeleteArray = c"_ZdaPv",
    DeleteSized = c"_ZdlPvm",
    DeleteArraySized = c"_ZdaPvm",
    DeleteNothrow = c"_ZdlPvRKSt9nothrow_t",
    DeleteArrayNothrow = c"_ZdaPvRKSt9nothrow_t",
    DeleteAligned = c"_ZdlPvSt11align_val_t",
    DeleteArrayAligned = c"_ZdaPvSt11align_val_t",
    DeleteSizedAligned = c"_ZdlPvmSt11align_val_t",
    DeleteArraySizedAligned = c"_ZdaPvmSt11align_val_t",
    DeleteAlignedNothrow = c"_ZdlPvSt11align_val_tRKSt9nothrow_t",
    DeleteArrayAlignedNothrow = c"_ZdaPvSt11align_val_tRKSt9nothrow_t",
    MiMalloc = c"mi_malloc",
    MiZalloc = c"mi_zalloc",
    MiCalloc = c"mi_calloc",
    MiRealloc = c"mi_realloc",
    MiZallocAligned = c"mi_zalloc_aligned",
    MiReallocAligned = c"mi_realloc_aligned",
    MiFree = c"mi_free",
    MallocX = c"mallocx",
    RallocX = c"rallocx",
    DallocX = c"dallocx",
    SdallocX = c"sdallocx",
    TcMalloc = c"tc_malloc",
    TcFree = c"tc_free",
    Mmap = c"mmap",
    Mmap64 = c"mmap64",
    Munmap = c"munmap",
}

/// 1: `operator new` does not call `malloc` (jemalloc's and mimalloc's own), so its hook counts.
pub static NEW_COUNTS: AtomicU8 = AtomicU8::new(0);

/// 1: anonymous mappings count as allocations.
pub static MAPPINGS_COUNT: AtomicU8 = AtomicU8::new(0);

/// Address range of the allocator, if that is not the C library; its own calls are not counted.
static ALLOCATOR: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// Address ranges of functions that call the allocator for others.
static WRAPPERS: [AtomicUsize; 2 * MAX_RANGES] = [const { AtomicUsize::new(0) }; 2 * MAX_RANGES];

/// Resolves all functions that exist. Concurrent calls are allowed.
pub fn find_all() {
    let mut allocator = (0, 0);
    each_object(|object| {
        for (i, name) in NAMES.iter().enumerate() {
            let found = || object.function(name);
            if is_missing(i)
                && let Some(function) = found()
            {
                REAL[i].store(function.address as *mut u8, Release);
            }
        }
        if allocator == (0, 0) && object.function(c"malloc").is_some() {
            allocator = object.range;
            let is_libc = object.function(c"__libc_start_main").is_some();
            if !is_libc {
                ALLOCATOR[0].store(allocator.0, Relaxed);
                ALLOCATOR[1].store(allocator.1, Release);
            }
        }
        false
    });
    find_wrappers(allocator);
}

/// Finds functions outside the allocator that do not count as callers.
fn find_wrappers(allocator: (usize, usize)) {
    let new = REAL[Real::New as usize].load(Relaxed) as usize;
    let counts = !is_missing(Real::New as usize) && (allocator.0..allocator.1).contains(&new);
    NEW_COUNTS.store(u8::from(counts), Release);
    let mut next = 0;
    each_object(|object: &Object| {
        let wrappers = NAMES[Real::New as usize..=Real::NewArrayAlignedNothrow as usize].iter();
        for name in wrappers.chain([&c"reallocarray"]) {
            if let Some(function) = object.function(name)
                && next + 1 < WRAPPERS.len()
            {
                WRAPPERS[next].store(function.address, Relaxed);
                WRAPPERS[next + 1].store(function.address + function.size, Relaxed);
                next += 2;
            }
        }
        false
    });
}

/// First and limit addresses of functions that call the allocator for others.
pub fn wrappers() -> impl Iterator<Item = usize> {
    WRAPPERS.iter().map(|word| word.load(Relaxed)).take_while(|&word| word != 0)
}

/// True if a code address is in the allocator itself.
pub fn in_allocator(address: usize) -> bool {
    (ALLOCATOR[0].load(Relaxed)..ALLOCATOR[1].load(Relaxed)).contains(&address)
}

/// True if the object is the allocator, and not the C library.
pub fn is_allocator(object: &Object) -> bool {
    let start = ALLOCATOR[0].load(Relaxed);
    start != 0 && start == object.range.0
}

/// Addresses of the hooks that are active.
static HOOKS: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

/// Resolves all functions, and their hooks.
pub fn find_hooks() {
    find_all();
    this_library(|object| {
        for (i, name) in NAMES.iter().enumerate() {
            let hook = object.function(name).map_or(0, |function| function.address);
            HOOKS[i].store(hook, Relaxed);
        }
    });
}

/// The hook and the real function for a symbol, and true if the hook is active: C++ operators are
/// not if they call `malloc`, mappings only if they count.
pub fn hook_for(is_of: impl Fn(&CStr) -> bool) -> Option<(usize, usize, bool)> {
    let i = NAMES.iter().position(|name| is_of(name))?;
    let is = |first: Real, last: Real| (first as usize..=last as usize).contains(&i);
    let counts = |of: &AtomicU8| of.load(Relaxed) != 0;
    let operator = is(Real::New, Real::DeleteArrayAlignedNothrow);
    let mapping = is(Real::Mmap, Real::Munmap);
    let counted = (!operator || counts(&NEW_COUNTS)) && (!mapping || counts(&MAPPINGS_COUNT));
    let hook = HOOKS[i].load(Relaxed);
    let found = hook != 0 && !is_missing(i);
    found.then(|| (hook, REAL[i].load(Acquire) as usize, counted))
}

fn is_missing(i: usize) -> bool {
    REAL[i].load(Acquire) == STUBS[i] as *mut u8
}

/// Address of a function; that of one that returns null if no object defines it.
///
/// It is resolved each time: the library that defines it may be loaded later.
pub extern "C" fn find(i: usize) -> *mut u8 {
    find_all();
    if is_missing(i) { nothing as *mut u8 } else { REAL[i].load(Acquire) }
}
