//! Texts in less room than they need.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::style;

/// A text of at most this many columns of a terminal; of a longer one, both ends.
pub fn middle(text: &str, most: usize) -> String {
    if text.width() <= most || most == 0 {
        return text.to_owned();
    }
    let first = (most - 1) / 2;
    let begin = &text[..end_of(text, first)];
    let end = &text[begin_of(text, most - 1 - first)..];
    format!("{begin}…{end}")
}

/// The byte at which the first characters end, which take at most `most` columns.
fn end_of(text: &str, most: usize) -> usize {
    let mut left = most;
    for (at, c) in text.char_indices() {
        match left.checked_sub(c.width().unwrap_or(0)) {
            Some(rest) => left = rest,
            None => return at,
        }
    }
    text.len()
}

/// The byte at which the last characters begin, which take at most `most` columns. The first of them
/// is not one that combines with the character before it.
fn begin_of(text: &str, most: usize) -> usize {
    let mut left = most;
    let mut begin = text.len();
    for (at, c) in text.char_indices().rev() {
        let width = c.width().unwrap_or(0);
        let Some(rest) = left.checked_sub(width) else { break };
        left = rest;
        if width > 0 {
            begin = at;
        }
    }
    begin
}

/// A text in lines of at most this many columns, which end at words if they can; blanks around a
/// break are left out. Only what is taken is looked at: a text may be very long.
pub fn wrapped(text: &str, columns: usize) -> impl Iterator<Item = &str> {
    let mut rest = text.trim_end();
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let fitting = end_of(rest, columns).max(first.len_utf8());
        let is_word = fitting < rest.len() && !rest[fitting..].starts_with(' ');
        let blank = rest[..fitting].trim_end().rfind(' ').filter(|&at| is_word && at > 0);
        let end = match blank {
            Some(at) if !rest[..fitting].ends_with(' ') => at,
            _ => fitting,
        };
        let line = rest[..end].trim_end();
        rest = rest[end..].trim_start();
        Some(line)
    })
}

/// Fewest columns of a label.
const LEAST: usize = 3;

/// Fewest columns with an ellipsis, and with both ends.
const WITH_ELLIPSIS: usize = 6;
const WITH_BOTH_ENDS: usize = 12;

/// At most `room` columns of a function's name: without arguments of templates if it has no room
/// for them, then with an ellipsis; empty if there is room for fewer than three.
pub fn label(name: &str, room: usize) -> String {
    if name.width() <= room {
        return name.to_owned();
    }
    let name = style::short(name);
    if name.width() <= room {
        name
    } else if room < LEAST {
        String::new()
    } else if room < WITH_ELLIPSIS {
        name[..end_of(&name, room)].to_owned()
    } else if room < WITH_BOTH_ENDS {
        format!("{}…", &name[..end_of(&name, room - 1)])
    } else {
        middle(&name, room)
    }
}

/// The least room for a name in a line, so that something of it can be read.
pub const LEAST_NAME: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_long_text_remain() {
        assert_eq!(middle("abcdefgh", 8), "abcdefgh");
        assert_eq!(middle("abcdefgh", 5), "ab…gh");
        assert_eq!(middle("äöüßáéíó", 4), "ä…íó");
    }

    #[test]
    fn wide_characters_take_two_columns_and_combining_ones_none() {
        assert_eq!(middle("函数函数", 8), "函数函数");
        assert_eq!(middle("函数函数", 7), "函…数");
        assert_eq!(middle("函数函数", 6), "函…数");
        assert_eq!(middle("函数函数", 5), "函…数");
        assert_eq!(middle("e\u{301}abcde\u{301}", 5), "e\u{301}a…de\u{301}");
        assert_eq!(middle("abcdee\u{301}", 3), "a…e\u{301}");
        assert_eq!(middle("abcd\u{301}\u{301}e", 3), "a…e");
        assert_eq!(label("函数函数函数函数", 12), "函数…数函数");
        assert_eq!(label("函数函数", 6), "函数…");
        assert_eq!(label("函数函数", 3), "函");
    }

    #[test]
    fn lines_end_at_words_or_at_their_width() {
        let wrapped = |text, columns| wrapped(text, columns).collect::<Vec<&str>>();
        assert_eq!(wrapped("prof report --sort=symbol", 11), ["prof report", "--sort=symb", "ol"]);
        assert_eq!(wrapped("prof report --sort=symbol", 13), ["prof report", "--sort=symbol"]);
        assert_eq!(wrapped("prof report", 10), ["prof", "report"]);
        assert_eq!(wrapped("a 函数函数 b", 4), ["a", "函数", "函数", "b"]);
        assert_eq!(wrapped("函", 1), ["函"]);
        assert_eq!(wrapped("e\u{301}e\u{301}e\u{301}", 2), ["e\u{301}e\u{301}", "e\u{301}"]);
        assert_eq!(wrapped("ab  cd ", 3), ["ab", "cd"]);
        assert_eq!(wrapped("", 3), [""; 0]);
    }

    #[test]
    fn a_label_has_as_much_of_a_name_as_there_is_room_for() {
        let name = "std::vector<std::pair<int, long>>::push_back";
        assert_eq!(label(name, 44), name);
        assert_eq!(label(name, 43), "std::vector::push_back");
        assert_eq!(label(name, 20), "std::vect…:push_back");
        assert_eq!(label(name, 8), "std::ve…");
        assert_eq!(label(name, 3), "std");
        assert_eq!(label(name, 2), "");
        assert_eq!(label("ab", 2), "ab");
    }
}
