//! Filters that are applied together.

use crate::query::{AddedFilter, QueryError};
use crate::{Condition, Filter};

/// Filters that one pass over the samples applies.
pub(super) struct Pass {
    /// The filter.
    pub(super) filter: Filter,
    /// Its conditions.
    pub(super) added: Vec<AddedFilter>,
}

/// The filters, one after the other, in as few passes as possible.
///
/// # Errors
///
/// One of them is none.
pub(super) fn passes(filters: &[AddedFilter]) -> Result<Vec<Pass>, QueryError> {
    let mut passes: Vec<Pass> = Vec::new();
    for added in filters {
        let last = passes.last().and_then(|pass| pass.added.last());
        if last.is_none_or(|last| place(last.condition) >= place(added.condition)) {
            passes.push(Pass { filter: Filter::default(), added: Vec::new() });
        }
        if let Some(pass) = passes.last_mut() {
            let result = added.add_to(&mut pass.filter);
            result.map_err(|error| QueryError::NoFilter(added.clone(), error))?;
            pass.added.push(added.clone());
        }
    }
    Ok(passes)
}

fn place(condition: Condition) -> Option<usize> {
    Condition::ALL.iter().position(|&other| other == condition)
}
