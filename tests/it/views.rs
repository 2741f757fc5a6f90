//! Views in each of their renderers: sandwiches and differences as boxes, threads by state, and the
//! interactive difference against the printed one.

use serde_json::Value;

use crate::annotate_code::{compiled, record, source_server};
use crate::common::views::{self, HALF};
use crate::common::{Prof, needs, temp_dir, until};
use crate::diff::{AFTER, BEFORE, CPU, save};
use crate::terminal::Terminal;
use profile::{Builder, Column, Label, LabelSetId, LabelValue};

fn json(dir: &std::path::Path, args: &str) -> Value {
    let out = Prof::new(dir, args).run().ok();
    serde_json::from_slice(&out.stdout).unwrap()
}

fn list<'v>(value: &'v Value, name: &str) -> &'v Vec<Value> {
    value[name].as_array().unwrap_or_else(|| panic!("{name} of {value}"))
}

/// The value of an attribute of the box with this name.
fn attribute<'s>(svg: &'s str, name: &str, key: &str) -> &'s str {
    let start = format!("<title>{name} (");
    let after = svg.split_once(&start).unwrap_or_else(|| panic!("no box {name}: {svg}")).1;
    after.split_once(&format!(" {key}=\"")).unwrap().1.split_once('"').unwrap().0
}

#[test]
fn a_sandwich_has_callers_on_one_side_and_callees_on_the_other() {
    let dir = temp_dir();
    views::known(&dir);
    let svg = Prof::new(&dir, "flame known.pb.gz --sandwich foo1").run().ok().text();
    let y = |svg: &str, name: &str| attribute(svg, name, "y").parse::<f64>().unwrap();
    assert!(y(&svg, "bar") > y(&svg, "foo1") && y(&svg, "foo1") > y(&svg, "main"));
    // The samples with foo1: 4 s of 9 s, all of them called by main, 2.5 s in bar.
    for (name, width) in [("main", 8), ("foo1", 8), ("bar", 5)] {
        assert_eq!(attribute(&svg, name, "fg:w"), (width * HALF).to_string(), "{name}");
    }
    assert!(svg.contains("<title>foo1 (cpu 4.00 s, 44.44%, self 1.50 s, known)</title>"), "{svg}");
    assert!(svg.contains(">Sandwich of foo1</text>") && !svg.contains("foo2 ("));
    quick_xml::Reader::from_str(&svg).read_event().expect("well-formed XML");
    let flame = Prof::new(&dir, "flame known.pb.gz --sandwich foo1 --flame").run().ok().text();
    assert!(y(&flame, "bar") < y(&flame, "foo1") && y(&flame, "foo1") < y(&flame, "main"));
    let refused = |args: &str, code: i32, words: &[&str]| {
        Prof::new(&dir, &format!("flame known.pb.gz --sandwich {args}")).run().refused(code, words);
    };
    refused("nothing", 1, &["--sandwich", "nothing"]);
    refused("(", 2, &["--sandwich", "regular expression"]);
    refused("bar --folded", 2, &["--sandwich", "--folded"]);
    refused("bar --colors state", 2, &["--sandwich", "--colors"]);
}

#[test]
fn a_sandwich_has_boxes_in_json() {
    let dir = temp_dir();
    views::known(&dir);
    let found = json(dir.path(), "flame known.pb.gz --sandwich bar --json");
    assert_eq!(found["function_total"], 10 * HALF);
    let side = |name: &str| -> Vec<String> {
        let text = |b: &Value| {
            let [left, width] = ["left", "width"].map(|key| b[key].as_i64().unwrap() / HALF);
            format!("{} {} {left}+{width}", b["function"].as_str().unwrap(), b["depth"])
        };
        list(&found, name).iter().map(text).collect()
    };
    let callers = ["bar 0 0+10", "foo1 1 0+5", "main 2 0+5", "foo2 1 5+5", "main 2 5+5"];
    assert_eq!(side("callers"), callers);
    assert_eq!(side("callees"), ["bar 0 0+10"]);
    assert_eq!((&found["caller_levels"], &found["callee_levels"]), (&3.into(), &1.into()));
    // The totals are those of the trees of prof report.
    let trees = json(dir.path(), "report known.pb.gz --sandwich bar --json");
    assert_eq!(list(&trees, "callers")[0]["total"], found["width"]);
}

#[test]
fn hostile_profiles_have_sandwiches_and_differences() {
    let dir = temp_dir();
    let mut b = Builder::new(CPU);
    let long = b.named_location(&"x".repeat(100_000));
    let red = b.named_location("\x1b[31mred\n<b>");
    let again = b.named_location("again");
    b.add(&[again; 8000], LabelSetId::EMPTY, 1, &[(Column(1), 1 << 40)]);
    b.add(&[long, red, again], LabelSetId::EMPTY, 1, &[(Column(1), 5)]);
    b.add(&[red], LabelSetId::EMPTY, 1, &[(Column(1), -7)]);
    b.add(&[], LabelSetId::EMPTY, 1, &[(Column(1), 3)]);
    let file = std::fs::File::create(dir.path().join("h.pb.gz")).unwrap();
    formats::pprof::write(&b.finish(None), file).unwrap();
    views::known(&dir);
    views::empty(&dir);
    for function in ["again", "red", "x{50}", "."] {
        for options in ["", "--json", "--collapse-recursion", "--left-heavy --flame"] {
            let args = format!("flame h.pb.gz --min-width 0 --sandwich {function} {options}");
            let out = Prof::new(&dir, &args).run().ok().text();
            assert!(!out.contains('\x1b'), "{args}");
        }
    }
    Prof::new(&dir, "flame empty.pb.gz --sandwich .").run().refused(1, &["no samples"]);
    for args in ["h.pb.gz --diff known.pb.gz", "known.pb.gz --diff h.pb.gz"] {
        let args = format!("flame {args} --json --min-width 0");
        let found = json(dir.path(), &args);
        assert!(list(&found, "boxes").len() > 8000, "{args}");
    }
    for file in ["h.pb.gz", "empty.pb.gz", "known.pb.gz"] {
        Prof::new(&dir, &format!("report {file} --states")).run().ok();
        json(dir.path(), &format!("report {file} --states --json"));
    }
}

#[test]
fn a_differential_flame_graph_has_boxes_in_json() {
    let dir = temp_dir();
    save(dir.path(), "a.pb.gz", CPU, BEFORE);
    save(dir.path(), "b.pb.gz", CPU, AFTER);
    let found = json(dir.path(), "flame --diff a.pb.gz b.pb.gz --json");
    let boxes: Vec<String> = list(&found, "boxes")
        .iter()
        .map(|b| {
            let name = b["function"].as_str().unwrap_or("-");
            let value = |key: &str| b[key].as_f64().unwrap() / 1e6;
            let content = b["content"].as_str().unwrap();
            let [left, width] = ["left", "width"].map(value);
            let [before, after] = ["value_before", "value_after"].map(value);
            format!("{content} {name} {} {left}+{width} {before}>{after}", b["depth"])
        })
        .collect();
    let expected = [
        "context main 0 0+2015 1800>2015",
        "context kept 1 0+905 900>905",
        "context new 1 905+250 0>250",
        "context noise 1 1155+410 400>410",
        "context slower 1 1565+450 300>450",
        "disappeared - 0 2015+200 200>0",
        "gone main 1 2015+200 200>0",
        "gone gone 2 2015+200 200>0",
    ];
    assert_eq!(boxes, expected);
    assert_eq!(found["width"], 2_215_000_000i64);
    assert_eq!(found["before"]["files"][0], "a.pb.gz");
    let scaled = json(dir.path(), "flame --diff a.pb.gz b.pb.gz --json --normalize");
    assert_eq!(scaled["scale"], "total");
    assert_eq!(scaled["value_before"], scaled["value_after"]);
}

/// Files `a.pb.gz` and `b.pb.gz`, and a terminal.
fn with_difference(width: u32, height: u32, variables: &[&str]) -> Terminal {
    let terminal = Terminal::start(width, height, variables);
    save(terminal.dir.path(), "a.pb.gz", CPU, BEFORE);
    save(terminal.dir.path(), "b.pb.gz", CPU, AFTER);
    terminal
}

/// The figures of a row and its last column, by row.
fn rows(text: &str) -> Vec<Vec<String>> {
    let space = regex::Regex::new(r"\s{2,}").unwrap();
    let all = text.lines().map(|line| space.split(line.trim()).collect::<Vec<_>>());
    let is_row = |cells: &Vec<&str>| cells.len() >= 6 && cells[0].starts_with(char::is_numeric);
    let kept = all.filter(is_row).map(|cells| {
        // On a terminal, a function's binary is in brackets behind it.
        let last = cells.iter().copied().rfind(|cell| !cell.starts_with('('));
        cells[..5].iter().copied().chain(last).map(str::to_owned).collect()
    });
    kept.collect()
}

#[test]
fn an_interactive_difference_has_the_rows_that_are_printed() {
    if !needs(&["tmux"]) {
        return;
    }
    let terminal = with_difference(110, 20, &[]);
    let dir = terminal.dir.path();
    for options in [
        "",
        "--normalize",
        "--per-second",
        "--absolute",
        "--focus 'slower|gone|kept'",
        "--ignore kept --normalize",
        "--hide main --per-second --sort name",
    ] {
        let plain = options.replace('\'', "");
        let args = format!("diff --stdio --no-children a.pb.gz b.pb.gz {plain}");
        let mut printed = rows(&Prof::new(dir, &args).run().ok().text());
        assert!(printed.len() >= 3, "{args}: {printed:?}");
        if options.contains("--sort name") {
            // On the terminal, rows that changed are not first then.
            printed.sort_by(|a, b| a[5].cmp(&b[5]));
        }
        terminal.run(&format!("clear; prof diff a.pb.gz b.pb.gz {options}"));
        terminal.wait_until(&format!("{options}: {printed:#?}"), |screen| rows(screen) == printed);
        terminal.keys(&["q"]);
        terminal.is_restored();
    }
    terminal.run("clear; prof report b.pb.gz --diff a.pb.gz --normalize");
    let args = "report b.pb.gz --diff a.pb.gz --normalize --stdio --no-children";
    let printed = rows(&Prof::new(dir, args).run().ok().text());
    terminal.wait_until("the rows of prof report", |screen| rows(screen) == printed);
    // A filter that is typed is that of the option.
    terminal.keys(&["&", "Tab"]);
    terminal.output(&["send-keys", "-l", "kept|noise"]);
    terminal.wait_for("ignore=kept|noise");
    terminal.keys(&["Enter"]);
    let args = format!("{args} --ignore kept|noise");
    let printed = rows(&Prof::new(dir, &args).run().ok().text());
    terminal.wait_until("the rows of --ignore", |screen| rows(screen) == printed);
    terminal.keys(&["q"]);
    terminal.is_restored();
}

#[test]
fn an_interactive_difference_is_sorted_by_any_column() {
    if !needs(&["tmux"]) {
        return;
    }
    let terminal = with_difference(110, 20, &[]);
    let mut known = list(&json(terminal.dir.path(), "diff a.pb.gz b.pb.gz --json"), "rows").clone();
    terminal.run("prof diff a.pb.gz b.pb.gz");
    terminal.wait_for("▾change");
    let names = |known: &[Value]| -> Vec<String> {
        known.iter().map(|row| row["function"].as_str().unwrap().to_owned()).collect()
    };
    let shown =
        |screen: &str| rows(screen).into_iter().map(|row| row[5].clone()).collect::<Vec<_>>();
    for values in ["self", "total"] {
        terminal.keys(&["<", "<"]);
        for (column, title, key) in [
            ("before", "▾before", "before"),
            ("after", "▾after", "after"),
            ("ratio", "▾ratio", "ratio"),
            ("p", "▾p ", "adjusted_p"),
            ("name", "▾function", ""),
        ] {
            let sign = if column == "p" { 1.0 } else { -1.0 };
            let value = |row: &Value| row[values][key].as_f64().map_or(f64::INFINITY, |v| sign * v);
            known.sort_by(|a, b| {
                let name = |row: &Value| row["function"].as_str().unwrap().to_owned();
                value(a).total_cmp(&value(b)).then_with(|| name(a).cmp(&name(b)))
            });
            let expected = names(&known);
            let what = format!("{values} by {column}: {expected:?}");
            terminal
                .wait_until(&what, |screen| screen.contains(title) && shown(screen) == expected);
            // From after to ratio, over the change.
            terminal.keys(if column == "after" { &[">", ">"] } else { &[">"] });
        }
        terminal.keys(&["R"]);
        let reversed: Vec<String> = names(&known).into_iter().rev().collect();
        terminal.wait_until("reversed", |screen| shown(screen) == reversed);
        terminal.keys(&["<", "<", "<"]);
        terminal.wait_for("▾change");
        if values == "self" {
            terminal.keys(&["o"]);
            terminal.wait_for("difference, total, functions");
        }
    }
    terminal.keys(&["q"]);
    terminal.is_restored();
}

#[test]
fn a_difference_is_drawn_as_boxes_with_and_without_colours() {
    if !needs(&["tmux"]) {
        return;
    }
    let terminal = with_difference(80, 12, &["NO_COLOR=1"]);
    terminal.run("prof diff a.pb.gz b.pb.gz");
    terminal.wait_for("F flame graph");
    terminal.keys(&["F"]);
    terminal.shows("difference-flame-graph");
    terminal.keys(&["/"]);
    terminal.output(&["send-keys", "-l", "gone"]);
    terminal.keys(&["Enter"]);
    terminal.wait_for("cpu 0 ns, before 200.0 ms, change -200.0 ms: gone");
    terminal.keys(&["Enter"]);
    terminal.shows("difference-flame-graph-zoomed");
    for (name, words) in [
        ("x.svg", "<title>[disappeared] (cpu 0 ns, before 200.0 ms"),
        ("x.json", "\"content\":\"gone\""),
        ("x.txt", "Changed by more than sampling error"),
    ] {
        terminal.keys(&["w"]);
        terminal.wait_for("write to");
        terminal.run(name);
        terminal.wait_for(&format!("wrote {name}"));
        let text = std::fs::read_to_string(terminal.dir.path().join(name)).unwrap();
        assert!(text.contains(words), "{name}: {text}");
    }
    terminal.keys(&["c"]);
    terminal.wait_for("+slower");
    // The flame graph of the file, the functions with a filter, and back.
    terminal.keys(&["F"]);
    terminal.wait_for("b.pb.gz  flame graph");
    terminal.keys(&["[", "D"]);
    terminal.wait_for("difference, self, functions");
    terminal.keys(&["q"]);
    terminal.is_restored();
    // Red for more, blue for less; escape sequences of 256 and of 16 colours.
    for (term, more, less) in
        [("tmux-256color", "48;5;196m", "48;5;75m"), ("screen", "48;5;9m", "48;5;14m")]
    {
        let variables = [&*format!("TERM={term}"), "COLORTERM="];
        let terminal = with_difference(80, 12, &variables);
        terminal.run("prof diff a.pb.gz b.pb.gz");
        terminal.wait_for("F flame graph");
        terminal.keys(&["F"]);
        terminal.wait_for("change +215.0 ms");
        let has = |code: &str| terminal.output(&["capture-pane", "-p", "-e"]).contains(code);
        until(|| has(more) && has(less));
        assert!(!terminal.screen().contains("+slower"), "{}", terminal.screen());
        terminal.keys(&["q"]);
        terminal.is_restored();
    }
}

#[test]
fn a_difference_without_its_unit_is_one_line() {
    if !needs(&["tmux"]) {
        return;
    }
    let terminal = with_difference(100, 12, &[]);
    // The known profile has no length.
    terminal.run("prof diff known.pb.gz a.pb.gz --per-second");
    terminal.wait_for("--per-second: a profile does not contain the length of its recording");
    terminal.keys(&["F"]);
    terminal.wait_for("differential flame graph");
    terminal.wait_for("--per-second: a profile does not contain the length of its recording");
    terminal.keys(&["q"]);
    terminal.is_restored();
}

/// A profile of wall time: threads 7 and 8 of `server` by state.
fn with_states(dir: &std::path::Path) {
    let mut b = Builder::new(&[("wall", "nanoseconds")]);
    let work = b.named_location("work");
    for (tid, name, state, value) in [
        (7, "server", "running", 3),
        (8, "worker", "sleeping", 5),
        (8, "worker", "running", 1),
        (7, "server", "disk", 1),
    ] {
        let strings = &mut b.profile.strings;
        let unit = strings.intern("");
        let mut labels: Vec<Label> = [("process", "server"), ("thread", name), ("state", state)]
            .map(|(key, text)| Label {
                key: strings.intern(key),
                value: LabelValue::Str(strings.intern(text)),
            })
            .into();
        labels.extend([("pid", 7), ("tid", tid)].map(|(key, value)| Label {
            key: strings.intern(key),
            value: LabelValue::Num { value, unit },
        }));
        labels.sort_by_key(|label| label.key);
        let labels = b.profile.labels.intern(&labels);
        b.add(&[work], labels, 0, &[(Column(0), value * 1_000_000_000)]);
    }
    let file = std::fs::File::create(dir.join("wall.pb.gz")).unwrap();
    formats::pprof::write(&b.finish(None), file).unwrap();
}

#[test]
fn threads_by_state_are_printed_and_written() {
    let dir = temp_dir();
    with_states(dir.path());
    let text = Prof::new(&dir, "report wall.pb.gz --states").run().ok().text();
    let cells: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    let has = |row: &str| cells.contains(&row.split_whitespace().collect());
    assert!(text.contains("Showing 2 threads"), "{text}");
    assert!(has("total total% running sleeping disk thread"), "{text}");
    assert!(has("6.00 s 60.00% 10.00% 50.00% . server 7, worker 8"), "{text}");
    assert!(has("4.00 s 40.00% 30.00% . 10.00% server 7, server 7"), "{text}");
    let found = json(dir.path(), "report wall.pb.gz --states --json");
    assert_eq!((&found["row_count"], &found["has_states"]), (&2.into(), &true.into()));
    let row = &list(&found, "rows")[0];
    assert_eq!((&row["tid"], &row["thread"]), (&8.into(), &"worker".into()));
    assert_eq!(row["total"], 6_000_000_000i64);
    let states = serde_json::json!({"running": 1_000_000_000i64, "sleeping": 5_000_000_000i64});
    assert_eq!(row["states"], states);
    let by_name = json(dir.path(), "report wall.pb.gz --states --json --sort name");
    assert_eq!(list(&by_name, "rows")[0]["tid"], 7);
    let one = Prof::new(&dir, "report wall.pb.gz --states -n 1").run().ok().text();
    assert!(one.contains("Showing 1 of 2 threads (1 left out, -n 0 shows all)"), "{one}");
    Prof::new(&dir, "report wall.pb.gz --states --sort binary").run().refused(2, &["--states"]);
    if !needs(&["tmux"]) {
        return;
    }
    let terminal = Terminal::start(100, 12, &[]);
    with_states(terminal.dir.path());
    terminal.run("prof report wall.pb.gz --states");
    terminal.wait_for("server 7, worker 8");
    for name in ["x.json", "x.txt"] {
        terminal.keys(&["w"]);
        terminal.wait_for("write to");
        terminal.run(name);
        terminal.wait_for(&format!("wrote {name}"));
    }
    let written = std::fs::read(terminal.dir.path().join("x.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&written).unwrap(), found);
    let written = std::fs::read_to_string(terminal.dir.path().join("x.txt")).unwrap();
    assert_eq!(written, text);
    terminal.keys(&["q"]);
    terminal.is_restored();
}

#[test]
fn annotate_refuses_parts_that_are_no_lines() {
    let dir = temp_dir();
    views::known(&dir);
    let annotate = |args: &str| Prof::new(&dir, &format!("annotate main known.pb.gz {args}")).run();
    for parts in ["packages", "files", "functions", "filefunctions"] {
        annotate(&format!("--granularity {parts}")).refused(2, &["--granularity", "prof report"]);
    }
    annotate("--granularity addresses").refused(2, &["--granularity addresses", "--asm"]);
    let plain = annotate("").ok().text();
    assert_eq!(annotate("--granularity lines").ok().text(), plain);
    annotate("--granularity addresses --asm").ok();
}

#[test]
fn source_pages_fetch_from_debuginfod() {
    if !needs(&["tmux"]) {
        return;
    }
    let terminal = Terminal::start(100, 16, &[]);
    let dir = terminal.dir.path();
    compiled(dir, "gcc", "-Wl,--build-id");
    record(dir);
    std::fs::remove_file(dir.join("code.c")).unwrap();
    let url = source_server();
    // The same rules as for prof annotate.
    terminal.run("prof report --debuginfod=nothing; echo exit $?");
    terminal.wait_for("exit 2");
    assert!(terminal.screen().contains("--debuginfod: \"nothing\" is not a URL"));
    let cache = dir.join("cache");
    let fetch = format!("--debuginfod={url}");
    let with_cache = format!("clear; DEBUGINFOD_CACHE_PATH={}", cache.display());
    // prof diff has the pages of its second profile.
    for command in ["report", "diff profile.pb.gz profile.pb.gz"] {
        terminal.run(&format!("{with_cache} prof {command} {fetch}"));
        terminal.wait_for("functions  cpu  ");
        terminal.keys(&["/", "^", "w", "o", "r", "k", "Enter", "a"]);
        terminal.wait_for("s += mix(s + i) / (i + 3)");
        let name = format!("{}.json", &command[..4]);
        terminal.keys(&["w"]);
        terminal.wait_for("write to");
        terminal.run(&name);
        terminal.wait_for(&format!("wrote {name}"));
        let written = std::fs::read(dir.join(&name)).unwrap();
        let written: Value = serde_json::from_slice(&written).unwrap();
        let annotate = Prof::new(dir, &format!("annotate work --json {fetch}"));
        let printed = annotate.env("DEBUGINFOD_CACHE_PATH", &cache).run().ok();
        assert_eq!(written, serde_json::from_slice::<Value>(&printed.stdout).unwrap());
        assert_eq!(written["listings"][0]["source"]["origin"], "debuginfod");
        terminal.keys(&["q"]);
        terminal.is_restored();
    }
}
