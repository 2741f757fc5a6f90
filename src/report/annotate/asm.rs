//! A function's instructions with values, between the source lines that they were compiled from.

use std::io::{self, Write};

use super::listing::{ValueWidths, column, printed, write_head};
use super::{Annotated, BinaryCode, Layout, shown_rows};
use crate::report::values::CellWidth;
use crate::report::{text::clean, units};
use code::arrows::{Arrow, arrows};
use code::assembly::{Assembly, Instruction, NoCode, Piece, Place, Reference};
use code::sources::{CodeOf, Sources};
use view::source::{Unit, Values};
use view::{View, base_name};

/// Instructions before and after one with a value.
const CONTEXT: usize = 8;
/// Instructions without a value that are not worth leaving out.
const GAP: usize = 16;
/// Arrows next to each other.
const LANES: usize = 5;

/// Writes the code of a listing.
pub fn write(
    out: &mut dyn Write,
    view: &View,
    annotated: &Annotated<'_>,
    layout: Layout,
    sources: &mut Sources<'_>,
) -> io::Result<()> {
    write_head(out, view, Unit::Function, annotated)?;
    for BinaryCode { binary, build_id, code } in annotated.code.iter().flatten() {
        let assembly = match code {
            Ok(assembly) => assembly,
            Err(why) => {
                let note = no_code(view.profile.str(*binary), why);
                writeln!(out, "note: {}\n", clean(&note))?;
                continue;
            }
        };
        let p = view.profile;
        let of = CodeOf { binary: p.str(*binary), build_id: p.str(*build_id) };
        for piece in &assembly.pieces {
            Rows::new(view, layout, piece, of, sources).write(out, assembly, piece)?;
        }
        if assembly.left_out > 0 {
            writeln!(out, "… and {} more functions of this name\n", assembly.left_out)?;
        }
    }
    Ok(())
}

/// The cause of missing instructions, and the remedy.
pub fn no_code(binary: &str, why: &NoCode) -> String {
    let binary = if binary.is_empty() { "[unknown binary]" } else { binary };
    match why {
        NoCode::NoBinary(cause) => {
            format!("no instructions of {binary}: {cause}; --symbol-path names a directory with it")
        }
        NoCode::UnknownMachine => format!("{binary} is for another CPU architecture"),
        NoCode::NoBounds => {
            format!("no instructions of {binary}: no symbol has the bounds of this function")
        }
        NoCode::NoJitCode => {
            format!("no instructions: {binary} has no code of this name at these addresses")
        }
        NoCode::SeveralCodes => {
            format!("no instructions: {binary} has several codes of this name at these addresses")
        }
    }
}

struct Rows<'a, 's> {
    view: &'a View<'a>,
    layout: Layout,
    values: ValueWidths,
    /// Width of the column of addresses.
    address: CellWidth,
    of: CodeOf<'a>,
    sources: &'a mut Sources<'s>,
}

impl<'a, 's> Rows<'a, 's> {
    fn new(
        view: &'a View<'a>,
        layout: Layout,
        piece: &Piece,
        of: CodeOf<'a>,
        sources: &'a mut Sources<'s>,
    ) -> Rows<'a, 's> {
        let values = piece.instructions.iter().map(|instruction| {
            let Instruction { self_value, total, .. } = *instruction;
            Values { self_value, total }
        });
        let values = ValueWidths::of(view, layout, values);
        let mut address = CellWidth::at_least(10);
        address.fit(&format!("{:x}", piece.function.end));
        Rows { view, layout, values, address, of, sources }
    }

    fn write(&mut self, out: &mut dyn Write, assembly: &Assembly, piece: &Piece) -> io::Result<()> {
        let (start, end) = (piece.function.start, piece.function.end);
        let path = assembly.path.display().to_string();
        writeln!(out, "{}  {start:#x}..{end:#x}", clean(&path))?;
        if piece.left_out > 0 {
            let left = units::thousands(piece.left_out as i64);
            writeln!(out, "note: {left} bytes far from the hottest instruction are left out")?;
        }
        let instructions = &piece.instructions;
        if instructions.iter().any(|i| i.skid) {
            writeln!(out, "note: ~ marks values that likely belong to the instruction before")?;
        }
        let drawn = Drawn::new(arrows(&piece.jumps, LANES), instructions.len());
        let shown = self.shown(instructions);
        let titles = |own: &str, total: &str| {
            format!("{}  {}", self.values.own(own), self.values.total(total))
        };
        let (header, gap) = (titles("self", "total"), titles("", "…"));
        writeln!(out, "{header}")?;
        let mut last: Option<&Place> = None;
        for (i, instruction) in instructions.iter().enumerate() {
            if !shown[i] {
                if i == 0 || shown[i - 1] {
                    writeln!(out, "{gap}")?;
                }
                last = None;
                continue;
            }
            let place = instruction.places.first();
            if place.is_some_and(|place| last.is_none_or(|l| !same_line(l, place))) {
                self.write_place(out, instruction)?;
                last = place;
            }
            self.write_instruction(out, instruction, &drawn.row(i))?;
        }
        writeln!(out)
    }

    fn shown(&self, instructions: &[Instruction]) -> Vec<bool> {
        if self.layout.all_lines {
            return vec![true; instructions.len()];
        }
        let has_value = |i: &usize| instructions[*i].self_value != 0 || instructions[*i].total != 0;
        let with_value: Vec<usize> = (0..instructions.len()).filter(has_value).collect();
        shown_rows(instructions.len(), &with_value, CONTEXT, GAP)
    }

    /// Writes the source line of an instruction.
    fn write_place(&mut self, out: &mut dyn Write, instruction: &Instruction) -> io::Result<()> {
        let Some(text) = place_text(instruction, self.sources, self.of) else { return Ok(()) };
        let (own, total) = (self.values.own(""), self.values.total(""));
        writeln!(out, "{own}{total}    {text}")
    }

    fn write_instruction(
        &self,
        out: &mut dyn Write,
        instruction: &Instruction,
        arrows: &str,
    ) -> io::Result<()> {
        let own = self.values.own(&column(self.view, self.layout, instruction.self_value));
        let total = self.values.total(&column(self.view, self.layout, instruction.total));
        let mark = if instruction.skid { '~' } else { ' ' };
        let text = instruction.text.as_deref().unwrap_or("(bad)");
        let target = target_name(instruction);
        let address = self.address.pad(&format!("{:x}", instruction.address.0));
        let row = format!("{own}{mark} {total} {address} {arrows} {text}{target}");
        writeln!(out, "{}", clean(&row).trim_end())
    }
}

/// The source line of an instruction: its place, the function if it was inlined, and its text.
/// `None` if the instruction has none.
pub fn place_text(
    instruction: &Instruction,
    sources: &mut Sources<'_>,
    of: CodeOf<'_>,
) -> Option<String> {
    let Place { function, file, line } =
        instruction.places.first().filter(|place| place.line > 0)?;
    let inlined =
        if instruction.places.len() > 1 { format!(" ({function})") } else { String::new() };
    let text = sources.find(file, of).ok();
    let text = text.as_ref().and_then(|text| text.line(*line)).map(printed).unwrap_or_default();
    let text = format!("{}:{line}{inlined}  {}", base_name(file), text.trim_start());
    Some(clean(text.trim_end()))
}

/// The name of what an instruction jumps to, calls or refers to, with the space before it; empty if
/// there is none.
pub fn target_name(instruction: &Instruction) -> String {
    let target = instruction.target.as_ref().map_or("", |target| target.name.as_str());
    match &instruction.reference {
        _ if !target.is_empty() => format!("  <{target}>"),
        Some(reference) if !reference.name.is_empty() => format!("  # {}", symbol(reference)),
        _ => String::new(),
    }
}

/// The name of a reference: a symbol and the offset in it.
fn symbol(reference: &Reference) -> String {
    let Reference { name, offset, .. } = reference;
    if *offset == 0 { format!("<{name}>") } else { format!("<{name}+{offset:#x}>") }
}

fn same_line(a: &Place, b: &Place) -> bool {
    (a.line, &a.file, &a.function) == (b.line, &b.file, &b.function)
}

/// The arrows of a piece, by instruction.
pub struct Drawn {
    /// For each instruction, the arrows that begin, end or pass there.
    at: Vec<Vec<Arrow>>,
    lanes: usize,
}

impl Drawn {
    /// The arrows of a piece with `count` instructions.
    pub fn new(arrows: Vec<Arrow>, count: usize) -> Drawn {
        let mut at = vec![Vec::new(); count];
        let lanes = arrows.iter().map(|arrow| arrow.lane + 1).max().unwrap_or(0);
        for arrow in arrows {
            let (first, last) = (arrow.from.min(arrow.to), arrow.from.max(arrow.to));
            // At most one arrow of each lane is at an instruction.
            for row in &mut at[first as usize..=last as usize] {
                row.push(arrow);
            }
        }
        Drawn { at, lanes }
    }

    /// The arrows at an instruction: the outermost lane first, then the head.
    pub fn row(&self, i: usize) -> String {
        let mut cells = vec![' '; self.lanes + 1];
        let row = i as u32;
        let column = |arrow: &Arrow| self.lanes - 1 - arrow.lane;
        for arrow in &self.at[i] {
            let (first, last) = (arrow.from.min(arrow.to), arrow.from.max(arrow.to));
            cells[column(arrow)] = match row {
                row if row == first => '┌',
                row if row == last => '└',
                _ => '│',
            };
        }
        for arrow in self.at[i].iter().filter(|a| row == a.from || row == a.to) {
            for cell in &mut cells[column(arrow) + 1..] {
                *cell = match *cell {
                    ' ' => '─',
                    '│' => '┼',
                    other => other,
                };
            }
        }
        if self.at[i].iter().any(|arrow| row == arrow.to) {
            cells[self.lanes] = '>';
        }
        cells.into_iter().collect()
    }
}
