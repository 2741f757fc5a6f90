//! The titles of columns: drawn above a list, and found by a click.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use super::list::is_narrow;
use super::{code, diff, list, put};
use crate::report::terminal::app::App;
use crate::report::terminal::model::{Facts, Model};
use view::query::Column;

/// The title of a column, with the spaces before it.
pub(super) struct Title {
    /// Its text.
    pub(super) text: String,
    /// The column by which a click sorts.
    pub(super) column: Option<Column>,
}

impl Title {
    /// A title at the right end of this many cells, with a mark if the rows are sorted by it.
    pub(super) fn right(app: &App, column: Column, text: &str, width: usize) -> Title {
        let text = format!("{:>width$}", marked(app, column, text));
        Title { text, column: Some(column) }
    }

    /// The title of the last column.
    pub(super) fn last(app: &App, text: &str) -> Title {
        let text = format!("  {}", marked(app, Column::Name, text));
        Title { text, column: Some(Column::Name) }
    }

    /// A text without a mark.
    pub(super) fn plain(column: Option<Column>, text: String) -> Title {
        Title { text, column }
    }
}

/// A title with a mark if the rows are sorted by its column.
fn marked(app: &App, column: Column, text: &str) -> String {
    match app.page().query.shown.order() {
        Some(order) if order.column == column && order.reversed => {
            format!("{}{text}", app.theme.glyph("▴", "^"))
        }
        Some(order) if order.column == column => format!("{}{text}", app.theme.glyph("▾", "*")),
        _ => text.to_owned(),
    }
}

/// The titles of self values, totals and names.
pub(super) fn values(app: &App, facts: &Facts, last: &str, area: Rect) -> Vec<Title> {
    let (own, total) = (Column::SelfValue, Column::Total);
    let own_share = Title::plain(Some(own), format!("{:>8}", "self%"));
    if is_narrow(area) {
        return vec![own_share, Title::last(app, last)];
    }
    let width = facts.value_width();
    vec![
        own_share,
        Title::right(app, own, "self", width),
        Title::plain(Some(total), format!("{:>9}", "total%")),
        Title::right(app, total, "total", width),
        Title::last(app, last),
    ]
}

/// The titles of a page; none, if it has no columns.
fn of_page(app: &App, area: Rect) -> Vec<Title> {
    let page = app.page();
    match page.model.as_deref() {
        Some(Model::Table(table)) => list::table_titles(app, table, area),
        Some(Model::Graph(graph)) if !page.is_flame() => list::tree_titles(app, graph, area),
        Some(Model::States(threads)) => list::state_titles(app, threads, area),
        Some(Model::Code(found)) => code::titles(found, area),
        Some(Model::Diff(found)) => diff::titles(app, found, area),
        _ => Vec::new(),
    }
}

/// Draws the titles of a page.
pub(super) fn draw(app: &App, area: Rect, out: &mut Buffer) {
    let text: String = of_page(app, area).into_iter().map(|title| title.text).collect();
    put(out, app.theme, area, &text, app.theme.strong());
}

/// The column whose title is at this cell of the page's first line.
pub fn column_at(app: &App, area: Rect, x: u16) -> Option<Column> {
    let mut end = 0;
    let title = of_page(app, area).into_iter().find(|title| {
        end += title.text.width();
        usize::from(x) < end
    });
    title?.column
}
