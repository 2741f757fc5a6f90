//! `docs/json.md` describes all members that prof prints, and no others; `docs/json.schema.json`
//! describes their types.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use regex::Regex;
use serde_json::Value;

use crate::common::json::members;
use crate::common::system::skip;
use crate::common::{Prof, temp_dir, views};
use profile::{Builder, Column, LabelSetId, TimeLimits};

/// Sections, and commands that print all that they describe.
const VIEWS: [(&str, &[&str]); 18] = [
    (
        "Table: ",
        &[
            "report known.pb.gz --json --type cpu,samples --ratio cpu/samples --sort symbol,process",
            "report known.pb.gz --json --granularity addresses",
            "report known.pb.gz --json --lines --sort process --ratio cpu/samples",
            "report known.pb.gz --json --sort package --columns self",
        ],
    ),
    ("Call tree: ", &["report known.pb.gz --json -g", "report known.pb.gz --json -g callee"]),
    (
        "Values over time: ",
        &["report times.pb.gz --json --over 1s --sort symbol,process --type cpu,samples"],
    ),
    (
        "Sandwich: ",
        &["report known.pb.gz --json --sandwich foo1", "report known.pb.gz --json --sandwich bar"],
    ),
    ("Callers and callees: ", &["report known.pb.gz --json --peek foo"]),
    ("Stacks: ", &["report known.pb.gz --json --traces"]),
    ("Labels: ", &["report odd.pb.gz --json --tags"]),
    ("Call graph: ", &["graph known.pb.gz --json"]),
    ("Flame graph: ", &["flame known.pb.gz --json", "flame known.pb.gz --json --colors kernel"]),
    ("Sandwich as boxes: ", &["flame known.pb.gz --json --sandwich foo1"]),
    (
        "Differential flame graph: ",
        &["flame known.pb.gz --diff odd.pb.gz --type samples --json --granularity addresses"],
    ),
    ("Threads by state: ", &["report known.pb.gz --json --states"]),
    ("Coverage: ", &["report known.pb.gz --json --coverage"]),
    ("Header: ", &["report known.pb.gz --json --header-only"]),
    ("Quality: ", &["report known.pb.gz --json --quality"]),
    (
        "Difference: ",
        &[
            "diff known.pb.gz known.pb.gz --json --granularity addresses --sort process",
            "report known.pb.gz --diff known.pb.gz --normalize --json",
        ],
    ),
    ("Threads: ", &["threads --json -p "]),
    ("Members of all views", &[]),
];

/// Sections whose members are checked by the tests of their commands.
const ELSEWHERE: [&str; 1] = ["prof annotate"];

/// Words that are printed as code.
fn code(text: &str) -> BTreeSet<String> {
    let word = Regex::new("`([a-z_]+)`").unwrap();
    word.captures_iter(text).map(|found| found[1].to_owned()).collect()
}

/// A section of the document.
struct Section {
    title: String,
    /// Members of its tables.
    members: BTreeSet<String>,
    /// All words that are members, there or in a sentence.
    words: BTreeSet<String>,
}

fn sections() -> Vec<Section> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/json.md");
    let document = std::fs::read_to_string(path).unwrap();
    let parts = document.split("\n## ").skip(1);
    let section = |part: &str| {
        let (title, text) = part.split_once('\n').unwrap();
        let cells = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
        Section {
            title: title.to_owned(),
            members: cells.flat_map(code).collect(),
            words: code(text),
        }
    };
    parts.map(section).collect()
}

/// Members whose own members are the names of labels and states.
const FROM_PROFILES: [&str; 2] = ["labels", "states"];

/// A profile with times.
fn with_times(dir: &Path) {
    let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
    b.keep_times(TimeLimits { start: 0, max_samples: 9 });
    let main = b.named_location("main");
    for second in [0, 1, 2] {
        b.set_time(Some(second * 1_000_000_000));
        b.add(&[main], LabelSetId::EMPTY, 1, &[(Column(1), 1_000_000_000)]);
    }
    b.profile.duration_nanos = 3_000_000_000;
    let file = File::create(dir.join("times.pb.gz")).unwrap();
    formats::pprof::write(&b.finish(None), file).unwrap();
}

#[test]
fn the_document_has_all_members_and_no_others() {
    let dir = temp_dir();
    views::known(&dir);
    views::odd(&dir);
    with_times(dir.path());
    let mut target = Command::new("sleep").arg("60").spawn().unwrap();
    let sections = sections();
    let find = |title: &str| sections.iter().find(|s| s.title.starts_with(title)).expect(title);
    let frames = find("Frames");
    let common = find("Members of all views");
    let mut anywhere = BTreeSet::new();
    for (title, commands) in VIEWS {
        let section = find(title);
        let mut printed = BTreeSet::new();
        for command in commands {
            let pid =
                if command.ends_with("-p ") { target.id().to_string() } else { String::new() };
            let out = Prof::new(&dir, &format!("{command}{pid}")).run().ok();
            let value: Value = serde_json::from_slice(&out.stdout).unwrap();
            assert_eq!(value["version"], 1, "{command}");
            printed.extend(members(&value, &FROM_PROFILES));
        }
        if commands.is_empty() {
            continue;
        }
        let missing: Vec<_> = section.members.difference(&printed).collect();
        assert!(missing.is_empty(), "{title}: not printed: {missing:?}");
        let known = |name: &&String| {
            // Rows of other views are those of a table, and nodes those of a call tree.
            let others = ["Table: ", "Call tree: "].map(find);
            [section, frames, common].iter().chain(&others).any(|part| part.words.contains(*name))
        };
        let undocumented: Vec<_> = printed.iter().filter(|name| !known(name)).collect();
        assert!(undocumented.is_empty(), "{title}: not in docs/json.md: {undocumented:?}");
        anywhere.extend(printed);
    }
    target.kill().unwrap();
    target.wait().unwrap();
    for section in [frames, common] {
        let missing: Vec<_> = section.members.difference(&anywhere).collect();
        assert!(missing.is_empty(), "{}: not printed: {missing:?}", section.title);
    }
    for section in &sections {
        let is_known = section.title == "Frames"
            || VIEWS.iter().any(|(title, _)| section.title.starts_with(title))
            || ELSEWHERE.iter().any(|command| section.title.contains(command));
        assert!(is_known, "no command of this test prints the section {}", section.title);
    }
}

/// The commands of [`VIEWS`] by their names in the schema, and those of `prof annotate`.
const IN_SCHEMA: [(&str, &str); 17] = [
    ("Table: ", "prof report"),
    ("Call tree: ", "prof report -g"),
    ("Values over time: ", "prof report --over"),
    ("Sandwich: ", "prof report --sandwich"),
    ("Callers and callees: ", "prof report --peek"),
    ("Stacks: ", "prof report --traces"),
    ("Labels: ", "prof report --tags"),
    ("Call graph: ", "prof graph"),
    ("Flame graph: ", "prof flame"),
    ("Sandwich as boxes: ", "prof flame --sandwich"),
    ("Differential flame graph: ", "prof flame --diff"),
    ("Threads by state: ", "prof report --states"),
    ("Coverage: ", "prof report --coverage"),
    ("Header: ", "prof report --header-only"),
    ("Quality: ", "prof report --quality"),
    ("Difference: ", "prof diff"),
    ("Threads: ", "prof threads"),
];

/// Validates files against the schemas of commands; members that the schema does not have are errors.
const VALIDATOR: &str = r##"
import json, sys
from jsonschema import Draft202012Validator

def strict(schema):
    for value in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(value, (dict, list)):
            strict(value)
    if isinstance(schema, dict) and isinstance(schema.get("properties"), dict):
        schema.setdefault("additionalProperties", False)

schema = json.load(open(sys.argv[1]))
Draft202012Validator.check_schema(schema)
strict(schema["$defs"])
count = 0
for line in sys.stdin:
    command, path = line.rstrip("\n").split("\t")
    part = {"$ref": schema["commands"][command]["$ref"], "$defs": schema["$defs"]}
    for error in Draft202012Validator(part).iter_errors(json.load(open(path))):
        sys.exit(f"{command}: {list(error.absolute_path)}: {error.message}")
    count += 1
print(count)
"##;

#[test]
fn all_json_follows_the_schema() {
    if !Path::new("/usr/lib/python3/dist-packages/jsonschema").exists() {
        return skip("python3-jsonschema is not installed");
    }
    let dir = temp_dir();
    views::known(&dir);
    views::odd(&dir);
    with_times(dir.path());
    let mut target = Command::new("sleep").arg("60").spawn().unwrap();
    let mut commands: Vec<(&str, String)> = Vec::new();
    for (title, name) in IN_SCHEMA {
        let (_, lines) = VIEWS.iter().find(|(other, _)| *other == title).expect(title);
        let pid = target.id();
        let line = |line: &&str| {
            if line.ends_with("-p ") { format!("{line}{pid}") } else { (*line).to_owned() }
        };
        commands.extend(lines.iter().map(|l| (name, line(l))));
    }
    for line in ["annotate foo1 known.pb.gz --json", "annotate . odd.pb.gz --json --asm"] {
        commands.push(("prof annotate", line.to_owned()));
    }
    let mut listed = String::new();
    for (number, (name, line)) in commands.iter().enumerate() {
        let path = dir.path().join(format!("{number}.json"));
        std::fs::write(&path, Prof::new(&dir, line).run().ok().stdout).unwrap();
        listed += &format!("{name}\t{}\n", path.display());
    }
    target.kill().unwrap();
    target.wait().unwrap();
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/json.schema.json");
    let mut validator = Command::new("/usr/bin/python3");
    validator.arg("-c").arg(VALIDATOR).arg(schema);
    let mut validator = validator.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    validator.stdin.take().unwrap().write_all(listed.as_bytes()).unwrap();
    let out = validator.wait_with_output().unwrap();
    let count = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    assert!(out.status.success(), "the output of a command does not follow its schema");
    assert_eq!(count, commands.len().to_string());
}
