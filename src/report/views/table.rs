//! The table of functions, binaries, lines or labels.

use std::io::{self, Write};

use super::{OutputFormat, Registered, Request, always};
use crate::report::text::TableOptions;
use crate::report::{json, text};
use view::{Ratio, Top, View};

/// Without an option.
pub const REGISTERED: Registered = Registered { name: "table", option: None, check: always, write };

fn write(request: &Request<'_>, view: &mut View<'_>, out: &mut dyn Write) -> io::Result<()> {
    let options = request.top();
    let top = Top::new(view, &options);
    let profile = view.profile;
    let granularity = request.granularity;
    let ratio =
        request.quotient.map(|quotient| Ratio::new(profile, quotient, granularity, &top, &options));
    let labels = request.labels.to_vec();
    let options = TableOptions { granularity, children: request.children, labels, ratio };
    match request.format {
        OutputFormat::Json => json::write_table(out, view, &top, &options),
        OutputFormat::Text => text::write_table(out, view, &top, &options),
    }
}
