//! Source and instructions in cells.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

use super::list::{ListRow, RowName, Shortening, draw_row, is_narrow, rows};
use super::titles::{self, Title};
use crate::report::terminal::app::App;
use crate::report::terminal::source::{Code, CodeRow, Content};

/// The titles of source or instructions.
pub(super) fn titles(code: &Code, area: Rect) -> Vec<Title> {
    let width = place_width(code);
    let text = if is_narrow(area) {
        format!("{:>8}  source", "self%")
    } else {
        format!("{:>8}{:>8} {:>width$}  source", "self%", "total%", "line")
    };
    vec![Title::plain(None, text)]
}

/// Draws source or instructions.
pub(super) fn draw_code(app: &App, code: &Code, area: Rect, out: &mut Buffer) {
    let width = place_width(code);
    titles::draw(app, area, out);
    for (i, row) in rows(app, code.rows.len(), area) {
        let at = &code.rows[i];
        let style = match at.content {
            Content::Note => app.theme.strong(),
            Content::Inlined | Content::Gap => app.theme.faint(),
            Content::Line(_) | Content::Instruction { .. } => Style::new(),
        };
        let is_selected = i == app.page().cursor.selected;
        let width = if is_narrow(row) { None } else { Some(width) };
        let values = values(app, code, at, width);
        let name = RowName::plain(&at.text, Shortening::End);
        draw_row(app, ListRow { values, name, style, is_selected }, row, out);
    }
}

/// Width of the column of line numbers and addresses.
fn place_width(code: &Code) -> usize {
    let addresses = code.rows.iter().filter_map(|row| match row.content {
        Content::Instruction { address, .. } => Some(address),
        _ => None,
    });
    // One more for the mark of skid.
    let longest = addresses.max().map_or(0, |address| format!("~{address:x}").len());
    longest.max(10)
}

/// The columns of a row; without a `width` of places, only the first.
fn values(app: &App, code: &Code, row: &CodeRow, width: Option<usize>) -> Vec<Span<'static>> {
    if row.content == Content::Note {
        return Vec::new();
    }
    let share = |value: i64| {
        let percent = code.facts.percent(value);
        let text = if value == 0 { String::new() } else { format!("{percent:.2}%") };
        Span::styled(format!("{text:>8}"), app.theme.share(percent))
    };
    let Some(width) = width else { return vec![share(row.values.self_value)] };
    let place = match row.content {
        Content::Line(number) if number > 0 => number.to_string(),
        Content::Gap => app.theme.glyph("…", "...").to_owned(),
        Content::Instruction { address, skid: true } => format!("~{address:x}"),
        Content::Instruction { address, skid: false } => format!("{address:x}"),
        _ => String::new(),
    };
    let place = Span::styled(format!(" {place:>width$}  "), app.theme.faint());
    vec![share(row.values.self_value), share(row.values.total), place]
}
