//! Text, JSON and the terminal show the same rows with the same numbers: for every view of every
//! profile, and for random queries.

use serde_json::Value;

use super::*;
use crate::report::answer::{self, OutputFormat};
use crate::report::terminal::model::{Graph, Model, reason};
use crate::report::units;
use queries::{Random, profiles, queries, random_query, random_values};
use source::assert_code;
use view::query::{Limits, ValueOptions};
use view::{Answer, Cancel, Filter, Part, Tree};

pub mod queries;
mod source;

/// What is shown of a row, without the spaces between the parts.
type Shows = String;

/// The answer about the samples that pass the filters, which are applied one by one.
fn answered(profile: &Profile, query: &Query) -> Result<Answer, String> {
    let filter = |added: &AddedFilter| added.filter().unwrap();
    let (first, rest): (Vec<_>, Vec<_>) = query.filters.iter().partition(|added| added.is_time());
    let filters: Vec<Filter> = first.into_iter().chain(rest).map(filter).collect();
    let (mut part, mut start) = (profile.clone(), 0);
    for filter in filters {
        start += filter.time.map_or(0, |range| range.start(&part));
        part = filter.apply(part).profile;
    }
    let part = Part { start, has_times: !profile.times.is_empty(), ..Part::whole(Arc::new(part)) };
    let named = part.named(query.naming(profile), &Cancel::default());
    let found = named.and_then(|part| Answer::new(part, query, &Cancel::default()));
    found.map_err(|error| reason(&error))
}

/// What `prof report` or `prof annotate` writes.
fn written(profile: &Profile, query: &Query, format: OutputFormat) -> Result<String, String> {
    let found = answered(profile, query)?;
    let mut out = Vec::new();
    answer::write(&mut out, &found, query, format, None).unwrap();
    Ok(String::from_utf8(out).unwrap())
}

fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The numbers of a row as a screen shows them, and as text does.
struct Numbers {
    screen: String,
    text: String,
}

/// The 100 % of an answer.
fn whole(head: &Value) -> i64 {
    head[head["percent_of"].as_str().unwrap()].as_i64().unwrap()
}

/// The numbers of a JSON object with `self` and `total`.
fn numbers(query: &Query, head: &Value, row: &Value) -> Numbers {
    let unit = head["type"]["unit"].as_str().unwrap_or("");
    let whole = whole(head);
    let [own, total] = ["self", "total"].map(|key| row[key].as_i64().unwrap());
    let value = |value: i64| units::shown(value, unit, &query.value_options);
    let percent = |value: i64| format!("{:.2}%", view::percent(value, whole));
    let (own, own_percent) = (value(own), percent(own));
    let (total, total_percent) = (value(total), percent(total));
    Numbers {
        screen: squeezed(&format!("{own_percent} {own} {total_percent} {total}")),
        text: squeezed(&format!("{own} {own_percent} {total} {total_percent}")),
    }
}

/// The lines below the titles of the columns, without the spaces between their parts.
fn text_rows(text: &str) -> Vec<Shows> {
    let lines = text.lines().skip_while(|line| !line.is_empty()).skip(2);
    lines.map(squeezed).collect()
}

/// The lines of a screen that is large enough for all rows.
fn screen_rows(app: &App, rows: usize) -> Vec<Shows> {
    let lines = screen(app, 400, rows as u16 + 20);
    let begin =
        lines.iter().position(|line| line.contains("self%") && line.contains("total%")).unwrap();
    lines[begin + 1..=begin + rows].iter().map(|line| squeezed(line)).collect()
}

/// A terminal that shows the query.
fn shown(profile: &Arc<Profile>, query: &Query) -> App {
    let theme = Theme { depth: Depth::None, charset: Charset::Unicode };
    let start = Start { query: query.clone(), ..Start::default() };
    let mut app = App::new(start, theme);
    let context = Context::new(profile);
    for command in app.open(profile.clone(), query.type_index) {
        let Command::Compute(job, query) = command else { continue };
        app.computed(job, compute(&context, &query).map(Arc::new));
    }
    app
}

/// Fails unless text, JSON and the terminal show the same. Returns the number of rows.
fn assert_agreement(profile: &Arc<Profile>, query: &Query) -> usize {
    let app = shown(profile, query);
    let [text, json] = [OutputFormat::WHOLE_TEXT, OutputFormat::Json]
        .map(|format| written(profile, &with_limits(query, format), format));
    let (text, json) = match (text, json) {
        (Ok(text), Ok(json)) => (text, json),
        (Err(text), Err(json)) => {
            assert_eq!(text, json, "{query:?}");
            let error = app.page().error.clone().unwrap_or_default();
            assert!(error.starts_with(&text), "{query:?}: {error:?} and not {text:?}");
            return 0;
        }
        (text, json) => panic!("{query:?}: {text:?} and {json:?}"),
    };
    let divided: Value = serde_json::from_str(&json).unwrap();
    let json = undivided(profile, query);
    assert_divided(query, &divided, &json);
    if matches!(query.shown, Shown::Source(_)) {
        let answer = answered(profile, query).unwrap();
        let code = match app.page().model.as_deref() {
            Some(Model::Code(code)) => Some(code),
            _ => None,
        };
        return assert_code(code, &text, &json, &answer, query);
    }
    let model = app.page().model.clone().unwrap_or_else(|| panic!("{query:?}"));
    match &*model {
        Model::Table(table) => assert_tables(&app, table.rows.len(), &text, &json, query),
        Model::Graph(graph) => assert_trees(graph, &text, &json, query),
        Model::States(threads) => {
            let shown = (0..threads.rows.len()).map(|row| threads.rows[row].total);
            let names = (0..threads.rows.len()).map(|row| squeezed(&threads.name(row)));
            assert_threads(shown.zip(names).collect(), &text, &json, query)
        }
        Model::Text(lines) => {
            // Below the filters that nothing meets.
            let written: Vec<String> = text.lines().map(str::to_owned).collect();
            assert!(lines.ends_with(&written), "{query:?}: {lines:?} and {written:?}");
            assert_lists(&text, &json, query)
        }
        _ => panic!("{query:?}"),
    }
}

/// The JSON of the values before they are divided.
fn undivided(profile: &Profile, query: &Query) -> Value {
    let value_options = ValueOptions { divide_by: 1.0, ..query.value_options };
    let query = Query { value_options, ..with_limits(query, OutputFormat::Json) };
    serde_json::from_str(&written(profile, &query, OutputFormat::Json).unwrap()).unwrap()
}

/// Fails unless the values of an answer are those of another, divided.
fn assert_divided(query: &Query, divided: &Value, json: &Value) {
    let values = ["self", "total", "kept", "value", "function_self", "function_total"];
    match (divided, json) {
        (Value::Object(divided), Value::Object(json)) => {
            assert_eq!(divided.len(), json.len(), "{query:?}");
            for (key, value) in json {
                if key == "labels" {
                    assert_eq!(&divided[key], value, "{query:?}");
                    continue;
                }
                match value.as_i64().filter(|_| values.contains(&key.as_str())) {
                    Some(value) => assert_eq!(divided[key], query.value_options.shown(value)),
                    None => assert_divided(query, &divided[key], value),
                }
            }
        }
        (Value::Array(divided), Value::Array(json)) => {
            assert_eq!(divided.len(), json.len(), "{query:?}");
            divided
                .iter()
                .zip(json)
                .for_each(|(divided, json)| assert_divided(query, divided, json));
        }
        _ => {}
    }
}

/// All rows, as the terminal has them.
fn with_limits(query: &Query, format: OutputFormat) -> Query {
    let limits = match query.shown {
        // What the terminal draws itself has everything.
        Shown::Tree(_) | Shown::Flame(_) | Shown::Sandwich(_) => Limits::NONE,
        _ => Limits { rows: 0, ..format.limits(&query.shown) },
    };
    Query { limits, ..query.clone() }
}

/// A value with its share, as text has them.
fn value_and_share(query: &Query, json: &Value, value: i64) -> String {
    let unit = json["type"]["unit"].as_str().unwrap_or("");
    let share = view::percent(value, whole(json));
    squeezed(&format!("{} {share:.2}%", units::shown(value, unit, &query.value_options)))
}

fn assert_threads(shown: Vec<(i64, String)>, text: &str, json: &Value, query: &Query) -> usize {
    let (rows, text) = (json["rows"].as_array().unwrap(), text_rows(text));
    assert_eq!((rows.len(), text.len()), (shown.len(), shown.len()), "{query:?}");
    for ((row, text), (total, name)) in rows.iter().zip(&text).zip(&shown) {
        assert_eq!(row["total"].as_i64(), Some(*total), "{query:?}");
        let values = value_and_share(query, json, *total);
        assert!(text.starts_with(&values) && text.ends_with(name), "{query:?}: {text} {values}");
    }
    shown.len()
}

/// Compares the rows of a page that the renderer of text writes for the terminal, too.
fn assert_lists(text: &str, json: &Value, query: &Query) -> usize {
    let Some(rows) =
        ["rows", "functions", "traces", "tags"].into_iter().find_map(|key| json[key].as_array())
    else {
        assert!(matches!(query.shown, Shown::Header) && text.starts_with("# "), "{query:?}");
        return 1;
    };
    if rows.is_empty() && query.shown == Shown::Tags {
        assert_eq!(text, "No sample has a label.\n", "{query:?}");
        return 1;
    }
    let lines: Vec<String> = text.lines().map(squeezed).collect();
    let unit = json["type"]["unit"].as_str().unwrap_or("");
    let has_line = |of: &str| lines.iter().any(|line| format!("{line} ").contains(of));
    for row in rows {
        let parts = match &query.shown {
            Shown::Table(Table { over: None, .. }) => vec![numbers(query, json, row).text],
            Shown::Table(_) => match row["self"].as_i64().unwrap() {
                0 => vec!["- ".to_owned()],
                own => vec![squeezed(&units::shown(own, unit, &query.value_options)) + " "],
            },
            Shown::Quality(_) => ["self", "total"]
                .map(|key| format!("{:.2}% ", 100.0 * row[key]["share"].as_f64().unwrap()))
                .to_vec(),
            Shown::Peek(_) => ["self", "total"]
                .map(|key| value_and_share(query, json, row[key].as_i64().unwrap()))
                .to_vec(),
            Shown::Traces => vec![value_and_share(query, json, row["value"].as_i64().unwrap())],
            Shown::Tags => {
                let values = row["values"].as_array().unwrap().iter();
                let share = |value: i64| view::percent(value, row["total"].as_i64().unwrap());
                let cells = |value: i64| {
                    let text = units::shown(value, unit, &query.value_options);
                    squeezed(&format!("{text} {:.2}%", share(value)))
                };
                values.map(|value| cells(value["value"].as_i64().unwrap())).collect()
            }
            Shown::Coverage => ["total", "self"]
                .map(|key| {
                    format!("{:.2}% ", view::percent(row[key].as_i64().unwrap(), whole(json)))
                })
                .to_vec(),
            _ => panic!("{query:?}"),
        };
        for part in parts {
            assert!(has_line(&part), "{query:?}: {part:?} in\n{text}");
        }
    }
    rows.len()
}

fn assert_tables(app: &App, count: usize, text: &str, json: &Value, query: &Query) -> usize {
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), count, "{query:?}");
    if count == 0 {
        return 0;
    }
    let (text, screen) = (text_rows(text), screen_rows(app, count));
    assert_eq!(text.len(), count, "{query:?}: {text:?}");
    for ((row, text), screen) in rows.iter().zip(&text).zip(&screen) {
        let numbers = numbers(query, json, row);
        let rest = |line: &str, numbers: &str| {
            let rest = line.strip_prefix(numbers);
            rest.unwrap_or_else(|| panic!("{query:?}: {numbers:?} and {line:.200}")).to_owned()
        };
        let (text, screen) = (rest(text, &numbers.text), rest(screen, &numbers.screen));
        // Text has the binary in a column, the screen in brackets, and what is unknown differs.
        let name = row["function"].as_str().filter(|name| is_plain(name));
        if let Some(name) = name.filter(|_| query.shown.granularity().function) {
            let is_in_text = format!("{text} ").contains(&format!(" {name} "));
            assert!(is_in_text && screen.starts_with(&format!(" {name}")), "{text:?} {screen:?}");
        }
    }
    count
}

/// True for names that all of them print as they are.
fn is_plain(name: &str) -> bool {
    name.len() < 50 && !name.is_empty() && name.chars().all(|c| c.is_ascii_graphic())
}

/// Compares the nodes of trees in no order: each sorts them by its own rules.
fn assert_trees(graph: &Graph, text: &str, json: &Value, query: &Query) -> usize {
    // The first of each list is the root, which has no box.
    let (lists, first): (&[&str], usize) = match (json.get("nodes"), json.get("boxes")) {
        (Some(_), _) => (&["nodes"], 1),
        (_, Some(_)) => (&["boxes"], 0),
        _ => (&["callers", "callees"], 1),
    };
    let nodes = lists.iter().flat_map(|list| &json[list].as_array().unwrap()[first..]);
    let pair = |row: &Value| (row["total"].as_i64().unwrap(), row["self"].as_i64().unwrap());
    let mut of_json: Vec<(i64, i64)> = nodes.map(pair).collect();
    of_json.sort_unstable();
    // Several functions are below a node of their own, which is on the root, and so are those that
    // no sample has.
    let is_one = json["functions"].as_array().is_none_or(|functions| functions.len() == 1);
    let is_one = is_one && !(of_json.is_empty() && json.get("functions").is_some());
    let nodes = graph.ordered.nodes()[1..].iter().map(|&node| graph.tree.node(node));
    let nodes = nodes.filter(|node| is_one || node.parent != Tree::ROOT);
    let mut of_terminal: Vec<(i64, i64)> =
        nodes.map(|node| (node.total, node.self_value)).collect();
    of_terminal.sort_unstable();
    assert_eq!(of_json, of_terminal, "{query:?}");
    let mut expected: Vec<String> =
        of_json.iter().map(|&(total, _)| value_and_share(query, json, total)).collect();
    expected.sort();
    let is_value =
        |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let mut shown: Vec<String> = text.lines().filter(is_value).map(squeezed).collect();
    shown.sort();
    assert_eq!(shown.len(), expected.len(), "{query:?}: {text}");
    for (line, share) in shown.iter().zip(&expected) {
        assert!(line.starts_with(share.as_str()), "{query:?}: {line:?} and {share:?}");
    }
    of_json.len()
}

#[test]
fn text_json_and_terminal_agree_about_every_view_of_every_profile() {
    let mut rows = 0;
    for profile in profiles() {
        for type_index in 0..profile.sample_types.len() {
            for query in queries(&profile) {
                rows += assert_agreement(&profile, &Query { type_index, ..query });
            }
        }
    }
    assert!(rows > 1000, "{rows}");
}

#[test]
fn text_json_and_terminal_agree_about_random_queries() {
    let (mut random, mut of_values) = (Random(20_261_129), Random(20_261_128));
    let (mut rows, mut empty) = (0, 0);
    let profiles = profiles();
    for _ in 0..500 {
        let profile = &profiles[random.below(profiles.len())];
        let query = random_query(&mut random, profile);
        let query = Query { value_options: random_values(&mut of_values), ..query };
        match assert_agreement(profile, &query) {
            0 => empty += 1,
            some => rows += some,
        }
    }
    assert!(rows > 2000 && empty < 250, "{rows} rows, {empty} without");
}

#[test]
fn a_function_that_a_filter_hides_is_reported() {
    let profile = Arc::new(answers());
    let hide = AddedFilter { condition: Condition::Hide, value: "^foo1$".to_owned() };
    let query = Query { filters: vec![hide], ..Query::new(Shown::Sandwich("foo1".to_owned())) };
    let error = shown(&profile, &query).page().error.clone();
    assert_eq!(error.as_deref(), Some("no sample that passes the filters has foo1"));
    let without = Query { filters: Vec::new(), ..query };
    assert!(view::answer(profile.clone(), &without, &Cancel::default()).is_ok());
}
