//! The sandwich of a function as one tree: chains of callers first, then what it calls.

use super::model::{Facts, Graph};
use view::{Cancel, Node, SandwichModel, Siblings, Tree};

/// The tree. Its root has two children, both of which are the function: below the first are its
/// callers, below the second its callees.
pub fn graph(facts: Facts, found: &SandwichModel, cancel: &Cancel) -> Graph {
    let SandwichModel { functions, sandwich } = found;
    let function = functions.first().copied().unwrap_or(facts.frames.no_stack);
    let root = Node { parent: 0, frame: 0, self_value: 0, total: sandwich.total };
    let mut nodes = vec![root];
    let mut callers_end = 0;
    for tree in [&sandwich.callers, &sandwich.callees] {
        // With several functions of one name, they are below one node.
        let is_one = functions.len() == 1 && tree.nodes.len() > 1;
        let section = nodes.len() as u32;
        if !is_one {
            let self_value = sandwich.self_value;
            nodes.push(Node { parent: 0, frame: function, self_value, total: sandwich.total });
        }
        let first = nodes.len() as u32;
        let parent_of = |parent: u32| match parent {
            Tree::ROOT if is_one => Tree::ROOT,
            Tree::ROOT => section,
            parent => parent - 1 + first,
        };
        let joined = tree.nodes.iter().skip(1);
        nodes.extend(joined.map(|node| Node { parent: parent_of(node.parent), ..*node }));
        if callers_end == 0 {
            callers_end = nodes.len() as u32;
        }
    }
    let direction = sandwich.callees.direction;
    let left_out = sandwich.callers.left_out + sandwich.callees.left_out;
    let beyond_limit = sandwich.callers.beyond_limit + sandwich.callees.beyond_limit;
    let tree = Tree { nodes, left_out, beyond_limit, direction, states: Vec::new() };
    let ordered = facts.ordered(&tree, Siblings::LeftHeavy, cancel);
    Graph { facts, tree, ordered, callers_end }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use profile::Profile;
    use view::Model;
    use view::query::{Query, Shown};
    use view::testing::{answers, processes};

    fn drawn(profile: Profile, name: &str) -> Vec<String> {
        let query = Query::new(Shown::Sandwich(name.to_owned()));
        let cancel = Cancel::default();
        let answer = view::answer(Arc::new(profile), &query, &cancel).unwrap();
        let facts = Facts::new(&answer.part, answer.view());
        let Model::Sandwich(found) = answer.model else { panic!("no sandwich") };
        let graph = graph(facts, &found, &cancel);
        let line = |&node: &u32| {
            let Node { parent, frame, total, .. } = *graph.tree.node(node);
            let side = if graph.is_caller(node) { '^' } else { 'v' };
            format!("{side}{} {} on {parent}", graph.facts.name(frame), total)
        };
        graph.ordered.nodes()[1..].iter().map(line).collect()
    }

    #[test]
    fn callers_are_before_callees() {
        let expected = ["^foo1 8 on 0", "^main 8 on 1", "vfoo1 8 on 0", "vbar 5 on 3"];
        assert_eq!(drawn(answers(), "foo1"), expected);
        let recursion = ["^query 1 on 0", "^serve 1 on 1", "vquery 1 on 0", "vquery 1 on 3"];
        assert_eq!(drawn(processes(), "query"), recursion);
    }

    #[test]
    fn an_expression_is_no_name() {
        let found = drawn(answers(), "^foo[12]$");
        let sections = found.iter().filter(|line| line.ends_with(" on 0")).collect::<Vec<_>>();
        assert_eq!(sections, ["^foo1 14 on 0", "vfoo1 14 on 0"], "{found:?}");
        assert_eq!(found.iter().filter(|line| line.starts_with("vbar 5")).count(), 2);
    }
}
