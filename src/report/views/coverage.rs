//! Shares of each binary with names, lines and whole stacks.

use std::io::{self, Write};

use super::{OutputFormat, Registered, Request, ViewOption, always};
use crate::report::advice::binaries;
use crate::report::{coverage, json};
use view::answer::CoverageAnswer;
use view::{Coverage, Covered, View};

/// `--coverage`
pub const REGISTERED: Registered = Registered {
    name: "coverage",
    option: Some(ViewOption {
        help: "Print the shares with names, lines and whole stacks, by binary",
        long_help: "Print the shares with names, lines and whole stacks, by binary\n\n\
            Includes the reasons why some are missing, and the commands that help.",
        value_name: None,
        conflicts: &["ratio", "columns"],
    }),
    check: always,
    write,
};

fn write(request: &Request<'_>, view: &mut View<'_>, out: &mut dyn Write) -> io::Result<()> {
    let view = &*view;
    let mut model = Coverage::new(view);
    let rows = request.rows();
    let min_percent = request.min_percent.unwrap_or(0.0);
    model.binaries.retain(|b| view.percent(b.total).abs() >= min_percent);
    let all = model.binaries.len();
    if rows > 0 {
        model.binaries.truncate(rows);
    }
    let advisor = binaries::advisor(view, &model, request.file.clone());
    if request.format == OutputFormat::Json {
        let shown = coverage::shown(view, &model);
        let remedies = |b: &Covered| binaries::remedies(view, b, &advisor);
        let answer = CoverageAnswer::new(view, shown.items, shown.left_out, remedies);
        return json::write(out, &answer);
    }
    coverage::write_text(out, view, &model, &mut binaries::once(view, &advisor, None))?;
    let left = all - model.binaries.len();
    if left > 0 {
        writeln!(out, "… and {left} more binaries; -n 0 shows all")?;
    }
    coverage::write_notes(out, view.profile)
}
