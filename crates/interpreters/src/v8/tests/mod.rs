//! V8 of memory images, which `scripts/v8-images` makes, and of running programs.

mod hostile;
mod images;
mod live;
mod merging;

use sys::record::AllRegs;

use super::V8;
use crate::walk::{Thread, WalkCopy, run};
use crate::{ChainEnd, CodeKey, Copied, Executed, Memory, Name, Recorded, Runtime, UserFrame};

/// A memory image of a version.
struct Image {
    version: &'static str,
    memory: &'static [u8],
    /// What the program says of its stacks.
    stacks: &'static str,
}

macro_rules! image {
    ($version:literal) => {
        Image {
            version: $version,
            memory: include_bytes!(concat!("../../../tests/data/v8-", $version, ".memory")),
            stacks: include_str!(concat!("../../../tests/data/v8-", $version, ".stacks")),
        }
    };
}

const IMAGES: [Image; 4] = [image!("10.2"), image!("11.3"), image!("12.4"), image!("13.6")];

impl Image {
    fn memory(&self) -> Recorded {
        Recorded::parse(self.memory).unwrap()
    }

    /// Its threads: thread pointer, shape, and lines of frames.
    fn threads(&self) -> Vec<(u64, &'static str, Vec<String>)> {
        let memory = self.memory();
        let pointers = memory.fact("pointers").unwrap();
        let pairs = pointers.split(' ').map(|pair| pair.split_once('=').unwrap());
        let pairs: Vec<(u32, u64)> =
            pairs.map(|(tid, pointer)| (tid.parse().unwrap(), pointer.parse().unwrap())).collect();
        let pointer = |tid| pairs.iter().find(|pair| pair.0 == tid).unwrap().1;
        stacks(self.stacks)
            .into_iter()
            .map(|(tid, shape, lines)| (pointer(tid), shape, lines))
            .collect()
    }

    /// The thread of a shape.
    fn thread(&self, shape: &str) -> u64 {
        self.threads().iter().find(|(_, name, _)| *name == shape).unwrap().0
    }
}

/// Stacks as the program writes them: thread, shape, and lines of frames.
fn stacks(text: &str) -> Vec<(u32, &str, Vec<String>)> {
    let mut threads: Vec<(u32, &str, Vec<String>)> = Vec::new();
    for line in text.lines().take_while(|line| *line != "ready") {
        match line.strip_prefix("thread ") {
            Some(thread) => {
                let (tid, shape) = thread.split_once(' ').unwrap();
                threads.push((tid.parse().unwrap(), shape, Vec::new()));
            }
            None => threads.last_mut().unwrap().2.push(cut(line)),
        }
    }
    threads
}

/// A line with the name of the function as long as it is kept.
fn cut(line: &str) -> String {
    let (name, place) = line.split_once('\t').unwrap();
    match name.char_indices().nth(512) {
        Some((end, _)) => format!("{}...\t{place}", &name[..end]),
        None => line.to_owned(),
    }
}

/// What the walks copy of a thread that waits in a function of C++.
fn copies(v8: &V8, pointer: u64, memory: &dyn Memory) -> Vec<WalkCopy> {
    let thread = Thread { pointer, frame: 0, is_first: false };
    v8.walks().iter().map(|walk| run(walk, thread, memory)).collect()
}

fn copied(walks: &[WalkCopy]) -> Copied<'_> {
    Copied { walks, registers: AllRegs::default() }
}

fn frames(v8: &V8, copies: &[WalkCopy]) -> (ChainEnd, Vec<UserFrame>) {
    let mut frames = Vec::new();
    let end = v8.frames(copied(copies), &mut frames);
    (end, frames)
}

/// The functions that frames execute, with those that are inlined.
fn executed(v8: &V8, frames: &[UserFrame], memory: &dyn Memory) -> Vec<CodeKey> {
    let executed = |frame: &UserFrame| match v8.executed(&frame.code, memory) {
        Executed::Itself => vec![frame.code],
        Executed::Frames(frames) | Executed::Momentary(frames) => frames,
        Executed::Unreadable(own) => panic!("{own:?}"),
    };
    frames.iter().flat_map(executed).collect()
}

/// Compares frames with what the program has written.
fn compare(v8: &V8, frames: &[UserFrame], expected: &[String], memory: &dyn Memory, what: &str) {
    let mut found = Vec::new();
    for (i, key) in executed(v8, frames, memory).into_iter().enumerate() {
        let code = match v8.name(&key, memory) {
            Name::Found(code) => code,
            other => panic!("{what}: frame {i}: {other:?}"),
        };
        let line = code.line(key.position).unwrap_or(0);
        let function = match code.function.split_once(':') {
            _ if code.file.starts_with("node:") => "*",
            // The program states no first lines.
            Some(("(anonymous", _)) => "(anonymous)",
            _ => &code.function,
        };
        found.push(format!("{function}\t{}\t{line}", code.file));
    }
    assert_eq!(found, expected, "{what}");
}
