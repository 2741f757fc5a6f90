//! Files that prof writes, read by the tools that they are for, and files of these tools.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::common::browser::{Browser, WINDOWS};
use crate::common::{Prof, needs, skip, temp_dir, until};

/// A tool that `tests/run` installs for this checkout; `None`: it is not there, which is reported.
#[track_caller]
fn installed(path: &str) -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers");
    let file = tools.join(path);
    if file.exists() {
        return Some(file);
    }
    skip(&format!("{} is not installed: tests/run does it", file.display()));
    None
}

/// Stacks of functions with distinct values, one of which calls itself.
const STACKS: &str = "main;read 2000000\nmain;work;inner 1000000\nmain;work;work 400000\n\
                      main;other: app<int> 3000000\n";

/// A directory with the stacks as `stacks.pb.gz`.
fn directory() -> tempfile::TempDir {
    let dir = temp_dir();
    std::fs::write(dir.path().join("stacks.folded"), STACKS).unwrap();
    Prof::new(&dir, "export stacks.folded -o stacks.pb.gz").run().ok();
    dir
}

/// A function's own value, and its total.
#[derive(Debug, PartialEq)]
struct Values {
    own: i64,
    total: i64,
}

/// The values of all functions in `prof report`.
fn reported(dir: &Path) -> BTreeMap<String, Values> {
    let table = Prof::new(dir, "report stacks.pb.gz --json").run().ok().text();
    let table: Value = serde_json::from_str(&table).unwrap();
    let row = |row: &Value| {
        let number = |key: &str| row[key].as_i64().unwrap();
        let values = Values { own: number("self"), total: number("total") };
        (row["function"].as_str().unwrap().to_owned(), values)
    };
    let rows: BTreeMap<_, _> = table["rows"].as_array().unwrap().iter().map(row).collect();
    assert_eq!(rows.len(), 5, "{rows:?}");
    rows
}

#[test]
fn speedscope_shows_the_values_of_a_report() {
    let Some(page) = installed("node_modules/speedscope/dist/release/index.html") else { return };
    let Some(mut browser) = Browser::start() else { return };
    let dir = directory();
    Prof::new(&dir, "export stacks.pb.gz -o stacks.speedscope.json").run().ok();
    let file = std::fs::read_to_string(dir.path().join("stacks.speedscope.json")).unwrap();
    // As the program of the package passes a file to its page.
    let script = dir.path().join("stacks.js");
    let text = format!("speedscope.loadFileFromBase64('stacks', btoa({}))", json!(file));
    std::fs::write(&script, text).unwrap();
    let options = format!("localProfilePath={}&view=sandwich", script.display());
    browser.open(&PathBuf::from(format!("{}#{options}", page.display())), WINDOWS[0], "light");
    let rows = "[...document.querySelectorAll('tr')].map(row => \
                [...row.querySelectorAll('td')].map(cell => cell.textContent))";
    let number = |cell: &Value| {
        let text = cell.as_str()?.split(" (").next()?.replace(',', "");
        text.parse::<i64>().ok()
    };
    let mut shown = BTreeMap::new();
    until(|| {
        let all = browser.evaluate(rows);
        let values = |row: &Value| {
            let [total, own, name] = row.as_array()?.as_slice() else { return None };
            let values = Values { own: number(own)?, total: number(total)? };
            Some((name.as_str()?.to_owned(), values))
        };
        shown = all.as_array().unwrap().iter().filter_map(values).collect();
        !shown.is_empty()
    });
    assert_eq!(shown, reported(dir.path()));
}

#[test]
fn the_firefox_profiler_shows_the_values_of_a_report() {
    let package = "node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js";
    let Some(program) = installed(package).filter(|_| needs(&["node"])) else { return };
    let dir = directory();
    Prof::new(&dir, "export stacks.pb.gz -o stacks.firefox.json").run().ok();
    let run = |args: &[&str]| {
        let mut command = Command::new("node");
        // Its sessions are files there.
        command.env("HOME", dir.path()).env_remove("XDG_RUNTIME_DIR").current_dir(&dir);
        let out = command.arg(&program).args(args).output().unwrap();
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    run(&["load", "stacks.firefox.json"]);
    let functions = run(&["thread", "functions", "--json"]);
    run(&["stop"]);
    let functions: Value = serde_json::from_str(&functions).unwrap();
    let row = |row: &Value| {
        let number = |key: &str| row[key].as_i64().unwrap();
        let values = Values { own: number("selfSamples"), total: number("totalSamples") };
        (row["name"].as_str().unwrap().to_owned(), values)
    };
    let shown: BTreeMap<_, _> =
        functions["functions"].as_array().unwrap().iter().map(row).collect();
    assert_eq!(shown, reported(dir.path()));
}

#[test]
fn inferno_draws_the_totals_of_a_report() {
    let dir = directory();
    let folded = Prof::new(&dir, "export stacks.pb.gz --to collapsed").run().ok().text();
    let mut options = inferno::flamegraph::Options::default();
    let mut svg = Vec::new();
    inferno::flamegraph::from_lines(&mut options, folded.lines(), &mut svg).unwrap();
    let svg = String::from_utf8(svg).unwrap();
    for title in [
        "all (6,400,000 samples, 100%)",
        "main (6,400,000 samples, 100.00%)",
        "read (2,000,000 samples, 31.25%)",
        "work (1,400,000 samples, 21.88%)",
        "work (400,000 samples, 6.25%)",
        "other: app&lt;int&gt; (3,000,000 samples, 46.88%)",
    ] {
        assert!(svg.contains(&format!("<title>{title}</title>")), "{title}: {svg}");
    }
}

/// py-spy's own numbers of samples: its two formats are of two runs, so each is compared with itself.
#[test]
fn profiles_of_py_spy_have_its_stacks() {
    let Some(program) = installed("python/bin/py-spy").filter(|_| needs(&["python3"])) else {
        return;
    };
    let dir = temp_dir();
    let script = "import time\ndef inner():\n    return sum(i * i for i in range(20000))\n\
                  def outer():\n    end = time.process_time() + 1\n    while time.process_time() < end:\n\
                  \x20       inner()\nouter()\n";
    std::fs::write(dir.path().join("w.py"), script).unwrap();
    for (format, file) in [("raw", "w.folded"), ("speedscope", "w.json")] {
        let mut command = Command::new(&program);
        command
            .current_dir(&dir)
            .args(["record", "-f", format, "-o", file, "--", "python3", "w.py"]);
        let out = command.output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let stacks = Prof::new(&dir, "export --to collapsed").arg(file).run().ok().text();
        let value = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap();
        // The text has lines of code behind each function.
        let is_inner = |line: &&str| line.contains(";outer") && line.contains(";inner");
        let in_inner = stacks.lines().filter(is_inner);
        let (part, all) =
            (in_inner.map(value).sum::<f64>(), stacks.lines().map(value).sum::<f64>());
        // The rest is the start of Python.
        assert!(part > all / 4.0, "{format}: {part} of {all}: {stacks}");
        let text = std::fs::read_to_string(dir.path().join(file)).unwrap();
        if format == "raw" {
            assert_eq!(all, text.lines().map(value).sum::<f64>());
        }
    }
}
