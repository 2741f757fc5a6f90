//! Values of each thread by its state.

use std::io::{self, Write};

use super::{OutputFormat, Registered, Request, ViewOption};
use crate::report::{json, states};
use view::answer::StatesAnswer;
use view::{ThreadStates, View};

/// `--states`
pub const REGISTERED: Registered = Registered {
    name: "states",
    option: Some(ViewOption {
        help: "Print the values of each thread by its state",
        long_help: "Print the values of each thread by its state\n\n\
            States are those of prof record -T wall: running, runnable, sleeping, disk and stopped. \
            Threads are in the order of their totals, or of their names with --sort name.",
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
        Err("--states reports threads: use --sort total or name")
    }
}

fn write(request: &Request<'_>, view: &mut View<'_>, out: &mut dyn Write) -> io::Result<()> {
    let view = &*view;
    let mut model = ThreadStates::new(view);
    states::sort(&mut model, request.order);
    let all = model.rows.len();
    let least = request.min_percent.unwrap_or(0.0);
    model.rows.retain(|row| view.percent(row.total).abs() >= least);
    if request.rows() > 0 {
        model.rows.truncate(request.rows());
    }
    match request.format {
        OutputFormat::Json => json::write(out, &StatesAnswer::new(view, &model, all)),
        OutputFormat::Text => states::write_text(out, view, &model, all),
    }
}
