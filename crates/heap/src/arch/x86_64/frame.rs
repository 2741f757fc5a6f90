//! Signal frames: `struct rt_sigframe` (arch/x86/include/asm/sigframe.h) and `struct sigcontext_64`
//! (arch/x86/include/uapi/asm/sigcontext.h).

use crate::arch::{RED_ZONE, Registers};
use crate::inject::frame::{Back, Context, NOTHING, SignalFrame, Undo};

/// Bytes of `struct rt_sigframe`.
const SIZE: u64 = 440;

/// Offsets in it.
const FLAGS: usize = 8;
const STACK_FLAGS: usize = 32;
const CONTEXT: usize = 48;
const SEGMENTS: usize = CONTEXT + 144;
const OLD_MASK: usize = CONTEXT + 168;
const FP_STATE: usize = CONTEXT + 184;
const MASK: usize = CONTEXT + 256;
const INFO: usize = 312;

/// Code fragments that a function returns through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnPath {
    /// Stores the result in the slot, pops [`ReturnPath::words`] words, and returns.
    pub store: u64,
    /// Displacement of the slot from the register that points to it.
    pub displacement: i8,
    /// Number of words.
    pub words: u64,
    /// Pop rax, rdi and rsi, and return.
    pub pop: [u64; 3],
    /// Makes a system call, and returns.
    pub syscall: u64,
    /// Calls `rt_sigreturn`.
    pub restorer: u64,
}

/// Most bytes needed on the stack.
pub fn frame_room(others: &[u8]) -> u64 {
    RED_ZONE + others.len() as u64 + SIZE + 512
}

/// A frame below the stack pointer `sp`, which restores the context of a thread.
pub fn frame_below(
    sp: u64,
    context: &Context<'_>,
    way: ReturnPath,
    back: Back,
    undo: Undo,
) -> SignalFrame {
    /// `UC_FP_XSTATE`, `UC_SIGCONTEXT_SS`, `UC_STRICT_RESTORE_SS`.
    const FLAG_BITS: u64 = 1 | 2 | 4;
    /// Not a valid value for `sigaltstack(2)`: the alternate stack stays unchanged.
    const NO_STACK: u64 = 4;
    let state = fp_state(context.others);
    let fp = (sp - RED_ZONE - state.len() as u64) & !63;
    // On entry to a function, the stack pointer plus eight is a multiple of sixteen.
    let aligned = (fp - SIZE) & !15;
    let [rax, rdi, rsi] = way.pop;
    let call = |call: libc::c_long, first: u64, second: u64| {
        [rax, call as u64, rdi, first, rsi, second, way.syscall]
    };
    let notify = call(libc::SYS_tkill, back.tid as u64, back.signal as u64);
    let chain = [notify, call(undo.call, NOTHING, undo.second), notify].concat();
    let below = 1 + way.words + chain.len() as u64;
    let notified = notify.len() as u64;
    let address = if below.is_multiple_of(2) { aligned - 8 } else { aligned };
    let entry = address - 8 * below;
    let frame = (address - entry) as usize;
    let length = (fp - entry) as usize;
    let mut bytes = vec![0; length];
    let mut put = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    put(0, way.store);
    let first = 8 * (1 + way.words as usize);
    chain.iter().enumerate().for_each(|(i, word)| put(first + i * 8, *word));
    put(frame, way.restorer);
    put(frame + FLAGS, FLAG_BITS);
    put(frame + STACK_FLAGS, NO_STACK);
    let r = context.registers;
    let words = [
        r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx, r.rdx,
        r.rax, r.rcx, r.rsp, r.rip, r.eflags,
    ];
    words.iter().enumerate().for_each(|(i, word)| put(frame + CONTEXT + i * 8, *word));
    put(frame + SEGMENTS, (r.cs & 0xffff) | (r.ss & 0xffff) << 48);
    put(frame + OLD_MASK, context.blocked);
    put(frame + FP_STATE, fp);
    put(frame + MASK, context.blocked);
    bytes.extend(state);
    let end = entry + 8 * (1 + way.words + notified);
    let made = end + 8 * 3;
    SignalFrame { entry, end, undone: address, slot: address + INFO as u64, made, bytes }
}

/// Registers with which a thread performs the undo, and then returns.
pub fn undoing(frame: &SignalFrame, way: ReturnPath, registers: &Registers) -> Registers {
    // The first word is popped.
    Registers { rip: way.pop[0], rsp: frame.end + 8, orig_rax: u64::MAX, ..*registers }
}

/// `xstate` in the form of the kernel's frames, with the marks of its full size.
fn fp_state(xstate: &[u8]) -> Vec<u8> {
    /// `FP_XSTATE_MAGIC1` and `FP_XSTATE_MAGIC2`.
    const MAGIC: [u32; 2] = [0x4650_5853, 0x4650_5845];
    /// Offset of the former; the features, as in ptrace; those in use.
    const SOFTWARE: usize = 464;
    const IN_USE: usize = 512;
    /// Tiles of AMX, which a thread has no room for until it requests them; their offset, and the
    /// end of the data before them.
    const TILES: u64 = 3 << 17;
    const BEFORE_TILES: usize = 2696;

    let word = |at: usize| xstate[at..].first_chunk().map_or(0, |w| u64::from_le_bytes(*w));
    let mut features = word(SOFTWARE);
    let mut length = xstate.len();
    if word(IN_USE) & TILES == 0 && features & TILES != 0 {
        (features, length) = (features & !TILES, length.min(BEFORE_TILES));
    }
    let mut state = xstate[..length].to_vec();
    let software = &mut state[SOFTWARE..IN_USE];
    software.fill(0);
    software[..4].copy_from_slice(&MAGIC[0].to_le_bytes());
    software[4..8].copy_from_slice(&(length as u32 + 4).to_le_bytes());
    software[8..16].copy_from_slice(&features.to_le_bytes());
    software[16..20].copy_from_slice(&(length as u32).to_le_bytes());
    state.extend(MAGIC[1].to_le_bytes());
    state
}
