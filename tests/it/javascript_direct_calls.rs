//! Functions of C++ that V8's code calls without a frame for that (`CallCFunction`): they never call
//! JavaScript. The callers are not on the chain that begins at other calls of C++.

use std::collections::BTreeMap;

use crate::common::temp_dir;
use crate::interpreted_languages::JAVASCRIPT;

/// Functions that spend much of their time in such calls, for the same CPU time each, in turns. Each is
/// called by one of two functions.
const PROGRAM: &str = "\
const used = () => process.cpuUsage().user + process.cpuUsage().system;
const map = new Map();
let next = 0;
function hashes() {
  for (let i = 0; i < 500; i++) map.set('key ' + next++, i);
  map.clear();
}
const parts = Array.from({ length: 2000 }, (_, i) => `part ${i}`);
function joins() {
  return parts.join(',').length;
}
let sum = 0;
function sines() {
  for (let i = 0; i < 1000; i++) sum += Math.sin(i * 0.1) + Math.exp(-i / 100);
}
function remainders() {
  for (let i = 1; i < 1000; i++) sum += (1e9 + i * 0.5) % (i * 0.37);
}
const text = JSON.parse(JSON.stringify('lorem ipsum dolor sit amet '.repeat(100)));
function matches() {
  for (const match of text.matchAll(/\\b([a-z]+)t\\b/g)) sum += match[1].length;
}
const bytes = new Uint8Array(40000);
function moves() {
  for (let i = 0; i < 20; i++) bytes.copyWithin(10, 0, 39000);
  return bytes.indexOf(7);
}
function left(work) {
  const start = used();
  while (used() - start < 2000) work();
}
function right(work) {
  const start = used();
  while (used() - start < 2000) work();
}
const start = used();
while (used() - start < 3e6) {
  left(hashes); right(joins);
  left(sines); right(remainders);
  left(matches); right(moves);
}
";

/// The functions with their callers.
const CALLS: [(&str, &str); 6] = [
    ("hashes", "left"),
    ("joins", "right"),
    ("sines", "left"),
    ("remainders", "right"),
    ("matches", "left"),
    ("moves", "right"),
];

#[test]
fn functions_of_cpp_that_v8_calls_directly_have_their_callers() {
    let dir = temp_dir();
    let Some(recorded) = JAVASCRIPT.record(dir.path(), "-F 999", PROGRAM) else { return };
    let samples = recorded.recognized();
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut whole, mut others) = (0, Vec::new());
    for &sample in &samples {
        let frames = recorded.frames(sample);
        let functions: Vec<&str> = frames.iter().map(|frame| frame.function).collect();
        let outermost = frames.last().map(|frame| frame.file);
        let is_whole = outermost == Some("node:internal/main/run_main_module");
        whole += usize::from(is_whole);
        if !is_whole {
            others.push(recorded.profile.user_frames(sample).join(" < "));
        }
        let calls = |(function, _): &(&str, &str)| functions.contains(function);
        let Some((function, caller)) = CALLS.iter().find(|call| calls(call)) else { continue };
        let place = functions.iter().position(|name| name == function).unwrap();
        assert_eq!(functions.get(place + 1), Some(caller), "{functions:?}");
        // No two of them are on one stack.
        assert_eq!(CALLS.iter().filter(|call| calls(call)).count(), 1, "{functions:?}");
        *found.entry(function).or_default() += 1;
    }
    let all = samples.len();
    println!("{whole} of {all} are whole, {found:?}");
    // The program's end has no function of it any more, nor has the work that V8 does between its calls.
    // Without the callers of such functions, 70 to 80 % are whole.
    assert!(all > 1000 && whole * 100 >= all * 90, "{whole} of {all}: {others:#?}");
    for (function, _) in CALLS {
        // Each has a sixth, but for what measures the time.
        let share = found.get(function).copied().unwrap_or_default();
        assert!(share * 100 > all * 8, "{function}: {found:?} of {all}");
    }
}
