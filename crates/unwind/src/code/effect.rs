//! What one instruction does to the general registers and to the stack.

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use crate::cfi::SP;

/// DWARF's number of `rax`.
pub const AX: u8 = 0;

/// Registers that a function may change (System V ABI): rax, rdx, rcx, rsi, rdi, r8 to r11.
pub const SCRATCH: u16 = 0b1111_0011_0111;

/// An operation on registers (by DWARF's numbers) and on words of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Nothing that is followed.
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

/// An operation, after the registers of a set (a bit for each) have got unknown values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    pub lost: u16,
    pub op: Op,
}

/// Where execution goes on after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At the next one.
    Fall,
    /// At this address.
    Jump(u64),
    /// At the next one, or at this address.
    Branch(u64),
    /// At the next one, after a function was called, if that returns.
    Call,
    /// At the address that lies on the stack.
    Return,
    /// In a function whose address lies at a fixed place (an entry of the PLT).
    Tail,
    /// Somewhere.
    Open,
    /// Nowhere.
    Stop,
}

/// DWARF's number of a general register, whatever part of it is named.
fn number(register: Register) -> Option<u8> {
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

/// What an instruction does, of what is followed.
pub fn effect(i: &Instruction, factory: &mut InstructionInfoFactory) -> Effect {
    match known(i) {
        Some(op) => Effect { lost: 0, op },
        None => other(i, factory),
    }
}

fn known(i: &Instruction) -> Option<Op> {
    let memory = |operand: u32| i.op_kind(operand) == OpKind::Memory;
    let small = |operand: u32| immediate(i, operand).and_then(|n| i32::try_from(n).ok());
    let same = || i.op_register(0) == i.op_register(1) && i.op_kind(1) == OpKind::Register;
    Some(match i.mnemonic() {
        Mnemonic::Push if i.stack_pointer_increment() == -8 => match (memory(0), place(i)) {
            (true, Some((base, at))) => Op::PushWord { base, at },
            _ => Op::Push(whole(i, 0)),
        },
        Mnemonic::Pushfq => Op::Push(None),
        Mnemonic::Popfq => Op::Add { to: SP, add: 8 },
        Mnemonic::Pop if i.stack_pointer_increment() == 8 => match whole(i, 0) {
            Some(to) => Op::Pop(to),
            None => Op::Add { to: SP, add: 8 },
        },
        Mnemonic::Mov if i.code() == Code::Mov_r64_rm64 || i.code() == Code::Mov_rm64_r64 => {
            match (whole(i, 0), whole(i, 1)) {
                (Some(to), Some(from)) => Op::Copy { to, from },
                (Some(to), None) => {
                    let (base, at) = place(i)?;
                    Op::Load { to, base, at }
                }
                (None, from) => {
                    let (base, at) = place(i)?;
                    Op::Store { from, base, at, size: 8 }
                }
            }
        }
        Mnemonic::Mov if i.op0_kind() == OpKind::Register => {
            let (to, value) = (number(i.op0_register())?, immediate(i, 1)?);
            match i.op0_register() {
                r if r.is_gpr8() && !is_high(r) => Op::SetLow { to, value: value as u8 },
                r if r.is_gpr64() || r.is_gpr32() => Op::Set { to, value: value.try_into().ok()? },
                _ => return None,
            }
        }
        Mnemonic::Lea => {
            let (base, add) = place(i)?;
            Op::Lea { to: whole(i, 0)?, base, add }
        }
        Mnemonic::Add => Op::Add { to: whole(i, 0)?, add: small(1)? },
        Mnemonic::Sub if whole(i, 0).is_some() && small(1).is_some() => {
            Op::Add { to: whole(i, 0)?, add: small(1)?.checked_neg()? }
        }
        Mnemonic::Inc => Op::Add { to: whole(i, 0)?, add: 1 },
        Mnemonic::Dec => Op::Add { to: whole(i, 0)?, add: -1 },
        Mnemonic::And if small(1)? < 0 => Op::Align { to: whole(i, 0)?, mask: small(1)? },
        Mnemonic::Xor | Mnemonic::Sub
            if same() && (i.op0_register().is_gpr32() || i.op0_register().is_gpr64()) =>
        {
            Op::Set { to: number(i.op0_register())?, value: 0 }
        }
        Mnemonic::Leave if i.code() == Code::Leaveq => Op::Leave,
        Mnemonic::Xchg => Op::Swap(whole(i, 0)?, whole(i, 1)?),
        Mnemonic::Syscall => Op::Syscall,
        _ => return None,
    })
}

fn is_high(register: Register) -> bool {
    matches!(register, Register::AH | Register::BH | Register::CH | Register::DH)
}

/// All registers that any other instruction writes to get unknown values, as does the stack.
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
        let size = u16::try_from(m.memory_size().size()).ok()?.max(8);
        Some(Op::Store { from: None, base, at, size })
    });
    Effect { lost, op: op.unwrap_or(Op::Nothing) }
}

/// Where execution goes on after an instruction.
pub fn next(i: &Instruction) -> Next {
    match (i.mnemonic(), i.flow_control()) {
        (Mnemonic::Syscall, _) => Next::Fall,
        (Mnemonic::Hlt | Mnemonic::Int3, _) => Next::Stop,
        (_, FlowControl::Next | FlowControl::Interrupt) => Next::Fall,
        (_, FlowControl::UnconditionalBranch) => Next::Jump(i.near_branch_target()),
        (_, FlowControl::ConditionalBranch) => Next::Branch(i.near_branch_target()),
        (Mnemonic::Xbegin, _) => Next::Branch(i.near_branch_target()),
        (_, FlowControl::XbeginXabortXend) => Next::Fall,
        // A call of the next instruction only pushes its address.
        (_, FlowControl::Call | FlowControl::IndirectCall) => Next::Call,
        (Mnemonic::Ret, FlowControl::Return) => Next::Return,
        (_, FlowControl::IndirectBranch) if i.is_ip_rel_memory_operand() => Next::Tail,
        (_, FlowControl::IndirectBranch) => Next::Open,
        _ => Next::Stop,
    }
}
