//! The callers and the callees of a function.

use std::io::{self, Write};

use super::{OutputFormat, Registered, Request, ViewOption, needs_functions, tree};
use crate::report::text::{TreeOptions, quoted, regex_reason};
use crate::report::{json, sandwich};
use view::answer::SandwichAnswer;
use view::{Sandwich, View, named_frames};

/// `--sandwich FUNCTION`
pub const REGISTERED: Registered = Registered {
    name: "sandwich",
    option: Some(ViewOption {
        help: "Print all callers of FUNCTION, and all that it calls",
        long_help: "Print all callers of FUNCTION, and all that it calls\n\n\
            As two call trees, each merged over all places where FUNCTION occurs. FUNCTION is a \
            name, or else a regular expression. In a recursion, the outermost call counts.",
        value_name: Some("FUNCTION"),
        conflicts: &["call_graph", "ratio", "columns"],
    }),
    check: needs_functions,
    write,
};

fn write(request: &Request<'_>, view: &mut View<'_>, out: &mut dyn Write) -> io::Result<()> {
    let wanted = request.argument.unwrap_or_default();
    let functions = named_frames(view, wanted).map_err(|error| {
        let reason = regex_reason(&error);
        super::invalid(format!(
            "--sandwich: no function has the name {}, and it is not a regular expression: \
             {reason}",
            quoted(wanted)
        ))
    })?;
    if functions.is_empty() {
        return Err(super::invalid(format!("--sandwich: no function matches {}", quoted(wanted))));
    }
    let min_percent = tree::min_percent(request);
    let model = Sandwich::new(view, &functions, tree::cut(min_percent));
    match request.format {
        OutputFormat::Json => json::write(out, &SandwichAnswer::new(view, &model, &functions)),
        OutputFormat::Text => {
            let limit = request.rows.unwrap_or(tree::DEFAULT_LINES);
            let options = TreeOptions { limit, min_percent };
            sandwich::write_text(out, view, &model, &functions, options)
        }
    }
}
