//! What a page shows: a view with its filters. Everything that a page draws follows from it.

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
        sort: Sort,
    },
    /// A call tree.
    Tree(Direction),
    /// A flame graph.
    Flame(Direction),
    /// Lines of text that another renderer writes.
    Text(Page),
}

/// The rows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Functions.
    Functions,
    /// Source lines.
    Lines,
    /// Binaries.
    Binaries,
    /// Values of the label with this key.
    Label(String),
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

impl AddedFilter {
    /// The filter. Fails with one line if the text is none.
    pub fn filter(&self) -> Result<Filter, String> {
        let value = &*self.value;
        let regex = || Regex::new(value).map(Some).map_err(|error| one_line(&error));
        let tags = || TagMatch::parse(value).map(Some).map_err(|error| error.to_string());
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
    let message = error.to_string();
    message.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

impl Shown {
    /// The table of functions, which is shown first.
    pub fn functions() -> Shown {
        Shown::Table { rows: Rows::Functions, sort: Sort::SelfValue }
    }

    /// The parts in which equal frames agree.
    pub fn granularity(&self) -> Granularity {
        match self {
            Shown::Table { rows: Rows::Lines, .. } => {
                Granularity { line: true, ..Granularity::FUNCTION }
            }
            Shown::Table { rows: Rows::Binaries, .. } => {
                Granularity { binary: true, ..Granularity::NONE }
            }
            Shown::Table { rows: Rows::Label(_), .. } => Granularity::NONE,
            _ => Granularity::FUNCTION,
        }
    }

    /// Keys of the labels that group rows.
    pub fn labels(&self) -> Vec<String> {
        match self {
            Shown::Table { rows: Rows::Label(key), .. } => vec![key.clone()],
            _ => Vec::new(),
        }
    }

    /// The order of rows.
    pub fn sort(&self) -> Sort {
        match self {
            Shown::Table { sort, .. } => *sort,
            _ => Sort::default(),
        }
    }

    /// Its name for the line at the top.
    pub fn name(&self) -> String {
        match self {
            Shown::Table { rows: Rows::Functions, .. } => "functions".to_owned(),
            Shown::Table { rows: Rows::Lines, .. } => "lines".to_owned(),
            Shown::Table { rows: Rows::Binaries, .. } => "binaries".to_owned(),
            Shown::Table { rows: Rows::Label(key), .. } => format!("by {key}"),
            Shown::Tree(Direction::Callees) => "call tree".to_owned(),
            Shown::Tree(Direction::Callers) => "callers".to_owned(),
            Shown::Flame(Direction::Callees) => "flame graph".to_owned(),
            Shown::Flame(Direction::Callers) => "flame graph of callers".to_owned(),
            Shown::Text(page) => page.name().to_owned(),
        }
    }
}

/// A regular expression that matches this text, and nothing else.
pub fn exactly(text: &str) -> String {
    format!("^{}$", regex::escape(text))
}
