//! Copies of the other stack of a thread that runs Go.
//!
//! A thread has a stack of its own, that of `g0`, on which C and the scheduler run, and the stack of
//! the goroutine that it executes. Where Go calls C, or C calls Go back, the callers are on the other
//! one. Offsets are those of `runtime.g` and `runtime.m` (Go's `runtime2.go`).

use super::{DeepProgram, FARTHEST_END, HOLES, LENGTH, SKIPPED_WORDS, WORD, header, read};
use crate::sampler::bpf::code::{AccessSize, AluOp, BpfCode, CodeLabel, Helper, If, Reg};
use crate::sampler::bpf::deep::GO_STACK;
use sys::record::GoStacks;

use Reg::{R0, R1, R2, R3, R7, R8, R9, R10};

/// Offsets in `runtime.g`.
mod g {
    /// The end of its stack (`stack.hi`).
    pub const STACK_END: i32 = 8;
    /// The thread that executes it (`m`).
    pub const M: i32 = 48;
    /// Its saved stack pointer (`sched.sp`).
    pub const SAVED_SP: i32 = 56;
}

/// Offset of `g0` in `runtime.m`.
const G0: i32 = 0;

/// Offsets of the goroutine that a thread executes (`curg`) in `runtime.m`: until Go 1.24, and later.
const CURRENT: [i32; 2] = [192, 184];

/// Sizes of copies in bytes: the smallest that suffices, or the largest, is used. Most goroutines have
/// small stacks.
const SIZES: [usize; 2] = [4 << 10, 32 << 10];

/// Offsets on the program's stack.
const G: i16 = -72;
const M: i16 = -80;
const GOROUTINE: i16 = -88;
const SYSTEM: i16 = -96;
const END: i16 = -104;

/// `to` = the word `offset` bytes behind the address at `from`, both on the program's stack, or jumps
/// to `failed`.
fn follow(c: &mut BpfCode, from: i16, offset: i32, to: i16, failed: CodeLabel) {
    c.load(AccessSize::Long, R3, R10, from);
    c.op_value(AluOp::Add, R3, offset);
    read(c, to, 8, failed);
}

/// Jumps to `other` unless two words on the program's stack are equal.
fn must_equal(c: &mut BpfCode, a: i16, b: i16, other: CodeLabel) {
    c.load(AccessSize::Long, R1, R10, a);
    c.load(AccessSize::Long, R2, R10, b);
    c.jump_if(If::Differ, R1, R2, other);
}

impl DeepProgram<'_> {
    /// Submits a record with the other stack, from its saved stack pointer on, if the thread runs Go
    /// and that stack is in use. Preserves `R6`, `R7` and `R8`.
    pub(super) fn copy_go(&self, c: &mut BpfCode) {
        let [none, goroutine, copy] = [(); 3].map(|()| c.label());
        // The current g is in the word below the thread's control block.
        c.op(AluOp::Mov, R3, R7);
        c.op_value(AluOp::Add, R3, -8);
        read(c, G, 8, none);
        // It is one if its thread's g0 leads back to the thread.
        follow(c, G, g::M, M, none);
        follow(c, M, G0, END, none);
        follow(c, END, g::M, WORD, none);
        must_equal(c, WORD, M, none);
        follow(c, END, g::SAVED_SP, SYSTEM, none);
        must_equal(c, G, END, goroutine);

        // On the thread's stack: the goroutine's is copied.
        for offset in CURRENT {
            let other = c.label();
            follow(c, M, offset, G, other);
            follow(c, G, g::M, WORD, other);
            must_equal(c, WORD, M, other);
            follow(c, G, g::SAVED_SP, GOROUTINE, none);
            follow(c, G, g::STACK_END, END, none);
            c.load(AccessSize::Long, R9, R10, GOROUTINE);
            c.jump(copy);
            c.put(other);
        }
        c.jump(none);

        // On a goroutine's stack: the thread's is copied, if C has called back. Go has saved the
        // thread's previous stack pointer there.
        c.put(goroutine);
        c.store_value(AccessSize::Long, R10, GOROUTINE, 0);
        c.load(AccessSize::Long, R9, R10, SYSTEM);
        c.op(AluOp::Mov, R3, R9);
        read(c, WORD, 8, none);
        c.load(AccessSize::Long, R1, R10, WORD);
        c.jump_if(If::Less, R1, R9, none);
        c.op(AluOp::Sub, R1, R9);
        c.jump_if_value(If::Greater, R1, FARTHEST_END, none);
        self.find_system_end(c, none);

        c.put(copy);
        c.jump_if_value(If::Equal, R9, 0, none);
        c.load(AccessSize::Long, R1, R10, END);
        c.jump_if(If::AtLeast, R9, R1, none);
        c.op(AluOp::Sub, R1, R9);
        let large = c.label();
        c.jump_if_value(If::Greater, R1, SIZES[0] as i32, large);
        self.submit_go(c, SIZES[0], none);
        c.jump(none);
        c.put(large);
        self.submit_go(c, SIZES[1], none);
        c.put(none);
    }

    /// [`END`] = the end of the thread's stack, on which `R9` is: at its control block, or for the
    /// first one where the kernel set it up, else where Go expects it, which is in [`END`]'s `g0`.
    fn find_system_end(&self, c: &mut BpfCode, none: CodeLabel) {
        let [known, first, other] = [(); 3].map(|()| c.label());
        for (end, skipped, next) in [(R7, 0, first), (R8, SKIPPED_WORDS, other)] {
            c.op(AluOp::Mov, R1, end);
            c.op_value(AluOp::Add, R1, skipped);
            c.jump_if(If::AtLeast, R9, R1, next);
            c.op(AluOp::Mov, R2, R9);
            c.op_value(AluOp::Add, R2, FARTHEST_END);
            c.jump_if(If::Greater, R1, R2, next);
            c.store(AccessSize::Long, R10, END, R1);
            c.jump(known);
            c.put(next);
        }
        follow(c, END, g::STACK_END, WORD, none);
        c.load(AccessSize::Long, R1, R10, WORD);
        c.store(AccessSize::Long, R10, END, R1);
        c.put(known);
    }

    /// Submits a record with at most `size` bytes from the address in `R9` to [`END`].
    fn submit_go(&self, c: &mut BpfCode, size: usize, none: CodeLabel) {
        let [full, discard, done] = [(); 3].map(|()| c.label());
        let begin = header::SIZE + GoStacks::WORDS;
        c.store(AccessSize::Long, R10, WORD, R9);
        c.map(R1, self.ring.fd());
        c.op_value(AluOp::Mov, R2, (begin + size) as i32);
        c.op_value(AluOp::Mov, R3, 0);
        c.call(Helper::RingReserve);
        c.jump_if_value(If::Equal, R0, 0, none);
        c.op(AluOp::Mov, R9, R0);
        c.load(AccessSize::Long, R3, R10, WORD);
        c.load(AccessSize::Long, R2, R10, END);
        c.op(AluOp::Sub, R2, R3);
        c.jump_if_value(If::Less, R2, size as i32, full);
        c.op_value(AluOp::Mov, R2, size as i32);
        c.put(full);
        c.op(AluOp::Mov, R1, R2);
        c.op_value(AluOp::Add, R1, GoStacks::WORDS as i32);
        c.store(AccessSize::Long, R10, LENGTH, R1);
        c.op(AluOp::Mov, R1, R9);
        c.op_value(AluOp::Add, R1, begin as i32);
        c.call(Helper::ProbeReadUser);
        c.jump_if_value(If::Differ, R0, 0, discard);
        for (i, from) in [GOROUTINE, SYSTEM, WORD].into_iter().enumerate() {
            c.load(AccessSize::Long, R1, R10, from);
            c.store(AccessSize::Long, R9, (header::SIZE + i * 8) as i16, R1);
        }
        c.store_value(AccessSize::Long, R10, HOLES, 0);
        self.fill_header(c);
        c.store_value(AccessSize::Long, R9, header::FROM, 0);
        c.store_value(AccessSize::Long, R9, header::INDEX, GO_STACK as i32);
        self.submit(c);
        c.jump(done);
        c.put(discard);
        self.wake_when_due(c);
        c.op(AluOp::Mov, R1, R9);
        c.call(Helper::RingDiscard);
        c.put(done);
    }
}
