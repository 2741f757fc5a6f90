//! A recording that goes on: its newer profiles, and requests to it.

use std::sync::Arc;

use super::{App, Command, Purpose};
use crate::report::terminal::live::Control;
use crate::report::terminal::page::release;
use profile::Profile;

impl App {
    /// Shows a newer profile. The current page shows the old one until its model is computed.
    pub fn replace(&mut self, profile: Arc<Profile>) -> Vec<Command> {
        self.profile.replace(profile).into_iter().for_each(release);
        let at = self.at;
        let others = self.pages.iter_mut().enumerate().filter(|(i, _)| *i != at);
        others.for_each(|(_, page)| page.unload());
        self.refresh()
    }

    /// Shows this sample type on all pages.
    pub fn set_type(&mut self, type_index: usize) {
        self.pages.iter_mut().for_each(|page| page.query.type_index = type_index);
    }

    /// Passes a request to the recording.
    pub(super) fn control(&mut self, control: Control) -> Vec<Command> {
        if self.has_no_recording() {
            return Vec::new();
        }
        vec![Command::Live(control)]
    }

    /// Opens the prompt for what to record.
    pub(super) fn prompt_for_recording(&mut self) -> Vec<Command> {
        if !self.has_no_recording() {
            self.begin(Purpose::Record);
        }
        Vec::new()
    }

    /// True, with a message, if the profile is a file.
    fn has_no_recording(&mut self) -> bool {
        if self.live.is_none() {
            self.show_message("this key is for prof top: the profile is a file".to_owned());
        }
        self.live.is_none()
    }
}
