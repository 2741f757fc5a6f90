//! Aggregation while recording: samples in, a [`Profile`] out.
//!
//! Stacks are kept as a calling-context tree, so that a new stack costs only the frames that differ
//! from earlier stacks, and a repeated stack allocates nothing.

use hashbrown::HashTable;
use rustc_hash::FxHashMap;

use super::slices::Slices;
use super::source::SourceIndex;
use super::spill::{OpenSpill, Spill};
use super::tables::{Leaf, NO_NODE, PATHS, StackNode, StackRow, StackTables, hash2};
use super::time_log::TimeLog;
use super::{
    Detail, Function, FunctionId, LabelSetId, Limits, Line, Location, LocationId, Mapping,
    MappingId, Profile, SampleRow, StackId, StackTable, StrId, TimesId, Truncation, ValueType,
};

/// Index of a sample type: position of a value in a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Column(pub usize);

impl Column {
    /// The number of samples, in profiles with that sample type.
    pub const SAMPLES: Column = Column(0);
}

/// Frame name for the value of stacks beyond the limits.
const BEYOND: &str = "[beyond prof's memory limit]";

/// Collects weighted stacks into a [`Profile`].
///
/// `profile` can be used directly for strings, labels and the fields of the header.
pub struct Builder {
    /// The profile so far: its strings, labels, mappings and locations.
    pub profile: Profile,
    pub(super) tables: StackTables,
    pub(super) spill: Option<Spill>,
    pub(super) times: Option<TimeLog>,
    pub(super) slices: Option<Slices>,
    location_index: HashTable<u32>,
    synthetic_index: FxHashMap<StrId, LocationId>,
    pub(super) source: SourceIndex,
    truncations: Vec<(Truncation, LocationId)>,
    pub(super) limits: Limits,
    folded: u64,
}

fn location_hash(location: &Location) -> u64 {
    hash2(location.mapping.map_or(u32::MAX, |m| m.0), location.address)
}

impl Builder {
    /// A builder of profiles with these sample types, as (kind, unit).
    pub fn new(sample_types: &[(&str, &str)]) -> Builder {
        let mut profile = Profile::default();
        for (kind, unit) in sample_types {
            let value_type = ValueType {
                kind: profile.strings.intern(kind),
                unit: profile.strings.intern(unit),
            };
            profile.sample_types.push(value_type);
        }
        Builder {
            profile,
            tables: StackTables::default(),
            spill: None,
            times: None,
            slices: None,
            location_index: HashTable::new(),
            synthetic_index: FxHashMap::default(),
            source: SourceIndex::default(),
            truncations: Vec::new(),
            limits: Limits::default(),
            folded: 0,
        }
    }

    /// The same with other limits.
    pub fn with_limits(mut self, limits: Limits) -> Builder {
        self.limits = limits;
        self
    }

    /// The same, but data beyond the memory limits goes to a file, which is opened on first use.
    /// [`Builder::settle`] must then be called before the end.
    pub fn with_spill(mut self, open: OpenSpill) -> Builder {
        self.spill = Some(Spill::new(open));
        self
    }

    /// Adds a mapping, without a search for an equal one.
    pub fn add_mapping(&mut self, mapping: Mapping) -> MappingId {
        self.profile.mappings.push(mapping);
        MappingId(self.profile.mappings.len() as u32 - 1)
    }

    /// Id of the location at `address` of `mapping` (`None`: an unknown binary).
    pub fn location(&mut self, mapping: Option<MappingId>, address: u64) -> LocationId {
        let location = Location { mapping, address, ..Location::default() };
        let h = location_hash(&location);
        let locations = &self.profile.locations;
        let same = |&l: &u32| {
            let l = &locations[l as usize];
            (l.mapping, l.address) == (mapping, address)
        };
        if let Some(&id) = self.location_index.find(h, same) {
            return LocationId(id);
        }
        if locations.len() >= self.limits.locations {
            return self.beyond();
        }
        let locations = &mut self.profile.locations;
        let id = locations.len() as u32;
        locations.push(location);
        self.location_index.insert_unique(h, id, |&l| location_hash(&locations[l as usize]));
        LocationId(id)
    }

    /// Id of the location in place of those beyond the limit.
    pub(super) fn beyond(&mut self) -> LocationId {
        self.named_location(BEYOND)
    }

    /// Id of a location that has only a name, such as `[truncated: dump too small]`.
    pub fn named_location(&mut self, name: &str) -> LocationId {
        self.named_location_in(name, None)
    }

    /// Id of a location with a function's name but no address, in a binary; only the name
    /// distinguishes them.
    pub fn named_location_in(&mut self, name: &str, mapping: Option<MappingId>) -> LocationId {
        let name = self.profile.strings.intern(name);
        if let Some(&id) = self.synthetic_index.get(&name) {
            return id;
        }
        let profile = &mut self.profile;
        let function = FunctionId(profile.functions.len() as u32);
        profile.functions.push(Function { name, system_name: name, ..Function::default() });
        let id = LocationId(profile.locations.len() as u32);
        profile.locations.push(Location { mapping, ..Location::default() });
        profile.set_lines(id, &[Line { function, line: 0, column: 0 }]);
        self.synthetic_index.insert(name, id);
        id
    }

    /// Id of the location that ends truncated stacks; allocates nothing if it exists.
    pub fn truncation(&mut self, why: Truncation) -> LocationId {
        if let Some(&(_, id)) = self.truncations.iter().find(|(other, _)| *other == why) {
            return id;
        }
        let id = self.named_location(&why.frame_name());
        self.truncations.push((why, id));
        id
    }

    /// Level of detail that the labels of a new set may have, so that their number stays bounded.
    pub fn detail(&self) -> Detail {
        match self.profile.labels.len() {
            n if n < self.limits.thread_sets => Detail::Thread,
            n if n < self.limits.label_sets => Detail::Process,
            _ => Detail::Names,
        }
    }

    /// Adds values to a stack, leaf first: `samples` to [`Column::SAMPLES`], and to other columns.
    /// In a profile without that sample type, `samples` is 0.
    ///
    /// Beyond the limits a new stack is cut to its callers in the tree, or to its outermost frame;
    /// its value is kept, and [`Builder::folded`] counts it.
    pub fn add(
        &mut self,
        stack: &[LocationId],
        labels: LabelSetId,
        samples: u32,
        values: &[(Column, i64)],
    ) {
        let (row, _) = self.row_of_stack(stack.iter().rev().copied(), labels);
        self.count(row, samples, values);
    }

    /// Adds values to the stack with `callers`, outermost first, and the innermost frame
    /// `innermost`, given as for [`Builder::location`]; without it, the last of `callers` is the
    /// innermost frame.
    ///
    /// The same as [`Builder::add`], but faster: in a running program, mostly the innermost frame
    /// changes.
    pub fn add_stack(
        &mut self,
        callers: &[LocationId],
        innermost: Option<(Option<MappingId>, u64)>,
        labels: LabelSetId,
        samples: u32,
        values: &[(Column, i64)],
    ) {
        let rest = self.add_to_earlier_slices(callers, innermost, labels, values);
        let values = rest.as_deref().unwrap_or(values);
        let Some((mapping, address)) = innermost else {
            let (row, _) = self.row_of_stack(callers.iter().copied(), labels);
            return self.count(row, samples, values);
        };
        let (parent, whole) = self.node_of(callers.iter().copied(), labels);
        let key = mapping.map_or(NO_NODE, |m| m.0);
        let leaf = Leaf { address, mapping: key, parent, labels: labels.0 };
        let recent = self.tables.recent_row(leaf).filter(|_| whole);
        let row = recent.unwrap_or_else(|| {
            let innermost = self.location(mapping, address);
            let stack = callers.iter().copied().chain([innermost]);
            let (row, whole) = self.row_of_stack(stack, labels);
            if whole {
                self.tables.set_recent_row(leaf, row);
            }
            row
        });
        self.count(row, samples, values);
    }

    /// Index of the row of a stack, outermost frame first, and true if it is the whole stack's.
    pub(super) fn row_of_stack(
        &mut self,
        stack: impl Iterator<Item = LocationId> + Clone,
        labels: LabelSetId,
    ) -> (usize, bool) {
        let (node, whole) = self.node_of(stack.clone(), labels);
        let (row, fits) = self.row_of(StackRow { node, labels }, stack);
        self.folded += u64::from(!(whole && fits));
        (row, whole && fits)
    }

    fn count(&mut self, row: usize, samples: u32, values: &[(Column, i64)]) {
        debug_assert!(samples == 0 || self.has_samples(), "no column counts samples");
        let width = self.profile.sample_types.len();
        let cell = &mut self.tables.values[row * width..(row + 1) * width];
        cell[Column::SAMPLES.0] += i64::from(samples);
        values.iter().for_each(|&(column, weight)| cell[column.0] += weight);
        if let Some(times) = &mut self.times {
            times.add(row, samples, values);
        }
        let Limits { part_nodes, part_rows, spilled_rows, .. } = self.limits;
        if (self.tables.rows.len() >= part_rows || self.tables.nodes.len() >= part_nodes)
            && self.spill.as_ref().is_some_and(|s| s.is_open(spilled_rows))
        {
            self.spill_tables();
        }
    }

    fn has_samples(&self) -> bool {
        let first = self.profile.sample_types.get(Column::SAMPLES.0);
        first.is_some_and(|first| self.profile.str(first.kind) == "samples")
    }

    /// Index of a row, and true if it is that row, not another for lack of space.
    fn row_of(
        &mut self,
        row: StackRow,
        stack: impl Iterator<Item = LocationId> + Clone,
    ) -> (usize, bool) {
        let width = self.profile.sample_types.len();
        if let Some(i) = self.tables.find_row(row) {
            return (i, true);
        }
        if self.tables.rows.len() < self.limits.rows {
            return (self.tables.push_row(row, width), true);
        }
        // An eighth is reserved for this: the roots of each thread's stacks.
        let root = self.node_of(stack.take(1), row.labels).0;
        let row = StackRow { node: root, ..row };
        if let Some(i) = self.tables.find_row(row) {
            return (i, false);
        }
        if self.tables.rows.len() < self.limits.rows + self.limits.rows / 8 {
            return (self.tables.push_row(row, width), false);
        }
        let beyond = self.named_location(BEYOND);
        let parent = NO_NODE;
        let node = self.tables.find_node(StackNode { parent, location: beyond });
        let node =
            node.unwrap_or_else(|| self.tables.push_node(StackNode { parent, location: beyond }));
        let row = StackRow { node, labels: LabelSetId::EMPTY };
        (self.tables.find_row(row).unwrap_or_else(|| self.tables.push_row(row, width)), false)
    }

    /// Node of a stack, outermost frame first, or of the part of it that fits; and true if it is
    /// the whole stack's.
    fn node_of(
        &mut self,
        stack: impl Iterator<Item = LocationId> + Clone,
        labels: LabelSetId,
    ) -> (u32, bool) {
        let slot = labels.0 as usize % PATHS;
        let mut path = std::mem::take(&mut self.tables.paths[slot]);
        let common = stack.clone().zip(&path).take_while(|(a, b)| *a == b.0).count();
        path.truncate(common);
        let mut parent = path.last().map_or(NO_NODE, |p| p.1);
        let mut whole = true;
        for location in stack.skip(common) {
            let node = StackNode { parent, location };
            parent = match self.tables.find_node(node) {
                Some(n) => n,
                None if self.tables.nodes.len() < self.limits.nodes => self.tables.push_node(node),
                None => {
                    whole = false;
                    break;
                }
            };
            path.push((location, parent));
        }
        self.tables.paths[slot] = path;
        (parent, whole)
    }

    /// Number of distinct stacks (with their labels) so far.
    pub fn distinct(&self) -> usize {
        self.tables.rows.len()
    }

    /// Number of samples whose stack was cut because there were too many distinct ones.
    pub fn folded(&self) -> u64 {
        self.folded
    }

    /// The profile. `main` becomes its first mapping: pprof expects the main binary there.
    pub fn finish(self, main: Option<MappingId>) -> Profile {
        let Builder { mut profile, tables, times, .. } = self;
        let StackTables { nodes, rows, values, .. } = tables;
        let mut stack_of_node: FxHashMap<u32, StackId> = FxHashMap::default();
        let mut stacks = StackTable::default();
        let mut stack_of = |row: &StackRow| {
            let push = || stacks.push_iter(frames(&nodes, row.node));
            *stack_of_node.entry(row.node).or_insert_with(push)
        };
        let stacks_of_rows: Vec<StackId> = rows.iter().map(&mut stack_of).collect();
        profile.stacks = stacks;
        match times {
            Some(times) => times.distribute(&mut profile, &rows, values, &stacks_of_rows),
            None => {
                let samples = rows.iter().zip(stacks_of_rows).map(|(row, stack)| SampleRow {
                    stack,
                    labels: row.labels,
                    times: TimesId::NONE,
                });
                profile.samples.extend(samples);
                profile.values = values;
            }
        }
        if let Some(main) = main {
            swap_mappings(&mut profile, MappingId(0), main);
        }
        profile
    }
}

/// The frames of a stack, leaf first.
pub(super) fn frames(nodes: &[StackNode], leaf: u32) -> impl Iterator<Item = LocationId> + '_ {
    let mut at = leaf;
    std::iter::from_fn(move || {
        let node = nodes.get(at as usize)?;
        at = node.parent;
        Some(node.location)
    })
}

/// Exchanges two mappings.
pub(super) fn swap_mappings(profile: &mut Profile, a: MappingId, b: MappingId) {
    profile.mappings.swap(a.0 as usize, b.0 as usize);
    for location in &mut profile.locations {
        location.mapping = match location.mapping {
            Some(m) if m == a => Some(b),
            Some(m) if m == b => Some(a),
            other => other,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder() -> Builder {
        Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")])
    }

    #[test]
    fn equal_stacks_add_up() {
        let mut b = builder();
        let main = b.location(None, 0x10);
        let leaf = b.location(None, 0x20);
        for _ in 0..3 {
            b.add(&[leaf, main], LabelSetId::EMPTY, 1, &[(Column(1), 10)]);
        }
        b.add(&[main], LabelSetId::EMPTY, 1, &[(Column(1), 10)]);
        let p = b.finish(None);
        assert_eq!(p.samples.len(), 2);
        assert_eq!(p.stacks.get(p.samples[0].stack), [leaf, main]);
        assert_eq!(p.values_of(0), [3, 30]);
        assert_eq!(p.values_of(1), [1, 10]);
        assert_eq!(p.total(1), 40);
    }

    #[test]
    fn a_stack_is_the_same_whole_or_as_callers_and_leaf() {
        let limits =
            [Limits::default(), Limits { nodes: 20, locations: 12, rows: 8, ..Limits::default() }];
        for limits in limits {
            let [mut whole, mut split] = [(); 2].map(|()| builder().with_limits(limits));
            let mut seed = 1u64;
            for _ in 0..2000 {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let addresses: Vec<u64> =
                    (0..1 + (seed >> 62)).map(|i| 10 * i + ((seed >> (40 + 2 * i)) & 3)).collect();
                let labels = LabelSetId((seed >> 38) as u32 & 1);
                let weight = (seed >> 20) as i64 & 0xff;
                let stack: Vec<_> = addresses.iter().map(|&a| whole.location(None, a)).collect();
                let leaf_first: Vec<_> = stack.iter().rev().copied().collect();
                whole.add(&leaf_first, labels, 1, &[(Column(1), weight)]);
                let (&leaf, callers) = addresses.split_last().unwrap();
                let callers: Vec<_> = callers.iter().map(|&a| split.location(None, a)).collect();
                split.add_stack(&callers, Some((None, leaf)), labels, 1, &[(Column(1), weight)]);
            }
            assert_eq!(split.folded(), whole.folded());
            let split = split.finish(None);
            let whole = whole.finish(None);
            assert!(whole.samples.len() > 4);
            assert_eq!(split.values, whole.values);
            for (a, b) in split.samples.iter().zip(&whole.samples) {
                assert_eq!(
                    (split.stacks.get(a.stack), a.labels),
                    (whole.stacks.get(b.stack), b.labels)
                );
            }
        }
    }

    #[test]
    fn a_full_tree_keeps_values() {
        let mut b = builder().with_limits(Limits { nodes: 2, ..Limits::default() });
        let ids: Vec<_> = (0..5).map(|i| b.location(None, i)).collect();
        b.add(&[ids[1], ids[0]], LabelSetId::EMPTY, 1, &[(Column(1), 1)]);
        b.add(&[ids[2], ids[0]], LabelSetId::EMPTY, 1, &[(Column(1), 1)]);
        b.add(&[ids[3]], LabelSetId::EMPTY, 1, &[(Column(1), 1)]);
        assert_eq!(b.folded(), 2);
        let p = b.finish(None);
        assert_eq!(p.total(0), 3);
        assert_eq!(p.stacks.get(p.samples[1].stack), [ids[0]]);
        assert_eq!(p.stacks.get(p.samples[2].stack), []);
    }

    #[test]
    fn values_are_scaled_to_a_total() {
        let mut b = builder();
        for (i, weight) in [1, 700, 2, 0, 5].into_iter().enumerate() {
            let at = b.location(None, i as u64);
            b.add(&[at], LabelSetId::EMPTY, 1, &[(Column(1), weight)]);
        }
        b.scale_to(Column(1), 70);
        let p = b.finish(None);
        assert_eq!((p.total(0), p.total(1)), (5, 70));
        assert_eq!(p.values_of(1), [1, 69]);
        assert!(p.values.iter().all(|&v| v >= 0));
    }

    #[test]
    fn main_binary_comes_first() {
        let mut b = builder();
        let libc = b.add_mapping(Mapping { start: 1, ..Mapping::default() });
        let exe = b.add_mapping(Mapping { start: 2, ..Mapping::default() });
        let in_libc = b.location(Some(libc), 1);
        let in_exe = b.location(Some(exe), 2);
        let p = b.finish(Some(exe));
        assert_eq!(p.mappings[0].start, 2);
        let start_of =
            |l: LocationId| p.mappings[p.locations[l.0 as usize].mapping.unwrap().0 as usize].start;
        assert_eq!((start_of(in_exe), start_of(in_libc)), (2, 1));
    }

    #[test]
    fn named_locations_are_interned() {
        let mut b = builder();
        let a = b.named_location("[truncated]");
        assert_eq!(b.named_location("[truncated]"), a);
        let p = &b.profile;
        assert_eq!(p.str(p.functions[p.lines_of(a)[0].function.0 as usize].name), "[truncated]");
    }

    /// Distinct stacks of distinct threads.
    #[test]
    fn beyond_the_limits_values_and_bounds_are_kept() {
        let limits = Limits {
            nodes: 1000,
            rows: 400,
            locations: 500,
            label_sets: 100,
            thread_sets: 50,
            ..Limits::default()
        };
        let mut b = builder().with_limits(limits);
        const SAMPLES: u64 = 20_000;
        for n in 0..SAMPLES {
            let stack: Vec<LocationId> =
                (0..4).map(|i| b.location(None, (n >> (4 * i)) + 7 * i)).collect();
            let value = crate::LabelValue::Num { value: n as i64, unit: StrId::EMPTY };
            let labels = match b.detail() {
                Detail::Names => LabelSetId::EMPTY,
                _ => {
                    let key = b.profile.strings.intern("tid");
                    b.profile.labels.intern(&[crate::Label { key, value }])
                }
            };
            b.add(&stack, labels, 1, &[(Column(1), 3)]);
        }
        assert!(b.folded() > 0 && b.folded() < SAMPLES);
        assert!(
            b.tables.nodes.len() <= 1001
                && b.tables.rows.len() <= 451
                && b.profile.locations.len() <= 501
        );
        assert!(b.profile.labels.len() <= 100);
        let p = b.finish(None);
        assert_eq!((p.total(0), p.total(1)), (SAMPLES as i64, 3 * SAMPLES as i64));
    }
}
