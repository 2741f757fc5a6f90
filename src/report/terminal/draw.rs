//! Draws the interactive views. Nothing is computed here.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use super::app::{App, Prompt, Purpose};
use super::keys;
use super::model::Model;
use super::query::{Query, Shown, SourceOf};
use super::theme::Theme;

mod code;
mod diff;
mod flame;
mod list;
mod popup;
#[cfg(test)]
mod tests;

pub use popup::menu_row;

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
    if let Some(menu) = &app.menu {
        popup::draw_menu(app, menu, body, out);
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
    let name = shortened(&page.query.shown.name(), usize::from(area.width) / 2);
    let mut text = format!(" prof  {}  {name}", app.file);
    if let Some(facts) = page.model.as_deref().and_then(Model::facts) {
        let kind = facts.profile.sample_types.get(page.query.type_index);
        let kind = kind.map_or("", |kind| facts.profile.str(kind.kind));
        text += &format!("  {kind}  {}", facts.value(facts.kept));
        if facts.kept != facts.total {
            let percent = facts.percent(facts.kept);
            text += &format!(" of {} ({percent:.1}%)", facts.value(facts.total));
        }
    }
    let difference = match page.model.as_deref() {
        Some(Model::Diff(found)) => Some((&found.diff, found.diff.changed())),
        Some(Model::DiffFlame(flame)) => Some((&flame.diff, 0)),
        _ => None,
    };
    if let Some((found, changed)) = difference {
        let total = found.total();
        let (before, after) = (diff::value(found, total.before), diff::value(found, total.after));
        let arrow = app.theme.glyph("→", "to");
        text += &format!("  {}  {before} {arrow} {after}", found.kind);
        if page.is_difference() {
            text += &format!("  {changed} changed");
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

/// A text of at most `most` characters; of a longer one, both ends.
fn shortened(text: &str, most: usize) -> String {
    let count = text.chars().take(most + 1).count();
    if count <= most || most == 0 {
        return text.to_owned();
    }
    let first = (most - 1) / 2;
    let begin: String = text.chars().take(first).collect();
    let end: Vec<char> = text.chars().rev().take(most - 1 - first).collect();
    format!("{begin}…{}", end.into_iter().rev().collect::<String>())
}

/// Fewest characters to which a filter is shortened.
const LEAST_FILTER: usize = 12;

fn draw_filters(app: &App, area: Rect, out: &mut Buffer) {
    let filters = &app.page().query.filters;
    let texts: Vec<String> = filters.iter().map(|added| added.text()).collect();
    let title = " filters: ";
    let width = usize::from(area.width).saturating_sub(title.len());
    // All as they are, or as much of each as there is space for, or only the first ones.
    let needed: usize = texts.iter().map(|text| text.width() + 2).sum();
    let each = if needed <= width + 2 { usize::MAX - 1 } else { width / texts.len().max(1) };
    let each = each.saturating_sub(2).max(LEAST_FILTER);
    let mut all = String::new();
    for (number, text) in texts.iter().enumerate() {
        let text = shortened(text, each);
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
    match query.shown {
        Shown::Table { .. } => "Enter menu  a source  + focus  / search  ? help",
        Shown::Tree(_) => "Enter expand  m menu  + focus  / search  ? help",
        Shown::Flame(_) => "Enter zoom  Esc out  m menu  / search  ? help",
        Shown::Sandwich(_) => "Enter expand  a source  m menu  / search  ? help",
        Shown::Source(SourceOf { assembly: true, .. }) => {
            "a source  Enter menu  w write  / search  ? help"
        }
        Shown::Source(_) => "a assembly  Enter menu  w write  / search  ? help",
        Shown::States(_) => "Enter menu  > sort  + focus  / search  ? help",
        Shown::Diff { .. } => "o totals  F flame graph  > sort  / search  ? help",
        Shown::DiffFlame => "Enter zoom  Esc out  D table  / search  ? help",
        Shown::Text(_) => "f functions  t tree  [ back  / search  ? help",
    }
}

fn draw_bottom(app: &App, area: Rect, out: &mut Buffer, tick: usize) {
    const SPINNER: [char; 4] = ['|', '/', '-', '\\'];
    let style = app.theme.bar();
    fill(out, area, style);
    let text = match (&app.prompt, &app.message) {
        (Some(Prompt { purpose, text, error }), _) => {
            let label = match purpose {
                Purpose::Search => "/",
                Purpose::Write => "write to (.txt .json .svg .dot .pb.gz): ",
                Purpose::Filter => "filter (Tab: next): ",
            };
            let error = error.as_ref().map_or(String::new(), |error| format!("   {error}"));
            format!(" {label}{text}_{error}")
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
