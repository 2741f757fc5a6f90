//! Precision of the shares.

use std::io::{self, Write};

use super::{OutputFormat, Registered, Request, ViewOption};
use crate::report::{json, quality};
use view::answer::QualityAnswer;
use view::{Quality, View};

/// `--quality`
pub const REGISTERED: Registered = Registered {
    name: "quality",
    option: Some(ViewOption {
        help: "Print a 95 % confidence interval for each of the top functions",
        long_help: "Print a 95 % confidence interval for each of the top functions\n\n\
            Includes the number of samples, the entropy of the profile, and the number of further \
            samples that halves the intervals.",
        value_name: None,
        conflicts: &["call_graph", "lines", "ratio", "columns"],
    }),
    check,
    write,
};

fn check(request: &Request<'_>) -> Result<(), &'static str> {
    if request.has_usual_rows() {
        Ok(())
    } else {
        Err("--quality reports functions: use --sort self, total or name")
    }
}

fn write(request: &Request<'_>, view: &mut View<'_>, out: &mut dyn Write) -> io::Result<()> {
    let model = Quality::new(view, &request.top());
    match request.format {
        OutputFormat::Json => json::write(out, &QualityAnswer::new(view, &model)),
        OutputFormat::Text => quality::write_text(out, view, &model),
    }
}
