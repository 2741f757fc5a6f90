//! A menu in a box over the page.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use super::{body, fill, put};
use crate::report::terminal::app::{App, WITH_BORDERS};
use crate::report::terminal::menu::Menu;

/// Least columns of a menu.
const LEAST: usize = 28;

/// The box of a menu with its borders.
fn frame(menu: &Menu, body: Rect) -> Rect {
    let text = menu.items.iter().map(|item| item.text.width() + 7).max().unwrap_or(0);
    let width = text.max(menu.title.width() + 4).max(LEAST).min(usize::from(body.width)) as u16;
    let borders = if body.height < WITH_BORDERS { 0 } else { 2 };
    let height = (menu.items.len() + borders).min(usize::from(body.height)) as u16;
    let x = body.x + (body.width - width) / 2;
    let y = body.y + (body.height - height) / 2;
    Rect { x, y, width, height }
}

/// The lines of a menu.
fn inside(frame: Rect, body: Rect) -> Rect {
    if body.height < WITH_BORDERS || frame.height < 2 {
        return frame;
    }
    Rect { y: frame.y + 1, height: frame.height - 2, ..frame }
}

/// The line of the menu at a position, counted from the first one on the screen.
pub fn menu_row(app: &App, area: Rect, at: Position) -> Option<usize> {
    let body = body(app, area);
    let lines = inside(frame(app.menu.as_ref()?, body), body);
    lines.contains(at).then(|| usize::from(at.y - lines.y))
}

/// Draws a menu.
pub(super) fn draw_menu(app: &App, menu: &Menu, area: Rect, out: &mut Buffer) {
    let frame = frame(menu, area);
    let theme = app.theme;
    let lines = inside(frame, area);
    for y in frame.top()..frame.bottom() {
        let row = Rect { y, height: 1, ..frame };
        put(out, theme, row, &" ".repeat(usize::from(row.width)), Style::new());
        fill(out, row, Style::reset());
    }
    if lines.height < frame.height {
        let top = Rect { height: 1, ..frame };
        fill(out, top, theme.bar());
        put(out, theme, top, &format!(" {}", menu.title), theme.bar());
        let bottom = Rect { y: frame.bottom() - 1, ..top };
        fill(out, bottom, theme.bar());
        put(out, theme, bottom, " Enter chooses, Esc closes", theme.bar());
    }
    let shown = menu.items.iter().enumerate().skip(menu.cursor.first);
    for ((number, item), y) in shown.zip(lines.top()..lines.bottom()) {
        let row = Rect { y, height: 1, ..frame };
        put(out, theme, row, &format!("  {}  {}", item.key, item.text), Style::new());
        if number == menu.cursor.selected {
            fill(out, row, theme.selected());
        }
    }
}
