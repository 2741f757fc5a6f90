//! Copies of the other stack of a thread that runs Go.

use super::{DeepProgram, HOLES, LENGTH, header};
use crate::sampler::bpf::code::{AccessSize, AluOp, BpfCode, CodeLabel, Helper, If, Reg};
use crate::sampler::bpf::deep::GO_STACK;
use crate::sampler::bpf::go_stack::GoSearch;
use sys::record::GoStacks;

use Reg::{R0, R1, R2, R3, R9, R10};

/// Sizes of copies in bytes: the smallest that suffices, or the largest, is used. Most goroutines have
/// small stacks.
const SIZES: [usize; 2] = [4 << 10, 32 << 10];

impl DeepProgram<'_> {
    /// Submits a record with the other stack, if there is one. `R7` is the base of the thread's local
    /// memory, `R8` the start of the process's first stack; both are preserved, and so is `R6`.
    pub(super) fn copy_go(&self, c: &mut BpfCode) {
        let [none, large] = [(); 2].map(|()| c.label());
        let search = GoSearch::below(LENGTH);
        search.find(c, none);
        search.length(c, R2, SIZES[1]);
        c.jump_if_value(If::Greater, R2, SIZES[0] as i32, large);
        self.submit_go(c, search, SIZES[0], none);
        c.jump(none);
        c.put(large);
        self.submit_go(c, search, SIZES[1], none);
        c.put(none);
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
