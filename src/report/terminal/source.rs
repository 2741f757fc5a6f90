//! The source of a function or file with values, and its instructions, as rows of a list.

use std::io::Write;
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::model::{Context, Facts, reason};
use crate::report::annotate::{
    self, Lookup, Section, SectionKind, all_instructions, assembly_sections, head_notes,
    source_rows, write_section,
};
use code::text::SourceText;
use view::query::{Limits, Query, QueryError, ShownSource, Wanted};
use view::source::{Listing, SourceLine};
use view::{Answer, Model, SourceModel, View};

pub use crate::report::annotate::{CodeOptions, CodeRow, Content};

/// Functions or files of one name that are shown.
const MAX_LISTINGS: usize = 20;
/// Lines of a file that are shown, around the hottest one.
const MAX_LINES: usize = 100_000;
/// Lines before and after those with values, if several listings are shown.
const CONTEXT: usize = 5;

/// Source or instructions.
pub struct Code {
    /// Its totals.
    pub facts: Facts,
    /// Its rows.
    pub rows: Vec<CodeRow>,
    /// The row with the largest value.
    pub hottest: usize,
    /// The rows with self values, the largest first.
    pub hot: Vec<usize>,
    /// The row to which the instruction of a row leads.
    pub jumps: FxHashMap<usize, usize>,
    /// It is code without a name, which has instructions only.
    pub is_unnamed: bool,
}

/// The most listings that a page shows.
pub const LIMITS: Limits = Limits { rows: MAX_LISTINGS, ..Limits::NONE };

impl Code {
    /// The page of an answer. Fails with one line.
    pub fn new(
        context: &Context,
        answer: &Answer,
        found: &SourceModel,
        name: &str,
    ) -> Result<Code, String> {
        let view = answer.view();
        let sections = sections(context, &view, found, name)?;
        let servers = annotate::server_notes(&context.code.symbols).into_iter();
        let notes = servers.map(|note| CodeRow::plain(Content::Note, note));
        let mut rows: Vec<CodeRow> = notes.collect();
        let jumps = add_sections(sections, &mut rows);
        let is_own =
            |row: &CodeRow| matches!(row.content, Content::Line(_) | Content::Instruction { .. });
        let size = |row: &CodeRow| (row.values.self_value.unsigned_abs(), row.values.total);
        let mut hot: Vec<usize> = (0..rows.len())
            .filter(|&row| is_own(&rows[row]) && rows[row].values.self_value != 0)
            .collect();
        hot.sort_by_key(|&row| (std::cmp::Reverse(size(&rows[row])), row));
        let candidates = rows.iter().enumerate().rev().filter(|(_, row)| is_own(row));
        let hottest = candidates.max_by_key(|(_, row)| size(row)).map_or(0, |(i, _)| i);
        let facts = Facts::new(&answer.part, view);
        Ok(Code { facts, rows, hottest, hot, jumps, is_unnamed: found.is_unnamed })
    }
}

/// The page of a query as lines of text. Fails with one line.
pub fn text(context: &Context, query: &Query, shown: &ShownSource) -> Result<Vec<String>, String> {
    let query = &Query { limits: LIMITS, ..query.clone() };
    let answer = context.answer(&context.part(query)?, query)?;
    let Model::Source(found) = &answer.model else { return Ok(Vec::new()) };
    let view = &answer.view();
    let mut out = Vec::new();
    for (number, section) in sections(context, view, found, &shown.name)?.iter().enumerate() {
        let blank = if number == 0 { "" } else { "\n" };
        write!(out, "{blank}")
            .and_then(|()| write_section(&mut out, view, false, section))
            .map_err(|error| error.to_string())?;
    }
    Ok(String::from_utf8_lossy(&out).lines().map(str::to_owned).collect())
}

/// Adds the rows of a list. Returns the rows to which jumps and calls lead: in their own section if
/// it has the address, else in another one of the same binary.
fn add_sections(sections: Vec<Section>, rows: &mut Vec<CodeRow>) -> FxHashMap<usize, usize> {
    let mut instructions = Vec::new();
    for (number, section) in sections.into_iter().enumerate() {
        let blank = (!rows.is_empty()).then(String::new);
        let notes = blank.into_iter().chain(section.notes);
        rows.extend(notes.map(|note| CodeRow::plain(Content::Note, note)));
        let first = rows.len();
        rows.extend(section.rows);
        if let Some(binary) = section.binary {
            instructions.push(SectionRows { number, binary, rows: first..rows.len() });
        }
    }
    let mut in_section = FxHashMap::default();
    let mut in_binary = FxHashMap::default();
    for section in &instructions {
        for row in section.rows.clone() {
            if let Content::Instruction { address, .. } = rows[row].content {
                in_section.entry((section.number, address)).or_insert(row);
                in_binary.entry((&*section.binary, address)).or_insert(row);
            }
        }
    }
    let mut jumps = FxHashMap::default();
    for section in &instructions {
        for row in section.rows.clone() {
            let Some(target) = rows[row].target else { continue };
            let found = in_section.get(&(section.number, target));
            let found = found.or_else(|| in_binary.get(&(&*section.binary, target)));
            jumps.extend(found.map(|&found| (row, found)));
        }
    }
    jumps
}

/// The rows of a section of instructions.
struct SectionRows {
    number: usize,
    binary: String,
    rows: Range<usize>,
}

/// The sections of the page of what has this name. Fails with one line.
fn sections(
    context: &Context,
    view: &View,
    found: &SourceModel,
    name: &str,
) -> Result<Vec<Section>, String> {
    if found.listing_count == 0 {
        return Err(reason(&QueryError::NoFunction(Wanted::Source(name.to_owned()))));
    }
    let mut lookup = Lookup::new(view, &context.code);
    let SourceModel { source, listing_count, assembly, .. } = found;
    let mut sections = Vec::new();
    for listing in &source.listings {
        context.check()?;
        let annotated = lookup.annotated(listing, *assembly);
        let mut notes = head_notes(view, source.unit, &annotated);
        let mut found = if *assembly {
            assembly_sections(view, &annotated, &mut lookup.sources, all_instructions)
        } else {
            let text = annotated.text.text.as_deref().ok();
            let shown = shown(listing, text, *listing_count == 1);
            let rows = source_rows(view, listing, text, &shown);
            vec![Section { kind: SectionKind::Source, binary: None, notes: Vec::new(), rows }]
        };
        if let Some(first) = found.first_mut() {
            notes.append(&mut first.notes);
            first.notes = notes;
        }
        sections.append(&mut found);
    }
    let left = listing_count - source.listings.len();
    if left > 0 {
        let notes = vec![format!("… and {left} more of this name")];
        let kind = SectionKind::Source;
        sections.push(Section { kind, binary: None, notes, rows: Vec::new() });
    }
    Ok(sections)
}

/// Whether each line of a file is shown: all around the hottest one or, if the file is not alone,
/// those from the first to the last one with a value.
fn shown(listing: &Listing, text: Option<&SourceText>, is_alone: bool) -> Vec<bool> {
    let count = text.map_or(0, SourceText::line_count);
    let index = |line: i64| usize::try_from(line).unwrap_or(0).saturating_sub(1).min(count);
    let valued = || listing.lines.iter().filter(|line| line.line > 0);
    let range = if is_alone {
        let size = |line: &&SourceLine| line.values.self_value.unsigned_abs();
        let hottest = valued().max_by_key(size).map_or(0, |line| index(line.line));
        let start = hottest.saturating_sub(MAX_LINES / 2);
        start..count.min(start + MAX_LINES)
    } else {
        let first = valued().map(|line| line.line).chain([listing.start_line]);
        let first = first.filter(|&line| line > 0).min().map_or(0, index);
        let last = valued().map(|line| line.line).max().map_or(0, index);
        let start = first.saturating_sub(CONTEXT);
        start..count.min(last + 1 + CONTEXT).min(start + MAX_LINES).max(start)
    };
    let mut shown = vec![false; count];
    shown[range].fill(true);
    shown
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::report::terminal::model::{Model as Page, compute};
    use code::text::SourcePaths;
    use view::query::Shown;
    use view::testing::{answers, frames_profile};

    fn rows(context: &Context, name: &str, assembly: bool) -> Result<Code, String> {
        let shown = ShownSource { assembly, ..ShownSource::lines(name.to_owned()) };
        match compute(context, &Query::new(Shown::Source(shown)))? {
            Page::Code(code) => Ok(code),
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
    }

    #[test]
    fn a_file_has_the_rows_that_prof_annotate_prints() {
        let directory = tempfile::tempdir().unwrap();
        let profile = Arc::new(answers());
        let mut context = Context::new(&profile);
        let paths = SourcePaths { directories: vec![directory.path().into()], trim: Vec::new() };
        context.code = Arc::new(CodeOptions { paths, ..CodeOptions::default() });
        let shown = ShownSource::lines("foo1".to_owned());
        let query = Query::new(Shown::Source(shown.clone()));
        let answer = context.answer(&context.part(&query).unwrap(), &query).unwrap();
        let Model::Source(model) = &answer.model else { panic!("source") };
        let layout =
            annotate::Layout { all_lines: true, percent: false, order: annotate::Order::Line };
        // The line with values is the tenth.
        for (lines, expected) in [
            (20, "         3          8     10          line 10;"),
            (5, "         3          8     10  (beyond the end of the file)"),
        ] {
            let text: String = (1..=lines).map(|i| format!("\tline {i};\n")).collect();
            std::fs::write(directory.path().join("app.c"), text).unwrap();
            let found = super::text(&context, &query, &shown).unwrap();
            assert!(found.iter().any(|line| line == expected), "{found:#?}");
            let (view, mut out) = (answer.view(), Vec::new());
            annotate::write_text(&mut out, &view, model, &context.code, layout).unwrap();
            let printed = String::from_utf8(out).unwrap();
            let printed: Vec<&str> = printed.lines().filter(|line| !line.is_empty()).collect();
            assert_eq!(found, printed);
            let code = rows(&context, "foo1", false).unwrap();
            let on_screen = code.rows[code.hottest].text.trim();
            assert!(expected.ends_with(on_screen), "{on_screen}");
        }
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
        let code = rows(&context, "libx.so+0x1234", false).unwrap();
        let texts = code.rows.iter().map(|row| row.text.clone()).collect::<Vec<_>>().join("\n");
        assert!(code.is_unnamed && texts.starts_with("libx.so+0x1234  [libx.so]"), "{texts}");
        assert!(texts.contains("note: no instructions of /usr/lib/libx.so"), "{texts}");
        let missing = rows(&context, "ou.er", false).err();
        assert_eq!(missing.as_deref(), Some("no sample that passes the filters has ou.er"));
    }

    /// A section of instructions at these addresses, some of which jump.
    fn section(binary: &str, instructions: &[(u64, Option<u64>)]) -> Section {
        let row = |&(address, target): &(u64, Option<u64>)| {
            let content = Content::Instruction { address, skid: false };
            CodeRow { target, ..CodeRow::plain(content, String::new()) }
        };
        let rows = instructions.iter().map(row).collect();
        let (kind, binary) = (SectionKind::Assembly, Some(binary.to_owned()));
        Section { kind, binary, notes: vec!["note".to_owned()], rows }
    }

    #[test]
    fn jumps_lead_to_instructions_of_their_binary() {
        let sections = vec![
            section("a", &[(1, Some(2)), (2, Some(9)), (3, Some(40))]),
            section("b", &[(9, Some(2)), (10, None)]),
            section("a", &[(2, None), (9, Some(2)), (10, Some(1))]),
        ];
        let mut rows = Vec::new();
        let jumps = add_sections(sections, &mut rows);
        let address = |row: usize| match rows[row].content {
            Content::Instruction { address, .. } => address,
            _ => 0,
        };
        let mut found: Vec<_> = jumps.into_iter().collect();
        found.sort_unstable();
        // Below the note and, between sections, a blank row and the note.
        assert_eq!(found, [(1, 2), (2, 11), (11, 10), (12, 1)]);
        assert!(found.iter().all(|&(from, to)| rows[from].target == Some(address(to))));
    }
}
