//! Checks HotSpot's description of itself against its own code.

use super::HotSpot;
use super::blob::{Blob, Header, Kind};
use super::debug::DebugInfo;
use super::heap::CodeHeap;
use super::methods::Method;
use crate::{Memory, ReadError, Refusal};

/// Most blocks and compiled methods of a heap that are looked at.
const MOST_BLOCKS: usize = 512;
/// See [`MOST_BLOCKS`].
const MOST_METHODS: usize = 24;

/// What was found in the heaps.
#[derive(Default)]
struct Count {
    has_interpreter: bool,
    right: usize,
    wrong: usize,
}

/// Checks the structures of a process, with at most `tries`.
#[cfg(test)]
pub fn check(hotspot: &HotSpot, memory: &dyn Memory, tries: usize) -> Result<(), Refusal> {
    crate::tries::repeated(tries, || try_once(hotspot, memory))
}

/// Checks the structures of a process once. Code is made and freed while it is read.
///
/// # Errors
///
/// They are not as expected, or HotSpot has not begun to run.
pub fn try_once(hotspot: &HotSpot, memory: &dyn Memory) -> Result<(), Refusal> {
    let heaps = hotspot.heaps();
    let stub = hotspot.call_stub_return;
    let heap = heaps.iter().find(|heap| heap.range.contains(&stub));
    let heap = heap.ok_or(Refusal::Layout("the stub that calls Java is in no heap of code"))?;
    let block = heap.block(stub, memory)?;
    let blob = match block {
        Some(block) => {
            Header::read(block, &hotspot.layout, memory)?.blob(&hotspot.layout, memory)?
        }
        None => None,
    };
    let is_stub = |blob: &Blob| blob.kind == Kind::Stub && blob.code.contains(&stub);
    if !blob.as_ref().is_some_and(is_stub) {
        return Err(Refusal::Layout("the stub that calls Java is in no blob"));
    }
    let mut count = Count::default();
    for heap in &heaps {
        count_heap(hotspot, heap, &mut count, memory)?;
    }
    if !count.has_interpreter {
        return Err(Refusal::NotRunning);
    }
    if count.wrong > count.right {
        return Err(Refusal::Layout("compiled methods are of no class"));
    }
    Ok(())
}

fn count_heap(
    hotspot: &HotSpot,
    heap: &CodeHeap,
    count: &mut Count,
    memory: &dyn Memory,
) -> Result<(), Refusal> {
    let layout = &hotspot.layout;
    let mut next = Some(heap.range.start);
    let mut methods = 0;
    for _ in 0..MOST_BLOCKS {
        let Some(block) = next.filter(|_| methods < MOST_METHODS) else { break };
        // A heap that has not grown to its end ends here.
        let header = match Header::read(block, layout, memory) {
            Err(ReadError::Unmapped) => break,
            header => header?,
        };
        if let Some(blob) = header.blob(layout, memory)? {
            count.has_interpreter |= blob.kind == Kind::Interpreter;
            if blob.compiled.is_some() {
                methods += 1;
                let is_right = is_right(hotspot, &blob, memory)?;
                count.right += usize::from(is_right);
                count.wrong += usize::from(!is_right);
            }
        }
        next = match heap.next(block, &layout.heap, memory) {
            Err(ReadError::Unmapped) => None,
            next => next?,
        };
    }
    Ok(())
}

/// True if the methods that a compiled method's debug information states are methods.
fn is_right(hotspot: &HotSpot, blob: &Blob, memory: &dyn Memory) -> Result<bool, Refusal> {
    let layout = &hotspot.layout;
    let Some(compiled) = &blob.compiled else { return Ok(false) };
    let is_method = |address| Method::read(address, layout, memory);
    if is_method(compiled.method).is_err() {
        return Ok(false);
    }
    if blob.kind == Kind::Native {
        return Ok(true);
    }
    let debug = match DebugInfo::read(&compiled.places, layout.excludes_zero, memory) {
        Err(ReadError::Unmapped) => return Ok(false),
        debug => debug?,
    };
    let scopes = debug.scopes(0);
    let right = scopes.iter().all(|scope| {
        let method = is_method(scope.method);
        method.is_ok_and(|method| scope.bci < i32::from(method.code_size))
    });
    let is_outermost = scopes.last().is_some_and(|scope| scope.method == compiled.method);
    Ok(right && is_outermost)
}
