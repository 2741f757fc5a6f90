//! Lists: titles of columns, and rows of values and a name.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::titles::{self, Title};
use super::{fill, put};
use crate::report::shorten::{self, LEAST_NAME};
use crate::report::states;
use crate::report::terminal::app::App;
use crate::report::terminal::empty;
use crate::report::terminal::model::{Facts, Graph, SMALL_BRANCH, Table, ThreadTable};
use crate::report::terminal::outline::branches;
use crate::report::terminal::page::Body;
use crate::report::terminal::theme::Theme;
use view::Direction;
use view::query::{Column, Rows, Shown};

/// Draws why there are no rows, and what to do; returns whether that is so.
pub(super) fn draw_empty(app: &App, rows: usize, area: Rect, out: &mut Buffer) -> bool {
    if rows > 0 {
        return false;
    }
    // A recording may have no samples yet.
    let is_live = app.live.is_some() && app.page().query.filters.is_empty();
    let lines = if is_live { vec!["no samples".to_owned()] } else { empty::reasons(app.page()) };
    for (y, text) in (area.y..area.y + area.height).zip(lines) {
        let row = Rect { y, height: 1, ..area };
        put(out, app.theme, row, &format!(" {text}"), app.theme.faint());
    }
    true
}

/// Rows of a list on the screen, below the titles of its columns.
pub(super) fn rows(app: &App, count: usize, area: Rect) -> impl Iterator<Item = (usize, Rect)> {
    let first = app.page().cursor.first;
    let height = Body { width: area.width, height: area.height }.rows();
    let shown = first..count.min(first + height);
    let top = area.y + 1;
    shown.zip(top..).map(move |(row, y)| (row, Rect { y, height: 1, ..area }))
}

/// The four columns of values.
fn values(facts: &Facts, theme: Theme, own: i64, total: i64) -> Vec<Span<'static>> {
    let width = facts.value_width();
    let percent = |value: i64| {
        let percent = facts.percent(value);
        Span::styled(format!("{percent:>7.2}%"), theme.share(percent))
    };
    let value = |value: i64| {
        let text = theme.text(&facts.value(value)).into_owned();
        Span::raw(format!("{text:>width$}"))
    };
    vec![percent(own), value(own), Span::raw(" "), percent(total), value(total), Span::raw("  ")]
}

/// Width of the columns of values, unless one is longer.
const VALUES: usize = 8 + 11 + 1 + 8 + 11 + 2;

/// True if there is space for one column of values only.
pub(super) fn is_narrow(area: Rect) -> bool {
    usize::from(area.width) < VALUES + 20
}

/// A name in a row, and the texts around it.
#[derive(Clone, Copy)]
pub(super) struct RowName<'a> {
    /// Labels or branches before it.
    pub(super) before: &'a str,
    /// The name.
    pub(super) name: &'a str,
    /// The binary behind it.
    pub(super) after: &'a str,
    /// How it becomes shorter.
    pub(super) shortening: Shortening,
}

/// How a name becomes shorter that its row has no room for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shortening {
    /// As a function's name: without template arguments, then in the middle.
    Function,
    /// In the middle.
    Middle,
    /// At the right.
    End,
}

impl RowName<'_> {
    /// A name alone.
    pub(super) fn plain(name: &str, shortening: Shortening) -> RowName<'_> {
        RowName { before: "", name, after: "", shortening }
    }

    /// Its text in this many columns. What is behind it is left out rather than most of the name.
    pub(super) fn text(self, theme: Theme, room: usize) -> String {
        let RowName { before, name, after, shortening } = self;
        let [before, name, after] = [before, name, after].map(|text| theme.text(text));
        if before.width() + name.width() + after.width() <= room || shortening == Shortening::End {
            return format!("{before}{name}{after}");
        }
        let room = room.saturating_sub(before.width());
        let beside = room.saturating_sub(after.width());
        let has_room = beside >= name.width().min(LEAST_NAME);
        let (most, after) = if has_room { (beside, &*after) } else { (room, "") };
        let name = match shortening {
            Shortening::Function => shorten::label(&name, most),
            Shortening::Middle | Shortening::End => shorten::middle(&name, most),
        };
        format!("{before}{}{after}", theme.text(&name))
    }
}

/// A row of a list.
pub(super) struct ListRow<'a> {
    /// Its columns of values.
    pub(super) values: Vec<Span<'static>>,
    /// Its name.
    pub(super) name: RowName<'a>,
    /// Appearance of the name.
    pub(super) style: Style,
    /// The cursor is on it.
    pub(super) is_selected: bool,
}

/// Draws a row of a list.
pub(super) fn draw_row(app: &App, list_row: ListRow<'_>, row: Rect, out: &mut Buffer) {
    let ListRow { values, name, style, is_selected } = list_row;
    let mut spans = values;
    if is_narrow(row) && !spans.is_empty() {
        spans.truncate(1);
        spans.push(Span::raw("  "));
    }
    let left = app.page().cursor.left;
    let taken: usize = spans.iter().map(Span::width).sum();
    // A row that is moved to the left shows the whole name.
    let room = if left == 0 { usize::from(row.width).saturating_sub(taken) } else { usize::MAX };
    let text = name.text(app.theme, room);
    // A name may be much longer than the screen is wide.
    let visible: String = text.chars().skip(left).take(usize::from(row.width)).collect();
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

/// The title of the column of names.
pub(super) fn row_title(rows: &Rows) -> &str {
    match rows {
        Rows::Functions => "function",
        Rows::Lines => "function and line",
        Rows::Files => "file",
        Rows::Packages => "package",
        Rows::Binaries => "binary",
        Rows::Label(key) => key,
        Rows::Groups(_) => "function",
    }
}

/// The columns of labels that group functions.
struct LabelColumns<'a> {
    keys: &'a [String],
    widths: Vec<usize>,
}

impl LabelColumns<'_> {
    /// Widest column, in cells.
    const MOST_WIDTH: usize = 24;

    /// The space behind a column.
    const GAP: &'static str = "  ";

    /// The columns of a table, as wide as the rows that are shown need.
    fn new<'a>(app: &App, table: &'a Table, area: Rect) -> LabelColumns<'a> {
        let keys = table.kind.labels();
        let keys = if table.are_functions() { keys } else { &[] };
        let mut widths: Vec<usize> = keys.iter().map(|key| key.width()).collect();
        for (i, _) in rows(app, table.rows.len(), area) {
            let labels = table.labels(i);
            for (width, label) in widths.iter_mut().zip(&labels) {
                *width = (*width).max(label.width().min(LabelColumns::MOST_WIDTH));
            }
        }
        LabelColumns { keys, widths }
    }

    /// Their titles, which stand before that of the name; none without labels.
    fn title(&self) -> Option<Title> {
        let text = self.row(self.keys);
        let text = text.strip_suffix(LabelColumns::GAP)?;
        Some(Title::plain(None, format!("{}{text}", LabelColumns::GAP)))
    }

    /// The labels of a row.
    fn row(&self, labels: &[String]) -> String {
        let cells = labels.iter().zip(&self.widths).map(|(label, &width)| {
            let text = shorten::middle(label, width);
            let rest = width.saturating_sub(text.width());
            format!("{text}{}{}", " ".repeat(rest), LabelColumns::GAP)
        });
        cells.collect()
    }
}

/// The titles of a table.
pub(super) fn table_titles(app: &App, table: &Table, area: Rect) -> Vec<Title> {
    let mut titles = titles::values(app, &table.facts, row_title(&table.kind), area);
    let at = titles.len() - 1;
    titles.splice(at..at, LabelColumns::new(app, table, area).title());
    titles
}

/// Draws a table.
pub(super) fn draw_table(app: &App, table: &Table, area: Rect, out: &mut Buffer) {
    if draw_empty(app, table.rows.len(), area, out) {
        return;
    }
    let facts = &table.facts;
    let labels = LabelColumns::new(app, table, area);
    titles::draw(app, area, out);
    for (i, row) in rows(app, table.rows.len(), area) {
        let at = &table.rows[i];
        let values = values(facts, app.theme, at.self_value, at.total);
        let frame = facts.frame(at.frame);
        let after = match frame.binary_name(&facts.profile) {
            binary if table.are_functions() && !binary.is_empty() => format!("  ({binary})"),
            _ => String::new(),
        };
        let is_function = table.are_functions();
        let name = RowName {
            before: &labels.row(&table.labels(i)),
            name: &table.name(i),
            after: &after,
            shortening: if is_function { Shortening::Function } else { Shortening::Middle },
        };
        let style = if frame.kernel { app.theme.kernel() } else { Style::new() };
        let is_selected = i == app.page().cursor.selected;
        draw_row(app, ListRow { values, name, style, is_selected }, row, out);
    }
    draw_note(app, table.rows.len(), area, out);
}

/// The titles of a call tree or a sandwich.
pub(super) fn tree_titles(app: &App, graph: &Graph, area: Rect) -> Vec<Title> {
    let left_out = match graph.tree.left_out {
        0 => String::new(),
        count => format!("  ({count} branches below {SMALL_BRANCH}% left out)"),
    };
    if app.page().query.shown != Shown::Tree(Direction::Callers) {
        return titles::values(app, &graph.facts, &format!("function{left_out}"), area);
    }
    // As in text: one value, the self value of the first function in this context.
    let width = if is_narrow(area) { 0 } else { graph.facts.value_width() };
    let own = if is_narrow(area) { "" } else { "self" };
    let text = format!("{:>8}{own:>width$}  function, its callers below it{left_out}", "self%");
    vec![Title::plain(None, text)]
}

/// Draws a call tree or a sandwich.
pub(super) fn draw_tree(app: &App, graph: &Graph, area: Rect, out: &mut Buffer) {
    let page = app.page();
    let lines = page.outline.lines();
    if draw_empty(app, lines.len(), area, out) {
        return;
    }
    titles::draw(app, area, out);
    let facts = &graph.facts;
    let is_of_callers = page.query.shown == Shown::Tree(Direction::Callers);
    for (i, row) in rows(app, lines.len(), area) {
        let id = lines[i];
        let node = graph.tree.node(id);
        let is_caller = graph.is_caller(id);
        let mut values = values(facts, app.theme, node.self_value, node.total);
        if is_of_callers {
            values.drain(..3);
        } else if is_caller && is_narrow(row) {
            values.swap(0, 3);
        } else if is_caller {
            // The samples are those of the function: its callers have no part of them.
            let width = 8 + graph.facts.value_width();
            values.splice(..2, [Span::raw(" ".repeat(width))]);
        }
        let taken = if is_narrow(row) { 10 } else { values.iter().map(Span::width).sum() };
        let branches = branches(graph, id, usize::from(row.width).saturating_sub(taken) / 2);
        let mark = match graph.ordered.children(id) {
            // The branch leads to the name.
            [] if branches.ends_with('─') => "─ ",
            [] => "  ",
            _ if page.outline.is_expanded(id) => app.theme.glyph("▾ ", "- "),
            _ => app.theme.glyph("▸ ", "+ "),
        };
        let name = graph.facts.name(node.frame);
        let section = match (graph.callers_end, node.parent) {
            (0, _) | (_, 1..) => "",
            _ if is_caller => "callers of ",
            _ => "callees of ",
        };
        let before = format!("{branches}{mark}{section}");
        let frame = graph.facts.frame(node.frame);
        let after = match frame.binary_name(&graph.facts.profile) {
            binary if !binary.is_empty() && section.is_empty() && has_namesake(graph, id) => {
                format!("  ({binary})")
            }
            _ => String::new(),
        };
        let shortening = Shortening::Function;
        let name = RowName { before: &before, name: &name, after: &after, shortening };
        let kernel = frame.kernel;
        let style = if kernel { app.theme.kernel() } else { Style::new() };
        let is_selected = i == page.cursor.selected;
        draw_row(app, ListRow { values, name, style, is_selected }, row, out);
    }
}

/// True if a node beside this one has its name: their binaries distinguish them, as the `_start` of
/// each program.
fn has_namesake(graph: &Graph, node: u32) -> bool {
    let name_of = |node: u32| graph.facts.frame(graph.tree.node(node).frame).name;
    let name = name_of(node);
    let siblings = graph.ordered.children(graph.tree.node(node).parent);
    siblings.iter().any(|&other| other != node && name_of(other) == name)
}

/// Draws why the rows above are one for all samples.
fn draw_note(app: &App, count: usize, area: Rect, out: &mut Buffer) {
    let y = area.y.saturating_add(u16::try_from(count + 2).unwrap_or(u16::MAX));
    let note = app.page().model.as_deref().and_then(empty::note);
    if let Some(note) = note.filter(|_| y < area.y + area.height) {
        put(out, app.theme, Rect { y, height: 1, ..area }, &format!(" {note}"), app.theme.faint());
    }
}

/// Draws lines of text.
pub(super) fn draw_text(app: &App, lines: &[String], area: Rect, out: &mut Buffer) {
    let is_blank = lines.iter().all(|line| line.trim().is_empty());
    if is_blank && draw_empty(app, 0, area, out) {
        return;
    }
    for (i, row) in rows(app, lines.len(), area) {
        let is_selected = i == app.page().cursor.selected;
        let values = Vec::new();
        let style = Style::new();
        let name = RowName::plain(&lines[i], Shortening::End);
        draw_row(app, ListRow { values, name, style, is_selected }, row, out);
    }
}

/// The states of a table: those that no thread has are left out, unless rows are sorted by them.
fn shown_states(app: &App, threads: &ThreadTable) -> Vec<usize> {
    let order = app.page().query.shown.order();
    let is_shown = |state: &usize| {
        let by_it = order.is_some_and(|order| order.column == Column::State(*state));
        by_it || threads.rows.iter().any(|row| row.by_state[*state] != 0)
    };
    (0..states::titles(threads.has_states).len()).filter(is_shown).collect()
}

/// The titles of threads by state.
pub(super) fn state_titles(app: &App, threads: &ThreadTable, area: Rect) -> Vec<Title> {
    let name = Title::last(app, "thread");
    if is_narrow(area) {
        return vec![Title::right(app, Column::Total, "total%", 8), name];
    }
    let names = states::titles(threads.has_states);
    let total = Title::right(app, Column::Total, "total", threads.facts.value_width());
    let states = shown_states(app, threads).into_iter();
    let states = states.map(|state| Title::right(app, Column::State(state), names[state], 10));
    [total].into_iter().chain(states).chain([name]).collect()
}

/// Draws threads by state, in percent of the whole.
pub(super) fn draw_states(app: &App, threads: &ThreadTable, area: Rect, out: &mut Buffer) {
    if draw_empty(app, threads.rows.len(), area, out) {
        return;
    }
    titles::draw(app, area, out);
    let states = shown_states(app, threads);
    let width = threads.facts.value_width();
    for (i, row) in rows(app, threads.rows.len(), area) {
        let thread = &threads.rows[i];
        let share = |value: i64, width: usize| {
            let percent = threads.facts.percent(value);
            let text = states::share(percent, value);
            Span::styled(format!("{text:>width$}"), app.theme.share(percent))
        };
        let mut values = Vec::new();
        if is_narrow(row) {
            values.push(share(thread.total, 8));
        } else {
            let total = app.theme.text(&threads.facts.value(thread.total)).into_owned();
            values.push(Span::raw(format!("{total:>width$}")));
            values.extend(states.iter().map(|&state| share(thread.by_state[state], 10)));
            values.push(Span::raw("  "));
        }
        let (name, style) = (threads.name(i), Style::new());
        let name = RowName::plain(&name, Shortening::Middle);
        let is_selected = i == app.page().cursor.selected;
        draw_row(app, ListRow { values, name, style, is_selected }, row, out);
    }
    draw_note(app, threads.rows.len(), area, out);
}
