//! Positions in a function of PHP: lines that were copied at the sample, or instructions whose lines
//! are found later.

/// The position is the number of an instruction, of the innermost frame; otherwise it is a line, or 0.
const INSTRUCTION: u32 = 1 << 31;
/// The thread did not execute the evaluation function itself.
const OUTSIDE: u32 = 1 << 30;
/// The frame has called a function, and may just have got its registers back.
const AFTER_CALL: u32 = 1 << 29;
/// The number of an instruction.
const NUMBER: u32 = (1 << 28) - 1;

/// Kinds of instructions that leave a function: RETURN, RETURN_BY_REF, GENERATOR_RETURN
/// (`zend_vm_opcodes.h`).
const LEAVES: [u8; 3] = [62, 111, 161];

/// An instruction that the registers of a sample have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Current {
    /// Its number.
    pub number: u32,
    /// The thread did not execute the evaluation function itself, but what it has called.
    pub is_outside: bool,
    /// The last instruction that the frame has stored is a call.
    pub is_after_call: bool,
}

impl Current {
    /// As a position; `None` if it is too far from the first instruction.
    pub fn position(self) -> Option<u32> {
        let flag = |is: bool, bit| if is { bit } else { 0 };
        let flags = flag(self.is_outside, OUTSIDE) | flag(self.is_after_call, AFTER_CALL);
        (self.number < NUMBER).then_some(INSTRUCTION | flags | self.number)
    }
}

/// A line as a position; 0 for what is no line.
pub(super) fn position_of_line(line: u32) -> u32 {
    if line <= NUMBER { line } else { 0 }
}

/// The lines of a function's instructions, for positions that are no lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstructionLines {
    /// For each instruction, its line and whether it leaves the function.
    lines: Box<[(u32, bool)]>,
    /// Not all instructions are interpreted: registers have another meaning in machine code.
    is_compiled: bool,
}

impl InstructionLines {
    /// Lines and kinds of all instructions.
    pub(super) fn new(
        instructions: impl Iterator<Item = (u32, u8)>,
        is_compiled: bool,
    ) -> InstructionLines {
        let lines = instructions.map(|(line, kind)| (line, LEAVES.contains(&kind))).collect();
        InstructionLines { lines, is_compiled }
    }

    /// The line of a position; `None` if it has none.
    pub(crate) fn line(&self, position: u32) -> Option<u32> {
        if position & INSTRUCTION == 0 {
            return Some(position).filter(|line| *line > 0);
        }
        let &(line, leaves) = self.lines.get((position & NUMBER) as usize)?;
        // A frame's registers are restored one after the other: the instruction may be that of a
        // function which it has called, and which is the same function.
        let is_callee = leaves && position & AFTER_CALL != 0;
        let is_machine_code = self.is_compiled && position & OUTSIDE != 0;
        (line > 0 && !is_callee && !is_machine_code).then_some(line)
    }

    /// Size of the table in bytes.
    pub(crate) fn len(&self) -> usize {
        size_of_val(&*self.lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current(number: u32) -> Current {
        Current { number, is_outside: false, is_after_call: false }
    }

    #[test]
    fn a_position_is_a_line_or_an_instruction() {
        let lines = InstructionLines::new([(7, 0), (0, 0), (9, 62)].into_iter(), false);
        let line = |current: Current| lines.line(current.position().unwrap());
        assert_eq!(
            [0, 1, 2, 3].map(|number| line(current(number))),
            [Some(7), None, Some(9), None]
        );
        assert_eq!(line(Current { is_after_call: true, ..current(2) }), None);
        assert_eq!(line(Current { is_after_call: true, ..current(0) }), Some(7));
        assert_eq!((lines.line(position_of_line(80)), lines.line(0)), (Some(80), None));
        assert_eq!(position_of_line(u32::MAX), 0);
        assert!((0..64).all(|shift| current(u32::MAX >> (shift / 2)).position() != Some(u32::MAX)));
    }

    #[test]
    fn registers_outside_of_the_evaluation_count_if_nothing_is_compiled() {
        let line = |is_outside, is_compiled| {
            let lines = InstructionLines::new([(7, 0)].into_iter(), is_compiled);
            lines.line(Current { is_outside, ..current(0) }.position().unwrap())
        };
        assert_eq!([line(false, false), line(true, false), line(false, true)], [Some(7); 3]);
        assert_eq!(line(true, true), None);
    }
}
