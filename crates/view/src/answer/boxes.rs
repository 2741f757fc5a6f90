//! Flame graphs as boxes.

use std::sync::Arc;

use serde::Serialize;

use super::trees::frames;
use super::{FrameAnswer, Head, List};
use crate::{
    BoxOptions, Boxes, Direction, FlameBox, SandwichBoxes, SandwichModel, Siblings, Tree, View,
};

/// A flame graph.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BoxesAnswer<'a> {
    /// The members of all answers.
    #[serde(flatten)]
    pub head: Head<'a>,
    /// Of the tree: the roots are the outermost boxes of callees.
    pub direction: Direction,
    /// Width of the whole, in the unit of the values.
    pub width: i64,
    /// Number of boxes above each other.
    pub levels: u32,
    /// The boxes, each before those on it, siblings from left to right.
    pub boxes: List<'a, BoxAnswer<'a>>,
}

/// A box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BoxAnswer<'a> {
    /// Its frame.
    #[serde(flatten)]
    pub frame: FrameAnswer<'a>,
    /// Number of its node in the tree.
    pub id: u32,
    /// Number of the box below it; `None` for the outermost.
    pub parent: Option<u32>,
    /// Number of boxes below it.
    pub depth: u32,
    /// Left end.
    pub left: i64,
    /// Width.
    pub width: i64,
    /// Self value of its node.
    #[serde(rename = "self")]
    pub self_value: i64,
    /// Total of its node.
    pub total: i64,
}

impl<'a> BoxesAnswer<'a> {
    /// The boxes of a tree in this order, at least `min_width` percent of the whole wide.
    pub fn new(
        view: &'a View<'a>,
        tree: &'a Tree,
        order: Siblings,
        min_width: f64,
    ) -> BoxesAnswer<'a> {
        let boxes = Boxes::new(view, tree, &BoxOptions { order, min_width, zoom: Tree::ROOT });
        BoxesAnswer {
            head: Head::new(view),
            direction: tree.direction,
            width: view.shown(boxes.width),
            levels: boxes.levels,
            boxes: listed(view, tree, boxes.boxes),
        }
    }
}

fn listed<'a>(view: &'a View<'a>, tree: &'a Tree, boxes: Vec<FlameBox>) -> List<'a, BoxAnswer<'a>> {
    let boxes = Arc::new(boxes);
    let answer = move |b: FlameBox| {
        let node = tree.node(b.node);
        BoxAnswer {
            frame: FrameAnswer::new(view, node.frame),
            id: b.node,
            parent: Some(node.parent).filter(|&parent| parent != Tree::ROOT),
            depth: b.depth,
            left: view.shown(b.left),
            width: view.shown(b.width),
            self_value: view.shown(node.self_value),
            total: view.shown(node.total),
        }
    };
    List::new(move || {
        let boxes = boxes.clone();
        (0..boxes.len()).map(move |number| answer(boxes[number]))
    })
}

/// The callers and the callees of functions as boxes.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SandwichBoxesAnswer<'a> {
    /// The members of all answers.
    #[serde(flatten)]
    pub head: Head<'a>,
    /// Value of the samples whose innermost frame is one of the functions.
    pub function_self: i64,
    /// Value of the samples with one of the functions.
    pub function_total: i64,
    /// Width of the functions, in the unit of the values.
    pub width: i64,
    /// Number of boxes of callers above each other.
    pub caller_levels: u32,
    /// The same of callees.
    pub callee_levels: u32,
    /// The functions.
    pub functions: List<'a, FrameAnswer<'a>>,
    /// The boxes of the chains of callers.
    pub callers: List<'a, BoxAnswer<'a>>,
    /// The boxes of what the functions call.
    pub callees: List<'a, BoxAnswer<'a>>,
}

impl<'a> SandwichBoxesAnswer<'a> {
    /// The boxes of a sandwich in this order, at least `min_width` percent of the functions wide.
    pub fn new(
        view: &'a View<'a>,
        model: &'a SandwichModel,
        order: Siblings,
        min_width: f64,
    ) -> SandwichBoxesAnswer<'a> {
        let SandwichModel { functions, sandwich } = model;
        let SandwichBoxes { callers, callees } =
            SandwichBoxes::new(view, sandwich, order, min_width);
        SandwichBoxesAnswer {
            head: Head::new(view),
            function_self: view.shown(sandwich.self_value),
            function_total: view.shown(sandwich.total),
            width: view.shown(callees.width),
            caller_levels: callers.levels,
            callee_levels: callees.levels,
            functions: frames(view, functions),
            callers: listed(view, &sandwich.callers, callers.boxes),
            callees: listed(view, &sandwich.callees, callees.boxes),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::answer::AnswerData;
    use crate::query::{Limits, Query, Shown, ShownFlame};
    use crate::testing::answers;
    use crate::{Cancel, Cut, answer};

    /// The boxes of a query's answer as `function left+width`.
    fn drawn(shown: Shown, min_width: f64) -> Vec<Vec<String>> {
        let limits = Limits { cut: Cut::Width(min_width), ..Limits::NONE };
        let query = Query { limits, ..Query::new(shown) };
        let answer = answer(Arc::new(answers()), &query, &Cancel::default()).unwrap();
        let view = answer.view();
        let text = |b: BoxAnswer<'_>| {
            format!("{} {}+{}", b.frame.function.unwrap_or_default(), b.left, b.width)
        };
        match AnswerData::new(&view, &answer, &query, |_| Vec::new()) {
            Some(AnswerData::Boxes(found)) => vec![found.boxes.iter().map(text).collect()],
            Some(AnswerData::SandwichBoxes(found)) => {
                [&found.callers, &found.callees].map(|l| l.iter().map(text).collect()).into()
            }
            _ => panic!("no boxes"),
        }
    }

    #[test]
    fn boxes_have_the_order_and_the_width_of_the_query() {
        let flame =
            |siblings| Shown::Flame(ShownFlame { siblings, ..ShownFlame::new(Direction::Callees) });
        let [by_name, heavy] = [Siblings::Name, Siblings::LeftHeavy]
            .map(|siblings| drawn(flame(siblings), 0.0).remove(0));
        assert_eq!(by_name[0], "main 0+18");
        assert_eq!(by_name.len(), heavy.len());
        let wide = drawn(flame(Siblings::Name), 50.0).remove(0);
        assert!(wide.len() < by_name.len() && wide[0] == by_name[0], "{wide:?}");
        let name = "bar".to_owned();
        let [callers, callees] =
            drawn(Shown::SandwichFlame { name, siblings: Siblings::Name }, 0.0).try_into().unwrap();
        assert_eq!(callers, ["bar 0+10", "foo1 0+5", "main 0+5", "foo2 5+5", "main 5+5"]);
        assert_eq!(callees, ["bar 0+10"]);
    }
}
