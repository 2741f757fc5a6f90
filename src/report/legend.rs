//! Legend of a flame graph's colours, for its subtitle.

use std::fmt::Write as _;

use super::colors::{self, ColorGroup, Scheme};
use profile::Profile;
use view::Frame;

/// Coloured squares with their meaning, as SVG within a text; empty if there is only one group, or
/// colours have no names.
pub fn legend<'a>(
    scheme: Scheme,
    profile: &Profile,
    frames: impl Iterator<Item = &'a Frame>,
) -> String {
    let mut groups: Vec<ColorGroup> = Vec::new();
    for group in frames.filter_map(|frame| colors::group(scheme, profile, frame)) {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups.sort_by_key(|group| group.name);
    squares(&groups)
}

/// Coloured squares for these groups, in their order.
pub fn squares(groups: &[ColorGroup]) -> String {
    if groups.len() < 2 {
        return String::new();
    }
    let mut out = String::new();
    for group in groups {
        let colors::Rgb { r, g, b } = group.color();
        let _ = write!(out, " <tspan fill=\"rgb({r},{g},{b})\">■</tspan> {}", group.name);
    }
    out
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
        assert_eq!(legend(Scheme::Kernel, &p, all.iter()), "");
        all[0].kernel = true;
        assert_eq!(
            legend(Scheme::Kernel, &p, all.iter()),
            " <tspan fill=\"rgb(242,144,95)\">■</tspan> kernel \
             <tspan fill=\"rgb(147,212,125)\">■</tspan> user"
        );
        assert_eq!(legend(Scheme::Package, &p, all.iter()), "");
    }
}
