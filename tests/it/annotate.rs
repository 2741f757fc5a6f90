//! `prof annotate`: values by source line and instruction, against known answers and
//! `go tool pprof -list`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use profile::{
    Builder, Column, Function, FunctionId, LabelSetId, Line, LocationId, Mapping, Profile,
};
use serde_json::Value;

use crate::common::{Prof, go, needs, run::run, temp_dir, until_file_times_advance, views};

/// Divides and adds in `work`, with `mix` inlined into line 8.
const WORK: &str = "#include <stdio.h>
static inline __attribute__((always_inline)) long mix(long x) {
    return (x ^ x >> 7) * 31;
}
__attribute__((noinline)) long work(long n) {
    long s = 1;
    for (long i = 0; i < n; i++)
        s += mix(s + i) / (i + 3);
    return s;
}
int main(void) {
    long t = 0;
    for (long i = 0; i < 200; i++)
        t += work(1000000 + i);
    printf(\"%ld\\n\", t);
    return 0;
}
";

/// Compiles and records the program.
fn recorded(dir: &Path) {
    fs::write(dir.join("work.c"), WORK).unwrap();
    let mut gcc = Command::new("gcc");
    run({
        gcc.current_dir(dir).args(["-O2", "-g", "-o", "work", "work.c"]);
        gcc
    })
    .ok();
    Prof::new(dir, "record -q -F 999").target(dir.join("work"), "").run().ok();
}

fn annotated(dir: &Path, args: &str) -> Value {
    let out = Prof::new(dir, "annotate --json").args(args).run().ok();
    serde_json::from_str(&out.text()).unwrap()
}

/// Percent of a value.
fn share(v: &Value, value: &Value) -> f64 {
    value.as_i64().unwrap() as f64 * 100.0 / v["total"].as_i64().unwrap() as f64
}

#[test]
fn a_c_program_has_the_known_lines_and_instructions() {
    let dir = temp_dir();
    recorded(dir.path());
    let v = annotated(dir.path(), "work --asm");
    assert_eq!((&v["version"], &v["unit"]), (&1.into(), &"function".into()));
    let listing = &v["listings"][0];
    assert_eq!(listing["function"], "work");
    assert_eq!(listing["source"]["missing"], Value::Null);
    let lines = listing["lines"].as_array().unwrap();
    let line = lines.iter().find(|line| line["line"] == 8).unwrap();
    assert!(share(&v, &line["total"]) > 85.0, "{line}");
    assert_eq!(line["text"], "        s += mix(s + i) / (i + 3);");
    let inlined = &line["inlined"][0];
    assert_eq!((&inlined["function"], &inlined["line"]), (&"mix".into(), &3.into()));

    let instructions = listing["code"][0]["pieces"][0]["instructions"].as_array().unwrap();
    let sum: f64 = instructions.iter().map(|i| share(&v, &i["self"])).sum();
    assert!(sum > 90.0, "{sum}");
    assert!(instructions.iter().all(|i| i["text"].is_string()));
    let of_line_8 = instructions.iter().filter(|i| i["source"][0]["line"] == 8).count();
    assert!(of_line_8 > 0);
    if cfg!(target_arch = "x86_64") {
        let text = |i: &Value| i["text"].as_str().unwrap().to_owned();
        let division = instructions.iter().position(|i| text(i).starts_with("idiv")).unwrap();
        // Interrupts arrive at the division itself on some processors, at the next instruction on
        // others; only there, the value has skid.
        let of_division = share(&v, &instructions[division]["self"]);
        let of_next = share(&v, &instructions[division + 1]["self"]);
        assert!(of_division + of_next > 50.0, "{instructions:#?}");
        let marked = |i: &Value| i["skid"].as_bool().unwrap();
        assert!(!marked(&instructions[division]));
        assert_eq!(marked(&instructions[division + 1]), of_next > of_division);
    }
}

#[test]
fn text_has_lines_gaps_arrows_and_marks() {
    let dir = temp_dir();
    recorded(dir.path());
    let text = |args: &str| Prof::new(&dir, "annotate").args(args).run().ok().text();
    let source = text("work");
    assert!(source.contains("s += mix(s + i) / (i + 3);") && source.contains("↳ mix  work.c:3"));
    let file = text("work.c --percent --all-lines");
    assert!(file.contains("#include <stdio.h>") && file.contains("printf") && file.contains('%'));
    let assembly = text("work --asm");
    for words in ["work.c:8", "(mix)", "┌", "└", "ret", "self", "total"] {
        assert!(assembly.contains(words), "{words} is not in: {assembly}");
    }
    // A regular expression, and a function that is only inlined.
    assert!(text("^(wo|ma)").contains("work  "));
    assert!(text("mix").contains("return (x ^ x >> 7) * 31;"));
    assert!(text("mix --asm").contains("work.c:8"));

    Prof::new(&dir, "annotate wor").arg("--focus=nothing").run().ok();
    let near = Prof::new(&dir, "annotate mixx").run();
    assert_eq!(near.code(), 1);
    assert!(near.stderr.contains("similar: mix"), "{}", near.stderr);
    Prof::new(&dir, "annotate (").run().refused(2, &["regular expression"]);
    Prof::new(&dir, "annotate work --source-path /none").run().refused(2, &["--source-path"]);
}

#[test]
fn source_is_found_elsewhere_and_marked_if_it_is_newer() {
    let dir = temp_dir();
    recorded(dir.path());
    let source = |args: &str| annotated(dir.path(), args)["listings"][0]["source"].clone();
    assert_eq!(source("work")["newer_than"], Value::Null);
    until_file_times_advance();
    fs::write(dir.path().join("work.c"), WORK).unwrap();
    assert_eq!(source("work")["newer_than"], "binary");
    let text = Prof::new(&dir, "annotate work").run().ok().text();
    assert!(text.contains("work.c is newer than the binary"), "{text}");

    fs::create_dir(dir.path().join("moved")).unwrap();
    fs::rename(dir.path().join("work.c"), dir.path().join("moved/work.c")).unwrap();
    assert_eq!(source("work")["missing"], "missing");
    let text = Prof::new(&dir, "annotate work").run().ok().text();
    assert!(text.contains("--source-path"), "{text}");
    let found = source("work --source-path moved");
    assert!(found["path"].as_str().unwrap().ends_with("moved/work.c"), "{found}");
    let trim = format!("work --source-path moved --trim-path {}", dir.path().display());
    assert!(source(&trim)["path"].as_str().unwrap().ends_with("moved/work.c"));

    // Another build in its place is not disassembled.
    fs::write(dir.path().join("other.c"), "int main(void) { return 0; }").unwrap();
    let mut gcc = Command::new("gcc");
    gcc.current_dir(dir.path()).args(["-o", "work", "other.c"]);
    run(gcc).ok();
    let v = annotated(dir.path(), "work --asm");
    assert_eq!(v["listings"][0]["code"][0]["missing"], "no_binary");
    let text = Prof::new(&dir, "annotate work --asm").run().ok().text();
    assert!(text.contains("note: no instructions of"), "{text}");
}

/// By function and file: self and total by line.
type Listings = BTreeMap<(String, String), BTreeMap<i64, (i64, i64)>>;

/// The listings of `go tool pprof -list`.
fn of_pprof(file: &Path, kind: &str, unit: &str) -> Listings {
    let sample_index = format!("-sample_index={kind}");
    let unit = format!("-unit={unit}");
    let text = go::pprof(&["-list=.", &sample_index, &unit], file).text();
    let mut listings = Listings::new();
    let mut current = None;
    for line in text.lines() {
        if let Some(routine) = line.strip_prefix("ROUTINE ======================== ") {
            let (name, file) = routine.rsplit_once(" in ").unwrap();
            current = Some(listings.entry((name.to_owned(), file.to_owned())).or_default());
            continue;
        }
        let words: Vec<&str> = line.split(':').next().unwrap().split_whitespace().collect();
        let ([own, total, number], Some(lines)) = (words.as_slice(), current.as_mut()) else {
            continue;
        };
        let Ok(number) = number.parse::<i64>() else { continue };
        let value = |text: &str| match text.trim_end_matches(char::is_alphabetic) {
            "." => 0,
            digits => digits.parse::<i64>().unwrap_or_else(|e| panic!("{line}: {e}")),
        };
        if (value(own), value(total)) != (0, 0) {
            lines.insert(number, (value(own), value(total)));
        }
    }
    listings
}

/// The same of `prof annotate`.
fn of_prof(dir: &Path, file: &Path, kind: &str) -> Listings {
    let args = format!("^ {} --type {kind}", file.display());
    let v = annotated(dir, &args);
    let mut listings = Listings::new();
    for listing in v["listings"].as_array().unwrap() {
        let text = |name: &str| listing[name].as_str().unwrap_or_default().to_owned();
        // pprof leaves out lines beyond the end of the file: Go gives some inlined code the file of
        // its caller.
        let lines = listing["lines"].as_array().unwrap().iter();
        let lines = lines.filter(|line| line["text"].is_string()).map(|line| {
            let number = |name: &str| line[name].as_i64().unwrap_or(0);
            (number("line"), (number("self"), number("total")))
        });
        listings.insert((text("function"), text("file")), lines.collect());
    }
    listings
}

#[test]
fn the_lines_of_go_profiles_have_the_values_of_go_tool_pprof() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    views::go_profiles(&dir);
    let kinds = [("cpu.pb.gz", "cpu", "ns"), ("heap.pb.gz", "alloc_space", "B")];
    for (name, kind, unit) in kinds {
        let file = dir.path().join(name);
        let (expected, found) = (of_pprof(&file, kind, unit), of_prof(dir.path(), &file, kind));
        let mut compared = 0;
        for (place, lines) in &expected {
            assert_eq!(found.get(place), Some(lines), "{name}: {place:?}");
            compared += lines.len();
        }
        assert!(compared > 5, "{name}: {compared} lines");
    }
}

/// A profile of stacks of these locations, each a function's name and its line.
fn hostile(dir: &Path, names: &[&str], depth: usize, values: &[i64]) -> PathBuf {
    let mut b = Builder::new(&[("samples", "count"), ("samples", "count")]);
    let file = b.profile.strings.intern("/dev/zero");
    let app = b.add_mapping(Mapping { start: 0, limit: u64::MAX, file, ..Mapping::default() });
    let mut stack: Vec<LocationId> = Vec::new();
    for (i, name) in names.iter().enumerate() {
        let id = b.location(Some(app), i as u64 * 7);
        let name = b.profile.strings.intern(name);
        let filename = b.profile.strings.intern("/dev/zero");
        let function = FunctionId(b.profile.functions.len() as u32);
        b.profile.functions.push(Function {
            name,
            system_name: name,
            filename,
            start_line: i64::MIN,
        });
        let lines = [-1, 0, 1, i64::MAX].map(|line| Line { function, line, column: 0 });
        b.profile.set_lines(id, &lines);
        stack.push(id);
    }
    let deep: Vec<LocationId> = stack.iter().copied().cycle().take(depth).collect();
    for &value in values {
        b.add(&deep, LabelSetId::EMPTY, 0, &[(Column(0), value)]);
    }
    save(&b.finish(None), dir.join("hostile.pb.gz"))
}

fn save(profile: &Profile, path: PathBuf) -> PathBuf {
    formats::pprof::write(profile, File::create(&path).unwrap()).unwrap();
    path
}

#[test]
fn hostile_profiles_are_annotated() {
    let dir = temp_dir();
    let long = "x".repeat(100_000);
    let names = ["f\x1b[2J\u{202e}", &long, "f"];
    let file = hostile(dir.path(), &names, 10_000, &[5, -7, i64::MAX, i64::MIN]);
    for what in ["f", "zero", ".", "x"] {
        for options in ["--asm", "--all-lines", "--json", "--json --asm", "--type samples"] {
            let out = Prof::new(&dir, "annotate").arg(what).arg(&file).args(options).run().ok();
            assert!(!out.text().contains(['\x1b', '\u{202e}']), "{what} {options}");
        }
    }
    let nothing = views::empty(&dir);
    for options in ["", "--asm", "--json"] {
        Prof::new(&dir, "annotate f").arg(&nothing).args(options).run().ok();
    }
}

#[test]
fn odd_source_files_are_not_opened() {
    let dir = temp_dir();
    recorded(dir.path());
    let source = dir.path().join("work.c");
    let missing = || annotated(dir.path(), "work")["listings"][0]["source"]["missing"].clone();
    fs::write(&source, "one\x1b[2J line\n").unwrap();
    let text = Prof::new(&dir, "annotate work --all-lines").run().ok().text();
    assert!(text.contains("beyond the end of the file") && !text.contains('\x1b'), "{text}");
    fs::remove_file(&source).unwrap();
    fs::create_dir(&source).unwrap();
    assert_eq!(missing(), "not_regular");
    fs::remove_dir(&source).unwrap();
    run({
        let mut mkfifo = Command::new("mkfifo");
        mkfifo.arg(&source);
        mkfifo
    })
    .ok();
    assert_eq!(missing(), "not_regular");
    fs::remove_file(&source).unwrap();
    File::create(&source).unwrap().set_len(2 << 30).unwrap();
    assert_eq!(missing(), "too_large");
}
