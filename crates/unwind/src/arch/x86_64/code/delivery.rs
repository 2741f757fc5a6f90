//! The last steps of functions that return to an exception's handler (libgcc's `_Unwind_Resume` and
//! similar ones, made with `__builtin_eh_return`): they replace the registers in their frame that
//! lead to their caller by those of the handler's frame, return address last, and their epilogue
//! restores these. From then on the unwind information describes words that belong to another
//! frame.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::code::Text;
use crate::module::Step;
use sys::record::Regs;

/// Most instructions that are followed; libgcc has fifty there, including those for shadow stacks.
const MAX_INSTRUCTIONS: usize = 256;

/// `mov %rcx, %rsp` in both encodings, and the `pop %rcx` that follows if shadow stacks are in use.
const TO_HANDLER: [&[u8]; 4] = [
    &[0x48, 0x89, 0xcc],
    &[0x48, 0x8b, 0xe1],
    &[0x48, 0x89, 0xcc, 0x59],
    &[0x48, 0x8b, 0xe1, 0x59],
];

/// True if a function that may return to a handler will do so from this address on. Its frame may
/// contain the handler's registers.
///
/// The registers are replaced by a function that it calls after the decision, so all paths from
/// there on (also that of a return address) lead to the point where the stack pointer becomes the
/// handler's. This begins some instructions too early, before the call: there the stack is
/// truncated without need.
pub fn delivers(text: Text<'_>, address: u64) -> bool {
    is_behind(text, address) || ends_at_handler(text, address)
}

/// True if the stack pointer is the handler's already. Its code comes next, but no call precedes
/// it: it may be the first of a function, and the byte before it another function's.
fn is_behind(text: Text<'_>, address: u64) -> bool {
    let before = text.before(address, 4).unwrap_or_default();
    TO_HANDLER.iter().any(|bytes| before.ends_with(bytes))
}

/// True if all paths lead to the point where the stack pointer becomes the handler's.
fn ends_at_handler(text: Text<'_>, address: u64) -> bool {
    let mut todo = vec![address];
    let mut seen = Vec::new();
    let mut reached = false;
    while let Some(at) = todo.pop() {
        if seen.contains(&at) {
            continue;
        }
        seen.push(at);
        let instruction = decode(text, at).filter(|_| seen.len() <= MAX_INSTRUCTIONS);
        let Some(instruction) = instruction else { return false };
        if leaves(&instruction) {
            reached = true;
            continue;
        }
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => {
                todo.push(instruction.next_ip());
            }
            FlowControl::UnconditionalBranch => todo.push(instruction.near_branch_target()),
            FlowControl::ConditionalBranch => {
                todo.extend([instruction.next_ip(), instruction.near_branch_target()]);
            }
            _ => return false,
        }
    }
    reached
}

/// Locations of such a function's state, as offsets from its frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryContexts {
    /// Copy of its return address from its beginning.
    pub copy: i32,
    /// Pointer to the handler's `rbp`; 0 or its own location: unchanged.
    pub bp: i32,
}

impl DeliveryContexts {
    /// One step up while the registers of a frame with a frame pointer are being replaced: the
    /// return address, which is replaced last, is compared with its copy. The caller's `rbp` is
    /// known if it differs from the handler's, or if the handler's is unchanged.
    pub fn step(self, regs: &mut Regs, read: &mut impl FnMut(u64) -> Result<u64, ()>) -> Step {
        let at = |offset: i32| regs.bp.wrapping_add_signed(offset.into());
        let copy = read(at(self.copy));
        let ip = read(at(8));
        let Ok(ip) = ip.and_then(|ip| if copy == Ok(ip) && ip != 0 { Ok(ip) } else { Err(()) })
        else {
            return Step::Delivering;
        };
        let sp = at(16);
        let (Ok(bp), Ok(handlers)) = (read(at(0)), read(at(self.bp))) else {
            return Step::Delivering;
        };
        if sp <= regs.sp {
            return Step::Delivering;
        }
        // No frame up to the handler's has saved it: it is still in this frame's location.
        let is_unchanged = handlers == 0 || handlers == regs.bp;
        let is_old = is_unchanged || read(handlers).is_ok_and(|new| new != bp);
        *regs = Regs { ip, sp, bp: if is_old { bp } else { 0 } };
        if is_old { Step::Caller(ip) } else { Step::CallerOnly(ip) }
    }
}

/// Arguments of the call before `next`, which replaces the registers, in the function that begins
/// at `start`. Its frame contains two `struct _Unwind_Context`, its own and the handler's: pointers
/// to 18 registers, the frame's address, the return address. It reads the handler's after the call,
/// which confirms this layout.
pub fn contexts(text: Text<'_>, start: u64, next: u64) -> Option<DeliveryContexts> {
    const RETURN_ADDRESS: i32 = 18 * 8 + 8;
    const BP: i32 = 6 * 8;
    const SOON: usize = 4;
    let bytes = text.from(start)?.get(..usize::try_from(next - start).ok()?)?;
    let before = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    // Pointees by register. Each is set once, at the function's beginning; returns on the way,
    // which load other values from memory, are not followed.
    let mut own = None;
    let mut target = None;
    let mut pointers = [None; 16];
    for instruction in before {
        let to = instruction.op0_register();
        let value = match instruction.mnemonic() {
            Mnemonic::Lea => in_frame(&instruction),
            Mnemonic::Mov if instruction.op1_register().is_gpr64() => {
                pointers[instruction.op1_register().number()]
            }
            Mnemonic::Mov => None,
            _ => continue,
        };
        match to {
            Register::RDI => own = value,
            Register::RSI => target = value,
            _ if value.is_some() && to.is_gpr64() => pointers[to.number()] = value,
            _ => {}
        }
    }
    let (own, target): (i32, i32) = (own?, target?);
    let after = Decoder::with_ip(64, text.from(next)?, next, DecoderOptions::NONE);
    let is_read = after.into_iter().take(SOON).any(|i| {
        let is_load = i.mnemonic() == Mnemonic::Mov && i.op0_register() == Register::RSI;
        is_load && in_frame(&i) == target.checked_add(RETURN_ADDRESS)
    });
    let copy = own.checked_add(RETURN_ADDRESS)?;
    let bp = target.checked_add(BP)?;
    is_read.then_some(DeliveryContexts { copy, bp })
}

/// Offset of an instruction's memory operand from the frame pointer.
fn in_frame(instruction: &Instruction) -> Option<i32> {
    let plain =
        instruction.memory_base() == Register::RBP && instruction.memory_index() == Register::None;
    plain.then_some(instruction.memory_displacement64() as i32)
}

fn decode(text: Text<'_>, at: u64) -> Option<Instruction> {
    let bytes = text.from(at)?;
    let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// True if the stack pointer becomes the handler's: gcc keeps the distance in `rcx`.
fn leaves(instruction: &Instruction) -> bool {
    let writes = matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Lea | Mnemonic::Add);
    let from_memory = instruction.mnemonic() == Mnemonic::Lea
        && [instruction.memory_base(), instruction.memory_index()].contains(&Register::RCX);
    let from_register =
        instruction.op1_kind() == OpKind::Register && instruction.op1_register() == Register::RCX;
    writes && instruction.op0_register() == Register::RSP && (from_register || from_memory)
}

#[cfg(test)]
mod tests;
