//! The table of functions, binaries, lines or labels.

use std::io::{self, Write};

use super::{OutputFormat, Registered, Request, always};
use crate::report::text::TableOptions;
use crate::report::{json, text};
use view::answer::TableAnswer;
use view::{Columns, View};

/// Without an option.
pub const REGISTERED: Registered = Registered { name: "table", option: None, check: always, write };

fn write(request: &Request<'_>, view: &mut View<'_>, out: &mut dyn Write) -> io::Result<()> {
    let (mut top, columns) = Columns::new(view, &request.top(), &request.columns);
    if request.order.reversed {
        top.rows.reverse();
    }
    let granularity = request.granularity;
    let labels = request.labels.to_vec();
    let options = TableOptions { granularity, children: request.children, labels, columns };
    match request.format {
        OutputFormat::Json => {
            let answer = TableAnswer::new(view, &top, &options.columns, &options.labels);
            json::write(out, &answer)
        }
        OutputFormat::Text => text::write_table(out, view, &top, &options),
    }
}
