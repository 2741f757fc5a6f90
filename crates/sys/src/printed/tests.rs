//! Tests of the replaced characters.

use proptest::prelude::*;

use super::*;

/// The output of these pieces, written one after the other.
fn written(pieces: &[&[u8]]) -> String {
    let mut out = Clean::new(Vec::new());
    pieces.iter().for_each(|piece| out.write_all(piece).unwrap());
    String::from_utf8(out.inner().clone()).unwrap()
}

#[test]
fn hidden_characters_are_replaced_visibly() {
    assert_eq!(line("s\x1b[31mY\x1b]0;P\x07"), "s␛[31mY␛]0;P␇");
    assert_eq!(line("a\u{9b}31m"), "a�31m");
    assert_eq!(line("admin\u{202e}x\u{2066}\u{2069}\u{200b}\u{feff}"), "admin�x����");
    assert_eq!(line("two\nlines\tand\rmore\x7f"), "two lines and␍more␡");
    for plain in ["operator<< <int>", "größe", "файл", "関数", "│ …", "🦀"] {
        assert_eq!(line(plain), plain);
        assert_eq!(written(&[plain.as_bytes()]), plain);
    }
    assert_eq!(written(&[b"a\n\tb\x1b[2J"]), "a\n\tb␛[2J");
    assert_eq!(written(&[b"latin \xe9, C1 \x9b31m"]), "latin �, C1 �31m");
}

#[test]
fn the_locale_decides_on_the_characters() {
    let charset = |variables: &[(&str, &str)]| {
        Charset::for_locale(|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    };
    for utf8 in ["de_DE.UTF-8", "C.utf8", "en_US.UTF-8@euro"] {
        assert_eq!(charset(&[("LANG", utf8)]), Charset::Unicode, "{utf8}");
    }
    for ascii in ["C", "POSIX", "de_DE.ISO-8859-1", ""] {
        assert_eq!(charset(&[("LANG", ascii)]), Charset::Ascii, "{ascii}");
    }
    assert_eq!(charset(&[]), Charset::Ascii);
    let of_three =
        |all, ctype, lang| charset(&[("LC_ALL", all), ("LC_CTYPE", ctype), ("LANG", lang)]);
    assert_eq!(of_three("C", "C.UTF-8", "C.UTF-8"), Charset::Ascii);
    assert_eq!(of_three("", "C.UTF-8", "C"), Charset::Unicode);
    assert_eq!(of_three("", "C", "C.UTF-8"), Charset::Ascii);
}

#[test]
fn each_character_is_replaced_by_one_in_ascii() {
    for (text, ascii) in [
        ("│ ├─foo  12.5 µs", "| |-foo  12.5 us"),
        ("… 3 → 4 (×1.33, p ≤ 0.05) · größe", ". 3 > 4 (x1.33, p < 0.05) - gr??e"),
        ("┌┼─└ ↳ inner", "||-| > inner"),
        ("plain\ttext\n", "plain\ttext\n"),
    ] {
        assert_eq!(Charset::Ascii.text(text), ascii);
        assert_eq!(Charset::Unicode.text(text), text);
        let mut out = Clean::with_charset(Vec::new(), Charset::Ascii);
        // Also if a character is cut between two writes.
        text.as_bytes().chunks(1).for_each(|piece| out.write_all(piece).unwrap());
        assert_eq!(str::from_utf8(out.inner()), Ok(ascii));
    }
    let mut out = Clean::with_charset(Vec::new(), Charset::Ascii);
    out.write_all("\x1b[2J\u{202e}".as_bytes()).unwrap();
    assert_eq!(str::from_utf8(out.inner()), Ok("?[2J?"));
}

proptest! {
    /// No cut between pieces lets a hidden character through or loses one.
    #[test]
    fn streams_may_be_cut_anywhere(text in "\\PC*[\\x00-\\x1f\u{80}-\u{9f}\u{202a}-\u{202e}a-z]*", at in 0usize..64) {
        let bytes = text.as_bytes();
        let (before, after) = bytes.split_at(at.min(bytes.len()));
        let out = written(&[before, after]);
        prop_assert!(!out.contains(|c| is_hidden(c) && c != '\n' && c != '\t'), "{out:?}");
        prop_assert_eq!(out.chars().count(), text.chars().count());
        prop_assert_eq!(line(&text), line(&out));
    }

    #[test]
    fn bytes_are_never_passed_on_as_they_are(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let out = written(&[&bytes]);
        prop_assert!(!out.contains(|c| is_hidden(c) && c != '\n' && c != '\t'), "{out:?}");
    }
}
