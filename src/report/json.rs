//! Views as JSON with a stable schema and exact integer values.
//!
//! `docs/json.md` describes it.

mod header;
mod shapes;

use std::io::{self, Write};

use serde_json::{Map, Value, json};

pub use header::write_header;
pub use shapes::{write_boxes, write_graph, write_peek, write_sandwich, write_sandwich_boxes};

use super::coverage::{self, Remedies};
use super::text::TableOptions;
use super::{columns, summary};
use profile::{LabelValue, Profile, ThreadState, ValueType};
use view::{
    ByState, Coverage, Direction, Frame, Granularity, ListedThread, Name, Quality, Share, States,
    Top, Tree, View, base_name, is_run_time,
};

/// Version of the schema.
pub const VERSION: u32 = 1;

/// Writes a table.
pub fn write_table(
    out: &mut dyn Write,
    view: &View,
    top: &Top,
    options: &TableOptions,
) -> io::Result<()> {
    let mut head = head(view);
    head.insert("row_count".into(), top.row_count.into());
    columns::json_head(&mut head, &options.columns);
    let rows = top.rows.iter().enumerate().map(|(i, row)| {
        let mut object = frame(view, view.frames.get(row.frame), options.granularity);
        columns::json_row(&mut object, &options.columns, i);
        object.insert("self".into(), row.self_value.into());
        object.insert("total".into(), row.total.into());
        if !options.labels.is_empty() {
            let values = &top.groups[row.group as usize];
            let value = |v: &Option<LabelValue>| v.map_or(Value::Null, |v| label(view.profile, v));
            let labels: Map<_, _> =
                options.labels.iter().cloned().zip(values.iter().map(value)).collect();
            object.insert("labels".into(), labels.into());
        }
        object
    });
    write_list(out, head, "rows", rows)
}

/// Writes the confidence intervals of a view.
pub fn write_quality(out: &mut dyn Write, view: &View, quality: &Quality) -> io::Result<()> {
    let mut head = head(view);
    head.insert("samples".into(), (quality.samples as i64).into());
    head.insert("effective_samples".into(), quality.effective.into());
    head.insert("functions".into(), quality.functions.into());
    head.insert("entropy_bits".into(), quality.entropy.into());
    head.insert("samples_to_halve".into(), (quality.to_halve() as i64).into());
    let share = |s: Share| json!({"share": s.measured, "low": s.low, "high": s.high});
    let rows = quality.rows.iter().map(|row| {
        let mut object = frame(view, view.frames.get(row.row.frame), Granularity::FUNCTION);
        object.insert("self".into(), share(row.itself));
        object.insert("total".into(), share(row.total));
        object
    });
    write_list(out, head, "rows", rows)
}

/// Description of a gap, or null.
fn words(gap: Option<&profile::Gap>) -> Value {
    gap.map(ToString::to_string).into()
}

/// Writes a coverage report.
pub fn write_coverage(
    out: &mut dyn Write,
    view: &View,
    coverage: &Coverage,
    remedies: Remedies<'_>,
) -> io::Result<()> {
    let text = |id| match view.profile.str(id) {
        "" => Value::Null,
        text => text.into(),
    };
    let shown = coverage::shown(view, coverage);
    let rows = shown.items.iter().map(|b| {
        let ends = b.truncated.iter().map(|(why, value)| json!({"reason": why, "value": value}));
        let mut row = Map::new();
        row.insert("binary".into(), text(b.file));
        row.insert("build_id".into(), text(b.build_id));
        row.insert("why_without_names".into(), words(b.why.as_ref()));
        row.insert("why_without_lines".into(), words(b.why_no_lines.as_ref()));
        row.insert("bad_input".into(), words(b.bad_input.as_ref()));
        row.insert("no_unwind_information".into(), b.no_unwind_info.into());
        row.insert("self".into(), b.itself.into());
        row.insert("total".into(), b.total.into());
        row.insert("frames".into(), b.frames.into());
        row.insert("with_names".into(), b.named.into());
        row.insert("with_lines".into(), b.with_lines.into());
        row.insert("truncated".into(), ends.collect());
        row.insert("remedies".into(), remedies(b).into());
        row
    });
    let mut head = head(view);
    head.insert("rows_left_out".into(), shown.left_out.into());
    write_list(out, head, "rows", rows)
}

/// Writes a call tree.
pub fn write_tree(
    out: &mut dyn Write,
    view: &View,
    tree: &Tree,
    granularity: Granularity,
) -> io::Result<()> {
    let mut head = head(view);
    head.insert("branches_left_out".into(), tree.beyond_limit.into());
    write_list(out, head, "nodes", nodes(view, tree, granularity))
}

fn nodes(
    view: &View,
    tree: &Tree,
    granularity: Granularity,
) -> impl Iterator<Item = Map<String, Value>> {
    tree.nodes.iter().enumerate().map(move |(id, node)| {
        let root = id == Tree::ROOT as usize;
        let mut object =
            if root { Map::new() } else { frame(view, view.frames.get(node.frame), granularity) };
        object.insert("id".into(), id.into());
        object.insert("parent".into(), if root { Value::Null } else { node.parent.into() });
        object.insert("self".into(), node.self_value.into());
        object.insert("total".into(), node.total.into());
        object
    })
}

/// Writes `head` with the member `name` as its last, one object a line and none kept in memory.
pub(super) fn write_list(
    out: &mut dyn Write,
    head: Map<String, Value>,
    name: &str,
    objects: impl Iterator<Item = Map<String, Value>>,
) -> io::Result<()> {
    write_head(out, head)?;
    write_member(out, name, objects)?;
    writeln!(out, "}}")
}

/// Writes all members of `head`, and no end.
pub(super) fn write_head(out: &mut dyn Write, head: Map<String, Value>) -> io::Result<()> {
    let head = Value::Object(head).to_string();
    out.write_all(&head.as_bytes()[..head.len() - 1])
}

/// Writes a further member, a list.
pub(super) fn write_member(
    out: &mut dyn Write,
    name: &str,
    objects: impl Iterator<Item = Map<String, Value>>,
) -> io::Result<()> {
    write!(out, ",\n\"{name}\":[")?;
    for (i, object) in objects.enumerate() {
        out.write_all(if i == 0 { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *out, &object)?;
    }
    write!(out, "\n]")
}

pub(super) fn head(view: &View) -> Map<String, Value> {
    let p = view.profile;
    let kind = |t: &ValueType| json!({ "kind": p.str(t.kind), "unit": p.str(t.unit) });
    let comments = summary::comments(p);
    let main = p.mappings.first().map_or("", |m| p.str(m.file));
    let Value::Object(head) = json!({
        "version": VERSION,
        "type": p.sample_types.get(view.type_index).map(kind),
        "types": p.sample_types.iter().map(kind).collect::<Vec<_>>(),
        "total": view.total,
        "kept": view.kept_total,
        "states": states(view),
        "main": or_null(main),
        "time_nanos": known(p.time_nanos),
        "duration_nanos": known(p.duration_nanos),
        "period": known(p.period),
        "period_type": Some(&p.period_type).filter(|&t| *t != ValueType::default()).map(kind),
        "comments": comments.items.iter().map(|&c| p.str(c)).collect::<Vec<_>>(),
        "comments_left_out": comments.left_out,
        "frames_left_out": view.frames.expansion.left_out,
    }) else {
        unreachable!("json! of braces is an object");
    };
    head
}

/// Values by state, or null if no sample has one.
fn states(view: &View) -> Value {
    let Some(states) = States::new(view) else { return Value::Null };
    by_state(states.values(view)).into()
}

/// The values that are not 0, by the names of the states.
pub(super) fn by_state(values: ByState) -> Map<String, Value> {
    let names = ThreadState::ALL.map(ThreadState::name).into_iter().chain(["other"]);
    let values = names.zip(values).filter(|(_, value)| *value != 0);
    values.map(|(name, value)| (name.to_owned(), value.into())).collect()
}

/// The direction of a tree.
pub(super) fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Callees => "callees",
        Direction::Callers => "callers",
    }
}

pub(super) fn or_null(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { text.into() }
}

/// A number, or null for 0, by which profiles state that it is unknown.
pub(super) fn known(number: i64) -> Value {
    if number == 0 { Value::Null } else { number.into() }
}

/// The members by which threads are distinguished.
pub(super) fn thread(thread: &ListedThread) -> Map<String, Value> {
    let ListedThread { process, pid, name, tid } = thread;
    let members = [
        ("process", or_null(process)),
        ("pid", known(*pid)),
        ("thread", or_null(name)),
        ("tid", known(*tid)),
    ];
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

pub(super) fn label(p: &Profile, value: LabelValue) -> Value {
    match value {
        LabelValue::Str(s) => p.str(s).into(),
        LabelValue::Num { value, .. } => value.into(),
    }
}

pub(super) fn frame(view: &View, frame: &Frame, granularity: Granularity) -> Map<String, Value> {
    let p = view.profile;
    let mut out = Map::new();
    if granularity.function {
        out.insert("function".into(), frame.display(p).into());
        let system_name = match frame.name {
            Name::Function(_) => p.str(frame.system_name),
            _ => "",
        };
        out.insert("system_name".into(), or_null(system_name));
    }
    if granularity.function || granularity.file {
        out.insert("file".into(), or_null(p.str(frame.file)));
    }
    if granularity.inlined {
        out.insert("inlined".into(), frame.inlined.into());
    }
    if granularity.address {
        out.insert("address".into(), format!("{:#x}", frame.address).into());
    }
    // Code without a function or file is distinguished by its binary in any case.
    if granularity.binary || frame.needs_binary() {
        // Of run-time code the name: the path is that of one of its files.
        let path = p.str(frame.binary);
        let binary = if is_run_time(path) { base_name(path) } else { path };
        out.insert("binary".into(), or_null(binary));
    }
    if granularity.line {
        out.insert("line".into(), known(frame.line));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use view::testing::{answers, frames_profile, odd_names, processes};
    use view::{Columns, Cut, TopOptions};

    #[test]
    fn a_table_has_exact_values() {
        let mut p = answers();
        p.values[1] = (1 << 53) + 1;
        let view = View::new(&p, 1, Granularity::FUNCTION);
        let top = Top::new(&view, &TopOptions::default());
        let options = TableOptions {
            granularity: Granularity::FUNCTION,
            children: true,
            labels: Vec::new(),
            columns: Columns::default(),
        };
        let mut out = Vec::new();
        write_table(&mut out, &view, &top, &options).unwrap();
        let v: Value = serde_json::from_slice(&out).unwrap();
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
            names.map(|name| head(&view)[name].clone())
        };
        (p.time_nanos, p.duration_nanos, p.period) = (0, 0, 0);
        p.period_type = ValueType::default();
        assert_eq!(members(&p), [const { Value::Null }; 4]);
        (p.time_nanos, p.duration_nanos, p.period) = (1, 2, 3);
        p.period_type = p.sample_types[1];
        let cpu = json!({ "kind": "cpu", "unit": "nanoseconds" });
        assert_eq!(members(&p), [json!(1), json!(2), json!(3), cpu]);
        let unknown = ListedThread { process: "".into(), pid: 0, name: "".into(), tid: 0 };
        assert!(thread(&unknown).values().all(Value::is_null));
    }

    #[test]
    fn code_without_a_file_has_its_binary() {
        let p = frames_profile();
        let rows = |granularity| {
            let view = View::new(&p, 0, granularity);
            let top = Top::new(&view, &TopOptions::default());
            let options = TableOptions {
                granularity,
                children: true,
                labels: Vec::new(),
                columns: Columns::default(),
            };
            let mut out = Vec::new();
            write_table(&mut out, &view, &top, &options).unwrap();
            let v: Value = serde_json::from_slice(&out).unwrap();
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
        let options = TableOptions {
            granularity: Granularity::NONE,
            children: true,
            labels,
            columns: Columns::default(),
        };
        let mut out = Vec::new();
        write_table(&mut out, &view, &top, &options).unwrap();
        let v: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(v["rows"][0]["labels"], json!({ "process": "web;1", "nothing": null }));

        let p = odd_names();
        let mut view = View::new(&p, 0, Granularity::FUNCTION);
        let tree = Tree::new(&mut view, Direction::Callees, &[], Cut::Nothing);
        let mut out = Vec::new();
        write_tree(&mut out, &view, &tree, Granularity::FUNCTION).unwrap();
        let v: Value = serde_json::from_slice(&out).unwrap();
        let names: Vec<_> =
            v["nodes"].as_array().unwrap().iter().map(|n| n["function"].clone()).collect();
        assert_eq!(names[1], "x_[k]");
        assert_eq!(names[2], "tab\tnew\nline 7");
        assert_eq!(v["nodes"][2]["parent"], 1);
        assert_eq!(v["nodes"][0]["parent"], Value::Null);
    }
}
