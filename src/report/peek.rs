//! Direct callers and callees as text, in the layout of pprof's `peek`.

use std::io::{self, Write};

use super::text::clean;
use super::values::{ValueCells, ValueColumns};
use view::{Edge, Peek, Peeked, View};

/// Writes a block for each function: its callers, itself, its callees.
pub fn write_text(out: &mut dyn Write, view: &View, peek: &Peek) -> io::Result<()> {
    let block = Block { view, peek, columns: Columns::new(view, peek) };
    let Columns { own, total, calls } = block.columns;
    let header = [own.titles("self"), total.titles("total"), calls.titles("calls")].join("  ");
    writeln!(out, "\n{header}  function")?;
    for function in &peek.functions {
        writeln!(out, "{}", "-".repeat(header.len() + 10))?;
        block.write(out, function)?;
    }
    Ok(())
}

/// The columns of values.
#[derive(Clone, Copy)]
struct Columns {
    own: ValueColumns,
    total: ValueColumns,
    calls: ValueColumns,
}

impl Columns {
    fn new(view: &View, peek: &Peek) -> Columns {
        let nodes = || peek.functions.iter().map(|function| peek.node(function.node));
        let calls = peek.functions.iter().flat_map(|function| {
            let total = peek.node(function.node).total;
            let edges = function.callers.iter().chain(&function.callees);
            edges.map(move |edge| ValueCells::with_share(view, edge.value, total))
        });
        Columns {
            own: ValueColumns::for_cells(
                nodes().map(|node| ValueCells::new(view, node.self_value)),
            ),
            total: ValueColumns::for_cells(nodes().map(|node| ValueCells::new(view, node.total))),
            calls: ValueColumns::for_cells(calls),
        }
    }
}

/// Writes the block of a function.
struct Block<'a> {
    view: &'a View<'a>,
    peek: &'a Peek,
    columns: Columns,
}

impl Block<'_> {
    fn write(&self, out: &mut dyn Write, function: &Peeked) -> io::Result<()> {
        let Columns { own, total, calls } = self.columns;
        let node = self.peek.node(function.node);
        for edge in &function.callers {
            self.write_call(out, edge, edge.caller, node.total)?;
        }
        let own = own.pad(&ValueCells::new(self.view, node.self_value));
        let total = total.pad(&ValueCells::new(self.view, node.total));
        let nothing = calls.pad(&ValueCells::EMPTY);
        writeln!(out, "{own}  {total}  {nothing}  {}", self.name(function.node))?;
        for edge in &function.callees {
            self.write_call(out, edge, edge.callee, node.total)?;
        }
        Ok(())
    }

    /// Writes the call of or by the function `other`.
    fn write_call(
        &self,
        out: &mut dyn Write,
        edge: &Edge,
        other: u32,
        whole: i64,
    ) -> io::Result<()> {
        let Columns { own, total, calls } = self.columns;
        let (own, total) = (own.pad(&ValueCells::EMPTY), total.pad(&ValueCells::EMPTY));
        let calls = calls.pad(&ValueCells::with_share(self.view, edge.value, whole));
        let inlined = if edge.inlined { " (inlined)" } else { "" };
        writeln!(out, "{own}  {total}  {calls}    {}{inlined}", self.name(other))
    }

    fn name(&self, id: u32) -> String {
        clean(&self.view.frames.get(self.peek.node(id).frame).display(self.view.profile))
    }
}
