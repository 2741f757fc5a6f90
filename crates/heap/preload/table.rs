//! Sampled addresses in use: a filter that `free` checks each time, and a table.
//!
//! Both are in memory that is zeroed in a child after `fork`: a child's frees of inherited memory
//! are not its own. No locks: an address belongs to one thread while it is inserted or removed.

use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed,
};

/// Counters of the filter. [`crate::hooks`] computes the same index as [`filter_index`].
pub const FILTER: usize = 1 << 16;

/// Multiplier of the hash (2^32 divided by the golden ratio, odd).
pub const FACTOR: u32 = 0x9e37_79b1;

/// Buckets of the table, each a cache line of addresses, one of ids and one of sizes. Only a few
/// are used while they have space, so that they stay in the caches.
const FEW: usize = 1 << 10;
const MANY: usize = 1 << 16;
const WAYS: usize = 8;
/// Number of buckets that may contain an address.
const NEAR: usize = 4;

/// Placeholder of an address whose id is not written yet.
const TAKEN: usize = 1;

#[repr(C, align(64))]
struct Bucket {
    addresses: [AtomicUsize; WAYS],
    ids: [AtomicU64; WAYS],
    sizes: [AtomicU64; WAYS],
}

/// Sampled allocations of a process.
#[repr(C, align(4096))]
pub struct Process {
    /// Counters of sampled addresses by [`filter_index`]; a full one stays full.
    pub filter: [AtomicU8; FILTER],
    few: [Bucket; FEW],
    many: [Bucket; MANY],
    /// True if the many buckets are in use.
    overflown: AtomicBool,
    /// PID; 0: the process has just been forked.
    pub pid: AtomicI32,
    /// Number under which it identified itself; 0: it could not, or has not yet.
    pub number: AtomicU32,
    /// True if the functions that call the allocator for others have been reported.
    pub reported: AtomicBool,
}

/// Index of an address in the filter.
pub fn filter_index(address: usize) -> usize {
    (((address >> 4) as u32).wrapping_mul(FACTOR) >> 16) as usize
}

/// The buckets of a part of the table that may contain an address.
fn near(part: &[Bucket], address: usize) -> impl Iterator<Item = &Bucket> {
    let first = (address as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..NEAR).map(move |i| &part[(first as usize + i) % part.len()])
}

/// Inserts an address into one of these buckets; false if there is no space.
fn insert_near(part: &[Bucket], address: usize, id: u64, size: u64) -> bool {
    near(part, address).any(|bucket| {
        let mut places = bucket.addresses.iter().zip(&bucket.ids).zip(&bucket.sizes);
        places.any(|((place, name), bytes)| {
            let taken = place.load(Relaxed) == 0
                && place.compare_exchange(0, TAKEN, Relaxed, Relaxed).is_ok();
            if taken {
                name.store(id, Relaxed);
                bytes.store(size, Relaxed);
                place.store(address, Relaxed);
            }
            taken
        })
    })
}

impl Process {
    /// Inserts an address, with the id and the size in bytes (0: unknown) of its allocation; false
    /// if there is no space.
    pub fn insert(&self, address: usize, id: u64, size: u64) -> bool {
        if !insert_near(&self.few, address, id, size) {
            self.overflown.store(true, Relaxed);
            if !insert_near(&self.many, address, id, size) {
                return false;
            }
        }
        let filter = &self.filter[filter_index(address)];
        let _ = filter.fetch_update(Relaxed, Relaxed, |n: u8| n.checked_add(1));
        true
    }

    /// Removes an address; returns its id if it was there.
    pub fn remove(&self, address: usize) -> Option<u64> {
        let many = self.overflown.load(Relaxed).then(|| near(&self.many, address));
        for bucket in near(&self.few, address).chain(many.into_iter().flatten()) {
            for (place, name) in bucket.addresses.iter().zip(&bucket.ids) {
                if place.load(Relaxed) == address {
                    let id = name.load(Relaxed);
                    place.store(0, Relaxed);
                    let filter = &self.filter[filter_index(address)];
                    let fewer = |n: u8| (n < u8::MAX).then(|| n.saturating_sub(1));
                    let _ = filter.fetch_update(Relaxed, Relaxed, fewer);
                    return Some(id);
                }
            }
        }
        None
    }

    /// True if it contains no address.
    pub fn is_empty(&self) -> bool {
        let many = if self.overflown.load(Relaxed) { &self.many[..] } else { &[] };
        let mut buckets = self.few.iter().chain(many);
        buckets.all(|bucket| bucket.addresses.iter().all(|place| place.load(Relaxed) == 0))
    }
}

/// Layout of a copied [`Process`], for reading it from outside.
#[allow(dead_code, reason = "the library itself does not")]
pub mod copy {
    use core::mem::offset_of;

    use super::{Bucket, FEW, MANY, Process, TAKEN, WAYS};

    /// Offset and size in bytes of its buckets: the few, and the many.
    pub const FEW_AT: (usize, usize) = (offset_of!(Process, few), FEW * size_of::<Bucket>());
    /// See [`FEW_AT`].
    pub const MANY_AT: (usize, usize) = (offset_of!(Process, many), MANY * size_of::<Bucket>());
    /// Offset of the byte that is 1 if the many buckets are in use.
    pub const OVERFLOWN_AT: usize = offset_of!(Process, overflown);

    /// Entries of copied buckets: address, id and size (0: unknown) of each.
    pub fn entries(buckets: &[u8]) -> impl Iterator<Item = (u64, u64, u64)> {
        let words = buckets.as_chunks::<8>().0.as_chunks::<{ 3 * WAYS }>().0;
        let entries = words.iter().flat_map(|bucket| {
            let word = |i: usize| u64::from_ne_bytes(bucket[i]);
            (0..WAYS).map(move |i| (word(i), word(WAYS + i), word(2 * WAYS + i)))
        });
        entries.filter(|&(address, ..)| address > TAKEN as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Zeroed memory, as from the kernel.
    fn process() -> Box<Process> {
        let layout = std::alloc::Layout::new::<Process>();
        // SAFETY: the memory has that layout, and all of it may be zero.
        unsafe { Box::from_raw(std::alloc::alloc_zeroed(layout).cast()) }
    }

    fn bytes(process: &Process, (at, length): (usize, usize)) -> &[u8] {
        let first = std::ptr::from_ref(process).cast::<u8>();
        // SAFETY: a part of it, for which any bytes are valid.
        unsafe { std::slice::from_raw_parts(first.add(at), length) }
    }

    fn entries(process: &Process) -> Vec<(u64, u64, u64)> {
        let few = copy::entries(bytes(process, copy::FEW_AT));
        let many = copy::entries(bytes(process, copy::MANY_AT));
        let mut all: Vec<_> = few.chain(many).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn an_inserted_address_is_removed_once() {
        let process = process();
        assert!(process.is_empty());
        assert!(process.insert(0x5000, 7, 64) && process.insert(0x6000, 8, 0));
        assert_eq!(entries(&process), [(0x5000, 7, 64), (0x6000, 8, 0)]);
        assert_ne!(process.filter[filter_index(0x5000)].load(Relaxed), 0);
        assert_eq!(process.remove(0x5010), None);
        assert_eq!((process.remove(0x5000), process.remove(0x5000)), (Some(7), None));
        assert_eq!(process.filter[filter_index(0x5000)].load(Relaxed), 0);
        assert!(!process.is_empty());
        assert_eq!(process.remove(0x6000), Some(8));
        assert!(process.is_empty() && entries(&process).is_empty());
    }

    #[test]
    fn an_overflow_goes_to_the_many_buckets() {
        let process = process();
        let addresses = || (1..=4 * FEW * WAYS).map(|i| 0x7f00_0000_0000 + 48 * i);
        let overflown = || bytes(&process, (copy::OVERFLOWN_AT, 1))[0];
        for (id, address) in addresses().enumerate() {
            assert!(process.insert(address, id as u64 + 1, 40), "{id}");
        }
        assert_eq!((overflown(), entries(&process).len()), (1, 4 * FEW * WAYS));
        for (id, address) in addresses().enumerate() {
            assert_eq!(process.remove(address), Some(id as u64 + 1));
        }
        assert!(process.is_empty());
        // A counter that was full stays full: its addresses are searched in the table.
        assert!(process.filter.iter().all(|n| matches!(n.load(Relaxed), 0 | u8::MAX)));
    }

    #[test]
    fn a_full_neighbourhood_takes_no_more() {
        let process = process();
        let mut refused = 0;
        for id in 1..=(2 * NEAR * WAYS) as u64 + 3 {
            // The same address always has the same few buckets.
            refused += u64::from(!process.insert(0x1000, id, 8));
        }
        assert_eq!(refused, 3);
        assert_eq!(entries(&process).len(), 2 * NEAR * WAYS);
    }
}
