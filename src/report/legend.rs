//! Legend of a flame graph's colours, for its subtitle.

use unicode_width::UnicodeWidthStr;

use super::colors::{self, ColorGroup, Rgb, Scheme};
use profile::Profile;
use view::Frame;

/// A coloured square with its meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// SVG within a text.
    pub svg: String,
    /// Its width in characters.
    pub width: usize,
}

impl Entry {
    /// A square of this colour, with further attributes of SVG, and a name.
    pub fn new(color: Rgb, attributes: &str, name: &str) -> Entry {
        let Rgb { r, g, b } = color;
        let svg = format!("<tspan fill=\"rgb({r},{g},{b})\"{attributes}>■</tspan> {name}");
        Entry { svg, width: 2 + name.width() }
    }
}

/// The meaning of colours; empty if there is only one group, or colours have no names.
pub fn legend<'a>(
    scheme: Scheme,
    profile: &Profile,
    frames: impl Iterator<Item = &'a Frame>,
) -> Vec<Entry> {
    let mut groups: Vec<ColorGroup> = Vec::new();
    for group in frames.filter_map(|frame| colors::group(scheme, profile, frame)) {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups.sort_by_key(|group| group.name);
    entries(&groups)
}

/// The meaning of the colours of these groups, in their order; empty for one group.
pub fn entries(groups: &[ColorGroup]) -> Vec<Entry> {
    let groups = if groups.len() < 2 { &[] } else { groups };
    groups.iter().map(|group| Entry::new(group.color(), "", group.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use view::testing::answers;
    use view::{Frames, Granularity};

    #[test]
    fn groups_are_named_once_where_there_are_several() {
        let p = answers();
        let frames = Frames::new(&p, Granularity::FUNCTION);
        let mut all: Vec<Frame> = (0..frames.len() as u32).map(|f| *frames.get(f)).collect();
        all.retain(|f| colors::group(Scheme::Kernel, &p, f).is_some_and(|g| g.name == "user"));
        assert!(all.len() > 1);
        assert_eq!(legend(Scheme::Kernel, &p, all.iter()), []);
        all[0].kernel = true;
        let [kernel, user] = legend(Scheme::Kernel, &p, all.iter()).try_into().unwrap();
        assert_eq!(kernel.svg, "<tspan fill=\"rgb(242,144,95)\">■</tspan> kernel");
        assert_eq!(user, Entry::new(Rgb { r: 147, g: 212, b: 125 }, "", "user"));
        assert_eq!((kernel.width, user.width), (8, 6));
        assert_eq!(legend(Scheme::Package, &p, all.iter()), []);
    }
}
