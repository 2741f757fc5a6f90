//! Hooks in front of functions of the C library and of other allocators.
//!
//! Each is a few instructions: it counts the bytes down and jumps to the real function. Further
//! work is done only when the count goes below zero, or when a freed address may have been sampled.
//! A sample finds its caller's registers untouched; and if the real function throws or inspects its
//! caller, it finds the program's own code there.

use core::arch::naked_asm;

use crate::filter::PASSES;
use crate::real::{MAPPINGS_COUNT, NEW_COUNTS, REAL, Real};
use crate::sample::{allocated, forgotten, freed, reallocated};
use crate::table::FACTOR;

/// Counts `$size` down. Jumps to the label 2 if it exceeds the rest.
macro_rules! count_down {
    ($size:literal) => {
        concat!(
            "mov rax, qword ptr [rip + prof_heap_thread@GOTTPOFF]\n",
            "mov rcx, qword ptr fs:[rax]\n",
            "sub rcx, ",
            $size,
            "\n",
            "jb 2f\n",
            "mov qword ptr fs:[rax], rcx\n",
        )
    };
}

/// Jumps to the label 2 if the address in `rdi` may have been sampled. The index is that of
/// [`crate::table::filter_index`].
macro_rules! check_filter {
    () => {
        concat!(
            "mov rax, qword ptr [rip + {passes}]\n",
            "mov rcx, rdi\n",
            "shr rcx, 4\n",
            "imul ecx, ecx, {factor}\n",
            "shr ecx, 16\n",
            "cmp byte ptr [rax + rcx], 0\n",
            "jne 2f\n",
        )
    };
}

/// Aligns the section of a hook, which has it alone, to a cache line: else the cost of the few
/// instructions that every allocation runs depends on where the linker puts them.
macro_rules! align_section {
    () => {
        ".p2align 6"
    };
}

macro_rules! push {
    ($register:literal) => {
        concat!("push ", $register, "\n.cfi_adjust_cfa_offset 8\n")
    };
}

macro_rules! pop {
    ($register:literal) => {
        concat!("pop ", $register, "\n.cfi_adjust_cfa_offset -8\n")
    };
}

/// Hook of `f(…)`, which returns memory; its size is in a register, or computed here.
macro_rules! allocates {
    ($name:ident, $real:ident, $size:literal $(, $before:literal)*) => {
        /// See the function of this name.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                $($before,)*
                count_down!($size),
                "jmp qword ptr [rip + {real} + {at}]",
                "2:",
                push!($size),
                "call qword ptr [rip + {real} + {at}]",
                pop!("rdi"),
                "jmp {sampled}",
                "3:",
                "jmp qword ptr [rip + {real} + {at}]",
                ".cfi_endproc",
                align_section!(),
                real = sym REAL,
                at = const Real::$real as usize * 8,
                sampled = sym sampled,
            )
        }
    };
}

/// The same for C++ operators, which call `malloc`, unless the allocator has its own.
macro_rules! operator_new {
    ($name:ident, $real:ident) => {
        /// See the C++ operator of this name.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                "cmp byte ptr [rip + {counts}], 0",
                "je 3f",
                count_down!("rdi"),
                "3:",
                "jmp qword ptr [rip + {real} + {at}]",
                "2:",
                push!("rdi"),
                "call qword ptr [rip + {real} + {at}]",
                pop!("rdi"),
                "jmp {sampled}",
                ".cfi_endproc",
                align_section!(),
                real = sym REAL,
                at = const Real::$real as usize * 8,
                counts = sym NEW_COUNTS,
                sampled = sym sampled,
            )
        }
    };
}

/// Hook of `f(address, …)`, which frees memory.
macro_rules! frees {
    ($name:ident, $real:ident) => {
        /// See the function or operator of this name.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                check_filter!(),
                "jmp qword ptr [rip + {real} + {at}]",
                "2:",
                push!("rdi"),
                push!("rsi"),
                push!("rdx"),
                "call {freed}",
                pop!("rdx"),
                pop!("rsi"),
                pop!("rdi"),
                "jmp qword ptr [rip + {real} + {at}]",
                ".cfi_endproc",
                align_section!(),
                real = sym REAL,
                at = const Real::$real as usize * 8,
                passes = sym PASSES,
                factor = const FACTOR as i32,
                freed = sym freed,
            )
        }
    };
}

/// Hook of `f(address, size, …)`, which reallocates memory.
macro_rules! reallocates {
    ($name:ident, $real:ident $(, $before:literal)*) => {
        /// See the function of this name.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                $($before,)*
                check_filter!(),
                count_down!("rsi"),
                "jmp qword ptr [rip + {real} + {at}]",
                "2:",
                push!("rsi"),
                push!("rdi"),
                push!("rdx"),
                "call {forgotten}",
                pop!("rdx"),
                pop!("rdi"),
                pop!("rsi"),
                push!("rsi"),
                push!("rdi"),
                push!("rax"),
                "call qword ptr [rip + {real} + {at}]",
                pop!("rdx"),
                pop!("rsi"),
                pop!("rdi"),
                "jmp {moved}",
                "3:",
                "jmp qword ptr [rip + {real} + {otherwise}]",
                ".cfi_endproc",
                real = sym REAL,
                at = const Real::$real as usize * 8,
                otherwise = const Real::ReallocArray as usize * 8,
                passes = sym PASSES,
                factor = const FACTOR as i32,
                forgotten = sym forgotten,
                moved = sym moved,
            )
        }
    };
}

/// Pushes the fields of a [`super::HookFrame`] below the return address.
macro_rules! push_frame {
    () => {
        concat!(
            push!("rax"),
            push!("rbp"),
            push!("rbx"),
            push!("r12"),
            push!("r13"),
            push!("r14"),
            push!("r15"),
        )
    };
}

/// Removes them again: a callee preserves all of them except the result.
macro_rules! pop_frame {
    () => {
        concat!("add rsp, 48\n.cfi_adjust_cfa_offset -48\n", pop!("rax"))
    };
}

/// End of a hook: `rax` is the real function's result, `rdi` the size.
#[unsafe(naked)]
unsafe extern "C" fn sampled() {
    naked_asm!(
        ".cfi_startproc",
        push_frame!(),
        "mov rsi, rax",
        "mov rdx, rsp",
        "call {allocated}",
        pop_frame!(),
        "ret",
        ".cfi_endproc",
        allocated = sym allocated,
    )
}

/// The same: `rdi` is the size, `rsi` the old address, `rdx` its old id.
#[unsafe(naked)]
unsafe extern "C" fn moved() {
    naked_asm!(
        ".cfi_startproc",
        push_frame!(),
        "mov rcx, rax",
        "mov r8, rsp",
        "call {reallocated}",
        pop_frame!(),
        "ret",
        ".cfi_endproc",
        reallocated = sym reallocated,
    )
}

allocates!(malloc, Malloc, "rdi");
allocates!(valloc, Valloc, "rdi");
allocates!(pvalloc, Pvalloc, "rdi");
allocates!(memalign, Memalign, "rsi");
allocates!(aligned_alloc, AlignedAlloc, "rsi");
// An overflowing size is left to the real function to refuse.
allocates!(calloc, Calloc, "rdx", "mov rax, rdi", "mul rsi", "jo 3f", "mov rdx, rax");

reallocates!(realloc, Realloc);
// One that calls `realloc` would hide its caller, which is what counts.
reallocates!(reallocarray, Realloc, "mov rax, rsi", "mul rdx", "jo 3f", "mov rsi, rax");

frees!(free, Free);

/// See posix_memalign(3).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign() {
    naked_asm!(
        ".cfi_startproc",
        count_down!("rdx"),
        "jmp qword ptr [rip + {real} + {at}]",
        "2:",
        push!("rdi"),
        push!("rdx"),
        push!("rdx"),
        "call qword ptr [rip + {real} + {at}]",
        pop!("rdi"),
        pop!("rdi"),
        pop!("rsi"),
        "test eax, eax",
        "jne 4f",
        "mov rsi, qword ptr [rsi]",
        push_frame!(),
        "mov rdx, rsp",
        "call {allocated}",
        pop_frame!(),
        "4:",
        "ret",
        ".cfi_endproc",
        real = sym REAL,
        at = const Real::PosixMemalign as usize * 8,
        allocated = sym allocated,
    )
}

operator_new!(_Znwm, New);
operator_new!(_Znam, NewArray);
operator_new!(_ZnwmRKSt9nothrow_t, NewNothrow);
operator_new!(_ZnamRKSt9nothrow_t, NewArrayNothrow);
operator_new!(_ZnwmSt11align_val_t, NewAligned);
operator_new!(_ZnamSt11align_val_t, NewArrayAligned);
operator_new!(_ZnwmSt11align_val_tRKSt9nothrow_t, NewAlignedNothrow);
operator_new!(_ZnamSt11align_val_tRKSt9nothrow_t, NewArrayAlignedNothrow);
frees!(_ZdlPv, Delete);
frees!(_ZdaPv, DeleteArray);
frees!(_ZdlPvm, DeleteSized);
frees!(_ZdaPvm, DeleteArraySized);
frees!(_ZdlPvRKSt9nothrow_t, DeleteNothrow);
frees!(_ZdaPvRKSt9nothrow_t, DeleteArrayNothrow);
frees!(_ZdlPvSt11align_val_t, DeleteAligned);
frees!(_ZdaPvSt11align_val_t, DeleteArrayAligned);
frees!(_ZdlPvmSt11align_val_t, DeleteSizedAligned);
frees!(_ZdaPvmSt11align_val_t, DeleteArraySizedAligned);
frees!(_ZdlPvSt11align_val_tRKSt9nothrow_t, DeleteAlignedNothrow);
frees!(_ZdaPvSt11align_val_tRKSt9nothrow_t, DeleteArrayAlignedNothrow);

// mimalloc's own names; except `mi_malloc_aligned`: others jump to it, on behalf of the program's
// caller.
allocates!(mi_malloc, MiMalloc, "rdi");
allocates!(mi_zalloc, MiZalloc, "rdi");
allocates!(mi_calloc, MiCalloc, "rdx", "mov rax, rdi", "mul rsi", "jo 3f", "mov rdx, rax");
allocates!(mi_zalloc_aligned, MiZallocAligned, "rdi");
reallocates!(mi_realloc, MiRealloc);
reallocates!(mi_realloc_aligned, MiReallocAligned);
frees!(mi_free, MiFree);

// jemalloc's.
allocates!(mallocx, MallocX, "rdi");
reallocates!(rallocx, RallocX);
frees!(dallocx, DallocX);
frees!(sdallocx, SdallocX);

// tcmalloc's.
allocates!(tc_malloc, TcMalloc, "rdi");
frees!(tc_free, TcFree);

/// `mmap`: counts anonymous memory if that is requested. glibc's own mappings do not pass here.
macro_rules! maps {
    ($name:ident, $real:ident) => {
        /// See the function of this name.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                "cmp byte ptr [rip + {counts}], 0",
                "je 3f",
                "test ecx, {anonymous}",
                "je 3f",
                "mov rax, qword ptr [rip + prof_heap_thread@GOTTPOFF]",
                "mov r10, qword ptr fs:[rax]",
                "sub r10, rsi",
                "jb 2f",
                "mov qword ptr fs:[rax], r10",
                "3:",
                "jmp qword ptr [rip + {real} + {at}]",
                "2:",
                push!("rsi"),
                "call qword ptr [rip + {real} + {at}]",
                pop!("rdi"),
                "cmp rax, -1",
                "jne {sampled}",
                "ret",
                ".cfi_endproc",
                real = sym REAL,
                at = const Real::$real as usize * 8,
                counts = sym MAPPINGS_COUNT,
                anonymous = const MAP_ANONYMOUS,
                sampled = sym sampled,
            )
        }
    };
}

/// `MAP_ANONYMOUS` of `mmap(2)`.
const MAP_ANONYMOUS: i32 = 0x20;

maps!(mmap, Mmap);
maps!(mmap64, Mmap64);
// Unmapping the start of a mapping counts as all of it.
frees!(munmap, Munmap);
