//! Records what walks and names read of a process with an interpreter: `record PID STACKS OUTPUT`.
//! STACKS is what `scripts/known.py`, or that of another language, has written; the threads that it
//! names are walked.

use interpreters::glibc::{ThreadLayout, ThreadLists};
use interpreters::hotspot::HotSpot;
use interpreters::walk::{Thread, run};
use interpreters::{
    Budget, Copied, Executed, LoadedImage, MappedFiles, Memory, Process, ProcessMemory, Recorder,
    Runtime, cpython, hotspot, php, ruby, v8,
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
    let images = files.images();
    if let Some(found) = hotspot(&Process { images: &images, threads: &threads, memory: &recorder })
    {
        let mut recorded = recorder.into_recorded();
        recorded.facts = found.facts();
        std::fs::write(output, recorded.to_bytes()).expect("a file is written");
        return;
    }
    // What V8's check reads is large, and not recorded.
    let process = Process { images: &images, threads: &threads, memory: &memory };
    let (runtime, facts, pointers): (Box<dyn Runtime>, _, _) =
        match v8::detect(&process).expect("V8 that is supported") {
            Some(found) => {
                let pointers = pointers_of(&named_threads(&stacks, 10), &images, &memory);
                (Box::new(found.clone()), found.facts(), pointers)
            }
            None => {
                let process = Process { memory: &recorder, ..process };
                let (runtime, facts) = detect(&process);
                let pointers = named_threads(&stacks, 16);
                let pointers = pointers.into_iter().map(|pointer| (pointer, pointer)).collect();
                (runtime, facts, pointers)
            }
        };
    for &(_, pointer) in &pointers {
        walk(&*runtime, Thread { pointer, frame: 0, is_first: false }, &recorder);
    }
    if pointers.is_empty() {
        // PHP's walk needs no pointer.
        walk(&*runtime, Thread { pointer: 0, frame: 0, is_first: true }, &recorder);
    }
    let mut recorded = recorder.into_recorded();
    recorded.facts = facts;
    let threads: Vec<String> = threads.iter().map(i32::to_string).collect();
    recorded.facts.push(("threads".to_owned(), threads.join(" ")));
    let pair = |(number, pointer): &(u64, u64)| {
        if number == pointer { pointer.to_string() } else { format!("{number}={pointer}") }
    };
    let pointers: Vec<String> = pointers.iter().map(pair).collect();
    recorded.facts.push(("pointers".to_owned(), pointers.join(" ")));
    std::fs::write(output, recorded.to_bytes()).expect("a file is written");
}

/// HotSpot of a process, if it has one, after its methods were read: all that execute C++ now.
fn hotspot(process: &Process) -> Option<HotSpot> {
    let found = hotspot::detect(process).expect("HotSpot that is supported")?;
    for frame in found.last_frames(process.memory).expect("threads") {
        let keys = found.walk(frame, process.memory);
        for key in keys.unwrap_or_default() {
            found.name(&key, process.memory);
        }
    }
    Some(found)
}

/// The interpreter of a process without V8, and what else is known of it.
fn detect(process: &Process) -> (Box<dyn Runtime>, Vec<(String, String)>) {
    if let Some(found) = cpython::detect(process).expect("CPython that is supported") {
        let facts = found.facts();
        return (Box::new(found), facts);
    }
    if let Some(found) = php::detect(process).expect("PHP that is supported") {
        let facts = found.facts();
        return (Box::new(found), facts);
    }
    let found = ruby::detect(process).expect("Ruby that is supported").expect("an interpreter");
    let facts = found.facts();
    (Box::new(found), facts)
}

/// The threads in the stacks of the program: thread pointers, or their numbers.
fn named_threads(stacks: &str, radix: u32) -> Vec<u64> {
    let threads = stacks.lines().filter_map(|line| line.strip_prefix("thread "));
    let number = |line: &str| u64::from_str_radix(line.split(' ').next()?, radix).ok();
    threads.map(|line| number(line).expect("a thread")).collect()
}

/// Thread pointers of threads with these numbers.
fn pointers_of(threads: &[u64], images: &[LoadedImage], memory: &ProcessMemory) -> Vec<(u64, u64)> {
    let number = ThreadLayout::find(images).expect("glibc").tid;
    let all = ThreadLists::find(images).expect("lists").pointers(memory).expect("threads");
    let memory: &dyn Memory = memory;
    let pair = |pointer: u64| {
        let number = memory.half(pointer + u64::from(number)).expect("a thread");
        (u64::from(number), pointer)
    };
    all.into_iter().map(pair).filter(|(number, _)| threads.contains(number)).collect()
}

/// Reads the frames of a thread, and all names.
fn walk(found: &dyn Runtime, thread: Thread, memory: &dyn Memory) {
    let copies: Vec<_> = found.walks().iter().map(|walk| run(walk, thread, memory)).collect();
    let mut frames = Vec::new();
    let copied = Copied { walks: &copies, registers: AllRegs::default() };
    found.frames(copied, &mut frames);
    for frame in frames {
        if let Executed::Frames(frames) | Executed::Momentary(frames) =
            found.executed(&frame.code, memory)
        {
            frames.iter().for_each(|code| _ = found.name(code, memory));
        }
        found.name(&frame.code, memory);
    }
}
