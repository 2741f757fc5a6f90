//! Draws the interactive views. Nothing is computed here.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::Span;
use tui_input::Input;
use unicode_width::UnicodeWidthStr;

use super::app::{App, Prompt, Purpose};
use super::detail::Detail;
use super::keys;
use super::model::Model;
use super::theme::Theme;
use crate::report::diff::value;
use crate::report::shorten;
use view::query::{AddedFilter, PercentOf, Query, Shown, ShownSource, Statistic};

mod code;
mod diff;
mod flame;
mod list;
mod popup;
#[cfg(test)]
pub(super) mod tests;
mod titles;

pub use popup::menu_row;
pub use titles::column_at;

/// The parts of the screen.
struct Parts {
    top: Option<Rect>,
    filters: Option<Rect>,
    body: Rect,
    /// The line about what is selected.
    detail: Option<Rect>,
    bottom: Option<Rect>,
}

/// Fewest lines of a screen on which lists have a line about the selected row.
const WITH_DETAIL: u16 = 8;

/// Divides the screen: lines at the top and at the bottom if there is space for them.
fn parts(app: &App, area: Rect) -> Parts {
    let line = |y: u16| Rect { y: area.y + y, height: 1, ..area };
    let has_bars = area.height >= 4;
    let has_filters = area.height >= 6 && !app.page().query.filters.is_empty();
    let above = u16::from(has_bars) + u16::from(has_filters);
    let page = app.page();
    let is_text = matches!(page.model.as_deref(), Some(Model::Text(_)));
    let least = if page.is_flame() { 4 } else { WITH_DETAIL };
    let has_detail = area.height >= least && app.help.is_none() && !is_text;
    let below = u16::from(has_bars) + u16::from(has_detail);
    Parts {
        top: has_bars.then(|| line(0)),
        filters: has_filters.then(|| line(1)),
        body: Rect { y: area.y + above, height: area.height - above - below, ..area },
        detail: has_detail.then(|| line(area.height - 2)),
        bottom: has_bars.then(|| line(area.height - 1)),
    }
}

/// The part of the screen that shows the page.
pub fn body(app: &App, area: Rect) -> Rect {
    parts(app, area).body
}

/// Draws everything; returns the position of the cursor while a text is typed.
pub fn draw(app: &App, area: Rect, out: &mut Buffer, tick: usize) -> Option<Position> {
    if area.is_empty() {
        return None;
    }
    let Parts { top, filters, body, detail, bottom } = parts(app, area);
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
    if let Some(line) = detail
        && let Some(detail) = Detail::selected(app.page())
    {
        let text = detail.text(usize::from(line.width.saturating_sub(2)));
        put(out, app.theme, line, &format!(" {text}"), app.theme.strong());
    }
    if let Some(menu) = &app.menu {
        popup::draw_menu(app, menu, body, out);
    }
    let bottom = bottom?;
    match (&app.prompt, &app.message) {
        (Some(prompt), _) => return Some(draw_prompt(app, prompt, bottom, out)),
        (None, Some(message)) => draw_message(app, message, bottom, out),
        (None, None) => draw_hints(app, bottom, out),
    }
    if app.is_busy() && bottom.width > 4 {
        const SPINNER: [&str; 4] = ["|", "/", "-", "\\"];
        let end = Rect { x: bottom.x + bottom.width - 2, width: 2, ..bottom };
        put(out, app.theme, end, SPINNER[tick % SPINNER.len()], app.theme.bar());
    }
    None
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
    let name = shorten::middle(&page.query.name(), usize::from(area.width) / 2);
    let mut text = format!(" prof  {}  {name}", app.file);
    if let Some(facts) = page.model.as_deref().and_then(Model::facts) {
        let kind = facts.profile.sample_types.get(page.query.type_index);
        let kind = kind.map_or("", |kind| facts.profile.str(kind.kind));
        let is_mean = facts.value_options.statistic == Statistic::Mean;
        let mean = if is_mean { "mean " } else { "" };
        text += &format!("  {mean}{kind}  {}", facts.value(facts.kept));
        if facts.kept != facts.total {
            let percent = view::percent(facts.kept, facts.total);
            let is_whole = facts.value_options.percent_of == PercentOf::Kept;
            let whole = if is_whole { ", here 100%" } else { "" };
            let all = facts.value(facts.total);
            text += &if is_mean {
                format!(" ({all} without filters{whole})")
            } else {
                format!(" of {all} ({percent:.1}%{whole})")
            };
        }
        if facts.idle != 0 {
            text += "  idle kernel threads left out";
        }
    }
    let difference = match page.model.as_deref() {
        Some(Model::Diff(found)) => Some((&found.diff, found.diff.changed())),
        Some(Model::DiffFlame(flame)) => Some((&flame.diff, 0)),
        _ => None,
    };
    if let Some((found, changed)) = difference {
        let total = found.total();
        let (before, after) = (value(found, total.before), value(found, total.after));
        let arrow = app.theme.glyph("→", "to");
        text += &format!("  {}  {before} {arrow} {after}", found.kind);
        if page.is_difference() {
            text += &format!("  {changed} changed");
        }
    }
    match page.model.as_deref().map_or(0, Model::left_out) {
        0 => {}
        count => text += &format!("  {count} negative left out"),
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

/// Fewest characters to which a filter is shortened.
const LEAST_FILTER: usize = 12;

fn draw_filters(app: &App, area: Rect, out: &mut Buffer) {
    let page = app.page();
    let unmatched = page.model.as_deref().map_or(&[][..], Model::unmatched);
    let facts = page.model.as_deref().and_then(Model::facts);
    let without_time = facts.filter(|facts| facts.without_time != 0);
    let text = |added: &AddedFilter| match without_time {
        _ if unmatched.contains(added) => added.unmatched(),
        Some(facts) if added.is_time() => {
            format!("{} (no time: {})", added.text(), facts.value(facts.without_time))
        }
        _ => added.text(),
    };
    let texts: Vec<String> = page.query.filters.iter().map(text).collect();
    let title = " filters: ";
    let width = usize::from(area.width).saturating_sub(title.len());
    // All as they are, or as much of each as there is space for, or only the first ones.
    let needed: usize = texts.iter().map(|text| text.width() + 2).sum();
    let each = if needed <= width + 2 { usize::MAX - 1 } else { width / texts.len().max(1) };
    let each = each.saturating_sub(2).max(LEAST_FILTER);
    let mut all = String::new();
    for (number, text) in texts.iter().enumerate() {
        let text = shorten::middle(text, each);
        let left = texts.len() - number;
        if !all.is_empty() && all.width() + text.width() + 8 > width && left > 1 {
            all += &format!("  +{left}");
            break;
        }
        all += if all.is_empty() { "" } else { "  " };
        all += &text;
    }
    put(out, app.theme, area, &format!("{title}{all}"), app.theme.strong());
}

/// Keys of the line at the bottom: the five that matter most to a page.
fn hints(query: &Query) -> &'static str {
    match &query.shown {
        Shown::Table(table) if table.is_plain() => {
            "Enter menu  a source  + focus  / search  ? help"
        }
        Shown::Tree(_) => "Enter expand  m menu  + focus  / search  ? help",
        Shown::Flame(_) => "Enter zoom  Esc out  m menu  / search  ? help",
        Shown::Sandwich(_) | Shown::SandwichFlame { .. } => {
            "Enter expand  a source  m menu  / search  ? help"
        }
        Shown::Source(ShownSource { assembly: true, .. }) => {
            "Enter follow  Tab hottest  a source  / search  ? help"
        }
        Shown::Source(_) => "a assembly  Tab hottest  Enter menu  / search  ? help",
        Shown::States(_) => "Enter menu  > sort  + focus  / search  ? help",
        Shown::Diff { .. } => "o totals  F flame graph  > sort  / search  ? help",
        Shown::DiffFlame(_) => "Enter zoom  Esc out  D table  / search  ? help",
        Shown::Table(_)
        | Shown::Peek(_)
        | Shown::Traces
        | Shown::Tags
        | Shown::Coverage
        | Shown::Graph(_)
        | Shown::Quality(_)
        | Shown::Header
        | Shown::Threads => "f functions  t tree  [ back  / search  ? help",
    }
}

fn draw_hints(app: &App, area: Rect, out: &mut Buffer) {
    fill(out, area, app.theme.bar());
    let hints = match app.help {
        Some(_) => "j k Space b  move   other keys end the help",
        None => hints(&app.page().query),
    };
    put(out, app.theme, area, &format!(" {hints}"), app.theme.bar());
    let page = app.page();
    let rows = if page.is_flame() { 0 } else { page.rows() };
    // The spinner is at the end.
    if rows > 0 && app.help.is_none() && area.width >= WITH_POSITION && !app.is_busy() {
        draw_corner(app, &format!("{}/{rows}", page.cursor.selected + 1), area, out);
    }
}

/// Fewest columns of a screen that shows the number of the selected row.
const WITH_POSITION: u16 = 40;

/// Most lines of a message.
const MESSAGE_LINES: u16 = 4;

/// Draws a message above the end of the screen, in as many lines as it needs.
fn draw_message(app: &App, message: &str, bottom: Rect, out: &mut Buffer) {
    let text = app.theme.text(message);
    let room = usize::from(bottom.width.saturating_sub(2)).max(1);
    let mut all = shorten::wrapped(&text, room);
    let most = usize::from(MESSAGE_LINES.min(bottom.y));
    let mut lines: Vec<String> = all.by_ref().take(most).map(str::to_owned).collect();
    if all.next().is_some()
        && let Some(last) = lines.last_mut()
    {
        last.push_str(app.theme.glyph("…", "."));
    }
    let above = u16::try_from(lines.len()).unwrap_or(1).saturating_sub(1);
    for (y, line) in (bottom.y - above..).zip(&lines) {
        let area = Rect { y, ..bottom };
        put(out, app.theme, area, &" ".repeat(usize::from(area.width)), app.theme.bar());
        put(out, app.theme, area, &format!(" {}", line.trim()), app.theme.bar());
    }
}

/// Draws what is typed; returns the position of the cursor.
fn draw_prompt(app: &App, prompt: &Prompt, area: Rect, out: &mut Buffer) -> Position {
    fill(out, area, app.theme.bar());
    let label = match prompt.purpose {
        Purpose::Search => " /",
        Purpose::Write => " write to (.txt .json .svg .dot .pb.gz): ",
        Purpose::Filter => " filter (Tab: next): ",
        Purpose::Record => " record (wall, lock, -e page-faults ...): ",
    };
    let begin = label.len() as u16;
    let room = usize::from(area.width.saturating_sub(begin)).max(1);
    let TypedText { before, after } = TypedText::new(&prompt.input, app.theme, room);
    let error = prompt.error.as_ref().map_or(String::new(), |error| format!("   {error}"));
    put(out, app.theme, area, &format!("{label}{before}{after}{error}"), app.theme.bar());
    let cursor = u16::try_from(columns(&before)).unwrap_or(u16::MAX);
    let x = area.x + begin.saturating_add(cursor).min(area.width.saturating_sub(1));
    Position { x, y: area.y }
}

/// A typed text as the terminal shows it.
struct TypedText {
    /// The end of what is before the cursor.
    before: String,
    /// What is behind it.
    after: String,
}

impl TypedText {
    /// A text of which as much is visible before the cursor as `room` columns take, with one of them
    /// for the cursor itself.
    fn new(input: &Input, theme: Theme, room: usize) -> TypedText {
        let value = input.value();
        let at = value.char_indices().nth(input.cursor()).map_or(value.len(), |(at, _)| at);
        let (before, after) = (theme.text(&value[..at]), theme.text(&value[at..]));
        let mut left = columns(&before);
        let before = symbols(&before).into_iter().skip_while(|symbol| {
            let is_hidden = left >= room;
            left = left.saturating_sub(symbol.width());
            is_hidden
        });
        TypedText { before: before.collect(), after: after.into_owned() }
    }
}

/// The characters of a text as a terminal shows them, each with those that combine with it.
fn symbols(text: &str) -> Vec<String> {
    // As the buffer divides it.
    let span = Span::raw(text);
    span.styled_graphemes(Style::new()).map(|part| part.symbol.to_owned()).collect()
}

/// The columns that a text takes on a terminal.
fn columns(text: &str) -> usize {
    symbols(text).iter().map(|symbol| symbol.width()).sum()
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
                Model::Table(table) => list::draw_table(app, table, area, out),
                Model::Graph(graph) if page.is_flame() => flame::draw_flame(app, graph, area, out),
                Model::Graph(graph) => list::draw_tree(app, graph, area, out),
                Model::States(threads) => list::draw_states(app, threads, area, out),
                Model::Code(code) => code::draw_code(app, code, area, out),
                Model::Diff(found) => diff::draw_diff(app, found, area, out),
                Model::DiffFlame(found) => flame::draw_difference(app, found, area, out),
                Model::Text(lines) => list::draw_text(app, lines, area, out),
            }
            return;
        }
    };
    put(out, app.theme, area, &format!(" {text}"), app.theme.faint());
}
