//! `docs/json.md` describes all members that prof prints, and no others.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::Command;

use regex::Regex;
use serde_json::Value;

use crate::common::json::members;
use crate::common::{Prof, temp_dir, views};
use profile::{Builder, Column, LabelSetId, TimeLimits};

/// Sections, and commands that print all that they describe.
const VIEWS: [(&str, &[&str]); 16] = [
    (
        "Table: ",
        &[
            "report known.pb.gz --json --type cpu,samples --ratio cpu/samples --sort symbol,process",
            "report known.pb.gz --json --granularity addresses",
            "report known.pb.gz --json --lines --sort process --ratio cpu/samples",
            "report known.pb.gz --json --sort package --columns self",
        ],
    ),
    ("Call tree: ", &["report known.pb.gz --json -g", "report known.pb.gz --json -g caller"]),
    (
        "Values over time: ",
        &["report times.pb.gz --json --over 1s --sort symbol,process --type cpu,samples"],
    ),
    (
        "Sandwich: ",
        &["report known.pb.gz --json --sandwich foo1", "report known.pb.gz --json --sandwich bar"],
    ),
    ("Callers and callees: ", &["report known.pb.gz --json --peek foo"]),
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
