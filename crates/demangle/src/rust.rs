//! Demangles the names of Rust, of the legacy scheme and of `v0`, through rustc-demangle: with a
//! limit of the output, as back-references repeat what they refer to.

use std::fmt::{self, Write};

use crate::{DemangleError, Detail, MAX_LENGTH};

/// Demangles a name of Rust. The hash of the legacy scheme, and types of constants and crates'
/// disambiguators of the other, are only written with [`Detail::Full`].
///
/// # Errors
///
/// The name is not one of Rust, or its demangled form is too long.
///
/// ```
/// use bounded_demangle::{Detail, rust};
///
/// assert_eq!(rust::demangle("_RNvCs1234_7mycrate3foo", Detail::Name).unwrap(), "mycrate::foo");
/// ```
pub fn demangle(name: &str, detail: Detail) -> Result<String, DemangleError> {
    // The legacy scheme is that of C++ with a hash as the last part; without it the name is C++'s.
    if name.starts_with("_Z") && !name.contains("17h") {
        return Err(DemangleError::NotMangled);
    }
    let demangled = rustc_demangle::try_demangle(name).map_err(|_| DemangleError::NotMangled)?;
    let mut out = Bounded::default();
    let written = match detail {
        Detail::Full => write!(out, "{demangled}"),
        Detail::Name => write!(out, "{demangled:#}"),
    };
    written.map(|()| out.text).map_err(|_| DemangleError::TooLong)
}

/// Output of bounded length and number of pieces: some pieces are empty.
#[derive(Default)]
struct Bounded {
    text: String,
    pieces: usize,
}

impl Write for Bounded {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.pieces += 1;
        if self.text.len() + s.len() > MAX_LENGTH || self.pieces > MAX_LENGTH {
            return Err(fmt::Error);
        }
        self.text.push_str(s);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Back-references of this scheme repeat their target in the output.
    #[test]
    fn a_name_that_expands_too_far_stays_mangled() {
        // Each tuple contains the previous one twice: 2^40 elements.
        let mut name = String::from("_RINvC1a1f");
        let mut last = name.len() - 2;
        name.push_str("TuuE");
        for _ in 0..40 {
            let at = name.len() - 2;
            let back = to_base62(last);
            name.push_str(&format!("TB{back}B{back}E"));
            last = at;
        }
        name.push('E');
        for detail in [Detail::Full, Detail::Name] {
            assert_eq!(demangle(&name, detail), Err(DemangleError::TooLong), "{name}");
        }
    }

    /// `_` is 0, `0_` is 1.
    fn to_base62(n: usize) -> String {
        const DIGITS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let Some(mut n) = n.checked_sub(1) else { return "_".into() };
        let mut digits = vec![b'_'];
        loop {
            digits.insert(0, DIGITS[n % 62]);
            n /= 62;
            if n == 0 {
                return String::from_utf8(digits).unwrap();
            }
        }
    }
}
