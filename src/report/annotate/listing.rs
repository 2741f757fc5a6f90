//! The words of a listing: its name, what is missing, and lines of source.

use super::Annotated;
use crate::report::text::{clean, in_brackets};
use crate::report::values;
use code::sources::Newer;
use code::text::{NoText, Origin};
use profile::{Language, MappingId, Profile, StrId};
use sys::jit::file_names::is_compilers_file;
use view::RowValues;
use view::source::{InlinedLine, Unit};
use view::{Name, View, base_name};

/// Columns of a tab.
const TAB: usize = 8;
/// Characters of a line that are shown.
const MAX_WIDTH: usize = 500;

/// The lines above a listing: the name, the values, and what is missing.
pub fn head_notes(view: &View, unit: Unit, annotated: &Annotated<'_>) -> Vec<String> {
    let listing = annotated.listing;
    let p = view.profile;
    let file = p.str(listing.file);
    let file_name = if file.is_empty() { "[unknown file]" } else { file };
    let name = match unit {
        Unit::Function if listing.is_unnamed() => listing.name(view).into_owned(),
        Unit::Function => format!("{}  {file_name}", name(view, listing.function)),
        Unit::File => file_name.to_owned(),
    };
    let binary = listing.mapping.map_or("", |m| base_name(p.str(p.mappings[m.0 as usize].file)));
    let binary =
        if binary.is_empty() { String::new() } else { format!("  {}", in_brackets(binary)) };
    let mut notes = vec![clean(&format!("{name}{binary}"))];
    let value = |v: i64| format!("{}, {:.2}%", values::text(view, v), view.percent(v));
    let RowValues { self_value, total } = listing.values;
    notes.push(clean(&format!("self {}; total {}", value(self_value), value(total))));
    if listing.is_unnamed() {
        notes.push("note: without a name, this code has no source lines".to_owned());
        return notes;
    }
    let language = language_of(p, listing.mapping);
    let note = source_note(annotated, file, language);
    notes.extend(note.map(|note| clean(&format!("note: {note}"))));
    if listing.lines.iter().all(|line| line.line <= 0) {
        notes.push(format!("note: {}", no_lines(p, listing.mapping)));
    }
    notes
}

/// The language of a function that has no address.
fn language_of(profile: &Profile, mapping: Option<MappingId>) -> Option<Language> {
    let mapping = &profile.mappings[mapping?.0 as usize];
    Language::in_mapping(profile, mapping)
}

/// Why a function has no lines, and what gives it lines.
fn no_lines(profile: &Profile, mapping: Option<MappingId>) -> &'static str {
    let binary = mapping.map_or("", |m| profile.str(profile.mappings[m.0 as usize].file));
    match language_of(profile, mapping) {
        Some(Language::JavaScript) => {
            "no line numbers: they are counted in the source text that V8 has in memory, which was \
             gone, or too long to be read at that time; a longer recording may have them"
        }
        Some(Language::Java) => {
            "no line numbers; they are in its class file if it is compiled with javac -g"
        }
        Some(Language::Python | Language::Ruby | Language::Php) => {
            "no line numbers: the interpreter has none for this code, or it was gone when they were \
             read from its memory"
        }
        None if is_compilers_file(binary) => {
            "no line numbers: the JIT compiler has not written them"
        }
        None => {
            "no line numbers; they need debug information (compile with -g), then: prof symbolize --force"
        }
    }
}

/// True for the name of code of an interpreter's program that was in no file: `<string>`,
/// `<frozen importlib._bootstrap>`, `node:fs`, `(eval)`.
fn is_no_file(name: &str) -> bool {
    let starts = ["<", "(eval", "node:", "evalmachine.", "[eval"];
    starts.iter().any(|start| name.starts_with(start)) || name.ends_with(" : eval()'d code")
}

/// The state of the source file, if it is not as expected; `language`: that of its program, if an
/// interpreter executes it.
fn source_note(
    annotated: &Annotated<'_>,
    recorded: &str,
    language: Option<Language>,
) -> Option<String> {
    let text = &annotated.text;
    let why = match &text.text {
        Ok(found) => {
            let path = found.path.display();
            return match text.newer_than {
                None => match found.origin {
                    Origin::File => None,
                    Origin::Embedded => Some(format!("source in the debug information of {path}")),
                    Origin::Debuginfod => Some(format!("source from debuginfod: {path}")),
                },
                Some(Newer::Binary) => {
                    Some(format!("{path} is newer than the binary: lines may differ"))
                }
                Some(Newer::Recording) => {
                    Some(format!("{path} is newer than the recording: lines may differ"))
                }
            };
        }
        Err(why) => why,
    };
    Some(match why {
        NoText::Unnamed => return None,
        NoText::Missing if language.is_some() && is_no_file(recorded) => {
            format!("{recorded} is no file: its source was in the program's memory only")
        }
        NoText::Missing => {
            format!("no source file {recorded}; --source-path names the directory that has it")
        }
        NoText::NotRegular => format!("{recorded} is not a regular file"),
        NoText::TooLarge => format!("{recorded} is larger than 16 MiB"),
        NoText::Unreadable(error) => format!("{recorded}: {error}"),
    })
}

/// Name of a function.
pub fn name<'p>(view: &View<'p>, name: Name) -> &'p str {
    match name {
        Name::Function(name) if name != StrId::EMPTY => view.profile.str(name),
        _ => "[unknown]",
    }
}

/// A line of a function that was inlined: its name and place.
pub fn inlined_text(view: &View, inlined: &InlinedLine) -> String {
    let function = name(view, inlined.function);
    let place = match (base_name(view.profile.str(inlined.file)), inlined.line) {
        ("", _) => String::new(),
        (file, 0) => format!("  {file}"),
        (file, line) => format!("  {file}:{line}"),
    };
    format!("↳ {function}{place}")
}

/// A line of a source file, for one line of a terminal.
pub fn printed(line: &str) -> String {
    let mut out = String::new();
    let mut width = 0;
    for (at, c) in line.chars().enumerate() {
        if at >= MAX_WIDTH {
            out.push('…');
            break;
        }
        if c == '\t' {
            let next = (width / TAB + 1) * TAB;
            out.extend(std::iter::repeat_n(' ', next - width));
            width = next;
        } else {
            out.push(c);
            width += 1;
        }
    }
    clean(&out).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{Builder, Mapping};

    #[test]
    fn functions_of_interpreters_without_lines_are_not_to_be_compiled_with_debug_information() {
        let mut builder = Builder::new(&[("samples", "count")]);
        let mut why = |file: &str| {
            let file = builder.profile.strings.intern(file);
            let mapping = builder.add_mapping(Mapping { file, limit: 1, ..Mapping::default() });
            no_lines(&builder.profile, Some(mapping)).to_owned()
        };
        for language in Language::ALL {
            let note = why(language.mapping());
            assert!(!note.contains("symbolize") && !note.contains("with -g"), "{note}");
            assert_eq!(note.contains("javac -g"), language == Language::Java, "{note}");
        }
        assert!(why("/usr/bin/app").contains("compile with -g"));
        assert!(no_lines(&builder.profile, None).contains("compile with -g"));
    }

    #[test]
    fn code_that_was_in_no_file_is_recognized() {
        for name in ["<string>", "<frozen importlib._bootstrap>", "node:fs", "(eval):1", "[eval]"] {
            assert!(is_no_file(name), "{name}");
        }
        for name in ["/srv/app.py", "app.js", "node/a.js", "file:///srv/app.mjs"] {
            assert!(!is_no_file(name), "{name}");
        }
    }
}
