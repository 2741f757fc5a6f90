//! A recording that goes on: its newer profiles, and requests to it.

use std::sync::Arc;

use super::{App, Command, Purpose};
use crate::report::terminal::live::Control;
use crate::report::terminal::page::release;
use profile::Profile;
use view::query::{Rows, Shown};

impl App {
    /// Shows a newer profile. The current page shows the old one until its model is computed.
    pub fn replace(&mut self, profile: Arc<Profile>) -> Vec<Command> {
        self.profile.replace(profile).into_iter().for_each(release);
        let at = self.at;
        let others = self.pages.iter_mut().enumerate().filter(|(i, _)| *i != at);
        others.for_each(|(_, page)| page.unload());
        self.refresh()
    }

    /// Shows a profile of other data, on all pages in this sample type. Tables with the rows that were
    /// usual for the former type have those of this one.
    pub fn replace_types(&mut self, profile: Arc<Profile>, type_index: usize) -> Vec<Command> {
        let usual = Rows::usual(&profile, type_index);
        let former = self.profile.clone();
        for page in &mut self.pages {
            let rows = former.as_deref().map(|former| Rows::usual(former, page.query.type_index));
            if let Shown::Table(table) = &mut page.query.shown
                && Some(&table.rows) == rows.as_ref()
            {
                table.rows = usual.clone();
            }
            page.query.type_index = type_index;
        }
        self.replace(profile)
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
