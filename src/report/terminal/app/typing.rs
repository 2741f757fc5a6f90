//! What the user types into the line at the bottom, and searches.

use tui_input::{Input, InputRequest};

use super::{App, Command};
use crate::report::terminal::live::Control;
use crate::report::terminal::search::{Progress, Search, Way, pattern};
use view::query::{AddedFilter, CONDITIONS};

/// Longest text that can be typed.
const MAX_TYPED: usize = 1000;

/// What the user types into the line at the bottom.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// Its use.
    pub purpose: Purpose,
    /// The text so far, and the cursor in it.
    pub input: Input,
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
    /// What is to be recorded instead.
    Record,
}

impl App {
    /// Begins to read a text.
    pub(super) fn begin(&mut self, purpose: Purpose) {
        self.anchor = self.page().search_position();
        let text = if purpose == Purpose::Filter { "focus=" } else { "" };
        self.prompt = Some(Prompt { purpose, input: text.into(), error: None });
    }

    /// A typed character.
    pub fn typed(&mut self, c: char) {
        self.edited(InputRequest::InsertChar(c));
    }

    /// A change of what is typed, or a move of the cursor in it. Without a text, the prompt ends
    /// where a character would be deleted.
    pub fn edited(&mut self, request: InputRequest) {
        let Some(prompt) = &mut self.prompt else { return };
        match request {
            InputRequest::InsertChar(c)
                if c.is_control() || prompt.input.value().len() >= MAX_TYPED => {}
            InputRequest::DeletePrevChar if prompt.input.value().is_empty() => self.prompt = None,
            request => {
                if prompt.input.handle(request).is_some_and(|changed| changed.value) {
                    self.retyped();
                }
            }
        }
    }

    /// Completes what is typed: the next condition of a filter.
    pub fn completed(&mut self) {
        let Some(Prompt { purpose: Purpose::Filter, input, .. }) = &mut self.prompt else {
            return;
        };
        let text = input.value();
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let name = name.replace('_', "-");
        let at = CONDITIONS.iter().position(|condition| condition.name() == name);
        let begun = || CONDITIONS.iter().position(|condition| condition.name().starts_with(&name));
        let next = at.map_or_else(begun, |at| Some((at + 1) % CONDITIONS.len()));
        *input = format!("{}={value}", CONDITIONS[next.unwrap_or(0)].name()).into();
        self.retyped();
    }

    /// Searches for the text as it is typed, or checks it.
    fn retyped(&mut self) {
        let Some(Prompt { purpose, input, error }) = &mut self.prompt else { return };
        let text = input.value();
        match purpose {
            Purpose::Write | Purpose::Record => return,
            Purpose::Filter => {
                *error = AddedFilter::parse(text).err();
                return;
            }
            Purpose::Search => {}
        }
        let pattern = pattern(text).ok().filter(|_| !text.is_empty());
        let count = self.page().searched();
        self.search = pattern.map(|regex| Search::new(regex, self.anchor, count, Way::Forward));
        self.search_on();
    }

    /// The end of what is typed.
    pub fn entered(&mut self) -> Vec<Command> {
        let Some(prompt) = self.prompt.take() else { return Vec::new() };
        let text = prompt.input.value();
        match prompt.purpose {
            _ if text.is_empty() => Vec::new(),
            Purpose::Search => {
                if let Err(error) = pattern(text) {
                    self.show_message(error);
                }
                Vec::new()
            }
            Purpose::Write => vec![Command::Write(text.to_owned())],
            Purpose::Record => vec![Command::Live(Control::Record(text.to_owned()))],
            Purpose::Filter => match AddedFilter::parse(text) {
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
            self.show_message("nothing to search for; / begins a search".to_owned());
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
            Progress::Nothing => self.show_message("not found".to_owned()),
        }
    }
}
