//! Pages as text and JSON, as `prof report` and the other commands write them.

use std::io;

use super::difference::DiffTable;
use super::model::Context;
use super::source;
use crate::report::answer::{self, OutputFormat};
use crate::report::diff::{DiffLayout, lines as diff_lines};
use crate::report::summary;
use view::query::{Limits, Query, Rows, Shown, ShownFlame, Table};
use view::{Granularity, Part};

/// Most stacks of a page of stacks.
const MOST_STACKS: usize = 1000;

/// The lines of a file: what the profile is, its filters, and the lines of the page.
pub fn with_summary(context: &Context, query: &Query) -> Result<Vec<String>, String> {
    let lines = rendered(context, query)?;
    if matches!(query.shown, Shown::Diff { .. } | Shown::DiffFlame(_)) {
        // They begin with the files.
        return Ok(lines);
    }
    let part = context.part(query)?;
    let text = as_text(query, OutputFormat::WHOLE_TEXT);
    let mut view = text.view(&part.profile, &context.cancel);
    view.set_left_out(&part);
    let mut all = summary::lines(&view);
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
        Shown::DiffFlame(_) => {
            let shown = Shown::diff(Rows::Functions);
            rendered(context, &Query { shown, ..query.clone() })
        }
        Shown::Diff { rows, .. } => {
            let difference = DiffTable::new(context, query, rows)?;
            let layout = DiffLayout {
                files: difference.files.clone(),
                granularity: rows.granularity(),
                labels: rows.labels().to_vec(),
                children: true,
                rows: 0,
            };
            let lines = diff_lines(&difference.diff, &layout);
            Ok(lines.into_iter().map(|line| line.text).collect())
        }
        Shown::Source(shown) => source::text(context, query, shown),
        _ => render(context, &context.part(query)?, query),
    }
}

/// The lines of a page of this part.
pub fn render(context: &Context, part: &Part, query: &Query) -> Result<Vec<String>, String> {
    let mut out = Bounded { text: Vec::new(), is_full: false };
    let written = write(context, part, query, OutputFormat::WHOLE_TEXT, &mut out);
    if !out.is_full {
        written.map_err(|error| error.to_string())?;
    }
    let text = String::from_utf8_lossy(&out.text);
    let mut lines: Vec<String> =
        text.lines().map(|line| sys::printed::line(line).into_owned()).collect();
    if out.is_full {
        lines.push("… the rest is beyond 4 MiB of text; --stdio prints it".to_owned());
    }
    Ok(lines)
}

/// Most bytes of a page of text.
const MOST_TEXT: usize = 4 << 20;

/// The begin of a text.
struct Bounded {
    text: Vec<u8>,
    is_full: bool,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.is_full |= self.text.len() + bytes.len() > MOST_TEXT;
        if self.is_full {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a page of this part, as `prof report` does.
pub fn write(
    context: &Context,
    part: &Part,
    query: &Query,
    format: OutputFormat,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let query = &as_text(query, format);
    let answer = context.answer(part, query).map_err(io::Error::other)?;
    answer::write(out, &answer, query, format, None)
}

/// The query of `prof report` for a page.
fn as_text(query: &Query, format: OutputFormat) -> Query {
    let mut query = query.clone();
    match &mut query.shown {
        Shown::Table(Table { over: Some(intervals), .. }) => {
            intervals.most = format.most_intervals();
        }
        Shown::Flame(ShownFlame { direction, .. }) => query.shown = Shown::Tree(*direction),
        // As prof threads.
        Shown::Threads if format == OutputFormat::Json => {
            let each = Granularity { line: true, inlined: true, ..Granularity::FUNCTION };
            query.granularity = Some(each);
        }
        _ => {}
    }
    let rows = match query.shown {
        Shown::Traces if format == OutputFormat::WHOLE_TEXT => MOST_STACKS,
        _ => 0,
    };
    query.limits = Limits { rows, ..format.limits(&query.shown) };
    query
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_page_of_text_has_a_limit() {
        let mut out = Bounded { text: Vec::new(), is_full: false };
        let line = [b'x'; 1 << 16];
        let written = (0..100).take_while(|_| out.write_all(&line).is_ok()).count();
        assert_eq!((written, out.is_full, out.text.len()), (64, true, MOST_TEXT));
    }
}
