//! Python's functions in wall time: of threads that wait, in programs with a known answer.

use std::collections::BTreeMap;
use std::process::Command;

use crate::common::pprof::Sample;
use crate::common::python::{self, Frame, Python};
use crate::common::{Pprof, Prof, Waiting, figures, read, temp_dir};

/// Threads that wait in one way each, in a function of their own, and measure it. They start when
/// the interpreter is known.
const WAITS: &str = "\
import os, queue, socket, subprocess, threading, time
for i in range(40): time.sleep(0.005)
ROUNDS = 6
class Consumer:
    def __init__(self):
        self.items = queue.Queue()
    def consume(self):
        self.items.get()  # consume
consumer = Consumer()
near, far = socket.socketpair()
gate = threading.Lock()
gate.acquire()
turn = threading.Event()
def receive():
    near.recv(1)  # receive
def pass_gate():
    gate.acquire()  # pass_gate
def await_turn():
    turn.wait()  # await_turn
    turn.clear()
def nap():
    def inner():
        def innermost():
            time.sleep(0.03)  # nap
        innermost()
    inner()
def run_program():
    subprocess.run(['sleep', '0.03'])  # run_program
kinds = [consumer.consume, receive, pass_gate, await_turn, nap, run_program]
waited = {}
def repeat(kind):
    start = time.monotonic_ns()
    for i in range(ROUNDS):
        kind()  # repeat
    waited[kind.__name__] = time.monotonic_ns() - start
threads = [threading.Thread(target=repeat, args=(kind,)) for kind in kinds]
for thread in threads: thread.start()
for i in range(ROUNDS):
    time.sleep(0.03)
    consumer.items.put(i)
    far.send(b'1')
    gate.release()
    turn.set()
for thread in threads: thread.join()
for kind, time in waited.items(): print(kind, time)
os.sys.stdout.flush()
os._exit(0)
";

/// The functions of [`WAITS`] that wait: the function of the line with the mark, which is the name
/// that the program prints.
const KINDS: [(&str, &str); 6] = [
    ("consume", "Consumer.consume"),
    ("receive", "receive"),
    ("pass_gate", "pass_gate"),
    ("await_turn", "await_turn"),
    ("nap", "nap.<locals>.inner.<locals>.innermost"),
    ("run_program", "run_program"),
];

/// The last Python function of a thread's stack.
fn bootstrap(python: &Python) -> &'static str {
    if python.has_qualnames() { "Thread._bootstrap" } else { "_bootstrap" }
}

/// Records a script's wall time (`prof record OPTIONS`). Returns the profile, and what it prints.
fn record(python: &Python, options: &str, script: &str) -> (Pprof, BTreeMap<String, f64>) {
    let dir = temp_dir();
    let file = python::write_script(dir.path(), script);
    let args = format!("record {options}");
    let out = Prof::new(&dir, &args).target(&python.path, "").arg(file).run().ok();
    (read(dir.path().join("profile.pb.gz")), figures(&out))
}

/// Each wait has the function that waits, in its line, with its callers up to the thread's first
/// one, and the time that the program measures.
#[test]
fn waits_have_the_functions_and_the_time_that_the_program_measures() {
    for python in python::pythons() {
        let what = format!("Python 3.{}", python.minor);
        let (p, measured) = record(&python, "-T wall", WAITS);
        let column = p.column("wall");
        let main = |sample: &&Sample| sample.labels["tid"] == sample.labels["pid"];
        let others: Vec<&Sample> = p.samples.iter().filter(|sample| !main(sample)).collect();
        let sum = |is: &dyn Fn(&Sample) -> bool| -> i64 {
            others.iter().filter(|sample| is(sample)).map(|sample| sample.values[column]).sum()
        };
        let is_whole =
            |sample: &Sample| python::functions(&p, sample).last() == Some(&bootstrap(&python));
        // A thread that begins or ends executes nothing of Python's.
        let evaluates = |sample: &Sample| p.frames(sample).contains(&"_PyEval_EvalFrameDefault");
        let (all, whole) = (sum(&evaluates), sum(&is_whole));
        let is_cut = |sample: &&&Sample| evaluates(sample) && !is_whole(sample);
        let other = others.iter().filter(is_cut).map(|s| p.frames(s));
        let other: Vec<_> = other.take(3).collect();
        println!("{what}: {whole} of {all} ns reach the first function");
        assert!(whole as f64 > 0.99 * all as f64, "{what}: {whole} of {all}; {other:?}");
        for (mark, function) in KINDS {
            let line = python::line_of(WAITS, &format!("# {mark}"));
            let function = if python.has_qualnames() { function } else { python::plain(function) };
            let waits = |sample: &Sample| {
                python::frames(&p, sample)
                    .iter()
                    .any(|frame| frame.function == function && frame.line == line)
            };
            let is_below = |sample: &Sample| {
                let inner: Vec<&str> =
                    python::functions(&p, sample).into_iter().map(python::plain).collect();
                let end = ["repeat", "run", "_bootstrap_inner", "_bootstrap"];
                inner.ends_with(&end)
            };
            let (found, expected) = (sum(&waits) as f64, measured[mark]);
            println!("{what}: {mark} {found} ns, measured {expected}");
            assert!((found - expected).abs() < 0.05 * expected, "{what}: {mark}: {found} ns");
            assert_eq!(sum(&|s| waits(s) && !is_below(s)), 0, "{what}: {mark}");
        }
    }
}

/// Recursions that alternate, and wait for a millisecond in each. Calls stand in lines of their own,
/// with the callee as a mark.
const ALTERNATING: &str = "\
import os, time
def a(n):
    if n:
        return a(n - 1)  # a calls a
    time.sleep(0.001)  # a waits
def b(n):
    if n:
        return b(n - 1)  # b calls b
    time.sleep(0.001)  # b waits
def main():
    end = time.monotonic() + 0.6
    while time.monotonic() < end:
        a(12)  # main calls a
        b(12)  # main calls b
main()  # <module> calls main
os._exit(0)
";

/// Fails unless each stack of [`ALTERNATING`] is that of one moment. There have to be sleeps in both
/// recursions among them.
#[track_caller]
fn assert_alternating(what: &str, p: &Pprof, is_sleep: impl Fn(&Sample) -> bool) {
    let lines: Vec<&str> = ALTERNATING.lines().collect();
    let samples = python::recognized(p);
    assert!(samples.len() > 200, "{what}: {} samples", samples.len());
    python::assert_complete(what, p, &samples, "<module>");
    let mut waits = [0, 0];
    for sample in samples {
        let frames = python::frames(p, sample);
        for call in frames.windows(2) {
            let [callee, caller] = call else { unreachable!() };
            let mark = format!("# {} calls {}", caller.function, callee.function);
            let line = lines.get(caller.line as usize - 1).copied().unwrap_or_default();
            let is_own = caller.file.ends_with("program.py");
            assert!(!is_own || line.ends_with(&mark), "{what}: {frames:?}");
        }
        let Some(&Frame { function, line, .. }) = frames.first() else { continue };
        let line = lines.get(line as usize - 1).copied().unwrap_or_default();
        if is_sleep(sample) && line.ends_with(&format!("# {function} waits")) {
            assert_eq!(frames.len(), 15, "{what}: {frames:?}");
            waits[usize::from(function == "b")] += 1;
        }
    }
    println!("{what}: waits of a and b: {waits:?}");
    assert!(waits.iter().all(|count| *count > 60), "{what}: {waits:?}");
}

/// The functions of a wait are those of its moment: the thread goes on as soon as it is over.
#[test]
fn no_wait_has_functions_of_two_moments() {
    for python in python::pythons() {
        let what = format!("Python 3.{}", python.minor);
        let (p, _) = record(&python, "-T wall --timestamps", ALTERNATING);
        assert_alternating(&what, &p, |sample| sample.labels["state"] == "sleeping");
    }
}

#[test]
fn no_system_call_has_functions_of_two_moments() {
    let Some(python) = python::python() else { return };
    let (p, _) = record(&python, "-T syscalls --timestamps", ALTERNATING);
    assert_alternating("system calls", &p, |sample| {
        sample.labels.get("syscall").is_some_and(|call| call == "clock_nanosleep")
    });
}

/// Waits for a lock of Python's have the function that waits, and the time that it measures.
#[test]
fn waits_for_locks_have_the_functions_that_wait() {
    let Some(python) = python::python() else { return };
    let (p, measured) = record(&python, "-T lock", WAITS);
    let line = python::line_of(WAITS, "# pass_gate");
    let waits = |sample: &&Sample| {
        let is_it = |frame: &Frame| frame.function == "pass_gate" && frame.line == line;
        python::frames(&p, sample).first().is_some_and(is_it)
            && python::functions(&p, sample).last() == Some(&bootstrap(&python))
    };
    let column = p.column("delay");
    let found: i64 = p.samples.iter().filter(waits).map(|sample| sample.values[column]).sum();
    let (found, expected) = (found as f64, measured["pass_gate"]);
    println!("pass_gate: {found} ns, measured {expected}");
    // The rest is the time for which it is runnable.
    assert!(found > 0.8 * expected && found < 1.02 * expected, "{found} ns, measured {expected}");
}

/// Threads that wait for longer than they are recorded.
const IDLE: &str = "\
import os, queue, socket, subprocess, sys, threading, time
def consume():
    queue.Queue().get()
def receive():
    near, far = socket.socketpair()
    near.recv(1)
def nap():
    def inner():
        time.sleep(1000)
    inner()
def run_program():
    subprocess.run(['cat'], stdin=os.pipe()[0])
class Turn:
    def wait(self):
        threading.Event().wait()
for work in (consume, receive, nap, run_program, Turn().wait):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
print('ready', flush=True)
def main():
    sys.stdin.read()
main()
os._exit(0)
";

/// Fails unless all of the time of a program's threads has their functions.
#[track_caller]
fn assert_idle(what: &str, python: &Python, p: &Pprof, pid: &str, column: usize) {
    let own: Vec<&Sample> = p.samples.iter().filter(|s| s.labels["pid"] == pid).collect();
    let mut whole = 0;
    let mut found = BTreeMap::new();
    for sample in &own {
        let functions = python::functions(p, sample);
        let is_first = sample.labels["tid"] == sample.labels["pid"];
        let root = if is_first { "<module>" } else { bootstrap(python) };
        if functions.last() == Some(&root) {
            whole += sample.values[column];
            let names: Vec<&str> = functions.iter().map(|name| python::plain(name)).collect();
            *found.entry(names.join(" ")).or_insert(0) += sample.values[column];
        }
    }
    let all: i64 = own.iter().map(|sample| sample.values[column]).sum();
    println!("{what}: {whole} of {all} reach the first function: {found:#?}");
    let other = own.iter().map(|s| p.frames(s)).find(|frames| !frames.contains(&"_bootstrap"));
    assert!(whole as f64 > 0.99 * all as f64, "{what}: {whole} of {all}; {other:?}");
    let part = |begin: &str| -> i64 {
        found.iter().filter(|(names, _)| names.starts_with(begin)).map(|(_, value)| value).sum()
    };
    // Six threads, each of which waits all the time.
    for begin in
        ["wait get consume", "receive", "inner nap", "main <module>", "wait wait wait run "]
    {
        let share = part(begin) as f64 / all as f64;
        assert!((share - 1.0 / 6.0).abs() < 0.02, "{what}: {begin}: {share}; {found:#?}");
    }
    let share = found.iter().filter(|(names, _)| names.contains(" run_program run "));
    let share = share.map(|(_, value)| value).sum::<i64>() as f64 / all as f64;
    assert!((share - 1.0 / 6.0).abs() < 0.02, "{what}: run_program: {share}; {found:#?}");
}

/// A wait that is not over as the recording ends is that of a thread that is still asleep: its
/// functions are read then, and in a snapshot.
#[test]
fn threads_that_wait_all_the_time_have_their_functions() {
    for python in python::pythons().into_iter().step_by(3) {
        let what = format!("Python 3.{}", python.minor);
        let dir = temp_dir();
        let file = python::write_script(dir.path(), IDLE);
        let program = Waiting::start(Command::new(&python.path).arg(&file));
        let pid = program.pid().to_string();
        Prof::new(&dir, "record -T wall -d 300ms -p").arg(&pid).run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        assert_idle(&format!("{what}, wall"), &python, &p, &pid, p.column("wall"));
        Prof::new(&dir, "threads -o threads.pb.gz -p").arg(&pid).run().ok();
        let p = read(dir.path().join("threads.pb.gz"));
        assert_idle(&format!("{what}, threads"), &python, &p, &pid, p.column("threads"));
        program.stop();
    }
}
