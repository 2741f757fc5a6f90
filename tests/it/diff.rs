//! `prof diff`, `prof report --diff` and `prof flame --diff` on files with known answers.

use std::path::{Path, PathBuf};
use std::process::Command;

use profile::{
    Builder, Column, Function, FunctionId, Label, LabelSetId, LabelValue, Line, LocationId, Mapping,
};

use crate::common::{
    Prof, Running, Verdict, decide, most_by_chance, needs, skip, system, temp_dir, views,
};

/// Nanoseconds between two samples.
const PERIOD: i64 = 1_000_000;

/// Writes a profile of `main` and its callees, with these numbers of samples in each.
pub fn save(dir: &Path, file: &str, types: &[(&str, &str)], samples: &[(&str, i64)]) -> PathBuf {
    let mut b = Builder::new(types);
    let path = b.profile.strings.intern("/usr/bin/app");
    let mapping = Mapping { start: 0x1000, limit: 0x90000, file: path, ..Mapping::default() };
    let app = b.add_mapping(mapping);
    let add = |b: &mut Builder, name: &str| -> LocationId {
        let function = FunctionId(b.profile.functions.len() as u32);
        let id = b.location(Some(app), 0x1000 + u64::from(function.0));
        let name = b.profile.strings.intern(name);
        b.profile.functions.push(Function { name, system_name: name, ..Function::default() });
        b.profile.set_lines(id, &[Line { function, line: 1, column: 0 }]);
        id
    };
    let main = add(&mut b, "main");
    let each = u32::from(types[0].0 == "samples");
    for (name, count) in samples {
        let leaf = add(&mut b, name);
        let sign = count.signum();
        for _ in 0..count.abs() {
            b.add(
                &[leaf, main],
                LabelSetId::EMPTY,
                each,
                &[(Column(types.len() - 1), sign * PERIOD)],
            );
        }
    }
    b.profile.duration_nanos = 2_000_000_000;
    let path = dir.join(file);
    formats::pprof::write(&b.finish(None), std::fs::File::create(&path).unwrap()).unwrap();
    path
}

pub const CPU: &[(&str, &str)] = &[("samples", "count"), ("cpu", "nanoseconds")];

pub const BEFORE: &[(&str, i64)] = &[("kept", 900), ("slower", 300), ("gone", 200), ("noise", 400)];
pub const AFTER: &[(&str, i64)] = &[("noise", 410), ("kept", 905), ("slower", 450), ("new", 250)];

fn json(dir: &Path, args: &str) -> serde_json::Value {
    let out = Prof::new(dir, args).run().ok();
    serde_json::from_slice(&out.stdout).unwrap()
}

fn row(diff: &serde_json::Value, function: &str) -> serde_json::Value {
    let rows = diff["rows"].as_array().unwrap();
    rows.iter().find(|r| r["function"] == function).unwrap_or_else(|| panic!("{diff}")).clone()
}

/// Gives the main binary of a file another path.
fn rename_main(file: &Path, to: &str) {
    let mut profile = formats::read_file(file).unwrap();
    let path = profile.strings.intern(to);
    profile.mappings[0].file = path;
    formats::pprof::write(&profile, std::fs::File::create(file).unwrap()).unwrap();
}

#[test]
fn a_program_with_another_name_is_compared_by_function() {
    let dir = temp_dir();
    rename_main(&save(dir.path(), "a.pb.gz", CPU, BEFORE), "/target/inl-1f");
    rename_main(&save(dir.path(), "b.pb.gz", CPU, AFTER), "/target/inl-2e");
    let sentence = "Binaries inl-1f and inl-2e are compared as one";
    for command in ["diff a.pb.gz b.pb.gz", "report --diff a.pb.gz b.pb.gz"] {
        let text = Prof::new(&dir, command).run().ok().text();
        assert!(text.lines().any(|line| line == sentence), "{text}");
        assert_eq!(text.matches(" new ").count(), 2, "self value and total of `new`: {text}");
    }
    for options in ["", "--sort binary,symbol", "--granularity functions", "--binary inl-2e"] {
        let diff = json(dir.path(), &format!("diff a.pb.gz b.pb.gz --json {options}"));
        let names = serde_json::json!({"before": "inl-1f", "after": "inl-2e"});
        assert_eq!(diff["renamed"], names, "{options}");
        let kept = row(&diff, "kept");
        assert_eq!(kept["self"]["before"], 9e8, "{options}: {kept}");
        assert_eq!(kept["self"]["after"], 9.05e8, "{options}: {kept}");
    }
    let drawn = Prof::new(&dir, "flame --diff a.pb.gz b.pb.gz --json").run().ok();
    assert!(drawn.stderr.contains(sentence), "{}", drawn.stderr);
    let flame: serde_json::Value = serde_json::from_slice(&drawn.stdout).unwrap();
    assert_eq!(flame["renamed"]["after"], "inl-2e");
    let boxes = flame["boxes"].as_array().unwrap();
    let main = boxes.iter().find(|b| b["function"] == "main" && b["depth"] == 0).unwrap();
    assert_eq!((&main["binary"], &main["value_before"]), (&"inl-2e".into(), &1.8e9.into()));
    // A profile with the binary before is of another program.
    let diff = json(dir.path(), "diff --base a.pb.gz --with a.pb.gz b.pb.gz --json");
    assert_eq!(diff["renamed"], serde_json::Value::Null);
}

#[test]
fn values_changes_and_significance_are_those_of_the_files() {
    let dir = temp_dir();
    save(dir.path(), "a.pb.gz", CPU, BEFORE);
    save(dir.path(), "profile.pb.gz", CPU, AFTER);
    let diff = json(dir.path(), "diff a.pb.gz --json");
    assert_eq!((&diff["version"], &diff["row_count"]), (&1.into(), &6.into()), "{diff}");
    let slower = row(&diff, "slower");
    assert_eq!(slower["self"]["before"], 3e8);
    assert_eq!(slower["self"]["after"], 4.5e8);
    assert_eq!(slower["self"]["change"], 1.5e8);
    assert_eq!(slower["self"]["ratio"], 1.5);
    assert_eq!(slower["binary"], "app");
    for (function, changed) in
        [("slower", true), ("new", true), ("gone", true), ("kept", false), ("noise", false)]
    {
        assert_eq!(row(&diff, function)["self"]["significant"], changed, "{function}");
    }
    assert_eq!(row(&diff, "new")["self"]["ratio"], serde_json::Value::Null);
    assert_eq!(json(dir.path(), "report --diff a.pb.gz --json"), diff);
    let text = Prof::new(dir.path(), "diff a.pb.gz profile.pb.gz").run().ok().text();
    assert!(text.contains("+150.0 ms  ×1.50  <0.0001"), "{text}");
    // The fourth is main, whose total grew.
    assert!(text.contains("more than sampling error: 4 of 6 rows"), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    assert_eq!(Prof::new(dir.path(), "report --diff a.pb.gz").run().ok().text(), text);
}

#[test]
fn groups_and_scales_are_those_of_the_options() {
    let dir = temp_dir();
    save(dir.path(), "a.pb.gz", CPU, BEFORE);
    save(dir.path(), "b.pb.gz", CPU, AFTER);
    let diff = json(dir.path(), "diff a.pb.gz b.pb.gz --sort binary --json");
    assert_eq!(diff["rows"].as_array().unwrap().len(), 1);
    assert_eq!(diff["rows"][0]["self"]["after"], 2.015e9);
    let diff = json(dir.path(), "diff a.pb.gz b.pb.gz --per-second --json");
    assert_eq!(row(&diff, "slower")["self"]["after"], 2.25e8);
    let diff = json(dir.path(), "diff --base a.pb.gz a.pb.gz --with b.pb.gz --normalize --json");
    assert_eq!(diff["before"]["recordings"], 2);
    assert_eq!(diff["before"]["total"], diff["after"]["total"]);
    let text = Prof::new(dir.path(), "diff a.pb.gz b.pb.gz --lines -n 2").run().ok().text();
    assert!(text.ends_with("… and 4 more rows; -n 0 shows all\n"), "{text}");
}

/// The flat values of `go tool pprof -top`, by function.
fn pprof_top(args: &[&str]) -> Vec<(String, f64)> {
    let all = ["tool", "pprof", "-top", "-unit=ms", "-nodefraction=0", "-nodecount=1000"];
    let out = Command::new("go").args(all).args(args).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let rows = text.lines().skip_while(|line| !line.trim_start().starts_with("flat"));
    rows.skip(1)
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (words[5].to_owned(), words[0].trim_end_matches("ms").parse().unwrap())
        })
        .collect()
}

#[test]
fn changes_are_those_of_go_tool_pprof() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    let a = save(dir.path(), "a.pb.gz", CPU, BEFORE);
    let b = save(dir.path(), "b.pb.gz", CPU, AFTER);
    let base = format!("-diff_base={}", a.display());
    for normalize in [false, true] {
        let option = if normalize { "--normalize" } else { "" };
        let diff = json(dir.path(), &format!("diff a.pb.gz b.pb.gz --json {option}"));
        let mut args = vec![base.as_str(), b.to_str().unwrap()];
        args.splice(0..0, normalize.then_some("-normalize"));
        let rows = pprof_top(&args);
        assert!(rows.len() >= 5, "{rows:?}");
        for (function, flat) in rows {
            let change = row(&diff, &function)["self"]["change"].as_f64().unwrap() / 1e6;
            // pprof prints two digits, and truncates scaled values.
            assert!((change - flat).abs() < 0.011, "{function}: {change}, pprof: {flat}");
        }
    }
}

#[test]
fn report_and_flame_have_the_options_of_diff() {
    let dir = temp_dir();
    save(dir.path(), "a.pb.gz", CPU, BEFORE);
    save(dir.path(), "b.pb.gz", CPU, AFTER);
    save(dir.path(), "c.pb.gz", CPU, &AFTER[1..]);
    for options in [
        "--normalize",
        "--per-second",
        "--absolute",
        "-n 2 --sort total",
        "--no-children --sort symbol",
        "--granularity functions --focus slower|gone",
        "--granularity files",
    ] {
        let report = json(dir.path(), &format!("report b.pb.gz --json --diff a.pb.gz {options}"));
        let diff = json(dir.path(), &format!("diff a.pb.gz b.pb.gz --json {options}"));
        assert_eq!(report, diff, "{options}");
    }
    let report = json(dir.path(), "report b.pb.gz --json --diff a.pb.gz --diff c.pb.gz");
    let diff = json(dir.path(), "diff --json --base a.pb.gz c.pb.gz --with b.pb.gz");
    assert_eq!(report, diff);
    let flame = "flame -o x.svg --diff a.pb.gz --diff c.pb.gz b.pb.gz --granularity functions";
    Prof::new(dir.path(), flame).run().ok();
    let svg = std::fs::read_to_string(dir.path().join("x.svg")).unwrap();
    assert!(svg.contains("difference to 2 recordings"), "{svg}");
    for command in ["report a.pb.gz --absolute", "flame a.pb.gz -o y.svg --normalize"] {
        Prof::new(dir.path(), command).run().refused(2, &["--diff BASE"]);
    }
    let both = "report b.pb.gz --diff a.pb.gz --coverage";
    Prof::new(dir.path(), both).run().refused(2, &["--coverage", "--diff"]);
}

#[test]
fn rows_differ_by_the_parts_of_the_granularity() {
    let dir = temp_dir();
    let known = views::known(&dir);
    let diff = |granularity: &str| {
        let args = format!("diff known.pb.gz known.pb.gz --json --granularity {granularity}");
        json(dir.path(), &args)
    };
    assert!(known.exists());
    let rows = |granularity: &str| diff(granularity)["rows"].as_array().unwrap().clone();
    let files = rows("files");
    assert_eq!((files.len(), &files[0]["file"]), (1, &"known.c".into()), "{files:?}");
    assert!(files[0].get("function").is_none());
    let functions = rows("filefunctions");
    assert_eq!((functions.len(), &functions[0]["file"]), (4, &"known.c".into()), "{functions:?}");
    assert!(rows("functions").iter().all(|row| row.get("file").is_none()));
    assert_eq!(rows("lines")[0]["line"], 7);
    // Two of five instructions are of bar, of which one is inlined into foo2.
    let addresses = rows("addresses");
    assert_eq!(addresses.len(), 6, "{addresses:?}");
    assert!(addresses.iter().any(|row| row["address"] == "0x50"), "{addresses:?}");
    for (granularity, title) in [("files", "file"), ("addresses", "binary  address  function")] {
        let args = format!("diff known.pb.gz known.pb.gz --granularity {granularity}");
        let text = Prof::new(dir.path(), &args).run().ok().text();
        assert!(text.contains(&format!("  {title}\n")), "{text}");
    }
}

#[test]
fn several_recordings_count_their_differences() {
    let dir = temp_dir();
    // One function varies between the recordings of a side as much as between the sides.
    let runs =
        [["a1", "300"], ["a2", "420"], ["a3", "350"], ["b1", "460"], ["b2", "330"], ["b3", "440"]];
    for [file, wild] in runs {
        let samples = [("wild", wild.parse().unwrap()), ("calm", 600), ("other", 500)];
        save(dir.path(), file, CPU, &samples);
    }
    let diff = json(dir.path(), "diff --base a1 a2 a3 --with b1 b2 b3 --json");
    assert_eq!(diff["replicated"], true);
    assert_eq!(row(&diff, "wild")["self"]["significant"], false, "{diff}");
    let pair = json(dir.path(), "diff a1 b1 --json");
    assert_eq!(row(&pair, "wild")["self"]["significant"], true, "{pair}");
}

#[test]
fn profiles_that_cannot_be_compared_get_one_line() {
    let dir = temp_dir();
    save(dir.path(), "a.pb.gz", CPU, BEFORE);
    save(dir.path(), "heap.pb.gz", &[("inuse_space", "bytes")], BEFORE);
    Prof::new(dir.path(), "diff a.pb.gz heap.pb.gz").run().refused(2, &["cpu", "inuse_space"]);
    Prof::new(dir.path(), "diff").run().refused(2, &["prof diff BASE"]);
    Prof::new(dir.path(), "diff a.pb.gz").run().refused(1, &["profile.pb.gz"]);
    Prof::new(dir.path(), "diff a.pb.gz gone.pb.gz").run().refused(1, &["gone.pb.gz"]);
    let none = views::empty(dir.path());
    let none = none.file_name().unwrap().to_str().unwrap();
    Prof::new(dir.path(), &format!("diff {none} {none}")).run().ok().says(&[]);
    Prof::new(dir.path(), &format!("flame -o x.svg --diff {none} {none}"))
        .run()
        .refused(1, &["nothing to draw"]);
}

#[test]
fn negative_values_long_names_and_types_of_one_name_are_compared() {
    let dir = temp_dir();
    let long = "x".repeat(100_000);
    let samples = [("kept", 90), ("negative", -20), ("\x1b[31mred\n", 9), (long.as_str(), 30)];
    let twice: &[(&str, &str)] = &[("cpu", "nanoseconds"), ("cpu", "nanoseconds")];
    save(dir.path(), "a.pb.gz", twice, &samples);
    save(dir.path(), "b.pb.gz", twice, &samples[..3]);
    let out = Prof::new(dir.path(), "diff a.pb.gz b.pb.gz").run().ok().text();
    assert!(out.contains("-20.00 ms") && !out.contains('\x1b'), "{}", &out[..1000]);
    let diff = json(dir.path(), "diff a.pb.gz b.pb.gz --json");
    assert_eq!(row(&diff, "negative")["self"]["p"], serde_json::Value::Null);
    Prof::new(dir.path(), "flame -o x.svg --diff a.pb.gz b.pb.gz").run().ok();
}

#[test]
fn a_flame_graph_shows_what_grew_and_what_disappeared() {
    let dir = temp_dir();
    save(dir.path(), "a.pb.gz", CPU, BEFORE);
    save(dir.path(), "b.pb.gz", CPU, AFTER);
    Prof::new(dir.path(), "flame -o x.svg --diff a.pb.gz b.pb.gz").run().ok();
    let svg = std::fs::read_to_string(dir.path().join("x.svg")).unwrap();
    let fill = |name: &str| {
        let title = format!("<title>{name} (");
        let after = svg.split_once(&title).unwrap_or_else(|| panic!("no box {name}: {svg}")).1;
        let rgb = after.split_once("fill=\"rgb(").unwrap().1.split_once(')').unwrap().0;
        let rgb: Vec<u8> = rgb.split(',').map(|c| c.parse().unwrap()).collect();
        [rgb[0], rgb[1], rgb[2]]
    };
    let [red, _, blue] = fill("slower");
    assert!(red > blue, "slower is red");
    let [red, _, blue] = fill("gone");
    assert!(blue > red, "gone is blue");
    assert!(fill("new")[0] == 255);
    assert!(svg.contains("<title>[disappeared] (cpu 0 ns, before 200.0 ms"), "{svg}");
    assert!(svg.contains("slower (cpu 450.0 ms, before 300.0 ms, change +150.0 ms, ×1.50, app)"));
}

/// Saves stacks of a process, outermost function first, with values.
fn save_stacks(dir: &Path, file: &str, stacks: &[(&str, Option<&str>, i64)]) {
    let mut b = Builder::new(&[("cpu", "nanoseconds")]);
    let key = b.profile.strings.intern("process");
    for (stack, process, value) in stacks {
        let labels = process.map_or(LabelSetId::EMPTY, |process| {
            let value = LabelValue::Str(b.profile.strings.intern(process));
            b.profile.labels.intern(&[Label { key, value }])
        });
        let frames: Vec<_> = stack.split(';').rev().map(|name| b.named_location(name)).collect();
        b.add(&frames, labels, 0, &[(Column(0), *value)]);
    }
    let file = std::fs::File::create(dir.join(file)).unwrap();
    formats::pprof::write(&b.finish(None), file).unwrap();
}

/// The boxes of a differential flame graph: their names by depth, from left to right.
fn levels(dir: &Path, args: &str) -> Vec<String> {
    let found = json(dir, &format!("flame --json --diff {args}"));
    let mut levels: Vec<String> = Vec::new();
    for b in found["boxes"].as_array().unwrap() {
        let depth = b["depth"].as_u64().unwrap() as usize;
        levels.resize(levels.len().max(depth + 1), String::new());
        levels[depth] += " ";
        levels[depth] += b["function"].as_str().unwrap_or("-");
    }
    levels.iter().map(|level| level.trim().to_owned()).collect()
}

#[test]
fn a_differential_flame_graph_has_the_options_of_flame_graphs() {
    let dir = temp_dir();
    let [web, db] = [Some("web"), Some("db")];
    let stacks = [("main;f;f;f", web, 20), ("main;a", web, 5)];
    save_stacks(dir.path(), "web.pb.gz", &stacks);
    save_stacks(dir.path(), "two.pb.gz", &[stacks[0], stacks[1], ("serve", db, 7)]);
    save_stacks(dir.path(), "none.pb.gz", &stacks.map(|(stack, _, value)| (stack, None, value)));
    let levels = |args: &str| levels(dir.path(), args);
    assert_eq!(levels("web.pb.gz web.pb.gz"), ["main", "a f", "f", "f"]);
    assert_eq!(levels("web.pb.gz web.pb.gz --left-heavy"), ["main", "f a", "f", "f"]);
    assert_eq!(levels("web.pb.gz web.pb.gz --collapse-recursion"), ["main", "a f"]);
    let with_root = ["web", "main", "a f", "f", "f"];
    assert_eq!(levels("web.pb.gz web.pb.gz --root process"), with_root);
    assert_eq!(levels("web.pb.gz web.pb.gz --root comm"), with_root);
    // As without --diff, several processes are the lowest boxes.
    assert_eq!(levels("two.pb.gz two.pb.gz")[0], "db web");
    assert_eq!(levels("web.pb.gz two.pb.gz")[0], "db web");
    assert_eq!(levels("two.pb.gz two.pb.gz --root none")[0], "main serve");
    // What no side has a label for is the same on both.
    assert_eq!(levels("none.pb.gz two.pb.gz")[..2], ["db web -", "serve main [no process]"]);
    Prof::new(dir.path(), "flame -o x.svg --diff web.pb.gz two.pb.gz --root nonsense")
        .run()
        .refused(1, &["--root", "\"nonsense\""]);
}

/// Pairs of recordings, and those that list a change.
#[derive(Default)]
struct Pairs {
    all: u64,
    listed: u64,
}

impl Pairs {
    /// A pair lists a change with a probability of 5 %, if all else is equal.
    fn verdict(&self) -> Verdict {
        if 10 * self.listed <= 3 * self.all {
            Verdict::Accepted
        } else if self.listed <= most_by_chance(0.05 * self.all as f64) {
            Verdict::Open
        } else {
            Verdict::Refused
        }
    }
}

/// Pairs of recordings of an unchanged program list nothing.
#[test]
fn pairs_of_recordings_of_one_program_list_nothing() {
    if !needs(&["perl"]) {
        return;
    }
    if system::tracefs().is_none() {
        return skip("tracefs is not available");
    }
    let dir = temp_dir();
    let code = "while (1) { my %h; for my $i (1 .. 5000) { $h{$i % 977} .= 'x'; } \
                my @a = sort { $a <=> $b } map { $_ * 7919 % 1009 } 1 .. 500; }";
    let program = dir.path().join("loop.pl");
    std::fs::write(&program, code).unwrap();
    let record = |out: &str| {
        let mut perl = Command::new("perl");
        // Another order of the keys would be a difference.
        let perl = Running::start(perl.arg(&program).env("PERL_HASH_SEED", "0"));
        let args = format!("record -q -F 999 -e cpu-clock -d 1s -o {out} -p {}", perl.pid());
        Prof::new(dir.path(), &args).run().ok();
    };
    let draw = |pairs: &mut Pairs| {
        for _ in 0..10 {
            ["a.pb.gz", "b.pb.gz"].into_iter().for_each(&record);
            let diff = json(dir.path(), "diff a.pb.gz b.pb.gz --json");
            pairs.all += 1;
            pairs.listed += u64::from(diff["changed"] != 0);
        }
        println!("{} of {} pairs list a change", pairs.listed, pairs.all);
    };
    decide("pairs of recordings", draw, Pairs::verdict);
}

/// Names of functions that are gone or new on a side, of rows with at least 5 % of the total.
fn one_sided(diff: &serde_json::Value) -> Vec<String> {
    let total = diff["before"]["total"].as_f64().unwrap();
    let value = |row: &serde_json::Value, side: &str| row["total"][side].as_f64().unwrap();
    let rows = diff["rows"].as_array().unwrap().iter().filter(|row| {
        let (before, after) = (value(row, "before"), value(row, "after"));
        before.min(after) == 0.0 && before.max(after) > 0.05 * total
    });
    rows.map(|row| format!("{} of {}", row["function"], row["binary"])).collect()
}

fn record(dir: &Path, file: &str, command: &str) {
    Prof::new(dir, &format!("record -q -F 999 -e cpu-clock -o {file} -- {command}")).run().ok();
}

#[test]
fn two_builds_of_a_program_are_compared_by_function() {
    if !needs(&["gcc"]) {
        return;
    }
    let dir = temp_dir();
    let source = "static volatile double d[512];
        __attribute__((noinline)) void work(void) {
            for (int i = 0; i < 512 * WORK; i++) d[i % 512] = d[(i + 7) % 512] * 1.5 + i;
        }
        int main(void) { for (int i = 0; i < 1500; i++) work(); }";
    std::fs::write(dir.path().join("w.c"), source).unwrap();
    for (name, flags) in [("slow", "-O1 -DWORK=300"), ("fast", "-O2 -DWORK=200")] {
        let mut gcc = Command::new("gcc");
        gcc.args(flags.split(' ')).args(["-o", name, "w.c"]).current_dir(dir.path());
        assert!(gcc.status().unwrap().success());
        record(dir.path(), &format!("{name}1"), &format!("./{name}"));
        // Of several processes: the shell stays, since the program is not its last command.
        let several = Prof::new(dir.path(), &format!("record -q -e cpu-clock -o {name}2 --"));
        several.arg("sh").arg("-c").arg(format!("./{name}; :")).run().ok();
    }
    for files in ["slow1 fast1", "slow2 fast2", "slow1 fast2"] {
        let diff = json(dir.path(), &format!("diff {files} --json"));
        assert_eq!(one_sided(&diff), Vec::<String>::new(), "{files}");
        assert_ne!(row(&diff, "work")["self"]["before"], 0.0, "{files}");
    }
}

#[test]
fn run_time_code_of_two_runs_is_compared_by_function() {
    if !needs(&["node"]) {
        return;
    }
    let dir = temp_dir();
    let code = "function hot(n) { let s = 0; for (let i = 0; i < n; i++) s = (s + i * i) % 1000003; \
                return s; } let t = 0; for (let i = 0; i < 400; i++) t += hot(400000); console.log(t);";
    std::fs::write(dir.path().join("w.js"), code).unwrap();
    for (option, files) in [("--perf-basic-prof", ["a", "b"]), ("--perf-prof", ["c", "d"])] {
        for file in files {
            record(dir.path(), file, &format!("node {option} w.js"));
        }
    }
    // A perf map against a jitdump, too.
    for files in ["a b", "c d", "a d"] {
        let diff = json(dir.path(), &format!("diff {files} --json"));
        assert_eq!(one_sided(&diff), Vec::<String>::new(), "{files}");
        let rows = diff["rows"].as_array().unwrap();
        let hot = rows
            .iter()
            .find(|row| row["function"].as_str().is_some_and(|name| name.starts_with("JS:*hot")));
        assert_eq!(hot.unwrap()["binary"], "[JIT]", "{files}");
    }
    let text = Prof::new(dir.path(), "report --stdio a").run().ok().text();
    assert!(text.contains("[JIT]") && !text.contains("perf-"), "{text}");
    let focused = Prof::new(dir.path(), "report --stdio a --binary [JIT]").run().ok().text();
    assert!(focused.contains("JS:*hot"), "{focused}");
}
