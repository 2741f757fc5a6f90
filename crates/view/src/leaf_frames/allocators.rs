//! Functions that allocate memory, and those of standard libraries that only call them, by name.

use super::functions::starts;
use crate::binaries::base_name;
use crate::filter::without_parameters;
use crate::lock_functions::without_arguments;

/// Beginnings of the names of libraries that only allocate.
const LIBRARIES: &[&str] = &["libjemalloc", "libtcmalloc", "libmimalloc", "libsnmalloc"];

/// Ends of words that say what a function does: `xmalloc`, `ngx_pcalloc`, `PyMem_RawMalloc`.
const ALLOCATING: &[&str] =
    &["malloc", "calloc", "realloc", "zalloc", "palloc", "valloc", "memalign"];

/// Words after such a word, in the names of allocators and their wrappers.
const VARIANTS: &[&str] = &[
    "usable",
    "internal",
    "array",
    "aligned",
    "extended",
    "large",
    "small",
    "body",
    "impl",
    "node",
    "track",
    "caller",
    "debug",
    "slow",
    "fast",
    "n",
    "hook",
    "check",
    "consolidate",
    "default",
];

/// C functions that allocate, without leading underscores.
const FUNCTIONS: &[&str] = &[
    "aligned_alloc",
    "strdup",
    "strndup",
    "wcsdup",
    "mmap",
    "mmap64",
    "mremap",
    "brk",
    "sbrk",
    "new_heap",
    "arena_get2",
    "tcache_init",
    "xstrdup",
    "xstrndup",
    "pstrdup",
    "zstrdup",
    "estrdup",
    "estrndup",
    "g_strdup",
    "g_strndup",
    "g_memdup",
    "g_memdup2",
    "g_slice_alloc",
    "g_slice_alloc0",
    "g_slice_copy",
    "ngx_alloc",
    "ngx_pnalloc",
    "AllocateHeap",
    "Znwm",
    "Znam",
    "ZnwmSt11align_val_t",
    "allocate_from_new_pool",
    "arena_map_get",
    "new_arena",
    "gc_alloc",
    "PyObject_ArenaMmap",
    "PyObject_GC_New",
    "PyObject_GC_NewVar",
];

/// Beginnings of the names of C functions that allocate, without leading underscores.
const BEGINNINGS: &[&str] = &[
    "je_",
    "mi_heap_",
    "zend_mm_alloc",
    "AllocSetAlloc",
    "GenerationAlloc",
    "SlabAlloc",
    "MemoryContextAlloc",
    "objspace_x",
    "rust_alloc",
    "rust_realloc",
    "rdl_alloc",
    "rdl_realloc",
    "rg_alloc",
    "rg_realloc",
];

/// Beginnings of paths: allocators of C++ and Rust, and what of their libraries holds memory.
const PATHS: &[&str] = &[
    "tcmalloc::",
    "__gnu_cxx::",
    "std::allocator",
    "std::__new_allocator::",
    "std::__allocate",
    "std::__1::",
    "std::pmr::",
    "std::vector::",
    "std::_Vector_base::",
    "std::basic_string::",
    "std::string::",
    "std::__cxx11::",
    "std::deque::",
    "std::_Deque_base::",
    "std::forward_list::",
    "std::map::",
    "std::multimap::",
    "std::set::",
    "std::multiset::",
    "std::_Rb_tree::",
    "std::unordered_",
    "std::_Hashtable::",
    "std::__detail::",
    "std::function::",
    "std::_Function",
    "std::shared_ptr::",
    "std::__shared_",
    "std::make_shared",
    "std::make_unique",
    "std::_Construct",
    "std::construct_at",
    "std::__uninitialized",
    "std::uninitialized_",
    "std::__do_uninit",
    "alloc::",
    "core::alloc::",
    "std::alloc::",
    "std::collections::",
    "std::sys::alloc::",
    "std::sys::pal::unix::alloc::",
    "hashbrown::",
    "__rustc::__rust_",
    "__rustc::__rdl_",
    "__rustc::__rg_",
];

/// True for the path of a library that only allocates.
pub(super) fn is_library(path: &str) -> bool {
    starts(base_name(path), LIBRARIES)
}

/// True for a function of a memory allocator, one that wraps it, or one of a container.
pub(super) fn is_allocator(name: &str) -> bool {
    let name = path(name);
    let last = name.rsplit("::").next().unwrap_or_default();
    if last.starts_with("operator new") {
        return true;
    }
    // A method of a type may allocate something else.
    let is_path = last.len() < name.len();
    if is_path && starts(&name, PATHS) {
        return true;
    }
    let bare = last.trim_start_matches('_');
    let is_listed = FUNCTIONS.contains(&bare) || starts(bare, BEGINNINGS);
    !is_path && is_listed || has_allocating_word(bare)
}

/// True if a word of a name is that of an allocator, and no others follow than those of its variants.
fn has_allocating_word(name: &str) -> bool {
    // Clones of a compiler: `xmalloc.part.0`.
    let name = name.split('.').next().unwrap_or_default();
    let mut words = name.split('_').map(|word| word.trim_end_matches(|c: char| c.is_ascii_digit()));
    let is_allocating = |word: &str| {
        let word = word.to_ascii_lowercase();
        let word = word.strip_suffix('x').unwrap_or(&word);
        ALLOCATING.iter().any(|end| word.ends_with(end)) && !word.ends_with("prealloc")
    };
    words.any(is_allocating)
        && words.all(|word| word.is_empty() || VARIANTS.contains(&word) || is_allocating(word))
}

/// The path of a function without types and parameters: `T std::f<T>(T)` → `std::f`; of
/// `<A as B>::f`, as Rust writes it, `A`.
fn path(name: &str) -> String {
    let name = without_arguments(without_parameters(name));
    let name = name.split_once(" as ").map_or(&*name, |(implementor, _)| implementor);
    match name.rfind("operator new") {
        Some(at) => name[name[..at].rfind(' ').map_or(0, |space| space + 1)..].to_owned(),
        None => name.rsplit(' ').next().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests;
