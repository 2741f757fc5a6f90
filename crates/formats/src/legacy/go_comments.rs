//! Comments of Go's profiles with `debug=1`, after each stack: the names of its frames, and labels.
//!
//! ```text
//! 2 @ 0x4378b6 0x40619b 0x4b5e3f 0x4614e1
//! # labels: {"worker":"a"}
//! #    0x4b5e3e    main.work+0x1e    /src/main.go:59
//! ```
//!
//! Go leaves out the innermost functions of its runtime, and `runtime.goexit` as the outermost one.

use profile::{Label, LabelSetId, Line};

use super::address_samples::AddressSamples;

/// Most frames between two that are named.
const UNNAMED: usize = 256;

/// Name of the innermost functions of the runtime, which pprof drops from profiles of memory as it
/// does with all of the runtime.
const RUNTIME: &str = "runtime.[unnamed]";

/// Name of the outermost function.
const EXIT: &str = "runtime.goexit";

/// The comments of a file.
#[derive(Default)]
pub(super) struct GoComments {
    /// The last frame of the last sample that was named.
    last: Option<usize>,
}

/// A line about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FrameComment<'a> {
    address: u64,
    name: &'a str,
    file: &'a str,
    line: i64,
}

impl<'a> FrameComment<'a> {
    /// Parses `#`, `0xADDRESS`, `NAME+0xOFFSET` and `FILE:LINE`, with tabs between them.
    fn parse(line: &'a str) -> Option<FrameComment<'a>> {
        let mut fields = line.strip_prefix('#')?.split('\t').filter(|field| !field.is_empty());
        let address = fields.next()?.trim().strip_prefix("0x")?;
        let address = u64::from_str_radix(address, 16).ok()?;
        let (name, _) = fields.next()?.rsplit_once("+0x")?;
        let (file, line) = fields.next()?.rsplit_once(':')?;
        let line = line.trim().parse().ok()?;
        (!name.is_empty()).then_some(FrameComment { address, name, file, line })
    }
}

impl GoComments {
    /// Begins a sample, to which the comments after it belong; those of the last one end.
    pub(super) fn begin_sample(&mut self) {
        self.last = None;
    }

    /// Reads a comment about the last sample. Other comments are left out.
    pub(super) fn comment(&mut self, samples: &mut AddressSamples, line: &str) {
        if let Some(labels) = line.strip_prefix("# labels: ") {
            if let Some(labels) = labels_of(samples, labels) {
                samples.set_last_labels(labels);
            }
        } else if let Some(frame) = FrameComment::parse(line) {
            self.frame(samples, frame);
        }
    }

    fn frame(&mut self, samples: &mut AddressSamples, frame: FrameComment<'_>) {
        let begin = self.last.map_or(0, |last| last + 1);
        let stack = samples.last_addresses();
        let rest = stack.get(begin..).unwrap_or_default();
        // The address of the call, or of the function's first instruction.
        let is_it =
            |&address: &u64| address == frame.address || address == frame.address.wrapping_sub(1);
        let Some(after) = rest.iter().take(UNNAMED).position(is_it) else { return };
        let address = rest[after];
        let inner = if self.last.is_none() { rest[..after].to_vec() } else { Vec::new() };
        let outer = if let [outer] = rest[after + 1..] { Some(outer) } else { None };
        self.last = Some(begin + after);
        if !samples.names.contains_key(&address) {
            let function = samples.all.function(frame.name, frame.file, 0);
            samples.names.insert(address, Line { function, line: frame.line, column: 0 });
        }
        for address in inner {
            let function = samples.all.function(RUNTIME, "", 0);
            samples.other_names.entry(address).or_insert(function);
        }
        if let Some(outer) = outer {
            let function = samples.all.function(EXIT, "", 0);
            samples.other_names.insert(outer, function);
        }
    }
}

/// The labels of a text such as `{"key":"value", "other":"value"}`.
fn labels_of(samples: &mut AddressSamples, text: &str) -> Option<LabelSetId> {
    let mut rest = text.trim().strip_prefix('{')?;
    let mut labels: Vec<Label> = Vec::new();
    while !rest.starts_with('}') {
        let (key, after) = quoted(rest)?;
        let (value, after) = quoted(after.strip_prefix(':')?)?;
        labels.push(samples.all.text_label(&key, &value));
        rest = after.strip_prefix(", ").unwrap_or(after);
    }
    Some(samples.all.profile.labels.intern(&labels))
}

/// Parses a text in quotes, as Go writes it. Returns the text after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut rest = text.strip_prefix('"')?.chars();
    let mut out = String::new();
    loop {
        match rest.next()? {
            '"' => return Some((out, rest.as_str())),
            '\\' => out.push(escaped(&mut rest)?),
            other => out.push(other),
        }
    }
}

/// The character of an escape sequence, after its backslash.
fn escaped(rest: &mut std::str::Chars<'_>) -> Option<char> {
    let digits = match rest.next()? {
        'a' => return Some('\x07'),
        'b' => return Some('\x08'),
        'f' => return Some('\x0c'),
        'n' => return Some('\n'),
        'r' => return Some('\r'),
        't' => return Some('\t'),
        'v' => return Some('\x0b'),
        // A byte that is not valid UTF-8, or a control character.
        'x' => 2,
        'u' => 4,
        'U' => 8,
        other => return Some(other),
    };
    let number = u32::from_str_radix(rest.as_str().get(..digits)?, 16).ok()?;
    rest.nth(digits - 1);
    let character = char::from_u32(number).filter(|_| digits > 2 || number < 0x80);
    Some(character.unwrap_or(char::REPLACEMENT_CHARACTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_name_a_file_and_a_line() {
        let line = "#\t0x4b5f7b\tmain.(*box[...]).fill+0x1b\t\t/src/a b.go:30";
        let frame = FrameComment::parse(line).unwrap();
        assert_eq!((frame.address, frame.name), (0x4b_5f7b, "main.(*box[...]).fill"));
        assert_eq!((frame.file, frame.line), ("/src/a b.go", 30));
        for line in ["#\t0x0", "# runtime.MemStats", "#\t0x1\tmain.f\ta.go:1", "#\t0xg\ta+0x1\tb:1"]
        {
            assert_eq!(FrameComment::parse(line), None, "{line}");
        }
    }

    #[test]
    fn texts_in_quotes_have_escapes() {
        let cases = [
            (r#""a" b"#, Some(("a", " b"))),
            (r#""\"\\\n\x01\xff\u00fc\U0001f600ü""#, Some(("\"\\\n\x01\u{fffd}ü😀ü", ""))),
            (r#""\U00110000""#, Some(("\u{fffd}", ""))),
            (r#""\xü""#, None),
            (r#""a"#, None),
            (r#"a"#, None),
        ];
        for (text, expected) in cases {
            let parsed = quoted(text);
            assert_eq!(parsed.as_ref().map(|(text, rest)| (&**text, *rest)), expected, "{text}");
        }
    }
}
