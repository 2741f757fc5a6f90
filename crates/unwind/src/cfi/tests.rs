//! Rules and steps of hand-written tables.

use super::*;
use crate::arch::BP;
use crate::arch::SP;
use proptest::prelude::*;

const START: u64 = 0x1000;

/// Tables of one function of 256 bytes at [`START`]: a `.eh_frame` with these instructions.
fn tables(instructions: &[u8]) -> UnwindTables {
    // CIE: version 1, no augmentation, code 1, data -8, return address 16;
    // CFA = rsp + 8, return address at CFA - 8.
    let cie = [&[1, 0, 1, 0x78, 16][..], &[0x0c, 7, 8, 0x80 | 16, 1], &[0, 0]].concat();
    let mut bytes = Vec::new();
    let mut entry = |id: u32, body: &[u8]| {
        bytes.extend((body.len() as u32 + 4).to_le_bytes());
        bytes.extend(id.to_le_bytes());
        bytes.extend(body);
    };
    entry(0, &cie);
    // Offset of the CIE, backwards from this field.
    let back = 4 + 4 + cie.len() as u32 + 4;
    let fde = [&START.to_le_bytes(), &256u64.to_le_bytes(), instructions].concat();
    entry(back, &fde);
    bytes.extend([0; 4]);
    UnwindTables::new(BaseAddresses::default(), Some(SectionBytes::from(bytes)), None, None)
}

fn rule(instructions: &[u8]) -> Rule {
    tables(instructions).rule(&mut UnwindContext::new(), START + 16)
}

#[test]
fn usual_frames_have_short_rules() {
    let plain = Rule::Offset { register: SP, cfa: 8, bp: Saved::Same, ra: ReturnAddress };
    assert_eq!(rule(&[]), plain);
    // CFA = rbp + 16, rbp at CFA - 16.
    let bp = Saved::FromCfa(-16);
    assert_eq!(
        rule(&[0x0c, 6, 16, 0x86, 2]),
        Rule::Offset { register: BP, cfa: 16, bp, ra: ReturnAddress }
    );
    // Return address undefined: the frame has no caller.
    assert_eq!(rule(&[0x07, 16]), Rule::Outermost);
    let elsewhere = tables(&[]).rule(&mut UnwindContext::new(), START + 256);
    assert_eq!(elsewhere, Rule::Uncovered);
}

/// gcc's aligned frames, and OpenSSL's.
#[test]
fn frames_that_are_described_by_a_word_in_memory_have_short_rules() {
    // CFA = *(rbp - 8); rbp at *rbp.
    let aligned = rule(&[0x0f, 3, 0x76, 0x78, 0x06, 0x10, 6, 2, 0x76, 0]);
    let bp = Saved::FromBp(0);
    assert_eq!(aligned, Rule::Deref { register: BP, at: -8, cfa: 0, bp, ra: ReturnAddress });
    // CFA = *(rsp + 40) + 8.
    let openssl = rule(&[0x0f, 5, 0x77, 40, 0x06, 0x23, 8]);
    assert_eq!(
        openssl,
        Rule::Deref { register: SP, at: 40, cfa: 8, bp: Saved::Same, ra: ReturnAddress }
    );
}

/// `vfork` keeps its return address in rdi, the PLT computes its location.
#[test]
fn other_frames_are_evaluated_with_all_registers() {
    let mut context = UnwindContext::new();
    let mut registers = KnownRegisters::NONE;
    for (register, value) in [(SP, 0x100), (5, 0x4444), (RA, START + 16)] {
        registers.set(register, value);
    }
    let mut read = |a: u64| if a == 0x108 { Ok(0x5555) } else { Err(()) };
    // DW_CFA_register: the return address is in rdi; CFA = rsp + 0.
    let vfork = tables(&[0x0c, 7, 0, 0x09, 16, 5]);
    assert_eq!(vfork.rule(&mut context, START + 16), Rule::Evaluate);
    let mut r = registers;
    let step = vfork.step(&mut context, START + 16, &mut r, &mut read);
    assert_eq!((step, r.get(SP)), (Step::Caller(0x4444), Some(0x100)));
    // CFA = rsp + 8 + ((rip & 15) >= 0) * 8.
    let plt = [0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x30, 0x2a, 0x33, 0x24, 0x22];
    let plt = tables(&plt);
    let mut r = registers;
    let step = plt.step(&mut context, START + 16, &mut r, &mut read);
    assert_eq!((step, r.get(SP)), (Step::Caller(0x5555), Some(0x110)));
    // CFA = rbx + 8, which is unknown here.
    let other = tables(&[0x0c, 3, 8]);
    let mut r = registers;
    let step = other.step(&mut context, START + 16, &mut r, &mut read);
    assert_eq!(step, Step::NeedsRegisters);
}

#[test]
fn registers_that_an_epilogue_has_popped_keep_their_values() {
    let mut registers = KnownRegisters::NONE;
    const RBX: u8 = 3;
    for (register, value) in [(SP, 0x100), (RBX, 42), (RA, START + 16)] {
        registers.set(register, value);
    }
    // CFA = rsp + 32, and rbx at CFA - 40: just below the stack pointer, where nothing is copied.
    let popped = tables(&[0x0c, 7, 32, 0x80 | RBX, 5]);
    let mut read = |a: u64| if a == 0x118 { Ok(0x5555) } else { Err(()) };
    let mut context = UnwindContext::new();
    let step = popped.step(&mut context, START + 16, &mut registers, &mut read);
    assert_eq!((step, registers.get(RBX)), (Step::Caller(0x5555), Some(42)));
    assert_eq!(registers.get(SP), Some(0x120));
}

proptest! {
    #[test]
    fn any_instructions_are_read_without_panic(
        instructions in proptest::collection::vec(any::<u8>(), 0..40),
        values in proptest::array::uniform16(any::<u64>()),
    ) {
        let tables = tables(&instructions);
        let mut context = UnwindContext::new();
        let _ = tables.rule(&mut context, START + 16);
        let mut registers = KnownRegisters::NONE;
        (0..).zip(values).for_each(|(number, value)| registers.set(number, value));
        let mut read = |a: u64| if a.is_multiple_of(3) { Err(()) } else { Ok(a.rotate_left(7)) };
        let _ = tables.step(&mut context, START + 16, &mut registers, &mut read);
    }
}

mod bounds;
mod copies;
mod functions;
