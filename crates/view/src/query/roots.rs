//! The roots of trees.

use super::QueryError;
use crate::View;
use profile::label;

/// The labels whose values are the roots of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roots {
    /// Those with these keys.
    Labels(Vec<String>),
    /// The same, of which each has to be a label of a sample.
    Required(Vec<String>),
    /// Processes, if there are several.
    Usual,
}

impl Default for Roots {
    /// No labels.
    fn default() -> Roots {
        Roots::Labels(Vec::new())
    }
}

impl Roots {
    /// True if labels were chosen.
    pub fn are_chosen(&self) -> bool {
        match self {
            Roots::Labels(keys) | Roots::Required(keys) => !keys.is_empty(),
            Roots::Usual => false,
        }
    }

    /// The keys of the labels in these views together.
    ///
    /// # Errors
    ///
    /// No sample has one that is required.
    pub(crate) fn keys(&self, views: &[View<'_>]) -> Result<Vec<String>, QueryError> {
        let values = |key: &str| views.iter().map(|view| view.label_values(key).len()).max();
        match self {
            Roots::Labels(keys) => Ok(keys.clone()),
            Roots::Required(keys) => match keys.iter().find(|key| values(key) == Some(0)) {
                Some(missing) => Err(QueryError::NoLabel(missing.clone())),
                None => Ok(keys.clone()),
            },
            Roots::Usual if values(label::PROCESS) > Some(1) => Ok(vec![label::PROCESS.to_owned()]),
            Roots::Usual => Ok(Vec::new()),
        }
    }
}
