//! The selected row of a list, and the part of the list that is on the screen.

/// The selected row of a list, and the part of the list that is on the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The selected row.
    pub selected: usize,
    /// The first row on the screen.
    pub first: usize,
    /// Number of columns by which the rows are moved to the left.
    pub left: usize,
}

/// A move of the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// By rows; negative: up.
    Rows(isize),
    /// By pages.
    Pages(isize),
    /// By halves of a page.
    HalfPages(isize),
    /// To the first row.
    First,
    /// To the last row.
    Last,
    /// To a row.
    To(usize),
}

impl Cursor {
    /// Moves within a list of `rows`, of which `height` are on the screen.
    pub fn go(&mut self, step: Move, rows: usize, height: usize) {
        let last = rows.saturating_sub(1);
        let page = height.saturating_sub(1).max(1) as isize;
        self.selected = match step {
            Move::Rows(by) => self.selected.saturating_add_signed(by),
            Move::Pages(by) => self.selected.saturating_add_signed(by * page),
            Move::HalfPages(by) => self.selected.saturating_add_signed(by * (page / 2).max(1)),
            Move::First => 0,
            Move::Last => last,
            Move::To(row) => row,
        };
        self.fit(rows, height);
    }

    /// Keeps the selected row within the list and on the screen.
    pub fn fit(&mut self, rows: usize, height: usize) {
        self.selected = self.selected.min(rows.saturating_sub(1));
        let height = height.max(1);
        self.first = self.first.min(self.selected).min(rows.saturating_sub(height));
        if self.selected >= self.first + height {
            self.first = self.selected + 1 - height;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selected_row_stays_on_the_screen() {
        let mut cursor = Cursor::default();
        let at = |cursor: Cursor| (cursor.selected, cursor.first);
        cursor.go(Move::Rows(1), 100, 10);
        assert_eq!(at(cursor), (1, 0));
        cursor.go(Move::Pages(1), 100, 10);
        assert_eq!(at(cursor), (10, 1));
        cursor.go(Move::Last, 100, 10);
        assert_eq!(at(cursor), (99, 90));
        cursor.go(Move::Pages(-1), 100, 10);
        assert_eq!(at(cursor), (90, 90));
        cursor.go(Move::Rows(-1), 100, 10);
        assert_eq!(at(cursor), (89, 89));
        // The list, or the screen, became smaller.
        cursor.fit(5, 10);
        assert_eq!(at(cursor), (4, 0));
        cursor.fit(0, 10);
        assert_eq!(at(cursor), (0, 0));
        cursor.go(Move::To(7), 9, 0);
        assert_eq!(at(cursor), (7, 7));
    }
}
