//! Code in the files of run-time compilers.

use sys::jit::jitdump::LinesAt;
use sys::jit::perf_map::NameAt;

/// Entry of the files for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeEntry {
    pub name: NameAt,
    /// Source lines, and the start of their code.
    pub lines: Option<(LinesAt, u64)>,
    /// The address, before the code was moved.
    pub address: u64,
}

/// Results, in the order of the requests.
pub struct FoundCode {
    pub names: Vec<Option<CodeEntry>>,
    pub reused: Vec<bool>,
}
