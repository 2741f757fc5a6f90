//! Interned strings: one arena, one hash index, ids of four bytes.

use std::borrow::Cow;
use std::hash::Hasher;

use hashbrown::HashTable;
use rustc_hash::FxHasher;

/// Index of a string in a [`StringTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct StrId(pub u32);

impl StrId {
    /// The empty string, always the first of a table (as in pprof's `string_table`).
    pub const EMPTY: StrId = StrId(0);
}

/// A table of distinct strings.
#[derive(Clone)]
pub struct StringTable {
    arena: String,
    /// End of each string in `arena`; it begins at the end of the previous one.
    ends: Vec<usize>,
    index: HashTable<u32>,
}

#[inline]
fn hash(s: &str) -> u64 {
    let mut h = FxHasher::default();
    h.write(s.as_bytes());
    h.finish()
}

impl Default for StringTable {
    fn default() -> Self {
        let mut table =
            StringTable { arena: String::new(), ends: Vec::new(), index: HashTable::new() };
        table.intern("");
        table
    }
}

impl std::fmt::Debug for StringTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl StringTable {
    /// Id of `s`; a new string is added.
    pub fn intern(&mut self, s: &str) -> StrId {
        let h = hash(s);
        let StringTable { arena, ends, index } = self;
        if let Some(&id) = index.find(h, |&id| slice(arena, ends, id) == s) {
            return StrId(id);
        }
        let id = ends.len() as u32;
        arena.push_str(s);
        ends.push(arena.len());
        index.insert_unique(h, id, |&id| hash(slice(arena, ends, id)));
        StrId(id)
    }

    /// Replaces the text of strings; their ids stay. Different ones may become equal.
    pub fn replace(&mut self, with: impl Fn(&str) -> Cow<'_, str>) {
        if self.iter().all(|s| matches!(with(s), Cow::Borrowed(_))) {
            return;
        }
        let old = std::mem::take(self);
        *self = StringTable { arena: String::new(), ends: Vec::new(), index: HashTable::new() };
        for s in old.iter() {
            let new = with(s);
            let id = self.ends.len() as u32;
            self.arena.push_str(&new);
            self.ends.push(self.arena.len());
            let StringTable { arena, ends, index } = self;
            let h = hash(&new);
            if index.find(h, |&id| slice(arena, ends, id) == new).is_none() {
                index.insert_unique(h, id, |&id| hash(slice(arena, ends, id)));
            }
        }
    }

    /// Reserves space for additional strings: growing step by step would hash all of them again
    /// each time.
    pub fn reserve(&mut self, strings: usize) {
        let StringTable { arena, ends, index } = self;
        ends.reserve(strings);
        index.reserve(strings, |&id| hash(slice(arena, ends, id)));
    }

    /// Id of `s`, if the table contains it.
    pub fn find(&self, s: &str) -> Option<StrId> {
        self.index.find(hash(s), |&id| slice(&self.arena, &self.ends, id) == s).map(|&id| StrId(id))
    }

    /// Text of a string. Panics if `id` is of another table and out of range.
    #[inline]
    pub fn get(&self, id: StrId) -> &str {
        slice(&self.arena, &self.ends, id.0)
    }

    /// Number of strings, the empty one included.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Always false: the empty string always exists.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All strings, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.iter_from(0)
    }

    /// Those from the id `first` on.
    pub fn iter_from(&self, first: usize) -> impl Iterator<Item = &str> {
        (first as u32..self.ends.len() as u32).map(|id| slice(&self.arena, &self.ends, id))
    }
}

#[inline]
fn slice<'a>(arena: &'a str, ends: &[usize], id: u32) -> &'a str {
    let start = if id == 0 { 0 } else { ends[id as usize - 1] };
    &arena[start..ends[id as usize]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_strings_keep_their_ids() {
        let mut t = StringTable::default();
        let ids = ["one", "t\x01", "t\x02"].map(|s| t.intern(s));
        t.replace(|s| s.replace(['\x01', '\x02'], "?").into());
        assert_eq!(ids.map(|id| t.get(id)), ["one", "t?", "t?"]);
        assert_eq!(t.find("t?"), Some(ids[1]));
        assert_eq!(t.find("t\x01"), None);
        assert_eq!(t.intern("new"), StrId(4));
        assert_eq!(t.get(StrId::EMPTY), "");
    }

    #[test]
    fn equal_strings_have_one_id() {
        let mut t = StringTable::default();
        let a = t.intern("main");
        assert_eq!(t.intern("main"), a);
        assert_ne!(t.intern("main2"), a);
        assert_eq!(t.get(a), "main");
        t.reserve(1000);
        assert_eq!(t.intern("main"), a);
        assert_eq!(t.intern(""), StrId::EMPTY);
        assert_eq!(t.find("nothing"), None);
        assert_eq!(t.iter().collect::<Vec<_>>(), ["", "main", "main2"]);
    }
}
