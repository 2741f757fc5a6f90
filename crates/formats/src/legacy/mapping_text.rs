//! Mappings as text: `/proc/PID/maps`, and the shorter form `START-END: FILE (@OFFSET) BUILD_ID`.

use std::borrow::Cow;

use profile::Mapping;

use super::scan::Scanner;
use crate::assembly::Assembly;

/// Most mappings of code of a file: a process has at most 65,530.
const MOST: usize = 65_536;

/// Most definitions of a file.
const DEFINITIONS: usize = 64;

/// Longest name of a definition in bytes.
const LONGEST_NAME: usize = 64;

/// Longest line in bytes in which definitions are replaced.
const LONGEST: usize = 16 << 10;

/// A text that `$NAME` represents in the lines after its definition `NAME=VALUE`.
struct Definition {
    name: String,
    value: String,
}

/// The mappings of code that were read.
#[derive(Default)]
pub(super) struct MappingText {
    pub mappings: Vec<Mapping>,
    definitions: Vec<Definition>,
}

/// The fields of a line; absent ones are empty.
#[derive(Debug, Default, PartialEq, Eq)]
struct Fields<'a> {
    start: &'a str,
    limit: &'a str,
    rights: &'a str,
    offset: &'a str,
    file: &'a str,
    build_id: &'a str,
}

impl MappingText {
    /// Reads a line. Lines that are neither a mapping nor a definition are left out.
    ///
    /// # Errors
    ///
    /// The sentence about too many mappings.
    pub(super) fn line(&mut self, all: &mut Assembly, line: &str) -> Result<(), String> {
        let line = without_log_prefix(line);
        let has_names = !self.definitions.is_empty() && line.contains('$');
        let line = &*if has_names { self.replaced(line).into() } else { Cow::Borrowed(line) };
        let Some(fields) = fields(line) else {
            self.define(line);
            return Ok(());
        };
        let hex = |digits| u64::from_str_radix(digits, 16).ok();
        let offset = if fields.offset.is_empty() { Some(0) } else { hex(fields.offset) };
        let is_code = fields.rights.is_empty() || fields.rights.contains('x');
        if !is_code {
            return Ok(());
        }
        let (Some(start), Some(limit), Some(file_offset)) =
            (hex(fields.start), hex(fields.limit), offset)
        else {
            self.define(line);
            return Ok(());
        };
        if self.mappings.len() == MOST {
            return Err(format!("it has more than {MOST} mappings"));
        }
        let (file, build_id) = (all.string(fields.file), all.string(fields.build_id));
        let mapping = Mapping { start, limit, file_offset, file, build_id, ..Mapping::default() };
        self.mappings.push(mapping);
        Ok(())
    }

    fn define(&mut self, line: &str) {
        let Some((name, value)) = line.split_once('=') else { return };
        let (name, value) = (name.trim(), value.trim());
        let is_name = name.len() <= LONGEST_NAME
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if is_name && self.definitions.len() < DEFINITIONS && line.len() <= LONGEST {
            let name = format!("${name}");
            self.definitions.push(Definition { name, value: value.to_owned() });
        }
    }

    /// The line with the values of definitions, of which the first that matches is taken; cut if it
    /// becomes too long.
    fn replaced(&self, line: &str) -> String {
        let mut out = String::new();
        let mut rest = line;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            let found = self.definitions.iter().find(|found| rest.starts_with(&found.name));
            let (name, value) = found.map_or(("$", "$"), |found| (&found.name, &found.value));
            out.push_str(value);
            rest = &rest[name.len()..];
            if out.len() > LONGEST {
                return out;
            }
        }
        out.push_str(rest);
        out
    }
}

/// A line without the prefix of a log: `... FILE:LINE] `.
fn without_log_prefix(line: &str) -> &str {
    let Some(at) = line.find(['[', ']']) else { return line };
    let (prefix, rest) = line.split_at(at);
    let is_prefix = prefix.rsplit_once(':').is_some_and(|(file, number)| {
        !file.is_empty() && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
    });
    let message = rest.strip_prefix(']').and_then(|rest| rest.strip_prefix(is_space));
    message.filter(|_| is_prefix).unwrap_or(line)
}

fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r' | '\x0c')
}

fn is_hex(byte: u8) -> bool {
    byte.is_ascii_hexdigit()
}

/// The fields of a mapping: of the long form if the line has it, else of the short one.
fn fields(line: &str) -> Option<Fields<'_>> {
    let ranges = || [range(line), divided_range(line)].into_iter().flatten();
    let long = ranges().find_map(|(fields, rest)| long_form(fields, rest));
    long.or_else(|| ranges().next().map(|(fields, rest)| short_form(fields, rest)))
}

/// Parses `START-END`, in hexadecimal. Returns the rest of the line.
fn range(line: &str) -> Option<(Fields<'_>, &str)> {
    let (start, rest) = hex_number(line.trim_start_matches(is_space))?;
    // A single character of space or a hyphen, and then space.
    let rest = rest.strip_prefix(|c| c == '-' || is_space(c)).unwrap_or(rest);
    let (limit, rest) = hex_number(rest.trim_start_matches(is_space))?;
    let rest = rest.strip_prefix(':').unwrap_or(rest);
    Some((Fields { start, limit, ..Fields::default() }, rest))
}

/// Parses a number with two addresses that nothing separates: the last digit is the second.
fn divided_range(line: &str) -> Option<(Fields<'_>, &str)> {
    let (digits, rest) = hex_number(line.trim_start_matches(is_space))?;
    let (start, limit) = digits.split_at(digits.len() - 1);
    let rest = rest.strip_prefix(':').unwrap_or(rest);
    (!start.is_empty()).then_some((Fields { start, limit, ..Fields::default() }, rest))
}

/// Parses a hexadecimal number, of which `0x` may be the beginning.
fn hex_number(text: &str) -> Option<(&str, &str)> {
    let mut scanner = Scanner::new(text.strip_prefix("0x").unwrap_or(text));
    if !scanner.rest.starts_with(|c: char| c.is_ascii_hexdigit()) {
        scanner.rest = text;
    }
    Some(scanner.run(is_hex)).filter(|digits| !digits.is_empty()).map(|d| (d, scanner.rest))
}

/// Parses characters after space.
fn after_space(text: &str, is_part: impl Fn(u8) -> bool) -> Option<(&str, &str)> {
    let rest = text.trim_start_matches(is_space);
    let mut scanner = Scanner::new(rest);
    let run = scanner.run(is_part);
    (rest.len() < text.len() && !run.is_empty()).then_some((run, scanner.rest))
}

/// The same of characters that may be absent.
fn optional(text: &str, is_part: impl Fn(u8) -> bool) -> (&str, &str) {
    after_space(text, is_part).unwrap_or(("", text))
}

fn is_right(byte: u8) -> bool {
    matches!(byte, b'-' | b'r' | b'w' | b'x' | b'p')
}

fn is_word(byte: u8) -> bool {
    !is_space(byte.into())
}

/// Parses `RIGHTS OFFSET MAJOR:MINOR INODE FILE`, of which rights, offset and file may be absent.
fn long_form<'a>(range: Fields<'a>, rest: &'a str) -> Option<Fields<'a>> {
    let (rights, rest) = optional(rest, is_right);
    let device = |rest: &'a str| {
        let (_, rest) = after_space(rest, is_hex)?;
        let mut scanner = Scanner::new(rest.strip_prefix(':')?);
        let minor = scanner.run(is_hex);
        let (_, rest) = after_space(scanner.rest, |byte| byte.is_ascii_digit())?;
        (!minor.is_empty()).then_some(rest)
    };
    let with_offset = after_space(rest, is_hex)
        .and_then(|(offset, rest)| device(rest).map(|rest| (offset, rest)));
    let (offset, rest) = with_offset.or_else(|| device(rest).map(|rest| ("", rest)))?;
    let (file, _) = optional(rest, is_word);
    Some(Fields { rights, offset, file, ..range })
}

/// Parses `RIGHTS FILE (@OFFSET) BUILD_ID`, all of which may be absent.
fn short_form<'a>(range: Fields<'a>, rest: &'a str) -> Fields<'a> {
    let (rights, rest) = optional(rest, is_right);
    let (file, rest) = optional(rest, is_word);
    let in_parentheses = || {
        let text = rest.trim_start_matches(is_space);
        let mut scanner = Scanner::new(text.strip_prefix("(@")?);
        let offset = scanner.run(is_hex);
        let is_complete = !offset.is_empty() && text.len() < rest.len();
        (scanner.literal(")") && is_complete).then_some((offset, scanner.rest))
    };
    let (offset, rest) = in_parentheses().unwrap_or(("", rest));
    let (build_id, _) = optional(rest, is_hex);
    Fields { rights, file, offset, build_id, ..range }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Start, limit, offset, file and build ID of each mapping.
    fn mappings(text: &str) -> Vec<String> {
        let (mut all, mut read) = (Assembly::new(&[]), MappingText::default());
        text.lines().for_each(|line| read.line(&mut all, line).unwrap());
        let describe = |m: &Mapping| {
            let (file, build_id) = (all.profile.str(m.file), all.profile.str(m.build_id));
            format!("{:x} {:x} {:x} {file} {build_id}", m.start, m.limit, m.file_offset)
        };
        read.mappings.iter().map(describe).collect()
    }

    #[test]
    fn both_forms_are_read() {
        let cases = [
            (
                "00400000-00dab000 r-xp 00001000 fe:02 9185  /bin/app (deleted)",
                "400000 dab000 1000 /bin/app ",
            ),
            ("7f00-7f20 r-xp 00000000 00:00 0 ", "7f00 7f20 0  "),
            ("7f00-7f20 0 00:00 0 [vdso]", "7f00 7f20 0 [vdso] "),
            ("  0x40000-0x80000 /lib/a.so (@FF00) abc123", "40000 80000 ff00 /lib/a.so abc123"),
            ("40000-80000: /lib/a.so", "40000 80000 0 /lib/a.so "),
            ("40000 80000 r-xp /lib/a.so abc123", "40000 80000 0 /lib/a.so abc123"),
            ("I0102 3:04 5 main.cc:12] 40-80 /lib/a.so", "40 80 0 /lib/a.so "),
            ("7f00-7f20 rw-p 00000000 00:00 0 /data", ""),
            ("7f00-7f20 -x 12", "7f00 7f20 0 12 "),
            ("4000:", "400 0 0  "),
            ("ffffffffffffffff1-2 /a", ""),
            ("other text", ""),
        ];
        for (line, expected) in cases {
            assert_eq!(mappings(line).join(","), expected, "{line}");
        }
    }

    #[test]
    fn definitions_are_replaced() {
        let text = "build=/usr\nbuild_id = ab\n40-80 $build/lib $x\n80-90 $buil";
        assert_eq!(mappings(text), ["40 80 0 /usr/lib ", "80 90 0 $buil "]);
        let growth: String = (0..60).map(|n| format!("v{}=$v{n}$v{n}\n", n + 1)).collect();
        let text = format!("v0={}\n{growth}40-80 $v59\n", "x".repeat(1000));
        assert!(mappings(&text)[0].len() < 8 * LONGEST);
    }

    #[test]
    fn mappings_are_bounded() {
        let (mut all, mut read) = (Assembly::new(&[]), MappingText::default());
        let mut lines = (0..=MOST).map(|_| read.line(&mut all, "40-80 /a"));
        assert_eq!(lines.find_map(Result::err).unwrap(), "it has more than 65536 mappings");
    }
}
