//! The part of the walk that copies the code of a frame which is new: it may be freed before its names
//! are read.
//!
//! ```text
//! h = a hash of words of the frame's copy, of the process and of its walks
//! slot = one of `SLOTS`, by h; end if it has h, or if the sample has copied enough
//! end if half of the ring is full
//! record = room in the ring; none: end
//! slot = h
//! for each block: p = its word in the frame's copy, or in the second block
//!     copy [p, p + size), or else up to the end of p's page; with p and the number of bytes, or 0
//! write the record
//! ```
//!
//! The slots are those of all CPUs and processes. Code whose slot is taken by other code is copied again
//! when it is seen again.

use interpreters::walk::{CODE_BLOCK_HEAD, CODE_BLOCKS, CODE_SIZE, POINTER_BLOCK, code_block_at};

use super::encoded::{MAX_WALKS, code_block, word};
use super::program::{FRAMES, LAST_WORD, SampleWords, WalkProgram, field, memory, word_of_frame};
use super::ring::{header, status};
use crate::sampler::bpf::code::{AccessSize, AluOp, BpfCode, CodeLabel, Helper, If, Reg};
use sys::arch::PAGE;

use Reg::{R0, R1, R2, R3, R4, R6, R7, R9, R10};

/// Binary logarithm of the number of slots.
const SLOTS_SHIFT: i32 = 13;

/// Bytes of all slots.
pub const SLOTS_SIZE: usize = 8 << SLOTS_SHIFT;

/// Most code objects that are copied at a sample: each takes about 1 µs.
const MOST: i32 = 32;

/// Knuth's multiplier, of 64 bits.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// `BPF_RB_AVAIL_DATA`.
const AVAILABLE: i32 = 0;

/// `BPF_RB_NO_WAKEUP`: the record of the walk wakes prof.
const NO_WAKEUP: i32 = 1;

/// The offset in the record of a block's head.
const fn block_at(number: usize) -> i16 {
    (header::SIZE + code_block_at(number)) as i16
}

impl WalkProgram<'_> {
    /// Copies the code of the frame at `R9`, if it is new. Preserves `R6` to `R9`.
    pub(super) fn copy_new_code(&self, c: &mut BpfCode, sample: SampleWords, fault: CodeLabel) {
        let [known, write] = [(); 2].map(|()| c.label());
        c.load(AccessSize::Long, R1, R6, code_block::SIZE);
        c.jump_if_value(If::Equal, R1, 0, known);
        hash(c, fault);
        self.slot(c);
        c.load(AccessSize::Long, R3, R2, 0);
        c.jump_if(If::Equal, R3, R4, known);
        c.load(AccessSize::Long, R1, R7, memory::NEW_CODE);
        c.jump_if_value(If::AtLeast, R1, MOST, known);
        c.store(AccessSize::Long, R7, memory::HASH, R4);
        // Frames need the room more than names.
        c.map(R1, self.ring.fd());
        c.op_value(AluOp::Mov, R2, AVAILABLE);
        c.call(Helper::RingQuery);
        c.jump_if_value(If::AtLeast, R0, self.ring_size as i32 / 2, known);
        c.map(R1, self.ring.fd());
        c.op_value(AluOp::Mov, R2, (header::SIZE + CODE_SIZE) as i32);
        c.op_value(AluOp::Mov, R3, 0);
        c.call(Helper::RingReserve);
        c.jump_if_value(If::Equal, R0, 0, known);
        c.store(AccessSize::Long, R10, sample.spare, R0);
        fill_header(c);
        c.load(AccessSize::Long, R4, R7, memory::HASH);
        self.slot(c);
        c.store(AccessSize::Long, R2, 0, R4);
        for number in 0..CODE_BLOCKS.len() {
            copy_block(c, number, sample.spare, write);
        }
        c.put(write);
        c.load(AccessSize::Long, R1, R10, sample.spare);
        c.op_value(AluOp::Mov, R2, NO_WAKEUP);
        c.call(Helper::RingSubmit);
        c.put(known);
    }

    /// `R2` = the slot of the hash in `R4`. Overwrites `R1`.
    fn slot(&self, c: &mut BpfCode) {
        c.op(AluOp::Mov, R1, R4);
        c.op_value(AluOp::Rsh, R1, 64 - SLOTS_SHIFT);
        c.op_value(AluOp::Lsh, R1, 3);
        c.map_value(R2, self.slots.fd());
        c.op(AluOp::Add, R2, R1);
    }
}

/// `R4` = the hash of the frame's code.
fn hash(c: &mut BpfCode, fault: CodeLabel) {
    c.number(R2, MULTIPLIER);
    c.op_value(AluOp::Mov, R4, 0);
    for at in word::CODE_WORDS {
        word_of_frame(c, at, fault);
        c.op(AluOp::Mul, R4, R2);
        c.op(AluOp::Add, R4, R3);
    }
    c.store(AccessSize::Long, R7, memory::CONTEXT, R3);
    for at in [header::PID, header::ID] {
        c.op(AluOp::Mul, R4, R2);
        c.load(AccessSize::Long, R1, R7, field(at));
        c.op(AluOp::Add, R4, R1);
    }
    c.op(AluOp::Mul, R4, R2);
}

/// Fills the header of the record at `R0`, and counts it.
fn fill_header(c: &mut BpfCode) {
    for at in [header::TIME, header::PID, header::TID, header::IP, header::SP, header::ID] {
        c.load(AccessSize::Long, R1, R7, field(at));
        c.store(AccessSize::Long, R0, at, R1);
    }
    c.load(AccessSize::Long, R1, R7, memory::CONTEXT);
    c.store(AccessSize::Long, R0, header::OBJECT, R1);
    c.load(AccessSize::Long, R1, R7, memory::NEW_CODE);
    c.store(AccessSize::Long, R0, header::PART, R1);
    c.op_value(AluOp::Add, R1, 1);
    c.store(AccessSize::Long, R7, memory::NEW_CODE, R1);
    for (at, value) in [
        (header::WALK, MAX_WALKS as i32),
        (header::STATUS, status::CODE),
        (header::FIRST, 0),
        (header::LENGTH, CODE_SIZE as i32),
        (header::TOOK, 0),
        (header::CPU, 0),
    ] {
        c.store_value(AccessSize::Long, R0, at, value);
    }
    for number in 0..CODE_BLOCKS.len() {
        c.store_value(AccessSize::Long, R0, block_at(number), 0);
        c.store_value(AccessSize::Long, R0, block_at(number) + 8, 0);
    }
}

/// Copies a block, or jumps to `write` if the descriptor has no more. The record is in `spare`.
fn copy_block(c: &mut BpfCode, number: usize, spare: i16, write: CodeLabel) {
    let [in_block, address, failed, done] = [(); 4].map(|()| c.label());
    let word = code_block::at(number);
    let (at, most) = (block_at(number), CODE_BLOCKS[number] as i32);
    c.load(AccessSize::Long, R1, R6, word + code_block::SIZE_AT);
    c.jump_if_value(If::Equal, R1, 0, write);
    c.load(AccessSize::Long, R1, R6, word + code_block::PLACE_AT);
    if number > POINTER_BLOCK {
        c.load(AccessSize::Long, R2, R6, word + code_block::IN_BLOCK_AT);
        c.jump_if_value(If::Differ, R2, 0, in_block);
    }
    c.jump_if_value(If::Greater, R1, LAST_WORD, done);
    c.op(AluOp::Add, R1, R9);
    c.load(AccessSize::Long, R3, R1, FRAMES);
    if number > POINTER_BLOCK {
        c.jump(address);
        c.put(in_block);
        c.jump_if_value(If::Greater, R1, CODE_BLOCKS[POINTER_BLOCK] as i32 - 8, done);
        c.load(AccessSize::Long, R2, R10, spare);
        c.load(AccessSize::Long, R3, R2, block_at(POINTER_BLOCK) + 8);
        c.op(AluOp::Mov, R0, R1);
        c.op_value(AluOp::Add, R0, 8);
        c.jump_if(If::Less, R3, R0, done);
        c.op(AluOp::Add, R2, R1);
        c.load(AccessSize::Long, R3, R2, block_at(POINTER_BLOCK) + CODE_BLOCK_HEAD as i16);
        c.put(address);
    }
    c.load(AccessSize::Long, R1, R10, spare);
    c.store(AccessSize::Long, R1, at, R3);
    c.jump_if_value(If::Equal, R3, 0, done);
    c.load(AccessSize::Long, R2, R6, word + code_block::SIZE_AT);
    for _ in 0..2 {
        // The size in the descriptor, then that of the rest of the page.
        c.jump_if_value(If::Greater, R2, most, failed);
        c.store(AccessSize::Long, R1, at + 8, R2);
        c.op_value(AluOp::Add, R1, i32::from(at) + CODE_BLOCK_HEAD as i32);
        c.call(Helper::ProbeReadUser);
        c.jump_if_value(If::Equal, R0, 0, done);
        c.load(AccessSize::Long, R1, R10, spare);
        c.load(AccessSize::Long, R3, R1, at);
        c.op(AluOp::Mov, R0, R3);
        c.op_value(AluOp::And, R0, PAGE as i32 - 1);
        c.op_value(AluOp::Mov, R2, PAGE as i32);
        c.op(AluOp::Sub, R2, R0);
    }
    c.put(failed);
    c.store_value(AccessSize::Long, R1, at + 8, 0);
    c.put(done);
}
