//! Tests on synthetic code, and libgcc's own.

use gimli::{BaseAddresses, UnwindContext};

use super::*;
use crate::cfi::UnwindTables;
use sys::elf::{Elf, Segment};

const BASE: u64 = 0x1000;

fn delivers_at(code: &[u8], at: u64) -> bool {
    let segments = [Segment { address: BASE, offset: 0, size: code.len() as u64 }];
    delivers(Text { segments: &segments, bytes: code }, BASE + at)
}

/// je 1f; call; 0: dec rax; jne 0b; mov rsp,rcx; pop rcx; jmp *rcx; 1: ret
#[test]
fn all_paths_have_to_lead_to_the_handler() {
    let code = [
        0x74, 0x10, 0xe8, 0, 0, 0, 0, 0x48, 0xff, 0xc8, 0x75, 0xfb, 0x48, 0x89, 0xcc, 0x59, 0xff,
        0xe1, 0xc3,
    ];
    assert!(!delivers_at(&code, 0), "it may return");
    for at in [2, 7, 10, 12, 15, 16] {
        assert!(delivers_at(&code, at), "{at}");
    }
    assert!(!delivers_at(&code, 18), "it returns");
    assert!(!delivers_at(&code[..12], 7), "the code after it is missing");
    // lea rsp,[rsp+rcx+8]; lea rcx,[rsp+8]; ret; mov rsp,rax; ret
    let others =
        [0x48, 0x8d, 0x64, 0x0c, 8, 0x48, 0x8d, 0x4c, 0x24, 8, 0xc3, 0x48, 0x89, 0xc4, 0xc3];
    assert_eq!([0, 5, 11].map(|at| delivers_at(&others, at)), [true, false, false]);
}

/// Endless loops and endless straight code lead nowhere.
#[test]
fn endless_code_is_no_path_to_the_handler() {
    assert!(!delivers_at(&[0xeb, 0xfe], 0));
    let mut long = vec![0x90; 2 * MAX_INSTRUCTIONS];
    long.extend([0x48, 0x89, 0xcc]);
    assert!(!delivers_at(&long, 0));
    assert!(delivers_at(&long, MAX_INSTRUCTIONS as u64 + 8));
}

/// All instructions from an address on, up to the jump to the handler.
fn instructions(text: Text<'_>, from: u64) -> Vec<Instruction> {
    let bytes = text.from(from).unwrap();
    let mut all = Vec::new();
    for instruction in &mut Decoder::with_ip(64, bytes, from, DecoderOptions::NONE) {
        all.push(instruction);
        if instruction.flow_control() == FlowControl::IndirectBranch {
            break;
        }
    }
    all
}

/// Each of libgcc's functions that return to handlers calls two others when it does so: one that
/// replaces the registers, and one for debuggers. From there on the stack is truncated, and not
/// before the branch that decides on it.
#[test]
fn libgcc_s_last_steps_are_recognized() {
    const FILE: &str = "/lib/x86_64-linux-gnu/libgcc_s.so.1";
    let Ok(data) = std::fs::read(FILE) else {
        return sys::testing::skip(&format!("there is no {FILE}"));
    };
    let elf = Elf::parse(&data).unwrap();
    let text = Text { segments: &elf.segments, bytes: &data };
    let section = elf.eh_frame.as_ref().unwrap();
    let frames = data[section.range.clone()].to_vec().into();
    let bases = BaseAddresses::default().set_eh_frame(section.address);
    let tables = UnwindTables::new(bases, Some(frames), None, None);
    let mut context = UnwindContext::new();
    let code = elf.text.as_ref().unwrap();
    let mut functions = Vec::new();
    for at in code.address..code.address + code.range.len() as u64 {
        let is_kept = tables.described(&mut context, at).may_deliver;
        functions.extend(is_kept.then(|| tables.start(at)).flatten());
    }
    functions.dedup();
    let mut found = 0;
    for start in functions {
        let all = instructions(text, start);
        // Cold parts end with `abort`.
        if !all.iter().any(leaves) || tables.start(all[all.len() - 1].ip()) != Some(start) {
            continue;
        }
        found += 1;
        let is_call = |i: &Instruction| i.flow_control() == FlowControl::Call;
        let calls: Vec<_> = (0..all.len()).filter(|&i| is_call(&all[i])).collect();
        let [.., replaces, _] = calls[..] else { panic!("{start:#x}: {calls:?}") };
        let decides = |i: &Instruction| i.flow_control() == FlowControl::ConditionalBranch;
        let decided = all[..replaces].iter().rposition(decides).unwrap();
        let mut without_need = 0;
        for (i, instruction) in all.iter().enumerate() {
            let is_delivering = delivers(text, instruction.ip());
            match i {
                _ if i > replaces => assert!(is_delivering, "{:#x}", instruction.ip()),
                _ if i <= decided => assert!(!is_delivering, "{:#x}", instruction.ip()),
                _ => without_need += usize::from(is_delivering),
            }
        }
        assert!(without_need <= 3, "{start:#x}: {without_need} without need");
        // During the replacement, the caller's registers are distinguished from the handler's.
        let contexts_at = |i: usize| contexts(text, start, all[i].next_ip());
        assert!(contexts_at(replaces).is_some_and(|c| c.copy < c.bp), "{start:#x}");
        assert_eq!(contexts_at(calls[calls.len() - 1]), None, "{start:#x}");
    }
    assert_eq!(found, 4, "RaiseException, ForcedUnwind, Resume, Resume_or_Rethrow");
}
