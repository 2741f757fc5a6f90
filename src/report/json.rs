//! Answers as JSON: a line for each object in their lists.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

/// Writes an answer.
pub fn write(out: &mut dyn Write, answer: &impl Serialize) -> io::Result<()> {
    answer.serialize(&mut Serializer::with_formatter(&mut *out, ObjectLines::default()))?;
    writeln!(out)
}

/// Compact JSON, but for objects in the lists that are members of the outermost object: each is a
/// line.
#[derive(Default)]
struct ObjectLines {
    /// Number of arrays and objects that are open.
    depth: usize,
    /// The list that is open has lines.
    has_lines: bool,
}

impl ObjectLines {
    /// Number of open ones in a list of the outermost object.
    const LIST: usize = 2;
}

impl Formatter for ObjectLines {
    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        if self.depth == ObjectLines::LIST {
            self.has_lines = true;
            out.write_all(b"\n")?;
        }
        self.depth += 1;
        CompactFormatter.begin_object(out)
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth -= 1;
        CompactFormatter.end_object(out)
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth += 1;
        CompactFormatter.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        if self.depth == ObjectLines::LIST && std::mem::take(&mut self.has_lines) {
            out.write_all(b"\n")?;
        }
        self.depth -= 1;
        CompactFormatter.end_array(out)
    }
}

#[cfg(test)]
mod tests;
