//! Limits of what a view expands.
//!
//! A file of some kilobytes can have stacks of billions of frames: a location with thousands of
//! inlined functions, thousands of times on a stack. So the frames of stacks, and the nodes of
//! trees, are limited in proportion to the locations on the stacks of the file. What is beyond the
//! limits is a frame [`Name::BeyondLimit`](super::Name::BeyondLimit), with its value.

use profile::{LocationId, Profile, StackId};

/// Frames, and nodes of a tree, that any profile may have.
const ANY: u64 = if cfg!(test) { 1000 } else { 1_000_000 };

/// Most nodes of a tree that is drawn: each is a box, with a text of some 400 bytes.
const DRAWN: u64 = if cfg!(test) { 1000 } else { 250_000 };

/// Frames that a location may have on all stacks, on average. Real inlining is less deep.
const FRAMES_PER_LOCATION: u64 = 8;

/// What the stacks of a profile are expanded to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expansion {
    /// Locations on the stacks of all samples.
    pub locations: u64,
    /// Most frames of one location, if some have more.
    pub frames_per_location: Option<u32>,
    /// Frames that are left out, on the stacks of all samples.
    pub left_out: u64,
}

impl Expansion {
    /// The expansion of all samples.
    pub(super) fn new(profile: &Profile) -> Expansion {
        let counts = sample_counts(profile);
        let stacks = || {
            let counted = |(id, count)| (profile.stacks.get(StackId(id as u32)), count);
            counts.iter().enumerate().map(counted)
        };
        let locations = stacks().map(|(stack, count)| stack.len() as u64 * count).sum();
        let whole = Expansion { locations, ..Expansion::default() };
        let most = profile.locations.iter().map(frame_count).max().unwrap_or(1);
        let limit = locations.saturating_mul(FRAMES_PER_LOCATION).saturating_add(ANY);
        if locations.saturating_mul(most.into()) <= limit {
            return whole;
        }
        let frames = |&LocationId(id): &LocationId| frame_count(&profile.locations[id as usize]);
        let frames = |stack: &[LocationId]| stack.iter().map(|l| u64::from(frames(l))).sum::<u64>();
        let all = stacks().filter(|&(_, &count)| count > 0);
        let all = all.fold(0u64, |all, (stack, count)| {
            all.saturating_add(frames(stack).saturating_mul(*count))
        });
        if all <= limit {
            return whole;
        }
        let mut occurrences = vec![0u64; profile.locations.len()];
        for (stack, count) in stacks() {
            stack.iter().for_each(|l| occurrences[l.0 as usize] += count);
        }
        // The largest limit of a location with which all of them are below that of the stacks.
        let kept = |most: u32| {
            let counted = profile.locations.iter().zip(&occurrences);
            counted.fold(0u64, |sum, (location, count)| {
                sum.saturating_add(count.saturating_mul(frame_count(location).min(most).into()))
            })
        };
        let (mut fits, mut exceeds) = (FRAMES_PER_LOCATION as u32, most);
        while exceeds - fits > 1 {
            let middle = fits + (exceeds - fits) / 2;
            if kept(middle) <= limit { fits = middle } else { exceeds = middle }
        }
        // One of them is the frame that replaces the others.
        let replacing = profile.locations.iter().zip(&occurrences);
        let replacing = replacing.filter(|(location, _)| frame_count(location) > fits);
        let replacing = replacing.map(|(_, count)| count).sum::<u64>();
        let left_out = all.saturating_sub(kept(fits)).saturating_add(replacing);
        Expansion { frames_per_location: Some(fits), left_out, ..whole }
    }

    /// Most nodes of a tree; `drawn`: each becomes a box of a picture.
    pub(super) fn nodes(&self, drawn: bool) -> usize {
        let nodes = if drawn { DRAWN } else { self.locations.saturating_add(ANY) };
        usize::try_from(nodes).unwrap_or(usize::MAX)
    }
}

/// Number of samples with each stack.
fn sample_counts(profile: &Profile) -> Vec<u64> {
    let mut counts = vec![0; profile.stacks.len()];
    profile.samples.iter().for_each(|sample| counts[sample.stack.0 as usize] += 1);
    counts
}

/// Number of a location's frames.
fn frame_count(location: &profile::Location) -> u32 {
    location.line_count.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::functions;
    use crate::{Cut, Direction, Granularity, Graph, Name, NodeOrder, Sandwich, Top, TopOptions};
    use crate::{Tree, Trim, View};
    use profile::{Builder, LabelSetId};

    /// Samples of value 1 whose stack is a location with `inlined` frames, `depth` times, each time
    /// with another leaf, on `main`.
    fn inlined(inlined: usize, depth: usize, samples: u64) -> Profile {
        let mut b = Builder::new(&[("samples", "count")]);
        let names: Vec<String> = (0..inlined).map(|i| format!("f{i}")).collect();
        let lines: Vec<_> = names.iter().map(|name| (name.as_str(), "", 1)).collect();
        let location = functions(&mut b, None, 1, &lines);
        let main = functions(&mut b, None, 2, &[("main", "", 1)]);
        for sample in 0..samples {
            let leaf = functions(&mut b, None, 3 + sample, &[("leaf", "", 1)]);
            let mut stack = vec![leaf];
            stack.extend(vec![location; depth]);
            stack.push(main);
            b.add(&stack, LabelSetId::EMPTY, 1, &[]);
        }
        b.finish(None)
    }

    fn view(profile: &Profile) -> View<'_> {
        View::new(profile, 0, Granularity::FUNCTION)
    }

    fn beyond(view: &View, tree: &Tree) -> usize {
        let is_beyond = |frame: u32| view.frames.get(frame).name == Name::BeyondLimit;
        tree.nodes.iter().skip(1).filter(|node| is_beyond(node.frame)).count()
    }

    #[test]
    fn a_location_repeated_with_many_inlined_frames_is_cut_in_all_models() {
        let profile = inlined(500, 400, 2);
        let mut view = view(&profile);
        let expansion = view.frames.expansion;
        let most = expansion.frames_per_location.unwrap();
        // 804 locations on the stacks: 7432 frames, of which each location has 9.
        assert_eq!((expansion.locations, most), (804, 9));
        assert_eq!(expansion.left_out, 800 * (500 - 8));
        let location = view.frames.at(LocationId(0));
        let name = |&frame: &u32| view.frames.get(frame).display(&profile).into_owned();
        let names: Vec<String> = location.iter().map(name).collect();
        let kept = ["f0", "f1", "f2", "f3", "[beyond prof's memory limit]"];
        assert_eq!(names[..5], kept);
        assert_eq!(names[5..], ["f496", "f497", "f498", "f499"]);

        let top = Top::new(&view, &TopOptions::default());
        let value = |name: &str| {
            let has_name = |row: &&crate::Row| view.frames.get(row.frame).display(&profile) == name;
            top.rows.iter().find(has_name).map(|row| (row.self_value, row.total))
        };
        assert_eq!(value("leaf"), Some((2, 2)));
        assert_eq!(value("f499"), Some((0, 2)));
        assert_eq!(value("[beyond prof's memory limit]"), Some((0, 2)));
        let graph = Graph::new(&view, NodeOrder::SelfValue, Trim::NOTHING);
        assert_eq!(graph.nodes.len(), 2 + 9);
        let all: Vec<u32> = (0..view.frames.len() as u32).collect();
        for direction in [Direction::Callees, Direction::Callers] {
            let tree = Tree::new(&mut view, direction, &[], Cut::Nothing);
            assert!(tree.nodes.len() <= 2 * 3605, "{}", tree.nodes.len());
            assert_eq!(tree.nodes.iter().map(|node| node.self_value).sum::<i64>(), 2);
        }
        let sandwich = Sandwich::new(&view, &all, Cut::Nothing);
        assert!(sandwich.callees.nodes.len() <= 2 * 3605);
        assert_eq!(sandwich.total, 2);
    }

    #[test]
    fn usual_inlining_and_deep_recursion_are_whole() {
        for (lines, depth, samples) in [(8, 5000, 3), (100, 9, 1), (1, 10_000, 1)] {
            let profile = inlined(lines, depth, samples);
            let mut view = view(&profile);
            assert_eq!(view.frames.expansion.left_out, 0);
            assert_eq!(view.frames.at(LocationId(0)).len(), lines);
            if lines == 1 {
                let tree = Tree::new(&mut view, Direction::Callees, &[], Cut::Nothing);
                assert_eq!((tree.nodes.len(), tree.beyond_limit), (10_003, 0));
            }
        }
    }

    #[test]
    fn a_tree_ends_at_its_limit_and_keeps_all_values() {
        // Stacks without a common part: 2000 nodes.
        let mut b = Builder::new(&[("samples", "count")]);
        for sample in 0..20u64 {
            let stack: Vec<_> = (0..100)
                .map(|depth| {
                    let name = format!("f{sample}.{depth}");
                    functions(&mut b, None, sample << 8 | depth, &[(&name, "", 1)])
                })
                .collect();
            b.add(&stack, LabelSetId::EMPTY, 1, &[]);
        }
        let profile = b.finish(None);
        let mut view = view(&profile);
        let whole = Tree::new(&mut view, Direction::Callees, &[], Cut::Nothing);
        assert_eq!((whole.nodes.len(), whole.beyond_limit), (2001, 0));
        for direction in [Direction::Callees, Direction::Callers] {
            // Pictures have fewer nodes.
            let tree = Tree::new(&mut view, direction, &[], Cut::Width(0.0));
            assert!(tree.nodes.len() <= 1001, "{}", tree.nodes.len());
            assert!(tree.beyond_limit > 0);
            assert_eq!(beyond(&view, &tree), tree.beyond_limit);
            assert_eq!(tree.nodes.iter().map(|node| node.self_value).sum::<i64>(), 20);
        }
    }
}
