//! Writes a page to a file.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use super::model;
use super::query::Query;
use crate::report::colors::Scheme;
use crate::report::flame::{self, FlameOptions};
use crate::report::summary;
use profile::Profile;
use view::{Cut, Direction, Granularity, Siblings, Tree, View};

/// Width below which boxes of a flame graph are left out, in percent: that of `prof flame`.
const MIN_WIDTH: f64 = 0.1;

/// Writes a page: a flame graph to `*.svg`, the samples to `*.pb.gz`, else text. A file that exists stays as it is.
///
/// Returns the message for the user: that the file was written, or why it was not.
pub fn write(profile: &Arc<Profile>, query: &Query, path: &str) -> String {
    match try_write(profile, query, path) {
        Ok(()) => format!("wrote {path}"),
        Err(error) => format!("{path}: {error}"),
    }
}

fn try_write(profile: &Arc<Profile>, query: &Query, path: &str) -> io::Result<()> {
    let mut out = Vec::new();
    let failed = |error: String| io::Error::other(error);
    if path.ends_with(".svg") {
        let part = model::filtered(profile, &query.filters).map_err(failed)?;
        write_svg(&part, query, &mut out)?;
    } else if path.ends_with(".pb.gz") {
        let part = model::filtered(profile, &query.filters).map_err(failed)?;
        formats::pprof::write(&profile::compact(&part), &mut out)?;
    } else {
        for line in model::rendered(profile, query).map_err(failed)? {
            writeln!(out, "{line}")?;
        }
    }
    // Never over another file: a name is typed fast.
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let mut file = BufWriter::new(file);
    file.write_all(&out)?;
    file.flush()
}

fn write_svg(profile: &Profile, query: &Query, out: &mut Vec<u8>) -> io::Result<()> {
    let mut view = View::new(profile, query.type_index, Granularity::FUNCTION);
    view.leave_out_negative();
    let tree = Tree::new(&mut view, Direction::Callees, &[], Cut::Width(MIN_WIDTH));
    let options = FlameOptions {
        title: summary::title(&view),
        subtitle: summary::subtitle(&view),
        inverted: false,
        order: Siblings::Name,
        width: None,
        min_width: MIN_WIDTH,
        scheme: Scheme::default(),
    };
    flame::write(out, &view, &tree, &options)
}
