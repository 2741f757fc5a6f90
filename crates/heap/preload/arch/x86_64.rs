//! x86-64: System V ABI (AMD64 supplement).

use core::arch::{asm, global_asm, naked_asm};

use crate::exit::request_search;
use crate::layout::register;
use crate::real::find;
use crate::sample::ThreadLocals;

mod hooks;

/// Relocation of a pointer in data: `R_X86_64_64`.
pub const POINTER: u32 = 1;
/// Relocation of an address in the global offset table: `R_X86_64_GLOB_DAT`.
pub const GLOB_DAT: u32 = 6;
/// Relocation of a function's address there: `R_X86_64_JUMP_SLOT`.
pub const JUMP_SLOT: u32 = 7;

/// Number of `read(2)`.
pub const SYS_READ: usize = 0;
/// Number of `close(2)`.
pub const SYS_CLOSE: usize = 3;
/// Number of `fstat(2)`.
pub const SYS_FSTAT: usize = 5;
/// Number of `mmap(2)`.
pub const SYS_MMAP: usize = 9;
/// Number of `mprotect(2)`.
pub const SYS_MPROTECT: usize = 10;
/// Number of `munmap(2)`.
pub const SYS_MUNMAP: usize = 11;
/// Number of `rt_sigprocmask(2)`.
pub const SYS_RT_SIGPROCMASK: usize = 14;
/// Number of `madvise(2)`.
pub const SYS_MADVISE: usize = 28;
/// Number of `nanosleep(2)`.
pub const SYS_NANOSLEEP: usize = 35;
/// Number of `getpid(2)`.
pub const SYS_GETPID: usize = 39;
/// Number of `gettid(2)`.
pub const SYS_GETTID: usize = 186;
/// Number of `clock_gettime(2)`.
pub const SYS_CLOCK_GETTIME: usize = 228;
/// Number of `open(2)`.
const SYS_OPEN: usize = 2;

/// Words of `struct stat`.
pub const STAT_WORDS: usize = 18;
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
    // SAFETY: guaranteed by the caller; the kernel changes rax, rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
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
    // SAFETY: guaranteed by the caller.
    unsafe { call(SYS_OPEN, [path as usize, flags, 0, 0, 0, 0]) }
}

/// Ends the program by a signal.
pub fn abort() -> ! {
    // SAFETY: an instruction that ends the program by SIGILL.
    unsafe { asm!("ud2", options(noreturn)) }
}

// `core` was compiled with landing pads, which are never used here. The symbol is hidden: Rust's
// standard library has a working one of this name.
global_asm!(
    ".hidden rust_eh_personality",
    ".globl rust_eh_personality",
    "rust_eh_personality:",
    "ud2",
);

/// Address of this thread's control block. In glibc it is just above the stack of every thread
/// except the first.
pub fn thread_block() -> usize {
    let block;
    // SAFETY: the first word at fs is the block's own address (System V ABI, AMD64).
    unsafe { asm!("mov {}, fs:[0]", out(reg) block, options(nostack, readonly, pure)) };
    block
}

// `#[thread_local]` is not in stable Rust. The library is loaded before any thread starts, so its
// thread-local memory is at a distance that the dynamic linker computes ("initial exec").
global_asm!(
    ".section .tbss.prof_heap_thread,\"awT\",@nobits",
    ".balign 16",
    ".hidden prof_heap_thread",
    ".globl prof_heap_thread",
    ".type prof_heap_thread, @object",
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
    // SAFETY: the first word at fs is the address that the distance refers to.
    unsafe {
        asm!(
            "mov {0}, fs:[0]",
            "add {0}, qword ptr [rip + prof_heap_thread@GOTTPOFF]",
            out(reg) thread,
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
            "rep movsb",
            inout("rsi") from => _,
            inout("rdi") to => _,
            inout("rcx") count => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Callee-saved registers, as the hooks push them, and the rest of the stack above.
#[repr(C)]
pub struct HookFrame {
    r15: u64,
    r14: u64,
    r13: u64,
    r12: u64,
    rbx: u64,
    rbp: u64,
    result: u64,
    return_address: u64,
}

impl HookFrame {
    /// Return address of the hook.
    pub fn return_address(&self) -> u64 {
        self.return_address
    }

    /// Stack pointer before the call of the hook.
    pub fn stack_pointer(&self) -> usize {
        (&raw const self.return_address) as usize + 8
    }

    /// Registers of a record, in the order of [`register::IN_SAMPLES`].
    pub fn registers(&self) -> [u64; register::COUNT] {
        let mut registers = [self.rbx, 0, 0, 0, self.r12, self.r13, self.r14, self.r15];
        registers[register::BP] = self.rbp;
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
        "sub rsp, 56",
        ".cfi_adjust_cfa_offset 56",
        "mov qword ptr [rsp], rbx",
        "mov qword ptr [rsp + 8], rbp",
        "mov qword ptr [rsp + 16], r12",
        "mov qword ptr [rsp + 24], r13",
        "mov qword ptr [rsp + 32], r14",
        "mov qword ptr [rsp + 40], r15",
        "mov qword ptr [rsp + 48], 0",
        "mov rdi, rsp",
        "call {request}",
        "add rsp, 56",
        ".cfi_adjust_cfa_offset -56",
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
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "push rcx",
        ".cfi_adjust_cfa_offset 8",
        "push r8",
        ".cfi_adjust_cfa_offset 8",
        "push r9",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov edi, {i}",
        "call {find}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop r9",
        ".cfi_adjust_cfa_offset -8",
        "pop r8",
        ".cfi_adjust_cfa_offset -8",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        i = const I,
        find = sym find,
    )
}

/// Returns null.
#[unsafe(naked)]
pub unsafe extern "C" fn nothing() {
    naked_asm!(".cfi_startproc", "xor eax, eax", "ret", ".cfi_endproc")
}
