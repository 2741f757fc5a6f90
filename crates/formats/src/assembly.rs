//! Profiles from the stacks of other formats than pprof: strings, functions, locations, stacks and
//! rows are interned while a file is read.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use hashbrown::HashTable;
use rustc_hash::FxHashMap;

use profile::{
    Function, FunctionId, Label, LabelSetId, LabelValue, Line, Location, LocationId, Mapping,
    MappingId, Profile, SampleRow, StackId, StackInterner, StrId, TimesId, ValueType, comment,
};

/// Most frames of a stack; of one with more, the innermost are kept.
pub(crate) const MOST_FRAMES: usize = 65_536;

/// A value of a sample: that of sample type number `column`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ColumnValue {
    pub column: usize,
    pub value: i64,
}

/// A sample of a file.
#[derive(Clone, Copy)]
pub(crate) struct AddedSample<'a> {
    /// The stack, leaf first.
    pub stack: &'a [LocationId],
    pub labels: LabelSetId,
    pub values: &'a [ColumnValue],
    /// In microseconds since the start of the recording.
    pub time: Option<u64>,
}

/// A sample whose stack has an id.
#[derive(Clone, Copy)]
pub(crate) struct InternedSample<'a> {
    pub stack: StackId,
    pub labels: LabelSetId,
    pub values: &'a [ColumnValue],
    /// In microseconds since the start of the recording.
    pub time: Option<u64>,
}

/// The time of a sample of a row.
struct RowTime {
    row: u32,
    time: u64,
}

/// A profile while a file is read.
#[derive(Default)]
pub(crate) struct Assembly {
    /// The profile so far; its strings, labels and the fields of its header can be used directly.
    pub profile: Profile,
    stacks: StackInterner,
    functions: FxHashMap<Function, FunctionId>,
    mappings: FxHashMap<StrId, MappingId>,
    locations: HashTable<u32>,
    rows: HashTable<u32>,
    /// Of locations and rows. The standard hasher, because addresses and values come from the file.
    hasher: RandomState,
    times: Vec<RowTime>,
    /// The values of a single sample of each row with times.
    single: FxHashMap<u32, Box<[ColumnValue]>>,
    /// Number of the values in `single`.
    single_values: u64,
    frames: u64,
    text: u64,
    /// Number of stacks that were cut.
    cut: u64,
    /// Frames have addresses in place of names, which are looked up later.
    pub frames_are_addresses: bool,
}

/// The sentence about a file whose content takes more than `allowed` bytes of memory, if `bytes` are
/// more.
pub(crate) fn excess(bytes: u64, allowed: u64) -> Option<String> {
    let mib = allowed >> 20;
    (bytes > allowed).then(|| {
        format!("it takes more than {mib} MiB of memory up to here, too much for its size")
    })
}

impl Assembly {
    /// A profile without samples, with these sample types, as (kind, unit).
    pub(crate) fn new(types: &[(&str, &str)]) -> Assembly {
        let mut assembly = Assembly::default();
        for (kind, unit) in types {
            assembly.add_type(kind, unit);
        }
        assembly
    }

    /// Adds a sample type, of which the samples so far have no value. Returns its column.
    pub(crate) fn add_type(&mut self, kind: &str, unit: &str) -> usize {
        let value_type = ValueType { kind: self.string(kind), unit: self.string(unit) };
        let profile = &mut self.profile;
        let width = profile.sample_types.len();
        profile.sample_types.push(value_type);
        let mut values = Vec::with_capacity(profile.samples.len() * (width + 1));
        for row in 0..profile.samples.len() {
            values.extend_from_slice(&profile.values[row * width..(row + 1) * width]);
            values.push(0);
        }
        profile.values = values;
        width
    }

    /// The column of a sample type, if it is there.
    pub(crate) fn find_type(&self, kind: &str, unit: &str) -> Option<usize> {
        let strings = &self.profile;
        let is_same = |t: &ValueType| (strings.str(t.kind), strings.str(t.unit)) == (kind, unit);
        strings.sample_types.iter().position(is_same)
    }

    /// The column of a sample type, which is added if it is not there.
    pub(crate) fn type_column(&mut self, kind: &str, unit: &str) -> usize {
        self.find_type(kind, unit).unwrap_or_else(|| self.add_type(kind, unit))
    }

    /// Id of a text.
    pub(crate) fn string(&mut self, text: &str) -> StrId {
        let before = self.profile.strings.len();
        let id = self.profile.strings.intern(text);
        if self.profile.strings.len() > before {
            self.text += text.len() as u64;
        }
        id
    }

    /// Id of a function by its name, source file and first line (0: unknown).
    pub(crate) fn function(&mut self, name: &str, file: &str, start_line: i64) -> FunctionId {
        let name = self.string(name);
        let filename = self.string(file);
        self.function_with(Function { name, system_name: name, filename, start_line })
    }

    /// Id of a function.
    pub(crate) fn function_with(&mut self, function: Function) -> FunctionId {
        let functions = &mut self.profile.functions;
        *self.functions.entry(function).or_insert_with(|| {
            functions.push(function);
            FunctionId(functions.len() as u32 - 1)
        })
    }

    /// Id of a binary by its path.
    pub(crate) fn mapping(&mut self, file: &str) -> MappingId {
        let file = self.string(file);
        let mappings = &mut self.profile.mappings;
        *self.mappings.entry(file).or_insert_with(|| {
            mappings.push(Mapping { file, ..Mapping::default() });
            MappingId(mappings.len() as u32 - 1)
        })
    }

    /// Adds a mapping; the caller keeps its id.
    pub(crate) fn add_mapping(&mut self, mapping: Mapping) -> MappingId {
        self.profile.mappings.push(mapping);
        MappingId(self.profile.mappings.len() as u32 - 1)
    }

    /// Id of the location with these lines, innermost first.
    pub(crate) fn location(
        &mut self,
        mapping: Option<MappingId>,
        address: u64,
        lines: &[Line],
    ) -> LocationId {
        let hasher = &self.hasher;
        let hash_of = |mapping: Option<MappingId>, address: u64, lines: &[Line]| {
            hasher.hash_one((mapping, address, lines))
        };
        let profile = &mut self.profile;
        let is_same = |&id: &u32| {
            let location = &profile.locations[id as usize];
            (location.mapping, location.address) == (mapping, address)
                && profile.lines_of(LocationId(id)) == lines
        };
        let hash = hash_of(mapping, address, lines);
        if let Some(&id) = self.locations.find(hash, is_same) {
            return LocationId(id);
        }
        let id = LocationId(profile.locations.len() as u32);
        profile.locations.push(Location { mapping, address, ..Location::default() });
        profile.set_lines(id, lines);
        self.locations.insert_unique(hash, id.0, |&id| {
            let location = &profile.locations[id as usize];
            hash_of(location.mapping, location.address, profile.lines_of(LocationId(id)))
        });
        id
    }

    /// A label with a text as its value.
    pub(crate) fn text_label(&mut self, key: &str, value: &str) -> Label {
        let value = LabelValue::Str(self.string(value));
        Label { key: self.string(key), value }
    }

    /// A label with a number as its value.
    pub(crate) fn number_label(&mut self, key: &str, value: i64) -> Label {
        let value = LabelValue::Num { value, unit: StrId::EMPTY };
        Label { key: self.string(key), value }
    }

    /// Sets the source of a line: its function is that of the same name in this file.
    pub(crate) fn set_line(&mut self, line: &mut Line, file: &str, number: i64) {
        let Function { name, start_line, .. } = self.profile.functions[line.function.0 as usize];
        let name = self.profile.str(name).to_owned();
        line.function = self.function(&name, file, start_line);
        line.line = number;
    }

    /// Subtracts the first time from all. Returns the time from the first to the last, in
    /// microseconds.
    pub(crate) fn begin_times_at_zero(&mut self) -> i64 {
        let times = || self.times.iter().map(|time| time.time);
        let (Some(first), Some(last)) = (times().min(), times().max()) else { return 0 };
        for time in &mut self.times {
            time.time -= first;
        }
        i64::try_from(last - first).unwrap_or(i64::MAX)
    }

    /// Adds a comment.
    pub(crate) fn comment(&mut self, text: &str) {
        let comment = self.string(text);
        self.profile.comments.push(comment);
    }

    /// Adds a sample. Samples of equal stacks and labels, and of equal values if they have times, are
    /// one row.
    pub(crate) fn add(&mut self, sample: AddedSample<'_>) {
        let AddedSample { stack, labels, values, time } = sample;
        let stack = self.stack(stack);
        self.add_interned(InternedSample { stack, labels, values, time });
    }

    /// Id of a stack, leaf first.
    pub(crate) fn stack(&mut self, stack: &[LocationId]) -> StackId {
        let kept = &stack[..stack.len().min(MOST_FRAMES)];
        let before = self.stacks.len();
        let id = self.stacks.intern(kept);
        if self.stacks.len() > before {
            self.frames += kept.len() as u64;
            self.cut += u64::from(kept.len() < stack.len());
        }
        id
    }

    /// Adds a sample as [`Assembly::add`] does, in a time that does not depend on its stack.
    pub(crate) fn add_interned(&mut self, sample: InternedSample<'_>) {
        let InternedSample { stack, labels, values, time } = sample;
        let timed = time.is_some();
        let Assembly { profile, rows, single, single_values, hasher, .. } = self;
        let hash_of = |row: &SampleRow, values: Option<&[ColumnValue]>| {
            let mut hasher = hasher.build_hasher();
            (row.stack, row.labels).hash(&mut hasher);
            for value in values.unwrap_or_default() {
                (value.column, value.value).hash(&mut hasher);
            }
            hasher.finish()
        };
        let new = SampleRow { stack, labels, times: TimesId::NONE };
        let new_single = timed.then_some(values);
        let is_same = |&row: &u32| {
            profile.samples[row as usize] == new && single.get(&row).map(|v| &**v) == new_single
        };
        let hash = hash_of(&new, new_single);
        let row = rows.find(hash, is_same).copied().unwrap_or_else(|| {
            let row = profile.samples.len() as u32;
            profile.samples.push(new);
            profile.values.resize(profile.values.len() + profile.sample_types.len(), 0);
            if timed {
                *single_values += values.len() as u64;
                single.insert(row, values.into());
            }
            rows.insert_unique(hash, row, |&row| {
                hash_of(&profile.samples[row as usize], single.get(&row).map(|v| &**v))
            });
            row
        });
        let first = row as usize * profile.sample_types.len();
        for &ColumnValue { column, value } in values {
            let cell = &mut profile.values[first + column];
            *cell = cell.saturating_add(value);
        }
        if let Some(time) = time {
            self.times.push(RowTime { row, time });
        }
    }

    /// Memory of the profile and its indexes, estimated in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let profile = &self.profile;
        let rows = profile.samples.len() as u64 * (24 + 8 * profile.sample_types.len() as u64);
        self.text
            + 32 * profile.strings.len() as u64
            + 64 * profile.functions.len() as u64
            + 64 * profile.mappings.len() as u64
            + 56 * profile.locations.len() as u64
            + 24 * profile.lines.len() as u64
            + 4 * self.frames
            + 16 * self.stacks.len() as u64
            + 100 * profile.labels.len() as u64
            + rows
            + 64 * self.single.len() as u64
            + size_of::<ColumnValue>() as u64 * self.single_values
            + 16 * self.times.len() as u64
    }

    /// The sentence about a profile that takes more than `allowed` bytes of memory, if it does.
    pub(crate) fn excess(&self, allowed: u64) -> Option<String> {
        excess(self.bytes(), allowed)
    }

    /// Notes that the file lacks something; the first reason is kept.
    pub(crate) fn set_incomplete(&mut self, why: &str) {
        if comment::values(&self.profile, comment::INCOMPLETE).next().is_none() {
            self.comment(&format!("{}: {why}", comment::INCOMPLETE));
        }
    }

    /// The profile.
    pub(crate) fn finish(mut self) -> Profile {
        if self.cut > 0 {
            let (cut, s) = (self.cut, if self.cut == 1 { "" } else { "s" });
            self.comment(&format!(
                "note: {cut} stack{s} cut to the innermost {MOST_FRAMES} frames"
            ));
        }
        let Assembly { mut profile, stacks, mut times, frames_are_addresses, .. } = self;
        profile.stacks = stacks.finish();
        times.sort_unstable_by_key(|time| (time.row, time.time));
        for samples in times.chunk_by(|a, b| a.row == b.row) {
            let list = profile.times.push(samples.iter().map(|sample| sample.time));
            profile.samples[samples[0].row as usize].times = list;
        }
        let has_filenames = profile.functions.iter().any(|f| f.filename != StrId::EMPTY);
        let has_line_numbers = profile.lines.iter().any(|line| line.line != 0);
        let has_inline_frames = profile.locations.iter().any(|l| l.line_count > 1);
        let named = profile.mappings.iter_mut().filter(|_| !frames_are_addresses);
        for mapping in named {
            mapping.has_functions = true;
            mapping.has_filenames = has_filenames;
            mapping.has_line_numbers = has_line_numbers;
            mapping.has_inline_frames = has_inline_frames;
        }
        profile
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(value: i64) -> [ColumnValue; 1] {
        [ColumnValue { column: 0, value }]
    }

    fn named(all: &mut Assembly, name: &str) -> LocationId {
        let function = all.function(name, "", 0);
        all.location(None, 0, &[Line { function, line: 0, column: 0 }])
    }

    #[test]
    fn equal_samples_are_one_row() {
        let mut all = Assembly::new(&[("samples", "count")]);
        let [main, work] = ["main", "work"].map(|name| named(&mut all, name));
        let labels = LabelSetId::EMPTY;
        for (stack, n) in [(&[work, main][..], 3), (&[main], 1), (&[work, main], 4)] {
            all.add(AddedSample { stack, labels, values: &value(n), time: None });
        }
        let column = all.add_type("cycles", "count");
        let values = [ColumnValue { column, value: i64::MAX }];
        for _ in 0..2 {
            all.add(AddedSample { stack: &[main], labels, values: &values, time: None });
        }
        let profile = all.finish();
        assert_eq!((profile.values_of(0), profile.values_of(1)), (&[7, 0][..], &[1, i64::MAX][..]));
        assert_eq!(profile.samples.len(), 2);
    }

    #[test]
    fn stacks_are_cut_to_the_innermost_frames() {
        let mut all = Assembly::new(&[("samples", "count")]);
        let [main, work] = ["main", "work"].map(|name| named(&mut all, name));
        let mut stack = vec![main; 2 * MOST_FRAMES];
        stack[0] = work;
        let labels = LabelSetId::EMPTY;
        all.add(AddedSample { stack: &stack, labels, values: &value(1), time: None });
        let profile = all.finish();
        let kept = profile.stacks.get(profile.samples[0].stack);
        assert_eq!((kept.len(), kept[0], kept[1]), (MOST_FRAMES, work, main));
        let comment = profile.str(profile.comments[0]);
        assert_eq!(comment, "note: 1 stack cut to the innermost 65536 frames");
    }

    #[test]
    fn samples_with_times_are_rows_of_equal_values() {
        let mut all = Assembly::new(&[("samples", "count")]);
        let stack = &[named(&mut all, "main")];
        let labels = LabelSetId::EMPTY;
        for (n, time) in [(1, 9), (2, 3), (1, 4)] {
            all.add(AddedSample { stack, labels, values: &value(n), time: Some(time) });
        }
        let profile = all.finish();
        let times: Vec<_> = profile.samples.iter().map(|s| profile.times.get(s.times)).collect();
        assert_eq!(times, [&[4, 9][..], &[3]]);
        assert_eq!(profile.values, [2, 2]);
    }

    #[test]
    fn locations_differ_by_their_lines() {
        let mut all = Assembly::new(&[]);
        let [inner, outer] = ["inner", "outer"].map(|name| all.function(name, "a.c", 0));
        let mapping = Some(all.mapping("/bin/a"));
        let line = |function, line| Line { function, line, column: 0 };
        let both = all.location(mapping, 7, &[line(inner, 1), line(outer, 2)]);
        assert_ne!(all.location(mapping, 7, &[line(inner, 1)]), both);
        assert_ne!(all.location(None, 7, &[line(inner, 1), line(outer, 2)]), both);
        assert_eq!(all.location(mapping, 7, &[line(inner, 1), line(outer, 2)]), both);
    }
}
