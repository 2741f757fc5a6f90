//! Folded stacks: `main;foo;bar 123`, one line for each distinct stack, as written by
//! `stackcollapse-perf`.
//!
//! The format has no escape. A `;` in a name becomes `:` (as in perf's `stackcollapse`), and hidden
//! characters are replaced as everywhere ([`printed`]). A name may contain spaces: the value
//! follows the last one. Values are integers in the unit of the sample type.

use std::io::{self, Write};

use sys::printed;
use view::{Tree, View};

/// A name without separators.
pub fn folded_name(name: &str) -> String {
    let name = printed::line(name).replace(';', ":");
    let trimmed = name.trim();
    // An empty frame would vanish between two separators.
    if trimmed.is_empty() { "[no name]".to_string() } else { trimmed.to_string() }
}

/// Writes the stacks of `tree` (a complete one, see [`view::Cut`]) with a self value, sorted by
/// name.
pub fn write(out: &mut dyn Write, view: &View, tree: &Tree) -> io::Result<()> {
    let names: Vec<String> = (0..view.frames.len() as u32)
        .map(|f| folded_name(&view.frames.get(f).display(view.profile)))
        .collect();
    let children = tree.children();
    let name_of = |node: u32| names[tree.node(node).frame as usize].as_str();
    let sorted = |node: u32| {
        let mut ids = children.get(node).to_vec();
        // Last first, as they are popped from the end.
        ids.sort_by(|&a, &b| name_of(b).cmp(name_of(a)));
        ids
    };
    let mut line = String::new();
    // End of the line of each node on the way.
    let mut ends: Vec<usize> = Vec::new();
    let mut pending: Vec<(u32, usize)> = sorted(Tree::ROOT).into_iter().map(|c| (c, 0)).collect();
    while let Some((node, depth)) = pending.pop() {
        ends.truncate(depth);
        line.truncate(ends.last().copied().unwrap_or(0));
        if depth > 0 {
            line.push(';');
        }
        line.push_str(name_of(node));
        ends.push(line.len());
        let value = tree.node(node).self_value;
        if value != 0 {
            writeln!(out, "{line} {value}")?;
        }
        pending.extend(sorted(node).into_iter().map(|c| (c, depth + 1)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::Profile;
    use view::testing::{answers, odd_names, processes};
    use view::{Cut, Direction, Granularity};

    fn folded(p: &Profile, direction: Direction, roots: &[&str]) -> String {
        let mut view = View::new(p, 0, Granularity::SYMBOL);
        let roots: Vec<_> = roots.iter().map(|r| p.strings.find(r).unwrap()).collect();
        let tree = Tree::new(&mut view, direction, &roots, Cut::Nothing);
        let mut out = Vec::new();
        write(&mut out, &view, &tree).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_stack_is_a_line_with_its_known_value() {
        assert_eq!(
            folded(&answers(), Direction::Callees, &[]),
            "main 4\nmain;foo1 3\nmain;foo1;bar 5\nmain;foo2 1\nmain;foo2;bar 5\n"
        );
        assert_eq!(
            folded(&answers(), Direction::Callers, &[]),
            "bar;foo1;main 5\nbar;foo2;main 5\nfoo1;main 3\nfoo2;main 1\nmain 4\n"
        );
    }

    #[test]
    fn labels_are_the_lowest_frames() {
        assert_eq!(
            folded(&processes(), Direction::Callees, &["process"]),
            "db;serve;query;query 1\nweb:1;serve 3\n"
        );
    }

    #[test]
    fn odd_names_stay_one_frame() {
        assert_eq!(
            folded(&odd_names(), Direction::Callees, &[]),
            "x_[k];tab new line 7;a b \"c\" 1\n\
             x_[k];tab new line 7;a b \"c\";std::vector<int, a&b>::push(int);operator: 1\n"
        );
        assert_eq!(folded_name(" \n"), "[no name]");
    }
}
