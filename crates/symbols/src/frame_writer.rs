//! Writes encoded frames into a profile.

use rustc_hash::FxHashMap;

use profile::{Function, FunctionId, Line, LocationId, Profile, StrId};

use super::encoded_frames::EncodedFrames;

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

/// Writes frames into a profile, each string and function only once.
pub struct FrameWriter<'a> {
    encoded: &'a EncodedFrames,
    strings: Vec<Option<StrId>>,
    functions: Vec<Option<FunctionId>>,
    /// Index of the last address.
    place: usize,
    lines: Vec<Line>,
}

impl<'a> FrameWriter<'a> {
    /// A writer of these frames for `addresses` addresses.
    pub fn new(
        encoded: &'a EncodedFrames,
        addresses: usize,
        profile: &mut Profile,
        function_ids: &mut FunctionIndex,
    ) -> FrameWriter<'a> {
        if addresses > encoded.len() / 2 {
            // Most of it will be needed.
            profile.strings.reserve(encoded.strings());
            function_ids.reserve(encoded.functions());
        }
        let strings = vec![None; encoded.strings()];
        let functions = vec![None; encoded.functions()];
        FrameWriter { encoded, strings, functions, place: 0, lines: Vec::new() }
    }

    /// Index of `address`, if it is among these; calls must ascend.
    pub fn index_of(&mut self, address: u64) -> Option<usize> {
        let found = self.encoded.find(address, self.place)?;
        self.place = found;
        Some(found)
    }

    /// Writes the frames of address number `index` to `location`; returns true if they include
    /// lines.
    pub fn write(
        &mut self,
        profile: &mut Profile,
        function_ids: &mut FunctionIndex,
        location: LocationId,
        index: usize,
    ) -> bool {
        let FrameWriter { encoded, strings, functions, lines, .. } = self;
        lines.clear();
        for frame in encoded.chain(index) {
            let function = *functions[frame.function as usize].get_or_insert_with(|| {
                let [name, system_name, filename] = encoded.function(frame.function).map(|id| {
                    let intern = || profile.strings.intern(encoded.string(id));
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
