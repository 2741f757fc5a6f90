//! The views of a query.

use super::{Column, Order, Values};
use crate::{ColumnRequest, Direction, Granularity, LeafFrames, Siblings, Trim};
use profile::{Profile, ThreadState, label};

/// A view, with its options.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// A table.
    Table(Table),
    /// A call tree.
    Tree(Direction),
    /// A call graph.
    Graph(Trim),
    /// A flame graph.
    Flame(ShownFlame),
    /// The callers and the callees of the functions with this name, or else of those that match it as
    /// a regular expression.
    Sandwich(String),
    /// The same as boxes.
    SandwichFlame {
        /// The name or the regular expression.
        name: String,
        /// The order of the boxes on one box.
        siblings: Siblings,
    },
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
    DiffFlame(ShownFlame),
    /// The direct callers and callees of the functions that match this regular expression.
    Peek(String),
    /// The stacks one by one.
    Traces,
    /// The values of all labels.
    Tags,
    /// Names and lines of each binary.
    Coverage,
    /// Confidence intervals of functions.
    Quality(Order),
    /// Metadata of the file.
    Header,
    /// Threads of a snapshot with their stacks.
    Threads,
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its rows.
    pub rows: Rows,
    /// Their order.
    pub order: Order,
    /// The sample types and columns; without any, the values of the query's sample type.
    pub columns: ColumnRequest,
    /// A column for each interval of time.
    pub over: Option<Intervals>,
}

/// The intervals of a table of values over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// Their length in microseconds.
    pub interval: u64,
    /// Most intervals; they are made wider, if there are more.
    pub most: usize,
    /// The values that are shown.
    pub values: Values,
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
    /// Its boxes are divided by state, if samples have states.
    pub by_state: bool,
}

impl ShownFlame {
    /// Boxes by name, from the upper end, without states.
    pub fn new(direction: Direction) -> ShownFlame {
        ShownFlame { direction, siblings: Siblings::Name, is_upward: false, by_state: false }
    }
}

/// The functions or files whose source is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownSource {
    /// The name of functions; else, if there is no such function, an address of code without a name,
    /// as tables have it; else the path of a file.
    pub name: String,
    /// If false, the name is, in the end, also the last parts of paths of files, or else a regular
    /// expression of names of functions.
    pub is_exact: bool,
    /// Instructions between the lines.
    pub assembly: bool,
}

impl ShownSource {
    /// The lines of what has exactly this name.
    pub fn lines(name: String) -> ShownSource {
        ShownSource { name, is_exact: true, assembly: false }
    }

    /// The same with instructions.
    pub fn assembly(name: String) -> ShownSource {
        ShownSource { assembly: true, ..ShownSource::lines(name) }
    }
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
    /// Others.
    Groups(Groups),
}

/// Rows by frames and labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// The parts in which equal frames agree.
    pub granularity: Granularity,
    /// Keys of the labels.
    pub labels: Vec<String>,
}

impl Groups {
    /// True for functions, by labels.
    pub fn are_functions(&self) -> bool {
        self.granularity == Granularity::FUNCTION
    }

    fn name(&self) -> String {
        let frames = match self.granularity {
            Granularity { package: true, .. } => Some("packages"),
            Granularity { address: true, .. } => Some("addresses"),
            Granularity { line: true, .. } => Some("lines"),
            Granularity { function: true, .. } => Some("functions"),
            Granularity::FILES => Some("files"),
            Granularity { binary: true, .. } => Some("binaries"),
            _ => None,
        };
        let labels = self.labels.iter().map(String::as_str);
        labels.chain(frames).collect::<Vec<_>>().join(", ")
    }
}

impl From<Groups> for Rows {
    /// The rows by the name that they have.
    fn from(groups: Groups) -> Rows {
        let named = match groups.labels.as_slice() {
            [] => vec![Rows::Functions, Rows::Lines, Rows::Files, Rows::Packages, Rows::Binaries],
            [label] => vec![Rows::Label(label.clone())],
            _ => Vec::new(),
        };
        let is_same = |rows: &Rows| rows.granularity() == groups.granularity;
        named.into_iter().find(is_same).unwrap_or(Rows::Groups(groups))
    }
}

impl Rows {
    /// The rows of a table that answer the question of a sample type: of wall time, what threads wait
    /// for, by their state; of locks, who waits for which; of block I/O, who reads or writes which
    /// device. Of other types, and without such labels, functions.
    pub fn usual(profile: &Profile, type_index: usize) -> Rows {
        let labels: &[&str] = match LeafFrames::for_type(profile, type_index) {
            Some(LeafFrames::Scheduler) => &[label::STATE],
            Some(LeafFrames::Locks(_)) => &[label::LOCK, label::KIND],
            Some(LeafFrames::BlockLayer) => &[label::DEVICE, label::PROCESS],
            Some(LeafFrames::Allocator) | None => &[],
        };
        let there = profile.labels.keys();
        let is_there = |name: &&&str| there.iter().any(|&key| profile.str(key) == **name);
        let labels = labels.iter().filter(is_there).map(|&name| name.to_owned()).collect();
        Rows::from(Groups { granularity: Granularity::FUNCTION, labels })
    }

    /// The parts in which equal frames agree.
    pub fn granularity(&self) -> Granularity {
        match self {
            Rows::Functions => Granularity::FUNCTION,
            Rows::Lines => Granularity { line: true, ..Granularity::FUNCTION },
            Rows::Files => Granularity::FILES,
            Rows::Packages => Granularity::PACKAGES,
            Rows::Binaries => Granularity { binary: true, ..Granularity::NONE },
            Rows::Label(_) => Granularity::NONE,
            Rows::Groups(groups) => groups.granularity,
        }
    }

    /// Keys of the labels that group rows.
    pub fn labels(&self) -> &[String] {
        match self {
            Rows::Label(key) => std::slice::from_ref(key),
            Rows::Groups(groups) => &groups.labels,
            _ => &[],
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
            Rows::Groups(groups) => groups.name(),
        }
    }
}

impl Table {
    /// The values of the query's sample type.
    pub fn new(rows: Rows, order: Order) -> Table {
        Table { rows, order, columns: ColumnRequest::default(), over: None }
    }

    /// True if its columns have sample types of their own.
    pub fn has_types(&self) -> bool {
        self.columns.types.len() > 1 || !self.columns.columns.is_empty()
    }

    /// True if it has the values of one sample type for one kind of rows, and nothing else.
    pub fn is_plain(&self) -> bool {
        let has_columns = self.has_types() || !self.columns.quotients.is_empty();
        let is_kind = !matches!(&self.rows, Rows::Groups(groups) if !groups.are_functions());
        !has_columns && self.over.is_none() && is_kind
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
        let over = if self.over.is_some() { " over time" } else { "" };
        self.rows.name() + over
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
        Shown::Table(Table::new(rows, Order::by(Column::SelfValue)))
    }

    /// A flame graph that begins at the upper end, with boxes by name.
    pub fn flame(direction: Direction) -> Shown {
        Shown::Flame(ShownFlame::new(direction))
    }

    /// A differential flame graph of callees.
    pub fn diff_flame() -> Shown {
        Shown::DiffFlame(ShownFlame::new(Direction::Callees))
    }

    /// A difference of self values.
    pub fn diff(rows: Rows) -> Shown {
        Shown::Diff { rows, values: Values::Own, order: Order::by(Column::Change) }
    }

    /// The rows of a table or a difference.
    pub fn rows(&self) -> Option<&Rows> {
        match self {
            Shown::Table(Table { rows, .. }) | Shown::Diff { rows, .. } => Some(rows),
            _ => None,
        }
    }

    /// The parts in which equal frames agree.
    pub fn granularity(&self) -> Granularity {
        match self {
            // As in pprof, functions of one name are one function, whatever their binaries.
            Shown::Peek(_) | Shown::Graph(_) => Granularity::SYMBOL,
            Shown::Source(_) => Granularity { binary: false, line: true, ..Granularity::FUNCTION },
            Shown::Traces => Granularity { inlined: true, ..Granularity::FUNCTION },
            _ => self.rows().map_or(Granularity::FUNCTION, Rows::granularity),
        }
    }

    /// Keys of the labels that group rows.
    pub fn labels(&self) -> &[String] {
        self.rows().map_or(&[], Rows::labels)
    }

    /// True if its values can be means: they are not widths, shares or facts.
    pub fn has_means(&self) -> bool {
        matches!(
            self,
            Shown::Table(_)
                | Shown::Tree(_)
                | Shown::Sandwich(_)
                | Shown::Peek(_)
                | Shown::States(_)
                | Shown::Source(_)
                | Shown::Traces
                | Shown::Tags
        )
    }

    /// The order of its rows, if it has one.
    pub fn order(&self) -> Option<Order> {
        match self {
            Shown::Table(Table { order, .. })
            | Shown::Diff { order, .. }
            | Shown::States(order)
            | Shown::Quality(order) => Some(*order),
            _ => None,
        }
    }

    /// The same, if another one can be chosen: one of [`Shown::columns`].
    pub fn chosen_order(&self) -> Option<Order> {
        self.order().filter(|_| !self.columns().is_empty())
    }

    /// The same view in another order.
    pub fn ordered(&self, new: Order) -> Shown {
        let mut shown = self.clone();
        if let Shown::Table(Table { order, .. })
        | Shown::Diff { order, .. }
        | Shown::States(order) = &mut shown
        {
            *order = new;
        }
        shown
    }

    /// The columns by which its rows can be sorted, from the left.
    pub fn columns(&self) -> Vec<Column> {
        use Column::{After, Before, Change, Name, Probability, Ratio, SelfValue, State, Total};
        match self {
            Shown::Table(table) if table.is_plain() => vec![SelfValue, Total, Name],
            Shown::Diff { .. } => vec![Before, After, Change, Ratio, Probability, Name],
            Shown::States(_) => {
                let states = (0..=ThreadState::ALL.len()).map(State);
                [Total].into_iter().chain(states).chain([Name]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Its name for a title.
    pub fn name(&self) -> String {
        match self {
            Shown::Table(table) => table.name(),
            Shown::Tree(Direction::Callees) => "call tree".to_owned(),
            Shown::Tree(Direction::Callers) => "callers".to_owned(),
            Shown::Graph(_) => "call graph".to_owned(),
            Shown::Flame(ShownFlame { direction, siblings, .. }) => {
                let callers = if *direction == Direction::Callers { " of callers" } else { "" };
                let heavy = if *siblings == Siblings::LeftHeavy { ", widest first" } else { "" };
                format!("flame graph{callers}{heavy}")
            }
            Shown::Sandwich(name) | Shown::SandwichFlame { name, .. } => {
                format!("sandwich of {name}")
            }
            Shown::Source(ShownSource { name, assembly: false, .. }) => {
                format!("source of {name}")
            }
            Shown::Source(ShownSource { name, assembly: true, .. }) => {
                format!("assembly of {name}")
            }
            Shown::States(_) => "threads by state".to_owned(),
            Shown::Diff { rows, values: Values::Own, .. } => {
                format!("difference, self, {}", rows.name())
            }
            Shown::Diff { rows, values: Values::Total, .. } => {
                format!("difference, total, {}", rows.name())
            }
            Shown::DiffFlame(_) => "differential flame graph".to_owned(),
            Shown::Peek(regex) => format!("callers and callees of {regex}"),
            Shown::Traces => "stacks".to_owned(),
            Shown::Tags => "labels".to_owned(),
            Shown::Coverage => "coverage".to_owned(),
            Shown::Quality(_) => "quality".to_owned(),
            Shown::Header => "header".to_owned(),
            Shown::Threads => "threads".to_owned(),
        }
    }
}
