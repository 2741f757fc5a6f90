//! Stacks at each instruction of a program, and the callers that it has at that moment: they follow
//! from the calls and returns that were executed before. prof's unwinder gets what the kernel would
//! have copied there. Nothing is sampled, so nothing depends on chance, on the load of the machine,
//! or on what a recorder can keep up with.
//!
//! Only the first thread is run so. What is executed often is run at once: the rest of a loop, and
//! of the calls of a function.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::Command;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use object::{Object, ObjectSegment, ObjectSymbol};
use sys::maps::parse_line;
use unwind::StackEnd;

use super::recorded::{Item, Replay, Sample};
use super::tracee::{Stop, Tracee};

/// Number of times that the same instruction with the same callers is shown.
const MOST_SHOWN: u32 = 2;

/// Number of times that a loop's end jumps back before the rest of the loop is run at once.
const MOST_ROUNDS: u32 = 20;

/// Number of steps in a row that show nothing new.
const MOST_KNOWN: usize = 10_000;

/// Bytes of the stack that are copied.
const STACK: usize = 1 << 20;

/// The instruction at which the steps begin.
#[derive(Clone, Copy, Debug)]
pub enum Begin<'a> {
    /// The program's entry, which has no caller.
    Entry,
    /// A function of a file whose path contains this, when it is called for the `nth` time.
    Function { file: &'a str, name: &'a str, nth: u32 },
}

/// A return address, or an address that a signal interrupted.
#[derive(Clone, Copy)]
struct Caller {
    address: u64,
    /// Where it is on the stack.
    slot: u64,
    /// It is what a handler's end goes on with, wherever the stack is.
    interrupted: bool,
    /// A hash of all callers up to this one.
    hash: u64,
}

/// The callers of a thread, outermost first.
#[derive(Default)]
struct Callers(Vec<Caller>);

impl Callers {
    fn push(&mut self, address: u64, slot: u64, interrupted: bool) {
        let mut hasher = DefaultHasher::new();
        (self.hash(), address, slot).hash(&mut hasher);
        self.0.push(Caller { address, slot, interrupted, hash: hasher.finish() });
    }

    /// Removes those of functions that have returned, or were left in another way.
    fn leave(&mut self, sp: u64) {
        while self.0.last().is_some_and(|c| !c.interrupted && c.slot < sp) {
            self.0.pop();
        }
    }

    /// Removes those of a signal handler.
    fn leave_handler(&mut self) {
        while self.0.pop().is_some_and(|c| !c.interrupted) {}
    }

    fn hash(&self) -> u64 {
        self.0.last().map_or(0, |c| c.hash)
    }
}

/// What an instruction means for the callers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Call {
        back_at: u64,
    },
    SystemCall,
    /// Repeats itself.
    Repeats {
        next: u64,
    },
    /// The end of a loop, probably.
    JumpsBack {
        to: u64,
        next: u64,
    },
    Other,
}

fn kind(bytes: &[u8], ip: u64) -> Kind {
    let instruction = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode();
    let next = instruction.next_ip();
    let is_call = matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall if instruction.mnemonic() == Mnemonic::Call
    );
    let to = instruction.near_branch_target();
    match instruction.mnemonic() {
        Mnemonic::Syscall => Kind::SystemCall,
        _ if is_call => Kind::Call { back_at: next },
        _ if repeats(&instruction) => Kind::Repeats { next },
        _ if instruction.flow_control() == FlowControl::ConditionalBranch && to < ip => {
            Kind::JumpsBack { to, next }
        }
        _ => Kind::Other,
    }
}

fn repeats(instruction: &Instruction) -> bool {
    let has_prefix = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    has_prefix && instruction.is_string_instruction()
}

/// The stack at an instruction: addresses, innermost first.
#[derive(Debug)]
pub struct Step {
    /// The frames by prof's unwinder.
    pub frames: Vec<u64>,
    /// Why they end.
    pub end: StackEnd,
    /// The instruction and its callers.
    pub right: Vec<u64>,
}

impl Step {
    /// True if all frames are there, and no others.
    pub fn is_whole(&self) -> bool {
        self.end == StackEnd::Complete && self.frames == self.right
    }

    /// True if it ends for a reason, and all frames before are right.
    pub fn is_cut(&self) -> bool {
        self.end != StackEnd::Complete && self.right.starts_with(&self.frames)
    }
}

/// A program that is run instruction by instruction.
pub struct Steps {
    tracee: Tracee,
    callers: Callers,
    /// The stack pointer of the function in which the steps began.
    outermost: u64,
    replay: Replay,
    kinds: HashMap<u64, Kind>,
    /// Lines of `/proc/PID/maps`.
    maps: Vec<String>,
    /// By instruction and callers.
    shown: HashMap<(u64, u64), u32>,
    /// By jump and callers.
    rounds: HashMap<(u64, u64), u32>,
    /// By function.
    calls: HashMap<u64, u32>,
    /// Number of times that a function is run instruction by instruction.
    pub most_calls: u32,
}

impl Steps {
    /// Starts a program and runs it to the instruction where the steps begin.
    #[track_caller]
    pub fn start(command: &mut Command, begin: Begin<'_>) -> Steps {
        let mut steps = Steps {
            tracee: Tracee::start(command),
            callers: Callers::default(),
            outermost: u64::MAX,
            replay: Replay::default(),
            kinds: HashMap::new(),
            maps: Vec::new(),
            shown: HashMap::new(),
            rounds: HashMap::new(),
            calls: HashMap::new(),
            most_calls: 30,
        };
        let entry = steps.entry();
        assert_eq!(
            steps.tracee.run_to(&[entry]),
            Stop::There,
            "{command:?} does not reach its entry"
        );
        steps.read_maps();
        let Begin::Function { file, name, nth } = begin else { return steps };
        let address = steps.function(file, name);
        for call in 1..=nth {
            assert_eq!(steps.tracee.run_to(&[address]), Stop::There, "{name} is not called");
            if call < nth {
                steps.tracee.step();
            }
        }
        steps.read_maps();
        let registers = steps.tracee.registers();
        let end = steps.replay.unwind(&steps.sample(&registers));
        assert_eq!(end, StackEnd::Complete, "at the beginning of {name}");
        steps.outermost = registers.rsp;
        // Where they are on the stack does not matter: the steps end before they are left.
        for frame in steps.replay.frames[1..].iter().rev() {
            steps.callers.push(frame.address.0, u64::MAX, false);
        }
        steps
    }

    /// Executes `most` instructions, or less if the program ends or does nothing new, and shows the
    /// stack at each.
    pub fn run(&mut self, most: usize, mut show: impl FnMut(Step)) {
        let mut known = 0;
        for _ in 0..most {
            let before = self.tracee.registers();
            match self.unwound(&before) {
                Some(step) => {
                    show(step);
                    known = 0;
                }
                None => known += 1,
            }
            if known > MOST_KNOWN {
                return;
            }
            if !self.step(&before) {
                return;
            }
        }
    }

    /// Address of the program's first instruction.
    fn entry(&self) -> u64 {
        const AT_ENTRY: u64 = 9;
        let auxv = std::fs::read(format!("/proc/{}/auxv", self.tracee.pid())).unwrap();
        let words: Vec<u64> =
            auxv.chunks_exact(8).map(|w| u64::from_ne_bytes(w.try_into().unwrap())).collect();
        words.chunks_exact(2).find(|pair| pair[0] == AT_ENTRY).expect("an entry")[1]
    }

    /// Address of a function of a file that is mapped.
    #[track_caller]
    fn function(&self, file: &str, name: &str) -> u64 {
        let mut lines = self.maps.iter().filter_map(|line| parse_line(line));
        let first = lines.find(|l| l.path.contains(file)).unwrap_or_else(|| panic!("no {file}"));
        let data = std::fs::read(first.path).unwrap();
        let elf = object::File::parse(&*data).unwrap();
        let mut symbols = elf.dynamic_symbols().chain(elf.symbols());
        let symbol = symbols.find(|s| s.name() == Ok(name)).unwrap_or_else(|| panic!("no {name}"));
        let base = if elf.kind() == object::ObjectKind::Executable { 0 } else { first.start };
        base + symbol.address()
    }

    /// Name of the file in which an address lies.
    pub fn file(&self, address: u64) -> &str {
        let mut lines = self.maps.iter().filter_map(|line| parse_line(line));
        let line = lines.find(|l| (l.start..l.end).contains(&address));
        line.map_or("", |l| l.path.rsplit('/').next().unwrap_or_default())
    }

    /// The function, or the file and the offset, of an address; for messages.
    pub fn named(&self, address: u64) -> String {
        let mut lines = self.maps.iter().filter_map(|line| parse_line(line));
        let Some(line) = lines.find(|l| (l.start..l.end).contains(&address)) else {
            return format!("{address:#x}");
        };
        let offset = address - line.start + line.offset;
        let name = std::fs::read(line.path).ok().and_then(|data| {
            let elf = object::File::parse(&*data).ok()?;
            let at = elf.segments().find_map(|s| {
                let (start, size) = s.file_range();
                (start..start + size).contains(&offset).then(|| s.address() + (offset - start))
            })?;
            let symbols = elf.symbols().chain(elf.dynamic_symbols());
            let mut holding =
                symbols.filter(|s| (s.address()..s.address() + s.size()).contains(&at));
            holding.next().and_then(|s| s.name().ok().map(str::to_owned))
        });
        let file = line.path.rsplit('/').next().unwrap_or_default();
        format!("{} ({file}+{offset:#x})", name.as_deref().unwrap_or("?"))
    }

    /// The stack by the unwinder, unless it was shown often enough.
    fn unwound(&mut self, registers: &libc::user_regs_struct) -> Option<Step> {
        let shown = self.shown.entry((registers.rip, self.callers.hash())).or_default();
        *shown += 1;
        if *shown > MOST_SHOWN {
            return None;
        }
        let callers = self.callers.0.iter().rev().map(|c| c.address);
        let right = std::iter::once(registers.rip).chain(callers).collect();
        let end = self.replay.unwind(&self.sample(registers));
        let frames = self.replay.frames.iter().map(|f| f.address.0).collect();
        Some(Step { frames, end, right })
    }

    /// Executes an instruction; false at the end of the program, or of the function in which the
    /// steps began.
    fn step(&mut self, before: &libc::user_regs_struct) -> bool {
        let (ip, tracee) = (before.rip, &self.tracee);
        let kind = *self.kinds.entry(ip).or_insert_with(|| kind(&tracee.read(ip, 15), ip));
        let stop = match kind {
            Kind::Repeats { next } => self.run_below(&[next], before.rsp),
            Kind::JumpsBack { to, next } => self.jump(before, to, next),
            _ => self.tracee.step(),
        };
        match stop {
            Stop::Signal(number) => return self.handle(number),
            Stop::Ended => return false,
            Stop::There => {}
        }
        let after = self.tracee.registers();
        if after.rsp > self.outermost {
            return false;
        }
        match kind {
            Kind::SystemCall if before.rax == libc::SYS_rt_sigreturn as u64 => {
                self.callers.leave_handler();
            }
            _ => self.callers.leave(after.rsp),
        }
        match kind {
            Kind::Call { back_at } if after.rsp == before.rsp - 8 => {
                self.callers.push(back_at, after.rsp, false);
                self.call(back_at, &after)
            }
            Kind::SystemCall => {
                self.read_maps();
                true
            }
            _ => true,
        }
    }

    /// A jump back: the rest of a loop that had many rounds is run at once.
    fn jump(&mut self, before: &libc::user_regs_struct, to: u64, next: u64) -> Stop {
        let stop = self.tracee.step();
        if stop != Stop::There || self.tracee.registers().rip != to {
            return stop;
        }
        let rounds = self.rounds.entry((before.rip, self.callers.hash())).or_default();
        *rounds += 1;
        if *rounds <= MOST_ROUNDS {
            return stop;
        }
        // To the end of the loop, or out of the function.
        let back_at = self.callers.0.last().map(|c| c.address);
        self.run_below(&[&[next], back_at.as_slice()].concat(), before.rsp)
    }

    /// A function was called: it is run at once if it was called often.
    fn call(&mut self, back_at: u64, inside: &libc::user_regs_struct) -> bool {
        let calls = self.calls.entry(inside.rip).or_default();
        *calls += 1;
        if *calls <= self.most_calls {
            return true;
        }
        match self.run_below(&[back_at], inside.rsp + 8) {
            Stop::Signal(number) => return self.handle(number),
            Stop::Ended => return false,
            Stop::There => {}
        }
        self.callers.leave(self.tracee.registers().rsp);
        true
    }

    /// Runs to one of these instructions, where the stack pointer is not below `sp`, with all that
    /// is called on the way.
    fn run_below(&mut self, addresses: &[u64], sp: u64) -> Stop {
        loop {
            let stop = self.tracee.run_to(addresses);
            match stop {
                Stop::Ended => return stop,
                _ if self.tracee.registers().rsp >= sp => return stop,
                // A function below has its own handler, and the same instruction in a recursion.
                Stop::Signal(number) => self.tracee.deliver(number),
                Stop::There => {
                    self.tracee.step();
                }
            }
        }
    }

    /// A signal is to be delivered; the program has a handler for it.
    fn handle(&mut self, number: i32) -> bool {
        let before = self.tracee.registers();
        self.callers.leave(before.rsp);
        self.tracee.deliver(number);
        if self.tracee.step() != Stop::There {
            return false;
        }
        let inside = self.tracee.registers();
        self.callers.push(before.rip, before.rsp, true);
        self.callers.push(self.tracee.word(inside.rsp), inside.rsp, false);
        true
    }

    /// The sample that the kernel would take here.
    fn sample(&self, r: &libc::user_regs_struct) -> Sample {
        // In the kernel's order (arch/x86/include/uapi/asm/perf_regs.h).
        let registers = [
            r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.rip, r.r8, r.r9, r.r10,
            r.r11, r.r12, r.r13, r.r14, r.r15,
        ];
        let pid = self.tracee.pid();
        let registers = registers.iter().flat_map(|r| r.to_ne_bytes()).collect();
        let stack = self.tracee.read(r.rsp, STACK);
        Sample { pid, tid: pid, time: 0, registers, stack, full: false }
    }

    /// Hands mappings of code that are new to the unwinder.
    fn read_maps(&mut self) {
        let pid = self.tracee.pid();
        let text = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let is_code = |line: &str| parse_line(line).is_some_and(|l| l.executable);
        for line in
            text.lines().filter(|line| is_code(line) && !self.maps.iter().any(|l| l == line))
        {
            let l = parse_line(line).expect("a line");
            let (start, len, path) = (l.start, l.end - l.start, l.path.as_bytes().to_vec());
            let (offset, file) = (l.offset, l.file);
            self.replay.take(&Item::Map { pid, start, len, offset, file, path });
            self.kinds.clear();
        }
        // The process has ended if there are none.
        if !text.is_empty() {
            self.maps = text.lines().map(str::to_owned).collect();
        }
    }
}
