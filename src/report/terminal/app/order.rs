//! Keys that change the order of the rows and the values of a page.

use super::{App, Command};
use view::Siblings;
use view::query::{Column, Order, Query, Rows, Shown, ShownFlame, Table, Values};

impl App {
    /// Sorts by the column that is `by` columns to the right.
    pub(super) fn sort(&mut self, by: isize, around: bool) -> Vec<Command> {
        let shown = &self.page().query.shown;
        if let Shown::Flame(flame) = *shown {
            let siblings = match flame.siblings {
                Siblings::Name => Siblings::LeftHeavy,
                Siblings::LeftHeavy => Siblings::Name,
            };
            return self.change(Shown::Flame(ShownFlame { siblings, ..flame }));
        }
        let columns = shown.columns();
        let Some(order) = shown.chosen_order() else {
            return self.refuse("this view has one order");
        };
        let at = columns.iter().position(|column| *column == order.column).unwrap_or(0);
        let next = at.checked_add_signed(by).filter(|&next| next < columns.len());
        match next.or(around.then_some(0)) {
            Some(next) => {
                let shown = shown.ordered(Order::by(columns[next]));
                self.change(shown)
            }
            None => self.refuse("no further column"),
        }
    }

    /// Sorts by a column, or reverses the order if rows are sorted by it, or does nothing if rows
    /// cannot be sorted by it.
    pub fn sort_by(&mut self, column: Column) -> Vec<Command> {
        self.message = None;
        let shown = &self.page().query.shown;
        match shown.chosen_order() {
            Some(order) if order.column == column => self.reverse(),
            Some(_) if shown.columns().contains(&column) => {
                let shown = shown.ordered(Order::by(column));
                self.change(shown)
            }
            _ => Vec::new(),
        }
    }

    /// Reverses the order of the rows, or turns a flame graph upside down.
    pub(super) fn reverse(&mut self) -> Vec<Command> {
        let shown = &self.page().query.shown;
        if let Shown::Flame(flame) = *shown {
            return self.change(Shown::Flame(ShownFlame { is_upward: !flame.is_upward, ..flame }));
        }
        match shown.chosen_order() {
            Some(order) => {
                let shown = shown.ordered(Order { reversed: !order.reversed, ..order });
                self.change(shown)
            }
            None => self.refuse("this view has one order"),
        }
    }

    /// Shows calls of a function by itself as one frame, or each of them.
    pub(super) fn collapse_recursion(&mut self) -> Vec<Command> {
        let query = self.page().query.clone();
        let collapses_recursion = !query.collapses_recursion;
        self.visit(Query { collapses_recursion, ..query })
    }

    /// Shows all leaf frames, or leaves out those of the sample type.
    pub(super) fn all_frames(&mut self) -> Vec<Command> {
        let query = self.page().query.clone();
        let Some(profile) = &self.profile else { return Vec::new() };
        let folded = Query { folds_leaf_frames: true, ..query.clone() };
        let Some(leaves) = folded.naming(profile).folds else {
            return self.refuse("this page has all frames");
        };
        let folds_leaf_frames = !query.folds_leaf_frames;
        let name = leaves.name();
        let are = if folds_leaf_frames { "left out" } else { "shown" };
        self.show_message(format!("leaf frames are {are}: {name}"));
        self.visit(Query { folds_leaf_frames, ..query })
    }

    /// Shows an interpreter's own frames, or leaves them out.
    pub(super) fn interpreter_frames(&mut self) -> Vec<Command> {
        let query = self.page().query.clone();
        let Some(profile) = &self.profile else { return Vec::new() };
        let hidden = Query { hides_interpreters: true, ..query.clone() };
        if !hidden.naming(profile).hides_interpreters {
            return self.refuse("this page has all frames of interpreters");
        }
        let hides_interpreters = !query.hides_interpreters;
        let are = if hides_interpreters { "left out" } else { "shown" };
        self.show_message(format!("the interpreter's own frames are {are}"));
        self.visit(Query { hides_interpreters, ..query })
    }

    /// The rows of the first table of this sample type.
    pub(super) fn usual_rows(&self, type_index: usize) -> Rows {
        let profile = self.profile.as_deref();
        profile.map_or(Rows::Functions, |profile| Rows::usual(profile, type_index))
    }

    /// The first table of the sample type.
    pub(super) fn usual_table(&self) -> Shown {
        Shown::table(self.usual_rows(self.page().query.type_index))
    }

    /// Switches between self values and totals of a difference.
    pub(super) fn totals(&mut self) -> Vec<Command> {
        let mut shown = self.page().query.shown.clone();
        if let Shown::Diff { values, .. } = &mut shown {
            *values = if *values == Values::Own { Values::Total } else { Values::Own };
        }
        self.change(shown)
    }

    /// Shows percentages of what passes the filters, or of the whole profile.
    pub(super) fn other_percentages(&mut self) -> Vec<Command> {
        let mut query = self.page().query.clone();
        if matches!(query.shown, Shown::Diff { .. } | Shown::DiffFlame(_)) {
            return self.refuse("a difference has percentages of its own");
        }
        let percent_of = &mut query.value_options.percent_of;
        *percent_of = percent_of.other();
        self.visit(query)
    }

    /// Shows the page in the next sample type.
    pub(super) fn next_type(&mut self) -> Vec<Command> {
        if matches!(&self.page().query.shown, Shown::Table(table) if table.has_types()) {
            return self.refuse("the columns of this table have sample types of their own");
        }
        let Some(profile) = &self.profile else { return Vec::new() };
        let types = profile.sample_types.len();
        if types < 2 {
            self.show_message("the profile has one sample type".to_owned());
            return Vec::new();
        }
        let query = self.page().query.clone();
        let type_index = (query.type_index + 1) % types;
        let shown = match &query.shown {
            Shown::Table(table) if table.rows == self.usual_rows(query.type_index) => {
                let rows = self.usual_rows(type_index);
                Shown::Table(Table { rows, ..table.clone() })
            }
            shown => shown.clone(),
        };
        self.visit(Query { shown, type_index, ..query })
    }
}
