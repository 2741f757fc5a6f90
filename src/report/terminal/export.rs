//! Writes a page to a file.

use std::io::{self, Write};
use std::path::Path;

use super::difference::{DiffTable, compare};
use super::model::Context;
use super::{new_file, written};
use crate::report::answer::{self, OutputFormat};
use crate::report::colors::Scheme;
use crate::report::diff::unequal_lengths;
use crate::report::flame::{self, FlameOptions};
use crate::report::{annotate, flame_diff, graphviz, json, sandwich as sandwich_text, summary};
use view::answer::{DiffAnswer, DiffBoxesAnswer};
use view::query::{Limits, Query, Shown, ShownFlame};
use view::{Answer, Cut, Difference, Direction, Model, SandwichModel, Siblings, Trim};

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
    let is = |end: &str| path.ends_with(end);
    if is(".dot.svg") {
        out = graphviz::svg(call_graph(context, query)?)?;
    } else if is(".dot") || is(".gv") {
        out = call_graph(context, query)?;
    } else if is(".svg") {
        match query.shown {
            Shown::Diff { .. } | Shown::DiffFlame(_) => {
                let found = compare(context, &as_boxes(query));
                let Difference { diff, boxes, .. } = found.map_err(io::Error::other)?;
                let lengths = unequal_lengths(&diff).unwrap_or_default();
                let options = options(flame_diff::title(&diff), lengths);
                flame_diff::write(&mut out, &diff, &boxes, &options)?;
            }
            _ => write_boxes(context, query, &mut out)?,
        }
    } else if is(".pb.gz") {
        // With the names of the file, and with inlined functions.
        let samples = Query { filters: query.filters.clone(), ..Query::default() };
        let part = context.part(&samples).map_err(io::Error::other)?;
        formats::pprof::write(&profile::compact(&part.profile), &mut out)?;
    } else if is(".json") {
        write_json(context, query, &mut out)?;
    } else {
        for line in written::with_summary(context, query).map_err(io::Error::other)? {
            writeln!(out, "{line}")?;
        }
    }
    Ok(out)
}

/// The answer to a query about the samples of a page.
fn answered(context: &Context, query: &Query) -> io::Result<Answer> {
    context.part(query).and_then(|part| context.answer(&part, query)).map_err(io::Error::other)
}

/// The same page as boxes that are wide enough to be drawn.
fn as_boxes(query: &Query) -> Query {
    let shown = match &query.shown {
        Shown::Flame(_) | Shown::DiffFlame(_) => query.shown.clone(),
        Shown::Sandwich(name) => {
            Shown::SandwichFlame { name: name.clone(), siblings: Siblings::Name }
        }
        Shown::Tree(direction) => Shown::flame(*direction),
        Shown::Diff { .. } => Shown::diff_flame(),
        _ => Shown::flame(Direction::Callees),
    };
    let limits = Limits { cut: Cut::Width(MIN_WIDTH), ..Limits::NONE };
    Query { shown, limits, granularity: None, ..query.clone() }
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

/// The flame graph of the samples, or the callers of a function above it, and its callees below it.
fn write_boxes(context: &Context, query: &Query, out: &mut Vec<u8>) -> io::Result<()> {
    let query = &as_boxes(query);
    let answer = answered(context, query)?;
    let view = answer.view();
    match (&answer.model, &query.shown) {
        (Model::Tree(tree), Shown::Flame(ShownFlame { siblings, .. })) => {
            let options = options(summary::title(&view), summary::subtitle(&view));
            let options = FlameOptions { order: *siblings, ..options };
            flame::write(out, &view, tree, &options)
        }
        (Model::Sandwich(SandwichModel { functions, sandwich }), _) => {
            let title = format!("Sandwich of {}", sandwich_text::names(&view, functions));
            let options = options(title, sandwich_text::totals(&view, sandwich));
            flame::sandwich::write(out, &view, sandwich, &options)
        }
        _ => Err(io::Error::other("this page has no boxes")),
    }
}

/// The call graph in DOT, with the limits of `prof graph`.
fn call_graph(context: &Context, query: &Query) -> io::Result<Vec<u8>> {
    let shown = Shown::Graph(Trim::default());
    let query = &Query { shown, granularity: None, ..query.clone() };
    let answer = answered(context, query)?;
    if !matches!(&answer.model, Model::Graph(graph) if !graph.nodes.is_empty()) {
        return Err(io::Error::other("nothing to draw: no function has a value"));
    }
    let mut out = Vec::new();
    answer::write(&mut out, &answer, query, OutputFormat::WHOLE_TEXT, None)?;
    Ok(out)
}

fn write_json(context: &Context, query: &Query, out: &mut Vec<u8>) -> io::Result<()> {
    match &query.shown {
        Shown::Diff { rows, .. } => {
            let found = DiffTable::new(context, query, rows).map_err(io::Error::other)?;
            let (granularity, labels) = (rows.granularity(), rows.labels().to_vec());
            let answer = DiffAnswer::new(&found.diff, &found.files, granularity, &labels, 0);
            json::write(out, &answer)
        }
        Shown::DiffFlame(flame) => {
            let query = &as_boxes(query);
            let found = compare(context, query);
            let Difference { diff, boxes, .. } = found.map_err(io::Error::other)?;
            let files = context.base.as_ref().map(|base| base.files.clone()).unwrap_or_default();
            let (direction, granularity) = (flame.direction, query.granularity());
            json::write(out, &DiffBoxesAnswer::new(&diff, &boxes, direction, &files, granularity))
        }
        Shown::Flame(_) => {
            let query = &as_boxes(query);
            answer::write(out, &answered(context, query)?, query, OutputFormat::Json, None)
        }
        Shown::Source(_) => {
            let answer = answered(context, query)?;
            let Model::Source(found) = &answer.model else { return Ok(()) };
            annotate::write_json(out, &answer.view(), found, &context.code, false)
        }
        _ => {
            let part = context.part(query).map_err(io::Error::other)?;
            written::write(context, &part, query, OutputFormat::Json, out)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use view::query::Rows;
    use view::testing::{functions, mapping};

    fn text(context: &Context, query: &Query, path: &str) -> String {
        String::from_utf8(content(context, query, path).unwrap()).unwrap()
    }

    fn names(bytes: &[u8]) -> Vec<String> {
        let profile = formats::pprof::read(bytes).unwrap();
        profile.functions.iter().map(|f| profile.str(f.name).to_owned()).collect()
    }

    #[test]
    fn files_of_a_page_of_packages_have_functions() {
        let mut b = profile::Builder::new(&[("samples", "count")]);
        let app = mapping(&mut b, "/usr/bin/app", 0x1000);
        let lines = [("serde_json::de::parse", "de.rs", 7)];
        let parse = functions(&mut b, Some(app), 0x1000, &lines);
        b.add(&[parse], profile::LabelSetId::EMPTY, 5, &[]);
        let context = Context::new(&Arc::new(b.finish(None)));
        let packages = Query::new(Shown::table(Rows::Packages));
        assert!(text(&context, &packages, "x.txt").contains("serde_json"));
        assert!(!text(&context, &packages, "x.txt").contains("parse"));
        for path in ["x.dot", "x.svg"] {
            assert!(text(&context, &packages, path).contains("serde_json::de::parse"), "{path}");
        }
        let written = content(&context, &packages, "x.pb.gz").unwrap();
        assert_eq!(names(&written), ["serde_json::de::parse"]);
    }

    #[test]
    fn a_file_of_samples_keeps_inlined_functions() {
        let mut b = profile::Builder::new(&[("samples", "count")]);
        let lines = [("inner", "x.c", 7), ("outer", "x.c", 9)];
        let outer = functions(&mut b, None, 0x1000, &lines);
        b.add(&[outer], profile::LabelSetId::EMPTY, 5, &[]);
        let context = Context::new(&Arc::new(b.finish(None)));
        let folded = Query { folds_inlined: true, ..Query::default() };
        assert!(!text(&context, &folded, "x.txt").contains("inner"));
        let written = content(&context, &folded, "x.pb.gz").unwrap();
        assert!(names(&written).contains(&"inner".to_owned()));
    }

    #[test]
    fn each_kind_of_file_is_of_the_page() {
        let context = Context::new(&Arc::new(view::testing::answers()));
        let sandwich = Query::new(Shown::Sandwich("foo1".to_owned()));
        assert!(text(&context, &sandwich, "x.svg").contains("Sandwich of foo1"));
        let callers = Query::new(Shown::flame(Direction::Callers));
        let json: serde_json::Value =
            serde_json::from_str(&text(&context, &callers, "x.json")).unwrap();
        assert_eq!(
            (&json["direction"], json["boxes"].as_array().unwrap().len() > 4),
            (&"callers".into(), true)
        );
        let missing = Query::new(Shown::Sandwich("typo".to_owned()));
        let error = content(&context, &missing, "x.svg").unwrap_err().to_string();
        assert_eq!(error, "no sample that passes the filters has typo");
    }
}
