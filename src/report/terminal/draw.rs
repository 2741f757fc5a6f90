//! Draws the interactive views. Nothing is computed here.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::app::{App, Prompt, Purpose};
use super::boxes::cell_boxes;
use super::keys;
use super::model::{Facts, Graph, Model, Table};
use super::page::{Body, PageState};
use super::query::{Query, Rows};
use super::theme::Theme;
use view::{Sort, Tree};

/// The parts of the screen.
struct Parts {
    top: Option<Rect>,
    filters: Option<Rect>,
    body: Rect,
    bottom: Option<Rect>,
}

/// Divides the screen: lines at the top and at the bottom if there is space for them.
fn parts(app: &App, area: Rect) -> Parts {
    let line = |y: u16| Rect { y: area.y + y, height: 1, ..area };
    let has_bars = area.height >= 4;
    let has_filters = area.height >= 6 && !app.page().query.filters.is_empty();
    let above = u16::from(has_bars) + u16::from(has_filters);
    let below = u16::from(has_bars);
    Parts {
        top: has_bars.then(|| line(0)),
        filters: has_filters.then(|| line(1)),
        body: Rect { y: area.y + above, height: area.height - above - below, ..area },
        bottom: has_bars.then(|| line(area.height - 1)),
    }
}

/// The part of the screen that shows the page.
pub fn body(app: &App, area: Rect) -> Rect {
    parts(app, area).body
}

/// Draws everything.
pub fn draw(app: &App, area: Rect, out: &mut Buffer, tick: usize) {
    let Parts { top, filters, body, bottom } = parts(app, area);
    if let Some(top) = top {
        draw_top(app, top, out);
    }
    if let Some(filters) = filters {
        draw_filters(app, filters, out);
    }
    match app.help {
        Some(first) => draw_help(app, first, body, out),
        None => draw_page(app, body, out),
    }
    if let Some(bottom) = bottom {
        draw_bottom(app, bottom, out, tick);
    }
}

fn put(out: &mut Buffer, theme: Theme, area: Rect, text: &str, style: Style) {
    out.set_stringn(area.x, area.y, theme.text(text), usize::from(area.width), style);
}

fn fill(out: &mut Buffer, area: Rect, style: Style) {
    out.set_style(area, style);
}

fn draw_top(app: &App, area: Rect, out: &mut Buffer) {
    let style = app.theme.bar();
    fill(out, area, style);
    let page = app.page();
    let mut text = format!(" prof  {}  {}", app.file, page.query.shown.name());
    if let Some(facts) = facts(page) {
        let kind = facts.profile.sample_types.get(page.query.type_index);
        let kind = kind.map_or("", |kind| facts.profile.str(kind.kind));
        text += &format!("  {kind}  {}", facts.value(facts.kept));
        if facts.kept != facts.total {
            let percent = facts.percent(facts.kept);
            text += &format!(" of {} ({percent:.1}%)", facts.value(facts.total));
        }
    }
    put(out, app.theme, area, &text, style);
    if let Some(live) = &app.live {
        draw_corner(app, &live.text(), area, out);
    }
}

/// Draws a text at the right end of a line.
fn draw_corner(app: &App, text: &str, area: Rect, out: &mut Buffer) {
    let width = u16::try_from(text.width() + 2).unwrap_or(u16::MAX).min(area.width);
    let end = Rect { x: area.x + area.width - width, width, ..area };
    put(out, app.theme, end, &format!(" {text} "), app.theme.bar());
}

fn facts(page: &PageState) -> Option<&Facts> {
    match page.model.as_deref()? {
        Model::Table(table) => Some(&table.facts),
        Model::Graph(graph) => Some(&graph.facts),
        Model::Text(_) => None,
    }
}

fn draw_filters(app: &App, area: Rect, out: &mut Buffer) {
    let filters = app.page().query.filters.iter();
    let all: Vec<_> = filters.map(|f| format!("{}={}", f.condition.name(), f.value)).collect();
    put(out, app.theme, area, &format!(" filters: {}", all.join("  ")), app.theme.strong());
}

/// Keys of the line at the bottom: the five that matter most to a page.
fn hints(query: &Query) -> &'static str {
    use super::query::Shown;
    match query.shown {
        Shown::Table { .. } => "r callers  F flame  + focus  / search  ? help",
        Shown::Tree(_) => "Enter expand  e all  + focus  / search  ? help",
        Shown::Flame(_) => "Enter zoom  Esc out  + focus  / search  ? help",
        Shown::Text(_) => "f functions  t tree  < back  / search  ? help",
    }
}

fn draw_bottom(app: &App, area: Rect, out: &mut Buffer, tick: usize) {
    const SPINNER: [char; 4] = ['|', '/', '-', '\\'];
    let style = app.theme.bar();
    fill(out, area, style);
    let text = match (&app.prompt, &app.message) {
        (Some(Prompt { purpose: Purpose::Search, text }), _) => format!(" /{text}_"),
        (Some(Prompt { purpose: Purpose::Write, text }), _) => {
            format!(" write to (.txt, .svg, .pb.gz): {text}_")
        }
        (None, Some(message)) => format!(" {message}"),
        (None, None) => format!(" {}", hints(&app.page().query)),
    };
    put(out, app.theme, area, &text, style);
    if app.is_busy() && area.width > 4 {
        let spinner = SPINNER[tick % SPINNER.len()].to_string();
        let end = Rect { x: area.x + area.width - 2, width: 2, ..area };
        put(out, app.theme, end, &spinner, style);
    }
}

/// Draws the help from a line on.
fn draw_help(app: &App, first: usize, area: Rect, out: &mut Buffer) {
    let theme = app.theme;
    let help = keys::help(app.live.is_some());
    let keys = help.clone().map(|b| b.keys.width()).max().unwrap_or(0);
    for (y, binding) in (area.y..area.y + area.height).zip(help.skip(first)) {
        let row = Rect { y, height: 1, ..area };
        put(
            out,
            theme,
            row,
            &format!(" {:<keys$}  {}", binding.keys, binding.action),
            Style::new(),
        );
    }
}

fn draw_page(app: &App, area: Rect, out: &mut Buffer) {
    let page = app.page();
    let text = match (&page.error, &page.model) {
        (Some(error), _) => error.as_str(),
        (None, None) if app.profile.is_none() => "reading …",
        (None, None) => "computing …",
        (None, Some(model)) => {
            match &**model {
                Model::Table(table) => draw_table(app, table, area, out),
                Model::Graph(graph) if page.is_flame() => draw_flame(app, graph, area, out),
                Model::Graph(graph) => draw_tree(app, graph, area, out),
                Model::Text(lines) => draw_text(app, lines, area, out),
            }
            return;
        }
    };
    put(out, app.theme, area, &format!(" {text}"), app.theme.faint());
}

/// Says that nothing is shown; returns whether that is so.
fn draw_empty(app: &App, rows: usize, area: Rect, out: &mut Buffer) -> bool {
    if rows == 0 {
        put(out, app.theme, area, " no samples", app.theme.faint());
    }
    rows == 0
}

/// Rows of a list on the screen, below the titles of its columns.
fn rows(app: &App, count: usize, area: Rect) -> impl Iterator<Item = (usize, Rect)> {
    let first = app.page().cursor.first;
    let height = Body { width: area.width, height: area.height }.rows();
    let shown = first..count.min(first + height);
    let top = area.y + 1;
    shown.zip(top..).map(move |(row, y)| (row, Rect { y, height: 1, ..area }))
}

/// The four columns of values.
fn values(facts: &Facts, theme: Theme, own: i64, total: i64) -> Vec<Span<'static>> {
    let percent = |value: i64| {
        let percent = facts.percent(value);
        Span::styled(format!("{percent:>7.2}%"), theme.share(percent))
    };
    let value = |value: i64| {
        let text = theme.text(&facts.value(value)).into_owned();
        Span::raw(format!("{text:>11}"))
    };
    vec![percent(own), value(own), Span::raw(" "), percent(total), value(total), Span::raw("  ")]
}

/// Width of the columns of values.
const VALUES: usize = 8 + 11 + 1 + 8 + 11 + 2;

/// Draws the titles of the columns.
fn titles(app: &App, sort: Option<Sort>, last: &str, area: Rect, out: &mut Buffer) {
    let mark = |of: Sort, text: &str| match sort {
        Some(sort) if sort == of => format!("{}{text}", app.theme.glyph("▾", "*")),
        _ => text.to_owned(),
    };
    let own = mark(Sort::SelfValue, "self");
    let total = mark(Sort::Total, "total");
    let last = mark(Sort::Name, last);
    let text = if is_narrow(area) {
        format!("{:>8}  {last}", "self%")
    } else {
        format!("{:>8}{own:>11} {:>8}{total:>11}  {last}", "self%", "total%")
    };
    put(out, app.theme, area, &text, app.theme.strong());
}

/// True if there is space for one column of values only.
fn is_narrow(area: Rect) -> bool {
    usize::from(area.width) < VALUES + 20
}

/// A row of a list.
struct ListRow<'a> {
    /// Its columns of values.
    values: Vec<Span<'static>>,
    /// Its name.
    name: &'a str,
    /// Appearance of the name.
    style: Style,
    /// The cursor is on it.
    is_selected: bool,
}

/// Draws a row of a list.
fn draw_row(app: &App, list_row: ListRow<'_>, row: Rect, out: &mut Buffer) {
    let ListRow { values, name, style, is_selected } = list_row;
    let mut spans = values;
    if is_narrow(row) && !spans.is_empty() {
        spans.truncate(1);
        spans.push(Span::raw("  "));
    }
    let text = app.theme.text(name);
    let left = app.page().cursor.left;
    let visible: String = if left > 0 { text.chars().skip(left).collect() } else { text.into() };
    match app.search.as_ref().and_then(|search| search.regex.find(&visible)) {
        Some(found) if !found.is_empty() => {
            spans.push(Span::styled(visible[..found.start()].to_owned(), style));
            spans.push(Span::styled(found.as_str().to_owned(), app.theme.found()));
            spans.push(Span::styled(visible[found.end()..].to_owned(), style));
        }
        _ => spans.push(Span::styled(visible, style)),
    }
    out.set_line(row.x, row.y, &Line::from(spans), row.width);
    if is_selected {
        fill(out, row, app.theme.selected());
    }
}

fn draw_table(app: &App, table: &Table, area: Rect, out: &mut Buffer) {
    if draw_empty(app, table.rows.len(), area, out) {
        return;
    }
    let title = match &table.kind {
        Rows::Functions => "function",
        Rows::Lines => "function and line",
        Rows::Binaries => "binary",
        Rows::Label(key) => key,
    };
    let sort = match app.page().query.shown {
        super::query::Shown::Table { sort, .. } => Some(sort),
        _ => None,
    };
    titles(app, sort, title, area, out);
    let facts = &table.facts;
    for (i, row) in rows(app, table.rows.len(), area) {
        let at = &table.rows[i];
        let values = values(facts, app.theme, at.self_value, at.total);
        let mut name = table.name(i).into_owned();
        let frame = facts.frame(at.frame);
        if table.kind == Rows::Functions && !frame.binary_name(&facts.profile).is_empty() {
            name += &format!("  ({})", frame.binary_name(&facts.profile));
        }
        let style = if frame.kernel { app.theme.kernel() } else { Style::new() };
        let is_selected = i == app.page().cursor.selected;
        draw_row(app, ListRow { values, name: &name, style, is_selected }, row, out);
    }
}

fn draw_tree(app: &App, graph: &Graph, area: Rect, out: &mut Buffer) {
    let page = app.page();
    let lines = page.outline.lines();
    if draw_empty(app, lines.len(), area, out) {
        return;
    }
    titles(app, None, "function", area, out);
    for (i, row) in rows(app, lines.len(), area) {
        let line = lines[i];
        let node = graph.tree.node(line.node);
        let values = values(&graph.facts, app.theme, node.self_value, node.total);
        let mark = match graph.ordered.children(line.node) {
            [] => " ",
            _ if page.outline.is_expanded(line.node) => app.theme.glyph("▾", "-"),
            _ => app.theme.glyph("▸", "+"),
        };
        let name = graph.facts.name(node.frame);
        let text = format!("{}{mark} {name}", "  ".repeat(line.indent));
        let kernel = graph.facts.frame(node.frame).kernel;
        let style = if kernel { app.theme.kernel() } else { Style::new() };
        let is_selected = i == page.cursor.selected;
        draw_row(app, ListRow { values, name: &text, style, is_selected }, row, out);
    }
}

/// A number that is the same for the same name.
fn hash(name: &str) -> u64 {
    use std::hash::Hasher;
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write(name.as_bytes());
    hasher.finish() >> 7
}

fn draw_flame(app: &App, graph: &Graph, area: Rect, out: &mut Buffer) {
    let page = app.page();
    let facts = &graph.facts;
    if draw_empty(app, graph.ordered.children(Tree::ROOT).len(), area, out) {
        return;
    }
    let height = usize::from(area.height.saturating_sub(1));
    let first = page.cursor.first;
    for b in cell_boxes(graph, page.zoom, area.width) {
        let Some(y) = b.depth.checked_sub(first).filter(|&y| y < height) else { continue };
        let frame = graph.tree.node(b.node).frame;
        let name = facts.name(frame);
        let found = app.search.as_ref().is_some_and(|search| search.regex.is_match(&name));
        let style = if b.node == page.chosen {
            app.theme.selected()
        } else if found {
            app.theme.found()
        } else {
            app.theme.flame_box(hash(&name), facts.frame(frame).kernel)
        };
        let cell = Rect { x: area.x + b.left, y: area.y + y as u16, width: b.width, height: 1 };
        fill(out, cell, style);
        // A gap between boxes that are wide enough to have a name.
        if b.width > 2 {
            let text = app.theme.text(&name);
            let space = usize::from(b.width - 1);
            out.set_stringn(cell.x, cell.y, text, space, style);
        }
    }
    draw_chosen(app, graph, area, out);
}

/// Draws the line below a flame graph: the selected box with its values.
fn draw_chosen(app: &App, graph: &Graph, area: Rect, out: &mut Buffer) {
    let row = Rect { y: area.y + area.height.saturating_sub(1), height: 1, ..area };
    let page = app.page();
    if page.chosen == Tree::ROOT {
        return;
    }
    let node = graph.tree.node(page.chosen);
    let facts = &graph.facts;
    let text = format!(
        " {} ({:.2}%), self {}: {}",
        facts.value(node.total),
        facts.percent(node.total),
        facts.value(node.self_value),
        facts.name(node.frame)
    );
    put(out, app.theme, row, &text, app.theme.strong());
}

fn draw_text(app: &App, lines: &[String], area: Rect, out: &mut Buffer) {
    for (i, row) in rows(app, lines.len(), area) {
        let is_selected = i == app.page().cursor.selected;
        let values = Vec::new();
        let style = Style::new();
        draw_row(app, ListRow { values, name: &lines[i], style, is_selected }, row, out);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::keys::Action;
    use super::super::model::compute;
    use super::super::query::{Page, Shown};
    use super::super::run::Start;
    use super::super::theme::{Charset, Depth};
    use super::*;
    use profile::{Builder, Column, LabelSetId, Profile};
    use view::testing::{answers, frames_profile, processes};
    use view::{Direction, Sort};

    /// A recursion, names that are long, wide or empty, and losses.
    fn hostile() -> Profile {
        let mut builder = Builder::new(&[("cpu", "nanoseconds"), ("cpu", "nanoseconds")]);
        let long = builder.named_location(&"x".repeat(100_000));
        let wide = builder.named_location(&"中文".repeat(50));
        let empty = builder.named_location("");
        let again = builder.named_location("again");
        builder.add(&[again; 8000], LabelSetId::EMPTY, Column(0), i64::MAX);
        builder.add(&[long, wide, empty], LabelSetId::EMPTY, Column(0), i64::MAX);
        builder.add(&[wide, again], LabelSetId::EMPTY, Column(0), -7);
        builder.add(&[], LabelSetId::EMPTY, Column(1), i64::MIN);
        builder.finish(None)
    }

    fn views() -> Vec<Shown> {
        let table = |rows| Shown::Table { rows, sort: Sort::Total };
        let mut all = vec![
            table(Rows::Functions),
            table(Rows::Lines),
            table(Rows::Binaries),
            table(Rows::Label("process".to_owned())),
        ];
        for direction in [Direction::Callees, Direction::Callers] {
            all.extend([Shown::Tree(direction), Shown::Flame(direction)]);
        }
        all.extend([Page::Coverage, Page::Quality, Page::Header].map(Shown::Text));
        all
    }

    #[test]
    fn every_view_of_every_profile_fits_every_screen() {
        let profiles =
            [answers(), frames_profile(), processes(), hostile(), Profile::default()].map(Arc::new);
        let theme = Theme { depth: Depth::Xterm, charset: Charset::Unicode };
        for profile in &profiles {
            for shown in views() {
                let start =
                    Start { file: "f".to_owned(), shown: shown.clone(), filters: Vec::new() };
                let mut app = App::new(start, theme);
                for command in app.open(profile.clone(), 0) {
                    let super::super::app::Command::Compute(job, query) = command else { continue };
                    app.computed(job, compute(profile, &query).map(Arc::new));
                }
                let keys = [
                    Action::Right,
                    Action::ExpandAll,
                    Action::Go(super::super::cursor::Move::Last),
                    Action::Open,
                    Action::Left,
                    Action::Cancel,
                    Action::CollapseAll,
                ];
                for size in [(0, 0), (1, 1), (20, 5), (80, 24), (300, 3)] {
                    let area = Rect::new(0, 0, size.0, size.1);
                    let page = body(&app, area);
                    app.body = Body { width: page.width, height: page.height };
                    for key in keys {
                        app.act(key);
                        draw(&app, area, &mut Buffer::empty(area), 0);
                    }
                    app.click(size.0 / 2, size.1 / 2);
                }
                assert!(app.page().error.is_none(), "{shown:?}: {:?}", app.page().error);
            }
        }
    }
}
