//! What the user types into the line at the bottom, and searches.

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use tui_input::backend::crossterm::to_input_request;
use tui_input::{Input, InputRequest};

use super::{App, Command};
use crate::report::terminal::keys::Action;
use crate::report::terminal::live::Control;
use crate::report::terminal::search::{Progress, Search, Way, pattern};
use view::query::{AddedFilter, CONDITIONS};

/// Longest text that can be typed.
const MAX_TYPED: usize = 1000;

/// The text of a new filter.
const FIRST_CONDITION: &str = "focus=";

/// Most texts that are kept for prompts.
const MAX_EARLIER: usize = 100;

/// What the user types into the line at the bottom.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// Its use.
    pub purpose: Purpose,
    /// The text so far, and the cursor in it.
    pub input: Input,
    /// The reason why the text is wrong so far.
    pub error: Option<String>,
    /// The earlier text that is shown, and the text that it has replaced.
    recalled: Option<Recalled>,
}

/// An earlier text in a prompt.
#[derive(Clone, Debug)]
struct Recalled {
    /// Its index in [`App::earlier`].
    index: usize,
    /// The text that was typed before.
    draft: String,
}

/// A text that was entered.
pub(super) struct EnteredText {
    purpose: Purpose,
    text: String,
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
        let text = if purpose == Purpose::Filter { FIRST_CONDITION } else { "" };
        self.prompt = Some(Prompt { purpose, input: text.into(), error: None, recalled: None });
    }

    /// A key while a text is typed: those of a shell's line. A key without a meaning does
    /// nothing.
    pub fn prompt_key(&mut self, key: KeyEvent) -> Vec<Command> {
        match (key.code, key.modifiers) {
            (KeyCode::Enter, _) => return self.entered(),
            (KeyCode::Esc, _) | (KeyCode::Char('c'), KeyModifiers::CONTROL) => self.prompt = None,
            (KeyCode::Char('z'), KeyModifiers::CONTROL) => return self.act(Action::Suspend),
            (KeyCode::Char('l'), KeyModifiers::CONTROL) => return self.act(Action::Redraw),
            (KeyCode::Tab, _) => self.completed(1),
            (KeyCode::BackTab, _) => self.completed(CONDITIONS.len() - 1),
            (KeyCode::Up, _) | (KeyCode::Char('p'), KeyModifiers::CONTROL) => {
                self.recall(Way::Backward);
            }
            (KeyCode::Down, _) | (KeyCode::Char('n'), KeyModifiers::CONTROL) => {
                self.recall(Way::Forward);
            }
            _ => {
                if let Some(request) = request(key) {
                    self.edited(request);
                }
            }
        }
        Vec::new()
    }

    /// Shows the text that was entered before the one that is shown, or after it.
    fn recall(&mut self, way: Way) {
        let Some(prompt) = &mut self.prompt else { return };
        let is_same = |index: &usize| self.earlier[*index].purpose == prompt.purpose;
        let shown = prompt.recalled.as_ref().map(|recalled| recalled.index);
        let next = match (way, shown) {
            (Way::Backward, shown) => (0..shown.unwrap_or(self.earlier.len())).rfind(is_same),
            (Way::Forward, Some(shown)) => (shown + 1..self.earlier.len()).find(is_same),
            (Way::Forward, None) => return,
        };
        let draft = || prompt.input.value().to_owned();
        let text = match (next, prompt.recalled.take()) {
            (Some(index), recalled) => {
                let draft = recalled.map_or_else(draft, |recalled| recalled.draft);
                prompt.recalled = Some(Recalled { index, draft });
                self.earlier[index].text.clone()
            }
            (None, Some(recalled)) if way == Way::Forward => recalled.draft,
            // The first one stays.
            (None, recalled) => {
                prompt.recalled = recalled;
                return;
            }
        };
        prompt.input = text.into();
        self.retyped();
    }

    /// Keeps a text that was entered.
    fn keep(&mut self, purpose: Purpose, text: &str) {
        self.earlier.retain(|earlier| earlier.purpose != purpose || earlier.text != text);
        if self.earlier.len() == MAX_EARLIER {
            self.earlier.remove(0);
        }
        self.earlier.push(EnteredText { purpose, text: text.to_owned() });
    }

    /// A typed character.
    pub fn typed(&mut self, c: char) {
        self.edited(InputRequest::InsertChar(c));
    }

    /// A change of what is typed, or a move of the cursor in it. Without a text, the prompt ends
    /// where a character would be deleted.
    fn edited(&mut self, request: InputRequest) {
        let Some(prompt) = &mut self.prompt else { return };
        match request {
            InputRequest::Yank if prompt.input.value().len() >= MAX_TYPED => {}
            InputRequest::InsertChar(c)
                if c.is_control() || prompt.input.value().len() >= MAX_TYPED => {}
            InputRequest::DeletePrevChar if prompt.input.value().is_empty() => self.prompt = None,
            request => {
                if prompt.input.handle(request).is_some_and(|changed| changed.value) {
                    prompt.replace_condition(request);
                    self.retyped();
                }
            }
        }
    }

    /// Completes what is typed: the condition of a filter that is `by` conditions further.
    fn completed(&mut self, by: usize) {
        let Some(Prompt { purpose: Purpose::Filter, input, .. }) = &mut self.prompt else {
            return;
        };
        let text = input.value();
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let name = name.replace('_', "-");
        let at = CONDITIONS.iter().position(|condition| condition.name() == name);
        let begun = || CONDITIONS.iter().position(|condition| condition.name().starts_with(&name));
        let next = at.map_or_else(begun, |at| Some((at + by) % CONDITIONS.len()));
        *input = format!("{}={value}", CONDITIONS[next.unwrap_or(0)].name()).into();
        self.retyped();
    }

    /// Searches for the text as it is typed, or checks it.
    fn retyped(&mut self) {
        let Some(Prompt { purpose, input, error, .. }) = &mut self.prompt else { return };
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
    fn entered(&mut self) -> Vec<Command> {
        let Some(prompt) = self.prompt.take() else { return Vec::new() };
        let text = prompt.input.value();
        if !text.is_empty() {
            self.keep(prompt.purpose, text);
        }
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

impl Prompt {
    /// A condition that is typed behind the one that the prompt begins with replaces that one.
    fn replace_condition(&mut self, request: InputRequest) {
        if self.purpose != Purpose::Filter || request != InputRequest::InsertChar('=') {
            return;
        }
        let name = self.input.value().strip_prefix(FIRST_CONDITION);
        let name = name.and_then(|text| text.strip_suffix('=')).map(|name| name.replace('_', "-"));
        let is_condition =
            |name: &String| CONDITIONS.iter().any(|condition| condition.name() == name);
        if let Some(name) = name.filter(is_condition) {
            self.input = format!("{name}=").into();
        }
    }
}

/// The change of a text that a key makes.
fn request(key: KeyEvent) -> Option<InputRequest> {
    match (key.code, key.modifiers) {
        (KeyCode::Char('b') | KeyCode::Left, KeyModifiers::ALT) => Some(InputRequest::GoToPrevWord),
        (KeyCode::Char('f') | KeyCode::Right, KeyModifiers::ALT) => {
            Some(InputRequest::GoToNextWord)
        }
        (KeyCode::Char('d'), KeyModifiers::ALT) => Some(InputRequest::DeleteNextWord),
        (KeyCode::Char('d'), KeyModifiers::CONTROL) => Some(InputRequest::DeleteNextChar),
        _ => to_input_request(&Event::Key(key)),
    }
}
