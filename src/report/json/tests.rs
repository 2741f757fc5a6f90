use serde_json::{Value, json};

use super::*;
use profile::{Profile, ValueType};
use view::answer::{Head, OverAnswer, TableAnswer, ThreadAnswer, TreeAnswer};
use view::testing::{answers, frames_profile, odd_names, phases, processes};
use view::{
    Columns, Cut, Direction, Granularity, ListedThread, Over, OverOptions, Top, TopOptions, Tree,
    View,
};

mod schema;

/// The JSON of an answer.
fn written(answer: &impl Serialize) -> Value {
    let mut out = Vec::new();
    write(&mut out, answer).unwrap();
    serde_json::from_slice(&out).unwrap()
}

/// The table of a view without labels.
fn table(view: &View) -> Value {
    let (top, columns) = (Top::new(view, &TopOptions::default()), Columns::default());
    written(&TableAnswer::new(view, &top, &columns, &[]))
}

#[test]
fn a_table_has_exact_values() {
    let mut p = answers();
    p.values[1] = (1 << 53) + 1;
    let view = View::new(&p, 1, Granularity::FUNCTION);
    let v = table(&view);
    assert_eq!(v["version"], 1);
    assert_eq!(v["type"], json!({ "kind": "cpu", "unit": "nanoseconds" }));
    assert_eq!(v["rows"][0]["function"], "main");
    assert_eq!(v["rows"][0]["self"], (1i64 << 53) + 1);
    assert_eq!(v["rows"][0]["binary"], "/usr/bin/app");
    assert_eq!(v["rows"].as_array().unwrap().len(), 4);
    assert_eq!(v["row_count"], 4);
}

#[test]
fn what_a_profile_does_not_have_is_null() {
    let mut p = answers();
    let names = ["time_nanos", "duration_nanos", "period", "period_type"];
    let members = |p: &Profile| {
        let view = View::new(p, 0, Granularity::FUNCTION);
        let head = serde_json::to_value(Head::new(&view)).unwrap();
        names.map(|name| head[name].clone())
    };
    (p.time_nanos, p.duration_nanos, p.period) = (0, 0, 0);
    p.period_type = ValueType::default();
    assert_eq!(members(&p), [const { Value::Null }; 4]);
    (p.time_nanos, p.duration_nanos, p.period) = (1, 2, 3);
    p.period_type = p.sample_types[1];
    let cpu = json!({ "kind": "cpu", "unit": "nanoseconds" });
    assert_eq!(members(&p), [json!(1), json!(2), json!(3), cpu]);
    let unknown = ListedThread { process: "".into(), pid: 0, name: "".into(), tid: 0 };
    let unknown = serde_json::to_value(ThreadAnswer::from(&unknown)).unwrap();
    assert!(unknown.as_object().unwrap().values().all(Value::is_null), "{unknown}");
}

#[test]
fn code_without_a_file_has_its_binary() {
    let p = frames_profile();
    let rows = |granularity| {
        let view = View::new(&p, 0, granularity);
        let v = table(&view);
        v["rows"].as_array().unwrap().clone()
    };
    let files = rows(Granularity::FILES);
    let row = |file: Value, binary: Value| {
        let is_it = |row: &&Value| row["file"] == file && row["binary"] == binary;
        files.iter().filter(is_it).count()
    };
    assert_eq!(row(Value::Null, "/usr/bin/app".into()), 1, "{files:?}");
    assert_eq!(row(Value::Null, "/usr/lib/libx.so".into()), 1, "{files:?}");
    let named = files.iter().find(|row| row["file"] == "src/inner.c").unwrap();
    assert_eq!(named.get("binary"), None, "{named}");
    let functions = rows(Granularity::FUNCTIONS);
    let unknown = functions.iter().find(|row| row["function"] == "[libx.so]").unwrap();
    assert_eq!(unknown["binary"], "/usr/lib/libx.so");
}

#[test]
fn labels_and_odd_names_are_values() {
    let p = processes();
    let view = View::new(&p, 0, Granularity::NONE);
    let labels = vec!["process".to_string(), "nothing".to_string()];
    let top = Top::new(&view, &TopOptions { labels: labels.clone(), ..TopOptions::default() });
    let v = written(&TableAnswer::new(&view, &top, &Columns::default(), &labels));
    assert_eq!(v["rows"][0]["labels"], json!({ "process": "web;1", "nothing": null }));

    let p = odd_names();
    let mut view = View::new(&p, 0, Granularity::FUNCTION);
    let tree = Tree::new(&mut view, Direction::Callees, &[], Cut::Nothing);
    let v = written(&TreeAnswer::new(&view, &tree));
    let names: Vec<_> =
        v["nodes"].as_array().unwrap().iter().map(|n| n["function"].clone()).collect();
    assert_eq!(names[1], "x_[k]");
    assert_eq!(names[2], "tab\tnew\nline 7");
    assert_eq!(v["nodes"][2]["parent"], 1);
    assert_eq!(v["nodes"][0]["parent"], Value::Null);
}

#[test]
fn values_over_time_are_complete() {
    let p = phases();
    let view = View::new(&p, 1, Granularity::FUNCTION);
    let top = TopOptions { limit: 3, ..TopOptions::default() };
    let options = OverOptions { interval: 1_000_000, most: 60, top };
    let tables = Over::by_type(&view, &options, &[view.type_index]);
    let value = written(&OverAnswer::new(&view, &tables, 500_000, &[]));
    assert_eq!(value["sums"], json!([1_000_000_000, 1_000_000_000, 1_000_000_000]));
    assert_eq!(value["interval_micros"], 1_000_000);
    assert_eq!(value["from_micros"], 500_000);
    assert_eq!(value["rows"][1]["function"], "g");
    assert_eq!(value["rows"][1]["self_over"], json!([0, 1_000_000_000, 0]));
    assert_eq!(value["rows"][2]["total_over"][0], 1_000_000_000);
}

#[test]
fn an_object_of_a_list_is_a_line() {
    let p = answers();
    let view = View::new(&p, 1, Granularity::FUNCTION);
    let (top, columns) = (Top::new(&view, &TopOptions::default()), Columns::default());
    let mut out = Vec::new();
    write(&mut out, &TableAnswer::new(&view, &top, &columns, &[])).unwrap();
    let text = String::from_utf8(out).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("{\"function\":"));
    assert_eq!(rows.count(), 4, "{text}");
    assert!(text.ends_with("\n]}\n"), "{text}");
}
