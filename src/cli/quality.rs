//! Quality of a recording: the lines about its binaries that are printed at its end.

use std::io::{self, Write};

use crate::report::advice::binaries;
use crate::report::coverage;
use profile::Profile;
use view::{Coverage, Granularity, View};

/// Most binaries that are printed after a recording.
const SUMMARY_ROWS: usize = 4;

/// The least share of the samples of each of them.
const SUMMARY_PERCENT: f64 = 1.0;

/// Writes the coverage of the binaries with most samples of a recording, and the remedies, with the
/// profile `file` in their commands if one was written; without the one that was `printed` before.
pub fn summary(
    err: &mut dyn Write,
    profile: &Profile,
    file: Option<&str>,
    printed: Option<String>,
) -> io::Result<()> {
    // The first sample type counts samples.
    let view = View::new(profile, 0, Granularity::NONE);
    let mut coverage = Coverage::new(&view);
    let all = coverage.binaries.len();
    coverage.binaries.truncate(SUMMARY_ROWS);
    coverage.binaries.retain(|b| view.percent(b.itself) >= SUMMARY_PERCENT);
    if coverage.binaries.is_empty() {
        return Ok(());
    }
    let word = file.map(|file| super::shell_word(file).into_owned());
    let advisor = binaries::advisor(&view, &coverage, word);
    coverage::write_summary(err, &view, &coverage, &mut binaries::once(&view, &advisor, printed))?;
    let left = all - coverage.binaries.len();
    match file.map(super::file_arg) {
        _ if left == 0 => Ok(()),
        None => writeln!(err, "prof:   … and {left} more"),
        Some(arg) => writeln!(err, "prof:   … and {left} more: prof report --coverage{arg}"),
    }
}
