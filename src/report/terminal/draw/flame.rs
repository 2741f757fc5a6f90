//! A flame graph in cells.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::list::draw_empty;
use super::{fill, put};
use crate::report::terminal::app::App;
use crate::report::terminal::boxes::NamedTree;
use crate::report::terminal::diff_flame::DiffFlame;
use crate::report::terminal::model::{Graph, Model};
use view::Tree;

/// A number that is the same for the same name.
fn hash(name: &str) -> u64 {
    use std::hash::Hasher;
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write(name.as_bytes());
    hasher.finish() >> 7
}

/// Draws a flame graph.
pub(super) fn draw_flame(app: &App, graph: &Graph, area: Rect, out: &mut Buffer) {
    draw_boxes(app, graph, area, out, |node| {
        let name = graph.box_name(node);
        let kernel = graph.facts.frame(graph.tree.node(node).frame).kernel;
        (app.theme.flame_box(hash(&name), kernel), "")
    });
    draw_chosen(app, graph, area, out);
}

/// Draws a differential flame graph.
pub(super) fn draw_difference(app: &App, flame: &DiffFlame, area: Rect, out: &mut Buffer) {
    draw_boxes(app, flame, area, out, |node| {
        let (trend, size) = flame.trend(node);
        (app.theme.change_box(trend, size), app.theme.change_sign(trend))
    });
    let row = Rect { y: area.y + area.height.saturating_sub(1), height: 1, ..area };
    let chosen = app.page().chosen;
    if chosen != Tree::ROOT {
        let text = format!(" {}: {}", flame.details(chosen), flame.box_name(chosen));
        put(out, app.theme, row, &text, app.theme.strong());
    }
}

/// Draws boxes with the style and the sign that `style` returns for a node.
fn draw_boxes(
    app: &App,
    tree: &dyn NamedTree,
    area: Rect,
    out: &mut Buffer,
    style: impl Fn(u32) -> (Style, &'static str),
) {
    let page = app.page();
    let left_out = page.model.as_deref().map_or(0, Model::left_out);
    if tree.children(Tree::ROOT).is_empty() && left_out > 0 {
        let text = " all values are negative or zero; tables and call trees show them";
        put(out, app.theme, area, text, app.theme.faint());
        return;
    }
    if draw_empty(app, tree.children(Tree::ROOT).len(), area, out) {
        return;
    }
    let rows = page.cell_rows(area.width);
    if rows.row(0).is_empty() {
        let text = " every box is narrower than a column; tables (f) and call trees (t) show them";
        put(out, app.theme, area, text, app.theme.faint());
        return;
    }
    for y in 0..area.height.saturating_sub(1) {
        for b in rows.row(page.box_row(y, area.height)) {
            let name = tree.box_name(b.node);
            let found = app.search.as_ref().is_some_and(|search| search.regex.is_match(&name));
            let (style, sign) = style(b.node);
            let style = if b.node == page.chosen {
                app.theme.selected()
            } else if found {
                app.theme.found()
            } else {
                style
            };
            let cell = Rect { x: area.x + b.left, y: area.y + y, width: b.width, height: 1 };
            draw_box(app, cell, (&name, sign), style, out);
        }
    }
}

/// Draws a box with its sign and its name.
fn draw_box(app: &App, cell: Rect, (name, sign): (&str, &str), style: Style, out: &mut Buffer) {
    fill(out, cell, style);
    if !sign.is_empty() {
        out.set_stringn(cell.x, cell.y, sign, 1, style);
    }
    // A gap between boxes that are wide enough to have a name.
    if cell.width > 2 {
        let text = app.theme.text(name);
        let space = usize::from(cell.width - 1) - sign.len();
        out.set_stringn(cell.x + sign.len() as u16, cell.y, text, space, style);
    }
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
