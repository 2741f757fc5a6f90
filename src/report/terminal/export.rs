//! Writes a page to a file.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use super::difference::{DiffTable, compare};
use super::model::Context;
use super::{new_file, source, written};
use crate::report::answer::OutputFormat;
use crate::report::colors::Scheme;
use crate::report::flame::{self, FlameOptions};
use crate::report::{dot, flame_diff, graphviz, json, sandwich as sandwich_text, summary};
use profile::Profile;
use view::answer::{BoxesAnswer, DiffAnswer, DiffBoxesAnswer};
use view::query::{Limits, Query, Shown, ShownFlame};
use view::{
    Cut, Difference, Direction, Granularity, Graph, NodeOrder, Part, Sandwich, Siblings, Tree,
    Trim, View, named_frames,
};

/// Width below which boxes of a flame graph are left out, in percent: that of `prof flame`.
const MIN_WIDTH: f64 = 0.1;

/// Writes a page in the format that the end of the name selects: a flame graph to `*.svg`, a call
/// graph to `*.dot` and `*.dot.svg`, the samples to `*.pb.gz`, JSON to `*.json`, else text. A file
/// that exists stays as it is.
///
/// Returns the message for the user: that the file was written, or why it was not.
pub fn write(context: &Context, query: &Query, path: &str) -> String {
    match try_write(context, query, path) {
        Ok(()) => format!("wrote {path}"),
        Err(error) => format!("{path}: {error}"),
    }
}

fn try_write(context: &Context, query: &Query, path: &str) -> io::Result<()> {
    new_file::write(Path::new(path), &content(context, query, path)?)
}

fn content(context: &Context, query: &Query, path: &str) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let part = || context.part(query).map_err(io::Error::other);
    let is = |end: &str| path.ends_with(end);
    if is(".dot.svg") {
        out = graphviz::svg(call_graph(&part()?.profile, query)?)?;
    } else if is(".dot") || is(".gv") {
        out = call_graph(&part()?.profile, query)?;
    } else if is(".svg") {
        match &query.shown {
            Shown::Diff { .. } | Shown::DiffFlame(_) => {
                let found = compare(context, &boxes_of_difference(query));
                let Difference { diff, boxes, .. } = found.map_err(io::Error::other)?;
                let options = options(flame_diff::title(&diff), String::new());
                flame_diff::write(&mut out, &diff, &boxes, &options)?;
            }
            Shown::Sandwich(name) => write_sandwich(&part()?.profile, query, name, &mut out)?,
            _ => write_flame(&part()?.profile, query, &mut out)?,
        }
    } else if is(".pb.gz") {
        formats::pprof::write(&profile::compact(&part()?.profile), &mut out)?;
    } else if is(".json") {
        write_json(context, &part()?, query, &mut out)?;
    } else {
        for line in written::with_summary(context, query).map_err(io::Error::other)? {
            writeln!(out, "{line}")?;
        }
    }
    Ok(out)
}

/// The query for the boxes of a difference.
fn boxes_of_difference(query: &Query) -> Query {
    let shown = match query.shown {
        Shown::DiffFlame(_) => query.shown.clone(),
        _ => Shown::diff_flame(),
    };
    let limits = Limits { cut: Cut::Width(MIN_WIDTH), ..Limits::NONE };
    Query { shown, limits, ..query.clone() }
}

fn options(title: String, subtitle: String) -> FlameOptions {
    FlameOptions {
        title,
        subtitle,
        inverted: true,
        order: Siblings::Name,
        width: None,
        min_width: MIN_WIDTH,
        scheme: Scheme::default(),
    }
}

/// The callers of a function above it, and its callees below it.
fn write_sandwich(
    part: &Arc<Profile>,
    query: &Query,
    name: &str,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let mut view = View::new(part, query.type_index, Granularity::FUNCTION);
    view.leave_out_negative();
    let functions = named_frames(&view, name).map_err(io::Error::other)?;
    let model = Sandwich::new(&view, &functions, Cut::Width(MIN_WIDTH));
    let title = format!("Sandwich of {}", sandwich_text::names(&view, &functions));
    let subtitle = sandwich_text::totals(&view, &model);
    flame::sandwich::write(out, &view, &model, &options(title, subtitle))
}

/// The flame graph of the samples.
fn write_flame(part: &Arc<Profile>, query: &Query, out: &mut Vec<u8>) -> io::Result<()> {
    let mut view = View::new(part, query.type_index, Granularity::FUNCTION);
    view.leave_out_negative();
    view.collapse_recursion = query.collapses_recursion;
    let (direction, order) = match query.shown {
        Shown::Tree(direction) => (direction, Siblings::Name),
        Shown::Flame(ShownFlame { direction, siblings, .. }) => (direction, siblings),
        _ => (Direction::Callees, Siblings::Name),
    };
    let tree = Tree::new(&mut view, direction, &[], Cut::Width(MIN_WIDTH));
    let options = options(summary::title(&view), summary::subtitle(&view));
    let options = FlameOptions { order, ..options };
    flame::write(out, &view, &tree, &options)
}

/// The call graph in DOT, with the limits of `prof graph`.
fn call_graph(profile: &Profile, query: &Query) -> io::Result<Vec<u8>> {
    let view = View::new(profile, query.type_index, Granularity::SYMBOL);
    let graph = Graph::new(&view, NodeOrder::Drawing, Trim::default());
    if graph.nodes.is_empty() {
        return Err(io::Error::other("nothing to draw: no function has a value"));
    }
    let mut out = Vec::new();
    dot::write(&mut out, &view, &graph, &summary::title(&view))?;
    Ok(out)
}

fn write_json(context: &Context, part: &Part, query: &Query, out: &mut Vec<u8>) -> io::Result<()> {
    let profile = &*part.profile;
    match &query.shown {
        Shown::Diff { rows, .. } => {
            let found = DiffTable::new(context, query, rows).map_err(io::Error::other)?;
            let (granularity, labels) = (rows.granularity(), rows.labels().to_vec());
            let answer = DiffAnswer::new(&found.diff, &found.files, granularity, &labels, 0);
            json::write(out, &answer)
        }
        Shown::DiffFlame(flame) => {
            let query = &boxes_of_difference(query);
            let found = compare(context, query);
            let Difference { diff, boxes, .. } = found.map_err(io::Error::other)?;
            let files = context.base.as_ref().map(|base| base.files.clone()).unwrap_or_default();
            let (direction, granularity) = (flame.direction, query.granularity());
            json::write(out, &DiffBoxesAnswer::new(&diff, &boxes, direction, &files, granularity))
        }
        Shown::Flame(flame) => {
            let mut view = View::new(profile, query.type_index, Granularity::FUNCTION);
            view.leave_out_negative();
            view.collapse_recursion = query.collapses_recursion;
            let tree = Tree::new(&mut view, flame.direction, &[], Cut::Width(MIN_WIDTH));
            let (order, min_width) = (flame.siblings, MIN_WIDTH);
            let options = view::BoxOptions { order, min_width, zoom: Tree::ROOT };
            let boxes = view::Boxes::new(&view, &tree, &options);
            json::write(out, &BoxesAnswer::new(&view, &tree, &boxes))
        }
        Shown::Source(shown) => {
            let view = View::new(profile, query.type_index, query.shown.granularity());
            source::write_json(context, &view, shown, out)
        }
        _ => written::write(context, part, query, OutputFormat::Json, out),
    }
}
