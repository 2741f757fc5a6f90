//! Memory of tests that counts what is read.

use std::cell::Cell;

use super::{Memory, ReadError, Recorded};

/// Recorded memory that counts what is read.
pub(crate) struct Counted<'a> {
    memory: &'a Recorded,
    /// Number of reads.
    pub calls: Cell<usize>,
    /// Their bytes.
    pub bytes: Cell<usize>,
}

impl<'a> Counted<'a> {
    /// Of which nothing was read yet.
    pub fn new(memory: &'a Recorded) -> Counted<'a> {
        Counted { memory, calls: Cell::new(0), bytes: Cell::new(0) }
    }
}

impl Memory for Counted<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.calls.set(self.calls.get() + 1);
        self.bytes.set(self.bytes.get() + buffer.len());
        self.memory.read(address, buffer)
    }
}
