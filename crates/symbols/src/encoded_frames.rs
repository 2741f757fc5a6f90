//! Encoded frames: addresses, and for each its chain of inlined functions. Cache files and the
//! answers of worker processes have this form, and are used in it.
//!
//! All numbers are little-endian and of fixed width, so that 100,000 addresses are read in a few
//! milliseconds. Chains share their outer frames: each frame refers to its caller, which precedes
//! it. Bytes are validated before use: their author may be hostile.

use std::ops::Range;

use flate2::Crc;
use rustc_hash::FxHashMap;

use crate::address_frames::{AddressFrames, MAX_DEPTH, SymbolFrame};
use profile::{Cause, StrId, StringTable};

/// First bytes.
const MAGIC: &[u8; 8] = b"prof\0nm1";

/// Bytes of the magic number, the checksum, and the lengths of the tables.
const HEAD: usize = 8 + 4 + 6 * 4;

/// Index for no frame: the caller of an outermost function, or an address without a name.
const NONE: u32 = u32::MAX;

/// Most frames of all chains together: shared frames make long chains of few bytes.
const MAX_FRAMES: u64 = 1 << 26;

/// The key of frames that belong to the request that they answer.
pub const NO_KEY: &str = "";

/// Bytes of a string's end; a function; a frame; an address.
const SIZES: [usize; 4] = [4, 12, 16, 12];

/// A function at an address.
#[derive(Clone, Copy, Debug)]
pub struct EncodedFrame {
    /// Index of the function.
    pub function: u32,
    /// Line in its file, 0 if unknown.
    pub line: u32,
    /// Column, 0 if unknown.
    pub column: u32,
    caller: u32,
}

/// Name, system name and source file of a function.
type NameTriple<T> = [T; 3];

/// Validated frames.
#[derive(Debug)]
pub struct EncodedFrames {
    bytes: Vec<u8>,
    ends: Range<usize>,
    functions: Range<usize>,
    frames: Range<usize>,
    addresses: Range<usize>,
    arena: Range<usize>,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}

impl EncodedFrames {
    /// Parses encoded frames; `None` if they belong to another key.
    ///
    /// # Errors
    ///
    /// A description of the damage.
    pub fn parse(bytes: Vec<u8>, key: &str) -> Result<Option<EncodedFrames>, &'static str> {
        if bytes.len() < HEAD || &bytes[..8] != MAGIC {
            return Err("not a file of names");
        }
        let mut crc = Crc::new();
        crc.update(&bytes[12..]);
        if crc.sum() != u32_at(&bytes, 8) {
            return Err("wrong checksum");
        }
        let mut at = HEAD;
        let mut next = |length: usize| {
            let start = at;
            at = at.checked_add(length).filter(|&end| end <= bytes.len())?;
            Some(start..at)
        };
        let count = |i: usize| u32_at(&bytes, 12 + 4 * i) as usize;
        let sized = |i: usize| count(i + 1).checked_mul(SIZES[i]);
        let mut ranges = || {
            let key = next(count(0))?;
            let tables = [next(sized(0)?)?, next(sized(1)?)?, next(sized(2)?)?, next(sized(3)?)?];
            Some((key, tables, next(count(5))?))
        };
        let (stored_key, [ends, functions, frames, addresses], arena) =
            ranges().ok_or("cut off")?;
        if at != bytes.len() {
            return Err("too long");
        }
        if bytes[stored_key] != *key.as_bytes() {
            return Ok(None);
        }
        let stored = EncodedFrames { bytes, ends, functions, frames, addresses, arena };
        stored.check().ok_or("inconsistent")?;
        Ok(Some(stored))
    }

    /// `None` if an index is out of range.
    fn check(&self) -> Option<()> {
        let arena = std::str::from_utf8(&self.bytes[self.arena.clone()]).ok()?;
        let mut start = 0;
        for i in 0..self.strings() {
            let end = u32_at(&self.bytes, self.ends.start + 4 * i) as usize;
            (end >= start && arena.is_char_boundary(end)).then_some(())?;
            start = end;
        }
        let strings = self.strings();
        let functions = self.functions();
        let frames = self.frames();
        for i in 0..functions * 3 {
            let id = u32_at(&self.bytes, self.functions.start + 4 * i) as usize;
            (id < strings).then_some(())?;
        }
        // A caller precedes its callees, so every chain ends.
        let mut depths: Vec<u16> = Vec::with_capacity(frames);
        for i in 0..frames {
            let frame = self.frame(i);
            let depth = match frame.caller {
                NONE => 0,
                caller => *depths.get(caller as usize)?,
            };
            (usize::from(depth) < MAX_DEPTH && (frame.function as usize) < functions)
                .then_some(())?;
            depths.push(depth + 1);
        }
        let mut total = 0;
        for i in 0..self.len() {
            total += match self.innermost(i) {
                NONE => 0,
                frame => u64::from(*depths.get(frame as usize)?),
            };
            (i == 0 || self.address(i - 1) < self.address(i)).then_some(())?;
        }
        (total <= MAX_FRAMES).then_some(())
    }

    /// True if these are the frames of `addresses`.
    pub fn is_answer_to(&self, addresses: &[u64]) -> bool {
        self.len() == addresses.len()
            && addresses.iter().enumerate().all(|(i, &address)| self.address(i) == address)
    }

    fn count(&self, range: &Range<usize>, kind: usize) -> usize {
        range.len() / SIZES[kind]
    }

    /// Number of strings.
    pub fn strings(&self) -> usize {
        self.count(&self.ends, 0)
    }

    /// Number of functions.
    pub fn functions(&self) -> usize {
        self.count(&self.functions, 1)
    }

    fn frames(&self) -> usize {
        self.count(&self.frames, 2)
    }

    /// Number of addresses.
    pub fn len(&self) -> usize {
        self.count(&self.addresses, 3)
    }

    fn address(&self, index: usize) -> u64 {
        u64_at(&self.bytes, self.addresses.start + SIZES[3] * index)
    }

    fn innermost(&self, index: usize) -> u32 {
        u32_at(&self.bytes, self.addresses.start + SIZES[3] * index + 8)
    }

    fn frame(&self, index: usize) -> EncodedFrame {
        let at = self.frames.start + SIZES[2] * index;
        let number = |i: usize| u32_at(&self.bytes, at + 4 * i);
        EncodedFrame { function: number(0), line: number(1), column: number(2), caller: number(3) }
    }

    /// Text of a string.
    pub fn string(&self, id: u32) -> &str {
        let end = |id: u32| u32_at(&self.bytes, self.ends.start + 4 * id as usize) as usize;
        let start = if id == 0 { 0 } else { end(id - 1) };
        let bytes = &self.bytes[self.arena.clone()][start..end(id)];
        // It was checked when it was parsed.
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Indexes of the strings of a function: its name, system name and source file.
    pub fn function(&self, function: u32) -> NameTriple<u32> {
        let at = self.functions.start + SIZES[1] * function as usize;
        [0, 1, 2].map(|i| u32_at(&self.bytes, at + 4 * i))
    }

    /// Index of `address`, searching from the index `from` of a smaller one.
    pub fn find(&self, address: u64, from: usize) -> Option<usize> {
        // Lookups ascend, and mostly cover all addresses.
        let mut step = 1;
        let mut low = from;
        let mut high = from;
        while high < self.len() && self.address(high) < address {
            (low, high) = (high + 1, high.saturating_add(step));
            step *= 2;
        }
        high = high.min(self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.address(middle) < address { low = middle + 1 } else { high = middle }
        }
        (low < self.len() && self.address(low) == address).then_some(low)
    }

    /// The frames at address number `index`, innermost first; none if it has no name.
    pub fn chain(&self, index: usize) -> impl Iterator<Item = EncodedFrame> {
        let mut next = self.innermost(index);
        std::iter::from_fn(move || {
            let frame = (next != NONE).then(|| self.frame(next as usize))?;
            next = frame.caller;
            Some(frame)
        })
    }
}

/// Encodes frames of several origins together.
#[derive(Default)]
pub struct FrameEncoder {
    strings: StringTable,
    functions: FxHashMap<NameTriple<StrId>, u32>,
    function_list: Vec<NameTriple<StrId>>,
    frames: Vec<EncodedFrame>,
    addresses: Vec<(u64, u32)>,
    /// Frames of all chains together.
    total: u64,
}

impl FrameEncoder {
    /// Adds frames whose addresses are all new.
    pub fn add_encoded(&mut self, encoded: &EncodedFrames) {
        self.strings.reserve(encoded.strings());
        let strings: Vec<StrId> = (0..encoded.strings() as u32)
            .map(|id| self.strings.intern(encoded.string(id)))
            .collect();
        // prof's own encoding contains no duplicates, but a file need not be prof's.
        let functions: Vec<u32> = (0..encoded.functions() as u32)
            .map(|f| self.function(encoded.function(f).map(|id| strings[id as usize])))
            .collect();
        let first = self.frames.len() as u32;
        let moved = |frame: u32| if frame == NONE { NONE } else { first + frame };
        self.frames.extend((0..encoded.frames()).map(|i| encoded.frame(i)).map(|f| {
            let function = functions[f.function as usize];
            EncodedFrame { function, caller: moved(f.caller), ..f }
        }));
        for i in 0..encoded.len() {
            self.total += encoded.chain(i).count() as u64;
            self.addresses.push((encoded.address(i), moved(encoded.innermost(i))));
        }
    }

    /// Adds the frames of `addresses`, which ascend and are all new.
    pub fn add_resolved(&mut self, addresses: &[u64], resolved: &AddressFrames) {
        self.strings.reserve(resolved.strings.len());
        let mut strings: Vec<Option<StrId>> = vec![None; resolved.strings.len()];
        let mut functions: FxHashMap<NameTriple<StrId>, u32> = FxHashMap::default();
        // Consecutive addresses are mostly in the same functions: the previous frames, outermost
        // first.
        let mut last: Vec<(SymbolFrame, u32)> = Vec::new();
        for (i, &address) in addresses.iter().enumerate() {
            let chain = resolved.get(i);
            self.total += chain.len() as u64;
            let outermost_first = || chain.iter().rev();
            let same =
                |((previous, _), frame): &(&(SymbolFrame, u32), &SymbolFrame)| previous == *frame;
            last.truncate(last.iter().zip(outermost_first()).take_while(same).count());
            for frame in outermost_first().skip(last.len()) {
                let names = [frame.name, frame.system_name, frame.file];
                let function = *functions.entry(names).or_insert_with(|| {
                    let names = names.map(|id| {
                        let string = || self.strings.intern(resolved.strings.get(id));
                        *strings[id.0 as usize].get_or_insert_with(string)
                    });
                    self.function(names)
                });
                let caller = last.last().map_or(NONE, |&(_, number)| number);
                let line = frame.line;
                let column = frame.column;
                last.push((*frame, self.frames.len() as u32));
                self.frames.push(EncodedFrame { function, line, column, caller });
            }
            self.addresses.push((address, last.last().map_or(NONE, |&(_, number)| number)));
        }
    }

    fn function(&mut self, names: NameTriple<StrId>) -> u32 {
        let list = &mut self.function_list;
        *self.functions.entry(names).or_insert_with(|| {
            list.push(names);
            list.len() as u32 - 1
        })
    }

    /// Bytes of the encoding.
    pub fn size(&self, key: &str) -> u64 {
        let counts =
            [self.strings.len(), self.function_list.len(), self.frames.len(), self.addresses.len()];
        let tables: usize = counts.iter().zip(SIZES).map(|(count, size)| count * size).sum();
        (HEAD + key.len() + tables + self.arena()) as u64
    }

    fn arena(&self) -> usize {
        self.strings.iter().map(str::len).sum()
    }

    /// Encodes all frames; `None` if that takes more than `max_size` bytes, or more than can be
    /// parsed.
    pub fn encode(&self, key: &str, max_size: u64) -> Option<Vec<u8>> {
        if self.size(key) > max_size.min(u32::MAX.into()) || self.total > MAX_FRAMES {
            return None;
        }
        let mut addresses = self.addresses.clone();
        addresses.sort_unstable();
        let counts = [
            key.len(),
            self.strings.len(),
            self.function_list.len(),
            self.frames.len(),
            addresses.len(),
            self.arena(),
        ];
        let mut out = Vec::with_capacity(self.size(key) as usize);
        out.extend(MAGIC);
        out.extend([0; 4]);
        counts.iter().for_each(|&n| out.extend((n as u32).to_le_bytes()));
        out.extend(key.as_bytes());
        let mut end = 0_u32;
        for string in self.strings.iter() {
            end += string.len() as u32;
            out.extend(end.to_le_bytes());
        }
        for names in &self.function_list {
            names.iter().for_each(|id| out.extend(id.0.to_le_bytes()));
        }
        for f in &self.frames {
            let numbers = [f.function, f.line, f.column, f.caller];
            numbers.iter().for_each(|n| out.extend(n.to_le_bytes()));
        }
        for (address, frame) in addresses {
            out.extend(address.to_le_bytes());
            out.extend(frame.to_le_bytes());
        }
        self.strings.iter().for_each(|s| out.extend(s.as_bytes()));
        let mut crc = Crc::new();
        crc.update(&out[12..]);
        out[8..12].copy_from_slice(&crc.sum().to_le_bytes());
        Some(out)
    }
}

/// Encodes the frames of a request's addresses.
///
/// # Errors
///
/// They are too many.
pub fn encode(addresses: &[u64], resolved: &AddressFrames) -> Result<Vec<u8>, Cause> {
    let mut encoder = FrameEncoder::default();
    encoder.add_resolved(addresses, resolved);
    encoder.encode(NO_KEY, u64::MAX).ok_or_else(too_many)
}

fn too_many() -> Cause {
    Cause::Damaged("its functions take more than 4 GiB".into())
}

/// The result of a resolver.
#[derive(Debug)]
pub struct Resolved {
    /// Frames of the requested addresses.
    pub frames: EncodedFrames,
    /// Cause of incomplete input: a later run may find more, or other, names.
    pub incomplete: Option<Cause>,
}

impl Resolved {
    /// The frames of these addresses.
    ///
    /// # Errors
    ///
    /// They are too many.
    pub fn new(addresses: &[u64], resolved: AddressFrames) -> Result<Resolved, Cause> {
        let parsed = EncodedFrames::parse(encode(addresses, &resolved)?, NO_KEY);
        let frames = parsed.ok().flatten().ok_or_else(too_many)?;
        Ok(Resolved { frames, incomplete: resolved.incomplete })
    }

    /// Marks these frames as possibly incomplete.
    pub fn marked_incomplete(self, why: Cause) -> Resolved {
        Resolved { incomplete: Some(why), ..self }
    }
}

/// For a fuzz target: parses frames with these contents after their magic number and checksum, as a
/// cache file and as the answer of a worker, and reads all of them.
#[cfg(feature = "testing")]
pub fn fuzz_encoded_frames(content: &[u8]) {
    for key in ["test", NO_KEY] {
        let mut bytes = [&MAGIC[..], &[0; 4], content].concat();
        let mut crc = Crc::new();
        crc.update(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.sum().to_le_bytes());
        let Ok(Some(parsed)) = EncodedFrames::parse(bytes, key) else { continue };
        for index in 0..parsed.len() {
            assert_eq!(parsed.find(parsed.address(index), 0), Some(index));
            for frame in parsed.chain(index) {
                let _ = parsed.function(frame.function).map(|id| parsed.string(id).len());
            }
        }
        let mut encoder = FrameEncoder::default();
        encoder.add_encoded(&parsed);
        let again = encoder.encode(key, u64::MAX).expect("what was parsed can be encoded");
        assert!(
            EncodedFrames::parse(again, key).is_ok_and(|again| again.is_some()),
            "what was encoded is parsed"
        );
    }
}

#[cfg(test)]
mod tests;
