//! Functions with their direct callers and callees, as of pprof's `peek`.

use super::{Edge, Graph, GraphNode, NodeOrder, Trim, View};

/// One function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peeked {
    /// Index of the function in [`Graph::nodes`].
    pub node: u32,
    /// The calls of it, largest first.
    pub callers: Vec<Edge>,
    /// The calls that it makes, largest first.
    pub callees: Vec<Edge>,
}

/// Some functions of a complete call graph, with what calls them and what they call.
///
/// Calls of a function by itself are not listed. In a recursion, several callers of a function
/// count with the value of the same sample, so that their sum can be larger than its total.
pub struct Peek {
    /// The call graph.
    pub graph: Graph,
    /// The functions, largest self value first.
    pub functions: Vec<Peeked>,
}

impl Peek {
    /// The callers and callees of the frames `wanted`.
    pub fn new(view: &View, wanted: &[u32]) -> Peek {
        let mut graph = Graph::new(view, NodeOrder::SelfValue, Trim::NOTHING);
        graph.edges.shrink_to_fit();
        let mut is_wanted = vec![false; view.frames.len()];
        wanted.iter().for_each(|&f| is_wanted[f as usize] = true);
        let mut slot = vec![None; graph.nodes.len()];
        let mut functions = Vec::new();
        for (i, node) in graph.nodes.iter().enumerate() {
            if is_wanted[node.frame as usize] {
                slot[i] = Some(functions.len());
                let (callers, callees) = (Vec::new(), Vec::new());
                functions.push(Peeked { node: i as u32, callers, callees });
            }
        }
        for edge in &graph.edges {
            if let Some(at) = slot[edge.callee as usize] {
                functions[at].callers.push(*edge);
            }
            if let Some(at) = slot[edge.caller as usize] {
                functions[at].callees.push(*edge);
            }
        }
        Peek { graph, functions }
    }

    /// A node of the graph.
    pub fn node(&self, id: u32) -> &GraphNode {
        &self.graph.nodes[id as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::answers;
    use crate::{Granularity, named_frames};

    #[test]
    fn callers_and_callees_are_those_of_the_graph() {
        let p = answers();
        let view = View::new(&p, 0, Granularity::SYMBOL);
        let peek = Peek::new(&view, &named_frames(&view, "foo").unwrap());
        let name = |n: u32| view.frames.get(peek.node(n).frame).display(&p).into_owned();
        let lines: Vec<_> = peek
            .functions
            .iter()
            .map(|f| {
                let callers: Vec<_> = f.callers.iter().map(|e| (name(e.caller), e.value)).collect();
                let callees: Vec<_> = f.callees.iter().map(|e| (name(e.callee), e.value)).collect();
                (name(f.node), callers, callees)
            })
            .collect();
        let edge = |n: &str, v: i64| vec![(n.to_string(), v)];
        let foo1 = ("foo1".to_string(), edge("main", 8), edge("bar", 5));
        let foo2 = ("foo2".to_string(), edge("main", 6), edge("bar", 5));
        assert_eq!(lines, [foo1, foo2]);
    }
}
