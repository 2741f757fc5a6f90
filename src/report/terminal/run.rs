//! The loop: events in, pictures out.

use std::fmt;
use std::io;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event as Input, KeyEventKind, MouseButton, MouseEventKind};
use ratatui::layout::{Position, Rect};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;

use super::app::{App, Command};
use super::cursor::Move;
use super::difference::Base;
use super::keys::{self, Action};
use super::live::{Control, LiveSource, LiveStatus, Update};
use super::model::{self, Context, Model};
use super::page::Body;
use super::screen::Screen;
use super::source::CodeOptions;
use super::theme::Theme;
use super::{draw, export, screen};
use profile::Profile;
use view::query::{Query, Shown};
use view::{Cancel, PartCache};

/// Time between two pictures of the spinner.
const TICK: Duration = Duration::from_millis(100);

/// Time after which a signal, or the end of the terminal, ends the process even if the loop does not:
/// it may wait for a terminal that takes no output. The end of a recording takes less.
const LAST_RESORT: Duration = Duration::from_secs(5);

/// Rows that a turn of the mouse's wheel moves.
const WHEEL: isize = 3;

/// A profile that was read for the interactive views.
pub struct Opened {
    /// The profile.
    pub profile: Profile,
    /// The profiles that it is compared with.
    pub base: Option<Base>,
    /// The first page, if it follows from the profile: then instead of that of [`Start::query`].
    pub shown: Option<Shown>,
    /// The sample type that is shown first.
    pub type_index: usize,
    /// Notes for the line at the bottom.
    pub notes: Vec<String>,
}

/// The first page.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// The file, for the line at the top.
    pub file: String,
    /// What it shows.
    pub query: Query,
    /// Places of source and binaries.
    pub code: CodeOptions,
    /// The commands of pages.
    pub command: PageCommand,
}

/// Writes the command line that shows a page again, and lines about what differs; fails with one
/// line if there is no such command.
pub type WriteCommand = dyn Fn(&Profile, &Query) -> Result<Vec<String>, String> + Send + Sync;

/// The commands of pages, if the profile is a file.
#[derive(Clone, Default)]
pub struct PageCommand(pub Option<Arc<WriteCommand>>);

impl fmt::Debug for PageCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PageCommand").field(&self.0.is_some()).finish()
    }
}

/// The end of the interactive views.
pub enum Ended {
    /// The user ended them.
    ByUser,
    /// A signal ended them; it is raised again.
    BySignal(i32),
    /// The terminal is gone.
    HungUp,
}

/// An event.
enum Event {
    Input(Input),
    /// The terminal is gone.
    HungUp,
    Signal(i32),
    Opened(anyhow::Result<Box<Opened>>),
    Update(Update),
    Computed(u64, Result<Arc<Model>, String>),
    Message(String),
    /// A thread has panicked.
    Panicked,
}

/// Shows the interactive views of the profile that `open` reads in the background.
///
/// # Errors
///
/// The terminal cannot be used, or the profile cannot be read.
pub fn run(
    start: Start,
    open: impl FnOnce() -> anyhow::Result<Opened> + Send + 'static,
) -> anyhow::Result<ExitCode> {
    show(start, None, |sender| {
        let opening = sender.clone();
        in_background(sender, move || {
            opening.send(Event::Opened(open().map(Box::new))).ok();
        });
    })
}

/// Shows the interactive views of a recording that goes on.
///
/// # Errors
///
/// The terminal cannot be used.
pub fn run_live(start: Start, source: LiveSource) -> anyhow::Result<ExitCode> {
    let LiveSource { updates, control } = source;
    show(start, Some(control), |sender| {
        let updating = sender.clone();
        in_background(sender, move || {
            for update in updates {
                if updating.send(Event::Update(update)).is_err() {
                    return;
                }
            }
        });
    })
}

/// Shows the interactive views. `begin` starts what sends the profile.
fn show(
    start: Start,
    control: Option<Box<dyn Fn(Control) + Send>>,
    begin: impl FnOnce(&Sender<Event>),
) -> anyhow::Result<ExitCode> {
    let theme = Theme::from_environment(|name| std::env::var(name).ok());
    let (sender, events) = channel();
    // Before the screen is entered: a signal must not leave the terminal as the views need it.
    listen_to_signals(sender.clone())?;
    let is_live = control.is_some();
    let screen = match Screen::enter() {
        Err(_) if screen::is_gone() => return end(Ended::HungUp, is_live),
        screen => screen?,
    };
    listen_to_input(sender.clone());
    listen_to_hang_up(sender.clone());
    begin(&sender);
    let code = Arc::new(start.code.clone());
    let mut app = App::new(start, theme);
    app.live = is_live.then(LiveStatus::default);
    let work = Work { code, ..Work::default() };
    let mut views = Views { app, screen, sender, control, work, tick: 0, is_drawn: false };
    let ended = views.run(&events);
    let Views { app, screen, .. } = views;
    drop(screen);
    // Freeing a large profile piece by piece takes longer than the system needs for all of it.
    std::mem::forget(app);
    end(ended?, is_live)
}

/// Ends the process by the signal that ended the views, if one did.
fn end(ended: Ended, is_live: bool) -> anyhow::Result<ExitCode> {
    let signal = match ended {
        Ended::ByUser => return Ok(ExitCode::SUCCESS),
        // The end of the recording, and of its COMMAND, is still to come.
        Ended::HungUp if is_live => return Ok(ExitCode::SUCCESS),
        // The kernel sends the signal to some processes of the terminal only.
        Ended::HungUp => SIGHUP,
        Ended::BySignal(signal) => signal,
    };
    signal_hook::low_level::emulate_default_handler(signal)?;
    Ok(ExitCode::FAILURE)
}

fn listen_to_signals(sender: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGCONT])?;
    thread::spawn(move || {
        for signal in signals.forever() {
            // Also when nothing receives it any more.
            sender.send(Event::Signal(signal)).ok();
            if !matches!(signal, SIGTSTP | SIGCONT) {
                end_soon(signal);
            }
        }
    });
    Ok(())
}

/// Ends the process by this signal in a while, without any other thread.
fn end_soon(signal: i32) {
    thread::spawn(move || {
        thread::sleep(LAST_RESORT);
        screen::abandon();
        signal_hook::low_level::emulate_default_handler(signal)
    });
}

fn listen_to_input(sender: Sender<Event>) {
    thread::spawn(move || {
        while let Ok(input) = event::read() {
            if sender.send(Event::Input(input)).is_err() {
                return;
            }
        }
        sender.send(Event::HungUp).ok();
    });
}

/// Ends the views when the terminal is gone.
fn listen_to_hang_up(sender: Sender<Event>) {
    thread::spawn(move || {
        screen::wait_for_hang_up();
        sender.send(Event::HungUp).ok();
        end_soon(SIGHUP);
    });
}

/// Runs `work` on a thread of its own; a panic there ends the views.
fn in_background(sender: &Sender<Event>, work: impl FnOnce() + Send + 'static) {
    struct OnPanic(Sender<Event>);
    impl Drop for OnPanic {
        fn drop(&mut self) {
            if thread::panicking() {
                self.0.send(Event::Panicked).ok();
            }
        }
    }
    let guard = OnPanic(sender.clone());
    thread::spawn(move || {
        let _guard = guard;
        work();
    });
}

/// What work in the background shares.
#[derive(Default)]
struct Work {
    cache: Arc<PartCache>,
    code: Arc<CodeOptions>,
    /// Ends the last computation early.
    cancel: Cancel,
    /// One computation at a time: several pages in a row do not fill the memory.
    turn: Arc<Mutex<()>>,
}

/// The interactive views while they run.
struct Views {
    app: App,
    screen: Screen,
    sender: Sender<Event>,
    /// Takes requests to a recording that goes on.
    control: Option<Box<dyn Fn(Control) + Send>>,
    work: Work,
    tick: usize,
    /// The screen shows what there is.
    is_drawn: bool,
}

/// Panics if a test wants that here: `PROF_TEST_PANIC` is `draw` or `work`.
fn panic_for_tests(place: &str) {
    let wanted = cfg!(debug_assertions).then(|| std::env::var_os("PROF_TEST_PANIC")).flatten();
    assert!(wanted.is_none_or(|wanted| wanted != place), "a test wants a panic");
}

impl Views {
    fn run(&mut self, events: &Receiver<Event>) -> anyhow::Result<Ended> {
        match self.handle_all(events) {
            // Any call of the terminal fails then.
            Err(_) if screen::is_gone() => Ok(Ended::HungUp),
            ended => ended,
        }
    }

    fn handle_all(&mut self, events: &Receiver<Event>) -> anyhow::Result<Ended> {
        loop {
            if !self.is_drawn {
                self.draw()?;
                self.is_drawn = true;
            }
            let event = if self.app.is_searching() {
                // The search goes on when no event waits.
                match events.try_recv() {
                    Ok(event) => Some(event),
                    Err(_) => {
                        self.app.search_on();
                        None
                    }
                }
            } else if self.app.is_busy() {
                match events.recv_timeout(TICK) {
                    Ok(event) => Some(event),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => return Ok(Ended::ByUser),
                }
            } else {
                Some(events.recv()?)
            };
            self.tick += 1;
            // A search that went on, or the spinner.
            self.is_drawn &= event.is_some();
            // All that wait, so that a key that is held down is not drawn once for each repetition.
            let mut waiting = event.into_iter().chain(events.try_iter()).collect::<Vec<_>>();
            // Stopped once for several SIGTSTP, each of which would need another SIGCONT.
            let mut stops = 0;
            waiting.retain(|event| {
                stops += usize::from(matches!(event, Event::Signal(SIGTSTP)));
                stops < 2 || !matches!(event, Event::Signal(SIGTSTP))
            });
            for event in waiting {
                self.is_drawn &= self.is_followed(&event);
                if let Some(ended) = self.handle(event)? {
                    return Ok(ended);
                }
            }
        }
    }

    /// True if another event follows this one at once, and shows what has changed: a picture for
    /// each would cost as much again.
    fn is_followed(&self, event: &Event) -> bool {
        let Event::Update(update) = event else { return false };
        let has_model = self.app.page().model.is_some();
        match (update, &self.app.live) {
            (Update::Status(status), Some(before)) => has_model && status.only_counts_on(before),
            // The page shows the former profile until its model is computed.
            (Update::Profile(_), _) => has_model,
            _ => false,
        }
    }

    fn draw(&mut self) -> io::Result<()> {
        let Views { app, screen, tick, .. } = self;
        if app.profile.is_some() {
            panic_for_tests("draw");
        }
        screen.terminal.draw(|frame| {
            let area = frame.area();
            let body = draw::body(app, area);
            app.body = Body { width: body.width, height: body.height };
            if let Some(cursor) = draw::draw(app, area, frame.buffer_mut(), *tick) {
                frame.set_cursor_position(cursor);
            }
        })?;
        Ok(())
    }

    fn handle(&mut self, event: Event) -> anyhow::Result<Option<Ended>> {
        match event {
            Event::Input(input) => return self.input(input),
            Event::HungUp => return Ok(Some(Ended::HungUp)),
            Event::Signal(SIGTSTP) => self.screen.suspend()?,
            Event::Signal(SIGCONT) => self.screen.draw_all()?,
            Event::Signal(signal) => return Ok(Some(Ended::BySignal(signal))),
            Event::Opened(opened) => {
                let Opened { profile, base, shown, type_index, notes } = *opened?;
                self.app.base = base.map(Arc::new);
                if let Some(shown) = shown {
                    self.app.begin_with(shown);
                }
                let commands = self.app.open(Arc::new(profile), type_index);
                if !notes.is_empty() {
                    self.app.show_message(notes.join("; "));
                }
                return self.perform(commands);
            }
            Event::Update(update) => return self.update(update),
            Event::Computed(job, model) => {
                let commands = self.app.computed(job, model);
                return self.perform(commands);
            }
            Event::Message(message) => self.app.show_message(message),
            Event::Panicked => anyhow::bail!("a bug ended the interactive views; --stdio prints"),
        }
        Ok(None)
    }

    fn update(&mut self, update: Update) -> anyhow::Result<Option<Ended>> {
        let commands = match update {
            Update::Status(status) => {
                self.app.live = Some(status);
                Vec::new()
            }
            Update::Message(message) => {
                self.app.show_message(message);
                Vec::new()
            }
            Update::Interrupted(signal) => return Ok(Some(Ended::BySignal(signal))),
            Update::Profile(opened) => {
                let Opened { profile, type_index, shown, .. } = *opened;
                let profile = Arc::new(profile);
                match self.app.profile {
                    None => {
                        if let Some(shown) = shown {
                            self.app.begin_with(shown);
                        }
                        self.app.open(profile, type_index)
                    }
                    Some(_) => self.app.replace(profile),
                }
            }
            Update::OtherTypes(opened) => {
                let Opened { profile, type_index, .. } = *opened;
                self.app.replace_types(Arc::new(profile), type_index)
            }
        };
        self.perform(commands)
    }

    fn input(&mut self, input: Input) -> anyhow::Result<Option<Ended>> {
        let commands = match input {
            Input::Key(key) if key.kind != KeyEventKind::Release => {
                if self.app.menu.is_some() {
                    self.app.menu_key(key)
                } else if self.app.prompt.is_some() {
                    self.app.prompt_key(key)
                } else {
                    keys::action(key).map(|action| self.act(action)).unwrap_or_default()
                }
            }
            Input::Mouse(mouse) => match mouse.kind {
                MouseEventKind::ScrollDown | MouseEventKind::ScrollUp
                    if self.app.menu.is_some() =>
                {
                    let down = mouse.kind == MouseEventKind::ScrollDown;
                    self.app.menu_go(Move::Rows(if down { 1 } else { -1 }));
                    Vec::new()
                }
                MouseEventKind::ScrollDown => self.act(Action::Go(Move::Rows(WHEEL))),
                MouseEventKind::ScrollUp => self.act(Action::Go(Move::Rows(-WHEEL))),
                MouseEventKind::Down(button) => self.click(mouse.column, mouse.row, button),
                _ => Vec::new(),
            },
            Input::Paste(text) => {
                text.chars().for_each(|c| self.app.typed(c));
                Vec::new()
            }
            _ => Vec::new(),
        };
        self.perform(commands)
    }

    fn act(&mut self, action: Action) -> Vec<Command> {
        if !matches!(action, Action::Suspend | Action::Redraw) {
            self.app.prompt = None;
        }
        self.app.act(action)
    }

    fn click(&mut self, column: u16, row: u16, button: MouseButton) -> Vec<Command> {
        if self.app.help.take().is_some() {
            return Vec::new();
        }
        let Ok(size) = self.screen.terminal.size() else { return Vec::new() };
        let area = Rect::new(0, 0, size.width, size.height);
        if self.app.menu.is_some() {
            let row = draw::menu_row(&self.app, area, Position { x: column, y: row });
            return self.app.menu_click(row);
        }
        let body = draw::body(&self.app, area);
        if let Some(row) = row.checked_sub(body.y).filter(|&row| row < body.height) {
            if row == 0
                && let Some(column) = draw::column_at(&self.app, body, column)
            {
                return self.app.sort_by(column);
            }
            self.app.click(column, row);
            if button == MouseButton::Right && self.app.menu.is_none() {
                return self.app.act(Action::Menu);
            }
        }
        Vec::new()
    }

    /// What the current page is computed from.
    fn context(&self) -> Option<Context> {
        let Work { cache, code, .. } = &self.work;
        Some(Context {
            base: self.app.base.clone(),
            cache: cache.clone(),
            code: code.clone(),
            ..Context::new(self.app.profile.as_ref()?)
        })
    }

    fn perform(&mut self, commands: Vec<Command>) -> anyhow::Result<Option<Ended>> {
        for command in commands {
            match command {
                Command::Compute(job, query) => {
                    let Some(context) = self.context() else { continue };
                    let cancel = Cancel::new();
                    std::mem::replace(&mut self.work.cancel, cancel.clone()).cancel();
                    let context = Context { cancel, ..context };
                    let sender = self.sender.clone();
                    let turn = self.work.turn.clone();
                    in_background(&self.sender, move || {
                        panic_for_tests("work");
                        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
                        let model = context.check().and_then(|()| model::compute(&context, &query));
                        sender.send(Event::Computed(job, model.map(Arc::new))).ok();
                    });
                }
                Command::Cancel => {
                    self.work.cancel.cancel();
                    let client = self.work.code.symbols.debuginfod.as_deref();
                    if client.is_some_and(|client| client.is_waiting() && client.abandon()) {
                        self.app.show_message(
                            "no file is fetched by debuginfod from now on".to_owned(),
                        );
                    }
                }
                Command::Write(path) => {
                    // Another page does not cancel it.
                    let Some(context) = self.context() else { continue };
                    let query = self.app.page().query.clone();
                    let sender = self.sender.clone();
                    in_background(&self.sender, move || {
                        sender.send(Event::Message(export::write(&context, &query, &path))).ok();
                    });
                }
                Command::Copy(text) => {
                    self.screen.copy(&text)?;
                    self.app.show_message(format!("copied {text}"));
                }
                Command::Live(control) => {
                    if let Some(pass) = &self.control {
                        pass(control);
                    }
                }
                Command::Redraw => self.screen.draw_all()?,
                Command::Suspend => self.screen.suspend()?,
                Command::Quit => return Ok(Some(Ended::ByUser)),
            }
        }
        Ok(None)
    }
}
