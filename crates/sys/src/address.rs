//! Addresses of code by type: those of a process, those of an ELF file, and offsets in a file are
//! numbers of the same size, and each is wrong where another is expected.

/// An address in a process, as its instruction pointer and its mappings have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessAddress(pub u64);

/// An address that an ELF file states: in its program headers, symbols, unwind and debug
/// information. It is the same for all processes that map the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileAddress(pub u64);

/// Position of a byte in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileOffset(pub u64);

/// Distance from the addresses that an ELF file states to those at which a process has mapped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadBias(u64);

impl LoadBias {
    /// The bias of a file whose address `in_file` is mapped at `in_process`.
    pub fn between(in_file: FileAddress, in_process: ProcessAddress) -> LoadBias {
        LoadBias(in_process.0.wrapping_sub(in_file.0))
    }

    /// The address in the process.
    pub fn apply(self, address: FileAddress) -> ProcessAddress {
        ProcessAddress(address.0.wrapping_add(self.0))
    }
}

impl ProcessAddress {
    /// The address `distance` bytes after it.
    pub fn plus(self, distance: u64) -> ProcessAddress {
        ProcessAddress(self.0.wrapping_add(distance))
    }

    /// The address `distance` bytes before it.
    pub fn minus(self, distance: u64) -> ProcessAddress {
        ProcessAddress(self.0.wrapping_sub(distance))
    }
}

impl FileAddress {
    /// The address `distance` bytes after it.
    pub fn plus(self, distance: u64) -> FileAddress {
        FileAddress(self.0.wrapping_add(distance))
    }

    /// The address `distance` bytes before it.
    pub fn minus(self, distance: u64) -> FileAddress {
        FileAddress(self.0.wrapping_sub(distance))
    }
}
