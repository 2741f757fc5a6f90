//! The same samples, unwound by perf and by prof's unwinder: the same registers, stack dumps and
//! mappings, out of one perf.data file. If perf reaches the root, both stacks are equal, frame by
//! frame.

use std::collections::HashMap;
use std::path::Path;

use crate::common;
use crate::common::recorded::{Item, Replay};
use crate::common::run;
use crate::common::{Build, needs, recorded, target, temp_dir};

/// The outermost functions of perf's whole stacks.
const ROOTS: &[&str] = &["_start", "_dl_start_user", "clone3", "__clone3"];

/// A stack as perf prints it: offsets in files, and the name of the outermost function.
#[derive(Debug)]
struct Theirs {
    offsets: Vec<u64>,
    outermost: String,
}

/// (tid, time) → stack, by `perf script`.
fn perf_script(data: &Path) -> HashMap<(i32, u64), Theirs> {
    let text = run::perf(|script| {
        script.args(["script", "--no-inline", "--ns", "-F", "tid,time,ip,sym,dso", "-i"]).arg(data);
    })
    .text();
    let mut stacks = HashMap::new();
    for block in text.split("\n\n") {
        let mut lines = block.lines().filter(|l| !l.trim().is_empty());
        let Some((tid, time)) = lines.next().and_then(|l| l.trim().split_once(' ')) else {
            continue;
        };
        let nanoseconds: String = time.chars().filter(char::is_ascii_digit).collect();
        let (Ok(tid), Ok(time)) = (tid.parse(), nanoseconds.parse()) else { continue };
        let user = lines.filter(|l| !l.contains("([kernel") && !l.contains("([guest"));
        let frames: Vec<(u64, &str)> = user
            .filter_map(|l| {
                let (address, name) = l.trim().split_once(' ')?;
                Some((u64::from_str_radix(address, 16).ok()?, name))
            })
            .collect();
        let name = frames.last().map_or("", |(_, n)| n.split([' ', '@', '+']).next().unwrap());
        let outermost = name.to_string();
        let offsets = frames.iter().map(|f| f.0).collect();
        stacks.insert((tid, time), Theirs { offsets, outermost });
    }
    stacks
}

#[track_caller]
fn compare(name: &str, program: &Path, args: &[&str]) {
    if !needs(&["perf"]) {
        return;
    }
    let dir = temp_dir();
    let data = dir.path().join("perf.data");
    run::perf(|record| {
        record.args(["record", "-q", "-e", "cpu-clock:u", "-F", "997", "--call-graph"]);
        record.args(["dwarf,65528", "-o"]).arg(&data).arg("--").arg(program).args(args);
    });
    let theirs = perf_script(&data);
    let mut replay = Replay::default();
    let (mut roots, mut equal, mut more, mut delivering) = (0, 0, 0, 0);
    let mut different = Vec::new();
    for item in &recorded::read(&data) {
        let end = replay.take(item);
        let Item::Sample(sample) = item else { continue };
        let Some(theirs) = theirs.get(&(sample.tid, sample.time)) else { continue };
        let ours = replay.offsets(sample.pid);
        if !ROOTS.contains(&theirs.outermost.as_str()) {
            more += usize::from(end == Some(unwind::StackEnd::Complete));
            continue;
        }
        roots += 1;
        if ours == theirs.offsets {
            equal += 1;
            continue;
        }
        // A handler's registers have replaced those that led to the caller: perf goes on with them,
        // prof ends the stack and marks it.
        if end == Some(unwind::StackEnd::ExceptionDelivery) {
            delivering += 1;
            continue;
        }
        different.push(format!("prof {ours:x?} ({end:?})\nperf {:x?}", theirs.offsets));
    }
    let line = format!(
        "frame by frame: {name}: {equal} of {roots} stacks equal perf's ({:.2} %), {more} more are \
         whole by prof only\n",
        100.0 * f64::from(equal) / f64::from(roots.max(1))
    );
    // Not eprintln, which the test harness would capture.
    std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).ok();
    assert!(roots >= 100, "perf reached the root in {roots} samples");
    assert!(delivering * 100 <= roots, "{delivering} of {roots} stacks in delivery: {line}");
    // None differed in any run so far, so no exception is listed: a difference is a fault of one of
    // the two, to be examined and, if it is perf's, to be named here.
    assert!(different.is_empty(), "{line}{}", different.join("\n"));
}

#[test]
fn cpp_frames_equal_those_of_perf() {
    compare("C++", &target("stacks", Build::Cpp), &["inlined", "0.4"]);
}

/// Frames of libgcc's unwinder, of assembly, and those whose unwind information is an expression.
#[test]
fn cpp_frames_in_exceptions_copies_and_aligned_code_equal_those_of_perf() {
    for mode in ["exceptions", "copies", "aligned"] {
        compare(&format!("C++ {mode}"), &target("stacks", Build::Cpp), &[mode, "0.4"]);
    }
}

#[test]
fn rust_frames_equal_those_of_perf() {
    compare("Rust", &target("stacks", Build::Rust), &["1"]);
}

#[test]
fn python_frames_equal_those_of_perf() {
    let python = Path::new("/usr/bin/python3");
    if !python.exists() {
        return common::skip("/usr/bin/python3 is not installed");
    }
    let script = common::targets::source("extensions.py");
    compare("python3", python, &[script.to_str().unwrap(), "1"]);
}
