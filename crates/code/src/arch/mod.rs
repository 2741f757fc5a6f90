//! Disassembly, by CPU architecture. All are compiled in, whichever prof is built for: a profile may
//! come from another machine.
//!
//! One file an architecture, with the same items.

mod aarch64;
mod x86_64;

use object::elf::{EM_AARCH64, EM_X86_64};

/// Continuation after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The next instruction.
    Next,
    /// A jump that is always taken.
    Jump,
    /// A jump that is taken or not.
    Branch,
    /// A call, and then the next instruction.
    Call,
    /// A return, or a trap.
    End,
}

/// Time until the result of an instruction is there, on usual processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Latency {
    /// A cycle or two.
    Short,
    /// Several cycles: a multiplication, or arithmetic with floating-point numbers.
    Several,
    /// Many cycles, or any number: it loads from memory, divides, or synchronizes.
    Many,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Its bytes.
    pub length: usize,
    /// Its text; `None` if its bytes are no instruction.
    pub text: Option<String>,
    /// The continuation after it.
    pub flow: Flow,
    /// The address that it jumps to or calls, if it states one.
    pub target: Option<u64>,
    /// The address of memory or code that an operand states.
    pub reference: Option<u64>,
    /// The time until its result is there.
    pub latency: Latency,
}

impl Decoded {
    /// `length` bytes that are no instruction.
    fn bad(length: usize) -> Decoded {
        Decoded {
            length,
            text: None,
            flow: Flow::Next,
            target: None,
            reference: None,
            latency: Latency::Short,
        }
    }
}

/// A disassembler of one architecture.
pub enum Disassembler {
    /// x86-64.
    X86(Box<x86_64::Decoder>),
    /// AArch64.
    Arm(aarch64::Decoder),
}

impl Disassembler {
    /// The disassembler of ELF's `e_machine`, if there is one.
    pub fn for_machine(machine: object::elf::Machine) -> Option<Disassembler> {
        match machine {
            EM_X86_64 => Some(Disassembler::X86(Box::new(x86_64::Decoder::new()))),
            EM_AARCH64 => Some(Disassembler::Arm(aarch64::Decoder::new())),
            _ => None,
        }
    }

    /// The instruction at the start of `code`, which is not empty, at `address`.
    pub fn decode(&mut self, code: &[u8], address: u64) -> Decoded {
        match self {
            Disassembler::X86(decoder) => decoder.decode(code, address),
            Disassembler::Arm(decoder) => decoder.decode(code, address),
        }
    }
}
