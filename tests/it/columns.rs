//! Columns and rows of the tables of `prof report`: several sample types, ratios, packages, files,
//! labels.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::common;
use crate::common::{Prof, needs, temp_dir, views};
use profile::{
    Builder, Column, Function, FunctionId, Label, LabelSetId, LabelValue, Line, LocationId,
    Profile, StrId, TimeLimits,
};

fn save(profile: &Profile, path: PathBuf) {
    formats::pprof::write(profile, File::create(path).unwrap()).unwrap();
}

fn location(b: &mut Builder, name: &str, file: &str) -> LocationId {
    let id = b.location(None, b.profile.locations.len() as u64 + 1);
    let [name, filename] = [name, file].map(|text| b.profile.strings.intern(text));
    let function = FunctionId(b.profile.functions.len() as u32);
    b.profile.functions.push(Function { name, filename, ..Function::default() });
    b.profile.set_lines(id, &[Line { function, line: 3, column: 0 }]);
    id
}

const LANGUAGES: [(&str, &str, i64); 9] = [
    ("github.com/a/b.(*T).Run", "/src/b.go", 100),
    ("github.com/a/b.run", "/src/b.go", 40),
    ("serde_json::de::parse", "/src/de.rs", 90),
    ("std::vector<int>::push_back(int const&)", "/src/vector.cc", 80),
    ("void app::run<int>(int)", "/src/app.cc", 70),
    ("java.util.HashMap.get", "HashMap.java", 60),
    ("loads", "/usr/lib/python3.11/json/__init__.py", 50),
    ("decode", "/usr/lib/python3.11/json/decoder.py", 5),
    ("memcpy", "/src/memcpy.c", 30),
];

/// Functions of several languages: one sample each, with labels.
fn languages(dir: &Path) {
    let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
    for (number, (name, file, value)) in LANGUAGES.into_iter().enumerate() {
        let leaf = location(&mut b, name, file);
        let strings = &mut b.profile.strings;
        let mut text = |key: &str, value: &str| Label {
            key: strings.intern(key),
            value: LabelValue::Str(strings.intern(value)),
        };
        let side = if number % 2 == 0 { "even" } else { "odd" };
        let mut labels = vec![
            text("process", "app"),
            text("thread", side),
            text("container", side),
            text("cgroup", "/a"),
            text("request", side),
        ];
        let key = b.profile.strings.intern("tid");
        let value_of = LabelValue::Num { value: number as i64 % 2, unit: StrId::EMPTY };
        labels.push(Label { key, value: value_of });
        labels.sort_unstable();
        let labels = b.profile.labels.intern(&labels);
        b.add_stack(&[leaf], None, labels, 1, &[(Column(1), value)]);
    }
    save(&b.finish(None), dir.join("profile.pb.gz"));
}

fn report(dir: &Path, args: &str) -> Value {
    let out = Prof::new(dir, "report --json").args(args).run().ok();
    serde_json::from_slice(&out.stdout).unwrap()
}

/// A member of each row, with the row's total.
fn rows(report: &Value, member: &str) -> Vec<(String, i64)> {
    let text = |row: &Value| match &row[member] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let rows = report["rows"].as_array().unwrap();
    rows.iter().map(|row| (text(row), row["total"].as_i64().unwrap())).collect()
}

fn named(expected: &[(&str, i64)]) -> Vec<(String, i64)> {
    expected.iter().map(|&(name, value)| (name.to_owned(), value)).collect()
}

#[test]
fn packages_are_rows_and_functions_without_one_stay() {
    let dir = temp_dir();
    languages(dir.path());
    let expected = named(&[
        ("github.com/a/b", 140),
        ("serde_json", 90),
        ("std", 80),
        ("app", 70),
        ("java.util", 60),
        ("json", 55),
        ("memcpy", 30),
    ]);
    for option in ["--granularity packages", "--sort package", "--sort crate"] {
        assert_eq!(rows(&report(dir.path(), option), "function"), expected, "{option}");
    }
    let text = Prof::new(&dir, "report --sort package -n 1").run().ok().text();
    assert!(text.contains("total%  package\n"), "{text}");
    // The other views have the same boxes and rows.
    let folded = Prof::new(&dir, "flame --folded --granularity packages").run().ok().text();
    assert!(folded.contains("github.com/a/b 140\n") && folded.contains("json 55\n"), "{folded}");
    let diff = "diff profile.pb.gz profile.pb.gz --json --sort package";
    let diff: Value = serde_json::from_slice(&Prof::new(&dir, diff).run().ok().stdout).unwrap();
    assert_eq!(diff["rows"].as_array().unwrap().len(), expected.len(), "{diff}");
    // Filters see the functions.
    let focus = report(dir.path(), "--sort package --focus T..Run");
    assert_eq!(rows(&focus, "function"), named(&[("github.com/a/b", 100)]));
}

#[test]
fn files_and_labels_are_rows() {
    let dir = temp_dir();
    languages(dir.path());
    let files = rows(&report(dir.path(), "--sort file"), "file");
    assert_eq!(files.len(), 8, "{files:?}");
    assert_eq!(files[0], ("/src/b.go".to_owned(), 140));
    assert_eq!(
        report(dir.path(), "--granularity files")["rows"],
        report(dir.path(), "--sort file")["rows"]
    );
    let halves = [("even", 340), ("odd", 185)];
    for key in ["thread", "container", "request", "label:thread"] {
        let report = report(dir.path(), &format!("--sort {key}"));
        let of_label = |row: &Value| {
            row["labels"][key.trim_start_matches("label:")].as_str().map(str::to_owned)
        };
        let labels: Vec<_> = report["rows"].as_array().unwrap().iter().map(of_label).collect();
        assert_eq!(labels, halves.map(|(name, _)| Some(name.to_owned())), "{key}");
        let totals: Vec<i64> = rows(&report, "function").into_iter().map(|row| row.1).collect();
        assert_eq!(totals, halves.map(|half| half.1), "{key}");
    }
    for (key, count) in
        [("process", 1), ("comm", 1), ("cgroup", 1), ("tid", 2), ("binary", 1), ("symbol", 9)]
    {
        let report = report(dir.path(), &format!("--sort {key}"));
        assert_eq!(report["rows"].as_array().unwrap().len(), count, "{key}");
    }
    let both = report(dir.path(), "--sort package,thread");
    assert_eq!(both["rows"].as_array().unwrap().len(), 9, "{both}");
}

/// A heap profile: `freed` has allocations, but nothing in use.
fn heap(dir: &Path) {
    let types = ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"];
    let units = ["count", "bytes", "count", "bytes"];
    let types: Vec<_> = types.into_iter().zip(units).collect();
    let mut b = Builder::new(&types);
    let [main, kept, freed] = ["main", "kept", "freed"].map(|name| location(&mut b, name, "app.c"));
    for (leaf, values) in [(kept, [10, 10_240, 4, 4096]), (freed, [50, 2048, 0, 0])] {
        let values = [0, 1, 2, 3].map(|at| (Column(at), values[at]));
        b.add_stack(&[main, leaf], None, LabelSetId::EMPTY, 0, &values);
    }
    save(&b.finish(None), dir.join("profile.pb.gz"));
}

#[test]
fn several_types_are_columns() {
    let dir = temp_dir();
    heap(dir.path());
    let text =
        Prof::new(&dir, "report --type inuse_space,alloc_space --sort symbol").run().ok().text();
    let expected = "
inuse_space: self    self%     total   total%  alloc_space: self   self%      total   total%  function
         4.00 KiB  100.00%  4.00 KiB  100.00%          10.00 KiB  83.33%  10.00 KiB   83.33%  kept
              0 B    0.00%  4.00 KiB  100.00%                0 B   0.00%  12.00 KiB  100.00%  main
              0 B    0.00%       0 B    0.00%           2.00 KiB  16.67%   2.00 KiB   16.67%  freed
";
    assert!(text.ends_with(expected), "{text}");
    let columns = "--columns alloc_space:self,self%,alloc_space/alloc_objects -n 1";
    let text = Prof::new(&dir, "report --sort symbol").args(columns).run().ok().text();
    let expected = "
alloc_space: self  inuse_space: self%  alloc_space/alloc_objects  function
        10.00 KiB             100.00%                    1024.00  kept
";
    assert!(text.ends_with(expected), "{text}");
    let perf = Prof::new(&dir, "report --sort symbol --fields overhead,overhead_children").run();
    assert!(perf.ok().text().contains("\n  self%   total%  function\n"));
}

#[test]
fn json_has_all_types_and_ratios() {
    let dir = temp_dir();
    heap(dir.path());
    let args = "--type inuse_space,alloc_space --ratio alloc_space/alloc_objects --ratio \
                inuse_space/inuse_objects";
    let all = report(dir.path(), args);
    let names = json!(["alloc_space/alloc_objects", "inuse_space/inuse_objects"]);
    assert_eq!((&all["ratios"], &all["ratio"]), (&names, &names[0]));
    let space =
        |kind, total: i64| json!({"kind": kind, "unit": "bytes", "total": total, "kept": total});
    let types = json!([space("inuse_space", 4096), space("alloc_space", 12_288)]);
    assert_eq!(all["column_types"], types);
    let freed = all["rows"].as_array().unwrap().iter().find(|r| r["function"] == "freed").unwrap();
    assert_eq!(freed["columns"], json!([{"self": 0, "total": 0}, {"self": 2048, "total": 2048}]));
    assert_eq!(freed["ratios"][0]["self"], 40.96);
    assert_eq!(freed["ratios"][1], json!({"self": null, "total": null}));
    assert_eq!(freed["self_ratio"], 40.96);
    // Each value is that of the table of its type alone.
    for (at, kind) in ["inuse_space", "alloc_space"].into_iter().enumerate() {
        for row in report(dir.path(), &format!("--type {kind}"))["rows"].as_array().unwrap() {
            let mut both = all["rows"].as_array().unwrap().iter();
            let same = both.find(|other| other["function"] == row["function"]).unwrap();
            let values = json!({"self": row["self"], "total": row["total"]});
            assert_eq!(same["columns"][at], values, "{kind}");
        }
    }
}

#[test]
fn several_types_over_time_are_lines() {
    let dir = temp_dir();
    let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
    b.keep_times(TimeLimits { start: 0, max_samples: 9 });
    let main = b.named_location("main");
    for second in [0, 1, 1] {
        b.set_time(Some(second * 1_000_000_000));
        b.add(&[main], LabelSetId::EMPTY, 1, &[(Column(1), 500_000_000)]);
    }
    b.profile.duration_nanos = 2_000_000_000;
    save(&b.finish(None), dir.path().join("profile.pb.gz"));
    let text = Prof::new(&dir, "report --over 1s --type cpu,samples").run().ok().text();
    let expected = "
  self        0s      1s  type     function
1.50 s  500.0 ms  1.00 s  cpu      [all]
     3         1       2  samples  [all]
1.50 s  500.0 ms  1.00 s  cpu      main
     3         1       2  samples  main
";
    assert!(text.ends_with(expected), "{text}");
    let json = report(dir.path(), "--over 1s --type cpu,samples");
    assert_eq!(json["column_types"][1]["sums"], json!([1, 2]));
    assert_eq!(json["rows"][0]["columns"][1]["self_over"], json!([1, 2]));
    assert_eq!(json["rows"][0]["columns"][0]["total_over"], json!([500_000_000, 1_000_000_000]));
}

/// The values of each type are those that pprof prints for it.
#[test]
fn columns_are_those_of_go_tool_pprof() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    views::go_profiles(&dir);
    for (file, kinds) in [
        ("cpu.pb.gz", "samples,cpu"),
        ("heap.pb.gz", "inuse_space,alloc_space,alloc_objects,inuse_objects"),
    ] {
        let all = report(dir.path(), &format!("{file} --granularity functions --type {kinds}"));
        for (at, kind) in kinds.split(',').enumerate() {
            let unit = all["column_types"][at]["unit"].as_str().unwrap();
            let mut command = Command::new("go");
            let options = ["-top", "-symbolize=none", "-nodecount=0", "-nodefraction=0"];
            command.args(["tool", "pprof"]).args(options).stdin(Stdio::null());
            command.arg(format!("-unit={unit}")).arg(format!("-sample_index={kind}"));
            command.arg(file).current_dir(&dir);
            let text = common::run::run(command).ok().text();
            let table = text.lines().skip_while(|l| !l.trim_start().starts_with("flat ")).skip(1);
            let mut found = 0;
            for line in table {
                let words: Vec<&str> = line.split_whitespace().collect();
                let value = |word: &str| {
                    word.trim_end_matches(|c: char| c.is_alphabetic()).parse::<i64>().unwrap()
                };
                let values = json!({"self": value(words[0]), "total": value(words[3])});
                let name = words[5..].join(" ");
                let name = name.trim_end_matches(" (inline)").trim_end_matches(" (partial-inline)");
                let mut rows = all["rows"].as_array().unwrap().iter();
                let row = rows.find(|row| row["function"] == name);
                let row = row.unwrap_or_else(|| panic!("no {name} in {file}"));
                assert_eq!(row["columns"][at], values, "{name} {kind}");
                found += 1;
            }
            assert!(found > 3, "{text}");
        }
    }
}

#[test]
fn wrong_columns_get_one_line() {
    let dir = temp_dir();
    heap(dir.path());
    for (args, words) in [
        ("--columns selfish", ["selfish", "TYPE:self"]),
        ("--columns alloc_space/nothing", ["alloc_space/nothing", "inuse_space"]),
        ("--type alloc_space,nothing", ["alloc_space,nothing", "inuse_space"]),
        ("-g --type alloc_space,inuse_space", ["--type", "table"]),
        ("--coverage --type alloc_space,inuse_space", ["--type", "table"]),
        ("--normalize", ["--normalize", "--diff"]),
    ] {
        Prof::new(&dir, "report").args(args).run().refused(2, &words);
    }
    Prof::new(&dir, "report -g --columns self").run().exits(2);
    Prof::new(&dir, "flame --folded --type alloc_space,inuse_space").run().exits(2);
}

/// Names of 100 KB with control characters, types of one name, recursion, negative values.
#[test]
fn hostile_profiles_have_columns_and_packages() {
    let dir = temp_dir();
    let mut b = Builder::new(&[("x", "count"), ("x", "count"), ("\x1b[31m,y/z", "")]);
    let long = format!("\x1b[31m{}::<", "n\u{202e}".repeat(25_000));
    let again = location(&mut b, &long, "a.rs");
    let other = location(&mut b, &"a::".repeat(30_000), "a.cc");
    for (stack, value) in [(vec![again; 10_000], -5), (vec![other], 7), (vec![], 3)] {
        let values = [0, 1, 2].map(|at| (Column(at), value + at as i64));
        b.add_stack(&stack, None, LabelSetId::EMPTY, 0, &values);
    }
    save(&b.finish(None), dir.path().join("hostile.pb.gz"));
    views::empty(&dir);
    for file in ["hostile.pb.gz", "empty.pb.gz"] {
        for options in ["--sort package", "--granularity packages -g", "--sort file,package --json"]
        {
            let out = Prof::new(&dir, "report").arg(file).args(options).run().ok();
            assert!(!out.stdout.contains(&0x1b), "{options}");
        }
    }
    for options in
        ["--type 0,1,2", "--type 2,0 --columns total,x/x --json", "--columns 1:self,2:total"]
    {
        let out = Prof::new(&dir, "report hostile.pb.gz").args(options).run().ok();
        assert!(!out.stdout.contains(&0x1b), "{options}");
    }
}
