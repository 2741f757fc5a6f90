//! What the user types into the line at the bottom, and searches.

use super::{App, Command};
use crate::report::terminal::query::{AddedFilter, CONDITIONS};
use crate::report::terminal::search::{Progress, Search, Way, pattern};

/// Longest text that can be typed.
const MAX_TYPED: usize = 1000;

/// What the user types into the line at the bottom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Its use.
    pub purpose: Purpose,
    /// The text so far.
    pub text: String,
    /// The reason why the text is wrong so far.
    pub error: Option<String>,
}

/// The use of a typed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A regular expression to search for.
    Search,
    /// The name of a file to write.
    Write,
    /// A filter.
    Filter,
}

impl App {
    /// Begins to read a text.
    pub(super) fn begin(&mut self, purpose: Purpose) {
        self.anchor = self.page().search_position();
        let text = if purpose == Purpose::Filter { "focus=" } else { "" };
        self.prompt = Some(Prompt { purpose, text: text.to_owned(), error: None });
    }

    /// A typed character.
    pub fn typed(&mut self, c: char) {
        if let Some(prompt) = &mut self.prompt
            && prompt.text.len() < MAX_TYPED
            && !c.is_control()
        {
            prompt.text.push(c);
            self.retyped();
        }
    }

    /// The last typed character is deleted; without one, the prompt ends.
    pub fn deleted(&mut self) {
        match self.prompt.as_mut().and_then(|prompt| prompt.text.pop()) {
            Some(_) => self.retyped(),
            None => self.prompt = None,
        }
    }

    /// Completes what is typed: the next condition of a filter.
    pub fn completed(&mut self) {
        let Some(Prompt { purpose: Purpose::Filter, text, .. }) = &mut self.prompt else { return };
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let name = name.replace('_', "-");
        let at = CONDITIONS.iter().position(|condition| condition.name() == name);
        let begun = || CONDITIONS.iter().position(|condition| condition.name().starts_with(&name));
        let next = at.map_or_else(begun, |at| Some((at + 1) % CONDITIONS.len()));
        *text = format!("{}={value}", CONDITIONS[next.unwrap_or(0)].name());
        self.retyped();
    }

    /// Searches for the text as it is typed, or checks it.
    fn retyped(&mut self) {
        let Some(Prompt { purpose, text, error }) = &mut self.prompt else { return };
        match purpose {
            Purpose::Write => return,
            Purpose::Filter => {
                *error = AddedFilter::parse(text).err();
                return;
            }
            Purpose::Search => {}
        }
        let text = text.clone();
        let count = self.page().searched();
        self.search = match pattern(&text) {
            Ok(regex) if !text.is_empty() => {
                Some(Search::new(regex, self.anchor, count, Way::Forward))
            }
            _ => None,
        };
        self.search_on();
    }

    /// The end of what is typed.
    pub fn entered(&mut self) -> Vec<Command> {
        let Some(prompt) = self.prompt.take() else { return Vec::new() };
        match prompt.purpose {
            _ if prompt.text.is_empty() => Vec::new(),
            Purpose::Search => {
                if let Err(error) = pattern(&prompt.text) {
                    self.say(error);
                }
                Vec::new()
            }
            Purpose::Write => vec![Command::Write(prompt.text)],
            Purpose::Filter => match AddedFilter::parse(&prompt.text) {
                Ok(added) => self.add_filter(added),
                // It can be corrected.
                Err(error) => {
                    self.prompt = Some(Prompt { error: Some(error), ..prompt });
                    Vec::new()
                }
            },
        }
    }

    pub(super) fn next_match(&mut self, way: Way) {
        let Some(last) = &self.search else {
            self.say("nothing to search for; / begins a search".to_owned());
            return;
        };
        let regex = last.regex.clone();
        let count = self.page().searched();
        let at = self.page().search_position();
        let start = match way {
            Way::Forward => at + 1,
            Way::Backward => at.checked_sub(1).unwrap_or(count.saturating_sub(1)),
        };
        self.search = Some(Search::new(regex, start, count, way));
        self.search_on();
    }

    /// Searches for a short time.
    pub fn search_on(&mut self) {
        let body = self.body;
        let App { search: Some(search), pages, at, .. } = self else { return };
        let page = &mut pages[*at];
        match search.step(page.searched(), |i| page.text_at(i)) {
            Progress::Searching => {}
            Progress::Found(at) => page.select_found(at, body),
            Progress::Nothing => self.say("not found".to_owned()),
        }
    }
}
