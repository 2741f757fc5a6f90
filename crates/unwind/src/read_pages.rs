//! Memory of the pages of a file that is read from its beginning to its end.

use sys::own_memory::FilePages;

/// Steps between two checks.
const STEPS: u32 = 32;

/// Bytes that are read between two checks, by steps of a few bytes.
pub const BETWEEN_CHECKS: usize = 1 << 20;

/// Releases the pages of a file while it is read.
pub struct ReadPages<'a> {
    drop_pages: &'a dyn Fn(),
    steps: u32,
    pages: FilePages,
}

impl<'a> ReadPages<'a> {
    /// `drop_pages` releases the memory of the pages that were read.
    pub fn new(drop_pages: &'a dyn Fn()) -> ReadPages<'a> {
        ReadPages { drop_pages, steps: 0, pages: FilePages::default() }
    }

    /// Something else was read.
    pub fn step(&mut self) {
        self.steps += 1;
        if self.steps >= STEPS {
            self.check();
        }
    }

    /// Releases the pages if many were read.
    pub fn check(&mut self) {
        self.steps = 0;
        self.pages.check(self.drop_pages);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Write;

    use super::*;
    use sys::image::Bytes;

    #[test]
    fn pages_that_were_read_are_released() {
        const SIZE: usize = 64 << 20;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; SIZE]).unwrap();
        let bytes = Bytes::File(sys::mmap::map(&file).unwrap());
        let releases = Cell::new(0);
        let drop_pages = || {
            releases.set(releases.get() + 1);
            bytes.drop_pages();
        };
        let mut pages = ReadPages::new(&drop_pages);
        let mut sum = 0;
        for byte in bytes.iter().step_by(4096) {
            sum += usize::from(*byte);
            pages.step();
        }
        // After 2 MiB, or the 32 pages after which the size is read; each may be one of 2 MiB.
        assert!(releases.get() >= 8, "{}", releases.get());
        assert_eq!(sum, SIZE / 4096);
    }
}
