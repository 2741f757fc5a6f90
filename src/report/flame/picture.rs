//! Boxes as an SVG by inferno.
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

use super::FlameOptions;
use super::head::Head;
use crate::report::colors::Rgb;
use crate::report::legend::Entry;
use crate::report::shorten;
use sys::printed::{self, Clean};

/// Width of the layout if the window determines the width.
const DEFAULT_WIDTH: usize = 1200;
/// Size of the text, and mean width of a character, in pixels.
const FONT_SIZE: usize = 12;
pub(super) const CHAR_WIDTH: f64 = 0.59 * FONT_SIZE as f64;
/// Space left and right of the boxes.
const PADDING: usize = 10;

/// The beginning of inferno's drawing.
const SVG: &str = "<svg ";

/// The beginning of the boxes in it.
pub(super) const FRAMES: &str = "<svg id=\"frames\"";

/// What is added to inferno's script and style.
const SCRIPT: &str = include_str!("page.js");
const STYLE: &str = include_str!("page.css");

/// Most characters of the title: of a longer one, both ends, so that none is cut off in a window of
/// 1280 pixels.
const MAX_TITLE: usize = 110;

/// The row that a window shows first.
pub(super) enum FirstShown<'y> {
    /// The uppermost, as any window does.
    Top,
    /// The lowermost.
    Bottom,
    /// The row with this `y`, in the middle: that of the functions, which have boxes on both sides.
    Middle(&'y str),
}

/// A box of a picture, in the order of the drawing.
pub struct PictureBox {
    /// Its row; 0: that of the roots.
    pub depth: usize,
    /// Its value minus that of the boxes on it, as inferno expects.
    pub rest: i64,
    /// Its colour.
    pub color: Rgb,
}

/// The text of a box.
pub struct BoxText<'t> {
    /// Its name.
    pub name: Cow<'t, str>,
    /// Its tooltip. The script in the SVG treats the text before the last parenthesis as the name.
    pub tooltip: String,
}

/// Draws boxes, with a text for each: that of the box with an index, or `None`: of all of them.
///
/// # Errors
///
/// `InvalidInput` if there is no box, and those of `out`.
pub fn write<'t>(
    out: &mut dyn Write,
    boxes: &[PictureBox],
    legend: &[Entry],
    options: &FlameOptions,
    text: impl Fn(Option<usize>) -> BoxText<'t>,
) -> io::Result<()> {
    if boxes.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no samples to draw"));
    }
    let head = Head::new(options, legend);
    let svg = head.insert(&draw(boxes, options)?)?;
    let first = if options.inverted { FirstShown::Top } else { FirstShown::Bottom };
    let (title, width, bar) = (&options.title, width(options), head.bar());
    let drawing = Drawing { svg: &svg, title, first, width, bar };
    drawing.insert_texts(&mut Clean::new(out), boxes.len(), text)
}

/// inferno's drawing.
pub(super) struct Drawing<'d> {
    /// Its text.
    pub svg: &'d str,
    /// The title of the document, whole.
    pub title: &'d str,
    /// What a window shows of it first.
    pub first: FirstShown<'d>,
    /// Width of the boxes in pixels.
    pub width: f64,
    /// Place of the line of the search below the title, in pixels.
    pub bar: usize,
}

/// Width of the boxes in pixels.
pub(super) fn width(options: &FlameOptions) -> f64 {
    options.width.unwrap_or(DEFAULT_WIDTH).saturating_sub(2 * PADDING) as f64
}

/// inferno's drawing of the boxes' numbers.
pub(super) fn draw(boxes: &[PictureBox], options: &FlameOptions) -> io::Result<String> {
    let lines = lines(boxes);
    let mut palette = palette(boxes);
    let mut inferno = Options::default();
    // XML has no control characters, and a tooltip has one line.
    inferno.title = shorten::middle(&printed::line(&options.title), MAX_TITLE);
    // Replaced by the lines of `head`.
    inferno.subtitle = Some(" ".to_owned());
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
    String::from_utf8(svg).map_err(io::Error::other)
}

/// Number of a box. Padded, so that the order of the drawing is that of the text, which inferno
/// requires.
fn number(index: usize, count: usize) -> String {
    let digits = count.ilog10() as usize + 1;
    format!("{index:0digits$}")
}

/// Folded lines of numbers. A box without a rest needs none: those on it make it wide enough.
fn lines(boxes: &[PictureBox]) -> String {
    let mut out = String::new();
    let mut path: Vec<usize> = Vec::new();
    for (index, b) in boxes.iter().enumerate() {
        path.truncate(b.depth);
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

fn palette(boxes: &[PictureBox]) -> PaletteMap {
    let mut palette = PaletteMap::default();
    for (index, b) in boxes.iter().enumerate() {
        let Rgb { r, g, b } = b.color;
        palette.insert(number(index, boxes.len()), Color { r, g, b });
    }
    palette.insert("", Color { r: 228, g: 228, b: 224 });
    palette
}

/// Output of inferno that is not the known one.
pub(super) fn unexpected() -> io::Error {
    io::Error::other("unexpected output of inferno")
}

impl Drawing<'_> {
    /// What comes before the boxes, with a title of the document, and prof's own style and script.
    pub(super) fn head(&self) -> io::Result<String> {
        let start = self.svg.find(FRAMES).ok_or_else(unexpected)?;
        let root = self.svg.find(SVG).ok_or_else(unexpected)?;
        let opened = root + self.svg[root..].find('>').ok_or_else(unexpected)? + 1;
        let title = escape(&printed::line(self.title));
        let scroll = |place: &str| {
            format!(
                "window.addEventListener(\"load\", function() {{ window.scrollTo(0, {place}); }});\n"
            )
        };
        let (middle, scroll) = match self.first {
            FirstShown::Top => ("null", String::new()),
            // Beyond its end, a window shows its end.
            FirstShown::Bottom => ("null", scroll("1e9")),
            FirstShown::Middle(y) => (y, scroll(&format!("{y} - window.innerHeight / 2"))),
        };
        Ok(format!(
            "{}<svg class=\"flamegraph\" {}<title>{title}</title>{}<style>{STYLE}</style><script>\
             <![CDATA[\nvar middle = {middle}, bar_top = {};\n{scroll}{SCRIPT}]]></script>",
            &self.svg[..root],
            &self.svg[root + SVG.len()..opened],
            &self.svg[opened..start],
            self.bar,
        ))
    }

    /// Replaces the numbers by texts.
    ///
    /// A box is `<title>NUMBER (…)</title><rect … width="W%" …/><text …>…</text>`.
    fn insert_texts<'t>(
        &self,
        out: &mut dyn Write,
        count: usize,
        text: impl Fn(Option<usize>) -> BoxText<'t>,
    ) -> io::Result<()> {
        out.write_all(self.head()?.as_bytes())?;
        let start = self.svg.find(FRAMES).ok_or_else(unexpected)?;
        let mut rest = &self.svg[start..];
        while let Some((before, after)) = rest.split_once("<title>") {
            let (title, after) = after.split_once("</title>").ok_or_else(unexpected)?;
            let (rect, after) = after.split_once("<text ").ok_or_else(unexpected)?;
            let (place, after) = after.split_once('>').ok_or_else(unexpected)?;
            let (_, after) = after.split_once("</text>").ok_or_else(unexpected)?;
            let number = title.split(' ').next().unwrap_or("");
            let index = match number {
                "all" => None,
                n => {
                    let index = n.parse().ok().filter(|&index: &usize| index < count);
                    Some(index.ok_or_else(unexpected)?)
                }
            };
            let percent = attribute(rect, "width")
                .and_then(|w| w.trim_end_matches('%').parse::<f64>().ok())
                .ok_or_else(unexpected)?;
            let BoxText { name, tooltip } = text(index);
            let label = escape(&fitting(&name, percent / 100.0 * self.width));
            let title = escape(&tooltip);
            write!(out, "{before}<title>{title}</title>{rect}<text {place}>{label}</text>")?;
            rest = after;
        }
        out.write_all(rest.as_bytes())
    }
}

pub(super) fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let at = element.find(&format!(" {name}=\""))?;
    let value = &element[at + name.len() + 3..];
    Some(&value[..value.find('"')?])
}

/// The part of `name` that fits into this width.
pub(super) fn fitting(name: &str, pixels: f64) -> String {
    shorten::label(name, ((pixels - 4.0) / CHAR_WIDTH).max(0.0) as usize)
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
