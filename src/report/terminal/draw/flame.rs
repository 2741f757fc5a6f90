//! A flame graph in cells.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::list::draw_empty;
use super::{fill, put};
use crate::report::terminal::app::App;
use crate::report::terminal::boxes::{NamedTree, OtherBoxes};
use crate::report::terminal::detail::ALL;
use crate::report::terminal::diff_flame::DiffFlame;
use crate::report::terminal::model::{Graph, Model};
use crate::report::units;
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
}

/// Draws a differential flame graph.
pub(super) fn draw_difference(app: &App, flame: &DiffFlame, area: Rect, out: &mut Buffer) {
    draw_boxes(app, flame, area, out, |node| {
        let (trend, size) = flame.trend(node);
        (app.theme.change_box(trend, size), app.theme.change_sign(trend))
    });
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
    for y in 0..area.height {
        let row = page.box_row(y, area.height);
        draw_others(app, rows.others(row), Rect { y: area.y + y, height: 1, ..area }, out);
        for b in rows.row(row) {
            let name = match b.node {
                Tree::ROOT => root_name(app).into(),
                node => tree.box_name(node),
            };
            let found = app.search.as_ref().is_some_and(|search| search.regex.is_match(&name));
            let (style, sign) = match b.node {
                Tree::ROOT => (app.theme.root_box(), ""),
                node => style(node),
            };
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

/// The name of the lowest box, with the total if the page has one.
fn root_name(app: &App) -> String {
    match app.page().model.as_deref() {
        Some(Model::Graph(graph)) => {
            let total = graph.facts.value(graph.tree.node(Tree::ROOT).total);
            format!("{ALL}  {total}")
        }
        _ => ALL.to_owned(),
    }
}

/// Draws how many boxes are narrower than a cell, where there is room for the number.
fn draw_others(app: &App, others: &[OtherBoxes], row: Rect, out: &mut Buffer) {
    for &OtherBoxes { count, left, width, .. } in others {
        let text = match count {
            1 => "1 other".to_owned(),
            count => format!("{} others", units::thousands(count as i64)),
        };
        if text.len() < usize::from(width) {
            let cell = Rect { x: row.x + left, width, ..row };
            put(out, app.theme, cell, &text, app.theme.faint());
        }
    }
}
