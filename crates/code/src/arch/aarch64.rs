//! AArch64, in the syntax of the Arm Architecture Reference Manual.

use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction, Operand};

use super::{Decoded, Flow};

/// Bytes of each instruction.
const LENGTH: usize = 4;

/// A decoder of instructions.
pub struct Decoder {
    decoder: InstDecoder,
}

impl Decoder {
    /// A decoder.
    pub fn new() -> Decoder {
        Decoder { decoder: InstDecoder::default() }
    }

    /// The instruction at the start of `code`, which is not empty, at `address`.
    pub fn decode(&mut self, code: &[u8], address: u64) -> Decoded {
        let Some(word) = code.first_chunk::<LENGTH>() else { return Decoded::bad(code.len()) };
        let Ok(instruction) = self.decoder.decode(&mut U8Reader::new(word)) else {
            return Decoded::bad(LENGTH);
        };
        let written = instruction.to_string();
        let (mnemonic, operands) = written.split_once(' ').unwrap_or((&written, ""));
        let target = target(&instruction, mnemonic, address);
        let operands = match (target, operands.find('$')) {
            (Some(target), Some(at)) => format!("{}{target:#x}", &operands[..at]),
            _ => operands.to_owned(),
        };
        let text = format!("{mnemonic:<6} {operands}").trim_end().to_owned();
        let flow = flow(mnemonic);
        let target = target.filter(|_| flow != Flow::Next);
        Decoded { length: LENGTH, text: Some(text), flow, target, slow: is_slow(mnemonic) }
    }
}

/// The address that a relative operand denotes.
fn target(instruction: &Instruction, mnemonic: &str, address: u64) -> Option<u64> {
    let base = if mnemonic == "adrp" { address & !0xfff } else { address };
    instruction.operands.iter().find_map(|operand| match operand {
        Operand::PCOffset(offset) => Some(base.wrapping_add_signed(*offset)),
        _ => None,
    })
}

/// The continuation after an instruction with this name.
fn flow(mnemonic: &str) -> Flow {
    match mnemonic {
        "b" | "br" | "braa" | "brab" | "braaz" | "brabz" => Flow::Jump,
        "bl" | "blr" | "blraa" | "blrab" | "blraaz" | "blrabz" => Flow::Call,
        "cbz" | "cbnz" | "tbz" | "tbnz" => Flow::Branch,
        "ret" | "retaa" | "retab" | "eret" | "udf" | "brk" | "hlt" => Flow::End,
        _ if mnemonic.starts_with("b.") => Flow::Branch,
        _ => Flow::Next,
    }
}

/// Loads, atomic operations, divisions, roots and barriers.
fn is_slow(mnemonic: &str) -> bool {
    const SLOW: [&str; 9] = ["sdiv", "udiv", "fdiv", "fsqrt", "dmb", "dsb", "isb", "cas", "swp"];
    mnemonic.starts_with("ld") || SLOW.iter().any(|slow| mnemonic.starts_with(slow))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(word: u32) -> Decoded {
        Decoder::new().decode(&word.to_le_bytes(), 0x1000)
    }

    #[test]
    fn instructions_have_the_text_of_the_manual() {
        let cases = [
            (0xa9bf_7bfd, "stp    x29, x30, [sp, #-0x10]!"),
            (0x9400_0004, "bl     0x1010"),
            (0x54ff_ffe1, "b.ne   0xffc"),
            (0xd65f_03c0, "ret"),
            (0xb000_0000, "adrp   x0, 0x2000"),
        ];
        for (word, text) in cases {
            assert_eq!(decoded(word).text.as_deref(), Some(text), "{word:#x}");
        }
        assert_eq!(decoded(0xffff_ffff), Decoded::bad(4));
        assert_eq!(Decoder::new().decode(&[0x1f], 0), Decoded::bad(1));
    }

    #[test]
    fn jumps_calls_and_slow_instructions_are_known() {
        let flow = |word| (decoded(word).flow, decoded(word).target);
        assert_eq!(flow(0x5400_0040), (Flow::Branch, Some(0x1008)));
        assert_eq!(flow(0xb400_0040), (Flow::Branch, Some(0x1008)));
        assert_eq!(flow(0x1400_0001), (Flow::Jump, Some(0x1004)));
        assert_eq!(flow(0xd61f_0000), (Flow::Jump, None));
        assert_eq!(flow(0x9400_0000), (Flow::Call, Some(0x1000)));
        assert_eq!(flow(0xb000_0000), (Flow::Next, None));
        // ldr x0, [x1]; udiv x0, x0, x1; str x0, [x1]
        assert!(decoded(0xf940_0020).slow && decoded(0x9ac1_0800).slow);
        assert!(!decoded(0xf900_0020).slow);
    }
}
