//! Merges profiles, as `pprof` does.

use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{Hash, Hasher};

use hashbrown::HashTable;
use rustc_hash::{FxHashMap, FxHasher};

use super::{
    Function, FunctionId, Label, LabelSetId, LabelValue, Line, Location, LocationId, Mapping,
    MappingId, Profile, SampleRow, StackId, StrId, TimesId, ValueType, align_units,
};

/// Error of merging profiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeError {
    /// There is no profile.
    Nothing,
    /// A profile has no sample type in common with all previous ones.
    NoCommonType {
        /// Its index in the list to merge.
        index: usize,
        /// Its sample types, as `kind/unit, …`.
        types: String,
        /// The sample types common to those before it.
        common: String,
    },
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MergeError::Nothing => write!(f, "there is no profile to merge"),
            MergeError::NoCommonType { index, types, common } => write!(
                f,
                "profile number {} measures {types}, those before it {common}: \
                 only profiles of the same kind can be merged",
                index + 1
            ),
        }
    }
}

impl std::error::Error for MergeError {}

/// Merges profiles. A single one is returned unchanged.
///
/// The result has the sample types that all profiles have, in the first one's order, each in the
/// smallest unit that one of them has ([`align_units`]). Mappings are
/// equal if they agree in build ID (else in file), offset and size; their addresses become those of
/// the first. Values of equal stacks with equal labels are added (saturating); samples without
/// remaining values are dropped. The result begins with the earliest profile and lasts as long as
/// all together; its period is the largest, and unknown if periods are of several kinds; times of
/// samples are shifted to its start; the figures in prof's own comments are added up, other
/// comments united.
///
/// # Errors
///
/// If there is no profile, or no sample type that all have.
pub fn merge(profiles: Vec<Profile>) -> Result<Profile, MergeError> {
    let mut profiles = profiles;
    if profiles.len() <= 1 {
        return profiles.pop().ok_or(MergeError::Nothing);
    }
    align_units(&mut profiles);
    let types = common_types(&profiles)?;
    let mut merger = Merger::new(&profiles[0], &types);
    merger.start = profiles.iter().map(|p| p.time_nanos).filter(|&start| start > 0).min();
    merger.period_type(&profiles);
    for profile in profiles {
        // By value, so that each is freed after it was added.
        merger.add(&profile, &types);
    }
    Ok(merger.out)
}

type TypeName = (String, String);

fn type_names(p: &Profile) -> Vec<TypeName> {
    p.sample_types.iter().map(|t| (p.str(t.kind).into(), p.str(t.unit).into())).collect()
}

fn listed(types: &[TypeName]) -> String {
    let all: Vec<_> = types.iter().map(|(kind, unit)| format!("{kind}/{unit}")).collect();
    if all.is_empty() { "nothing".into() } else { all.join(", ") }
}

fn common_types(profiles: &[Profile]) -> Result<Vec<TypeName>, MergeError> {
    let mut common = type_names(&profiles[0]);
    for (index, p) in profiles.iter().enumerate() {
        let types = type_names(p);
        let kept: Vec<_> = common.iter().filter(|t| types.contains(t)).cloned().collect();
        if kept.is_empty() {
            let types = listed(&types);
            let common = listed(&common);
            return Err(MergeError::NoCommonType { index, types, common });
        }
        common = kept;
    }
    Ok(common)
}

/// Identity of a mapping for merging.
#[derive(PartialEq, Eq, Hash)]
struct MappingKey {
    /// Rounded up to pages, since not all writers round.
    size: u64,
    file_offset: u64,
    /// Build ID, else file.
    identity: StrId,
    by_build_id: bool,
}

#[derive(Hash)]
struct LocationKey<'a> {
    mapping: Option<MappingId>,
    address: u64,
    is_folded: bool,
    lines: &'a [Line],
}

struct Merger {
    out: Profile,
    /// Start of the earliest profile, if known.
    start: Option<i64>,
    /// All periods are of one kind.
    has_period: bool,
    mappings: FxHashMap<MappingKey, MappingId>,
    functions: FxHashMap<Function, FunctionId>,
    locations: HashTable<u32>,
    stacks: HashTable<u32>,
    samples: FxHashMap<(StackId, LabelSetId), usize>,
}

/// A mapping's id in the result, and the offset of its addresses.
type Placed = (MappingId, u64);

impl Merger {
    fn new(first: &Profile, types: &[TypeName]) -> Merger {
        let mut out = Profile::default();
        for (kind, unit) in types {
            let kind = out.strings.intern(kind);
            let unit = out.strings.intern(unit);
            out.sample_types.push(ValueType { kind, unit });
        }
        let mut string = |id| out.strings.intern(first.str(id));
        out.drop_frames = string(first.drop_frames);
        out.keep_frames = string(first.keep_frames);
        let default = string(first.default_sample_type);
        if out.sample_types.iter().any(|t| t.kind == default) {
            out.default_sample_type = default;
        }
        Merger {
            out,
            start: None,
            has_period: true,
            mappings: FxHashMap::default(),
            functions: FxHashMap::default(),
            locations: HashTable::new(),
            stacks: HashTable::new(),
            samples: FxHashMap::default(),
        }
    }

    fn add(&mut self, p: &Profile, types: &[TypeName]) {
        self.header(p);
        let strings: Vec<StrId> = p.strings.iter().map(|s| self.out.strings.intern(s)).collect();
        let placed: Vec<Placed> = p.mappings.iter().map(|m| self.mapping(m, &strings)).collect();
        let functions: Vec<FunctionId> =
            p.functions.iter().map(|f| self.function(f, &strings)).collect();
        let mut lines = Vec::new();
        let locations: Vec<LocationId> =
            (0..p.locations.len() as u32)
                .map(|i| {
                    lines.clear();
                    lines.extend(p.lines_of(LocationId(i)).iter().map(|line| Line {
                        function: functions[line.function.0 as usize],
                        ..*line
                    }));
                    self.location(&p.locations[i as usize], &placed, &lines)
                })
                .collect();
        let mut frames = Vec::new();
        let stacks: Vec<StackId> = (0..p.stacks.len() as u32)
            .map(|i| {
                frames.clear();
                let stack = p.stacks.get(StackId(i));
                frames.extend(stack.iter().map(|l| locations[l.0 as usize]));
                self.stack(&frames)
            })
            .collect();
        let labels = self.labels(p, &strings);
        self.samples(p, types, &stacks, &labels);
    }

    /// The kind of all periods, if it is one.
    fn period_type(&mut self, profiles: &[Profile]) {
        let period_of =
            |p: &Profile| [p.period_type.kind, p.period_type.unit].map(|id| p.str(id).to_owned());
        let mut all =
            profiles.iter().filter(|p| p.period_type != ValueType::default()).map(period_of);
        let Some(first) = all.next() else { return };
        self.has_period = all.all(|other| other == first);
        if self.has_period {
            let [kind, unit] = first.map(|text| self.out.strings.intern(&text));
            self.out.period_type = ValueType { kind, unit };
        }
    }

    fn header(&mut self, p: &Profile) {
        let out = &mut self.out;
        if self.has_period {
            let least = |p: &Profile| if p.least_period > 0 { p.least_period } else { p.period };
            if out.period > 0 && p.period > 0 && (least(out), out.period) != (least(p), p.period) {
                out.least_period = least(out).min(least(p));
            }
            out.period = out.period.max(p.period);
        }
        out.duration_nanos = out.duration_nanos.saturating_add(p.duration_nanos);
        out.time_nanos = match (out.time_nanos, p.time_nanos) {
            (0, t) | (t, 0) => t,
            (a, b) => a.min(b),
        };
        if out.doc_url == StrId::EMPTY {
            out.doc_url = out.strings.intern(p.str(p.doc_url));
        }
        super::comments::add(out, p);
    }

    fn mapping(&mut self, m: &Mapping, strings: &[StrId]) -> Placed {
        let file = strings[m.file.0 as usize];
        let build_id = strings[m.build_id.0 as usize];
        let by_build_id = build_id != StrId::EMPTY;
        let key = MappingKey {
            size: m.limit.wrapping_sub(m.start).wrapping_add(0xfff) & !0xfff,
            file_offset: m.file_offset,
            identity: if by_build_id { build_id } else { file },
            by_build_id,
        };
        let mappings = &mut self.out.mappings;
        match self.mappings.entry(key) {
            Entry::Occupied(entry) => {
                let id = *entry.get();
                let merged = &mut mappings[id.0 as usize];
                // A flag stays set only if it is set in both.
                merged.has_functions &= m.has_functions;
                merged.has_filenames &= m.has_filenames;
                merged.has_line_numbers &= m.has_line_numbers;
                merged.has_inline_frames &= m.has_inline_frames;
                (id, merged.start.wrapping_sub(m.start))
            }
            Entry::Vacant(new) => {
                let id = MappingId(mappings.len() as u32);
                mappings.push(Mapping { file, build_id, ..m.clone() });
                (*new.insert(id), 0)
            }
        }
    }

    fn function(&mut self, f: &Function, strings: &[StrId]) -> FunctionId {
        let f = Function {
            name: strings[f.name.0 as usize],
            system_name: strings[f.system_name.0 as usize],
            filename: strings[f.filename.0 as usize],
            start_line: f.start_line,
        };
        let functions = &mut self.out.functions;
        *self.functions.entry(f).or_insert_with(|| {
            functions.push(f);
            FunctionId(functions.len() as u32 - 1)
        })
    }

    fn location(&mut self, l: &Location, placed: &[Placed], lines: &[Line]) -> LocationId {
        let (mapping, shift) = match l.mapping.map(|m| placed[m.0 as usize]) {
            Some((mapping, shift)) => (Some(mapping), shift),
            None => (None, 0),
        };
        // Address 0 represents no address.
        let address = if l.address == 0 { 0 } else { l.address.wrapping_add(shift) };
        let is_folded = l.is_folded;
        let Merger { out, locations, .. } = self;
        let h = hash(&LocationKey { mapping, address, is_folded, lines });
        let same = |&id: &u32| {
            let existing = &out.locations[id as usize];
            (existing.mapping, existing.address, existing.is_folded)
                == (mapping, address, is_folded)
                && out.lines_of(LocationId(id)) == lines
        };
        if let Some(&id) = locations.find(h, same) {
            return LocationId(id);
        }
        let id = LocationId(out.locations.len() as u32);
        out.locations.push(Location { mapping, address, is_folded, ..Location::default() });
        out.set_lines(id, lines);
        locations.insert_unique(h, id.0, |&id| {
            let existing = &out.locations[id as usize];
            let Location { mapping, address, is_folded, .. } = *existing;
            hash(&LocationKey { mapping, address, is_folded, lines: out.lines_of(LocationId(id)) })
        });
        id
    }

    fn stack(&mut self, frames: &[LocationId]) -> StackId {
        let Merger { out, stacks, .. } = self;
        let h = hash(frames);
        if let Some(&id) = stacks.find(h, |&id| out.stacks.get(StackId(id)) == frames) {
            return StackId(id);
        }
        let id = out.stacks.push(frames);
        stacks.insert_unique(h, id.0, |&id| hash(out.stacks.get(StackId(id))));
        id
    }

    fn labels(&mut self, p: &Profile, strings: &[StrId]) -> Vec<LabelSetId> {
        let string = |id: StrId| strings[id.0 as usize];
        let mut scratch = Vec::new();
        (0..p.labels.len() as u32)
            .map(|set| {
                scratch.clear();
                scratch.extend(p.labels.get(LabelSetId(set)).iter().map(|label| Label {
                    key: string(label.key),
                    value: match label.value {
                        LabelValue::Str(s) => LabelValue::Str(string(s)),
                        LabelValue::Num { value, unit } => {
                            LabelValue::Num { value, unit: string(unit) }
                        }
                    },
                }));
                // In one order, so that writers with different orders agree.
                scratch.sort_unstable();
                self.out.labels.intern(&scratch)
            })
            .collect()
    }

    fn samples(
        &mut self,
        p: &Profile,
        types: &[TypeName],
        stacks: &[StackId],
        labels: &[LabelSetId],
    ) {
        let have = type_names(p);
        // `types` are common to all, so each is found.
        let columns: Vec<usize> =
            types.iter().filter_map(|t| have.iter().position(|h| h == t)).collect();
        let width = columns.len();
        // Microseconds from the start of the result to that of this profile.
        let later = self.start.filter(|_| p.time_nanos > 0);
        let later =
            later.map_or(0, |start| p.time_nanos.saturating_sub(start).max(0) as u64 / 1000);
        let Merger { out, samples, .. } = self;
        for (i, sample) in p.samples.iter().enumerate() {
            let values = p.values_of(i);
            if columns.iter().all(|&c| values[c] == 0) {
                continue;
            }
            let stack = stacks[sample.stack.0 as usize];
            let labels = labels[sample.labels.0 as usize];
            if sample.times != TimesId::NONE {
                // Apart, because its samples may have other values than those of another row.
                let times = p.times.get(sample.times).iter().map(|t| t.saturating_add(later));
                let times = out.times.push(times);
                out.samples.push(SampleRow { stack, labels, times });
                out.values.extend(columns.iter().map(|&c| values[c]));
                continue;
            }
            let row = *samples.entry((stack, labels)).or_insert_with(|| {
                out.samples.push(SampleRow { stack, labels, times: TimesId::NONE });
                out.values.resize(out.values.len() + width, 0);
                out.samples.len() - 1
            });
            let sums = &mut out.values[row * width..(row + 1) * width];
            for (sum, &column) in sums.iter_mut().zip(&columns) {
                *sum = sum.saturating_add(values[column]);
            }
        }
    }
}

fn hash<T: Hash + ?Sized>(value: &T) -> u64 {
    let mut h = FxHasher::default();
    value.hash(&mut h);
    h.finish()
}

#[cfg(test)]
mod tests {
    use super::super::{Builder, Column};
    use super::*;

    /// A profile of one binary loaded at `base`, with a sample of `weight` in `names`, leaf
    /// first.
    fn profile(base: u64, names: &[&str], weight: i64) -> Profile {
        let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
        for word in ["padding", "of", "strings"].iter().take(weight as usize % 4) {
            b.profile.strings.intern(word);
        }
        let file = b.profile.strings.intern("/bin/x");
        let build_id = b.profile.strings.intern("ab");
        let m = b.add_mapping(Mapping {
            start: base,
            limit: base + 0x1800,
            file,
            build_id,
            has_functions: true,
            ..Mapping::default()
        });
        let mut stack = Vec::new();
        for name in names {
            let l = b.location(Some(m), base + name.len() as u64);
            let name = b.profile.strings.intern(name);
            b.profile.functions.push(Function { name, ..Function::default() });
            let function = FunctionId(b.profile.functions.len() as u32 - 1);
            b.profile.set_lines(l, &[Line { function, line: 3, column: 0 }]);
            stack.push(l);
        }
        let key = b.profile.strings.intern("thread");
        let labels = b.profile.labels.intern(&[Label { key, value: LabelValue::Str(key) }]);
        b.add(&stack, labels, 1, &[(Column(1), weight)]);
        b.profile.duration_nanos = weight;
        b.profile.time_nanos = 1000 - weight;
        let comment = b.profile.strings.intern("note: same");
        b.profile.comments.push(comment);
        b.finish(None)
    }

    #[test]
    fn equal_stacks_at_other_addresses_add_up() {
        let a = profile(0x1000, &["leaf2", "main"], 10);
        let b = profile(0x7000, &["leaf2", "main"], 5);
        let c = profile(0x9000, &["x", "main"], 1);
        let p = merge(vec![a, b, c]).unwrap();
        assert_eq!((p.samples.len(), p.mappings.len()), (2, 1));
        assert_eq!(p.values, [2, 15, 1, 1]);
        assert_eq!((p.locations.len(), p.functions.len(), p.comments.len()), (3, 3, 1));
        assert_eq!(p.locations[0].address, 0x1005);
        assert_eq!((p.time_nanos, p.duration_nanos), (990, 16));
        let main = p.stacks.get(p.samples[1].stack)[1];
        assert_eq!(p.str(p.functions[p.lines_of(main)[0].function.0 as usize].name), "main");
        assert_eq!(p.labels.get(p.samples[0].labels).len(), 1);
        assert_eq!(p.samples[0].labels, p.samples[1].labels);
    }

    #[test]
    fn different_periods_are_recorded() {
        let of = |period| Profile { period, ..profile(0x1000, &["leaf"], 1) };
        let merged = |periods: &[i64]| {
            let p = merge(periods.iter().map(|&p| of(p)).collect()).unwrap();
            (p.least_period, p.period)
        };
        assert_eq!(merged(&[7, 7, 7]), (0, 7));
        assert_eq!(merged(&[7, 7, 9]), (7, 9));
        assert_eq!(merged(&[9, 7, 9, 0]), (7, 9));
        assert_eq!(merged(&[9, 8, 7]), (7, 9));
    }

    #[test]
    fn periods_of_several_kinds_are_none() {
        let of = |kind: &str, unit: &str, period| {
            let mut p = profile(0x1000, &["leaf"], 1);
            let (kind, unit) = (p.strings.intern(kind), p.strings.intern(unit));
            Profile { period, period_type: ValueType { kind, unit }, ..p }
        };
        let p = merge(vec![of("cpu", "us", 10), of("cpu", "ns", 20_000), of("", "", 0)]).unwrap();
        assert_eq!((p.least_period, p.period, p.str(p.period_type.unit)), (10_000, 20_000, "ns"));
        let p = merge(vec![of("cpu", "ns", 10), of("space", "bytes", 512)]).unwrap();
        assert_eq!((p.period, p.str(p.period_type.unit)), (0, ""));
    }

    #[test]
    fn values_in_other_units_add_up() {
        let mut of = ["milliseconds", "nanoseconds"].map(|unit| {
            let mut b = Builder::new(&[("cpu", unit)]);
            let main = b.named_location("main");
            b.add(&[main], LabelSetId::EMPTY, 0, &[(Column(0), 3)]);
            b.finish(None)
        });
        let p = merge(of.to_vec()).unwrap();
        assert_eq!(
            (p.values.as_slice(), p.str(p.sample_types[0].unit)),
            (&[3_000_003][..], "nanoseconds")
        );
        of.reverse();
        assert_eq!(merge(of.to_vec()).unwrap().values, [3_000_003]);
    }

    #[test]
    fn other_binaries_stay_apart() {
        let a = profile(0x1000, &["leaf"], 10);
        let mut b = profile(0x1000, &["leaf"], 5);
        b.mappings[0].build_id = b.strings.intern("cd");
        b.mappings[0].has_functions = false;
        let p = merge(vec![a, b]).unwrap();
        assert_eq!((p.samples.len(), p.mappings.len()), (2, 2));
        assert!(p.mappings[0].has_functions && !p.mappings[1].has_functions);
    }

    #[test]
    fn only_common_types_are_kept() {
        let a = profile(0x1000, &["leaf"], 10);
        let mut b = Builder::new(&[("cpu", "nanoseconds"), ("wall", "nanoseconds")]);
        b.add(&[], LabelSetId::EMPTY, 0, &[(Column(0), 7)]);
        b.add(&[], LabelSetId::EMPTY, 0, &[(Column(0), 1), (Column(1), 9)]);
        let b = b.finish(None);
        let p = merge(vec![a, b]).unwrap();
        assert_eq!(p.sample_types.len(), 1);
        assert_eq!(p.str(p.sample_types[0].kind), "cpu");
        assert_eq!(p.values, [10, 8]);
    }

    #[test]
    fn profiles_without_a_common_type_are_refused() {
        assert_eq!(merge(vec![]).unwrap_err(), MergeError::Nothing);
        let heap = Builder::new(&[("inuse_space", "bytes")]).finish(None);
        let e = merge(vec![profile(0, &["x"], 1), heap.clone()]).unwrap_err().to_string();
        assert!(e.contains("profile number 2 measures inuse_space/bytes"), "{e}");
        assert!(e.contains("samples/count, cpu/nanoseconds"), "{e}");
        assert_eq!(merge(vec![heap]).unwrap().str(StrId(1)), "inuse_space");
    }
}
