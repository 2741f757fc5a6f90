//! What a page shows: a view with its filters. Everything that a page draws follows from it.

use regex::Regex;

use view::{Direction, Filter, Granularity, Selector, Sort, TagMatch};

/// What a page shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Index of the sample type.
    pub type_index: usize,
    /// The filters, in the order in which they were added.
    pub conditions: Vec<Condition>,
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

/// A filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its effect.
    pub effect: Effect,
    /// A regular expression.
    pub pattern: String,
}

/// The effect of a filter, as that of the option of `prof report` with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Only samples with a frame that matches.
    Focus,
    /// No samples with a frame that matches.
    Ignore,
    /// Only frames that match.
    Show,
    /// No frames that match.
    Hide,
    /// No callers of the outermost frame that matches.
    ShowFrom,
    /// No callees of the innermost function that matches.
    PruneFrom,
    /// Only samples with labels that match.
    TagFocus,
    /// No samples with labels that match.
    TagIgnore,
    /// Only labels whose key matches.
    TagShow,
    /// No labels whose key matches.
    TagHide,
    /// Values of labels as outermost frames.
    TagRoot,
    /// Values of labels as innermost frames.
    TagLeaf,
    /// Only samples of a thread.
    Thread,
    /// Only samples of a process.
    Process,
    /// Only samples with a frame in a binary.
    Binary,
}

impl Effect {
    /// Its option without the dashes.
    pub fn name(self) -> &'static str {
        match self {
            Effect::Focus => "focus",
            Effect::Ignore => "ignore",
            Effect::Show => "show",
            Effect::Hide => "hide",
            Effect::ShowFrom => "show-from",
            Effect::PruneFrom => "prune-from",
            Effect::TagFocus => "tagfocus",
            Effect::TagIgnore => "tagignore",
            Effect::TagShow => "tagshow",
            Effect::TagHide => "taghide",
            Effect::TagRoot => "tagroot",
            Effect::TagLeaf => "tagleaf",
            Effect::Thread => "thread",
            Effect::Process => "process",
            Effect::Binary => "binary",
        }
    }
}

impl Condition {
    /// The filter. Fails with one line if the pattern is none.
    pub fn filter(&self) -> Result<Filter, String> {
        let pattern = &*self.pattern;
        let regex = || Regex::new(pattern).map(Some).map_err(|error| one_line(&error));
        let tags = || TagMatch::parse(pattern).map(Some).map_err(|error| error.to_string());
        let keys = || pattern.split(',').map(str::to_owned).collect();
        let selector = || Some(Selector::new(pattern));
        let mut filter = Filter::default();
        match self.effect {
            Effect::Focus => filter.focus = regex()?,
            Effect::Ignore => filter.ignore = regex()?,
            Effect::Show => filter.show = regex()?,
            Effect::Hide => filter.hide = regex()?,
            Effect::ShowFrom => filter.show_from = regex()?,
            Effect::PruneFrom => filter.prune_from = regex()?,
            Effect::TagFocus => filter.tag_focus = tags()?,
            Effect::TagIgnore => filter.tag_ignore = tags()?,
            Effect::TagShow => filter.tag_show = regex()?,
            Effect::TagHide => filter.tag_hide = regex()?,
            Effect::TagRoot => filter.tag_root = keys(),
            Effect::TagLeaf => filter.tag_leaf = keys(),
            Effect::Thread => filter.thread = selector(),
            Effect::Process => filter.process = selector(),
            Effect::Binary => filter.binary = selector(),
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
