//! The call tree.

use std::io::{self, Write};

use super::{OutputFormat, Registered, Request, always};
use crate::report::text::TreeOptions;
use crate::report::{json, text};
use view::answer::TreeAnswer;
use view::{Cut, Direction, Tree, View};

/// Lines without `-n`.
pub(super) const DEFAULT_LINES: usize = 200;
/// Share of the total below which nodes are left out (perf's default).
const DEFAULT_PERCENT: f64 = 0.5;

/// With `-g`.
pub const REGISTERED: Registered = Registered { name: "tree", option: None, check: always, write };

fn write(request: &Request<'_>, view: &mut View<'_>, out: &mut dyn Write) -> io::Result<()> {
    let strings = &view.profile.strings;
    let roots: Vec<_> = request.labels.iter().filter_map(|l| strings.find(l)).collect();
    let min_percent = min_percent(request);
    let cut = cut(min_percent);
    let direction = request.direction.unwrap_or(Direction::Callees);
    let tree = Tree::new(view, direction, &roots, cut);
    match request.format {
        OutputFormat::Json => json::write(out, &TreeAnswer::new(view, &tree)),
        OutputFormat::Text => {
            let limit = request.rows.unwrap_or(DEFAULT_LINES);
            text::write_tree(out, view, &tree, TreeOptions { limit, min_percent })
        }
    }
}

/// Share of the total below which nodes are left out.
pub(super) fn min_percent(request: &Request<'_>) -> f64 {
    request.min_percent.unwrap_or(match request.format {
        OutputFormat::Json => 0.0,
        OutputFormat::Text => DEFAULT_PERCENT,
    })
}

pub(super) fn cut(min_percent: f64) -> Cut {
    if min_percent > 0.0 { Cut::Percent(min_percent) } else { Cut::Nothing }
}
