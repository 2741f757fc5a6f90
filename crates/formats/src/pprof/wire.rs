//! The protobuf wire format: varints, tags, length-delimited fields.

use crate::HEAD;
use crate::error::ReadError;

/// Wire types.
pub(super) const VARINT: u8 = 0;
pub(super) const FIXED64: u8 = 1;
pub(super) const LEN: u8 = 2;
pub(super) const FIXED32: u8 = 5;

/// Most bytes of a varint.
pub(super) const MAX_VARINT: usize = 10;

/// A message (or a part of one) that is being read.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
    /// Offset in the stream of the byte after `rest`.
    end: u64,
}

/// True if a stream that begins with `head` may be a `Profile`: up to its end, or for a few fields,
/// `head` has fields with the numbers and wire types of that message. The first letters of a text may
/// be tags, but not what follows.
pub(super) fn begins_with_fields(head: &[u8]) -> bool {
    /// Fields that are read.
    const MANY: usize = 16;
    /// The field of comments, which writers pack or not.
    const COMMENT: u32 = 13;
    let is_field = |FieldTag { field, wire }: FieldTag| match field {
        1..=6 | 11 => wire == LEN,
        7..=10 | 12 | 14 | 15 => wire == VARINT,
        COMMENT => wire == LEN || wire == VARINT,
        _ => false,
    };
    // The first bytes of a compressed stream may unpack to a little less.
    let is_cut = head.len() >= HEAD - HEAD / 16;
    let mut rest = head;
    // Each profile has sample types and strings.
    let mut has_parts = false;
    for _ in 0..MANY {
        let Some((&tag, behind)) = rest.split_first() else { return has_parts };
        let Some(tag) = FieldTag::decode_byte(tag).filter(|&tag| is_field(tag)) else {
            return false;
        };
        let length = behind.iter().take(MAX_VARINT).position(|byte| byte & 0x80 == 0);
        let Some(length) = length else { return is_cut && behind.len() < MAX_VARINT };
        has_parts |= tag.wire == LEN;
        let (bytes, behind) = behind.split_at(length + 1);
        let bits = bytes.iter().rev().fold(0u64, |sum, byte| sum << 7 | u64::from(byte & 0x7f));
        let skipped = if tag.wire == LEN { usize::try_from(bits).unwrap_or(usize::MAX) } else { 0 };
        match behind.get(skipped..) {
            Some(after) => rest = after,
            // The head ends within the field.
            None => return is_cut,
        }
    }
    has_parts
}

/// Number and wire type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FieldTag {
    pub field: u32,
    pub wire: u8,
}

impl FieldTag {
    /// A valid tag of one byte, as all those of pprof are.
    #[inline(always)]
    fn decode_byte(byte: u8) -> Option<FieldTag> {
        const WIRES: u8 = 1 << VARINT | 1 << FIXED64 | 1 << LEN | 1 << FIXED32;
        let wire = byte & 7;
        let is_valid = (8..0x80).contains(&byte) && WIRES >> wire & 1 != 0;
        is_valid.then_some(FieldTag { field: u32::from(byte >> 3), wire })
    }

    pub(super) fn decode(raw: u64, at: u64) -> Result<FieldTag, ReadError> {
        let field = raw >> 3;
        let wire = (raw & 7) as u8;
        if field == 0 || field >= 1 << 29 {
            return Err(ReadError::at(at, format!("{field} is no field number")));
        }
        if !matches!(wire, VARINT | FIXED64 | LEN | FIXED32) {
            return Err(ReadError::at(at, format!("field {field} has unknown wire type {wire}")));
        }
        Ok(FieldTag { field: field as u32, wire })
    }

    /// The error for a known field of another wire type than the schema's.
    #[cold]
    pub(super) fn mismatch(self, at: u64, message: &str) -> ReadError {
        let FieldTag { field, wire } = self;
        ReadError::at(at, format!("field {field} of a {message} has wire type {wire}"))
    }
}

impl<'a> Cursor<'a> {
    /// A cursor over `bytes`, the first of which is at `start` in the stream.
    pub(super) fn new(bytes: &'a [u8], start: u64) -> Cursor<'a> {
        Cursor { rest: bytes, end: start + bytes.len() as u64 }
    }

    /// Offset in the stream of the next byte.
    #[inline]
    pub(super) fn at(&self) -> u64 {
        self.end - self.rest.len() as u64
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Remaining bytes.
    #[inline]
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next varint.
    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, ReadError> {
        if let [byte, rest @ ..] = self.rest
            && *byte < 0x80
        {
            self.rest = rest;
            return Ok(u64::from(*byte));
        }
        if let [low, high, rest @ ..] = self.rest
            && *high < 0x80
        {
            self.rest = rest;
            return Ok(u64::from(*low & 0x7f) | u64::from(*high) << 7);
        }
        if let Some(word) = self.rest.first_chunk::<8>()
            && let Some((value, len)) = decode_word(u64::from_le_bytes(*word))
        {
            self.rest = &self.rest[len..];
            return Ok(value);
        }
        self.varint_slow()
    }

    /// For the end of a message, and varints of more than eight bytes.
    #[inline(never)]
    fn varint_slow(&mut self) -> Result<u64, ReadError> {
        match decode_varint(self.rest) {
            Varint::Done(value, len) => {
                self.rest = &self.rest[len..];
                Ok(value)
            }
            Varint::Short => Err(ReadError::at(self.at(), "a number runs over its message's end")),
            Varint::TooLong => Err(overlong(self.at())),
        }
    }

    /// The next field's tag; `None` at the end of the message.
    #[inline(always)]
    pub(super) fn tag(&mut self) -> Result<Option<FieldTag>, ReadError> {
        if let [byte, rest @ ..] = self.rest
            && let Some(tag) = FieldTag::decode_byte(*byte)
        {
            self.rest = rest;
            return Ok(Some(tag));
        }
        self.tag_slow()
    }

    /// For the end of a message, numbers of fields from 16 on, and errors.
    #[inline(never)]
    fn tag_slow(&mut self) -> Result<Option<FieldTag>, ReadError> {
        if self.is_empty() {
            return Ok(None);
        }
        let at = self.at();
        let raw = self.varint()?;
        FieldTag::decode(raw, at).map(Some)
    }

    /// The content of the length-delimited field whose tag was just read.
    #[inline(always)]
    pub(super) fn field(&mut self) -> Result<Cursor<'a>, ReadError> {
        let at = self.at();
        let len = self.varint()?;
        if len > self.rest.len() as u64 {
            let have = self.rest.len();
            let what = format!("a field of {len} bytes in a message that has {have} left");
            return Err(ReadError::at(at, what));
        }
        let (content, rest) = self.rest.split_at(len as usize);
        self.rest = rest;
        Ok(Cursor { rest: content, end: self.at() })
    }

    /// Skips the content of an unknown field.
    pub(super) fn skip(&mut self, tag: FieldTag) -> Result<(), ReadError> {
        let bytes = match tag.wire {
            VARINT => return self.varint().map(drop),
            LEN => return self.field().map(drop),
            FIXED64 => 8,
            _ => 4,
        };
        match self.rest.get(bytes..) {
            Some(rest) => self.rest = rest,
            None => return Err(ReadError::at(self.at(), "a field runs over its message's end")),
        }
        Ok(())
    }

    /// Passes every number of a repeated field, packed or not, to `each`.
    #[inline]
    pub(super) fn numbers(
        &mut self,
        tag: FieldTag,
        message: &str,
        mut each: impl FnMut(u64) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        match tag.wire {
            VARINT => each(self.varint()?),
            LEN => {
                let mut packed = self.field()?;
                while !packed.is_empty() {
                    each(packed.varint()?)?;
                }
                Ok(())
            }
            _ => Err(tag.mismatch(self.at(), message)),
        }
    }

    /// The number of a field that must be one varint.
    #[inline]
    pub(super) fn number(&mut self, tag: FieldTag, message: &str) -> Result<u64, ReadError> {
        if tag.wire != VARINT {
            return Err(tag.mismatch(self.at(), message));
        }
        self.varint()
    }

    /// The content of a field that must be a message.
    #[inline]
    pub(super) fn message(
        &mut self,
        tag: FieldTag,
        message: &str,
    ) -> Result<Cursor<'a>, ReadError> {
        if tag.wire != LEN {
            return Err(tag.mismatch(self.at(), message));
        }
        self.field()
    }
}

#[cold]
pub(super) fn overlong(at: u64) -> ReadError {
    ReadError::at(at, "a number of more than 10 bytes")
}

/// Result of decoding a varint from the start of a slice.
pub(super) enum Varint {
    /// Value and length.
    Done(u64, usize),
    /// The slice ends inside the varint.
    Short,
    /// The varint does not end within ten bytes.
    TooLong,
}

/// Decodes a varint byte by byte. Bits beyond the 64th are dropped, as other readers do.
pub(super) fn decode_varint(bytes: &[u8]) -> Varint {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().take(MAX_VARINT).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return Varint::Done(value, i + 1);
        }
    }
    if bytes.len() >= MAX_VARINT { Varint::TooLong } else { Varint::Short }
}

/// Decodes a varint of at most eight bytes from a little-endian word without a branch on its
/// length: real profiles mix lengths of two and three bytes, which mispredict.
#[inline]
fn decode_word(word: u64) -> Option<(u64, usize)> {
    let stops = !word & 0x8080_8080_8080_8080;
    if stops == 0 {
        return None;
    }
    let bits = stops.trailing_zeros() + 1;
    let v = word & (u64::MAX >> (64 - bits)) & 0x7f7f_7f7f_7f7f_7f7f;
    let v = ((v & 0x7f00_7f00_7f00_7f00) >> 1) | (v & 0x007f_007f_007f_007f);
    let v = ((v & 0x3fff_0000_3fff_0000) >> 2) | (v & 0x0000_3fff_0000_3fff);
    let v = ((v & 0x0fff_ffff_0000_0000) >> 4) | (v & 0x0fff_ffff);
    Some((v, (bits / 8) as usize))
}

/// Appends a varint.
#[inline]
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a tag.
#[inline]
pub(super) fn put_tag(out: &mut Vec<u8>, field: u32, wire: u8) {
    put_varint(out, u64::from(field << 3) | u64::from(wire));
}

/// Appends a number field, unless it is 0, which is the default.
#[inline]
pub(super) fn put_number(out: &mut Vec<u8>, field: u32, value: u64) {
    if value != 0 {
        put_tag(out, field, VARINT);
        put_varint(out, value);
    }
}

/// Appends a length-delimited field.
#[inline]
pub(super) fn put_bytes(out: &mut Vec<u8>, field: u32, content: &[u8]) {
    put_tag(out, field, LEN);
    put_varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_does_not_begin_with_fields() {
        for text in [
            "print('hi')\n",
            "x = 1\n",
            "bash\n",
            "*\n",
            "hello world",
            "",
            "0x",
            "8\n",
            "8080\n",
            "x\n",
        ] {
            assert!(!begins_with_fields(text.as_bytes()), "{text}");
        }
        let builder = profile::Builder::new(&[("cpu", "nanoseconds")]);
        let mut bytes = Vec::new();
        crate::pprof::write(&builder.finish(None), &mut bytes).unwrap();
        let content = crate::unpacked::head(&bytes);
        assert!(begins_with_fields(&content));
        // A string that is longer than the head.
        let mut long = vec![0x32, 0xff, 0xff, 0x7f];
        long.resize(HEAD, b'a');
        assert!(begins_with_fields(&long) && !begins_with_fields(&long[..100]));
    }

    #[test]
    fn varints_of_all_lengths() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, value);
                let len = bytes.len() as u64;
                let mut c = Cursor::new(&bytes, 0);
                assert_eq!(c.varint().unwrap(), value);
                assert_eq!(c.at(), len);
                bytes.extend([0xff; 8]);
                let mut c = Cursor::new(&bytes, 100);
                assert_eq!(c.varint().unwrap(), value, "with bytes behind it");
                assert_eq!(c.at(), 100 + len);
            }
        }
    }

    #[test]
    fn bad_varints_are_errors() {
        let overlong = [0x80u8; 11];
        let e = Cursor::new(&overlong, 7).varint().unwrap_err();
        assert_eq!(e.offset(), Some(7));
        assert!(e.to_string().contains("more than 10 bytes"), "{e}");
        let e = Cursor::new(&[0x80, 0x80], 0).varint().unwrap_err();
        assert!(e.to_string().contains("message's end"), "{e}");
        // Not the shortest form, but valid.
        assert_eq!(Cursor::new(&[0x81, 0x80, 0], 0).varint().unwrap(), 1);
    }

    #[test]
    fn fields_stay_within_their_message() {
        let mut c = Cursor::new(&[0x0a, 5, 1, 2], 0);
        let tag = c.tag().unwrap().unwrap();
        assert_eq!(tag, FieldTag { field: 1, wire: LEN });
        assert!(c.field().unwrap_err().to_string().contains("5 bytes"));
        for bytes in [[0x09u8, 1, 2], [0x0d, 1, 2]] {
            let mut c = Cursor::new(&bytes, 0);
            let tag = c.tag().unwrap().unwrap();
            assert!(c.skip(tag).is_err());
        }
    }

    #[test]
    fn groups_and_field_zero_are_errors() {
        assert!(Cursor::new(&[0x0b], 0).tag().is_err());
        assert!(Cursor::new(&[0x02], 0).tag().is_err());
    }
}
