//! Colours and characters that a terminal can show.

use ratatui::style::{Color, Modifier, Style};

pub use sys::printed::Charset;

use super::diff_flame::Trend;

/// Colours that a terminal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// None, or the user wants none (`NO_COLOR`).
    None,
    /// Those of the user's palette.
    Ansi,
    /// The 256 of xterm.
    Xterm,
}

/// Appearance of the interactive views. Text has the terminal's own colours, so that light and dark
/// backgrounds both work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    /// Its colours.
    pub depth: Depth,
    /// Its characters.
    pub charset: Charset,
}

/// Shares of the total above which a value is drawn as hot, and as warm; those of `perf report`.
const HOT: f64 = 5.0;
const WARM: f64 = 0.5;

/// Colours of xterm's cube for boxes, legible below black text.
const BOXES: [u8; 12] = [180, 216, 222, 229, 209, 215, 223, 186, 187, 217, 221, 179];
const KERNEL_BOXES: [u8; 4] = [153, 117, 152, 111];

/// Boxes of values that grew and that shrank, from the smallest to the largest change, and of those
/// that are the same.
const MORE_BOXES: [u8; 5] = [224, 217, 210, 203, 196];
const LESS_BOXES: [u8; 5] = [189, 153, 147, 111, 75];
const SAME_BOX: u8 = 231;

/// The box below all others.
const ROOT_BOX: u8 = 252;

impl Theme {
    /// The appearance for these environment variables.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Theme {
        let set = |name: &str| variable(name).filter(|text| !text.is_empty());
        let term = set("TERM").unwrap_or_default();
        let depth = if set("NO_COLOR").is_some() || term.ends_with("-mono") || term == "vt100" {
            Depth::None
        } else if term.contains("256color") || set("COLORTERM").is_some() {
            Depth::Xterm
        } else {
            Depth::Ansi
        };
        Theme { depth, charset: Charset::for_locale(&variable) }
    }

    /// A share of the total in percent.
    pub fn share(self, percent: f64) -> Style {
        let size = percent.abs();
        match self.depth {
            Depth::None if size >= HOT => Style::new().add_modifier(Modifier::BOLD),
            Depth::None => Style::new(),
            _ if size >= HOT => Style::new().fg(Color::Red),
            _ if size >= WARM => Style::new().fg(Color::Green),
            _ => Style::new(),
        }
    }

    /// A change of a value that exceeds sampling error: more is red, less is green.
    pub fn change(self, difference: f64) -> Style {
        match self.depth {
            Depth::None => Style::new().add_modifier(Modifier::BOLD),
            _ if difference > 0.0 => Style::new().fg(Color::Red),
            _ => Style::new().fg(Color::Green),
        }
    }

    /// The selected row.
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Titles, and the bars at the top and at the bottom.
    pub fn bar(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Titles of columns, and words that stand out.
    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What matters less.
    pub fn faint(self) -> Style {
        match self.depth {
            Depth::None => Style::new(),
            _ => Style::new().add_modifier(Modifier::DIM),
        }
    }

    /// Names of the kernel.
    pub fn kernel(self) -> Style {
        match self.depth {
            Depth::None => Style::new(),
            _ => Style::new().fg(Color::Blue),
        }
    }

    /// A match of a search.
    pub fn found(self) -> Style {
        match self.depth {
            Depth::None => Style::new().add_modifier(Modifier::UNDERLINED),
            _ => Style::new().fg(Color::Black).bg(Color::Yellow),
        }
    }

    /// A box of a flame graph, with a number that is the same for the same name.
    pub fn flame_box(self, hash: u64, kernel: bool) -> Style {
        let text = Style::new().fg(Color::Black);
        match (self.depth, kernel) {
            (Depth::None, _) if hash.is_multiple_of(2) => Style::new(),
            (Depth::None, _) => Style::new().add_modifier(Modifier::REVERSED),
            (Depth::Ansi, true) => text.bg(Color::Cyan),
            (Depth::Ansi, false) if hash.is_multiple_of(2) => text.bg(Color::Yellow),
            (Depth::Ansi, false) => text.bg(Color::LightRed),
            (Depth::Xterm, true) => {
                text.bg(Color::Indexed(KERNEL_BOXES[hash as usize % KERNEL_BOXES.len()]))
            }
            (Depth::Xterm, false) => text.bg(Color::Indexed(BOXES[hash as usize % BOXES.len()])),
        }
    }

    /// The box below all others.
    pub fn root_box(self) -> Style {
        match self.depth {
            Depth::None => Style::new(),
            Depth::Ansi => Style::new().fg(Color::Black).bg(Color::Gray),
            Depth::Xterm => Style::new().fg(Color::Black).bg(Color::Indexed(ROOT_BOX)),
        }
    }

    /// A box of a differential flame graph; `size` is its change, of 1 at most.
    pub fn change_box(self, trend: Trend, size: f64) -> Style {
        let text = Style::new().fg(Color::Black);
        // As in the SVG, the root makes small changes visible.
        let shade = |shades: [u8; 5]| {
            let at = (size.sqrt() * shades.len() as f64) as usize;
            text.bg(Color::Indexed(shades[at.min(shades.len() - 1)]))
        };
        match (self.depth, trend) {
            (Depth::None, Trend::More) => Style::new().add_modifier(Modifier::REVERSED),
            (Depth::None, _) => Style::new(),
            (Depth::Ansi, Trend::More) => text.bg(Color::LightRed),
            (Depth::Ansi, Trend::Less) => text.bg(Color::LightCyan),
            (Depth::Ansi, Trend::Same) => text.bg(Color::Gray),
            (Depth::Xterm, Trend::More) => shade(MORE_BOXES),
            (Depth::Xterm, Trend::Less) => shade(LESS_BOXES),
            (Depth::Xterm, Trend::Same) => text.bg(Color::Indexed(SAME_BOX)),
        }
    }

    /// The sign of a change where boxes have no colour.
    pub fn change_sign(self, trend: Trend) -> &'static str {
        match (self.depth, trend) {
            (Depth::None, Trend::More) => "+",
            (Depth::None, Trend::Less) => "-",
            (Depth::None, Trend::Same) => "=",
            _ => "",
        }
    }

    /// `unicode`, or `ascii` if the terminal has no other characters.
    pub fn glyph(self, unicode: &'static str, ascii: &'static str) -> &'static str {
        match self.charset {
            Charset::Unicode => unicode,
            Charset::Ascii => ascii,
        }
    }

    /// Text in the characters of the terminal.
    pub fn text<'a>(self, text: &'a str) -> std::borrow::Cow<'a, str> {
        self.charset.text(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn theme(variables: &[(&str, &str)]) -> Theme {
        Theme::from_environment(|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn colours_and_characters_follow_the_environment() {
        let xterm = theme(&[("TERM", "xterm-256color"), ("LANG", "de_DE.UTF-8")]);
        assert_eq!(xterm, Theme { depth: Depth::Xterm, charset: Charset::Unicode });
        let plain = theme(&[("TERM", "xterm"), ("LANG", "C")]);
        assert_eq!(plain, Theme { depth: Depth::Ansi, charset: Charset::Ascii });
        assert_eq!(theme(&[("TERM", "xterm"), ("NO_COLOR", "1")]).depth, Depth::None);
        assert_eq!(theme(&[("TERM", "vt100")]).depth, Depth::None);
        let overridden = theme(&[("LANG", "en_US.UTF-8"), ("LC_ALL", "C")]);
        assert_eq!(overridden.charset, Charset::Ascii);
    }

    #[test]
    fn changes_differ_with_and_without_colours() {
        for depth in [Depth::None, Depth::Ansi, Depth::Xterm] {
            let theme = Theme { depth, charset: Charset::Unicode };
            let styles = [Trend::More, Trend::Less, Trend::Same]
                .map(|trend| (theme.change_box(trend, 1.0), theme.change_sign(trend)));
            assert!(styles[0] != styles[1] && styles[1] != styles[2] && styles[0] != styles[2]);
        }
        let theme = Theme { depth: Depth::Xterm, charset: Charset::Unicode };
        let [small, large] = [0.01, 1.0].map(|size| theme.change_box(Trend::More, size));
        assert_ne!(small, large);
    }

    #[test]
    fn other_characters_are_replaced_without_utf8() {
        let ascii = Theme { depth: Depth::None, charset: Charset::Ascii };
        assert_eq!(ascii.text("12 µs 中 …"), "12 us ? .");
        let all = Theme { charset: Charset::Unicode, ..ascii };
        assert_eq!(all.text("12 µs 中"), "12 µs 中");
    }
}
