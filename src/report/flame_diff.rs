//! Differential flame graphs as SVG.
//!
//! Boxes are as wide as after, coloured by the change of their total: red if it grew, blue if it
//! shrank, white if it is the same, the stronger the larger the change. Stacks that only the
//! profile before has are drawn on a box `[disappeared]`, as wide as they were.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::colors::Rgb;
use super::diff::frame_name;
use super::flame::FlameOptions;
use super::flame::picture::{self, BoxText, PictureBox};
use super::legend::Entry;
use super::units;
use sys::printed;
use view::{Diff, DiffBox, DiffBoxes};

/// Name of the box with what only the profile before has.
pub const DISAPPEARED: &str = "[disappeared]";

/// Red or blue of the largest change: the other channels of white lose this much. Black text has a
/// contrast of 4.5 on blue then.
const STRONGEST: f64 = 150.0;

/// Share of the largest change below which a change is none: its colour would not be seen.
pub const LEAST_CHANGE: f64 = 0.002;

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
    found: &DiffBoxes,
    options: &FlameOptions,
) -> io::Result<()> {
    let shape = |b: &DiffBox| PictureBox {
        depth: b.depth as usize,
        rest: b.rest,
        color: color(b.change(), found.largest),
    };
    let shapes: Vec<PictureBox> = found.boxes.iter().map(shape).collect();
    picture::write(out, &shapes, &legend(), options, |index| {
        let (name, values, binary) = match index.map(|index| &found.boxes[index]) {
            None => ("all".to_owned(), [found.before, found.after], ""),
            Some(b) => (name(found, b), [b.before, b.after], binary(found, b)),
        };
        let inside = printed::line(&details(diff, values, binary).replace('(', "[")).into_owned();
        BoxText { tooltip: format!("{name} ({inside})"), name: name.into() }
    })
}

/// The name of a box.
pub fn name(found: &DiffBoxes, b: &DiffBox) -> String {
    match b.frame {
        None => DISAPPEARED.to_owned(),
        Some(frame) => printed::line(&frame_name(&found.frames[frame as usize])).into_owned(),
    }
}

fn binary<'f>(found: &'f DiffBoxes, b: &DiffBox) -> &'f str {
    b.frame.map_or("", |frame| &found.frames[frame as usize].binary)
}

/// `cpu 12.3 ms, before 10.3 ms, change +2.00 ms, ×1.19, libc.so.6`: values before and after, in
/// recorded units of after.
pub fn details(diff: &Diff, [before, after]: [f64; 2], binary: &str) -> String {
    let value = |value: f64| units::format(value.round() as i64, &diff.unit);
    let sign = if after > before { "+" } else { "" };
    let mut out = format!(
        "{} {}, before {}, change {sign}{}",
        diff.kind,
        value(after),
        value(before),
        value(after - before)
    );
    let ratio = after / before;
    if ratio.is_finite() && ratio > 0.0 {
        let _ = write!(out, ", ×{ratio:.2}");
    }
    if !binary.is_empty() {
        let _ = write!(out, ", {binary}");
    }
    out
}

/// Red for more, blue for less; `largest` is the largest change in the drawing.
fn color(change: f64, largest: f64) -> Rgb {
    let strength = if largest > 0.0 { (change.abs() / largest).min(1.0) } else { 0.0 };
    let other = (250.0 - STRONGEST * strength.sqrt()) as u8;
    match change {
        _ if strength < LEAST_CHANGE => Rgb { r: 250, g: 250, b: 250 },
        change if change > 0.0 => Rgb { r: 255, g: other, b: other },
        _ => Rgb { r: other, g: other, b: 255 },
    }
}

fn legend() -> Vec<Entry> {
    let squares = [(1.0, "more than before"), (-1.0, "less"), (0.0, "the same")];
    let stroke = " stroke=\"rgb(120,120,120)\" stroke-width=\"0.5\"";
    squares.map(|(change, name)| Entry::new(color(change, 1.0), stroke, name)).to_vec()
}
