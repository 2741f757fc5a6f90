use super::super::model::{Context, compute};
use super::super::theme::{Charset, Depth};
use super::*;
use profile::{Builder, Column as SampleColumn, Label, LabelSetId, LabelValue, Mapping};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use view::query::{Column, Table, Values};
use view::testing::{answers, functions, mapping, processes};

fn app(profile: Profile) -> App {
    let theme = Theme { depth: Depth::None, charset: Charset::Ascii };
    let start = Start { file: "file".to_owned(), ..Start::default() };
    let mut app = App::new(start, theme);
    app.body = Body { width: 80, height: 20 };
    let commands = app.open(Arc::new(profile), 0);
    perform(&mut app, commands);
    app
}

fn perform(app: &mut App, commands: Vec<Command>) {
    for command in commands {
        let Command::Compute(job, query) = command else {
            assert_eq!(command, Command::Cancel);
            continue;
        };
        let base = app.base.clone();
        let context = Context { base, ..Context::new(app.profile.as_ref().unwrap()) };
        let model = compute(&context, &query);
        app.computed(job, model.map(Arc::new));
    }
}

fn press(app: &mut App, actions: &[Action]) {
    for &action in actions {
        let commands = app.act(action);
        perform(app, commands);
    }
}

/// Presses a key in a prompt.
fn key(app: &mut App, code: KeyCode) -> Vec<Command> {
    app.prompt_key(code.into())
}

fn control(app: &mut App, c: char) {
    app.prompt_key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL));
}

fn typed(app: &App) -> &str {
    app.prompt.as_ref().unwrap().input.value()
}

fn selected(app: &App) -> String {
    app.page().name().map_or(String::new(), |name| name.into_owned())
}

#[test]
fn pages_are_a_history() {
    let mut app = app(answers());
    assert_eq!(selected(&app), "bar");
    press(&mut app, &[Action::Go(Move::Rows(1)), Action::View(ViewKey::CallTree)]);
    assert_eq!(selected(&app), "main");
    press(&mut app, &[Action::View(ViewKey::Flame), Action::Back, Action::Back]);
    assert_eq!((selected(&app), app.page().cursor.selected), ("main".to_owned(), 1));
    press(&mut app, &[Action::Forward]);
    assert_eq!(app.page().query.shown, Shown::Tree(Direction::Callees));
    press(&mut app, &[Action::View(ViewKey::Functions), Action::Forward]);
    assert_eq!(app.message.as_deref(), Some("no next page"));
}

/// Three pages on, the model of a page is freed.
const AWAY: [Action; 3] =
    [Action::View(ViewKey::Lines), Action::View(ViewKey::Binaries), Action::View(ViewKey::Files)];
const BACK: [Action; 3] = [Action::Back; 3];

#[test]
fn a_page_far_back_is_shown_at_the_same_place() {
    let mut app = app(answers());
    press(&mut app, &[Action::View(ViewKey::CallTree), Action::ExpandAll, Action::Go(Move::Last)]);
    let (rows, name) = (app.page().rows(), selected(&app));
    press(&mut app, &AWAY);
    assert!(app.pages[1].model.is_none() && app.pages[1].outline.lines().is_empty());
    press(&mut app, &BACK);
    assert_eq!((app.page().rows(), selected(&app)), (rows, name));
    assert_eq!(app.page().cursor.selected, rows - 1);

    let zoomed = [Action::View(ViewKey::Flame), Action::Go(Move::Last), Action::Open];
    press(&mut app, &zoomed);
    let (zoom, chosen) = (app.page().zoom, selected(&app));
    assert_ne!(zoom, view::Tree::ROOT);
    press(&mut app, &AWAY);
    press(&mut app, &BACK);
    assert_eq!((app.page().zoom, selected(&app)), (zoom, chosen));
}

#[test]
fn a_flame_graph_is_turned_upside_down_and_ordered_by_width() {
    let mut app = app(answers());
    press(&mut app, &[Action::View(ViewKey::Flame), Action::Reverse]);
    assert_eq!(selected(&app), "main");
    press(&mut app, &[Action::Go(Move::Rows(-1))]);
    assert_eq!(selected(&app), "foo1");
    // The last line has the box below all others.
    app.click(0, 19);
    assert_eq!((app.page().chosen, selected(&app)), (view::Tree::ROOT, String::new()));
    app.click(0, 18);
    assert_eq!(selected(&app), "main");
    press(&mut app, &[Action::Go(Move::Rows(-1)), Action::Open, Action::Sort]);
    let Shown::Flame(of) = app.page().query.shown else { panic!("a flame graph") };
    assert_eq!((of.siblings, of.is_upward), (view::Siblings::LeftHeavy, true));
    assert!(app.page().zoom != view::Tree::ROOT && selected(&app) == "foo1");
    press(&mut app, &[Action::CollapseRecursion]);
    assert_eq!(app.page().query.name(), "flame graph, widest first, recursion collapsed");
}

#[test]
fn a_table_of_text_has_one_order() {
    let mut app = app(answers());
    let mut table = Table::new(Rows::Functions, Order::by(Column::SelfValue));
    table.columns.types = vec![1, 0];
    let commands = app.show(Shown::Table(table.clone()));
    perform(&mut app, commands);
    for key in [Action::Sort, Action::SortLeft, Action::SortRight, Action::Reverse] {
        app.message = None;
        press(&mut app, &[key]);
        assert_eq!(app.message.as_deref(), Some("this view has one order"));
        assert_eq!(app.page().query.shown, Shown::Table(table.clone()));
    }
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
    key(&mut app, KeyCode::Backspace);
    assert_eq!(selected(&app), "foo1");
    // In the middle of what is typed.
    key(&mut app, KeyCode::Home);
    key(&mut app, KeyCode::Delete);
    app.typed('f');
    assert_eq!((typed(&app), selected(&app)), ("foo", "foo1".to_owned()));
    control(&mut app, 'u');
    "\u{7}foo".chars().for_each(|c| app.typed(c));
    assert_eq!((typed(&app), selected(&app)), ("foo", "foo1".to_owned()));
    assert_eq!(key(&mut app, KeyCode::Enter), []);
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
    press(&mut app, &[Action::View(ViewKey::CallTree), Action::Search]);
    "bar".chars().for_each(|c| app.typed(c));
    key(&mut app, KeyCode::Enter);
    assert_eq!((selected(&app), app.page().cursor.selected), ("bar".to_owned(), 2));
    press(&mut app, &[Action::View(ViewKey::Flame), Action::Search]);
    "bar".chars().for_each(|c| app.typed(c));
    assert_eq!(selected(&app), "bar");
}

#[test]
fn a_canceled_result_is_dropped() {
    let mut app = app(answers());
    let commands = app.act(Action::View(ViewKey::CallTree));
    press(&mut app, &[Action::Cancel]);
    assert!(!app.is_busy() && app.page().error.is_some());
    perform(&mut app, commands);
    assert!(app.page().model.is_none());
}

#[test]
fn boxes_are_walked_along_the_stack() {
    let mut app = app(answers());
    let down = Action::Go(Move::Rows(1));
    press(&mut app, &[Action::View(ViewKey::Flame)]);
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
    press(&mut app, &[Action::View(ViewKey::Processes)]);
    assert_eq!(selected(&app), "web;1");
    press(&mut app, &[Action::Focus]);
    assert_eq!(app.page().query.filters[0].text(), "process=web;1");
}

fn menu_key(app: &mut App, c: char) {
    let commands = app.menu_key(KeyCode::Char(c).into());
    perform(app, commands);
}

#[test]
fn the_menu_leads_from_a_function_to_its_views_and_back() {
    let mut app = app(answers());
    press(&mut app, &[Action::Go(Move::Rows(2)), Action::Open]);
    let menu = app.menu.as_ref().unwrap();
    let keys: String = menu.items.iter().map(|item| item.key).collect();
    assert_eq!((&*menu.title, &*keys), ("foo1", "aASrtFfd+-xy"));
    menu_key(&mut app, 'S');
    assert_eq!(app.page().query.shown, Shown::Sandwich("foo1".to_owned()));
    assert_eq!(selected(&app), "foo1");
    press(&mut app, &[Action::Back, Action::Menu]);
    menu_key(&mut app, 'F');
    assert_eq!((selected(&app), app.page().is_flame()), ("foo1".to_owned(), true));
    press(&mut app, &[Action::Back, Action::Open]);
    menu_key(&mut app, 't');
    assert_eq!((selected(&app), app.page().cursor.selected), ("foo1".to_owned(), 1));
    press(&mut app, &[Action::Back, Action::Open]);
    // The selected line is chosen by Enter; other keys close the menu.
    let commands = app.menu_key(KeyCode::Enter.into());
    perform(&mut app, commands);
    assert!(matches!(&app.page().query.shown, Shown::Source(of) if of.name == "foo1"));
    press(&mut app, &[Action::Back, Action::Open]);
    menu_key(&mut app, 'q');
    assert_eq!((app.menu.is_none(), selected(&app)), (true, "foo1".to_owned()));
}

#[test]
fn one_of_several_filters_is_removed() {
    let mut app = app(answers());
    press(&mut app, &[Action::Focus, Action::TypeFilter]);
    assert_eq!(typed(&app), "focus=");
    key(&mut app, KeyCode::Tab);
    "foo(".chars().for_each(|c| app.typed(c));
    assert_eq!(app.prompt.as_ref().unwrap().error.as_deref(), Some("unclosed group"));
    assert_eq!((key(&mut app, KeyCode::Enter), app.prompt.is_some()), (Vec::new(), true));
    key(&mut app, KeyCode::Backspace);
    app.typed('2');
    let commands = key(&mut app, KeyCode::Enter);
    perform(&mut app, commands);
    let texts = |app: &App| -> Vec<String> {
        app.page().query.filters.iter().map(|added| added.text()).collect()
    };
    assert_eq!(texts(&app), ["focus=^bar$", "ignore=foo2"]);
    press(&mut app, &[Action::FiltersMenu]);
    menu_key(&mut app, '1');
    assert_eq!(texts(&app), ["ignore=foo2"]);
    press(&mut app, &[Action::Back]);
    assert_eq!(texts(&app).len(), 2);
}

#[test]
fn tables_are_sorted_by_each_column() {
    let mut app = app(answers());
    let first = |app: &App| app.page().text_at(0).into_owned();
    press(&mut app, &[Action::SortRight]);
    assert_eq!(first(&app), "main");
    press(&mut app, &[Action::SortRight, Action::Reverse]);
    assert_eq!(first(&app), "main");
    press(&mut app, &[Action::Reverse]);
    assert_eq!(first(&app), "bar");
    press(&mut app, &[Action::SortRight]);
    assert_eq!(app.message.as_deref(), Some("no further column"));
    press(&mut app, &[Action::Go(Move::Last), Action::Sort]);
    assert_eq!(app.page().query.shown.order(), Some(Order::by(Column::SelfValue)));
    // The selected row follows.
    assert_eq!(selected(&app), "main");
    press(&mut app, &[Action::Back]);
    assert_eq!(app.message.as_deref(), Some("no previous page"));
}

#[test]
fn rows_are_those_of_any_label() {
    let mut app = app(processes());
    press(&mut app, &[Action::RowsMenu]);
    let texts: Vec<_> = app.menu.iter().flat_map(|m| &m.items).map(|i| i.text.clone()).collect();
    assert_eq!(texts, ["functions", "lines", "binaries", "by process", "files", "packages"]);
    menu_key(&mut app, '7');
    assert_eq!(selected(&app), "web;1");
    press(&mut app, &[Action::Open]);
    menu_key(&mut app, 't');
    assert_eq!(app.page().query.shown, Shown::Tree(Direction::Callees));
    assert_eq!(app.page().query.filters[0].text(), "process=web;1");
}

#[test]
fn a_difference_needs_another_profile() {
    let mut app = app(answers());
    press(&mut app, &[Action::View(ViewKey::Difference)]);
    assert!(app.message.as_deref().unwrap().contains("prof diff BASE FILE"));
    app.base = Some(Arc::new(Base { before: vec![Arc::new(answers())], ..Base::default() }));
    press(&mut app, &[Action::View(ViewKey::Difference), Action::Totals]);
    assert!(matches!(app.page().query.shown, Shown::Diff { values: Values::Total, .. }));
    press(&mut app, &[Action::Open]);
    menu_key(&mut app, 'S');
    assert!(matches!(app.page().query.shown, Shown::Sandwich(_)));
}

#[test]
fn a_prompt_edits_a_line_as_a_shell_does() {
    let mut app = app(answers());
    press(&mut app, &[Action::Write]);
    "one two three".chars().for_each(|c| app.typed(c));
    let alt = |app: &mut App, c: char| {
        app.prompt_key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::ALT));
    };
    alt(&mut app, 'b');
    app.typed('X');
    assert_eq!(typed(&app), "one two Xthree");
    control(&mut app, 'w');
    control(&mut app, 'k');
    assert_eq!(typed(&app), "one two ");
    control(&mut app, 'a');
    alt(&mut app, 'f');
    app.typed('Y');
    assert_eq!(typed(&app), "one Ytwo ");
    key(&mut app, KeyCode::Left);
    control(&mut app, 'd');
    control(&mut app, 'e');
    key(&mut app, KeyCode::Backspace);
    assert_eq!(typed(&app), "one two");
    control(&mut app, 'a');
    alt(&mut app, 'd');
    key(&mut app, KeyCode::End);
    key(&mut app, KeyCode::Right);
    app.typed('!');
    assert_eq!(typed(&app), "two!");
    // Keys without a meaning do nothing.
    for code in [KeyCode::PageUp, KeyCode::F(5), KeyCode::Tab, KeyCode::BackTab, KeyCode::Insert] {
        assert_eq!((key(&mut app, code), typed(&app)), (Vec::new(), "two!"));
    }
    control(&mut app, 'u');
    assert_eq!(typed(&app), "");
}

#[test]
fn a_prompt_has_the_texts_that_were_entered_in_it() {
    let mut app = app(answers());
    for (action, text) in
        [(Action::Search, "foo1"), (Action::Write, "/none/x"), (Action::Search, "bar")]
    {
        press(&mut app, &[action]);
        text.chars().for_each(|c| app.typed(c));
        key(&mut app, KeyCode::Enter);
    }
    press(&mut app, &[Action::Search]);
    app.typed('m');
    for (code, expected) in [
        (KeyCode::Down, "m"),
        (KeyCode::Up, "bar"),
        (KeyCode::Up, "foo1"),
        (KeyCode::Up, "foo1"),
        (KeyCode::Down, "bar"),
        (KeyCode::Down, "m"),
        (KeyCode::Down, "m"),
    ] {
        key(&mut app, code);
        assert_eq!(typed(&app), expected);
    }
    key(&mut app, KeyCode::Up);
    // It is searched for at once.
    assert_eq!(selected(&app), "bar");
    key(&mut app, KeyCode::Esc);
    press(&mut app, &[Action::Write]);
    key(&mut app, KeyCode::Up);
    assert_eq!(typed(&app), "/none/x");
}

#[test]
fn a_typed_condition_replaces_the_one_that_is_offered() {
    let mut app = app(answers());
    press(&mut app, &[Action::TypeFilter]);
    "ignore=foo2".chars().for_each(|c| app.typed(c));
    assert_eq!(typed(&app), "ignore=foo2");
    key(&mut app, KeyCode::Tab);
    key(&mut app, KeyCode::Tab);
    assert_eq!(typed(&app), "show=foo2");
    key(&mut app, KeyCode::BackTab);
    assert_eq!(typed(&app), "hide=foo2");
}

#[test]
fn the_command_of_a_page_is_shown_and_copied() {
    let mut app = app(answers());
    press(&mut app, &[Action::ShowCommand]);
    assert_eq!(app.message.as_deref(), Some("only pages of prof report have a command"));
    let write = |_: &Profile, _: &Query| Ok(vec!["prof report ".to_owned() + &"x".repeat(100)]);
    app.command = PageCommand(Some(Arc::new(write)));
    press(&mut app, &[Action::ShowCommand]);
    let texts: Vec<_> = app.menu.iter().flat_map(|m| &m.items).map(|i| i.text.clone()).collect();
    // At words, and within one that is longer than a line.
    assert_eq!(texts, ["prof report", &"x".repeat(73), &"x".repeat(27)]);
    let commands = app.menu_key(KeyCode::Char('y').into());
    assert_eq!(commands, [Command::Copy("prof report ".to_owned() + &"x".repeat(100))]);
}

/// A wait, and an allocation.
fn wall_and_memory() -> Profile {
    let mut b = Builder::new(&[("wall", "nanoseconds"), ("alloc_space", "bytes")]);
    let kernel = mapping(&mut b, "[kernel.kallsyms]", 0x1000);
    let program = mapping(&mut b, "/usr/bin/app", 0x20000);
    let at = |b: &mut Builder, mapping, address, name| {
        functions(b, Some(mapping), address, &[(name, "", 0)])
    };
    let schedule = at(&mut b, kernel, 0x1000, "schedule");
    let read = at(&mut b, kernel, 0x1001, "pipe_read");
    let malloc = at(&mut b, program, 0x20000, "malloc");
    let main = at(&mut b, program, 0x20001, "main");
    let key = b.profile.strings.intern("state");
    let value = LabelValue::Str(b.profile.strings.intern("sleeping"));
    let sleeping = b.profile.labels.intern(&[Label { key, value }]);
    b.add(&[schedule, read, main], sleeping, 0, &[(SampleColumn(0), 5)]);
    b.add(&[malloc, main], LabelSetId::EMPTY, 0, &[(SampleColumn(1), 8)]);
    b.finish(None)
}

/// A Python function that its interpreter executes.
fn interpreted() -> Profile {
    let mut b = Builder::new(&[("cpu", "nanoseconds")]);
    let mut located = |name: &str, file: &str| {
        let file = b.profile.strings.intern(file);
        let mapping = b.add_mapping(Mapping { file, limit: 1, ..Mapping::default() });
        b.named_location_in(name, Some(mapping))
    };
    let stack = [located("eval", "/bin/python3"), located("handle", "[python]")];
    b.add(&stack, LabelSetId::EMPTY, 0, &[(SampleColumn(0), 5)]);
    let mut profile = b.finish(None);
    profile.comments.push(profile.strings.intern("interpreter: /bin/python3"));
    profile
}

#[test]
fn frames_of_the_interpreter_are_left_out_until_they_are_asked_for() {
    let mut app = app(interpreted());
    press(&mut app, &[Action::View(ViewKey::Functions)]);
    let names = |app: &App| app.page().rows();
    assert_eq!(names(&app), 1);
    press(&mut app, &[Action::InterpreterFrames]);
    assert_eq!(names(&app), 2);
    press(&mut app, &[Action::InterpreterFrames]);
    assert_eq!(names(&app), 1);
}

#[test]
fn leaf_frames_are_left_out_until_they_are_asked_for() {
    let mut app = app(wall_and_memory());
    let first = |app: &App| app.page().name().unwrap().to_string();
    press(&mut app, &[Action::View(ViewKey::Functions)]);
    assert_eq!(first(&app), "pipe_read");
    press(&mut app, &[Action::AllFrames]);
    assert_eq!(first(&app), "schedule");
    press(&mut app, &[Action::AllFrames]);
    assert_eq!(first(&app), "pipe_read");
    // The labels are those of the sample type that is shown.
    let labels = |app: &App| app.page().query.shown.labels().to_vec();
    assert_eq!(labels(&app), ["state"]);
    press(&mut app, &[Action::NextType]);
    assert_eq!((first(&app), labels(&app)), ("main".to_owned(), Vec::new()));
    press(&mut app, &[Action::NextType]);
    assert_eq!(labels(&app), ["state"]);
    // Other rows stay as they are.
    press(&mut app, &[Action::View(ViewKey::Binaries), Action::NextType, Action::NextType]);
    assert_eq!(app.page().query.shown, Shown::table(Rows::Binaries));
}
