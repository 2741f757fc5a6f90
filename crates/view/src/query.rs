//! A query: what is shown of a profile. The command line parses it, the terminal edits it, and
//! [`answer`](crate::answer()) computes it.

mod added_filter;
mod order;
mod roots;
mod shown;
mod value_options;

use super::interpreters::has_interpreted;
use super::{Cancel, Cut, Granularity, LeafFrames, Naming, Scale, TopOptions, View};
use profile::Profile;

pub use added_filter::{AddedFilter, CONDITIONS, FilterError, regex_reason};
pub use order::{Column, Order};
pub use roots::Roots;
pub use shown::{Groups, Intervals, Rows, Shown, ShownFlame, ShownSource, Table};
pub use value_options::{Converted, PercentOf, ShownUnit, Statistic, ValueOptions};

/// What is shown of a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Index of the sample type.
    pub type_index: usize,
    /// The filters, in the order in which they were added. The one by time is applied first.
    pub filters: Vec<AddedFilter>,
    /// The view.
    pub shown: Shown,
    /// The parts in which equal frames agree; `None`: those of the view. A table has those of its
    /// rows, source always lines.
    pub granularity: Option<Granularity>,
    /// The labels whose values are the roots of a call tree.
    pub roots: Roots,
    /// Calls of a function by itself are one frame in trees.
    pub collapses_recursion: bool,
    /// Inlined functions belong to those that they were inlined into. Filters find them.
    pub folds_inlined: bool,
    /// The leaf frames of its sample type belong to their callers: see [`LeafFrames`]. Filters find
    /// them. The views of a function that is named have all frames.
    pub folds_leaf_frames: bool,
    /// An interpreter's own frames are hidden where functions of its programs are. Filters find
    /// them.
    pub hides_interpreters: bool,
    /// The way in which a difference compares.
    pub comparison: Comparison,
    /// What is left out.
    pub limits: Limits,
    /// What values and percentages are.
    pub value_options: ValueOptions,
}

/// The way in which a difference compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The unit of comparison.
    pub scale: Scale,
    /// Test for equal values, rather than for the ratio of what did not change.
    pub absolute: bool,
}

/// What a view leaves out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Most rows; 0: all. Of a call tree, the lines of text.
    pub rows: usize,
    /// Rows and nodes that are too small.
    pub cut: Cut,
    /// The values that rows of a table are too small by. Text has no column of totals, if they are
    /// self values.
    pub values: Values,
}

/// Self values or totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Values {
    /// Self values.
    #[default]
    Own,
    /// Totals.
    Total,
}

/// The reason why a query has no answer.
#[derive(Clone, Debug)]
pub enum QueryError {
    /// The text of a filter is none.
    NoFilter(AddedFilter, FilterError),
    /// The profile has no times of samples.
    NoTimes(Timed),
    /// The view finds functions by their names, and the frames are no functions, or are grouped.
    NeedsFunctions,
    /// The view has rows of its own.
    HasOwnRows(OwnRows),
    /// A text is no regular expression.
    NoRegex(Wanted, regex::Error),
    /// No function has the name, or matches.
    NoFunction(Wanted),
    /// No sample has a label with this key, which is to be a root.
    NoLabel(String),
    /// The recordings cannot be compared in this unit: one has no length, or no value.
    NoUnit(Scale),
    /// The view has an answer of its own: see [`crate::compare`].
    NotAnswered,
    /// The answer is no longer waited for.
    Canceled,
}

/// What needs the times of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timed {
    /// A filter by time.
    Filter,
    /// A table of values over time.
    Table,
}

/// A view whose rows cannot be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnRows {
    /// Functions.
    Quality,
    /// Threads.
    States,
    /// Stacks.
    Traces,
    /// Values of labels.
    Tags,
}

/// The functions that a view was requested of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Of [`Shown::Sandwich`] or [`Shown::SandwichFlame`].
    Sandwich(String),
    /// Of [`Shown::Peek`].
    Peek(String),
    /// Of [`Shown::Source`]: functions or files.
    Source(String),
}

impl Limits {
    /// Everything is shown.
    pub const NONE: Limits = Limits { rows: 0, cut: Cut::Nothing, values: Values::Total };

    /// The least percentage of the total that is shown; 0 without one.
    pub fn min_percent(self) -> f64 {
        match self.cut {
            Cut::Percent(percent) => percent,
            Cut::Nothing | Cut::Width(_) => 0.0,
        }
    }

    /// The least width of a box in percent of the whole; 0 without one.
    pub fn min_width(self) -> f64 {
        match self.cut {
            Cut::Width(percent) => percent,
            Cut::Nothing | Cut::Percent(_) => 0.0,
        }
    }

    /// The number of rows that are shown of `count`.
    pub fn rows_of(self, count: usize) -> usize {
        if self.rows == 0 { count } else { count.min(self.rows) }
    }
}

impl Default for Query {
    /// The table of functions.
    fn default() -> Query {
        Query::new(Shown::default())
    }
}

impl Query {
    /// A view of the first sample type, without filters and limits.
    pub fn new(shown: Shown) -> Query {
        Query {
            type_index: 0,
            filters: Vec::new(),
            shown,
            granularity: None,
            roots: Roots::default(),
            collapses_recursion: false,
            folds_inlined: false,
            folds_leaf_frames: true,
            hides_interpreters: true,
            comparison: Comparison::default(),
            limits: Limits::NONE,
            value_options: ValueOptions::default(),
        }
    }

    /// Its name for a title.
    pub fn name(&self) -> String {
        let collapsed = if self.collapses_recursion { ", recursion collapsed" } else { "" };
        self.shown.name() + collapsed
    }

    /// The parts in which equal frames agree.
    pub fn granularity(&self) -> Granularity {
        match (&self.shown, self.granularity) {
            (Shown::Peek(_), Some(Granularity::FUNCTION)) => self.shown.granularity(),
            (Shown::Table(_) | Shown::Source(_), _) | (_, None) => self.shown.granularity(),
            (Shown::Traces, Some(granularity)) => Granularity { inlined: true, ..granularity },
            (_, Some(granularity)) => granularity,
        }
    }

    /// The frames of its view of a profile.
    pub fn naming(&self, profile: &Profile) -> Naming {
        let folds = self.folded_leaf_frames(profile);
        // The others are about single threads, or compare what was recorded.
        let is_about_code = matches!(
            self.shown,
            Shown::Table(_) | Shown::Tree(_) | Shown::Flame(_) | Shown::Graph(_)
        );
        Naming {
            folds_inlined: self.folds_inlined,
            packages: self.granularity().package,
            folds,
            leaves_out_idle: is_about_code
                && self.leaf_frames(profile) == Some(LeafFrames::Scheduler),
            hides_interpreters: self.hides_interpreters
                && !matches!(self.shown, Shown::Coverage | Shown::Header)
                && has_interpreted(profile),
        }
    }

    fn folded_leaf_frames(&self, profile: &Profile) -> Option<LeafFrames> {
        let has_all_frames = match self.shown {
            Shown::Sandwich(_) | Shown::SandwichFlame { .. } => true,
            Shown::Peek(_) | Shown::Source(_) => true,
            Shown::Coverage | Shown::Header | Shown::Threads | Shown::Traces => true,
            // Rows of labels alone have no frames.
            Shown::Table(_) if self.granularity() == Granularity::NONE => true,
            _ => false,
        };
        if has_all_frames { None } else { self.leaf_frames(profile) }
    }

    /// The leaf frames that the sample types of the view have, unless all frames are to be shown.
    fn leaf_frames(&self, profile: &Profile) -> Option<LeafFrames> {
        let folded =
            |index| LeafFrames::for_type(profile, index).filter(|_| self.folds_leaf_frames);
        let leaves = folded(self.type_index)?;
        // Those of one type would be those of the others, too.
        let types = match &self.shown {
            Shown::Table(table) => table.columns.all_types(),
            _ => Vec::new(),
        };
        types.into_iter().all(|index| folded(index) == Some(leaves)).then_some(leaves)
    }

    /// Fails if the view cannot have these frames or groups.
    ///
    /// # Errors
    ///
    /// [`QueryError::NeedsFunctions`], [`QueryError::HasOwnRows`].
    pub fn check(&self) -> Result<(), QueryError> {
        let granularity = self.granularity();
        let is_grouped = self.roots.are_chosen();
        let has_usual_rows = granularity == Granularity::FUNCTION && !is_grouped;
        match self.shown {
            Shown::Sandwich(_) | Shown::SandwichFlame { .. } | Shown::Peek(_)
                if is_grouped || !granularity.function =>
            {
                Err(QueryError::NeedsFunctions)
            }
            Shown::Quality(_) if !has_usual_rows => Err(QueryError::HasOwnRows(OwnRows::Quality)),
            Shown::States(_) if !has_usual_rows => Err(QueryError::HasOwnRows(OwnRows::States)),
            Shown::Tags if !has_usual_rows => Err(QueryError::HasOwnRows(OwnRows::Tags)),
            Shown::Traces if is_grouped => Err(QueryError::HasOwnRows(OwnRows::Traces)),
            _ => Ok(()),
        }
    }

    /// The view of its sample type, at its granularity.
    pub fn view<'p>(&self, profile: &'p Profile, cancel: &Cancel) -> View<'p> {
        self.view_of(profile, self.type_index, cancel)
    }

    /// The same of another sample type.
    pub(super) fn view_of<'p>(
        &self,
        profile: &'p Profile,
        type_index: usize,
        cancel: &Cancel,
    ) -> View<'p> {
        let mut view = View::cancelable(profile, type_index, self.granularity(), cancel);
        view.collapse_recursion = self.collapses_recursion;
        view.value_options = self.value_options;
        if self.shown.has_means() {
            view.average_totals();
        } else {
            view.value_options.statistic = Statistic::Sum;
        }
        if self.has_boxes() {
            view.leave_out_negative();
        }
        view
    }

    /// True if values are widths of boxes, which negative ones do not have.
    fn has_boxes(&self) -> bool {
        let shown = &self.shown;
        matches!(shown, Shown::Flame(_) | Shown::SandwichFlame { .. } | Shown::DiffFlame(_))
    }

    /// The options of its table.
    pub(super) fn top(&self) -> TopOptions {
        TopOptions {
            sort: self.shown.order().map_or_else(Default::default, Order::sort),
            labels: self.shown.labels().to_vec(),
            limit: self.limits.rows,
            min_percent: self.limits.min_percent(),
            self_only: self.limits.values == Values::Own,
        }
    }
}

/// A regular expression that matches this text, and nothing else.
pub fn exactly(text: &str) -> String {
    format!("^{}$", regex::escape(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Direction;

    #[test]
    fn views_of_functions_refuse_other_frames() {
        let query = |shown: Shown, granularity, roots: &[&str]| Query {
            granularity: Some(granularity),
            roots: Roots::Labels(roots.iter().map(|&key| key.to_owned()).collect()),
            ..Query::new(shown)
        };
        let files = Granularity::FILES;
        let function = Granularity::FUNCTION;
        let by_name = || [Shown::Sandwich("f".to_owned()), Shown::Peek("f".to_owned())];
        for shown in by_name() {
            let check =
                |granularity, roots: &[&str]| query(shown.clone(), granularity, roots).check();
            assert!(check(function, &[]).is_ok());
            assert!(check(Granularity::SYMBOL, &[]).is_ok());
            assert!(matches!(check(files, &[]), Err(QueryError::NeedsFunctions)));
            assert!(matches!(check(function, &["pid"]), Err(QueryError::NeedsFunctions)));
        }
        let total = Order::by(Column::Total);
        for shown in [Shown::Quality(total), Shown::States(total)] {
            let check =
                |granularity, roots: &[&str]| query(shown.clone(), granularity, roots).check();
            assert!(check(function, &[]).is_ok());
            assert!(matches!(check(files, &[]), Err(QueryError::HasOwnRows(_))));
            assert!(matches!(check(function, &["pid"]), Err(QueryError::HasOwnRows(_))));
        }
        assert!(query(Shown::Tree(Direction::Callees), files, &["pid"]).check().is_ok());
    }

    #[test]
    fn functions_of_one_name_are_one_where_they_are_peeked_at() {
        let peek = Query::new(Shown::Peek("f".to_owned()));
        assert_eq!(peek.granularity(), Granularity::SYMBOL);
        let lines = Granularity { line: true, ..Granularity::FUNCTION };
        assert_eq!(Query { granularity: Some(lines), ..peek }.granularity(), lines);
        let table = Query { granularity: Some(lines), ..Query::new(Shown::functions()) };
        assert_eq!(table.granularity(), Granularity::FUNCTION);
        let source = Query::new(Shown::Source(ShownSource::lines("f".to_owned())));
        let files = Query { granularity: Some(Granularity::FILES), ..source };
        assert!(files.granularity().line);
    }
}
