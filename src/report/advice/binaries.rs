//! Remedies for the binaries of a coverage report.

use rustc_hash::FxHashSet;

use super::{Advisor, Missing};
use profile::{Profile, Truncation};
use view::{Coverage, Covered, Granularity, View};

/// An advisor for all binaries that lack something, in terms of the profile `file`, a word of a
/// shell, if it is a single one.
pub fn advisor(view: &View, coverage: &Coverage, file: Option<String>) -> Advisor {
    let lacking = coverage.binaries.iter().filter(|b| lacks(b) != Lacks::default());
    let files: Vec<&str> = lacking.map(|b| view.profile.str(b.file)).collect();
    Advisor::new(&files, view.profile, file)
}

/// The remedies for a binary, one sentence each.
pub fn remedies(view: &View, b: &Covered, advisor: &Advisor) -> Vec<String> {
    let Lacks { names, lines } = lacks(b);
    let ends = b.ends().0.iter().filter_map(|(code, _)| Truncation::from_code(code)).collect();
    let why = [&b.why, &b.why_no_lines].into_iter().flatten().map(|gap| &gap.cause).collect();
    let missing = Missing { names, lines, ends, why };
    advisor.remedies(view.profile.str(b.file), view.profile.str(b.build_id), &missing)
}

/// The same with each sentence once, and without the one that was `printed` before.
pub fn once<'a>(
    view: &'a View<'a>,
    advisor: &'a Advisor,
    printed: Option<String>,
) -> impl FnMut(&Covered) -> Vec<String> + 'a {
    let mut printed: FxHashSet<String> = printed.into_iter().collect();
    move |b| remedies(view, b, advisor).into_iter().filter(|r| printed.insert(r.clone())).collect()
}

/// The command that helps most against missing names of the binary `path`, in terms of the profile
/// `file`, a word of a shell.
pub fn for_names(profile: &Profile, file: Option<String>, path: &str) -> Option<String> {
    let view = View::new(profile, 0, Granularity::NONE);
    let coverage = Coverage::new(&view);
    let binary = coverage.binaries.iter().find(|b| profile.str(b.file) == path)?;
    let why = binary.why.iter().map(|gap| &gap.cause).collect();
    let missing = Missing { names: true, why, ..Missing::default() };
    Advisor::new(&[path], profile, file).for_names(path, profile.str(binary.build_id), &missing)
}

/// The gaps of a binary that concern more than a few of its frames.
#[derive(Default, PartialEq, Eq)]
struct Lacks {
    names: bool,
    lines: bool,
}

fn lacks(b: &Covered) -> Lacks {
    // A few odd ends, such as the assembly of _start, are no reason to do anything.
    Lacks { names: b.frames - b.named > b.frames / 100, lines: b.with_lines < b.frames / 10 }
}
