//! A function's or file's source with values.

use std::io::{self, Write};

use super::{Annotated, Layout, Order, shown_rows};
use crate::report::text::{clean, in_brackets};
use crate::report::units;
use crate::report::values::CellWidth;
use code::sources::Newer;
use code::text::{NoText, Origin, SourceText};
use profile::StrId;
use sys::jit::file_names::is_compilers_file;
use view::source::{InlinedLine, Listing, SourceLine, Unit, Values};
use view::{Name, View, base_name};

/// Lines before and after a line with a value.
const CONTEXT: usize = 5;
/// Lines without a value that are not worth leaving out.
const GAP: usize = 10;
/// Columns of a tab.
const TAB: usize = 8;
/// Characters of a line that are shown.
const MAX_WIDTH: usize = 500;

/// Writes a listing.
pub fn write(
    out: &mut dyn Write,
    view: &View,
    unit: Unit,
    annotated: &Annotated<'_>,
    layout: Layout,
) -> io::Result<()> {
    let listing = annotated.listing;
    write_head(out, view, unit, annotated)?;
    let rows = Rows::new(view, layout, annotated);
    rows.write_cells(out, ["self", "total", "line"], "source")?;
    if layout.order != Order::Line {
        return write_ordered(out, &rows, annotated);
    }
    for line in listing.lines.iter().take_while(|line| line.line <= 0) {
        rows.write(out, line.values, "?", "(unknown line)")?;
        rows.write_inlined(out, line, 0)?;
    }
    let known: Vec<&SourceLine> = listing.lines.iter().filter(|line| line.line > 0).collect();
    match &annotated.text.text {
        Ok(text) => write_text(out, &rows, listing, &known, text),
        Err(_) => known.iter().try_for_each(|line| {
            rows.write(out, line.values, &line.line.to_string(), "")?;
            rows.write_inlined(out, line, 0)
        }),
    }
}

/// Writes the lines with a value, hottest first.
fn write_ordered(
    out: &mut dyn Write,
    rows: &Rows<'_>,
    annotated: &Annotated<'_>,
) -> io::Result<()> {
    let mut lines: Vec<&SourceLine> = annotated.listing.lines.iter().collect();
    lines.sort_by_key(|line| {
        let own = line.values.self_value.unsigned_abs();
        let total = line.values.total.unsigned_abs();
        let key = if rows.layout.order == Order::Total { (total, own) } else { (own, total) };
        std::cmp::Reverse(key)
    });
    let file = annotated.text.text.as_ref().ok();
    for line in lines {
        let text = file.and_then(|file| file.line(line.line)).unwrap_or_default();
        let number = if line.line > 0 { line.line.to_string() } else { "?".to_owned() };
        rows.write(out, line.values, &number, &printed(text))?;
        rows.write_inlined(out, line, indent(text))?;
    }
    Ok(())
}

/// Writes the lines that a file has, with gaps.
fn write_text(
    out: &mut dyn Write,
    rows: &Rows<'_>,
    listing: &Listing,
    known: &[&SourceLine],
    text: &SourceText,
) -> io::Result<()> {
    let mut with_value: Vec<usize> = Vec::new();
    let index = |line: i64| usize::try_from(line).ok().and_then(|line| line.checked_sub(1));
    // The function's head shows its parameters.
    with_value.extend(index(listing.start_line));
    with_value.extend(known.iter().filter_map(|line| index(line.line)));
    with_value.sort_unstable();
    let shown = if rows.layout.all_lines {
        vec![true; text.line_count()]
    } else {
        shown_rows(text.line_count(), &with_value, CONTEXT, GAP)
    };
    let mut known = known.iter().peekable();
    let mut in_gap = false;
    for (i, line) in text.lines().enumerate() {
        if !shown[i] {
            if !in_gap && i > 0 && shown[i - 1] {
                rows.write_cells(out, ["", "", "…"], "")?;
            }
            in_gap = true;
            continue;
        }
        in_gap = false;
        let number = i as i64 + 1;
        let valued = known.next_if(|line| line.line == number);
        let values = valued.map(|line| line.values).unwrap_or_default();
        rows.write(out, values, &number.to_string(), &printed(line))?;
        if let Some(valued) = valued {
            rows.write_inlined(out, valued, indent(line))?;
        }
    }
    for line in known {
        rows.write(out, line.values, &line.line.to_string(), "(beyond the end of the file)")?;
        rows.write_inlined(out, line, 0)?;
    }
    Ok(())
}

/// Writes the name, the values, and what is missing.
pub fn write_head(
    out: &mut dyn Write,
    view: &View,
    unit: Unit,
    annotated: &Annotated<'_>,
) -> io::Result<()> {
    let listing = annotated.listing;
    let p = view.profile;
    let file = p.str(listing.file);
    let of_file = if file.is_empty() { "[unknown file]" } else { file };
    let name = match unit {
        Unit::Function => format!("{}  {of_file}", name(view, listing.function)),
        Unit::File => of_file.to_owned(),
    };
    let binary = listing.mapping.map_or("", |m| base_name(p.str(p.mappings[m.0 as usize].file)));
    let binary =
        if binary.is_empty() { String::new() } else { format!("  {}", in_brackets(binary)) };
    writeln!(out, "{}", clean(&format!("{name}{binary}")))?;
    let value = |v: i64| format!("{}, {:.2}%", units::format(v, view.unit()), view.percent(v));
    let Values { self_value, total } = listing.values;
    writeln!(out, "self {}; total {}", value(self_value), value(total))?;
    if let Some(note) = source_note(annotated, file) {
        writeln!(out, "note: {}", clean(&note))?;
    }
    if listing.lines.iter().all(|line| line.line <= 0) {
        let binary = listing.mapping.map_or("", |m| p.str(p.mappings[m.0 as usize].file));
        let note = if is_compilers_file(binary) {
            "no line numbers: the JIT compiler has not written them"
        } else {
            "no line numbers; they need debug information (compile with -g), then: prof symbolize --force"
        };
        writeln!(out, "note: {note}")?;
    }
    writeln!(out)
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

/// A value of a column; `.` for 0, as in pprof.
pub fn column(view: &View, layout: Layout, value: i64) -> String {
    match value {
        0 => ".".to_owned(),
        _ if layout.percent => format!("{:.2}%", view.percent(value)),
        _ => clean(&units::format(value, view.unit())),
    }
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

/// Columns before the text of a line.
fn indent(line: &str) -> usize {
    let printed = printed(line);
    (printed.len() - printed.trim_start().len()).min(MAX_WIDTH)
}

/// Widths of the columns of self values and totals.
#[derive(Clone, Copy)]
pub struct ValueWidths {
    own: CellWidth,
    total: CellWidth,
}

impl ValueWidths {
    /// Columns with space for these values.
    pub fn of(view: &View, layout: Layout, values: impl Iterator<Item = Values>) -> ValueWidths {
        let mut widths = ValueWidths { own: CellWidth::VALUES, total: CellWidth::VALUES };
        for Values { self_value, total } in values {
            widths.own.fit(&column(view, layout, self_value));
            widths.total.fit(&column(view, layout, total));
        }
        widths
    }

    /// A self value with the space before it.
    pub fn own(self, cell: &str) -> String {
        self.own.pad(cell)
    }

    /// A total with the space before it.
    pub fn total(self, cell: &str) -> String {
        self.total.pad(cell)
    }
}

struct Rows<'a> {
    view: &'a View<'a>,
    layout: Layout,
    values: ValueWidths,
    /// Width of the column of line numbers.
    line: CellWidth,
}

impl<'a> Rows<'a> {
    fn new(view: &'a View<'a>, layout: Layout, annotated: &Annotated<'_>) -> Rows<'a> {
        let lines = &annotated.listing.lines;
        let inlined = lines.iter().flat_map(|line| &line.inlined).map(|inlined| inlined.values);
        let values = lines.iter().map(|line| line.values).chain(inlined);
        let mut line = CellWidth::at_least(6);
        let count = annotated.text.text.as_ref().map_or(0, |text| text.line_count());
        line.fit(&count.to_string());
        let last = lines.iter().map(|line| line.line).max();
        line.fit(&last.unwrap_or_default().to_string());
        Rows { view, layout, values: ValueWidths::of(view, layout, values), line }
    }

    fn write(&self, out: &mut dyn Write, values: Values, line: &str, text: &str) -> io::Result<()> {
        let own = column(self.view, self.layout, values.self_value);
        let total = column(self.view, self.layout, values.total);
        self.write_cells(out, [&own, &total, line], text)
    }

    fn write_cells(
        &self,
        out: &mut dyn Write,
        [own, total, line]: [&str; 3],
        text: &str,
    ) -> io::Result<()> {
        let (own, total) = (self.values.own(own), self.values.total(total));
        let row = format!("{own} {total} {}  {text}", self.line.pad(line));
        writeln!(out, "{}", row.trim_end())
    }

    /// Writes the lines of functions inlined at a line, below it.
    fn write_inlined(
        &self,
        out: &mut dyn Write,
        line: &SourceLine,
        indent: usize,
    ) -> io::Result<()> {
        for inlined in &line.inlined {
            let indent = " ".repeat(indent + 2 * inlined.depth as usize);
            let text = format!("{indent}{}", inlined_text(self.view, inlined));
            self.write(out, inlined.values, "", &clean(&text))?;
        }
        Ok(())
    }
}
