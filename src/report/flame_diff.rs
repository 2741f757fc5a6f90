//! Differential flame graphs.
//!
//! Boxes are as wide as after, coloured by the change of their total: red if it grew, blue if it
//! shrank, white if it is the same, the stronger the larger the change. Stacks that only the
//! profile before has are drawn on a box `[disappeared]`, as wide as they were.

use std::fmt::Write as _;
use std::io::{self, Write};

use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{self, Options};
use rustc_hash::FxHashMap;

use super::colors::Rgb;
use super::diff::frame_name;
use super::flame::{self, FlameOptions};
use super::units;
use sys::printed::{self, Clean};
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

/// Draws the difference. Fails with `InvalidInput` if no box has a positive value.
pub fn write(
    out: &mut dyn Write,
    diff: &Diff,
    tree: &DiffTree,
    options: &FlameOptions,
) -> io::Result<()> {
    let drawing = Drawing::new(diff, tree, options.min_width);
    if drawing.boxes.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no samples to draw"));
    }
    let lines = drawing.lines();
    let mut palette = drawing.palette();
    let mut inferno = Options::default();
    inferno.title = printed::line(&options.title).into_owned();
    inferno.subtitle = Some(format!("{}{}", printed::line(&options.subtitle), flame::LEGEND));
    inferno.image_width = options.width;
    // Narrow boxes have already been removed.
    inferno.min_width = 0.0;
    inferno.no_sort = true;
    inferno.font_size = flame::FONT_SIZE;
    inferno.bgcolors = Some(BackgroundColor::Flat(Color { r: 252, g: 252, b: 250 }));
    inferno.text_truncate_direction = flamegraph::TextTruncateDirection::Right;
    inferno.palette_map = Some(&mut palette);
    if options.inverted {
        inferno.direction = flamegraph::Direction::Inverted;
    }
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut inferno, lines.lines(), &mut svg)?;
    drop(lines);
    let svg = String::from_utf8(svg).map_err(io::Error::other)?;
    let svg = svg.replacen(flame::LEGEND, &legend(), 1);
    let width = options.width.unwrap_or(flame::DEFAULT_WIDTH).saturating_sub(2 * flame::PADDING);
    drawing.insert_names(&mut Clean::new(out), &svg, width as f64)
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

    /// Folded lines of numbers, as in [`flame`].
    fn lines(&self) -> String {
        let mut out = String::new();
        let mut path: Vec<usize> = Vec::new();
        for (index, b) in self.boxes.iter().enumerate() {
            path.truncate(b.depth);
            path.push(index);
            if b.rest > 0 {
                for (i, &index) in path.iter().enumerate() {
                    let separator = if i == 0 { "" } else { ";" };
                    let _ = write!(out, "{separator}{}", flame::number(index, self.boxes.len()));
                }
                let _ = writeln!(out, " {}", b.rest);
            }
        }
        out
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

    fn palette(&self) -> PaletteMap {
        let change = |b: &DrawnBox| {
            let [before, after] = self.values(b.content);
            after - before
        };
        let largest = self.boxes.iter().map(|b| change(b).abs()).fold(0.0, f64::max);
        let mut palette = PaletteMap::default();
        for (index, b) in self.boxes.iter().enumerate() {
            let Rgb { r, g, b } = color(change(b), largest);
            palette.insert(flame::number(index, self.boxes.len()), Color { r, g, b });
        }
        palette.insert("", Color { r: 228, g: 228, b: 224 });
        palette
    }

    /// Replaces the numbers in inferno's drawing by names and values.
    fn insert_names(&self, out: &mut dyn Write, svg: &str, width: f64) -> io::Result<()> {
        let unexpected = || io::Error::other("unexpected output of inferno");
        let start = svg.find("<svg id=\"frames\"").ok_or_else(unexpected)?;
        let head = svg[..start].replacen(flame::FAINT_SEARCH, flame::VISIBLE_SEARCH, 1);
        out.write_all(head.as_bytes())?;
        let mut rest = &svg[start..];
        while let Some((before, after)) = rest.split_once("<title>") {
            let (title, after) = after.split_once("</title>").ok_or_else(unexpected)?;
            let (rect, after) = after.split_once("<text ").ok_or_else(unexpected)?;
            let (place, after) = after.split_once('>').ok_or_else(unexpected)?;
            let (_, after) = after.split_once("</text>").ok_or_else(unexpected)?;
            let content = match title.split(' ').next().unwrap_or("") {
                "all" => Content::Node(0),
                n => {
                    let index: usize = n.parse().map_err(|_| unexpected())?;
                    self.boxes.get(index).ok_or_else(unexpected)?.content
                }
            };
            let percent = flame::attribute(rect, "width")
                .and_then(|w| w.trim_end_matches('%').parse::<f64>().ok())
                .ok_or_else(unexpected)?;
            let name = self.name(content);
            let label = flame::escape(&flame::fitting(&name, percent / 100.0 * width));
            let title = flame::escape(&self.tooltip(content, &name));
            write!(out, "{before}<title>{title}</title>{rect}<text {place}>{label}</text>")?;
            rest = after;
        }
        out.write_all(rest.as_bytes())
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
