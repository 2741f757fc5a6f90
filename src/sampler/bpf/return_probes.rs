//! Return addresses that the kernel has replaced for return probes, read in the kernel.

use std::io;

use super::btf::Btf;
use super::code::{AccessSize, AluOp, BpfCode, CodeLabel, Helper, If, Reg};

use Reg::{R0, R1, R2, R3, R10};

/// Offsets of fields that lead to the return addresses that the kernel has replaced.
#[derive(Clone, Copy, Debug)]
pub struct ReturnProbes {
    /// Of the thread's state of probes in the thread.
    utask: i16,
    /// Of the innermost replaced address in that state.
    first: i16,
    /// Address on the stack.
    slot: i16,
    /// The return address that was there.
    original: i16,
    next: i16,
}

impl ReturnProbes {
    /// For this kernel.
    ///
    /// # Errors
    ///
    /// It has no probes in programs, or other ones.
    pub fn find(btf: &Btf) -> io::Result<ReturnProbes> {
        let field = |name| btf.field("return_instance", &[name]);
        Ok(ReturnProbes {
            utask: btf.field("task_struct", &["utask"])?,
            first: btf.field("uprobe_task", &["return_instances"])?,
            slot: field("stack")?,
            original: field("orig_ret_vaddr")?,
            next: field("next")?,
        })
    }

    /// The word at `word` on the program's stack = the innermost replaced address of the thread in
    /// `task`. Jumps to `none` if there is none.
    pub fn first(&self, c: &mut BpfCode, task: Reg, word: i16, none: CodeLabel) {
        for (base, offset) in [(task, self.utask), (R3, self.first)] {
            read_kernel(c, word, base, offset, none);
            c.load(AccessSize::Long, R3, R10, word);
            c.jump_if_value(If::Equal, R3, 0, none);
        }
    }

    /// Two words from `to` on on the program's stack = the address on the stack and the return
    /// address of the one at `word`.
    pub fn read(&self, c: &mut BpfCode, word: i16, to: [i16; 2], failed: CodeLabel) {
        for (to, field) in to.into_iter().zip([self.slot, self.original]) {
            c.load(AccessSize::Long, R3, R10, word);
            read_kernel(c, to, R3, field, failed);
        }
    }

    /// The word at `word` = the next one. Jumps to `none` if there is none.
    pub fn next(&self, c: &mut BpfCode, word: i16, none: CodeLabel) {
        c.load(AccessSize::Long, R3, R10, word);
        read_kernel(c, word, R3, self.next, none);
        c.load(AccessSize::Long, R3, R10, word);
        c.jump_if_value(If::Equal, R3, 0, none);
    }
}

/// Reads eight bytes of the kernel's memory, `offset` bytes behind the address in `base`, to an
/// offset on the program's stack, or jumps to `failed`.
///
/// A load would do for a pointer as well, but the verifier then searches all of the kernel's types
/// for names that depend on the pointer's, which takes a millisecond.
pub fn read_kernel(c: &mut BpfCode, to: i16, base: Reg, offset: i16, failed: CodeLabel) {
    if base != R3 {
        c.op(AluOp::Mov, R3, base);
    }
    c.op_value(AluOp::Add, R3, i32::from(offset));
    c.op(AluOp::Mov, R1, R10);
    c.op_value(AluOp::Add, R1, i32::from(to));
    c.op_value(AluOp::Mov, R2, 8);
    c.call(Helper::ProbeReadKernel);
    c.jump_if_value(If::Differ, R0, 0, failed);
}
