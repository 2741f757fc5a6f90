//! Values as arguments of templates.

use super::{Demangler, Result};
use crate::DemangleError;

impl Demangler<'_> {
    /// A value of the type `name`, whose mangled form begins with `kind`.
    pub(super) fn value(&mut self, name: &str, kind: u8) -> Result {
        self.nested(|s| s.value_here(name, kind))
    }

    fn value_here(&mut self, name: &str, kind: u8) -> Result {
        match self.peek().ok_or(DemangleError::NotMangled)? {
            // Early compilers omit the `i`.
            b'0'..=b'9' => return self.integer(kind),
            b'f' => {
                self.at += 1;
                let is_symbol = self.rest().starts_with(b"_D") && self.is_name(self.at + 2);
                return if is_symbol { self.mangled() } else { Err(DemangleError::NotMangled) };
            }
            _ => {}
        }
        match self.next()? {
            b'n' => self.push("null"),
            b'N' => {
                self.push("-")?;
                self.integer(kind)
            }
            b'i' => self.integer(kind),
            b'e' => self.real(),
            b'c' => {
                self.real()?;
                self.push("+")?;
                if !self.take("c") {
                    return Err(DemangleError::NotMangled);
                }
                self.real()?;
                self.push("i")
            }
            width @ (b'a' | b'w' | b'd') => self.string(width),
            b'A' if kind == b'H' => {
                let count = self.number()?;
                self.list(count, ["[", "]"], |s| {
                    s.value("", 0)?;
                    s.push(":")?;
                    s.value("", 0)
                })
            }
            b'A' => {
                let count = self.number()?;
                self.list(count, ["[", "]"], |s| s.value("", 0))
            }
            b'S' => {
                let count = self.number()?;
                self.push(name)?;
                self.list(count, ["(", ")"], |s| s.value("", 0))
            }
            _ => Err(DemangleError::NotMangled),
        }
    }

    fn list(
        &mut self,
        count: usize,
        [open, close]: [&str; 2],
        element: fn(&mut Self) -> Result,
    ) -> Result {
        self.push(open)?;
        for n in 0..count {
            if n > 0 {
                self.push(", ")?;
            }
            element(self)?;
        }
        self.push(close)
    }

    fn integer(&mut self, kind: u8) -> Result {
        let from = self.at;
        match kind {
            b'a' | b'u' | b'w' => {
                let code = self.number()?;
                let text = match (kind, u8::try_from(code)) {
                    (b'a', Ok(ascii @ 0x20..0x7f)) => format!("'{}'", char::from(ascii)),
                    (b'a', _) => format!("'\\x{code:02x}'"),
                    (b'u', _) => format!("'\\u{code:04x}'"),
                    _ => format!("'\\U{code:08x}'"),
                };
                self.push(&text)
            }
            b'b' => {
                let is_true = self.number()? != 0;
                self.push(if is_true { "true" } else { "false" })
            }
            _ => {
                let digits = self.rest().iter().take_while(|b| b.is_ascii_digit()).count();
                if digits == 0 {
                    return Err(DemangleError::NotMangled);
                }
                self.at += digits;
                self.push(&String::from_utf8_lossy(&self.name[from..self.at]))?;
                self.push(match kind {
                    b'h' | b't' | b'k' => "u",
                    b'l' => "L",
                    b'm' => "uL",
                    _ => "",
                })
            }
        }
    }

    /// A floating-point number in hexadecimal digits.
    fn real(&mut self) -> Result {
        for (name, shown) in [("NAN", "NaN"), ("INF", "Inf"), ("NINF", "-Inf")] {
            if self.take(name) {
                return self.push(shown);
            }
        }
        if self.take("N") {
            self.push("-")?;
        }
        let mut digits = String::from("0x");
        let mut count = 0;
        while let Some(digit) = self.peek().filter(u8::is_ascii_hexdigit) {
            self.step()?;
            self.at += 1;
            digits.push(digit.into());
            if count == 0 {
                digits.push('.');
            }
            count += 1;
        }
        if count == 0 || !self.take("P") {
            return Err(DemangleError::NotMangled);
        }
        digits.push('p');
        if self.take("N") {
            digits.push('-');
        }
        while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
            self.at += 1;
            digits.push(digit.into());
        }
        self.push(&digits)
    }

    /// A string of UTF-8 (`a`), UTF-16 (`w`) or UTF-32 (`d`), each byte as two hexadecimal digits.
    fn string(&mut self, width: u8) -> Result {
        let length = self.number()?;
        if !self.take("_") {
            return Err(DemangleError::NotMangled);
        }
        self.push("\"")?;
        for _ in 0..length {
            self.step()?;
            let digits = self.rest().get(..2).and_then(|two| std::str::from_utf8(two).ok());
            let digits = digits.filter(|two| two.bytes().all(|b| b.is_ascii_hexdigit()));
            let digits = digits.ok_or(DemangleError::NotMangled)?;
            let byte = u8::from_str_radix(digits, 16).map_err(|_| DemangleError::NotMangled)?;
            self.at += 2;
            match byte {
                b'\t' => self.push("\\t")?,
                b'\n' => self.push("\\n")?,
                b'\r' => self.push("\\r")?,
                0x0c => self.push("\\f")?,
                0x0b => self.push("\\v")?,
                b' '..=b'~' => self.push(char::from(byte).encode_utf8(&mut [0; 4]))?,
                _ => {
                    self.push("\\x")?;
                    self.push(digits)?;
                }
            }
        }
        self.push("\"")?;
        if width != b'a' {
            self.push(char::from(width).encode_utf8(&mut [0; 4]))?;
        }
        Ok(())
    }
}
