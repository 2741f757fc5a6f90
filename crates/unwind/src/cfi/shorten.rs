//! Rows of a table as short rules.

use gimli::{
    CfaRule, Encoding, Operation, Register, RegisterRule, UnwindContextStorage, UnwindExpression,
    UnwindSection, UnwindTableRow,
};

use super::{Described, Return, Rule, Saved, Slice};
use crate::arch::{self, BP, RA};

/// Processes a row of a table.
pub(super) trait Visitor {
    type Output;

    fn visit<'a, S: UnwindSection<Slice<'a>>, C: UnwindContextStorage<usize>>(
        self,
        section: &S,
        row: &UnwindTableRow<usize, C>,
        encoding: Encoding,
    ) -> Self::Output;
}

/// Converts a row to a [`Rule`].
pub(super) struct Shorten;

impl Visitor for Shorten {
    type Output = Described;

    fn visit<'a, S: UnwindSection<Slice<'a>>, C: UnwindContextStorage<usize>>(
        self,
        section: &S,
        row: &UnwindTableRow<usize, C>,
        encoding: Encoding,
    ) -> Described {
        let rule = shorten(section, row, encoding).unwrap_or(Rule::Evaluate);
        let saves =
            |n: u8| matches!(row.register(Register(n.into())), Some(RegisterRule::Offset(_)));
        Described { rule, may_deliver: arch::EXCEPTION.into_iter().all(saves) }
    }
}

fn shorten<'a, S: UnwindSection<Slice<'a>>, C: UnwindContextStorage<usize>>(
    section: &S,
    row: &UnwindTableRow<usize, C>,
    encoding: Encoding,
) -> Option<Rule> {
    let ra = match arch::return_address(row.register(Register(RA.into())))? {
        Return::Outermost => return Some(Rule::Outermost),
        Return::At(ra) => ra,
    };
    let operations = |e: &UnwindExpression<usize>| {
        let mut found = [None, None, None];
        let mut all = e.get(section).ok()?.operations(encoding);
        for slot in &mut found {
            *slot = all.next().ok()?;
        }
        all.next().ok()?.is_none().then_some(found)
    };
    let bp = match row.register(Register(BP.into())) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Saved::Same,
        Some(RegisterRule::Offset(at)) => Saved::FromCfa(at.try_into().ok()?),
        Some(RegisterRule::Expression(e)) => match operations(&e)? {
            [Some(Operation::RegisterOffset { register, offset, .. }), None, None]
                if register.0 == u16::from(BP) =>
            {
                Saved::FromBp(offset.try_into().ok()?)
            }
            _ => return None,
        },
        Some(_) => return None,
    };
    match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => Some(Rule::Offset {
            register: register.0.try_into().ok()?,
            cfa: i32::try_from(*offset).ok()?,
            bp,
            ra,
        }),
        CfaRule::Expression(e) => {
            let [first, Some(Operation::Deref { size: 8, space: false, .. }), last] =
                operations(e)?
            else {
                return None;
            };
            let Some(Operation::RegisterOffset { register, offset, .. }) = first else {
                return None;
            };
            let cfa = match last {
                None => 0,
                Some(Operation::PlusConstant { value }) => value.try_into().ok()?,
                Some(_) => return None,
            };
            let register = register.0.try_into().ok()?;
            Some(Rule::Deref { register, at: offset.try_into().ok()?, cfa, bp, ra })
        }
    }
}
