//! Flame graphs as boxes.

use serde::Serialize;

use super::trees::frames;
use super::{FrameAnswer, Head, List};
use crate::{Boxes, Direction, FlameBox, Sandwich, SandwichBoxes, Tree, View};

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
    /// The boxes of a tree.
    pub fn new(view: &'a View<'a>, tree: &'a Tree, boxes: &'a Boxes) -> BoxesAnswer<'a> {
        BoxesAnswer {
            head: Head::new(view),
            direction: tree.direction,
            width: boxes.width,
            levels: boxes.levels,
            boxes: listed(view, tree, boxes),
        }
    }
}

fn listed<'a>(view: &'a View<'a>, tree: &'a Tree, boxes: &'a Boxes) -> List<'a, BoxAnswer<'a>> {
    let answer = move |b: &'a FlameBox| {
        let node = tree.node(b.node);
        BoxAnswer {
            frame: FrameAnswer::new(view, node.frame),
            id: b.node,
            parent: Some(node.parent).filter(|&parent| parent != Tree::ROOT),
            depth: b.depth,
            left: b.left,
            width: b.width,
            self_value: node.self_value,
            total: node.total,
        }
    };
    List::new(move || boxes.boxes.iter().map(answer))
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
    /// The boxes of a sandwich of these frames.
    pub fn new(
        view: &'a View<'a>,
        sandwich: &'a Sandwich,
        boxes: &'a SandwichBoxes,
        functions: &'a [u32],
    ) -> SandwichBoxesAnswer<'a> {
        let SandwichBoxes { callers, callees } = boxes;
        SandwichBoxesAnswer {
            head: Head::new(view),
            function_self: sandwich.self_value,
            function_total: sandwich.total,
            width: callees.width,
            caller_levels: callers.levels,
            callee_levels: callees.levels,
            functions: frames(view, functions),
            callers: listed(view, &sandwich.callers, callers),
            callees: listed(view, &sandwich.callees, callees),
        }
    }
}
