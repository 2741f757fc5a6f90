//! Sandwiches as text: the callers of a function above it, its callees below.

use std::io::{self, Write};

use super::text::{TreeColumns, TreeOptions, clean, write_nodes};
use super::values;
use view::{Sandwich, View};

/// Functions that the first line names.
const NAMED: usize = 3;

/// The names of the functions, of many the first ones.
pub fn names(view: &View, functions: &[u32]) -> String {
    let name = |&f: &u32| clean(&view.frames.get(f).display(view.profile));
    let mut names: Vec<String> = functions.iter().take(NAMED).map(name).collect();
    names.dedup();
    if functions.len() > NAMED {
        names.push(format!("{} more", functions.len() - NAMED));
    }
    names.join(", ")
}

/// The line with the values of the functions.
pub fn totals(view: &View, sandwich: &Sandwich) -> String {
    let value = |v: i64| format!("{}, {:.2}%", values::text(view, v), view.percent(v));
    format!("Total: {}; self: {}", value(sandwich.total), value(sandwich.self_value))
}

/// Writes a sandwich of the frames `functions`, as two call trees.
pub fn write_text(
    out: &mut dyn Write,
    view: &View,
    sandwich: &Sandwich,
    functions: &[u32],
    options: TreeOptions,
) -> io::Result<()> {
    writeln!(out, "\nFunction: {}", names(view, functions))?;
    writeln!(out, "{}", totals(view, sandwich))?;
    let columns = TreeColumns::new(view, &sandwich.callers, options);
    writeln!(out, "\n{}  function, its callers below it", columns.total.titles("total"))?;
    write_nodes(out, view, &sandwich.callers, options, columns)?;
    let columns = TreeColumns::new(view, &sandwich.callees, options);
    writeln!(out, "\n{}  function, its callees below it", columns.titles())?;
    write_nodes(out, view, &sandwich.callees, options, columns)
}
