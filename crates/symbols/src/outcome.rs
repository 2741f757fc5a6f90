//! Result of symbolization: names found and missing, and the causes.

use rustc_hash::{FxHashMap, FxHashSet};

use profile::{
    BinaryShare, Cause, Gap, LabelValue, Lack, MappingId, Profile, Reason, StrId, label,
};

/// Result for one mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryOutcome {
    /// The mapping.
    pub mapping: MappingId,
    /// Its file or name.
    pub file: String,
    /// Number of locations to resolve.
    pub requested: usize,
    /// Of those, with a function name now.
    pub named: usize,
    /// Of those, with a source line now.
    pub with_line: usize,
    /// Cause of missing names; `None` if all have one.
    pub why: Option<Cause>,
    /// Damage of its debug information, if some could be read nevertheless.
    pub damage: Option<Cause>,
    /// Number of malformed lines in a perf map.
    pub bad_lines: usize,
}

/// Result for each mapping with locations to resolve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// One for each mapping, in their order.
    pub binaries: Vec<BinaryOutcome>,
    /// Number of locations without names that belong to no mapping.
    pub without_mapping: usize,
    /// Errors of debuginfod servers and of the cache, one sentence each.
    pub errors: Vec<String>,
}

impl Outcome {
    /// Number of locations to resolve.
    pub fn requested(&self) -> usize {
        self.binaries.iter().map(|b| b.requested).sum::<usize>() + self.without_mapping
    }

    /// Gaps of the binaries and their causes: names, source lines and bad input, each once.
    pub fn reasons(&self) -> Vec<Reason> {
        let mut all = Vec::new();
        let mut seen = FxHashSet::default();
        for binary in &self.binaries {
            let mut add = |lack, lacking: Option<usize>, cause: &Cause| {
                if seen.insert((lack, &binary.file)) {
                    let addresses = lacking.map(|n| (n as u64, binary.requested as u64));
                    let gap = Gap { addresses, cause: cause.clone() };
                    all.push(Reason { lack, binary: binary.file.clone(), gap });
                }
            };
            if let Some(why) = &binary.why {
                add(Lack::Names, Some(binary.requested - binary.named), why);
            }
            match &binary.damage {
                // The cause is listed for the names.
                Some(why)
                    if binary.named == binary.with_line && binary.why.as_ref() == Some(why) => {}
                Some(why) if binary.with_line < binary.requested => {
                    add(Lack::Lines, Some(binary.requested - binary.with_line), why);
                }
                Some(why) => add(Lack::Input, None, why),
                None => {}
            }
            if binary.bad_lines > 0 && !matches!(binary.why, Some(Cause::NoPerfMap(_))) {
                add(Lack::Input, None, &Cause::PerfMapLines(binary.bad_lines));
            }
        }
        all
    }

    /// Number of locations that have a name now.
    pub fn named(&self) -> usize {
        self.binaries.iter().map(|b| b.named).sum()
    }

    /// Number of locations that have a source line now.
    pub fn with_line(&self) -> usize {
        self.binaries.iter().map(|b| b.with_line).sum()
    }
}

/// Samples whose leaf has no function name, by binary, most first.
///
/// Samples are counted by the first sample type if its unit is `count`, else each row counts 1.
pub fn unsymbolized(profile: &Profile) -> Vec<BinaryShare> {
    let mut shares: FxHashMap<StrId, u64> = FxHashMap::default();
    for (i, sample) in profile.samples.iter().enumerate() {
        let Some(&leaf) = profile.stacks.get(sample.stack).first() else { continue };
        let named =
            |l: &profile::Line| profile.functions[l.function.0 as usize].name != StrId::EMPTY;
        if profile.lines_of(leaf).iter().any(named) {
            continue;
        }
        let mapping = profile.locations[leaf.0 as usize].mapping;
        let file = mapping.map_or(StrId::EMPTY, |m| profile.mappings[m.0 as usize].file);
        *shares.entry(file).or_default() += weight(profile, i);
    }
    let name = |file: StrId| match profile.str(file) {
        "" => "[unknown]".to_owned(),
        file => file.to_owned(),
    };
    let mut shares: Vec<BinaryShare> = shares
        .into_iter()
        .filter(|&(_, samples)| samples > 0)
        .map(|(file, samples)| BinaryShare { binary: name(file), samples })
        .collect();
    shares.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.binary.cmp(&b.binary)));
    shares
}

/// Number of samples as counted by [`unsymbolized`]: the base of its shares.
pub fn counted(profile: &Profile) -> u64 {
    (0..profile.samples.len()).map(|row| weight(profile, row)).fold(0, u64::saturating_add)
}

/// Samples whose stacks contain code made at run time without a name, by process name, most first,
/// with the PID of one process of that name. Counted as by [`unsymbolized`].
pub fn run_time_code(profile: &Profile) -> Vec<(String, Option<i64>, u64)> {
    let mut nameless = vec![false; profile.locations.len()];
    for (location, nameless) in profile.locations.iter().zip(&mut nameless) {
        let file =
            location.mapping.map_or("", |m| profile.str(profile.mappings[m.0 as usize].file));
        let made = ["//anon", "[anon:", "/memfd:"].iter().any(|start| file.starts_with(start));
        *nameless = made && location.line_count == 0;
    }
    let key = profile.strings.find(label::PROCESS);
    let pid_key = profile.strings.find(label::PID);
    let mut shares: FxHashMap<String, (Option<i64>, u64)> = FxHashMap::default();
    for (i, sample) in profile.samples.iter().enumerate() {
        if !profile.stacks.get(sample.stack).iter().any(|l| nameless[l.0 as usize]) {
            continue;
        }
        let process = match key.and_then(|key| profile.labels.value(sample.labels, key)) {
            Some(LabelValue::Str(name)) => profile.str(name),
            _ => "a process",
        };
        let share = shares.entry(process.to_owned()).or_default();
        let pid = pid_key.and_then(|key| profile.labels.value(sample.labels, key));
        share.0 = share.0.or(match pid {
            Some(LabelValue::Str(pid)) => profile.str(pid).parse().ok(),
            Some(LabelValue::Num { value, .. }) => Some(value),
            None => None,
        });
        share.1 += weight(profile, i);
    }
    let mut shares: Vec<_> = shares.into_iter().map(|(name, (pid, n))| (name, pid, n)).collect();
    shares.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.0.cmp(&b.0)));
    shares
}

/// Number of samples that a row represents.
fn weight(profile: &Profile, row: usize) -> u64 {
    let counted = profile.sample_types.first().is_some_and(|t| profile.str(t.unit) == "count");
    if counted { profile.values_of(row)[0].max(0) as u64 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{Builder, Column, Label, LabelSetId, Mapping};

    #[test]
    fn samples_without_a_leaf_name_are_counted_by_binary() {
        let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
        let mut mapping = |file: &str| {
            let file = b.profile.strings.intern(file);
            b.add_mapping(Mapping { file, ..Mapping::default() })
        };
        let one = mapping("/one");
        let two = mapping("/two");
        let named = b.named_location("main");
        let in_one = b.location(Some(one), 1);
        let in_two = b.location(Some(two), 1);
        let nowhere = b.location(None, 1);
        for (stack, times) in [
            (vec![in_one, named], 2),
            (vec![in_two, named], 5),
            (vec![named, in_one], 9),
            (vec![nowhere], 1),
            (vec![], 4),
        ] {
            for _ in 0..times {
                b.add(&stack, LabelSetId::EMPTY, 1, &[(Column(1), 7)]);
            }
        }
        let share = |binary: &str, samples| BinaryShare { binary: binary.into(), samples };
        assert_eq!(
            unsymbolized(&b.finish(None)),
            [share("/two", 5), share("/one", 2), share("[unknown]", 1)]
        );
    }

    /// An allocation sample represents many objects: shares refer to objects then.
    #[test]
    fn shares_without_names_use_the_unit_of_the_samples() {
        let mut b = Builder::new(&[("alloc_objects", "count"), ("alloc_space", "bytes")]);
        let named = b.named_location("main");
        let nameless = b.location(None, 1);
        let values = |objects| [(Column(0), objects), (Column(1), objects * 64)];
        b.add_stack(&[named, nameless], None, LabelSetId::EMPTY, 0, &values(300));
        b.add_stack(&[named], None, LabelSetId::EMPTY, 0, &values(100));
        let p = b.finish(None);
        let nameless: u64 = unsymbolized(&p).iter().map(|share| share.samples).sum();
        assert_eq!((nameless, counted(&p)), (300, 400));
    }

    #[test]
    fn code_made_at_run_time_is_counted_by_process() {
        let mut b = Builder::new(&[("samples", "count")]);
        let file = b.profile.strings.intern("//anon");
        let made = b.add_mapping(Mapping { file, ..Mapping::default() });
        let made = b.location(Some(made), 7);
        let named = b.named_location("main");
        let key = b.profile.strings.intern("process");
        for (process, stack, times) in
            [("node", vec![named, made], 2), ("java", vec![made], 3), ("sh", vec![named], 9)]
        {
            let value = LabelValue::Str(b.profile.strings.intern(process));
            let labels = b.profile.labels.intern(&[Label { key, value }]);
            for _ in 0..times {
                b.add(&stack, labels, 1, &[]);
            }
        }
        let expected = [("java".to_owned(), None, 3), ("node".to_owned(), None, 2)];
        assert_eq!(run_time_code(&b.finish(None)), expected);
    }
}
