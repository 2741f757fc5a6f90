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
