//! The messages of `profile.proto`, each decoded into the tables of a profile.
//!
//! Ids and string indexes stay as in the file until all has been read; `read` resolves them.

use std::hash::Hasher;

use profile::{
    Function, FunctionId, Label, LabelSetId, LabelTable, LabelValue, Line, Location, LocationId,
    Mapping, MappingId, SampleRow, StackId, StrId, TimeTable, ValueType,
};
use rustc_hash::FxHasher;

use super::ids::{IdSpace, LARGE};
use super::strings::Strings;
use super::wire::{Cursor, FieldTag};
use crate::error::ReadError;

/// Tables decoded so far.
pub(super) struct DecodedTables {
    pub strings: Strings,
    pub sample_types: Vec<ValueType>,
    pub mappings: Vec<Mapping>,
    pub mapping_ids: IdSpace,
    pub functions: Vec<Function>,
    pub function_ids: IdSpace,
    pub lines: Vec<Line>,
    pub locations: Vec<Location>,
    pub location_ids: IdSpace,
    pub frames: Vec<LocationId>,
    /// End of each sample's stack in `frames`.
    pub ends: Vec<usize>,
    pub samples: Vec<SampleRow>,
    pub values: Vec<i64>,
    pub labels: LabelTable,
    /// Number of labels in `labels`, all sets together.
    label_count: u64,
    /// Number of values of each sample, set by the first.
    pub width: Option<usize>,
    label_scratch: Vec<Label>,
    pub times: TimeTable,
    /// Times of the sample.
    time_scratch: Vec<u64>,
    /// Label bytes of the previous sample without its times, and their set: consecutive samples are
    /// often alike.
    last_labels: (Vec<u8>, LabelSetId),
    recent_labels: RecentLabels,
}

/// Label bytes of recent samples without times, and their sets: most programs have few threads.
#[derive(Default)]
struct RecentLabels {
    /// By hash; none before the first sample that has labels.
    sets: Vec<(Vec<u8>, LabelSetId)>,
}

impl RecentLabels {
    /// Number of sets.
    const SETS: usize = 256;

    /// Bytes of the labels of a sample; those of more are not kept.
    const LONGEST: usize = 256;

    fn place(bytes: &[u8]) -> usize {
        let mut hasher = FxHasher::default();
        hasher.write(bytes);
        (hasher.finish() >> 32) as usize % RecentLabels::SETS
    }

    fn find(&self, bytes: &[u8]) -> Option<LabelSetId> {
        if self.sets.is_empty() || bytes.len() > RecentLabels::LONGEST {
            return None;
        }
        let (found, labels) = &self.sets[RecentLabels::place(bytes)];
        (found == bytes).then_some(*labels)
    }

    fn put(&mut self, bytes: &[u8], labels: LabelSetId) {
        if bytes.is_empty() || bytes.len() > RecentLabels::LONGEST {
            return;
        }
        self.sets.resize_with(RecentLabels::SETS, Default::default);
        let set = &mut self.sets[RecentLabels::place(bytes)];
        set.0.clear();
        set.0.extend_from_slice(bytes);
        set.1 = labels;
    }
}

impl DecodedTables {
    pub(super) fn new() -> DecodedTables {
        DecodedTables {
            strings: Strings::new(),
            sample_types: Vec::new(),
            mappings: Vec::new(),
            mapping_ids: IdSpace::new("mapping"),
            functions: Vec::new(),
            function_ids: IdSpace::new("function"),
            lines: Vec::new(),
            locations: Vec::new(),
            location_ids: IdSpace::new("location"),
            frames: Vec::new(),
            ends: Vec::new(),
            samples: Vec::new(),
            values: Vec::new(),
            labels: LabelTable::default(),
            label_count: 0,
            width: None,
            label_scratch: Vec::new(),
            times: TimeTable::default(),
            time_scratch: Vec::new(),
            last_labels: (Vec::new(), LabelSetId::EMPTY),
            recent_labels: RecentLabels::default(),
        }
    }

    /// Approximate memory of the tables.
    pub(super) fn bytes(&self) -> u64 {
        fn bytes<T>(table: &[T]) -> u64 {
            size_of_val(table) as u64
        }
        bytes(&self.sample_types)
            + bytes(&self.mappings)
            + bytes(&self.functions)
            + bytes(&self.lines)
            + bytes(&self.locations)
            + bytes(&self.frames)
            + bytes(&self.ends)
            + bytes(&self.samples)
            + bytes(&self.values)
            + bytes(&self.label_scratch)
            + bytes(&self.time_scratch)
            + self.times.bytes() as u64
            + self.label_count * size_of::<Label>() as u64
            + self.labels.len() as u64 * 16
            + self.strings.bytes()
            + self.mapping_ids.bytes()
            + self.function_ids.bytes()
            + self.location_ids.bytes()
    }

    /// A `ValueType`.
    pub(super) fn value_type(&mut self, mut c: Cursor) -> Result<ValueType, ReadError> {
        let mut out = ValueType::default();
        while let Some(tag) = c.tag()? {
            let at = c.at();
            match tag.field {
                1 => out.kind = self.strings.keep(c.number(tag, "value type")?, at)?,
                2 => out.unit = self.strings.keep(c.number(tag, "value type")?, at)?,
                _ => c.skip(tag)?,
            }
        }
        Ok(out)
    }

    /// A `Sample`.
    pub(super) fn sample(&mut self, mut c: Cursor) -> Result<(), ReadError> {
        let start = c.at();
        let values_before = self.values.len();
        let mut label_bytes: Option<&[u8]> = None;
        // The labels before the first time: their number, and where they end in `label_bytes`.
        let mut plain = (0, 0);
        let mut only_labels_follow = true;
        self.label_scratch.clear();
        self.time_scratch.clear();
        while let Some(tag) = c.tag()? {
            match tag.field {
                1 => self.frames(&mut c, tag, start)?,
                2 => {
                    let values = &mut self.values;
                    c.numbers(tag, "sample", |value| {
                        values.push(value as i64);
                        Ok(())
                    })?;
                }
                3 => {
                    if label_bytes.is_none() {
                        let same = self.same_labels(&c)?;
                        if let Some(labels) = same.or_else(|| self.recent_labels.find(c.rest())) {
                            return self.finish_sample(start, values_before, labels);
                        }
                        label_bytes = Some(c.rest());
                    }
                    self.label(&mut c, tag)?;
                    if self.time_scratch.is_empty() {
                        let all = label_bytes.map_or(0, <[u8]>::len);
                        plain = (self.label_scratch.len(), all - c.rest().len());
                    }
                    continue;
                }
                _ => c.skip(tag)?,
            }
            only_labels_follow &= label_bytes.is_none();
        }
        let before = self.labels.len();
        let labels = self.labels.intern(&self.label_scratch);
        if self.labels.len() > before {
            self.label_count += self.label_scratch.len() as u64;
        }
        only_labels_follow &= plain.0 == self.label_scratch.len();
        if let Some(bytes) = label_bytes.filter(|_| only_labels_follow) {
            if self.time_scratch.is_empty() {
                self.recent_labels.put(bytes, labels);
            }
            self.last_labels.0.clear();
            self.last_labels.0.extend_from_slice(&bytes[..plain.1]);
            self.last_labels.1 = labels;
        }
        self.finish_sample(start, values_before, labels)
    }

    /// The labels of a sample, whose first is next, if they are those of the previous sample; only
    /// times may follow them.
    fn same_labels(&mut self, c: &Cursor) -> Result<Option<LabelSetId>, ReadError> {
        let (last, labels) = &self.last_labels;
        let labels = *labels;
        let Some(rest) = c.rest().strip_prefix(&last[..]).filter(|_| !last.is_empty()) else {
            return Ok(None);
        };
        let mut c = Cursor::new(rest, c.at() + last.len() as u64);
        while let Some(tag) = c.tag()? {
            if tag.field == 3 {
                self.label(&mut c, tag)?;
            }
            if tag.field != 3 || !self.label_scratch.is_empty() {
                self.label_scratch.clear();
                self.time_scratch.clear();
                return Ok(None);
            }
        }
        Ok(Some(labels))
    }

    /// Location ids of a sample.
    #[inline]
    fn frames(&mut self, c: &mut Cursor, tag: FieldTag, at: u64) -> Result<(), ReadError> {
        let DecodedTables { frames, location_ids, .. } = self;
        let mut max = 0;
        c.numbers(tag, "sample", |id| {
            let key = id.wrapping_sub(1);
            if key < u64::from(LARGE) {
                max = max.max(key as u32);
                frames.push(LocationId(key as u32));
            } else {
                frames.push(LocationId(location_ids.unusual(id, at)?));
            }
            Ok(())
        })?;
        location_ids.used(max, at);
        Ok(())
    }

    fn finish_sample(
        &mut self,
        at: u64,
        values_before: usize,
        labels: LabelSetId,
    ) -> Result<(), ReadError> {
        let have = self.values.len() - values_before;
        let width = *self.width.get_or_insert(have);
        if have != width {
            let what = format!("a sample of {have} values behind samples of {width}");
            return Err(ReadError::at(at, what));
        }
        let times = self.times.push(self.time_scratch.iter().copied());
        self.samples.push(SampleRow { stack: StackId(self.ends.len() as u32), labels, times });
        self.ends.push(self.frames.len());
        Ok(())
    }

    /// A `Label`.
    fn label(&mut self, c: &mut Cursor, tag: FieldTag) -> Result<(), ReadError> {
        let mut c = c.message(tag, "sample")?;
        let mut key = StrId::EMPTY;
        let mut text = StrId::EMPTY;
        let mut unit = StrId::EMPTY;
        let mut number = 0;
        while let Some(tag) = c.tag()? {
            let at = c.at();
            match tag.field {
                1 => key = self.strings.keep(c.number(tag, "label")?, at)?,
                2 => text = self.strings.keep(c.number(tag, "label")?, at)?,
                3 => number = c.number(tag, "label")? as i64,
                4 => unit = self.strings.keep(c.number(tag, "label")?, at)?,
                _ => c.skip(tag)?,
            }
        }
        let value = match text {
            StrId::EMPTY => LabelValue::Num { value: number, unit },
            text => LabelValue::Str(text),
        };
        if let LabelValue::Num { value, unit } = value
            && self.strings.is_time(key, unit)
            && let Ok(time) = u64::try_from(value)
        {
            self.time_scratch.push(time);
            return Ok(());
        }
        self.label_scratch.push(Label { key, value });
        Ok(())
    }

    /// A `Mapping`.
    pub(super) fn mapping(&mut self, mut c: Cursor) -> Result<(), ReadError> {
        let start = c.at();
        let mut m = Mapping::default();
        let mut id = 0;
        while let Some(tag) = c.tag()? {
            let at = c.at();
            if tag.field > 10 {
                c.skip(tag)?;
                continue;
            }
            let number = c.number(tag, "mapping")?;
            match tag.field {
                1 => id = number,
                2 => m.start = number,
                3 => m.limit = number,
                4 => m.file_offset = number,
                5 => m.file = self.strings.keep(number, at)?,
                6 => m.build_id = self.strings.keep(number, at)?,
                7 => m.has_functions = number != 0,
                8 => m.has_filenames = number != 0,
                9 => m.has_line_numbers = number != 0,
                _ => m.has_inline_frames = number != 0,
            }
        }
        self.mapping_ids.define(id, start)?;
        self.mappings.push(m);
        Ok(())
    }

    /// A `Location`.
    pub(super) fn location(&mut self, mut c: Cursor) -> Result<(), ReadError> {
        let start = c.at();
        let mut id = 0;
        let mut l = Location { first_line: self.lines.len() as u32, ..Location::default() };
        while let Some(tag) = c.tag()? {
            match tag.field {
                1 => id = c.number(tag, "location")?,
                2 => {
                    let mapping = c.number(tag, "location")?;
                    l.mapping = match mapping {
                        0 => None,
                        id => Some(MappingId(self.mapping_ids.keep(id, start)?)),
                    };
                }
                3 => l.address = c.number(tag, "location")?,
                4 => {
                    let line = c.message(tag, "location")?;
                    self.line(line)?;
                }
                5 => l.is_folded = c.number(tag, "location")? != 0,
                _ => c.skip(tag)?,
            }
        }
        l.line_count = self.lines.len() as u32 - l.first_line;
        self.location_ids.define(id, start)?;
        self.locations.push(l);
        Ok(())
    }

    /// A `Line`; one without a function carries no information and is dropped.
    fn line(&mut self, mut c: Cursor) -> Result<(), ReadError> {
        let start = c.at();
        let mut function = 0;
        let mut line = 0;
        let mut column = 0;
        while let Some(tag) = c.tag()? {
            match tag.field {
                1 => function = c.number(tag, "line")?,
                2 => line = c.number(tag, "line")? as i64,
                3 => column = c.number(tag, "line")? as i64,
                _ => c.skip(tag)?,
            }
        }
        if function != 0 {
            let function = FunctionId(self.function_ids.keep(function, start)?);
            self.lines.push(Line { function, line, column });
        }
        Ok(())
    }

    /// A `Function`.
    pub(super) fn function(&mut self, mut c: Cursor) -> Result<(), ReadError> {
        let start = c.at();
        let mut f = Function::default();
        let mut id = 0;
        while let Some(tag) = c.tag()? {
            let at = c.at();
            match tag.field {
                1 => id = c.number(tag, "function")?,
                2 => f.name = self.strings.keep(c.number(tag, "function")?, at)?,
                3 => f.system_name = self.strings.keep(c.number(tag, "function")?, at)?,
                4 => f.filename = self.strings.keep(c.number(tag, "function")?, at)?,
                5 => f.start_line = c.number(tag, "function")? as i64,
                _ => c.skip(tag)?,
            }
        }
        self.function_ids.define(id, start)?;
        self.functions.push(f);
        Ok(())
    }
}
