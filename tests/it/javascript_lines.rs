//! Lines of JavaScript that V8 has compiled, and functions that it has inlined.

use crate::common::temp_dir;
use crate::interpreted_languages::JAVASCRIPT;

/// Optimized functions, of which two are inlined: each call has its line, and what it calls is C++.
const INLINED: &str = "\
const values = Array.from({ length: 2000 }, (_, i) => `${i}`);
function inner(n) {
  return n +
    JSON.stringify(values).length; // inner
}
function middle(n) {
  let sum = n;
  sum += inner(n + 1); // middle
  return sum;
}
function outer(count) {
  let sum = 0;
  for (let i = 0; i < count; i++) {
    sum += middle(i); // outer
  }
  return sum;
}
function work() {
  const start = process.cpuUsage().user;
  while (process.cpuUsage().user - start < 1500e3) {
    outer(50);
  }
}
work();
";

#[test]
fn inlined_functions_of_javascript_have_frames_and_lines() {
    let language = JAVASCRIPT.with(&["node", "--single-threaded"]);
    let dir = temp_dir();
    let Some(recorded) = language.record(dir.path(), "-F 999", INLINED) else { return };
    let line = |mark: &str| {
        let has = |line: &str| line.ends_with(&format!(" // {mark}"));
        1 + INLINED.lines().position(has).unwrap() as i64
    };
    let expected = ["inner", "middle", "outer"].map(|name| (name, line(name)));
    let (mut whole, mut all) = (0, 0);
    for sample in recorded.recognized() {
        let frames = recorded.frames(sample);
        let Some(at) = frames.iter().position(|frame| frame.function == "inner") else { continue };
        // Optimized code has lines of calls; the other frames are known.
        let found: Vec<_> = frames[at..].iter().map(|frame| (frame.function, frame.line)).collect();
        all += 1;
        whole += usize::from(found.starts_with(&expected));
    }
    let has_all = |location: &u64| {
        recorded.profile.lines[location]
            .starts_with(&["inner", "middle", "outer"].map(str::to_owned))
    };
    let inlined = recorded.profile.lines.keys().filter(|location| has_all(location)).count();
    println!("{whole} of {all} have all lines; {inlined} locations have inlined functions");
    assert!(all > 500 && whole * 100 >= all * 90 && inlined > 0, "{whole} of {all}, {inlined}");
}

/// Loops that V8 optimizes while they run: of the script, and one in another in a function. What they
/// call is inlined, one function into the other; none calls C++ for long.
const LOOPS: &str = "\
const used = () => process.cpuUsage().user;
function deep(n) {
  let s = n;
  for (let k = 0; k < 50; k++) { // deep
    s = (s * 31 + k) | 0; // deep
  }
  return s;
}
function shallow(n) {
  const m = n ^ 5;
  return 1 +
    deep(m); // shallow
}
function nested(start) {
  let sum = 0;
  while (used() - start < 800e3) {
    for (let i = 0; i < 20; i++) {
      for (let j = 0; j < 1000; j++) {
        sum = (sum +
          shallow(j)) | 0; // nested
      }
    }
  }
  return sum;
}
let total = 0;
const start = used();
while (used() - start < 800e3) {
  for (let i = 0; i < 20000; i++) {
    total ^=
      deep(i); // script
  }
}
nested(used()); // call
";

#[test]
fn loops_that_are_optimized_while_they_run_have_lines_and_inlined_functions() {
    let language = JAVASCRIPT.with(&["node", "--single-threaded"]);
    let dir = temp_dir();
    let Some(recorded) = language.record(dir.path(), "-F 999", LOOPS) else { return };
    let has_mark = |line: i64, mark: &str| {
        let text = LOOPS.lines().nth(usize::try_from(line - 1).unwrap()).unwrap();
        text.ends_with(&format!(" // {mark}"))
    };
    let script = "(anonymous:1)";
    // Functions, the innermost first, and the lines of the calls.
    let chains: [(&[&str], &[&str]); 2] = [
        (&["deep", script], &["script"]),
        (&["deep", "shallow", "nested", script], &["shallow", "nested", "call"]),
    ];
    let (mut whole, mut all, mut inlined) = ([0; 2], [0; 2], [0; 2]);
    for sample in recorded.recognized() {
        let frames = recorded.frames(sample);
        if frames.first().is_none_or(|frame| frame.function != "deep") {
            continue;
        }
        let kind = usize::from(frames.iter().any(|frame| frame.function == "nested"));
        let (functions, calls) = chains[kind];
        let found: Vec<&str> = frames.iter().map(|frame| frame.function).collect();
        assert!(found.starts_with(functions), "{found:?}");
        // A line is right, or there is none.
        for (frame, mark) in frames[1..].iter().zip(calls) {
            assert!(frame.line == 0 || has_mark(frame.line, mark), "{frame:?}");
        }
        let has_lines = frames[..functions.len()].iter().all(|frame| frame.line != 0);
        // Its first instructions and its last ones are others than those of the loop.
        whole[kind] += usize::from(has_lines && has_mark(frames[0].line, "deep"));
        all[kind] += 1;
        let innermost = &recorded.profile.lines[&sample.locations[0]];
        inlined[kind] += usize::from(innermost.len() == functions.len() - kind);
    }
    println!("{whole:?} of {all:?} have all lines; {inlined:?} are inlined");
    for kind in 0..2 {
        assert!(all[kind] > 200 && whole[kind] * 100 >= all[kind] * 90, "{whole:?} of {all:?}");
        assert!(inlined[kind] * 100 >= all[kind] * 50, "{inlined:?} of {all:?}");
    }
}
