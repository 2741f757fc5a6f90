//! Large programs from their first instruction on, at 4,999 Hz: samples lost, the longest time away
//! from the rings, and memory, when nothing about their code is known yet.
//!
//! cargo bench --bench first_seconds [-- --hz 4999 --rounds 3]
//!
//! Each has run once just before, so that its files are in the page cache. perf copies as much of
//! each stack.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::units::{count, size};
use support::{Figures, claim, option, peer};

/// Functions of the Go program, and its size in bytes, most of which is data.
const GO_FUNCTIONS: usize = 5000;
const GO_SIZE: usize = 600 << 20;

/// Functions of the Rust program that rustc compiles.
const GENERIC_FUNCTIONS: usize = 200;

/// A program with its arguments.
struct Program {
    name: &'static str,
    /// The program, and the Debian package that has it.
    needs: (&'static str, &'static str),
    arguments: Vec<String>,
}

fn arguments(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Writes a source file.
fn source(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("a file below target/");
    path.display().to_string()
}

/// A Go program as programs are released: without symbols and debug information.
fn go_program() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-go");
    let program = dir.join("program");
    if program.exists() {
        return program;
    }
    std::fs::create_dir_all(&dir).expect("target/tmp can be written");
    std::fs::write(dir.join("data"), vec![7; GO_SIZE]).expect("a file below target/");
    let mut text = String::from(
        "package main\n\nimport (\n\t_ \"embed\"\n\t\"fmt\"\n\t\"sort\"\n\t\"time\"\n)\n\n\
         //go:embed data\nvar data string\n\n",
    );
    for i in 0..GO_FUNCTIONS {
        text += &format!(
            "//go:noinline\nfunc f{i}(x []int, d int) int {{\n\tif d == 0 {{\n\t\ty := append([]int{{}}, x...)\n\
             \t\tsort.Ints(y)\n\t\treturn y[0] + len(fmt.Sprint(y[1], {i}))\n\t}}\n\
             \treturn all[(d*{i}+x[0])%len(all)](x, d-1) + {i}\n}}\n\n"
        );
    }
    text += "var all []func([]int, int) int\n\nfunc init() {\n\tall = []func([]int, int) int{\n";
    (0..GO_FUNCTIONS).for_each(|i| text += &format!("\t\tf{i},\n"));
    text += "\t}\n}\n\nfunc main() {\n\tx := make([]int, 64)\n\tfor i := range x {\n\t\tx[i] = i * 7919 % 64\n\t}\n\
             \tsum := len(data)\n\tfor t := time.Now(); time.Since(t) < 2*time.Second; {\n\
             \t\tx[0]++\n\t\tsum += all[x[0]%len(all)](x, 20)\n\t}\n\tfmt.Println(sum)\n}\n";
    source(&dir, "main.go", &text);
    source(&dir, "go.mod", "module program\n\ngo 1.19\n");
    let mut build = Command::new("go");
    build.args(["build", "-ldflags=-s -w", "-o", "program"]).current_dir(&dir);
    assert!(build.status().expect("go").success(), "{build:?}");
    program
}

fn programs(dir: &Path) -> Vec<Program> {
    let mut text = "class Many {\n".to_owned();
    for i in 0..400 {
        text += &format!(
            "  static <T extends Comparable<T>> T f{i}(java.util.List<T> x) {{ return x.stream()\
             .map(a -> a).filter(a -> a != null).sorted().findFirst().get(); }}\n"
        );
    }
    let java = source(dir, "Many.java", &(text + "}\n"));
    let cpp = source(
        dir,
        "many.cc",
        &(0..60).fold("#include <map>\n#include <regex>\n#include <string>\n".to_owned(), |text, i| {
            text + &format!(
                "bool f{i}(const std::string &s, std::map<std::string, int> &m) {{ m[s] += {i}; return \
                 std::regex_search(s, std::regex(\"a{i}+b*\")); }}\n"
            )
        }),
    );
    let script = source(
        dir,
        "work.js",
        "const end = Date.now() + 2000; let n = 0;\nwhile (Date.now() < end) {\n  const a = [...Array(999)]\
         .map((_, i) => ({ k: `key${i * 7919 % 999}`, v: i }));\n  a.sort((x, y) => x.k < y.k ? -1 : 1);\n\
         n += JSON.parse(JSON.stringify(a)).length + /9+8/.exec(a.map(x => x.k).join()).index;\n}\n\
         console.log(n);\n",
    );
    // As a program, it is compiled with all of its functions.
    support::generic_program(GENERIC_FUNCTIONS);
    let rust = format!("{}/generic_{GENERIC_FUNCTIONS}.rs", env!("CARGO_TARGET_TMPDIR"));
    let out = |name: &str| dir.join(name).display().to_string();
    let program = |name, needs, arguments| Program { name, needs, arguments };
    vec![
        program(
            "Chromium, an empty page",
            ("chromium", "chromium"),
            arguments(&["chromium", "--headless", "--no-sandbox", "--dump-dom", "about:blank"]),
        ),
        program(
            "javac",
            ("javac", "default-jdk-headless"),
            arguments(&["javac", "-d", &out("java"), &java]),
        ),
        program(
            "Go, stripped, 600 MiB",
            ("go", "golang-go"),
            if support::has("go") { vec![go_program().display().to_string()] } else { Vec::new() },
        ),
        program(
            "clang++ -O2",
            ("clang++", "clang"),
            arguments(&["clang++", "-O2", "-c", &cpp, "-o", &out("many.o")]),
        ),
        program(
            "rustc -O",
            ("rustc", "rustc"),
            arguments(&["rustc", "--edition=2024", "-O", "-g", "-o", &out("generic"), &rust]),
        ),
        program("node", ("node", "nodejs"), arguments(&["node", &script])),
    ]
}

/// The number in front of a text.
fn number_before(text: &str, what: &str) -> Option<f64> {
    text[..text.find(what)?].split_whitespace().next_back()?.replace(',', "").parse().ok()
}

/// The number behind a text.
fn number_after(text: &str, what: &str) -> Option<f64> {
    let behind = &text[text.find(what)? + what.len()..];
    behind.split_whitespace().next()?.trim_end_matches(',').parse().ok()
}

/// One recording.
struct Run {
    samples: f64,
    lost: f64,
    /// Milliseconds.
    pause: f64,
    /// Bytes.
    peak: f64,
}

fn prof(program: &Program, hz: u32, dir: &Path) -> Option<Run> {
    let mut command = support::prof();
    command.args(["record", "-v", "--no-symbolize", "-F", &hz.to_string(), "-o"]);
    command.arg(dir.join("prof.pb.gz")).arg("--").args(&program.arguments);
    let output = command.stdout(Stdio::null()).output().expect("prof");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let run = || {
        Some(Run {
            samples: number_before(&stderr, " samples")?,
            lost: number_before(&stderr, " lost, ")?,
            pause: number_after(&stderr, "away from the rings ")?,
            peak: number_after(&stderr, "peak memory ")? * 1048576.0,
        })
    };
    let found = run();
    if found.is_none() {
        println!("failed: {command:?}\n{stderr}");
    }
    found
}

/// The share of samples that perf loses, in percent.
fn perf(program: &Program, hz: u32, dir: &Path) -> Option<f64> {
    let file = dir.join("perf.data");
    let mut command = Command::new("perf");
    command.args(["record", "-e", "cpu-clock", "--call-graph", "dwarf,32768", "-F"]);
    command.arg(hz.to_string()).arg("-o").arg(&file).arg("--").args(&program.arguments);
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
    let mut report = Command::new("perf");
    report.args(["report", "--stats", "-i"]).arg(&file);
    let output = report.stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let taken = number_after(&text, "SAMPLE events:").unwrap_or(0.0);
    let lost = number_after(&text, "LOST_SAMPLES events:").unwrap_or(0.0);
    let records = number_after(&text, "LOST events:").unwrap_or(0.0);
    std::fs::remove_file(&file).ok();
    (taken > 0.0).then(|| 100.0 * (lost + records) / (taken + lost + records))
}

fn main() {
    let hz: u32 = option("hz", 4999);
    let rounds: usize = option("rounds", 3);
    let with_perf = support::has_or_advise("perf", "linux-perf");
    let dir = support::temp_dir();
    std::fs::create_dir(dir.path().join("java")).expect("a directory below target/");
    let mut figures = Figures::new(&[
        "Program",
        "samples",
        "lost by prof",
        "longest time away from the rings",
        "peak memory of prof, with rings",
        "LOST records of perf, of its records",
    ]);
    figures.conditions(&format!("{} Hz, the most of {rounds} runs.", count(u64::from(hz))));
    for program in programs(dir.path()) {
        if !support::has_or_advise(program.needs.0, program.needs.1) {
            continue;
        }
        let mut warm = Command::new(&program.arguments[0]);
        warm.args(&program.arguments[1..]).stdout(Stdio::null()).stderr(Stdio::null());
        warm.status().expect("it could be started");
        let runs: Vec<Run> = (0..rounds).filter_map(|_| prof(&program, hz, dir.path())).collect();
        let most = |of: &dyn Fn(&Run) -> f64| runs.iter().map(of).fold(0.0, f64::max);
        let theirs = if with_perf { perf(&program, hz, dir.path()) } else { None };
        let lost = most(&|r| r.lost);
        figures.row(
            program.name,
            [
                count(most(&|r| r.samples) as u64),
                count(lost as u64),
                format!("{:.1} ms", most(&|r| r.pause)),
                size(most(&|r| r.peak)),
                peer(theirs, support::units::percent),
            ],
        );
        for run in &runs {
            println!(
                "{}: {} samples, {} lost, {} ms",
                program.name, run.samples, run.lost, run.pause
            );
        }
        claim(lost == 0.0 && !runs.is_empty(), &format!("{}: no sample is lost", program.name));
    }
    figures.publish();
}
