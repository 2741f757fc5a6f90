//! Pages as text and JSON, as `prof report` and the other commands write them.

use std::borrow::Cow;
use std::io;

use super::difference::Difference;
use super::model::Context;
use super::query::{Page, Query, Rows, Shown, ShownFlame};
use super::{sandwich, source};
use crate::report::diff::{DiffLayout, lines as diff_lines};
use crate::report::over::OverRequest;
use crate::report::views::{self, OutputFormat, Request};
use crate::report::{json, summary, text, threads};
use profile::Profile;
use view::answer::{HeaderAnswer, ThreadsAnswer};
use view::{Cancel, Granularity, Threads, View};

/// The lines of a file: what the profile is, its filters, and the lines of the page.
pub fn with_summary(context: &Context, query: &Query) -> Result<Vec<String>, String> {
    let lines = rendered(context, query)?;
    if matches!(query.shown, Shown::Diff { .. } | Shown::DiffFlame) {
        // They begin with the files.
        return Ok(lines);
    }
    let part = context.filtered(query)?;
    let mut all = summary::lines(&context.view(&part.profile, query));
    let filters: Vec<String> = query.filters.iter().map(|added| added.text()).collect();
    if !filters.is_empty() {
        all.push(format!("Filters: {}", filters.join("  ")));
    }
    if matches!(query.shown, Shown::Source(_)) {
        all.push(String::new());
    }
    all.extend(lines);
    Ok(all)
}

/// The lines that `prof report` prints for a page.
pub fn rendered(context: &Context, query: &Query) -> Result<Vec<String>, String> {
    match &query.shown {
        Shown::DiffFlame => {
            let shown = Shown::diff(Rows::Functions);
            rendered(context, &Query { shown, ..query.clone() })
        }
        Shown::Diff { rows, .. } => {
            let difference = Difference::new(context, query, rows)?;
            let layout = DiffLayout {
                files: difference.files.clone(),
                granularity: rows.granularity(),
                labels: rows.labels(),
                children: true,
                rows: 0,
            };
            let lines = diff_lines(&difference.diff, &layout);
            Ok(lines.into_iter().map(|line| line.text).collect())
        }
        Shown::Source(shown) => {
            let part = context.filtered(query)?;
            let view = context.view(&part.profile, query);
            source::text(context, &view, shown)
        }
        _ => render(context, &context.filtered(query)?.profile, query),
    }
}

/// The lines of a page of a profile that has been filtered.
pub fn render(context: &Context, profile: &Profile, query: &Query) -> Result<Vec<String>, String> {
    let mut out = Vec::new();
    write(context, profile, query, OutputFormat::Text, &mut out)
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&out);
    Ok(text.lines().map(|line| sys::printed::line(line).into_owned()).collect())
}

/// Writes the threads of a snapshot with their stacks.
fn write_threads(
    cancel: &Cancel,
    profile: &Profile,
    query: &Query,
    format: OutputFormat,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    // As prof threads.
    let each = Granularity { line: true, inlined: true, ..Granularity::FUNCTION };
    let view = |granularity| View::cancelable(profile, query.type_index, granularity, cancel);
    match format {
        OutputFormat::Json => {
            let view = view(each);
            json::write(out, &ThreadsAnswer::new(&view, &Threads::by_stack(&view)))
        }
        OutputFormat::Text => {
            let view = view(query.shown.granularity());
            threads::write(out, &view, &Threads::by_stack(&view))
        }
    }
}

/// Writes a page of what passes the filters, as `prof report` does.
pub fn write(
    context: &Context,
    profile: &Profile,
    query: &Query,
    format: OutputFormat,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let cancel = &context.cancel;
    let granularity = query.shown.granularity();
    let labels = query.shown.labels();
    let (mut columns, mut over) = (view::ColumnRequest::default(), None);
    let mut profile = Cow::Borrowed(profile);
    if let Shown::Table { rows: Rows::Packages, .. } = &query.shown {
        view::name_packages(profile.to_mut());
    }
    if let Shown::TextTable(table) = &query.shown {
        columns = table.columns(query.type_index);
        // Times are relative to the beginning of the selected part.
        over = table.over.map(|over| OverRequest { from: context.start(query), ..over });
        if table.names_packages {
            view::name_packages(profile.to_mut());
        }
    }
    let profile = &*profile;
    let mut argument = None;
    let (name, direction) = match &query.shown {
        Shown::Tree(direction) | Shown::Flame(ShownFlame { direction, .. }) => {
            (None, Some(*direction))
        }
        Shown::Sandwich(function) => {
            argument = Some(sandwich::pattern(profile, function));
            (Some("sandwich"), None)
        }
        Shown::Peek(regex) => {
            argument = Some(regex.clone());
            (Some("peek"), None)
        }
        Shown::States(_) => (Some("states"), None),
        Shown::Text(Page::Header) => {
            let view = View::cancelable(profile, query.type_index, granularity, cancel);
            return match format {
                OutputFormat::Json => json::write(out, &HeaderAnswer::new(&view)),
                OutputFormat::Text => text::write_header(out, profile),
            };
        }
        Shown::Text(Page::Threads) => {
            return write_threads(cancel, profile, query, format, out);
        }
        Shown::Text(page) => (Some(page.name()), None),
        Shown::Table { .. }
        | Shown::TextTable(_)
        | Shown::Source(_)
        | Shown::Diff { .. }
        | Shown::DiffFlame => (None, None),
    };
    let request = Request {
        format,
        direction,
        granularity,
        labels: &labels,
        order: query.shown.order().unwrap_or_else(|| query.shown.sort().into()),
        children: true,
        rows: Some(0),
        min_percent: None,
        columns,
        over,
        argument: argument.as_deref(),
        file: None,
    };
    let mut view = context.view(profile, query);
    (views::find(name, &request).write)(&request, &mut view, out)
}
