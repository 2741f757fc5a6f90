//! Names in less room than they need.

use super::style;

/// A text of at most `most` characters; of a longer one, both ends.
pub fn middle(text: &str, most: usize) -> String {
    let count = text.chars().take(most + 1).count();
    if count <= most || most == 0 {
        return text.to_owned();
    }
    let first = (most - 1) / 2;
    let begin: String = text.chars().take(first).collect();
    let end: Vec<char> = text.chars().rev().take(most - 1 - first).collect();
    format!("{begin}…{}", end.into_iter().rev().collect::<String>())
}

/// Fewest characters of a label.
const LEAST: usize = 3;

/// Fewest characters with an ellipsis, and with both ends.
const WITH_ELLIPSIS: usize = 6;
const WITH_BOTH_ENDS: usize = 12;

/// At most `room` characters of a function's name: without arguments of templates if it has no room
/// for them, then with an ellipsis; empty if there is room for fewer than three.
pub fn label(name: &str, room: usize) -> String {
    let fits = |name: &str| name.chars().take(room + 1).count() <= room;
    if fits(name) {
        return name.to_owned();
    }
    let name = style::short(name);
    if fits(&name) {
        name
    } else if room < LEAST {
        String::new()
    } else if room < WITH_ELLIPSIS {
        name.chars().take(room).collect()
    } else if room < WITH_BOTH_ENDS {
        name.chars().take(room - 1).chain(['…']).collect()
    } else {
        middle(&name, room)
    }
}

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
