//! Python programs that fork, execute others, overwrite their interpreter's memory and free their
//! code while they are recorded.

use std::collections::BTreeSet;

use crate::common::pprof::Sample;
use crate::common::python::{self, Frame, PLACEHOLDER};
use crate::common::{Prof, read, temp_dir};

/// Processes that are forked and execute no other program.
const FORKS: &str = "\
import os, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        for i in range(1000): pass
def in_parent():
    burn(0.4)
def in_child():
    burn(0.4)
def main():
    in_parent()
    for k in range(3):
        pid = os.fork()
        if pid == 0:
            in_child()
            os._exit(0)
        os.waitpid(pid, 0)
    in_parent()
main()
os._exit(0)
";

#[test]
fn forked_processes_have_their_own_functions() {
    for python in python::pythons() {
        let dir = temp_dir();
        let p = python.record(dir.path(), "-F 1999 -e cpu-clock", FORKS);
        let what = format!("Python 3.{}", python.minor);
        let samples = python::recognized(&p);
        python::assert_complete(&what, &p, &samples, "<module>");
        let pids = p.label_values("pid");
        assert_eq!(pids.len(), 4, "{what}: {pids:?}");
        let mut children = 0;
        for pid in pids {
            let own = samples.iter().filter(|sample| sample.labels["pid"] == pid);
            let named: BTreeSet<&str> =
                own.flat_map(|sample| python::functions(&p, sample)).collect();
            let has = ["in_parent", "in_child"].map(|name| named.contains(name));
            assert!(has[0] != has[1], "{what}: {named:?}");
            children += usize::from(has[1]);
            let all = python::in_order(&p, pid);
            let native = all.iter().take_while(|sample| python::functions(&p, sample).is_empty());
            let native = native.count();
            println!("{what}: {native} samples before the first function in process {pid}");
            // Those of the system call that made it may come before it runs.
            assert!(!has[1] || native <= 2, "{what}: {native} of {}", all.len());
        }
        assert_eq!(children, 3, "{what}");
    }
}

/// Another Python, then a program without functions of Python's.
const EXECUTES: &str = "\
import os, sys, time
def before():
    end = time.process_time() + 0.4
    while time.process_time() < end:
        for i in range(1000): pass
after = '''
import os, time
def after():
    end = time.process_time() + 0.4
    while time.process_time() < end:
        for i in range(1000): pass
after()
shell = 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'
os.execv('/bin/sh', ['native', '-c', shell])
'''
before()
os.execv(sys.argv[1], [sys.argv[1], '-c', after])
";

#[test]
fn no_function_outlives_the_program_that_another_replaces() {
    let pythons = python::pythons();
    let Some(first) = pythons.first() else { return };
    for next in pythons.iter().skip(1).chain([first]) {
        let dir = temp_dir();
        let file = python::write_script(dir.path(), EXECUTES);
        let prof = Prof::new(&dir, "record --timestamps -F 1999 -e cpu-clock");
        prof.target(&first.path, "").arg(&file).arg(&next.path).run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        let what = format!("Python 3.{}, then 3.{}", first.minor, next.minor);
        let pids: Vec<&str> = p.label_values("pid").into_iter().collect();
        let [pid] = pids[..] else { panic!("{what}: {pids:?}") };
        let samples = python::in_order(&p, pid);
        let places = |name: &str| -> Vec<usize> {
            let has = |at: &usize| python::functions(&p, samples[*at]).contains(&name);
            (0..samples.len()).filter(has).collect()
        };
        let (before, after) = (places("before"), places("after"));
        assert!(before.len() > 100 && after.len() > 100, "{what}: {before:?}, {after:?}");
        assert!(before.last() < after.first(), "{what}: {before:?}, {after:?}");
        // Once it is known, each sample of the second one has its functions.
        let known = &samples[after[0]..=*after.last().unwrap()];
        python::assert_complete(&what, &p, known, "<module>");
        let script = known.iter().flat_map(|sample| python::frames(&p, sample));
        let mut first_script = script.filter(|frame| file.as_os_str() == frame.file);
        assert_eq!(first_script.next(), None, "{what}");
        let is_native = |sample: &&&Sample| sample.labels["process"] == "sh";
        let native: Vec<&&Sample> = samples.iter().filter(is_native).collect();
        assert!(native.len() > 50, "{what}: {} samples", native.len());
        for sample in native {
            assert_eq!(python::frames(&p, sample), [], "{what}");
        }
    }
}

/// Children that overwrite their frames until they crash or are killed.
const OVERWRITES: &str = "\
import ctypes, os, random, signal, sys, threading, time
minor = sys.version_info[1]
# Offsets in a frame of the pointers to its caller and its code.
offsets = {8: (24, 32), 9: (24, 32), 10: (24, 32), 11: (48, 32), 12: (8, 0), 13: (8, 0)}
PREVIOUS, CODE = offsets[minor]
def word(address):
    return ctypes.c_uint64.from_address(address)
def place(frame):
    return id(frame) if minor <= 10 else word(id(frame) + 24).value
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        for i in range(1000): pass
def cycle():
    here = place(sys._getframe())
    word(here + PREVIOUS).value = here
    burn(0.1)
def cycle_of_two():
    def inner():
        mine = place(sys._getframe())
        word(outer + PREVIOUS).value = mine
        burn(0.1)
        os.kill(os.getpid(), 9)
    outer = place(sys._getframe())
    inner()
def random_caller():
    here = place(sys._getframe())
    word(here + PREVIOUS).value = random.getrandbits(47)
    burn(0.1)
def random_code():
    code = sys._getframe().f_code
    size = sys.getsizeof(code)
    copy = ctypes.create_string_buffer(ctypes.string_at(id(code), size), size)
    at = ctypes.addressof(copy)
    for offset in range(96, 144, 8):
        if random.random() < 0.7:
            others = [random.getrandbits(47), random.getrandbits(64), id(code), at]
            word(at + offset).value = random.choice(others)
    def inner():
        outer = word(place(sys._getframe()) + PREVIOUS).value
        word(outer + CODE).value = at
        burn(0.1)
        os.kill(os.getpid(), 9)
    inner()
def random_words():
    def victim():
        while True:
            burn(0.01)
    thread = threading.Thread(target=victim, daemon=True)
    thread.start()
    burn(0.05)
    end = time.process_time() + 0.2
    while time.process_time() < end:
        at = place(sys._current_frames()[thread.ident])
        for offset in range(0, 96, 8):
            if random.random() < 0.2:
                word(at + offset).value = random.getrandbits(random.choice([8, 47, 64]))
        burn(0.001)
def main():
    sys.stderr = open(os.devnull, 'w')
    for run in [cycle, cycle_of_two, random_caller, random_code, random_code] * 2 + [random_words] * 6:
        pid = os.fork()
        if pid == 0:
            # Threads whose frames are overwritten may wait for ever.
            signal.alarm(2)
            random.seed(os.getpid())
            run()
            os.kill(os.getpid(), 9)
        os.waitpid(pid, 0)
burn(0.3)
main()
os._exit(0)
";

/// True for a function that [`OVERWRITES`] defines.
fn is_of_script(frame: &Frame) -> bool {
    let name = python::plain(frame.function);
    name == "<module>" || OVERWRITES.contains(&format!("def {name}("))
}

#[test]
fn overwritten_frames_invent_no_function() {
    for python in python::pythons() {
        let dir = temp_dir();
        let file = dir.path().join("program.py");
        let p = python.record(dir.path(), "-F 1999 -e cpu-clock", OVERWRITES);
        let what = format!("Python 3.{}", python.minor);
        let mut seen = BTreeSet::new();
        let mut longest = 0;
        for sample in &p.samples {
            let frames = python::frames(&p, sample);
            longest = longest.max(frames.len());
            let pid = &sample.labels["pid"];
            for frame in frames.into_iter().filter(|f| !f.function.starts_with(PLACEHOLDER)) {
                let is_own = file.as_os_str() == frame.file && is_of_script(&frame);
                // Lines of `.pth` files are executed from strings.
                let is_library = frame.file.starts_with("<frozen ")
                    || frame.function == "<module>" && frame.file == "<string>"
                    || frame.file.ends_with(".py")
                        && file.as_os_str() != frame.file
                        && std::path::Path::new(frame.file).exists();
                assert!(is_own || is_library, "{what}: {frame:?}");
                if is_own {
                    let lines = OVERWRITES.lines().count() as i64;
                    // 0: the position lies in no line.
                    assert!((0..=lines).contains(&frame.line), "{what}: {frame:?}");
                    seen.insert((pid, frame.function));
                }
            }
        }
        // A cycle has no more frames than a walk.
        assert!(longest <= 4096, "{what}: {longest} frames");
        // The parent, whose memory is whole, is recorded to its end.
        let parents = seen.iter().filter(|(_, function)| *function == "main").count();
        assert!(parents > 0, "{what}: {seen:?}");
        assert!(p.label_values("pid").len() > 10, "{what}");
    }
}

/// Two functions take turns: each compiles a function of its own, calls it once and drops it. The new
/// one often has the memory of the old one.
const DROPS: &str = "\
import os, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        for i in range(100): pass
def compiled(name):
    scope = {'burn': burn}
    exec('def %s():\\n    burn(0.002)\\n' % name, scope)
    return scope[name]
def odd(k):
    compiled('odd_%d' % k)()
def even(k):
    compiled('even_%d' % k)()
def main():
    for k in range(150):
        odd(k)
        even(k)
main()
os._exit(0)
";

#[test]
fn code_that_was_dropped_has_its_own_name_or_none() {
    for python in python::pythons() {
        let dir = temp_dir();
        let p = python.record(dir.path(), "-F 4999 -e cpu-clock", DROPS);
        let what = format!("Python 3.{}", python.minor);
        let mut named = 0;
        let mut unnamed = 0;
        for sample in python::recognized(&p) {
            let functions = python::functions(&p, sample);
            for pair in functions.windows(2) {
                let [called, caller] = pair else { unreachable!() };
                if *caller != "odd" && *caller != "even" || *called == "compiled" {
                    continue;
                }
                if called.starts_with(PLACEHOLDER) {
                    unnamed += 1;
                    continue;
                }
                assert!(called.starts_with(&format!("{caller}_")), "{what}: {functions:?}");
                named += 1;
            }
        }
        println!("{what}: {named} frames have a name, {unnamed} have none");
        assert!(named > 100, "{what}: {named} frames have a name, {unnamed} have none");
    }
}
