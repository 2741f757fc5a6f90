//! Names of Java's frames, whose addresses are numbers of the file: lines after the stacks.
//!
//! ```text
//!  0x00000003 GC
//!  0x00000006 com.example.Work.run (Work.java:106)
//!  0x00000007 memcpy (/lib/libc.so)
//! ```

use std::collections::HashMap;

use profile::{FunctionId, Line};

use super::address_samples::AddressSamples;

/// Name of code without a function.
const STUB: &str = "STUB";

/// The functions of a file.
#[derive(Default)]
pub(super) struct JavaNames {
    /// By name: the first source file of a name is that of all.
    functions: HashMap<Box<str>, FunctionId>,
}

/// A frame's name, file and line.
#[derive(Debug, PartialEq, Eq)]
struct JavaFrame<'a> {
    name: &'a str,
    file: &'a str,
    /// 0: unknown.
    line: i64,
}

impl<'a> JavaFrame<'a> {
    fn parse(text: &'a str) -> JavaFrame<'a> {
        if let Some(frame) = JavaFrame::with_line(text) {
            return frame;
        }
        if let Some((name, path)) = in_parentheses(text, 0) {
            let file = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
            return JavaFrame { name, file, line: 0 };
        }
        let name = if text.contains("generated stub/JIT") { STUB } else { text };
        JavaFrame { name, file: "", line: 0 }
    }

    /// Parses `NAME (FILE:LINE)`.
    fn with_line(text: &'a str) -> Option<JavaFrame<'a>> {
        let (_, number) = text.strip_suffix(')')?.rsplit_once(':')?;
        let digits = number.strip_prefix('-').unwrap_or(number);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let end = ":".len() + number.len();
        let (name, place) = in_parentheses(text, end + 1)?;
        let line = number.parse().unwrap_or(0).max(0);
        Some(JavaFrame { name, file: &place[..place.len() - end], line })
    }
}

/// The texts before and in the last parentheses, at the end, that contain at least `length` bytes.
fn in_parentheses(text: &str, length: usize) -> Option<(&str, &str)> {
    let inner = text.strip_suffix(')')?;
    inner.rmatch_indices('(').find_map(|(at, _)| {
        let name = inner[..at].strip_suffix(|c: char| c.is_ascii_whitespace())?;
        let content = &inner[at + 1..];
        (content.len() >= length).then_some((name, content))
    })
}

impl JavaNames {
    /// Reads a line. Those that are not about a frame of a stack are left out.
    ///
    /// # Errors
    ///
    /// The sentence about an address that is too large.
    pub(super) fn line(&mut self, samples: &mut AddressSamples, line: &str) -> Result<(), String> {
        let Some((address, text)) = address(line.trim()) else { return Ok(()) };
        let address = u64::from_str_radix(address, 16)
            .map_err(|_| format!("the address 0x{address:.40} has more than 64 bits"))?;
        let frame = JavaFrame::parse(text);
        let function = match self.functions.get(frame.name) {
            Some(&function) => function,
            None => {
                let function = samples.all.function(frame.name, frame.file, 0);
                self.functions.insert(frame.name.into(), function);
                function
            }
        };
        let line = Line { function, line: frame.line, column: 0 };
        samples.names.insert(address, line);
        Ok(())
    }
}

/// Parses `0xADDRESS TEXT`.
fn address(line: &str) -> Option<(&str, &str)> {
    let rest = line.strip_prefix("0x")?;
    let end = rest.find(|c: char| !c.is_ascii_hexdigit())?;
    let (digits, text) = rest.split_at(end);
    let is_space = text.starts_with(|c: char| c.is_ascii_whitespace());
    (is_space && !digits.is_empty()).then(|| (digits, text.trim_ascii_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_a_file_or_not() {
        let frame = |name, file, line| JavaFrame { name, file, line };
        let cases = [
            ("a.B.run (B.java:12)", frame("a.B.run", "B.java", 12)),
            ("a.B.<init> (x) (B.java:-2)", frame("a.B.<init> (x)", "B.java", 0)),
            ("memcpy (/lib/x86/libc.so)", frame("memcpy", "libc.so", 0)),
            ("[generated stub/JIT]", frame("STUB", "", 0)),
            ("GC", frame("GC", "", 0)),
            ("f(x:1)", frame("f(x:1)", "", 0)),
            ("f (:1)", frame("f", ":1", 0)),
            ("f (a) (:1)", frame("f", "a) (", 1)),
        ];
        for (text, expected) in cases {
            assert_eq!(JavaFrame::parse(text), expected, "{text}");
        }
        assert_eq!(address("0x1F  GC a"), Some(("1F", "GC a")));
        assert_eq!((address("0x1F"), address("0xGC a"), address("GC")), (None, None, None));
    }
}
