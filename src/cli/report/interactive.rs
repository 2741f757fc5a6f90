//! `prof report` on a terminal: the interactive views.

use std::io::IsTerminal;
use std::process::ExitCode;

use super::super::sort::check_labels;
use super::{Args, DEFAULT_FILE, Plan};
use crate::report::terminal::{self, Opened, Page, Rows, Shown, Start};
use sys::printed;
use view::Granularity;

/// True if an option asks for text.
fn asks_for_text(args: &Args) -> bool {
    args.stdio
        || args.json
        || args.header
        || args.header_only
        || args.output.is_some()
        || args.over.is_some()
        || args.collapse_recursion
        || args.nodecount.is_some()
        || args.percent_limit.is_some()
        || args.columns.is_given()
        || args.filter.sample_type.as_ref().is_some_and(|kinds| kinds.contains(','))
        || args.no_children
}

/// True if the terminal can show the interactive views: it can move its cursor, and there are keys.
pub fn has_terminal() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    !dumb && printed::stdout_is_terminal() && std::io::stdin().is_terminal()
}

/// The first page of the interactive views; `None`: text is printed, because an option asks for it,
/// the terminal cannot show them, or they do not have what the options select.
pub(super) fn start(args: &Args, plan: &Plan) -> Option<Start> {
    // The interactive views find functions by their names.
    if asks_for_text(args) || plan.granularity.package || !has_terminal() {
        return None;
    }
    let sort = plan.order;
    let table = |rows| Some(Shown::Table { rows, sort });
    let shown = match (args.view.chosen, plan.direction, plan.labels.as_slice()) {
        (Some(name), ..) => Page::named(name).map(Shown::Text),
        (None, Some(direction), []) => Some(Shown::Tree(direction)),
        (None, None, [label]) if plan.granularity == Granularity::NONE => {
            table(Rows::Label(label.clone()))
        }
        (None, None, []) => match plan.granularity {
            Granularity { line: true, .. } => table(Rows::Lines),
            Granularity::FUNCTION => table(Rows::Functions),
            Granularity { function: false, binary: true, .. } => table(Rows::Binaries),
            _ => None,
        },
        _ => None,
    };
    let names: Vec<_> = plan.files.iter().map(|file| file.to_string_lossy()).collect();
    let file = if names.is_empty() { DEFAULT_FILE.to_owned() } else { names.join(" ") };
    let file = printed::line(&file).into_owned();
    Some(Start { file, shown: shown?, filters: args.filter.added() })
}

/// Shows the interactive views.
pub(super) fn run(args: Args, plan: Plan, start: Start) -> anyhow::Result<ExitCode> {
    // Wrong options are an error before the screen is entered.
    args.filter.filter()?;
    terminal::run(start, move || {
        let (profile, notes) = args.filter.open(&plan.files)?;
        check_labels(&profile, &plan.must_exist)?;
        let type_index = args.filter.type_index(&profile)?;
        Ok(Opened { profile, type_index, notes })
    })
}
