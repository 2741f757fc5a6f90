//! CPython, of each version that the machine has.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use interpreters::cpython::{Cpython, detect};
use interpreters::walk::{Status, Thread, run};
use interpreters::{
    Budget, ChainEnd, Copied, MappedFiles, Name, Process, ProcessMemory, Runtime, UserFrame,
};

use sys::record::AllRegs;

use super::*;

/// A CPython that runs a script.
struct Python {
    child: Child,
    cpython: Cpython,
    memory: ProcessMemory,
    /// Its thread pointer.
    pointer: u64,
    names: HashMap<[u64; 4], String>,
}

/// Interpreters with a table of offsets: Debian's, and those of pyenv.
fn interpreters() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let versions = std::fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten();
    let mut found = vec![PathBuf::from("/usr/bin/python3")];
    found.extend(versions.map(|version| version.path().join("bin/python3")));
    let script = "import sys, sysconfig\nsys.exit(sys.implementation.name != 'cpython' \
                  or sysconfig.get_config_var('Py_GIL_DISABLED') == 1 \
                  or not (3, 8) <= sys.version_info[:2] <= (3, 13))";
    found.retain(|path| {
        Command::new(path).args(["-c", script]).status().is_ok_and(|status| status.success())
    });
    if found.is_empty() {
        sys::testing::skip("there is no CPython from 3.8 to 3.13");
    }
    found
}

impl Python {
    /// Runs a script after it has written its thread pointer.
    fn start(interpreter: &PathBuf, script: &str) -> Python {
        let begin = "import _thread\nprint(_thread.get_ident(), flush=True)";
        Python::start_to_print(interpreter, &format!("{begin}\n{script}"))
    }

    /// Runs a script, until it has written its thread pointer.
    fn start_to_print(interpreter: &PathBuf, script: &str) -> Python {
        let mut command = Command::new(interpreter);
        let mut child = command.args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pointer = line.trim().parse().unwrap();
        let pid = child.id() as i32;
        let files = MappedFiles::open(pid).unwrap();
        let memory = ProcessMemory::new(pid, Budget { bytes: usize::MAX, calls: usize::MAX });
        let process = Process { images: &files.images(), threads: &[pid], memory: &memory };
        let cpython = detect(&process).unwrap().expect("CPython");
        Python { child, cpython, memory, pointer, names: HashMap::new() }
    }

    fn sampled(&self, most: u32) -> Option<Sampling> {
        let pid = self.child.id() as i32;
        Sampling::start(pid, most, pid, self.cpython.walks())
    }

    /// The functions of a sample, the innermost first.
    fn functions(&mut self, walks: &[WalkCopy]) -> (ChainEnd, Vec<String>) {
        let copied = Copied { walks, registers: AllRegs::default() };
        let mut frames = Vec::new();
        let end = self.cpython.frames(copied, &mut frames);
        (end, frames.iter().map(|frame| self.name(frame)).collect())
    }

    fn name(&mut self, frame: &UserFrame) -> String {
        let known = self.names.entry(frame.code.identity);
        let name = || match self.cpython.name(&frame.code, &self.memory) {
            Name::Found(code) => code.function,
            // A module that was being imported.
            Name::Gone => "(gone)".to_owned(),
            other => panic!("{other:?}"),
        };
        known.or_insert_with(name).clone()
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Its last function executes C code without end: no frame changes.
const KNOWN: &str = "
import itertools
def leaf():
    return sum(itertools.repeat(0))
def middle(n):
    return middle(n - 1) if n else max(leaf(), 0)
class Outer:
    def __lt__(self, other):
        return middle(3)
sorted([Outer(), Outer()])
";

/// The line table of such a function is empty in 3.8 and 3.9.
#[test]
fn a_process_in_a_function_of_one_line_is_recognized() {
    const SCRIPT: &str = "
import _thread, itertools
def one(): return [print(_thread.get_ident(), flush=True), sum(itertools.repeat(0))]
one()
";
    for interpreter in interpreters() {
        let python = Python::start_to_print(&interpreter, SCRIPT);
        assert!(python.cpython.version().starts_with("CPython 3."), "{interpreter:?}");
    }
}

#[test]
fn the_copy_of_each_sample_is_that_of_the_model() {
    for interpreter in interpreters() {
        let mut python = Python::start(&interpreter, KNOWN);
        let walks = python.cpython.walks().to_vec();
        let Some(mut sampling) = python.sampled(1000) else { return };
        let mut copies: Vec<WalkCopy> = Vec::new();
        let (mut equal, mut frames, mut last) = (0, 0, Vec::new());
        sampling.until(|walked| {
            assert_eq!((walked.id, walked.tid), (0, python.child.id() as i32));
            assert_eq!(
                walked.walk,
                copies.len(),
                "{interpreter:?}: walks of a sample are complete"
            );
            copies.push(walked.copy);
            if copies.len() < walks.len() {
                return false;
            }
            let sample = std::mem::take(&mut copies);
            let (end, functions) = python.functions(&sample);
            let leaf = functions.first().is_some_and(|name| name == "leaf");
            if equal == 0 && !(leaf && end == ChainEnd::Complete) {
                // It has not come there yet.
                return false;
            }
            let names = |name: &str| name.rsplit('.').next().unwrap().to_owned();
            let functions: Vec<String> = functions.iter().map(|name| names(name)).collect();
            let expected = ["leaf", "middle", "middle", "middle", "middle", "__lt__", "<module>"];
            assert_eq!(
                (end, &functions[..]),
                (ChainEnd::Complete, &expected.map(str::to_owned)[..])
            );
            let thread = Thread { pointer: python.pointer, frame: 0, is_first: false };
            let model: Vec<_> =
                walks.iter().map(|walk| run(walk, thread, &python.memory)).collect();
            assert_eq!(sample, model, "{interpreter:?}");
            equal += 1;
            frames = functions.len();
            last = sample;
            equal == 200
        });
        assert_eq!(sampling.walks().maps().lost(), 0);
        let copied = Copied { walks: &last, registers: AllRegs::default() };
        let mut users = Vec::new();
        python.cpython.frames(copied, &mut users);
        for user in users {
            let named = sampling.code.iter().filter(|code| code.object() == Some(user.code.object));
            let mut named = named.map(|code| python.cpython.name(&user.code, code));
            let name = python.cpython.name(&user.code, &python.memory);
            assert!(named.any(|found| found == name), "{interpreter:?}: {name:?}");
            frames -= 1;
        }
        assert_eq!(frames, 0);
    }
}

/// Two recursions, each of which calls only itself.
const ALTERNATING: &str = "
def a(n):
    return a(n - 1) if n else 0
def b(n):
    return b(n - 1) if n else 0
while True:
    a(40)
    b(40)
";

#[test]
fn no_sample_has_a_call_that_the_program_cannot_make() {
    const SAMPLES: usize = 5000;
    let interpreters = interpreters();
    let each = SAMPLES.div_ceil(interpreters.len().max(1));
    for interpreter in interpreters {
        let mut python = Python::start(&interpreter, ALTERNATING);
        let Some(mut sampling) = python.sampled(1000) else { return };
        let (mut samples, mut complete) = (0, 0);
        sampling.until(|walked| {
            if walked.walk > 0 {
                return samples >= each;
            }
            samples += 1;
            let (end, functions) = python.functions(&[walked.copy]);
            complete += usize::from(end == ChainEnd::Complete);
            for call in functions.windows(2) {
                let possible = call[1] == "<module>" || call[0] == call[1];
                assert!(possible && call[0] != "<module>", "{interpreter:?}: {functions:?}");
            }
            assert!(end != ChainEnd::Complete || functions.last().unwrap() == "<module>");
            samples >= each && python.cpython.walks().len() == 1
        });
        eprintln!("{interpreter:?}: {complete} of {samples} samples are complete");
        assert!(complete * 100 >= samples * 95, "{interpreter:?}: {complete} of {samples}");
    }
}

/// Threads that start and end, and wait for the global lock.
const THREADS: &str = "
import sys, threading
sys.setswitchinterval(0.0005)
def a(n):
    return a(n - 1) if n else 0
def b(n):
    return b(n - 1) if n else 0
def repeat(function):
    for _ in range(300):
        function(20)
while True:
    threads = [threading.Thread(target=repeat, args=(f,)) for f in (a, b, a, b)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
";

#[test]
fn a_sample_has_the_frames_of_its_own_thread() {
    const SAMPLES: usize = 500;
    for interpreter in interpreters() {
        let mut python = Python::start(&interpreter, THREADS);
        let pid = python.child.id() as i32;
        let Some(mut sampling) = python.sampled(1000) else { return };
        let (mut samples, mut complete) = (0, 0);
        // The function that a thread repeats.
        let mut repeated: HashMap<i32, String> = HashMap::new();
        sampling.until(|walked| {
            if walked.walk > 0 || walked.copy.status == Status::Nothing || samples >= SAMPLES {
                return samples >= SAMPLES;
            }
            assert_eq!(walked.pid, pid);
            let (end, functions) = python.functions(&[walked.copy]);
            for name in functions.iter().filter(|name| ["a", "b"].contains(&&***name)) {
                let known = repeated.entry(walked.tid).or_insert_with(|| name.clone());
                assert_eq!(known, name, "{interpreter:?}: {functions:?}");
            }
            // A thread that begins may have no function yet.
            if let (ChainEnd::Complete, Some(root)) = (&end, functions.last()) {
                let expected = if walked.tid == pid { "<module>" } else { "_bootstrap" };
                assert!(root.ends_with(expected), "{interpreter:?}: {functions:?}");
            }
            samples += usize::from(walked.tid != pid);
            complete += usize::from(walked.tid != pid && end == ChainEnd::Complete);
            false
        });
        assert!(repeated.len() > 2, "{interpreter:?}: {} threads", repeated.len());
        eprintln!("{interpreter:?}: {complete} of {samples} samples are complete");
        assert!(complete * 100 >= samples * 95, "{interpreter:?}: {complete} of {samples}");
    }
}

/// The cost of a frame is what the limit of frames assumes, but for a slow machine. Prints it.
#[test]
fn chains_of_all_depths_are_complete_and_their_cost_is_printed() {
    for interpreter in interpreters() {
        for depth in [10, 100, 900] {
            let script = format!(
                "def f(n):\n return f(n - 1) if n else sum(__import__('itertools').repeat(0))\nf({depth})"
            );
            let python = Python::start(&interpreter, &script);
            let Some(mut sampling) = python.sampled(4096) else { return };
            let size = python.cpython.walks()[0].frame_size();
            let mut costs = Vec::new();
            sampling.until(|walked| {
                let frames = walked.copy.bytes.len() / size;
                if walked.walk == 0 && frames > depth {
                    assert_eq!(walked.copy.status, Status::Complete);
                    costs.push(walked.took / frames as u64);
                }
                costs.len() >= 300
            });
            costs.sort_unstable();
            let (half, most) = (costs[costs.len() / 2], costs[costs.len() * 9 / 10]);
            eprintln!("{interpreter:?}, depth {depth}: p50 {half} ns a frame, p90 {most} ns");
        }
    }
}
