//! Tests of what is replaced, and that nothing goes around.

use std::path::Path;

use proptest::prelude::*;

use super::*;

/// What comes out when these pieces are written one after the other.
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

proptest! {
    /// Wherever the pieces are cut, no hidden character comes out and none is lost.
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

/// Lines of the sources outside of this folder and of tests that a check finds.
fn found_in_sources(is_wrong: impl Fn(&Path, &str) -> bool) -> Vec<String> {
    fn visit(dir: &Path, files: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => visit(&path, files),
                false => files.push(path),
            }
        }
    }
    let mut files = Vec::new();
    visit(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let mut found = Vec::new();
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "rs")) {
        let is = |name: &str| file.components().any(|c| c.as_os_str() == name);
        if is("printed") || is("tests") || is("preload") || file.ends_with("tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        let wrong = code.lines().filter(|l| !l.trim_start().starts_with("//"));
        let wrong = wrong.filter(|l| is_wrong(file, l));
        found.extend(wrong.map(|l| format!("{}: {}", file.display(), l.trim())));
    }
    found
}

#[test]
fn no_text_goes_around() {
    let found = found_in_sources(|file, line| {
        let prints = ["println!(", "print!(", "dbg!("].iter().any(|p| line.contains(p));
        let opens = line.contains("io::stderr()") || line.contains("io::stdout()");
        // Profiles are bytes; the command gets the descriptor itself.
        let bytes = file.ends_with("format/output.rs") || file.ends_with("sampler/command.rs");
        prints || opens && !bytes
    });
    assert!(found.is_empty(), "these print without crate::printed:\n{}", found.join("\n"));
}

#[test]
fn bars_are_drawn_in_one_place() {
    let found = found_in_sources(|file, line| {
        line.contains("indicatif::") && !file.ends_with("cli/progress.rs")
    });
    assert!(found.is_empty(), "these draw without cli::progress:\n{}", found.join("\n"));
}
