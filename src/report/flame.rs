//! Flame graphs: inferno's interactive SVG.
//!
//! inferno reads lines of text and splits them at `;` and at the last space, and identifies a box
//! by its name. So each box is passed as a number, and inferno computes the layout; titles, labels
//! and colours are inserted afterwards. Names then need no escaping, two boxes of one name can have
//! two colours, and the tooltips can contain `12.3 ms` for 12,300,000.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{self, Options};

use super::colors::{self, Scheme};
use super::{legend, units};
use sys::printed::{self, Clean};
use view::{BoxOptions, Boxes, Direction, FlameBox, Name, Node, Siblings, Tree, View};

#[cfg(test)]
mod tests;

/// Appearance of a flame graph.
#[derive(Clone, Debug)]
pub struct FlameOptions {
    /// Large text above it.
    pub title: String,
    /// Smaller text below the title.
    pub subtitle: String,
    /// Roots at the top, leaves at the bottom.
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

/// Width of the layout if the window determines the width.
pub(super) const DEFAULT_WIDTH: usize = 1200;
/// Size of the text, and mean width of a character, in pixels.
pub(super) const FONT_SIZE: usize = 12;
const CHAR_WIDTH: f64 = 0.59 * FONT_SIZE as f64;
/// Space left and right of the boxes.
pub(super) const PADDING: usize = 10;

/// inferno's `Search` is almost invisible.
pub(super) const FAINT_SEARCH: &str = "#search { text-anchor:end; opacity:0.1;";
pub(super) const VISIBLE_SEARCH: &str = "#search { text-anchor:end; opacity:0.6;";

/// Placeholder of the legend until inferno has drawn, because inferno escapes its input: a
/// private-use character.
pub(super) const LEGEND: &str = "\u{e000}";

/// Draws `tree`. Fails with `InvalidInput` if no box has a positive value.
pub fn write(
    out: &mut dyn Write,
    view: &View,
    tree: &Tree,
    options: &FlameOptions,
) -> io::Result<()> {
    let FlameOptions { order, min_width, .. } = *options;
    let boxes = Boxes::new(view, tree, &BoxOptions { order, min_width, zoom: Tree::ROOT }).boxes;
    if boxes.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no samples to draw"));
    }
    let lines = lines(&boxes);
    let mut palette = palette(view, tree, &boxes, options.scheme);
    let mut inferno = Options::default();
    // XML has no control characters, and a tooltip has one line.
    inferno.title = printed::line(&options.title).into_owned();
    inferno.subtitle = Some(format!("{}{LEGEND}", printed::line(&options.subtitle)));
    inferno.image_width = options.width;
    // Narrow boxes have already been removed.
    inferno.min_width = 0.0;
    inferno.no_sort = true;
    inferno.font_size = FONT_SIZE;
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
    let width = (options.width.unwrap_or(DEFAULT_WIDTH)).saturating_sub(2 * PADDING) as f64;
    let svg = svg.replacen(LEGEND, &legend(view, tree, &boxes, options), 1);
    insert_names(&mut Clean::new(out), &svg, view, tree, &boxes, width)
}

/// Number of a box. Padded, so that the order of the drawing is that of the text, which inferno
/// requires.
pub(super) fn number(index: usize, count: usize) -> String {
    let digits = count.ilog10() as usize + 1;
    format!("{index:0digits$}")
}

/// Folded lines of numbers. A box without a rest needs none: those on it make it wide enough.
fn lines(boxes: &[FlameBox]) -> String {
    let mut out = String::new();
    let mut path: Vec<usize> = Vec::new();
    for (index, b) in boxes.iter().enumerate() {
        path.truncate(b.depth as usize);
        path.push(index);
        if b.rest > 0 {
            for (i, &index) in path.iter().enumerate() {
                let separator = if i == 0 { "" } else { ";" };
                let _ = write!(out, "{separator}{}", number(index, boxes.len()));
            }
            let _ = writeln!(out, " {}", b.rest);
        }
    }
    out
}

fn palette(view: &View, tree: &Tree, boxes: &[FlameBox], scheme: Scheme) -> PaletteMap {
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
    let mut palette = PaletteMap::default();
    for (i, b) in boxes.iter().enumerate() {
        let node = tree.node(b.node);
        let frame = view.frames.get(node.frame);
        let is_code = !matches!(frame.name, Name::Label(..) | Name::NoStack);
        let rgb = match tree.states.get(b.node as usize).filter(|_| is_code) {
            Some(by_state) => colors::of_states(by_state),
            None => colors::color(scheme, view.profile, frame, own(node), node.total, max),
        };
        palette.insert(number(i, boxes.len()), Color { r: rgb.r, g: rgb.g, b: rgb.b });
    }
    palette.insert("", Color { r: 228, g: 228, b: 224 });
    palette
}

fn legend(view: &View, tree: &Tree, boxes: &[FlameBox], options: &FlameOptions) -> String {
    let mut frames: Vec<u32> = boxes.iter().map(|b| tree.node(b.node).frame).collect();
    frames.sort_unstable();
    frames.dedup();
    let legend = match tree.states.first() {
        Some(by_state) => legend::squares(&colors::groups_of_states(by_state)),
        None => {
            let frames = frames.iter().map(|&f| view.frames.get(f));
            legend::legend(options.scheme, view.profile, frames)
        }
    };
    let dot = if legend.is_empty() || options.subtitle.is_empty() { "" } else { " ·" };
    format!("{dot}{legend}")
}

/// Replaces the numbers in inferno's drawing by names and values.
///
/// A box is `<title>NUMBER (…)</title><rect … width="W%" …/><text …>…</text>`.
fn insert_names(
    out: &mut dyn Write,
    svg: &str,
    view: &View,
    tree: &Tree,
    boxes: &[FlameBox],
    width: f64,
) -> io::Result<()> {
    let unexpected = || io::Error::other("unexpected output of inferno");
    let start = svg.find("<svg id=\"frames\"").ok_or_else(unexpected)?;
    out.write_all(svg[..start].replacen(FAINT_SEARCH, VISIBLE_SEARCH, 1).as_bytes())?;
    let mut rest = &svg[start..];
    while let Some((before, after)) = rest.split_once("<title>") {
        let (title, after) = after.split_once("</title>").ok_or_else(unexpected)?;
        let (rect, after) = after.split_once("<text ").ok_or_else(unexpected)?;
        let (place, after) = after.split_once('>').ok_or_else(unexpected)?;
        let (_, after) = after.split_once("</text>").ok_or_else(unexpected)?;
        let number = title.split(' ').next().unwrap_or("");
        let node = match number {
            "all" => Tree::ROOT,
            n => {
                let index: usize = n.parse().map_err(|_| unexpected())?;
                boxes.get(index).ok_or_else(unexpected)?.node
            }
        };
        let percent = attribute(rect, "width")
            .and_then(|w| w.trim_end_matches('%').parse::<f64>().ok())
            .ok_or_else(unexpected)?;
        let name = name(view, tree, node);
        let label = fitting(&name, percent / 100.0 * width);
        let title = tooltip(view, tree, node, &name);
        let title = escape(&title);
        let label = escape(&label);
        write!(out, "{before}<title>{title}</title>{rect}<text {place}>{label}</text>")?;
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

pub(super) fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let at = element.find(&format!(" {name}=\""))?;
    let value = &element[at + name.len() + 3..];
    Some(&value[..value.find('"')?])
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
    let (kind, unit) = view.value_type();
    let value = units::format(n.total, unit);
    let mut inside = format!("{kind} {value}, {:.2}%", view.percent(n.total));
    if node != Tree::ROOT {
        // In a tree of callers it would be that of another function.
        let own = tree.direction == Direction::Callees;
        if own && n.self_value != 0 && n.self_value != n.total {
            let _ = write!(inside, ", self {}", units::format(n.self_value, unit));
        }
        let frame = view.frames.get(n.frame);
        let binary = frame.binary_name(view.profile);
        if !binary.is_empty() {
            let _ = write!(inside, ", {binary}");
        }
    }
    format!("{name} ({})", printed::line(&inside.replace('(', "[")))
}

/// The part of `name` that fits into this width.
pub(super) fn fitting(name: &str, pixels: f64) -> String {
    let fits = ((pixels - 3.0) / CHAR_WIDTH).max(0.0) as usize;
    if name.chars().count() <= fits {
        name.to_string()
    } else if fits < 3 {
        String::new()
    } else {
        name.chars().take(fits - 2).chain("..".chars()).collect()
    }
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
