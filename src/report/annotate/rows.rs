//! Source lines and instructions as rows, which text and the terminal draw.

use super::asm::{Drawn, no_code, place_text, target_name};
use super::listing::{inlined_text, name, printed};
use super::{Annotated, BinaryCode, Order, shown_rows};
use crate::report::text::clean;
use crate::report::units;
use code::arrows::arrows;
use code::assembly::{Assembly, Instruction, Piece, Place};
use code::sources::{BinaryId, Sources};
use code::text::SourceText;
use view::RowValues;
use view::View;
use view::source::{Listing, SourceLine};

/// Lines before and after a line with a value.
const LINES_AROUND: usize = 5;
/// Lines without a value that are not worth leaving out.
const LINES_IN_GAP: usize = 10;
/// Instructions before and after one with a value.
const INSTRUCTIONS_AROUND: usize = 8;
/// Instructions without a value that are not worth leaving out.
const INSTRUCTIONS_IN_GAP: usize = 16;
/// Arrows next to each other.
const LANES: usize = 5;
/// Most columns before the name of an inlined function.
const MAX_INDENT: usize = 200;

/// The content of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Words about what follows.
    Note,
    /// A line of source, with its number; 0: unknown.
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
    /// Lines or instructions that are not shown.
    Gap,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeRow {
    /// Its content.
    pub content: Content,
    /// Its values.
    pub values: RowValues,
    /// Its text, in one line.
    pub text: String,
    /// The function that it leads to: an inlined one, or the target of a call.
    pub function: Option<String>,
    /// The address in the file to which an instruction jumps, or which it calls.
    pub target: Option<u64>,
}

impl CodeRow {
    /// A row without values.
    pub fn plain(content: Content, text: String) -> CodeRow {
        CodeRow { content, values: RowValues::default(), text, function: None, target: None }
    }
}

/// What the rows of a section are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionKind {
    /// Lines of a source file.
    Source,
    /// Instructions, between the lines that they were compiled from.
    Assembly,
}

/// Rows that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// What its rows are.
    pub kind: SectionKind,
    /// The path of the binary, if its rows are instructions.
    pub binary: Option<String>,
    /// Lines above its rows.
    pub notes: Vec<String>,
    /// Its rows.
    pub rows: Vec<CodeRow>,
}

impl Section {
    /// A section of instructions that are missing.
    fn note(note: String) -> Section {
        let notes = vec![clean(&note)];
        Section { kind: SectionKind::Assembly, binary: None, notes, rows: Vec::new() }
    }
}

/// Whether each line of a file is shown: those of a listing, the first line of the function, and
/// the lines around them.
pub fn lines_around(listing: &Listing, text: &SourceText) -> Vec<bool> {
    let index = |line: i64| usize::try_from(line).ok().and_then(|line| line.checked_sub(1));
    // The function's head shows its parameters.
    let mut with_value: Vec<usize> = index(listing.start_line).into_iter().collect();
    with_value.extend(listing.lines.iter().filter_map(|line| index(line.line)));
    with_value.sort_unstable();
    shown_rows(text.line_count(), &with_value, LINES_AROUND, LINES_IN_GAP)
}

/// Whether each instruction is shown: those with a value, and the instructions around them.
pub fn instructions_around(instructions: &[Instruction]) -> Vec<bool> {
    let has_value = |i: &usize| instructions[*i].self_value != 0 || instructions[*i].total != 0;
    let with_value: Vec<usize> = (0..instructions.len()).filter(has_value).collect();
    shown_rows(instructions.len(), &with_value, INSTRUCTIONS_AROUND, INSTRUCTIONS_IN_GAP)
}

/// All instructions.
pub fn all_instructions(instructions: &[Instruction]) -> Vec<bool> {
    vec![true; instructions.len()]
}

/// The source of a listing: the lines with a value, and those of the file that `shown` has.
pub fn source_rows(
    view: &View,
    listing: &Listing,
    text: Option<&SourceText>,
    shown: &[bool],
) -> Vec<CodeRow> {
    let mut rows = Vec::new();
    let mut known = listing.lines.iter().peekable();
    while let Some(line) = known.next_if(|line| line.line <= 0) {
        add_line(view, line, text, &mut rows);
    }
    let first = rows.len();
    let lines = text.into_iter().flat_map(SourceText::lines);
    for (number, (line, &is_shown)) in (1..).zip(lines.zip(shown)) {
        let is_gap = rows.last().is_some_and(|row| row.content == Content::Gap);
        if let Some(valued) = known.next_if(|known| known.line == number) {
            add_line(view, valued, text, &mut rows);
        } else if is_shown {
            rows.push(CodeRow::plain(Content::Line(number), printed(line)));
        } else if rows.len() > first && !is_gap {
            rows.push(CodeRow::plain(Content::Gap, String::new()));
        }
    }
    for line in known {
        add_line(view, line, text, &mut rows);
    }
    rows
}

/// The lines of a listing with a value, in this order.
pub fn ordered_rows(
    view: &View,
    listing: &Listing,
    text: Option<&SourceText>,
    order: Order,
) -> Vec<CodeRow> {
    let mut lines: Vec<&SourceLine> = listing.lines.iter().collect();
    lines.sort_by_key(|line| {
        let own = line.values.self_value.unsigned_abs();
        let total = line.values.total.unsigned_abs();
        std::cmp::Reverse(if order == Order::Total { (total, own) } else { (own, total) })
    });
    let mut rows = Vec::new();
    lines.into_iter().for_each(|line| add_line(view, line, text, &mut rows));
    rows
}

/// Adds a line with a value, and the lines of functions inlined there.
fn add_line(view: &View, line: &SourceLine, text: Option<&SourceText>, rows: &mut Vec<CodeRow>) {
    let text = match text.map(|text| text.line(line.line)) {
        _ if line.line <= 0 => "(unknown line)".to_owned(),
        Some(Some(text)) => printed(text),
        Some(None) => "(beyond the end of the file)".to_owned(),
        None => String::new(),
    };
    let indent = text.len() - text.trim_start().len();
    let content = Content::Line(line.line.max(0));
    rows.push(CodeRow { values: line.values, ..CodeRow::plain(content, text) });
    for inlined in &line.inlined {
        let indent = " ".repeat((indent + 2 * inlined.depth as usize).min(MAX_INDENT));
        let text = clean(&format!("{indent}{}", inlined_text(view, inlined)));
        rows.push(CodeRow {
            values: inlined.values,
            function: Some(name(view, inlined.function).to_owned()),
            ..CodeRow::plain(Content::Inlined, text)
        });
    }
}

/// The instructions of a listing in each binary; `shown` selects those of a piece.
pub fn assembly_sections(
    view: &View,
    annotated: &Annotated<'_>,
    sources: &mut Sources<'_>,
    shown: fn(&[Instruction]) -> Vec<bool>,
) -> Vec<Section> {
    let mut sections = Vec::new();
    let own = name(view, annotated.listing.function);
    for BinaryCode { binary, build_id, code } in annotated.code.iter().flatten() {
        let id =
            BinaryId { path: view.profile.str(*binary), build_id: view.profile.str(*build_id) };
        let assembly = match code {
            Ok(assembly) => assembly,
            Err(why) => {
                sections.push(Section::note(format!("note: {}", no_code(id.path, why))));
                continue;
            }
        };
        for piece in &assembly.pieces {
            let shown = shown(&piece.instructions);
            let mut maker = PieceRows { own, id, sources, rows: Vec::new() };
            maker.add(piece, &shown);
            let (kind, notes) = (SectionKind::Assembly, piece_notes(assembly, piece));
            let binary = Some(id.path.to_owned());
            sections.push(Section { kind, binary, notes, rows: maker.rows });
        }
        if assembly.left_out > 0 {
            let left = assembly.left_out;
            sections.push(Section::note(format!("… and {left} more functions of this name")));
        }
    }
    sections
}

fn piece_notes(assembly: &Assembly, piece: &Piece) -> Vec<String> {
    let (start, end) = (piece.function.start, piece.function.end);
    let mut notes = vec![clean(&format!("{}  {start:#x}..{end:#x}", assembly.path.display()))];
    if piece.left_out > 0 {
        let left = units::thousands(piece.left_out as i64);
        notes.push(format!("note: {left} bytes far from the hottest instruction are left out"));
    }
    if piece.instructions.iter().any(|instruction| instruction.skid) {
        notes.push("note: ~ marks values that likely belong to the instruction before".to_owned());
    }
    notes
}

/// Makes the rows of a piece.
struct PieceRows<'a, 's> {
    /// The name of its function.
    own: &'a str,
    id: BinaryId<'a>,
    sources: &'a mut Sources<'s>,
    rows: Vec<CodeRow>,
}

impl PieceRows<'_, '_> {
    fn add(&mut self, piece: &Piece, shown: &[bool]) {
        let drawn = Drawn::new(arrows(&piece.jumps, LANES), piece.instructions.len());
        let mut last: Option<&Place> = None;
        for (i, instruction) in piece.instructions.iter().enumerate() {
            if !shown[i] {
                if i == 0 || shown[i - 1] {
                    self.rows.push(CodeRow::plain(Content::Gap, String::new()));
                }
                last = None;
                continue;
            }
            let place = instruction.places.first();
            if place.is_some() && place != last {
                self.add_place(instruction);
                last = place;
            }
            self.add_instruction(instruction, &drawn.row(i));
        }
    }

    /// Adds the source line of an instruction.
    fn add_place(&mut self, instruction: &Instruction) {
        let Some(text) = place_text(instruction, self.sources, self.id) else { return };
        let function = instruction.places.first().map(|place| place.function.clone());
        let function = function.filter(|function| *function != self.own);
        self.rows.push(CodeRow { function, ..CodeRow::plain(Content::Inlined, text) });
    }

    fn add_instruction(&mut self, instruction: &Instruction, arrows: &str) {
        let target = instruction.target.as_ref().map(|target| target.name.clone());
        let text = instruction.text.as_deref().unwrap_or("(bad)");
        let text = format!("{arrows} {text}{}", target_name(instruction));
        let Instruction { address, skid, self_value, total, .. } = *instruction;
        self.rows.push(CodeRow {
            content: Content::Instruction { address: address.0, skid },
            values: RowValues { self_value, total },
            text: clean(&text),
            function: target.filter(|target| !target.is_empty() && *target != self.own),
            target: instruction.target.as_ref().map(|target| target.address.0),
        });
    }
}
