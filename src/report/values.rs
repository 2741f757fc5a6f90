//! Columns of values, as wide as the longest of them.

use unicode_width::UnicodeWidthStr;

use super::text::clean;
use super::units;
use view::{View, percent};

/// Width of a column of values, and of one of their shares, unless one is longer.
const VALUE: usize = 10;
const SHARE: usize = 7;

/// Width of a column of right-aligned cells.
#[derive(Clone, Copy, Debug)]
pub(super) struct CellWidth(usize);

impl CellWidth {
    /// A column of values.
    pub(super) const VALUES: CellWidth = CellWidth(VALUE);

    /// At least this number of cells of a terminal.
    pub(super) fn at_least(width: usize) -> CellWidth {
        CellWidth(width)
    }

    /// Makes space for a cell.
    pub(super) fn fit(&mut self, cell: &str) {
        self.0 = self.0.max(cell.width());
    }

    /// A cell with the space before it.
    pub(super) fn pad(self, cell: &str) -> String {
        let padding = self.0.saturating_sub(cell.width());
        format!("{}{cell}", " ".repeat(padding))
    }
}

/// A value of a view as text.
pub(super) fn text(view: &View, value: i64) -> String {
    clean(&units::shown(value, view.unit(), &view.value_options))
}

/// A value and its share, as text.
pub(super) struct ValueCells {
    value: String,
    share: String,
}

impl ValueCells {
    /// Empty cells.
    pub(super) const EMPTY: ValueCells = ValueCells { value: String::new(), share: String::new() };

    /// A value of a view, and its share of the 100 % of the view.
    pub(super) fn new(view: &View, value: i64) -> ValueCells {
        ValueCells::with_share(view, value, view.whole())
    }

    /// A value of a view, and its share of `whole`.
    pub(super) fn with_share(view: &View, value: i64, whole: i64) -> ValueCells {
        ValueCells { value: text(view, value), share: format!("{:.2}%", percent(value, whole)) }
    }
}

/// Widths of a column of values and of that of their shares.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValueColumns {
    value: CellWidth,
    share: CellWidth,
}

impl ValueColumns {
    /// Columns with space for these cells.
    pub(super) fn for_cells(cells: impl Iterator<Item = ValueCells>) -> ValueColumns {
        let mut columns = ValueColumns { value: CellWidth(VALUE), share: CellWidth(SHARE) };
        for cell in cells {
            columns.value.fit(&cell.value);
            columns.share.fit(&cell.share);
        }
        columns
    }

    /// Columns with space for many values of a view, without a text for each: the longest is one of
    /// the smallest and the largest, unless it has a scale.
    pub(super) fn for_values(view: &View, values: impl Iterator<Item = i64>) -> ValueColumns {
        let (smallest, largest) = values.fold((0, 0), |(smallest, largest): (i64, i64), value| {
            (smallest.min(value), largest.max(value))
        });
        let mut columns = ValueColumns::for_cells(
            [smallest, largest].map(|v| ValueCells::new(view, v)).into_iter(),
        );
        if smallest < 0 {
            // With a scale, none is longer than `-1000.0 KiB`.
            columns.value.0 = columns.value.0.max(VALUE + 1);
        }
        columns
    }

    /// The titles, that of the shares with `%`.
    pub(super) fn titles(self, name: &str) -> String {
        self.pad(&ValueCells { value: name.to_owned(), share: format!("{name}%") })
    }

    /// The cells with the space before and between them.
    pub(super) fn pad(self, cells: &ValueCells) -> String {
        format!("{}  {}", self.value.pad(&cells.value), self.share.pad(&cells.share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{Builder, Column, LabelSetId};
    use view::Granularity;

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let mut b = Builder::new(&[("energy", "microjoules")]);
        let main = b.named_location("main");
        b.add(&[main], LabelSetId::EMPTY, 0, &[(Column(0), i64::MIN)]);
        let p = b.finish(None);
        let view = View::new(&p, 0, Granularity::FUNCTION);
        let cells = || [0, 7, i64::MIN].map(|value| ValueCells::new(&view, value)).into_iter();
        let columns = ValueColumns::for_cells(cells());
        let lines: Vec<String> = cells().map(|cell| columns.pad(&cell)).collect();
        assert_eq!(
            lines,
            [
                "                         0 microjoules     0.00%",
                "                         7 microjoules     0.00%",
                "-9,223,372,036,854,775,808 microjoules  -100.00%",
            ]
        );
        assert_eq!(columns.titles("self").len(), lines[2].len());
        let many = ValueColumns::for_values(&view, [7, i64::MIN, 0].into_iter());
        assert_eq!(many.titles("self"), columns.titles("self"));
        let narrow = ValueColumns::for_cells(cells().take(0));
        assert_eq!(narrow.titles("self"), "      self    self%");
        assert_eq!(narrow.pad(&ValueCells::EMPTY).len(), narrow.titles("self").len());
    }
}
