//! Numbers in lines of text.

/// A text that is parsed from its beginning.
#[derive(Clone, Copy)]
pub(super) struct Scanner<'a> {
    pub rest: &'a str,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(rest: &'a str) -> Scanner<'a> {
        Scanner { rest }
    }

    /// Skips `text`; false if it does not follow.
    pub(super) fn literal(&mut self, text: &str) -> bool {
        let after = self.rest.strip_prefix(text);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    /// Skips blanks.
    pub(super) fn blanks(&mut self) {
        self.rest = self.rest.trim_start_matches(' ');
    }

    /// The longest text of these characters, which may be empty.
    pub(super) fn run(&mut self, is_part: impl Fn(u8) -> bool) -> &'a str {
        let length = self.rest.bytes().take_while(|&byte| is_part(byte)).count();
        let (run, rest) = self.rest.split_at(length);
        self.rest = rest;
        run
    }

    /// The digits of a decimal number.
    pub(super) fn digits(&mut self) -> Option<&'a str> {
        Some(self.run(|byte| byte.is_ascii_digit())).filter(|digits| !digits.is_empty())
    }

    /// A decimal number that may be negative.
    pub(super) fn signed(&mut self) -> Option<&'a str> {
        let start = self.rest;
        self.literal("-");
        let length = start.len() - self.rest.len() + self.digits()?.len();
        Some(&start[..length])
    }
}

/// The places of a line at which a number begins, with its sign.
pub(super) fn number_starts(line: &str) -> impl Iterator<Item = Scanner<'_>> {
    let bytes = line.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let is_start = move |&at: &usize| match bytes[at] {
        b'-' => is_digit(at + 1),
        _ => is_digit(at) && (at == 0 || !is_digit(at - 1) && bytes[at - 1] != b'-'),
    };
    (0..bytes.len()).filter(is_start).map(|at| Scanner::new(&line[at..]))
}

/// A decimal number.
///
/// # Errors
///
/// The sentence about one that is too large.
pub(super) fn decimal(digits: &str) -> Result<i64, String> {
    digits.parse().map_err(|_| format!("the number {digits:.40} is too large"))
}

/// A number in decimal, hexadecimal (`0x`), octal (`0`, `0o`) or binary (`0b`) digits.
pub(super) fn any_base(text: &str) -> Option<i64> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (base, digits) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        Some(_) if lower.starts_with('0') => (8, &lower[1..]),
        _ => (10, &*lower),
    };
    let is_number = !digits.starts_with(['+', '-']);
    let number = i64::from_str_radix(digits, base).ok().filter(|_| is_number)?;
    Some(if is_negative { -number } else { number })
}

/// The addresses of a text: each `0x` with hexadecimal digits in lower case.
///
/// # Errors
///
/// The sentence about one that is too large.
pub(super) fn addresses(text: &str) -> impl Iterator<Item = Result<u64, String>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let at = rest.find("0x")?;
            let mut scanner = Scanner::new(&rest[at + 2..]);
            let digits = scanner.run(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            rest = scanner.rest;
            if !digits.is_empty() {
                let error = |_| format!("the address 0x{digits:.40} has more than 64 bits");
                return Some(u64::from_str_radix(digits, 16).map_err(error));
            }
        }
    })
}

/// The part of a stack's line that has the addresses, after `@`.
pub(super) fn address_part(text: &str) -> &str {
    let is_part = |byte| matches!(byte, b' ' | b'x' | b'0'..=b'9' | b'a'..=b'f');
    Scanner::new(text).run(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_any_base() {
        let cases =
            [("12", 12), ("-0x1F", -31), ("017", 15), ("0b11", 3), ("0", 0), ("+5", 5), ("0o7", 7)];
        for (text, number) in cases {
            assert_eq!(any_base(text), Some(number), "{text}");
        }
        for text in ["", "x", "0x", "--1", "0x-1", "99999999999999999999", "1 "] {
            assert_eq!(any_base(text), None, "{text}");
        }
    }

    #[test]
    fn addresses_are_found_in_any_text() {
        let found: Vec<_> = addresses("PC: 0x1f 0xg 0x0x2 00x3").map(Result::unwrap).collect();
        assert_eq!(found, [0x1f, 0, 3]);
        let large = addresses("0x11111111111111111").next().unwrap().unwrap_err();
        assert_eq!(large, "the address 0x11111111111111111 has more than 64 bits");
        assert_eq!(addresses("0x000000000000000000001").next(), Some(Ok(1)));
    }

    #[test]
    fn numbers_begin_with_their_sign() {
        let starts: Vec<_> = number_starts("a1 -23--4 5").map(|scanner| scanner.rest).collect();
        assert_eq!(starts, ["1 -23--4 5", "-23--4 5", "-4 5", "5"]);
    }
}
