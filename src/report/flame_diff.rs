//! Differential flame graphs.
//!
//! Boxes are as wide as after, coloured by the change of their total: red if it grew, blue if it
//! shrank, white if it is the same, the stronger the larger the change. Stacks that only the
//! profile before has are drawn on a box `[disappeared]`, as wide as they were.

use std::fmt::Write as _;
use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::colors::Rgb;
use super::diff::frame_name;
use super::flame::FlameOptions;
use super::flame::picture::{self, BoxText, PictureBox};
use super::units;
use sys::printed;
use view::{Diff, DiffTree};

/// Name of the box with what only the profile before has.
const DISAPPEARED: &str = "[disappeared]";

/// Red or blue of the largest change: the other channels of white lose this much.
const STRONGEST: f64 = 210.0;

/// The meaning of a box.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// A calling context after.
    Node(u32),
    /// [`DISAPPEARED`].
    Disappeared,
    /// The part of a calling context that has disappeared.
    Gone(u32),
}

/// A box, in the order of the drawing.
struct DrawnBox {
    content: Content,
    depth: usize,
    /// Its width minus that of the boxes on it.
    rest: i64,
}

/// The tree, and the widths of its boxes.
struct Drawing<'a> {
    diff: &'a Diff,
    tree: &'a DiffTree,
    children: FxHashMap<u32, Vec<u32>>,
    /// Value before in recorded units of after.
    factor: f64,
    /// What disappeared in and above each node.
    gone: Vec<i64>,
    boxes: Vec<DrawnBox>,
}

/// The title of a drawing: the sample type, and the totals before and after.
pub fn title(diff: &Diff) -> String {
    let total = |value: f64| units::format(value.round() as i64, &diff.unit);
    let (before, after) = (total(diff.before.total), total(diff.after.total));
    format!("{}: {before} before, {after} after", diff.kind)
}

/// Draws the difference. Fails with `InvalidInput` if no box has a positive value.
pub fn write(
    out: &mut dyn Write,
    diff: &Diff,
    tree: &DiffTree,
    options: &FlameOptions,
) -> io::Result<()> {
    let drawing = Drawing::new(diff, tree, options.min_width);
    picture::write(out, &drawing.shapes(), &legend(), options, |index| {
        let content = index.map_or(Content::Node(0), |index| drawing.boxes[index].content);
        let name = drawing.name(content);
        BoxText { tooltip: drawing.tooltip(content, &name), name: name.into() }
    })
}

impl<'a> Drawing<'a> {
    fn new(diff: &'a Diff, tree: &'a DiffTree, min_width: f64) -> Drawing<'a> {
        let mut children: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for (id, node) in tree.nodes.iter().enumerate().skip(1) {
            children.entry(node.parent).or_default().push(id as u32);
        }
        for ids in children.values_mut() {
            let frame = |id: u32| &tree.frames[tree.nodes[id as usize].frame as usize];
            // The last one is drawn first.
            ids.sort_by(|&a, &b| frame(b).cmp(frame(a)));
        }
        let factor = diff.before.factor / diff.after.factor;
        let factor = if factor.is_finite() && factor > 0.0 { factor } else { 1.0 };
        let mut gone = vec![0i64; tree.nodes.len()];
        // A parent precedes its children.
        for (id, node) in tree.nodes.iter().enumerate().rev() {
            if node.totals[1] <= 0 {
                gone[id] = gone[id].saturating_add((node.own[0] as f64 * factor) as i64);
            }
            if id > 0 {
                let parent = node.parent as usize;
                gone[parent] = gone[parent].saturating_add(gone[id]);
            }
        }
        let mut drawing = Drawing { diff, tree, children, factor, gone, boxes: Vec::new() };
        drawing.lay_out(min_width);
        drawing
    }

    fn width(&self, content: Content) -> i64 {
        match content {
            Content::Node(id) => self.tree.nodes[id as usize].totals[1].max(0),
            Content::Disappeared => self.gone[0].max(0),
            Content::Gone(id) => self.gone[id as usize].max(0),
        }
    }

    fn lay_out(&mut self, min_width: f64) {
        let whole = self.width(Content::Node(0)).saturating_add(self.width(Content::Disappeared));
        let least = (whole as f64 * min_width / 100.0).max(1.0);
        let of = |drawing: &Drawing, id: u32, make: fn(u32) -> Content| -> Vec<Content> {
            let ids = drawing.children.get(&id).into_iter().flatten();
            let all = ids.map(|&id| make(id));
            all.filter(|&content| drawing.width(content) as f64 >= least).collect()
        };
        let mut pending = Vec::new();
        if self.width(Content::Disappeared) as f64 >= least {
            pending.push((Content::Disappeared, 0));
        }
        pending.extend(of(self, 0, Content::Node).into_iter().map(|content| (content, 0)));
        while let Some((content, depth)) = pending.pop() {
            let on_it = match content {
                Content::Node(id) => of(self, id, Content::Node),
                Content::Disappeared => of(self, 0, Content::Gone),
                Content::Gone(id) => of(self, id, Content::Gone),
            };
            let width = self.width(content);
            let sum = on_it.iter().fold(0i64, |sum, &c| sum.saturating_add(self.width(c)));
            let rest = width.saturating_sub(sum).max(0);
            self.boxes.push(DrawnBox { content, depth, rest });
            pending.extend(on_it.into_iter().map(|content| (content, depth + 1)));
        }
    }

    /// Before and after of a box, in recorded units of after.
    fn values(&self, content: Content) -> [f64; 2] {
        match content {
            Content::Node(id) => {
                let [before, after] = self.tree.nodes[id as usize].totals;
                [before as f64 * self.factor, after as f64]
            }
            Content::Disappeared | Content::Gone(_) => [self.width(content) as f64, 0.0],
        }
    }

    /// The boxes as they are drawn.
    fn shapes(&self) -> Vec<PictureBox> {
        let change = |b: &DrawnBox| {
            let [before, after] = self.values(b.content);
            after - before
        };
        let largest = self.boxes.iter().map(|b| change(b).abs()).fold(0.0, f64::max);
        let shape = |b: &DrawnBox| PictureBox {
            depth: b.depth,
            rest: b.rest,
            color: color(change(b), largest),
        };
        self.boxes.iter().map(shape).collect()
    }

    fn name(&self, content: Content) -> String {
        match content {
            Content::Node(0) => "all".to_owned(),
            Content::Disappeared => DISAPPEARED.to_owned(),
            Content::Node(id) | Content::Gone(id) => {
                let frame = self.tree.nodes[id as usize].frame;
                printed::line(&frame_name(&self.tree.frames[frame as usize])).into_owned()
            }
        }
    }

    /// `name (cpu 12.3 ms, before 10.3 ms, change +2.00 ms, ×1.19, libc.so.6)`. The script in the
    /// SVG treats the text before the last parenthesis as the name.
    fn tooltip(&self, content: Content, name: &str) -> String {
        let value = |value: f64| units::format(value.round() as i64, &self.diff.unit);
        let [before, after] = self.values(content);
        let sign = if after > before { "+" } else { "" };
        let mut inside = format!(
            "{} {}, before {}, change {sign}{}",
            self.diff.kind,
            value(after),
            value(before),
            value(after - before)
        );
        let ratio = after / before;
        if ratio.is_finite() && ratio > 0.0 {
            let _ = write!(inside, ", ×{ratio:.2}");
        }
        if let Content::Node(id @ 1..) | Content::Gone(id) = content {
            let frame = &self.tree.frames[self.tree.nodes[id as usize].frame as usize];
            if !frame.binary.is_empty() {
                let _ = write!(inside, ", {}", frame.binary);
            }
        }
        format!("{name} ({})", printed::line(&inside.replace('(', "[")))
    }
}

/// Red for more, blue for less; `largest` is the largest change in the drawing.
fn color(change: f64, largest: f64) -> Rgb {
    let strength = if largest > 0.0 { (change.abs() / largest).min(1.0) } else { 0.0 };
    // The smallest changes are white as well: their colour would not be seen.
    let other = (250.0 - STRONGEST * strength.sqrt()) as u8;
    match change {
        _ if strength < 0.002 => Rgb { r: 250, g: 250, b: 250 },
        change if change > 0.0 => Rgb { r: 255, g: other, b: other },
        _ => Rgb { r: other, g: other, b: 255 },
    }
}

fn legend() -> String {
    let squares = [(1.0, "more than before"), (-1.0, "less"), (0.0, "the same")];
    squares.iter().fold(" ·".to_owned(), |mut out, &(change, name)| {
        let Rgb { r, g, b } = color(change, 1.0);
        let stroke = "stroke=\"rgb(120,120,120)\" stroke-width=\"0.5\"";
        let _ = write!(out, " <tspan fill=\"rgb({r},{g},{b})\" {stroke}>■</tspan> {name}");
        out
    })
}
