//! A cache of limited size.

use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Values by key. Those that were not used for a while are dropped; each use costs the same.
pub struct Recent<K, V> {
    young: FxHashMap<K, (V, usize)>,
    old: FxHashMap<K, (V, usize)>,
    /// Sizes of `young`.
    held: usize,
    /// Limit of all sizes.
    most: usize,
}

impl<K: Copy + Eq + Hash, V> Recent<K, V> {
    /// An empty cache for values with these sizes in all.
    pub fn new(most: usize) -> Recent<K, V> {
        Recent { young: FxHashMap::default(), old: FxHashMap::default(), held: 0, most }
    }

    /// Size of all values.
    #[cfg(feature = "testing")]
    pub fn held(&self) -> usize {
        self.young.values().chain(self.old.values()).map(|(_, size)| size).sum()
    }

    /// Removes a value, to use and store it again.
    pub fn take(&mut self, key: &K) -> Option<V> {
        if let Some((value, size)) = self.young.remove(key) {
            self.held -= size;
            return Some(value);
        }
        self.old.remove(key).map(|(value, _)| value)
    }

    /// A copy of a value of size 1.
    pub fn copied(&mut self, key: &K) -> Option<V>
    where
        V: Copy,
    {
        if let Some(&(value, _)) = self.young.get(key) {
            return Some(value);
        }
        let (value, _) = self.old.remove(key)?;
        self.insert(*key, value, 1);
        Some(value)
    }

    /// Stores a value.
    pub fn insert(&mut self, key: K, value: V, size: usize) {
        self.take(&key);
        if !self.young.is_empty() && self.held + size > self.most / 2 {
            self.old = std::mem::take(&mut self.young);
            self.held = 0;
        }
        self.held += size;
        self.young.insert(key, (value, size));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_that_were_not_used_are_dropped() {
        let mut cache = Recent::new(8);
        for i in 0..100 {
            cache.insert(i, i, 1);
            assert_eq!(cache.copied(&0), Some(0), "{i}");
            assert!(cache.young.len() + cache.old.len() <= 8);
        }
        assert_eq!((cache.copied(&1), cache.copied(&99)), (None, Some(99)));
        // A large one displaces no more than a small one.
        cache.insert(200, 7, 30);
        for _ in 0..9 {
            assert_eq!((cache.copied(&0), cache.take(&200)), (Some(0), Some(7)));
            cache.insert(200, 7, 30);
        }
        assert_eq!((cache.take(&200), cache.take(&200)), (Some(7), None));
    }
}
