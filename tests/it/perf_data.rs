//! Recordings of perf: all commands read them, and what they show is what perf shows.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::common::run::perf;
use crate::common::{Prof, needs, temp_dir};

/// Functions with known names, in recursion, and page faults of the kernel.
const PROGRAM: &str = r#"
#include <string.h>
#include <sys/mman.h>
volatile unsigned long sum;
__attribute__((noinline)) void leaf(int n) { for (int i = 0; i < n; i++) sum += i * i; }
__attribute__((noinline)) void recursion(int depth) {
    if (depth) { recursion(depth - 1); sum++; } else leaf(100000);
}
__attribute__((noinline)) void faults(void) {
    void *memory = mmap(0, 1 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, 1 << 20);
    munmap(memory, 1 << 20);
}
int main(void) { for (int i = 0; i < 400; i++) { recursion(20); faults(); } }
"#;

/// The functions of the program.
const FUNCTIONS: [&str; 4] = ["leaf", "recursion", "faults", "main"];

/// A directory with the program, or `None` without the tools.
fn lab() -> Option<TempDir> {
    if !needs(&["perf", "gcc"]) {
        return None;
    }
    let dir = temp_dir();
    build(dir.path(), "-O1");
    Some(dir)
}

fn build(dir: &Path, option: &str) {
    std::fs::write(dir.join("program.c"), PROGRAM).unwrap();
    let args = ["-g", option, "-fno-omit-frame-pointer", "-Wl,--build-id", "-o"];
    let mut gcc = Command::new("gcc");
    let gcc = gcc.current_dir(dir).args(args).args(["program", "program.c"]);
    assert!(gcc.status().unwrap().success());
}

/// Records the program with perf.
fn record(dir: &Path, args: &str) {
    perf(|command| {
        let words = args.split_ascii_whitespace();
        command.current_dir(dir).args(["record", "-q", "-o", "perf.data"]).args(words);
        command.args(["--", "./program"]);
    });
}

/// The recording as text, by perf.
fn script(dir: &Path) {
    let out = perf(|command| {
        command.current_dir(dir).args(["script", "-i", "perf.data"]);
    });
    std::fs::write(dir.join("script.txt"), out.stdout).unwrap();
}

/// Values of each function: as the leaf, and anywhere on the stack.
type Totals = BTreeMap<String, [i64; 2]>;

/// The sum and the totals of the program's functions, from collapsed stacks.
fn totals(folded: &str) -> (i64, Totals) {
    let (mut sum, mut totals) = (0, Totals::new());
    for line in folded.lines() {
        let (stack, value) = line.rsplit_once(' ').unwrap();
        let value: i64 = value.parse().unwrap();
        sum += value;
        let frames: Vec<&str> = stack.split(';').collect();
        for function in FUNCTIONS {
            let entry = totals.entry(function.to_owned()).or_default();
            entry[0] += if frames.last() == Some(&function) { value } else { 0 };
            entry[1] += if frames.contains(&function) { value } else { 0 };
        }
    }
    (sum, totals)
}

/// Whose unwinder made the stacks that perf prints.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unwinder {
    /// The kernel: prof reads the same stacks.
    Kernel,
    /// perf: at some instructions it finds no caller, where prof does.
    Perf,
}

/// Compares the recording with perf's text of it, in each of these sample types.
fn agrees(dir: &TempDir, unwinder: Unwinder, types: &[&str]) {
    script(dir.path());
    let folded = |file: &str, kind: &str| {
        let args = format!("export {file} --to collapsed --type {kind}");
        totals(&Prof::new(dir, &args).run().ok().text())
    };
    for kind in types {
        let (sum, ours) = folded("perf.data", kind);
        assert!(sum > 0 && ours["main"][1] > 0, "{kind}: {ours:?}");
        let (perf_sum, theirs) = folded("script.txt", kind);
        assert_eq!(sum, perf_sum, "{kind}");
        for (function, [own, total]) in &ours {
            let [perf_own, perf_total] = theirs[function];
            let is_right = match unwinder {
                Unwinder::Kernel => *total == perf_total,
                Unwinder::Perf => *total >= perf_total,
            };
            assert!(*own == perf_own && is_right, "{kind}: {ours:?}, perf: {theirs:?}");
        }
    }
}

#[test]
fn functions_have_the_values_of_perf_script() {
    let Some(dir) = lab() else { return };
    for args in [
        "-e cpu-clock -F 997 --call-graph fp",
        "-e cpu-clock -F 997 --call-graph dwarf",
        "-e cpu-clock -F 499 -g --call-graph dwarf,64000",
        "-e cpu-clock -F 997 --call-graph fp -z",
        "-e cpu-clock -F 997 --call-graph fp --buildid-mmap",
        "-e task-clock -c 1000000 -g",
    ] {
        record(dir.path(), args);
        let is_copied = args.contains("dwarf");
        let unwinder = if is_copied { Unwinder::Perf } else { Unwinder::Kernel };
        agrees(&dir, unwinder, &["cpu", "samples"]);
    }
    record(dir.path(), "-e cpu-clock,page-faults -c 1000 -g");
    agrees(&dir, Unwinder::Kernel, &["cpu", "page-faults", "samples"]);
    let report = Prof::new(&dir, "report perf.data --type cpu").run().ok().text();
    assert!(report.contains("leaf") && report.contains("program"), "{report}");
    let labels = Prof::new(&dir, "report perf.data --sort process,thread").run().ok().text();
    assert!(labels.contains("program"), "{labels}");
}

#[test]
fn groups_and_directories_have_the_values_of_perf_script() {
    let Some(dir) = lab() else { return };
    record(dir.path(), "-e {cpu-clock,page-faults}:S -F 997 -g");
    // Each event of a group is a line of the text, and a sample of the recording has both.
    agrees(&dir, Unwinder::Kernel, &["cpu", "page-faults"]);
    std::fs::remove_file(dir.path().join("perf.data")).unwrap();
    record(dir.path(), "--threads -e cpu-clock -F 997 -g");
    assert!(dir.path().join("perf.data/data.0").is_file());
    agrees(&dir, Unwinder::Kernel, &["cpu", "samples"]);
}

#[test]
fn the_kernel_is_named_by_its_build_id_only() {
    let Some(dir) = lab() else { return };
    record(dir.path(), "-e cpu-clock -F 997 -g");
    let report = |args: &str| Prof::new(&dir, args).run().ok().text();
    let named = report("report perf.data -n 0");
    assert!(named.contains("[kernel.kallsyms]") && named.contains("page_fault"), "{named}");
    // perf has no build IDs of a compressed recording.
    record(dir.path(), "-e cpu-clock -F 997 -g -z");
    let unnamed = report("report perf.data -n 0");
    assert!(unnamed.contains("[kernel.unidentified]"), "{unnamed}");
    assert!(!unnamed.contains("page_fault"), "{unnamed}");
    let header = report("report perf.data --header-only");
    assert!(header.contains("kernel-unidentified"), "{header}");
    assert!(header.contains("cmdline: ") && header.contains("perf record -q"), "{header}");
}

#[test]
fn a_stream_of_perf_is_read_from_standard_input() {
    let Some(dir) = lab() else { return };
    let command = "perf record -q -e cpu-clock -F 997 -g -o - -- ./program > stream";
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", command]).current_dir(&dir).stdin(Stdio::null());
    assert!(shell.output().unwrap().status.success());
    let file = Prof::new(&dir, "export stream --to collapsed").run().ok().text();
    let (sum, found) = totals(&file);
    assert!(sum > 0 && found["leaf"][0] > 0, "{found:?}");
    let prof = env!("CARGO_BIN_EXE_prof");
    for source in ["cat stream", "gzip -c stream"] {
        let line = format!("{source} | {prof} export - --to collapsed");
        let out = Command::new("sh").args(["-c", &line]).current_dir(&dir).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stdout), file, "{source}");
    }
    // A file whose header refers to what comes later.
    record(dir.path(), "-e cpu-clock -F 997 -g");
    let folded = |line: &str| {
        let out = Command::new("sh").args(["-c", line]).current_dir(&dir).output().unwrap();
        totals(&String::from_utf8_lossy(&out.stdout))
    };
    let file = folded(&format!("{prof} export perf.data --to collapsed"));
    assert!(file.0 > 0);
    assert_eq!(folded(&format!("cat perf.data | {prof} export - --to collapsed")), file);
}

#[test]
fn names_are_those_of_the_recorded_build() {
    let Some(dir) = lab() else { return };
    record(dir.path(), "-e cpu-clock -F 997 --call-graph dwarf");
    let folded = |args: &str| totals(&Prof::new(&dir, args).run().ok().text()).1["leaf"][0];
    let before = folded("export perf.data --to collapsed");
    assert!(before > 0);
    // Another build at its path, and the recorded one elsewhere.
    std::fs::create_dir(dir.path().join("kept")).unwrap();
    std::fs::rename(dir.path().join("program"), dir.path().join("kept/program")).unwrap();
    build(dir.path(), "-O2");
    assert_eq!(folded("export perf.data --to collapsed"), 0);
    let header = Prof::new(&dir, "report perf.data --header-only").run().ok().text();
    assert!(header.contains("build-id-differs"), "{header}");
    let found = "export perf.data --to collapsed --symbol-path kept";
    assert_eq!(folded(found), before);
    assert_eq!(folded("flame --folded perf.data --symbol-path kept"), before);
}

#[test]
fn copied_stacks_are_unwound_with_binaries_of_the_symbol_path() {
    let Some(dir) = lab() else { return };
    let kept = dir.path().join("kept");
    std::fs::create_dir(&kept).unwrap();
    for args in ["", "--buildid-mmap"] {
        record(dir.path(), &format!("-e cpu-clock -F 997 --call-graph dwarf {args}"));
        let stacks = |options: &str| {
            let args = format!("export perf.data --to collapsed {options}");
            Prof::new(&dir, &args).run().ok().text()
        };
        let before = stacks("");
        assert!(before.contains("main;recursion;recursion;"), "{before}");
        std::fs::rename(dir.path().join("program"), kept.join("program")).unwrap();
        assert_eq!(stacks("--symbol-path kept"), before, "{args}");
        // Without it, the leaf is an address, and its stack has the reason.
        let gone = stacks("");
        let leaf = gone.lines().find(|line| line.contains("program+0x")).unwrap();
        assert!(leaf.starts_with("[truncated: binary could not be opened];"), "{leaf}");
        // So it is with another build of the same name.
        std::fs::rename(kept.join("program"), dir.path().join("recorded")).unwrap();
        build(dir.path(), "-O2");
        std::fs::rename(dir.path().join("program"), kept.join("program")).unwrap();
        let other = stacks("--symbol-path kept");
        let leaf = other.lines().find(|line| line.contains("program+0x")).unwrap();
        assert!(leaf.starts_with("[truncated: binary replaced];"), "{leaf}");
        std::fs::rename(dir.path().join("recorded"), dir.path().join("program")).unwrap();
    }
}

#[test]
fn all_commands_read_recordings_of_perf() {
    let Some(dir) = lab() else { return };
    record(dir.path(), "-e cpu-clock -F 997 -g");
    let run = |args: &str| Prof::new(&dir, args).run().ok().text();
    let folded = totals(&run("export perf.data --to collapsed"));
    for args in [
        "export perf.data -o a.pb.gz",
        "merge perf.data -o a.pb.gz",
        "symbolize perf.data -o a.pb.gz",
    ] {
        run(args);
        assert_eq!(totals(&run("export a.pb.gz --to collapsed")), folded, "{args}");
    }
    assert!(run("flame perf.data").contains("leaf"));
    assert!(run("graph perf.data").contains("leaf"));
    assert!(run("diff perf.data a.pb.gz -n 0").contains("leaf"));
    assert!(run("annotate leaf perf.data").contains("sum += i * i"));
    let refused = Prof::new(&dir, "symbolize perf.data").run();
    refused.refused(1, &["perf.data is perf.data", "-o"]);
}

#[test]
fn a_damaged_recording_of_perf_is_one_line() {
    let Some(dir) = lab() else { return };
    record(dir.path(), "-e cpu-clock -F 997 -g");
    let whole = std::fs::read(dir.path().join("perf.data")).unwrap();
    for length in [12, 50, 400, whole.len() / 2, whole.len() - 1] {
        std::fs::write(dir.path().join("cut.data"), &whole[..length]).unwrap();
        let refused = Prof::new(&dir, "report cut.data").run();
        refused.refused(1, &["cut.data: not valid perf.data: it is cut off"]);
    }
}
