//! The return address of code that moves it by a number that is known at run time only, such as the
//! number of arguments that it pushes. Such code is executed on, from the sampled registers and the
//! copy of the stack, to where it leaves its function: by then the return address is at the stack
//! pointer. What neither of them has is unknown; where a branch depends on that, both ways are
//! followed, and all have to find the same return address and the same frame pointer.

use std::ops::Range;

use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};

use super::effect::{SCRATCH, Successor, next, number};
use crate::arch::{BP, SP};
use crate::code::AtReturn;

/// Most instructions that are executed.
const MAX_STEPS: usize = 1 << 13;

/// Most ways that are followed, and most branches of one that depend on something unknown.
const MAX_WAYS: usize = 64;
const MAX_BRANCHES: u8 = 12;

/// Most words that one way writes.
const MAX_WRITTEN: usize = 512;

/// A value; `None`: unknown.
type Value = Option<u64>;

/// What a conditional branch depends on.
#[derive(Clone, Copy)]
enum Flags {
    Unknown,
    /// The comparison of two numbers of this size in bytes.
    Difference(u64, u64, usize),
    /// A number of this size, compared with 0.
    Number(u64, usize),
}

/// The state on one way.
#[derive(Clone)]
struct Way {
    at: u64,
    registers: [Value; 16],
    flags: Flags,
    /// Words of the stack that were written, the last one last.
    written: Vec<(u64, Value)>,
    branches: u8,
}

/// Executes the code of a function, which is at `bounds` and begins with `code`.
pub struct Executor<'a> {
    /// The function's code, and its addresses.
    pub code: &'a [u8],
    pub bounds: Range<u64>,
    /// Reads a word of the stack's copy.
    pub read: &'a dyn Fn(u64) -> Result<u64, ()>,
}

/// Effect of an instruction on a way.
enum Outcome {
    Next,
    To(u64),
    Either(u64),
    Left,
    /// Nothing is known of it any more, or no code follows.
    Lost,
}

impl Executor<'_> {
    /// Executes the code from the address on, with these registers (by DWARF's numbers). Also returns
    /// the number of instructions that were executed.
    pub fn leave(&self, at: u64, registers: [u64; 16]) -> (Option<AtReturn>, usize) {
        let mut factory = InstructionInfoFactory::new();
        let registers = registers.map(Some);
        let flags = Flags::Unknown;
        let first = Way { at, registers, flags, written: Vec::new(), branches: 0 };
        let mut ways = vec![first];
        let mut found: Option<AtReturn> = None;
        let (mut steps, mut all) = (0, 1);
        while let Some(mut way) = ways.pop() {
            // It may begin where a branch has left the function.
            let mut outcome = Outcome::To(way.at);
            let left = loop {
                match outcome {
                    Outcome::Next => {}
                    Outcome::To(to) if steps == 0 || self.bounds.contains(&to) => way.at = to,
                    Outcome::To(_) | Outcome::Left => break self.left(&way),
                    Outcome::Either(to)
                        if let Some(joined) = self.join(&way, to, &mut factory, &mut steps) =>
                    {
                        way = joined;
                    }
                    Outcome::Either(to) if way.branches < MAX_BRANCHES && all < MAX_WAYS => {
                        way.branches += 1;
                        all += 1;
                        ways.push(Way { at: to, ..way.clone() });
                    }
                    Outcome::Either(_) | Outcome::Lost => break None,
                }
                steps += 1;
                if steps > MAX_STEPS || way.written.len() > MAX_WRITTEN {
                    return (None, steps);
                }
                outcome = self.step(&mut way, &mut factory);
            };
            let Some(left) = left else { continue };
            let other = found.replace(left).map(|AtReturn { ip, bp, .. }| (ip, bp));
            if other.is_some_and(|other| other != (left.ip, left.bp)) {
                return (None, steps);
            }
        }
        (found, steps)
    }

    /// The state behind a branch over a few instructions: what they change is unknown. So loops that
    /// have such branches are not followed in many ways.
    fn join(
        &self,
        way: &Way,
        to: u64,
        factory: &mut InstructionInfoFactory,
        steps: &mut usize,
    ) -> Option<Way> {
        /// Most of them.
        const FEW: usize = 4;
        let mut through = way.clone();
        for _ in 0..FEW {
            if through.at >= to {
                break;
            }
            *steps += 1;
            let Outcome::Next = self.step(&mut through, factory) else { return None };
        }
        (through.at == to).then(|| {
            for (value, other) in through.registers.iter_mut().zip(way.registers) {
                *value = value.filter(|_| *value == other);
            }
            through.written[way.written.len()..].iter_mut().for_each(|(_, value)| *value = None);
            Way { flags: Flags::Unknown, ..through }
        })
    }

    fn left(&self, way: &Way) -> Option<AtReturn> {
        let sp = way.registers[usize::from(SP)]?;
        let bp = way.registers[usize::from(BP)]?;
        let ip = self.word(way, sp)?;
        (bp > sp).then_some(AtReturn { ip, slot: sp, bp })
    }

    fn word(&self, way: &Way, address: u64) -> Value {
        let overlaps = |&&(at, _): &&(u64, Value)| at.abs_diff(address) < 8;
        match way.written.iter().rev().find(overlaps) {
            Some(&(at, value)) => value.filter(|_| at == address),
            None => (self.read)(address).ok(),
        }
    }

    /// Executes an instruction; [`Way::at`] becomes the next one's address.
    fn step(&self, way: &mut Way, factory: &mut InstructionInfoFactory) -> Outcome {
        let offset = way.at.checked_sub(self.bounds.start).filter(|_| way.at < self.bounds.end);
        let code = offset.and_then(|at| self.code.get(usize::try_from(at).ok()?..));
        let Some(code) = code else { return Outcome::Lost };
        let mut decoder = Decoder::with_ip(64, code, way.at, DecoderOptions::NONE);
        let i = decoder.decode();
        if i.is_invalid() {
            return Outcome::Lost;
        }
        way.at = i.next_ip();
        match next(&i) {
            Successor::Return if i.op_count() == 0 => return Outcome::Left,
            Successor::Open | Successor::Tail => return Outcome::Left,
            Successor::Jump(to) => return Outcome::To(to),
            Successor::Branch(to) => {
                return match way.flags.holds(i.condition_code()) {
                    Some(true) => Outcome::To(to),
                    Some(false) => Outcome::Next,
                    None => Outcome::Either(to),
                };
            }
            // What it was called with may have been removed from the stack.
            Successor::Call => {
                let lost = SCRATCH | 1 << SP;
                way.lose(lost);
                way.flags = Flags::Unknown;
                return Outcome::Next;
            }
            Successor::Return | Successor::Stop => return Outcome::Lost,
            Successor::Fall => {}
        }
        if self.execute(way, &i).is_none() {
            self.lose(way, &i, factory);
        }
        Outcome::Next
    }

    /// Address of a memory operand.
    fn address(&self, way: &Way, i: &Instruction) -> Value {
        if matches!(i.memory_segment(), Register::FS | Register::GS) {
            return None;
        }
        let part = |register: Register, scale: u64| match register {
            Register::None => Some(0),
            _ if register.is_gpr64() => {
                Some(way.registers[usize::from(number(register)?)]?.wrapping_mul(scale))
            }
            _ => None,
        };
        let base = part(i.memory_base(), 1)?;
        let index = part(i.memory_index(), u64::from(i.memory_index_scale()))?;
        Some(base.wrapping_add(index).wrapping_add(i.memory_displacement64()))
    }

    /// Value and size of an operand; `Err` if it is of another kind.
    fn operand(&self, way: &Way, i: &Instruction, n: u32) -> Result<(Value, usize), ()> {
        match i.op_kind(n) {
            OpKind::Register => {
                let register = i.op_register(n);
                let size = register.size();
                let value = way.registers[usize::from(number(register).ok_or(())?)];
                match size {
                    8 => Ok((value, 8)),
                    4 => Ok((value.map(|v| v & u64::from(u32::MAX)), 4)),
                    _ => Err(()),
                }
            }
            OpKind::Memory => {
                let size = i.memory_size().size();
                let word = self.address(way, i).and_then(|at| self.word(way, at));
                match size {
                    8 => Ok((word, 8)),
                    4 => Ok((word.map(|v| v & u64::from(u32::MAX)), 4)),
                    _ => Err(()),
                }
            }
            _ => Ok((Some(i.try_immediate(n).map_err(drop)?), 8)),
        }
    }

    /// Sets the first operand; `None` if it is of another kind.
    fn set(&self, way: &mut Way, i: &Instruction, value: Value, size: usize) -> Option<()> {
        match i.op0_kind() {
            OpKind::Register => {
                way.registers[usize::from(number(i.op0_register())?)] = value;
            }
            OpKind::Memory => {
                // What is at an unknown address is not on the stack.
                if let Some(at) = self.address(way, i) {
                    way.written.push((at, value.filter(|_| size == 8)));
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Executes an instruction whose effect is known.
    fn execute(&self, way: &mut Way, i: &Instruction) -> Option<()> {
        let sp = usize::from(SP);
        match i.mnemonic() {
            Mnemonic::Push if i.stack_pointer_increment() == -8 => {
                let (value, _) = self.operand(way, i, 0).unwrap_or((None, 8));
                way.registers[sp] = way.registers[sp].map(|at| at.wrapping_sub(8));
                if let Some(at) = way.registers[sp] {
                    way.written.push((at, value));
                }
                Some(())
            }
            Mnemonic::Pop
                if i.stack_pointer_increment() == 8 && i.op0_kind() == OpKind::Register =>
            {
                let at = way.registers[sp];
                let value = at.and_then(|at| self.word(way, at));
                way.registers[sp] = at.map(|at| at.wrapping_add(8));
                self.set(way, i, value, 8)
            }
            Mnemonic::Mov => {
                let (_, size) = self.operand(way, i, 0).ok()?;
                let (value, _) = self.operand(way, i, 1).ok()?;
                let value = if size == 4 { value.map(|v| v & u64::from(u32::MAX)) } else { value };
                self.set(way, i, value, size)
            }
            Mnemonic::Lea if i.op0_register().is_gpr64() => {
                let address = self.address(way, i);
                self.set(way, i, address, 8)
            }
            Mnemonic::Nop | Mnemonic::Endbr64 => Some(()),
            _ => self.compute(way, i),
        }
    }

    /// Executes arithmetic.
    fn compute(&self, way: &mut Way, i: &Instruction) -> Option<()> {
        let (a, size) = self.operand(way, i, 0).ok()?;
        let b = if i.op_count() > 1 { self.operand(way, i, 1).ok()?.0 } else { Some(1) };
        let mask = if size == 4 { u64::from(u32::MAX) } else { u64::MAX };
        let b = b.map(|b| b & mask);
        let both = |f: &dyn Fn(u64, u64) -> u64| Some(f(a?, b?) & mask);
        let is_same = i.op_count() > 1
            && i.op1_kind() == OpKind::Register
            && i.op0_kind() == OpKind::Register
            && i.op0_register() == i.op1_register();
        let result = match i.mnemonic() {
            Mnemonic::Xor | Mnemonic::Sub if is_same => Some(0),
            Mnemonic::Cmp | Mnemonic::Sub | Mnemonic::Dec => both(&u64::wrapping_sub),
            Mnemonic::Add | Mnemonic::Inc => both(&u64::wrapping_add),
            Mnemonic::Test | Mnemonic::And => both(&|a, b| a & b),
            Mnemonic::Or => both(&|a, b| a | b),
            Mnemonic::Xor => both(&|a, b| a ^ b),
            Mnemonic::Shl => both(&|a, b| a << (b & 63)),
            Mnemonic::Shr => both(&|a, b| a >> (b & 63)),
            Mnemonic::Sar if size == 8 => both(&|a, b| (a as i64 >> (b & 63)) as u64),
            _ => return None,
        };
        way.flags = match (i.mnemonic(), a.zip(b), result) {
            (Mnemonic::Cmp | Mnemonic::Sub | Mnemonic::Dec, Some((a, b)), _) => {
                Flags::Difference(a, b, size)
            }
            (Mnemonic::Test | Mnemonic::And | Mnemonic::Or | Mnemonic::Xor, _, Some(result)) => {
                Flags::Number(result, size)
            }
            _ => Flags::Unknown,
        };
        match i.mnemonic() {
            Mnemonic::Cmp | Mnemonic::Test => Some(()),
            _ => self.set(way, i, result, size),
        }
    }

    /// What another instruction writes becomes unknown.
    fn lose(&self, way: &mut Way, i: &Instruction, factory: &mut InstructionInfoFactory) {
        let info = factory.info(i);
        let is_written = |access: OpAccess| {
            use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
            matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
        };
        let registers = info.used_registers().iter().filter(|r| is_written(r.access()));
        let lost = registers.filter_map(|r| number(r.register())).fold(0, |set, r| set | 1 << r);
        if info.used_memory().iter().any(|m| is_written(m.access()))
            && let Some(at) = self.address(way, i)
        {
            let words = (i.memory_size().size() as u64).div_ceil(8).clamp(1, 8);
            way.written.extend((0..words).map(|n| (at.wrapping_add(n * 8), None)));
        }
        way.lose(lost);
        way.flags = Flags::Unknown;
    }
}

impl Way {
    fn lose(&mut self, registers: u16) {
        for (number, value) in self.registers.iter_mut().enumerate() {
            if registers & 1 << number != 0 {
                *value = None;
            }
        }
    }
}

impl Flags {
    /// True if a condition holds; `None`: unknown.
    fn holds(self, condition: ConditionCode) -> Option<bool> {
        let signed =
            |n: u64, size: usize| if size == 4 { n as u32 as i32 as i64 } else { n as i64 };
        let (a, b, size) = match self {
            Flags::Unknown => return None,
            Flags::Difference(a, b, size) => (a, b, size),
            Flags::Number(n, size) => (n, 0, size),
        };
        let (sa, sb) = (signed(a, size), signed(b, size));
        Some(match condition {
            ConditionCode::e => a == b,
            ConditionCode::ne => a != b,
            ConditionCode::l => sa < sb,
            ConditionCode::ge => sa >= sb,
            ConditionCode::le => sa <= sb,
            ConditionCode::g => sa > sb,
            ConditionCode::b => a < b,
            ConditionCode::ae => a >= b,
            ConditionCode::be => a <= b,
            ConditionCode::a => a > b,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: u64 = 0x40_0000;
    const STACK: u64 = 0x7000;
    const CALLER: u64 = 0x1234;
    const BP: u64 = 0x7100;

    /// V8's `CallVarargs`: it moves the return address and `rax` arguments down by `rcx` words, and
    /// puts those words of an array behind them.
    const CALL_VARARGS: [u8; 118] = [
        0x49, 0x89, 0xe2, 0x4d, 0x2b, 0x55, 0x90, 0x49, 0xc1, 0xfa, 0x03, 0x4c, 0x3b, 0xd1, 0x7e,
        0x58, 0x49, 0x89, 0xe0, 0x4c, 0x8d, 0x14, 0xcd, 0x00, 0x00, 0x00, 0x00, 0x49, 0x2b, 0xe2,
        0x45, 0x31, 0xe4, 0xe9, 0x0b, 0x00, 0x00, 0x00, 0x4f, 0x8b, 0x14, 0xe0, 0x4e, 0x89, 0x14,
        0xe4, 0x49, 0xff, 0xc4, 0x4c, 0x3b, 0xe0, 0x7e, 0xf0, 0x4c, 0x8d, 0x44, 0xc4, 0x08, 0x03,
        0xc1, 0x45, 0x33, 0xc9, 0x44, 0x3b, 0xc9, 0x74, 0x1e, 0x4e, 0x8b, 0x64, 0xcb, 0x0f, 0x4d,
        0x3b, 0xa5, 0x98, 0x01, 0x00, 0x00, 0x75, 0x07, 0x4d, 0x8b, 0xa5, 0x90, 0x01, 0x00, 0x00,
        0x4f, 0x89, 0x24, 0xc8, 0x41, 0xff, 0xc1, 0xeb, 0xdd, 0xe9, 0x98, 0xd7, 0xff, 0xff, 0x33,
        0xc0, 0x49, 0x8b, 0x9d, 0x70, 0x3a, 0x00, 0x00, 0xe9, 0xca, 0x59, 0x09, 0x00,
    ];

    /// The end of V8's `ResumeGeneratorTrampoline`: it pops the return address, pushes as many words
    /// as the generator has, and the return address again. (The branch before leaves these bytes.)
    const RESUME_GENERATOR: [u8; 59] = [
        0x49, 0x3b, 0x65, 0x90, 0x0f, 0x82, 0x7f, 0x00, 0x00, 0x00, 0x58, 0x48, 0x8b, 0x4f, 0x17,
        0x0f, 0xb7, 0x49, 0x29, 0x48, 0xff, 0xc9, 0x48, 0x8b, 0x5a, 0x47, 0x48, 0xff, 0xc9, 0x7c,
        0x06, 0xff, 0x74, 0xcb, 0x0f, 0xeb, 0xf5, 0xff, 0x72, 0x27, 0x50, 0x48, 0x8b, 0x47, 0x17,
        0x0f, 0xb7, 0x40, 0x29, 0x48, 0x8b, 0x4f, 0x2f, 0x48, 0x8b, 0x49, 0x27, 0xff, 0xe1,
    ];

    /// A word of the caller's stack.
    fn stack(address: u64) -> Result<u64, ()> {
        match address {
            STACK => Ok(CALLER),
            0x6000..0x8000 => Ok(address | 0xabc0_0000),
            _ => Err(()),
        }
    }

    /// Executes code, with memory that `heap` has, and checks what is found at each of its
    /// instructions without that memory. Returns their number.
    fn check(code: &[u8], first: [u64; 16], heap: &dyn Fn(u64) -> u64) -> usize {
        let bounds = BEGIN..BEGIN + code.len() as u64;
        let all = |address| Ok(stack(address).unwrap_or_else(|()| heap(address)));
        let machine = Executor { code, bounds: bounds.clone(), read: &all };
        let mut factory = InstructionInfoFactory::new();
        let (registers, flags) = (first.map(Some), Flags::Unknown);
        let mut way = Way { at: BEGIN, registers, flags, written: Vec::new(), branches: 0 };
        for count in 0.. {
            let now = way.clone();
            let read = |address: u64| match machine.word(&now, address) {
                Some(word) if (0x6000..0x8000).contains(&address) => Ok(word),
                _ => Err(()),
            };
            let executor = Executor { code, bounds: bounds.clone(), read: &read };
            let known = now.registers.map(Option::unwrap);
            let (left, _) = executor.leave(now.at, known);
            let left = left.map(|left| (left.ip, left.bp));
            // Flags are not sampled: both ways of a branch are followed.
            let is_branch = (0x70..0x80).contains(&code[(now.at - BEGIN) as usize]);
            let found = left == Some((CALLER, BP)) || (is_branch && left.is_none());
            assert!(found, "{:x}: {left:x?}", now.at);
            match machine.step(&mut way, &mut factory) {
                Outcome::Next => {}
                Outcome::To(to) if bounds.contains(&to) => way.at = to,
                Outcome::To(_) | Outcome::Left => return count,
                Outcome::Either(_) | Outcome::Lost => panic!("{:x}", now.at),
            }
            // Loads that the machine does not make.
            way.registers.iter_mut().for_each(|value| *value = value.or(Some(3)));
        }
        unreachable!("it ends");
    }

    /// Registers with values of some, by DWARF's numbers.
    fn registers(some: &[(usize, u64)]) -> [u64; 16] {
        let mut all = [0x11; 16];
        (all[6], all[7]) = (BP, STACK);
        some.iter().for_each(|&(number, value)| all[number] = value);
        all
    }

    #[test]
    fn a_return_address_that_is_moved_down_is_found_on_the_way() {
        for (arguments, more) in [(0, 0), (0, 3), (2, 1), (1, 5), (6, 2), (3, 100)] {
            let first = registers(&[(0, arguments), (2, more), (3, 0x9001), (13, 0x10_0000)]);
            let count = check(&CALL_VARARGS, first, &|_| 0);
            assert!(count as u64 > 5 * more, "{count}");
        }
    }

    #[test]
    fn a_return_address_that_is_popped_and_pushed_again_is_found_on_the_way() {
        let first = registers(&[(1, 0x9001), (5, 0x9001), (13, 0x10_0000)]);
        let count = check(&RESUME_GENERATOR, first, &|_| 0);
        assert!(count > 10, "{count}");
    }

    #[test]
    fn what_a_branch_skips_makes_unknown_only_what_it_changes() {
        // test [r13],rdi; jne +1; push rbx; ret: the stack pointer is unknown.
        let pushes = [0x49, 0x85, 0x7d, 0x00, 0x75, 0x01, 0x53, 0xc3];
        // test [r13],rdi; jne +3; mov rax,rbx; ret
        let moves = [0x49, 0x85, 0x7d, 0x00, 0x75, 0x03, 0x48, 0x89, 0xd8, 0xc3];
        // test [r13],rdi; jne +4; mov [rsp],rbx; ret: so is the return address.
        let stores = [0x49, 0x85, 0x7d, 0x00, 0x75, 0x04, 0x48, 0x89, 0x1c, 0x24, 0xc3];
        for (code, found) in [(&pushes[..], None), (&moves[..], Some(CALLER)), (&stores[..], None)]
        {
            let bounds = BEGIN..BEGIN + code.len() as u64;
            let executor = Executor { code, bounds, read: &stack };
            let (left, _) = executor.leave(BEGIN, registers(&[(13, 0x10_0000)]));
            assert_eq!(left.map(|left| left.ip), found, "{code:x?}");
        }
    }

    #[test]
    fn ways_that_disagree_find_nothing() {
        // test %rdi,%rdi after a load; je +1; push %rax; ret
        let code = [0x48, 0x8b, 0x3f, 0x48, 0x85, 0xff, 0x74, 0x01, 0x50, 0xc3];
        let read = |address| stack(address);
        let bounds = BEGIN..BEGIN + code.len() as u64;
        let executor = Executor { code: &code, bounds, read: &read };
        assert_eq!(executor.leave(BEGIN, registers(&[])).0, None);
        // Behind the branch, there is one way.
        assert_eq!(executor.leave(BEGIN + 9, registers(&[])).0.map(|l| l.ip), Some(CALLER));
        // Not from outside, without an end, or with a frame pointer on this side.
        assert_eq!(executor.leave(BEGIN + 10, registers(&[])).0, None);
        assert_eq!(executor.leave(BEGIN - 1, registers(&[])).0, None);
        assert_eq!(executor.leave(BEGIN + 9, registers(&[(6, STACK - 8)])).0, None);
        let endless = [0xeb, 0xfe];
        let executor = Executor { code: &endless, bounds: BEGIN..BEGIN + 2, read: &read };
        let (left, steps) = executor.leave(BEGIN, registers(&[]));
        assert!(left.is_none() && steps <= MAX_STEPS + 1);
    }
}
