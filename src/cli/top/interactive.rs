//! `prof top` on a terminal: the views of `prof report`, with a newer profile each second.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::keeper::Keeper;
use super::recorder::{Message, Number, Recorder, Running, Starter};
use super::{Args, other_data};
use crate::cli::filter::FilterArgs;
use crate::cli::record;
use crate::cli::report::interactive::rows;
use crate::cli::sort::Grouping;
use crate::cli::target::{ProcessArg, TargetArgs};
use crate::report::terminal::{self, Control, LiveSource, LiveStatus, Opened, Start, Update};
use crate::sampler::{LivePart, Recording};
use profile::{LiveWindow, NameRequest};
use symbols::SymbolOptions;
use sys::os;
use sys::printed::Stderr;
use view::query::{Order, Rows, Shown, Table};

/// Longest wait for the end of the recording after that of the views.
const END: Duration = Duration::from_secs(2);

/// Time after which a profile is shown without names.
const NAMES: Duration = Duration::from_millis(1500);

/// The first page; `None` if the interactive views do not have these rows.
pub fn shown(grouping: &Grouping) -> Option<Shown> {
    let rows = rows(grouping.groups.clone())?;
    Some(Shown::Table(Table::new(rows, grouping.order.into())))
}

/// Shows the views until the user ends them.
pub fn run(
    args: &Args,
    target: TargetArgs,
    recorder: Recorder,
    names: SymbolOptions,
    start: Start,
) -> anyhow::Result<ExitCode> {
    let Recorder { messages, sender, running, command, starter } = recorder;
    let keeper = Keeper::new(names.clone(), sender.clone(), &running)?;
    let (updates, source) = mpsc::channel();
    let window = args.window(LiveWindow::Recent);
    let status = LiveStatus { window, interval: args.interval, ..LiveStatus::default() };
    thread::scope(|scope| {
        let data = OtherData {
            target,
            names,
            sender: sender.clone(),
            began: Instant::now(),
            starter,
            command,
            starting: None,
            first: None,
        };
        let filter = &args.filter;
        let usual = args.has_usual_rows().then(|| start.query.shown.order()).flatten();
        let showing = scope.spawn(move || {
            let mut show = Show {
                keeper,
                filter,
                usual,
                updates,
                status,
                shown: ShownData::Nothing,
                running,
                ended: None,
                data,
            };
            let recorded = show.run(&messages);
            (recorded, show.keeper.sum())
        });
        let control = sender.clone();
        let source = LiveSource {
            updates: source,
            control: Box::new(move |request| drop(control.send(Message::Control(request)))),
        };
        let quit = QuitOnDrop(sender);
        let ended = terminal::run_live(start, source);
        drop(quit);
        let (recorded, sum) = showing.join().ok().unzip();
        let code = ended?;
        if let Some(sum) = sum.filter(|_| !args.verbosity.quiet) {
            Stderr::line(&format!("prof: {sum}"));
        }
        let recorded = recorded.flatten();
        let Some(Recording { exit, running, .. }) = recorded.transpose()? else { return Ok(code) };
        // After a switch to other data, the COMMAND may have ended without its recording.
        let exit = exit.or_else(|| os::reap(running?));
        if let Some(pid) = running.filter(|_| exit.is_none()) {
            // ^C on the terminal, which reaches a COMMAND of prof record, was a key here.
            os::kill(pid, libc::SIGINT).ok();
        }
        Ok(record::exit_code(exit, None))
    })
}

/// Ends the thread that [`Show`] runs on, also when a panic ends the views.
struct QuitOnDrop(Sender<Message>);

impl Drop for QuitOnDrop {
    fn drop(&mut self) {
        self.0.send(Message::Quit).ok();
    }
}

/// The data that the views show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShownData {
    /// None yet.
    Nothing,
    /// That of the recording before.
    Former,
    /// That of the recording that goes on.
    Current,
}

/// What is needed to record other data.
struct OtherData {
    target: TargetArgs,
    names: SymbolOptions,
    sender: Sender<Message>,
    began: Instant,
    starter: Starter,
    /// PID of the COMMAND.
    command: Option<i32>,
    /// The recording that begins while the former goes on.
    starting: Option<Running>,
    /// The end of the recording that has started the COMMAND, if others followed.
    first: Option<anyhow::Result<Recording>>,
}

impl OtherData {
    /// Begins a recording of what was typed.
    fn start(&mut self, typed: &str, has_ended: bool) -> anyhow::Result<()> {
        anyhow::ensure!(self.starting.is_none(), "another recording begins already");
        let mut target = other_data::parse(typed, &self.target)?;
        if let Some(pid) = self.command {
            // It runs: only its processes can be recorded from now on.
            target.processes = vec![ProcessArg::Pid(pid)];
            (target.pids, target.tree, target.command) = (vec![pid], true, Vec::new());
        }
        target.delay = None;
        if let Some(duration) = target.duration.filter(|_| !has_ended) {
            target.duration = Some(duration.saturating_sub(self.began.elapsed()));
        }
        self.starting = Some(self.starter.start_another(target)?);
        Ok(())
    }
}

/// Sends profiles to the views.
struct Show<'a> {
    keeper: Keeper,
    filter: &'a FilterArgs,
    /// The order of the first table, if its rows are those that are usual for the sample type.
    usual: Option<Order>,
    updates: Sender<Update>,
    status: LiveStatus,
    shown: ShownData,
    /// The recording that is shown.
    running: Running,
    /// Its end.
    ended: Option<anyhow::Result<Recording>>,
    data: OtherData,
}

impl Show<'_> {
    /// Handles messages until the views and the recording have ended; returns the recording that
    /// has started the COMMAND, or else the last one.
    fn run(&mut self, messages: &Receiver<Message>) -> Option<anyhow::Result<Recording>> {
        while let Ok(message) = messages.recv() {
            match message {
                Message::Part(number, part) if number == self.running.number => self.add(*part),
                Message::Named(number, request) if number == self.running.number => {
                    self.named(&request);
                }
                // Of the recording before.
                Message::Part(..) | Message::Named(..) => {}
                Message::Control(Control::NextWindow) => self.next_window(),
                Message::Control(Control::Pause) => self.pause(),
                Message::Control(Control::Record(typed)) => {
                    if let Err(error) = self.data.start(&typed, self.status.has_ended) {
                        self.send_message(format!("{error:#}"));
                    }
                }
                Message::Note(note) => self.send_message(note),
                Message::Started(number, _) => {
                    if let Err(error) = self.started(number) {
                        self.send_message(format!("{error:#}"));
                    }
                }
                Message::Ended(number, recorded) => {
                    self.ended(number, *recorded);
                    self.name_rest();
                }
                Message::Quit => {
                    self.wait_for_end(messages);
                    break;
                }
            }
        }
        self.data.first.take().or(self.ended.take())
    }

    fn add(&mut self, part: LivePart) {
        self.keeper.add(part);
        self.send_status();
        // The first one with names, if they come soon.
        let is_late = self.keeper.elapsed > NAMES;
        if self.shown == ShownData::Current || is_late || !self.keeper.is_naming() {
            self.send_profile();
        }
        self.running.flags.set_ready();
    }

    /// Takes over names. The next part shows them, or, after the last one, nothing else.
    fn named(&mut self, request: &NameRequest) {
        self.keeper.named(request);
        if self.shown != ShownData::Current || self.status.has_ended {
            self.send_profile();
        }
        self.name_rest();
    }

    /// Looks up the names that are left, if the recording has ended.
    fn name_rest(&mut self) {
        if self.status.has_ended {
            self.keeper.name_rest();
        }
    }

    /// Shows the data of a recording that has started; the one before ends.
    fn started(&mut self, number: Number) -> anyhow::Result<()> {
        let Some(other) = self.data.starting.take_if(|other| other.number == number) else {
            return Ok(());
        };
        self.running.flags.end();
        let names = SymbolOptions { stop: Arc::default(), ..self.data.names.clone() };
        self.keeper = Keeper::new(names, self.data.sender.clone(), &other)?;
        self.running = other;
        let former = self.ended.take();
        self.data.first = self.data.first.take().or(former);
        self.status.has_ended = false;
        self.status.is_paused = false;
        self.shown = match self.shown {
            ShownData::Nothing => ShownData::Nothing,
            _ => ShownData::Former,
        };
        self.send_status();
        Ok(())
    }

    fn ended(&mut self, number: Number, recorded: anyhow::Result<Recording>) {
        if let Some(signal) = self.data.starter.ending_signal() {
            // The views may have ended.
            self.updates.send(Update::Interrupted(signal)).ok();
        }
        let starting = self.data.starting.take_if(|other| other.number == number);
        if number == self.running.number {
            self.status.has_ended = true;
            self.send_status();
            self.send_profile();
            self.ended = Some(recorded);
        } else if starting.is_some() {
            let reason = recorded.map_or_else(|e| format!("{e:#}"), |_| "the target ended".into());
            self.send_message(reason);
        } else if number == 0 {
            self.data.first = Some(recorded);
        }
    }

    fn send_message(&mut self, message: String) {
        // The views may have ended.
        self.updates.send(Update::Message(message)).ok();
    }

    fn next_window(&mut self) {
        let all = LiveWindow::ALL;
        let at = all.iter().position(|&window| window == self.status.window).unwrap_or(0);
        self.status.window = all[(at + 1) % all.len()];
        self.send_status();
        self.send_window();
    }

    fn pause(&mut self) {
        self.status.is_paused = !self.status.is_paused;
        self.send_status();
        self.send_profile();
    }

    fn send_status(&mut self) {
        self.status.cost = self.keeper.cost.percent();
        self.status.lost = self.keeper.stats.lost;
        // The views may have ended.
        self.updates.send(Update::Status(self.status.clone())).ok();
    }

    /// Sends the profile, unless the views are paused.
    fn send_profile(&mut self) {
        if !self.status.is_paused {
            self.send_window();
        }
    }

    fn send_window(&mut self) {
        let profile = self.filter.open_live(self.keeper.profile(self.status.window));
        let type_index = match self.filter.type_index(&profile) {
            // The other data may not have the type that was given.
            Err(_) if self.running.number > 0 => Ok(profile.default_type_index()),
            given => given,
        };
        let update = match type_index {
            Ok(type_index) => {
                let rows = Rows::usual(&profile, type_index);
                let shown = self.usual.map(|order| Shown::Table(Table::new(rows, order)));
                let opened = Opened { profile, base: None, shown, type_index, notes: Vec::new() };
                let former = std::mem::replace(&mut self.shown, ShownData::Current);
                match former {
                    ShownData::Former => Update::OtherTypes(Box::new(opened)),
                    _ => Update::Profile(Box::new(opened)),
                }
            }
            Err(error) => Update::Message(format!("{error:#}")),
        };
        // The views may have ended.
        self.updates.send(update).ok();
    }

    /// Ends the recordings, and waits until they have ended.
    fn wait_for_end(&mut self, messages: &Receiver<Message>) {
        self.running.flags.end();
        self.data.starting.iter().for_each(|other| other.flags.end());
        let is_first = self.running.number == 0;
        while self.ended.is_none() || (!is_first && self.data.first.is_none()) {
            match messages.recv_timeout(END) {
                Ok(Message::Ended(number, recorded)) => self.ended(number, *recorded),
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }
}
