//! AArch64, in the syntax of the Arm Architecture Reference Manual.

use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction, Operand};

use super::{Decoded, Flow, Latency};

/// Bytes of each instruction.
const LENGTH: usize = 4;

/// A decoder of instructions.
pub struct Decoder {
    decoder: InstDecoder,
    /// The page in a register of the last instruction, if that was `adrp`.
    page: Option<Page>,
}

/// A page of memory whose address is in a register.
#[derive(Clone, Copy)]
struct Page {
    register: u16,
    address: u64,
    /// Address of the next instruction.
    next: u64,
}

impl Decoder {
    /// A decoder.
    pub fn new() -> Decoder {
        Decoder { decoder: InstDecoder::default(), page: None }
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
        let reference = self.reference(&instruction, mnemonic, target, address);
        let operands = match (target, operands.find('$')) {
            (Some(target), Some(at)) => format!("{}{target:#x}", &operands[..at]),
            _ => operands.to_owned(),
        };
        let text = format!("{mnemonic:<6} {operands}").trim_end().to_owned();
        let flow = flow(mnemonic);
        let target = target.filter(|_| flow != Flow::Next);
        let latency = latency(mnemonic);
        Decoded { length: LENGTH, text: Some(text), flow, target, reference, latency }
    }

    /// The address of data: that of a relative operand, or of a page with the offset that the next
    /// instruction adds to it.
    fn reference(
        &mut self,
        instruction: &Instruction,
        mnemonic: &str,
        target: Option<u64>,
        address: u64,
    ) -> Option<u64> {
        let page = self.page.take().filter(|page| page.next == address);
        let first = match instruction.operands[0] {
            Operand::Register(_, register) => Some(register),
            _ => None,
        };
        if mnemonic == "adrp" {
            let next = address.wrapping_add(LENGTH as u64);
            let page_of = |(register, address)| Page { register, address, next };
            self.page = first.zip(target).map(page_of);
            return None;
        }
        if flow(mnemonic) == Flow::Next && target.is_some() {
            return target;
        }
        let page = page?;
        let offset = match (mnemonic, instruction.operands) {
            (
                "add",
                [
                    _,
                    Operand::RegisterOrSP(_, base) | Operand::Register(_, base),
                    Operand::Immediate(offset),
                    _,
                ],
            ) if base == page.register => u64::from(offset),
            (_, [_, Operand::RegPreIndex(base, offset, false), _, _]) if base == page.register => {
                u64::try_from(offset).ok()?
            }
            _ => return None,
        };
        page.address.checked_add(offset)
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

/// The latency of an instruction, which follows from its name.
fn latency(mnemonic: &str) -> Latency {
    // Divisions, roots, barriers and atomic operations, in addition to loads.
    const MANY: [&str; 9] = ["sdiv", "udiv", "fdiv", "fsqrt", "dmb", "dsb", "isb", "cas", "swp"];
    // Multiplications, also with a sum, of integers, vectors and floating-point numbers.
    const MULTIPLIES: [&str; 7] = ["mul", "madd", "msub", "mneg", "mla", "mls", "dot"];
    // All other names with f are arithmetic with floating-point numbers.
    const MOVES: [&str; 4] = ["fmov", "fabs", "fneg", "fcsel"];
    let is = |names: &[&str]| names.iter().any(|name| mnemonic.starts_with(name));
    if mnemonic.starts_with("ld") || is(&MANY) {
        Latency::Many
    } else if MULTIPLIES.iter().any(|name| mnemonic.contains(name))
        || is(&["scvtf", "ucvtf"])
        || (mnemonic.starts_with('f') && !is(&MOVES))
    {
        Latency::Several
    } else {
        Latency::Short
    }
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
    fn jumps_and_calls_are_known() {
        let flow = |word| (decoded(word).flow, decoded(word).target);
        assert_eq!(flow(0x5400_0040), (Flow::Branch, Some(0x1008)));
        assert_eq!(flow(0xb400_0040), (Flow::Branch, Some(0x1008)));
        assert_eq!(flow(0x1400_0001), (Flow::Jump, Some(0x1004)));
        assert_eq!(flow(0xd61f_0000), (Flow::Jump, None));
        assert_eq!(flow(0x9400_0000), (Flow::Call, Some(0x1000)));
        assert_eq!(flow(0xb000_0000), (Flow::Next, None));
    }

    #[test]
    fn the_latency_of_loads_and_arithmetic_is_known() {
        let cases: [(Latency, &[(u32, &str)]); 3] = [
            (
                Latency::Short,
                &[
                    (0xf900_0020, "str"),
                    (0x8b01_0000, "add"),
                    (0x1e60_4020, "fmov"),
                    (0x1e60_c020, "fabs"),
                    (0x4e21_1c00, "and"),
                ],
            ),
            (
                Latency::Several,
                &[
                    (0x9b01_7c00, "mul"),
                    (0x9b01_0800, "madd"),
                    (0x9bc1_7c00, "umulh"),
                    (0x1e61_2800, "fadd"),
                    (0x1e61_0800, "fmul"),
                    (0x1f41_0800, "fmadd"),
                    (0x4e61_d400, "fadd"),
                    (0x4ea1_9c00, "mul"),
                    (0x1e62_0000, "scvtf"),
                    (0x1e78_0000, "fcvtzs"),
                    (0x1e61_2000, "fcmp"),
                ],
            ),
            (
                Latency::Many,
                &[
                    (0xf940_0020, "ldr"),
                    (0x9ac1_0800, "udiv"),
                    (0x1e61_1800, "fdiv"),
                    (0x1e61_c000, "fsqrt"),
                    (0xd503_3bbf, "dmb"),
                ],
            ),
        ];
        for (latency, instructions) in cases {
            for &(word, name) in instructions {
                let found = decoded(word);
                let text = found.text.unwrap();
                assert_eq!(text.split(' ').next(), Some(name), "{word:#x}");
                assert_eq!(found.latency, latency, "{text}");
            }
        }
    }

    #[test]
    fn a_page_and_the_offset_after_it_are_an_address() {
        // adrp x0, 0x2000; then add x0, x0, #0x10; ldr x1, [x0, #8]; ldr x1, [x2, #8]
        for (next, expected) in
            [(0x9100_4000, Some(0x2010)), (0xf940_0401, Some(0x2008)), (0xf940_0441_u32, None)]
        {
            let mut decoder = Decoder::new();
            let page = decoder.decode(&0xb000_0000_u32.to_le_bytes(), 0x1000);
            assert_eq!(page.reference, None);
            assert_eq!(decoder.decode(&next.to_le_bytes(), 0x1004).reference, expected);
        }
        assert_eq!(decoded(0x9100_4000).reference, None);
        // adr x0, 0x1010; ldr x1, 0x1010
        assert_eq!(decoded(0x1000_0080).reference, Some(0x1010));
        assert_eq!(decoded(0x5800_0081).reference, Some(0x1010));
    }
}
