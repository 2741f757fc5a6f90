//! Tables and call trees as text.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

use super::values::{self, ValueCells, ValueColumns};
use super::{columns, summary, units};
use profile::LabelValue;
use view::{Columns, Cut, Direction, Frame, Granularity, Row, Top, Tree, View, label_text};

mod fit;

/// A text that the user typed, in quotation marks, otherwise as it was typed.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", clean(text))
}

/// Largest width to which a text column other than the last is padded.
const MAX_PAD: usize = 40;

/// Space between two columns.
pub(super) const GAP: &str = "  ";

/// Room for a line of text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineWidth {
    /// Names are whole.
    #[default]
    Unlimited,
    /// The columns of a terminal: names are shortened for them.
    Columns(usize),
}

/// Contents of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions<'a> {
    /// Granularity of the frames, as in the view.
    pub granularity: Granularity,
    /// Show totals next to self values.
    pub children: bool,
    /// Label keys that distinguish rows, as in the model.
    pub labels: &'a [String],
    /// Columns of other sample types, and ratios.
    pub columns: &'a Columns,
    /// Room for a line.
    pub width: LineWidth,
}

/// The side of a column on which its cells begin or end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// A column of a table of text.
pub(super) struct TextColumn {
    title: String,
    align: Align,
    cells: Vec<String>,
    /// Width of the column if all cells are shorter.
    least_width: usize,
}

impl TextColumn {
    pub(super) fn new(
        title: &str,
        align: Align,
        cells: impl Iterator<Item = String>,
    ) -> TextColumn {
        TextColumn { title: title.to_string(), align, cells: cells.collect(), least_width: 0 }
    }

    /// A column of right-aligned cells, at least this wide.
    pub(super) fn at_least(
        width: usize,
        title: &str,
        cells: impl Iterator<Item = String>,
    ) -> TextColumn {
        TextColumn { least_width: width, ..TextColumn::new(title, Align::Right, cells) }
    }

    /// Its width in cells of a terminal.
    pub(super) fn width(&self) -> usize {
        let longest = self.longest();
        let longest = if self.align == Align::Right { longest } else { longest.min(MAX_PAD) };
        longest.max(self.title.width()).max(self.least_width)
    }

    /// The width of its longest cell.
    fn longest(&self) -> usize {
        self.cells.iter().map(|c| c.as_str().width()).max().unwrap_or(0)
    }
}

/// Writes the summary lines of a view.
pub fn write_summary(out: &mut dyn Write, view: &View, width: LineWidth) -> io::Result<()> {
    let lines = match width {
        LineWidth::Unlimited => summary::lines(view),
        LineWidth::Columns(columns) => summary::lines_within(view, columns),
    };
    for line in lines {
        writeln!(out, "{}", clean(&line))?;
    }
    Ok(())
}

/// Writes all facts of the file.
pub fn write_header(out: &mut dyn Write, profile: &profile::Profile) -> io::Result<()> {
    for line in summary::header(profile) {
        writeln!(out, "# {}", clean(&line))?;
    }
    writeln!(out)
}

/// Writes a table.
pub fn write_table(
    out: &mut dyn Write,
    view: &View,
    top: &Top,
    options: &TableOptions<'_>,
) -> io::Result<()> {
    let what = if top.row_count == 1 { "row" } else { "rows" };
    // A sum of means is nothing.
    let shown = if view.has_means() {
        String::new()
    } else {
        format!(": {}, {:.2}%", values::text(view, top.shown), view.percent(top.shown))
    };
    match top.row_count - top.rows.len() {
        0 => writeln!(out, "Showing {} {what}{shown}", top.row_count)?,
        left_out => writeln!(
            out,
            "Showing {} of {} {what}{shown} ({} left out, -n 0 shows all)",
            top.rows.len(),
            units::thousands(top.row_count as i64),
            units::thousands(left_out as i64)
        )?,
    }
    writeln!(out)?;
    write_columns(out, &columns_of(view, top, options))
}

fn columns_of(view: &View, top: &Top, options: &TableOptions<'_>) -> Vec<TextColumn> {
    let rows = || top.rows.iter();
    let frame = |r: &Row| -> &Frame { view.frames.get(r.frame) };
    let mut columns = columns::text(view, top, options.columns, options.children);
    for (i, key) in options.labels.iter().enumerate() {
        let text = |r: &Row| label_cell(view, top.groups[r.group as usize][i]);
        columns.push(TextColumn::new(key, Align::Left, rows().map(text)));
    }
    let Granularity { function, binary, line, file, address, package, .. } = options.granularity;
    if binary {
        let name = |r: &Row| or_unknown(frame(r).binary_name(view.profile));
        columns.push(TextColumn::new("binary", Align::Left, rows().map(name)));
    }
    if address {
        let place = |r: &Row| format!("{:#x}", frame(r).address);
        columns.push(TextColumn::new("address", Align::Right, rows().map(place)));
    }
    if function {
        let names: Vec<String> = rows().map(|r| clean(&frame(r).display(view.profile))).collect();
        options.width.fit(&mut columns, Some(names.iter().map(String::as_str)));
        let taken: usize = columns.iter().map(|column| column.width() + GAP.len()).sum();
        let name = |(r, name): (&Row, &String)| {
            let place = match frame(r).place(view.profile) {
                place if (line || file) && !place.is_empty() => format!(" {}", clean(&place)),
                _ => String::new(),
            };
            options.width.with_texts(name, &[place], taken)
        };
        let title = if package { "package" } else { "function" };
        columns.push(TextColumn::new(title, Align::Left, rows().zip(&names).map(name)));
        return columns;
    }
    if file {
        let name = |r: &Row| clean(&frame(r).display(view.profile));
        columns.push(TextColumn::new("file", Align::Left, rows().map(name)));
    }
    options.width.fit(&mut columns, None::<std::iter::Empty<&str>>);
    columns
}

pub(super) fn label_cell(view: &View, value: Option<LabelValue>) -> String {
    or_unknown(&value.map_or(String::new(), |v| label_text(view.profile, v)))
}

fn or_unknown(text: &str) -> String {
    if text.is_empty() { "-".to_string() } else { clean(text) }
}

/// Text for one line of a terminal.
pub(super) fn clean(text: &str) -> String {
    sys::printed::line(text).into_owned()
}

pub(super) fn write_columns(out: &mut dyn Write, columns: &[TextColumn]) -> io::Result<()> {
    lines_of(columns).try_for_each(|line| writeln!(out, "{line}"))
}

/// The line of titles, and one for each row.
pub(super) fn lines_of(columns: &[TextColumn]) -> impl Iterator<Item = String> + '_ {
    let widths: Vec<_> = columns.iter().map(TextColumn::width).collect();
    let rows = columns.first().map_or(0, |c| c.cells.len());
    (0..=rows).map(move |row| {
        let mut line = String::new();
        for (column, &width) in columns.iter().zip(&widths) {
            let cell =
                if row == 0 { column.title.as_str() } else { column.cells[row - 1].as_str() };
            if !line.is_empty() {
                line.push_str(GAP);
            }
            // Wide characters take two cells of a terminal: `{:<width$}` would count one.
            let padding = " ".repeat(width.saturating_sub(cell.width()));
            match column.align {
                Align::Right => line.extend([padding.as_str(), cell]),
                Align::Left => line.extend([cell, padding.as_str()]),
            }
        }
        line.truncate(line.trim_end().len());
        line
    })
}

/// Limits of a call tree.
#[derive(Clone, Copy, Debug)]
pub struct TreeOptions {
    /// Most lines; 0: all.
    pub limit: usize,
    /// Omit nodes below this percentage of the total.
    pub min_percent: f64,
    /// Room for a line.
    pub width: LineWidth,
}

/// A node to be written.
struct PendingLine {
    node: u32,
    /// Text before its name.
    indent: String,
    /// Text before the names of its children.
    below: String,
}

/// Writes a call tree, largest children first. A chain of only children is not indented, so that
/// deep stacks stay readable.
///
/// A tree of callers has one value for each node: the self value of the chain's first function in
/// this context. It is neither the callers' self value, nor their total.
pub fn write_tree(
    out: &mut dyn Write,
    view: &View,
    tree: &Tree,
    options: TreeOptions,
) -> io::Result<()> {
    let columns = TreeColumns::new(view, tree, options);
    match tree.direction {
        Direction::Callers => {
            writeln!(out, "\n{}  function, its callers below it", columns.total.titles("self"))?;
        }
        Direction::Callees => writeln!(out, "\n{}  function", columns.titles())?,
    }
    write_nodes(out, view, tree, options, columns)
}

/// The columns of values of a call tree.
#[derive(Clone, Copy)]
pub(super) struct TreeColumns {
    /// Totals: of a tree of callers, the only values.
    pub(super) total: ValueColumns,
    own: ValueColumns,
}

impl TreeColumns {
    /// Columns with space for the nodes that may be written.
    pub(super) fn new(view: &View, tree: &Tree, options: TreeOptions) -> TreeColumns {
        let cut = Cut::Percent(options.min_percent);
        let whole = tree.node(Tree::ROOT).total;
        let nodes = || {
            let below_root = tree.nodes.iter().skip(1);
            below_root.filter(|node| cut.keeps(view, whole, node.total))
        };
        TreeColumns {
            total: ValueColumns::for_values(view, nodes().map(|node| node.total)),
            own: ValueColumns::for_values(view, nodes().map(|node| node.self_value)),
        }
    }

    /// The titles of totals and self values.
    pub(super) fn titles(self) -> String {
        format!("{}  {}", self.total.titles("total"), self.own.titles("self"))
    }
}

/// Writes the lines of a call tree, without a header.
pub(super) fn write_nodes(
    out: &mut dyn Write,
    view: &View,
    tree: &Tree,
    options: TreeOptions,
    columns: TreeColumns,
) -> io::Result<()> {
    let children = tree.children();
    let cut = Cut::Percent(options.min_percent);
    let whole = tree.node(Tree::ROOT).total;
    let shown = |node: u32| {
        let mut ids: Vec<u32> = children.get(node).to_vec();
        ids.retain(|&c| cut.keeps(view, whole, tree.node(c).total));
        ids.sort_by(|&a, &b| {
            let a = tree.node(a);
            let b = tree.node(b);
            b.total.unsigned_abs().cmp(&a.total.unsigned_abs()).then_with(|| {
                view.frames.get(a.frame).cmp_name(view.frames.get(b.frame), view.profile)
            })
        });
        ids
    };
    let mut pending: Vec<PendingLine> = Vec::new();
    let roots = shown(Tree::ROOT);
    let mut hidden = tree.left_out + children.get(Tree::ROOT).len() - roots.len();
    push_children(&mut pending, &roots, "", true);
    let mut lines = 0;
    while let Some(PendingLine { node, indent, below }) = pending.pop() {
        if options.limit > 0 && lines == options.limit {
            let more = pending.len() + 1;
            let what = if more == 1 { "branch" } else { "branches" };
            writeln!(out, "… and at least {more} further {what}; -n 0 shows all")?;
            return Ok(());
        }
        lines += 1;
        write_node(
            out,
            view,
            tree,
            &TreeLine { node, indent: &indent, width: options.width },
            columns,
        )?;
        let on_it = shown(node);
        hidden += children.get(node).len() - on_it.len();
        push_children(&mut pending, &on_it, &below, false);
    }
    if tree.beyond_limit > 0 {
        let branches = units::thousands(tree.beyond_limit as i64);
        writeln!(out, "… branches beyond prof's memory limit: {branches}")?;
    }
    if hidden > 0 {
        let what = if hidden == 1 { "branch" } else { "branches" };
        let hidden = units::thousands(hidden as i64);
        let limit = options.min_percent;
        writeln!(out, "… {hidden} {what} below {limit}% left out; --percent-limit 0 shows all")?;
    }
    Ok(())
}

fn push_children(pending: &mut Vec<PendingLine>, ids: &[u32], below: &str, top: bool) {
    let only = ids.len() == 1;
    for (i, &node) in ids.iter().enumerate().rev() {
        let last = i + 1 == ids.len();
        let (indent, deeper) = match (top, only, last) {
            (true, ..) => (String::new(), String::new()),
            (_, true, _) => (format!("{below}│ "), below.to_string()),
            (_, _, true) => (format!("{below}└─"), format!("{below}  ")),
            _ => (format!("{below}├─"), format!("{below}│ ")),
        };
        pending.push(PendingLine { node, indent, below: deeper });
    }
}

/// A node with its place in a tree of text.
struct TreeLine<'a> {
    node: u32,
    /// Text before its name.
    indent: &'a str,
    /// Room for the line.
    width: LineWidth,
}

fn write_node(
    out: &mut dyn Write,
    view: &View,
    tree: &Tree,
    line: &TreeLine<'_>,
    columns: TreeColumns,
) -> io::Result<()> {
    let node = tree.node(line.node);
    let frame = view.frames.get(node.frame);
    let name = frame.display(view.profile);
    let binary = frame.binary_name(view.profile);
    let mut begin = format!("{}  ", columns.total.pad(&ValueCells::new(view, node.total)));
    if tree.direction == Direction::Callees {
        let own = match node.self_value {
            0 => ValueCells::EMPTY,
            own => ValueCells::new(view, own),
        };
        begin += &format!("{}  ", columns.own.pad(&own));
    }
    begin += line.indent;
    let place = match frame.place(view.profile) {
        place if frame.line != 0 && !place.is_empty() => format!(" {}", clean(&place)),
        _ => String::new(),
    };
    let mut texts = vec![place];
    if !binary.is_empty() && !name.starts_with(binary) {
        texts.push(format!("  {}", in_brackets(&clean(binary))));
    }
    texts.retain(|text| !text.is_empty());
    let name = line.width.with_texts(&clean(&name), &texts, begin.width());
    writeln!(out, "{begin}{name}")
}

/// The name of a binary in brackets, which that of the kernel has already.
pub(super) fn in_brackets(binary: &str) -> String {
    if binary.starts_with('[') { binary.to_owned() } else { format!("[{binary}]") }
}

#[cfg(test)]
mod tests;
