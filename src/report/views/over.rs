//! The table of values over time.

use std::io::{self, Write};

use super::{OutputFormat, Registered, Request, always};
use crate::report::json;
use crate::report::over::{self, MOST_IN_JSON, MOST_IN_TEXT};
use crate::report::text::TableOptions;
use view::answer::OverAnswer;
use view::{Columns, Over, OverOptions, TopOptions, View};

/// With `--over`.
pub const REGISTERED: Registered = Registered { name: "over", option: None, check: always, write };

fn write(request: &Request<'_>, view: &mut View<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Some(over_request) = request.over else { return Ok(()) };
    let (most, rows) = match request.format {
        OutputFormat::Text => (MOST_IN_TEXT, over::DEFAULT_ROWS),
        OutputFormat::Json => (MOST_IN_JSON, 0),
    };
    let top = TopOptions { limit: request.rows.unwrap_or(rows), ..request.top() };
    let types = &request.columns.types;
    let tables =
        Over::by_type(view, &OverOptions { interval: over_request.interval, most, top }, types);
    let granularity = request.granularity;
    let labels = request.labels.to_vec();
    let options = TableOptions {
        granularity,
        children: request.children,
        labels,
        columns: Columns::default(),
    };
    match request.format {
        OutputFormat::Text => over::write_text(out, view, &tables, over_request, &options),
        OutputFormat::Json => {
            let answer = OverAnswer::new(view, &tables, over_request.from, &options.labels);
            answer.map_or(Ok(()), |answer| json::write(out, &answer))
        }
    }
}
