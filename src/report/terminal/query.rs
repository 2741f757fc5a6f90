//! What a page shows: a view with its filters. Everything that a page draws follows from it.

use profile::ThreadState;
use regex::Regex;

pub use crate::report::order::{Column, Order};
use crate::report::over::OverRequest;
use crate::report::text::regex_reason;
pub use crate::report::text::regex_reason as one_line;
use view::{
    ColumnRequest, Condition, Direction, Filter, Granularity, Selector, Siblings, Sort, TagError,
    TagMatch, TimeRange,
};

/// What a page shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Index of the sample type.
    pub type_index: usize,
    /// The filters, in the order in which they were added.
    pub filters: Vec<AddedFilter>,
    /// The view.
    pub shown: Shown,
    /// Calls of a function by itself are one frame in trees.
    pub collapses_recursion: bool,
}

impl Query {
    /// A view of the first sample type without filters.
    pub fn new(shown: Shown) -> Query {
        Query { type_index: 0, filters: Vec::new(), shown, collapses_recursion: false }
    }

    /// Its name for the line at the top.
    pub fn name(&self) -> String {
        let collapsed = if self.collapses_recursion { ", recursion collapsed" } else { "" };
        self.shown.name() + collapsed
    }
}

/// A flame graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownFlame {
    /// What is on a box: what it calls, or its callers.
    pub direction: Direction,
    /// The order of the boxes on one box.
    pub siblings: Siblings,
    /// It begins at the lower end of the screen.
    pub is_upward: bool,
}

/// A view, with its options.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// A table.
    Table {
        /// Its rows.
        rows: Rows,
        /// Their order.
        order: Order,
    },
    /// A call tree.
    Tree(Direction),
    /// A flame graph.
    Flame(ShownFlame),
    /// The callers and the callees of the function with this name.
    Sandwich(String),
    /// The source of a function or a file.
    Source(ShownSource),
    /// Threads, with their values by state.
    States(Order),
    /// The difference to the profiles before.
    Diff {
        /// Its rows.
        rows: Rows,
        /// The values that are compared.
        values: Values,
        /// The order of the rows.
        order: Order,
    },
    /// The same as a differential flame graph.
    DiffFlame,
    /// The direct callers and callees of the functions that match this regular expression.
    Peek(String),
    /// A table with other columns or rows than those of [`Shown::Table`].
    TextTable(TextTable),
    /// Lines of text that another renderer writes.
    Text(Page),
}

/// A table that the text renderer writes: of packages, of several sample types, with ratios, with
/// values over time, or by several keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextTable {
    /// The parts in which equal frames agree.
    pub granularity: Granularity,
    /// Functions get the names of their packages first.
    pub names_packages: bool,
    /// Keys of the labels that group rows.
    pub labels: Vec<String>,
    /// The order of its rows.
    pub sort: Sort,
    /// The sample types and columns.
    pub columns: ColumnRequest,
    /// A column for each interval of time.
    pub over: Option<OverRequest>,
}

impl TextTable {
    /// True if its columns have sample types of their own.
    pub fn has_types(&self) -> bool {
        self.columns.types.len() > 1 || !self.columns.columns.is_empty()
    }

    /// Its columns, for this sample type if they have none of their own.
    pub fn columns(&self, type_index: usize) -> ColumnRequest {
        let mut columns = self.columns.clone();
        if !self.has_types() {
            columns.types = vec![type_index];
        }
        columns
    }

    fn name(&self) -> String {
        let frames = match self.granularity {
            Granularity { package: true, .. } => Some("packages"),
            Granularity { line: true, .. } => Some("lines"),
            Granularity { function: true, .. } => Some("functions"),
            Granularity::FILES => Some("files"),
            Granularity { binary: true, .. } => Some("binaries"),
            _ => None,
        };
        let labels = self.labels.iter().map(String::as_str);
        let rows = labels.chain(frames).collect::<Vec<_>>().join(", ");
        match self.over {
            Some(_) => format!("{rows} over time"),
            None => rows,
        }
    }
}

/// The function or file of a page of source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownSource {
    /// Its name, or the path of the file.
    pub name: String,
    /// Instructions between the lines.
    pub assembly: bool,
}

/// The rows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Functions.
    Functions,
    /// Source lines.
    Lines,
    /// Source files.
    Files,
    /// Packages; functions that have none stay.
    Packages,
    /// Binaries.
    Binaries,
    /// Values of the label with this key.
    Label(String),
}

/// The values of a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Values {
    /// Self values.
    #[default]
    Own,
    /// Totals.
    Total,
}

impl Rows {
    /// The parts in which equal frames agree.
    pub fn granularity(&self) -> Granularity {
        match self {
            Rows::Functions => Granularity::FUNCTION,
            Rows::Lines => Granularity { line: true, ..Granularity::FUNCTION },
            Rows::Files => Granularity::FILES,
            Rows::Packages => Granularity::PACKAGES,
            Rows::Binaries => Granularity { binary: true, ..Granularity::NONE },
            Rows::Label(_) => Granularity::NONE,
        }
    }

    /// Keys of the labels that group rows.
    pub fn labels(&self) -> Vec<String> {
        match self {
            Rows::Label(key) => vec![key.clone()],
            _ => Vec::new(),
        }
    }

    /// Their name.
    pub fn name(&self) -> String {
        match self {
            Rows::Functions => "functions".to_owned(),
            Rows::Lines => "lines".to_owned(),
            Rows::Files => "files".to_owned(),
            Rows::Packages => "packages".to_owned(),
            Rows::Binaries => "binaries".to_owned(),
            Rows::Label(key) => format!("by {key}"),
        }
    }
}

/// A page of text, by its name in [`crate::report::views`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// Names and lines of each binary.
    Coverage,
    /// Confidence intervals.
    Quality,
    /// Metadata of the file.
    Header,
    /// Threads of a snapshot with their stacks.
    Threads,
}

impl Page {
    /// The page of the view with this name.
    pub fn named(name: &str) -> Option<Page> {
        [Page::Coverage, Page::Quality].into_iter().find(|page| page.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Page::Coverage => "coverage",
            Page::Quality => "quality",
            Page::Header => "header",
            Page::Threads => "threads",
        }
    }
}

/// A filter that was added: one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedFilter {
    /// Its condition.
    pub condition: Condition,
    /// The text of the condition, such as a regular expression.
    pub value: String,
}

/// All conditions, in the order in which they are offered.
pub const CONDITIONS: [Condition; 16] = [
    Condition::Focus,
    Condition::Ignore,
    Condition::Hide,
    Condition::Show,
    Condition::ShowFrom,
    Condition::PruneFrom,
    Condition::TagFocus,
    Condition::TagIgnore,
    Condition::TagShow,
    Condition::TagHide,
    Condition::TagRoot,
    Condition::TagLeaf,
    Condition::Process,
    Condition::Thread,
    Condition::Binary,
    Condition::Time,
];

impl AddedFilter {
    /// The filter that the user typed: `CONDITION=VALUE`, with pprof's spelling of conditions, too.
    pub fn parse(text: &str) -> Result<AddedFilter, String> {
        let Some((name, value)) = text.split_once('=') else {
            return Err("CONDITION=VALUE, such as focus=REGEX".to_owned());
        };
        let wanted = name.trim().replace('_', "-");
        let condition = CONDITIONS.into_iter().find(|condition| condition.name() == wanted);
        let Some(condition) = condition else {
            return Err(format!("no condition {:?}; Tab shows them", name.trim()));
        };
        if value.is_empty() {
            return Err("no value yet".to_owned());
        }
        let added = AddedFilter { condition, value: value.to_owned() };
        added.filter()?;
        Ok(added)
    }

    /// Its text, as the user would type it.
    pub fn text(&self) -> String {
        format!("{}={}", self.condition.name(), self.value)
    }

    /// The sentence about a filter that nothing in the profile meets.
    pub fn unmatched(&self) -> String {
        format!("{}: {}", self.text(), self.condition.nothing_found())
    }

    /// True if it selects a part of the recording, from which the others select.
    pub fn is_time(&self) -> bool {
        self.condition == Condition::Time
    }

    /// The filter. Fails with one line if the text is none.
    pub fn filter(&self) -> Result<Filter, String> {
        let value = &*self.value;
        let regex = || Regex::new(value).map(Some).map_err(|error| regex_reason(&error));
        let tags = || {
            TagMatch::parse(value).map(Some).map_err(|error| match error {
                TagError::Regex(_, error) => regex_reason(&error),
                error @ TagError::TooLarge(_) => error.to_string(),
            })
        };
        let keys = || value.split(',').map(str::to_owned).collect();
        let selector = || Some(Selector::new(value));
        let mut filter = Filter::default();
        match self.condition {
            Condition::Focus => filter.focus = regex()?,
            Condition::Ignore => filter.ignore = regex()?,
            Condition::Show => filter.show = regex()?,
            Condition::Hide => filter.hide = regex()?,
            Condition::ShowFrom => filter.show_from = regex()?,
            Condition::PruneFrom => filter.prune_from = regex()?,
            Condition::TagFocus => filter.tag_focus = tags()?,
            Condition::TagIgnore => filter.tag_ignore = tags()?,
            Condition::TagShow => filter.tag_show = regex()?,
            Condition::TagHide => filter.tag_hide = regex()?,
            Condition::TagRoot => filter.tag_root = keys(),
            Condition::TagLeaf => filter.tag_leaf = keys(),
            Condition::Thread => filter.thread = selector(),
            Condition::Process => filter.process = selector(),
            Condition::Binary => filter.binary = selector(),
            Condition::Time => filter.time = Some(TimeRange::parse(value)?),
        }
        Ok(filter)
    }
}

impl Default for Shown {
    fn default() -> Shown {
        Shown::functions()
    }
}

impl Shown {
    /// The table of functions, which is shown first.
    pub fn functions() -> Shown {
        Shown::table(Rows::Functions)
    }

    /// A table by self values.
    pub fn table(rows: Rows) -> Shown {
        Shown::Table { rows, order: Order::by(Column::SelfValue) }
    }

    /// A flame graph that begins at the upper end, with boxes by name.
    pub fn flame(direction: Direction) -> Shown {
        Shown::Flame(ShownFlame { direction, siblings: Siblings::Name, is_upward: false })
    }

    /// A difference of self values.
    pub fn diff(rows: Rows) -> Shown {
        Shown::Diff { rows, values: Values::Own, order: Order::by(Column::Change) }
    }

    /// The parts in which equal frames agree.
    pub fn granularity(&self) -> Granularity {
        match self {
            Shown::Table { rows, .. } | Shown::Diff { rows, .. } => rows.granularity(),
            Shown::TextTable(table) => table.granularity,
            Shown::Source(_) => Granularity { binary: false, line: true, ..Granularity::FUNCTION },
            _ => Granularity::FUNCTION,
        }
    }

    /// Keys of the labels that group rows.
    pub fn labels(&self) -> Vec<String> {
        match self {
            Shown::Table { rows, .. } | Shown::Diff { rows, .. } => rows.labels(),
            Shown::TextTable(table) => table.labels.clone(),
            _ => Vec::new(),
        }
    }

    /// The order of the rows of a table.
    pub fn sort(&self) -> Sort {
        match self {
            Shown::TextTable(table) => table.sort,
            _ => self.order().map_or_else(Sort::default, Order::sort),
        }
    }

    /// The order of its rows, if that can be chosen.
    pub fn order(&self) -> Option<Order> {
        match self {
            Shown::Table { order, .. } | Shown::Diff { order, .. } | Shown::States(order) => {
                Some(*order)
            }
            _ => None,
        }
    }

    /// The same view in another order.
    pub fn ordered(&self, new: Order) -> Shown {
        let mut shown = self.clone();
        if let Shown::Table { order, .. } | Shown::Diff { order, .. } | Shown::States(order) =
            &mut shown
        {
            *order = new;
        }
        shown
    }

    /// The columns by which its rows can be sorted, from the left.
    pub fn columns(&self) -> Vec<Column> {
        use Column::{After, Before, Change, Name, Probability, Ratio, SelfValue, State, Total};
        match self {
            Shown::Table { .. } => vec![SelfValue, Total, Name],
            Shown::Diff { .. } => vec![Before, After, Change, Ratio, Probability, Name],
            Shown::States(_) => {
                let states = (0..=ThreadState::ALL.len()).map(State);
                [Total].into_iter().chain(states).chain([Name]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Its name for the line at the top.
    pub fn name(&self) -> String {
        match self {
            Shown::Table { rows, .. } => rows.name(),
            Shown::Tree(Direction::Callees) => "call tree".to_owned(),
            Shown::Tree(Direction::Callers) => "callers".to_owned(),
            Shown::Flame(ShownFlame { direction, siblings, .. }) => {
                let callers = if *direction == Direction::Callers { " of callers" } else { "" };
                let heavy = if *siblings == Siblings::LeftHeavy { ", widest first" } else { "" };
                format!("flame graph{callers}{heavy}")
            }
            Shown::Sandwich(name) => format!("sandwich of {name}"),
            Shown::Source(ShownSource { name, assembly: false }) => format!("source of {name}"),
            Shown::Source(ShownSource { name, assembly: true }) => format!("assembly of {name}"),
            Shown::States(_) => "threads by state".to_owned(),
            Shown::Diff { rows, values: Values::Own, .. } => {
                format!("difference, self, {}", rows.name())
            }
            Shown::Diff { rows, values: Values::Total, .. } => {
                format!("difference, total, {}", rows.name())
            }
            Shown::DiffFlame => "differential flame graph".to_owned(),
            Shown::Peek(regex) => format!("callers and callees of {regex}"),
            Shown::TextTable(table) => table.name(),
            Shown::Text(page) => page.name().to_owned(),
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

    #[test]
    fn typed_filters_are_checked() {
        let parse = |text: &str| AddedFilter::parse(text).map(|added| added.text());
        assert_eq!(parse("focus=^a=b$").unwrap(), "focus=^a=b$");
        assert_eq!(parse("show_from=main").unwrap(), "show-from=main");
        assert_eq!(parse("tagfocus=state=running").unwrap(), "tagfocus=state=running");
        assert_eq!(parse("focus=(").unwrap_err(), "unclosed group");
        assert_eq!(parse("tagfocus=key=(").unwrap_err(), "unclosed group");
        assert_eq!(parse("focs=a").unwrap_err(), "no condition \"focs\"; Tab shows them");
        assert_eq!(parse("focus=").unwrap_err(), "no value yet");
        assert!(parse("focus").is_err());
    }
}
