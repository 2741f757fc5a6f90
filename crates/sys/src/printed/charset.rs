//! Characters that a terminal can show, by the locale.

use std::borrow::Cow;
use std::io::{self, IsTerminal};

/// Characters of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// ASCII only.
    Ascii,
    /// All of Unicode, as UTF-8.
    Unicode,
}

impl Charset {
    /// The characters of the locale in these environment variables.
    pub fn for_locale(variable: impl Fn(&str) -> Option<String>) -> Charset {
        let set = |name: &str| variable(name).filter(|text| !text.is_empty());
        // The order of setlocale(3).
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        if locale.contains("utf-8") || locale.contains("utf8") {
            Charset::Unicode
        } else {
            Charset::Ascii
        }
    }

    /// Those for standard output: of the locale on a terminal; files and pipes get UTF-8.
    pub fn for_stdout() -> Charset {
        Charset::for_stream(&io::stdout())
    }

    /// The same for standard error.
    pub fn for_stderr() -> Charset {
        Charset::for_stream(&io::stderr())
    }

    fn for_stream(stream: &impl IsTerminal) -> Charset {
        if !stream.is_terminal() {
            return Charset::Unicode;
        }
        let variable = |name: &str| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
        Charset::for_locale(variable)
    }

    /// `text` in these characters. Each other one is replaced by one, so that columns stay aligned.
    pub fn text(self, text: &str) -> Cow<'_, str> {
        match self {
            Charset::Ascii if !text.is_ascii() => {
                text.chars().map(ascii).collect::<String>().into()
            }
            _ => text.into(),
        }
    }

    /// A character, or its replacement.
    pub(super) fn character(self, c: char) -> char {
        match self {
            Charset::Ascii => ascii(c),
            Charset::Unicode => c,
        }
    }
}

/// The replacement in ASCII: similar for the characters that prof itself prints, `?` for those of
/// names.
fn ascii(c: char) -> char {
    match c {
        'µ' => 'u',
        '…' => '.',
        '│' | '├' | '┌' | '└' | '┼' => '|',
        '─' | '·' => '-',
        '↳' | '→' => '>',
        '×' => 'x',
        '≤' => '<',
        c if c.is_ascii() => c,
        _ => '?',
    }
}
