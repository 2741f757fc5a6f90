//! Views of Python's functions, against sums of the recorded samples.

use serde_json::Value;

use crate::common::pprof::Sample;
use crate::common::python::{self, Frame};
use crate::common::{Pprof, Prof, temp_dir};

/// Functions whose shares differ, in classes and in functions.
const PROGRAM: &str = "\
import os, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        for i in range(2000): pass  # the loop
class Shape:
    def area(self):
        burn(0.003)
    def length(self):
        burn(0.001)
def turn(n):
    if n: return turn(n - 1)
    Shape().area()
def main():
    while time.process_time() < 1:
        Shape().area()
        Shape().length()
        turn(3)
main()
os._exit(0)
";

/// A recording of [`PROGRAM`], and what views say of it.
struct Recorded {
    dir: tempfile::TempDir,
    p: Pprof,
}

impl Recorded {
    fn new() -> Option<Recorded> {
        let python = python::python()?;
        if !python.has_qualnames() {
            crate::common::skip("/usr/bin/python3 has no names of classes");
            return None;
        }
        let dir = temp_dir();
        let p = python.record(dir.path(), "-F 1999 -e cpu-clock", PROGRAM);
        Some(Recorded { dir, p })
    }

    fn json(&self, args: &str) -> Value {
        let out = Prof::new(&self.dir, args).run().ok();
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{args}: {e}"))
    }

    /// CPU time of the samples that this selects.
    fn sum(&self, is: impl Fn(&Sample) -> bool) -> i64 {
        let column = self.p.column("cpu");
        self.p.samples.iter().filter(|sample| is(sample)).map(|s| s.values[column]).sum()
    }

    /// The innermost frame of a sample in a view without the interpreter's own, if it is one of
    /// Python's functions.
    fn leaf(&self, sample: &Sample) -> Option<Frame<'_>> {
        let interpreter = self.p.comment("interpreter").expect("it is named");
        let is_interpreter = |location: &&u64| {
            let mapping = self.p.mapping_of.get(location).map(|&m| &self.p.mappings[m]);
            mapping.is_some_and(|mapping| mapping.file == interpreter)
        };
        let leaf = sample.locations.iter().find(|location| !is_interpreter(location))?;
        let is_own = python::is_python(&self.p, leaf);
        is_own.then(|| python::frames(&self.p, sample)[0])
    }

    fn has(&self, sample: &Sample, is: impl Fn(&Frame) -> bool) -> bool {
        python::frames(&self.p, sample).iter().any(is)
    }
}

/// The rows, boxes or listings of one function.
fn rows<'v>(found: &'v Value, function: &str) -> Vec<&'v Value> {
    let keys = ["rows", "boxes", "listings"];
    let rows = keys.into_iter().find_map(|key| found[key].as_array()).expect("rows");
    rows.iter().filter(|row| row["function"] == function).collect()
}

#[test]
fn tables_have_the_sums_of_python_functions() {
    let Some(recorded) = Recorded::new() else { return };
    let found = recorded.json("report --json");
    for function in ["burn", "Shape.area", "Shape.length", "turn", "main", "<module>"] {
        let is = |frame: &Frame| frame.function == function;
        let total = recorded.sum(|sample| recorded.has(sample, is));
        let own = recorded.sum(|sample| recorded.leaf(sample).is_some_and(|leaf| is(&leaf)));
        // Each module has a function of this name; a table has rows by function and binary.
        let rows = rows(&found, function);
        let sum = |key: &str| -> i64 { rows.iter().map(|row| row[key].as_i64().unwrap()).sum() };
        assert_eq!(
            (rows.len(), sum("self"), sum("total")),
            (1, own, total),
            "{function}: {rows:?}"
        );
        assert!(total > 0, "{function}");
        assert_eq!(rows[0]["binary"], "[python]");
    }
    let lines = recorded.json("report --json --granularity lines -n 0");
    let number = python::line_of(PROGRAM, "# the loop");
    let is_loop = |frame: &Frame| frame.function == "burn" && frame.line == number;
    let loops = rows(&lines, "burn");
    let row = loops.iter().find(|row| row["line"] == number).expect("the line of the loop");
    let file = recorded.dir.path().join("program.py");
    assert_eq!(row["file"], file.to_str().unwrap());
    let own = recorded.sum(|sample| recorded.leaf(sample).is_some_and(|leaf| is_loop(&leaf)));
    assert_eq!(row["self"], own);
    assert!(own * 10 > recorded.sum(|_| true) * 6, "{own}");
    let files = recorded.json("report --json --sort file -n 0");
    let is_own = |frame: &Frame| file.as_os_str() == frame.file;
    let mut files = files["rows"].as_array().unwrap().iter();
    let row = files.find(|row| row["file"] == file.to_str().unwrap());
    assert_eq!(row.unwrap()["total"], recorded.sum(|sample| recorded.has(sample, is_own)));
}

#[test]
fn filters_select_python_functions() {
    let Some(recorded) = Recorded::new() else { return };
    let all = recorded.sum(|_| true);
    let has = |function: &'static str| {
        recorded.sum(|sample| recorded.has(sample, |frame| frame.function == function))
    };
    let (area, turn) = (has("Shape.area"), has("turn"));
    assert!(turn > 0 && turn < area && area < all);
    for (options, kept) in [
        ("--focus ^Shape\\.area$", area),
        ("--ignore ^Shape\\.area$", all - area),
        ("--focus ^turn$", turn),
        ("--focus ^turn$ --native", turn),
    ] {
        let found = recorded.json(&format!("report --json {options}"));
        assert_eq!(found["kept"], kept, "{options}");
    }
    // Hidden frames are no callers.
    let hidden = recorded.json("report --json --hide ^burn$");
    assert!(rows(&hidden, "burn").is_empty());
    let own = rows(&hidden, "Shape.area")[0]["self"].as_i64().unwrap();
    assert!(own * 10 > area * 8, "{own} of {area}");
}

#[test]
fn flame_graphs_have_boxes_of_python_functions() {
    let Some(recorded) = Recorded::new() else { return };
    let found = recorded.json("flame profile.pb.gz --json --min-width 0");
    for function in ["Shape.area", "Shape.length", "main"] {
        let boxes = rows(&found, function);
        let width: i64 = boxes.iter().map(|row| row["width"].as_i64().unwrap()).sum();
        let is = |frame: &Frame| frame.function == function;
        assert_eq!(width, recorded.sum(|sample| recorded.has(sample, is)), "{function}");
    }
    // A box for each recursive call.
    assert_eq!(rows(&found, "turn").len(), 4);
    let svg = Prof::new(&recorded.dir, "flame profile.pb.gz").run().ok().text();
    assert!(svg.contains("Shape.area") && svg.contains("&lt;module&gt;"));
}

#[test]
fn annotated_python_functions_have_their_source() {
    let Some(recorded) = Recorded::new() else { return };
    let found = recorded.json("annotate ^burn$ --json");
    let [function] = &rows(&found, "burn")[..] else { panic!("{found}") };
    assert_eq!(function["start_line"], python::line_of(PROGRAM, "def burn"));
    let lines = function["lines"].as_array().unwrap();
    assert!(!lines.is_empty());
    for line in lines {
        let number = line["line"].as_i64().unwrap();
        let text = PROGRAM.lines().nth(number as usize - 1).unwrap();
        assert_eq!(line["text"], text);
        let is = |frame: &Frame| frame.function == "burn" && frame.line == number;
        assert_eq!(line["total"], recorded.sum(|sample| recorded.has(sample, is)), "{text}");
    }
    let text = Prof::new(&recorded.dir, "annotate ^Shape\\.area$").run().ok().text();
    assert!(text.contains("burn(0.003)"), "{text}");
}

/// Python's functions are in the package of their file (`docs/guide/filters.md`).
#[test]
fn packages_of_python_functions_are_their_files() {
    let Some(recorded) = Recorded::new() else { return };
    let found = recorded.json("report --json --granularity packages -n 0");
    let rows = found["rows"].as_array().unwrap();
    let packages: Vec<&str> = rows.iter().filter_map(|row| row["function"].as_str()).collect();
    assert!(!packages.is_empty() && !packages.contains(&"burn"), "{packages:?}");
    // The interpreter has a `main` of its own.
    assert!(!packages.contains(&"Shape.area"), "{packages:?}");
}
