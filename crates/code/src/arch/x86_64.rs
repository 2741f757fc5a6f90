//! x86-64, in the syntax of perf and objdump (AT&T).

use iced_x86::{
    DecoderOptions, FlowControl, Formatter, GasFormatter, Instruction, InstructionInfoFactory,
    Mnemonic, OpAccess, OpKind, Register,
};

use super::{Decoded, Flow, Latency};

/// First address that programs use; lower displacements are scaled offsets.
const FIRST_ADDRESS: u64 = 0x10000;

/// A decoder of instructions.
pub struct Decoder {
    formatter: GasFormatter,
    info: InstructionInfoFactory,
}

impl Decoder {
    /// A decoder.
    pub fn new() -> Decoder {
        let mut formatter = GasFormatter::new();
        let options = formatter.options_mut();
        options.set_space_after_operand_separator(true);
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_uppercase_hex(false);
        options.set_small_hex_numbers_in_decimal(false);
        options.set_branch_leading_zeros(false);
        options.set_rip_relative_addresses(true);
        options.set_first_operand_char_index(7);
        Decoder { formatter, info: InstructionInfoFactory::new() }
    }

    /// The instruction at the start of `code`, which is not empty, at `address`.
    pub fn decode(&mut self, code: &[u8], address: u64) -> Decoded {
        let mut decoder = iced_x86::Decoder::with_ip(64, code, address, DecoderOptions::NONE);
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Decoded::bad(1);
        }
        let mut text = String::new();
        self.formatter.format(&instruction, &mut text);
        let (flow, direct) = flow(&instruction);
        Decoded {
            length: instruction.len(),
            text: Some(text),
            flow,
            target: direct.then(|| instruction.near_branch_target()),
            reference: reference(&instruction),
            latency: self.latency(&instruction),
        }
    }

    fn latency(&mut self, instruction: &Instruction) -> Latency {
        let reads = |access| {
            matches!(
                access,
                OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        };
        // The top of the stack is in the cache.
        let loads = !instruction.is_stack_instruction()
            && self.info.info(instruction).used_memory().iter().any(|m| reads(m.access()));
        if loads || instruction.has_lock_prefix() || waits(instruction.mnemonic()) {
            return Latency::Many;
        }
        arithmetic_latency(instruction)
    }
}

/// The continuation, and whether its target is stated.
fn flow(instruction: &Instruction) -> (Flow, bool) {
    match instruction.flow_control() {
        FlowControl::UnconditionalBranch => (Flow::Jump, true),
        FlowControl::IndirectBranch => (Flow::Jump, false),
        FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
            (Flow::Branch, instruction.near_branch_target() != 0)
        }
        FlowControl::Call => (Flow::Call, instruction.near_branch_target() != 0),
        FlowControl::IndirectCall => (Flow::Call, false),
        FlowControl::Return | FlowControl::Exception | FlowControl::Interrupt => (Flow::End, false),
        FlowControl::Next => (Flow::Next, false),
    }
}

/// The address of a memory operand, if it does not depend on a register.
fn reference(instruction: &Instruction) -> Option<u64> {
    if instruction.is_ip_rel_memory_operand() {
        return Some(instruction.ip_rel_memory_address());
    }
    let has_memory = instruction.op_kinds().any(|kind| kind == OpKind::Memory);
    let local = instruction.segment_prefix() == Register::None;
    let fixed = instruction.memory_base() == Register::None;
    // With an index, it is the first element of an array in a program with fixed addresses.
    let address = instruction.memory_displacement64();
    (has_memory && local && fixed && address >= FIRST_ADDRESS).then_some(address)
}

/// Instructions that wait for others.
fn waits(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{Cpuid, Lfence, Mfence, Pause, Rdtsc, Rdtscp};
    matches!(mnemonic, Cpuid | Lfence | Mfence | Pause | Rdtsc | Rdtscp)
}

/// The beginnings of the names of vector instructions that take several cycles, without the `v` of
/// AVX: arithmetic with floating-point numbers, and multiplications and horizontal sums of integers.
const VECTOR_ARITHMETIC: [&str; 26] = [
    "add", "sub", "mul", "fmadd", "fmsub", "fnmadd", "fnmsub", "hadd", "hsub", "dp", "min", "max",
    "cmp", "comi", "ucomi", "cvt", "round", "rndscale", "rcp", "rsqrt", "pmul", "pmadd", "phadd",
    "phsub", "psadbw", "pclmul",
];

/// The same of x87 instructions, without the `f`.
const X87_ARITHMETIC: [&str; 5] = ["add", "sub", "mul", "com", "ucom"];

/// The latency of an instruction that neither loads nor waits: it follows from its registers and
/// its name.
fn arithmetic_latency(instruction: &Instruction) -> Latency {
    let name = format!("{:?}", instruction.mnemonic()).to_ascii_lowercase();
    let mut operands = 0..instruction.op_count();
    let uses_vectors = operands.any(|i| instruction.op_register(i).is_vector_register());
    let (stem, arithmetic) = if uses_vectors {
        (name.strip_prefix('v').unwrap_or(&name), VECTOR_ARITHMETIC.as_slice())
    } else if let Some(stem) = name.strip_prefix('f') {
        (stem, X87_ARITHMETIC.as_slice())
    } else {
        return match instruction.mnemonic() {
            Mnemonic::Div | Mnemonic::Idiv => Latency::Many,
            Mnemonic::Mul | Mnemonic::Imul | Mnemonic::Mulx => Latency::Several,
            _ => Latency::Short,
        };
    };
    let is = |names: &[&str]| names.iter().any(|name| stem.starts_with(name));
    if is(&["div", "sqrt"]) {
        Latency::Many
    } else if is(arithmetic) {
        Latency::Several
    } else {
        Latency::Short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(code: &[u8]) -> Decoded {
        Decoder::new().decode(code, 0x1000)
    }

    #[test]
    fn instructions_have_the_text_of_objdump() {
        let cases: [(&[u8], &str); 5] = [
            (&[0x55], "push   %rbp"),
            (&[0x48, 0x89, 0xe5], "mov    %rsp, %rbp"),
            (&[0x48, 0x8b, 0x05, 0x10, 0, 0, 0], "mov    0x10(%rip), %rax"),
            (&[0xe8, 0xfb, 0x0f, 0, 0], "call   0x2000"),
            (&[0xf3, 0x0f, 0x1e, 0xfa], "endbr64"),
        ];
        for (code, text) in cases {
            let found = decoded(code);
            assert_eq!(found.text.as_deref(), Some(text));
            assert_eq!(found.length, code.len());
        }
        assert_eq!(decoded(&[0x06]), Decoded::bad(1));
        assert_eq!(decoded(&[0xe8, 0xfb]), Decoded::bad(1));
    }

    #[test]
    fn jumps_calls_and_references_are_known() {
        let flow = |code: &[u8]| (decoded(code).flow, decoded(code).target);
        assert_eq!(flow(&[0x75, 0xfe]), (Flow::Branch, Some(0x1000)));
        assert_eq!(flow(&[0xeb, 0x10]), (Flow::Jump, Some(0x1012)));
        assert_eq!(flow(&[0xff, 0xe0]), (Flow::Jump, None));
        assert_eq!(flow(&[0xe8, 0, 0, 0, 0]), (Flow::Call, Some(0x1005)));
        assert_eq!(flow(&[0xff, 0xd0]), (Flow::Call, None));
        assert_eq!(flow(&[0xc3]), (Flow::End, None));
        // call *0x10(%rip); lea 0x10(%rip), %rdi; mov 0x404040(,%rax,8), %rax
        let reference = |code: &[u8]| decoded(code).reference;
        assert_eq!(reference(&[0xff, 0x15, 0x10, 0, 0, 0]), Some(0x1016));
        assert_eq!(reference(&[0x48, 0x8d, 0x3d, 0x10, 0, 0, 0]), Some(0x1017));
        assert_eq!(reference(&[0x48, 0x8b, 0x04, 0xc5, 0x40, 0x40, 0x40, 0]), Some(0x40_4040));
        // mov %fs:0x28, %rax; mov 0x20000(%rdi), %rax
        assert_eq!(reference(&[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0]), None);
        assert_eq!(reference(&[0x48, 0x8b, 0x87, 0, 0, 2, 0]), None);
    }

    #[test]
    fn the_latency_of_loads_and_arithmetic_is_known() {
        /// An instruction and the beginning of its text.
        type Named = (&'static [u8], &'static str);
        let cases: [(Latency, &[Named]); 3] = [
            (
                Latency::Short,
                &[
                    (&[0x58], "pop"),
                    (&[0x48, 0x89, 0x07], "mov"),
                    (&[0x48, 0x8d, 0x07], "lea"),
                    (&[0x48, 0x01, 0xc3], "add"),
                    (&[0x48, 0x39, 0xd8], "cmp"),
                    (&[0x0f, 0x28, 0xc1], "movaps"),
                    (&[0x66, 0x0f, 0xef, 0xc1], "pxor"),
                    (&[0x66, 0x0f, 0xfe, 0xc1], "paddd"),
                    (&[0x66, 0x0f, 0x76, 0xc1], "pcmpeqd"),
                    (&[0x0f, 0xc6, 0xc1, 0x00], "shufps"),
                    (&[0x62, 0xf2, 0x7d, 0x49, 0x8a, 0xc1], "vcompressps"),
                    (&[0xd9, 0xc9], "fxch"),
                ],
            ),
            (
                Latency::Several,
                &[
                    (&[0x48, 0x0f, 0xaf, 0xc1], "imul"),
                    (&[0x48, 0xf7, 0xe1], "mul"),
                    (&[0xc4, 0xe2, 0xe3, 0xf6, 0xc1], "mulx"),
                    (&[0xf2, 0x0f, 0x58, 0xc8], "addsd"),
                    (&[0xf3, 0x0f, 0x59, 0xc1], "mulss"),
                    (&[0xc5, 0xf5, 0x58, 0xc2], "vaddpd"),
                    (&[0xc4, 0xe2, 0xf1, 0xb9, 0xc2], "vfmadd231sd"),
                    (&[0x66, 0x0f, 0x38, 0x40, 0xc1], "pmulld"),
                    (&[0xf2, 0x48, 0x0f, 0x2a, 0xc0], "cvtsi2sd"),
                    (&[0xf2, 0x48, 0x0f, 0x2c, 0xc0], "cvttsd2si"),
                    (&[0x66, 0x0f, 0x2e, 0xc1], "ucomisd"),
                    (&[0xde, 0xc1], "faddp"),
                ],
            ),
            (
                Latency::Many,
                &[
                    (&[0x48, 0x8b, 0x07], "mov"),
                    (&[0xf2, 0x0f, 0x58, 0x07], "addsd"),
                    (&[0x48, 0xf7, 0xf9], "idiv"),
                    (&[0xf0, 0xff, 0x07], "lock"),
                    (&[0xf2, 0x0f, 0x5e, 0xc1], "divsd"),
                    (&[0xc5, 0xf5, 0x5e, 0xc2], "vdivpd"),
                    (&[0xf2, 0x0f, 0x51, 0xc1], "sqrtsd"),
                    (&[0xd9, 0xfa], "fsqrt"),
                    (&[0xf3, 0x90], "pause"),
                ],
            ),
        ];
        for (latency, instructions) in cases {
            for &(code, name) in instructions {
                let found = decoded(code);
                let text = found.text.unwrap();
                assert!(text.starts_with(name), "{name}: {text}");
                assert_eq!(found.latency, latency, "{text}");
            }
        }
    }
}
