//! Values of labels as frames: `tagroot`, `tagleaf`.

use profile::{Function, FunctionId, LabelSetId, LabelValue, Line, Location, LocationId, Profile};
use rustc_hash::FxHashMap;

use super::{Condition, Filter, edit, units};

/// Adds the frames. As in pprof, the function's name is the values, its source file the key; a
/// sample without the label has a frame, too.
pub fn add(profile: &mut Profile, filter: &Filter, unmatched: &mut Vec<Condition>) {
    if filter.tag_root.is_empty() && filter.tag_leaf.is_empty() {
        return;
    }
    let mut frames = TagFrames::default();
    let roots = frames.for_sets(profile, &filter.tag_root);
    let leaves = frames.for_sets(profile, &filter.tag_leaf);
    unmatched.extend((!filter.tag_root.is_empty() && !roots.found).then_some(Condition::TagRoot));
    unmatched.extend((!filter.tag_leaf.is_empty() && !leaves.found).then_some(Condition::TagLeaf));
    edit::extend_stacks(profile, |sample, stack, out| {
        out.extend_from_slice(leaves.get(sample.labels));
        out.extend_from_slice(stack);
        out.extend_from_slice(roots.get(sample.labels));
    });
}

/// Locations by name and key.
#[derive(Default)]
struct TagFrames {
    known: FxHashMap<(String, String), LocationId>,
}

/// The frames of each set of labels in use, leaf first.
struct FramesOfSets {
    frames: FxHashMap<LabelSetId, Vec<LocationId>>,
    /// A sample has one of the labels.
    found: bool,
}

impl FramesOfSets {
    fn get(&self, labels: LabelSetId) -> &[LocationId] {
        self.frames.get(&labels).map_or(&[], Vec::as_slice)
    }
}

impl TagFrames {
    fn for_sets(&mut self, profile: &mut Profile, keys: &[String]) -> FramesOfSets {
        let mut out = FramesOfSets { frames: FxHashMap::default(), found: false };
        for i in 0..profile.samples.len() {
            let labels = profile.samples[i].labels;
            if out.frames.contains_key(&labels) {
                continue;
            }
            let mut frames = Vec::with_capacity(keys.len());
            for key in keys.iter().rev() {
                let values = values(profile, labels, key);
                out.found |= !values.is_empty();
                frames.push(self.location(profile, key, &values));
            }
            out.frames.insert(labels, frames);
        }
        out
    }

    fn location(&mut self, profile: &mut Profile, key: &str, values: &[String]) -> LocationId {
        let name = if values.is_empty() { format!("[no {key}]") } else { values.join(",") };
        *self.known.entry((name, key.to_owned())).or_insert_with_key(|(name, key)| {
            let name = profile.strings.intern(name);
            let filename = profile.strings.intern(key);
            profile.functions.push(Function { name, filename, ..Function::default() });
            let function = FunctionId(profile.functions.len() as u32 - 1);
            profile.locations.push(Location::default());
            let location = LocationId(profile.locations.len() as u32 - 1);
            profile.set_lines(location, &[Line { function, line: 0, column: 0 }]);
            location
        })
    }
}

/// The values of a label: texts, then numbers with their units.
fn values(profile: &Profile, labels: LabelSetId, key: &str) -> Vec<String> {
    let Some(key) = profile.strings.find(key) else { return Vec::new() };
    let with_key = || profile.labels.get(labels).iter().filter(|label| label.key == key);
    let texts = with_key().filter_map(|label| match label.value {
        LabelValue::Str(text) => Some(profile.str(text).to_owned()),
        LabelValue::Num { .. } => None,
    });
    let numbers = with_key().filter_map(|label| match label.value {
        LabelValue::Str(_) => None,
        LabelValue::Num { value, unit } => Some(units::text(value, profile.str(unit))),
    });
    texts.chain(numbers).collect()
}
