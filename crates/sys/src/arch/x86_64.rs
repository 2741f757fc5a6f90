//! x86-64: System V ABI (AMD64 supplement), and the kernel's `arch/x86`.

mod interrupted;

use object::elf;

pub use interrupted::registers_are_saved;

/// Name of the architecture, as the compiler and the kernel write it.
pub const NAME: &str = "x86_64";

/// Machine of ELF files.
pub const ELF_MACHINE: elf::Machine = elf::EM_X86_64;

/// Relocation of an address in the same object.
pub const RELATIVE: elf::RelocationType = elf::R_X86_64_RELATIVE;
/// Relocation of a function's address in the global offset table, which may be resolved late.
pub const JUMP_SLOT: elf::RelocationType = elf::R_X86_64_JUMP_SLOT;
/// Relocation of an address in the global offset table.
pub const GLOB_DAT: elf::RelocationType = elf::R_X86_64_GLOB_DAT;
/// Relocation by the result of a function that chooses among several.
pub const IRELATIVE: elf::RelocationType = elf::R_X86_64_IRELATIVE;

/// Directories of libraries that only this architecture has (`ld.so(8)`, Debian's multiarch).
pub const LIBRARY_DIRECTORIES: [&str; 4] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64"];

/// Size of a page in bytes.
pub const PAGE: u64 = 4096;

/// First address of the kernel.
pub const KERNEL_START: u64 = 0xffff_8000_0000_0000;

/// The general registers in the kernel's samples: ax, bx, cx, dx, si, di, bp, sp, ip, r8 to r15.
pub const REGISTERS: usize = 17;

/// Mask of these registers: 0 to 8 and 16 to 23 of `asm/perf_regs.h`, which the kernel writes in
/// this order. All are sampled, as unwind information may begin at any of them.
pub const SAMPLED_REGISTERS: u64 = 0x1ff | 0xff << 16;

/// Mask of the registers of interrupted code that show whether the kernel had saved the user's: ax,
/// cx, dx, si, bp, sp and r8 to r11.
///
/// A counter's interrupt cannot be masked here. It comes between the first instructions of a system
/// call, too, when the kernel has saved none or only some.
pub const INTERRUPTED_REGISTERS: u64 = 0b1101_1101 | 0xf << 16;

/// Position of the instruction pointer among the sampled ones.
pub const IP: usize = 8;
/// Position of the stack pointer.
pub const SP: usize = 7;
/// Position of the frame pointer.
pub const BP: usize = 6;

/// Positions of the registers in DWARF's order (figure 3.36): ax, dx, cx, bx, si, di, bp, sp, r8 to
/// r15.
pub const DWARF_ORDER: [usize; 16] = [0, 3, 2, 1, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16];
