//! Flame graphs: inferno's interactive SVG.
//!
//! The boxes of [`view`] with their colours, names and tooltips; [`picture`] draws them.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use super::colors::{self, Neighbours, Rgb, Scheme};
use super::legend::{self, Entry};
use super::values;
use picture::{BoxText, PictureBox};
use sys::printed;
use view::{BoxOptions, Boxes, Direction, FlameBox, Name, Node, Siblings, Tree, View};

mod head;
pub(super) mod picture;
pub mod sandwich;
#[cfg(test)]
mod tests;

/// Appearance of a flame graph.
#[derive(Clone, Debug)]
pub struct FlameOptions {
    /// Large text above it.
    pub title: String,
    /// Smaller text below the title.
    pub subtitle: String,
    /// Roots at the top, leaves at the bottom: a window shows the roots first, however deep a few
    /// stacks are.
    pub inverted: bool,
    /// Order of the boxes on one box.
    pub order: Siblings,
    /// Width in pixels; `None`: as wide as the window.
    pub width: Option<usize>,
    /// Boxes narrower than this percentage of the whole are omitted (their value stays in the box
    /// below).
    pub min_width: f64,
    /// Meaning of the colours.
    pub scheme: Scheme,
}

/// Draws `tree`. Fails with `InvalidInput` if no box has a positive value.
pub fn write(
    out: &mut dyn Write,
    view: &View,
    tree: &Tree,
    options: &FlameOptions,
) -> io::Result<()> {
    let FlameOptions { order, min_width, .. } = *options;
    let boxes = Boxes::new(view, tree, &BoxOptions { order, min_width, zoom: Tree::ROOT }).boxes;
    let colors = colors(view, tree, &boxes, options.scheme);
    let shape =
        |(b, color): (&FlameBox, Rgb)| PictureBox { depth: b.depth as usize, rest: b.rest, color };
    let shapes: Vec<PictureBox> = boxes.iter().zip(colors).map(shape).collect();
    let legend = legend(view, tree, &boxes, options);
    picture::write(out, &shapes, &legend, options, |index| {
        let node = index.map_or(Tree::ROOT, |index| boxes[index].node);
        let name = name(view, tree, node);
        BoxText { tooltip: tooltip(view, tree, node, &name), name }
    })
}

/// The colour of each box.
fn colors(view: &View, tree: &Tree, boxes: &[FlameBox], scheme: Scheme) -> Vec<Rgb> {
    let nodes = || boxes.iter().map(|b| tree.node(b.node));
    let own = |n: &Node| match tree.direction {
        Direction::Callees => n.self_value,
        // All drawn values are self values of the first function.
        Direction::Callers => n.total,
    };
    let max = match scheme {
        Scheme::SelfValue => nodes().map(own).max().unwrap_or(0),
        _ => tree.node(Tree::ROOT).total,
    };
    let mut neighbours = Neighbours::default();
    let mut color = |b: &FlameBox| {
        let node = tree.node(b.node);
        let frame = view.frames.get(node.frame);
        let is_code = !matches!(frame.name, Name::Label(..) | Name::NoStack | Name::BeyondLimit);
        match tree.states.get(b.node as usize).filter(|_| is_code) {
            Some(by_state) => colors::mixed(by_state),
            None => {
                let color = colors::color(scheme, view.profile, frame, own(node), node.total, max);
                let ends = b.left..b.left.saturating_add(b.width);
                neighbours.next(b.depth as usize, ends, |number| color.variant(number))
            }
        }
    };
    boxes.iter().map(&mut color).collect()
}

fn legend(view: &View, tree: &Tree, boxes: &[FlameBox], options: &FlameOptions) -> Vec<Entry> {
    let mut frames: Vec<u32> = boxes.iter().map(|b| tree.node(b.node).frame).collect();
    frames.sort_unstable();
    frames.dedup();
    match tree.states.first() {
        Some(by_state) => legend::entries(&colors::groups_of_states(by_state)),
        None => {
            let frames = frames.iter().map(|&f| view.frames.get(f));
            legend::legend(options.scheme, view.profile, frames)
        }
    }
}

fn name<'a>(view: &'a View, tree: &Tree, node: u32) -> Cow<'a, str> {
    if node == Tree::ROOT {
        return "all".into();
    }
    let frame = view.frames.get(tree.node(node).frame);
    match frame.display(view.profile) {
        Cow::Borrowed(s) => printed::line(s),
        Cow::Owned(s) => Cow::Owned(printed::line(&s).into_owned()),
    }
}

/// `name (cpu 12.3 ms, 4.56%, libc.so.6)`. The script in the SVG treats the text before the last
/// parenthesis as the name, so the details contain no `(`.
fn tooltip(view: &View, tree: &Tree, node: u32, name: &str) -> String {
    let n = tree.node(node);
    let (kind, _) = view.value_type();
    let value = values::text(view, n.total);
    let mut inside = format!("{kind} {value}, {:.2}%", view.percent(n.total));
    if node != Tree::ROOT {
        // In a tree of callers it would be that of another function.
        let own = tree.direction == Direction::Callees;
        if own && n.self_value != 0 && n.self_value != n.total {
            let _ = write!(inside, ", self {}", values::text(view, n.self_value));
        }
        let frame = view.frames.get(n.frame);
        let binary = frame.binary_name(view.profile);
        if !binary.is_empty() {
            let _ = write!(inside, ", {binary}");
        }
    }
    format!("{name} ({})", printed::line(&inside.replace('(', "[")))
}
