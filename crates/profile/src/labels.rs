//! Labels (pprof's `Label`) and interned sets of them.

use std::hash::{Hash, Hasher};

use hashbrown::HashTable;
use rustc_hash::{FxHashSet, FxHasher};

use super::StrId;

/// Value of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LabelValue {
    /// A text.
    Str(StrId),
    /// A number and its unit (empty if it has none).
    Num {
        /// The number.
        value: i64,
        /// Its unit.
        unit: StrId,
    },
}

/// A key and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label {
    /// The key, for example `thread`.
    pub key: StrId,
    /// The value.
    pub value: LabelValue,
}

/// Index of a set of labels in a [`LabelTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct LabelSetId(pub u32);

impl LabelSetId {
    /// The set without labels, always the first of a table.
    pub const EMPTY: LabelSetId = LabelSetId(0);
}

/// Distinct sets of labels.
#[derive(Clone, Debug)]
pub struct LabelTable {
    labels: Vec<Label>,
    ends: Vec<usize>,
    index: HashTable<u32>,
}

impl Default for LabelTable {
    fn default() -> Self {
        let mut t = LabelTable { labels: Vec::new(), ends: Vec::new(), index: HashTable::new() };
        t.intern(&[]);
        t
    }
}

#[inline]
fn hash(labels: &[Label]) -> u64 {
    let mut h = FxHasher::default();
    labels.hash(&mut h);
    h.finish()
}

fn slice<'a>(labels: &'a [Label], ends: &[usize], id: u32) -> &'a [Label] {
    let start = if id == 0 { 0 } else { ends[id as usize - 1] };
    &labels[start..ends[id as usize]]
}

impl LabelTable {
    /// Id of this set, in this order; a new set is added.
    pub fn intern(&mut self, set: &[Label]) -> LabelSetId {
        let h = hash(set);
        let LabelTable { labels, ends, index } = self;
        if let Some(&id) = index.find(h, |&id| slice(labels, ends, id) == set) {
            return LabelSetId(id);
        }
        let id = ends.len() as u32;
        labels.extend_from_slice(set);
        ends.push(labels.len());
        index.insert_unique(h, id, |&id| hash(slice(labels, ends, id)));
        LabelSetId(id)
    }

    /// Another id of the same labels, which distinguishes samples until they are finished.
    pub fn twin(&mut self, id: LabelSetId) -> LabelSetId {
        let start = if id.0 == 0 { 0 } else { self.ends[id.0 as usize - 1] };
        self.labels.extend_from_within(start..self.ends[id.0 as usize]);
        self.ends.push(self.labels.len());
        LabelSetId(self.ends.len() as u32 - 1)
    }

    /// The labels of `set` under a new id, even if others have the same.
    pub fn add(&mut self, set: &[Label]) -> LabelSetId {
        let sets = self.len();
        let id = self.intern(set);
        if self.len() > sets { id } else { self.twin(id) }
    }

    /// The labels of a set.
    #[inline]
    pub fn get(&self, id: LabelSetId) -> &[Label] {
        slice(&self.labels, &self.ends, id.0)
    }

    /// Value of the label `key` in a set.
    pub fn value(&self, id: LabelSetId, key: StrId) -> Option<LabelValue> {
        self.get(id).iter().find(|l| l.key == key).map(|l| l.value)
    }

    /// The keys of all labels, each once, in the order in which they first appear.
    pub fn keys(&self) -> Vec<StrId> {
        let mut seen = FxHashSet::default();
        self.labels.iter().map(|label| label.key).filter(|&key| seen.insert(key)).collect()
    }

    /// Number of sets, the empty one included.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Always false: the empty set always exists.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sets_have_one_id() {
        let mut t = LabelTable::default();
        let pid = Label { key: StrId(1), value: LabelValue::Num { value: 7, unit: StrId::EMPTY } };
        let comm = Label { key: StrId(2), value: LabelValue::Str(StrId(3)) };
        let a = t.intern(&[pid, comm]);
        assert_eq!(t.intern(&[pid, comm]), a);
        assert_ne!(t.intern(&[pid]), a);
        assert_eq!(t.intern(&[]), LabelSetId::EMPTY);
        let twin = t.twin(a);
        assert_ne!(twin, a);
        assert_eq!(t.get(twin), t.get(a).to_vec());
        assert_eq!(t.intern(&[pid, comm]), a);
        assert_eq!(t.value(a, StrId(2)), Some(LabelValue::Str(StrId(3))));
        assert_eq!(t.keys(), [StrId(1), StrId(2)]);
        assert_eq!(t.value(a, StrId(9)), None);
    }
}
