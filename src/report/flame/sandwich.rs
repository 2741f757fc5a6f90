//! A sandwich as an SVG: chains of callers on one side of the functions, their callees on the other.
//!
//! inferno draws one side of a row only. So it draws a chain of boxes with as many rows as needed;
//! the boxes of both sides are inserted in place of the chain.

use std::io::{self, Write};

use super::head::Head;
use super::picture::{self, Drawing, FirstShown, PictureBox, attribute, unexpected};
use super::{FlameOptions, colors, name, tooltip};
use crate::report::colors::{Rgb, Scheme};
use crate::report::legend;
use sys::printed::Clean;
use view::{Boxes, Sandwich, SandwichBoxes, Tree, View};

/// A row of a drawing.
#[derive(Clone, Copy, Default)]
struct Row<'s> {
    y: &'s str,
    height: &'s str,
    text_y: &'s str,
}

/// A box in a row.
struct RowBox {
    row: usize,
    left: i64,
    width: i64,
    color: Rgb,
    name: String,
    tooltip: String,
}

/// Draws a sandwich, with the callees above the functions; `inverted`: below them.
///
/// # Errors
///
/// `InvalidInput` if no box has a positive value, and those of `out`.
pub fn write(
    out: &mut dyn Write,
    view: &View,
    sandwich: &Sandwich,
    options: &FlameOptions,
) -> io::Result<()> {
    let FlameOptions { order, min_width, inverted, scheme, .. } = *options;
    let SandwichBoxes { callers, callees } = SandwichBoxes::new(view, sandwich, order, min_width);
    if callees.boxes.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no samples to draw"));
    }
    let above = if inverted { callers.levels } else { callees.levels } as usize - 1;
    let rows = (callers.levels + callees.levels) as usize - 1;
    let up = |depth: u32| above - depth as usize;
    let down = |depth: u32| above + depth as usize;
    let mut boxes = Vec::new();
    let row: &dyn Fn(u32) -> usize = if inverted { &down } else { &up };
    add(&mut boxes, view, &sandwich.callees, &callees, scheme, row);
    let functions = boxes.iter().filter(|b| b.row == above).count();
    let row: &dyn Fn(u32) -> usize = if inverted { &up } else { &down };
    add(&mut boxes, view, &sandwich.callers, &callers, scheme, row);
    // The functions are on both sides.
    let mut seen = 0;
    boxes.retain(|b| {
        seen += usize::from(b.row == above);
        b.row != above || seen <= functions
    });
    let frames = callees.boxes.iter().map(|b| (&sandwich.callees, b));
    let frames = frames.chain(callers.boxes.iter().map(|b| (&sandwich.callers, b)));
    let mut frames: Vec<u32> = frames.map(|(tree, b)| tree.node(b.node).frame).collect();
    frames.sort_unstable();
    frames.dedup();
    let legend = legend::legend(scheme, view.profile, frames.iter().map(|&f| view.frames.get(f)));
    let head = Head::new(options, &legend);
    let svg = chain(rows, callees.width, options)?;
    let svg = head.insert(&svg)?;
    let drawing = Drawing {
        svg: &svg,
        title: &options.title,
        // The row of the functions is known with the rows.
        first: FirstShown::Top,
        width: picture::width(options),
        bar: head.bar(),
    };
    insert(&mut Clean::new(out), drawing, above, &boxes, callees.width)
}

/// Adds the boxes of a side.
fn add(
    boxes: &mut Vec<RowBox>,
    view: &View,
    tree: &Tree,
    side: &Boxes,
    scheme: Scheme,
    row: &dyn Fn(u32) -> usize,
) {
    let colors = colors(view, tree, &side.boxes, scheme);
    boxes.extend(side.boxes.iter().zip(colors).map(|(b, color)| {
        let name = name(view, tree, b.node).into_owned();
        let tooltip = tooltip(view, tree, b.node, &name);
        RowBox { row: row(b.depth), left: b.left, width: b.width, color, name, tooltip }
    }));
}

/// inferno's drawing of a chain of boxes, one in each row.
fn chain(rows: usize, width: i64, options: &FlameOptions) -> io::Result<String> {
    // The first row has inferno's own box.
    let count = rows.saturating_sub(1).max(1);
    let link = |depth: usize| PictureBox {
        depth,
        rest: if depth + 1 == count { width } else { 0 },
        color: Rgb { r: 0, g: 0, b: 0 },
    };
    let boxes: Vec<PictureBox> = (0..count).map(link).collect();
    picture::draw(&boxes, &FlameOptions { inverted: true, ..options.clone() })
}

/// Replaces the chain by boxes.
fn insert(
    out: &mut dyn Write,
    drawing: Drawing<'_>,
    middle: usize,
    boxes: &[RowBox],
    whole: i64,
) -> io::Result<()> {
    let (svg, pixels) = (drawing.svg, drawing.width);
    let start = svg.find(picture::FRAMES).ok_or_else(unexpected)?;
    let opened = start + svg[start..].find('>').ok_or_else(unexpected)? + 1;
    let end = svg[opened..].find("</svg>").ok_or_else(unexpected)? + opened;
    let rows = rows(&svg[opened..end]).ok_or_else(unexpected)?;
    let row = |number: usize| rows.get(number).ok_or_else(unexpected);
    // The row of the functions, also with many rows above it.
    let first = FirstShown::Middle(row(middle)?.y);
    let head = Drawing { first, ..drawing }.head()?;
    out.write_all(head.as_bytes())?;
    out.write_all(&svg.as_bytes()[start..opened])?;
    for b in boxes {
        let Row { y, height, text_y } = *row(b.row)?;
        let percent = |value: i64| value as f64 * 100.0 / whole.max(1) as f64;
        let (left, width) = (percent(b.left), percent(b.width));
        let Rgb { r, g, b: blue } = b.color;
        let stroke = if b.row == middle { " stroke=\"rgb(60,60,60)\"" } else { "" };
        let title = picture::escape(&b.tooltip);
        let label = picture::escape(&picture::fitting(&b.name, width / 100.0 * pixels));
        let text_x = left + 300.0 / pixels;
        writeln!(
            out,
            "<g><title>{title}</title><rect x=\"{left:.4}%\" y=\"{y}\" width=\"{width:.4}%\" \
             height=\"{height}\" fill=\"rgb({r},{g},{blue})\"{stroke} fg:x=\"{}\" fg:w=\"{}\"/>\
             <text x=\"{text_x:.4}%\" y=\"{text_y}\">{label}</text></g>",
            b.left, b.width
        )?;
    }
    out.write_all(&svg.as_bytes()[end..])
}

/// The rows of a drawn chain, from the top.
fn rows(chain: &str) -> Option<Vec<Row<'_>>> {
    let mut rows = Vec::new();
    for group in chain.split("<title>").skip(1) {
        let (title, rest) = group.split_once("</title>")?;
        let (rect, rest) = rest.split_once("<text ")?;
        let number = match title.split(' ').next()? {
            "all" => 0,
            number => number.parse::<usize>().ok()? + 1,
        };
        if rows.len() <= number {
            rows.resize(number + 1, Row::default());
        }
        let (y, height) = (attribute(rect, "y")?, attribute(rect, "height")?);
        let text_y = attribute(&rest[..rest.find('>')?], "y")?;
        rows[number] = Row { y, height, text_y };
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use view::testing::{answers, processes};
    use view::{Cut, Granularity, Siblings, named_frames};

    fn drawn(wanted: &str, inverted: bool) -> String {
        let profile = answers();
        let view = View::new(&profile, 0, Granularity::FUNCTION);
        let functions = named_frames(&view, wanted).unwrap();
        let sandwich = Sandwich::new(&view, &functions, Cut::Nothing);
        let options = FlameOptions {
            title: "Title".to_owned(),
            subtitle: "below".to_owned(),
            inverted,
            order: Siblings::Name,
            width: Some(1020),
            min_width: 0.0,
            scheme: Scheme::default(),
        };
        let mut out = Vec::new();
        write(&mut out, &view, &sandwich, &options).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// The rows of the boxes with this name, from the top, with their left ends and widths.
    fn places(svg: &str, name: &str) -> Vec<(u32, String)> {
        let title = format!("<title>{name} (");
        let boxes = svg.split(&title).skip(1);
        let mut found: Vec<_> = boxes
            .map(|rest| {
                let y = attribute(rest, "y").unwrap().parse().unwrap();
                let [left, width] = ["fg:x", "fg:w"].map(|key| attribute(rest, key).unwrap());
                (y, format!("{left}+{width}"))
            })
            .collect();
        found.sort();
        found
    }

    #[test]
    fn callers_are_on_the_other_side_than_callees() {
        for inverted in [false, true] {
            let svg = drawn("foo1", inverted);
            let [main, foo1, bar] = ["main", "foo1", "bar"].map(|name| {
                let [place] = places(&svg, name).try_into().expect("one box");
                place
            });
            assert_eq!((&*main.1, &*foo1.1, &*bar.1), ("0+8", "0+8", "3+5"));
            assert!(if inverted { main.0 < foo1.0 && foo1.0 < bar.0 } else { bar.0 < foo1.0 });
            assert_eq!(main.0.abs_diff(foo1.0), bar.0.abs_diff(foo1.0));
            assert!(svg.contains("(samples 8, 44.44%, self 3"), "{svg}");
            // The script knows both sides.
            assert!(svg.contains(&format!("var middle = {}, ", foo1.0)), "{svg}");
        }
        let svg = drawn("bar", true);
        assert_eq!(places(&svg, "bar").len(), 1);
        assert_eq!(places(&svg, "main").len(), 2);
        assert_eq!(places(&svg, "foo2")[0].1, "5+5");
    }

    #[test]
    fn a_function_alone_is_drawn_and_nothing_is_an_error() {
        let profile = processes();
        let view = View::new(&profile, 0, Granularity::FUNCTION);
        let options = |subtitle: &str| FlameOptions {
            title: String::new(),
            subtitle: subtitle.to_owned(),
            inverted: false,
            order: Siblings::Name,
            width: None,
            min_width: 0.0,
            scheme: Scheme::default(),
        };
        let mut out = Vec::new();
        let none = Sandwich::new(&view, &[], Cut::Nothing);
        let error = write(&mut out, &view, &none, &options("")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let functions = named_frames(&view, "serve").unwrap();
        let sandwich = Sandwich::new(&view, &functions, Cut::Width(60.0));
        write(&mut out, &view, &sandwich, &options("x")).unwrap();
        assert_eq!(places(&String::from_utf8(out).unwrap(), "serve").len(), 1);
    }
}
