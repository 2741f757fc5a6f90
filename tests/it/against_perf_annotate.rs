//! Instructions and lines have the samples that `perf annotate` shows for the same run.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use regex::Regex;
use serde_json::Value;

use crate::common::run::run;
use crate::common::{
    Counts, PerfRecording, Prof, ProfRecording, Waiting, distance_of_equals, manhattan, needs,
    one_of_three, temp_dir,
};

/// Divisions, additions and an inlined function, in a loop without end.
const PROGRAM: &str = "#include <stdio.h>
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
    puts(\"ready\");
    fflush(stdout);
    getchar();
    long t = 0;
    for (long i = 0; t != 42; i = (i + 1) % 1000)
        t += work(1000000 + i);
}
";

/// Samples of the instructions, as `at ADDRESS`, and of the lines, as `line NUMBER`.
#[derive(Default)]
struct Annotated {
    instructions: Counts,
    lines: Counts,
}

impl Annotated {
    fn add(&mut self, address: u64, line: &str, samples: u64) {
        if samples > 0 {
            *self.instructions.entry(format!("at {address:x}")).or_default() += samples;
            *self.lines.entry(format!("line {line}")).or_default() += samples;
        }
    }

    /// As `perf annotate` shows the function.
    fn by_perf(data: &Path) -> Annotated {
        let mut perf = Command::new("perf");
        perf.args(["annotate", "--stdio", "-n", "-s", "work", "-i"]).arg(data).stdin(Stdio::null());
        let text = run(perf).ok().text();
        let source = Regex::new(r"^ +: +(\d+) ").unwrap();
        let instruction = Regex::new(r"^ *(\d+) +: +([0-9a-f]+): ").unwrap();
        let (mut found, mut line) = (Annotated::default(), String::new());
        for row in text.lines() {
            if let Some(number) = source.captures(row) {
                line = number[1].to_owned();
            } else if let Some(row) = instruction.captures(row) {
                let address = u64::from_str_radix(&row[2], 16).unwrap();
                found.add(address, &line, row[1].parse().unwrap());
            }
        }
        found
    }

    /// As `prof annotate` shows it.
    fn by_prof(dir: &Path) -> Annotated {
        let out = Prof::new(dir, "annotate --json --asm --type samples work").run().ok();
        let v: Value = serde_json::from_str(&out.text()).unwrap();
        let instructions = v["listings"][0]["code"][0]["pieces"][0]["instructions"].as_array();
        let mut found = Annotated::default();
        for row in instructions.unwrap() {
            let line = row["source"][0]["line"].to_string();
            found.add(row["address"].as_u64().unwrap(), &line, row["self"].as_u64().unwrap());
        }
        found
    }
}

/// The distance of two profiles of one run is within the limits of two permutation tests (p = 0.001),
/// in one of three recordings: a right profile fails once in a hundred million times.
#[test]
fn instructions_and_lines_have_the_samples_of_perf_annotate() {
    if !needs(&["perf", "objdump", "gcc"]) {
        return;
    }
    one_of_three("the distance to perf annotate", as_near_as_perf_annotate);
}

/// One recording by prof, and two by perf.
fn as_near_as_perf_annotate() -> Result<(), String> {
    let dir = temp_dir();
    fs::write(dir.path().join("work.c"), PROGRAM).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.current_dir(&dir).args(["-O2", "-g", "-o", "work", "work.c"]);
    run(gcc).ok();
    let mut program = Waiting::start(&mut Command::new(dir.path().join("work")));
    let pid = program.pid();
    let perf = |name: &str| {
        let args = format!("-F 999 -e cpu-clock -p {pid}");
        PerfRecording::start(dir.path(), name, &args)
    };
    let args = format!("-F 999 -e cpu-clock -d 4s -p {pid}");
    let (one, two) = (perf("one.data"), perf("two.data"));
    let ours = ProfRecording::start(dir.path(), "profile.pb.gz", &args);
    program.go();
    ours.finish();
    one.finish();
    two.finish();
    program.stop();
    let ours = Annotated::by_prof(dir.path());
    let [one, two] =
        ["one.data", "two.data"].map(|name| Annotated::by_perf(&dir.path().join(name)));
    let check = |what: &str, ours: &Counts, one: &Counts, two: &Counts| {
        assert!(ours.values().sum::<u64>() > 1000, "{ours:?}");
        // Both runs of perf together are the best reference that there is.
        let mut perf = one.clone();
        two.iter().for_each(|(name, n)| *perf.entry(name.clone()).or_default() += n);
        let (distance, limit) = (manhattan(ours, &perf), distance_of_equals(ours, &perf));
        println!("{what}: {distance:.4}, equals differ by less than {limit:.4}");
        if distance > limit {
            return Err(format!("{what}: {distance} > {limit}:\n{ours:?}\n{perf:?}"));
        }
        Ok(())
    };
    assert!(ours.instructions.len() >= 5 && ours.lines.len() >= 2, "{:?}", ours.instructions);
    check("instructions", &ours.instructions, &one.instructions, &two.instructions)?;
    check("lines", &ours.lines, &one.lines, &two.lines)
}
