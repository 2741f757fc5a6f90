//! The parts in which the frames of a view differ.

/// Properties that distinguish frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granularity {
    /// The function (or the address, if there is no function).
    pub function: bool,
    /// The binary.
    pub binary: bool,
    /// The source file and line.
    pub line: bool,
    /// Inlined or not.
    pub inlined: bool,
    /// The source file.
    pub file: bool,
    /// The address of the instruction.
    pub address: bool,
    /// The address of an instruction without a function; otherwise all of a binary are one frame.
    pub unknown: bool,
    /// The names of functions are those of their packages ([`name_packages`](super::name_packages)).
    pub package: bool,
}

impl Granularity {
    /// By function and binary, as in `perf report`.
    pub const FUNCTION: Granularity =
        Granularity { function: true, binary: true, ..Granularity::NONE };
    /// By function alone, as in `go tool pprof`.
    pub const SYMBOL: Granularity = Granularity { binary: false, ..Granularity::FUNCTION };
    /// All frames are the same.
    pub const NONE: Granularity = Granularity {
        function: false,
        binary: false,
        line: false,
        inlined: false,
        file: false,
        address: false,
        unknown: true,
        package: false,
    };
    /// pprof's `functions`: by function alone.
    pub const FUNCTIONS: Granularity =
        Granularity { function: true, unknown: false, ..Granularity::NONE };
    /// By package, or by function if it has none.
    pub const PACKAGES: Granularity = Granularity { package: true, ..Granularity::FUNCTIONS };
    /// pprof's `filefunctions`: by function and source file.
    pub const FILE_FUNCTIONS: Granularity = Granularity { file: true, ..Granularity::FUNCTIONS };
    /// pprof's `files`: by source file.
    pub const FILES: Granularity = Granularity { file: true, ..Granularity::NONE };
    /// pprof's `lines`: by function, source file and line.
    pub const LINES: Granularity = Granularity { line: true, ..Granularity::FILE_FUNCTIONS };
    /// pprof's `addresses`: by instruction.
    pub const ADDRESSES: Granularity =
        Granularity { binary: true, address: true, unknown: true, ..Granularity::LINES };
}
