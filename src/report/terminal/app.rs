//! The state of the interactive views, and what keys do to it. Nothing here depends on the terminal,
//! or waits for anything: what has to be done outside is returned as a [`Command`].

use std::sync::Arc;

use super::cursor::{Cursor, Move};
use super::difference::Base;
use super::keys::{self, Action, ViewKey};
use super::live::{Control, LiveStatus};
use super::menu::Menu;
use super::model::Model;
use super::page::{Body, PageState, release};
use super::run::{PageCommand, Start};
use super::search::{Search, Way};
use super::target::Target;
use super::theme::Theme;
use profile::{Profile, label};
use view::Direction;
use view::query::{Order, Query, Rows, Shown, ShownSource};

mod filters;
mod menus;
mod order;
mod recording;
#[cfg(test)]
mod tests;
mod typing;

use typing::EnteredText;

pub use menus::WITH_BORDERS;
pub use typing::{Prompt, Purpose};

/// What the caller has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Compute the model of this query, and return it to [`App::computed`] with this number.
    Compute(u64, Box<Query>),
    /// Nothing that is being computed is waited for any longer.
    Cancel,
    /// Write the current page to this file, and return the message to [`App::show_message`].
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
    /// The commands of pages.
    command: PageCommand,
    /// The appearance.
    pub theme: Theme,
    /// The profile; `None`: it is being read.
    pub profile: Option<Arc<Profile>>,
    /// The state of the recording, if it goes on.
    pub live: Option<LiveStatus>,
    /// The profiles that it is compared with.
    pub base: Option<Arc<Base>>,
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
    /// Texts that were entered, the latest last.
    earlier: Vec<EnteredText>,
    /// The menu that is open.
    pub menu: Option<Menu>,
    /// A message in the line at the bottom, until the next key.
    pub message: Option<String>,
    /// The help is shown, from this line on.
    pub help: Option<usize>,
    /// The size of the page on the screen.
    pub body: Body,
    /// Row that was selected before the text of a search was typed.
    anchor: usize,
}

/// Pages of the history.
const MAX_PAGES: usize = 100;

impl App {
    /// The state before the profile is read.
    pub fn new(start: Start, theme: Theme) -> App {
        let Start { file, query, command, .. } = start;
        App {
            file,
            command,
            theme,
            profile: None,
            live: None,
            base: None,
            pages: vec![PageState::new(query)],
            at: 0,
            job: None,
            jobs: 0,
            is_outdated: false,
            search: None,
            prompt: None,
            earlier: Vec::new(),
            menu: None,
            message: None,
            help: None,
            body: Body::default(),
            anchor: 0,
        }
    }

    /// Sets the first page.
    pub fn begin_with(&mut self, shown: Shown) {
        self.page_mut().query.shown = shown;
    }

    /// Shows a profile that was read.
    pub fn open(&mut self, profile: Arc<Profile>, type_index: usize) -> Vec<Command> {
        self.profile = Some(profile);
        self.page_mut().query.type_index = type_index;
        self.compute()
    }

    /// Computes the current page again.
    fn refresh(&mut self) -> Vec<Command> {
        self.is_outdated = self.job.is_some();
        if self.is_outdated {
            return Vec::new();
        }
        self.jobs += 1;
        self.job = Some(self.jobs);
        vec![Command::Compute(self.jobs, Box::new(self.page().query.clone()))]
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
    pub fn show_message(&mut self, message: String) {
        self.message = Some(message);
    }

    fn compute(&mut self) -> Vec<Command> {
        if self.profile.is_none() || self.page().model.is_some() {
            return Vec::new();
        }
        self.jobs += 1;
        self.job = Some(self.jobs);
        vec![Command::Compute(self.jobs, Box::new(self.page().query.clone()))]
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
                self.page_mut().set(model, body);
            }
            Err(error) => {
                let page = self.page_mut();
                // The error is shown instead of the former model, whose rows have no menus then.
                page.unload();
                page.error = Some(error);
            }
        }
        if self.is_outdated { self.refresh() } else { Vec::new() }
    }

    /// Goes to a new page, whose forward history is forgotten.
    fn visit(&mut self, query: Query) -> Vec<Command> {
        self.visit_at(query, None)
    }

    /// The same, and selects what has this name there.
    fn visit_at(&mut self, query: Query, wanted: Option<String>) -> Vec<Command> {
        if self.profile.is_none() {
            return Vec::new();
        }
        if query == self.page().query {
            return self.recompute();
        }
        let was_computing = self.leave();
        self.pages.truncate(self.at + 1);
        if self.pages.len() == MAX_PAGES {
            self.pages.remove(0);
        }
        let mut page = PageState::new(query);
        page.wanted = wanted;
        self.pages.push(page);
        self.at = self.pages.len() - 1;
        self.arrive(was_computing)
    }

    /// Computes the current page if that failed, or was canceled.
    fn recompute(&mut self) -> Vec<Command> {
        match self.page_mut().error.take() {
            Some(_) if self.job.is_none() => self.compute(),
            _ => Vec::new(),
        }
    }

    /// Shows the same page in another way, which is no step of the history.
    fn change(&mut self, shown: Shown) -> Vec<Command> {
        if self.profile.is_none() || shown == self.page().query.shown {
            return Vec::new();
        }
        // The selected row stays selected, unless it is the first one.
        let page = self.page();
        let is_row = shown.order().is_some() && page.cursor.selected > 0;
        let wanted = page.name().filter(|_| is_row).map(std::borrow::Cow::into_owned);
        let was_computing = self.leave();
        let page = self.page_mut();
        page.wanted = wanted;
        page.query.shown = shown;
        if page.is_flame() {
            page.unload();
        } else {
            page.forget_model();
        }
        page.error = None;
        self.arrive(was_computing)
    }

    /// Before another page is shown, or this one in another way: what is computed for it will not
    /// come. Returns whether something is.
    fn leave(&mut self) -> bool {
        self.is_outdated = false;
        let was_computing = self.job.take().is_some();
        if was_computing {
            // A model that it has is older than the profile.
            self.page_mut().unload();
        }
        was_computing
    }

    fn arrive(&mut self, was_computing: bool) -> Vec<Command> {
        self.search = None;
        // Only pages next to this one keep their models: each may be as large as the profile.
        let at = self.at;
        for (i, page) in self.pages.iter_mut().enumerate() {
            if i.abs_diff(at) > KEPT_PAGES {
                page.unload();
            }
        }
        let commands = self.compute();
        if commands.is_empty() && was_computing { vec![Command::Cancel] } else { commands }
    }

    fn show(&mut self, shown: Shown) -> Vec<Command> {
        let query = Query { shown, ..self.page().query.clone() };
        self.visit(query)
    }

    fn step(&mut self, by: isize) -> Vec<Command> {
        match self.at.checked_add_signed(by).filter(|&at| at < self.pages.len()) {
            Some(at) => {
                let was_computing = self.leave();
                self.at = at;
                self.arrive(was_computing)
            }
            None => {
                self.show_message(
                    if by < 0 { "no previous page" } else { "no next page" }.to_owned(),
                );
                Vec::new()
            }
        }
    }

    /// The effect of a key.
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
            Action::Open => {
                if !self.page_mut().open(body) {
                    self.open_menu();
                }
            }
            Action::Menu => self.open_menu(),
            Action::RowsMenu => self.open_rows_menu(),
            Action::ExpandAll => self.page_mut().expand_all(),
            Action::CollapseAll => self.page_mut().collapse_all(body),
            Action::View(view) => return self.show_view(view),
            Action::Sort => return self.sort(1, true),
            Action::SortLeft => return self.sort(-1, false),
            Action::SortRight => return self.sort(1, false),
            Action::Reverse => return self.reverse(),
            Action::Totals => return self.totals(),
            Action::CollapseRecursion => return self.collapse_recursion(),
            Action::AllFrames => return self.all_frames(),
            Action::InterpreterFrames => return self.interpreter_frames(),
            Action::NextType => return self.next_type(),
            Action::Percentages => return self.other_percentages(),
            Action::Focus => return self.filter(Target::focus),
            Action::Ignore => return self.filter(Target::ignore),
            Action::Hide => return self.filter(Target::hide),
            Action::ZoomBinary => return self.filter(Target::in_binary),
            Action::RemoveFilter => return self.remove_last_filter(),
            Action::FiltersMenu => self.open_filters_menu(),
            Action::TypeFilter => self.begin(Purpose::Filter),
            Action::Back if self.page_mut().unfollow(body) => {}
            Action::Back => return self.step(-1),
            Action::NextHot => self.go_to_hot(Way::Forward),
            Action::PreviousHot => self.go_to_hot(Way::Backward),
            Action::Forward => return self.step(1),
            Action::Search => self.begin(Purpose::Search),
            Action::Write => self.begin(Purpose::Write),
            Action::NextMatch => self.next_match(Way::Forward),
            Action::PreviousMatch => self.next_match(Way::Backward),
            Action::Copy => return self.copy(),
            Action::ShowCommand => self.open_command_menu(),
            Action::NextWindow => return self.control(Control::NextWindow),
            Action::Pause => return self.control(Control::Pause),
            Action::Record => return self.prompt_for_recording(),
            Action::Help => self.help = Some(0),
            Action::Cancel => return self.cancel(),
            Action::Redraw => return vec![Command::Redraw],
            Action::Suspend => return vec![Command::Suspend],
            Action::Quit => return vec![Command::Quit],
        }
        Vec::new()
    }

    /// Goes to a view.
    fn show_view(&mut self, view: ViewKey) -> Vec<Command> {
        match view {
            ViewKey::Functions => self.show(self.usual_table()),
            ViewKey::CallTree => self.show(Shown::Tree(Direction::Callees)),
            ViewKey::Callers => {
                let wanted = Target::selected(self.page()).function;
                let shown = Shown::Tree(Direction::Callers);
                let query = Query { shown, ..self.page().query.clone() };
                self.visit_at(query, wanted)
            }
            ViewKey::Flame if self.page().is_difference() => self.show(Shown::diff_flame()),
            ViewKey::Flame => self.show(Shown::flame(Direction::Callees)),
            ViewKey::Lines => self.show(Shown::table(Rows::Lines)),
            ViewKey::Files => self.show(Shown::table(Rows::Files)),
            ViewKey::Binaries => self.show(Shown::table(Rows::Binaries)),
            ViewKey::Processes => self.show(by_label(label::PROCESS)),
            ViewKey::Threads => self.show(by_label(label::THREAD)),
            ViewKey::States => self.show_states(),
            ViewKey::Sandwich => match Target::selected(self.page()).function {
                Some(name) => self.show(Shown::Sandwich(name)),
                None => self.refuse("select a function first"),
            },
            ViewKey::Source => self.show_source(),
            ViewKey::Difference => match self.base {
                Some(_) => self.show(Shown::diff(Rows::Functions)),
                None => self.refuse("nothing to compare with: prof diff BASE FILE"),
            },
            ViewKey::Coverage => self.show(Shown::Coverage),
            ViewKey::Quality => {
                self.show(Shown::Quality(Order::by(view::query::Column::SelfValue)))
            }
            ViewKey::Header => self.show(Shown::Header),
        }
    }

    /// Goes to the row that is next in the order of self values, or the one before.
    fn go_to_hot(&mut self, way: Way) {
        let body = self.body;
        if !self.page_mut().go_to_hot(way, body) {
            self.show_message("only source and assembly with values have hot lines".to_owned());
        }
    }

    fn refuse(&mut self, reason: &str) -> Vec<Command> {
        self.show_message(reason.to_owned());
        Vec::new()
    }

    /// Threads by state, or the stacks of a snapshot.
    fn show_states(&mut self) -> Vec<Command> {
        let index = self.page().query.type_index;
        let kind = |profile: &Arc<Profile>| {
            let kind = profile.sample_types.get(index).map(|kind| kind.kind);
            kind.is_some_and(|kind| profile.str(kind) == "threads")
        };
        if self.profile.as_ref().is_some_and(kind) {
            return self.show(Shown::Threads);
        }
        self.show(Shown::States(Order::by(view::query::Column::Total)))
    }

    /// The source of the selected function, or of the selected file. In source, instructions are
    /// shown or left out.
    fn show_source(&mut self) -> Vec<Command> {
        let shown = self.page().query.shown.clone();
        let target = Target::selected(self.page());
        if let Shown::Source(of) = shown
            && target.function.as_ref().is_none_or(|name| *name == of.name)
        {
            return self.change(Shown::Source(ShownSource { assembly: !of.assembly, ..of }));
        }
        match (target.function.or(target.file), target.address) {
            (Some(name), _) => self.show(Shown::Source(ShownSource::lines(name))),
            // Code without a name has instructions only.
            (None, Some(name)) => self.show(Shown::Source(ShownSource::assembly(name))),
            (None, None) => self.refuse("select a function or a file first"),
        }
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

    /// Cancels a computation or a search, or zooms out.
    fn cancel(&mut self) -> Vec<Command> {
        if self.page().model.is_none() && self.job.take().is_some() {
            self.page_mut().error = Some("canceled; Backspace goes back".to_owned());
            return vec![Command::Cancel];
        } else if self.profile.is_none() {
            self.show_message("the profile is being read; q ends".to_owned());
        } else if self.is_searching() || !self.page_mut().zoom_out() {
            self.search = None;
        }
        Vec::new()
    }

    /// Selects what was clicked, in cells of the page. A second click opens it.
    pub fn click(&mut self, column: u16, row: u16) {
        self.message = None;
        let body = self.body;
        if self.page_mut().click(column, row, body) && !self.page_mut().open(body) {
            self.open_menu();
        }
    }

    fn copy(&mut self) -> Vec<Command> {
        match self.page().name() {
            Some(name) => vec![Command::Copy(name.into_owned())],
            None => Vec::new(),
        }
    }
}

/// Pages before and after the current one that keep their models.
const KEPT_PAGES: usize = 2;

fn by_label(key: &str) -> Shown {
    Shown::table(Rows::Label(key.to_owned()))
}
