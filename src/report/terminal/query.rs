//! What a page shows: a view with its filters. Everything that a page draws follows from it.

use profile::ThreadState;
use regex::Regex;
use view::{Condition, Direction, Filter, Granularity, Selector, Sort, TagMatch};

/// What a page shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Index of the sample type.
    pub type_index: usize,
    /// The filters, in the order in which they were added.
    pub filters: Vec<AddedFilter>,
    /// The view.
    pub shown: Shown,
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
    Flame(Direction),
    /// The callers and the callees of the function with this name.
    Sandwich(String),
    /// The source of a function or a file.
    Source(SourceOf),
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
    /// Lines of text that another renderer writes.
    Text(Page),
}

/// The function or file of a page of source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceOf {
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

impl Rows {
    /// The parts in which equal frames agree.
    pub fn granularity(&self) -> Granularity {
        match self {
            Rows::Functions => Granularity::FUNCTION,
            Rows::Lines => Granularity { line: true, ..Granularity::FUNCTION },
            Rows::Files => Granularity::FILES,
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
pub const CONDITIONS: [Condition; 15] = [
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

    /// The filter. Fails with one line if the text is none.
    pub fn filter(&self) -> Result<Filter, String> {
        let value = &*self.value;
        let regex = || Regex::new(value).map(Some).map_err(|error| one_line(&error));
        let tags =
            || TagMatch::parse(value).map(Some).map_err(|error| last_line(&error.to_string()));
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
        }
        Ok(filter)
    }
}

/// The last line of an error of a regular expression, which says what is wrong.
pub fn one_line(error: &regex::Error) -> String {
    last_line(&error.to_string())
}

fn last_line(message: &str) -> String {
    message.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
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

    /// A difference of self values.
    pub fn diff(rows: Rows) -> Shown {
        Shown::Diff { rows, values: Values::Own, order: Order::by(Column::Change) }
    }

    /// The parts in which equal frames agree.
    pub fn granularity(&self) -> Granularity {
        match self {
            Shown::Table { rows, .. } | Shown::Diff { rows, .. } => rows.granularity(),
            Shown::Source(_) => Granularity { binary: false, line: true, ..Granularity::FUNCTION },
            _ => Granularity::FUNCTION,
        }
    }

    /// Keys of the labels that group rows.
    pub fn labels(&self) -> Vec<String> {
        match self {
            Shown::Table { rows, .. } | Shown::Diff { rows, .. } => rows.labels(),
            _ => Vec::new(),
        }
    }

    /// The order of the rows of a table.
    pub fn sort(&self) -> Sort {
        self.order().map_or_else(Sort::default, Order::sort)
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
            Shown::Flame(Direction::Callees) => "flame graph".to_owned(),
            Shown::Flame(Direction::Callers) => "flame graph of callers".to_owned(),
            Shown::Sandwich(name) => format!("sandwich of {name}"),
            Shown::Source(SourceOf { name, assembly: false }) => format!("source of {name}"),
            Shown::Source(SourceOf { name, assembly: true }) => format!("assembly of {name}"),
            Shown::States(_) => "threads by state".to_owned(),
            Shown::Diff { rows, values: Values::Own, .. } => {
                format!("difference, self, {}", rows.name())
            }
            Shown::Diff { rows, values: Values::Total, .. } => {
                format!("difference, total, {}", rows.name())
            }
            Shown::DiffFlame => "differential flame graph".to_owned(),
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
