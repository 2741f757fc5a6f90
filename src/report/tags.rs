//! The values of all labels as text.

use std::io::{self, Write};

use super::text::clean;
use super::units;
use super::values::{self, ValueCells, ValueColumns};
use view::{TagKey, Tags, View};

/// Writes a block for each key: its total, and its values with their percentages of it.
pub fn write_text(out: &mut dyn Write, view: &View, tags: &Tags) -> io::Result<()> {
    if tags.keys.is_empty() {
        return writeln!(out, "No sample has a label.");
    }
    tags.keys.iter().try_for_each(|key| write_key(out, view, key))
}

fn write_key(out: &mut dyn Write, view: &View, key: &TagKey) -> io::Result<()> {
    let number = |number: usize| units::thousands(number as i64);
    let s = if key.value_count == 1 { "" } else { "s" };
    let total = values::text(view, key.total);
    // A mean is no part of another.
    let share = if view.has_means() {
        String::new()
    } else {
        format!(" ({:.2}%)", view.percent(key.total))
    };
    let name = clean(view.profile.str(key.key));
    writeln!(out, "\n{name}: total {total}{share}, {} value{s}", number(key.value_count))?;
    let cells = |value: i64| ValueCells::with_share(view, value, key.whole);
    let columns = ValueColumns::for_cells(key.values.iter().map(|tag| cells(tag.value)));
    for tag in &key.values {
        writeln!(out, "{}  {}", columns.pad(&cells(tag.value)), clean(&tag.text))?;
    }
    match key.value_count - key.values.len() {
        0 => Ok(()),
        left => writeln!(out, "… and {} more; -n 0 shows all", number(left)),
    }
}
