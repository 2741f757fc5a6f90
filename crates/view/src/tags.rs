//! The values of all labels, as of pprof's `tags`.

use rustc_hash::FxHashMap;

use super::filter::{label_units, number_text};
use super::mean::mean;
use super::{View, percent};
use profile::{LabelSetId, LabelValue, StrId};

/// The values of all labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tags {
    /// The keys, in the order of their names.
    pub keys: Vec<TagKey>,
}

/// The values of the labels with one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagKey {
    /// The key.
    pub key: StrId,
    /// Sum over all of its values.
    pub total: i64,
    /// The 100 % of the shares of its values: the total, but of values of which some are negative, as
    /// in a difference, the sum of their magnitudes.
    pub whole: i64,
    /// Its values, those of the largest sums first, then by text.
    pub values: Vec<TagValue>,
    /// Their number before limits.
    pub value_count: usize,
}

/// A value of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagValue {
    /// The text; of a number, with its unit as in pprof: numbers of one text are one value.
    pub text: String,
    /// The value of the samples that have it.
    pub value: i64,
}

/// The sums of the labels with one key.
#[derive(Default)]
struct KeySums {
    by_text: FxHashMap<String, i64>,
    /// Sum of the magnitudes of all values.
    magnitude: i64,
}

/// A sum of values, and that of their magnitudes.
#[derive(Clone, Copy, Default)]
struct SetSum {
    value: i64,
    magnitude: i64,
}

/// The sums of the labels of a view.
fn sums(view: &View) -> FxHashMap<StrId, KeySums> {
    let profile = view.profile;
    let mut by_set: FxHashMap<LabelSetId, SetSum> = FxHashMap::default();
    for sample in view.samples() {
        let sum = by_set.entry(sample.labels).or_default();
        sum.value = sum.value.saturating_add(sample.value);
        sum.magnitude = sum.magnitude.saturating_add(sample.value.saturating_abs());
    }
    let units = label_units(profile);
    let mut sums: FxHashMap<StrId, KeySums> = FxHashMap::default();
    for (set, SetSum { value, magnitude }) in by_set {
        for label in profile.labels.get(set) {
            let text = match label.value {
                LabelValue::Str(text) => profile.str(text).to_owned(),
                LabelValue::Num { value, .. } => number_text(value, units.unit(profile, label.key)),
            };
            let key_sums = sums.entry(label.key).or_default();
            key_sums.magnitude = key_sums.magnitude.saturating_add(magnitude);
            let sum = key_sums.by_text.entry(text).or_default();
            *sum = sum.saturating_add(value);
        }
    }
    sums
}

fn total(values: &FxHashMap<String, i64>) -> i64 {
    values.values().fold(0, |sum, value| sum.saturating_add(*value))
}

impl Tags {
    /// The labels of a view: of each key at most `limit` values (0: all), of at least `min_percent`
    /// percent of [`TagKey::whole`].
    pub fn new(view: &View, limit: usize, min_percent: f64) -> Tags {
        let counts = view.counts().map(|counts| sums(&counts));
        let key = |(key, sums): (StrId, KeySums)| {
            let KeySums { by_text: values, magnitude } = sums;
            let counts = counts.as_ref().and_then(|counts| counts.get(&key));
            let counts = counts.map(|counts| &counts.by_text);
            let sum = total(&values);
            let total = counts.map_or(sum, |counts| mean(sum, total(counts)));
            let whole = counts.map_or(magnitude, |_| total);
            let value = |(text, sum): (String, i64)| {
                let count = counts.and_then(|counts| counts.get(&text));
                TagValue { value: count.map_or(sum, |&count| mean(sum, count)), text }
            };
            let value_count = values.len();
            let mut values: Vec<TagValue> = values.into_iter().map(value).collect();
            values.retain(|value| percent(value.value, whole).abs() >= min_percent);
            values.sort_unstable_by(|a, b| {
                let by_size = b.value.unsigned_abs().cmp(&a.value.unsigned_abs());
                by_size.then_with(|| a.text.cmp(&b.text))
            });
            values.truncate(if limit == 0 { usize::MAX } else { limit });
            TagKey { key, total, whole, values, value_count }
        };
        let mut keys: Vec<TagKey> = sums(view).into_iter().map(key).collect();
        keys.sort_unstable_by_key(|key| view.profile.str(key.key));
        Tags { keys }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Granularity;
    use crate::testing::processes;
    use profile::{Builder, Column, Label};

    /// The labels as `key total: text value, …`.
    fn listed(view: &View, limit: usize, min_percent: f64) -> Vec<String> {
        let keys = Tags::new(view, limit, min_percent).keys;
        let line = |key: &TagKey| {
            let values = key.values.iter().map(|v| format!("{} {}", v.text, v.value));
            let values: Vec<String> = values.collect();
            let name = view.profile.str(key.key);
            format!("{name} {} ({}): {}", key.total, key.value_count, values.join(", "))
        };
        keys.iter().map(line).collect()
    }

    #[test]
    fn each_label_has_its_values() {
        let p = processes();
        let view = View::new(&p, 0, Granularity::FUNCTION);
        let all = listed(&view, 0, 0.0);
        assert!(all.iter().any(|line| line.starts_with("process ") && line.contains("web;1 3")));
        assert!(all.is_sorted());
        let first = listed(&view, 1, 0.0);
        assert!(first.iter().all(|line| !line.contains(", ")), "{first:?}");
    }

    #[test]
    fn numbers_of_one_text_are_one_value() {
        let mut b = Builder::new(&[("space", "bytes")]);
        let main = b.named_location("main");
        let [bytes, unit] = ["bytes", "bytes"].map(|text| b.profile.strings.intern(text));
        for (size, value) in [(8192, 5), (8193, 2), (16384, 3), (16, 1)] {
            let value_of = LabelValue::Num { value: size, unit };
            let labels = b.profile.labels.intern(&[Label { key: bytes, value: value_of }]);
            b.add(&[main], labels, 0, &[(Column(0), value)]);
        }
        let p = b.finish(None);
        let view = View::new(&p, 0, Granularity::FUNCTION);
        assert_eq!(listed(&view, 0, 0.0), ["bytes 11 (3): 8kB 7, 16kB 3, 16B 1"]);
        assert_eq!(listed(&view, 0, 10.0), ["bytes 11 (3): 8kB 7, 16kB 3"]);
    }

    #[test]
    fn shares_of_a_difference_are_of_its_magnitudes() {
        let mut b = Builder::new(&[("cpu", "nanoseconds")]);
        let main = b.named_location("main");
        let key = b.profile.strings.intern("process");
        for (text, value) in [("a", -40), ("a", 50), ("b", -10), ("c", 0)] {
            let value_of = LabelValue::Str(b.profile.strings.intern(text));
            let labels = b.profile.labels.intern(&[Label { key, value: value_of }]);
            b.add(&[main], labels, 0, &[(Column(0), value)]);
        }
        // Equal samples are one.
        let p = b.finish(None);
        let view = View::new(&p, 0, Granularity::FUNCTION);
        let tags = Tags::new(&view, 0, 0.0);
        let key = &tags.keys[0];
        assert_eq!((key.total, key.whole), (0, 20));
        let share = |value: &TagValue| percent(value.value, key.whole);
        assert_eq!(key.values.iter().map(share).collect::<Vec<_>>(), [50.0, -50.0]);
    }
}
