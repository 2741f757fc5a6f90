//! The answer to a query about a difference.

use super::{Diff, DiffBoxes, DiffOptions, DiffTree, Renamed};
use crate::query::{AddedFilter, Column, Order, Query, QueryError, Shown, ShownFlame, Values};
use crate::{Cancel, Part, Sort, View};

/// The recordings that a query compares.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// The parts of those before that the query is about.
    pub before: Vec<Part>,
    /// The same of those after.
    pub after: Vec<Part>,
    /// Index of the compared sample type in each of them, those before first, as
    /// [`Diff::common_type`] finds it.
    pub types: Vec<usize>,
    /// The main binaries that are compared as one.
    pub renamed: Option<Renamed>,
}

/// A difference.
#[derive(Clone, Debug, Default)]
pub struct Difference {
    /// The difference; of a differential flame graph, without rows.
    pub diff: Diff,
    /// The boxes of a differential flame graph.
    pub boxes: DiffBoxes,
    /// The filters that nothing in any recording meets.
    pub unmatched: Vec<AddedFilter>,
}

impl Compared {
    /// Views of the recordings, those before first.
    fn views(&self, query: &Query, cancel: &Cancel) -> Vec<View<'_>> {
        let parts = self.before.iter().chain(&self.after);
        let typed = parts.zip(&self.types);
        typed.map(|(part, &type_index)| query.view_of(&part.profile, type_index, cancel)).collect()
    }

    /// True if a sample of any recording has a value.
    pub fn has_values(&self) -> bool {
        let parts = self.before.iter().chain(&self.after);
        parts.zip(&self.types).any(|(part, &type_index)| part.has_values(type_index))
    }

    fn unmatched(&self, query: &Query) -> Vec<AddedFilter> {
        let parts = || self.before.iter().chain(&self.after);
        let mut unmatched = query.filters.clone();
        unmatched.retain(|added| parts().all(|part| part.unmatched.contains(added)));
        unmatched
    }
}

/// The answer to a query about a difference, [`Shown::Diff`] or [`Shown::DiffFlame`]. Rows are in the
/// order of their changes: [`Diff::reorder`] has the others.
///
/// # Errors
///
/// The recordings cannot be compared in the query's unit; no sample has a label that is to be a root;
/// the query is about something else; `cancel`.
pub fn compare(
    compared: &Compared,
    query: &Query,
    cancel: &Cancel,
) -> Result<Difference, QueryError> {
    let mut views = compared.views(query, cancel);
    let options = DiffOptions {
        scale: query.comparison.scale,
        absolute: query.comparison.absolute,
        sort: match &query.shown {
            Shown::Diff { order: Order { column: Column::Name, .. }, .. } => Sort::Name,
            Shown::Diff { values: Values::Total, .. } => Sort::Total,
            _ => Sort::SelfValue,
        },
        labels: query.shown.labels().to_vec(),
        renamed: compared.renamed.clone(),
    };
    let tree = match &query.shown {
        Shown::Diff { .. } => None,
        Shown::DiffFlame(ShownFlame { direction, .. }) => {
            let roots = query.roots.keys(&views)?;
            let (before, after) = views.split_at_mut(compared.before.len());
            Some(DiffTree::new(before, after, *direction, &roots))
        }
        _ => return Err(QueryError::NotAnswered),
    };
    let (before, after) = views.split_at(compared.before.len());
    let mut diff = Diff::new(before, after, &options);
    let mut parts = compared.before.iter().chain(&compared.after);
    diff.folded = parts.clone().find_map(|part| part.folded);
    diff.hides_interpreters = parts.any(|part| part.hides_interpreters);
    if cancel.is_canceled() {
        return Err(QueryError::Canceled);
    }
    if diff.scale != options.scale {
        return Err(QueryError::NoUnit(options.scale));
    }
    let boxes = match (tree, &query.shown) {
        (Some(tree), Shown::DiffFlame(flame)) => {
            diff.rows.clear();
            DiffBoxes::new(&diff, tree, flame.siblings, query.limits.min_width())
        }
        _ => DiffBoxes::default(),
    };
    Ok(Difference { diff, boxes, unmatched: compared.unmatched(query) })
}

#[cfg(test)]
mod tests;
