//! What a program that writes records adds to them about the thread's stack, which the kernel does not
//! copy: the return addresses that it has replaced for return probes, and the other stack of a thread
//! that runs Go.

use std::io;

use super::btf::Btf;
use super::code::{AccessSize, AluOp, BpfCode, CodeLabel, Helper, If, Reg};
use super::go_stack::GoSearch;
use super::return_probes::{ReturnProbes, read_kernel};
use super::snippets::{self, KEY, Output, RecordBytes, RecordRegisters};
use super::syscall::{EntrySize, Map, MapKind};
use crate::sampler::arch;
use sys::record::{GoStacks, Sample};

use Reg::{R0, R1, R2, R3, R6, R7, R8, R9, R10};

/// Maximum number of replaced return addresses, and their size in bytes.
const MAX_REPLACED: usize = 12;
const REPLACED: usize = MAX_REPLACED * 16;

/// Maximum number of bytes of a thread's other stack: a value of a map for each CPU has less than
/// 32 KiB.
const MAX_GO: usize = 16 << 10;

/// Offsets of fields that lead to a thread's stacks.
#[derive(Clone, Copy, Debug)]
struct Fields {
    mm: i16,
    start_stack: i16,
    thread_pointer: i16,
}

/// The parts of the stacks in a type's records.
#[derive(Debug)]
pub struct StackParts {
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
    /// 1 if the other stack was found.
    has_go: i16,
    probe: i16,
    pair: [i16; 2],
    search: GoSearch,
}

impl PartWords {
    fn below(offset: i16) -> PartWords {
        let word = |n: i16| offset - 8 * n;
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
    /// For records of `fixed` bytes.
    ///
    /// # Errors
    ///
    /// The kernel's structures are others, or there is not enough memory.
    pub fn new(kernel: &Btf, fixed: usize) -> io::Result<StackParts> {
        let task = |path: &[&str]| kernel.field("task_struct", path);
        let size = fixed + REPLACED + GoStacks::WORDS + MAX_GO;
        Ok(StackParts {
            probes: ReturnProbes::find(kernel).ok(),
            fields: Fields {
                mm: task(&["mm"])?,
                start_stack: kernel.field("mm_struct", &["start_stack"])?,
                thread_pointer: task(arch::THREAD_POINTER)?,
            },
            fixed,
            buffer: Map::new(MapKind::PerCpuArray, EntrySize::by_number(size), 1)?,
        })
    }

    /// Writes the record at offset `raw` of the stack to the events of the output, with the parts if
    /// there are any. The program's argument is at [`snippets::CONTEXT`]; `R8` is the time, `R6` the CPU's
    /// value of the control map. Overwrites the key at [`KEY`].
    pub fn write(&self, c: &mut BpfCode, events: Output<'_>, raw: i16) {
        let [plain, output, done] = [(); 3].map(|()| c.label());
        let registers = RecordRegisters { now: R8, control: R6 };
        let words = PartWords::below(raw);
        c.store(AccessSize::Long, R10, words.now, R8);
        self.find_go(c, words);
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

    /// Adds the other stack to the record at `R7`, if it was found, and to its length in `R9`; else
    /// jumps to `without`.
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
