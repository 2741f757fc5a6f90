//! Filters: added for what is selected or as typed, and removed.

use super::{App, Command};
use crate::report::terminal::target::Target;
use view::query::AddedFilter;

impl App {
    /// Adds a filter.
    pub(super) fn add_filter(&mut self, added: AddedFilter) -> Vec<Command> {
        let mut query = self.page().query.clone();
        if added.is_time() {
            // Another range of the recording, not a part of that range.
            query.filters.retain(|added| !added.is_time());
        }
        if !query.filters.contains(&added) {
            query.filters.push(added);
        }
        self.visit(query)
    }

    /// Adds the filter of what is selected.
    pub(super) fn filter(&mut self, filter: fn(&Target) -> Option<AddedFilter>) -> Vec<Command> {
        let target = Target::selected(self.page());
        match filter(&target) {
            Some(added) => self.add_filter(added),
            None if target.name().is_none() => self.refuse("nothing with a name is selected"),
            None => self.refuse("there is no such filter for what is selected"),
        }
    }

    /// Removes the filter that was added last.
    pub(super) fn remove_last_filter(&mut self) -> Vec<Command> {
        match self.page().query.filters.len() {
            0 => self.refuse("there is no filter"),
            count => self.remove_filter(count - 1),
        }
    }

    /// Removes a filter.
    pub(super) fn remove_filter(&mut self, number: usize) -> Vec<Command> {
        let mut query = self.page().query.clone();
        if number < query.filters.len() {
            query.filters.remove(number);
        }
        self.visit(query)
    }
}
