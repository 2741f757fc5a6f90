//! Tables compared with `go tool pprof`, to the digit: on profiles with the stacks and labels of
//! pprof's own tests, on profiles of Go's runtime, and with each option that both have.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::run::run;
use crate::common::{Prof, needs, temp_dir, views};
use formats::pprof;
use profile::{
    Builder, Column, Function, FunctionId, Label, LabelSetId, LabelValue, Line, LocationId,
    Mapping, StrId,
};
use view::testing::functions;

/// Address, and the functions there: number in the name, and line; the innermost first.
const LOCATIONS: [(u64, &[(u32, i64)]); 5] = [
    (0x1000, &[(1000, 1)]),
    (0x2000, &[(2001, 9), (2000, 4)]),
    (0x3000, &[(3002, 2), (3001, 5), (3000, 6)]),
    (0x3001, &[(3001, 8), (3000, 9)]),
    (0x3002, &[(3002, 5), (3000, 9)]),
];

/// The stacks of all these profiles, leaf first, as indices of `LOCATIONS`.
const STACKS: [&[usize]; 4] = [&[0, 1, 2], &[0, 3], &[1, 4], &[2]];

/// A profile of pprof's tests.
struct Golden {
    name: &'static str,
    types: &'static [(&'static str, &'static str)],
    /// Values of each stack.
    values: [&'static [i64]; 4],
    /// Labels of each stack.
    labels: [&'static [(&'static str, &'static str)]; 4],
    /// Numeric labels of each stack, several of one key.
    numbers: [&'static [(&'static str, i64)]; 4],
    /// Unit of the default type, without any scaling.
    unit: &'static str,
}

const GOLDEN: [Golden; 3] = [
    Golden {
        name: "cpu",
        types: &[("samples", "count"), ("cpu", "milliseconds")],
        values: [&[1000, 1000], &[100, 100], &[10, 10], &[10, 10]],
        labels: [
            &[("key1", "tag1"), ("key2", "tag1")],
            &[("key1", "tag2"), ("key3", "tag2")],
            &[("key1", "tag3"), ("key2", "tag2")],
            &[("key1", "tag4"), ("key2", "tag1")],
        ],
        numbers: [&[]; 4],
        unit: "milliseconds",
    },
    Golden {
        name: "heap",
        types: &[("inuse_objects", "count"), ("inuse_space", "bytes")],
        values: [&[10, 1_024_000], &[20, 4_096_000], &[40, 65_536_000], &[80, 32_768_000]],
        labels: [&[("key1", "tag")], &[], &[("key1", "tag")], &[]],
        numbers: [
            &[("bytes", 2), ("bytes", 64), ("bytes", 102_400)],
            &[("bytes", 204_800)],
            &[("bytes", 4), ("bytes", 1_638_400)],
            &[("bytes", 409_600), ("request", 409_590)],
        ],
        unit: "bytes",
    },
    Golden {
        name: "contention",
        types: &[("contentions", "count"), ("delay", "nanoseconds")],
        values: [&[10, 10_240_000], &[20, 40_960_000], &[40, 65_536_000], &[80, 32_768_000]],
        labels: [&[]; 4],
        numbers: [&[]; 4],
        unit: "nanoseconds",
    },
];

fn locations(b: &mut Builder) -> Vec<LocationId> {
    let file = b.profile.strings.intern("/path/to/testbinary");
    let mapping = Mapping { start: 0x1000, limit: 0x4000, file, ..Mapping::default() };
    let mapping = b.add_mapping(mapping);
    let mut numbers: Vec<u32> = Vec::new();
    let mut all = Vec::new();
    for (address, functions) in LOCATIONS {
        let id = b.location(Some(mapping), address);
        let mut lines = Vec::new();
        for &(number, line) in functions {
            let known = numbers.iter().position(|&n| n == number);
            let index = known.unwrap_or_else(|| {
                let file = format!("testdata/file{}000.src", number / 1000);
                let [name, filename] =
                    [format!("line{number}"), file].map(|text| b.profile.strings.intern(&text));
                let function = Function { name, system_name: name, filename, start_line: 0 };
                b.profile.functions.push(function);
                numbers.push(number);
                numbers.len() - 1
            });
            lines.push(Line { function: FunctionId(index as u32), line, column: 0 });
        }
        b.profile.set_lines(id, &lines);
        all.push(id);
    }
    all
}

fn label_set(b: &mut Builder, golden: &Golden, stack: usize) -> LabelSetId {
    let strings = &mut b.profile.strings;
    let mut labels = Vec::new();
    for &(key, value) in golden.labels[stack] {
        let value = LabelValue::Str(strings.intern(value));
        labels.push(Label { key: strings.intern(key), value });
    }
    for &(key, value) in golden.numbers[stack] {
        let value = LabelValue::Num { value, unit: StrId::EMPTY };
        labels.push(Label { key: strings.intern(key), value });
    }
    labels.sort_unstable();
    b.profile.labels.intern(&labels)
}

fn built(dir: &Path, golden: &Golden) -> PathBuf {
    let mut b = Builder::new(golden.types);
    let locations = locations(&mut b);
    for (number, stack) in STACKS.into_iter().enumerate() {
        let labels = label_set(&mut b, golden, number);
        let values = golden.values[number].iter().enumerate();
        let values: Vec<_> = values.map(|(at, &value)| (Column(at), value)).collect();
        let root_first: Vec<_> = stack.iter().rev().map(|&at| locations[at]).collect();
        b.add_stack(&root_first, None, labels, 0, &values);
    }
    let mut profile = b.finish(None);
    profile.period = 1;
    profile.period_type = profile.sample_types[0];
    profile.duration_nanos = 10_000_000_000;
    let path = dir.join(format!("{}.pb.gz", golden.name));
    pprof::write(&profile, File::create(&path).unwrap()).unwrap();
    path
}

fn go(arguments: &[String], file: &Path) -> String {
    let mut command = Command::new("go");
    command.args(["tool", "pprof", "-symbolize=none"]).args(arguments).arg(file);
    command.stdin(Stdio::null());
    run(command).ok().text()
}

/// Self value, total and name of a row.
type Row = (i64, i64, String);

fn number(word: &str) -> i64 {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim_end_matches(".0");
    digits.parse().unwrap_or_else(|_| panic!("{word}"))
}

/// The rows of a table of pprof, without those of no value.
fn their_rows(file: &Path, unit: &str, options: &[String]) -> Vec<Row> {
    let mut arguments = vec!["-top".to_owned(), format!("-unit={unit}")];
    arguments.extend_from_slice(options);
    let text = go(&arguments, file);
    let table = text.lines().skip_while(|line| !line.trim_start().starts_with("flat "));
    let rows = table.skip(1).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = words[5..].join(" ");
        let name = name.trim_end_matches("(inline)").trim_end_matches("(partial-inline)");
        // A frame without a name.
        let name = name.trim().trim_start_matches("<unknown>");
        (number(words[0]), number(words[3]), name.to_owned())
    });
    rows.filter(|row| (row.0, row.1) != (0, 0)).collect()
}

/// The name of a row as pprof prints it.
fn name_of(row: &Value, granularity: &str) -> String {
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let file = match row["line"].as_i64() {
        Some(line) => format!("{}:{line}", text("file")),
        None => text("file"),
    };
    match granularity {
        "functions" => label_frame(&text("function"), ""),
        "files" => file,
        // A label has no address.
        "addresses" if row["binary"].is_null() => label_frame(&text("function"), &file),
        "addresses" => {
            let address = u64::from_str_radix(&text("address")[2..], 16).unwrap();
            // pprof prints addresses of the process.
            format!("{:016x} {} {file}", address + 0x1000, text("function"))
        }
        _ => label_frame(&text("function"), &file),
    }
}

/// The frame of a missing label has no name in pprof.
fn label_frame(name: &str, file: &str) -> String {
    let name = if name.starts_with("[no ") { "" } else { name };
    format!("{name} {file}").trim().to_owned()
}

fn our_rows(dir: &Path, file: &Path, granularity: &str, options: &[String]) -> Vec<Row> {
    let mut prof = Prof::new(dir, "report --json --granularity").arg(granularity).arg(file);
    for option in options {
        prof = prof.arg(option);
    }
    let json: Value = serde_json::from_slice(&prof.run().ok().stdout).unwrap();
    let value = |row: &Value, key: &str| row[key].as_i64().unwrap();
    let rows = json["rows"].as_array().unwrap().iter();
    let rows = rows.map(|row| (value(row, "self"), value(row, "total"), name_of(row, granularity)));
    rows.filter(|row| (row.0, row.1) != (0, 0)).collect()
}

/// An option of pprof as that of prof.
fn own(option: &str) -> String {
    match option.split_once('=') {
        _ if option == "cum" => "--sort=total".to_owned(),
        Some(("nodefraction", fraction)) => {
            format!("--percent-limit={}", fraction.parse::<f64>().unwrap() * 100.0)
        }
        Some((name @ ("show_from" | "prune_from"), value)) => {
            format!("--{}={value}", name.replace('_', "-"))
        }
        _ => format!("--{option}"),
    }
}

/// Compares a table: all rows, their order by value, and the largest of them.
fn check(dir: &Path, file: &Path, unit: &str, granularity: &str, options: &str) {
    let words = || options.split_whitespace();
    let ours: Vec<String> = words().map(own).collect();
    let mut theirs: Vec<String> = words().map(|word| format!("-{word}")).collect();
    theirs.push(format!("-{granularity}"));
    if !options.contains("nodefraction") {
        theirs.push("-nodefraction=0".to_owned());
    }
    if !options.contains("nodecount") {
        theirs.push("-nodecount=0".to_owned());
    }
    let ours = our_rows(dir, file, granularity, &ours);
    let theirs = their_rows(file, unit, &theirs);
    let by_total = words().any(|word| word == "cum");
    let keys = |rows: &[Row]| {
        let key = |row: &Row| if by_total { row.1 } else { row.0 };
        rows.iter().map(key).collect::<Vec<_>>()
    };
    let context = format!("{} {granularity} {options}", file.display());
    assert_eq!(keys(&ours), keys(&theirs), "{context}: {ours:?}");
    if options.contains("nodecount") {
        return;
    }
    let sorted = |mut rows: Vec<Row>| {
        rows.sort();
        rows
    };
    assert_eq!(sorted(ours), sorted(theirs), "{context}");
}

const PARTS: [&str; 5] = ["functions", "filefunctions", "files", "lines", "addresses"];

/// Those of pprof's tests, and others.
const OPTIONS: [&str; 32] = [
    "",
    "cum",
    "noinlines",
    "focus=[12]00",
    "focus=[12]00 hide=line[X3]0 cum",
    "hide=line[X3]0 cum",
    "show=[12]00 cum",
    "show_from=[2]00 cum",
    "ignore=[X3]002 focus=[X1]000",
    "ignore=[X3]002",
    "hide=mangled[X3]0",
    "prune_from=line3001",
    "prune_from=line2000 cum",
    "tagfocus=tag1,tag2",
    "tagfocus=key1=tag1,tag4",
    "tagignore=tag2",
    "tagignore=key1=tag",
    "tagfocus=100kb:",
    "tagfocus=:64b",
    "tagfocus=bytes=4b",
    "tagignore=request=400kb:410kb",
    "tagshow=key2 tagfocus=tag1",
    "taghide=[X3]00 focus=[12]00",
    "tagroot=key1",
    "tagleaf=key1,key2 noinlines",
    "tagroot=bytes cum",
    "tagroot=request tagleaf=key2 focus=tag",
    "nodecount=2",
    "nodecount=3 cum",
    "nodefraction=0.25",
    "nodefraction=0.02 cum hide=line[X3]0",
    "sample_index=0 cum",
];

#[test]
fn tables_of_pprofs_own_tests_are_equal() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    for golden in &GOLDEN {
        let file = built(dir.path(), golden);
        for (number, options) in OPTIONS.into_iter().enumerate() {
            let unit = if options.contains("sample_index=0") { "count" } else { golden.unit };
            // Each option with two granularities, and each granularity with all kinds of options.
            for at in [number, number + 2] {
                check(dir.path(), &file, unit, PARTS[at % PARTS.len()], options);
            }
        }
    }
}

/// A profile in which files have several names, by way of other directories.
fn with_many_names_of_files(dir: &Path) -> PathBuf {
    let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
    let files = [
        "./posix/../sysdeps/unix/syscall-template.S",
        "./misc/../sysdeps/unix/syscall-template.S",
        "sysdeps/unix/syscall-template.S",
        "/build//src/./a.c",
        "/build/src/a.c",
        "../x/../y.c",
        "../y.c",
        "/proc/self/cwd/base/y.c",
        "/proc/self/cwd/./base/y.c",
        "base/y.c/",
    ];
    for number in 0..files.len() {
        let stack = [number, (number + 1) % files.len()].map(|at| {
            let name = format!("f{}", at % 3);
            functions(&mut b, None, 0x1000 + at as u64, &[(&name, files[at], 7)])
        });
        b.add(&stack, LabelSetId::EMPTY, 1, &[(Column(1), 1 << number)]);
    }
    let mut profile = b.finish(None);
    // pprof has a row for each of them.
    profile.functions.iter_mut().for_each(|function| function.start_line = 0);
    let path = dir.join("names.pb.gz");
    pprof::write(&profile, File::create(&path).unwrap()).unwrap();
    path
}

#[test]
fn names_of_files_are_those_of_pprof() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    let file = with_many_names_of_files(dir.path());
    for granularity in ["files", "filefunctions", "lines"] {
        // Filters match the names in the profile.
        for options in ["", "cum", "focus=posix", "focus=^sysdeps", "hide=cwd"] {
            check(dir.path(), &file, "nanoseconds", granularity, options);
        }
    }
    let names: Vec<String> =
        our_rows(dir.path(), &file, "files", &[]).into_iter().map(|row| row.2).collect();
    let expected = ["base/y.c", "../y.c", "/build/src/a.c", "sysdeps/unix/syscall-template.S"];
    assert_eq!(names, expected);
}

/// Known answers, which pprof's tests have too, so that they do not depend on its version.
#[test]
fn tables_of_pprofs_own_tests_have_known_answers() {
    let dir = temp_dir();
    let cpu = built(dir.path(), &GOLDEN[0]);
    let row = |own, total, name: &str| (own, total, name.to_owned());
    for options in ["hide=line[X3]0", "focus=[12]00 hide=line[X3]0", "show=[12]00"] {
        let options: Vec<String> = options.split(' ').chain(["cum"]).map(own).collect();
        let expected = [
            row(1100, 1100, "line1000 testdata/file1000.src:1"),
            row(10, 1010, "line2001 testdata/file2000.src:9"),
            row(0, 1010, "line2000 testdata/file2000.src:4"),
        ];
        assert_eq!(our_rows(dir.path(), &cpu, "lines", &options), expected, "{options:?}");
    }
    let contention = built(dir.path(), &GOLDEN[2]);
    let expected = [
        row(65_536_000, 75_776_000, "testdata/file2000.src"),
        row(51_200_000, 51_200_000, "testdata/file1000.src"),
        row(32_768_000, 149_504_000, "testdata/file3000.src"),
    ];
    assert_eq!(our_rows(dir.path(), &contention, "files", &[]), expected);
}

#[test]
fn tables_of_profiles_of_go_are_equal() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    views::go_profiles(&dir);
    let cases = [
        ("", "functions"),
        ("cum noinlines", "functions"),
        ("focus=recurse hide=runtime", "lines"),
        ("ignore=runtime.mallocgc cum", "filefunctions"),
        ("show=main\\.", "functions"),
        ("show_from=main\\.main$ cum", "lines"),
        ("prune_from=grow$", "functions"),
        ("nodecount=10", "functions"),
        ("nodecount=7 cum noinlines", "lines"),
    ];
    for (name, kinds) in [
        ("cpu.pb.gz", [("0", "count"), ("1", "nanoseconds")]),
        ("heap.pb.gz", [("alloc_space", "bytes"), ("inuse_objects", "count")]),
    ] {
        let file = dir.path().join(name);
        for (options, granularity) in cases {
            for (index, unit) in kinds {
                let options = format!("{options} sample_index={index}");
                check(dir.path(), &file, unit, granularity, &options);
            }
        }
    }
}

/// The nodes of a call graph as the rows of a table, and the number of its edges.
fn graph_rows(dir: &Path, file: &Path, granularity: &str) -> (Vec<Row>, usize) {
    let all = "graph --json -n 0 --nodefraction 0 --edgefraction 0 --granularity";
    let json = Prof::new(dir, all).arg(granularity).arg(file).run().ok().stdout;
    let json: Value = serde_json::from_slice(&json).unwrap();
    let value = |row: &Value, key: &str| row[key].as_i64().unwrap();
    let nodes = json["nodes"].as_array().unwrap().iter();
    let nodes =
        nodes.map(|row| (value(row, "self"), value(row, "total"), name_of(row, granularity)));
    let nodes = nodes.filter(|row| (row.0, row.1) != (0, 0)).collect();
    (nodes, json["edges"].as_array().unwrap().len())
}

/// A profile of code without names, called by a function.
fn without_names(dir: &Path) -> PathBuf {
    let mut b = Builder::new(&[("cpu", "nanoseconds")]);
    let file = b.profile.strings.intern("/bin/x");
    let mapping = Mapping { start: 0x1000, limit: 0x4000, file, ..Mapping::default() };
    let mapping = b.add_mapping(mapping);
    let main = functions(&mut b, Some(mapping), 0x1001, &[("main", "a.c", 7)]);
    for at in 1..7 {
        let leaf = b.location(Some(mapping), 0x2000 + 16 * at);
        b.add(&[leaf, main], LabelSetId::EMPTY, 0, &[(Column(0), 1000 * at as i64)]);
    }
    let path = dir.join("without-names.pb.gz");
    pprof::write(&b.finish(None), File::create(&path).unwrap()).unwrap();
    path
}

#[test]
fn a_call_graph_has_the_rows_of_the_table_at_each_granularity() {
    let dir = temp_dir();
    let mut files = vec![without_names(dir.path()), with_many_names_of_files(dir.path())];
    files.extend(GOLDEN.iter().map(|golden| built(dir.path(), golden)));
    for file in files {
        for granularity in PARTS {
            let sorted = |mut rows: Vec<Row>| {
                rows.sort();
                rows
            };
            let (nodes, edges) = graph_rows(dir.path(), &file, granularity);
            let rows = our_rows(dir.path(), &file, granularity, &[]);
            let context = format!("{} {granularity}", file.display());
            assert_eq!(sorted(nodes), sorted(rows), "{context}");
            if needs(&["go"]) {
                let mut theirs = vec!["-dot".to_owned(), format!("-{granularity}")];
                theirs.extend(["count", "fraction"].map(|of| format!("-node{of}=0")));
                theirs.push("-edgefraction=0".to_owned());
                let dot = go(&theirs, &file);
                // Labels are boxes of pprof's, too: `N1 -> N1_0`.
                let is_node =
                    |name: &str| name.strip_prefix('N').is_some_and(|n| n.parse::<u32>().is_ok());
                let is_edge = |line: &&str| {
                    let mut words = line.split(' ');
                    words.next().is_some_and(is_node)
                        && words.next() == Some("->")
                        && words.next().is_some_and(is_node)
                };
                assert_eq!(dot.lines().filter(is_edge).count(), edges, "{context}: {dot}");
            }
        }
    }
}

/// Values by label: `-tags` of pprof.
fn their_tags(file: &Path, unit: &str, options: &[String]) -> BTreeMap<(String, String), i64> {
    let mut arguments = vec!["-tags".to_owned(), format!("-unit={unit}")];
    arguments.extend_from_slice(options);
    let mut tags = BTreeMap::new();
    let mut key = String::new();
    for line in go(&arguments, file).lines() {
        if let Some((name, _)) = line.split_once(": Total ") {
            key = name.trim().to_owned();
        } else if let Some((value, text)) = line.split_once("): ") {
            let value = number(value.split_whitespace().next().unwrap());
            tags.insert((key.clone(), text.trim().to_owned()), value);
        }
    }
    tags
}

#[test]
fn values_of_labels_are_those_of_pprof() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    let golden = &GOLDEN[0];
    let file = built(dir.path(), golden);
    for options in ["", "focus=line2001", "tagfocus=tag1", "tagignore=tag3 ignore=line3002"] {
        let words = || options.split_whitespace();
        let theirs: Vec<String> = words().map(|word| format!("-{word}")).collect();
        let theirs = their_tags(&file, "ms", &theirs);
        assert!(!theirs.is_empty());
        let mut ours = BTreeMap::new();
        for key in ["key1", "key2", "key3"] {
            let mut prof = Prof::new(&dir, "report --json --sort").arg(format!("label:{key}"));
            for option in words().map(own) {
                prof = prof.arg(option);
            }
            let json = prof.arg(&file).run().ok().stdout;
            let json: Value = serde_json::from_slice(&json).unwrap();
            for row in json["rows"].as_array().unwrap() {
                if let Some(value) = row["labels"][key].as_str() {
                    let name = (key.to_owned(), value.to_owned());
                    ours.insert(name, row["total"].as_i64().unwrap());
                }
            }
        }
        assert_eq!(ours, theirs, "{options}");
    }
}
