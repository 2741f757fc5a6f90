//! AArch64: ELF for the Arm 64-bit Architecture (AAELF64), DWARF for it (AADWARF64), and the
//! kernel's `arch/arm64`.

use object::elf;

/// Name of the architecture, as the compiler and the kernel write it.
pub const NAME: &str = "aarch64";

/// Machine of ELF files.
pub const ELF_MACHINE: elf::Machine = elf::EM_AARCH64;

/// Relocation of an address in the same object.
pub const RELATIVE: elf::RelocationType = elf::R_AARCH64_RELATIVE;
/// Relocation of a function's address in the global offset table, which may be resolved late.
pub const JUMP_SLOT: elf::RelocationType = elf::R_AARCH64_JUMP_SLOT;
/// Relocation of an address in the global offset table.
pub const GLOB_DAT: elf::RelocationType = elf::R_AARCH64_GLOB_DAT;
/// Relocation by the result of a function that chooses among several.
pub const IRELATIVE: elf::RelocationType = elf::R_AARCH64_IRELATIVE;

/// Directories of libraries that only this architecture has (`ld.so(8)`, Debian's multiarch).
pub const LIBRARY_DIRECTORIES: [&str; 4] =
    ["/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64"];

/// Size of a page in bytes; kernels may be built with pages of 16 KiB or 64 KiB instead, on which
/// prof does not work.
pub const PAGE: u64 = 4096;

/// First address of the kernel, with addresses of 52 bits (`Documentation/arch/arm64/memory.rst`).
pub const KERNEL_START: u64 = 0xfff0_0000_0000_0000;

/// The general registers in the kernel's samples: x0 to x28, fp, lr, sp, pc.
pub const REGISTERS: usize = 33;

/// Mask of these registers: 0 to 32 of `asm/perf_regs.h`, which the kernel writes in this order.
/// All are sampled, as unwind information may begin at any of them.
pub const SAMPLED_REGISTERS: u64 = (1 << 33) - 1;

/// Registers of interrupted code that show whether the kernel had saved the user's: none, as
/// interrupts are masked until it has.
pub const INTERRUPTED_REGISTERS: u64 = 0;

/// Position of the instruction pointer among the sampled ones.
pub const IP: usize = 32;
/// Position of the stack pointer.
pub const SP: usize = 31;
/// Position of the frame pointer.
pub const BP: usize = 29;

/// Positions of the registers in DWARF's order: the same order.
pub const DWARF_ORDER: [usize; 33] = {
    let mut order = [0; 33];
    let mut i = 0;
    while i < order.len() {
        order[i] = i;
        i += 1;
    }
    order
};

/// True: interrupts are masked until the kernel has saved the user's registers (`kernel_entry` in
/// arch/arm64/kernel/entry.S). The arguments are those of x86-64.
pub fn registers_are_saved(
    _interrupted: &[u8],
    _sampled: &[u8],
    _kernel: impl FnOnce() -> usize,
) -> bool {
    true
}

/// The jumps in code, by the distances of the instruction and of its target from the beginning: `b`
/// and `b.cond` (Arm ARM, C4.1).
pub fn jumps(code: &[u8]) -> impl Iterator<Item = (usize, i64)> {
    code.chunks_exact(4).enumerate().filter_map(|(number, word)| {
        let word = u32::from_le_bytes(*word.first_chunk()?);
        // The displacement in its upper bits, so that it is extended with its sign.
        let (upper, bits) = match word {
            _ if word >> 26 == 0b00_0101 => (word << 6, 26),
            _ if word >> 24 == 0b0101_0100 => (word << 8 & 0xffff_e000, 19),
            _ => return None,
        };
        let at = 4 * number;
        Some((at, at as i64 + 4 * i64::from(upper.cast_signed() >> (32 - bits))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_are_branches_without_a_return() {
        // b .+8; b.ne .-4; bl .+8
        let code = [0x1400_0002_u32, 0x54ff_ffe1, 0x9400_0002].map(u32::to_le_bytes).concat();
        assert_eq!(jumps(&code).collect::<Vec<_>>(), [(0, 8), (4, 0)]);
    }

    #[test]
    fn samples_have_all_general_registers() {
        assert_eq!(SAMPLED_REGISTERS.count_ones() as usize, REGISTERS);
        assert_eq!((DWARF_ORDER[BP], DWARF_ORDER[SP], DWARF_ORDER[IP]), (29, 31, 32));
    }
}
