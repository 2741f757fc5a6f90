//! Ids of mappings, functions and locations: any non-zero numbers in a file, dense indexes in a
//! profile.
//!
//! Nearly every writer numbers from 1 in file order, so a use of an id is stored as the index `id -
//! 1`, which mostly is already right when everything has been read. Otherwise,
//! [`IdSpace::resolver`] translates.

use std::collections::HashMap;

use crate::error::ReadError;

/// Uses of ids from here on are stored as indexes into a table of large ids.
pub(super) const LARGE: u32 = 1 << 31;

/// The ids of one kind of element.
pub(super) struct IdSpace {
    what: &'static str,
    /// Number of elements defined.
    defined: u32,
    /// Ids in order of definition; empty while element number i has the id i + 1.
    ids: Vec<u64>,
    /// Ids too large to be stored directly, in order of first use.
    large: Vec<u64>,
    // The standard hasher, because the keys come from the file.
    large_index: HashMap<u64, u32>,
    /// Largest use that is not in `large`, and its offset in the stream.
    max_use: u32,
    max_use_at: u64,
}

impl IdSpace {
    /// An empty id space of `what` ("location").
    pub(super) fn new(what: &'static str) -> IdSpace {
        IdSpace {
            what,
            defined: 0,
            ids: Vec::new(),
            large: Vec::new(),
            large_index: HashMap::new(),
            max_use: 0,
            max_use_at: 0,
        }
    }

    /// Defines the id of the next element.
    pub(super) fn define(&mut self, id: u64, at: u64) -> Result<(), ReadError> {
        if id == 0 {
            return Err(ReadError::at(at, format!("a {} without an id", self.what)));
        }
        let dense = id == u64::from(self.defined) + 1;
        if !dense && self.ids.is_empty() {
            self.ids.extend(1..=u64::from(self.defined));
        }
        if !dense || !self.ids.is_empty() {
            self.ids.push(id);
        }
        self.defined += 1;
        Ok(())
    }

    /// Stored form of a use of `id`, if it is not simply `id - 1`.
    #[cold]
    pub(super) fn unusual(&mut self, id: u64, at: u64) -> Result<u32, ReadError> {
        if id == 0 {
            return Err(ReadError::at(at, format!("{} id 0 is used, which means none", self.what)));
        }
        let IdSpace { large, large_index, .. } = self;
        let index = *large_index.entry(id).or_insert_with(|| {
            large.push(id);
            large.len() as u32 - 1
        });
        // 2^31 different ids do not fit into the largest stream that is read.
        Ok(LARGE + index)
    }

    /// Stores a use of `id`, found at `at`.
    #[inline]
    pub(super) fn keep(&mut self, id: u64, at: u64) -> Result<u32, ReadError> {
        let key = id.wrapping_sub(1);
        if key >= u64::from(LARGE) {
            return self.unusual(id, at);
        }
        self.used(key as u32, at);
        Ok(key as u32)
    }

    /// Records a use that the caller stores.
    #[inline]
    pub(super) fn used(&mut self, key: u32, at: u64) {
        if key > self.max_use {
            (self.max_use, self.max_use_at) = (key, at);
        }
    }

    /// Its memory.
    pub(super) fn bytes(&self) -> u64 {
        8 * self.ids.len() as u64 + 40 * self.large.len() as u64
    }

    /// A translator of uses; an error if two elements share an id.
    pub(super) fn resolver(&self) -> Result<Resolver, ReadError> {
        if self.ids.is_empty() && self.large.is_empty() {
            return Ok(Resolver::Dense { defined: self.defined });
        }
        let implied = 1..=u64::from(self.defined);
        let ids: Box<dyn Iterator<Item = u64>> = if self.ids.is_empty() {
            Box::new(implied)
        } else {
            Box::new(self.ids.iter().copied())
        };
        let max_small = self.ids.iter().filter(|&&id| id <= u64::from(LARGE)).max();
        let direct = max_small.copied().unwrap_or(0).max(u64::from(self.defined));
        // A table by id, unless ids are so sparse that it would be larger than a hash table.
        let table_len = if direct <= 8 * u64::from(self.defined) + 64 { direct } else { 0 };
        let mut by_key = vec![u32::MAX; table_len as usize];
        let mut by_id: HashMap<u64, u32> = HashMap::new();
        for (index, id) in ids.enumerate() {
            let index = index as u32;
            let duplicate = match by_key.get_mut((id - 1) as usize) {
                Some(slot) => std::mem::replace(slot, index) != u32::MAX,
                None => by_id.insert(id, index).is_some(),
            };
            if duplicate {
                return Err(ReadError::content(format!("two {}s have the id {id}", self.what)));
            }
        }
        let large = self.large.iter().map(|id| by_id.get(id).copied()).collect();
        Ok(Resolver::Mapped { by_key, by_id, large })
    }

    /// The error for a use without a definition.
    pub(super) fn undefined(&self, key: u32) -> ReadError {
        let what = self.what;
        let id = match key.checked_sub(LARGE) {
            Some(large) => self.large[large as usize],
            None => u64::from(key) + 1,
        };
        let text = format!("{what} {id} is used, but the file does not define it");
        if key == self.max_use {
            ReadError::at(self.max_use_at, text)
        } else {
            ReadError::content(text)
        }
    }

    /// Largest use that was stored directly.
    pub(super) fn max_use(&self) -> u32 {
        self.max_use
    }
}

/// Translates stored uses of ids into indexes.
pub(super) enum Resolver {
    /// A use is the index already, if it is below `defined`.
    Dense { defined: u32 },
    /// By table.
    Mapped { by_key: Vec<u32>, by_id: HashMap<u64, u32>, large: Vec<Option<u32>> },
}

impl Resolver {
    /// The index for a stored use, if there is such an element.
    #[inline]
    pub(super) fn index(&self, key: u32) -> Option<u32> {
        match self {
            Resolver::Dense { defined } => (key < *defined).then_some(key),
            Resolver::Mapped { by_key, by_id, large } => match key.checked_sub(LARGE) {
                Some(i) => large[i as usize],
                None => match by_key.get(key as usize) {
                    Some(&index) => (index != u32::MAX).then_some(index),
                    None => by_id.get(&(u64::from(key) + 1)).copied(),
                },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(defined: &[u64], used: &[u64]) -> Result<Vec<Option<u32>>, ReadError> {
        let mut space = IdSpace::new("location");
        for &id in defined {
            space.define(id, 0)?;
        }
        let keys = used.iter().map(|&id| space.keep(id, 0)).collect::<Result<Vec<_>, _>>()?;
        let resolver = space.resolver()?;
        Ok(keys.into_iter().map(|k| resolver.index(k)).collect())
    }

    #[test]
    fn ids_of_every_kind_resolve() {
        assert_eq!(resolve(&[1, 2, 3], &[3, 1, 4]).unwrap(), [Some(2), Some(0), None]);
        assert_eq!(resolve(&[3, 1, 2], &[3, 1, 2, 9]).unwrap(), [Some(0), Some(1), Some(2), None]);
        assert_eq!(resolve(&[1, 2, 9], &[2, 9, 3]).unwrap(), [Some(1), Some(2), None]);
        assert_eq!(resolve(&[5000, 7], &[7, 5000, 1]).unwrap(), [Some(1), Some(0), None]);
        let far = 0xffff_8000_0000_1234;
        assert_eq!(resolve(&[far, 1], &[1, far, far - 1]).unwrap(), [Some(1), Some(0), None]);
        assert_eq!(resolve(&[1, far], &[far]).unwrap(), [Some(1)]);
        assert_eq!(resolve(&[1 << 31, u64::MAX], &[1 << 31, u64::MAX]).unwrap().len(), 2);
        let edge = (1u64 << 31) + 1;
        assert_eq!(resolve(&[edge - 1, edge], &[edge, edge - 1]).unwrap(), [Some(1), Some(0)]);
    }

    #[test]
    fn bad_ids_are_errors() {
        assert!(resolve(&[0], &[]).is_err());
        assert!(resolve(&[1], &[0]).is_err());
        for twice in [[1, 2, 1], [9000, 9000, 1], [u64::MAX, 4, u64::MAX]] {
            let e = resolve(&twice, &[]).unwrap_err().to_string();
            assert!(e.contains("two locations have the id"), "{e}");
        }
    }
}
