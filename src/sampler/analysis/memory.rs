//! The memory of the analysis: pages of files and caches are released before they are too many.

use std::time::{Duration, Instant};

use crate::sampler::aggregator::Aggregator;
use sys::os;
use sys::own_memory::FilePages;

/// Size of prof's memory that is neither of files nor a ring, above which caches are released.
/// With prof's own program, pages of files and the largest function that is analysed, it is less
/// than 64 MiB.
const MAX_ANONYMOUS: u64 = 40 << 20;

/// Interval at which that size is read, and least time between two releases of caches: what is
/// large may be something else.
const CHECK_EVERY: Duration = Duration::from_millis(50);
const RELEASE_EVERY: Duration = Duration::from_secs(1);

/// Watches the memory of the thread.
pub struct MemoryWatch {
    pages: FilePages,
    checked: Instant,
    /// When caches were released.
    released: Option<Instant>,
}

impl MemoryWatch {
    /// Begins to watch.
    pub fn new() -> MemoryWatch {
        MemoryWatch { pages: FilePages::default(), checked: Instant::now(), released: None }
    }

    /// Releases what takes too much memory. To be called after each event.
    pub fn release(&mut self, aggregator: &mut Aggregator) {
        self.pages.check(|| aggregator.maker.table.images.drop_pages());
        if self.checked.elapsed() < CHECK_EVERY {
            return;
        }
        self.checked = Instant::now();
        if !self.is_large() || self.released.is_some_and(|time| time.elapsed() < RELEASE_EVERY) {
            return;
        }
        aggregator.maker.drop_copies();
        os::release_free_memory();
        // What takes longest to find again is released last.
        if self.is_large() {
            aggregator.maker.drop_caches();
            os::release_free_memory();
        }
        self.released = Some(Instant::now());
    }

    fn is_large(&self) -> bool {
        self.pages.resident().is_some_and(|resident| resident.anonymous > MAX_ANONYMOUS)
    }
}
