//! Samples whose frames are addresses, while a file is read.

use std::collections::HashMap;
use std::ops::Range;

use profile::{FunctionId, LabelSetId, Line, LocationId, Mapping, MappingId, Profile, StrId};

use super::mapping_text::MappingText;
use super::mappings::add_mappings;
use crate::assembly::{Assembly, ColumnValue, InternedSample, MOST_FRAMES, excess};
use crate::error::ReadError;
use crate::lines::Lines;

/// Most sample types.
const COLUMNS: usize = 4;

/// Frames after which the memory of a profile is checked.
const CHECKED: usize = 8192;

/// Most samples of equal second frames that another may interrupt, as a divisor of all.
const SIMILAR: usize = 32;

/// A profile of addresses while a file is read.
pub(super) struct AddressSamples {
    /// The profile so far: its sample types, strings, functions, labels and header.
    pub all: Assembly,
    /// The mappings.
    pub mappings: MappingText,
    /// The lines of addresses. The standard hasher, because addresses come from the file.
    pub names: HashMap<u64, Line>,
    /// The functions of addresses that are not in `names`.
    pub other_names: HashMap<u64, FunctionId>,
    /// Addresses of all samples, leaf first.
    addresses: Vec<u64>,
    samples: Vec<AddressSample>,
}

struct AddressSample {
    /// Their part of the addresses.
    frames: Range<usize>,
    labels: LabelSetId,
    values: [i64; COLUMNS],
}

impl AddressSamples {
    /// A profile with these sample types, and a period of one event of the first.
    pub(super) fn new(types: &[(&str, &str)]) -> AddressSamples {
        let mut samples = AddressSamples {
            all: Assembly::default(),
            mappings: MappingText::default(),
            names: HashMap::new(),
            other_names: HashMap::new(),
            addresses: Vec::new(),
            samples: Vec::new(),
        };
        samples.set_types(types);
        samples
    }

    /// Sets the sample types, before the first sample.
    pub(super) fn set_types(&mut self, types: &[(&str, &str)]) {
        for (kind, unit) in types {
            self.all.add_type(kind, unit);
        }
        if let Some((kind, unit)) = types.first() {
            self.set_period(kind, unit, 1);
        }
    }

    /// Sets the period and its meaning.
    pub(super) fn set_period(&mut self, kind: &str, unit: &str, period: i64) {
        let profile = &mut self.all.profile;
        profile.period_type.kind = profile.strings.intern(kind);
        profile.period_type.unit = profile.strings.intern(unit);
        profile.period = period;
    }

    /// Adds an address to the open sample.
    pub(super) fn push(&mut self, address: u64) {
        self.addresses.push(address);
    }

    /// Number of addresses of the open sample.
    pub(super) fn open_frames(&self) -> usize {
        self.addresses.len() - self.samples.last().map_or(0, |sample| sample.frames.end)
    }

    /// Removes the addresses of the open sample.
    pub(super) fn remove_open(&mut self) {
        self.addresses.truncate(self.addresses.len() - self.open_frames());
    }

    /// Ends the sample of the addresses since the last one.
    pub(super) fn end_sample(&mut self, values: &[i64], labels: LabelSetId) {
        let start = self.addresses.len() - self.open_frames();
        let mut all = [0; COLUMNS];
        all[..values.len()].copy_from_slice(values);
        let frames = start..self.addresses.len();
        self.samples.push(AddressSample { frames, labels, values: all });
    }

    /// Adds a sample with the stack of the last one.
    pub(super) fn repeat_stack(&mut self, values: &[i64], labels: LabelSetId) {
        let last = self.samples.last().map(|last| last.frames.clone());
        self.end_sample(values, labels);
        if let (Some(sample), Some(frames)) = (self.samples.last_mut(), last) {
            sample.frames = frames;
        }
    }

    /// Number of sample types.
    pub(super) fn columns(&self) -> usize {
        self.all.profile.sample_types.len()
    }

    /// Adds 1 to the first value of the last sample, if there is one.
    pub(super) fn repeat_last(&mut self) {
        if let Some(last) = self.samples.last_mut() {
            last.values[0] = last.values[0].saturating_add(1);
        }
    }

    /// Sets the labels of the last sample.
    pub(super) fn set_last_labels(&mut self, labels: LabelSetId) {
        if let Some(last) = self.samples.last_mut() {
            last.labels = labels;
        }
    }

    /// Addresses of the last sample, leaf first.
    pub(super) fn last_addresses(&self) -> &[u64] {
        self.samples.last().map_or(&[], |last| &self.addresses[last.frames.clone()])
    }

    /// Removes callers that all samples have in common right after the leaf: those of the handler
    /// of the profiler's signal.
    pub(super) fn remove_handlers(&mut self) {
        /// Frames that a handler has at most.
        const HANDLERS: usize = 2;
        let most = self.samples.len() - self.samples.len() / SIMILAR;
        for _ in 0..HANDLERS {
            let mut counts: HashMap<u64, usize> = HashMap::new();
            for sample in self.samples.iter().filter(|sample| sample.frames.len() > 1) {
                *counts.entry(self.addresses[sample.frames.start + 1]).or_default() += 1;
            }
            let common = counts.into_iter().find(|&(_, count)| count >= most);
            if let Some((common, _)) = common {
                self.remove_callers(|_, caller| caller == common);
            }
        }
    }

    /// Removes the callers that are the leaf again, as a return address.
    pub(super) fn remove_repeated_leaves(&mut self) {
        self.remove_callers(|leaf, caller| leaf == caller.wrapping_add(1));
    }

    /// Removes callers of leaves.
    fn remove_callers(&mut self, is_removed: impl Fn(u64, u64) -> bool) {
        for sample in &mut self.samples {
            let start = sample.frames.start;
            let [leaf, caller, ..] = self.addresses[sample.frames.clone()] else { continue };
            if is_removed(leaf, caller) {
                self.addresses[start + 1] = leaf;
                sample.frames.start += 1;
            }
        }
    }

    /// Memory, estimated in bytes.
    fn bytes(&self) -> u64 {
        self.all.bytes()
            + 8 * self.addresses.len() as u64
            + size_of::<AddressSample>() as u64 * self.samples.len() as u64
            + 64 * self.names.len() as u64
            + 32 * self.other_names.len() as u64
            + 80 * self.mappings.mappings.len() as u64
    }

    /// The sentence about samples that take more than `allowed` bytes of memory, if they do.
    pub(super) fn excess(&self, allowed: u64) -> Option<String> {
        excess(self.bytes(), allowed)
    }

    /// Checks the memory of what was read of these lines.
    pub(super) fn check(&self, lines: &Lines<'_>) -> Result<(), ReadError> {
        let excess = lines.is_check_due().then(|| self.excess(lines.memory_allowed())).flatten();
        excess.map_or(Ok(()), |excess| Err(lines.error(excess)))
    }

    /// The profile of the addresses.
    pub(super) fn finish(self, lines: &Lines<'_>) -> Result<Profile, ReadError> {
        let AddressSamples { all, mappings, names, other_names, addresses, samples } = self;
        let line_of = |address: u64| {
            let other = || other_names.get(&address);
            let other = || other().map(|&function| Line { function, line: 0, column: 0 });
            names.get(&address).copied().or_else(other)
        };
        let location =
            |all: &mut Assembly, address| all.location(None, address, line_of(address).as_slice());
        let has_names = !names.is_empty();
        let mut profile = finish(all, &addresses, samples, lines, location)?;
        add_mappings(&mut profile, mappings.mappings);
        if has_names {
            set_named(&mut profile);
        }
        Ok(profile)
    }

    /// The profile of the names, in which addresses are left out.
    pub(super) fn finish_names(self, lines: &Lines<'_>) -> Result<Profile, ReadError> {
        let names = self.names;
        let mut has_others = false;
        let location = |all: &mut Assembly, address| match names.get(&address) {
            Some(&line) => all.location(None, 0, &[line]),
            None => {
                has_others |= address != 0;
                all.location((address != 0).then_some(MappingId(0)), 0, &[])
            }
        };
        let mut profile = finish(self.all, &self.addresses, self.samples, lines, location)?;
        if has_others {
            profile.mappings.push(Mapping { limit: u64::MAX, ..Mapping::default() });
        }
        Ok(profile)
    }
}

/// The profile of the samples, without mappings.
fn finish(
    mut all: Assembly,
    addresses: &[u64],
    samples: Vec<AddressSample>,
    lines: &Lines<'_>,
    mut location: impl FnMut(&mut Assembly, u64) -> LocationId,
) -> Result<Profile, ReadError> {
    lines.cut().into_iter().for_each(|why| all.set_incomplete(why));
    let columns = all.profile.sample_types.len();
    let mut stack = Vec::new();
    let mut last = None;
    let mut unchecked = 0;
    for AddressSample { frames, labels, values } in samples {
        let id = match last.take() {
            Some((same, id)) if same == frames && !frames.is_empty() => id,
            _ => {
                stack.clear();
                // One more than is kept, so that its loss is counted.
                let kept = addresses[frames.clone()].iter().take(MOST_FRAMES + 1);
                stack.extend(kept.map(|&address| location(&mut all, address)));
                unchecked += stack.len();
                all.stack(&stack)
            }
        };
        last = Some((frames, id));
        let mut cells = [ColumnValue { column: 0, value: 0 }; COLUMNS];
        for (column, (cell, value)) in cells.iter_mut().zip(values).enumerate() {
            *cell = ColumnValue { column, value };
        }
        let values = &cells[..columns];
        all.add_interned(InternedSample { stack: id, labels, values, time: None });
        unchecked += 1;
        if unchecked >= CHECKED {
            unchecked = 0;
            let excess = all.excess(lines.memory_allowed());
            excess.map_or(Ok(()), |excess| Err(lines.error(excess)))?;
        }
    }
    Ok(all.finish())
}

/// Records that names were in the file, so that none are looked up.
fn set_named(profile: &mut Profile) {
    for mapping in profile.mappings.iter_mut().filter(|mapping| mapping.file == StrId::EMPTY) {
        mapping.has_functions = true;
        mapping.has_filenames = true;
        mapping.has_line_numbers = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks(stacks: &[&[u64]], change: fn(&mut AddressSamples)) -> Vec<Vec<u64>> {
        let mut samples = AddressSamples::new(&[("samples", "count")]);
        for stack in stacks {
            stack.iter().for_each(|&address| samples.push(address));
            samples.end_sample(&[1], LabelSetId::EMPTY);
        }
        change(&mut samples);
        let lines = Lines::new("text", &mut &b"x"[..]).map(|lines| samples.finish(&lines));
        let profile = lines.unwrap().unwrap();
        let addresses = |stack: &[LocationId]| {
            stack.iter().map(|id| profile.locations[id.0 as usize].address).collect()
        };
        profile.samples.iter().map(|s| addresses(profile.stacks.get(s.stack))).collect()
    }

    #[test]
    fn frames_of_handlers_are_removed() {
        let all: &[&[u64]] = &[&[1, 50, 60, 2], &[3, 50, 60, 4], &[5, 50, 60]];
        assert_eq!(stacks(all, AddressSamples::remove_handlers), [&[1, 2][..], &[3, 4], &[5]]);
        let mixed: &[&[u64]] = &[&[1, 50, 2], &[3, 51, 4]];
        assert_eq!(stacks(mixed, AddressSamples::remove_handlers), mixed);
    }

    #[test]
    fn repeated_leaves_are_removed() {
        let all: &[&[u64]] = &[&[10, 9, 2], &[10, 8, 2], &[0, u64::MAX], &[7]];
        let expected: &[&[u64]] = &[&[10, 2], &[10, 8, 2], &[0], &[7]];
        assert_eq!(stacks(all, AddressSamples::remove_repeated_leaves), expected);
    }
}
