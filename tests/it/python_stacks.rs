//! Python's functions in recordings of programs with a known answer.

use crate::common::pprof::Sample;
use crate::common::python::{self, Frame, Python};
use crate::common::{ChiSquared, Prof, decide, figures, most_by_chance, read, temp_dir};

/// Functions that measure themselves. Each kind of work has a line of its own, and a class or
/// another function around it.
const SHARES: &str = "\
import os, random, time
now = time.thread_time_ns
class Parser:
    class Inner:
        def digest(self, quota):
            start = now()
            while now() - start < quota:
                for i in range(4000): pass  # digest
            return now() - start
def scan(quota):
    def step():
        start = now()
        while now() - start < quota:
            for i in range(4000): pass  # step
        return now() - start
    return step()
def parts(quota, first):
    start = now()
    if first:
        while now() - start < quota:
            for i in range(4000): pass  # first part
    else:
        while now() - start < quota:
            for i in range(4000): pass  # second part
    return now() - start
def lines(quota):
    start = now()
    while now() - start < quota:
        yield
        for i in range(4000): pass  # yielded
    used['yielded'] += now() - start
def drain(quota):
    for _ in lines(quota): pass
    return 0
kinds = {
    'digest': (Parser.Inner().digest, 35), 'step': (scan, 25), 'yielded': (drain, 20),
    'first part': (lambda quota: parts(quota, True), 12),
    'second part': (lambda quota: parts(quota, False), 8),
}
used = dict.fromkeys(kinds, 0)
order = list(kinds)
def main():
    while time.process_time() < 2:
        random.shuffle(order)
        for kind in order:
            function, part = kinds[kind]
            spent = function(part * random.randrange(500_000, 1_500_000))
            used[kind] += spent
for function, _ in kinds.values():
    function(60_000_000)
used = dict.fromkeys(kinds, 0)
main()
for kind in kinds:
    print(kind, used[kind])
os.sys.stdout.flush()
os._exit(0)
";

/// Where the work of [`SHARES`] is done: the mark of its line, and the function.
const WORK: [(&str, &str); 5] = [
    ("digest", "Parser.Inner.digest"),
    ("step", "scan.<locals>.step"),
    ("yielded", "lines"),
    ("first part", "parts"),
    ("second part", "parts"),
];

/// Samples of the kinds of work, and what the program has measured of them.
#[derive(Default)]
struct Shares {
    found: [u64; WORK.len()],
    nanoseconds: [f64; WORK.len()],
    /// Samples in other lines.
    between: u64,
}

impl Shares {
    /// Records [`SHARES`].
    fn add(&mut self, python: &Python) {
        let dir = temp_dir();
        let script = python::write_script(dir.path(), SHARES);
        let prof = Prof::new(&dir, "record -F 999 -e cpu-clock").target(&python.path, "");
        let out = prof.arg(&script).run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        let figures = figures(&out);
        let column = p.column("samples");
        let work = WORK.map(|(mark, function)| {
            let name = if python.has_qualnames() { function } else { python::plain(function) };
            let line = python::line_of(SHARES, &format!("# {mark}"));
            Frame { function: name, file: script.to_str().unwrap(), line }
        });
        for (at, (mark, _)) in WORK.iter().enumerate() {
            self.nanoseconds[at] += figures[*mark];
        }
        for sample in &p.samples {
            let frames = python::frames(&p, sample);
            if frames.iter().all(|frame| frame.function != "main") {
                continue;
            }
            let count = sample.values[column] as u64;
            match work.iter().position(|work| *work == frames[0]) {
                Some(at) => self.found[at] += count,
                None => self.between += count,
            }
        }
    }

    fn test(&self, what: &str) -> ChiSquared {
        let test = ChiSquared::new(&self.found, &self.nanoseconds);
        let (samples, all) = (self.found.iter().sum::<u64>(), self.nanoseconds.iter().sum::<f64>());
        let expected = self.nanoseconds.map(|time| (time * samples as f64 / all).round());
        println!("{what}: {:?}, expected {expected:?}, {} between", self.found, self.between);
        test
    }
}

/// By function and line, within sampling error. Each Python is refused with a chance of 1.6e-7.
#[test]
fn functions_and_lines_have_the_shares_that_the_program_measures() {
    let pythons = python::pythons();
    let first_and_last = pythons.iter().take(1).chain(pythons.iter().skip(1).step_by(4));
    for python in first_and_last {
        let what = format!("Python 3.{}", python.minor);
        let judge = |shares: &Shares| shares.test(&what).verdict();
        let shares = decide(&what, |shares: &mut Shares| shares.add(python), judge);
        let samples: u64 = shares.found.iter().sum();
        // Reads of the clock take 1 % of the time.
        let most = most_by_chance(0.03 * samples as f64);
        assert!(shares.between <= most, "{what}: {} of {samples} between", shares.between);
    }
}

/// Recursions that alternate. Calls stand in lines of their own, with the callee as a mark.
const ALTERNATING: &str = "\
import os, time
def a(n):
    if n:
        return a(n - 1)  # a calls a
    return 0
def b(n):
    if n:
        return b(n - 1)  # b calls b
    return 0
def shared(n, last):
    if n:
        return shared(n - 1, last)  # shared calls shared
    return last()  # shared calls last
def last_of_left():
    return sum(range(100))
def last_of_right():
    return sum(range(100))
def left(n):
    return shared(n, last_of_left)  # left calls shared
def right(n):
    return shared(n, last_of_right)  # right calls shared
def main():
    end = time.process_time() + 1.1
    while time.process_time() < end:
        for i in range(8):
            a(12)  # main calls a
            b(12)  # main calls b
            left(9)  # main calls left
            right(9)  # main calls right
main()  # <module> calls main
os._exit(0)
";

/// Fails unless each frame of a stack of [`ALTERNATING`] executes the line that calls the next one,
/// and all are of one recursion.
fn assert_one_recursion(what: &str, frames: &[Frame]) {
    let lines: Vec<&str> = ALTERNATING.lines().collect();
    for call in frames.windows(2) {
        let [callee, caller] = call else { unreachable!() };
        let last = if callee.function.starts_with("last_of_") { "last" } else { callee.function };
        let mark = format!("# {} calls {last}", caller.function);
        let line = lines[caller.line as usize - 1];
        assert!(
            line.ends_with(&mark),
            "{what}: {callee:?} is not called by {caller:?}: {frames:?}"
        );
    }
    for (callee, caller) in [("last_of_left", "right"), ("last_of_right", "left")] {
        let has = |name: &str| frames.iter().any(|frame| frame.function == name);
        assert!(!has(callee) || !has(caller), "{what}: {frames:?}");
    }
}

/// At each sample, the functions are those of one moment: they alternate many times while a
/// recorder could read them.
#[test]
fn no_stack_has_functions_of_two_moments() {
    // Twice at a time.
    const TWICE: &str = r#""$0" "$1" & "$0" "$1"; wait"#;
    for python in python::pythons() {
        let dir = temp_dir();
        let file = python::write_script(dir.path(), ALTERNATING);
        let prof = Prof::new(&dir, "record -F 4999 -e cpu-clock --timestamps").target("sh", "-c");
        prof.arg(TWICE).arg(&python.path).arg(&file).run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        let what = format!("Python 3.{}", python.minor);
        let samples = python::recognized(&p);
        assert!(samples.len() > 5000, "{what}: {} samples", samples.len());
        python::assert_complete(&what, &p, &samples, "<module>");
        let mut seen = std::collections::BTreeSet::new();
        for frames in samples.iter().map(|sample| python::frames(&p, sample)) {
            let own: Vec<Frame> =
                frames.into_iter().filter(|frame| file.as_os_str() == frame.file).collect();
            assert_one_recursion(&what, &own);
            seen.extend(own.iter().map(|frame| frame.function.to_owned()));
        }
        assert_eq!(seen.len(), 9, "{what}: {seen:?}");
    }
}

/// Threads with functions of their own, as `run_0`, `step_0` and `leaf_0`.
fn threads_script() -> String {
    let functions: String = (0..4).map(|k| {
        format!("def leaf_{k}():\n    for i in range(500): pass\ndef step_{k}():\n    leaf_{k}()\ndef run_{k}():\n    while time.process_time() < 1.5:\n        step_{k}()\n")
    }).collect();
    format!(
        "import os, threading, time\n{functions}threads = [threading.Thread(target=run) for run in \
         (run_0, run_1, run_2, run_3)]\nfor thread in threads: thread.start()\nfor thread in \
         threads: thread.join()\nos._exit(0)\n"
    )
}

#[test]
fn threads_have_their_own_functions() {
    for python in python::pythons() {
        let dir = temp_dir();
        let p = python.record(dir.path(), "-F 1999 -e cpu-clock", &threads_script());
        let what = format!("Python 3.{}", python.minor);
        let samples = python::recognized(&p);
        let main = |sample: &&Sample| sample.labels["tid"] == sample.labels["pid"];
        let (_, others): (Vec<&Sample>, Vec<&Sample>) = samples.into_iter().partition(main);
        let bootstrap = if python.has_qualnames() { "Thread._bootstrap" } else { "_bootstrap" };
        python::assert_complete(&what, &p, &others, bootstrap);
        let mut numbers = std::collections::BTreeMap::new();
        for sample in &others {
            let functions = python::functions(&p, sample);
            for name in ["run_", "step_", "leaf_"] {
                let found = functions.iter().filter_map(|function| function.strip_prefix(name));
                for number in found {
                    let known = numbers.entry(&sample.labels["tid"]).or_insert(number);
                    assert_eq!(*known, number, "{what}: {functions:?}");
                }
            }
            // A callee is there with its callers alone.
            let inner: Vec<&str> =
                functions.iter().map(|function| python::plain(function)).collect();
            if let Some(at) = inner.iter().position(|function| function.starts_with("leaf_")) {
                let ends = ["run", "_bootstrap_inner", "_bootstrap"];
                assert!(inner[at + 1].starts_with("step_"), "{what}: {inner:?}");
                assert!(inner[at + 2].starts_with("run_"), "{what}: {inner:?}");
                assert_eq!(inner[at + 3..], ends, "{what}: {inner:?}");
            }
        }
        let different: std::collections::BTreeSet<&&str> = numbers.values().collect();
        assert_eq!((numbers.len(), different.len()), (4, 4), "{what}: {numbers:?}");
    }
}

/// More Python functions than are copied at a sample.
const DEEP: &str = "\
import os, sys, time
def down(n):
    if n: return down(n - 1)
    end = time.process_time() + 2
    while time.process_time() < end:
        for i in range(1000): pass
sys.setrecursionlimit(5000)
down(600)
os._exit(0)
";

/// The functions that are there are the innermost ones, and nothing is their caller.
#[test]
fn more_functions_than_are_copied_are_a_truncated_stack() {
    const ALL: usize = 602;
    for python in python::pythons() {
        let what = format!("Python 3.{}", python.minor);
        // 1,262 functions are copied at 99 Hz, and 125 at 999 Hz.
        for (rate, copied) in [(99, ALL), (999, 125)] {
            let dir = temp_dir();
            let p = python.record(dir.path(), &format!("-F {rate} -e cpu-clock"), DEEP);
            let mut seen = 0;
            for sample in &p.samples {
                let functions = python::functions(&p, sample);
                // Before the innermost call, and where the functions have no places among the
                // native frames: in 3.8 and 3.9, which are counted from the outermost one.
                if functions.len() < copied.min(ALL) {
                    continue;
                }
                assert_eq!(functions.len(), copied, "{what}, {rate} Hz");
                let last = *p.frames(sample).last().unwrap();
                let is_cut = last.starts_with("[truncated: ");
                assert_eq!(is_cut, copied < ALL, "{what}, {rate} Hz: {last}");
                let downs = functions.iter().filter(|name| **name == "down").count();
                assert_eq!(downs, copied.min(ALL - 1), "{what}, {rate} Hz");
                seen += 1;
            }
            let is_counted = python.minor < 10 && copied < ALL;
            assert!(is_counted || seen > 20, "{what}, {rate} Hz: {seen} samples");
        }
    }
}
