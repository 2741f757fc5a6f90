//! Sandwiches, direct callers and callees, boxes and call graphs: known answers, and the figures of
//! `go tool pprof`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use regex::Regex;
use serde_json::Value;

use crate::common::views::{self, HALF};
use crate::common::{Prof, needs, temp_dir};
use profile::{Builder, Column, Function, FunctionId, LabelSetId, Line, LocationId, Profile};

fn json(dir: &Path, args: &str, file: &Path) -> Value {
    let out = Prof::new(dir, args).arg(file).run().ok();
    serde_json::from_str(&out.text()).unwrap()
}

/// Output of `go tool pprof` for the CPU time of a file, in nanoseconds.
fn go(args: &str, file: &Path) -> String {
    let mut command = Command::new("go");
    command.args(["tool", "pprof", "-symbolize=none", "-unit=nanoseconds", "-sample_index=cpu"]);
    command.args(args.split_whitespace()).arg(file).stdin(Stdio::null());
    crate::common::run::run(command).ok().text()
}

/// The whole number at the beginning of a value with its unit.
fn number(text: &str) -> i64 {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    text[..end].parse().unwrap_or_else(|_| panic!("{text} is no number"))
}

/// Self value and total of each function.
type Nodes = BTreeMap<String, (i64, i64)>;
/// The calls between functions: value, residual, inlined.
type Edges = BTreeMap<(String, String), (i64, bool, bool)>;

/// The graph in the DOT of `go tool pprof`.
fn go_graph(args: &str, file: &Path) -> (Nodes, Edges) {
    let node =
        Regex::new(r#"^N\d+ \[label="(.*?)" id="node\d+" .* tooltip="(.*) \(([^()]*)\)" color="#)
            .unwrap();
    let own = Regex::new(r"\\n(-?\d+)\w*(?: \([^()]*\))?(?:(?:\\n| )of .*)?$").unwrap();
    let edge = Regex::new(
        r#"^N\d+ -> N\d+ \[label=" (-?\d+)\w*(\\n \(inline\))?".*? tooltip="(.*) (->|\.\.\.) (.*) \([^()]*\)" labeltooltip"#,
    )
    .unwrap();
    let mut nodes = Nodes::new();
    let mut edges = Edges::new();
    for line in go(&format!("-dot {args}"), file).lines() {
        if let Some(found) = node.captures(line) {
            let self_value = number(&own.captures(&found[1]).unwrap()[1]);
            nodes.insert(found[2].to_string(), (self_value, number(&found[3])));
        } else if let Some(found) = edge.captures(line) {
            let value = (number(&found[1]), &found[4] == "...", found.get(2).is_some());
            edges.insert((found[3].to_string(), found[5].to_string()), value);
        }
    }
    (nodes, edges)
}

fn name(object: &Value) -> String {
    object["function"].as_str().unwrap().to_string()
}

fn values(object: &Value) -> (i64, i64) {
    (object["self"].as_i64().unwrap(), object["total"].as_i64().unwrap())
}

fn own_graph(args: &str, file: &Path) -> (Nodes, Edges) {
    let graph = json(file.parent().unwrap(), &format!("graph --json --type cpu {args}"), file);
    let nodes = graph["nodes"].as_array().unwrap();
    let at = |id: &Value| name(&nodes[id.as_u64().unwrap() as usize]);
    let flag = |edge: &Value, member: &str| edge[member].as_bool().unwrap();
    let edge = |edge: &Value| {
        let value =
            (edge["value"].as_i64().unwrap(), flag(edge, "residual"), flag(edge, "inlined"));
        ((at(&edge["caller"]), at(&edge["callee"])), value)
    };
    let edges = graph["edges"].as_array().unwrap().iter().map(edge).collect();
    (nodes.iter().map(|node| (name(node), values(node))).collect(), edges)
}

#[test]
fn the_graph_is_that_of_go_tool_pprof() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    views::go_profiles(&dir);
    let known = views::known(&dir);
    let cpu = dir.path().join("cpu.pb.gz");
    let all = "-nodecount=1000000 -nodefraction=0 -edgefraction=0";
    let cases = [
        (all, "-n 0 --nodefraction 0 --edgefraction 0"),
        ("", ""),
        ("-nodecount=12", "-n 12"),
        ("-nodecount=30 -nodefraction=0", "-n 30 --nodefraction 0"),
        ("-nodefraction=0.1 -edgefraction=0.2", "--nodefraction 0.1 --edgefraction 0.2"),
    ];
    for file in [&cpu, &known] {
        for (theirs, ours) in cases {
            let (nodes, edges) = go_graph(theirs, file);
            let (own_nodes, own_edges) = own_graph(ours, file);
            assert!(nodes.len() > 2, "{theirs}: {nodes:?}");
            assert_eq!(own_nodes, nodes, "{} {ours}", file.display());
            assert_eq!(own_edges, edges, "{} {ours}", file.display());
        }
    }
    let (_, edges) = own_graph("-n 12", &cpu);
    assert!(edges.values().any(|(_, residual, _)| *residual), "{edges:?}");
}

/// A function with its values, its callers and its callees: name, value, inlined.
type Block = (String, (i64, i64), Vec<(String, i64, bool)>, Vec<(String, i64, bool)>);

fn go_peek(regex: &str, file: &Path) -> Vec<Block> {
    let call = Regex::new(r"^ +(\S+) +\S+% \|   (.*?)( \(inline\))?$").unwrap();
    let own = Regex::new(r"^ *(\S+) +\S+% +\S+% +(\S+) +\S+% +\| (.*)$").unwrap();
    let mut blocks = Vec::new();
    let mut above = Vec::new();
    for line in go(&format!("-peek {regex}"), file).lines() {
        if let Some(found) = call.captures(line) {
            let call = (found[2].to_string(), number(&found[1]), found.get(3).is_some());
            above.push(call);
        } else if let Some(found) = own.captures(line) {
            let values = (number(&found[1]), number(&found[2]));
            let callers = std::mem::take(&mut above);
            blocks.push((found[3].to_string(), values, callers, Vec::new()));
        } else if line.starts_with("---")
            && let Some((.., callees)) = blocks.last_mut()
            && callees.is_empty()
        {
            *callees = std::mem::take(&mut above);
        }
    }
    blocks
}

fn own_peek(regex: &str, file: &Path) -> Vec<Block> {
    let args = format!("report --json --type cpu --peek {regex}");
    let report = json(file.parent().unwrap(), &args, file);
    let calls = |list: &Value| {
        let call =
            |c: &Value| (name(c), c["value"].as_i64().unwrap(), c["inlined"].as_bool().unwrap());
        list.as_array().unwrap().iter().map(call).collect()
    };
    let block =
        |row: &Value| (name(row), values(row), calls(&row["callers"]), calls(&row["callees"]));
    report["rows"].as_array().unwrap().iter().map(block).collect()
}

#[test]
fn peek_has_the_figures_of_go_tool_pprof() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    views::go_profiles(&dir);
    for (file, regex) in [
        (views::known(&dir), "."),
        (views::known(&dir), "^foo"),
        (dir.path().join("cpu.pb.gz"), "."),
        (dir.path().join("cpu.pb.gz"), "main"),
    ] {
        let theirs = go_peek(regex, &file);
        assert!(!theirs.is_empty());
        assert_eq!(own_peek(regex, &file), theirs, "{} {regex}", file.display());
    }
}

#[test]
fn peek_is_a_block_for_each_function() {
    let dir = temp_dir();
    let file = views::known(&dir);
    let text = Prof::new(&dir, "report --peek foo2").arg(&file).run().ok().text();
    let shown: Vec<&str> = text.lines().skip_while(|line| !line.contains("calls%")).collect();
    let words: Vec<String> =
        shown.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(words[2], "3.00 s 100.00% main", "{text}");
    assert_eq!(words[3], "500.0 ms 5.56% 3.00 s 33.33% foo2", "{text}");
    assert_eq!(words[4], "2.50 s 83.33% bar (inlined)", "{text}");
    Prof::new(&dir, "report --peek nothing").arg(&file).run().refused(1, &["no function matches"]);
    // Wrong usage, as of all other options that take an expression.
    Prof::new(&dir, "report --peek (").arg(&file).run().refused(2, &["not a regular expression"]);
}

#[test]
fn a_sandwich_has_the_callers_and_callees_of_all_places() {
    let dir = temp_dir();
    let file = views::known(&dir);
    let report = json(dir.path(), "report --json --sandwich bar", &file);
    assert_eq!(report["function_total"], 10 * HALF);
    assert_eq!(report["function_self"], 10 * HALF);
    assert_eq!(report["functions"].as_array().unwrap().len(), 1);
    let nodes = |member: &str| -> Vec<(String, i64)> {
        let nodes = report[member].as_array().unwrap().iter().skip(1);
        nodes.map(|n| (name(n), values(n).1)).collect()
    };
    let mut callers = nodes("callers");
    callers.sort();
    let expected = [("bar", 10), ("foo1", 5), ("foo2", 5), ("main", 5), ("main", 5)];
    assert_eq!(callers, expected.map(|(name, halves)| (name.to_string(), halves * HALF)));
    assert_eq!(nodes("callees"), [("bar".to_string(), 10 * HALF)]);
    let text = Prof::new(&dir, "report --sandwich foo1").arg(&file).run().ok().text();
    for line in [
        "Function: foo1\nTotal: 4.00 s, 44.44%; self: 1.50 s, 16.67%\n",
        "\n    4.00 s   44.44%  foo1  [known]\n    4.00 s   44.44%  │ main  [known]\n",
        "\n    4.00 s   44.44%      1.50 s   16.67%  foo1  [known]\n",
        "\n    2.50 s   27.78%      2.50 s   27.78%  │ bar  [known]\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let refused = Prof::new(&dir, "report --sandwich nothing").arg(&file).run();
    refused.refused(1, &["no function matches"]);
}

#[test]
fn the_total_of_a_sandwich_is_that_of_the_table() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    views::go_profiles(&dir);
    let file = dir.path().join("cpu.pb.gz");
    let table = json(dir.path(), "report --json -n 20 --cum", &file);
    let rows = table["rows"].as_array().unwrap();
    assert!(rows.len() > 5);
    for row in rows {
        let prof = Prof::new(&dir, "report --json --sandwich").arg(name(row)).arg(&file);
        let report: Value = serde_json::from_str(&prof.run().ok().text()).unwrap();
        assert_eq!(report["function_total"], row["total"], "{row}");
        assert_eq!(report["function_self"], row["self"], "{row}");
    }
}

/// Stacks of functions, outermost first, with their values.
fn profile(types: &[(&str, &str)], stacks: &[(&[&str], i64)]) -> Profile {
    let mut b = Builder::new(types);
    let mut known: BTreeMap<String, LocationId> = BTreeMap::new();
    for (stack, value) in stacks {
        let ids: Vec<LocationId> = stack
            .iter()
            .rev()
            .map(|function| {
                if let Some(id) = known.get(*function) {
                    return *id;
                }
                let id = b.location(None, known.len() as u64 + 1);
                let name = b.profile.strings.intern(function);
                let index = FunctionId(b.profile.functions.len() as u32);
                let filename = profile::StrId::EMPTY;
                let function_of = Function { name, system_name: name, filename, start_line: 0 };
                b.profile.functions.push(function_of);
                b.profile.set_lines(id, &[Line { function: index, line: 0, column: 0 }]);
                known.insert((*function).to_string(), id);
                id
            })
            .collect();
        b.add(&ids, LabelSetId::EMPTY, 0, &[(Column(0), *value)]);
    }
    b.finish(None)
}

fn save(profile: &Profile, path: PathBuf) -> PathBuf {
    formats::pprof::write(profile, File::create(&path).unwrap()).unwrap();
    path
}

const SAMPLES: &[(&str, &str)] = &[("samples", "count")];

#[test]
fn boxes_are_left_heavy_and_collapsed_on_request() {
    let dir = temp_dir();
    let stacks: [(&[&str], i64); 2] = [(&["a", "b", "b", "b", "c"], 3), (&["a", "z"], 5)];
    let file = save(&profile(SAMPLES, &stacks), dir.path().join("r.pb.gz"));
    let boxes = |args: &str| -> Vec<String> {
        let boxes = json(dir.path(), &format!("flame --json {args}"), &file);
        assert_eq!(boxes["width"], 8);
        let text = |b: &Value| format!("{} {} {} {}", name(b), b["depth"], b["left"], b["width"]);
        boxes["boxes"].as_array().unwrap().iter().map(text).collect()
    };
    let expected = ["a 0 0 8", "b 1 0 3", "b 2 0 3", "b 3 0 3", "c 4 0 3", "z 1 3 5"];
    assert_eq!(boxes(""), expected);
    let expected = ["a 0 0 8", "z 1 0 5", "b 1 5 3", "c 2 5 3"];
    assert_eq!(boxes("--left-heavy --collapse-recursion"), expected);
    let folded = Prof::new(&dir, "flame --folded --collapse-recursion").arg(&file).run().ok();
    assert_eq!(folded.text(), "a;b;c 3\na;z 5\n");
    let tree = Prof::new(&dir, "report -g --collapse-recursion").arg(&file).run().ok().text();
    assert_eq!(tree.matches(" b\n").count() + tree.matches("─b\n").count(), 1, "{tree}");
    let svg = |args: &str| Prof::new(&dir, args).arg(&file).run().ok().text();
    for option in ["--icicle", "--inverted"] {
        assert_eq!(svg(&format!("flame {option}")), svg("flame"));
    }
    let heavy = svg("flame --left-heavy");
    assert!(heavy.find("<title>z (").unwrap() < heavy.find("<title>b (").unwrap());
}

#[test]
fn a_graph_is_drawn_by_graphviz_if_it_is_there() {
    let dir = temp_dir();
    let file = views::known(&dir);
    let nothing = dir.path().join("nothing");
    let programs = dir.path().join("bin");
    fs::create_dir(&nothing).unwrap();
    fs::create_dir(&programs).unwrap();
    let prof = |path: &Path, args: &str| Prof::new(&dir, args).env("PATH", path).arg(&file).run();
    prof(&nothing, "graph --svg").refused(1, &["apt-get install graphviz"]);
    prof(&nothing, "graph -o g.svg").refused(1, &["apt-get install graphviz"]);
    assert!(!dir.path().join("g.svg").exists());
    let dot = programs.join("dot");
    fs::write(&dot, "#!/bin/sh\necho \"<svg>$*</svg>\"; exec /bin/cat\n").unwrap();
    fs::set_permissions(&dot, fs::Permissions::from_mode(0o755)).unwrap();
    prof(&programs, "graph -o g.svg").ok();
    let drawn = fs::read_to_string(dir.path().join("g.svg")).unwrap();
    let graph = prof(&nothing, "graph").ok().text();
    assert!(drawn.starts_with("<svg>\n<title></title><style>"), "{drawn}");
    assert!(drawn.ends_with(&format!("</script>-Tsvg</svg>\n{graph}")), "{drawn}");
    assert!(graph.starts_with("digraph \"known: cpu, 9.00 s\" {\n"), "{graph}");
    assert!(graph.contains("label=\"bar\\n5.00 s (55.56%)\""), "{graph}");
}

/// The views of this module, with arguments that fit any profile.
const VIEWS: [&str; 11] = [
    "report --sandwich .",
    "report --sandwich . --json",
    "report --sandwich . --collapse-recursion",
    "report --peek .",
    "report --peek . --json",
    "flame --json --min-width 0",
    "flame --left-heavy --collapse-recursion",
    "graph",
    "graph -n 0 --nodefraction 0 --edgefraction 0",
    "graph --json",
    "report -g callee --collapse-recursion",
];

#[test]
fn odd_profiles_open_in_each_view() {
    let dir = temp_dir();
    let long = "n".repeat(100_000);
    let deep = vec!["f"; 10_000];
    let names: Vec<String> = (0..10_000).map(|i| format!("f{i}")).collect();
    let distinct: Vec<&str> = names.iter().map(String::as_str).collect();
    let control = "a\x1b[31m\"\\]>\u{202e}<b>&\n;";
    let mut two = profile(&[("cpu", "count"), ("cpu", "count")], &[(&["main"], 3)]);
    two.values.fill(3);
    let cases: [(&str, Profile); 6] = [
        ("long", profile(SAMPLES, &[(&["main", &long], 3)])),
        ("deep", profile(SAMPLES, &[(&deep, 3), (&["f", "g", "f"], 1)])),
        ("distinct", profile(SAMPLES, &[(&distinct, 1), (&distinct[5_000..], 2)])),
        ("control", profile(SAMPLES, &[(&["main", control], 3)])),
        ("negative", profile(SAMPLES, &[(&["a", "b"], -3), (&["a", "c"], 5), (&["d"], i64::MIN)])),
        ("two", two),
    ];
    for (case, profile) in &cases {
        let file = save(profile, dir.path().join("odd.pb.gz"));
        for view in VIEWS {
            let text = Prof::new(&dir, view).arg(&file).run().ok().text();
            assert!(!text.is_empty(), "{case}: {view}");
            let raw = text.contains(['\u{1b}', '\u{202e}']);
            assert!(!raw, "{case}: {view}");
        }
    }
    let empty = views::empty(&dir);
    let bare = save(&Builder::new(SAMPLES).finish(None), dir.path().join("bare.pb.gz"));
    for view in VIEWS {
        for file in [&empty, &bare] {
            let out = Prof::new(&dir, view).arg(file).run();
            assert!([0, 1].contains(&out.code()), "{view}: {}", out.stderr);
            assert!(!out.stderr.contains("panicked"), "{view}: {}", out.stderr);
        }
    }
}
