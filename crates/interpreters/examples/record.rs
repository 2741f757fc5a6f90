//! Records what walks and names read of a process with CPython: `record PID STACKS OUTPUT`. STACKS is
//! what `scripts/known.py` has written; the threads that it names are walked.

use interpreters::walk::{Thread, run};
use interpreters::{
    Budget, Copied, MappedFiles, Memory, Process, ProcessMemory, Recorder, Runtime, cpython,
};

use sys::record::AllRegs;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, pid, stacks, output] = &arguments[..] else { panic!("record PID STACKS OUTPUT") };
    let pid: i32 = pid.parse().expect("the number of a process");
    let stacks = std::fs::read_to_string(stacks).expect("stacks");
    let memory = ProcessMemory::new(pid, Budget { bytes: 1 << 30, calls: 1 << 30 });
    let recorder = Recorder::new(&memory);
    let files = MappedFiles::open(pid).expect("files of the process");
    let threads = sys::procfs::threads(pid).expect("threads of the process");
    let process = Process { images: &files.images(), threads: &threads, memory: &recorder };
    let found = cpython::detect(&process).expect("CPython that is supported").expect("CPython");
    let pointers = thread_pointers(&stacks);
    for pointer in &pointers {
        walk(&found, *pointer, &recorder);
    }
    let mut recorded = recorder.into_recorded();
    recorded.facts = found.facts();
    let threads: Vec<String> = threads.iter().map(i32::to_string).collect();
    recorded.facts.push(("threads".to_owned(), threads.join(" ")));
    let pointers: Vec<String> = pointers.iter().map(u64::to_string).collect();
    recorded.facts.push(("pointers".to_owned(), pointers.join(" ")));
    std::fs::write(output, recorded.to_bytes()).expect("a file is written");
}

/// Thread pointers in the stacks of the program.
fn thread_pointers(stacks: &str) -> Vec<u64> {
    let threads = stacks.lines().filter_map(|line| line.strip_prefix("thread "));
    let pointer = |line: &str| u64::from_str_radix(line.split(' ').next()?, 16).ok();
    threads.map(|line| pointer(line).expect("a thread pointer")).collect()
}

/// Reads the frames of a thread, and all names.
fn walk(found: &cpython::Cpython, pointer: u64, memory: &dyn Memory) {
    let thread = Thread { pointer, frame: 0 };
    let copies: Vec<_> = found.walks().iter().map(|walk| run(walk, thread, memory)).collect();
    let mut frames = Vec::new();
    let copied = Copied { walks: &copies, registers: AllRegs::default() };
    found.frames(copied, &mut frames);
    for frame in frames {
        found.name(&frame.code, memory);
    }
}
