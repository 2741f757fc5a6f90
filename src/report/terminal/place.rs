//! What is selected, expanded and zoomed into on a page, by names: it stays when the page gets a
//! newer model, in which rows and nodes have other numbers.

use std::hash::Hasher;

use rustc_hash::{FxHashSet, FxHasher};

use super::boxes::NamedTree;
use super::model::Model;
use super::page::PageState;
use view::Tree;

/// The state of a page, by hashes of names.
pub struct Place {
    /// The selected row of a table, and its number.
    row: Option<(u64, usize)>,
    /// The selected node of a tree, from the root.
    chosen: Vec<u64>,
    /// The node that fills a flame graph.
    zoom: Vec<u64>,
    /// Expanded nodes, each by the hash of its path.
    expanded: FxHashSet<u64>,
}

fn hash(name: &str) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(name.as_bytes());
    hasher.finish()
}

fn hash_below(parent: u64, name: u64) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write_u64(parent);
    hasher.write_u64(name);
    hasher.finish()
}

fn name_of(tree: &dyn NamedTree, node: u32) -> u64 {
    hash(&tree.box_name(node))
}

/// The names from the root to a node.
fn path(tree: &dyn NamedTree, node: u32) -> Vec<u64> {
    let mut names = Vec::new();
    let mut at = node;
    while at != Tree::ROOT {
        names.push(name_of(tree, at));
        at = tree.parent(at);
    }
    names.reverse();
    names
}

/// The node at a path, or the last one on it that exists.
fn node_at(tree: &dyn NamedTree, path: &[u64]) -> u32 {
    let mut at = Tree::ROOT;
    for &name in path {
        let mut children = tree.children(at).iter().copied();
        match children.find(|&child| name_of(tree, child) == name) {
            Some(child) => at = child,
            None => break,
        }
    }
    at
}

/// Expanded nodes with the hashes of their paths, parents before children. `is_expanded` gets a
/// node and the path of its parent.
fn expanded_nodes(
    tree: &dyn NamedTree,
    is_expanded: impl Fn(u32, u64) -> Option<u64>,
) -> Vec<(u32, u64)> {
    let mut found = Vec::new();
    let mut pending = vec![(Tree::ROOT, 0)];
    while let Some((parent, parent_path)) = pending.pop() {
        for &child in tree.children(parent) {
            if let Some(path) = is_expanded(child, parent_path) {
                found.push((child, path));
                pending.push((child, path));
            }
        }
    }
    found
}

impl Place {
    /// The state of a page; `None` without a model.
    pub fn find(page: &PageState) -> Option<Place> {
        let mut place = Place {
            row: None,
            chosen: Vec::new(),
            zoom: Vec::new(),
            expanded: FxHashSet::default(),
        };
        let model = page.model.as_deref()?;
        if let Some(tree) = model.boxes() {
            place.chosen = path(tree, page.node());
            place.zoom = path(tree, page.zoom);
            let expanded = expanded_nodes(tree, |node, parent_path| {
                let is_expanded = page.outline.is_expanded(node);
                is_expanded.then(|| hash_below(parent_path, name_of(tree, node)))
            });
            place.expanded = expanded.into_iter().map(|(_, path)| path).collect();
        } else if page.is_touched && page.cursor.selected < page.rows() {
            let row = page.cursor.selected;
            place.row = Some((hash(&page.text_at(row)), row));
        }
        Some(place)
    }

    /// Brings a page with a newer model into this state.
    pub fn restore(&self, page: &mut PageState) {
        let Some(model) = page.model.clone() else { return };
        let Some(tree) = model.boxes() else {
            let Some((text, row)) = self.row else { return };
            // Rows of source may have the same text.
            let is_it = |row: &usize| hash(&page.text_at(*row)) == text;
            let same = Some(row).filter(|&row| row < page.rows()).filter(is_it);
            let found = same.or_else(|| (0..page.rows()).find(is_it));
            page.cursor.selected = found.unwrap_or(page.cursor.selected);
            return;
        };
        page.zoom = node_at(tree, &self.zoom);
        let chosen = node_at(tree, &self.chosen);
        if chosen != Tree::ROOT || self.chosen.is_empty() && page.is_touched {
            page.chosen = chosen;
        }
        let Model::Graph(graph) = &*model else { return };
        let expanded = expanded_nodes(tree, |node, parent_path| {
            let path = hash_below(parent_path, name_of(tree, node));
            self.expanded.contains(&path).then_some(path)
        });
        page.outline.set_expanded(graph, expanded.into_iter().map(|(node, _)| node));
        if page.is_touched && !page.is_flame() {
            page.cursor.selected = page.outline.line_of(chosen).unwrap_or(page.cursor.selected);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::app::{App, Command};
    use super::super::cursor::Move;
    use super::super::keys::{Action, ViewKey};
    use super::super::live::{Control, LiveStatus};
    use super::super::model::{Context, compute};
    use super::super::page::Body;
    use super::super::run::Start;
    use super::super::theme::{Charset, Depth, Theme};
    use profile::{Builder, Column, LabelSetId, Profile};

    /// A profile of stacks, outermost function first, with values.
    fn profile(stacks: &[(&str, i64)]) -> Arc<Profile> {
        let mut builder = Builder::new(&[("cpu", "nanoseconds"), ("cpu", "nanoseconds")]);
        for (stack, value) in stacks {
            let frames = stack.split(';').rev();
            let frames: Vec<_> = frames.map(|name| builder.named_location(name)).collect();
            builder.add(&frames, LabelSetId::EMPTY, 0, &[(Column(0), *value)]);
        }
        Arc::new(builder.finish(None))
    }

    fn perform(app: &mut App, commands: Vec<Command>) {
        for command in commands {
            let Command::Compute(job, query) = command else { panic!("{command:?}") };
            let model = compute(&Context::new(app.profile.as_ref().unwrap()), &query);
            let more = app.computed(job, model.map(Arc::new));
            perform(app, more);
        }
    }

    fn app() -> App {
        let theme = Theme { depth: Depth::None, charset: Charset::Ascii };
        let start = Start { file: "live".to_owned(), ..Start::default() };
        let mut app = App::new(start, theme);
        app.live = Some(LiveStatus::default());
        app.body = Body { width: 80, height: 20 };
        let first = profile(&[("main;foo;leaf", 5), ("main;bar", 3), ("main;foo", 1)]);
        let commands = app.open(first, 0);
        perform(&mut app, commands);
        app
    }

    /// The same functions in another order, and new ones.
    fn newer() -> Arc<Profile> {
        profile(&[("main;new;one", 90), ("main;bar", 30), ("main;foo;leaf", 1), ("new", 50)])
    }

    fn press(app: &mut App, actions: &[Action]) {
        for &action in actions {
            let commands = app.act(action);
            perform(app, commands);
        }
    }

    fn replace(app: &mut App) {
        let commands = app.replace(newer());
        perform(app, commands);
    }

    fn selected(app: &App) -> String {
        app.page().name().map_or(String::new(), |name| name.into_owned())
    }

    #[test]
    fn a_selected_function_stays_selected() {
        let mut app = app();
        press(&mut app, &[Action::Go(Move::Rows(1))]);
        assert_eq!(selected(&app), "bar");
        replace(&mut app);
        assert_eq!((selected(&app), app.page().cursor.selected), ("bar".to_owned(), 2));
        // Without a selection, the first row is the hottest function.
        let mut untouched = self::app();
        replace(&mut untouched);
        assert_eq!(selected(&untouched), "one");
    }

    #[test]
    fn a_tree_stays_expanded_and_a_flame_graph_zoomed() {
        let mut app = app();
        let to_foo = [Action::View(ViewKey::CallTree), Action::Go(Move::Rows(1)), Action::Right];
        press(&mut app, &to_foo);
        assert_eq!((selected(&app), app.page().rows()), ("foo".to_owned(), 4));
        press(&mut app, &[Action::View(ViewKey::Flame), Action::Go(Move::Rows(1)), Action::Open]);
        assert_eq!(selected(&app), "foo");
        let is_zoomed = |app: &App| app.page().zoom != view::Tree::ROOT;
        assert!(is_zoomed(&app));
        replace(&mut app);
        assert!(is_zoomed(&app) && selected(&app) == "foo");
        press(&mut app, &[Action::Back]);
        let page = app.page();
        let names: Vec<String> = (0..page.searched()).map(|i| page.text_at(i).into()).collect();
        assert!(names.contains(&"one".to_owned()), "the newer profile: {names:?}");
        assert_eq!(selected(&app), "foo");
        assert!(page.outline.is_expanded(page.node()));
    }

    #[test]
    fn a_page_far_back_has_the_place_by_names_in_a_newer_profile() {
        let mut app = app();
        let into_leaf = [Action::View(ViewKey::Flame), Action::Go(Move::Last), Action::Open];
        press(&mut app, &into_leaf);
        assert_eq!(selected(&app), "leaf");
        let away = [ViewKey::Lines, ViewKey::Binaries, ViewKey::Files].map(Action::View);
        press(&mut app, &away);
        let commands = app.replace(profile(&[("main;foo", 1)]));
        perform(&mut app, commands);
        press(&mut app, &[Action::Back; 3]);
        assert_eq!(selected(&app), "foo");
        press(&mut app, &[Action::Go(Move::First), Action::Go(Move::Last), Action::Cancel]);
        assert_eq!(selected(&app), "foo");
    }

    #[test]
    fn a_page_that_is_left_while_it_is_computed_again_is_newer_on_return() {
        let mut app = app();
        let first = app.replace(newer());
        let there = app.act(Action::View(ViewKey::CallTree));
        perform(&mut app, first);
        perform(&mut app, there);
        press(&mut app, &[Action::Back]);
        assert_eq!((selected(&app), app.is_busy()), ("one".to_owned(), false));
    }

    #[test]
    fn the_last_of_several_newer_profiles_is_shown() {
        let mut app = app();
        let first = app.replace(newer());
        let newest = profile(&[("newest", 1)]);
        assert!(app.replace(newest).is_empty(), "the computation goes on");
        assert!(!app.is_busy(), "the page has a model");
        perform(&mut app, first);
        assert_eq!(selected(&app), "newest");
    }

    #[test]
    fn requests_are_those_of_a_recording() {
        let mut app = app();
        assert_eq!(app.act(Action::Pause), [Command::Live(Control::Pause)]);
        assert_eq!(app.act(Action::NextWindow), [Command::Live(Control::NextWindow)]);
        app.live = None;
        assert!(app.act(Action::Pause).is_empty());
        assert!(app.message.as_deref().is_some_and(|text| text.contains("prof top")));
    }

    #[test]
    fn deep_recursion_and_an_empty_profile_replace_each_other() {
        let deep = vec!["f"; 10_000].join(";");
        for shown in [
            Action::View(ViewKey::CallTree),
            Action::View(ViewKey::Flame),
            Action::View(ViewKey::Functions),
        ] {
            let mut app = app();
            press(&mut app, &[shown]);
            for stacks in [&[(deep.as_str(), 5)][..], &[], &[("main", -3)], &[(&deep, 1)]] {
                let commands = app.replace(profile(stacks));
                perform(&mut app, commands);
                press(&mut app, &[Action::ExpandAll, Action::Go(Move::Last), Action::Open]);
            }
        }
    }
}
