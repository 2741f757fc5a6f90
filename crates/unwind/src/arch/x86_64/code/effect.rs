//! Effects of one instruction on the general registers and the stack.

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use crate::arch::SP;

/// DWARF's number of `rax`.
pub const AX: u8 = 0;

/// Registers that a function may change (System V ABI): rax, rdx, rcx, rsi, rdi, r8 to r11.
pub const SCRATCH: u16 = 0b1111_0011_0111;

/// An operation on registers (by DWARF's numbers) and on words of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterOp {
    /// No tracked effect.
    Nothing,
    /// A word is pushed: a register's value, or another.
    Push(Option<u8>),
    /// The word at a register plus an offset is pushed.
    PushWord { base: u8, at: i32 },
    /// A register is popped.
    Pop(u8),
    /// A register takes another's value.
    Copy { to: u8, from: u8 },
    /// A register becomes another plus a number.
    Lea { to: u8, base: u8, add: i32 },
    /// A register is loaded from the word at another plus an offset.
    Load { to: u8, base: u8, at: i32 },
    /// Bytes at a register plus an offset are overwritten: by a register's value, or another.
    Store { from: Option<u8>, base: u8, at: i32, size: u16 },
    /// A number is added to a register.
    Add { to: u8, add: i32 },
    /// A register becomes a number.
    Set { to: u8, value: u32 },
    /// The lowest byte of a register becomes a number.
    SetLow { to: u8, value: u8 },
    /// Low bits of a register are cleared.
    Align { to: u8, mask: i32 },
    /// `rsp` becomes `rbp`, which is popped.
    Leave,
    /// Two registers swap their values.
    Swap(u8, u8),
    /// A system call.
    Syscall,
}

/// An operation, after a set of registers (a bit for each) has become unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    pub lost: u16,
    pub op: RegisterOp,
}

/// Control flow after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Successor {
    /// To the next instruction.
    Fall,
    /// To this address.
    Jump(u64),
    /// To the next instruction, or to this address.
    Branch(u64),
    /// To the next instruction, after a call, if that returns.
    Call,
    /// To the return address on the stack.
    Return,
    /// To a function whose address is at a fixed location (an entry of the PLT).
    Tail,
    /// To an unknown address.
    Open,
    /// Nowhere.
    Stop,
}

impl Successor {
    /// True if it may lead back to the caller.
    pub fn leaves(self) -> bool {
        matches!(self, Successor::Return | Successor::Tail | Successor::Open)
    }
}

/// DWARF's number of a general register, also by the name of a part of it.
pub fn number(register: Register) -> Option<u8> {
    const ORDER: [u8; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
    let full = register.full_register();
    full.is_gpr64().then(|| ORDER[full.number()])
}

/// The operand, if it is a whole general register.
fn whole(i: &Instruction, operand: u32) -> Option<u8> {
    let register = i.op_register(operand);
    (i.op_kind(operand) == OpKind::Register && register.is_gpr64()).then(|| number(register))?
}

/// A memory operand that is a whole register plus a number.
fn place(i: &Instruction) -> Option<(u8, i32)> {
    let plain = i.memory_index() == Register::None
        && i.memory_base().is_gpr64()
        && !matches!(i.memory_segment(), Register::FS | Register::GS);
    let at = i32::try_from(i.memory_displacement64() as i64).ok()?;
    plain.then(|| Some((number(i.memory_base())?, at)))?
}

/// A number among the operands.
fn immediate(i: &Instruction, operand: u32) -> Option<i64> {
    i.try_immediate(operand).ok().map(|n| n as i64)
}

/// Tracked effects of an instruction.
pub fn effect(i: &Instruction, factory: &mut InstructionInfoFactory) -> Effect {
    match tracked(i) {
        Some(op) => Effect { lost: 0, op },
        None => other(i, factory),
    }
}

fn tracked(i: &Instruction) -> Option<RegisterOp> {
    let memory = |operand: u32| i.op_kind(operand) == OpKind::Memory;
    let small = |operand: u32| immediate(i, operand).and_then(|n| i32::try_from(n).ok());
    let same = || i.op_register(0) == i.op_register(1) && i.op_kind(1) == OpKind::Register;
    Some(match i.mnemonic() {
        Mnemonic::Push if i.stack_pointer_increment() == -8 => match (memory(0), place(i)) {
            (true, Some((base, at))) => RegisterOp::PushWord { base, at },
            _ => RegisterOp::Push(whole(i, 0)),
        },
        Mnemonic::Pushfq => RegisterOp::Push(None),
        Mnemonic::Popfq => RegisterOp::Add { to: SP, add: 8 },
        Mnemonic::Pop if i.stack_pointer_increment() == 8 => match whole(i, 0) {
            Some(to) => RegisterOp::Pop(to),
            None => RegisterOp::Add { to: SP, add: 8 },
        },
        Mnemonic::Mov if i.code() == Code::Mov_r64_rm64 || i.code() == Code::Mov_rm64_r64 => {
            match (whole(i, 0), whole(i, 1)) {
                (Some(to), Some(from)) => RegisterOp::Copy { to, from },
                (Some(to), None) => {
                    let (base, at) = place(i)?;
                    RegisterOp::Load { to, base, at }
                }
                (None, from) => {
                    let (base, at) = place(i)?;
                    RegisterOp::Store { from, base, at, size: 8 }
                }
            }
        }
        Mnemonic::Mov if i.op0_kind() == OpKind::Register => {
            let to = number(i.op0_register())?;
            let value = immediate(i, 1)?;
            match i.op0_register() {
                r if r.is_gpr8() && !is_high(r) => RegisterOp::SetLow { to, value: value as u8 },
                r if r.is_gpr64() || r.is_gpr32() => {
                    RegisterOp::Set { to, value: value.try_into().ok()? }
                }
                _ => return None,
            }
        }
        Mnemonic::Lea => {
            let (base, add) = place(i)?;
            RegisterOp::Lea { to: whole(i, 0)?, base, add }
        }
        Mnemonic::Add => RegisterOp::Add { to: whole(i, 0)?, add: small(1)? },
        Mnemonic::Sub if whole(i, 0).is_some() && small(1).is_some() => {
            RegisterOp::Add { to: whole(i, 0)?, add: small(1)?.checked_neg()? }
        }
        Mnemonic::Inc => RegisterOp::Add { to: whole(i, 0)?, add: 1 },
        Mnemonic::Dec => RegisterOp::Add { to: whole(i, 0)?, add: -1 },
        Mnemonic::And if small(1)? < 0 => RegisterOp::Align { to: whole(i, 0)?, mask: small(1)? },
        Mnemonic::Xor | Mnemonic::Sub
            if same() && (i.op0_register().is_gpr32() || i.op0_register().is_gpr64()) =>
        {
            RegisterOp::Set { to: number(i.op0_register())?, value: 0 }
        }
        Mnemonic::Leave if i.code() == Code::Leaveq => RegisterOp::Leave,
        Mnemonic::Xchg => RegisterOp::Swap(whole(i, 0)?, whole(i, 1)?),
        Mnemonic::Syscall => RegisterOp::Syscall,
        _ => return None,
    })
}

fn is_high(register: Register) -> bool {
    matches!(register, Register::AH | Register::BH | Register::CH | Register::DH)
}

/// Effect of any other instruction: all registers that it writes become unknown, as does the stack.
fn other(i: &Instruction, factory: &mut InstructionInfoFactory) -> Effect {
    let info = factory.info(i);
    let written = |access: OpAccess| {
        matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    };
    let registers = info.used_registers().iter().filter(|r| written(r.access()));
    let lost = registers.filter_map(|r| number(r.register())).fold(0, |set, r| set | 1 << r);
    let mut memory = info.used_memory().iter().filter(|m| written(m.access()));
    let op = memory.next().and_then(|m| {
        let (base, at) = place(i)?;
        // Of some instructions the size is unknown.
        let size = match m.memory_size().size() {
            0 => 8,
            size => u16::try_from(size).ok()?,
        };
        Some(RegisterOp::Store { from: None, base, at, size })
    });
    Effect { lost, op: op.unwrap_or(RegisterOp::Nothing) }
}

/// Control flow after an instruction.
pub fn next(i: &Instruction) -> Successor {
    match (i.mnemonic(), i.flow_control()) {
        (Mnemonic::Syscall, _) => Successor::Fall,
        (Mnemonic::Hlt | Mnemonic::Int3, _) => Successor::Stop,
        (_, FlowControl::Next | FlowControl::Interrupt) => Successor::Fall,
        (_, FlowControl::UnconditionalBranch) => Successor::Jump(i.near_branch_target()),
        (_, FlowControl::ConditionalBranch) => Successor::Branch(i.near_branch_target()),
        (Mnemonic::Xbegin, _) => Successor::Branch(i.near_branch_target()),
        (_, FlowControl::XbeginXabortXend) => Successor::Fall,
        // A call of the next instruction only pushes its address.
        (_, FlowControl::Call | FlowControl::IndirectCall) => Successor::Call,
        (Mnemonic::Ret, FlowControl::Return) => Successor::Return,
        (_, FlowControl::IndirectBranch) if i.is_ip_rel_memory_operand() => Successor::Tail,
        (_, FlowControl::IndirectBranch) => Successor::Open,
        _ => Successor::Stop,
    }
}
