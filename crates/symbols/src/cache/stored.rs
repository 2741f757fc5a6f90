//! Contents of a cache file: addresses, and for each its chain of inlined functions.
//!
//! All numbers are little-endian and of fixed width, so that a file of 100,000 addresses is read in
//! a few milliseconds. Chains share their outer frames: each frame refers to its caller, which
//! precedes it.

use std::ops::Range;

use flate2::Crc;
use rustc_hash::FxHashMap;

use crate::address_frames::{AddressFrames, SymbolFrame};
use profile::{StrId, StringTable};

use super::CacheKey;

/// First bytes of each file.
const MAGIC: &[u8; 8] = b"prof\0nm1";

/// Bytes of the magic number, the checksum, and the lengths of the tables.
const HEAD: usize = 8 + 4 + 6 * 4;

/// Index for no frame: the caller of an outermost function, or an address without a name.
const NONE: u32 = u32::MAX;

/// Deepest chain that is stored.
const MAX_DEPTH: u16 = 1000;

/// Bytes of a string's end; a function; a frame; an address.
const SIZES: [usize; 4] = [4, 12, 16, 12];

/// A function at an address.
#[derive(Clone, Copy, Debug)]
pub struct StoredFrame {
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

/// An intact file of the cache.
#[derive(Debug)]
pub struct StoredFrames {
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

impl StoredFrames {
    /// Parses a file; `None` if it belongs to another key.
    ///
    /// # Errors
    ///
    /// A description of the damage.
    pub fn parse(bytes: Vec<u8>, key: &CacheKey) -> Result<Option<StoredFrames>, &'static str> {
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
        let (its_key, [ends, functions, frames, addresses], arena) = ranges().ok_or("cut off")?;
        if at != bytes.len() {
            return Err("too long");
        }
        if bytes[its_key] != *key.text().as_bytes() {
            return Ok(None);
        }
        let stored = StoredFrames { bytes, ends, functions, frames, addresses, arena };
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
            (depth < MAX_DEPTH && (frame.function as usize) < functions).then_some(())?;
            depths.push(depth + 1);
        }
        for i in 0..self.len() {
            let frame = self.innermost(i);
            (frame == NONE || (frame as usize) < frames).then_some(())?;
            (i == 0 || self.address(i - 1) < self.address(i)).then_some(())?;
        }
        Some(())
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

    fn frame(&self, index: usize) -> StoredFrame {
        let at = self.frames.start + SIZES[2] * index;
        let number = |i: usize| u32_at(&self.bytes, at + 4 * i);
        StoredFrame { function: number(0), line: number(1), column: number(2), caller: number(3) }
    }

    /// Text of a string.
    pub fn string(&self, id: u32) -> &str {
        let end = |id: u32| u32_at(&self.bytes, self.ends.start + 4 * id as usize) as usize;
        let start = if id == 0 { 0 } else { end(id - 1) };
        let bytes = &self.bytes[self.arena.clone()][start..end(id)];
        // It was checked when the file was read.
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
    pub fn chain(&self, index: usize) -> impl Iterator<Item = StoredFrame> {
        let mut next = self.innermost(index);
        std::iter::from_fn(move || {
            let frame = (next != NONE).then(|| self.frame(next as usize))?;
            next = frame.caller;
            Some(frame)
        })
    }
}

/// Frames to be stored: those of a file and new ones.
#[derive(Default)]
pub struct Merged {
    strings: StringTable,
    functions: FxHashMap<NameTriple<StrId>, u32>,
    function_list: Vec<NameTriple<StrId>>,
    frames: Vec<StoredFrame>,
    addresses: Vec<(u64, u32)>,
}

impl Merged {
    /// Starts with the frames stored so far.
    pub fn new(stored: Option<&StoredFrames>) -> Merged {
        let mut merged = Merged::default();
        let Some(stored) = stored else { return merged };
        merged.strings.reserve(stored.strings());
        let strings: Vec<StrId> = (0..stored.strings() as u32)
            .map(|id| merged.strings.intern(stored.string(id)))
            .collect();
        // prof's own files contain no duplicates, but a file need not be prof's.
        let functions: Vec<u32> = (0..stored.functions() as u32)
            .map(|f| merged.function(stored.function(f).map(|id| strings[id as usize])))
            .collect();
        merged.frames = (0..stored.frames())
            .map(|i| stored.frame(i))
            .map(|f| StoredFrame { function: functions[f.function as usize], ..f })
            .collect();
        merged.addresses =
            (0..stored.len()).map(|i| (stored.address(i), stored.innermost(i))).collect();
        merged
    }

    /// Adds the frames of `addresses`, which ascend and are all new.
    pub fn add(&mut self, addresses: &[u64], resolved: &AddressFrames) {
        self.strings.reserve(resolved.strings.len());
        let mut strings: Vec<Option<StrId>> = vec![None; resolved.strings.len()];
        let mut functions: FxHashMap<NameTriple<StrId>, u32> = FxHashMap::default();
        // Consecutive addresses are mostly in the same functions: the previous frames, outermost
        // first.
        let mut last: Vec<(SymbolFrame, u32)> = Vec::new();
        for (i, &address) in addresses.iter().enumerate() {
            let chain = resolved.get(i);
            if chain.len() > MAX_DEPTH.into() {
                continue;
            }
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
                self.frames.push(StoredFrame { function, line, column, caller });
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

    /// Size in bytes of the file that [`Merged::encode`] makes.
    pub fn size(&self, key: &CacheKey) -> u64 {
        let counts =
            [self.strings.len(), self.function_list.len(), self.frames.len(), self.addresses.len()];
        let tables: usize = counts.iter().zip(SIZES).map(|(count, size)| count * size).sum();
        (HEAD + key.text().len() + tables + self.arena()) as u64
    }

    fn arena(&self) -> usize {
        self.strings.iter().map(str::len).sum()
    }

    /// Bytes of a file, which must be less than 4 GiB.
    pub fn encode(&self, key: &CacheKey) -> Vec<u8> {
        let mut addresses = self.addresses.clone();
        addresses.sort_unstable();
        let counts = [
            key.text().len(),
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
        out.extend(key.text().as_bytes());
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
        out
    }
}

/// For the fuzz target of the same name: parses a file with these contents after its magic number
/// and checksum, and reads all of them.
#[cfg(fuzzing)]
pub fn fuzz_kept_names(content: &[u8]) {
    let key = CacheKey::for_test("0123456789abcdef");
    let mut bytes = [&MAGIC[..], &[0; 4], content].concat();
    let mut crc = Crc::new();
    crc.update(&bytes[12..]);
    bytes[8..12].copy_from_slice(&crc.sum().to_le_bytes());
    let Ok(Some(stored)) = StoredFrames::parse(bytes, &key) else { return };
    for index in 0..stored.len() {
        assert_eq!(stored.find(stored.address(index), 0), Some(index));
        for frame in stored.chain(index) {
            let _ = stored.function(frame.function).map(|id| stored.string(id).len());
        }
    }
    let again = Merged::new(Some(&stored)).encode(&key);
    assert!(
        StoredFrames::parse(again, &key).is_ok_and(|again| again.is_some()),
        "what was stored is stored"
    );
}
