//! The order of rows.

use crate::Sort;

/// A column by which rows are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Self values.
    SelfValue,
    /// Totals.
    Total,
    /// Values before, in a difference.
    Before,
    /// Values after.
    After,
    /// After minus before: what is significant first.
    Change,
    /// After divided by before.
    Ratio,
    /// Probability that nothing changed.
    Probability,
    /// Values of the state with this number.
    State(usize),
    /// Names.
    Name,
}

/// The order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The column: the largest value first, or names in their order.
    pub column: Column,
    /// The other way round.
    pub reversed: bool,
}

impl Order {
    /// By a column, in its usual direction.
    pub fn by(column: Column) -> Order {
        Order { column, reversed: false }
    }

    /// The order of a table of functions, as in the model.
    pub fn sort(self) -> Sort {
        match self.column {
            Column::Total => Sort::Total,
            Column::Name => Sort::Name,
            _ => Sort::SelfValue,
        }
    }
}

impl From<Sort> for Order {
    fn from(sort: Sort) -> Order {
        Order::by(match sort {
            Sort::SelfValue => Column::SelfValue,
            Sort::Total => Column::Total,
            Sort::Name => Column::Name,
        })
    }
}
