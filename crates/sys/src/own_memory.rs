//! The resident memory of prof itself.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::arch::PAGE;
use crate::os;

/// Pages of files after which [`FilePages::check`] releases them, in bytes.
const MANY: u64 = 6 << 20;

/// `/proc/self/statm`, kept open.
pub struct OwnMemory(File);

/// Sizes of resident memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Pages of files, shared memory, and rings.
    pub shared: u64,
    /// All others.
    pub anonymous: u64,
}

impl OwnMemory {
    /// Opens the file.
    pub fn open() -> Option<OwnMemory> {
        File::open("/proc/self/statm").ok().map(OwnMemory)
    }

    /// The current sizes.
    pub fn resident(&self) -> Option<Resident> {
        let mut buffer = [0; 128];
        let length = self.0.read_at(&mut buffer, 0).ok()?;
        let text = std::str::from_utf8(&buffer[..length]).ok()?;
        let mut pages = text.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
        let (all, shared) = (pages.next()?.ok()?, pages.next()?.ok()?);
        Some(Resident { shared: shared * PAGE, anonymous: all.saturating_sub(shared) * PAGE })
    }
}

/// Releases the pages of files that a thread reads.
pub struct FilePages {
    memory: Option<OwnMemory>,
    /// Page faults of the thread at the last check: without new ones, nothing was read. One may map
    /// a page, or 2 MiB.
    faults: u64,
    /// [`Resident::shared`] after the last release.
    shared: u64,
}

impl Default for FilePages {
    fn default() -> FilePages {
        let memory = OwnMemory::open();
        let resident = memory.as_ref().and_then(OwnMemory::resident).unwrap_or_default();
        FilePages { memory, faults: os::thread_faults(), shared: resident.shared }
    }
}

impl FilePages {
    /// The current sizes of all memory.
    pub fn resident(&self) -> Option<Resident> {
        self.memory.as_ref().and_then(OwnMemory::resident)
    }

    /// Releases pages with `drop_pages`, if more than 6 MiB were read since the last time.
    pub fn check(&mut self, drop_pages: impl FnOnce()) {
        let faults = os::thread_faults();
        if faults == std::mem::replace(&mut self.faults, faults) {
            return;
        }
        let shared = || self.memory.as_ref()?.resident().map(|resident| resident.shared);
        let Some(now) = shared() else { return };
        // Less: something else was released.
        self.shared = self.shared.min(now);
        if now > self.shared + MANY {
            drop_pages();
            self.shared = shared().unwrap_or(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_memory_is_counted_when_it_is_used() {
        const SIZE: usize = 256 << 20;
        let memory = OwnMemory::open().unwrap();
        let before = memory.resident().unwrap().anonymous;
        let bytes = std::hint::black_box(vec![1_u8; SIZE]);
        let after = memory.resident().unwrap().anonymous;
        // Other tests may free memory at the same time, but less than this.
        assert!(after > before + SIZE as u64 / 4, "{before} {after}");
        drop(bytes);
    }
}
