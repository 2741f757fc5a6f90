//! Evaluates a frame's rules in full, with all registers.

use gimli::{
    CfaRule, Encoding, Evaluation, EvaluationResult, EvaluationStorage, Location, Piece, Register,
    RegisterRule, UnwindContextStorage, UnwindExpression, UnwindSection, UnwindTableRow, Value,
};

use super::{KnownRegisters, Slice, Step, Visitor};
use crate::arch::{COLUMNS, RA, SP};

/// Restores the caller's registers by all rules of a row.
pub(super) struct Machine<'m> {
    pub before: KnownRegisters,
    /// The canonical frame address, after it was computed.
    pub cfa: Option<u64>,
    /// Reads a word of memory.
    pub read: &'m mut dyn FnMut(u64) -> Result<u64, ()>,
}

impl Visitor for Machine<'_> {
    type Output = Result<KnownRegisters, Step>;

    fn visit<'a, S: UnwindSection<Slice<'a>>, C: UnwindContextStorage<usize>>(
        mut self,
        section: &S,
        row: &UnwindTableRow<usize, C>,
        encoding: Encoding,
    ) -> Self::Output {
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                self.register(*register)?.wrapping_add_signed(*offset)
            }
            CfaRule::Expression(e) => self.evaluate(section, e, encoding)?,
        };
        self.cfa = Some(cfa);
        // A register without a rule has kept its value, even one that calls usually destroy:
        // assembly whose frame is based on such a register controls its callee.
        let mut after = self.before;
        after.set(SP, cfa);
        for &(register, ref rule) in row.registers() {
            let Ok(number) = u8::try_from(register.0) else { continue };
            if usize::from(number) >= COLUMNS {
                continue;
            }
            after.known &= !(1 << number);
            match self.value(section, number, rule, encoding) {
                Ok(Some(value)) => after.set(number, value),
                Ok(None) => {}
                // Only the return address is always needed.
                Err(step) if number == RA => return Err(step),
                Err(_) => {}
            }
        }
        if after.get(RA).is_none() && row.register(Register(RA.into())).is_none() {
            // It is still in its register, which is unknown here.
            return Err(Step::NeedsRegisters);
        }
        Ok(after)
    }
}

impl Machine<'_> {
    fn register(&self, register: Register) -> Result<u64, Step> {
        let number = u8::try_from(register.0).map_err(|_| Step::Failed)?;
        self.before.get(number).ok_or(Step::NeedsRegisters)
    }

    fn word(&mut self, address: u64) -> Result<u64, Step> {
        (self.read)(address).map_err(|()| Step::Unreadable(address))
    }

    /// True for the slot of a register that an epilogue has popped: unwind information may still refer
    /// to it, and memory below the stack pointer is not preserved.
    fn is_popped(&self, slot: u64) -> bool {
        let below = self.before.get(SP).map(|sp| sp.wrapping_sub(slot));
        below.is_some_and(|below| (1..=MOST_POPPED).contains(&below))
    }

    /// A register of the caller; `None` if the rules mark it as lost.
    fn value<'a, S: UnwindSection<Slice<'a>>>(
        &mut self,
        section: &S,
        number: u8,
        rule: &RegisterRule<usize>,
        encoding: Encoding,
    ) -> Result<Option<u64>, Step> {
        let cfa = self.cfa.ok_or(Step::Failed)?;
        Ok(match rule {
            RegisterRule::SameValue => self.before.get(number),
            RegisterRule::Offset(at) => {
                let slot = cfa.wrapping_add_signed(*at);
                match self.word(slot) {
                    Err(_) if number != RA && self.is_popped(slot) => self.before.get(number),
                    word => Some(word?),
                }
            }
            RegisterRule::ValOffset(at) => Some(cfa.wrapping_add_signed(*at)),
            RegisterRule::Register(other) => Some(self.register(*other)?),
            RegisterRule::Expression(e) => {
                let at = self.evaluate(section, e, encoding)?;
                Some(self.word(at)?)
            }
            RegisterRule::ValExpression(e) => Some(self.evaluate(section, e, encoding)?),
            RegisterRule::Constant(value) => Some(*value),
            _ => None,
        })
    }

    fn evaluate<'a, S: UnwindSection<Slice<'a>>>(
        &mut self,
        section: &S,
        expression: &UnwindExpression<usize>,
        encoding: Encoding,
    ) -> Result<u64, Step> {
        let failed = |_| Step::Failed;
        let code = expression.get(section).map_err(failed)?.0;
        let mut evaluation = Evaluation::<_, Small>::new_in(code, encoding);
        // The CFA is pushed first, if it is known.
        if let Some(cfa) = self.cfa {
            evaluation.set_initial_value(cfa);
        }
        evaluation.set_max_iterations(MAX_OPERATIONS);
        let mut result = evaluation.evaluate().map_err(failed)?;
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresMemory { address, size: 8, space: None, .. } => {
                    let word = Value::Generic(self.word(address)?);
                    evaluation.resume_with_memory(word)
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = Value::Generic(self.register(register)?);
                    evaluation.resume_with_register(value)
                }
                _ => return Err(Step::Failed),
            }
            .map_err(failed)?;
        }
        match evaluation.as_result() {
            [Piece { location: Location::Address { address }, .. }] => Ok(*address),
            _ => Err(Step::Failed),
        }
    }
}

/// Bytes of all registers that a function pops.
const MOST_POPPED: u64 = 64;

/// Most operations of one expression; compilers and people write a handful.
const MAX_OPERATIONS: u32 = 64;

/// Storage for evaluating an expression without a heap.
struct Small;

impl<'a> EvaluationStorage<Slice<'a>> for Small {
    type Stack = [Value; 16];
    type ExpressionStack = [(Slice<'a>, Slice<'a>); 2];
    type Result = [Piece<Slice<'a>>; 1];
}
