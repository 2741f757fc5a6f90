//! Means: the values of models divided by those of the same models of the first sample type, which
//! counts samples or events.

use rustc_hash::FxHashMap;

use super::{Cut, Graph, Over, Peek, Sandwich, ThreadStates, Tree, View};

/// A sum divided by a count, rounded towards 0; without a count, the sum.
pub(super) fn mean(sum: i64, count: i64) -> i64 {
    sum.checked_div(count).unwrap_or(sum)
}

/// Divides sums by counts.
pub(super) fn divide(sums: &mut [i64], counts: &[i64]) {
    sums.iter_mut().zip(counts).for_each(|(sum, &count)| *sum = mean(*sum, count));
}

impl Tree {
    /// Replaces the sums of a whole tree by means, and then omits what `cut` does not keep of these;
    /// `counts`: the same tree of the first sample type.
    pub(super) fn average(&mut self, view: &View, counts: &Tree, cut: Cut) {
        let children = counts.nodes.iter().zip(0u32..).skip(1);
        let places: FxHashMap<(u32, u32), u32> =
            children.map(|(node, id)| ((node.parent, node.frame), id)).collect();
        // The node in `counts` of each node.
        let mut same: Vec<Option<u32>> = vec![Some(Tree::ROOT)];
        for id in 0..self.nodes.len() {
            let node = &mut self.nodes[id];
            if id > 0 {
                let parent = same[node.parent as usize];
                same.push(parent.and_then(|parent| places.get(&(parent, node.frame)).copied()));
            }
            let Some(count) = same[id].map(|same| counts.node(same)) else { continue };
            node.self_value = mean(node.self_value, count.self_value);
            node.total = mean(node.total, count.total);
        }
        self.omit(view, cut);
    }

    /// Omits nodes that `cut` does not keep, with those below them.
    fn omit(&mut self, view: &View, cut: Cut) {
        let whole = self.node(Tree::ROOT).total;
        let mut numbers: Vec<Option<u32>> = vec![Some(Tree::ROOT)];
        let mut kept = vec![self.nodes[0]];
        for node in &self.nodes[1..] {
            let parent = numbers[node.parent as usize];
            let is_kept = cut.keeps(view, whole, node.total);
            self.left_out += usize::from(parent.is_some() && !is_kept);
            numbers.push(parent.filter(|_| is_kept).map(|parent| {
                kept.push(super::Node { parent, ..*node });
                kept.len() as u32 - 1
            }));
        }
        self.nodes = kept;
    }
}

impl Sandwich {
    /// The same as of a tree.
    pub(super) fn average(&mut self, view: &View, counts: &Sandwich, cut: Cut) {
        self.callers.average(view, &counts.callers, cut);
        self.callees.average(view, &counts.callees, cut);
        self.total = mean(self.total, counts.total);
        self.self_value = mean(self.self_value, counts.self_value);
    }
}

impl Peek {
    /// Replaces sums by means; `counts`: the whole graph of the first sample type.
    pub(super) fn average(&mut self, counts: &Graph) {
        let nodes: FxHashMap<u32, _> = counts.nodes.iter().map(|node| (node.frame, node)).collect();
        for node in &mut self.graph.nodes {
            let Some(count) = nodes.get(&node.frame) else { continue };
            node.self_value = mean(node.self_value, count.self_value);
            node.total = mean(node.total, count.total);
        }
        let frame = |id: u32| counts.nodes[id as usize].frame;
        let calls: FxHashMap<(u32, u32), i64> = counts
            .edges
            .iter()
            .map(|edge| ((frame(edge.caller), frame(edge.callee)), edge.value))
            .collect();
        let nodes = &self.graph.nodes;
        let frame = |id: u32| nodes[id as usize].frame;
        for function in &mut self.functions {
            for edges in [&mut function.callers, &mut function.callees] {
                for edge in edges.iter_mut() {
                    let count = calls.get(&(frame(edge.caller), frame(edge.callee)));
                    edge.value = mean(edge.value, count.copied().unwrap_or(0));
                }
                // Equal ones stay in the order of their sums.
                edges.sort_by_key(|edge| std::cmp::Reverse(edge.value.unsigned_abs()));
            }
        }
        let own = |node: u32| nodes[node as usize].self_value.unsigned_abs();
        self.functions.sort_by_key(|function| std::cmp::Reverse(own(function.node)));
    }
}

impl ThreadStates {
    /// Replaces sums by means; `counts`: the same threads of the first sample type.
    pub(super) fn average(&mut self, counts: &ThreadStates) {
        let counts: FxHashMap<_, _> = counts.rows.iter().map(|row| (&row.thread, row)).collect();
        for row in &mut self.rows {
            let Some(count) = counts.get(&row.thread) else { continue };
            row.total = mean(row.total, count.total);
            divide(&mut row.by_state, &count.by_state);
        }
        self.rows.sort_by_key(|row| std::cmp::Reverse(row.total.unsigned_abs()));
    }
}

impl Over {
    /// Replaces the sums of intervals by means; `counts`: the same rows of the first sample type.
    /// The values of whole rows are means already.
    pub(super) fn average(&mut self, counts: &Over) {
        divide(&mut self.sums, &counts.sums);
        self.without_time = mean(self.without_time, counts.without_time);
        for (row, count) in self.rows.iter_mut().zip(&counts.rows) {
            divide(&mut row.self_values, &count.self_values);
            divide(&mut row.totals, &count.totals);
        }
    }
}
