//! A flame graph in the cells of a terminal.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use super::model::{Graph, Model};
use view::{BoxTree, Boxes, FlameBox, Tree};

/// A box of a flame graph, in cells of its row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellBox {
    /// Its node.
    pub node: u32,
    /// Its first column.
    pub left: u16,
    /// Its width, at least 1.
    pub width: u16,
}

/// A tree of boxes with names.
pub trait NamedTree: BoxTree {
    /// The number of nodes.
    fn count(&self) -> usize;
    /// The node at a position, when each node is followed by its subtree; at 0 is the root.
    fn node_at(&self, position: usize) -> u32;
    /// The position of a node.
    fn position(&self, node: u32) -> usize;
    /// The name of a node; empty for the root.
    fn box_name(&self, node: u32) -> Cow<'_, str>;
}

impl BoxTree for Graph {
    fn parent(&self, node: u32) -> u32 {
        self.tree.node(node).parent
    }

    fn width(&self, node: u32) -> i64 {
        self.tree.node(node).total
    }

    fn children(&self, node: u32) -> &[u32] {
        self.ordered.children(node)
    }
}

impl NamedTree for Graph {
    fn count(&self) -> usize {
        self.ordered.nodes().len()
    }

    fn node_at(&self, position: usize) -> u32 {
        self.ordered.nodes()[position]
    }

    fn position(&self, node: u32) -> usize {
        self.ordered.position(node)
    }

    fn box_name(&self, node: u32) -> Cow<'_, str> {
        match node {
            Tree::ROOT => "".into(),
            node => self.facts.name(self.tree.node(node).frame),
        }
    }
}

/// A tree on a screen with some columns, zoomed into a node.
pub struct Zoomed<'t> {
    tree: &'t dyn BoxTree,
    columns: u16,
    /// From a root to the node that is zoomed into; empty without a zoom.
    path: Vec<u32>,
}

impl<'t> Zoomed<'t> {
    /// The tree, zoomed into `node`; [`Tree::ROOT`]: all of it.
    pub fn new(tree: &'t dyn BoxTree, node: u32, columns: u16) -> Zoomed<'t> {
        let mut path = path_to_root(tree, node).collect::<Vec<u32>>();
        path.reverse();
        Zoomed { tree, columns, path }
    }

    fn zoom(&self) -> u32 {
        self.path.last().copied().unwrap_or(Tree::ROOT)
    }

    /// Width of a cell.
    fn cell(&self) -> f64 {
        (self.tree.width(self.zoom()) as f64 / f64::from(self.columns)).max(1.0)
    }

    /// True if the box of a node is on the screen.
    pub fn shows(&self, node: u32) -> bool {
        let is_on =
            |below: u32| below == Tree::ROOT || path_to_root(self.tree, node).any(|n| n == below);
        let is_wide = || self.tree.width(node) as f64 >= self.cell();
        node == Tree::ROOT || self.path.contains(&node) || is_wide() && is_on(self.zoom())
    }

    /// The number of boxes below that of a node: the root's, and those of its callers.
    pub fn depth(&self, node: u32) -> usize {
        path_to_root(self.tree, node).count()
    }

    /// The node that many boxes up the stack of a node, through the widest one on each; if negative,
    /// down the stack. At an end of the stack, the last one.
    pub fn along(&self, node: u32, steps: isize) -> u32 {
        let mut at = node;
        let mut depth = self.depth(node);
        for _ in 0..steps.unsigned_abs() {
            let next = if steps < 0 {
                Some(self.tree.parent(at)).filter(|_| at != Tree::ROOT)
            } else {
                self.widest_on(at, depth)
            };
            let Some(next) = next else { break };
            at = next;
            depth = if steps < 0 { depth - 1 } else { depth + 1 };
        }
        at
    }

    /// The first of the widest boxes on that of a node with this depth.
    fn widest_on(&self, node: u32, depth: usize) -> Option<u32> {
        // Those next to the zoomed box and the boxes below it are not on the screen.
        let below = depth.checked_sub(1).map_or(Some(&Tree::ROOT), |below| self.path.get(below));
        if below == Some(&node)
            && let Some(&next) = self.path.get(depth)
        {
            return Some(next);
        }
        let width = |&node: &u32| self.tree.width(node);
        let widest = self.tree.children(node).iter().copied().rev().max_by_key(width)?;
        (width(&widest) as f64 >= self.cell()).then_some(widest)
    }
}

/// Boxes on one box that are narrower than a cell, in the unit of the values.
struct NarrowBoxes {
    row: u32,
    count: usize,
    left: i64,
    width: i64,
}

impl Zoomed<'_> {
    /// The narrow boxes on each of these boxes and on the root: at the right end of the part of it
    /// without boxes. `whole`: the width of the root.
    fn others<'b>(
        &'b self,
        boxes: &'b [FlameBox],
        whole: i64,
    ) -> impl Iterator<Item = NarrowBoxes> + 'b {
        let first = boxes.iter().find(|b| b.depth == 0).map_or(whole, |b| b.left);
        let root = FlameBox { node: Tree::ROOT, depth: 0, left: 0, width: whole, rest: first };
        let root = (root, 1);
        let on_root = boxes.iter().map(|b| (*b, b.depth + 2));
        let all = [root].into_iter().chain(on_root);
        all.filter(|(b, _)| b.rest > 0).filter_map(|(b, row)| {
            let least = self.cell();
            let widths = self.tree.children(b.node).iter().map(|&node| self.tree.width(node));
            let narrow = widths.filter(|&width| width > 0 && (width as f64) < least);
            let (count, sum) = narrow
                .fold((0, 0i64), |(count, sum), width| (count + 1, sum.saturating_add(width)));
            let width = sum.min(b.rest);
            let left = b.left.saturating_add(b.rest - width);
            (count > 0).then_some(NarrowBoxes { row, count, left, width })
        })
    }
}

/// A node and those below it without the root.
fn path_to_root(tree: &dyn BoxTree, node: u32) -> impl Iterator<Item = u32> {
    let below = |node: u32| Some(node).filter(|&node| node != Tree::ROOT);
    std::iter::successors(below(node), move |&node| below(tree.parent(node)))
}

/// The boxes of a flame graph that are at least one cell wide, by row; row 0 is the tree's root,
/// below all others.
#[derive(Default)]
pub struct CellRows {
    boxes: Vec<CellBox>,
    /// The beginning of each row, and the end of the last.
    starts: Vec<u32>,
    /// Boxes that are narrower than a cell, in the order of rows.
    others: Vec<OtherBoxes>,
}

/// Boxes on one box that are narrower than a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherBoxes {
    row: u32,
    /// The number of them.
    pub count: usize,
    /// The first column of their room.
    pub left: u16,
    /// Width of all of them, at least 1.
    pub width: u16,
}

impl CellRows {
    /// The layout of [`Boxes`] in cells.
    pub fn new(zoomed: &Zoomed<'_>) -> CellRows {
        let Boxes { boxes, width: whole, levels } =
            Boxes::at_least(zoomed.tree, zoomed.zoom(), zoomed.cell());
        // Rounded down, so that no two boxes share a cell, and gaps are narrower than a cell.
        let column = |value: i64| (value as f64 * f64::from(zoomed.columns) / whole as f64) as u16;
        let in_cells = boxes.iter().map(|b| {
            let (left, right) = (column(b.left), column(b.left.saturating_add(b.width)));
            (b.depth as usize + 1, CellBox { node: b.node, left, width: right - left })
        });
        let root = CellBox { node: Tree::ROOT, left: 0, width: zoomed.columns };
        let in_cells = [(0, root)].into_iter().filter(|_| whole > 0).chain(in_cells);
        let in_cells: Vec<_> = in_cells.filter(|(_, b)| b.width > 0).collect();
        let others = zoomed.others(&boxes, whole).filter_map(|narrow| {
            let left = column(narrow.left);
            let width = column(narrow.left.saturating_add(narrow.width)) - left;
            let NarrowBoxes { row, count, .. } = narrow;
            (width > 0).then_some(OtherBoxes { row, count, left, width })
        });
        let mut others: Vec<_> = others.collect();
        others.sort_by_key(|others| others.row);
        let mut starts = vec![0u32; levels as usize + 2];
        for (depth, _) in &in_cells {
            starts[depth + 1] += 1;
        }
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut next = starts.clone();
        let mut by_row = vec![CellBox::default(); in_cells.len()];
        for (depth, b) in in_cells {
            by_row[next[depth] as usize] = b;
            next[depth] += 1;
        }
        CellRows { boxes: by_row, starts, others }
    }

    /// The boxes of a row that are narrower than a cell, where they have room together.
    pub fn others(&self, row: usize) -> &[OtherBoxes] {
        let begin = self.others.partition_point(|others| (others.row as usize) < row);
        let end = self.others.partition_point(|others| others.row as usize <= row);
        &self.others[begin..end]
    }

    /// The boxes of a row, from left to right.
    pub fn row(&self, depth: usize) -> &[CellBox] {
        match self.starts.get(depth..=depth + 1) {
            Some(&[start, end]) => &self.boxes[start as usize..end as usize],
            _ => &[],
        }
    }
}

/// The boxes that were needed last. They are laid out again for another model, zoom or width only.
#[derive(Default)]
pub struct LaidOut(RefCell<Option<Last>>);

struct Last {
    model: Weak<Model>,
    zoom: u32,
    columns: u16,
    rows: Rc<CellRows>,
}

impl LaidOut {
    /// The boxes of a model; none, if it has no tree.
    pub fn rows(&self, model: &Arc<Model>, zoom: u32, columns: u16) -> Rc<CellRows> {
        let mut last = self.0.borrow_mut();
        if let Some(last) = &*last
            && std::ptr::eq(last.model.as_ptr(), Arc::as_ptr(model))
            && (last.zoom, last.columns) == (zoom, columns)
        {
            return last.rows.clone();
        }
        let rows = model.boxes().map(|tree| CellRows::new(&Zoomed::new(tree, zoom, columns)));
        let rows = Rc::new(rows.unwrap_or_default());
        *last = Some(Last { model: Arc::downgrade(model), zoom, columns, rows: rows.clone() });
        rows
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::model::{Context, compute};
    use super::*;
    use profile::{Builder, LabelSetId, Profile};
    use view::Direction;
    use view::query::{Query, Shown};
    use view::testing::answers;

    #[test]
    fn boxes_are_as_wide_as_their_values() {
        let graph = graph(answers());
        let name = |node: u32| graph.facts.name(graph.tree.node(node).frame).into_owned();
        let rows = |zoom: u32, width: u16| CellRows::new(&Zoomed::new(&graph, zoom, width));
        let boxes = |zoom: u32, width: u16| {
            let text = |b: &CellBox| format!("{} {}+{}", name(b.node), b.left, b.width);
            rows(zoom, width).boxes.iter().skip(1).map(text).collect::<Vec<_>>()
        };
        // main 18: itself 4, foo1 8 (bar 5), foo2 6 (bar 5).
        let expected = ["main 0+18", "foo1 4+8", "foo2 12+6", "bar 7+5", "bar 13+5"];
        assert_eq!(boxes(Tree::ROOT, 18), expected);
        let foo2 = rows(Tree::ROOT, 18).row(2)[1].node;
        assert_eq!(boxes(foo2, 12), ["main 0+12", "foo2 0+12", "bar 2+10"]);
        // Of one cell, only the widest are left.
        assert_eq!(boxes(Tree::ROOT, 1), ["main 0+1"]);
        assert_eq!(boxes(Tree::ROOT, 0), Vec::<String>::new());
    }
    /// A tree that counts the nodes that are visited.
    struct Counted<'t> {
        tree: &'t Graph,
        visits: Cell<usize>,
    }

    impl Counted<'_> {
        fn visit(&self, count: usize) {
            self.visits.set(self.visits.get() + count);
        }
    }

    impl BoxTree for Counted<'_> {
        fn parent(&self, node: u32) -> u32 {
            self.visit(1);
            self.tree.parent(node)
        }

        fn width(&self, node: u32) -> i64 {
            self.visit(1);
            self.tree.width(node)
        }

        fn children(&self, node: u32) -> &[u32] {
            self.visit(self.tree.children(node).len());
            self.tree.children(node)
        }
    }

    fn flame(profile: Profile) -> Model {
        let shown = Shown::flame(Direction::Callees);
        let query = Query::new(shown);
        compute(&Context::new(&Arc::new(profile)), &query).unwrap_or_else(|e| panic!("{e}"))
    }

    fn graph(profile: Profile) -> Graph {
        let Model::Graph(graph) = flame(profile) else { panic!("a graph") };
        graph
    }

    /// Stacks of this many frames, each of one function and as wide as the others.
    fn towers(count: usize, depth: usize) -> Profile {
        let mut b = Builder::new(&[("samples", "count")]);
        for tower in 0..count {
            let function = b.named_location(&format!("f{tower}"));
            b.add(&vec![function; depth], LabelSetId::EMPTY, 1, &[]);
        }
        b.finish(None)
    }

    #[test]
    fn a_step_along_a_deep_stack_visits_the_nodes_next_to_it() {
        let graph = graph(towers(60, 1000));
        let counted = Counted { tree: &graph, visits: Cell::new(0) };
        let zoomed = Zoomed::new(&counted, Tree::ROOT, 120);
        let root = graph.children(Tree::ROOT)[7];
        let leaf = zoomed.along(root, isize::MAX);
        assert_eq!((zoomed.depth(leaf), graph.children(leaf)), (1000, &[][..]));
        assert_eq!(zoomed.along(leaf, -999), root);
        assert_eq!(zoomed.along(leaf, isize::MIN), Tree::ROOT);
        assert_eq!(zoomed.along(leaf, -10), zoomed.along(root, 989));
        assert!(zoomed.shows(leaf) && zoomed.shows(Tree::ROOT));
        let visits = counted.visits.get();
        assert!(visits < 20 * 1000, "{visits} of {} nodes", graph.tree.nodes.len());
    }

    #[test]
    fn steps_stay_on_the_screen() {
        let graph = graph(answers());
        let at = |zoom: u32, columns: u16| Zoomed::new(&graph, zoom, columns);
        let main = graph.children(Tree::ROOT)[0];
        let [foo1, foo2] = graph.children(main) else { panic!("two callees") };
        let bar = graph.children(*foo2)[0];
        // To the widest callee, but to the zoomed one if there is one.
        assert_eq!(at(Tree::ROOT, 18).along(main, 1), *foo1);
        assert_eq!(at(*foo2, 18).along(main, 1), *foo2);
        assert_eq!(at(bar, 18).along(main, isize::MAX), bar);
        assert_eq!(at(bar, 18).along(Tree::ROOT, 2), *foo2);
        // Callees narrower than a cell are not shown.
        assert_eq!(at(Tree::ROOT, 3).along(main, isize::MAX), *foo1);
        assert!(at(Tree::ROOT, 3).shows(*foo2) && !at(Tree::ROOT, 3).shows(bar));
        assert!(at(*foo2, 3).shows(bar) && at(*foo2, 3).shows(main) && !at(*foo2, 3).shows(*foo1));
    }

    #[test]
    fn boxes_are_laid_out_again_for_another_zoom_width_or_model_only() {
        let [first, second] = [answers(), answers()].map(|profile| Arc::new(flame(profile)));
        let laid_out = LaidOut::default();
        let rows = laid_out.rows(&first, Tree::ROOT, 18);
        assert!(Rc::ptr_eq(&rows, &laid_out.rows(&first, Tree::ROOT, 18)));
        for (model, zoom, columns) in [(&first, 1, 18), (&first, 1, 20), (&second, 1, 20)] {
            let other = laid_out.rows(model, zoom, columns);
            assert!(!Rc::ptr_eq(&rows, &other));
            assert!(Rc::ptr_eq(&other, &laid_out.rows(model, zoom, columns)));
        }
    }

    #[test]
    fn cells_are_those_of_the_layout_of_all_renderers() {
        let graph = graph(towers(7, 3));
        let boxes = Boxes::at_least(&graph, Tree::ROOT, 1.0).boxes;
        let rows = CellRows::new(&Zoomed::new(&graph, Tree::ROOT, 70));
        assert_eq!(rows.boxes.len(), boxes.len() + 1);
        for b in boxes {
            let cells = rows.row(b.depth as usize + 1).iter().find(|c| c.node == b.node).unwrap();
            assert_eq!(
                (i64::from(cells.left), i64::from(cells.width)),
                (b.left * 10, b.width * 10)
            );
        }
    }

    #[test]
    fn narrow_boxes_have_room_together() {
        let graph = graph(towers(1000, 2));
        let rows = CellRows::new(&Zoomed::new(&graph, Tree::ROOT, 70));
        let root = CellBox { node: Tree::ROOT, left: 0, width: 70 };
        assert_eq!((rows.row(0), rows.row(1)), (&[root][..], &[][..]));
        assert_eq!(rows.others(1), [OtherBoxes { row: 1, count: 1000, left: 0, width: 70 }]);
        assert_eq!((rows.others(0), rows.others(2)), (&[][..], &[][..]));
        // Next to wider ones, which are at the right.
        let mut b = Builder::new(&[("samples", "count")]);
        for (name, value) in [("main;a", 5), ("main;b", 5), ("main;wide", 20), ("main", 10)] {
            let stack: Vec<_> = name.split(';').rev().map(|name| b.named_location(name)).collect();
            b.add(&stack, LabelSetId::EMPTY, value, &[]);
        }
        let graph = self::graph(b.finish(None));
        let rows = CellRows::new(&Zoomed::new(&graph, Tree::ROOT, 4));
        assert_eq!(rows.others(2), [OtherBoxes { row: 2, count: 2, left: 1, width: 1 }]);
        let wide = rows.row(2)[0];
        assert_eq!((wide.left, wide.width), (2, 2));
        let zoomed = CellRows::new(&Zoomed::new(&graph, wide.node, 4));
        assert_eq!((zoomed.row(2).len(), zoomed.others.len()), (1, 0));
    }
}
