//! AArch64: its procedure call standard (AAPCS64), ELF (AAELF64), and `syscall(2)`.
//!
//! There are no hooks yet, so nothing is sampled. This file has not been built or run.

use core::arch::{asm, global_asm, naked_asm};

use crate::exit::request_search;
use crate::layout::register;
use crate::real::find;
use crate::sample::ThreadLocals;

/// Relocation of a pointer in data: `R_AARCH64_ABS64`.
pub const POINTER: u32 = 257;
/// Relocation of an address in the global offset table: `R_AARCH64_GLOB_DAT`.
pub const GLOB_DAT: u32 = 1025;
/// Relocation of a function's address there: `R_AARCH64_JUMP_SLOT`.
pub const JUMP_SLOT: u32 = 1026;

/// Number of `read(2)`.
pub const SYS_READ: usize = 63;
/// Number of `close(2)`.
pub const SYS_CLOSE: usize = 57;
/// Number of `fstat(2)`.
pub const SYS_FSTAT: usize = 80;
/// Number of `mmap(2)`.
pub const SYS_MMAP: usize = 222;
/// Number of `mprotect(2)`.
pub const SYS_MPROTECT: usize = 226;
/// Number of `munmap(2)`.
pub const SYS_MUNMAP: usize = 215;
/// Number of `rt_sigprocmask(2)`.
pub const SYS_RT_SIGPROCMASK: usize = 135;
/// Number of `madvise(2)`.
pub const SYS_MADVISE: usize = 233;
/// Number of `nanosleep(2)`.
pub const SYS_NANOSLEEP: usize = 101;
/// Number of `getpid(2)`.
pub const SYS_GETPID: usize = 172;
/// Number of `gettid(2)`.
pub const SYS_GETTID: usize = 178;
/// Number of `clock_gettime(2)`.
pub const SYS_CLOCK_GETTIME: usize = 113;
/// Number of `openat(2)`; there is no `open`.
const SYS_OPENAT: usize = 56;

/// Words of `struct stat`.
pub const STAT_WORDS: usize = 16;
/// Index of the file's size in it.
pub const STAT_SIZE: usize = 6;

/// Makes a system call.
///
/// # Safety
///
/// The caller is responsible for the effects of the call.
#[inline]
pub unsafe fn call(number: usize, args: [usize; 6]) -> isize {
    let result;
    // SAFETY: guaranteed by the caller; the kernel changes x0.
    unsafe {
        asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") args[0] => result,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    result
}

/// Opens a file.
///
/// # Safety
///
/// `path` ends with a NUL.
pub unsafe fn open(path: *const u8, flags: usize) -> isize {
    /// `AT_FDCWD`.
    const HERE: usize = -100_isize as usize;
    // SAFETY: guaranteed by the caller.
    unsafe { call(SYS_OPENAT, [HERE, path as usize, flags, 0, 0, 0]) }
}

/// Ends the program by a signal.
pub fn abort() -> ! {
    // SAFETY: an instruction that ends the program by SIGTRAP.
    unsafe { asm!("brk #1", options(noreturn)) }
}

// `core` was compiled with landing pads, which are never used here. The symbol is hidden: Rust's
// standard library has a working one of this name.
global_asm!(
    ".hidden rust_eh_personality",
    ".globl rust_eh_personality",
    "rust_eh_personality:",
    "brk #1",
);

/// Address of this thread's control block. In glibc it is just above the stack of every thread
/// except the first.
pub fn thread_block() -> usize {
    let block;
    // SAFETY: it reads a register.
    unsafe { asm!("mrs {}, tpidr_el0", out(reg) block, options(nomem, nostack, pure)) };
    block
}

// `#[thread_local]` is not in stable Rust. The library is loaded before any thread starts, so its
// thread-local memory is at a distance that the dynamic linker computes ("initial exec").
global_asm!(
    ".section .tbss.prof_heap_thread,\"awT\",%nobits",
    ".balign 16",
    ".hidden prof_heap_thread",
    ".globl prof_heap_thread",
    ".type prof_heap_thread, %object",
    ".size prof_heap_thread, {size}",
    "prof_heap_thread:",
    ".zero {size}",
    ".text",
    size = const size_of::<ThreadLocals>(),
);

/// State of this thread. A signal handler may interrupt its own thread and use it too; at worst, an
/// interval is drawn twice.
pub fn thread() -> *mut ThreadLocals {
    let thread;
    // SAFETY: the distance refers to the thread pointer.
    unsafe {
        asm!(
            "adrp {0}, :gottprel:prof_heap_thread",
            "ldr {0}, [{0}, :gottprel_lo12:prof_heap_thread]",
            "mrs {1}, tpidr_el0",
            "add {0}, {0}, {1}",
            out(reg) thread,
            out(reg) _,
            options(nostack, pure, readonly),
        );
    }
    thread
}

/// Copies bytes; not `memcpy`, which the program may have replaced.
///
/// # Safety
///
/// `count` bytes are readable at `from` and writable at `to`.
pub unsafe fn copy(from: usize, to: *mut u8, count: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!(
            "cbz {count}, 3f",
            "2:",
            "ldrb {byte:w}, [{from}], #1",
            "strb {byte:w}, [{to}], #1",
            "sub {count}, {count}, #1",
            "cbnz {count}, 2b",
            "3:",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            count = inout(reg) count => _,
            byte = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Callee-saved registers, as hooks will push them, and the rest of the stack above.
#[repr(C)]
pub struct HookFrame {
    /// x19 to x28.
    kept: [u64; 10],
    frame_pointer: u64,
    /// The link register.
    return_address: u64,
    result: u64,
    /// A multiple of 16 bytes are pushed.
    unused: u64,
}

impl HookFrame {
    /// Return address of the hook.
    pub fn return_address(&self) -> u64 {
        self.return_address
    }

    /// Stack pointer before the call of the hook.
    pub fn stack_pointer(&self) -> usize {
        (&raw const self.unused) as usize + 8
    }

    /// Registers of a record, in the order of [`register::IN_SAMPLES`].
    pub fn registers(&self) -> [u64; register::COUNT] {
        let mut registers = [0; register::COUNT];
        registers[..10].copy_from_slice(&self.kept);
        registers[register::BP] = self.frame_pointer;
        registers[register::BP + 1] = self.return_address;
        registers[register::SP] = self.stack_pointer() as u64;
        registers[register::IP] = self.return_address.wrapping_sub(1);
        registers
    }
}

/// Saves callee-saved registers on the stack, where prof finds them; callees restore those that
/// they change.
#[unsafe(naked)]
pub unsafe extern "C" fn at_exit() {
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-96]!",
        ".cfi_adjust_cfa_offset 96",
        ".cfi_offset x29, -96",
        ".cfi_offset x30, -88",
        "mov x29, sp",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]",
        "stp x27, x28, [sp, #80]",
        "mov x0, sp",
        "bl {request}",
        "ldp x29, x30, [sp], #96",
        ".cfi_adjust_cfa_offset -96",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
        request = sym request_search,
    )
}

/// Entry of [`crate::real::REAL`] for a function that is not resolved yet.
#[unsafe(naked)]
pub unsafe extern "C" fn stub<const I: usize>() {
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-96]!",
        ".cfi_adjust_cfa_offset 96",
        ".cfi_offset x29, -96",
        ".cfi_offset x30, -88",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "stp x6, x7, [sp, #64]",
        "str x8, [sp, #80]",
        "mov x0, #{i}",
        "bl {find}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x2, x3, [sp, #32]",
        "ldp x4, x5, [sp, #48]",
        "ldp x6, x7, [sp, #64]",
        "ldr x8, [sp, #80]",
        "ldp x29, x30, [sp], #96",
        ".cfi_adjust_cfa_offset -96",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "br x16",
        ".cfi_endproc",
        i = const I,
        find = sym find,
    )
}

/// Returns null.
#[unsafe(naked)]
pub unsafe extern "C" fn nothing() {
    naked_asm!(".cfi_startproc", "mov x0, #0", "ret", ".cfi_endproc")
}
