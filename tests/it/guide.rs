//! The console blocks of the README and the guide: each is run, and its output has the shape that
//! the document shows.
//!
//! A shape has words, but no figures: numbers, units, dates and addresses may differ, and rows of a
//! table or of a stack may be others, and more or fewer. `…` represents anything.

use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;

use crate::common::{needs, skip, system, temp_dir};

/// A command of a block, and the output that the document shows.
struct Step {
    command: String,
    shown: Vec<String>,
}

/// The console blocks of a document.
fn blocks(document: &str) -> Vec<Vec<Step>> {
    let mut blocks = Vec::new();
    let mut lines = document.lines();
    while lines.any(|line| line == "```console") {
        let mut steps: Vec<Step> = Vec::new();
        for line in lines.by_ref().take_while(|line| *line != "```") {
            match line.strip_prefix("$ ") {
                Some(command) => {
                    steps.push(Step { command: command.to_owned(), shown: Vec::new() });
                }
                None => {
                    let step = steps.last_mut().expect("a block begins with a command");
                    step.shown.push(line.to_owned());
                }
            }
        }
        blocks.push(steps);
    }
    blocks
}

/// A part of an output.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    /// Any number of lines.
    Anything,
    /// Rows of a table, at least one.
    Rows,
    /// Indented lines, at least one: frames of a stack, or details.
    Indented,
    /// Lines of `prof doctor` with the commands that unlock them, at least one.
    Checks,
    /// A line that matches a pattern.
    Line(String),
}

const UNIT: &str = r"(ns|µs|us|ms|s|B|KiB|MiB|GiB)";

fn is_match(pattern: &str, line: &str) -> bool {
    Regex::new(pattern).unwrap().is_match(line.trim_end())
}

/// A row begins with a figure, alone or of a share; a folded stack ends with one.
/// Which instructions have the mark of skid, `~`, depends on the processor.
fn is_row(line: &str) -> bool {
    is_match(&format!(r"^\s*[\d.,]+( ?{UNIT}~?|%)?\s+[\d.]+"), line)
        || is_match(r"^\S.*;.* \d+$", line)
}

/// A header of a table has shares.
fn is_indented(line: &str) -> bool {
    let spaces = line.len() - line.trim_start().len();
    !is_row(line) && (spaces >= 20 || spaces >= 4 && !line.contains('%'))
}

/// A line of `prof doctor`.
fn is_check(line: &str) -> bool {
    is_match("^[a-z' ]+ +(yes|no) ", line)
}

/// The pattern of a line: any figures and addresses, any widths of spaces.
fn pattern(line: &str) -> String {
    // `Showing 5 of 264 rows` or `Showing 1 row`, and the number left out; any month; any states and
    // processes.
    for begin in ["Showing ", "Time: ", "States: ", "Processes: "] {
        if line.starts_with(begin) {
            return format!("^{begin}.*$");
        }
    }
    let parts = [
        r"(?<hex>0x[0-9a-f]+|\b[0-9a-f]{40}\b)",
        &format!(r"(?<unit>\d[\d.,]* ?{UNIT}\b)"),
        r"(?<number>\d[\d.,:]*)",
        r"(?<space>\s+)",
        "(?<any>…)",
    ]
    .join("|");
    let (mut pattern, mut at) = ("^".to_owned(), 0);
    for found in Regex::new(&parts).unwrap().captures_iter(line.trim()) {
        let whole = found.get(0).unwrap();
        pattern += &regex::escape(&line.trim()[at..whole.start()]);
        at = whole.end();
        let is = |name| found.name(name).is_some();
        pattern += &match () {
            () if is("hex") => "[0-9a-fx]+".to_owned(),
            () if is("unit") => format!(r"\d[\d.,]* ?{UNIT}"),
            // `go tool pprof` writes 100 % in the width of `98.80`.
            () if is("number") => r" *\d[\d.,:]*".to_owned(),
            () if is("space") => r"\s+".to_owned(),
            () => ".*".to_owned(),
        };
    }
    format!(r"{pattern}{}.*$", regex::escape(&line.trim()[at..]))
}

fn parts(lines: &[String]) -> Vec<Part> {
    let mut parts = Vec::new();
    for line in lines.iter().filter(|line| !line.trim().is_empty()) {
        let part = match line.trim() {
            "…" => Part::Anything,
            _ if is_row(line) => Part::Rows,
            _ if is_check(line) => Part::Checks,
            _ if is_indented(line) && parts.last() == Some(&Part::Checks) => Part::Checks,
            _ if is_indented(line) => Part::Indented,
            _ => Part::Line(pattern(line)),
        };
        let repeats = matches!(part, Part::Rows | Part::Indented | Part::Checks | Part::Anything);
        if !(repeats && parts.last() == Some(&part)) {
            parts.push(part);
        }
    }
    parts
}

/// Whether the lines have the shape of the parts.
fn has_shape(parts: &[Part], lines: &[&str]) -> bool {
    let Some((part, others)) = parts.split_first() else { return lines.is_empty() };
    let alike = |is: fn(&str) -> bool| lines.iter().take_while(|line| is(line)).count();
    match part {
        Part::Anything => (0..=lines.len()).any(|skipped| has_shape(others, &lines[skipped..])),
        Part::Rows => {
            let rows = alike(is_row);
            rows > 0 && has_shape(others, &lines[rows..])
        }
        Part::Indented => {
            let indented = alike(is_indented);
            indented > 0 && has_shape(others, &lines[indented..])
        }
        Part::Checks => {
            let checks = alike(|line| is_check(line) || is_indented(line));
            checks > 0 && has_shape(others, &lines[checks..])
        }
        Part::Line(pattern) => {
            lines.first().is_some_and(|line| is_match(pattern, line.trim_start()))
                && has_shape(others, &lines[1..])
        }
    }
}

/// Runs the steps of a block in one shell; returns the output of each.
fn run(dir: &Path, steps: &[Step]) -> Vec<String> {
    const MARK: &str = "@@ next step";
    let mut script = "exec 2>&1\ntrap 'kill $(jobs -p) 2> /dev/null' EXIT\n".to_owned();
    for step in steps {
        if let Some(file) = step.command.strip_prefix("cat ") {
            std::fs::write(dir.join(file), step.shown.join("\n") + "\n").unwrap();
        }
        // Background commands have begun when the next command runs.
        let pause = if step.command.ends_with('&') { "\nsleep 1" } else { "" };
        script += &format!("echo '{MARK}'\n{}{pause}\n", step.command);
    }
    let bin = Path::new(env!("CARGO_BIN_EXE_prof")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("bash");
    shell.current_dir(dir).env("PATH", path).env("XDG_CACHE_HOME", dir).args(["-c", &script]);
    let output = shell.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split(&format!("{MARK}\n")).skip(1).map(str::to_owned).collect()
}

/// Runs the console blocks of a document, after a script that prepares them.
fn check(document: &str, before: &str) {
    if !needs(&["python3", "openssl", "gzip", "tar", "perl", "go"]) {
        return;
    }
    if system::tracefs().is_none() {
        return skip("tracefs is not available");
    }
    let dir = temp_dir();
    let prelude = [Step { command: before.to_owned(), shown: Vec::new() }];
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join(document)).unwrap();
    let blocks = blocks(&text);
    assert!(!blocks.is_empty(), "{document} has no console block");
    run(dir.path(), &prelude);
    for steps in blocks {
        if steps.iter().any(|step| step.command.contains("msr/") && !has_msr()) {
            return skip("the machine has no PMU msr");
        }
        for (step, output) in steps.iter().zip(run(dir.path(), &steps)) {
            let lines = output.lines().filter(|line| !depends_on_machine(line));
            let lines: Vec<&str> = lines.filter(|line| !line.trim().is_empty()).collect();
            assert!(
                has_shape(&parts(&step.shown), &lines),
                "{document}: $ {}\nshows\n{}\nbut the output is\n{output}",
                step.command,
                step.shown.join("\n")
            );
        }
    }
}

/// A line about losses, which depend on the load of the machine, or about truncated stacks, which
/// counters have that interrupt the kernel while it saves the user's registers.
fn depends_on_machine(line: &str) -> bool {
    is_match(
        r"^Warning: |^prof: (events were throttled|[\d.]+ % of the value is in truncated)",
        line,
    )
}

fn has_msr() -> bool {
    Path::new("/sys/bus/event_source/devices/msr").exists()
}

/// A JSON file of some megabytes.
const BIG: &str = "python3 -c 'import json; json.dump([[i, str(i), i * 0.37] for i in range(90000)], \
                   open(\"big.json\", \"w\"))'";
/// A recording of bash, as in the README.
const BASH: &str = "prof record -q -F 999 -- bash -c 'for i in {1..200000}; do x=$((i*2)); done'";

#[test]
fn the_readme_shows_what_its_commands_print() {
    check("README.md", "");
}

#[test]
fn the_chapter_on_cpu_time_shows_what_its_commands_print() {
    check("docs/guide/cpu.md", BIG);
}

#[test]
fn the_chapter_on_recording_shows_what_its_commands_print() {
    check("docs/guide/recording.md", BIG);
}

#[test]
fn the_chapter_on_reading_shows_what_its_commands_print() {
    check("docs/guide/reading.md", &format!("{BASH}; {BIG}"));
}

#[test]
fn the_chapter_on_filters_shows_what_its_commands_print() {
    check("docs/guide/filters.md", BASH);
}

#[test]
fn the_chapter_on_time_shows_what_its_commands_print() {
    check("docs/guide/time.md", "");
}

#[test]
fn the_chapter_on_comparing_shows_what_its_commands_print() {
    check("docs/guide/comparing.md", "");
}

#[test]
fn the_chapter_on_source_shows_what_its_commands_print() {
    check("docs/guide/annotate.md", "");
}

#[test]
fn the_chapter_on_trust_shows_what_its_commands_print() {
    let openssl = "prof record -q -d 2 -- openssl speed -seconds 2 sha256";
    check("docs/guide/trust.md", &format!("{openssl}; {BIG}"));
}

#[test]
fn the_chapter_on_top_shows_what_its_commands_print() {
    check("docs/guide/top.md", "");
}

#[test]
fn the_chapter_on_symbols_shows_what_its_commands_print() {
    check("docs/guide/symbols.md", BIG);
}

#[test]
fn the_chapter_on_events_shows_what_its_commands_print() {
    check("docs/guide/events-and-probes.md", "");
}

#[test]
fn the_chapter_on_wall_time_shows_what_its_commands_print() {
    check("docs/guide/wall-time.md", "");
}

#[test]
fn the_chapter_on_locks_shows_what_its_commands_print() {
    check("docs/guide/locks.md", "");
}

#[test]
fn the_chapter_on_io_shows_what_its_commands_print() {
    let tar =
        "tar cf docs.tar /usr/share/doc 2> /dev/null; sync; echo 3 > /proc/sys/vm/drop_caches";
    check("docs/guide/io.md", tar);
}

#[test]
fn the_chapter_on_syscalls_shows_what_its_commands_print() {
    check("docs/guide/syscalls.md", "");
}

#[test]
fn the_chapter_on_threads_shows_what_its_commands_print() {
    check("docs/guide/threads.md", "");
}

#[test]
fn the_chapter_on_allocations_shows_what_its_commands_print() {
    check("docs/guide/heap.md", "");
}

#[test]
fn the_chapter_on_permissions_shows_what_its_commands_print() {
    check("docs/guide/permissions.md", "");
}

#[test]
fn the_chapters_for_users_of_other_tools_show_what_their_commands_print() {
    check("docs/guide/for-perf-users.md", BIG);
    check("docs/guide/for-pprof-users.md", "");
    check("docs/guide/for-users-of-other-profilers.md", "");
}

#[test]
fn shapes_have_words_and_no_figures() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let shown = parts(&lines(
        "Showing 5 of 264 rows: 85.09 ms, 29.82% (259 left out)\n  self% name\n\
                              1.5 ms 2% a\n2.5 ms 3% b\n…",
    ));
    let good = ["Showing 1 row: 85.1 s, 100.0%", "     self%  name", "3 s 4.0% c", "whatever"];
    assert!(has_shape(&shown, &good));
    assert!(!has_shape(&shown, &good[1..]), "a line is missing");
    assert!(!has_shape(&shown, &["Showing 1 row: 1 s", "self% state", "3 s 4.0% c"]), "a word");
    assert!(!has_shape(&shown, &["Showing 1 row: 1 s", "self% name"]), "no row");
}

/// A blank line within a table makes text of the rows behind it.
#[test]
fn each_row_is_part_of_a_table_with_titles() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pending = vec![root.join("docs")];
    let mut files: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
            .map(|name| root.join(name))
            .to_vec();
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                files.push(path);
            }
        }
    }
    let mut tables = 0;
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            let begins = line.starts_with('|') && (i == 0 || !lines[i - 1].starts_with('|'));
            if begins {
                tables += 1;
                let rule = lines.get(i + 1).copied().unwrap_or_default();
                let is_rule = rule.starts_with('|') && !rule.contains(|c| !"|-: ".contains(c));
                assert!(is_rule, "{}:{}: {line}", path.display(), i + 1);
            }
        }
    }
    assert!(tables > 100, "{tables} tables");
}
