//! Names found for a run of addresses, compact and independent of the profile, so that threads
//! can find them side by side.

use rustc_hash::FxHashMap;

use profile::{Function, FunctionId, Line, LocationId, Profile, StrId, StringTable};

use super::cache::Stored;
use profile::Cause;

/// One function at an address, in the strings of its [`Answers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Readable name.
    pub name: StrId,
    /// Name as in the binary.
    pub system_name: StrId,
    /// Source file, empty when unknown.
    pub file: StrId,
    /// Line in it, 0 when unknown.
    pub line: u32,
    /// Column, 0 when unknown.
    pub column: u32,
}

/// The frames of a run of addresses, innermost first, in the order of the addresses.
#[derive(Default)]
pub struct Answers {
    /// Strings of the frames.
    pub strings: StringTable,
    /// Frames of all addresses.
    pub frames: Vec<Frame>,
    /// What could not be read, if something: another time there may be more, or other, names.
    pub doubt: Option<Cause>,
    /// End of each address's frames; they begin where those before it end.
    ends: Vec<u32>,
}

impl Answers {
    /// Adds the frames of the next address; none when it has no name.
    pub fn push(&mut self, frames: impl IntoIterator<Item = Frame>) {
        self.frames.extend(frames);
        self.ends.push(self.frames.len() as u32);
    }

    /// Adds the next address of which only the function's name is known, if that.
    pub fn push_name(&mut self, name: Option<&str>) {
        let frame = name.map(|name| {
            let name = self.strings.intern(name);
            Frame { name, system_name: name, file: StrId::EMPTY, line: 0, column: 0 }
        });
        self.push(frame);
    }

    /// Frames of address number `index`.
    pub fn get(&self, index: usize) -> &[Frame] {
        range(&self.frames, &self.ends, index)
    }

    /// Number of addresses.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True when there is no address.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// These answers, for `len` addresses, with the gaps at `indices` (ascending) filled from
    /// `found`, which has one address for each of them.
    pub fn filled(self, indices: &[usize], found: Answers, len: usize) -> Answers {
        if indices.len() == len {
            return found;
        }
        let mut out = Answers { strings: self.strings, ..Answers::default() };
        let mut gaps = indices.iter().copied().enumerate().peekable();
        for i in 0..len {
            match gaps.next_if(|&(_, index)| index == i) {
                None => out.push(range(&self.frames, &self.ends, i).iter().copied()),
                Some((n, _)) => {
                    let mut copy = |id| out.strings.intern(found.strings.get(id));
                    let frames: Vec<Frame> = found
                        .get(n)
                        .iter()
                        .map(|f| Frame {
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

    /// These answers, which are doubted because of this.
    pub fn doubted(self, why: Cause) -> Answers {
        Answers { doubt: Some(why), ..self }
    }

    /// Gives the outermost function at address number `index` another name.
    pub fn rename_outermost(&mut self, index: usize, name: &str) {
        let name = self.strings.intern(name);
        if !self.get(index).is_empty() {
            let frame = &mut self.frames[self.ends[index] as usize - 1];
            (frame.name, frame.system_name) = (name, name);
        }
    }
}

fn range<'a>(frames: &'a [Frame], ends: &[u32], index: usize) -> &'a [Frame] {
    let start = if index == 0 { 0 } else { ends[index - 1] as usize };
    &frames[start..ends[index] as usize]
}

/// Functions of a profile by (name, system name, file).
pub struct FunctionIndex(FxHashMap<(StrId, StrId, StrId), FunctionId>);

impl FunctionIndex {
    /// The functions that `profile` has already.
    pub fn new(profile: &Profile) -> FunctionIndex {
        let ids = (0..).map(FunctionId);
        let key = |f: &Function| (f.name, f.system_name, f.filename);
        FunctionIndex(profile.functions.iter().map(key).zip(ids).collect())
    }

    /// Makes room for so many more functions.
    pub fn reserve(&mut self, functions: usize) {
        self.0.reserve(functions);
    }

    /// The function with these names, which is added when it is new.
    pub fn id(&mut self, profile: &mut Profile, function: Function) -> FunctionId {
        let key = (function.name, function.system_name, function.filename);
        *self.0.entry(key).or_insert_with(|| {
            profile.functions.push(function);
            FunctionId(profile.functions.len() as u32 - 1)
        })
    }
}

/// Writes answers into a profile, string by string only once.
pub struct Writer<'a> {
    answers: &'a Answers,
    strings: Vec<Option<StrId>>,
    functions: FxHashMap<(StrId, StrId, StrId), FunctionId>,
    lines: Vec<Line>,
}

impl<'a> Writer<'a> {
    /// A writer of these answers.
    pub fn new(answers: &'a Answers) -> Writer<'a> {
        Writer {
            answers,
            strings: vec![None; answers.strings.len()],
            functions: FxHashMap::default(),
            lines: Vec::new(),
        }
    }

    /// Gives `location` the frames of address number `index`.
    pub fn write(
        &mut self,
        profile: &mut Profile,
        known: &mut FunctionIndex,
        location: LocationId,
        index: usize,
    ) {
        self.lines.clear();
        for frame in self.answers.get(index) {
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
                    let id = known.id(profile, function);
                    self.functions.insert(key, id);
                    id
                }
            };
            let (line, column) = (frame.line.into(), frame.column.into());
            self.lines.push(Line { function, line, column });
        }
        profile.set_lines(location, &self.lines);
    }

    fn string(&mut self, profile: &mut Profile, id: StrId) -> StrId {
        let answers = self.answers;
        *self.strings[id.0 as usize]
            .get_or_insert_with(|| profile.strings.intern(answers.strings.get(id)))
    }
}

/// The answers to some addresses, which ascend, while they are written.
pub struct Unwritten<'a> {
    addresses: &'a [u64],
    /// Addresses before this one are written.
    next: usize,
    answers: Option<(&'a Answers, Writer<'a>)>,
}

impl<'a> Unwritten<'a> {
    /// The answers to these addresses; `None`: there are none.
    pub fn new(addresses: &'a [u64], answers: Option<&'a Answers>) -> Unwritten<'a> {
        let answers = answers.map(|answers| (answers, Writer::new(answers)));
        Unwritten { addresses, next: 0, answers }
    }

    /// Where an address stands, if it is among these; addresses are asked for in their order.
    pub fn index_of(&mut self, address: u64) -> Option<usize> {
        while *self.addresses.get(self.next)? < address {
            self.next += 1;
        }
        (self.addresses[self.next] == address).then_some(self.next)
    }

    /// Gives a location the frames of address number `index`; returns whether there are lines
    /// among them.
    pub fn write(
        &mut self,
        profile: &mut Profile,
        functions: &mut FunctionIndex,
        location: LocationId,
        index: usize,
    ) -> bool {
        let Some((answers, writer)) = &mut self.answers else { return false };
        let frames = answers.get(index);
        if !frames.is_empty() {
            writer.write(profile, functions, location, index);
        }
        frames.iter().any(|f| f.line > 0)
    }
}

/// Writes kept answers into a profile, string by string and function by function only once.
pub struct StoredWriter<'a> {
    stored: &'a Stored,
    strings: Vec<Option<StrId>>,
    functions: Vec<Option<FunctionId>>,
    /// Where the last address stood.
    place: usize,
    lines: Vec<Line>,
}

impl<'a> StoredWriter<'a> {
    /// A writer of these answers for so many addresses.
    pub fn new(
        stored: &'a Stored,
        addresses: usize,
        profile: &mut Profile,
        known: &mut FunctionIndex,
    ) -> StoredWriter<'a> {
        if addresses > stored.len() / 2 {
            // Most of it will be needed.
            profile.strings.reserve(stored.strings());
            known.reserve(stored.functions());
        }
        let (strings, functions) = (vec![None; stored.strings()], vec![None; stored.functions()]);
        StoredWriter { stored, strings, functions, place: 0, lines: Vec::new() }
    }

    /// Gives `location` the frames of `address`, which is not smaller than the one before; returns
    /// whether there are lines among them.
    pub fn write(
        &mut self,
        profile: &mut Profile,
        known: &mut FunctionIndex,
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
                known.id(profile, Function { name, system_name, filename, start_line: 0 })
            });
            lines.push(Line { function, line: frame.line.into(), column: frame.column.into() });
        }
        if !lines.is_empty() {
            profile.set_lines(location, lines);
        }
        lines.iter().any(|l| l.line > 0)
    }
}
