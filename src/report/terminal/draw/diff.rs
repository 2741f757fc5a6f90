//! A difference in cells: what does not exceed sampling error is faint.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;
use unicode_width::UnicodeWidthStr;

use super::list::{ListRow, RowName, Shortening, draw_empty, draw_row, is_narrow, row_title, rows};
use super::titles::{self, Title};
use crate::report::diff::{difference, p_value, ratio, value};
use crate::report::terminal::app::App;
use crate::report::terminal::difference::DiffTable;
use view::query::{Column, Shown, Values};
use view::{Change, Diff, Scale};

/// Width of a column of values, unless one is longer, and if one is very long.
const VALUE_WIDTH: usize = 10;
const MAX_VALUE_WIDTH: usize = 40;

/// The titles of a difference.
pub(super) fn titles(app: &App, found: &DiffTable, area: Rect) -> Vec<Title> {
    let name = Title::last(app, row_title(&found.kind));
    let width = value_width(&found.diff);
    let title = |column: Column, text: &str, width: usize| Title::right(app, column, text, width);
    if is_narrow(area) {
        return vec![title(Column::Change, "change", width), name];
    }
    vec![
        title(Column::Before, "before", width),
        title(Column::After, "after", width + 1),
        title(Column::Change, "change", width + 1),
        title(Column::Ratio, "ratio", 9),
        title(Column::Probability, "p", 9),
        name,
    ]
}

/// Draws a difference.
pub(super) fn draw_diff(app: &App, found: &DiffTable, area: Rect, out: &mut Buffer) {
    if draw_empty(app, found.diff.rows.len(), area, out) {
        return;
    }
    let shown_values = match app.page().query.shown {
        Shown::Diff { values, .. } => values,
        _ => Values::Own,
    };
    titles::draw(app, area, out);
    let width = value_width(&found.diff);
    for (i, row) in rows(app, found.diff.rows.len(), area) {
        let at = &found.diff.rows[i];
        let change = at.change(shown_values);
        let style = if at.is_significant() { Style::new() } else { app.theme.faint() };
        let is_narrow = is_narrow(row);
        let values = values(app, &found.diff, Cells { change, width, is_narrow });
        let name = RowName {
            before: "",
            name: &found.name(i),
            after: &found.binary(i).map(|binary| format!("  ({binary})")).unwrap_or_default(),
            shortening: match found.function(i) {
                Some(_) => Shortening::Function,
                None => Shortening::Middle,
            },
        };
        let is_selected = i == app.page().cursor.selected;
        draw_row(app, ListRow { values, name, style, is_selected }, row, out);
    }
}

/// Width of a column of values.
fn value_width(diff: &Diff) -> usize {
    let rows = diff.rows.iter().flat_map(|row| [&row.itself, &row.total]);
    let values = rows.flat_map(|change| [change.before.abs(), change.after.abs()]);
    let largest = values.fold(0.0, f64::max);
    let suffix = if diff.scale == Scale::PerSecond { "/s".len() } else { 0 };
    value(diff, -largest).width().clamp(VALUE_WIDTH + suffix, MAX_VALUE_WIDTH)
}

/// The values of a row.
struct Cells<'a> {
    change: &'a Change,
    /// Width of a value.
    width: usize,
    /// There is space for the change only.
    is_narrow: bool,
}

fn values(app: &App, diff: &Diff, cells: Cells<'_>) -> Vec<Span<'static>> {
    let Cells { change, width, is_narrow } = cells;
    let style = if change.is_significant() {
        app.theme.change(change.difference())
    } else {
        app.theme.faint()
    };
    let cell = |text: String, width: usize| {
        let text = app.theme.text(&text).into_owned();
        Span::styled(format!("{text:>width$}"), style)
    };
    if is_narrow {
        return vec![cell(difference(diff, change), width)];
    }
    vec![
        cell(value(diff, change.before), width),
        cell(value(diff, change.after), width + 1),
        cell(difference(diff, change), width + 1),
        cell(ratio(change), 9),
        cell(p_value(change), 9),
        Span::raw("  "),
    ]
}
