//! Copies of parts of sections, in the memory of a recording.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

/// Most bytes of all copies of a recording. `.eh_frame` and its search table have 9 MB in LLVM,
/// 7 MB in rustc's driver and 3 MB in g++, but a compiler uses a part of them.
const MAX_COPIES: usize = 16 << 20;

/// Least size with which a copy counts: so there are not too many to find the oldest one.
const LEAST: usize = 1024;

/// Largest budget for copying, and what each lookup adds to it, in bytes. So copies that push one
/// another out do not take more time than the lookups that they serve.
const BUDGET: usize = 64 << 20;
const REFILL: usize = 1024;

/// A part of an image's sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The first pairs of all parts of the search table.
    Firsts,
    /// A part of the search table.
    Table(u32),
    /// A part of `.eh_frame`, and what an entry that begins in it may have beyond it.
    Frame(u32),
}

/// A part, and the number of its image.
type Key = (u32, Part);

#[derive(Debug)]
struct Piece {
    key: Key,
    bytes: Box<[u8]>,
    /// [`Pieces::lookups`] at its last use.
    used: u64,
}

impl Piece {
    fn size(&self) -> usize {
        self.bytes.len().max(LEAST)
    }
}

/// The copies of a recording: what was not used for the longest time is dropped for others.
#[derive(Debug)]
pub struct Pieces {
    all: Vec<Piece>,
    /// Places in `all`.
    places: FxHashMap<Key, usize>,
    size: usize,
    most: usize,
    lookups: u64,
    budget: usize,
}

impl Pieces {
    /// At most `most` bytes.
    fn of(most: usize) -> Pieces {
        let (all, places) = (Vec::new(), FxHashMap::default());
        Pieces { all, places, size: 0, most, lookups: 0, budget: BUDGET }
    }

    /// A part of an image.
    pub fn get(&mut self, image: u32, part: Part) -> Option<&[u8]> {
        let piece = &mut self.all[*self.places.get(&(image, part))?];
        piece.used = self.lookups;
        Some(&piece.bytes)
    }

    /// True if the part is there, or was copied just now. `copy` gives its `length` bytes.
    pub fn provide(
        &mut self,
        image: u32,
        part: Part,
        length: usize,
        copy: impl FnOnce() -> Option<Vec<u8>>,
    ) -> bool {
        if self.get(image, part).is_some() {
            return true;
        }
        if length > self.budget || length.max(LEAST) > self.most {
            return false;
        }
        self.budget -= length;
        let Some(bytes) = copy() else { return false };
        let piece = Piece { key: (image, part), bytes: bytes.into(), used: self.lookups };
        self.shrink(self.most - piece.size());
        self.size += piece.size();
        self.places.insert(piece.key, self.all.len());
        self.all.push(piece);
        true
    }

    /// Drops copies until the others have at most so many bytes.
    fn shrink(&mut self, size: usize) {
        while self.size > size {
            let used = self.all.iter().enumerate().map(|(at, piece)| (piece.used, at));
            let Some((_, oldest)) = used.min() else { return };
            let dropped = self.all.swap_remove(oldest);
            self.size -= dropped.size();
            self.places.remove(&dropped.key);
            if let Some(moved) = self.all.get(oldest) {
                self.places.insert(moved.key, oldest);
            }
        }
    }

    /// True if copies with so many bytes push no others out.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.size + bytes + bytes / 16 <= self.most
    }

    /// A rule is looked up.
    pub fn count_lookup(&mut self) {
        self.lookups += 1;
        self.budget = (self.budget + REFILL).min(BUDGET);
    }

    /// Bytes that all take.
    #[cfg(test)]
    pub fn size(&self) -> usize {
        self.size
    }
}

/// The copies of a recording, shared by its images.
#[derive(Clone, Debug)]
pub struct CopyMemory(Arc<Mutex<Pieces>>);

impl Default for CopyMemory {
    fn default() -> CopyMemory {
        CopyMemory::of(MAX_COPIES)
    }
}

impl CopyMemory {
    /// Memory for at most so many bytes.
    pub fn of(most: usize) -> CopyMemory {
        CopyMemory(Arc::new(Mutex::new(Pieces::of(most))))
    }

    /// The copies. One thread at a time uses them.
    pub fn pieces(&self) -> MutexGuard<'_, Pieces> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases half of the copies, those that were not used for the longest time.
    pub fn halve(&self) {
        let mut pieces = self.pieces();
        let half = pieces.size / 2;
        pieces.shrink(half);
    }

    /// Releases all copies; they are made again when they are needed.
    pub fn clear(&self) {
        let mut pieces = self.pieces();
        let Pieces { most, budget, .. } = *pieces;
        *pieces = Pieces { budget, ..Pieces::of(most) };
    }
}
