//! The state of the interactive views, and what keys do to it. Nothing here knows the terminal, or
//! waits for anything: what has to be done outside is returned as a [`Command`].

use std::sync::Arc;

use super::cursor::{Cursor, Move};
use super::keys::{self, Action};
use super::live::{Control, LiveStatus};
use super::model::{Model, Table};
use super::page::{Body, PageState, release};
use super::query::{AddedFilter, Page, Query, Rows, Shown, exactly};
use super::run::Start;
use super::search::{Progress, Search, Way, pattern};
use super::theme::Theme;
use profile::{Profile, label};
use view::{Condition, Direction, Sort};

#[cfg(test)]
mod tests;

/// What the user types into the line at the bottom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Its use.
    pub purpose: Purpose,
    /// The text so far.
    pub text: String,
}

/// The use of a typed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A regular expression to search for.
    Search,
    /// The name of a file to write.
    Write,
}

/// What the caller has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Compute the model of this query, and return it to [`App::computed`] with this number.
    Compute(u64, Query),
    /// Write the current page to this file, and return the message to [`App::say`].
    Write(String),
    /// Pass this request to the recording.
    Live(Control),
    /// Copy this text.
    Copy(String),
    /// Draw everything again.
    Redraw,
    /// Stop the program until it is continued.
    Suspend,
    /// End.
    Quit,
}

/// The state.
pub struct App {
    /// The file, for the line at the top.
    pub file: String,
    /// The appearance.
    pub theme: Theme,
    /// The profile; `None`: it is being read.
    pub profile: Option<Arc<Profile>>,
    /// The state of the recording, if it goes on.
    pub live: Option<LiveStatus>,
    /// The history.
    pages: Vec<PageState>,
    /// The current page.
    at: usize,
    /// The number of the computation that is waited for.
    job: Option<u64>,
    jobs: u64,
    /// A newer profile has come since the computation began.
    is_outdated: bool,
    /// The search that goes on, or went on last.
    pub search: Option<Search>,
    /// The text that is being typed.
    pub prompt: Option<Prompt>,
    /// A message in the line at the bottom, until the next key.
    pub message: Option<String>,
    /// The help is shown, from this line on.
    pub help: Option<usize>,
    /// The size of the page on the screen.
    pub body: Body,
    /// Row that was selected before the text of a search was typed.
    anchor: usize,
}

/// Longest text that can be typed.
const MAX_TYPED: usize = 1000;

/// Pages of the history.
const MAX_PAGES: usize = 100;

impl App {
    /// The state before the profile is read.
    pub fn new(start: Start, theme: Theme) -> App {
        let Start { file, shown, filters } = start;
        let query = Query { type_index: 0, filters, shown };
        App {
            file,
            theme,
            profile: None,
            live: None,
            pages: vec![PageState::new(query)],
            at: 0,
            job: None,
            jobs: 0,
            is_outdated: false,
            search: None,
            prompt: None,
            message: None,
            help: None,
            body: Body::default(),
            anchor: 0,
        }
    }

    /// Shows a profile that was read.
    pub fn open(&mut self, profile: Arc<Profile>, type_index: usize) -> Vec<Command> {
        self.profile = Some(profile);
        self.page_mut().query.type_index = type_index;
        self.compute()
    }

    /// Shows a newer profile. The current page shows the old one until its model is computed.
    pub fn replace(&mut self, profile: Arc<Profile>) -> Vec<Command> {
        self.profile = Some(profile);
        let at = self.at;
        let others = self.pages.iter_mut().enumerate().filter(|(i, _)| *i != at);
        others.for_each(|(_, page)| page.outdate());
        self.refresh()
    }

    /// Computes the current page again.
    fn refresh(&mut self) -> Vec<Command> {
        self.is_outdated = self.job.is_some();
        if self.is_outdated {
            return Vec::new();
        }
        self.jobs += 1;
        self.job = Some(self.jobs);
        vec![Command::Compute(self.jobs, self.page().query.clone())]
    }

    /// The current page.
    pub fn page(&self) -> &PageState {
        &self.pages[self.at]
    }

    fn page_mut(&mut self) -> &mut PageState {
        &mut self.pages[self.at]
    }

    /// True while a model is computed, or a search goes on.
    pub fn is_busy(&self) -> bool {
        let waits = self.job.is_some() && self.page().model.is_none();
        self.profile.is_none() || waits || self.is_searching()
    }

    /// True while a search goes on.
    pub fn is_searching(&self) -> bool {
        self.search.as_ref().is_some_and(Search::is_running)
    }

    /// Sets the message in the line at the bottom.
    pub fn say(&mut self, message: String) {
        self.message = Some(message);
    }

    fn compute(&mut self) -> Vec<Command> {
        if self.profile.is_none() || self.page().model.is_some() {
            return Vec::new();
        }
        self.jobs += 1;
        self.job = Some(self.jobs);
        vec![Command::Compute(self.jobs, self.page().query.clone())]
    }

    /// A computation has ended. Its result is dropped if it is no longer waited for.
    pub fn computed(&mut self, job: u64, result: Result<Arc<Model>, String>) -> Vec<Command> {
        if self.job != Some(job) {
            result.into_iter().for_each(release);
            return Vec::new();
        }
        self.job = None;
        match result {
            Ok(model) => {
                let body = self.body;
                let page = self.page_mut();
                page.set(model);
                if !page.is_flame() {
                    page.cursor.fit(page.rows(), body.rows());
                }
            }
            Err(error) => self.page_mut().error = Some(error),
        }
        if self.is_outdated { self.refresh() } else { Vec::new() }
    }

    /// Goes to a new page, whose forward history is forgotten.
    fn visit(&mut self, query: Query) -> Vec<Command> {
        if self.profile.is_none() || query == self.page().query {
            return Vec::new();
        }
        self.pages.truncate(self.at + 1);
        if self.pages.len() == MAX_PAGES {
            self.pages.remove(0);
        }
        self.pages.push(PageState::new(query));
        self.at = self.pages.len() - 1;
        self.arrive()
    }

    fn arrive(&mut self) -> Vec<Command> {
        self.search = None;
        self.job = None;
        // Only pages next to this one keep their models: each may be as large as the profile.
        let at = self.at;
        for (i, page) in self.pages.iter_mut().enumerate() {
            if i.abs_diff(at) > KEPT_PAGES {
                page.forget_model();
            }
        }
        self.compute()
    }

    fn show(&mut self, shown: Shown) -> Vec<Command> {
        let query = Query { shown, ..self.page().query.clone() };
        self.visit(query)
    }

    fn step(&mut self, by: isize) -> Vec<Command> {
        match self.at.checked_add_signed(by).filter(|&at| at < self.pages.len()) {
            Some(at) => {
                self.at = at;
                self.arrive()
            }
            None => {
                self.say(if by < 0 { "no previous page" } else { "no next page" }.to_owned());
                Vec::new()
            }
        }
    }

    /// Does what a key says.
    pub fn act(&mut self, action: Action) -> Vec<Command> {
        self.message = None;
        if self.help.is_some() {
            self.scroll_help(action);
            return Vec::new();
        }
        let body = self.body;
        match action {
            Action::Go(step) => self.page_mut().go(step, body),
            Action::Left => self.page_mut().left(body),
            Action::Right => self.page_mut().right(body),
            Action::Open => self.page_mut().open(body),
            Action::ExpandAll => self.page_mut().expand_all(),
            Action::CollapseAll => self.page_mut().collapse_all(body),
            Action::Functions => return self.show(Shown::functions()),
            Action::CallTree => return self.show(Shown::Tree(Direction::Callees)),
            Action::Callers => return self.show(Shown::Tree(Direction::Callers)),
            Action::Flame => return self.show(Shown::Flame(Direction::Callees)),
            Action::Lines => return self.show(table(Rows::Lines)),
            Action::Binaries => return self.show(table(Rows::Binaries)),
            Action::Processes => return self.show(table(Rows::Label(label::PROCESS.to_owned()))),
            Action::Threads => return self.show(table(Rows::Label(label::THREAD.to_owned()))),
            Action::Coverage => return self.show(Shown::Text(Page::Coverage)),
            Action::Quality => return self.show(Shown::Text(Page::Quality)),
            Action::Header => return self.show(Shown::Text(Page::Header)),
            Action::Sort => return self.sort(),
            Action::NextType => return self.next_type(),
            Action::Focus => return self.filter(Condition::Focus),
            Action::Ignore => return self.filter(Condition::Ignore),
            Action::Hide => return self.filter(Condition::Hide),
            Action::RemoveFilter => return self.remove_filter(),
            Action::Back => return self.step(-1),
            Action::Forward => return self.step(1),
            Action::Search => self.begin(Purpose::Search),
            Action::Write => self.begin(Purpose::Write),
            Action::NextMatch => self.next_match(Way::Forward),
            Action::PreviousMatch => self.next_match(Way::Backward),
            Action::Copy => return self.copy(),
            Action::NextWindow => return self.control(Control::NextWindow),
            Action::Pause => return self.control(Control::Pause),
            Action::Help => self.help = Some(0),
            Action::Cancel => self.cancel(),
            Action::Redraw => return vec![Command::Redraw],
            Action::Suspend => return vec![Command::Suspend],
            Action::Quit => return vec![Command::Quit],
        }
        Vec::new()
    }

    /// Moves the help; other keys than those of the cursor end it.
    fn scroll_help(&mut self, action: Action) {
        let height = usize::from(self.body.height);
        let mut cursor = Cursor { first: self.help.unwrap_or(0), ..Cursor::default() };
        // The cursor is the last line, so that each step moves the text.
        cursor.selected = cursor.first + height.saturating_sub(1);
        self.help = match action {
            Action::Go(Move::First) => Some(0),
            Action::Go(step) => {
                cursor.go(step, keys::help(self.live.is_some()).count(), height);
                Some(cursor.first)
            }
            _ => None,
        };
    }

    /// Passes a request to the recording.
    fn control(&mut self, control: Control) -> Vec<Command> {
        if self.live.is_none() {
            self.say("this key is for prof top: the profile is a file".to_owned());
            return Vec::new();
        }
        vec![Command::Live(control)]
    }

    /// Cancels a computation or a search, or zooms out.
    fn cancel(&mut self) {
        if self.page().model.is_none() && self.job.take().is_some() {
            self.page_mut().error = Some("canceled; < goes back".to_owned());
        } else if self.is_searching() || !self.page_mut().zoom_out() {
            self.search = None;
        }
    }

    /// Selects what was clicked, in cells of the page.
    pub fn click(&mut self, column: u16, row: u16) {
        self.message = None;
        let body = self.body;
        self.page_mut().click(column, row, body);
    }

    fn sort(&mut self) -> Vec<Command> {
        let Shown::Table { rows, sort } = self.page().query.shown.clone() else {
            return Vec::new();
        };
        let next = match sort {
            Sort::SelfValue => Sort::Total,
            Sort::Total => Sort::Name,
            Sort::Name => Sort::SelfValue,
        };
        self.show(Shown::Table { rows, sort: next })
    }

    fn next_type(&mut self) -> Vec<Command> {
        let Some(profile) = &self.profile else { return Vec::new() };
        let types = profile.sample_types.len();
        if types < 2 {
            self.say("the profile has one sample type".to_owned());
            return Vec::new();
        }
        let query = self.page().query.clone();
        self.visit(Query { type_index: (query.type_index + 1) % types, ..query })
    }

    fn filter(&mut self, condition: Condition) -> Vec<Command> {
        let Some(name) = self.selected_function() else {
            self.say("select a function first".to_owned());
            return Vec::new();
        };
        let mut query = self.page().query.clone();
        let added = AddedFilter { condition, value: exactly(&name) };
        if !query.filters.contains(&added) {
            query.filters.push(added);
        }
        self.visit(query)
    }

    /// The selected function, or the binary in a table of binaries.
    fn selected_function(&self) -> Option<String> {
        let page = self.page();
        match page.model.as_deref()? {
            Model::Table(Table { kind: Rows::Label(_), .. }) | Model::Text(_) => None,
            Model::Table(table @ Table { kind: Rows::Lines, .. }) => {
                let row = table.rows.get(page.cursor.selected)?;
                Some(table.facts.name(row.frame).into_owned())
            }
            Model::Table(table @ Table { kind: Rows::Binaries, .. }) => {
                let row = table.rows.get(page.cursor.selected)?;
                let profile = &table.facts.profile;
                Some(profile.str(table.facts.frame(row.frame).binary).to_owned())
            }
            _ => page.name().map(std::borrow::Cow::into_owned),
        }
    }

    fn remove_filter(&mut self) -> Vec<Command> {
        let mut query = self.page().query.clone();
        if query.filters.pop().is_none() {
            self.say("there is no filter".to_owned());
        }
        self.visit(query)
    }

    fn copy(&mut self) -> Vec<Command> {
        match self.page().name() {
            Some(name) => vec![Command::Copy(name.into_owned())],
            None => Vec::new(),
        }
    }

    fn begin(&mut self, purpose: Purpose) {
        self.anchor = self.page().search_position();
        self.prompt = Some(Prompt { purpose, text: String::new() });
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

    /// Searches for the text as it is typed.
    fn retyped(&mut self) {
        let Some(Prompt { purpose: Purpose::Search, text }) = &self.prompt else { return };
        let count = self.page().searched();
        self.search = match pattern(text) {
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
        }
    }

    fn next_match(&mut self, way: Way) {
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

/// Pages before and after the current one that keep their models.
const KEPT_PAGES: usize = 3;

fn table(rows: Rows) -> Shown {
    Shown::Table { rows, sort: Sort::SelfValue }
}
