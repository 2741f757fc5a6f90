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

/// The jumps in code, by the distances of the instruction and of its target from the beginning:
/// `jmp` and `jcc` with four bytes of displacement (`E9`, `0F 80` to `0F 8F`; Intel SDM, volume 2).
/// Bytes of other instructions may look like one.
pub fn jumps(code: &[u8]) -> impl Iterator<Item = (usize, i64)> {
    (0..code.len()).filter_map(|at| {
        let opcode = match code[at..] {
            [0xe9, ..] => 1,
            [0x0f, 0x80..=0x8f, ..] => 2,
            _ => return None,
        };
        let distance = code.get(at + opcode..)?.first_chunk()?;
        let next = (at + opcode + distance.len()) as i64;
        Some((at, next + i64::from(i32::from_le_bytes(*distance))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_are_those_with_long_displacements() {
        // jmp .+5; jne .-2; jmp .+2 (short); call
        let code =
            [0xe9, 0, 0, 0, 0, 0x0f, 0x85, 0xfe, 0xff, 0xff, 0xff, 0xeb, 0, 0xe8, 1, 0, 0, 0];
        assert_eq!(jumps(&code).collect::<Vec<_>>(), [(0, 5), (5, 9)]);
        assert_eq!(jumps(&code[..3]).next(), None);
    }
}
