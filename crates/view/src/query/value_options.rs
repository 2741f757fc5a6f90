//! What the values and percentages of a view are.

use serde::Serialize;

/// What the values and percentages of a view are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ValueOptions {
    /// The 100 % of all percentages.
    pub percent_of: PercentOf,
}

/// The 100 % of all percentages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PercentOf {
    /// The total before the filters.
    #[default]
    Total,
    /// What passes the filters.
    Kept,
}

impl PercentOf {
    /// The 100 % of values with these totals before and after the filters.
    pub fn whole(self, total: i64, kept: i64) -> i64 {
        match self {
            PercentOf::Total => total,
            PercentOf::Kept => kept,
        }
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> PercentOf {
        match self {
            PercentOf::Total => PercentOf::Kept,
            PercentOf::Kept => PercentOf::Total,
        }
    }
}
