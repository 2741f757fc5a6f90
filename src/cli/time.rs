//! Arguments that select a part of a recording.

use crate::report::{over, units};
use sys::printed::Stderr;
use view::query::AddedFilter;
use view::{Part, TimePoint, TimeRange};

/// The part of a recording that a view shows.
#[derive(Debug, Default, clap::Args)]
pub struct TimeArgs {
    /// Select samples from a range of time, such as 2s..5s or 10%..20%
    ///
    /// Times are relative to the start of the recording, percentages to its length. Without a
    /// beginning or an end, the range reaches to that of the recording. It needs a profile of
    /// 'prof record --timestamps'.
    #[arg(long, value_name = "RANGE", value_parser = TimeRange::parse, help_heading = "Filters")]
    time: Option<TimeRange>,
}

impl TimeArgs {
    /// True if a part of a recording is selected.
    pub fn is_given(&self) -> bool {
        self.time.is_some()
    }

    /// The range as text.
    pub fn text(&self) -> Option<String> {
        self.time.map(|range| range.to_string())
    }

    /// Prints what is missing in the selected part of a recording of this length in microseconds.
    pub fn note(&self, part: &Part, length: u64) {
        let Some(range) = self.time else { return };
        if part.unmatched.iter().any(AddedFilter::is_time) {
            let length = TimePoint::Micros(length);
            Stderr::line(&format!(
                "prof: --time {range}: no sample in this range; the recording has 0s..{length}"
            ));
        }
        let profile = &part.profile;
        let shown = profile.default_type_index();
        if let Some(&value) = part.without_time.get(shown).filter(|value| **value != 0) {
            let unit = profile.sample_types[shown].unit;
            let value = units::format(value, profile.str(unit));
            Stderr::line(&format!("prof: left out {value} of samples without a time"));
        }
    }
}

/// Parses the interval of `--over`, as microseconds.
pub fn interval(text: &str) -> Result<u64, String> {
    over::parse_interval(text).ok_or_else(|| "not an interval; write 100ms, 1s or 5m".to_owned())
}
