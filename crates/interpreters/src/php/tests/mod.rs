//! PHP of memory images, which `scripts/php-images` makes, and of running programs.

mod hostile;
mod images;
mod live;
mod merging;

use sys::record::AllRegs;

use super::Php;
use crate::walk::{Thread, WalkCopy, run};
use crate::{ChainEnd, Copied, Memory, Name, Recorded, Runtime, UserFrame};

/// A memory image of a shape of stack.
struct Image {
    shape: &'static str,
    memory: &'static [u8],
    /// What the program says of its stack.
    stack: &'static str,
    /// Its native stack, by gdb.
    native: &'static str,
}

macro_rules! image {
    ($shape:literal) => {
        Image {
            shape: $shape,
            memory: include_bytes!(concat!("../../../tests/data/php-8.2-", $shape, ".memory")),
            stack: include_str!(concat!("../../../tests/data/php-8.2-", $shape, ".stack")),
            native: include_str!(concat!("../../../tests/data/php-8.2-", $shape, ".native")),
        }
    };
}

const CALLS: usize = 0;
const DESTRUCTION: usize = 2;
const FIBER: usize = 3;
const IMAGES: [Image; 5] =
    [image!("calls"), image!("code"), image!("destruction"), image!("fiber"), image!("delegation")];

impl Image {
    fn memory(&self) -> Recorded {
        Recorded::parse(self.memory).unwrap()
    }

    fn php(&self) -> Php {
        Php::of_recorded(&self.memory()).unwrap()
    }

    /// The lines of its frames.
    fn expected(&self) -> Vec<String> {
        expected(self.stack)
    }
}

/// The stack as the program writes it. A generator that another one delegates to is called by what
/// has resumed the other one: that has no frame.
fn expected(text: &str) -> Vec<String> {
    let lines = text.lines().take_while(|line| *line != "ready");
    lines.filter(|line| !line.starts_with("Known\\delegates")).map(str::to_owned).collect()
}

fn copies(php: &Php, memory: &dyn Memory) -> Vec<WalkCopy> {
    let thread = Thread { pointer: 0, frame: 0, is_first: true };
    php.walks().iter().map(|walk| run(walk, thread, memory)).collect()
}

/// These copies, of a thread whose registers have another meaning.
fn copied(walks: &[WalkCopy]) -> Copied<'_> {
    Copied { walks, registers: AllRegs::default() }
}

fn frames(php: &Php, copies: &[WalkCopy]) -> (ChainEnd, Vec<UserFrame>) {
    let mut frames = Vec::new();
    let end = php.frames(copied(copies), &mut frames);
    (end, frames)
}

/// Frames as the program writes them.
fn lines(php: &Php, frames: &[UserFrame], memory: &dyn Memory) -> Vec<String> {
    let line = |frame: &UserFrame| match php.name(&frame.code, memory) {
        Name::Found(code) => {
            let line = code.line(frame.code.position).unwrap_or(0);
            format!("{}\t{}\t{line}", code.function, code.file)
        }
        other => format!("{other:?}"),
    };
    frames.iter().map(line).collect()
}
