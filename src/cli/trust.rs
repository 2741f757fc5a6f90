//! How far a profile can be trusted: `report --coverage` and `--quality`, and the few lines about
//! it after a recording.

use std::io::{self, Write};

use rustc_hash::FxHashSet;

use crate::report::advice::{Advisor, Missing};
use crate::report::{coverage, json, quality};
use profile::{Profile, Truncation};
use view::{Coverage, Covered, Filter, Granularity, Quality, TopOptions, View};

/// Binaries that are told of after a recording, and their least share of the samples.
const SUMMARY_ROWS: usize = 4;
const SUMMARY_PERCENT: f64 = 1.0;

/// Prints the coverage of each binary with at least `min_percent`, at most `rows` (0: all), and the
/// remedies, as commands for the profile `file`.
pub fn coverage(
    view: &View,
    file: Option<&str>,
    rows: usize,
    min_percent: f64,
    as_json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut coverage = Coverage::new(view);
    coverage.binaries.retain(|b| view.percent(b.total) >= min_percent);
    let all = coverage.binaries.len();
    if rows > 0 {
        coverage.binaries.truncate(rows);
    }
    let advisor = advisor(view, &coverage, file);
    if as_json {
        json::write_coverage(out, view, &coverage, &mut |b| remedies(view, b, &advisor))?;
        return Ok(());
    }
    coverage::write_text(out, view, &coverage, &mut once(view, &advisor, None))?;
    let left = all - coverage.binaries.len();
    if left > 0 {
        writeln!(out, "… and {left} more binaries; -n 0 shows all")?;
    }
    coverage::write_notes(out, view.profile)?;
    Ok(())
}

/// Prints the confidence intervals of the top functions.
pub fn quality(
    view: &View,
    rows: &TopOptions,
    as_json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let quality = Quality::new(view, rows);
    match as_json {
        true => json::write_quality(out, view, &quality)?,
        false => quality::write_text(out, view, &quality)?,
    }
    Ok(())
}

/// Says of the binaries with most samples of a recording what is known of them, and what would
/// help, in terms of the profile `file` if one was written, unless it was `said` before.
pub fn summary(
    err: &mut dyn Write,
    profile: &Profile,
    file: Option<&str>,
    said: Option<String>,
) -> io::Result<()> {
    // The first sample type counts samples.
    let view = View::new(profile, 0, Granularity::NONE, &Filter::default());
    let mut coverage = Coverage::new(&view);
    let all = coverage.binaries.len();
    coverage.binaries.truncate(SUMMARY_ROWS);
    coverage.binaries.retain(|b| view.percent(b.itself) >= SUMMARY_PERCENT);
    if coverage.binaries.is_empty() {
        return Ok(());
    }
    let advisor = advisor(&view, &coverage, file);
    coverage::write_summary(err, &view, &coverage, &mut once(&view, &advisor, said))?;
    let (left, arg) = (all - coverage.binaries.len(), file.map(super::file_arg));
    match (left, arg) {
        (0, _) => Ok(()),
        (_, None) => writeln!(err, "prof:   … and {left} more"),
        (_, Some(arg)) => writeln!(err, "prof:   … and {left} more: prof report --coverage{arg}"),
    }
}

/// What would help, each sentence once.
fn once<'a>(
    view: &'a View<'a>,
    advisor: &'a Advisor,
    said: Option<String>,
) -> impl FnMut(&Covered) -> Vec<String> + 'a {
    let mut said: FxHashSet<String> = said.into_iter().collect();
    move |b| remedies(view, b, advisor).into_iter().filter(|r| said.insert(r.clone())).collect()
}

/// Asks once for all binaries that lack something.
fn advisor(view: &View, coverage: &Coverage, file: Option<&str>) -> Advisor {
    let lacking = coverage.binaries.iter().filter(|b| lacks(b) != (false, false));
    let files: Vec<&str> = lacking.map(|b| view.profile.str(b.file)).collect();
    Advisor::new(&files, file.map(|f| super::shell_word(f).into_owned()))
}

/// Whether a binary lacks names, and lines.
fn lacks(b: &Covered) -> (bool, bool) {
    // A few odd ends, such as the assembly of _start, are no reason to do anything.
    (b.frames - b.named > b.frames / 100, b.with_lines < b.frames / 10)
}

fn remedies(view: &View, b: &Covered, advisor: &Advisor) -> Vec<String> {
    let (names, lines) = lacks(b);
    let ends = b.ends().0.iter().filter_map(|(code, _)| Truncation::from_code(code)).collect();
    let why = [&b.why, &b.why_no_lines].into_iter().flatten().map(|gap| &gap.cause).collect();
    let missing = Missing { names, lines, ends, why };
    advisor.remedies(view.profile.str(b.file), view.profile.str(b.build_id), &missing)
}
