//! Sections of `docs/benchmarks.md` that benches write, between a marker and [`END`]: a line with
//! machine and date, and a table.

use std::ops::Range;

/// The line after a section.
pub const END: &str = "<!-- end -->";

/// The line before the section of a bench: the command that makes it.
pub fn marker(bench: &str) -> String {
    format!("<!-- cargo bench --bench {bench} -->")
}

/// Position of a bench's section in the document, without the markers.
fn position(document: &str, bench: &str) -> Option<Range<usize>> {
    let marker = format!("{}\n", marker(bench));
    let start = document.find(&marker)? + marker.len();
    let length = document[start..].find(END)?;
    Some(start..start + length)
}

/// A bench's section, without the markers.
pub fn section<'a>(document: &'a str, bench: &str) -> Option<&'a str> {
    Some(&document[position(document, bench)?])
}

/// The document with another section of that bench; `None`: it has none.
pub fn replaced(document: &str, bench: &str, section: &str) -> Option<String> {
    let mut document = document.to_owned();
    document.replace_range(position(&document, bench)?, section);
    Some(document)
}

/// Lines of cells of a section's table: the names of columns, then rows that begin with their
/// names.
pub fn table(section: &str) -> Vec<Vec<&str>> {
    let rows = section.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
    let rows = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    rows.filter(|row| !row.iter().all(|cell| is_rule(cell))).collect()
}

/// A cell of the line between the columns' names and the rows.
fn is_rule(cell: &str) -> bool {
    !cell.is_empty() && cell.chars().all(|c| c == '-' || c == ':')
}

/// A figure has digits; a tool that is not installed, or has failed, has none.
fn is_figure(cell: &str) -> bool {
    cell.contains(|c: char| c.is_ascii_digit())
}

/// The figure in a row and a column, by their names.
fn figure<'a>(table: &[Vec<&'a str>], row: &str, column: &str) -> Option<&'a str> {
    let columns = table.first()?;
    let at = columns.iter().position(|name| *name == column)?;
    let row = table[1..].iter().find(|cells| cells[0] == row)?;
    row.get(at).copied().filter(|cell| is_figure(cell))
}

/// Rows of the old section with figures that the new one does not have: `ROW`, or `ROW (COLUMNS)`
/// if it has the row.
pub fn missing(old: &str, new: &str) -> Vec<String> {
    let old = table(old);
    let new = table(new);
    let Some(columns) = old.first() else { return Vec::new() };
    let mut missing = Vec::new();
    for row in old[1..].iter().map(|cells| cells[0]) {
        let lost = |column: &&&str| {
            figure(&old, row, column).is_some() && figure(&new, row, column).is_none()
        };
        let lost: Vec<&str> = columns[1..].iter().filter(lost).copied().collect();
        let still_there = new.iter().skip(1).any(|cells| cells[0] == row);
        if !lost.is_empty() {
            missing.push(if still_there {
                format!("{row} ({})", lost.join(", "))
            } else {
                row.to_owned()
            });
        }
    }
    missing
}
