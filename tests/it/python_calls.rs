//! Python's functions among those of C: callbacks, libraries, and the code that resumes generators and
//! tasks.

use std::collections::BTreeSet;

use crate::common::pprof::Sample;
use crate::common::{Pprof, Prof, interpreted, python, temp_dir};

/// Python functions that C calls back, each in its own line.
const CALLBACKS: &str = "\
import ctypes, functools, os, re, time
def burn():
    end = time.process_time() + 0.002
    while time.process_time() < end:
        for i in range(1000): pass
def by_key(item):
    burn()
    return item
def sorts():
    sorted([3, 1, 2], key=by_key)
def add(a, b):
    burn()
    return a + b
def reduces():
    functools.reduce(add, [1, 2, 3])
def replace(match):
    burn()
    return 'x'
def substitutes():
    re.sub('a', replace, 'aaa')
pointer = ctypes.POINTER(ctypes.c_int)
@ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer)
def compare(a, b):
    burn()
    return a[0] - b[0]
qsort = ctypes.CDLL(None).qsort
def sorts_in_c():
    qsort((ctypes.c_int * 3)(3, 1, 2), 3, 4, compare)
class Ordered:
    def __lt__(self, other):
        burn()
        return False
def compares():
    max([Ordered(), Ordered()])
    min([Ordered(), Ordered()])
def main():
    end = time.process_time() + 1
    while time.process_time() < end:
        sorts()
        reduces()
        substitutes()
        sorts_in_c()
        compares()
main()
os._exit(0)
";

/// Callbacks, the functions that pass them on, and a part of the name of the C function between;
/// or else the binary of it.
const CALLED_BACK: [(&str, &str, &str); 5] = [
    ("by_key", "sorts", "list_sort"),
    ("add", "reduces", "functools_reduce"),
    ("replace", "sub", "pattern_subx"),
    ("compare", "sorts_in_c", "libc.so.6"),
    ("__lt__", "compares", "min_max"),
];

/// The evaluation function, in all of its parts.
const EVALUATION: &str = "_PyEval_EvalFrameDefault";

/// A frame's functions, with inlined ones before the others, and its binary; for Python's functions, the function alone.
fn described(p: &Pprof, location: &u64) -> String {
    let name = match &p.lines[location][..] {
        [] => "[?]".to_owned(),
        lines => lines.join("/"),
    };
    if python::is_python(p, location) {
        return name;
    }
    let file = p.mapping_of.get(location).map_or("", |&mapping| &p.mappings[mapping].file);
    format!("{name} {}", file.rsplit('/').next().unwrap_or_default())
}

/// The interpreter's instruction would make thousands of stacks of the same functions.
#[test]
fn the_function_that_executes_python_has_one_place() {
    for python in python::pythons() {
        let dir = temp_dir();
        let p = python.record(dir.path(), "-F 1999 -e cpu-clock", CALLBACKS);
        let samples = python::recognized(&p);
        let outside = |sample: &&Sample| interpreted::outside(&p, sample, "[python]");
        let places: BTreeSet<u64> = samples.iter().flat_map(outside).collect();
        let names: Vec<String> = places.iter().map(|place| described(&p, place)).collect();
        let evaluations = names.iter().filter(|name| !name.starts_with("[truncated"));
        let evaluations: Vec<&String> = evaluations.collect();
        assert_eq!(evaluations.len(), 1, "Python 3.{}: {names:?}", python.minor);
        assert!(evaluations[0].contains(EVALUATION), "{names:?}");
    }
}

#[test]
fn functions_that_c_calls_back_are_inside_of_the_c_function() {
    for python in python::pythons() {
        let dir = temp_dir();
        let p = python.record(dir.path(), "-F 1999 -e cpu-clock", CALLBACKS);
        let what = format!("Python 3.{}", python.minor);
        let samples = python::recognized(&p);
        python::assert_complete(&what, &p, &samples, "<module>");
        for (callback, caller, between) in CALLED_BACK {
            let mut seen = 0;
            for sample in &samples {
                let stack: Vec<String> =
                    sample.locations.iter().map(|location| described(&p, location)).collect();
                let place = |name: &str, stack: &[String]| {
                    stack.iter().position(|frame| python::plain(frame) == name)
                };
                let Some(inner) = place(callback, &stack) else { continue };
                let rest = &stack[inner + 1..];
                let all = python::functions(&p, sample);
                let next = all.iter().skip_while(|name| python::plain(name) != callback).nth(1);
                assert_eq!(next.map(|name| python::plain(name)), Some(caller), "{what}: {stack:?}");
                let outer = place(caller, rest).unwrap();
                let native = &rest[..outer];
                // The evaluation of the callback comes first; Debian's Python has few names.
                assert!(native[0].contains(EVALUATION), "{what}: {stack:?}");
                let has_name = |frame: &String| frame.contains(between);
                let is_other = |frame: &String| !frame.contains(EVALUATION);
                let is_stripped = native.iter().any(|frame| frame.starts_with("[?] python3"));
                let has_between = if is_stripped && !between.contains(".so") {
                    native.iter().filter(|frame| is_other(frame)).count() > 1
                } else {
                    native.iter().any(has_name)
                };
                assert!(has_between, "{what}: {between} is not in {native:?}");
                seen += 1;
            }
            assert!(seen > 30, "{what}: {seen} samples in {callback}");
        }
        let interpreter = p.comment("interpreter").expect("it is named");
        let interpreter = format!(" {}", interpreter.rsplit('/').next().unwrap());
        let paths = paths(dir.path(), "");
        let has_functions = |path: &&Vec<String>| path.iter().any(|frame| !frame.contains(' '));
        let shown: Vec<&Vec<String>> = paths.iter().filter(has_functions).collect();
        assert!(shown.len() > 10, "{what}: {paths:?}");
        for path in shown {
            assert!(!path.iter().any(|frame| frame.ends_with(&interpreter)), "{what}: {path:?}");
        }
        // C libraries are still there, between the same functions.
        let compares = |path: &&Vec<String>| path.iter().any(|name| name == "compare");
        let mut through_c = paths.iter().filter(compares).peekable();
        assert!(through_c.peek().is_some(), "{what}");
        for path in through_c {
            // The callback reads the clock, by the same library.
            let compare = path.iter().position(|frame| frame == "compare").unwrap();
            let at = |name: &str| path[compare..].iter().position(|frame| frame.ends_with(name));
            let order = [at("compare"), at("qsort_r libc.so.6"), at("sorts_in_c"), at("main")];
            assert!(order.iter().all(Option::is_some), "{what}: {path:?}");
            assert!(order.is_sorted(), "{what}: {path:?}");
        }
        // With --native, Python's functions have the evaluations between them.
        let has_evaluations = |path: &Vec<String>| {
            let function = path.iter().position(|frame| frame == "compare");
            function.is_some_and(|at| path[at..].iter().any(|frame| frame.starts_with(EVALUATION)))
        };
        let all = self::paths(dir.path(), "--native");
        assert!(all.iter().any(has_evaluations) && !paths.iter().any(has_evaluations), "{what}");
    }
}

/// The stacks of a directory's recording as `prof report` shows them, the innermost frame first,
/// each frame as its function and binary; Python's as the function alone.
fn paths(dir: &std::path::Path, options: &str) -> Vec<Vec<String>> {
    let prof = Prof::new(dir, "report --json --call-graph profile.pb.gz").args(options);
    let tree: serde_json::Value = serde_json::from_slice(&prof.run().ok().stdout).unwrap();
    let rows = tree["nodes"].as_array().unwrap();
    let path = |row: &serde_json::Value| {
        let mut frames = Vec::new();
        let mut next = Some(row);
        while let Some(row) = next.filter(|row| !row["parent"].is_null()) {
            let text = |key: &str| row[key].as_str().unwrap_or_default();
            let binary = text("binary").rsplit('/').next().unwrap_or_default();
            let is_python = binary == "[python]";
            let name = text("function").to_owned();
            frames.push(if is_python { name } else { format!("{name} {binary}") });
            next = rows.get(row["parent"].as_u64().unwrap() as usize);
        }
        frames
    };
    let has_self = |row: &&serde_json::Value| row["self"].as_i64() != Some(0);
    rows.iter().filter(has_self).map(path).collect()
}

/// Generators in generators, and tasks that take turns at each `await`.
const SUSPENDED: &str = "\
import asyncio, os, time
def inner_generator(end):
    while time.process_time() < end:
        for i in range(1000): pass
        yield
def middle_generator(end):
    yield from inner_generator(end)
def outer_generator(end):
    yield from middle_generator(end)
def consume(end):
    for _ in outer_generator(end): pass
def burn_a():
    for i in range(1000): pass
def burn_b():
    for i in range(1000): pass
async def inner_a():
    burn_a()
    await asyncio.sleep(0)
async def inner_b():
    burn_b()
    await asyncio.sleep(0)
async def outer_a(end):
    while time.process_time() < end:
        await inner_a()
async def outer_b(end):
    while time.process_time() < end:
        await inner_b()
async def tasks(end):
    await asyncio.gather(outer_a(end), outer_b(end), outer_a(end), outer_b(end))
consume(time.process_time() + 0.7)
asyncio.run(tasks(time.process_time() + 0.7))
os._exit(0)
";

#[test]
fn generators_and_tasks_have_the_callers_that_resumed_them() {
    for python in python::pythons() {
        let dir = temp_dir();
        let p = python.record(dir.path(), "-F 1999 -e cpu-clock", SUSPENDED);
        let what = format!("Python 3.{}", python.minor);
        let samples = python::recognized(&p);
        python::assert_complete(&what, &p, &samples, "<module>");
        let mut seen = [0; 3];
        for functions in samples.iter().map(|sample| python::functions(&p, sample)) {
            let at = |name: &str| functions.iter().position(|function| *function == name);
            if let Some(inner) = at("inner_generator") {
                let callers = ["middle_generator", "outer_generator", "consume", "<module>"];
                assert_eq!(functions[inner + 1..], callers, "{what}");
                seen[0] += 1;
            }
            for (kind, [burn, inner, outer]) in
                [(1, ["burn_a", "inner_a", "outer_a"]), (2, ["burn_b", "inner_b", "outer_b"])]
            {
                let Some(innermost) = at(burn) else { continue };
                assert_eq!(functions[innermost..innermost + 3], [burn, inner, outer], "{what}");
                let loop_function = python::plain(functions[innermost + 3]);
                assert_eq!(loop_function, "_run", "{what}: {functions:?}");
                seen[kind] += 1;
            }
        }
        assert!(seen.iter().all(|seen| *seen > 100), "{what}: {seen:?}");
    }
}

/// C libraries that Python's functions call.
const LIBRARIES: &str = "\
import hashlib, os, random, time, zlib
data = bytes(random.getrandbits(4) for _ in range(200000))
def compresses():
    zlib.compress(data)
def hashes():
    for _ in range(20): hashlib.sha256(data).digest()
while time.process_time() < 1:
    compresses()
    hashes()
os._exit(0)
";

#[test]
fn c_libraries_are_callees_of_the_function_that_calls_them() {
    let Some(python) = python::python() else { return };
    let dir = temp_dir();
    let p = python.record(dir.path(), "-F 1999 -e cpu-clock", LIBRARIES);
    let described = |sample: &Sample| -> Vec<String> {
        sample.locations.iter().map(|location| described(&p, location)).collect()
    };
    let raw: Vec<Vec<String>> = p.samples.iter().map(described).collect();
    for stacks in [raw, paths(dir.path(), "")] {
        let mut seen = [0; 2];
        for stack in &stacks {
            for (kind, (library, caller)) in
                [("libz.so", "compresses"), ("libcrypto.so", "hashes")].into_iter().enumerate()
            {
                let is_there = |frame: &String| frame.contains(&format!(" {library}"));
                let Some(last) = stack.iter().rposition(is_there) else { continue };
                let functions: Vec<&String> =
                    stack.iter().filter(|frame| !frame.contains(' ')).collect();
                // The import of the modules runs code of the libraries, too.
                if functions.first().is_some_and(|name| *name == caller) {
                    let function = stack.iter().position(|frame| frame == caller).unwrap();
                    assert!(last < function, "{stack:?}");
                    assert_eq!(functions, [caller, "<module>"], "{stack:?}");
                    seen[kind] += 1;
                } else {
                    let other = if caller == "hashes" { "compresses" } else { "hashes" };
                    assert!(functions.iter().all(|name| *name != other), "{stack:?}");
                }
            }
        }
        assert!(seen.iter().all(|seen| *seen > 3), "{seen:?} stacks");
    }
    let share = |name: &str| p.share(|sample| python::functions(&p, sample).contains(&name));
    assert!(share("compresses") > 10.0 && share("hashes") > 10.0);
}
