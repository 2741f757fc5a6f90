//! Frames of code whose run-time system states the size of a complete frame, by the instructions from
//! an address to where they leave the frame.
//!
//! All paths from an instruction to a return have the same effect on the stack. So the first one that is
//! found counts.

use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory};
use rustc_hash::FxHashSet;

use super::effect::{AX, Effect, RegisterOp, Successor, effect, next};
use crate::AddressKind;
use crate::arch::x86_64::ReturnAddress;
use crate::arch::{BP, SP};
use crate::cfi::{Rule, Saved};
use crate::managed::{LeftAdapter, ManagedBytes};
use sys::arch::DWARF_ORDER;

/// Most instructions that are looked at.
const MOST: usize = 4096;

/// Most instructions of an adapter.
const MOST_OF_ADAPTER: usize = 600;

/// Most ways that are left for later.
const MOST_WAYS: usize = 64;

/// An address: a register of the beginning or a word at one, plus a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    base: Base,
    at: i32,
}

/// Where an address begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Register(u8),
    /// The word at a register plus a number.
    Word(u8, i32),
}

impl Place {
    fn plus(self, add: i32) -> Option<Place> {
        Some(Place { at: self.at.checked_add(add)?, ..self })
    }

    /// True if it was in use at the beginning.
    fn is_above(self) -> bool {
        self.base != Base::Register(SP) || self.at >= 0
    }
}

/// The frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pointer {
    /// As at the beginning.
    Own,
    /// This address.
    At(Place),
    /// The word at this address.
    Word(Place),
    Lost,
}

/// The state on a way.
#[derive(Clone, Copy, Debug)]
struct Way {
    address: u64,
    /// The stack pointer.
    sp: Option<Place>,
    pointer: Pointer,
    /// Where the frame pointer of the beginning was put.
    stored: Option<Place>,
    /// The frame pointer was restored: the frame is removed.
    is_removed: bool,
}

impl Way {
    fn from(address: u64) -> Way {
        let sp = Some(Place { base: Base::Register(SP), at: 0 });
        Way { address, sp, pointer: Pointer::Own, stored: None, is_removed: false }
    }

    /// The address that the frame pointer is.
    fn pointed(&self) -> Option<Place> {
        match self.pointer {
            Pointer::Own => Some(Place { base: Base::Register(BP), at: 0 }),
            Pointer::At(place) => Some(place),
            Pointer::Word(Place { base: Base::Register(register), at }) => {
                Some(Place { base: Base::Word(register, at), at: 0 })
            }
            Pointer::Word(_) | Pointer::Lost => None,
        }
    }

    /// The frame pointer that a word has.
    fn loaded(&self, place: Option<Place>) -> Pointer {
        match place {
            Some(place) if self.stored == Some(place) => Pointer::Own,
            Some(place) if place.is_above() => Pointer::Word(place),
            _ => Pointer::Lost,
        }
    }

    fn store(&mut self, place: Option<Place>) {
        if self.pointer == Pointer::Own {
            self.stored = place;
        }
    }

    fn add(&mut self, add: i32) {
        self.sp = self.sp.and_then(|sp| sp.plus(add));
    }

    fn pop_pointer(&mut self) {
        self.pointer = self.loaded(self.sp);
        self.is_removed = true;
        self.add(8);
    }

    /// The address of a memory operand.
    fn place(&self, base: u8, at: i32) -> Option<Place> {
        let base = match base {
            SP => self.sp,
            BP => self.pointed(),
            _ => None,
        };
        base.and_then(|base| base.plus(at))
    }

    fn apply(&mut self, Effect { lost, op }: Effect) {
        match op {
            RegisterOp::Push(register) => {
                self.add(-8);
                if register == Some(BP) {
                    self.store(self.sp);
                }
            }
            RegisterOp::PushWord { .. } => self.add(-8),
            RegisterOp::Pop(BP) => self.pop_pointer(),
            RegisterOp::Pop(SP) => self.sp = None,
            RegisterOp::Pop(_) => self.add(8),
            RegisterOp::Leave => {
                self.sp = self.pointed();
                self.pop_pointer();
            }
            RegisterOp::Add { to: SP, add } => self.add(add),
            RegisterOp::Copy { to: SP, from } => self.sp = self.place(from, 0),
            RegisterOp::Lea { to: SP, base, add } => self.sp = self.place(base, add),
            RegisterOp::Copy { to: BP, from } => self.point(self.place(from, 0)),
            RegisterOp::Lea { to: BP, base, add } => self.point(self.place(base, add)),
            RegisterOp::Load { to: BP, base, at } => {
                self.pointer = self.loaded(self.place(base, at));
            }
            RegisterOp::Store { from: Some(BP), base, at, .. } => self.store(self.place(base, at)),
            RegisterOp::Load { to: SP, .. }
            | RegisterOp::Set { to: SP, .. }
            | RegisterOp::SetLow { to: SP, .. }
            | RegisterOp::Align { to: SP, .. } => self.sp = None,
            RegisterOp::Add { to: BP, .. }
            | RegisterOp::Set { to: BP, .. }
            | RegisterOp::SetLow { to: BP, .. }
            | RegisterOp::Align { to: BP, .. } => self.pointer = Pointer::Lost,
            RegisterOp::Swap(a, b) => {
                if [a, b].contains(&SP) {
                    self.sp = None;
                }
                if [a, b].contains(&BP) {
                    self.pointer = Pointer::Lost;
                }
            }
            _ => {}
        }
        if lost & 1 << SP != 0 {
            self.sp = None;
        }
        if lost & 1 << BP != 0 {
            self.pointer = Pointer::Lost;
        }
    }

    fn point(&mut self, place: Option<Place>) {
        self.pointer = place.map_or(Pointer::Lost, Pointer::At);
    }

    /// The rule of a frame whose CFA is this much above the stack pointer here.
    fn rule(&self, above: i32) -> Option<Rule> {
        let cfa = self.sp?.plus(above)?;
        let bp = match self.pointer {
            Pointer::Own => Saved::Same,
            Pointer::Word(place) if place.base == cfa.base => {
                Saved::FromCfa(place.at.checked_sub(cfa.at)?)
            }
            _ => return None,
        };
        let (cfa, ra) = (cfa.at, ReturnAddress);
        Some(match self.sp?.base {
            Base::Register(register) => Rule::Offset { register, cfa, bp, ra },
            Base::Word(register, at) => Rule::Deref { register, at, cfa, bp, ra },
        })
    }
}

/// The rule of code at an instruction or return address.
pub fn managed_rule(code: &ManagedBytes, at: u64, kind: AddressKind) -> Option<Rule> {
    search(code, at).or_else(|| {
        let (body, size) = code.body.as_ref()?;
        let instruction = at.checked_sub(kind.offset())?;
        body.contains(&instruction).then(|| sized_frame(*size))?
    })
}

/// The rule of a frame of this many bytes, in which the caller's frame pointer is below the return
/// address.
pub fn sized_frame(size: u32) -> Option<Rule> {
    let cfa = i32::try_from(size).ok().filter(|size| *size >= 16)?;
    let bp = Saved::FromCfa(-16);
    Some(Rule::Offset { register: SP, cfa, bp, ra: ReturnAddress })
}

/// The caller of an adapter of HotSpot, the innermost frame (`sharedRuntime_x86_64.cpp`): it takes the
/// return address into `rax`, makes room below the caller's stack pointer, which `r13` has from then on,
/// and pushes the return address again. The interpreter's callers have set `r13` already.
pub fn leave_adapter(
    code: &ManagedBytes,
    at: u64,
    registers: &[u64; DWARF_ORDER.len()],
) -> Option<LeftAdapter> {
    const SENDER: u8 = 13;
    let [own, sender] = [SP, SENDER].map(|register| registers[usize::from(register)]);
    let moved = LeftAdapter { ip: None, sp: sender };
    let not_begun = LeftAdapter { ip: None, sp: own.saturating_add(8) };
    let mut factory = InstructionInfoFactory::new();
    let into = usize::try_from(at.checked_sub(code.start)?).ok()?;
    let mut decoder = Decoder::with_ip(64, code.bytes.get(into..)?, at, DecoderOptions::NONE);
    let mut is_called = false;
    for _ in 0..MOST_OF_ADAPTER {
        let instruction = decoder.can_decode().then(|| decoder.decode())?;
        match next(&instruction) {
            // To the method, or to the code that finds one.
            Successor::Open | Successor::Tail | Successor::Jump(_) => {
                return Some(if is_called { not_begun } else { moved });
            }
            Successor::Call => is_called = true,
            Successor::Fall | Successor::Branch(_) => {}
            Successor::Return | Successor::Stop => return None,
        }
        match effect(&instruction, &mut factory).op {
            // It is still where the call has put it.
            RegisterOp::Pop(AX) => return Some(not_begun),
            RegisterOp::Load { to: AX, base: SP, at: 0 } => return Some(moved),
            RegisterOp::Copy { to: SENDER, from: SP } => {
                return Some(LeftAdapter { ip: Some(registers[usize::from(AX)]), sp: own });
            }
            RegisterOp::Push(Some(AX)) => {
                return Some(LeftAdapter { ip: Some(registers[usize::from(AX)]), sp: sender });
            }
            _ => {}
        }
    }
    None
}

fn search(code: &ManagedBytes, at: u64) -> Option<Rule> {
    let mut factory = InstructionInfoFactory::new();
    let mut instruction = Instruction::default();
    let mut ways = vec![Way::from(at)];
    let mut seen = FxHashSet::default();
    let body = code.body.as_ref();
    let begins_before_body = body.is_none_or(|(body, _)| at < body.start);
    while let Some(mut way) = ways.pop() {
        loop {
            if seen.len() >= MOST {
                return None;
            }
            let into = way.address.checked_sub(code.start).and_then(|at| usize::try_from(at).ok());
            let bytes = into.and_then(|into| code.bytes.get(into..)).unwrap_or_default();
            if bytes.is_empty() || !seen.insert(way.address) {
                break;
            }
            if let Some((body, size)) = body.filter(|(body, _)| body.start == way.address)
                && at < body.start
            {
                // The frame is complete here. Its word for the frame pointer may be of this way.
                let cfa = i32::try_from(*size).ok()?;
                let slot = way.sp.and_then(|sp| sp.plus(cfa - 16));
                if way.pointer != Pointer::Own {
                    way.pointer = way.loaded(slot);
                }
                return way.rule(cfa);
            }
            let mut decoder = Decoder::with_ip(64, bytes, way.address, DecoderOptions::NONE);
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                break;
            }
            let inside = |address: u64| address.wrapping_sub(code.start) < code.bytes.len() as u64;
            let is_exit = body.is_none() || begins_before_body || way.is_removed;
            match next(&instruction) {
                Successor::Return if instruction.op_count() == 0 => return way.rule(8),
                Successor::Jump(target) if inside(target) => {
                    way.address = target;
                    continue;
                }
                Successor::Jump(_) if is_exit => return way.rule(8),
                Successor::Open | Successor::Tail if body.is_none() => return way.rule(8),
                Successor::Branch(target) => {
                    if inside(target) && ways.len() < MOST_WAYS {
                        ways.push(Way { address: target, ..way });
                    }
                }
                Successor::Fall => way.apply(effect(&instruction, &mut factory)),
                Successor::Call => {}
                _ => break,
            }
            way.address = instruction.next_ip();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000;

    fn rule(cfa: i32, bp: Saved) -> Option<Rule> {
        Some(Rule::Offset { register: SP, cfa, bp, ra: ReturnAddress })
    }

    fn found(code: &[u8], body: Option<(std::ops::Range<usize>, u32)>, at: usize) -> Option<Rule> {
        let address = |at: usize| START + at as u64;
        let body = body.map(|(body, size)| (address(body.start)..address(body.end), size));
        let code = ManagedBytes { bytes: code.into(), start: START, body };
        managed_rule(&code, address(at), AddressKind::Instruction)
    }

    /// As the second compiler of HotSpot makes it: the test of the stack, a frame of 32 bytes, a
    /// branch behind the return, and the test for a pause of the program.
    const COMPILED: &[u8] = &[
        0x89, 0x84, 0x24, 0, 0xc0, 0xfe, 0xff, // mov %eax,-0x14000(%rsp)
        0x55, // push %rbp
        0x48, 0x83, 0xec, 0x10, // sub $16,%rsp
        0x85, 0xf6, // 12: test %esi,%esi
        0x74, 0x10, // je 32
        0xbd, 1, 0, 0, 0, // mov $1,%ebp
        0x48, 0x83, 0xc4, 0x10, // 21: add $16,%rsp
        0x5d, // 25: pop %rbp
        0x0f, 0x87, 0, 1, 0, 0, // 26: ja beyond
        // The displacement above leads out of the code.
        0xeb, 0xf3, // 32: jmp 21
        0xc3, // 34: ret
    ];

    #[test]
    fn a_compiled_method_has_a_frame_at_each_of_its_instructions() {
        let code = {
            let mut code = COMPILED.to_vec();
            // ret in place of the jump back, so that the epilogue leads to it.
            code[32..34].copy_from_slice(&[0xc3, 0xcc]);
            code
        };
        let body = || Some((12..35, 32));
        for at in [0, 7] {
            assert_eq!(found(&code, body(), at), rule(8, Saved::Same), "{at}");
        }
        assert_eq!(found(&code, body(), 8), rule(16, Saved::Same));
        for at in [12, 14, 16, 21] {
            let at_first = found(&code, body(), at);
            assert_eq!(at_first, rule(32, Saved::FromCfa(-16)), "{at}");
        }
        assert_eq!(found(&code, body(), 25), rule(16, Saved::FromCfa(-16)));
        assert_eq!(found(&code, body(), 26), rule(8, Saved::Same));
        assert_eq!(found(&code, body(), 32), rule(8, Saved::Same));
    }

    #[test]
    fn a_method_whose_entry_was_closed_has_no_frame_there() {
        // jmp out of the code, over the first instruction.
        let mut code = COMPILED.to_vec();
        code[..5].copy_from_slice(&[0xe9, 0, 0x10, 0, 0]);
        assert_eq!(found(&code, Some((12..35, 32)), 0), rule(8, Saved::Same));
        // In the complete frame, a jump out of the code with the frame proves nothing.
        let throws = [0x90, 0xe9, 0, 0x10, 0, 0];
        assert_eq!(found(&throws, Some((0..6, 48)), 0), rule(48, Saved::FromCfa(-16)));
        assert_eq!(found(&throws, Some((0..1, 48)), 1), None);
    }

    #[test]
    fn words_that_are_pushed_in_the_middle_count() {
        // push %rdi; nop; pop %rdi; add $16,%rsp; pop %rbp; ret
        let code = [0x57, 0x90, 0x5f, 0x48, 0x83, 0xc4, 0x10, 0x5d, 0xc3];
        assert_eq!(found(&code, Some((0..9, 32)), 0), rule(32, Saved::FromCfa(-16)));
        assert_eq!(found(&code, Some((0..9, 32)), 1), rule(40, Saved::FromCfa(-16)));
        assert_eq!(found(&code, Some((0..9, 32)), 3), rule(32, Saved::FromCfa(-16)));
    }

    #[test]
    fn a_stub_with_a_frame_pointer_is_left_by_it() {
        // push %rbp; mov %rsp,%rbp; and $-16,%rsp; nop; leave; ret
        let code = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xe4, 0xf0, 0x90, 0xc9, 0xc3];
        assert_eq!(found(&code, None, 0), rule(8, Saved::Same));
        let pointed =
            Rule::Offset { register: BP, cfa: 16, bp: Saved::FromCfa(-16), ra: ReturnAddress };
        assert_eq!(found(&code, None, 4), Some(pointed));
        assert_eq!(found(&code, None, 8), Some(pointed));
        assert_eq!(found(&code, None, 10), rule(8, Saved::Same));
        // It ends with a jump to other code: jmp *%rax
        assert_eq!(found(&[0x58, 0x50, 0xff, 0xe0], None, 0), rule(8, Saved::Same));
        // The return address is in a register.
        assert_eq!(found(&[0x50, 0xff, 0xe0], None, 0), rule(0, Saved::Same));
    }

    #[test]
    fn an_adapter_has_its_caller_in_registers() {
        // pop %rax; mov %rsp,%r13; sub $16,%rsp; push %rax; jmp *%rcx
        let code = [0x58, 0x49, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0x50, 0xff, 0xe1];
        let code = ManagedBytes { bytes: code.as_slice().into(), start: START, body: None };
        let mut registers = [0; DWARF_ORDER.len()];
        (registers[usize::from(AX)], registers[usize::from(SP)], registers[13]) = (7, 0x100, 0x200);
        let left = |at: u64| leave_adapter(&code, START + at, &registers);
        assert_eq!(left(0), Some(LeftAdapter { ip: None, sp: 0x108 }));
        assert_eq!(left(1), Some(LeftAdapter { ip: Some(7), sp: 0x100 }));
        for at in [4, 8] {
            assert_eq!(left(at), Some(LeftAdapter { ip: Some(7), sp: 0x200 }));
        }
        assert_eq!(left(9), Some(LeftAdapter { ip: None, sp: 0x200 }));
        assert_eq!(left(11), None);
    }

    #[test]
    fn a_restored_frame_pointer_leads_on() {
        // mov 80(%rsp),%rbp; leave; ret
        let code = [0x48, 0x8b, 0x6c, 0x24, 0x50, 0xc9, 0xc3];
        let (bp, ra) = (Saved::FromCfa(-16), ReturnAddress);
        let restored = Rule::Deref { register: SP, at: 80, cfa: 16, bp, ra };
        assert_eq!(found(&code, None, 0), Some(restored));
    }

    #[test]
    fn code_without_end_is_left() {
        for code in [&[0xeb, 0xfe][..], &[0x90; 9000], &[], &[0x74, 0xfe, 0xeb, 0xfc]] {
            assert_eq!(found(code, None, 0), None);
        }
    }
}
