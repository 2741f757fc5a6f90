//! Profiles of the last moments of a recording while it goes on: of the latest part, of about 10
//! seconds, and of everything, in which older parts count less.
//!
//! Strings, locations and labels are kept once, with the names that were found for them; a window
//! is only sums by stack and labels. Memory does not grow with time: see [`WindowLimits`].

mod names;

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use super::builder::swap_mappings;
use super::part::{Part, PartLocation};
use super::{
    Function, FunctionId, Label, LabelSetId, LabelValue, Line, Location, LocationId, Mapping,
    MappingId, Profile, SampleRow, StackId, StackInterner, StrId, TimesId, ValueType, compact,
};

pub use names::NameRequest;

/// The time that a profile of [`Windows`] covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LiveWindow {
    /// The latest part.
    Last,
    /// The latest parts, [`Windows::RECENT`] together.
    #[default]
    Recent,
    /// All parts; a value counts half after [`Windows::HALF_LIFE`].
    Decayed,
}

impl LiveWindow {
    /// All, from the shortest to the longest.
    pub const ALL: [LiveWindow; 3] = [LiveWindow::Last, LiveWindow::Recent, LiveWindow::Decayed];
}

/// Limits of [`Windows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimits {
    /// Sums of one part, and of all; values beyond them are added to one sum.
    pub rows: usize,
}

impl Default for WindowLimits {
    fn default() -> WindowLimits {
        WindowLimits { rows: 50_000 }
    }
}

/// A stack and its labels.
type Key = (StackId, LabelSetId);

/// The sums of a part.
struct Sums {
    nanos: u64,
    rows: Vec<Key>,
    values: Vec<i64>,
}

/// Sums in which older values count less.
#[derive(Default)]
struct Decayed {
    nanos: f64,
    index: FxHashMap<Key, usize>,
    rows: Vec<Key>,
    /// Number of the part that last added to each row.
    added: Vec<u64>,
    values: Vec<f64>,
}

/// Profiles of the last moments.
pub struct Windows {
    /// Everything but stacks, samples and values.
    tables: Profile,
    stacks: StackInterner,
    /// Ids in `tables` of the builder's strings, mappings, functions and labels.
    strings: Vec<StrId>,
    mappings: Vec<MappingId>,
    functions: Vec<FunctionId>,
    labels: Vec<LabelSetId>,
    function_index: FxHashMap<Function, FunctionId>,
    main: Option<MappingId>,
    /// Locations whose names have not been requested.
    unnamed: FxHashSet<LocationId>,
    recent: VecDeque<Sums>,
    all: Decayed,
    parts: u64,
    limits: WindowLimits,
    folded: u64,
}

/// Location of the values beyond the limits: always the first.
const BEYOND: LocationId = LocationId(0);

/// Name of [`BEYOND`].
const BEYOND_NAME: &str = "[beyond prof's memory limit]";

impl Default for Windows {
    fn default() -> Windows {
        Windows::new(WindowLimits::default())
    }
}

impl Windows {
    /// Length of [`LiveWindow::Recent`] in nanoseconds.
    pub const RECENT: u64 = 10_000_000_000;

    /// Time in nanoseconds after which a value of [`LiveWindow::Decayed`] counts half.
    pub const HALF_LIFE: u64 = 30_000_000_000;

    /// Half-lives after which a stack is dropped that did not occur again: a thousandth is left.
    const FORGOTTEN: u64 = 10;

    /// Without any part.
    pub fn new(limits: WindowLimits) -> Windows {
        let mut windows = Windows {
            tables: Profile::default(),
            stacks: StackInterner::default(),
            strings: Vec::new(),
            mappings: Vec::new(),
            functions: Vec::new(),
            labels: Vec::new(),
            function_index: FxHashMap::default(),
            main: None,
            unnamed: FxHashSet::default(),
            recent: VecDeque::new(),
            all: Decayed::default(),
            parts: 0,
            limits,
            folded: 0,
        };
        let name = windows.tables.strings.intern(BEYOND_NAME);
        let function = Function { name, system_name: name, ..Function::default() };
        let function = windows.function(function);
        windows.tables.locations.push(Location::default());
        windows.tables.set_lines(BEYOND, &[Line { function, line: 0, column: 0 }]);
        windows
    }

    /// Number of sums that were added to another because there were too many.
    pub fn folded(&self) -> u64 {
        self.folded
    }

    /// Number of different stacks.
    pub fn stacks(&self) -> usize {
        self.stacks.table.len()
    }

    /// Adds the next part of a recording, which lasted `nanos`.
    pub fn add(&mut self, part: Part, nanos: u64) {
        self.add_tables(&part);
        let stacks: Vec<StackId> = (0..part.stacks.len() as u32)
            .map(|id| {
                let frames = part.stacks.get(StackId(id)).iter();
                let frames: Vec<LocationId> = frames.map(|l| LocationId(l.0 + 1)).collect();
                self.stacks.intern(&frames)
            })
            .collect();
        let labels = &self.labels;
        let key = |&(stack, set): &(StackId, LabelSetId)| -> Key {
            (stacks[stack.0 as usize], labels[set.0 as usize])
        };
        let mut rows: Vec<Key> = part.rows.iter().map(key).collect();
        let mut values = part.values;
        let width = self.width();
        if rows.len() > self.limits.rows {
            self.folded += (rows.len() - self.limits.rows) as u64;
            let beyond = self.beyond();
            fold(&mut rows, &mut values, width, self.limits.rows, beyond);
        }
        self.parts += 1;
        self.decay(nanos);
        self.add_decayed(&rows, &values);
        self.recent.push_back(Sums { nanos, rows, values });
        let mut total: u64 = self.recent.iter().map(|sums| sums.nanos).sum();
        while self.recent.len() > 1 && total > Self::RECENT + Self::RECENT / 20 {
            total -= self.recent.pop_front().map_or(0, |oldest| oldest.nanos);
        }
        self.drop_stacks();
    }

    fn width(&self) -> usize {
        self.tables.sample_types.len()
    }

    fn beyond(&mut self) -> Key {
        (self.stacks.intern(&[BEYOND]), LabelSetId::EMPTY)
    }

    /// Adds the strings, mappings, functions, locations and labels of a part.
    fn add_tables(&mut self, part: &Part) {
        let Windows { tables, strings, .. } = self;
        strings.extend(part.strings.iter().map(|text| tables.strings.intern(text)));
        let string = |id: StrId| strings.get(id.0 as usize).copied().unwrap_or_default();
        let value_type = |t: ValueType| ValueType { kind: string(t.kind), unit: string(t.unit) };
        tables.sample_types = part.sample_types.iter().copied().map(value_type).collect();
        tables.default_sample_type = string(part.default_sample_type);
        tables.period_type = value_type(part.period_type);
        tables.period = part.period;
        for mapping in &part.mappings {
            self.mappings.push(MappingId(tables.mappings.len() as u32));
            let (file, build_id) = (string(mapping.file), string(mapping.build_id));
            tables.mappings.push(Mapping { file, build_id, ..mapping.clone() });
        }
        for set in &part.labels {
            let label = |label: &Label| Label {
                key: string(label.key),
                value: match label.value {
                    LabelValue::Str(text) => LabelValue::Str(string(text)),
                    LabelValue::Num { value, unit } => {
                        LabelValue::Num { value, unit: string(unit) }
                    }
                },
            };
            let set: Vec<Label> = set.iter().map(label).collect();
            self.labels.push(tables.labels.intern(&set));
        }
        let moved = |f: &Function| Function {
            name: string(f.name),
            system_name: string(f.system_name),
            filename: string(f.filename),
            start_line: f.start_line,
        };
        let functions: Vec<Function> = part.functions.iter().map(moved).collect();
        for function in functions {
            let function = self.function(function);
            self.functions.push(function);
        }
        for location in &part.locations {
            self.add_location(location);
        }
        if let Some(main) = part.main {
            self.main = self.mappings.get(main.0 as usize).copied();
        }
    }

    fn add_location(&mut self, new: &PartLocation) {
        let PartLocation { location, function } = new;
        let mapping = location.mapping.and_then(|m| self.mappings.get(m.0 as usize).copied());
        let id = LocationId(self.tables.locations.len() as u32);
        self.tables.locations.push(Location { mapping, ..location.clone() });
        match function.and_then(|f| self.functions.get(f.0 as usize).copied()) {
            Some(function) => {
                self.tables.set_lines(id, &[Line { function, line: 0, column: 0 }]);
            }
            None if mapping.is_some() => {
                self.unnamed.insert(id);
            }
            None => {}
        }
    }

    fn function(&mut self, function: Function) -> FunctionId {
        let functions = &mut self.tables.functions;
        *self.function_index.entry(function).or_insert_with(|| {
            functions.push(function);
            FunctionId(functions.len() as u32 - 1)
        })
    }

    /// Changes the file of one of the builder's mappings.
    pub fn set_file(&mut self, mapping: MappingId, file: &str) {
        if let Some(&id) = self.mappings.get(mapping.0 as usize) {
            self.tables.mappings[id.0 as usize].file = self.tables.strings.intern(file);
        }
    }

    /// Lets all sums age by `nanos`, and drops those that are forgotten.
    fn decay(&mut self, nanos: u64) {
        let factor = 0.5f64.powf(nanos as f64 / Self::HALF_LIFE as f64);
        let width = self.width();
        let all = &mut self.all;
        all.nanos = all.nanos * factor + nanos as f64;
        all.values.iter_mut().for_each(|value| *value *= factor);
        let kept_parts = Self::FORGOTTEN * Self::HALF_LIFE / nanos.max(1);
        let oldest = self.parts.saturating_sub(kept_parts.max(1));
        // In steps, so that the index is not made again each time.
        let old = all.added.iter().filter(|&&added| added < oldest).count();
        if old * 8 <= all.rows.len() || width == 0 {
            return;
        }
        let Decayed { rows, added, values, .. } = std::mem::take(all);
        let all = Decayed { nanos: self.all.nanos, ..Decayed::default() };
        let all = rows.into_iter().zip(added).zip(values.chunks(width)).fold(
            all,
            |mut all, ((key, added), values)| {
                if added >= oldest {
                    all.index.insert(key, all.rows.len());
                    all.rows.push(key);
                    all.added.push(added);
                    all.values.extend(values);
                }
                all
            },
        );
        self.all = all;
    }

    fn add_decayed(&mut self, rows: &[Key], values: &[i64]) {
        let width = self.width();
        if width == 0 {
            return;
        }
        let beyond = self.beyond();
        let Windows { all, limits, folded, parts, .. } = self;
        for (key, values) in rows.iter().zip(values.chunks(width)) {
            let key = if all.rows.len() < limits.rows || all.index.contains_key(key) {
                *key
            } else {
                *folded += 1;
                beyond
            };
            let row = *all.index.entry(key).or_insert_with(|| {
                all.rows.push(key);
                all.added.push(0);
                all.values.resize(all.values.len() + width, 0.0);
                all.rows.len() - 1
            });
            all.added[row] = *parts;
            let sums = &mut all.values[row * width..(row + 1) * width];
            sums.iter_mut().zip(values).for_each(|(sum, &value)| *sum += value as f64);
        }
    }

    /// Drops stacks that no sum refers to, once they are most of all.
    fn drop_stacks(&mut self) {
        let rows = self.recent.iter().map(|sums| sums.rows.len()).sum::<usize>();
        let used = rows + self.all.rows.len();
        if self.stacks.table.len() <= 2 * used + 1000 {
            return;
        }
        let old = std::mem::take(&mut self.stacks);
        let stacks = &mut self.stacks;
        let mut moved: FxHashMap<StackId, StackId> = FxHashMap::default();
        let mut place = |key: &mut Key| {
            let intern = || stacks.intern(old.table.get(key.0));
            key.0 = *moved.entry(key.0).or_insert_with(intern);
        };
        self.recent.iter_mut().flat_map(|sums| &mut sums.rows).for_each(&mut place);
        self.all.rows.iter_mut().for_each(&mut place);
        self.all.index = self.all.rows.iter().copied().zip(0..).collect();
    }

    /// The profile of a window, with the names that are known.
    pub fn profile(&mut self, window: LiveWindow) -> Profile {
        let width = self.width();
        let recent: &[Sums] = self.recent.make_contiguous();
        let parts = match window {
            LiveWindow::Last => &recent[recent.len().saturating_sub(1)..],
            LiveWindow::Recent => recent,
            LiveWindow::Decayed => &[],
        };
        let (nanos, rows, values) = match window {
            LiveWindow::Decayed => {
                let values = self.all.values.iter().map(|value| value.round() as i64).collect();
                (self.all.nanos as i64, self.all.rows.clone(), values)
            }
            _ => sum_of(parts, width),
        };
        let tables = &mut self.tables;
        let row = |(stack, labels): Key| SampleRow { stack, labels, times: TimesId::NONE };
        tables.samples = rows.into_iter().map(row).collect();
        tables.values = values;
        tables.duration_nanos = nanos;
        tables.stacks = std::mem::take(&mut self.stacks.table);
        let main = self.main.filter(|main| (main.0 as usize) < tables.mappings.len());
        if let Some(main) = main {
            swap_mappings(tables, MappingId(0), main);
        }
        let out = compact(tables);
        if let Some(main) = main {
            swap_mappings(tables, MappingId(0), main);
        }
        self.stacks.table = std::mem::take(&mut tables.stacks);
        tables.samples = Vec::new();
        tables.values = Vec::new();
        out
    }
}

/// The sums of several parts together, and their length.
fn sum_of(parts: &[Sums], width: usize) -> (i64, Vec<Key>, Vec<i64>) {
    let nanos = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.nanos));
    let nanos = i64::try_from(nanos).unwrap_or(i64::MAX);
    if let [only] = parts {
        return (nanos, only.rows.clone(), only.values.clone());
    }
    let mut index: FxHashMap<Key, usize> = FxHashMap::default();
    let mut rows = Vec::new();
    let mut values: Vec<i64> = Vec::new();
    for part in parts.iter().filter(|_| width > 0) {
        for (key, added) in part.rows.iter().zip(part.values.chunks(width)) {
            let row = *index.entry(*key).or_insert_with(|| {
                rows.push(*key);
                values.resize(values.len() + width, 0);
                rows.len() - 1
            });
            let sums = &mut values[row * width..(row + 1) * width];
            sums.iter_mut().zip(added).for_each(|(sum, &value)| *sum = sum.saturating_add(value));
        }
    }
    (nanos, rows, values)
}

/// Adds the rows beyond `most` to one row.
fn fold(rows: &mut Vec<Key>, values: &mut Vec<i64>, width: usize, most: usize, beyond: Key) {
    let mut rest = vec![0i64; width];
    for row in values[most * width..].chunks(width.max(1)) {
        rest.iter_mut().zip(row).for_each(|(sum, &value)| *sum = sum.saturating_add(value));
    }
    rows.truncate(most);
    values.truncate(most * width);
    rows.push(beyond);
    values.extend(rest);
}

#[cfg(test)]
mod tests;
