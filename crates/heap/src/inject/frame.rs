//! A signal frame that leads a thread back to where it was.
//!
//! The kernel saves a thread's registers so when it delivers a signal, and `rt_sigreturn(2)` puts
//! them back. prof writes one before it lets a thread do anything else: should prof die meanwhile,
//! the thread comes back by itself. Before it does, it sends itself a signal, at which it stops
//! for prof; without prof, it is ignored. Then it undoes what it was led to, if that has made something
//! that must not stay (closes a file, say): whatever moment prof dies at, that happens once. Layout: `struct rt_sigframe` (arch/x86/include/asm/sigframe.h)
//! and `struct sigcontext_64` (arch/x86/include/uapi/asm/sigcontext.h).

use super::trace::Registers;

/// Bytes below the stack pointer that functions may use (System V ABI, AMD64 supplement, 3.2.2).
const RED_ZONE: u64 = 128;

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

/// What a thread is to come back to.
pub struct Context<'a> {
    /// Its general registers.
    pub registers: &'a Registers,
    /// All others, as `XSAVE` writes them.
    pub xstate: &'a [u8],
    /// The signals that it blocks.
    pub blocked: u64,
}

/// The code that a function returns to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Stores the result where [`Way::register`] says, takes so many words off the stack, and
    /// returns.
    pub store: u64,
    /// The register that points to the place of the result, plus this.
    pub displacement: i8,
    /// Words.
    pub words: u64,
    /// Take rax, rdi and rsi from the stack, and return.
    pub pop: [u64; 3],
    /// Makes a system call, and returns.
    pub syscall: u64,
    /// Calls `rt_sigreturn`.
    pub restorer: u64,
}

/// The system call that undoes another: its first argument is what the other has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undo {
    /// The call.
    pub call: libc::c_long,
    /// Its second argument.
    pub second: u64,
}

/// How a thread says that it is back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Back {
    /// Its number, as its own process has it.
    pub tid: i32,
    /// What it sends itself: a signal that is ignored by default, and has no handler.
    pub signal: i32,
}

/// What [`Frame::made`] holds where there is nothing to undo: no descriptor, and no address.
pub const NOTHING: u64 = u64::MAX;

/// Where a frame lies, and what it is.
pub struct Frame {
    /// The stack pointer on entry to the function that is called: it returns to [`Way::store`].
    pub entry: u64,
    /// The stack pointer when the thread has sent itself the signal.
    pub end: u64,
    /// The same when it has also undone what was to be undone.
    pub undone: u64,
    /// A word of no meaning to the kernel, where the result is left.
    pub slot: u64,
    /// Where a result is left that is to be undone.
    pub made: u64,
    /// What is to be written at `entry`.
    pub bytes: Vec<u8>,
}

impl Frame {
    /// Bytes needed on the stack, at most.
    pub fn room(xstate: &[u8]) -> u64 {
        RED_ZONE + xstate.len() as u64 + SIZE + 512
    }

    /// A frame below the stack pointer `sp`, which leads a thread back to the context.
    pub fn below(sp: u64, context: &Context<'_>, way: Way, back: Back, undo: Undo) -> Frame {
        /// `UC_FP_XSTATE`, `UC_SIGCONTEXT_SS`, `UC_STRICT_RESTORE_SS`.
        const FLAG_BITS: u64 = 1 | 2 | 4;
        /// No value that `sigaltstack(2)` knows: the alternate stack stays what it is.
        const NO_STACK: u64 = 4;
        let state = fp_state(context.xstate);
        let fp = (sp - RED_ZONE - state.len() as u64) & !63;
        // On entry to a function, the stack pointer and eight are a multiple of sixteen.
        let aligned = (fp - SIZE) & !15;
        let [rax, rdi, rsi] = way.pop;
        let call = |call: libc::c_long, first: u64, second: u64| {
            [rax, call as u64, rdi, first, rsi, second, way.syscall]
        };
        let tells = call(libc::SYS_tkill, back.tid as u64, back.signal as u64);
        let chain = [tells, call(undo.call, NOTHING, undo.second), tells].concat();
        let (below, told) = (1 + way.words + chain.len() as u64, tells.len() as u64);
        let address = if below.is_multiple_of(2) { aligned - 8 } else { aligned };
        let entry = address - 8 * below;
        let (frame, length) = ((address - entry) as usize, (fp - entry) as usize);
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
            r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx,
            r.rdx, r.rax, r.rcx, r.rsp, r.rip, r.eflags,
        ];
        words.iter().enumerate().for_each(|(i, word)| put(frame + CONTEXT + i * 8, *word));
        put(frame + SEGMENTS, (r.cs & 0xffff) | (r.ss & 0xffff) << 48);
        put(frame + OLD_MASK, context.blocked);
        put(frame + FP_STATE, fp);
        put(frame + MASK, context.blocked);
        bytes.extend(state);
        let end = entry + 8 * (1 + way.words + told);
        let made = end + 8 * 3;
        Frame { entry, end, undone: address, slot: address + INFO as u64, made, bytes }
    }

    /// The registers with which a thread goes on to undo, and then back.
    pub fn undoing(&self, way: Way, registers: &Registers) -> Registers {
        // The first word is popped.
        Registers { rip: way.pop[0], rsp: self.end + 8, orig_rax: u64::MAX, ..*registers }
    }
}

/// `xstate` as the kernel writes it into a frame, with what tells it that this is all there.
fn fp_state(xstate: &[u8]) -> Vec<u8> {
    /// `FP_XSTATE_MAGIC1` and `FP_XSTATE_MAGIC2`.
    const MAGIC: [u32; 2] = [0x4650_5853, 0x4650_5845];
    /// Where the former stands; the features, where ptrace has them; those in use.
    const SOFTWARE: usize = 464;
    const IN_USE: usize = 512;
    /// The tiles of AMX, which a thread has no room for until it asks; where they begin, and where
    /// what comes before them ends.
    const TILES: u64 = 3 << 17;
    const BEFORE_TILES: usize = 2696;

    let word = |at: usize| xstate[at..].first_chunk().map_or(0, |w| u64::from_le_bytes(*w));
    let (mut features, mut length) = (word(SOFTWARE), xstate.len());
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
