//! Machine code that V8 has compiled: which code an address belongs to, and what a frame of it executes.
//!
//! A frame has the address at which it goes on. The object with the instructions around it is searched
//! before that address, and has to lead to code that begins there. Code that is not optimized has the
//! sizes of what each bytecode became; optimized code has the places of its instructions, and where
//! functions are inlined. An embedder of V8 may keep the places of calls only; node keeps all.

mod baseline;
mod entered;
mod optimized;

pub(super) use entered::Entered;

use super::V8;
use super::heap::{Heap, No, TAG, is_object};
use crate::memory::Blocks;
use crate::merge::NativeStack;
use crate::{CodeKey, Executed, Memory, UserFrame};

/// Bytes before an address in which its code may begin.
const MAX_DISTANCE: u64 = 128 << 10;

/// Bytes that are read at once.
const PAGE: u64 = 4096;

/// Instructions begin at a multiple of it (`kCodeAlignment` is 32 or 64).
const ALIGNMENT: u64 = 32;

/// An address in machine code, in the last word of a key's identity and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodeAddress {
    pub pc: u64,
    /// The instruction is executing; else it is that behind a call.
    pub is_innermost: bool,
}

impl CodeAddress {
    /// That of an innermost frame which is not known; there is no code.
    pub const UNKNOWN: CodeAddress = CodeAddress { pc: 0, is_innermost: true };

    const INNERMOST: u64 = 2;
    const MARK: u64 = 1;
    const PC_SHIFT: u32 = 48;

    /// The word and the position of a key, with hashes of the function's code and of the data that all of
    /// its closures share: the code that was there at the sample.
    pub fn encode(self, code: [u64; 2]) -> (u64, u32) {
        let [own, shared] = code.map(hash);
        let hash = shared << SHARED_HASH | own << OWN_HASH;
        let innermost = if self.is_innermost { CodeAddress::INNERMOST } else { 0 };
        let word = self.pc >> 32 << CodeAddress::PC_SHIFT | hash | innermost | CodeAddress::MARK;
        (word, self.pc as u32)
    }

    /// The key with this place, if it is one of machine code with another one.
    pub fn replace(self, key: CodeKey) -> CodeKey {
        const HASH: u64 = (1 << CodeAddress::PC_SHIFT) - 4;
        let [script, scope, number, word] = key.identity;
        let (own, position) = self.encode([0, 0]);
        let word = own & !HASH | word & HASH;
        CodeKey { identity: [script, scope, number, word], position, ..key }
    }

    /// `None` if the key is not one of machine code.
    pub fn decode(key: &CodeKey) -> Option<CodeAddress> {
        let word = key.identity[3];
        let pc = word >> CodeAddress::PC_SHIFT << 32 | u64::from(key.position);
        let is_innermost = word & CodeAddress::INNERMOST != 0;
        (word & CodeAddress::MARK != 0).then_some(CodeAddress { pc, is_innermost })
    }
}

/// Places of hashes in the last word of an identity.
const OWN_HASH: u32 = 2;
/// See [`OWN_HASH`].
const SHARED_HASH: u32 = OWN_HASH + HASH_BITS;
const HASH_BITS: u32 = 23;

/// A hash of a word of a function.
fn hash(word: u64) -> u64 {
    word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - HASH_BITS)
}

/// True if the last word of an identity has this hash in this place.
fn has_hash(word: u64, place: u32, hashed: u64) -> bool {
    word >> place & ((1 << HASH_BITS) - 1) == hash(hashed)
}

/// Code with an address.
#[derive(Clone, Copy, Debug)]
struct Machine {
    /// The `Code`.
    object: u64,
    /// The object with its instructions.
    stream: u64,
    /// Its flags with the kind.
    kind: u32,
    /// Distance of the address from the first instruction.
    distance: u32,
}

/// Built-in code has no frame while it is called from a function's code: that goes on where the native
/// frame around it does. So does a function that calls C++ directly.
pub(super) fn locate(frames: &mut [UserFrame], native: &NativeStack) {
    let Some(UserFrame { address, code, .. }) = frames.first_mut() else { return };
    let Some(place) = CodeAddress::decode(code).filter(|place| place.is_innermost) else { return };
    let number = native.frames.iter().position(|frame| frame.stack.contains(address));
    let Some(number) = number else { return };
    let is_innermost = number == 0;
    if !is_innermost || place == CodeAddress::UNKNOWN {
        *code = CodeAddress { pc: native.frames[number].address, is_innermost }.replace(*code);
    }
}

/// The frames of JavaScript that a frame executes.
pub(super) fn executed(v8: &V8, key: &CodeKey, memory: &dyn Memory) -> Executed {
    let Some(place) = CodeAddress::decode(key) else { return Executed::Itself };
    let [script, scope, number, _] = key.identity;
    let identity = [script, scope, number, 0];
    let own = CodeKey { identity, position: CodeKey::UNKNOWN, ..*key };
    let heap = Heap { offsets: &v8.offsets, memory };
    if let Some(frames) = v8.entered.frames(heap, key) {
        return Executed::Momentary(frames);
    }
    let heap = Heap { memory: &Blocks::new(memory), ..heap };
    match frames(v8, heap, &own, place, key.identity[3]) {
        Ok((frames, Validity::Key)) => Executed::Frames(frames),
        Ok((frames, Validity::Code(stream))) => {
            heap.memory.renew();
            // What cannot be kept is read again.
            let _ = v8.entered.keep(heap, *key, stream, &frames);
            Executed::Momentary(frames)
        }
        Err(No::Other) => Executed::Frames(vec![own]),
        Err(No::Memory(_)) => Executed::Unreadable(own),
    }
}

/// Which instruction an address means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Instruction {
    /// That at the address.
    Own,
    /// The call before the address.
    Call,
}

/// What identifies the code of frames.
enum Validity {
    /// Their key.
    Key,
    /// The code itself, with its instructions in this object.
    Code(u64),
}

/// The frames of the code at a place. Optimized code that is not what the function had at the sample was
/// entered in a loop, or is older.
fn frames(
    v8: &V8,
    heap: Heap<'_>,
    key: &CodeKey,
    place: CodeAddress,
    word: u64,
) -> Result<(Vec<CodeKey>, Validity), No> {
    if v8.is_built_in(place.pc) {
        return Err(No::Other);
    }
    let machine = find(heap, place.pc)?;
    if machine.kind < heap.offsets.baseline {
        return Err(No::Other);
    }
    if machine.kind == heap.offsets.baseline {
        if !has_hash(word, SHARED_HASH, machine.object) {
            return Err(No::Other);
        }
        let position = baseline::position(v8, heap, key.object, machine, place)?;
        return Ok((vec![CodeKey { position, ..*key }], Validity::Key));
    }
    let instruction = if place.is_innermost { Instruction::Own } else { Instruction::Call };
    let frames = optimized::frames(v8, heap, key, machine, instruction)?;
    let name = heap.offsets.code.name(heap, machine.object)?;
    let is_current = name.is_some_and(|name| has_hash(word, OWN_HASH, name));
    Ok((frames, if is_current { Validity::Key } else { Validity::Code(machine.stream) }))
}

/// The code with an address.
fn find(heap: Heap<'_>, pc: u64) -> Result<Machine, No> {
    let mut page = pc / PAGE * PAGE;
    let mut end = pc;
    let first = pc.saturating_sub(MAX_DISTANCE);
    while page >= first && page > 0 {
        let mut bytes = vec![0; (end - page) as usize];
        heap.memory.read(page, &mut bytes)?;
        if let Some(machine) = in_page(heap, page, &bytes, pc)? {
            return Ok(machine);
        }
        (end, page) = (page, page - PAGE);
    }
    Err(No::Other)
}

/// The code of an address whose instructions begin behind these bytes of a page, or in them.
fn in_page(heap: Heap<'_>, page: u64, bytes: &[u8], pc: u64) -> Result<Option<Machine>, No> {
    let head = u64::from(heap.offsets.code.head);
    // The first word of an object before instructions that are aligned.
    let at = |address: u64| {
        let from = usize::try_from(address.checked_sub(page)?).ok()?;
        Some(u64::from_le_bytes(*bytes.get(from..)?.first_chunk()?))
    };
    let last = (page + bytes.len() as u64 + head) / ALIGNMENT * ALIGNMENT;
    let mut start = last.min(pc / ALIGNMENT * ALIGNMENT);
    let leads =
        |object: u64| heap.offsets.code.has_instructions() || at(object + 8).is_none_or(is_object);
    while let Some(object) = start.checked_sub(head).filter(|object| *object >= page) {
        if at(object).is_some_and(is_object) && leads(object) {
            match machine(heap, object, start, pc) {
                Err(No::Other) => {}
                found => return found.map(Some),
            }
        }
        start -= ALIGNMENT;
    }
    Ok(None)
}

/// The code whose object with instructions is at an address, if these begin at `start` and go on beyond
/// `pc`.
fn machine(heap: Heap<'_>, object: u64, start: u64, pc: u64) -> Result<Machine, No> {
    let code = heap.offsets.code;
    let stream = object + TAG as u64;
    let object = heap.code_of(stream)?;
    heap.typed(object, heap.offsets.types.code)?;
    if !code.has_instructions() && heap.word(object, code.start)? != start {
        return Err(No::Other);
    }
    let half = |at: u32| heap.half(object, at);
    let (size, flags) = (half(code.size)?, half(code.flags)?);
    let distance = u32::try_from(pc - start).ok().filter(|distance| *distance <= size);
    let distance = distance.ok_or(No::Other)?;
    Ok(Machine { object, stream, kind: flags & heap.offsets.code_kind, distance })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::NativeFrame;

    #[test]
    fn a_place_is_kept_in_a_key() {
        for (pc, is_innermost) in [(0x7f63_09fc_5b80, true), (0x5_0000_0001, false), (3, true)] {
            let place = CodeAddress { pc, is_innermost };
            let (word, position) = place.encode([1, 2]);
            let key = CodeKey { object: 1, identity: [0, 0, 0, word], context: 0, position };
            assert_eq!(CodeAddress::decode(&key), Some(place));
            assert_ne!(place.encode([1, 3]).0, word);
        }
        let key = CodeKey { object: 1, identity: [1, 1, 1, 0], context: 0, position: 5 };
        assert_eq!(CodeAddress::decode(&key), None);
    }

    #[test]
    fn a_function_that_calls_code_without_a_frame_goes_on_behind_the_call() {
        let place = |pc, is_innermost| {
            let (word, position) = CodeAddress { pc, is_innermost }.encode([1, 2]);
            CodeKey { object: 1, identity: [0, 0, 0, word], context: 0, position }
        };
        let frame = |address, code| UserFrame { address, code, is_entry: true };
        let native = |address, stack| NativeFrame { address, stack, is_run_time: false };
        let frames = vec![native(0x7f00_1000, 100..108), native(0x7f00_2000, 108..200)];
        let native = NativeStack { frames, is_complete: true, code: None };
        let located = |address, is_innermost| {
            let mut frames = [frame(address, place(0x7f00_1000, is_innermost))];
            locate(&mut frames, &native);
            frames[0].code
        };
        assert_eq!(located(160, true), place(0x7f00_2000, false));
        // The function's own code executes; it is called by another one; its frame is not known.
        assert_eq!(located(100, true), place(0x7f00_1000, true));
        assert_eq!(located(160, false), place(0x7f00_1000, false));
        assert_eq!(located(300, true), place(0x7f00_1000, true));
        // It is about to call C++.
        let mut frames = [frame(100, place(0, true))];
        locate(&mut frames, &native);
        assert_eq!(frames[0].code, place(0x7f00_1000, true));
    }
}
