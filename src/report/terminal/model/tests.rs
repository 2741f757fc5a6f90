use super::*;
use profile::{Builder, LabelSetId, Limits};
use view::query::{AddedFilter, Column, Order};
use view::testing::{answers, snapshot};
use view::{Condition, Direction};

/// Stacks without common callers, which have 600,000 nodes.
fn large() -> Arc<Profile> {
    let limits = Limits { nodes: 1 << 30, rows: 1 << 30, ..Limits::default() };
    let mut b = Builder::new(&[("samples", "count")]).with_limits(limits);
    let functions: Vec<_> = (0..997).map(|i| b.named_location(&format!("f{i}"))).collect();
    for sample in 0..10_000 {
        let stack: Vec<_> =
            (0..60).map(|i| functions[(sample + i * (sample / 997 + i)) % 997]).collect();
        b.add(&stack, LabelSetId::EMPTY, 0, &[(profile::Column(0), 1 + sample as i64 % 7)]);
    }
    Arc::new(b.finish(None))
}

#[test]
fn a_canceled_page_ends_early() {
    let profile = large();
    let base = Base { before: vec![profile.clone()], ..Base::default() };
    let context = Context { base: Some(Arc::new(base)), ..Context::new(&profile) };
    let focus = AddedFilter { condition: Condition::Focus, value: "f.*7".to_owned() };
    for (shown, filters) in [
        (Shown::Tree(Direction::Callees), Vec::new()),
        (Shown::flame(Direction::Callers), Vec::new()),
        (Shown::Tree(Direction::Callees), vec![focus]),
    ] {
        let query = Query { filters, ..Query::new(shown) };
        let compute = |cancel: &Cancel| {
            let cache = Arc::default();
            let context = Context { cache, cancel: cancel.clone(), ..context.clone() };
            compute(&context, &query).err()
        };
        let whole = Cancel::after(usize::MAX);
        assert_eq!(compute(&whole), None);
        let quarter = whole.checks() / 4;
        for before in [0, 1, quarter, 2 * quarter, 3 * quarter] {
            let cancel = Cancel::after(before);
            assert_eq!(compute(&cancel).as_deref(), Some("canceled"));
            // What follows ends after a few checks.
            let (after, all) = (cancel.checks() - before, whole.checks());
            assert!(after * 20 < all, "{:?}: {after} after {before} of {all}", query.shown);
        }
    }
}

/// Trees of a large profile have no branches that cannot be seen; tables have all rows.
#[test]
fn a_table_of_a_large_profile_has_small_rows() {
    let limits = Limits { nodes: 1 << 30, rows: 1 << 30, ..Limits::default() };
    let mut b = Builder::new(&[("samples", "count")]).with_limits(limits);
    let [deep, small] = ["deep", "small"].map(|name| b.named_location(name));
    for depth in 10_000..10_101 {
        b.add(&vec![deep; depth], LabelSetId::EMPTY, 1 << 20, &[]);
    }
    b.add(&[small], LabelSetId::EMPTY, 1, &[]);
    let profile = Arc::new(b.finish(None));
    assert!(profile.stacks.frame_count() >= MANY_FRAMES);
    let context = Context::new(&profile);
    let of = |shown| compute(&context, &Query::new(shown));
    let Ok(Model::Table(table)) = of(Shown::functions()) else { panic!("a table") };
    assert_eq!(table.rows.len(), 2);
    let Ok(Model::Graph(graph)) = of(Shown::Tree(Direction::Callees)) else { panic!("a tree") };
    assert_eq!(graph.tree.left_out, 1);
}

/// The lines of a page that is written to a file, below the titles of its columns.
fn written(profile: Profile, shown: Shown) -> Vec<String> {
    let context = Context::new(&Arc::new(profile));
    let query = Query::new(shown);
    let lines = crate::report::terminal::written::rendered(&context, &query).unwrap();
    let rows = lines.iter().skip_while(|line| !line.is_empty()).skip(2);
    rows.map(|line| line.split_whitespace().last().unwrap().to_owned()).collect()
}

#[test]
fn a_file_has_the_order_of_the_screen() {
    let table = |order| Shown::Table(view::query::Table::new(Rows::Functions, order));
    let by = |column, reversed| Order { column, reversed };
    let largest = written(answers(), table(by(Column::SelfValue, false)));
    let mut smallest = written(answers(), table(by(Column::SelfValue, true)));
    smallest.reverse();
    assert_eq!((largest[0].as_str(), &largest), ("bar", &smallest));
    let mut names = written(answers(), table(by(Column::Name, true)));
    names.reverse();
    assert_eq!(names, ["bar", "foo1", "foo2", "main"]);
    // Running, or by name the other way round.
    let threads = |order| written(snapshot(), Shown::States(order));
    assert_eq!(threads(by(Column::State(0), false))[0], "13");
    assert_eq!(threads(by(Column::Name, true)), ["13", "12", "11", "10", "21"]);
}

#[test]
fn a_flame_graph_in_text_has_the_summary_of_its_tree() {
    let mut profile = answers();
    profile.values[1] = -5;
    let context = Context::new(&Arc::new(profile));
    let lines = |shown| {
        let query = Query { type_index: 1, ..Query::new(shown) };
        crate::report::terminal::written::with_summary(&context, &query).unwrap()
    };
    let tree = lines(Shown::Tree(Direction::Callees));
    assert_eq!(lines(Shown::flame(Direction::Callees)), tree);
}

#[test]
fn code_without_a_file_has_the_name_of_its_binary() {
    let context = Context::new(&Arc::new(view::testing::frames_profile()));
    let shown = Shown::table(Rows::Files);
    let query = Query::new(shown);
    let Ok(Model::Table(table)) = compute(&context, &query) else { panic!("a table") };
    let mut names: Vec<_> = (0..table.rows.len()).map(|row| table.name(row)).collect();
    names.sort();
    // As in text.
    assert_eq!(names, ["[app]", "[libx.so]", "[unknown]", "src/inner.c", "src/outer.c"]);
}
