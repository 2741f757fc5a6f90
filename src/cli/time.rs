//! Arguments that select a part of a recording.

use crate::report::{over, units};
use profile::Profile;
use sys::printed::Stderr;
use view::{TimePoint, TimeRange, length_micros, select_time};

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

    /// The selected part of a profile, and its beginning in microseconds since that of the whole.
    ///
    /// # Errors
    ///
    /// A part is selected, and the profile has no times of samples.
    pub fn select(&self, profile: Profile) -> anyhow::Result<(Profile, u64)> {
        let Some(range) = self.time else { return Ok((profile, 0)) };
        check("--time", &profile)?;
        let length = TimePoint::Micros(length_micros(&profile));
        let part = select_time(profile, range);
        if part.profile.samples.is_empty() {
            Stderr::line(&format!(
                "prof: --time {range}: no sample in this range; the recording has 0s..{length}"
            ));
        }
        let shown = part.profile.default_type_index();
        if let Some(&value) = part.without_time.get(shown).filter(|value| **value != 0) {
            let unit = part.profile.sample_types[shown].unit;
            let value = units::format(value, part.profile.str(unit));
            Stderr::line(&format!("prof: left out {value} of samples without a time"));
        }
        Ok((part.profile, part.from))
    }
}

/// Fails if the profile has no times of samples, which `option` needs.
pub fn check(option: &str, profile: &Profile) -> anyhow::Result<()> {
    anyhow::ensure!(
        !profile.times.is_empty(),
        "{option}: the profile has no times of samples; record with prof record --timestamps"
    );
    Ok(())
}

/// Parses the interval of `--over`, as microseconds.
pub fn interval(text: &str) -> Result<u64, String> {
    over::parse_interval(text).ok_or_else(|| "not an interval; write 100ms, 1s or 5m".to_owned())
}
