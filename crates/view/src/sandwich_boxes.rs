//! A sandwich as laid-out boxes: chains of callers on one side of the functions, their callees on
//! the other.

use super::{BoxOptions, Boxes, Sandwich, Siblings, Tree, View};

/// The boxes of both sides. Those of depth 0 are the functions, on both sides at the same place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandwichBoxes {
    /// The boxes of [`Sandwich::callers`].
    pub callers: Boxes,
    /// The boxes of [`Sandwich::callees`].
    pub callees: Boxes,
}

impl SandwichBoxes {
    /// The boxes that are at least `min_width` percent of the functions wide.
    pub fn new(view: &View, sandwich: &Sandwich, order: Siblings, min_width: f64) -> SandwichBoxes {
        let options = BoxOptions { order, min_width, zoom: Tree::ROOT };
        SandwichBoxes {
            callers: Boxes::new(view, &sandwich.callers, &options),
            callees: Boxes::new(view, &sandwich.callees, &options),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{answers, frames_profile, processes};
    use crate::{Cut, FlameBox, Granularity, named_frames};
    use profile::Profile;

    /// The boxes of each side as `name depth left+width`.
    fn drawn(profile: &Profile, wanted: &str, order: Siblings) -> [Vec<String>; 2] {
        let view = View::new(profile, 0, Granularity::FUNCTION);
        let functions = named_frames(&view, wanted).unwrap();
        let sandwich = Sandwich::new(&view, &functions, Cut::Nothing);
        let found = SandwichBoxes::new(&view, &sandwich, order, 0.0);
        let text = |tree: &Tree, b: &FlameBox| {
            let name = view.frames.get(tree.node(b.node).frame).display(profile);
            format!("{name} {} {}+{}", b.depth, b.left, b.width)
        };
        let [callers, callees] =
            [(&sandwich.callers, &found.callers), (&sandwich.callees, &found.callees)];
        [callers, callees].map(|(tree, boxes)| boxes.boxes.iter().map(|b| text(tree, b)).collect())
    }

    #[test]
    fn callers_and_callees_lie_on_their_function() {
        let [callers, callees] = drawn(&answers(), "bar", Siblings::Name);
        let chains = ["bar 0 0+10", "foo1 1 0+5", "main 2 0+5", "foo2 1 5+5", "main 2 5+5"];
        assert_eq!(callers, chains);
        assert_eq!(callees, ["bar 0 0+10"]);
        let [callers, callees] = drawn(&answers(), "foo1", Siblings::Name);
        assert_eq!(callers, ["foo1 0 0+8", "main 1 0+8"]);
        assert_eq!(callees, ["foo1 0 0+8", "bar 1 3+5"]);
    }

    #[test]
    fn functions_are_at_the_same_place_on_both_sides() {
        for profile in [answers(), processes(), frames_profile(), Profile::default()] {
            for order in [Siblings::Name, Siblings::LeftHeavy] {
                let lowest = |boxes: Vec<String>| -> Vec<String> {
                    boxes.into_iter().filter(|text| text.contains(" 0 ")).collect()
                };
                let [callers, callees] = drawn(&profile, ".", order).map(lowest);
                assert_eq!(callers, callees);
            }
        }
    }
}
