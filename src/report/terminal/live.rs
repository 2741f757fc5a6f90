//! The views of a recording that goes on: a newer profile replaces the old one each second.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::run::Opened;
use profile::LiveWindow;

/// The state of a recording, for the corner of the screen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveStatus {
    /// The window that is shown.
    pub window: LiveWindow,
    /// Time between two profiles.
    pub interval: Duration,
    /// The views stay as they are.
    pub is_paused: bool,
    /// The recording has ended.
    pub has_ended: bool,
    /// CPU time of prof in percent of one core, over the last seconds.
    pub cost: f64,
    /// Samples lost since the start.
    pub lost: u64,
}

impl LiveStatus {
    /// True if a newer profile follows this state, which differs from `before` in figures only.
    pub fn only_counts_on(&self, before: &LiveStatus) -> bool {
        let same = LiveStatus { cost: before.cost, lost: before.lost, ..self.clone() };
        same == *before && !self.is_paused && !self.has_ended
    }

    /// The text in the corner.
    pub fn text(&self) -> String {
        let mut text = match self.window {
            LiveWindow::Last => format!("last {} s", self.interval.as_secs_f64()),
            LiveWindow::Recent => "last 10 s".to_owned(),
            LiveWindow::Decayed => "all, half-life 30 s".to_owned(),
        };
        if self.lost > 0 {
            text += &format!("  lost {}", self.lost);
        }
        text += &format!("  prof {:.1}% CPU", self.cost);
        if self.has_ended {
            text += "  ended";
        }
        // Also after the end: the rows are those of the pause.
        if self.is_paused {
            text += "  PAUSED";
        }
        text
    }
}

/// News of a recording.
pub enum Update {
    /// A newer profile.
    Profile(Box<Opened>),
    /// The first profile of other data: its sample types differ from those of the one before.
    OtherTypes(Box<Opened>),
    /// A newer state.
    Status(LiveStatus),
    /// A message for the line at the bottom.
    Message(String),
    /// This signal ended the recording, perhaps before the views listened to signals.
    Interrupted(i32),
}

/// A request of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Show the next window.
    NextWindow,
    /// Stop replacing the profile, or go on.
    Pause,
    /// Record other data: the options of a recording, such as `-T wall` or `-e page-faults`.
    Record(String),
}

/// A recording that goes on.
pub struct LiveSource {
    /// Its news; the first profile is shown when it comes.
    pub updates: Receiver<Update>,
    /// Takes the requests.
    pub control: Box<dyn Fn(Control) + Send>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_wait_for_the_profile_that_follows() {
        let before = LiveStatus { lost: 1, ..LiveStatus::default() };
        let next = LiveStatus { lost: 2, cost: 0.5, ..before.clone() };
        assert!(next.only_counts_on(&before));
        let paused = LiveStatus { is_paused: true, ..before.clone() };
        let ended = LiveStatus { has_ended: true, ..before.clone() };
        let other = LiveStatus { window: LiveWindow::Last, ..before.clone() };
        // No profile follows while it is paused.
        for (next, before) in
            [(&paused, &before), (&ended, &before), (&other, &before), (&paused, &paused)]
        {
            assert!(!next.only_counts_on(before), "{next:?}");
        }
    }

    #[test]
    fn a_pause_is_shown_after_the_end_too() {
        let status = LiveStatus { is_paused: true, has_ended: true, ..LiveStatus::default() };
        assert!(status.text().ends_with("ended  PAUSED"), "{}", status.text());
    }
}
