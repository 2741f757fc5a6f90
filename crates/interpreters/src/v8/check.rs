//! Checks the offsets against the process before they are used: a build may differ from the releases of
//! its version.
//!
//! An isolate has a list of its scripts, each script a list of its functions, by number. Functions of
//! the first scripts have to lead back to their script, and to a name, lines and bytecode whose source
//! positions lie inside of the function. The process runs while it is checked, so a check that fails is
//! repeated.

use std::collections::HashMap;

use super::V8;
use super::heap::{Heap, No, is_object, weak_object};
use super::names::{self, Scope};
use crate::memory::{Memory, ReadError};
use crate::{CodeKey, Lines, Name, Refusal, Runtime};

/// Bytes of an isolate in which its list of scripts is searched; it has all roots within them.
const ISOLATE: usize = 32 << 10;

/// Size of a page of the heap (`kRegularPageSize`; its number is that of an address without these bits).
const PAGE_BITS: u32 = 18;

/// Objects on one page that isolates have as roots: more are on those with constants of all isolates.
const MAX_ROOTS: usize = 100;

/// Most isolates, scripts of one, and functions of a script that are checked.
const MAX_ISOLATES: usize = 4;
const MAX_SCRIPTS: u32 = 40;
const MAX_FUNCTIONS: u32 = 20;

/// Functions with bytecode that are enough.
const ENOUGH: usize = 40;

/// Functions with bytecode that have to be right; node's own have more before the first script runs.
const LEAST: usize = 8;

/// Checks the offsets of a process, with at most `tries`.
#[cfg(test)]
pub(super) fn check(
    v8: &V8,
    threads: &[u64],
    memory: &dyn Memory,
    tries: usize,
) -> Result<(), Refusal> {
    crate::tries::repeated(tries, || try_once(v8, threads, memory))
}

/// Checks the offsets of a process with these threads once.
///
/// # Errors
///
/// What is not as expected; it runs no script.
pub(super) fn try_once(v8: &V8, threads: &[u64], memory: &dyn Memory) -> Result<(), Refusal> {
    if v8.symbols.isolate.is_empty() || v8.symbols.exit_frame.is_none() {
        return Err(Refusal::Layout("the way from a thread to its isolate is unknown"));
    }
    if threads.is_empty() {
        return Err(Refusal::Layout("the C library does not list its threads"));
    }
    let mut isolates = Vec::new();
    for thread in threads {
        let isolate = isolate(v8, *thread, memory)?;
        if isolate != 0 && !isolates.contains(&isolate) && isolates.len() < MAX_ISOLATES {
            isolates.push(isolate);
        }
    }
    let mut found = Found::default();
    let heap = Heap { offsets: &v8.offsets, memory };
    for isolate in &isolates {
        if let Some(scripts) = outcome(scripts(heap, *isolate))? {
            functions(v8, heap, scripts, &mut found)?;
        }
    }
    let Found { right, wrong, named, .. } = found;
    match found.failure {
        _ if isolates.is_empty() => Err(Refusal::NotRunning),
        Some(failure) if wrong * 4 > right => Err(Refusal::Layout(failure)),
        _ if right == 0 => Err(Refusal::Layout("an isolate has no list of scripts")),
        _ if named * 2 < right => Err(Refusal::Layout("scripts have no names")),
        _ if right < LEAST => Err(Refusal::NotRunning),
        _ => Ok(()),
    }
}

/// What is missing is absent; memory that cannot be read for other reasons is an error.
fn outcome<T>(result: Result<T, No>) -> Result<Option<T>, Refusal> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(No::Other) => Ok(None),
        Err(No::Memory(error)) => Err(error.into()),
    }
}

/// The isolate of a thread, or 0.
fn isolate(v8: &V8, thread: u64, memory: &dyn Memory) -> Result<u64, ReadError> {
    let mut p = thread;
    for offset in &v8.symbols.isolate {
        p = memory.word(p.wrapping_add_signed((*offset).into()))?;
        if p == 0 {
            break;
        }
    }
    Ok(p)
}

/// The list of scripts of an isolate: a list of weak pointers among its roots whose objects are scripts.
fn scripts(heap: Heap<'_>, isolate: u64) -> Result<Vec<u64>, No> {
    let mut bytes = vec![0; ISOLATE];
    heap.memory.read(isolate, &mut bytes)?;
    let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let words: Vec<u64> = words.filter(|word| is_object(*word)).collect();
    let mut pages: HashMap<u64, usize> = HashMap::new();
    for word in &words {
        *pages.entry(word >> PAGE_BITS).or_default() += 1;
    }
    for word in words.into_iter().filter(|word| pages[&(word >> PAGE_BITS)] < MAX_ROOTS) {
        match list(heap, word) {
            Ok(scripts) if !scripts.is_empty() => return Ok(scripts),
            Err(No::Memory(error)) => return Err(No::Memory(error)),
            _ => {}
        }
    }
    Err(No::Other)
}

/// The scripts of a list; none if it is another list.
fn list(heap: Heap<'_>, list: u64) -> Result<Vec<u64>, No> {
    let types = heap.offsets.types;
    heap.typed(list, types.weak_list)?;
    // Capacity, length and items: one word more than an array has.
    let length = heap.word(list, 16)?;
    let length = super::heap::small(length).and_then(|length| u32::try_from(length).ok());
    let items = heap.items(list, 1, length.ok_or(No::Other)?.min(MAX_SCRIPTS))?;
    let scripts: Vec<u64> = items.into_iter().filter_map(weak_object).collect();
    for script in &scripts {
        heap.typed(*script, types.script)?;
    }
    Ok(scripts)
}

/// What functions show.
#[derive(Default)]
struct Found {
    right: usize,
    wrong: usize,
    /// Scripts of these have a name; those of `eval` have none.
    named: usize,
    /// Of the last one that was wrong.
    failure: Option<&'static str>,
}

fn functions(v8: &V8, heap: Heap<'_>, scripts: Vec<u64>, found: &mut Found) -> Result<(), Refusal> {
    let types = heap.offsets.types;
    for script in scripts {
        let Some(list) = outcome(heap.word(script, heap.offsets.script_functions))? else {
            continue;
        };
        let Some(list) = outcome(heap.typed(list, types.weak_array))? else {
            found.wrong += 1;
            found.failure = Some("a script has no list of functions");
            continue;
        };
        let Some(length) = outcome(heap.length(list))? else { continue };
        let items = outcome(heap.items(list, 0, length.min(MAX_FUNCTIONS)))?.unwrap_or_default();
        for (number, item) in items.into_iter().enumerate() {
            if found.right == ENOUGH {
                return Ok(());
            }
            let Some(shared) = weak_object(item) else { continue };
            match outcome(heap.kind(shared))? {
                Some(kind) if kind == types.shared => {}
                // A place in the list may have the function's `ScopeInfo` instead.
                Some(kind) if kind == types.scope => continue,
                _ => {
                    found.wrong += 1;
                    found.failure = Some("a function of a script has another type");
                    continue;
                }
            }
            match function(v8, heap, script, number as u32, shared)? {
                Ok(Some(is_named)) => {
                    found.right += 1;
                    found.named += usize::from(is_named);
                }
                Ok(None) => {}
                Err(failure) => {
                    found.wrong += 1;
                    found.failure = Some(failure);
                }
            }
        }
    }
    Ok(())
}

/// Checks a function: whether its script has a name; `None` if it has no bytecode.
fn function(
    v8: &V8,
    heap: Heap<'_>,
    script: u64,
    number: u32,
    shared: u64,
) -> Result<Result<Option<bool>, &'static str>, Refusal> {
    let Some(bytecode) = outcome(names::bytecode(heap, shared))?.flatten() else {
        return Ok(Ok(None));
    };
    let Some([of, scope, words]) = outcome(names::key_words(heap, shared))?.flatten() else {
        return Ok(Err("a function has no script"));
    };
    if of != script || words as u32 != number {
        return Ok(Err("a function is not the one that its script has"));
    }
    let key = CodeKey { object: shared, identity: [of, scope, words, 0], context: 0, position: 0 };
    let code = match v8.name(&key, heap.memory) {
        Name::Found(code) => code,
        Name::Gone => return Ok(Err("a function has no name")),
        Name::Unreadable(error) => return Err(error.into()),
    };
    if code.function.chars().any(char::is_control) || code.file.chars().any(char::is_control) {
        return Ok(Err("a name is no text"));
    }
    let Lines::Steps(lines) = &code.lines else { return Ok(Err("a function has no lines")) };
    if code.first_line == 0 || lines.iter().any(|(_, line)| *line < code.first_line) {
        return Ok(Err("a line is not in its function"));
    }
    let is_right = places(heap, shared, bytecode)?;
    Ok(is_right.map(|has_places| has_places.then_some(!code.file.is_empty())))
}

/// Checks that the places of the bytecode lie inside of the function.
fn places(
    heap: Heap<'_>,
    shared: u64,
    bytecode: u64,
) -> Result<Result<bool, &'static str>, Refusal> {
    let places = || {
        let scope = Scope::read(heap, heap.word(shared, heap.offsets.shared_name)?)?;
        let size = heap.length(bytecode)?;
        let table = names::position_table(heap, bytecode)?;
        Ok::<_, No>((scope, size, table))
    };
    let Some((scope, size, table)) = outcome(places())? else {
        return Ok(Err("a function has no bytecode"));
    };
    let inside = scope.start..=scope.end;
    let is_inside = |(position, place): (u32, Option<u32>)| {
        position < size && place.is_none_or(|place| inside.contains(&place))
    };
    if !names::positions(&table).all(is_inside) {
        return Ok(Err("a source position is not in its function"));
    }
    Ok(Ok(!table.is_empty()))
}
