//! CPython of memory images, which `scripts/images` makes, and of running programs.

mod hostile;
mod images;
mod live;
mod merging;

use sys::record::AllRegs;

use super::Cpython;
use crate::walk::{Thread, WalkCopy, run};
use crate::{ChainEnd, Copied, Memory, Name, Recorded, Runtime, UserFrame};

/// A memory image of a version.
struct Image {
    version: &'static str,
    memory: &'static [u8],
    /// What the program says of its stacks.
    stacks: &'static str,
    /// Its native stacks, by gdb.
    native: &'static str,
}

macro_rules! image {
    ($version:literal) => {
        Image {
            version: $version,
            memory: include_bytes!(concat!("../../../tests/data/cpython-", $version, ".memory")),
            stacks: include_str!(concat!("../../../tests/data/cpython-", $version, ".stacks")),
            native: include_str!(concat!("../../../tests/data/cpython-", $version, ".native")),
        }
    };
}

const IMAGES: [Image; 6] =
    [image!("3.8"), image!("3.9"), image!("3.10"), image!("3.11"), image!("3.12"), image!("3.13")];

impl Image {
    fn memory(&self) -> Recorded {
        Recorded::parse(self.memory).unwrap()
    }

    /// Its threads: thread pointer, shape, and lines of frames.
    fn threads(&self) -> Vec<(u64, &'static str, Vec<String>)> {
        stacks(self.stacks)
    }

    /// The thread of a shape.
    fn thread(&self, shape: &str) -> u64 {
        self.threads().iter().find(|(_, name, _)| *name == shape).unwrap().0
    }
}

/// Stacks as the program writes them.
fn stacks(text: &str) -> Vec<(u64, &str, Vec<String>)> {
    let mut threads: Vec<(u64, &str, Vec<String>)> = Vec::new();
    for line in text.lines().take_while(|line| *line != "ready") {
        match line.strip_prefix("thread ") {
            Some(thread) => {
                let (pointer, shape) = thread.split_once(' ').unwrap();
                threads.push((u64::from_str_radix(pointer, 16).unwrap(), shape, Vec::new()));
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

fn copies(cpython: &Cpython, pointer: u64, memory: &dyn Memory) -> Vec<WalkCopy> {
    let thread = Thread { pointer, frame: 0, is_first: false };
    cpython.walks().iter().map(|walk| run(walk, thread, memory)).collect()
}

/// These copies; CPython's frames need no register.
fn copied(walks: &[WalkCopy]) -> Copied<'_> {
    Copied { walks, registers: AllRegs::default() }
}

fn frames(cpython: &Cpython, copies: &[WalkCopy]) -> (ChainEnd, Vec<UserFrame>) {
    let mut frames = Vec::new();
    let end = cpython.frames(copied(copies), &mut frames);
    (end, frames)
}

/// Frames as the program writes them.
fn lines(cpython: &Cpython, frames: &[UserFrame], memory: &dyn Memory) -> Vec<String> {
    let line = |frame: &UserFrame| match cpython.name(&frame.code, memory) {
        Name::Found(code) => {
            let line = code.line(frame.code.position).unwrap_or(0);
            format!("{}\t{}\t{line}", code.function, code.file)
        }
        other => format!("{other:?}"),
    };
    frames.iter().map(line).collect()
}
