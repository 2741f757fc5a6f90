//! Ruby of memory images, which `scripts/ruby-images` makes, and of running programs.

mod hostile;
mod images;
mod live;
mod merging;

use sys::record::AllRegs;

use super::Ruby;
use super::names::MAX_FUNCTION;
use crate::walk::{Thread, WalkCopy, run};
use crate::{ChainEnd, Copied, Memory, Name, Recorded, Runtime, UserFrame};

/// The memory image of Ruby 3.1.
const MEMORY: &[u8] = include_bytes!("../../../tests/data/ruby-3.1.memory");
/// What the program says of its stacks.
const STACKS: &str = include_str!("../../../tests/data/ruby-3.1.stacks");
/// Its native stacks, by gdb.
const NATIVE: &str = include_str!("../../../tests/data/ruby-3.1.native");

fn memory() -> Recorded {
    Recorded::parse(MEMORY).unwrap()
}

/// The thread of a shape.
fn thread(shape: &str) -> u64 {
    stacks(STACKS).iter().find(|(_, name, _)| *name == shape).unwrap().0
}

/// Stacks as the program writes them: thread pointer, shape, and lines of frames.
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
    match name.get(..MAX_FUNCTION) {
        Some(start) if start.len() < name.len() => format!("{start}...\t{place}"),
        _ => line.to_owned(),
    }
}

fn copies(ruby: &Ruby, pointer: u64, memory: &dyn Memory) -> Vec<WalkCopy> {
    let thread = Thread { pointer, frame: 0, is_first: false };
    ruby.walks().iter().map(|walk| run(walk, thread, memory)).collect()
}

/// These copies; Ruby's frames need no register.
fn copied(walks: &[WalkCopy]) -> Copied<'_> {
    Copied { walks, registers: AllRegs::default() }
}

fn frames(ruby: &Ruby, copies: &[WalkCopy]) -> (ChainEnd, Vec<UserFrame>) {
    let mut frames = Vec::new();
    let end = ruby.frames(copied(copies), &mut frames);
    (end, frames)
}

/// Frames as the program writes them.
fn lines(ruby: &Ruby, frames: &[UserFrame], memory: &dyn Memory) -> Vec<String> {
    let line = |frame: &UserFrame| match ruby.name(&frame.code, memory) {
        Name::Found(code) => {
            let line = code.line(frame.code.position).unwrap_or(0);
            format!("{}\t{}\t{line}", code.function, code.file)
        }
        other => format!("{other:?}"),
    };
    frames.iter().map(line).collect()
}
