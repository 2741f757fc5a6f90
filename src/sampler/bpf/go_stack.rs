//! The other stack of a thread that runs Go, found in the kernel.
//!
//! A thread has a stack of its own, that of `g0`, on which C and the scheduler run, and the stack of
//! the goroutine that it executes. Where Go calls C, or C calls Go back, the callers are on the other
//! one. Offsets are those of `runtime.g` and `runtime.m` (Go's `runtime2.go`).

use super::code::{AccessSize, AluOp, BpfCode, CodeLabel, If, Reg};
use super::snippets::read_user;

use Reg::{R1, R2, R3, R7, R8, R9, R10};

/// Offsets in `runtime.g`.
mod g {
    /// The end of its stack (`stack.hi`).
    pub const STACK_END: i32 = 8;
    /// The thread that executes it (`m`).
    pub const M: i32 = 48;
    /// Its saved stack pointer and instruction pointer (`sched.sp`, `sched.pc`).
    pub const SAVED_SP: i32 = 56;
    pub const SAVED_IP: i32 = 64;
}

/// Offset of `g0` in `runtime.m`.
const G0: i32 = 0;

/// Offsets of the goroutine that a thread executes (`curg`) in `runtime.m`: until Go 1.24, and later.
const CURRENT: [i32; 2] = [192, 184];

/// Distance in bytes above the stack pointer beyond which an end belongs to another stack.
pub const FARTHEST_END: i32 = 16 << 20;

/// Bytes by which a program's frames may begin above its first stack pointer: a dynamic linker that
/// is run with a program removes its own arguments. A larger value would often reach the page
/// behind the stack, which is not present and would be accessed at each sample.
pub const SKIPPED_WORDS: i32 = 256;

/// Bytes at the end of a thread's stack that have its outermost frames, for stacks that are longer than
/// what is copied of them: the larger number that is in memory. Ruby has the stack of its virtual machine,
/// 1 MiB, in the frame of each thread's first function, which has a frame pointer, and uses it from both
/// ends. The thread's own variables take 2 KiB.
pub const OUTERMOST: i32 = 8 << 10;
const LESS: i32 = 4 << 10;

/// The words on a program's stack for the search.
#[derive(Clone, Copy, Debug)]
pub struct GoSearch {
    /// Offset of the highest one.
    first: i16,
}

impl GoSearch {
    /// A search with the eight words below an offset on the program's stack.
    pub fn below(offset: i16) -> GoSearch {
        GoSearch { first: offset - 8 }
    }

    /// Offset of the end of the stack that was found.
    pub fn end(self) -> i16 {
        self.first
    }

    /// Offsets of what [`GoStacks`](sys::record::GoStacks) begins with.
    pub fn words(self) -> [i16; 4] {
        [self.goroutine(), self.system(), self.resumed(), self.begin()]
    }

    fn goroutine(self) -> i16 {
        self.first - 8
    }

    fn system(self) -> i16 {
        self.first - 16
    }

    fn resumed(self) -> i16 {
        self.first - 24
    }

    fn begin(self) -> i16 {
        self.first - 32
    }

    fn g(self) -> i16 {
        self.first - 40
    }

    fn m(self) -> i16 {
        self.first - 48
    }

    fn word(self) -> i16 {
        self.first - 56
    }

    /// Finds the stack on which the thread does not run, from its saved stack pointer on, if the
    /// thread runs Go and that stack is in use; else jumps to `none`. `R7` is the base of the thread's
    /// local memory, `R8` the start of the process's first stack; both are preserved, and so is `R6`.
    pub fn find(self, c: &mut BpfCode, none: CodeLabel) {
        let [goroutine, found] = [(); 2].map(|()| c.label());
        // The current g is in the word below the thread's control block.
        c.op(AluOp::Mov, R3, R7);
        c.op_value(AluOp::Add, R3, -8);
        read_user(c, self.g(), 8, none);
        // It is one if its thread's g0 leads back to the thread.
        follow(c, self.g(), g::M, self.m(), none);
        follow(c, self.m(), G0, self.end(), none);
        follow(c, self.end(), g::M, self.word(), none);
        must_equal(c, self.word(), self.m(), none);
        follow(c, self.end(), g::SAVED_SP, self.system(), none);
        must_equal(c, self.g(), self.end(), goroutine);

        // On the thread's stack: the goroutine's is wanted.
        for offset in CURRENT {
            let other = c.label();
            follow(c, self.m(), offset, self.g(), other);
            follow(c, self.g(), g::M, self.word(), other);
            must_equal(c, self.word(), self.m(), other);
            follow(c, self.g(), g::SAVED_SP, self.goroutine(), none);
            follow(c, self.g(), g::SAVED_IP, self.resumed(), none);
            follow(c, self.g(), g::STACK_END, self.end(), none);
            c.load(AccessSize::Long, R9, R10, self.goroutine());
            c.jump(found);
            c.put(other);
        }
        c.jump(none);

        // On a goroutine's stack: the thread's is wanted, if C has called back. Go has saved the
        // thread's previous stack pointer there.
        c.put(goroutine);
        c.store_value(AccessSize::Long, R10, self.goroutine(), 0);
        c.store_value(AccessSize::Long, R10, self.resumed(), 0);
        c.load(AccessSize::Long, R9, R10, self.system());
        c.op(AluOp::Mov, R3, R9);
        read_user(c, self.word(), 8, none);
        c.load(AccessSize::Long, R1, R10, self.word());
        c.jump_if(If::Less, R1, R9, none);
        c.op(AluOp::Sub, R1, R9);
        c.jump_if_value(If::Greater, R1, FARTHEST_END, none);
        self.find_system_end(c, none);

        c.put(found);
        c.jump_if_value(If::Equal, R9, 0, none);
        c.load(AccessSize::Long, R1, R10, self.end());
        c.jump_if(If::AtLeast, R9, R1, none);
        c.store(AccessSize::Long, R10, self.begin(), R9);
    }

    /// The end of the thread's stack, on which `R9` is: at its control block, or for the first one
    /// where the kernel set it up, else where Go expects it, which is in the `g0` at [`Self::end`].
    fn find_system_end(self, c: &mut BpfCode, none: CodeLabel) {
        let [known, first, other] = [(); 3].map(|()| c.label());
        for (end, skipped, next) in [(R7, 0, first), (R8, SKIPPED_WORDS, other)] {
            c.op(AluOp::Mov, R1, end);
            c.op_value(AluOp::Add, R1, skipped);
            c.jump_if(If::AtLeast, R9, R1, next);
            c.op(AluOp::Mov, R2, R9);
            c.op_value(AluOp::Add, R2, FARTHEST_END);
            c.jump_if(If::Greater, R1, R2, next);
            c.store(AccessSize::Long, R10, self.end(), R1);
            c.jump(known);
            c.put(next);
        }
        follow(c, self.end(), g::STACK_END, self.word(), none);
        c.load(AccessSize::Long, R1, R10, self.word());
        c.store(AccessSize::Long, R10, self.end(), R1);
        c.put(known);
    }

    /// In place of another stack: at most [`OUTERMOST`] bytes below the address in `end`, the end of the
    /// stack on which the thread runs. `end` is preserved.
    pub fn set_outermost(self, c: &mut BpfCode, end: Reg) {
        let [less, done] = [(); 2].map(|()| c.label());
        for word in [self.goroutine(), self.system(), self.resumed()] {
            c.store_value(AccessSize::Long, R10, word, 0);
        }
        c.store(AccessSize::Long, R10, self.end(), end);
        c.op(AluOp::Mov, R3, end);
        c.op_value(AluOp::Add, R3, -OUTERMOST);
        c.store(AccessSize::Long, R10, self.begin(), R3);
        read_user(c, self.word(), 8, less);
        c.jump(done);
        c.put(less);
        c.op(AluOp::Mov, R1, end);
        c.op_value(AluOp::Add, R1, -LESS);
        c.store(AccessSize::Long, R10, self.begin(), R1);
        c.put(done);
    }

    /// `to` = the number of bytes that were found, at most `size`.
    pub fn length(self, c: &mut BpfCode, to: Reg, size: usize) {
        let full = c.label();
        c.load(AccessSize::Long, to, R10, self.end());
        c.load(AccessSize::Long, R1, R10, self.begin());
        c.op(AluOp::Sub, to, R1);
        c.jump_if_value(If::Less, to, size as i32, full);
        c.op_value(AluOp::Mov, to, size as i32);
        c.put(full);
    }
}

/// `to` = the word `offset` bytes behind the address at `from`, both on the program's stack, or jumps
/// to `failed`.
fn follow(c: &mut BpfCode, from: i16, offset: i32, to: i16, failed: CodeLabel) {
    c.load(AccessSize::Long, R3, R10, from);
    c.op_value(AluOp::Add, R3, offset);
    read_user(c, to, 8, failed);
}

/// Jumps to `other` unless two words on the program's stack are equal.
fn must_equal(c: &mut BpfCode, a: i16, b: i16, other: CodeLabel) {
    c.load(AccessSize::Long, R1, R10, a);
    c.load(AccessSize::Long, R2, R10, b);
    c.jump_if(If::Differ, R1, R2, other);
}
