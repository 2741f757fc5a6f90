//! The lines between the title of a picture and its boxes: facts, and the legend of the colours.

use std::io;

use unicode_width::UnicodeWidthStr;

use super::FlameOptions;
use super::picture::{FRAMES, escape, unexpected};
use crate::report::legend::Entry;
use crate::report::shorten;
use sys::printed;

/// Width in pixels of the narrowest window in which these lines are whole.
const NARROWEST: usize = 1024;
/// Pixels that a character of them takes at most, and the space left and right of them.
const CHARACTER: f64 = 7.3;
const SPACE: usize = 20;
/// Pixels from one line to the next.
const LINE: usize = 16;
/// Space for descenders of the last line.
const DESCENDERS: usize = 4;
/// Where inferno's lines end and the line of the search begins, without that space.
const BAR: usize = 50;

/// inferno's element, up to its text.
const SUBTITLE: &str = "<text id=\"subtitle\" x=\"50.0000%\" y=\"48.00\">";

/// The lines of a picture.
pub(super) struct Head(Vec<String>);

/// A part of a line, as SVG, and its width in characters.
struct Part {
    svg: String,
    width: usize,
    /// What stands before it, unless a line begins with it.
    separator: &'static str,
}

impl Head {
    /// The lines of the facts, which ` · ` separates, and of the legend.
    pub(super) fn new(options: &FlameOptions, legend: &[Entry]) -> Head {
        let pixels = options.width.unwrap_or(NARROWEST).min(NARROWEST);
        let most = (pixels.saturating_sub(SPACE) as f64 / CHARACTER) as usize;
        let facts = printed::line(&options.subtitle);
        let facts = facts.split(" · ").filter(|fact| !fact.is_empty()).map(|fact| {
            let fact = shorten::middle(fact, most.max(1));
            Part { svg: escape(&fact), width: fact.width(), separator: " · " }
        });
        let entries = legend.iter().enumerate().map(|(i, entry)| Part {
            svg: entry.svg.clone(),
            width: entry.width,
            separator: if i == 0 { " · " } else { " " },
        });
        let mut lines: Vec<(String, usize)> = Vec::new();
        for Part { svg, width, separator } in facts.chain(entries) {
            match lines.last_mut() {
                Some((line, taken)) if *taken + separator.width() + width <= most => {
                    *taken += separator.width() + width;
                    line.extend([separator, &svg]);
                }
                _ => lines.push((svg, width)),
            }
        }
        Head(lines.into_iter().map(|(line, _)| line).collect())
    }

    /// Pixels by which the boxes are further down than inferno draws them.
    fn further(&self) -> usize {
        self.0.len().saturating_sub(1) * LINE + DESCENDERS
    }

    /// The place of the line of the search, in pixels.
    pub(super) fn bar(&self) -> usize {
        BAR + self.further()
    }

    /// inferno's drawing with these lines, and its boxes below them.
    pub(super) fn insert(&self, svg: &str) -> io::Result<String> {
        let (before, rest) = svg.split_once(SUBTITLE).ok_or_else(unexpected)?;
        let (_, rest) = rest.split_once("</text>").ok_or_else(unexpected)?;
        let text = match self.0.as_slice() {
            [] => String::new(),
            [line] => line.clone(),
            lines => {
                let spans = lines.iter().enumerate().map(|(i, line)| {
                    let down = if i == 0 { 0 } else { LINE };
                    format!("<tspan x=\"50%\" dy=\"{down}\">{line}</tspan>")
                });
                spans.collect()
            }
        };
        let further = self.further();
        let height = attribute_of_root(before).ok_or_else(unexpected)?;
        let taller = height + further;
        let before = before
            .replacen(&format!(" height=\"{height}\""), &format!(" height=\"{taller}\""), 2)
            .replacen(&format!(" {height}\""), &format!(" {taller}\""), 1);
        let rest = rest.replacen(FRAMES, &format!("{FRAMES} y=\"{further}\""), 1);
        Ok(format!("{before}{SUBTITLE}{text}</text>{rest}"))
    }
}

/// The height of a drawing.
fn attribute_of_root(drawing: &str) -> Option<usize> {
    let (_, root) = drawing.split_once("<svg ")?;
    let (root, _) = root.split_once('>')?;
    super::picture::attribute(&format!(" {root}"), "height")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::colors::Rgb;
    use crate::report::flame::tests::options;

    fn lines(subtitle: &str, width: Option<usize>, legend: usize) -> Vec<String> {
        let entry = |i| Entry::new(Rgb { r: 1, g: 2, b: 3 }, "", &format!("name{i}"));
        let legend: Vec<Entry> = (0..legend).map(entry).collect();
        let options = FlameOptions { subtitle: subtitle.to_owned(), width, ..options() };
        Head::new(&options, &legend).0
    }

    /// The text of a line of SVG.
    fn text(line: &str) -> String {
        line.split('<').map(|part| part.rsplit('>').next().unwrap()).collect()
    }

    #[test]
    fn lines_fit_and_have_all_facts_and_names() {
        assert_eq!(lines("a · b", None, 0), ["a · b"]);
        assert_eq!(text(&lines("a", None, 2)[0]), "a · ■ name0 ■ name1");
        assert_eq!(text(&lines("", None, 2)[0]), "■ name0 ■ name1");
        assert_eq!(lines("", None, 0), [""; 0]);
        let facts = ["without what is left out of it"; 9].join(" · ");
        for width in [None, Some(400), Some(1920)] {
            let all = lines(&facts, width, 40);
            let most = if width == Some(400) { 52 } else { 137 };
            assert!(all.iter().all(|line| text(line).width() <= most), "{all:?}");
            let whole: String = all.iter().map(|line| text(line)).collect();
            assert_eq!(whole.matches("left out").count(), 9);
            assert_eq!(whole.matches('■').count(), 40);
        }
        // A fact that is longer than a line.
        let long = lines(&format!("{}&{}", "x".repeat(500), "y".repeat(500)), None, 0);
        assert!(long.len() == 1 && long[0].contains("xx…yy"), "{long:?}");
        assert_eq!(lines("a<b & c", None, 0), ["a&lt;b &amp; c"]);
    }
}
