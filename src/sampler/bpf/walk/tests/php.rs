//! PHP of the machine.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use interpreters::php::{Php, detect};
use interpreters::walk::Status;
use interpreters::{
    Budget, ChainEnd, CodeKey, Copied, MappedFiles, Name, Process, ProcessMemory, Runtime,
};
use sys::record::AllRegs;

use super::*;

/// Two recursions that alternate: neither calls the other.
const ALTERNATING: &str = "
function a($n) { return $n ? a($n - 1) : strlen('a'); }
function b($n) { return $n ? b($n - 1) : max(array_map(fn ($x) => $x, [1])); }
function main() { echo \"ready\\n\"; while (true) { a(30); b(30); } }
main();
";

/// A PHP that runs a script.
struct Running {
    child: Child,
    php: Php,
    memory: ProcessMemory,
    names: HashMap<CodeKey, String>,
}

impl Running {
    /// Runs a script, until it has written a line; `None` if there is no PHP with a table of offsets.
    fn start(script: &str) -> Option<Running> {
        let mut command = Command::new("/usr/bin/php");
        let child = command.args(["-r", script]).stdout(Stdio::piped()).spawn();
        let Ok(mut child) = child else {
            sys::testing::skip("there is no PHP");
            return None;
        };
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid = child.id() as i32;
        let files = MappedFiles::open(pid).unwrap();
        let memory = ProcessMemory::new(pid, Budget { bytes: usize::MAX, calls: usize::MAX });
        let process = Process { images: &files.images(), threads: &[pid], memory: &memory };
        let php = detect(&process).unwrap().expect("PHP");
        Some(Running { child, php, memory, names: HashMap::new() })
    }

    /// The functions of a sample, the innermost first.
    fn functions(&mut self, copy: WalkCopy) -> (ChainEnd, Vec<String>) {
        let mut frames = Vec::new();
        let copied = Copied { walks: &[copy], registers: AllRegs::default() };
        let end = self.php.frames(copied, &mut frames);
        let mut name = |key: CodeKey| {
            let known = self.names.entry(CodeKey { position: 0, ..key });
            let name = || match self.php.name(&key, &self.memory) {
                Name::Found(code) => code.function,
                other => panic!("{other:?}"),
            };
            known.or_insert_with(name).clone()
        };
        let names = frames.iter().map(|frame| name(frame.code)).collect();
        (end, names)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn frames_of_the_first_thread_are_those_of_one_moment() {
    const SAMPLES: usize = 1000;
    let Some(mut php) = Running::start(ALTERNATING) else { return };
    let pid = php.child.id() as i32;
    let walks = php.php.walks().to_vec();
    let Some(mut sampling) = Sampling::start(pid, 1000, pid, &walks) else { return };
    let (mut count, mut complete) = (0, 0);
    sampling.until(|walked| {
        count += 1;
        let is_complete = walked.copy.status == Status::Complete;
        let (end, functions) = php.functions(walked.copy);
        assert_eq!(end == ChainEnd::Complete, is_complete);
        if is_complete {
            complete += 1;
            assert_eq!(functions[functions.len().saturating_sub(2)..], ["main", "{main}"]);
            for pair in functions.windows(2) {
                let [callee, caller] = [&*pair[0], &*pair[1]];
                let is_call = match callee {
                    "a" | "b" => caller == callee || caller == "main",
                    "{closure}" => caller == "array_map",
                    "main" => caller == "{main}",
                    _ => caller == "b",
                };
                assert!(is_call, "{caller} does not call {callee}");
            }
        }
        count >= SAMPLES
    });
    assert!(complete * 100 >= count * 99, "{complete} of {count}");
}
