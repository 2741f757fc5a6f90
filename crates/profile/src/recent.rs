//! Answers that were given lately.
//!
//! A recording sleeps between looks at the ring buffers, and finds its tables out of the CPU's
//! caches each time. An index costs three memory accesses that wait for each other, this one.

/// Answers kept; a power of two.
const SLOTS: usize = 2048;

/// A table of the last answer to each of a few questions.
pub struct Recent<K, V> {
    slots: Box<[(K, V); SLOTS]>,
}

impl<K: Copy + Eq, V: Copy> Recent<K, V> {
    /// A table that knows nothing; `never` is a question that is never asked.
    pub fn new(never: K, answer: V) -> Recent<K, V> {
        Recent { slots: Box::new([(never, answer); SLOTS]) }
    }

    /// The answer, if it is still known. `hash` is that of `key`, with good lower bits.
    pub fn get(&self, hash: u64, key: K) -> Option<V> {
        let (known, answer) = self.slots[slot(hash)];
        (known == key).then_some(answer)
    }

    /// Keeps an answer instead of another.
    pub fn set(&mut self, hash: u64, key: K, answer: V) {
        self.slots[slot(hash)] = (key, answer);
    }
}

fn slot(hash: u64) -> usize {
    hash as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_that_of_the_question_or_none() {
        let mut table = Recent::new(u64::MAX, 0);
        let hash = |k: u64| k % 16;
        for key in 0..32u64 {
            assert_eq!(table.get(hash(key), key), None);
            table.set(hash(key), key, key + 100);
            assert_eq!(table.get(hash(key), key), Some(key + 100));
        }
        // Sixteen share a slot with sixteen others.
        assert_eq!((0..32).filter(|&k| table.get(hash(k), k).is_some()).count(), 16);
    }
}
