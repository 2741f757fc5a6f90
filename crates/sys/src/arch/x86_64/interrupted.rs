//! Tells from the registers of interrupted kernel code whether the kernel had saved the user's.
//!
//! The kernel samples the user's registers from where it saves them (`task_pt_regs`), and recognizes
//! only some of the moments in which they do not lie there: "This check isn't really sufficient"
//! (`perf_get_regs_user` in arch/x86/kernel/perf_regs.c). What lies there otherwise is left over from
//! the thread's last entry into the kernel.

use super::{BP, INTERRUPTED_REGISTERS, IP, KERNEL_START, SP};

/// Addresses of stacks on which exceptions begin and end: the CPU entry area (`CPU_ENTRY_AREA_BASE`
/// in arch/x86/include/asm/pgtable_64_types.h, `Documentation/arch/x86/x86_64/mm.rst`).
const ENTRY_STACKS: std::ops::Range<u64> = 0xffff_fe00_0000_0000..0xffff_fe80_0000_0000;

/// Size of a thread's kernel stack, at whose multiples stacks end (`THREAD_SIZE`).
const KERNEL_STACK: u64 = 16 << 10;

/// Distances from the end of a kernel stack at which system calls save bp: after the registers that
/// the kernel's own check covers (`struct pt_regs`, and 16 bytes more with `CONFIG_X86_FRED`).
const BP_UNSAVED: std::ops::Range<u64> = 120..152;

/// Maximum number of kernel addresses in the call chain of code that saves or restores registers.
/// Other code with its stack pointer at [`BP_UNSAVED`] handles interrupts, and has callers.
const ENTRY_CHAIN: usize = 2;

/// Position of cx among the sampled registers.
const CX: usize = 2;

/// Positions among the sampled registers of the interrupted ones, in their order. Of the others,
/// the kernel's last instructions use di, and bx and r12 to r15 are not sampled in the kernel.
const SAMPLED: [usize; INTERRUPTED_REGISTERS.count_ones() as usize] =
    [0, CX, 3, 4, BP, SP, 9, 10, 11, 12];

/// True if the kernel had saved the user's registers when an interrupt came, so that those that it
/// sampled are the thread's.
///
/// `interrupted`: the registers [`INTERRUPTED_REGISTERS`] of the kernel's code, `sampled`: the user's,
/// [`SAMPLED_REGISTERS`](super::SAMPLED_REGISTERS), both as the kernel wrote them; `kernel` gives the
/// number of kernel addresses in the call chain.
pub fn registers_are_saved(
    interrupted: &[u8],
    sampled: &[u8],
    kernel: impl FnOnce() -> usize,
) -> bool {
    let (words, _) = interrupted.as_chunks::<8>();
    let (user, _) = sampled.as_chunks::<8>();
    if words.len() < SAMPLED.len() || user.len() < super::REGISTERS {
        return true;
    }
    let value = |i: usize| u64::from_ne_bytes(words[i]);
    let user = |at: usize| u64::from_ne_bytes(user[at]);
    let is_equal = |i: usize| user(SAMPLED[i]) == value(i);
    let are_equal = || (0..SAMPLED.len()).filter(|&i| SAMPLED[i] != SP).all(is_equal);
    let position = |at: usize| SAMPLED.iter().position(|&i| i == at).expect("it is sampled");
    let sp = value(position(SP));
    if sp < KERNEL_START {
        // The first instructions of a system call, before it has a stack, or the last ones. cx
        // holds the address where the user's code continues.
        let continues = value(position(CX));
        return user(SP) == sp && user(IP) == continues && are_equal();
    }
    if ENTRY_STACKS.contains(&sp) {
        // At the end of an exception, all registers have their values again.
        return are_equal();
    }
    let distance = KERNEL_STACK - sp % KERNEL_STACK;
    let moves_bp = BP_UNSAVED.contains(&distance) && kernel() <= ENTRY_CHAIN;
    !moves_bp || is_equal(position(BP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::REGISTERS;

    const USER_SP: u64 = 0x7ffc_0000_1000;
    const USER_IP: u64 = 0x55d0_0000_2000;
    const STACK: u64 = 0xffff_c900_0012_4000;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    /// Registers of a thread that waits in a system call: ax, bx, cx, …
    fn user() -> [u64; REGISTERS] {
        let mut all = std::array::from_fn(|i| i as u64 + 100);
        (all[2], all[SP], all[IP]) = (USER_IP, USER_SP, USER_IP);
        all
    }

    /// The same as interrupted registers, with another stack pointer.
    fn interrupted(sp: u64) -> Vec<u64> {
        let all = user();
        vec![all[0], all[2], all[3], all[4], all[BP], sp, all[9], all[10], all[11], all[12]]
    }

    /// The same with another value of bp, as it has while kernel code runs.
    fn in_kernel_code(sp: u64) -> Vec<u64> {
        let mut words = interrupted(sp);
        words[4] += 1;
        words
    }

    fn is_saved(interrupted: &[u64], kernel: usize) -> bool {
        registers_are_saved(&bytes(interrupted), &bytes(&user()), || kernel)
    }

    #[test]
    fn in_system_calls_registers_are_saved() {
        assert!(is_saved(&in_kernel_code(STACK - 1000), 1));
        assert!(is_saved(&[], 1), "none were sampled");
    }

    /// `entry_SYSCALL_64` up to where it takes the thread's kernel stack.
    #[test]
    fn before_a_system_call_has_its_stack_the_registers_are_of_the_last_one() {
        assert!(!is_saved(&interrupted(USER_SP - 8), 1));
        for i in (0..SAMPLED.len()).filter(|&i| i != 5) {
            let mut other = interrupted(USER_SP);
            other[i] += 1;
            assert!(!is_saved(&other, 1), "register {i}");
        }
    }

    /// Equal registers: the last instructions of a system call, or the same one again.
    #[test]
    fn at_the_end_of_a_system_call_registers_are_still_saved() {
        assert!(is_saved(&interrupted(USER_SP), 1));
    }

    #[test]
    fn on_the_stacks_where_exceptions_begin_registers_may_be_old() {
        const ENTRY_STACK: u64 = 0xffff_fe7a_1234_5f58;
        assert!(!is_saved(&in_kernel_code(ENTRY_STACK), 1));
        assert!(!is_saved(&in_kernel_code(ENTRY_STACK), 3));
        assert!(is_saved(&interrupted(ENTRY_STACK), 1), "at the end of an exception");
    }

    /// bp is saved 136 bytes before the end.
    #[test]
    fn while_a_system_call_saves_registers_bp_is_old() {
        assert!(is_saved(&in_kernel_code(STACK - 192), 1));
        assert!(!is_saved(&in_kernel_code(STACK - 128), 1));
        assert!(!is_saved(&in_kernel_code(STACK - 144), 1), "below the bytes for FRED");
        assert!(is_saved(&in_kernel_code(STACK - 128), 3), "the handler of an interrupt");
        assert!(is_saved(&interrupted(STACK - 128), 1), "the same value as before");
    }
}
