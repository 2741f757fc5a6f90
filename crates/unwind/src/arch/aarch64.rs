//! AArch64: DWARF for the Arm 64-bit Architecture (AADWARF64), its procedure call standard
//! (AAPCS64), and the kernel's `arch/arm64`.
//!
//! Registers have DWARF's numbers: x0 to x30, sp, pc. Frames that no call frame information
//! describes are not derived from instructions.

use gimli::{RegisterRule, Vendor};

use crate::cfi::{KnownRegisters, Return, Rule, Saved};
use crate::code::{AtReturn, Between, CallTarget, File, Leads, Proof, Text};
use crate::managed::{LeftAdapter, ManagedBytes};
use crate::module::Step;
use crate::{AddressKind, CodeAddress};
use sys::arch::DWARF_ORDER;
use sys::record::Regs;

/// Number of registers that are restored.
pub const COLUMNS: usize = 33;

/// The frame pointer: x29.
pub const BP: u8 = 29;
/// The stack pointer.
pub const SP: u8 = 31;
/// The instruction pointer.
pub const IP: u8 = 32;
/// The column of the return address: x30, the link register.
pub const RA: u8 = 30;

/// The register of a call's result: x0.
pub const RESULT: u8 = 0;

/// Registers in which a handler receives its exception: x0 and x1.
pub const EXCEPTION: [u8; 2] = [0, 1];

/// Extensions of call frame information: `DW_CFA_AARCH64_negate_ra_state`.
pub const VENDOR: Vendor = Vendor::AArch64;

/// Bytes below the stack pointer that functions may use: none (AAPCS64, 6.4.5.1).
pub const RED_ZONE: u64 = 0;

/// Distance of the canonical frame address from the stack pointer at a function's beginning: a call
/// does not change the stack.
pub const ENTRY_CFA: i32 = 0;

/// Location of a return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnAddress {
    /// In the link register.
    Register,
    /// In memory, at this offset in bytes from the canonical frame address.
    FromCfa(i32),
}

impl ReturnAddress {
    /// Its address, by the canonical frame address; `None` if it is in a register.
    #[inline]
    pub fn slot(self, cfa: u64) -> Option<u64> {
        match self {
            ReturnAddress::Register => None,
            ReturnAddress::FromCfa(at) => Some(cfa.wrapping_add_signed(at.into())),
        }
    }
}

/// The return address as the rule of its column describes it; `None` if another way than the usual
/// ones.
pub fn return_address(rule: Option<RegisterRule<usize>>) -> Option<Return<ReturnAddress>> {
    match rule {
        Some(RegisterRule::Undefined) => Some(Return::Outermost),
        None | Some(RegisterRule::SameValue) => Some(Return::At(ReturnAddress::Register)),
        Some(RegisterRule::Offset(at)) => {
            Some(Return::At(ReturnAddress::FromCfa(at.try_into().ok()?)))
        }
        Some(_) => None,
    }
}

/// The address of the code that a saved return address leads to: without the signature that
/// `paciasp` inserts into bits 48 to 54, and the tag above, with addresses of 48 bits. Bit 55 is 0
/// in addresses of programs.
#[inline]
pub fn code_address(word: u64) -> u64 {
    word & ((1 << 48) - 1)
}

/// Location of the return address that a return with this stack pointer has removed: not known, as
/// the frame record is at the lower end of the frame.
pub fn removed_slot(_sp: u64) -> Option<u64> {
    None
}

/// True if a function with this rule has a frame pointer: to a frame record of the caller's frame
/// pointer and the return address (AAPCS64, 6.4.6).
pub fn has_pointer(rule: Rule) -> bool {
    let Rule::Offset { register: BP, cfa, bp: Saved::FromCfa(at), ra } = rule else { return false };
    at.checked_add(cfa) == Some(0)
        && ra.slot(0) == ReturnAddress::FromCfa(at.wrapping_add(8)).slot(0)
}

/// The caller's stack pointer in a function with this frame pointer: not known, as a frame record
/// may be anywhere in its frame.
pub fn caller_sp(_bp: u64) -> Option<u64> {
    None
}

/// `mov x8, #139; svc #0`: the return address of signal handlers (`rt_sigreturn`).
pub const SIGRETURN: &[u8] = &[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4];

/// Beginnings of the names of files that contain [`SIGRETURN`]: glibc leaves it to the kernel.
pub const SIGRETURN_FILES: &[&str] = &["[vdso]", "ld-musl"];

/// Registers in a `struct ucontext` (`asm/ucontext.h`, `asm/sigcontext.h`): x0 to x30, sp, pc.
pub const SIGNAL_REGISTERS: [u8; 33] = {
    let mut registers = [0; 33];
    let mut i = 0;
    while i < registers.len() {
        registers[i] = i as u8;
        i += 1;
    }
    registers
};
/// Offset of the first one from the stack pointer at [`SIGRETURN`]: behind `siginfo` (128 bytes),
/// 176 bytes of `ucontext`, and the fault's address.
pub const SIGNAL_FIRST: u64 = 128 + 176 + 8;
/// Offset of the frame pointer.
pub const SIGNAL_BP: u64 = SIGNAL_FIRST + 29 * 8;
/// Offset of the stack pointer.
pub const SIGNAL_SP: u64 = SIGNAL_FIRST + 31 * 8;
/// Offset of the instruction pointer.
pub const SIGNAL_IP: u64 = SIGNAL_FIRST + 32 * 8;

/// `mov x8, #93; svc #0`: the call `exit`.
pub const EXIT: &[u8] = &[0xa8, 0x0b, 0x80, 0xd2, 0x01, 0, 0, 0xd4];

/// Most bytes before an address that [`go_rule`] reads.
pub const GO_BEFORE: usize = 0;
/// Most bytes from an address on that it reads.
pub const GO_AFTER: usize = 0;

/// The rule of the code at an address in a Go file. Not yet: neither roots of stacks nor switches
/// between them are recognized, and Go's unwind information covers neither, so none is used.
pub fn go_rule(_address: u64, _before: &[u8], _after: &[u8]) -> Option<Rule> {
    Some(Rule::Uncovered)
}

/// True if [`go_rule`] may differ from the unwind information somewhere in this code: it does.
pub fn may_have_go_rules(_code: &[u8]) -> bool {
    true
}

/// The function that the entry point of a Go program jumps to. Not yet, as for [`go_rule`].
pub fn go_start<'a>(_entry: u64, _code: impl Fn(u64) -> Option<&'a [u8]>) -> Option<u64> {
    None
}

/// True if code with this rule switches to another segment of the stack: compilers have no such
/// stacks here.
pub fn switches_segment(_rule: Rule) -> bool {
    false
}

/// Longest call instruction, in bytes.
pub const LONGEST_CALL: u64 = INSTRUCTION;

/// True if the bytes before an address may be a call instruction.
pub fn is_after_call(before: &[u8], address: u64) -> bool {
    call_before(before, address).is_some()
}

/// The rule of Go's code with a frame of this many bytes. Not yet, as for [`go_rule`].
pub fn go_frame(_size: i32) -> Option<Rule> {
    None
}

/// Bytes of an instruction.
const INSTRUCTION: u64 = 4;

/// The call instruction just before a return address.
fn call_before(before: &[u8], address: u64) -> Option<CallTarget> {
    /// `bl` without its distance; `blr` without its register.
    const CALL: u32 = 0x9400_0000;
    const CALL_REGISTER: u32 = 0xd63f_0000;
    let instruction = u32::from_le_bytes(*before.last_chunk()?);
    if instruction & 0xfc00_0000 == CALL {
        // A signed number of 26 bits, in instructions.
        let words = i64::from((instruction << 6) as i32 >> 6);
        let at = address.wrapping_sub(INSTRUCTION);
        return Some(CallTarget::Direct(at.wrapping_add_signed(words * INSTRUCTION as i64)));
    }
    // `blraa` and similar ones check a signature.
    let is_call = instruction & 0xffff_fc1f == CALL_REGISTER
        || instruction & 0xfeff_f800 == CALL_REGISTER | 0x800;
    is_call.then_some(CallTarget::Indirect)
}

/// Passes on the targets of direct calls in code at an address, in about the first `most` bytes, and
/// returns the number of bytes that it read. Not yet: addresses that are taken.
pub fn each_reference(
    bytes: &[u8],
    address: u64,
    most: usize,
    mut found: impl FnMut(u64),
) -> usize {
    let read = bytes.len().min(most.next_multiple_of(INSTRUCTION as usize));
    let instructions = bytes[..read].as_chunks::<4>().0;
    for (next, instruction) in (1..).zip(instructions) {
        let next = address.wrapping_add(next * INSTRUCTION);
        if let Some(CallTarget::Direct(target)) = call_before(instruction, next)
            && target != next
        {
            found(target);
        }
    }
    read
}

/// Frame of code without unwind information: there is none yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeFrame {}

impl CodeFrame {
    /// Its certainty; `None` if it has no caller.
    pub fn proof(&self) -> Option<Proof> {
        match *self {}
    }

    /// True if its caller is found by the frame pointer.
    pub fn needs_pointer(&self) -> bool {
        match *self {}
    }

    /// True if the function keeps a frame pointer, and has set it up.
    pub fn has_pointer(&self) -> bool {
        match *self {}
    }

    /// One step up. `registers` become the caller's as far as those can be determined; those in
    /// memory only if they are `wanted`.
    pub fn step(
        &self,
        _registers: &mut KnownRegisters,
        _wanted: impl Fn(u8) -> bool,
        _read: &mut dyn FnMut(u64) -> Result<u64, ()>,
    ) -> Step {
        match *self {}
    }
}

/// Location of a saved stack pointer: there is none yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {}

impl Moved {
    /// Address and value of the word.
    pub fn word(&self, _sp: u64, _read: impl FnOnce(u64) -> Result<u64, ()>) -> Option<(u64, u64)> {
        match *self {}
    }
}

/// The rule of the code at an instruction or return address, if it goes straight to a return and
/// finds its return address by the stack pointer alone: not yet.
pub fn straight_rule(_code: &[u8], _kind: AddressKind) -> Option<Rule> {
    None
}

/// The rule of code that a run-time system describes: not yet.
pub fn managed_rule(_code: &ManagedBytes, _at: u64, _kind: AddressKind) -> Option<Rule> {
    None
}

/// The caller of an adapter: not yet.
pub fn leave_adapter(
    _code: &ManagedBytes,
    _at: u64,
    _registers: &[u64; DWARF_ORDER.len()],
) -> Option<LeftAdapter> {
    None
}

/// The rule of such code with a frame pointer: not yet.
pub fn linked_frame() -> Option<Rule> {
    None
}

/// The rule of a frame of this many bytes of such code: not yet.
pub fn sized_frame(_size: u32) -> Option<Rule> {
    None
}

/// Cached results about code without unwind information.
#[derive(Default)]
pub struct CodeCache {}

impl CodeCache {
    /// Result of [`CodeCache::frame`], which reads nothing.
    pub fn known_frame(&mut self, _image: u32, _at: CodeAddress) -> Option<Option<CodeFrame>> {
        Some(None)
    }

    /// Result of [`CodeCache::moved`], which reads nothing.
    pub fn known_moved(&mut self, _image: u32, _address: u64) -> Option<Option<Moved>> {
        Some(None)
    }

    /// Result of [`CodeCache::pointer`], which reads nothing.
    pub fn known_pointer(&mut self, _image: u32, _at: CodeAddress) -> Option<Option<u32>> {
        Some(None)
    }

    /// Result of [`CodeCache::between`], which reads nothing.
    pub fn known_between(&mut self, _image: u32, _between: Between) -> Option<Option<u64>> {
        Some(None)
    }

    /// Cached result of [`CodeCache::leads`]: there is none.
    pub fn known_leads(&mut self, _image: u32, _address: u64, _to: Option<u64>) -> Option<Leads> {
        None
    }

    /// True if an image with code of this size may be read and analysed: nothing takes long.
    pub fn allows(&mut self, _image: u32, _size: u64) -> bool {
        true
    }

    /// Drops all results: there are none.
    pub fn clear(&mut self) {}

    /// Counts the search for the functions of a file.
    pub fn count_functions(&mut self, _file: File<'_>) {}

    /// Images whose analysis was refused because it took too long: none.
    pub fn over_budget(&self) -> impl Iterator<Item = u32> {
        std::iter::empty()
    }

    /// A cache without a budget.
    #[cfg(feature = "testing")]
    pub fn unlimited() -> CodeCache {
        CodeCache::default()
    }

    /// Number of steps that all analyses took, and size of all cached functions in bytes: none.
    #[cfg(feature = "testing")]
    pub fn cost(&self) -> (u64, usize) {
        (0, 0)
    }

    /// Frame of the code at an address, or of the call before it: not yet.
    pub fn frame(&mut self, _file: File<'_>, _at: CodeAddress) -> Option<CodeFrame> {
        None
    }

    /// Where the code of a named function leaves it, executed from an address on: not yet.
    pub fn leave(
        &mut self,
        _file: File<'_>,
        _address: u64,
        _registers: [u64; DWARF_ORDER.len()],
        _read: &dyn Fn(u64) -> Result<u64, ()>,
    ) -> Option<AtReturn> {
        None
    }

    /// True if [`CodeCache::leave`] finds nothing at this address.
    pub fn never_leaves(&mut self, _image: u32, _address: u64) -> bool {
        true
    }

    /// Location of the saved stack pointer of a function that begins at `start` and moves its stack
    /// pointer: not yet.
    pub fn moved(&mut self, _file: File<'_>, _start: u64, _address: u64) -> Option<Moved> {
        None
    }

    /// Distance in bytes from the stack pointer up to the frame pointer: not yet.
    pub fn pointer(&mut self, _file: File<'_>, _start: u64, _at: CodeAddress) -> Option<u32> {
        None
    }

    /// Return address of the call that frame pointers skip: not yet.
    pub fn between(
        &mut self,
        _file: File<'_>,
        _between: Between,
        _are_one: impl Fn(u64, u64) -> bool,
    ) -> Option<u64> {
        None
    }

    /// Result of following the call that returns to `address` of a file to the function that
    /// contains `to`; `to` is `None` if that is in another image. `are_one` returns true if two
    /// addresses are in one function. Jumps on are not followed.
    pub fn leads(
        &mut self,
        file: File<'_>,
        address: u64,
        to: Option<u64>,
        are_one: impl Fn(u64, u64) -> bool,
    ) -> Leads {
        let before = file.text.before(address, INSTRUCTION);
        let in_one_function =
            |a: u64, b: u64| a == b || are_one(a, b) || file.functions.are_one(a, b);
        match before.and_then(|bytes| call_before(bytes, address)) {
            None => Leads::Elsewhere,
            Some(CallTarget::Direct(target))
                if to.is_some_and(|to| in_one_function(target, to)) =>
            {
                Leads::There
            }
            Some(_) => Leads::Somewhere,
        }
    }
}

/// True if a function that may return to a handler will do so from this address on: always, as long
/// as its code is not analysed.
pub fn delivers(_text: Text<'_>, _address: u64) -> bool {
    true
}

/// Locations of such a function's state: there are none yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryContexts {}

impl DeliveryContexts {
    /// One step up while the registers of a frame with a frame pointer are being replaced.
    pub fn step(self, _regs: &mut Regs, _read: &mut impl FnMut(u64) -> Result<u64, ()>) -> Step {
        match self {}
    }
}

/// Arguments of the call before `next`, which replaces the registers, in the function that begins
/// at `start`: not yet.
pub fn contexts(_text: Text<'_>, _start: u64, _next: u64) -> Option<DeliveryContexts> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_instructions_are_recognized_by_their_bits() {
        let of = |code: u32| call_before(&code.to_le_bytes(), 0x1004);
        assert_eq!(of(0x9400_0002), Some(CallTarget::Direct(0x1008)));
        assert_eq!(of(0x97ff_ffff), Some(CallTarget::Direct(0xffc)));
        // blr x5; blr x30; blraa x1, x2; blraaz x3; blrab x4, sp; blrabz x7
        for code in [0xd63f_00a0, 0xd63f_03c0, 0xd73f_0822, 0xd63f_087f, 0xd73f_0c9f, 0xd63f_0cff] {
            assert_eq!(of(code), Some(CallTarget::Indirect), "{code:x}");
        }
        // b; br x5; braa x1, x2; ret; retaa; nop
        for code in [0x1400_0002, 0xd61f_00a0, 0xd71f_0822, 0xd65f_03c0, 0xd65f_0bff, 0xd503_201f] {
            assert_eq!(of(code), None, "{code:x}");
        }
        assert_eq!(call_before(&[0, 0, 0x94], 0x1004), None);
    }

    #[test]
    fn targets_of_calls_are_references() {
        let code = [0x9400_0004_u32, 0x9400_0001, 0xd503_201f, 0x97ff_fffe];
        let bytes: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut found = Vec::new();
        assert_eq!(each_reference(&bytes, 0x1000, 100, |target| found.push(target)), 16);
        assert_eq!(found, [0x1010, 0x1004]);
        assert_eq!(each_reference(&bytes, 0x1000, 7, |_| {}), 8);
    }

    #[test]
    fn a_return_address_is_in_memory_or_in_its_register() {
        let of = |rule| return_address(rule);
        assert_eq!(of(None), Some(Return::At(ReturnAddress::Register)));
        assert_eq!(of(Some(RegisterRule::Undefined)), Some(Return::Outermost));
        let saved = ReturnAddress::FromCfa(-24);
        assert_eq!(of(Some(RegisterRule::Offset(-24))), Some(Return::At(saved)));
        assert_eq!(of(Some(RegisterRule::ValOffset(8))), None);
        assert_eq!((saved.slot(0x1000), ReturnAddress::Register.slot(0x1000)), (Some(0xfe8), None));
        assert_eq!(code_address(0x003a_aaaa_bbbb_cccc), 0xaaaa_bbbb_cccc);
    }

    #[test]
    fn signal_frames_have_all_registers() {
        let offset = |register: u8| SIGNAL_FIRST + 8 * u64::from(register);
        assert_eq!((offset(BP), offset(SP), offset(IP)), (SIGNAL_BP, SIGNAL_SP, SIGNAL_IP));
        assert_eq!(SIGNAL_REGISTERS[usize::from(IP)], IP);
    }
}
