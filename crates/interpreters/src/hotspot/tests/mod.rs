//! HotSpot of running programs, and of recorded memory.

mod hostile;
mod images;
mod live;

use std::collections::BTreeMap;

use super::HotSpot;
use crate::{CodeKey, Memory, Name, Recorded, Runtime};

/// Stacks as the program writes them: by shape, lines of frames.
fn stacks(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut shapes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut last = String::new();
    for line in text.lines().take_while(|line| *line != "ready") {
        match line.strip_prefix("thread ") {
            Some(shape) => {
                last = shape.to_owned();
                shapes.insert(last.clone(), Vec::new());
            }
            None => shapes.get_mut(&last).expect("a shape").push(line.to_owned()),
        }
    }
    shapes
}

/// The methods of a walk as the program writes them.
fn lines(hotspot: &HotSpot, keys: &[CodeKey], memory: &dyn Memory) -> Vec<String> {
    let line = |key: &CodeKey| match hotspot.name(key, memory) {
        Name::Found(code) => {
            let name = code.function.split('(').next().unwrap_or_default();
            let line = code.line(key.position).unwrap_or(0);
            format!("{name}\t{}\t{line}", code.file)
        }
        other => format!("{other:?}"),
    };
    // The program does not see the methods that call lambdas.
    let is_shown = |line: &String| line.starts_with("Known") && !line.contains("$$Lambda");
    keys.iter().map(line).filter(is_shown).collect()
}

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
            memory: include_bytes!(concat!("../../../tests/data/hotspot-", $version, ".memory")),
            stacks: include_str!(concat!("../../../tests/data/hotspot-", $version, ".stacks")),
        }
    };
}

const IMAGES: [Image; 3] = [image!("17"), image!("17-interpreted"), image!("25")];

impl Image {
    fn memory(&self) -> Recorded {
        Recorded::parse(self.memory).unwrap()
    }
}
