//! The program: it runs in the interrupt that takes a sample, before the kernel writes the sample.

mod go;

use std::io;

use super::{CHUNK, MAX_REPLACED, REPLACED, header};
use crate::sampler::arch;
use crate::sampler::bpf::btf::Btf;
use crate::sampler::bpf::code::{AccessSize, AluOp, BpfCode, CodeLabel, Helper, If, Reg};
use crate::sampler::bpf::go_stack::{FARTHEST_END, SKIPPED_WORDS};
use crate::sampler::bpf::return_probes::{ReturnProbes, read_kernel};
use crate::sampler::bpf::snippets::read_user;
use crate::sampler::bpf::syscall::Map;
use crate::sampler::bpf::walk::program::{SampleWords, WalkProgram};
use crate::sampler::bpf::{filter, snippets};
use sys::arch::PAGE as KERNEL_PAGE;

use Reg::{R0, R1, R2, R3, R6, R7, R8, R9, R10};

const PAGE: i32 = KERNEL_PAGE as i32;

/// Bytes of the kernel's copy that are copied again: the kernel may omit that many if the rest of
/// the record needs the room, and the overlap is compared.
const OVERLAP: i32 = 6 << 10;

/// Offsets of fields in the kernel's structs, and type IDs of the functions that the program calls.
#[derive(Debug)]
pub struct Kernel {
    mm: i16,
    start_stack: i16,
    thread_pointer: i16,
    tid: i16,
    ip: i16,
    sp: i16,
    data: i16,
    time: i16,
    /// `bpf_cast_to_kern_ctx`.
    cast: u32,
    /// `None`: this kernel has no probes in programs, or other ones.
    probes: Option<ReturnProbes>,
}

impl Kernel {
    /// For this kernel.
    ///
    /// # Errors
    ///
    /// The kernel lacks one of them: `bpf_cast_to_kern_ctx` came with Linux 6.2.
    pub fn find(btf: &Btf) -> io::Result<Kernel> {
        let task = |path: &[&str]| btf.field("task_struct", path);
        Ok(Kernel {
            mm: task(&["mm"])?,
            start_stack: btf.field("mm_struct", &["start_stack"])?,
            thread_pointer: task(arch::THREAD_POINTER)?,
            tid: task(&["pid"])?,
            ip: btf.field("pt_regs", &[arch::IP_FIELD])?,
            sp: btf.field("pt_regs", &["sp"])?,
            data: btf.field("bpf_perf_event_data_kern", &["data"])?,
            time: btf.field("perf_sample_data", &["time"])?,
            cast: btf.function("bpf_cast_to_kern_ctx")?,
            probes: ReturnProbes::find(btf).ok(),
        })
    }
}

/// The parameters of the program.
pub struct DeepProgram<'a> {
    /// The ring buffer, and its size in bytes.
    pub ring: &'a Map,
    /// See [`DeepProgram::ring`].
    pub ring_size: u32,
    /// Counts the stacks for which the ring had no room.
    pub lost: &'a Map,
    /// Offsets in this kernel's structs.
    pub kernel: &'a Kernel,
    /// Size of the kernel's copy of a stack in bytes.
    pub dump: u32,
    /// Maximum number of bytes to copy, a multiple of [`CHUNK`].
    pub cap: u32,
    /// Samples of other processes are dropped.
    pub processes: Option<&'a Map>,
    /// Walks over frames of interpreters.
    pub walks: Option<WalkProgram<'a>>,
    /// The method to limit the loop for the verifier.
    pub end: LoopEnd,
}

/// The method to limit a loop for the kernel's verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopEnd {
    /// By an instruction of Linux 6.9: the verifier follows a few iterations, which takes 2 ms.
    MayGoto,
    /// By a counter: the verifier follows each iteration, which takes 200 ms for 2 MiB.
    Counter,
}

/// Offsets on the program's stack.
const WORD: i16 = -16;
const TIME: i16 = -24;
const TID: i16 = -32;
const IP: i16 = -40;
const SP: i16 = -48;
const HOLES: i16 = -56;
const LENGTH: i16 = -64;
/// Two words, before there are [`LENGTH`] and [`HOLES`].
const BOUNDS: i16 = -64;

impl DeepProgram<'_> {
    /// The program. In the loop, `R6` counts chunks, `R7` is the address to copy next, `R8` the
    /// end, `R9` the record.
    pub fn program(&self) -> Vec<u64> {
        let mut c = BpfCode::default();
        let [out, copy] = [(); 2].map(|()| c.label());
        self.read_thread(&mut c, out);
        if let Some(walks) = &self.walks {
            walk(&mut c, walks);
        }
        if let Some(probes) = &self.kernel.probes {
            self.copy_replaced(&mut c, probes);
        }
        self.copy_go(&mut c);
        self.find_end(&mut c, out);
        self.find_begin(&mut c, copy, out);
        c.put(copy);
        self.copy(&mut c, out);
        c.put(out);
        c.exit_with(1);
        c.finish()
    }

    /// Time, thread and registers; `R6` = the stack pointer, `R7` = the base of its thread-local
    /// memory, `R8` = the start of the process's first stack. A kernel thread has none.
    fn read_thread(&self, c: &mut BpfCode, out: CodeLabel) {
        let k = self.kernel;
        if let Some(processes) = self.processes {
            c.op(AluOp::Mov, R9, R1);
            filter::drop_others(c, processes);
            c.op(AluOp::Mov, R1, R9);
        }
        c.call_function(k.cast);
        read_kernel(c, WORD, R0, k.data, out);
        c.load(AccessSize::Long, R3, R10, WORD);
        read_kernel(c, TIME, R3, k.time, out);
        c.call(Helper::CurrentTask);
        c.op(AluOp::Mov, R9, R0);
        read_kernel(c, WORD, R9, k.mm, out);
        c.load(AccessSize::Long, R3, R10, WORD);
        c.jump_if_value(If::Equal, R3, 0, out);
        read_kernel(c, WORD, R3, k.start_stack, out);
        c.load(AccessSize::Long, R8, R10, WORD);
        c.jump_if_value(If::Equal, R8, 0, out);
        c.load(AccessSize::Word, R1, R9, k.tid);
        c.store(AccessSize::Long, R10, TID, R1);
        c.load(AccessSize::Long, R7, R9, k.thread_pointer);
        c.op(AluOp::Mov, R1, R9);
        c.call(Helper::TaskRegs);
        c.load(AccessSize::Long, R6, R0, k.sp);
        c.store(AccessSize::Long, R10, SP, R6);
        c.load(AccessSize::Long, R1, R0, k.ip);
        c.store(AccessSize::Long, R10, IP, R1);
    }

    /// Submits a record with the return addresses that the kernel has replaced for return probes,
    /// innermost first, if there are any. `R9` is the thread, and unknown afterwards.
    fn copy_replaced(&self, c: &mut BpfCode, probes: &ReturnProbes) {
        /// Offsets on the program's stack, before they have their other use.
        const ORIGINAL: i16 = LENGTH;
        const SLOT: i16 = HOLES;
        let [none, submit] = [(); 2].map(|()| c.label());
        let size = MAX_REPLACED * 16;
        probes.first(c, R9, WORD, none);
        c.map(R1, self.ring.fd());
        c.op_value(AluOp::Mov, R2, (header::SIZE + size) as i32);
        c.op_value(AluOp::Mov, R3, 0);
        c.call(Helper::RingReserve);
        c.jump_if_value(If::Equal, R0, 0, none);
        c.op(AluOp::Mov, R9, R0);
        let word = |i: usize| (header::SIZE + i * 8) as i16;
        for i in 0..MAX_REPLACED * 2 {
            c.store_value(AccessSize::Long, R9, word(i), 0);
        }
        for i in 0..MAX_REPLACED {
            probes.read(c, WORD, [SLOT, ORIGINAL], submit);
            for (at, from) in [(word(2 * i), SLOT), (word(2 * i + 1), ORIGINAL)] {
                c.load(AccessSize::Long, R1, R10, from);
                c.store(AccessSize::Long, R9, at, R1);
            }
            probes.next(c, WORD, submit);
        }
        c.put(submit);
        c.store_value(AccessSize::Long, R10, LENGTH, size as i32);
        c.store_value(AccessSize::Long, R10, HOLES, 0);
        self.fill_header(c);
        c.store_value(AccessSize::Long, R9, header::FROM, 0);
        c.store_value(AccessSize::Long, R9, header::INDEX, REPLACED as i32);
        self.submit(c);
        c.put(none);
    }

    /// `R8` = the end of the stack:
    ///
    /// - C libraries place a thread's control block right above its stack. By the ABI it begins
    ///   with its own address (`%fs:0`), which distinguishes it from other memory.
    /// - Go stores the current goroutine in the word before (`%fs:-8`), which begins with the
    ///   bounds of its stack. They are used if the stack pointer lies between them.
    /// - The first thread's frames end where the kernel set up its stack.
    ///
    /// The end of other stacks (of coroutines) is unknown: copying what lies above would cost each
    /// sample as much as a deep stack. Jumps to `out`.
    fn find_end(&self, c: &mut BpfCode, out: CodeLabel) {
        let [goroutine, first, known] = [(); 3].map(|()| c.label());
        c.op(AluOp::Mov, R1, R6);
        c.op_value(AluOp::Add, R1, FARTHEST_END);
        c.jump_if(If::AtLeast, R6, R7, goroutine);
        c.jump_if(If::Greater, R7, R1, goroutine);
        c.op(AluOp::Mov, R3, R7);
        read_user(c, WORD, 8, goroutine);
        c.load(AccessSize::Long, R1, R10, WORD);
        c.jump_if(If::Differ, R1, R7, goroutine);
        c.op(AluOp::Mov, R8, R7);
        c.jump(known);

        c.put(goroutine);
        c.op(AluOp::Mov, R3, R7);
        c.op_value(AluOp::Add, R3, -8);
        read_user(c, WORD, 8, first);
        c.load(AccessSize::Long, R3, R10, WORD);
        read_user(c, BOUNDS, 16, first);
        c.load(AccessSize::Long, R1, R10, BOUNDS);
        c.jump_if(If::Greater, R1, R6, first);
        c.load(AccessSize::Long, R2, R10, BOUNDS + 8);
        c.jump_if(If::AtLeast, R6, R2, first);
        c.op(AluOp::Mov, R1, R6);
        c.op_value(AluOp::Add, R1, FARTHEST_END);
        c.jump_if(If::Greater, R2, R1, first);
        c.op(AluOp::Mov, R8, R2);
        c.jump(known);

        c.put(first);
        c.op(AluOp::Mov, R1, R6);
        c.op_value(AluOp::Add, R1, FARTHEST_END);
        c.op_value(AluOp::Add, R8, SKIPPED_WORDS);
        c.jump_if(If::AtLeast, R6, R8, out);
        c.jump_if(If::Greater, R8, R1, out);
        c.put(known);
        c.op_value(AluOp::Add, R8, PAGE - 1);
        c.op_value(AluOp::And, R8, -PAGE);
    }

    /// `R7` = the start: the first page that is not present, since the kernel's copy ends before
    /// it, or a point before the end of that copy. Jumps to `out` if the copy reaches the end.
    fn find_begin(&self, c: &mut BpfCode, copy: CodeLabel, out: CodeLabel) {
        c.op(AluOp::Mov, R7, R6);
        c.op_value(AluOp::And, R7, -PAGE);
        for _ in 0..(self.dump as i32 - OVERLAP).max(0) / PAGE {
            c.jump_if(If::AtLeast, R7, R8, out);
            c.op(AluOp::Mov, R3, R7);
            read_user(c, WORD, 8, copy);
            c.op_value(AluOp::Add, R7, PAGE);
        }
        c.jump_if(If::AtLeast, R7, R8, out);
    }

    fn copy(&self, c: &mut BpfCode, out: CodeLabel) {
        let [again, full, whole, lost, next] = [(); 5].map(|()| c.label());
        c.op_value(AluOp::Mov, R6, 0);
        self.limit(c);
        c.put(again);
        match self.end {
            LoopEnd::MayGoto => c.may_jump(out),
            LoopEnd::Counter => {
                c.jump_if_value(If::AtLeast, R6, (self.cap / CHUNK) as i32, out);
            }
        }
        c.jump_if(If::AtLeast, R7, R8, out);
        c.map(R1, self.ring.fd());
        c.op_value(AluOp::Mov, R2, header::SIZE as i32 + CHUNK as i32);
        c.op_value(AluOp::Mov, R3, 0);
        c.call(Helper::RingReserve);
        c.jump_if_value(If::Equal, R0, 0, lost);
        c.op(AluOp::Mov, R9, R0);
        c.store_value(AccessSize::Long, R10, HOLES, 0);
        c.op(AluOp::Mov, R2, R8);
        c.op(AluOp::Sub, R2, R7);
        c.jump_if_value(If::Less, R2, CHUNK as i32, full);
        c.op_value(AluOp::Mov, R2, CHUNK as i32);
        c.put(full);
        c.store(AccessSize::Long, R10, LENGTH, R2);
        c.op(AluOp::Mov, R1, R9);
        c.op_value(AluOp::Add, R1, header::SIZE as i32);
        c.op(AluOp::Mov, R3, R7);
        c.call(Helper::ProbeReadUser);
        c.jump_if_value(If::Equal, R0, 0, whole);
        self.copy_pages(c, next);
        c.put(whole);
        self.fill_header(c);
        c.store(AccessSize::Long, R9, header::FROM, R7);
        c.store(AccessSize::Long, R9, header::INDEX, R6);
        self.submit(c);

        c.put(next);
        c.op_value(AluOp::Add, R6, 1);
        c.op_value(AluOp::Add, R7, CHUNK as i32);
        c.jump(again);

        c.put(lost);
        c.store_value(AccessSize::Word, R10, snippets::KEY, 0);
        snippets::look_up(c, self.lost, out);
        c.op_value(AluOp::Mov, R2, 1);
        c.add_to(R0, 0, R2, R1);
        c.jump(out);
    }

    /// `R8` = the end of the part to copy, within the limit.
    fn limit(&self, c: &mut BpfCode) {
        let near = c.label();
        c.op(AluOp::Mov, R1, R7);
        c.op_value(AluOp::Add, R1, self.cap as i32);
        c.jump_if(If::AtLeast, R1, R8, near);
        c.op(AluOp::Mov, R8, R1);
        c.put(near);
    }

    /// Copies page by page, because some are not present. Without branches for each, of which the
    /// verifier would follow all combinations. A chunk without any page is not submitted.
    fn copy_pages(&self, c: &mut BpfCode, next: CodeLabel) {
        let some = c.label();
        let pages = CHUNK as i32 / PAGE;
        for page in 0..pages {
            c.op(AluOp::Mov, R1, R9);
            c.op_value(AluOp::Add, R1, header::SIZE as i32 + page * PAGE);
            c.op_value(AluOp::Mov, R2, PAGE);
            c.op(AluOp::Mov, R3, R7);
            c.op_value(AluOp::Add, R3, page * PAGE);
            c.call(Helper::ProbeReadUser);
            // 1 for an error.
            c.op_value(AluOp::Rsh, R0, 63);
            c.op_value(AluOp::Lsh, R0, page);
            c.load(AccessSize::Long, R1, R10, HOLES);
            c.op(AluOp::Add, R1, R0);
            c.store(AccessSize::Long, R10, HOLES, R1);
        }
        c.load(AccessSize::Long, R1, R10, HOLES);
        c.jump_if_value(If::Differ, R1, (1 << pages) - 1, some);
        // It occupies the ring until prof has read it, too.
        self.wake_when_due(c);
        c.op(AluOp::Mov, R1, R9);
        c.call(Helper::RingDiscard);
        c.jump(next);
        c.put(some);
    }

    /// Stores what the program's stack has of the record's header.
    fn fill_header(&self, c: &mut BpfCode) {
        for (at, from) in [
            (header::TIME, TIME),
            (header::TID, TID),
            (header::SP, SP),
            (header::IP, IP),
            (header::LENGTH, LENGTH),
            (header::HOLES, HOLES),
        ] {
            c.load(AccessSize::Long, R1, R10, from);
            c.store(AccessSize::Long, R9, at, R1);
        }
    }

    /// Submits the record.
    fn submit(&self, c: &mut BpfCode) {
        self.wake_when_due(c);
        c.op(AluOp::Mov, R1, R9);
        c.call(Helper::RingSubmit);
    }

    /// `R2` = the flags for [`Helper::RingSubmit`] and [`Helper::RingDiscard`].
    fn wake_when_due(&self, c: &mut BpfCode) {
        snippets::wake_when_due(c, self.ring, self.ring_size);
    }
}

/// Walks over frames of interpreters. Preserves `R6` to `R9`, which have what
/// [`DeepProgram::read_thread`] has read.
fn walk(c: &mut BpfCode, walks: &WalkProgram) {
    /// Offsets on the program's stack, before they have their other use.
    const THREAD_POINTER: i16 = LENGTH;
    const START_STACK: i16 = HOLES;
    c.store(AccessSize::Long, R10, THREAD_POINTER, R7);
    c.store(AccessSize::Long, R10, START_STACK, R8);
    let (time, tid, ip, sp) = (TIME, TID, IP, SP);
    let thread_pointer = THREAD_POINTER;
    walks.run(c, SampleWords { time, tid, ip, sp, thread_pointer, spare: WORD, frames: None });
    c.load(AccessSize::Long, R6, R10, SP);
    c.load(AccessSize::Long, R7, R10, THREAD_POINTER);
    c.load(AccessSize::Long, R8, R10, START_STACK);
    c.call(Helper::CurrentTask);
    c.op(AluOp::Mov, R9, R0);
}
