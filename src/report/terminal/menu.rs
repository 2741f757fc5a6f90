//! A menu: lines of which one is chosen, by the cursor or by its key.

use super::cursor::{Cursor, Move};
use super::keys::Action;
use view::query::Query;

/// What a line of a menu does.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// The action of a key.
    Act(Action),
    /// Goes to a page, and selects what has this name there.
    Visit(Box<Query>, Option<String>),
    /// Copies this text.
    Copy(String),
    /// Removes the filter with this number.
    RemoveFilter(usize),
    /// Removes all filters.
    RemoveAllFilters,
}

/// A line of a menu.
#[derive(Clone, Debug, PartialEq)]
pub struct MenuItem {
    /// Its key.
    pub key: char,
    /// Its text.
    pub text: String,
    /// What it does.
    pub choice: Choice,
}

/// A menu.
#[derive(Clone, Debug, PartialEq)]
pub struct Menu {
    /// What its lines are about.
    pub title: String,
    /// Its lines.
    pub items: Vec<MenuItem>,
    /// The selected line, and those on the screen.
    pub cursor: Cursor,
}

impl Menu {
    /// A menu whose first line is selected.
    pub fn new(title: String, items: Vec<MenuItem>) -> Menu {
        Menu { title, items, cursor: Cursor::default() }
    }

    /// Moves the cursor; `height`: lines on the screen.
    pub fn go(&mut self, step: Move, height: usize) {
        self.cursor.go(step, self.items.len(), height);
    }

    /// The line with this key.
    pub fn find(&self, key: char) -> Option<&MenuItem> {
        self.items.iter().find(|item| item.key == key)
    }

    /// The selected line.
    pub fn selected(&self) -> Option<&MenuItem> {
        self.items.get(self.cursor.selected)
    }
}
