use std::sync::Arc;

use super::super::app::Command;
use super::super::cursor::Move;
use super::super::difference::Base;
use super::super::keys::{Action, ViewKey};
use super::super::model::{Context, compute};
use super::super::page::Body;
use super::super::run::Start;
use super::super::theme::{Charset, Depth};
use super::*;
use profile::{Builder, Column, LabelSetId, Profile};
use view::query::{Column as ByColumn, Groups, Intervals, Order, Rows, ShownSource, Table, Values};
use view::testing::{
    answers, frames_profile, functions as functions_at, mapping, processes, snapshot, states,
};
use view::{Condition, Direction, Granularity, Sort};

pub mod agreement;

/// A recursion, names that are long, wide or empty, and losses.
fn hostile() -> Profile {
    let mut builder = Builder::new(&[("cpu", "nanoseconds"), ("cpu", "nanoseconds")]);
    let long = builder.named_location(&"x".repeat(100_000));
    let wide = builder.named_location(&"中文".repeat(50));
    let empty = builder.named_location("");
    let again = builder.named_location("again");
    builder.add(&[again; 8000], LabelSetId::EMPTY, 0, &[(Column(0), i64::MAX)]);
    builder.add(&[long, wide, empty], LabelSetId::EMPTY, 0, &[(Column(0), i64::MAX)]);
    builder.add(&[wide, again], LabelSetId::EMPTY, 0, &[(Column(0), -7)]);
    builder.add(&[], LabelSetId::EMPTY, 0, &[(Column(0), 1), (Column(1), i64::MIN)]);
    builder.finish(None)
}

fn views() -> Vec<Shown> {
    let table = |rows| Shown::Table(Table::new(rows, Sort::Total.into()));
    let mut all = vec![
        table(Rows::Functions),
        table(Rows::Lines),
        table(Rows::Binaries),
        table(Rows::Files),
        table(Rows::Packages),
        table(Rows::Label("process".to_owned())),
    ];
    for direction in [Direction::Callees, Direction::Callers] {
        all.extend([Shown::Tree(direction), Shown::flame(direction)]);
    }
    all.extend([
        Shown::Coverage,
        Shown::Quality(Sort::Total.into()),
        Shown::Header,
        Shown::Threads,
    ]);
    all.push(Shown::diff_flame());
    all.push(Shown::Peek("main".to_owned()));
    all.push(Shown::Traces);
    all.push(Shown::Tags);
    let values = Values::Own;
    let intervals = Intervals { interval: 1_000_000, most: 60, values };
    for over in [None, Some(intervals)] {
        let rows = Rows::Groups(Groups {
            granularity: Granularity::PACKAGES,
            labels: vec!["process".to_owned()],
        });
        all.push(Shown::Table(Table { over, ..Table::new(rows, Sort::Total.into()) }));
    }
    all.push(Shown::States(Order::by(ByColumn::State(1))));
    for rows in [Rows::Functions, Rows::Lines, Rows::Label("process".to_owned())] {
        let order = Order { column: ByColumn::Ratio, reversed: true };
        all.push(Shown::Diff { rows, values: Values::Total, order });
    }
    for name in ["again".to_owned(), "x".repeat(100_000), "main".to_owned()] {
        all.push(Shown::Sandwich(name.clone()));
        all.extend([false, true].map(|assembly| {
            Shown::Source(ShownSource { assembly, ..ShownSource::lines(name.clone()) })
        }));
    }
    all
}

#[test]
fn every_view_of_every_profile_fits_every_screen() {
    let profiles = [answers(), frames_profile(), processes(), states(), snapshot(), hostile()];
    let profiles = profiles.into_iter().chain([Profile::default()]).map(Arc::new);
    let theme = Theme { depth: Depth::Xterm, charset: Charset::Unicode };
    for profile in profiles {
        let base = Base { before: vec![profile.clone()], ..Base::default() };
        let base = Some(Arc::new(base));
        let context = Context { base, ..Context::new(&profile) };
        for shown in views() {
            every_size(&context, shown, theme);
        }
    }
}

/// Draws a view in several sizes after several keys.
fn every_size(context: &Context, shown: Shown, theme: Theme) {
    let start =
        Start { file: "f".to_owned(), query: Query::new(shown.clone()), ..Start::default() };
    let mut app = App::new(start, theme);
    for command in app.open(context.profile.clone(), 0) {
        let Command::Compute(job, query) = command else { continue };
        app.computed(job, compute(context, &query).map(Arc::new));
    }
    let keys = [
        Action::Right,
        Action::ExpandAll,
        Action::Go(Move::Last),
        Action::Menu,
        Action::Open,
        Action::RowsMenu,
        Action::Left,
        Action::Cancel,
        Action::CollapseAll,
    ];
    for size in [(0, 0), (80, 0), (0, 80), (1, 1), (20, 5), (80, 24), (300, 3)] {
        let area = Rect::new(0, 0, size.0, size.1);
        let page = body(&app, area);
        app.body = Body { width: page.width, height: page.height };
        for key in keys {
            app.act(key);
            draw(&app, area, &mut Buffer::empty(area), 0);
            app.menu = None;
        }
        app.click(size.0 / 2, size.1 / 2);
    }
    // A function that is not in the profile, and profiles without a sample type.
    let needs_times = matches!(shown, Shown::Table(Table { over: Some(_), .. }));
    let may_fail = matches!(shown, Shown::Sandwich(_) | Shown::Source(_) | Shown::Peek(_))
        || needs_times && context.profile.times.is_empty();
    assert!(may_fail || app.page().error.is_none(), "{shown:?}: {:?}", app.page().error);
}

fn start(shown: Shown, filters: Vec<AddedFilter>) -> Start {
    Start { query: Query { filters, ..Query::new(shown) }, ..Start::default() }
}

/// The lines of a screen.
fn screen(app: &App, width: u16, height: u16) -> Vec<String> {
    let area = Rect::new(0, 0, width, height);
    let mut out = Buffer::empty(area);
    draw(app, area, &mut out, 0);
    let line = |y: u16| (0..width).map(|x| out[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned()).collect()
}

#[test]
fn a_flame_graph_has_the_gains_and_counts_the_losses() {
    let profile = |values: &[(&str, i64)]| {
        let mut builder = Builder::new(&[("space", "bytes")]);
        let main = builder.named_location("main");
        for &(name, value) in values {
            let function = builder.named_location(name);
            builder.add(&[function, main], LabelSetId::EMPTY, 0, &[(Column(0), value)]);
        }
        Arc::new(builder.finish(None))
    };
    let theme = Theme { depth: Depth::None, charset: Charset::Unicode };
    let drawn = |shown: Shown, values: &[(&str, i64)]| {
        let base = Base { before: vec![profile(&[])], ..Base::default() };
        let context = Context { base: Some(Arc::new(base)), ..Context::new(&profile(values)) };
        let mut app = App::new(Start { query: Query::new(shown), ..Start::default() }, theme);
        for command in app.open(context.profile.clone(), 0) {
            let Command::Compute(job, query) = command else { continue };
            app.computed(job, compute(&context, &query).map(Arc::new));
        }
        screen(&app, 80, 10)
    };
    let flame = || Shown::flame(Direction::Callees);
    for freed in [-3, -5, -8] {
        let drawn = drawn(flame(), &[("kept", 5), ("small", 3), ("freed", freed)]);
        assert!(drawn[0].ends_with("space  8 B  1 negative left out"), "{drawn:?}");
        let rows = ["all  8 B".to_owned(), "main".to_owned(), format!("{:<50}small", "kept")];
        assert_eq!(drawn[1..5], [&rows[0], &rows[1], &rows[2], ""], "{freed}");
    }
    let losses = [("kept", -5), ("freed", -8)];
    for shown in [flame(), Shown::diff_flame()] {
        let drawn = drawn(shown, &losses);
        assert!(drawn[0].ends_with("2 negative left out"), "{drawn:?}");
        assert!(drawn[1].starts_with(" all values are negative or zero"), "{drawn:?}");
    }
    let tree = drawn(Shown::Tree(Direction::Callees), &losses);
    assert!(tree.iter().any(|line| line.contains("-8 B") && line.ends_with("freed")), "{tree:?}");
    assert!(!tree[0].contains("left out"), "{tree:?}");
}

/// The screen of a profile, after these keys.
fn pressed(
    profile: Profile,
    shown: Shown,
    keys: &[Action],
    (width, height): (u16, u16),
) -> Vec<String> {
    let theme = Theme { depth: Depth::None, charset: Charset::Unicode };
    let context = Context::new(&Arc::new(profile));
    let mut app = App::new(Start { query: Query::new(shown), ..Start::default() }, theme);
    let page = body(&app, Rect::new(0, 0, width, height));
    app.body = Body { width: page.width, height: page.height };
    let mut commands = app.open(context.profile.clone(), 0);
    for &key in keys {
        perform(&context, &mut app, commands);
        commands = app.act(key);
    }
    perform(&context, &mut app, commands);
    screen(&app, width, height)
}

fn perform(context: &Context, app: &mut App, commands: Vec<Command>) {
    for command in commands {
        let Command::Compute(job, query) = command else { continue };
        app.computed(job, compute(context, &query).map(Arc::new));
    }
}

#[test]
fn the_selected_row_has_its_number_and_its_whole_name() {
    let down = Action::Go(Move::Rows(1));
    let lines = pressed(answers(), Shown::functions(), &[down], (80, 12));
    assert_eq!(lines[10], " main  app.c:1  /usr/bin/app");
    assert!(lines[11].ends_with(" 2/4"), "{lines:?}");
    let mut b = Builder::new(&[("samples", "count")]);
    let long = b.named_location(&format!("begin{}end", "x".repeat(200)));
    b.add(&[long], LabelSetId::EMPTY, 1, &[]);
    let lines = pressed(b.finish(None), Shown::functions(), &[], (80, 12));
    assert!(lines[10].starts_with(" beginxxx") && lines[10].ends_with("xxxend"), "{lines:?}");
    assert!(lines[10].contains('…'), "{lines:?}");
}

/// A profile of one function with a long name, in a binary.
fn long_name() -> Profile {
    let name =
        format!("ns::Handler<{}>::handle<int>(ns::Request const&)::invoke", "T, ".repeat(60));
    let mut b = Builder::new(&[("samples", "count")]);
    let long = b.named_location(&name);
    let main = b.named_location("main");
    b.add(&[long, main], LabelSetId::EMPTY, 1, &[]);
    b.finish(None)
}

#[test]
fn a_long_name_is_shortened_so_that_its_end_is_visible() {
    for shown in [Shown::functions(), Shown::Tree(Direction::Callers)] {
        let lines = pressed(long_name(), shown.clone(), &[], (74, 12));
        assert!(lines.iter().any(|line| line.ends_with("::invoke")), "{shown:?}: {lines:?}");
    }
    let lines = pressed(long_name(), Shown::functions(), &[], (74, 12));
    assert!(lines[2].contains("  ns::Handler::ha"), "{lines:?}");
    // Moved to the left, it is whole.
    let lines = pressed(long_name(), Shown::functions(), &[Action::Right], (74, 12));
    assert!(lines.iter().any(|line| line.contains("T, T, T, ")), "{lines:?}");
}

#[test]
fn the_cursor_of_a_prompt_is_behind_what_is_typed() {
    let theme = Theme { depth: Depth::None, charset: Charset::Unicode };
    let typed = |text: &str, left: usize, room: usize| {
        let mut input = Input::from(text);
        for _ in 0..left {
            input.handle(tui_input::InputRequest::GoToPrevChar);
        }
        let TypedText { before, after } = TypedText::new(&input, theme, room);
        let cursor = columns(&before);
        assert!(cursor < room, "{text}: {cursor}");
        (before, after, cursor)
    };
    let whole =
        |before: &str, after: &str, cursor: usize| (before.to_owned(), after.to_owned(), cursor);
    assert_eq!(typed("main", 0, 10), whole("main", "", 4));
    assert_eq!(typed("main", 1, 10), whole("mai", "n", 3));
    assert_eq!(typed("函数", 1, 10), whole("函", "数", 2));
    // The cursor has a column of its own.
    assert_eq!(typed("函数函数", 0, 6), whole("函数", "", 4));
    let accents = "e\u{301}".repeat(8);
    assert_eq!(typed(&accents, 0, 10), whole(&accents, "", 8));
    assert_eq!(typed(&accents, 1, 5), whole(&accents[..12], &accents[..3], 4));
    // One symbol of several characters.
    assert_eq!(typed("👩\u{200d}🔬x", 0, 10), whole("👩\u{200d}🔬x", "", 3));
}

#[test]
fn a_name_has_more_room_than_the_binary_behind_it() {
    let theme = Theme { depth: Depth::None, charset: Charset::Unicode };
    let name = "std::vector<int>::push_back_of_all_elements";
    let after = "  (libexample.so.1)";
    let row = |shortening| list::RowName { before: "", name, after, shortening };
    let text = |room| row(list::Shortening::Function).text(theme, room);
    assert_eq!(text(62), format!("{name}{after}"));
    assert_eq!(text(61), format!("std::vector::push_back_of_all_elements{after}"));
    assert_eq!(text(44), format!("std::vector:…all_elements{after}"));
    assert_eq!(text(40), "std::vector::push_back_of_all_elements");
    assert_eq!(text(20), "std::vect…l_elements");
    assert_eq!(row(list::Shortening::End).text(theme, 20), format!("{name}{after}"));
}

#[test]
fn branches_of_one_name_have_their_binaries() {
    let mut b = Builder::new(&[("samples", "count")]);
    for (i, program) in ["cargo", "rustc"].into_iter().enumerate() {
        let start = 0x1000 * (i as u64 + 1);
        let mapping = mapping(&mut b, &format!("/usr/bin/{program}"), start);
        let [start, main] = [("_start", start), (program, start + 1)].map(|(name, address)| {
            functions_at(&mut b, Some(mapping), address, &[(name, "a.c", 1)])
        });
        b.add(&[main, start], LabelSetId::EMPTY, 1, &[]);
    }
    let tree = Shown::Tree(Direction::Callees);
    let lines = pressed(b.finish(None), tree, &[], (80, 12));
    let has = |end: &str| lines.iter().any(|line| line.ends_with(end));
    assert!(has("▸ _start  (cargo)") && has("▸ _start  (rustc)"), "{lines:?}");
}

#[test]
fn roots_that_are_too_narrow_are_counted() {
    let mut b = Builder::new(&[("samples", "count")]);
    for root in 0..1000 {
        let root = b.named_location(&format!("root{root}"));
        b.add(&[root], LabelSetId::EMPTY, 1, &[]);
    }
    let flame = Shown::flame(Direction::Callees);
    let lines = pressed(b.finish(None), flame, &[], (80, 10));
    assert_eq!(lines[1..4], ["all  1,000", "1,000 others", ""]);
    assert_eq!(lines[8], " 1,000 (100.00%): all");
}

#[test]
fn filters_are_shortened_to_the_line() {
    let theme = Theme { depth: Depth::None, charset: Charset::Unicode };
    let filters = |values: &[&str]| {
        let added = |value: &&str| view::query::AddedFilter {
            condition: view::Condition::Focus,
            value: (*value).to_owned(),
        };
        let filters = values.iter().map(added).collect();
        let app = App::new(start(Shown::default(), filters), theme);
        screen(&app, 80, 24)[1].clone()
    };
    assert_eq!(filters(&["a", "b"]), " filters: focus=a  focus=b");
    let long = "x".repeat(100_000);
    let expected = format!(" filters: focus=a  focus={}…{}", "x".repeat(9), "x".repeat(16));
    assert_eq!(filters(&["a", &long]).len(), expected.len() + 1);
    let many = filters(&[&*long; 9]);
    assert!(many.contains("…") && many.ends_with("  +5"), "{many}");
}

#[test]
fn a_filter_that_nothing_meets_is_explained() {
    let theme = Theme { depth: Depth::None, charset: Charset::Unicode };
    let profile = Arc::new(answers());
    let base = Base { before: vec![profile.clone()], ..Base::default() };
    let context = Context { base: Some(Arc::new(base)), ..Context::new(&profile) };
    let drawn = |shown: Shown, condition| {
        let added = |value: &str| AddedFilter { condition, value: value.to_owned() };
        let filters = vec![added("foo1"), added("typo")];
        let mut app = App::new(start(shown, filters), theme);
        for command in app.open(profile.clone(), 0) {
            let Command::Compute(job, query) = command else { continue };
            app.computed(job, compute(&context, &query).map(Arc::new));
        }
        screen(&app, 80, 24)
    };
    let focus = " filters: focus=foo1  focus=typo: no frame matches";
    for shown in [Shown::functions(), Shown::flame(Direction::Callees), Shown::diff_flame()] {
        let lines = drawn(shown, Condition::Focus);
        let reason = " no samples pass the filters; u removes the last one, U any of them";
        assert_eq!(lines[1..4], [focus, reason, " focus=typo: no frame matches"]);
    }
    let of = ShownSource::lines("main".to_owned());
    let error = &drawn(Shown::Source(of), Condition::Focus)[2];
    assert!(error.ends_with("filters has main; focus=typo: no frame matches"), "{error}");
    let text = drawn(Shown::Coverage, Condition::Hide);
    assert_eq!(text[3], "hide=typo: no frame matches");
    // Rows are shown as far as there are any.
    let lines = drawn(Shown::diff(Rows::Functions), Condition::Hide);
    assert_eq!(lines[1], " filters: hide=foo1  hide=typo: no frame matches");
    assert!(lines.iter().any(|line| line.ends_with("main  (app)") || line.ends_with("main")));
}

#[test]
fn a_click_on_a_title_sorts_by_its_column_and_a_second_one_reverses() {
    let theme = Theme { depth: Depth::None, charset: Charset::Unicode };
    let base = Base { before: vec![Arc::new(states())], ..Base::default() };
    let context = Context { base: Some(Arc::new(base)), ..Context::new(&Arc::new(states())) };
    let area = Rect::new(0, 0, 100, 20);
    for (shown, titles) in [
        (Shown::functions(), vec![("total%", ByColumn::Total), ("function", ByColumn::Name)]),
        (
            Shown::diff(Rows::Functions),
            vec![("after", ByColumn::After), (" p", ByColumn::Probability)],
        ),
        (Shown::States(Order::by(ByColumn::Total)), vec![("sleeping", ByColumn::State(2))]),
    ] {
        let mut app = App::new(start(shown, Vec::new()), theme);
        let commands = app.open(context.profile.clone(), 0);
        perform(&context, &mut app, commands);
        for (title, column) in titles {
            let line = screen(&app, 100, 20)[1].clone();
            let byte = line.find(title).unwrap_or_else(|| panic!("{title}: {line}")) + 1;
            let x = line[..byte].chars().count() as u16;
            assert_eq!(column_at(&app, body(&app, area), x), Some(column), "{line}");
            for reversed in [false, true, false] {
                let commands = app.sort_by(column);
                perform(&context, &mut app, commands);
                assert_eq!(app.page().query.shown.order(), Some(Order { column, reversed }));
            }
        }
    }
    // A tree has one order.
    let lines = pressed(answers(), Shown::Tree(Direction::Callees), &[], (80, 12));
    assert!(lines[1].contains("function"), "{lines:?}");
    let mut app = App::new(start(Shown::Tree(Direction::Callees), Vec::new()), theme);
    let commands = app.open(context.profile.clone(), 0);
    perform(&context, &mut app, commands);
    assert_eq!((app.sort_by(ByColumn::Total), app.message.clone()), (Vec::new(), None));
}

#[test]
fn no_page_is_blank() {
    let theme = Theme { depth: Depth::None, charset: Charset::Unicode };
    let hidden = AddedFilter { condition: Condition::Focus, value: "no_such_function".to_owned() };
    for (profile, filters) in [
        (Profile::default(), Vec::new()),
        (answers(), vec![hidden.clone()]),
        (states(), vec![hidden]),
        (processes(), Vec::new()),
    ] {
        let profile = Arc::new(profile);
        let base = Base { before: vec![profile.clone()], ..Base::default() };
        let context = Context { base: Some(Arc::new(base)), ..Context::new(&profile) };
        for shown in views() {
            let mut app = App::new(start(shown.clone(), filters.clone()), theme);
            let commands = app.open(profile.clone(), 0);
            perform(&context, &mut app, commands);
            let lines = screen(&app, 100, 24);
            let page = &lines[1 + usize::from(!filters.is_empty())..22];
            assert!(page.iter().any(|line| !line.trim().is_empty()), "{shown:?}: {lines:#?}");
        }
    }
}

#[test]
fn an_empty_page_has_its_reason() {
    let lines = |profile: Profile, shown: Shown| pressed(profile, shown, &[], (100, 12));
    let empty = lines(Profile::default(), Shown::functions());
    assert_eq!(empty[1], " no samples: the profile contains none");
    let mut b = Builder::new(&[("cpu", "nanoseconds"), ("samples", "count")]);
    let main = b.named_location("main");
    b.add(&[main], LabelSetId::EMPTY, 0, &[(Column(1), 3)]);
    let other = lines(b.finish(None), Shown::Tree(Direction::Callees));
    assert_eq!(other[1], " no samples have a value of type cpu");
    assert_eq!(other[2], " T shows the next type; values have: samples");
    let label = lines(answers(), Shown::table(Rows::Label("thread".to_owned())));
    let reason = " no sample has the label thread: the profile has no labels";
    assert!(label.iter().any(|line| line == reason), "{label:#?}");
    let label = lines(processes(), Shown::table(Rows::Label("lock".to_owned())));
    let reason = " no sample has the label lock; L shows others: process";
    assert!(label.iter().any(|line| line == reason), "{label:#?}");
    let threads = lines(answers(), Shown::States(Order::by(ByColumn::Total)));
    let reason = " no sample has a state; prof record -T wall records the states of threads";
    assert!(threads.iter().any(|line| line == reason), "{threads:#?}");
}

#[test]
fn functions_have_the_labels_of_their_sample_type() {
    let functions = Action::View(ViewKey::Functions);
    let lines = pressed(states(), Shown::table(Rows::Binaries), &[functions], (100, 12));
    let text = lines.join("\n");
    let titles = lines.iter().find(|line| line.contains("self%")).expect(&text);
    assert!(titles.ends_with("  state     function"), "{text}");
    assert!(lines.iter().any(|line| line.ends_with("  sleeping  nap")), "{text}");
    assert!(lines.iter().any(|line| line.ends_with("  runnable  work")), "{text}");
    // All of them end where the names begin.
    let column = |line: &str, name: &str| Some(line[..line.find(name)?].chars().count());
    let nap = lines.iter().find_map(|line| column(line, "nap")).expect(&text);
    assert_eq!(Some(nap), column(titles, "function"));
}
