//! Frames of a run of addresses, compact and independent of the profile, so that threads can
//! resolve them in parallel.

use rustc_hash::FxHashMap;

use profile::{Function, FunctionId, Line, LocationId, Profile, StrId, StringTable};

use super::cache::StoredFrames;
use profile::Cause;

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
        self.frames.extend(frames);
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

/// Functions of a profile by (name, system name, file).
pub struct FunctionIndex(FxHashMap<(StrId, StrId, StrId), FunctionId>);

impl FunctionIndex {
    /// Functions that `profile` has already.
    pub fn new(profile: &Profile) -> FunctionIndex {
        let ids = (0..).map(FunctionId);
        let key = |f: &Function| (f.name, f.system_name, f.filename);
        FunctionIndex(profile.functions.iter().map(key).zip(ids).collect())
    }

    /// Reserves space for additional functions.
    pub fn reserve(&mut self, functions: usize) {
        self.0.reserve(functions);
    }

    /// The function with these names; a new one is added.
    pub fn id(&mut self, profile: &mut Profile, function: Function) -> FunctionId {
        let key = (function.name, function.system_name, function.filename);
        *self.0.entry(key).or_insert_with(|| {
            profile.functions.push(function);
            FunctionId(profile.functions.len() as u32 - 1)
        })
    }
}

/// Writes frames into a profile, each string only once.
pub struct FrameWriter<'a> {
    resolved: &'a AddressFrames,
    strings: Vec<Option<StrId>>,
    functions: FxHashMap<(StrId, StrId, StrId), FunctionId>,
    lines: Vec<Line>,
}

impl<'a> FrameWriter<'a> {
    /// A writer of these frames.
    pub fn new(resolved: &'a AddressFrames) -> FrameWriter<'a> {
        FrameWriter {
            resolved,
            strings: vec![None; resolved.strings.len()],
            functions: FxHashMap::default(),
            lines: Vec::new(),
        }
    }

    /// Writes the frames of address number `index` to `location`.
    pub fn write(
        &mut self,
        profile: &mut Profile,
        function_ids: &mut FunctionIndex,
        location: LocationId,
        index: usize,
    ) {
        self.lines.clear();
        for frame in self.resolved.get(index) {
            let key = (frame.name, frame.system_name, frame.file);
            let function = match self.functions.get(&key) {
                Some(&id) => id,
                None => {
                    let function = Function {
                        name: self.string(profile, frame.name),
                        system_name: self.string(profile, frame.system_name),
                        filename: self.string(profile, frame.file),
                        start_line: 0,
                    };
                    let id = function_ids.id(profile, function);
                    self.functions.insert(key, id);
                    id
                }
            };
            let line = frame.line.into();
            let column = frame.column.into();
            self.lines.push(Line { function, line, column });
        }
        profile.set_lines(location, &self.lines);
    }

    fn string(&mut self, profile: &mut Profile, id: StrId) -> StrId {
        let resolved = self.resolved;
        *self.strings[id.0 as usize]
            .get_or_insert_with(|| profile.strings.intern(resolved.strings.get(id)))
    }
}

/// Frames of some ascending addresses while they are written.
pub struct Unwritten<'a> {
    addresses: &'a [u64],
    /// Index of the next address to write.
    next: usize,
    resolved: Option<(&'a AddressFrames, FrameWriter<'a>)>,
}

impl<'a> Unwritten<'a> {
    /// Frames of these addresses; `None` if there are none.
    pub fn new(addresses: &'a [u64], resolved: Option<&'a AddressFrames>) -> Unwritten<'a> {
        let resolved = resolved.map(|resolved| (resolved, FrameWriter::new(resolved)));
        Unwritten { addresses, next: 0, resolved }
    }

    /// Index of an address, if it is among these; calls must ascend.
    pub fn index_of(&mut self, address: u64) -> Option<usize> {
        while *self.addresses.get(self.next)? < address {
            self.next += 1;
        }
        (self.addresses[self.next] == address).then_some(self.next)
    }

    /// Writes the frames of address number `index` to a location; returns true if they include
    /// lines.
    pub fn write(
        &mut self,
        profile: &mut Profile,
        functions: &mut FunctionIndex,
        location: LocationId,
        index: usize,
    ) -> bool {
        let Some((resolved, writer)) = &mut self.resolved else { return false };
        let frames = resolved.get(index);
        if !frames.is_empty() {
            writer.write(profile, functions, location, index);
        }
        frames.iter().any(|f| f.line > 0)
    }
}

/// Writes cached frames into a profile, each string and function only once.
pub struct StoredWriter<'a> {
    stored: &'a StoredFrames,
    strings: Vec<Option<StrId>>,
    functions: Vec<Option<FunctionId>>,
    /// Index of the last address.
    place: usize,
    lines: Vec<Line>,
}

impl<'a> StoredWriter<'a> {
    /// A writer of these frames for `addresses` addresses.
    pub fn new(
        stored: &'a StoredFrames,
        addresses: usize,
        profile: &mut Profile,
        function_ids: &mut FunctionIndex,
    ) -> StoredWriter<'a> {
        if addresses > stored.len() / 2 {
            // Most of it will be needed.
            profile.strings.reserve(stored.strings());
            function_ids.reserve(stored.functions());
        }
        let strings = vec![None; stored.strings()];
        let functions = vec![None; stored.functions()];
        StoredWriter { stored, strings, functions, place: 0, lines: Vec::new() }
    }

    /// Writes the frames of `address`, which must ascend, to `location`; returns true if they
    /// include lines.
    pub fn write(
        &mut self,
        profile: &mut Profile,
        function_ids: &mut FunctionIndex,
        location: LocationId,
        address: u64,
    ) -> bool {
        let StoredWriter { stored, strings, functions, place, lines } = self;
        let Some(found) = stored.find(address, *place) else { return false };
        *place = found;
        lines.clear();
        for frame in stored.chain(found) {
            let function = *functions[frame.function as usize].get_or_insert_with(|| {
                let [name, system_name, filename] = stored.function(frame.function).map(|id| {
                    let intern = || profile.strings.intern(stored.string(id));
                    *strings[id as usize].get_or_insert_with(intern)
                });
                function_ids.id(profile, Function { name, system_name, filename, start_line: 0 })
            });
            lines.push(Line { function, line: frame.line.into(), column: frame.column.into() });
        }
        if !lines.is_empty() {
            profile.set_lines(location, lines);
        }
        lines.iter().any(|l| l.line > 0)
    }
}
