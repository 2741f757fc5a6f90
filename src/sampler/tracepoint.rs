//! Tracepoints and the layout of their fields in a sample, from tracefs
//! (`events/SYSTEM/NAME/format`; `Documentation/trace/events.rst` of the kernel).

use std::fs;
use std::io;

use super::permissions::tracepoint_id;

/// A tracepoint of this kernel.
#[derive(Clone, Debug, Default)]
pub struct Tracepoint {
    /// `perf_event_attr.config`.
    pub id: u64,
    fields: Vec<(String, Field)>,
}

/// Offset and size of a field in the raw data of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    offset: usize,
    size: usize,
    signed: bool,
}

impl Tracepoint {
    /// The tracepoint `system:name`.
    ///
    /// # Errors
    ///
    /// Those of [`tracepoint_id`].
    pub fn find(system: &str, name: &str) -> io::Result<Tracepoint> {
        let id = tracepoint_id(system, name)?;
        let roots = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
        let path = |root| format!("{root}/events/{system}/{name}/format");
        let format = roots.into_iter().find_map(|root| fs::read_to_string(path(root)).ok());
        let format = format.ok_or(io::ErrorKind::NotFound)?;
        Ok(Tracepoint { id, fields: format.lines().filter_map(parse).collect() })
    }

    /// The layout of a field.
    ///
    /// # Errors
    ///
    /// `InvalidData`: this kernel's tracepoint has no field of that name.
    pub fn field(&self, name: &str) -> io::Result<Field> {
        let found = self.fields.iter().find(|(known, _)| known == name);
        found.map(|(_, field)| *field).ok_or_else(|| {
            let why = format!("the kernel's tracepoint has no field '{name}'");
            io::Error::new(io::ErrorKind::InvalidData, why)
        })
    }
}

impl Field {
    /// A field with a fixed layout.
    #[cfg(test)]
    pub fn at(offset: usize, size: usize) -> Field {
        Field { offset, size, signed: false }
    }

    /// The bytes of the field; `None` if the sample is too short.
    pub fn bytes(self, raw: &[u8]) -> Option<&[u8]> {
        raw.get(self.offset..self.offset.checked_add(self.size)?)
    }

    /// The field as a number, negative ones in two's complement.
    pub fn number(self, raw: &[u8]) -> Option<u64> {
        let bytes = self.bytes(raw)?;
        Some(match (bytes.len(), self.signed) {
            (1, _) => u64::from(bytes[0]),
            (2, _) => u64::from(u16::from_ne_bytes(*bytes.first_chunk()?)),
            (4, true) => i64::from(i32::from_ne_bytes(*bytes.first_chunk()?)) as u64,
            (4, false) => u64::from(u32::from_ne_bytes(*bytes.first_chunk()?)),
            _ => u64::from_ne_bytes(*bytes.first_chunk()?),
        })
    }

    /// The field as a NUL-terminated text.
    pub fn text(self, raw: &[u8]) -> Option<&[u8]> {
        self.bytes(raw)?.split(|&b| b == 0).next()
    }
}

/// `field:unsigned int flags; offset:16; size:4; signed:0;`
fn parse(line: &str) -> Option<(String, Field)> {
    let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
    let declared = parts.next()?.split('[').next()?;
    let name = declared.rsplit([' ', '*']).next()?.to_owned();
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse::<usize>().ok();
    let offset = number("offset:")?;
    let size = number("size:")?;
    let signed = number("signed:") == Some(1);
    Some((name, Field { offset, size, signed }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_kernel_says() {
        let field = |line| parse(line).unwrap();
        let line = "\tfield:u32 * uaddr;\toffset:16;\tsize:8;\tsigned:0;";
        assert_eq!(field(line), ("uaddr".into(), Field { offset: 16, size: 8, signed: false }));
        let (name, rwbs) = field("\tfield:char rwbs[10];\toffset:2;\tsize:10;\tsigned:0;");
        assert_eq!((name.as_str(), rwbs.text(b"..WS\0abcdefg")), ("rwbs", Some(&b"WS"[..])));
        assert_eq!(rwbs.text(b"..WS"), None);
        let (_, ret) = field("field:int error;\toffset:1;\tsize:4;\tsigned:1;");
        let raw = [9, 0xfe, 0xff, 0xff, 0xff];
        assert_eq!(ret.number(&raw), Some(-2i64 as u64));
        assert_eq!(Field { signed: false, ..ret }.number(&raw), Some(0xffff_fffe));
        assert_eq!(ret.number(&raw[..4]), None);
        for bad in ["", "print fmt: \"field:\"", "field:int x;", "field:int x; offset:a; size:4;"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
