//! Fields of records and sections, all of them little-endian.

/// Bytes of which fields are taken from the front. All are `None` beyond the end.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields(bytes)
    }

    /// What was not taken.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    /// `count` bytes.
    pub fn bytes(&mut self, count: u64) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }

    /// `count` words of eight bytes.
    pub fn words(&mut self, count: u64) -> Option<&'a [u8]> {
        self.bytes(count.checked_mul(8)?)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// The bytes up to the first zero, or all of them.
    pub fn text(self) -> &'a [u8] {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        &self.0[..end]
    }

    /// A text with its length before it, which includes padding.
    pub fn string(&mut self) -> Option<String> {
        let length = self.u32()?;
        let text = Fields(self.bytes(length.into())?).text();
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

/// Words of eight bytes.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}
