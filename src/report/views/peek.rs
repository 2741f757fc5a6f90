//! The direct callers and callees of functions.

use std::io::{self, Write};

use regex::Regex;

use super::{OutputFormat, Registered, Request, ViewOption, needs_functions};
use crate::report::text::{quoted, regex_reason};
use crate::report::{json, peek};
use view::answer::PeekAnswer;
use view::{Granularity, Peek, View, matching_frames};

/// `--peek REGEX`
pub const REGISTERED: Registered = Registered {
    name: "peek",
    option: Some(ViewOption {
        help: "Print the direct callers and callees of functions that match",
        long_help: "Print the direct callers and callees of functions that match\n\n\
            As pprof's peek: the calls have the value of the samples that contain them, and its \
            percentage of the function's total.",
        value_name: Some("REGEX"),
        conflicts: &["call_graph", "ratio", "columns"],
    }),
    check: needs_functions,
    write,
};

fn write(request: &Request<'_>, view: &mut View<'_>, out: &mut dyn Write) -> io::Result<()> {
    let wanted = request.argument.unwrap_or_default();
    let regex = Regex::new(wanted).map_err(|error| {
        let reason = regex_reason(&error);
        super::invalid(format!(
            "--peek: {}: it is not a regular expression: {reason}",
            quoted(wanted)
        ))
    })?;
    // As in pprof, functions of one name are one function, whatever their binaries.
    if request.granularity == Granularity::FUNCTION {
        let by_name = View::new(view.profile, view.type_index, Granularity::SYMBOL);
        return write_view(request, &by_name, &regex, out);
    }
    write_view(request, view, &regex, out)
}

fn write_view(
    request: &Request<'_>,
    view: &View<'_>,
    regex: &Regex,
    out: &mut dyn Write,
) -> io::Result<()> {
    let functions = matching_frames(view, regex);
    if functions.is_empty() {
        return Err(super::invalid(format!("--peek: no function matches {:?}", regex.as_str())));
    }
    let mut model = Peek::new(view, &functions);
    if let Some(most) = request.rows.filter(|&rows| rows > 0) {
        model.functions.truncate(most);
    }
    match request.format {
        OutputFormat::Json => json::write(out, &PeekAnswer::new(view, &model)),
        OutputFormat::Text => peek::write_text(out, view, &model),
    }
}
