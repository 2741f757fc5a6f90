//! Stacks as slices of location ids, leaf first.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::HashTable;
use rustc_hash::FxHasher;

use super::LocationId;

/// Index of a stack in a [`StackTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

/// All stacks of a profile, in one array. They are most of a profile, and most changes leave them as
/// they are: copies share them until one is changed.
#[derive(Clone, Debug, Default)]
pub struct StackTable {
    shared: Arc<Stacks>,
}

#[derive(Clone, Debug, Default)]
struct Stacks {
    frames: Vec<LocationId>,
    /// End of each stack in `frames`; it begins at the end of the previous one.
    ends: Vec<usize>,
}

impl StackTable {
    /// A table of the stacks that end at `ends` in `frames`; each begins at the end of the previous
    /// one. `ends` must not decrease, and its last must be the number of frames.
    pub fn from_parts(frames: Vec<LocationId>, ends: Vec<usize>) -> StackTable {
        debug_assert!(ends.is_sorted() && ends.last().copied().unwrap_or(0) == frames.len());
        StackTable { shared: Arc::new(Stacks { frames, ends }) }
    }

    /// Adds a stack (leaf first), without a search for an equal one.
    pub fn push(&mut self, frames: &[LocationId]) -> StackId {
        self.push_iter(frames.iter().copied())
    }

    /// Adds a stack from an iterator (leaf first).
    pub fn push_iter(&mut self, frames: impl IntoIterator<Item = LocationId>) -> StackId {
        let stacks = Arc::make_mut(&mut self.shared);
        let id = StackId(stacks.ends.len() as u32);
        stacks.frames.extend(frames);
        stacks.ends.push(stacks.frames.len());
        id
    }

    /// Frames of a stack, leaf first.
    #[inline]
    pub fn get(&self, id: StackId) -> &[LocationId] {
        let Stacks { frames, ends } = &*self.shared;
        let i = id.0 as usize;
        let start = if i == 0 { 0 } else { ends[i - 1] };
        &frames[start..ends[i]]
    }

    /// Number of stacks.
    pub fn len(&self) -> usize {
        self.shared.ends.len()
    }

    /// True if there is no stack.
    pub fn is_empty(&self) -> bool {
        self.shared.ends.is_empty()
    }

    /// Number of frames of all stacks together.
    pub fn frame_count(&self) -> usize {
        self.shared.frames.len()
    }

    /// Removes the other stacks, and replaces the frames of those that are used. Returns the new
    /// ids, by the old ones.
    pub(super) fn retain(
        &mut self,
        is_used: &[bool],
        mut frame: impl FnMut(LocationId) -> LocationId,
    ) -> Vec<StackId> {
        let Stacks { frames, ends } = Arc::make_mut(&mut self.shared);
        let [mut begin, mut frame_count, mut stack_count] = [0; 3];
        let mut ids = Vec::with_capacity(ends.len());
        for number in 0..ends.len() {
            ids.push(StackId(stack_count as u32));
            let stack = begin..ends[number];
            begin = stack.end;
            if !is_used[number] {
                continue;
            }
            for at in stack {
                frames[frame_count] = frame(frames[at]);
                frame_count += 1;
            }
            ends[stack_count] = frame_count;
            stack_count += 1;
        }
        frames.truncate(frame_count);
        ends.truncate(stack_count);
        ids
    }

    /// Reserves space for additional stacks and frames.
    pub fn reserve(&mut self, stacks: usize, frames: usize) {
        let reserved = Arc::make_mut(&mut self.shared);
        reserved.ends.reserve(stacks);
        reserved.frames.reserve(frames);
    }
}

/// A table of stacks that are all distinct.
#[derive(Clone, Debug, Default)]
pub struct StackInterner {
    pub(super) table: StackTable,
    index: HashTable<u32>,
}

impl StackInterner {
    /// A table with space for stacks and frames: growing would hash all stacks again.
    pub fn with_capacity(stacks: usize, frames: usize) -> StackInterner {
        let mut table = StackTable::default();
        table.reserve(stacks, frames);
        StackInterner { table, index: HashTable::with_capacity(stacks) }
    }

    /// Id of a stack (leaf first); a new one is added.
    pub fn intern(&mut self, frames: &[LocationId]) -> StackId {
        let StackInterner { table, index } = self;
        let h = hash(frames);
        if let Some(&id) = index.find(h, |&id| table.get(StackId(id)) == frames) {
            return StackId(id);
        }
        let id = table.push(frames);
        index.insert_unique(h, id.0, |&id| hash(table.get(StackId(id))));
        id
    }

    /// Number of stacks.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if there is no stack.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The table.
    pub fn finish(self) -> StackTable {
        self.table
    }
}

#[inline]
fn hash(frames: &[LocationId]) -> u64 {
    let mut h = FxHasher::default();
    frames.hash(&mut h);
    h.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_have_one_id() {
        let mut stacks = StackInterner::default();
        let a = stacks.intern(&[LocationId(3), LocationId(1)]);
        let empty = stacks.intern(&[]);
        assert_eq!(stacks.intern(&[LocationId(3), LocationId(1)]), a);
        assert_eq!(stacks.intern(&[]), empty);
        assert_eq!(stacks.finish().len(), 2);
    }

    #[test]
    fn copies_share_their_stacks_until_one_is_changed() {
        let mut table = StackTable::default();
        let first = table.push(&[LocationId(3), LocationId(1)]);
        let mut copy = table.clone();
        assert!(std::ptr::eq(table.get(first), copy.get(first)));
        copy.push(&[LocationId(2)]);
        assert_eq!((table.len(), copy.len()), (1, 2));
        assert_eq!(table.get(first), copy.get(first));
    }

    #[test]
    fn stacks_come_back_as_pushed() {
        let mut t = StackTable::default();
        let a = t.push(&[LocationId(3), LocationId(1)]);
        let empty = t.push(&[]);
        let b = t.push(&[LocationId(2)]);
        assert_eq!(t.get(a), [LocationId(3), LocationId(1)]);
        assert_eq!(t.get(empty), []);
        assert_eq!(t.get(b), [LocationId(2)]);
        assert_eq!((t.len(), t.frame_count()), (3, 3));
    }
}
