//! What a program that writes records adds to them about the thread's stack, which the kernel does not
//! copy: the return addresses that it has replaced for return probes, and the other stack of a thread
//! that runs Go, or the outermost frames of a thread whose stack is longer than the kernel's copy. Before
//! that, it walks over the frames of an interpreter ([`walk`](super::walk)).

use std::io;
use std::sync::Arc;

use super::btf::Btf;
use super::code::{AccessSize, AluOp, BpfCode, CodeLabel, Helper, If, Reg};
use super::go_stack::{FARTHEST_END, GoSearch};
use super::return_probes::{ReturnProbes, read_kernel};
use super::snippets::{self, KEY, Output, RecordBytes, RecordRegisters, control};
use super::syscall::{EntrySize, Map, MapKind};
use super::walk::program::SampleWords;
use super::walk::{CpuMemory, WalkMaps};
use crate::sampler::arch;
use sys::record::{GoStacks, Sample};

use Reg::{R0, R1, R2, R3, R6, R7, R8, R9, R10};

/// Maximum number of replaced return addresses, and their size in bytes.
const MAX_REPLACED: usize = 12;
const REPLACED: usize = MAX_REPLACED * 16;

/// Maximum number of bytes of a thread's other stack: a value of a map for each CPU has less than
/// 32 KiB.
const MAX_GO: usize = 16 << 10;

/// Distance in bytes from a thread's stack pointer to the end of its stack up to which the kernel's copy
/// has all of it, if it is in memory.
const SHORT_STACK: i32 = 32 << 10;

/// Binary logarithm of the number of interpreter frames that count as another record, of which a
/// limited number is written: both take about 10 µs.
const FRAMES_OF_RECORD: i32 = 6;

/// Offsets of fields that lead to a thread's stacks.
#[derive(Clone, Copy, Debug)]
struct Fields {
    tid: i16,
    mm: i16,
    start_stack: i16,
    thread_pointer: i16,
    /// Of user registers.
    ip: i16,
    sp: i16,
}

/// Walks over frames of interpreters at a type's records.
#[derive(Debug)]
struct PartWalks {
    maps: Arc<WalkMaps>,
    memory: CpuMemory,
}

/// The parts of the stacks in a type's records. The last of their fixed words is the time of the walk.
#[derive(Debug)]
pub struct StackParts {
    /// `None`: programs do not walk.
    walks: Option<PartWalks>,
    /// `None`: this kernel has no probes in programs, or other ones.
    probes: Option<ReturnProbes>,
    fields: Fields,
    /// Size of the record without the parts in bytes.
    fixed: usize,
    /// Memory of each CPU for a record.
    buffer: Map,
}

/// The words of [`StackParts::write`] on a program's stack.
#[derive(Clone, Copy)]
struct PartWords {
    now: i16,
    /// 1 if the other stack was found, or the end of this one.
    has_go: i16,
    probe: i16,
    pair: [i16; 2],
    search: GoSearch,
}

/// The words of [`StackParts::walk`] on a program's stack, before those have their use.
#[derive(Clone, Copy)]
struct WalkWords {
    control: i16,
    tid: i16,
    ip: i16,
    sp: i16,
    thread_pointer: i16,
    frames: i16,
    spare: i16,
}

/// The offset of the nth word below `offset` on a program's stack.
fn word_below(offset: i16, n: i16) -> i16 {
    offset - 8 * n
}

impl WalkWords {
    fn below(offset: i16) -> WalkWords {
        let word = |n| word_below(offset, n);
        WalkWords {
            control: word(1),
            tid: word(2),
            ip: word(3),
            sp: word(4),
            thread_pointer: word(5),
            frames: word(6),
            spare: word(7),
        }
    }
}

impl PartWords {
    fn below(offset: i16) -> PartWords {
        let word = |n| word_below(offset, n);
        PartWords {
            now: word(1),
            has_go: word(2),
            probe: word(3),
            pair: [word(4), word(5)],
            search: GoSearch::below(word(5)),
        }
    }
}

impl StackParts {
    /// For records of `fixed` bytes; `walks`: programs that write them walk.
    ///
    /// # Errors
    ///
    /// The kernel's structures are others, or there is not enough memory.
    pub fn new(
        kernel: &Btf,
        fixed: usize,
        walks: Option<&Arc<WalkMaps>>,
    ) -> io::Result<StackParts> {
        let task = |path: &[&str]| kernel.field("task_struct", path);
        let register = |name| kernel.field("pt_regs", &[name]);
        let size = fixed + REPLACED + GoStacks::WORDS + MAX_GO;
        let with_memory = |maps: &Arc<WalkMaps>| {
            CpuMemory::new().map(|memory| PartWalks { maps: maps.clone(), memory })
        };
        Ok(StackParts {
            walks: walks.map(with_memory).transpose()?,
            probes: ReturnProbes::find(kernel).ok(),
            fields: Fields {
                tid: task(&["pid"])?,
                mm: task(&["mm"])?,
                start_stack: kernel.field("mm_struct", &["start_stack"])?,
                thread_pointer: task(arch::THREAD_POINTER)?,
                ip: register(arch::IP_FIELD)?,
                sp: register("sp")?,
            },
            fixed,
            buffer: Map::new(MapKind::PerCpuArray, EntrySize::by_number(size), 1)?,
        })
    }

    /// True if the programs walk over frames of interpreters.
    pub fn walks(&self) -> bool {
        self.walks.is_some()
    }

    /// Writes the record at offset `raw` of the stack to the events of the output, with the parts if
    /// there are any. The program's argument is at [`snippets::CONTEXT`]; `R8` is the time, `R6` the CPU's
    /// value of the control map. Overwrites the key at [`KEY`].
    pub fn write(&self, c: &mut BpfCode, events: Output<'_>, raw: i16) {
        let [plain, output, done] = [(); 3].map(|()| c.label());
        let registers = RecordRegisters { now: R8, control: R6 };
        let words = PartWords::below(raw);
        let time = raw + self.fixed as i16 - 8;
        c.store(AccessSize::Long, R10, time, R8);
        if let Some(walks) = &self.walks {
            self.walk(c, walks, WalkWords::below(raw), time);
            c.load(AccessSize::Long, R8, R10, time);
        }
        c.store(AccessSize::Long, R10, words.now, R8);
        self.find_go(c, words);
        self.find_outermost(c, words);
        c.load(AccessSize::Long, R8, R10, words.now);
        self.find_probe(c, words, plain);
        c.store_value(AccessSize::Word, R10, KEY, 0);
        snippets::look_up(c, &self.buffer, plain);
        c.op(AluOp::Mov, R7, R0);
        for at in (0..self.fixed as i16).step_by(8) {
            c.load(AccessSize::Long, R1, R10, raw + at);
            c.store(AccessSize::Long, R7, at, R1);
        }
        self.add_replaced(c, words);
        self.add_go(c, words, output);
        c.put(output);
        snippets::write_bytes(c, events, RecordBytes::In { from: R7, length: R9 }, registers);
        c.jump(done);
        c.put(plain);
        let bytes = RecordBytes::OnStack { at: raw, length: self.fixed as i32 };
        snippets::write_bytes(c, events, bytes, registers);
        c.put(done);
    }

    /// Walks over frames of interpreters at the time in a word of the stack. The thread is in the
    /// kernel, so its registers in user mode are saved. Preserves `R6`, the CPU's value of the control
    /// map, in which frames count.
    fn walk(&self, c: &mut BpfCode, walks: &PartWalks, words: WalkWords, time: i16) {
        let WalkWords { control, tid, ip, sp, thread_pointer, frames, spare } = words;
        c.store(AccessSize::Long, R10, control, R6);
        c.store_value(AccessSize::Long, R10, frames, 0);
        c.call(Helper::CurrentTask);
        c.load(AccessSize::Word, R1, R0, self.fields.tid);
        c.store(AccessSize::Long, R10, tid, R1);
        c.load(AccessSize::Long, R1, R0, self.fields.thread_pointer);
        c.store(AccessSize::Long, R10, thread_pointer, R1);
        c.op(AluOp::Mov, R1, R0);
        c.call(Helper::TaskRegs);
        for (at, field) in [(ip, self.fields.ip), (sp, self.fields.sp)] {
            c.load(AccessSize::Long, R1, R0, field);
            c.store(AccessSize::Long, R10, at, R1);
        }
        let sample = SampleWords { time, tid, ip, sp, thread_pointer, spare, frames: Some(frames) };
        walks.maps.program_with(&walks.memory).run(c, sample);
        c.load(AccessSize::Long, R6, R10, control);
        c.load(AccessSize::Long, R2, R10, frames);
        c.op_value(AluOp::Rsh, R2, FRAMES_OF_RECORD);
        c.add_to(R6, control::SAMPLES, R2, R1);
    }

    /// Finds the other stack. Overwrites `R7` to `R9`.
    fn find_go(&self, c: &mut BpfCode, words: PartWords) {
        let none = c.label();
        let PartWords { has_go, search, .. } = words;
        c.store_value(AccessSize::Long, R10, has_go, 0);
        c.call(Helper::CurrentTask);
        c.op(AluOp::Mov, R9, R0);
        let word = words.probe;
        for (base, field) in [(R9, self.fields.mm), (R3, self.fields.start_stack)] {
            read_kernel(c, word, base, field, none);
            c.load(AccessSize::Long, R3, R10, word);
            c.jump_if_value(If::Equal, R3, 0, none);
        }
        c.op(AluOp::Mov, R8, R3);
        c.load(AccessSize::Long, R7, R9, self.fields.thread_pointer);
        search.find(c, none);
        c.store_value(AccessSize::Long, R10, has_go, 1);
        c.put(none);
    }

    /// Finds the outermost frames of a long stack, if there is no other stack: in a thread of the C
    /// library, they lie below its control block. Overwrites `R7` to `R9`.
    fn find_outermost(&self, c: &mut BpfCode, words: PartWords) {
        let none = c.label();
        let PartWords { has_go, search, .. } = words;
        c.load(AccessSize::Long, R1, R10, has_go);
        c.jump_if_value(If::Differ, R1, 0, none);
        c.call(Helper::CurrentTask);
        c.load(AccessSize::Long, R7, R0, self.fields.thread_pointer);
        c.op(AluOp::Mov, R1, R0);
        c.call(Helper::TaskRegs);
        c.load(AccessSize::Long, R8, R0, self.fields.sp);
        c.jump_if(If::AtLeast, R8, R7, none);
        c.op(AluOp::Mov, R9, R7);
        c.op(AluOp::Sub, R9, R8);
        c.jump_if_value(If::Less, R9, SHORT_STACK, none);
        c.jump_if_value(If::Greater, R9, FARTHEST_END, none);
        search.set_outermost(c, R7);
        c.store_value(AccessSize::Long, R10, has_go, 1);
        c.put(none);
    }

    /// The word for it = the innermost replaced return address, or 0. Jumps to `nothing` if there is
    /// neither that nor another stack. Overwrites `R9`.
    fn find_probe(&self, c: &mut BpfCode, words: PartWords, nothing: CodeLabel) {
        let [none, some] = [(); 2].map(|()| c.label());
        if let Some(probes) = &self.probes {
            c.call(Helper::CurrentTask);
            c.op(AluOp::Mov, R9, R0);
            probes.first(c, R9, words.probe, none);
            c.jump(some);
        }
        c.put(none);
        c.store_value(AccessSize::Long, R10, words.probe, 0);
        c.load(AccessSize::Long, R1, R10, words.has_go);
        c.jump_if_value(If::Equal, R1, 0, nothing);
        c.put(some);
    }

    /// Adds the replaced return addresses to the record at `R7`, innermost first; `R9` = its length.
    fn add_replaced(&self, c: &mut BpfCode, words: PartWords) {
        let end = c.label();
        let at = |i: usize| (self.fixed + i * 8) as i16;
        for i in 0..MAX_REPLACED * 2 {
            c.store_value(AccessSize::Long, R7, at(i), 0);
        }
        c.op_value(AluOp::Mov, R9, (self.fixed + REPLACED) as i32);
        if let Some(probes) = &self.probes {
            c.load(AccessSize::Long, R1, R10, words.probe);
            c.jump_if_value(If::Equal, R1, 0, end);
            for i in 0..MAX_REPLACED {
                probes.read(c, words.probe, words.pair, end);
                for (to, from) in [at(2 * i), at(2 * i + 1)].into_iter().zip(words.pair) {
                    c.load(AccessSize::Long, R1, R10, from);
                    c.store(AccessSize::Long, R7, to, R1);
                }
                probes.next(c, words.probe, end);
            }
        }
        c.put(end);
    }

    /// Adds the other stack, or the end of this one, to the record at `R7`, if it was found, and to its
    /// length in `R9`; else jumps to `without`.
    fn add_go(&self, c: &mut BpfCode, words: PartWords, without: CodeLabel) {
        let read = c.label();
        let begin = self.fixed + REPLACED;
        let PartWords { has_go, search, .. } = words;
        c.load(AccessSize::Long, R1, R10, has_go);
        c.jump_if_value(If::Equal, R1, 0, without);
        for (i, from) in search.words().into_iter().enumerate() {
            c.load(AccessSize::Long, R1, R10, from);
            c.store(AccessSize::Long, R7, (begin + i * 8) as i16, R1);
        }
        search.length(c, R9, MAX_GO);
        c.op(AluOp::Mov, R2, R9);
        c.op(AluOp::Mov, R1, R7);
        c.op_value(AluOp::Add, R1, (begin + GoStacks::WORDS) as i32);
        c.load(AccessSize::Long, R3, R10, search.words()[3]);
        c.call(Helper::ProbeReadUser);
        c.jump_if_value(If::Equal, R0, 0, read);
        c.op_value(AluOp::Mov, R9, begin as i32);
        c.jump(without);
        c.put(read);
        c.op_value(AluOp::Add, R9, (begin + GoStacks::WORDS) as i32);
    }
}

/// Gives a sample of a record of `fixed` bytes the parts of the stack that are behind them.
pub fn complete(sample: &mut Sample<'_>, fixed: usize) {
    let parts = sample.raw.get(fixed..).unwrap_or_default();
    // The kernel pads a record at its end.
    let Some((replaced, go)) = parts.split_at_checked(REPLACED) else { return };
    let go = &go[..go.len() / 8 * 8];
    if let Some(rest) = sample.rest_mut() {
        *rest = rest.with_replaced(replaced).with_go(GoStacks::new(go));
    }
}
