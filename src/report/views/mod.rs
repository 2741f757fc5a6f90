//! The views of `prof report`: one file each, and one line in [`ALL`]. A view computes a model of
//! [`view`] and writes it as text or JSON.

mod coverage;
mod over;
mod peek;
mod quality;
mod sandwich;
mod states;
mod table;
mod tree;

use std::io::{self, Write};

use super::order::Order;
use super::over::OverRequest;
use view::{ColumnRequest, Direction, Granularity, TopOptions, View};

/// All views.
pub static ALL: [Registered; 8] = [
    table::REGISTERED,
    tree::REGISTERED,
    sandwich::REGISTERED,
    peek::REGISTERED,
    coverage::REGISTERED,
    quality::REGISTERED,
    over::REGISTERED,
    states::REGISTERED,
];

/// The views that can show several sample types.
pub const COLUMNED: [&str; 2] = [table::REGISTERED.name, over::REGISTERED.name];

/// A view, with its option and its functions.
pub struct Registered {
    /// Its name, which is its option, too, unless it has none.
    pub name: &'static str,
    /// Its option.
    pub option: Option<ViewOption>,
    /// Fails with the reason if it cannot show the request.
    pub check: fn(&Request<'_>) -> Result<(), &'static str>,
    /// Writes it.
    pub write: fn(&Request<'_>, &mut View<'_>, &mut dyn Write) -> io::Result<()>,
}

/// The option that selects a view.
pub struct ViewOption {
    /// One line for `-h`.
    pub help: &'static str,
    /// The same with more for `--help`.
    pub long_help: &'static str,
    /// The name of its value, if it has one.
    pub value_name: Option<&'static str>,
    /// Other options, by their names in clap, that have no meaning for it.
    pub conflicts: &'static [&'static str],
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// Text for a terminal.
    Text,
    /// JSON, with exact values.
    Json,
}

/// The arguments of a view.
pub struct Request<'a> {
    /// Text or JSON.
    pub format: OutputFormat,
    /// The value of the view's option.
    pub argument: Option<&'a str>,
    /// Of a call tree; `None`: a table.
    pub direction: Option<Direction>,
    /// The parts in which equal frames agree.
    pub granularity: Granularity,
    /// Keys of labels that group rows.
    pub labels: &'a [String],
    /// The order of rows.
    pub order: Order,
    /// Totals, which include callees, in addition to self values.
    pub children: bool,
    /// Most rows; 0: all; `None`: the view's default.
    pub rows: Option<usize>,
    /// Rows with a smaller share are left out; `None`: the view's default.
    pub min_percent: Option<f64>,
    /// The sample types and columns of a table.
    pub columns: ColumnRequest,
    /// A column for each interval of time.
    pub over: Option<OverRequest>,
    /// The profile's file as a word of a shell, if it is a single one.
    pub file: Option<String>,
}

impl Request<'_> {
    /// Rows of a table without `-n`.
    const DEFAULT_ROWS: usize = 30;

    /// Most rows of a table; 0: all.
    pub fn rows(&self) -> usize {
        self.rows.unwrap_or(match self.format {
            OutputFormat::Text => Request::DEFAULT_ROWS,
            OutputFormat::Json => 0,
        })
    }

    /// True without options that select other rows.
    pub fn has_usual_rows(&self) -> bool {
        self.granularity == Granularity::FUNCTION && self.labels.is_empty()
    }

    /// The options of a table: of functions, or of the requested groups.
    pub fn top(&self) -> TopOptions {
        TopOptions {
            sort: self.order.sort(),
            labels: self.labels.to_vec(),
            limit: self.rows(),
            min_percent: self.min_percent.unwrap_or(0.0),
            self_only: !self.children,
        }
    }
}

/// The view with the option `name`; without one, the table or the tree.
pub fn find(name: Option<&str>, request: &Request<'_>) -> &'static Registered {
    let name = name.unwrap_or(match (request.direction, request.over) {
        (_, Some(_)) => over::REGISTERED.name,
        (Some(_), None) => tree::REGISTERED.name,
        (None, None) => table::REGISTERED.name,
    });
    ALL.iter().find(|view| view.name == name).unwrap_or(&ALL[0])
}

fn always(_request: &Request<'_>) -> Result<(), &'static str> {
    Ok(())
}

/// For views that find functions by their names.
fn needs_functions(request: &Request<'_>) -> Result<(), &'static str> {
    if request.granularity.function && request.labels.is_empty() {
        Ok(())
    } else {
        Err("--sandwich and --peek report functions: use --sort self, total, name or symbol")
    }
}

/// An error in the value of an option.
fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
