//! The words of a listing: its name, what is missing, and lines of source.

use super::Annotated;
use crate::report::text::{clean, in_brackets};
use crate::report::values;
use code::sources::Newer;
use code::text::{NoText, Origin};
use profile::StrId;
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
    notes.extend(source_note(annotated, file).map(|note| clean(&format!("note: {note}"))));
    if listing.lines.iter().all(|line| line.line <= 0) {
        let binary = listing.mapping.map_or("", |m| p.str(p.mappings[m.0 as usize].file));
        let note = if is_compilers_file(binary) {
            "no line numbers: the JIT compiler has not written them"
        } else {
            "no line numbers; they need debug information (compile with -g), then: prof symbolize --force"
        };
        notes.push(format!("note: {note}"));
    }
    notes
}

/// The state of the source file, if it is not as expected.
fn source_note(annotated: &Annotated<'_>, recorded: &str) -> Option<String> {
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
