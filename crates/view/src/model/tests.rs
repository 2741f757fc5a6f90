use super::*;
use crate::query::{AddedFilter, Column, Limits, Order, OwnRows, Roots, Rows, Table};
use crate::testing::{answers, phases, processes, snapshot};
use crate::{Condition, Cut, Direction, Filter, Granularity};

fn answered(profile: &Profile, query: &Query) -> Result<Answer, QueryError> {
    answer(Arc::new(profile.clone()), query, &Cancel::default())
}

fn model(profile: &Profile, query: &Query) -> Model {
    answered(profile, query).unwrap_or_else(|e| panic!("{e:?}")).model
}

fn error(profile: &Profile, query: &Query) -> QueryError {
    match answered(profile, query) {
        Ok(_) => panic!("{query:?} has an answer"),
        Err(error) => error,
    }
}

#[test]
fn a_table_is_cut_and_ordered() {
    let p = answers();
    let table = |order: Order, limits: Limits| {
        let shown = Shown::Table(Table::new(Rows::Functions, order));
        let query = Query { type_index: 1, limits, ..Query::new(shown) };
        let answer = answered(&p, &query).unwrap();
        let view = answer.view();
        let Model::Table(TableModel { top, .. }) = &answer.model else { panic!("no table") };
        let name = |row: &crate::Row| view.frames.get(row.frame).display(&p).into_owned();
        (top.rows.iter().map(name).collect::<Vec<_>>(), top.row_count)
    };
    let by = |column| Order::by(column);
    let two = Limits { rows: 2, ..Limits::NONE };
    assert_eq!(table(by(Column::Total), two), (vec!["main".to_owned(), "bar".to_owned()], 4));
    let large = Limits { cut: Cut::Percent(34.0), ..Limits::NONE };
    assert_eq!(table(by(Column::SelfValue), large).0, ["bar", "main", "foo1"]);
    let names = Order { reversed: true, ..by(Column::Name) };
    assert_eq!(table(names, Limits::NONE).0, ["main", "foo2", "foo1", "bar"]);
}

#[test]
fn confidence_intervals_are_in_the_requested_order() {
    let p = answers();
    let first = |column| {
        let query = Query { type_index: 1, ..Query::new(Shown::Quality(Order::by(column))) };
        let answer = answered(&p, &query).unwrap();
        let Model::Quality(quality) = &answer.model else { panic!("no intervals") };
        answer.view().frames.get(quality.rows[0].row.frame).display(&p).into_owned()
    };
    assert_eq!([Column::SelfValue, Column::Total].map(first), ["bar", "main"]);
}

#[test]
fn columns_are_in_the_order_of_the_rows() {
    let p = answers();
    let order = Order { column: Column::Total, reversed: true };
    let mut table = Table::new(Rows::Functions, order);
    table.columns.types = vec![1, 0];
    let query = Query { type_index: 1, ..Query::new(Shown::Table(table)) };
    let Model::Table(TableModel { top, columns }) = model(&p, &query) else { panic!("no table") };
    let totals = |at: usize| columns.types[at].rows.iter().map(|r| r.total).collect::<Vec<_>>();
    assert_eq!(totals(0), top.rows.iter().map(|row| row.total).collect::<Vec<_>>());
    assert!(totals(1).is_sorted(), "{:?}", totals(1));
}

#[test]
fn each_view_has_its_model() {
    let p = phases();
    let mut over = Table::new(Rows::Functions, Order::by(Column::SelfValue));
    let values = crate::query::Values::Own;
    over.over = Some(Intervals { interval: 1_000_000, most: 60, values });
    let of = |shown: Shown| model(&p, &Query::new(shown));
    assert!(matches!(of(Shown::Table(over)), Model::Over(tables) if tables.len() == 1));
    assert!(
        matches!(of(Shown::Tree(Direction::Callers)), Model::Tree(tree) if tree.nodes.len() > 1)
    );
    assert!(matches!(of(Shown::Coverage), Model::Coverage(..)));
    assert!(matches!(of(Shown::Quality(Order::by(Column::SelfValue))), Model::Quality(_)));
    assert!(matches!(of(Shown::Header), Model::Header));
    assert!(matches!(of(Shown::Threads), Model::Threads(_)));
    let sandwich = of(Shown::Sandwich("main".to_owned()));
    assert!(matches!(sandwich, Model::Sandwich(found) if found.functions.len() == 1));
    assert!(
        matches!(of(Shown::Peek("^[fg]$".to_owned())), Model::Peek(p) if p.functions.len() == 2)
    );
    let query = Query::new(Shown::States(Order::by(Column::Total)));
    let query = Query { limits: Limits { rows: 1, ..Limits::NONE }, ..query };
    let Model::States(states) = model(&snapshot(), &query) else { panic!("no threads") };
    let StatesModel { threads, row_count } = states;
    assert!(threads.rows.len() == 1 && row_count > 1, "{row_count}");
}

#[test]
fn a_flame_graph_leaves_out_losses() {
    let mut p = answers();
    p.values[1] = -5;
    let of = |shown: Shown| Query { type_index: 1, ..Query::new(shown) };
    let view = of(Shown::flame(Direction::Callees)).view(&p, &Cancel::default());
    assert_eq!(view.left_out, 1);
    assert_eq!(of(Shown::Tree(Direction::Callees)).view(&p, &Cancel::default()).left_out, 0);
}

#[test]
fn each_error_has_its_reason() {
    let p = answers();
    let name = |text: &str| text.to_owned();
    let missing = error(&p, &Query::new(Shown::Sandwich(name("nothing"))));
    let wanted = Wanted::Sandwich(name("nothing"));
    assert!(matches!(missing, QueryError::NoFunction(of) if of == wanted));
    let wrong = error(&p, &Query::new(Shown::Sandwich(name("("))));
    assert!(matches!(wrong, QueryError::NoRegex(Wanted::Sandwich(_), _)));
    let missing = error(&p, &Query::new(Shown::Peek(name("nothing"))));
    assert!(matches!(missing, QueryError::NoFunction(Wanted::Peek(_))));
    let wrong = error(&p, &Query::new(Shown::Peek(name("("))));
    assert!(matches!(wrong, QueryError::NoRegex(Wanted::Peek(_), _)));
    let files = Some(Granularity::FILES);
    let by_file = |shown| error(&p, &Query { granularity: files, ..Query::new(shown) });
    assert!(matches!(by_file(Shown::Sandwich(name("main"))), QueryError::NeedsFunctions));
    assert!(matches!(
        by_file(Shown::Quality(Order::by(Column::SelfValue))),
        QueryError::HasOwnRows(OwnRows::Quality)
    ));
    let threads = Shown::States(Order::by(Column::Total));
    assert!(matches!(by_file(threads), QueryError::HasOwnRows(OwnRows::States)));
    assert!(matches!(error(&p, &Query::new(Shown::diff_flame())), QueryError::NotAnswered));
}

#[test]
fn a_function_that_a_filter_hides_is_missing() {
    let hide = Some("^foo1$".parse().unwrap());
    let p = Filter { hide, ..Filter::default() }.apply(answers()).profile;
    let missing = error(&p, &Query::new(Shown::Sandwich("foo1".to_owned())));
    assert!(matches!(missing, QueryError::NoFunction(_)));
}

#[test]
fn labels_are_roots_of_a_tree() {
    let p = processes();
    let roots = Roots::Labels(vec!["process".to_owned()]);
    let query = Query { roots, ..Query::new(Shown::Tree(Direction::Callees)) };
    let answer = answered(&p, &query).unwrap();
    let Model::Tree(tree) = &answer.model else { panic!("no tree") };
    let view = answer.view();
    let roots = tree.nodes.iter().skip(1).filter(|node| node.parent == Tree::ROOT);
    let names = roots.map(|root| view.frames.get(root.frame).display(&p).into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    assert_eq!(names, ["db", "web;1"]);
}

#[test]
fn source_is_found_by_its_exact_name_or_by_an_expression() {
    let p = answers();
    let of = |shown: ShownSource| Query { type_index: 1, ..Query::new(Shown::Source(shown)) };
    let search =
        |name: &str| of(ShownSource { is_exact: false, ..ShownSource::lines(name.to_owned()) });
    let exact = |name: &str| of(ShownSource::lines(name.to_owned()));
    let found = |query: &Query| match model(&p, query) {
        Model::Source(found) => (found.source.unit, found.listing_count, found.assembly),
        _ => panic!("no source"),
    };
    assert_eq!(found(&exact("foo1")), (Unit::Function, 1, false));
    assert_eq!(found(&search("^foo")), (Unit::Function, 2, false));
    assert_eq!(found(&exact("app.c")), (Unit::File, 1, false));
    let assembly = of(ShownSource::assembly("app.c".to_owned()));
    assert_eq!(found(&assembly), (Unit::Function, 4, true));
    let missing = error(&p, &exact("^foo"));
    assert!(matches!(missing, QueryError::NoFunction(Wanted::Source(name)) if name == "^foo"));
    assert!(matches!(error(&p, &exact("(")), QueryError::NoFunction(_)));
    assert!(matches!(error(&p, &search("(")), QueryError::NoRegex(Wanted::Source(_), _)));
}

#[test]
fn source_has_the_filters_and_the_limits_of_its_query() {
    let p = answers();
    let shown = ShownSource { is_exact: false, ..ShownSource::lines("foo|bar".to_owned()) };
    let all = Query { type_index: 1, ..Query::new(Shown::Source(shown)) };
    let listings = |query: &Query| match model(&p, query) {
        Model::Source(found) => (found.source.listings.len(), found.listing_count),
        _ => panic!("no source"),
    };
    assert_eq!(listings(&all), (3, 3));
    let limits = Limits { rows: 1, ..Limits::NONE };
    assert_eq!(listings(&Query { limits, ..all.clone() }), (1, 3));
    let focus = AddedFilter { condition: Condition::Focus, value: "foo2".to_owned() };
    assert_eq!(listings(&Query { filters: vec![focus], ..all.clone() }), (2, 2));
    let nothing = AddedFilter { condition: Condition::Focus, value: "nothing".to_owned() };
    assert_eq!(listings(&Query { filters: vec![nothing], ..all }), (0, 0));
}
