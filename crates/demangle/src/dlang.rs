//! Demangles the names of D (<https://dlang.org/spec/abi.html#name_mangling>), as
//! `c++filt -s dlang` does, in bounded time and memory.
//!
//! Names come from untrusted files. References repeat what they refer to, and the lengths in names
//! of old compilers are ambiguous: the output is limited by its length, the depth of the recursion,
//! and the number of steps in proportion to the mangled name.

mod types;
mod values;

use crate::{DemangleError, Detail, MAX_LENGTH};

/// Most steps for each byte of a mangled name, plus a constant, as for C++.
const STEPS: (usize, usize) = (64, 4096);

/// Deepest nesting of types and names.
const MAX_DEPTH: usize = 256;

/// Demangles a name of D.
///
/// # Errors
///
/// The name is not one of D, or its demangled form is too long.
///
/// ```
/// use bounded_demangle::{Detail, dlang};
///
/// let name = "_D5dlang6Worker3runMFdZv";
/// assert_eq!(dlang::demangle(name, Detail::Full).unwrap(), "dlang.Worker.run(double)");
/// ```
pub fn demangle(name: &str, detail: Detail) -> Result<String, DemangleError> {
    if name == "_Dmain" {
        return Ok("D main".to_owned());
    }
    let steps = name.len().saturating_mul(STEPS.0).saturating_add(STEPS.1);
    let mut demangler = Demangler {
        name: name.as_bytes(),
        at: 0,
        out: String::new(),
        base: 0,
        detail,
        steps,
        depth: 0,
        last_reference: usize::MAX,
    };
    demangler.mangled()?;
    // Suffixes of compilers and of linkers (`@VERSION`).
    match demangler.peek() {
        None | Some(b'.' | b'@') => Ok(demangler.out),
        Some(_) => Err(DemangleError::NotMangled),
    }
}

/// True if `name` may be a mangled name of D.
pub fn is_mangled(name: &str) -> bool {
    let rest = name.strip_prefix("_D").map(str::as_bytes);
    rest.is_some_and(|rest| rest == b"main" || rest.first().is_some_and(u8::is_ascii_digit))
}

type Result<T = (), E = DemangleError> = std::result::Result<T, E>;

struct Demangler<'a> {
    name: &'a [u8],
    /// Position in the name.
    at: usize,
    out: String,
    /// Start of the current qualified name in the output.
    base: usize,
    detail: Detail,
    /// Steps that are left.
    steps: usize,
    depth: usize,
    /// Position of the reference that is being resolved; those within it must precede it.
    last_reference: usize,
}

impl<'a> Demangler<'a> {
    fn peek(&self) -> Option<u8> {
        self.name.get(self.at).copied()
    }

    fn rest(&self) -> &'a [u8] {
        self.name.get(self.at..).unwrap_or_default()
    }

    fn next(&mut self) -> Result<u8> {
        let byte = self.peek().ok_or(DemangleError::NotMangled)?;
        self.at += 1;
        Ok(byte)
    }

    /// Skips these bytes, if they follow.
    fn take(&mut self, bytes: &str) -> bool {
        let found = self.rest().starts_with(bytes.as_bytes());
        self.at += if found { bytes.len() } else { 0 };
        found
    }

    fn push(&mut self, text: &str) -> Result {
        if self.out.len() + text.len() > MAX_LENGTH {
            return Err(DemangleError::TooLong);
        }
        self.out.push_str(text);
        Ok(())
    }

    fn step(&mut self) -> Result {
        self.steps = self.steps.checked_sub(1).ok_or(DemangleError::TooLong)?;
        Ok(())
    }

    /// Runs a part that may contain itself.
    fn nested<T>(&mut self, part: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.step()?;
        if self.depth >= MAX_DEPTH {
            return Err(DemangleError::TooLong);
        }
        self.depth += 1;
        let done = part(self);
        self.depth -= 1;
        done
    }

    /// Runs a part and returns what it writes instead of writing it.
    fn apart(&mut self, part: impl FnOnce(&mut Self) -> Result) -> Result<String> {
        let before = self.out.len();
        part(self)?;
        Ok(self.out.split_off(before))
    }

    fn number(&mut self) -> Result<usize> {
        if !self.peek().is_some_and(|b| b.is_ascii_digit()) {
            return Err(DemangleError::NotMangled);
        }
        let mut number = 0usize;
        while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
            let shifted = number.checked_mul(10).ok_or(DemangleError::NotMangled)?;
            number =
                shifted.checked_add(usize::from(digit - b'0')).ok_or(DemangleError::NotMangled)?;
            self.at += 1;
        }
        Ok(number)
    }

    /// The position that a reference leads to: a number to the base 26, of which the last digit is
    /// in lower case, counts back from the `Q` before it.
    fn reference(&mut self) -> Result<usize> {
        let from = self.at;
        if !self.take("Q") {
            return Err(DemangleError::NotMangled);
        }
        let mut distance = 0usize;
        loop {
            let byte = self.next()?;
            let (digit, is_last) = match byte {
                b'a'..=b'z' => (byte - b'a', true),
                b'A'..=b'Z' => (byte - b'A', false),
                _ => return Err(DemangleError::NotMangled),
            };
            let shifted = distance.checked_mul(26).ok_or(DemangleError::NotMangled)?;
            distance = shifted.checked_add(digit.into()).ok_or(DemangleError::NotMangled)?;
            if is_last {
                let target = from.checked_sub(distance).filter(|_| distance > 0);
                return target.ok_or(DemangleError::NotMangled);
            }
        }
    }

    /// `_D`, a qualified name, and a type, which is not shown, or `Z`.
    fn mangled(&mut self) -> Result {
        if !self.take("_D") {
            return Err(DemangleError::NotMangled);
        }
        self.qualified(true)?;
        if !self.take("Z") {
            self.apart(|s| {
                // A method whose type is a reference.
                if s.take("M") {
                    s.modifiers()?;
                }
                s.a_type()
            })?;
        }
        Ok(())
    }

    /// A name, with those that it is in, and the parameters of functions among them. `const` and
    /// the like of a method follow only `with_modifiers`.
    fn qualified(&mut self, with_modifiers: bool) -> Result {
        let base = std::mem::replace(&mut self.base, self.out.len());
        let done = self.nested(|s| s.qualified_parts(with_modifiers));
        self.base = base;
        done
    }

    fn qualified_parts(&mut self, with_modifiers: bool) -> Result {
        let mut parts = 0;
        loop {
            self.step()?;
            if self.take("0") {
                // A scope without a name.
                while self.take("0") {}
            } else {
                if parts > 0 {
                    self.push(".")?;
                }
                parts += 1;
                self.identifier()?;
                if self.peek() == Some(b'M') || self.is_function(self.at) {
                    self.parameters_of_part(with_modifiers)?;
                }
            }
            if !self.is_name(self.at) {
                return Ok(());
            }
        }
    }

    /// The parameters of a function in a qualified name; what follows the last part may be its type
    /// instead.
    fn parameters_of_part(&mut self, with_modifiers: bool) -> Result {
        let (at, length) = (self.at, self.out.len());
        let mut parameters = || -> Result {
            let modifiers =
                if self.take("M") { self.apart(Self::modifiers)? } else { String::new() };
            self.apart(|s| s.convention().map(drop))?;
            self.attributes()?;
            self.push("(")?;
            self.arguments()?;
            self.push(")")?;
            if with_modifiers { self.push(&modifiers) } else { Ok(()) }
        };
        let read = parameters();
        match read {
            Err(DemangleError::TooLong) => return Err(DemangleError::TooLong),
            Ok(()) if !matches!(self.peek(), None | Some(b'.' | b'@')) => {
                if self.detail == Detail::Name {
                    self.out.truncate(length);
                }
            }
            _ => {
                self.at = at;
                self.out.truncate(length);
            }
        }
        Ok(())
    }

    /// True if a name begins at this position.
    fn is_name(&self, at: usize) -> bool {
        let rest = self.name.get(at..).unwrap_or_default();
        match rest.first() {
            Some(b'0'..=b'9') => true,
            Some(b'_') => rest.starts_with(b"__T") || rest.starts_with(b"__U"),
            Some(b'Q') => {
                let target = self.target(at);
                target.is_some_and(|target| self.name[target].is_ascii_digit())
            }
            _ => false,
        }
    }

    /// The target of the reference at this position.
    fn target(&self, at: usize) -> Option<usize> {
        let mut distance = 0usize;
        for byte in self.name.get(at + 1..)? {
            let digit = match byte {
                b'a'..=b'z' => byte - b'a',
                b'A'..=b'Z' => byte - b'A',
                _ => return None,
            };
            distance = distance.checked_mul(26)?.checked_add(digit.into())?;
            if byte.is_ascii_lowercase() {
                return at.checked_sub(distance).filter(|_| distance > 0);
            }
        }
        None
    }

    fn identifier(&mut self) -> Result {
        self.step()?;
        if self.peek() == Some(b'Q') {
            return self.name_reference();
        }
        if self.rest().starts_with(b"__T") || self.rest().starts_with(b"__U") {
            return self.template(None);
        }
        loop {
            let length = self.number()?;
            let name = self
                .rest()
                .get(..length)
                .filter(|_| length > 0)
                .ok_or(DemangleError::NotMangled)?;
            if length >= 5 && (name.starts_with(b"__T") || name.starts_with(b"__U")) {
                return self.template(Some(length));
            }
            // Distinguishes equal names in one function.
            let is_number =
                |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
            if !name.strip_prefix(b"__S").is_some_and(is_number) {
                return self.word(length);
            }
            self.step()?;
            self.at += length;
        }
    }

    fn name_reference(&mut self) -> Result {
        let target = self.reference()?;
        let back = std::mem::replace(&mut self.at, target);
        let length = self.number()?;
        self.word(length)?;
        self.at = back;
        Ok(())
    }

    /// A name of this length; some of the compiler's own are shown as in the source.
    fn word(&mut self, length: usize) -> Result {
        let word = self.rest().get(..length).ok_or(DemangleError::NotMangled)?;
        let word = std::str::from_utf8(word).map_err(|_| DemangleError::NotMangled)?;
        self.at += length;
        let described = match word {
            "__ctor" => return self.push("this"),
            "__dtor" => return self.push("~this"),
            "__postblit" if self.take("MFZ") => return self.push("this(this)"),
            "__init" => "initializer for ",
            "__vtbl" => "vtable for ",
            "__Class" => "ClassInfo for ",
            "__Interface" => "Interface for ",
            "__ModuleInfo" => "ModuleInfo for ",
            _ => return self.push(word),
        };
        if self.peek() != Some(b'Z') || self.out.len() == self.base {
            return self.push(word);
        }
        // The dot.
        self.out.pop();
        if self.out.len() + described.len() > MAX_LENGTH {
            return Err(DemangleError::TooLong);
        }
        self.out.insert_str(self.base, described);
        Ok(())
    }

    /// An instance of a template: its name and arguments, of this length if it is known.
    fn template(&mut self, length: Option<usize>) -> Result {
        let from = self.at;
        self.at += "__T".len();
        if !self.is_name(self.at) || self.peek() == Some(b'0') {
            return Err(DemangleError::NotMangled);
        }
        self.nested(Self::identifier)?;
        self.push("!(")?;
        self.nested(Self::template_arguments)?;
        self.push(")")?;
        let matches = length.is_none_or(|length| self.at - from == length);
        if matches { Ok(()) } else { Err(DemangleError::NotMangled) }
    }

    fn template_arguments(&mut self) -> Result {
        let mut count = 0;
        while !self.take("Z") {
            self.step()?;
            if count > 0 {
                self.push(", ")?;
            }
            count += 1;
            // It is specialized.
            self.take("H");
            match self.next()? {
                b'S' => self.nested(Self::symbol)?,
                b'T' => self.a_type()?,
                b'V' => {
                    let mut kind = self.peek();
                    if kind == Some(b'Q') {
                        kind = self.target(self.at).and_then(|at| self.name.get(at).copied());
                    }
                    let name = self.apart(Self::a_type)?;
                    self.value(&name, kind.unwrap_or_default())?;
                }
                b'X' => {
                    let length = self.number()?;
                    let text = self.rest().get(..length).ok_or(DemangleError::NotMangled)?;
                    self.at += length;
                    self.push(std::str::from_utf8(text).map_err(|_| DemangleError::NotMangled)?)?;
                }
                _ => return Err(DemangleError::NotMangled),
            }
        }
        Ok(())
    }

    /// A symbol as the argument of a template. Old compilers write its length before it, and its
    /// name may begin with a number, too: of the digits, each number is tried as the length.
    fn symbol(&mut self) -> Result {
        if self.rest().starts_with(b"_D") && self.is_name(self.at + 2) {
            return self.mangled();
        }
        if self.peek() == Some(b'Q') {
            return self.qualified(false);
        }
        let digits = self.rest().iter().take_while(|b| b.is_ascii_digit()).count();
        let (from, written) = (self.at, self.out.len());
        // Longer numbers are no length of a name.
        for digits in (0..=digits.min(9)).rev() {
            self.at = from;
            let length = std::str::from_utf8(&self.rest()[..digits]).ok();
            let length = length.and_then(|digits| digits.parse::<usize>().ok());
            self.at += digits;
            let start = self.at;
            let read = if self.is_name(start) {
                self.qualified(false)
            } else if self.rest().starts_with(b"_D") && self.is_name(start + 2) {
                self.mangled()
            } else {
                Err(DemangleError::NotMangled)
            };
            match read {
                Err(DemangleError::TooLong) => return Err(DemangleError::TooLong),
                Ok(()) if length.is_none_or(|length| self.at - start == length) => return Ok(()),
                _ => self.out.truncate(written),
            }
        }
        Err(DemangleError::NotMangled)
    }
}

#[cfg(test)]
mod tests;
