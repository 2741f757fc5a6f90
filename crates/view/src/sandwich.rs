//! A sandwich: all callers above a function and all its callees below it, merged over every place
//! where it occurs.
//!
//! Each sample with the function counts once: its stack is divided at the outermost frame of the
//! function. Frames outside of it are its callers; it and all frames inside of it, further calls of
//! it included, are the callees. So the total of both trees is the function's total in
//! [`super::Top`].

use regex::Regex;

use super::tree::build::{PathSample, Rooted, TreeShape, grow};
use super::{Cut, Direction, Name, Tree, View};
use profile::Profile;

/// The callers and the callees of some functions.
///
/// The nodes on the root of both trees are the functions.
pub struct Sandwich {
    /// Chains of callers, with the value of the samples of each.
    ///
    /// As in each tree of callers, a node's self value is that of samples without a further caller.
    pub callers: Tree,
    /// What the functions call.
    pub callees: Tree,
    /// Sum of the samples with one of the functions.
    pub total: i64,
    /// Sum of the samples whose innermost frame is one of the functions.
    pub self_value: i64,
}

impl Sandwich {
    /// The sandwich of the frames `functions`; a sample with several of them is divided at the
    /// outermost. `cut` applies to both trees.
    pub fn new(view: &View, functions: &[u32], cut: Cut) -> Sandwich {
        let mut wanted = vec![false; view.frames.len()];
        functions.iter().for_each(|&f| wanted[f as usize] = true);
        let mut above = Vec::new();
        let mut below = Vec::new();
        let mut self_value = 0i64;
        for sample in view.samples() {
            let frame_of = |l: usize| view.frames.at(sample.stack[l]);
            let found = (0..sample.stack.len())
                .rev()
                .find_map(|l| Some((l, frame_of(l).iter().rposition(|&f| wanted[f as usize])?)));
            let Some((location, frame)) = found else { continue };
            let leaf = sample.stack.iter().find_map(|&l| view.frames.at(l).first());
            if leaf.is_some_and(|&f| wanted[f as usize]) {
                self_value = self_value.saturating_add(sample.value);
            }
            above.push(PathSample::from_within(&sample.stack[location..], frame, sample.value));
            let passed = frame_of(location).len() - 1 - frame;
            below.push(PathSample::from_within(&sample.stack[..=location], passed, sample.value));
        }
        let shape = |direction| TreeShape { direction, cut, states: None };
        let callers = grow(view, above, shape(Direction::Callers), Rooted::default());
        let callees = grow(view, below, shape(Direction::Callees), Rooted::default());
        Sandwich { total: callees.node(Tree::ROOT).total, callers, callees, self_value }
    }
}

/// The frames of functions and addresses with the name `wanted`; without one, those whose names
/// match it as a regular expression. None if a function has the name, and no frame: a filter hides
/// it.
///
/// # Errors
///
/// No function has the name, and it is not a regular expression.
pub fn named_frames(view: &View, wanted: &str) -> Result<Vec<u32>, regex::Error> {
    let exact = frames_with(view, |name| name == wanted);
    if !exact.is_empty() || is_function(view.profile, wanted) {
        return Ok(exact);
    }
    Ok(matching_frames(view, &Regex::new(wanted)?))
}

/// True if a function has this name.
fn is_function(profile: &Profile, name: &str) -> bool {
    let name = profile.strings.find(name);
    name.is_some_and(|name| profile.functions.iter().any(|function| function.name == name))
}

/// The frames of functions and addresses whose names match.
pub fn matching_frames(view: &View, regex: &Regex) -> Vec<u32> {
    frames_with(view, |name| regex.is_match(name))
}

fn frames_with(view: &View, wanted: impl Fn(&str) -> bool) -> Vec<u32> {
    let is_wanted = |&f: &u32| {
        let frame = view.frames.get(f);
        let code = matches!(frame.name, Name::Function(_) | Name::Address(_));
        code && wanted(&frame.display(view.profile))
    };
    (0..view.frames.len() as u32).filter(is_wanted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{answers, functions, processes};
    use crate::{Filter, Granularity, Top, TopOptions};
    use profile::{Builder, LabelSetId};

    fn view(p: &Profile) -> View<'_> {
        View::new(p, 0, Granularity::FUNCTION)
    }

    /// The nodes as `path total self`, with names separated by spaces.
    fn paths(view: &View, tree: &Tree) -> Vec<String> {
        let mut paths = vec![String::new()];
        for node in tree.nodes.iter().skip(1) {
            let name = view.frames.get(node.frame).display(view.profile);
            paths.push(format!("{}/{name}", paths[node.parent as usize]));
        }
        let texts = paths.iter().zip(&tree.nodes).skip(1);
        texts.map(|(path, n)| format!("{path} {} {}", n.total, n.self_value)).collect()
    }

    #[test]
    fn callers_and_callees_are_merged() {
        let p = answers();
        let view = view(&p);
        let s = Sandwich::new(&view, &named_frames(&view, "bar").unwrap(), Cut::Nothing);
        assert_eq!((s.total, s.self_value), (10, 10));
        let expected = [
            "/bar 10 0",
            "/bar/foo1 5 0",
            "/bar/foo1/main 5 5",
            "/bar/foo2 5 0",
            "/bar/foo2/main 5 5",
        ];
        let mut got = paths(&view, &s.callers);
        got.sort();
        assert_eq!(got, expected);
        assert_eq!(paths(&view, &s.callees), ["/bar 10 10"]);
        let s = Sandwich::new(&view, &named_frames(&view, "^foo").unwrap(), Cut::Nothing);
        assert_eq!((s.total, s.self_value), (14, 4));
        let s = Sandwich::new(&view, &named_frames(&view, "foo1").unwrap(), Cut::Nothing);
        assert_eq!(paths(&view, &s.callees), ["/foo1 8 3", "/foo1/bar 5 5"]);
        assert_eq!(paths(&view, &s.callers), ["/foo1 8 0", "/foo1/main 8 8"]);
    }

    #[test]
    fn a_name_that_a_filter_hides_is_no_expression() {
        let hide = Some("^foo1$".parse().unwrap());
        let p = Filter { hide, ..Filter::default() }.apply(answers()).profile;
        let view = view(&p);
        assert!(named_frames(&view, "foo1").unwrap().is_empty());
        assert_eq!(named_frames(&view, "foo").unwrap().len(), 1);
        assert!(named_frames(&view, "(").is_err());
    }

    #[test]
    fn each_total_is_that_of_the_table() {
        for p in [answers(), processes(), recursive()] {
            let view = view(&p);
            for row in Top::new(&view, &TopOptions::default()).rows {
                let s = Sandwich::new(&view, &[row.frame], Cut::Nothing);
                assert_eq!(s.total, row.total);
                assert_eq!(s.callers.node(1).total, row.total);
                let nodes = s.callees.nodes.iter().skip(1).filter(|n| n.frame == row.frame);
                assert_eq!(nodes.map(|n| n.self_value).sum::<i64>(), row.self_value);
            }
        }
    }

    /// main → (f inlined into g) → f → f → leaf, and main → f.
    fn recursive() -> Profile {
        let mut b = Builder::new(&[("samples", "count")]);
        let main = functions(&mut b, None, 1, &[("main", "", 0)]);
        let inlined = functions(&mut b, None, 2, &[("f", "", 0), ("g", "", 0)]);
        let f = functions(&mut b, None, 3, &[("f", "", 0)]);
        let leaf = functions(&mut b, None, 4, &[("leaf", "", 0)]);
        b.add(&[leaf, f, f, inlined, main], LabelSetId::EMPTY, 4, &[]);
        b.add(&[f, main], LabelSetId::EMPTY, 1, &[]);
        b.finish(None)
    }

    #[test]
    fn a_recursion_is_divided_at_its_outermost_call_and_collapsed_on_request() {
        let p = recursive();
        let mut view = view(&p);
        let f = named_frames(&view, "f").unwrap();
        let s = Sandwich::new(&view, &f, Cut::Nothing);
        assert_eq!(
            paths(&view, &s.callers),
            ["/f 5 0", "/f/g 4 0", "/f/main 1 1", "/f/g/main 4 4"]
        );
        let expected = ["/f 5 1", "/f/f 4 0", "/f/f/f 4 0", "/f/f/f/leaf 4 4"];
        assert_eq!(paths(&view, &s.callees), expected);
        view.collapse_recursion = true;
        let s = Sandwich::new(&view, &f, Cut::Nothing);
        assert_eq!(paths(&view, &s.callees), ["/f 5 1", "/f/leaf 4 4"]);
        let tree = Tree::new(&mut view, Direction::Callees, &[], Cut::Nothing);
        let expected =
            ["/main 5 0", "/main/g 4 0", "/main/f 1 1", "/main/g/f 4 0", "/main/g/f/leaf 4 4"];
        let mut got = paths(&view, &tree);
        got.sort_by_key(|path| path.matches('/').count());
        assert_eq!(got, expected);
    }

    #[test]
    fn a_recursion_of_10000_calls_is_one_frame() {
        let mut b = Builder::new(&[("samples", "count")]);
        let f = functions(&mut b, None, 1, &[("f", "", 0)]);
        b.add(&vec![f; 10_000], LabelSetId::EMPTY, 2, &[]);
        let p = b.finish(None);
        let mut view = view(&p);
        let s = Sandwich::new(&view, &[view.frames.at(f)[0]], Cut::Nothing);
        assert_eq!((s.callers.nodes.len(), s.callees.nodes.len()), (2, 10_001));
        view.collapse_recursion = true;
        let tree = Tree::new(&mut view, Direction::Callees, &[], Cut::Nothing);
        assert_eq!(paths(&view, &tree), ["/f 2 2"]);
    }
}
