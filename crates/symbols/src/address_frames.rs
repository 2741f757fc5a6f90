//! Frames of a run of addresses, compact and independent of the profile, so that threads can
//! resolve them in parallel.

use profile::{Cause, StrId, StringTable};

/// Most frames of an address: the innermost ones and the outermost one.
pub const MAX_DEPTH: usize = 1000;

/// One function at an address, with strings of its [`AddressFrames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymbolFrame {
    /// Readable name.
    pub name: StrId,
    /// Name as in the binary.
    pub system_name: StrId,
    /// Source file, empty if unknown.
    pub file: StrId,
    /// Line in it, 0 if unknown.
    pub line: u32,
    /// Column, 0 if unknown.
    pub column: u32,
}

/// The frames of a run of addresses, innermost first, in the order of the addresses.
#[derive(Default)]
pub struct AddressFrames {
    /// Strings of the frames.
    pub strings: StringTable,
    /// Frames of all addresses.
    pub frames: Vec<SymbolFrame>,
    /// Cause of incomplete input: a later run may find more, or other, names.
    pub incomplete: Option<Cause>,
    /// End of each address's frames; they begin at the end of the previous ones.
    ends: Vec<u32>,
}

impl AddressFrames {
    /// Adds the frames of the next address; none if it has no name.
    pub fn push(&mut self, frames: impl IntoIterator<Item = SymbolFrame>) {
        let start = self.frames.len();
        self.frames.extend(frames);
        if self.frames.len() - start > MAX_DEPTH {
            self.frames.drain(start + MAX_DEPTH - 1..self.frames.len() - 1);
        }
        self.ends.push(self.frames.len() as u32);
    }

    /// Adds the next address, with a function's name at most.
    pub fn push_name(&mut self, name: Option<&str>) {
        let frame = name.map(|name| {
            let name = self.strings.intern(name);
            SymbolFrame { name, system_name: name, file: StrId::EMPTY, line: 0, column: 0 }
        });
        self.push(frame);
    }

    /// Frames of address number `index`.
    pub fn get(&self, index: usize) -> &[SymbolFrame] {
        range(&self.frames, &self.ends, index)
    }

    /// Number of addresses.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there is no address.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns these frames, for `len` addresses, with the gaps at `indices` (ascending) filled
    /// from `found`, which has one address for each of them.
    pub fn filled(self, indices: &[usize], found: AddressFrames, len: usize) -> AddressFrames {
        if indices.len() == len {
            return found;
        }
        let mut out = AddressFrames { strings: self.strings, ..AddressFrames::default() };
        let mut gaps = indices.iter().copied().enumerate().peekable();
        for i in 0..len {
            match gaps.next_if(|&(_, index)| index == i) {
                None => out.push(range(&self.frames, &self.ends, i).iter().copied()),
                Some((n, _)) => {
                    let mut copy = |id| out.strings.intern(found.strings.get(id));
                    let frames: Vec<SymbolFrame> = found
                        .get(n)
                        .iter()
                        .map(|f| SymbolFrame {
                            name: copy(f.name),
                            system_name: copy(f.system_name),
                            file: copy(f.file),
                            ..*f
                        })
                        .collect();
                    out.push(frames);
                }
            }
        }
        out
    }

    /// Marks these frames as possibly incomplete.
    pub fn marked_incomplete(self, why: Cause) -> AddressFrames {
        AddressFrames { incomplete: Some(why), ..self }
    }

    /// Renames the outermost function at address number `index`.
    pub fn rename_outermost(&mut self, index: usize, name: &str) {
        let name = self.strings.intern(name);
        if !self.get(index).is_empty() {
            let frame = &mut self.frames[self.ends[index] as usize - 1];
            (frame.name, frame.system_name) = (name, name);
        }
    }
}

fn range<'a>(frames: &'a [SymbolFrame], ends: &[u32], index: usize) -> &'a [SymbolFrame] {
    let start = if index == 0 { 0 } else { ends[index - 1] as usize };
    &frames[start..ends[index] as usize]
}
