//! Types, and the parameters of functions.

use super::{Demangler, Result};
use crate::DemangleError;

impl Demangler<'_> {
    /// True if the type of a function begins at this position.
    pub(super) fn is_function(&self, at: usize) -> bool {
        matches!(self.name.get(at), Some(b'F' | b'U' | b'V' | b'W' | b'R' | b'Y'))
    }

    pub(super) fn a_type(&mut self) -> Result {
        self.nested(Self::type_here)
    }

    fn type_here(&mut self) -> Result {
        let kind = self.peek().ok_or(DemangleError::NotMangled)?;
        if let Some(name) = basic(kind) {
            self.at += 1;
            return self.push(name);
        }
        if self.is_function(self.at) {
            self.function()?;
            return self.push("function");
        }
        if kind == b'Q' {
            return self.type_reference(Self::a_type);
        }
        self.at += 1;
        match kind {
            b'O' => self.wrapped("shared("),
            b'x' => self.wrapped("const("),
            b'y' => self.wrapped("immutable("),
            b'N' => match self.next()? {
                b'g' => self.wrapped("inout("),
                b'h' => self.wrapped("__vector("),
                b'n' => self.push("typeof(*null)"),
                _ => Err(DemangleError::NotMangled),
            },
            b'A' => {
                self.a_type()?;
                self.push("[]")
            }
            b'G' => {
                let from = self.at;
                self.number()?;
                let digits = String::from_utf8_lossy(&self.name[from..self.at]);
                self.a_type()?;
                self.push("[")?;
                self.push(&digits)?;
                self.push("]")
            }
            b'H' => {
                let key = self.apart(Self::a_type)?;
                self.a_type()?;
                self.push("[")?;
                self.push(&key)?;
                self.push("]")
            }
            b'P' if self.is_function(self.at) => {
                self.function()?;
                self.push("function")
            }
            b'P' => {
                self.a_type()?;
                self.push("*")
            }
            b'C' | b'S' | b'E' | b'T' => self.qualified(false),
            b'D' => {
                let modifiers = self.apart(Self::modifiers)?;
                if self.peek() == Some(b'Q') {
                    self.type_reference(Self::function)?;
                } else {
                    self.function()?;
                }
                self.push("delegate")?;
                self.push(&modifiers)
            }
            b'B' => self.tuple(),
            b'z' => match self.next()? {
                b'i' => self.push("cent"),
                b'k' => self.push("ucent"),
                _ => Err(DemangleError::NotMangled),
            },
            _ => Err(DemangleError::NotMangled),
        }
    }

    fn wrapped(&mut self, by: &str) -> Result {
        self.push(by)?;
        self.a_type()?;
        self.push(")")
    }

    fn tuple(&mut self) -> Result {
        let count = self.number()?;
        self.push("Tuple!(")?;
        for n in 0..count {
            if n > 0 {
                self.push(", ")?;
            }
            self.a_type()?;
        }
        self.push(")")
    }

    fn type_reference(&mut self, read: fn(&mut Self) -> Result) -> Result {
        let from = self.at;
        // Otherwise it would contain itself.
        if from >= self.last_reference {
            return Err(DemangleError::NotMangled);
        }
        let target = self.reference()?;
        let back = std::mem::replace(&mut self.at, target);
        let outer = std::mem::replace(&mut self.last_reference, from);
        self.nested(read)?;
        self.last_reference = outer;
        self.at = back;
        Ok(())
    }

    /// The type of a function: its result, parameters and attributes.
    fn function(&mut self) -> Result {
        let convention = self.convention()?;
        self.push(convention)?;
        let attributes = self.attributes()?;
        let arguments = self.apart(Self::arguments)?;
        self.a_type()?;
        for text in ["(", &arguments, ") ", &attributes] {
            self.push(text)?;
        }
        Ok(())
    }

    pub(super) fn convention(&mut self) -> Result<&'static str> {
        Ok(match self.next()? {
            b'F' => "",
            b'U' => "extern(C) ",
            b'V' => "extern(Pascal) ",
            b'W' => "extern(Windows) ",
            b'R' => "extern(C++) ",
            b'Y' => "extern(Objective-C) ",
            _ => return Err(DemangleError::NotMangled),
        })
    }

    pub(super) fn attributes(&mut self) -> Result<String> {
        let mut text = String::new();
        while self.peek() == Some(b'N') {
            text += match self.name.get(self.at + 1) {
                Some(b'a') => "pure ",
                Some(b'b') => "nothrow ",
                Some(b'c') => "ref ",
                Some(b'd') => "@property ",
                Some(b'e') => "@trusted ",
                Some(b'f') => "@safe ",
                Some(b'i') => "@nogc ",
                Some(b'j') => "return ",
                Some(b'l') => "scope ",
                Some(b'm') => "@live ",
                // Those of the first parameter.
                Some(b'g' | b'h' | b'k' | b'n') => break,
                _ => return Err(DemangleError::NotMangled),
            };
            self.step()?;
            self.at += 2;
        }
        Ok(text)
    }

    /// The parameters of a function, without parentheses.
    pub(super) fn arguments(&mut self) -> Result {
        let mut count = 0;
        loop {
            self.step()?;
            if self.take("Z") {
                return Ok(());
            } else if self.take("X") {
                return self.push("...");
            } else if self.take("Y") {
                return self.push(if count > 0 { ", ..." } else { "..." });
            }
            if count > 0 {
                self.push(", ")?;
            }
            count += 1;
            // Compilers differ in their order.
            loop {
                if self.take("M") {
                    self.push("scope ")?;
                } else if self.take("Nk") {
                    self.push("return ")?;
                } else {
                    break;
                }
            }
            if self.take("I") {
                self.push("in ")?;
                if self.take("K") {
                    self.push("ref ")?;
                }
            } else if self.take("J") {
                self.push("out ")?;
            } else if self.take("K") {
                self.push("ref ")?;
            } else if self.take("L") {
                self.push("lazy ")?;
            }
            self.a_type()?;
        }
    }

    /// `const` and the like of a method or delegate.
    pub(super) fn modifiers(&mut self) -> Result {
        loop {
            self.step()?;
            if self.take("x") {
                return self.push(" const");
            } else if self.take("y") {
                return self.push(" immutable");
            } else if self.take("O") {
                self.push(" shared")?;
            } else if self.take("Ng") {
                self.push(" inout")?;
            } else {
                return Ok(());
            }
        }
    }
}

fn basic(kind: u8) -> Option<&'static str> {
    Some(match kind {
        b'n' => "typeof(null)",
        b'v' => "void",
        b'g' => "byte",
        b'h' => "ubyte",
        b's' => "short",
        b't' => "ushort",
        b'i' => "int",
        b'k' => "uint",
        b'l' => "long",
        b'm' => "ulong",
        b'f' => "float",
        b'd' => "double",
        b'e' => "real",
        b'o' => "ifloat",
        b'p' => "idouble",
        b'j' => "ireal",
        b'q' => "cfloat",
        b'r' => "cdouble",
        b'c' => "creal",
        b'b' => "bool",
        b'a' => "char",
        b'u' => "wchar",
        b'w' => "dchar",
        _ => return None,
    })
}
