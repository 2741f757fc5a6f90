//! Call graphs in the language DOT of Graphviz, with the shapes and colours of `go tool pprof`.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::colors::Rgb;
use super::{shorten, summary, values};
use sys::printed;
use view::{Edge, Graph, GraphNode, Name, View};

/// Characters of a name in a box, and in a tooltip. The middle of longer names is left out.
const LONGEST_LABEL: usize = 120;
const LONGEST_TOOLTIP: usize = 1_000;

/// Writes `graph`, below the title and the summary of the view.
pub fn write(out: &mut dyn Write, view: &View, graph: &Graph, title: &str) -> io::Result<()> {
    writeln!(out, "digraph \"{}\" {{", escape(&shorten::middle(title, LONGEST_TOOLTIP)))?;
    writeln!(out, "node [style=filled fillcolor=\"#f8f8f8\"]")?;
    write_legend(out, view, graph, title)?;
    let largest = graph.nodes.iter().map(|n| n.self_value.unsigned_abs()).max().unwrap_or(0);
    for (i, node) in graph.nodes.iter().enumerate() {
        write_node(out, view, i + 1, node, largest)?;
    }
    for edge in &graph.edges {
        write_edge(out, view, graph, edge)?;
    }
    writeln!(out, "}}")
}

fn write_legend(out: &mut dyn Write, view: &View, graph: &Graph, title: &str) -> io::Result<()> {
    let mut lines = vec![title.to_owned()];
    lines.extend(summary::lines(view));
    let format = |v: i64| values::text(view, v);
    let shown = graph.nodes.iter().fold(0i64, |sum, n| sum.saturating_add(n.self_value));
    lines.push(format!("Functions shown: {}, {:.2}%", format(shown), view.percent(shown)));
    if graph.small_nodes > 0 {
        let (count, cutoff) = (graph.small_nodes, format(graph.node_cutoff));
        lines.push(format!("Left out: {count} functions below {cutoff}"));
    }
    if graph.small_edges > 0 {
        let (count, cutoff) = (graph.small_edges, format(graph.edge_cutoff));
        lines.push(format!("Left out: {count} calls below {cutoff}"));
    }
    if graph.further_nodes > 0 {
        lines.push(format!("Left out: {} further functions", graph.further_nodes));
    }
    let text: String = lines
        .iter()
        .map(|line| format!("{}\\l", escape(&shorten::middle(line, LONGEST_TOOLTIP))))
        .collect();
    writeln!(
        out,
        "subgraph cluster_L {{ L [shape=box fontsize=16 label=\"{text}\" tooltip=\"{}\"] }}",
        escape(&shorten::middle(title, LONGEST_TOOLTIP))
    )
}

fn write_node(
    out: &mut dyn Write,
    view: &View,
    id: usize,
    node: &GraphNode,
    largest: u64,
) -> io::Result<()> {
    let name = name(view, node);
    let value = |v: i64| format!("{} ({:.2}%)", values::text(view, v), view.percent(v));
    let label = escape(&shorten::middle(&name, LONGEST_LABEL)).replace("::", "::\\n");
    let own = if node.self_value == 0 { "0".to_owned() } else { value(node.self_value) };
    let total_line = match node {
        n if n.total == n.self_value => String::new(),
        n if n.self_value == 0 => format!(" of {}", value(n.total)),
        n => format!("\\nof {}", value(n.total)),
    };
    let tooltip = escape(&shorten::middle(&name, LONGEST_TOOLTIP));
    let total = values::text(view, node.total);
    let share = view.percent(node.total) / 100.0;
    writeln!(
        out,
        "N{id} [label=\"{label}\\n{own}{total_line}\" id=\"node{id}\" fontsize={} shape=box \
         tooltip=\"{tooltip} ({total})\" color=\"{}\" fillcolor=\"{}\"]",
        font_size(node.self_value, largest),
        color(share, Tone::Line),
        color(share, Tone::Area)
    )
}

/// From 8 to 24, by the root of the share, so that differences of small values are visible.
fn font_size(value: i64, largest: u64) -> usize {
    if value == 0 || largest == 0 {
        return 8;
    }
    8 + (16.0 * (value.unsigned_abs() as f64 / largest as f64).sqrt()).ceil() as usize
}

fn write_edge(out: &mut dyn Write, view: &View, graph: &Graph, edge: &Edge) -> io::Result<()> {
    let value = values::text(view, edge.value);
    let inlined = if edge.inlined { "\\n (inlined)" } else { "" };
    let share = view.percent(edge.value) / 100.0;
    let within = |most: f64| 1 + (share.abs() * most).min(most) as usize;
    let name_of =
        |id: u32| escape(&shorten::middle(&name(view, &graph.nodes[id as usize]), LONGEST_TOOLTIP));
    let arrow = if edge.residual { "..." } else { "->" };
    let tooltip = format!("{} {arrow} {} ({value})", name_of(edge.caller), name_of(edge.callee));
    let dotted = if edge.residual { " style=\"dotted\"" } else { "" };
    writeln!(
        out,
        "N{} -> N{} [label=\" {value}{inlined}\" weight={} penwidth={} color=\"{}\" \
         tooltip=\"{tooltip}\" labeltooltip=\"{tooltip}\"{dotted}]",
        edge.caller + 1,
        edge.callee + 1,
        within(100.0),
        within(5.0),
        color(share, Tone::Line)
    )
}

/// The name of a node; after it what else distinguishes it.
fn name(view: &View, node: &GraphNode) -> String {
    let frame = view.frames.get(node.frame);
    let granularity = view.frames.granularity;
    let mut name = frame.display(view.profile).into_owned();
    let is_function = matches!(frame.name, Name::Function(_));
    if is_function && granularity.address {
        let _ = write!(name, " {:#x}", frame.address);
    }
    if is_function && granularity.line {
        let _ = write!(name, " {}", frame.place(view.profile));
    } else if is_function && granularity.file {
        let _ = write!(name, " {}", view.profile.str(frame.file));
    }
    printed::line(name.trim_end()).into_owned()
}

/// `text` in a quoted string of DOT, in which Graphviz also replaces names of characters as in
/// HTML.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('&', "&amp;")
}

/// The part that is coloured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tone {
    /// Dark, for lines.
    Line,
    /// Light, for backgrounds.
    Area,
}

/// pprof's colours of a share of the whole from -1 (green) over 0 (grey) to 1 (red).
fn color(share: f64, tone: Tone) -> String {
    /// The exponent that moves small shares away from grey.
    const SHIFT: f64 = 0.3;
    /// Shares of which the saturation is reduced.
    const PALE: f64 = 0.2;
    let (saturation, value) = match tone {
        Tone::Line => (1.0, 0.7),
        Tone::Area => (0.1, 0.93),
    };
    let share = if share.is_finite() { share.clamp(-1.0, 1.0) } else { 0.0 };
    let saturation = saturation * (share.abs() / PALE).min(1.0);
    let other = value * (1.0 - saturation * share.abs().powf(SHIFT));
    let byte = |part: f64| (part * 255.0) as u8;
    let (r, g) = if share < 0.0 { (other, value) } else { (value, other) };
    let Rgb { r, g, b } = Rgb { r: byte(r), g: byte(g), b: byte(value * (1.0 - saturation)) };
    format!("#{r:02x}{g:02x}{b:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::Profile;
    use view::testing::{answers, odd_names};
    use view::{Granularity, NodeOrder, Trim};

    fn dot(p: &Profile, kind: usize) -> String {
        let view = View::new(p, kind, Granularity::SYMBOL);
        let graph = Graph::new(&view, NodeOrder::Drawing, Trim::default());
        let mut out = Vec::new();
        write(&mut out, &view, &graph, "app \"cpu\"").unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn nodes_and_edges_have_their_values() {
        let got = dot(&answers(), 1);
        for part in [
            "digraph \"app \\\"cpu\\\"\" {\n",
            "label=\"bar\\n5.00 s (55.56%)\" id=\"node",
            "label=\"main\\n2.00 s (22.22%)\\nof 9.00 s (100.00%)\"",
            "tooltip=\"main -> foo1 (4.00 s)\"",
            "[label=\" 4.00 s\" weight=45 penwidth=3 color=\"#b22600\"",
        ] {
            assert!(got.contains(part), "{part}\n{got}");
        }
        assert!(got.ends_with("]\n}\n"), "{got}");
    }

    #[test]
    fn names_cannot_end_their_string() {
        let got = dot(&odd_names(), 0);
        assert!(got.contains("a b \\\"c\\\""), "{got}");
        assert!(got.contains("a&amp;b"), "{got}");
        assert!(got.contains("tab new line 7"), "{got}");
        assert_eq!(escape("\\\"&"), "\\\\\\\"&amp;");
        assert_eq!(shorten::middle(&"é".repeat(100_000), 9), "éééé…éééé");
        assert_eq!(shorten::middle("short", 5), "short");
    }

    #[test]
    fn colours_are_those_of_pprof() {
        assert_eq!(color(1.0, Tone::Area), "#edd5d5");
        assert_eq!(color(1.0, Tone::Line), "#b20000");
        assert_eq!(color(0.0, Tone::Area), "#ededed");
        assert_eq!(color(-1.0, Tone::Line), "#00b200");
        assert_eq!(color(f64::NAN, Tone::Line), "#b2b2b2");
    }
}
