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

use crate::{DemangleError, Detail};
use parse::Parser;
use print::Printer;

/// Most steps for each byte of a mangled name, plus a constant. The names of libstdc++ and LLVM
/// need 8 for a byte at most.
const STEPS: (usize, usize) = (64, 4096);

/// The demangled name would be too long, or take too many steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TooLong;

/// Demangles a name of C++, or of another language that has the same scheme.
///
/// Suffixes of compilers (`.constprop.0`) and of linkers (`@VERSION`) are left out.
///
/// # Errors
///
/// The name is not one of this scheme, or its demangled form is too long.
///
/// ```
/// use bounded_demangle::{Detail, itanium};
///
/// assert_eq!(itanium::demangle("_ZN3foo3barEi", Detail::Full).unwrap(), "foo::bar(int)");
/// assert_eq!(itanium::demangle("_ZN3foo3barEi", Detail::Name).unwrap(), "foo::bar");
/// ```
pub fn demangle(name: &str, detail: Detail) -> Result<String, DemangleError> {
    let mut parser = Parser::new(name);
    let whole = parser.mangled().ok_or(DemangleError::NotMangled)?;
    let suffix = parser.rest();
    if !matches!(suffix.first(), None | Some(b'.' | b'@')) {
        return Err(DemangleError::NotMangled);
    }
    let steps = name.len().saturating_mul(STEPS.0).saturating_add(STEPS.1);
    Printer::print(&parser, whole, detail, steps).map_err(|TooLong| DemangleError::TooLong)
}

#[cfg(test)]
mod tests;
