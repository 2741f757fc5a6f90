//! Demangles the names of the Itanium C++ ABI, as `c++filt` does, in bounded time and memory.
//!
//! Names come from files of anyone's. The text is read once, without going back, into nodes, each of
//! which is there once however often it is referred to; what is written is limited by its length and
//! by the number of steps, in proportion to the mangled name.

mod expressions;
mod node;
mod parse;
mod print;
mod types;

use parse::Parser;
use print::Printer;

/// Longest readable name. A mangled name of a few bytes can stand for gigabytes.
pub const MAX_NAME: usize = 16 << 10;

/// Steps for each byte of a mangled name, and for any name. The names of libstdc++ and LLVM need 8
/// for a byte at most.
const STEPS: (usize, usize) = (64, 4096);

/// The readable name would be too long, or take too long to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Why a name has no other form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mangled {
    /// It is no mangled name.
    Not,
    /// It stands for too much.
    TooMuch,
}

/// The readable form of a name, with parameters and results if `all`.
pub fn demangle(name: &str, all: bool) -> Result<String, Mangled> {
    let mut parser = Parser::new(name);
    let whole = parser.mangled().ok_or(Mangled::Not)?;
    let suffix = parser.rest();
    // Compilers add `.constprop.0`, `.cold` and the like, linkers `@VERSION`: still that function.
    if !matches!(suffix.first(), None | Some(b'.' | b'@')) {
        return Err(Mangled::Not);
    }
    let steps = name.len().saturating_mul(STEPS.0).saturating_add(STEPS.1);
    Printer::print(&parser, whole, all, steps).map_err(|Refused| Mangled::TooMuch)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub use tests::explosive;
