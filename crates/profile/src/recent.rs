//! A direct-mapped cache of recent lookups.
//!
//! A recording sleeps between readings of the ring buffers, and finds its tables evicted from the
//! CPU's caches each time. An index costs three dependent memory accesses, this cache one.

/// Entries; a power of two.
const SLOTS: usize = 2048;

/// Maps keys to their most recently stored values.
pub struct Recent<K, V> {
    /// [`SLOTS`] of them, or none.
    slots: Vec<(K, V)>,
}

impl<K: Copy + Eq, V: Copy> Recent<K, V> {
    /// An empty cache; `never` is a key that is never looked up.
    pub fn new(never: K, value: V) -> Recent<K, V> {
        Recent { slots: vec![(never, value); SLOTS] }
    }

    /// A cache that keeps nothing.
    pub fn without_slots() -> Recent<K, V> {
        Recent { slots: Vec::new() }
    }

    /// The value, if it is still cached. `hash` is that of `key`, with well-distributed lower bits.
    #[inline]
    pub fn get(&self, hash: u64, key: K) -> Option<V> {
        let &(stored, value) = self.slots.get(slot(hash))?;
        (stored == key).then_some(value)
    }

    /// Stores a value in place of another.
    pub fn set(&mut self, hash: u64, key: K, value: V) {
        if let Some(slot) = self.slots.get_mut(slot(hash)) {
            *slot = (key, value);
        }
    }
}

fn slot(hash: u64) -> usize {
    hash as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_that_of_its_key_or_none() {
        let mut table = Recent::new(u64::MAX, 0);
        let hash = |k: u64| k % 16;
        for key in 0..32u64 {
            assert_eq!(table.get(hash(key), key), None);
            table.set(hash(key), key, key + 100);
            assert_eq!(table.get(hash(key), key), Some(key + 100));
        }
        // 16 share a slot with 16 others.
        assert_eq!((0..32).filter(|&k| table.get(hash(k), k).is_some()).count(), 16);
    }
}
