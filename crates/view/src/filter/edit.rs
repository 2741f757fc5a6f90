//! Changes to the samples and stacks of a profile.

use profile::{LabelSetId, LocationId, Profile, SampleRow, StackId, StackInterner, TimesId};
use rustc_hash::FxHashMap;

/// Keeps the samples for which `keep` is true.
pub fn retain(profile: &mut Profile, keep: impl Fn(SampleRow) -> bool) {
    edit_samples(profile, |sample| keep(sample).then_some(sample));
}

/// Replaces each sample, or drops it.
fn edit_samples(profile: &mut Profile, mut edit: impl FnMut(SampleRow) -> Option<SampleRow>) {
    let width = profile.sample_types.len();
    let mut kept = 0;
    for i in 0..profile.samples.len() {
        let Some(sample) = edit(profile.samples[i]) else { continue };
        profile.samples[kept] = sample;
        profile.values.copy_within(i * width..(i + 1) * width, kept * width);
        kept += 1;
    }
    profile.samples.truncate(kept);
    profile.values.truncate(kept * width);
}

/// Replaces the stack of each sample; the frames are appended to an empty list. Samples whose stack
/// is refused are dropped. `edit` is called once for each stack in use.
pub fn edit_stacks(
    profile: &mut Profile,
    mut edit: impl FnMut(&[LocationId], &mut Vec<LocationId>) -> bool,
) {
    /// The new id of a stack.
    #[derive(Clone, Copy)]
    enum State {
        Unseen,
        Dropped,
        Kept(StackId),
    }
    let old = std::mem::take(&mut profile.stacks);
    let mut states = vec![State::Unseen; old.len()];
    let mut new = StackInterner::with_capacity(old.len(), old.frame_count());
    let mut frames = Vec::new();
    edit_samples(profile, |sample| {
        let state = &mut states[sample.stack.0 as usize];
        if let State::Unseen = state {
            frames.clear();
            *state = if edit(old.get(sample.stack), &mut frames) {
                State::Kept(new.intern(&frames))
            } else {
                State::Dropped
            };
        }
        match *state {
            State::Kept(stack) => Some(SampleRow { stack, ..sample }),
            State::Unseen | State::Dropped => None,
        }
    });
    profile.stacks = new.finish();
}

/// Replaces the stack of each sample; the frames are appended to an empty list. `edit` is called once
/// for each stack in use, with the profile without its stacks, to which it may add locations.
pub fn replace_stacks(
    profile: &mut Profile,
    mut edit: impl FnMut(&mut Profile, &[LocationId], &mut Vec<LocationId>),
) {
    let old = std::mem::take(&mut profile.stacks);
    let mut ids: Vec<Option<StackId>> = vec![None; old.len()];
    let mut new = StackInterner::with_capacity(old.len(), old.frame_count());
    let mut frames = Vec::new();
    for i in 0..profile.samples.len() {
        let id = profile.samples[i].stack;
        let stack = *ids[id.0 as usize].get_or_insert_with(|| {
            frames.clear();
            edit(profile, old.get(id), &mut frames);
            new.intern(&frames)
        });
        profile.samples[i].stack = stack;
    }
    profile.stacks = new.finish();
}

/// Replaces the stack of each sample, which may depend on its labels. `edit` is called once for each
/// stack with these labels.
pub fn extend_stacks(
    profile: &mut Profile,
    mut edit: impl FnMut(SampleRow, &[LocationId], &mut Vec<LocationId>),
) {
    let old = std::mem::take(&mut profile.stacks);
    let mut known: FxHashMap<(StackId, LabelSetId), StackId> = FxHashMap::default();
    let mut new = StackInterner::with_capacity(old.len(), old.frame_count());
    let mut frames = Vec::new();
    edit_samples(profile, |sample| {
        let stack = *known.entry((sample.stack, sample.labels)).or_insert_with(|| {
            frames.clear();
            edit(sample, old.get(sample.stack), &mut frames);
            new.intern(&frames)
        });
        Some(SampleRow { stack, ..sample })
    });
    profile.stacks = new.finish();
}

/// Replaces the labels of each sample.
pub fn edit_labels(profile: &mut Profile, edit: impl Fn(LabelSetId) -> LabelSetId) {
    edit_samples(profile, |sample| Some(SampleRow { labels: edit(sample.labels), ..sample }));
}

/// Adds up samples with equal stacks and labels and without times.
pub fn add_up(profile: &mut Profile) {
    let width = profile.sample_types.len();
    let mut rows: FxHashMap<(StackId, LabelSetId, TimesId), usize> = FxHashMap::default();
    let mut kept = 0;
    for i in 0..profile.samples.len() {
        let sample = profile.samples[i];
        let row = *rows.entry((sample.stack, sample.labels, sample.times)).or_insert(kept);
        if row == kept {
            profile.samples[kept] = sample;
            profile.values.copy_within(i * width..(i + 1) * width, kept * width);
            kept += 1;
            continue;
        }
        for column in 0..width {
            let value = profile.values[i * width + column];
            let sum = &mut profile.values[row * width + column];
            *sum = sum.saturating_add(value);
        }
    }
    profile.samples.truncate(kept);
    profile.values.truncate(kept * width);
}

/// Removes lines of locations: for each location, `edit` returns the part of its lines to keep.
pub fn cut_lines(
    profile: &mut Profile,
    mut edit: impl FnMut(&Profile, LocationId) -> Option<std::ops::Range<usize>>,
) {
    for i in 0..profile.locations.len() {
        let Some(kept) = edit(profile, LocationId(i as u32)) else { continue };
        let location = &mut profile.locations[i];
        let kept = kept.start.min(location.line_count as usize)..kept.end;
        let end = kept.end.min(location.line_count as usize).max(kept.start);
        location.first_line += kept.start as u32;
        location.line_count = (end - kept.start) as u32;
    }
}
