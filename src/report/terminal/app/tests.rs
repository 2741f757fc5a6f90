use super::super::model::compute;
use super::super::theme::{Charset, Depth};
use super::*;
use view::testing::{answers, processes};

fn app(profile: Profile) -> App {
    let theme = Theme { depth: Depth::None, charset: Charset::Ascii };
    let start = Start { file: "file".to_owned(), shown: Shown::functions(), filters: Vec::new() };
    let mut app = App::new(start, theme);
    app.body = Body { width: 80, height: 20 };
    let commands = app.open(Arc::new(profile), 0);
    perform(&mut app, commands);
    app
}

fn perform(app: &mut App, commands: Vec<Command>) {
    for command in commands {
        let Command::Compute(job, query) = command else { panic!("{command:?}") };
        let model = compute(app.profile.as_ref().unwrap(), &query);
        app.computed(job, model.map(Arc::new));
    }
}

fn press(app: &mut App, actions: &[Action]) {
    for &action in actions {
        let commands = app.act(action);
        perform(app, commands);
    }
}

fn selected(app: &App) -> String {
    app.page().name().map_or(String::new(), |name| name.into_owned())
}

#[test]
fn pages_are_a_history() {
    let mut app = app(answers());
    assert_eq!(selected(&app), "bar");
    press(&mut app, &[Action::Go(Move::Rows(1)), Action::CallTree]);
    assert_eq!(selected(&app), "main");
    press(&mut app, &[Action::Flame, Action::Back, Action::Back]);
    assert_eq!((selected(&app), app.page().cursor.selected), ("main".to_owned(), 1));
    press(&mut app, &[Action::Forward]);
    assert_eq!(app.page().query.shown, Shown::Tree(Direction::Callees));
    press(&mut app, &[Action::Functions, Action::Forward]);
    assert_eq!(app.message.as_deref(), Some("no next page"));
}

#[test]
fn filters_are_added_and_removed_one_by_one() {
    let mut app = app(answers());
    press(&mut app, &[Action::Focus]);
    assert_eq!(app.page().query.filters[0].value, "^bar$");
    let Some(Model::Table(table)) = app.page().model.as_deref() else { panic!("a table") };
    assert_eq!(table.facts.percent(table.facts.kept).round(), 56.0);
    press(&mut app, &[Action::RemoveFilter]);
    assert!(app.page().query.filters.is_empty());
    press(&mut app, &[Action::RemoveFilter]);
    assert_eq!(app.message.as_deref(), Some("there is no filter"));
}

#[test]
fn a_search_goes_on_while_it_is_typed() {
    let mut app = app(answers());
    press(&mut app, &[Action::Search]);
    "foo".chars().for_each(|c| app.typed(c));
    assert_eq!(selected(&app), "foo1");
    app.typed('2');
    assert_eq!(selected(&app), "foo2");
    app.deleted();
    assert_eq!(selected(&app), "foo1");
    assert_eq!(app.entered(), []);
    press(&mut app, &[Action::NextMatch]);
    assert_eq!(selected(&app), "foo2");
    press(&mut app, &[Action::NextMatch]);
    assert_eq!(selected(&app), "foo1");
    press(&mut app, &[Action::PreviousMatch]);
    assert_eq!(selected(&app), "foo2");
}

#[test]
fn collapsed_nodes_are_found() {
    let mut app = app(answers());
    press(&mut app, &[Action::CallTree, Action::Search]);
    "bar".chars().for_each(|c| app.typed(c));
    app.entered();
    assert_eq!((selected(&app), app.page().cursor.selected), ("bar".to_owned(), 2));
    press(&mut app, &[Action::Flame, Action::Search]);
    "bar".chars().for_each(|c| app.typed(c));
    assert_eq!(selected(&app), "bar");
}

#[test]
fn a_canceled_result_is_dropped() {
    let mut app = app(answers());
    let commands = app.act(Action::CallTree);
    press(&mut app, &[Action::Cancel]);
    assert!(!app.is_busy() && app.page().error.is_some());
    perform(&mut app, commands);
    assert!(app.page().model.is_none());
}

#[test]
fn boxes_are_walked_along_the_stack() {
    let mut app = app(answers());
    let down = Action::Go(Move::Rows(1));
    press(&mut app, &[Action::Flame]);
    assert_eq!(selected(&app), "main");
    press(&mut app, &[down]);
    assert_eq!(selected(&app), "foo1");
    press(&mut app, &[Action::Right]);
    assert_eq!(selected(&app), "foo2");
    press(&mut app, &[Action::Open, Action::Go(Move::Rows(-1))]);
    assert_eq!(selected(&app), "main");
    press(&mut app, &[Action::Cancel]);
    assert_eq!(app.page().zoom, app.page().chosen);
}

#[test]
fn processes_are_rows() {
    let mut app = app(processes());
    press(&mut app, &[Action::Processes]);
    assert_eq!(selected(&app), "web;1");
    press(&mut app, &[Action::Focus]);
    assert_eq!(app.message.as_deref(), Some("select a function first"));
}
