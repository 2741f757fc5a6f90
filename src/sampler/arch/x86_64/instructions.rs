//! Boundaries of instructions, and the instructions that the kernel emulates at a probe.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};

use crate::sampler::probes::At;

/// The instruction `into` bytes behind the start of this code.
pub fn instruction_at(code: &[u8], into: u64) -> At {
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return At::Unknown;
        }
        if instruction.ip() == into {
            return if is_emulated(&instruction) { At::Emulated } else { At::Stepped };
        }
        if instruction.next_ip() > into {
            return At::Middle;
        }
    }
    At::Unknown
}

/// According to `branch_setup_xol_ops` and `push_setup_xol_ops` in arch/x86/kernel/uprobes.c: a
/// push of a register, relative calls and jumps, and `nop` (older kernels: its short form only).
fn is_emulated(instruction: &Instruction) -> bool {
    let relative = instruction.op0_kind() == OpKind::NearBranch64;
    match (instruction.code(), instruction.mnemonic()) {
        (Code::Push_r64, _) | (_, Mnemonic::Nop) => true,
        (_, Mnemonic::Loop | Mnemonic::Loope | Mnemonic::Loopne) => false,
        (_, Mnemonic::Jcxz | Mnemonic::Jecxz | Mnemonic::Jrcxz | Mnemonic::Xbegin) => false,
        _ => relative,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::probes::instructions::entry;

    #[test]
    fn what_the_kernel_emulates() {
        let cases: [(&[u8], At); 11] = [
            (&[0x55], At::Emulated),                   // push rbp
            (&[0x41, 0x57], At::Emulated),             // push r15
            (&[0x90], At::Emulated),                   // nop
            (&[0x0f, 0x1f, 0x44, 0, 0], At::Emulated), // nop of five bytes
            (&[0xf3, 0x0f, 0x1e, 0xfa], At::Stepped),  // endbr64
            (&[0xeb, 0x10], At::Emulated),             // jmp
            (&[0x0f, 0x84, 1, 0, 0, 0], At::Emulated), // je
            (&[0xe8, 1, 0, 0, 0], At::Emulated),       // call
            (&[0x48, 0x83, 0xec, 0x18], At::Stepped),  // sub rsp, 24
            (&[0xff, 0xe0], At::Stepped),              // jmp rax
            (&[0x06], At::Unknown),                    // none in 64-bit mode
        ];
        for (code, is) in cases {
            assert_eq!(instruction_at(code, 0), is, "{code:x?}");
        }
    }

    #[test]
    fn a_probe_stands_behind_what_marks_the_entry() {
        let dir = tempfile::tempdir().unwrap();
        let entry_of = |code: &[u8]| {
            let file = dir.path().join("code");
            std::fs::write(&file, code).unwrap();
            entry(&file, 1)
        };
        assert_eq!(entry_of(&[0xc3, 0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0xc3]), 4);
        assert_eq!(entry_of(&[0xc3, 0xf3, 0x0f, 0x1e, 0xfa, 0xc3, 0xc3]), 0);
        assert_eq!(entry_of(&[0xc3, 0x55, 0xc3]), 0);
        assert_eq!(entry_of(&[]), 0);
    }

    #[test]
    fn offsets_have_to_be_at_an_instruction() {
        // push rbp; mov rbp, rsp; push r15; ret
        let code = [0x55, 0x48, 0x89, 0xe5, 0x41, 0x57, 0xc3];
        let at: Vec<At> = (0..8).map(|into| instruction_at(&code, into)).collect();
        use At::*;
        assert_eq!(at, [Emulated, Stepped, Middle, Middle, Emulated, Middle, Stepped, Unknown]);
    }
}
