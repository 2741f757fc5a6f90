//! Copies of the other stack of a thread that runs Go, or of the end of a long stack.

use super::{DeepProgram, HOLES, LENGTH, header};
use crate::sampler::bpf::code::{AccessSize, AluOp, BpfCode, CodeLabel, Helper, If, Reg};
use crate::sampler::bpf::deep::GO_STACK;
use crate::sampler::bpf::go_stack::{FARTHEST_END, GoSearch, OUTERMOST};
use sys::arch::PAGE;
use sys::record::GoStacks;

use Reg::{R0, R1, R2, R3, R6, R7, R9, R10};

/// Sizes of copies in bytes: the smallest that suffices, or the largest, is used. Most goroutines have
/// small stacks.
const SIZES: [usize; 2] = [4 << 10, 32 << 10];

impl DeepProgram<'_> {
    /// Submits a record with the other stack, if there is one, else with the end of this one, if it is
    /// longer than what is copied. `R6` is the stack pointer, `R7` the base of the thread's local memory,
    /// above its stack, `R8` the start of the process's first stack; all are preserved.
    pub(super) fn copy_go(&self, c: &mut BpfCode) {
        let [none, large, done] = [(); 3].map(|()| c.label());
        let search = GoSearch::below(LENGTH);
        search.find(c, none);
        search.length(c, R2, SIZES[1]);
        c.jump_if_value(If::Greater, R2, SIZES[0] as i32, large);
        self.submit_go(c, search, SIZES[0], done);
        c.jump(done);
        c.put(large);
        self.submit_go(c, search, SIZES[1], done);
        c.jump(done);
        c.put(none);
        c.jump_if(If::AtLeast, R6, R7, done);
        c.op(AluOp::Mov, R1, R7);
        c.op(AluOp::Sub, R1, R6);
        c.jump_if_value(If::Less, R1, self.cap as i32 - PAGE as i32, done);
        c.jump_if_value(If::Greater, R1, FARTHEST_END, done);
        search.set_outermost(c, R7);
        self.submit_go(c, search, OUTERMOST as usize, done);
        c.put(done);
    }

    /// Submits a record with at most `size` bytes of the stack that was found.
    fn submit_go(&self, c: &mut BpfCode, search: GoSearch, size: usize, none: CodeLabel) {
        let [discard, done] = [(); 2].map(|()| c.label());
        let begin = header::SIZE + GoStacks::WORDS;
        c.map(R1, self.ring.fd());
        c.op_value(AluOp::Mov, R2, (begin + size) as i32);
        c.op_value(AluOp::Mov, R3, 0);
        c.call(Helper::RingReserve);
        c.jump_if_value(If::Equal, R0, 0, none);
        c.op(AluOp::Mov, R9, R0);
        search.length(c, R2, size);
        c.op(AluOp::Mov, R1, R2);
        c.op_value(AluOp::Add, R1, GoStacks::WORDS as i32);
        c.store(AccessSize::Long, R10, LENGTH, R1);
        c.op(AluOp::Mov, R1, R9);
        c.op_value(AluOp::Add, R1, begin as i32);
        c.load(AccessSize::Long, R3, R10, search.words()[3]);
        c.call(Helper::ProbeReadUser);
        c.jump_if_value(If::Differ, R0, 0, discard);
        for (i, from) in search.words().into_iter().enumerate() {
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
