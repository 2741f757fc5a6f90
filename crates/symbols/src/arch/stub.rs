//! A stub of the procedure linkage table.

/// A stub, which jumps to the function whose address a word contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stub {
    /// First address.
    pub start: u64,
    /// Limit address.
    pub end: u64,
    /// Address of the word, in the global offset table.
    pub slot: u64,
}
