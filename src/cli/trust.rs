//! How far a profile can be trusted: what a recording prints about its
//! binaries.

use std::io::{self, Write};

use crate::report::advice::binaries;
use crate::report::coverage;
use profile::Profile;
use view::{Coverage, Filter, Granularity, View};

/// Binaries that are told of after a recording, and their least share of the samples.
const SUMMARY_ROWS: usize = 4;
const SUMMARY_PERCENT: f64 = 1.0;

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
    let word = file.map(|file| super::shell_word(file).into_owned());
    let advisor = binaries::advisor(&view, &coverage, word);
    coverage::write_summary(err, &view, &coverage, &mut binaries::once(&view, &advisor, said))?;
    let (left, arg) = (all - coverage.binaries.len(), file.map(super::file_arg));
    match (left, arg) {
        (0, _) => Ok(()),
        (_, None) => writeln!(err, "prof:   … and {left} more"),
        (_, Some(arg)) => writeln!(err, "prof:   … and {left} more: prof report --coverage{arg}"),
    }
}
