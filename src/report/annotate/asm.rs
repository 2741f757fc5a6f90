//! The words of instructions: source lines, names of targets and arrows.

use super::listing::printed;
use crate::report::text::clean;
use code::arrows::Arrow;
use code::assembly::{Instruction, NoCode, Place, Reference};
use code::sources::{BinaryId, Sources};
use view::base_name;

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

/// The source line of an instruction: its place, the function if it was inlined, and its text.
/// `None` if the instruction has none.
pub fn place_text(
    instruction: &Instruction,
    sources: &mut Sources<'_>,
    id: BinaryId<'_>,
) -> Option<String> {
    let Place { function, file, line } =
        instruction.places.first().filter(|place| place.line > 0)?;
    let inlined =
        if instruction.places.len() > 1 { format!(" ({function})") } else { String::new() };
    let text = sources.find(file, id).ok();
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
