//! Demangles the names of the Itanium C++ ABI, as `c++filt` does, in bounded time and memory.
//!
//! Names come from untrusted files. The text is read once, without backtracking, into nodes, which
//! references share; the output is limited by its length and the number of steps, in proportion to
//! the mangled name.

mod expressions;
mod node;
mod parse;
mod print;
mod types;

use parse::Parser;
use print::Printer;

/// Longest demangled name in bytes. A mangled name of a few bytes can expand to gigabytes.
pub const MAX_NAME: usize = 16 << 10;

/// Most steps for each byte of a mangled name, plus a constant. The names of libstdc++ and LLVM
/// need 8 for a byte at most.
const STEPS: (usize, usize) = (64, 4096);

/// The demangled name would be too long, or take too many steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// Cause of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mangled {
    /// The name is not mangled.
    Not,
    /// The demangled name exceeds the limits.
    TooMuch,
}

/// The demangled form of a name, with parameters and results if `all`.
pub fn demangle(name: &str, all: bool) -> Result<String, Mangled> {
    let mut parser = Parser::new(name);
    let whole = parser.mangled().ok_or(Mangled::Not)?;
    let suffix = parser.rest();
    // Suffixes of compilers, such as `.constprop.0` and `.cold`, and of linkers (`@VERSION`) are
    // allowed.
    if !matches!(suffix.first(), None | Some(b'.' | b'@')) {
        return Err(Mangled::Not);
    }
    let steps = name.len().saturating_mul(STEPS.0).saturating_add(STEPS.1);
    Printer::print(&parser, whole, all, steps).map_err(|TooLong| Mangled::TooMuch)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub use tests::explosive;
