//! Memory of a process, read by address.

use std::cell::Cell;
use std::fmt;

pub(crate) use blocks::Blocks;
#[cfg(test)]
pub(crate) use counted::Counted;
#[cfg(any(test, feature = "testing"))]
pub use recorded::{Recorded, Recorder};

mod blocks;
#[cfg(test)]
mod counted;
#[cfg(any(test, feature = "testing"))]
mod recorded;

/// Memory of a process. Nothing in it is trusted: no length that it contains bounds a read.
pub trait Memory {
    /// Fills the buffer with the bytes at an address.
    ///
    /// # Errors
    ///
    /// Not all of them can be read. The buffer may have been changed.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError>;

    /// True if it is a copy of a part, in which the ends of large objects are missing.
    fn is_copy(&self) -> bool {
        false
    }

    /// From now on, reads what the process has then: what was kept of earlier reads is forgotten.
    fn renew(&self) {}
}

/// The reason why memory could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// It is not mapped, or may not be read.
    Unmapped,
    /// The process has ended.
    Ended,
    /// This user may not read memory of the process.
    Denied,
    /// What may be read at this time is used up.
    Budget,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReadError::Unmapped => "its memory is not mapped",
            ReadError::Ended => "the process has ended",
            ReadError::Denied => "its memory may not be read",
            ReadError::Budget => "too much of its memory has been read",
        })
    }
}

impl dyn Memory + '_ {
    /// The word at an address.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn word(&self, address: u64) -> Result<u64, ReadError> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The 32-bit number at an address.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn half(&self, address: u64) -> Result<u32, ReadError> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}

/// How much may be read of a process until [`ProcessMemory::refill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes.
    pub bytes: usize,
    /// System calls.
    pub calls: usize,
}

/// Memory of a running process, by `process_vm_readv(2)`, within a budget.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: i32,
    left: Cell<Budget>,
}

impl ProcessMemory {
    /// Memory of a process, of which this much may be read.
    pub fn new(pid: i32, budget: Budget) -> ProcessMemory {
        ProcessMemory { pid, left: Cell::new(budget) }
    }

    /// Sets what may be read from now on.
    pub fn refill(&self, budget: Budget) {
        self.left.set(budget);
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let left = self.left.get();
        let bytes = left.bytes.checked_sub(buffer.len()).ok_or(ReadError::Budget)?;
        let calls = left.calls.checked_sub(1).ok_or(ReadError::Budget)?;
        self.left.set(Budget { bytes, calls });
        let size = buffer.len();
        match sys::os::read_memory(self.pid, address, buffer) {
            Ok(read) if read == size => Ok(()),
            Ok(_) => Err(ReadError::Unmapped),
            // Numbers of errors: errno-base.h.
            Err(error) => Err(match error.raw_os_error() {
                Some(1) => ReadError::Denied,
                Some(3) => ReadError::Ended,
                _ => ReadError::Unmapped,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENOUGH: Budget = Budget { bytes: 1000, calls: 10 };

    #[test]
    fn memory_of_a_process_is_read_within_the_budget() {
        let value = [7_u64, 8, 9];
        let address = value.as_ptr() as u64;
        let memory = ProcessMemory::new(std::process::id() as i32, ENOUGH);
        let words: &dyn Memory = &memory;
        assert_eq!((words.word(address + 8), words.half(address + 16)), (Ok(8), Ok(9)));
        assert_eq!(words.word(8), Err(ReadError::Unmapped));
        memory.refill(Budget { bytes: 15, calls: 10 });
        assert_eq!(words.word(address), Ok(7));
        assert_eq!(words.word(address), Err(ReadError::Budget));
        memory.refill(Budget { bytes: 100, calls: 1 });
        assert_eq!((words.word(address), words.word(address)), (Ok(7), Err(ReadError::Budget)));
    }

    #[test]
    fn a_process_that_has_ended_is_reported() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let memory = ProcessMemory::new(child.id() as i32, ENOUGH);
        assert_eq!((&memory as &dyn Memory).word(4096), Err(ReadError::Ended));
    }
}
