//! Samples by the values of their labels.

use rustc_hash::FxHashMap;

use super::{View, key_ids};
use profile::{LabelSetId, LabelValue};

/// Groups of samples whose labels have equal values.
pub(super) struct Groups {
    /// The values of the labels of each group.
    pub values: Vec<Vec<Option<LabelValue>>>,
    /// Numbers of the samples, group by group.
    rows: Vec<u32>,
    /// End of each group's part of `rows`.
    ends: Vec<usize>,
}

impl Groups {
    /// Groups these samples, each with its number, by the values of the labels with these keys;
    /// without keys there is one group.
    pub(super) fn new(
        view: &View,
        samples: impl Iterator<Item = (usize, LabelSetId)>,
        labels: &[String],
    ) -> Groups {
        if labels.is_empty() {
            let rows: Vec<u32> = samples.map(|(row, _)| row as u32).collect();
            return Groups { values: vec![Vec::new()], ends: vec![rows.len()], rows };
        }
        let keys = key_ids(view.profile, labels);
        let table = &view.profile.labels;
        let mut index: FxHashMap<Vec<Option<LabelValue>>, u32> = FxHashMap::default();
        let mut by_set: Vec<Option<u32>> = vec![None; table.len()];
        let mut values = Vec::new();
        let mut counts: Vec<usize> = Vec::new();
        let mut grouped: Vec<(u32, u32)> = Vec::new();
        for (row, labels) in samples {
            let group = *by_set[labels.0 as usize].get_or_insert_with(|| {
                let group_values: Vec<_> =
                    keys.iter().map(|k| k.and_then(|k| table.value(labels, k))).collect();
                *index.entry(group_values.clone()).or_insert_with(|| {
                    values.push(group_values);
                    counts.push(0);
                    values.len() as u32 - 1
                })
            });
            counts[group as usize] += 1;
            grouped.push((group, row as u32));
        }
        // First the begin of each group, then its end.
        let mut next = 0;
        for count in &mut counts {
            next += std::mem::replace(count, next);
        }
        let mut ends = counts;
        let mut rows = vec![0; grouped.len()];
        for (group, row) in grouped {
            let at = &mut ends[group as usize];
            rows[*at] = row;
            *at += 1;
        }
        Groups { values, rows, ends }
    }

    /// The numbers of the samples of each group, in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u32]> {
        (0..self.ends.len()).map(|group| {
            let start = if group == 0 { 0 } else { self.ends[group - 1] };
            &self.rows[start..self.ends[group]]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Granularity;
    use crate::testing::processes;

    #[test]
    fn each_group_has_its_samples() {
        let profile = processes();
        let view = View::new(&profile, 0, Granularity::FUNCTION);
        let samples = || profile.samples.iter().rev().map(|s| s.labels).enumerate();
        let groups = |labels: &[&str]| {
            let labels: Vec<String> = labels.iter().map(|&key| key.to_owned()).collect();
            let groups = Groups::new(&view, samples(), &labels);
            (groups.values.len(), groups.iter().map(<[u32]>::to_vec).collect::<Vec<_>>())
        };
        assert_eq!(groups(&[]), (1, vec![vec![0, 1]]));
        assert_eq!(groups(&["process"]), (2, vec![vec![0], vec![1]]));
        assert_eq!(groups(&["no such label"]), (1, vec![vec![0, 1]]));
        let none = Groups::new(&view, [].into_iter(), &["process".to_owned()]);
        assert_eq!((none.values.len(), none.iter().count()), (0, 0));
    }
}
