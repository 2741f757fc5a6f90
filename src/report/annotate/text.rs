//! Rows of source and instructions as text.

use std::io::{self, Write};

use super::rows::{
    CodeRow, Content, Section, SectionKind, all_instructions, assembly_sections,
    instructions_around, lines_around, ordered_rows, source_rows,
};
use super::{Annotated, CodeOptions, Layout, Lookup, Order, head_notes, server_notes};
use crate::report::values::{self, CellWidth};
use code::assembly::Instruction;
use code::sources::Sources;
use view::source::Unit;
use view::{SourceModel, View};

/// Writes the listings of an answer, each after an empty line.
pub fn write(
    out: &mut dyn Write,
    view: &View,
    model: &SourceModel,
    places: &CodeOptions,
    layout: Layout,
) -> io::Result<()> {
    let mut lookup = Lookup::new(view, places);
    for listing in &model.source.listings {
        writeln!(out)?;
        let annotated = lookup.annotated(listing, model.assembly);
        if model.assembly {
            write_assembly(out, view, &annotated, layout, &mut lookup.sources)?;
        } else {
            write_source(out, view, model.source.unit, &annotated, layout)?;
        }
    }
    let left = model.listing_count - model.source.listings.len();
    if left > 0 {
        writeln!(out, "\n… and {left} more; -n 0 shows all")?;
    }
    server_notes(&places.symbols).iter().try_for_each(|note| writeln!(out, "\n{note}"))
}

/// Writes the source of a listing.
fn write_source(
    out: &mut dyn Write,
    view: &View,
    unit: Unit,
    annotated: &Annotated<'_>,
    layout: Layout,
) -> io::Result<()> {
    write_notes(out, &head_notes(view, unit, annotated))?;
    writeln!(out)?;
    let listing = annotated.listing;
    let text = annotated.text.text.as_deref().ok();
    let rows = match layout.order {
        Order::Line => {
            let around = text.map(|text| lines_around(listing, text)).unwrap_or_default();
            let shown = if layout.all_lines { vec![true; around.len()] } else { around };
            source_rows(view, listing, text, &shown)
        }
        order => ordered_rows(view, listing, text, order),
    };
    let kind = SectionKind::Source;
    write_section(
        out,
        view,
        layout.percent,
        &Section { kind, binary: None, notes: Vec::new(), rows },
    )
}

/// Writes the instructions of a listing.
fn write_assembly(
    out: &mut dyn Write,
    view: &View,
    annotated: &Annotated<'_>,
    layout: Layout,
    sources: &mut Sources<'_>,
) -> io::Result<()> {
    write_notes(out, &head_notes(view, Unit::Function, annotated))?;
    writeln!(out)?;
    type Shown = fn(&[Instruction]) -> Vec<bool>;
    let shown: Shown = if layout.all_lines { all_instructions } else { instructions_around };
    for section in assembly_sections(view, annotated, sources, shown) {
        write_section(out, view, layout.percent, &section)?;
        writeln!(out)?;
    }
    Ok(())
}

fn write_notes(out: &mut dyn Write, notes: &[String]) -> io::Result<()> {
    notes.iter().try_for_each(|note| writeln!(out, "{note}"))
}

/// Writes a section; with `percent`, values in percent of the total.
pub fn write_section(
    out: &mut dyn Write,
    view: &View,
    percent: bool,
    section: &Section,
) -> io::Result<()> {
    write_notes(out, &section.notes)?;
    if section.rows.is_empty() {
        return Ok(());
    }
    let mut cells = Cells {
        view,
        percent,
        own: CellWidth::VALUES,
        total: CellWidth::VALUES,
        place: CellWidth::at_least(match section.kind {
            SectionKind::Source => 6,
            SectionKind::Assembly => 10,
        }),
    };
    section.rows.iter().for_each(|row| cells.fit(row));
    match section.kind {
        SectionKind::Source => {
            writeln!(out, "{}  source", cells.source(["self", "total", "line"]))?;
        }
        SectionKind::Assembly => writeln!(out, "{}", cells.assembly(["self", "total"]))?,
    }
    section.rows.iter().try_for_each(|row| writeln!(out, "{}", cells.row(section.kind, row)))
}

/// The columns before the text of rows.
struct Cells<'a> {
    view: &'a View<'a>,
    percent: bool,
    own: CellWidth,
    total: CellWidth,
    /// Line numbers or addresses.
    place: CellWidth,
}

impl Cells<'_> {
    /// A value; `.` for 0, as in pprof.
    fn value(&self, value: i64) -> String {
        match value {
            0 => ".".to_owned(),
            _ if self.percent => format!("{:.2}%", self.view.percent(value)),
            _ => values::text(self.view, value),
        }
    }

    /// Makes space for a row.
    fn fit(&mut self, row: &CodeRow) {
        self.own.fit(&self.value(row.values.self_value));
        self.total.fit(&self.value(row.values.total));
        self.place.fit(&place(row));
    }

    fn source(&self, [own, total, line]: [&str; 3]) -> String {
        format!("{} {} {}", self.own.pad(own), self.total.pad(total), self.place.pad(line))
    }

    fn assembly(&self, [own, total]: [&str; 2]) -> String {
        format!("{}  {}", self.own.pad(own), self.total.pad(total))
    }

    fn row(&self, kind: SectionKind, row: &CodeRow) -> String {
        let own = self.value(row.values.self_value);
        let total = self.value(row.values.total);
        let text = &row.text;
        let line = match (kind, row.content) {
            (SectionKind::Assembly, Content::Instruction { skid, .. }) => {
                let mark = if skid { '~' } else { ' ' };
                let (own, total) = (self.own.pad(&own), self.total.pad(&total));
                format!("{own}{mark} {total} {} {text}", self.place.pad(&place(row)))
            }
            (SectionKind::Assembly, Content::Gap) => self.assembly(["", "…"]),
            (SectionKind::Assembly, _) => format!("{}  {text}", self.assembly(["", ""])),
            (SectionKind::Source, Content::Gap) => self.source(["", "", "…"]),
            (SectionKind::Source, _) => {
                format!("{}  {text}", self.source([&own, &total, &place(row)]))
            }
        };
        line.trim_end().to_owned()
    }
}

/// The line number or the address of a row.
fn place(row: &CodeRow) -> String {
    match row.content {
        Content::Line(0) => "?".to_owned(),
        Content::Line(number) => number.to_string(),
        Content::Instruction { address, .. } => format!("{address:x}"),
        Content::Note | Content::Inlined | Content::Gap => String::new(),
    }
}
