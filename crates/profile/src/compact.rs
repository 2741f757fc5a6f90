//! Removes what no sample refers to.

use rustc_hash::FxHashMap;

use super::{
    Function, FunctionId, Label, LabelSetId, LabelValue, Line, Location, LocationId, Mapping,
    MappingId, Profile, SampleRow, StackId, StrId, TimesId, ValueType,
};

/// The same profile without stacks, locations, functions, labels and strings that no sample refers
/// to. The first mapping, which is the main binary, and mappings with samples remain.
pub fn compact(from: &Profile) -> Profile {
    let mut compactor = Compactor::new(from, from.stacks.len());
    for row in &from.samples {
        let stack = compactor.stack(row.stack);
        let labels = compactor.labels(row.labels);
        let times = compactor.times(row.times);
        compactor.out.samples.push(SampleRow { stack, labels, times });
    }
    compactor.out.values.clone_from(&from.values);
    compactor.out
}

/// The same of a profile that is not used any more: its stacks, which are most of it, stay where
/// they are in memory.
pub fn into_compact(mut from: Profile) -> Profile {
    let mut stacks = std::mem::take(&mut from.stacks);
    let mut samples = std::mem::take(&mut from.samples);
    let values = std::mem::take(&mut from.values);
    let mut compactor = Compactor::new(&from, 0);
    let mut is_used = vec![false; stacks.len()];
    for row in &mut samples {
        if !std::mem::replace(&mut is_used[row.stack.0 as usize], true) {
            for &location in stacks.get(row.stack) {
                compactor.location(location);
            }
        }
        row.labels = compactor.labels(row.labels);
        row.times = compactor.times(row.times);
    }
    let ids = stacks.retain(&is_used, |location| compactor.location(location));
    samples.iter_mut().for_each(|row| row.stack = ids[row.stack.0 as usize]);
    Profile { stacks, samples, values, ..compactor.out }
}

/// The new profile, and the new ids of what it has already.
struct Compactor<'p> {
    from: &'p Profile,
    out: Profile,
    strings: Vec<Option<StrId>>,
    mappings: Vec<Option<MappingId>>,
    functions: Vec<Option<FunctionId>>,
    locations: Vec<Option<LocationId>>,
    stacks: Vec<Option<StackId>>,
    labels: FxHashMap<LabelSetId, LabelSetId>,
}

impl<'p> Compactor<'p> {
    /// The new profile without samples; `stacks`: the number of those that it looks up.
    fn new(from: &'p Profile, stacks: usize) -> Compactor<'p> {
        let mut compactor = Compactor {
            from,
            out: Profile::default(),
            strings: vec![None; from.strings.len()],
            mappings: vec![None; from.mappings.len()],
            functions: vec![None; from.functions.len()],
            locations: vec![None; from.locations.len()],
            stacks: vec![None; stacks],
            labels: FxHashMap::default(),
        };
        compactor.header();
        if !from.mappings.is_empty() {
            compactor.mapping(MappingId(0));
        }
        compactor
    }

    fn header(&mut self) {
        let from = self.from;
        let types = from.sample_types.iter().map(|&t| self.value_type(t)).collect();
        let comments = from.comments.iter().map(|&c| self.string(c)).collect();
        self.out = Profile {
            sample_types: types,
            comments,
            default_sample_type: self.string(from.default_sample_type),
            period_type: self.value_type(from.period_type),
            drop_frames: self.string(from.drop_frames),
            keep_frames: self.string(from.keep_frames),
            doc_url: self.string(from.doc_url),
            period: from.period,
            least_period: from.least_period,
            time_nanos: from.time_nanos,
            duration_nanos: from.duration_nanos,
            unfiltered: from.unfiltered.clone(),
            strings: std::mem::take(&mut self.out.strings),
            ..Profile::default()
        };
    }

    fn value_type(&mut self, value_type: ValueType) -> ValueType {
        ValueType { kind: self.string(value_type.kind), unit: self.string(value_type.unit) }
    }

    fn string(&mut self, id: StrId) -> StrId {
        let text = self.from.strings.get(id);
        let strings = &mut self.out.strings;
        *self.strings[id.0 as usize].get_or_insert_with(|| strings.intern(text))
    }

    fn mapping(&mut self, id: MappingId) -> MappingId {
        if let Some(known) = self.mappings[id.0 as usize] {
            return known;
        }
        let mapping = &self.from.mappings[id.0 as usize];
        let file = self.string(mapping.file);
        let build_id = self.string(mapping.build_id);
        self.out.mappings.push(Mapping { file, build_id, ..mapping.clone() });
        let new = MappingId(self.out.mappings.len() as u32 - 1);
        self.mappings[id.0 as usize] = Some(new);
        new
    }

    fn function(&mut self, id: FunctionId) -> FunctionId {
        if let Some(known) = self.functions[id.0 as usize] {
            return known;
        }
        let function = self.from.functions[id.0 as usize];
        let function = Function {
            name: self.string(function.name),
            system_name: self.string(function.system_name),
            filename: self.string(function.filename),
            start_line: function.start_line,
        };
        self.out.functions.push(function);
        let new = FunctionId(self.out.functions.len() as u32 - 1);
        self.functions[id.0 as usize] = Some(new);
        new
    }

    fn location(&mut self, id: LocationId) -> LocationId {
        if let Some(known) = self.locations[id.0 as usize] {
            return known;
        }
        let location = &self.from.locations[id.0 as usize];
        let mapping = location.mapping.map(|m| self.mapping(m));
        let lines: Vec<Line> = self.from.lines_of(id).to_vec();
        let lines: Vec<Line> = lines
            .into_iter()
            .map(|line| Line { function: self.function(line.function), ..line })
            .collect();
        self.out.locations.push(Location { mapping, ..location.clone() });
        let new = LocationId(self.out.locations.len() as u32 - 1);
        self.out.set_lines(new, &lines);
        self.locations[id.0 as usize] = Some(new);
        new
    }

    fn stack(&mut self, id: StackId) -> StackId {
        if let Some(known) = self.stacks[id.0 as usize] {
            return known;
        }
        let frames: Vec<LocationId> =
            self.from.stacks.get(id).iter().map(|&location| self.location(location)).collect();
        let new = self.out.stacks.push(&frames);
        self.stacks[id.0 as usize] = Some(new);
        new
    }

    fn times(&mut self, id: TimesId) -> TimesId {
        match self.from.times.get(id) {
            [] => TimesId::NONE,
            times => self.out.times.push(times.iter().copied()),
        }
    }

    fn labels(&mut self, id: LabelSetId) -> LabelSetId {
        if let Some(&known) = self.labels.get(&id) {
            return known;
        }
        let from = self.from;
        let set: Vec<Label> = from.labels.get(id).iter().map(|label| self.label(*label)).collect();
        let new = self.out.labels.intern(&set);
        self.labels.insert(id, new);
        new
    }

    fn label(&mut self, label: Label) -> Label {
        let value = match label.value {
            LabelValue::Str(text) => LabelValue::Str(self.string(text)),
            LabelValue::Num { value, unit } => LabelValue::Num { value, unit: self.string(unit) },
        };
        Label { key: self.string(label.key), value }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Builder;
    use super::*;

    #[test]
    fn a_profile_is_compacted_in_place_as_it_is_copied() {
        let mut b = Builder::new(&[("samples", "count")]);
        let frames: Vec<LocationId> =
            (0..20).map(|n| b.named_location(&format!("frame {n}"))).collect();
        let key = b.profile.strings.intern("thread");
        for n in 0..60 {
            let value = LabelValue::Num { value: n as i64 % 7, unit: StrId::EMPTY };
            let labels = b.profile.labels.intern(&[Label { key, value }]);
            b.add(&frames[n % 9..n % 9 + n % 5 + 1], labels, 1 + n as u32, &[]);
        }
        let mut profile = b.finish(None);
        // Others are gone, in another order, with stacks in common.
        profile.samples.reverse();
        profile.samples.truncate(25);
        profile.samples.rotate_left(7);
        profile.samples[3].stack = profile.samples[20].stack;
        profile.values.truncate(25);
        profile.samples[4].times = profile.times.push([3, 5].into_iter());
        let copy = compact(&profile);
        let in_place = into_compact(profile);
        assert!(in_place.stacks.len() < 25 && in_place.locations.len() < 20);
        let rows = |p: &Profile| -> Vec<_> {
            let row = |row: &SampleRow| {
                let times = p.times.get(row.times).to_vec();
                (p.stacks.get(row.stack).to_vec(), p.labels.get(row.labels).to_vec(), times)
            };
            p.samples.iter().map(row).collect()
        };
        assert_eq!(rows(&in_place), rows(&copy));
        assert_eq!(in_place.values, copy.values);
        assert!(in_place.strings.iter().eq(copy.strings.iter()));
        assert_eq!(
            (in_place.locations, in_place.functions, in_place.lines),
            (copy.locations, copy.functions, copy.lines)
        );
    }

    #[test]
    fn only_what_samples_refer_to_remains() {
        let mut b = Builder::new(&[("samples", "count")]);
        let main = b.named_location("main");
        let unused = b.named_location("unused");
        let leaf = b.named_location("leaf");
        b.add(&[unused, main], LabelSetId::EMPTY, 1, &[]);
        b.add(&[leaf, main], LabelSetId::EMPTY, 2, &[]);
        let mut profile = b.finish(None);
        profile.period = 7;
        profile.samples.remove(0);
        profile.values.remove(0);
        let small = compact(&profile);
        assert_eq!((small.locations.len(), small.functions.len(), small.stacks.len()), (2, 2, 1));
        assert_eq!(small.strings.find("unused"), None);
        assert_eq!(small.strings.find("leaf").map(|id| small.str(id)), Some("leaf"));
        assert_eq!((small.values.as_slice(), small.period), (&[2][..], 7));
        let kind = small.sample_types[0].kind;
        assert_eq!(small.str(kind), "samples");
    }
}
