//! A flame graph in cells.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::list::draw_empty;
use super::{fill, put};
use crate::report::terminal::app::App;
use crate::report::terminal::boxes::cell_boxes;
use crate::report::terminal::model::Graph;
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
