//! Direct callers and callees as text, in the layout of pprof's `peek`.

use std::io::{self, Write};

use super::text::{clean, pair};
use super::units;
use view::{Edge, Peek, Peeked, View, percent};

/// Writes a block for each function: its callers, itself, its callees.
pub fn write_text(out: &mut dyn Write, view: &View, peek: &Peek) -> io::Result<()> {
    let header = [["self", "self%"], ["total", "total%"], ["calls", "calls%"]].map(pair).join("  ");
    writeln!(out, "\n{header}  function")?;
    for function in &peek.functions {
        writeln!(out, "{}", "-".repeat(header.len() + 10))?;
        write_block(out, view, peek, function)?;
    }
    Ok(())
}

fn write_block(out: &mut dyn Write, view: &View, peek: &Peek, function: &Peeked) -> io::Result<()> {
    let name = |id: u32| clean(&view.frames.get(peek.node(id).frame).display(view.profile));
    let value = |v: i64, whole: i64| {
        let share = format!("{:.2}%", percent(v, whole));
        pair([&units::format(v, view.unit()), &share])
    };
    let nothing = pair(["", ""]);
    let node = peek.node(function.node);
    let call = |edge: &Edge, other: u32| {
        let inlined = if edge.inlined { " (inlined)" } else { "" };
        let calls = value(edge.value, node.total);
        format!("{nothing}  {nothing}  {calls}    {}{inlined}", name(other))
    };
    for edge in &function.callers {
        writeln!(out, "{}", call(edge, edge.caller))?;
    }
    let own = value(node.self_value, view.total);
    let total = value(node.total, view.total);
    writeln!(out, "{own}  {total}  {nothing}  {}", name(function.node))?;
    for edge in &function.callees {
        writeln!(out, "{}", call(edge, edge.callee))?;
    }
    Ok(())
}
