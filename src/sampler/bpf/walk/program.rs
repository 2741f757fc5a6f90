//! The part of a program that walks at a sample. It is a snippet: an event has only one program, and
//! one that writes records walks before it writes.
//!
//! ```text
//! walks = descriptors of the process; none: end
//! for each walk:
//!     for each of its starts:
//!         p = address, thread pointer or frame pointer; an address may be for the first thread
//!             only: the next start in others
//!         for each d of the start's path: stop if p is 0; p = *(p + d)
//!         if it has a key: up to `rounds` times:
//!             found if p is 0, or *(p + key) is the thread pointer
//!             p = *(p + next), or 0 after the last round
//!         object = p; the next start if it is 0
//!     for each d of the walk's path: stop if p is 0; p = *(p + d)
//!     status Nothing if p is 0
//!     first = p
//!     end = 0, or *(object + base) + *(object + count) * unit for an array
//!     until `most` frames are copied, else status TooMany:
//!         if the record has no room for a frame: write it with status Continued, begin another
//!         copy [p + lo, p + lo + size)
//!         for each block behind it: a = its word in the frame's copy so far;
//!             copy [a + lo, a + lo + size), or zeros if a is no address or that cannot be read
//!         copy its code, if that is new (`new_code.rs`)
//!         p = the word of the copy at `next`, or, if that at `mark` is one of two marks, at `marked`;
//!             or p + stride
//!         status Complete if p is end
//!     another read that fails, or too many behind pointers: status Fault, with the frames before it
//!     write the record
//! ```
//!
//! All that changes in a loop lies in a map, not on the program's stack: the verifier does not track
//! the contents of maps, so each round looks like the one before, and a few are followed instead of
//! all. Registers in the loops: `R6` the walk, `R7` the CPU's memory, `R8` the walks of the process,
//! `R9` the start, then the place of the frame's copy.
//!
//! What limits a loop for the verifier ends all walks of the sample: it cannot be reached, and a way
//! from it back into a loop would be one without limit.
//!
//! The CPU's memory is used by one program at a time: the kernel runs no program for an event in the
//! interrupt of another one. An event may interrupt the program of a tracepoint, so those have memory
//! of their own ([`CpuMemory`](super::CpuMemory)).

use interpreters::walk::{
    END_OF_ADDRESSES, MAX_BEHIND_SIZE, MAX_BLOCK, MAX_PATH, MAX_STARTS, MAX_UNREADABLE,
};

use super::encoded::{MAX_WALKS, start, word};
use super::ring::{CAPACITY, MAX_FRAME, header, status};
use crate::sampler::bpf::code::{AccessSize, AluOp, BpfCode, CodeLabel, Helper, If, Reg};
use crate::sampler::bpf::snippets::{self, KEY, read_user};
use crate::sampler::bpf::syscall::Map;

use Reg::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};

/// Offsets in a CPU's memory, in bytes.
pub(super) mod memory {
    /// Registers of the thread.
    pub const THREAD_POINTER: i16 = 0;
    pub const FRAME_POINTER: i16 = 8;
    /// Number of the start.
    pub const START: i16 = 16;
    /// Rounds of a list that are left.
    pub const LEFT: i16 = 24;
    /// The address that the walk has come to.
    pub const P: i16 = 32;
    /// The end of an array.
    pub const END: i16 = 40;
    /// Number of copied frames, of all records.
    pub const FRAMES: i16 = 48;
    /// Time at which the walk began.
    pub const BEGUN: i16 = 56;
    /// Number of blocks behind pointers that could not be read.
    pub const UNREADABLE: i16 = 64;
    /// Number of code objects that were copied.
    pub const NEW_CODE: i16 = 72;
    /// The hash of the last one, and its context.
    pub const HASH: i16 = 80;
    /// See [`HASH`].
    pub const CONTEXT: i16 = 88;
    /// The record.
    pub const RECORD: i16 = 96;
}

/// The frames in a CPU's memory.
pub(super) const FRAMES: i16 = memory::RECORD + header::SIZE as i16;

/// Size of a CPU's memory in bytes.
pub const MEMORY_SIZE: usize = FRAMES as usize + CAPACITY;

/// The largest place of a word in what is copied of a frame.
pub(super) const LAST_WORD: i32 = MAX_FRAME as i32 - 8;

/// A word that is read of the thread's memory, on the program's stack, where the key is when a map is
/// looked up.
const WORD: i16 = KEY;

/// Offsets on the program's stack at which the program around it has words of the sample. The one at
/// [`KEY`] is overwritten.
#[derive(Clone, Copy, Debug)]
pub struct SampleWords {
    /// Its time.
    pub time: i16,
    /// Its thread.
    pub tid: i16,
    /// Instruction pointer and stack pointer in user mode.
    pub ip: i16,
    /// See [`SampleWords::ip`].
    pub sp: i16,
    /// The thread pointer.
    pub thread_pointer: i16,
    /// Has no word of the sample.
    pub spare: i16,
    /// Receives the number of frames, if the program around it needs that; it has to be 0.
    pub frames: Option<i16>,
}

/// What the program uses.
pub struct WalkProgram<'a> {
    /// Walks by process.
    pub processes: &'a Map,
    /// Each CPU's memory.
    pub memory: &'a Map,
    /// Hashes of code that was copied.
    pub slots: &'a Map,
    /// Counts the records for which the ring had no room.
    pub lost: &'a Map,
    /// The ring, and its size in bytes.
    pub ring: &'a Map,
    /// See [`WalkProgram::ring`].
    pub ring_size: u32,
    /// Offset of the frame pointer in `pt_regs`.
    pub frame_pointer: i16,
}

/// Places in the code of a walk.
struct Places {
    walk: CodeLabel,
    start: CodeLabel,
    frame: CodeLabel,
    complete: CodeLabel,
    fault: CodeLabel,
    too_many: CodeLabel,
    nothing: CodeLabel,
    write: CodeLabel,
    out: CodeLabel,
}

impl WalkProgram<'_> {
    /// Walks in the thread that was sampled. Overwrites all registers.
    pub fn run(&self, c: &mut BpfCode, sample: SampleWords) {
        let [walk, start, frame, complete, fault] = [(); 5].map(|()| c.label());
        let [too_many, nothing, write, out] = [(); 4].map(|()| c.label());
        let to = Places { walk, start, frame, complete, fault, too_many, nothing, write, out };
        self.begin(c, sample, &to);
        choose_walk(c, &to);
        find_object(c, &to);
        find_first(c, &to);
        self.copy_frames(c, sample, &to);
        for (label, value) in [
            (to.complete, status::COMPLETE),
            (to.fault, status::FAULT),
            (to.too_many, status::TOO_MANY),
            (to.nothing, status::NOTHING),
        ] {
            c.put(label);
            c.store_value(AccessSize::Long, R7, field(header::STATUS), value);
            c.jump(to.write);
        }
        c.put(to.write);
        self.write(c, sample, &to);
        c.put(to.out);
    }

    /// Finds the walks of the process, and begins a record.
    fn begin(&self, c: &mut BpfCode, sample: SampleWords, to: &Places) {
        c.call(Helper::PidTgid);
        c.op_value(AluOp::Rsh, R0, 32);
        c.store(AccessSize::Word, R10, KEY, R0);
        c.op(AluOp::Mov, R9, R0);
        snippets::look_up(c, self.processes, to.out);
        c.op(AluOp::Mov, R8, R0);
        c.store_value(AccessSize::Word, R10, KEY, 0);
        snippets::look_up(c, self.memory, to.out);
        c.op(AluOp::Mov, R7, R0);
        c.store(AccessSize::Long, R7, field(header::PID), R9);
        c.store_value(AccessSize::Long, R7, field(header::WALK), 0);
        c.store_value(AccessSize::Long, R7, memory::NEW_CODE, 0);
        for (at, from) in [
            (field(header::TIME), sample.time),
            (field(header::TID), sample.tid),
            (field(header::IP), sample.ip),
            (field(header::SP), sample.sp),
            (memory::THREAD_POINTER, sample.thread_pointer),
        ] {
            c.load(AccessSize::Long, R1, R10, from);
            c.store(AccessSize::Long, R7, at, R1);
        }
        c.call(Helper::CpuNumber);
        c.store(AccessSize::Long, R7, field(header::CPU), R0);
        c.call(Helper::CurrentTask);
        c.op(AluOp::Mov, R1, R0);
        c.call(Helper::TaskRegs);
        c.load(AccessSize::Long, R1, R0, self.frame_pointer);
        c.store(AccessSize::Long, R7, memory::FRAME_POINTER, R1);
    }

    /// Writes the record, and goes on: with the frames, if it is not the walk's last one, or with
    /// the next walk. If there is no room, the sample's copies end here.
    fn write(&self, c: &mut BpfCode, sample: SampleWords, to: &Places) {
        let [lost, full] = [(); 2].map(|()| c.label());
        c.call(Helper::KtimeGetNs);
        c.load(AccessSize::Long, R1, R7, memory::BEGUN);
        c.op(AluOp::Sub, R0, R1);
        c.store(AccessSize::Long, R7, field(header::TOOK), R0);
        snippets::wake_when_due(c, self.ring, self.ring_size);
        c.op(AluOp::Mov, R4, R2);
        c.map(R1, self.ring.fd());
        c.op(AluOp::Mov, R2, R7);
        c.op_value(AluOp::Add, R2, memory::RECORD.into());
        c.load(AccessSize::Long, R3, R7, field(header::LENGTH));
        c.jump_if_value(If::Greater, R3, CAPACITY as i32, full);
        c.op_value(AluOp::Add, R3, header::SIZE as i32);
        c.call(Helper::RingOutput);
        c.jump_if_value(If::Differ, R0, 0, lost);
        c.put(full);
        let last = c.label();
        c.op_value(AluOp::Mov, R2, 1);
        c.load(AccessSize::Long, R1, R7, field(header::STATUS));
        c.jump_if_value(If::Differ, R1, status::CONTINUED, last);
        c.store_value(AccessSize::Long, R7, field(header::LENGTH), 0);
        c.add_to(R7, field(header::PART), R2, R1);
        c.jump(to.frame);
        c.put(last);
        c.add_to(R7, field(header::WALK), R2, R1);
        if let Some(frames) = sample.frames {
            c.load(AccessSize::Long, R2, R7, memory::FRAMES);
            c.add_to(R10, frames, R2, R1);
        }
        c.jump(to.walk);

        c.put(lost);
        c.store_value(AccessSize::Word, R10, KEY, 0);
        snippets::look_up(c, self.lost, to.out);
        c.op_value(AluOp::Mov, R2, 1);
        c.add_to(R0, 0, R2, R1);
        c.jump(to.out);
    }

    /// Copies frames until an end.
    fn copy_frames(&self, c: &mut BpfCode, sample: SampleWords, to: &Places) {
        let [room, by_pointer, marked, next] = [(); 4].map(|()| c.label());
        c.put(to.frame);
        c.may_jump(to.out);
        c.load(AccessSize::Long, R1, R7, memory::FRAMES);
        c.load(AccessSize::Long, R2, R6, word::MOST);
        c.jump_if(If::AtLeast, R1, R2, to.too_many);
        c.load(AccessSize::Long, R1, R7, field(header::LENGTH));
        c.op_value(AluOp::Mov, R2, (CAPACITY - MAX_FRAME) as i32);
        c.jump_if(If::AtLeast, R2, R1, room);
        c.store_value(AccessSize::Long, R7, field(header::STATUS), status::CONTINUED);
        c.jump(to.write);
        c.put(room);
        c.op(AluOp::Mov, R9, R7);
        c.op(AluOp::Add, R9, R1);

        c.op(AluOp::Mov, R1, R9);
        c.op_value(AluOp::Add, R1, FRAMES.into());
        size_of(c, word::SIZE, MAX_BLOCK, to.fault);
        c.load(AccessSize::Long, R3, R7, memory::P);
        c.load(AccessSize::Long, R0, R6, word::LO);
        c.op(AluOp::Add, R3, R0);
        c.call(Helper::ProbeReadUser);
        c.jump_if_value(If::Differ, R0, 0, to.fault);
        copy_behind(c, to);
        self.copy_new_code(c, sample, to.fault);

        c.op_value(AluOp::Mov, R2, 1);
        c.add_to(R7, memory::FRAMES, R2, R1);
        c.load(AccessSize::Long, R2, R6, word::FRAME_SIZE);
        c.add_to(R7, field(header::LENGTH), R2, R1);
        c.load(AccessSize::Long, R3, R6, word::STRIDE);
        c.jump_if_value(If::Equal, R3, 0, by_pointer);
        c.load(AccessSize::Long, R1, R7, memory::P);
        c.op(AluOp::Add, R3, R1);
        c.jump(next);
        c.put(by_pointer);
        word_of_frame(c, word::MARK, to.fault);
        for mark in word::MARKS {
            c.load(AccessSize::Long, R1, R6, mark);
            c.jump_if(If::Equal, R3, R1, marked);
        }
        word_of_frame(c, word::NEXT, to.fault);
        c.jump(next);
        c.put(marked);
        word_of_frame(c, word::MARKED, to.fault);
        c.put(next);
        c.store(AccessSize::Long, R7, memory::P, R3);
        c.load(AccessSize::Long, R1, R7, memory::END);
        c.jump_if(If::Differ, R3, R1, to.frame);
    }
}

/// The offset of a field of the record in a CPU's memory.
pub(super) const fn field(at: i16) -> i16 {
    memory::RECORD + at
}

/// `R6` = the next walk, with an empty record.
fn choose_walk(c: &mut BpfCode, to: &Places) {
    c.put(to.walk);
    c.may_jump(to.out);
    c.load(AccessSize::Long, R1, R7, field(header::WALK));
    c.jump_if_value(If::Greater, R1, MAX_WALKS as i32 - 1, to.out);
    c.op_value(AluOp::Lsh, R1, word::SHIFT);
    c.op(AluOp::Mov, R6, R8);
    c.op(AluOp::Add, R6, R1);
    c.load(AccessSize::Long, R1, R6, word::MOST);
    c.jump_if_value(If::Equal, R1, 0, to.out);
    c.load(AccessSize::Long, R1, R6, word::ID);
    c.store(AccessSize::Long, R7, field(header::ID), R1);
    for at in [header::PART, header::OBJECT, header::FIRST, header::LENGTH] {
        c.store_value(AccessSize::Long, R7, field(at), 0);
    }
    for at in [memory::START, memory::P, memory::END, memory::FRAMES, memory::UNREADABLE] {
        c.store_value(AccessSize::Long, R7, at, 0);
    }
    c.call(Helper::KtimeGetNs);
    c.store(AccessSize::Long, R7, memory::BEGUN, R0);
}

/// The object of the first start that finds one.
fn find_object(c: &mut BpfCode, to: &Places) {
    let [known, next, found] = [(); 3].map(|()| c.label());
    c.put(to.start);
    c.may_jump(to.out);
    c.load(AccessSize::Long, R1, R7, memory::START);
    c.jump_if_value(If::Greater, R1, MAX_STARTS as i32 - 1, to.nothing);
    c.op_value(AluOp::Lsh, R1, start::SHIFT);
    c.op(AluOp::Mov, R9, R6);
    c.op(AluOp::Add, R9, R1);
    c.op_value(AluOp::Add, R9, word::STARTS.into());

    c.load(AccessSize::Long, R1, R9, start::KIND);
    c.jump_if_value(If::Equal, R1, start::NONE, to.nothing);
    c.load(AccessSize::Long, R3, R7, memory::THREAD_POINTER);
    c.jump_if_value(If::Equal, R1, start::THREAD_POINTER, known);
    c.load(AccessSize::Long, R3, R7, memory::FRAME_POINTER);
    c.jump_if_value(If::Equal, R1, start::FRAME_POINTER, known);
    c.load(AccessSize::Long, R3, R9, start::BEGIN);
    c.jump_if_value(If::Differ, R1, start::FIRST_THREAD, known);
    c.load(AccessSize::Long, R1, R7, field(header::PID));
    c.load(AccessSize::Long, R2, R7, field(header::TID));
    c.jump_if(If::Differ, R1, R2, next);
    c.put(known);
    c.store(AccessSize::Long, R7, memory::P, R3);
    follow(c, R9, start::PATH, to.fault);
    search_list(c, next, to);
    c.load(AccessSize::Long, R1, R7, memory::P);
    c.jump_if_value(If::Differ, R1, 0, found);

    c.put(next);
    c.op_value(AluOp::Mov, R2, 1);
    c.add_to(R7, memory::START, R2, R1);
    c.jump(to.start);
    c.put(found);
    c.store(AccessSize::Long, R7, field(header::OBJECT), R1);
}

/// `P` = the object with the thread's key among those of the list that begins with `P`, or 0; jumps
/// to `none` if it has too many.
fn search_list(c: &mut BpfCode, none: CodeLabel, to: &Places) {
    let [again, found] = [(); 2].map(|()| c.label());
    c.load(AccessSize::Long, R1, R9, start::ROUNDS);
    c.store(AccessSize::Long, R7, memory::LEFT, R1);
    c.jump_if_value(If::Equal, R1, 0, found);
    c.put(again);
    c.may_jump(to.out);
    c.load(AccessSize::Long, R3, R7, memory::P);
    c.jump_if_value(If::Equal, R3, 0, found);
    c.load(AccessSize::Long, R1, R9, start::KEY);
    c.op(AluOp::Add, R3, R1);
    read_user(c, WORD, 8, to.fault);
    c.load(AccessSize::Long, R1, R10, WORD);
    c.load(AccessSize::Long, R2, R7, memory::THREAD_POINTER);
    c.jump_if(If::Equal, R1, R2, found);
    c.load(AccessSize::Long, R1, R7, memory::LEFT);
    c.op_value(AluOp::Sub, R1, 1);
    c.store(AccessSize::Long, R7, memory::LEFT, R1);
    c.jump_if_value(If::Equal, R1, 0, none);
    c.load(AccessSize::Long, R3, R7, memory::P);
    c.load(AccessSize::Long, R1, R9, start::NEXT);
    c.op(AluOp::Add, R3, R1);
    read_user(c, WORD, 8, to.fault);
    c.load(AccessSize::Long, R1, R10, WORD);
    c.store(AccessSize::Long, R7, memory::P, R1);
    c.jump(again);
    c.put(found);
}

/// Follows the path at an offset of `base` from `P`, until it is 0.
fn follow(c: &mut BpfCode, base: Reg, path: i16, fault: CodeLabel) {
    let done = c.label();
    for i in 0..MAX_PATH as i16 {
        c.load(AccessSize::Long, R1, base, path);
        c.jump_if_value(If::Less, R1, i32::from(i) + 1, done);
        c.load(AccessSize::Long, R3, R7, memory::P);
        c.jump_if_value(If::Equal, R3, 0, done);
        c.load(AccessSize::Long, R1, base, path + 8 * (i + 1));
        c.op(AluOp::Add, R3, R1);
        read_user(c, WORD, 8, fault);
        c.load(AccessSize::Long, R1, R10, WORD);
        c.store(AccessSize::Long, R7, memory::P, R1);
    }
    c.put(done);
}

/// From the object to the first frame, and to the end of an array.
fn find_first(c: &mut BpfCode, to: &Places) {
    follow(c, R6, word::PATH, to.fault);
    c.load(AccessSize::Long, R1, R7, memory::P);
    c.jump_if_value(If::Equal, R1, 0, to.nothing);
    c.store(AccessSize::Long, R7, field(header::FIRST), R1);
    c.load(AccessSize::Long, R1, R6, word::STRIDE);
    c.jump_if_value(If::Equal, R1, 0, to.frame);
    for (at, is_count) in [(word::COUNT, true), (word::BASE, false)] {
        c.load(AccessSize::Long, R3, R7, field(header::OBJECT));
        c.load(AccessSize::Long, R1, R6, at);
        c.op(AluOp::Add, R3, R1);
        read_user(c, WORD, 8, to.fault);
        c.load(AccessSize::Long, R1, R10, WORD);
        let (op, from) = if is_count { (AluOp::Mul, R6) } else { (AluOp::Add, R7) };
        c.load(AccessSize::Long, R2, from, if is_count { word::UNIT } else { memory::END });
        c.op(op, R1, R2);
        c.store(AccessSize::Long, R7, memory::END, R1);
    }
}

/// Copies the blocks behind pointers of what was copied of the frame.
fn copy_behind(c: &mut BpfCode, to: &Places) {
    let done = c.label();
    for (i, at) in word::BEHIND.into_iter().enumerate() {
        let [zeros, copied] = [(); 2].map(|()| c.label());
        c.load(AccessSize::Long, R1, R6, at + 16);
        c.jump_if_value(If::Equal, R1, 0, done);
        word_of_frame(c, at, to.fault);
        c.op(AluOp::Mov, R1, R9);
        c.op_value(AluOp::Add, R1, FRAMES.into());
        size_of(c, word::SIZE, MAX_BLOCK, to.fault);
        c.op(AluOp::Add, R1, R2);
        for before in &word::BEHIND[..i] {
            size_of(c, before + 16, MAX_BEHIND_SIZE, to.fault);
            c.op(AluOp::Add, R1, R2);
        }
        size_of(c, at + 16, MAX_BEHIND_SIZE, to.fault);
        c.jump_if_value(If::Equal, R3, 0, zeros);
        c.number(R0, END_OF_ADDRESSES);
        c.jump_if(If::AtLeast, R3, R0, zeros);
        c.load(AccessSize::Long, R0, R6, at + 8);
        c.op(AluOp::Add, R3, R0);
        c.call(Helper::ProbeReadUser);
        c.jump_if_value(If::Equal, R0, 0, copied);
        // The block has zeros.
        c.op_value(AluOp::Mov, R2, 1);
        c.add_to(R7, memory::UNREADABLE, R2, R1);
        c.load(AccessSize::Long, R1, R7, memory::UNREADABLE);
        c.jump_if_value(If::Greater, R1, MAX_UNREADABLE as i32, to.fault);
        c.jump(copied);
        // What is behind them is overwritten.
        c.put(zeros);
        for word in 0..MAX_BEHIND_SIZE as i16 / 8 {
            c.store_value(AccessSize::Long, R1, 8 * word, 0);
        }
        c.put(copied);
    }
    c.put(done);
}

/// `R2` = a number of bytes, which a word of the walk has.
fn size_of(c: &mut BpfCode, at: i16, most: usize, fault: CodeLabel) {
    c.load(AccessSize::Long, R2, R6, at);
    c.jump_if_value(If::Greater, R2, most as i32, fault);
}

/// `R3` = the word in a place of what is copied of the frame, which a word of the walk has.
pub(super) fn word_of_frame(c: &mut BpfCode, at: i16, fault: CodeLabel) {
    c.load(AccessSize::Long, R1, R6, at);
    c.jump_if_value(If::Greater, R1, LAST_WORD, fault);
    c.op(AluOp::Add, R1, R9);
    c.load(AccessSize::Long, R3, R1, FRAMES);
}
