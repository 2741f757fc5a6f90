//! Profiles of V8 (Chrome, Node.js, Deno): `.cpuprofile` and `.heapprofile`. Both are read only.

mod cpu;
mod heap;

use std::io::Read;
use std::marker::PhantomData;

use serde::Deserialize;

use profile::{FunctionId, LocationId, Profile};

use crate::assembly::{Assembly, MOST_FRAMES};
use crate::error::ReadError;
use crate::unpacked::text;
use crate::{Format, json};

/// A CPU profile: `node --cpu-prof`, Chrome's developer tools.
#[derive(Debug)]
pub struct CpuProfile;

/// A sampled heap profile: `node --heap-prof`, Chrome's developer tools.
#[derive(Debug)]
pub struct HeapProfile;

/// Title of [`CpuProfile`].
const CPU: &str = "CPU profile of V8";

/// Title of [`HeapProfile`].
const HEAP: &str = "heap profile of V8";

/// The name of the root of all stacks, which is no function.
const ROOT: &str = "(root)";

impl Format for CpuProfile {
    fn name(&self) -> &'static str {
        "cpuprofile"
    }

    fn title(&self) -> &'static str {
        CPU
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["cpuprofile"]
    }

    fn detect(&self, head: &[u8]) -> bool {
        has_keys(head, &["nodes", "callFrame"]) || has_keys(head, &["timeDeltas", "samples"])
    }

    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
        let parsed = json::read(CPU, input, PhantomData::<cpu::FileContent>)?;
        cpu::profile(&parsed.value, parsed.memory_allowed)
    }
}

impl Format for HeapProfile {
    fn name(&self) -> &'static str {
        "heapprofile"
    }

    fn title(&self) -> &'static str {
        HEAP
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["heapprofile"]
    }

    fn detect(&self, head: &[u8]) -> bool {
        has_keys(head, &["head", "callFrame", "selfSize"])
    }

    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
        let parsed = json::read(HEAP, input, PhantomData::<heap::FileContent>)?;
        heap::profile(&parsed.value, parsed.memory_allowed)
    }
}

/// True for a JSON object with these keys at its beginning, which is no trace of Chrome: that
/// contains CPU profiles in pieces.
fn has_keys(head: &[u8], keys: &[&str]) -> bool {
    let Some(text) = text(head).map(str::trim_start) else { return false };
    let has = |key: &&str| text.contains(&format!("\"{key}\""));
    text.starts_with('{') && !has(&"traceEvents") && keys.iter().all(has)
}

/// A function, with the place of its definition.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallFrame {
    #[serde(default, deserialize_with = "json::text")]
    function_name: String,
    #[serde(default, deserialize_with = "json::text")]
    url: String,
    /// From 0; -1: unknown.
    #[serde(default)]
    line_number: Option<f64>,
}

impl CallFrame {
    /// Its id; `None` for the root.
    fn function(&self, all: &mut Assembly) -> Option<FunctionId> {
        let name = match self.function_name.as_str() {
            ROOT => return None,
            "" => "(anonymous)",
            name => name,
        };
        let file = self.url.strip_prefix("file://").unwrap_or(&self.url);
        let line = self.line_number.map_or(0, |line| (line as i64).saturating_add(1));
        Some(all.function(name, file, line.max(0)))
    }
}

/// The stack of a node of a tree, leaf first, by the numbers of the parents.
fn stack(
    stack: &mut Vec<LocationId>,
    leaf: Option<LocationId>,
    mut parent: Option<u32>,
    node: impl Fn(u32) -> (Option<LocationId>, Option<u32>),
) {
    stack.clear();
    stack.extend(leaf);
    // Of deeper ones the outermost frames are cut.
    while let Some(number) = parent.filter(|_| stack.len() <= MOST_FRAMES) {
        let (location, next) = node(number);
        stack.extend(location);
        parent = next;
    }
}

#[cfg(test)]
mod tests;
