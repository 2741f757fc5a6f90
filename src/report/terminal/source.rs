//! The source of a function or file with values, and its instructions, as rows of a list.

use std::io::{self, Write};
use std::sync::Arc;

use super::model::{Context, Facts};
use super::query::SourceOf;
use crate::report::annotate::{
    self, Annotated, Drawn, Lookup, function_name, inlined_text, line_text, no_code, place_text,
    target_name, write_head,
};
use crate::report::values::CellWidth;
use code::arrows::arrows;
use code::assembly::{Assembly, Instruction, Piece, Place};
use code::sources::CodeOf;
use code::text::{SourcePaths, SourceText};
use profile::Profile;
use symbols::SymbolOptions;
use view::source::{Listing, Selection, Source, SourceLine, Unit, Values};
use view::{Name, View};

/// Functions or files of one name that are shown.
const MAX_LISTINGS: usize = 20;
/// Lines of a file that are shown, around the hottest one.
const MAX_LINES: usize = 100_000;
/// Lines before and after those with values, if several listings are shown.
const CONTEXT: usize = 5;
/// Arrows next to each other.
const LANES: usize = 5;

/// Places of source and binaries.
#[derive(Clone, Debug, Default)]
pub struct CodeOptions {
    /// Directories with source.
    pub paths: SourcePaths,
    /// Places of binaries and debug information.
    pub symbols: SymbolOptions,
}

/// The content of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Words about what follows.
    Note,
    /// A line of source, with its number.
    Line(i64),
    /// A line of a function that was inlined, or the line that instructions were compiled from.
    Inlined,
    /// An instruction.
    Instruction {
        /// Its address in the file.
        address: u64,
        /// Its value likely belongs to the instruction before.
        skid: bool,
    },
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeRow {
    /// Its content.
    pub content: Content,
    /// Its values.
    pub values: Values,
    /// Its text.
    pub text: String,
    /// The function that it leads to: an inlined one, or the target of a call.
    pub function: Option<String>,
}

/// Source or instructions.
pub struct Code {
    /// Its totals.
    pub facts: Facts,
    /// Its rows.
    pub rows: Vec<CodeRow>,
    /// The row with the largest value.
    pub hottest: usize,
}

impl Code {
    /// The source that a page shows. Fails with one line.
    pub fn new(
        context: &Context,
        profile: &Arc<Profile>,
        view: View<'_>,
        of: &SourceOf,
    ) -> Result<Code, String> {
        let mut selection = selected(&view, &of.name)?;
        if of.assembly {
            selection.unit = Unit::Function;
        }
        let source = Source::new(&view, &selection);
        context.check()?;
        if source.listings.is_empty() {
            return Err(format!("no sample that passes the filters has {}", of.name));
        }
        let mut maker = Maker {
            view: &view,
            lookup: Lookup::new(&view, &context.code.paths, &context.code.symbols),
            unit: source.unit,
            whole: source.listings.len() == 1,
            rows: Vec::new(),
        };
        for listing in source.listings.iter().take(MAX_LISTINGS) {
            context.check()?;
            maker.add(listing, of.assembly);
        }
        let left = source.listings.len().saturating_sub(MAX_LISTINGS);
        if left > 0 {
            maker.note(format!("and {left} more of this name"));
        }
        let rows = maker.rows;
        let is_own = |row: &CodeRow| !matches!(row.content, Content::Note | Content::Inlined);
        let size = |row: &CodeRow| (row.values.self_value.unsigned_abs(), row.values.total);
        let candidates = rows.iter().enumerate().rev().filter(|(_, row)| is_own(row));
        let hottest = candidates.max_by_key(|(_, row)| size(row)).map_or(0, |(i, _)| i);
        Ok(Code { facts: Facts::of(profile, view), rows, hottest })
    }

    /// Its lines for a file.
    pub fn text(&self) -> Vec<String> {
        let value = |value: i64| if value == 0 { ".".to_owned() } else { self.facts.value(value) };
        let [mut own, mut total] = [CellWidth::VALUES; 2];
        let [mut line, mut address] = [6, 10].map(CellWidth::at_least);
        for row in &self.rows {
            own.fit(&value(row.values.self_value));
            total.fit(&value(row.values.total));
            match row.content {
                Content::Line(number) => line.fit(&number.to_string()),
                Content::Instruction { address: at, .. } => address.fit(&format!("{at:x}")),
                Content::Note | Content::Inlined => {}
            }
        }
        let text = |row: &CodeRow| {
            let text = match row.content {
                Content::Note => return row.text.clone(),
                Content::Line(number) => format!("{}  {}", line.pad(&number.to_string()), row.text),
                Content::Inlined => format!("{}  {}", line.pad(""), row.text),
                Content::Instruction { address: at, skid } => {
                    let mark = if skid { '~' } else { ' ' };
                    format!("{mark}{} {}", address.pad(&format!("{at:x}")), row.text)
                }
            };
            let own = own.pad(&value(row.values.self_value));
            let total = total.pad(&value(row.values.total));
            format!("{own} {total} {text}").trim_end().to_owned()
        };
        self.rows.iter().map(text).collect()
    }
}

/// Writes the source that a page shows as `prof annotate --json`.
pub fn write_json(
    context: &Context,
    view: &View,
    of: &SourceOf,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut selection = selected(view, &of.name).map_err(io::Error::other)?;
    if of.assembly {
        selection.unit = Unit::Function;
    }
    let source = Source::new(view, &selection);
    let mut lookup = Lookup::new(view, &context.code.paths, &context.code.symbols);
    let listings = source.listings.iter().map(|listing| {
        let code = of.assembly.then(|| lookup.code(listing));
        Annotated { listing, text: lookup.text(listing), code }
    });
    annotate::write_json(out, view, &source, listings, false)
}

/// The frames with this name; an expression is not meant.
fn selected(view: &View, name: &str) -> Result<Selection, String> {
    let is_it = |frame: u32| {
        let frame = view.frames.get(frame);
        let function = matches!(frame.name, Name::Function(id) if view.profile.str(id) == name);
        function || view.profile.str(frame.file) == name
    };
    let missing = || format!("no sample that passes the filters has {name}");
    if !(0..view.frames.len() as u32).any(is_it) {
        return Err(missing());
    }
    Selection::find(view, name).map_err(|_| missing())?.ok_or_else(missing)
}

/// Makes the rows.
struct Maker<'a, 'p> {
    view: &'a View<'p>,
    lookup: Lookup<'a>,
    unit: Unit,
    /// The whole file, not only the part with values.
    whole: bool,
    rows: Vec<CodeRow>,
}

impl Maker<'_, '_> {
    fn note(&mut self, text: String) {
        let text = sys::printed::line(&text).into_owned();
        let values = Values::default();
        self.rows.push(CodeRow { content: Content::Note, values, text, function: None });
    }

    fn add(&mut self, listing: &Listing, assembly: bool) {
        let annotated = Annotated { listing, text: self.lookup.text(listing), code: None };
        if !self.rows.is_empty() {
            self.note(String::new());
        }
        let mut head = Vec::new();
        let unit = if assembly { Unit::Function } else { self.unit };
        // A vector takes everything.
        write_head(&mut head, self.view, unit, &annotated).ok();
        for line in String::from_utf8_lossy(&head).lines().filter(|line| !line.is_empty()) {
            self.note(line.to_owned());
        }
        if assembly {
            self.add_assembly(listing);
        } else {
            self.add_source(listing, annotated.text.text.ok().as_deref());
        }
    }

    fn add_source(&mut self, listing: &Listing, text: Option<&SourceText>) {
        let shown = self.shown(listing, text.map_or(0, SourceText::line_count));
        let mut known = listing.lines.iter().peekable();
        while let Some(line) = known.next_if(|line| line.line <= shown.start as i64) {
            self.add_line(line, "");
        }
        let line_of = |number: i64| text.and_then(|text| text.line(number)).unwrap_or_default();
        for number in shown.start as i64 + 1..=shown.end as i64 {
            let line = line_of(number);
            match known.next_if(|known| known.line == number) {
                Some(known) => self.add_line(known, line),
                None => self.rows.push(CodeRow {
                    content: Content::Line(number),
                    values: Values::default(),
                    text: line_text(line),
                    function: None,
                }),
            }
        }
        for line in known {
            self.add_line(line, "");
        }
    }

    /// The part of a file that is shown.
    fn shown(&self, listing: &Listing, count: usize) -> std::ops::Range<usize> {
        let index = |line: i64| usize::try_from(line).unwrap_or(0).saturating_sub(1).min(count);
        let valued = || listing.lines.iter().filter(|line| line.line > 0);
        if self.whole {
            let size = |line: &&SourceLine| line.values.self_value.unsigned_abs();
            let hottest = valued().max_by_key(size).map_or(0, |line| index(line.line));
            let start = hottest.saturating_sub(MAX_LINES / 2);
            return start..count.min(start + MAX_LINES);
        }
        let first = valued().map(|line| line.line).chain([listing.start_line]);
        let first = first.filter(|&line| line > 0).min().map_or(0, index);
        let last = valued().map(|line| line.line).max().map_or(0, index);
        let start = first.saturating_sub(CONTEXT);
        start..count.min(last + 1 + CONTEXT).min(start + MAX_LINES).max(start)
    }

    fn add_line(&mut self, line: &SourceLine, text: &str) {
        let shown = line_text(text);
        let indent = shown.len() - shown.trim_start().len();
        let text = if line.line <= 0 { "(unknown line)".to_owned() } else { shown };
        let content = Content::Line(line.line);
        self.rows.push(CodeRow { content, values: line.values, text, function: None });
        for inlined in &line.inlined {
            let indent = " ".repeat((indent + 2 * inlined.depth as usize).min(200));
            let text = format!("{indent}{}", inlined_text(self.view, inlined));
            let function = Some(function_name(self.view, inlined.function).to_owned());
            let content = Content::Inlined;
            self.rows.push(CodeRow { content, values: inlined.values, text, function });
        }
    }

    fn add_assembly(&mut self, listing: &Listing) {
        let name = function_name(self.view, listing.function).to_owned();
        for found in self.lookup.code(listing) {
            let profile = self.view.profile;
            let of =
                CodeOf { binary: profile.str(found.binary), build_id: profile.str(found.build_id) };
            match found.code {
                Err(why) => self.note(format!("note: {}", no_code(of.binary, &why))),
                Ok(assembly) => {
                    for piece in &assembly.pieces {
                        self.add_piece(&assembly, piece, &name, of);
                    }
                    if assembly.left_out > 0 {
                        self.note(format!("and {} more functions", assembly.left_out));
                    }
                }
            }
        }
    }

    fn add_piece(&mut self, assembly: &Assembly, piece: &Piece, name: &str, of: CodeOf<'_>) {
        let (start, end) = (piece.function.start, piece.function.end);
        self.note(format!("{}  {start:#x}..{end:#x}", assembly.path.display()));
        if piece.left_out > 0 {
            let left = piece.left_out;
            self.note(format!("note: {left} bytes far from the hottest instruction are left out"));
        }
        if piece.instructions.iter().any(|instruction| instruction.skid) {
            self.note("note: ~ marks values that likely belong to the line before".to_owned());
        }
        let drawn = Drawn::new(arrows(&piece.jumps, LANES), piece.instructions.len());
        let mut last: Option<&Place> = None;
        for (i, instruction) in piece.instructions.iter().enumerate() {
            let place = instruction.places.first();
            if place.is_some() && place != last {
                self.add_place(instruction, name, of);
                last = place;
            }
            self.add_instruction(instruction, &drawn.row(i), name);
        }
    }

    /// Adds the source line of an instruction.
    fn add_place(&mut self, instruction: &Instruction, name: &str, of: CodeOf<'_>) {
        let Some(text) = place_text(instruction, &mut self.lookup.sources, of) else { return };
        let function = instruction.places.first().map(|place| place.function.clone());
        let function = function.filter(|function| function != name);
        let values = Values::default();
        self.rows.push(CodeRow { content: Content::Inlined, values, text, function });
    }

    fn add_instruction(&mut self, instruction: &Instruction, arrows: &str, name: &str) {
        let target = instruction.target.as_ref().map(|target| target.name.clone());
        let target = target.filter(|target| !target.is_empty());
        let text = instruction.text.as_deref().unwrap_or("(bad)");
        let text = format!("{arrows} {text}{}", target_name(instruction));
        let Instruction { address, skid, self_value, total, .. } = *instruction;
        self.rows.push(CodeRow {
            content: Content::Instruction { address: address.0, skid },
            values: Values { self_value, total },
            text: sys::printed::line(&text).into_owned(),
            function: target.filter(|target| target != name),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::terminal::model::{Model, compute};
    use crate::report::terminal::query::{Query, Shown};
    use view::testing::{answers, frames_profile};

    fn rows(context: &Context, name: &str, assembly: bool) -> Result<Code, String> {
        let shown = Shown::Source(SourceOf { name: name.to_owned(), assembly });
        match compute(context, &Query { type_index: 0, filters: Vec::new(), shown })? {
            Model::Code(code) => Ok(code),
            _ => panic!("source"),
        }
    }

    #[test]
    fn the_hottest_line_of_a_file_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let text: String = (1..=20).map(|i| format!("\tline {i};\n")).collect();
        std::fs::write(directory.path().join("app.c"), text).unwrap();
        let mut context = Context::new(&Arc::new(answers()));
        let paths = SourcePaths { directories: vec![directory.path().into()], trim: Vec::new() };
        context.code = Arc::new(CodeOptions { paths, ..CodeOptions::default() });
        let code = rows(&context, "foo1", false).unwrap();
        let hottest = &code.rows[code.hottest];
        assert_eq!((&hottest.content, &*hottest.text), (&Content::Line(10), "        line 10;"));
        assert_eq!((hottest.values.self_value, hottest.values.total), (3, 8));
        let lines = code.rows.iter().filter(|row| matches!(row.content, Content::Line(_)));
        assert_eq!(lines.count(), 20);
        assert!(
            code.text().iter().any(|line| line == "         3          8     10          line 10;")
        );
    }

    #[test]
    fn without_source_lines_have_values_and_a_note() {
        let context = Context::new(&Arc::new(frames_profile()));
        let code = rows(&context, "outer", false).unwrap();
        let texts = code.rows.iter().map(|row| row.text.clone()).collect::<Vec<_>>().join("\n");
        assert!(texts.contains("note: no source file src/outer.c"), "{texts}");
        assert!(texts.contains("↳ inner  inner.c:7"), "{texts}");
        let code = rows(&context, "outer", true).unwrap();
        assert!(code.rows.iter().any(|row| row.text.starts_with("note: no instructions of")));
        let missing = rows(&context, "ou.er", false).err();
        assert_eq!(missing.as_deref(), Some("no sample that passes the filters has ou.er"));
    }
}
