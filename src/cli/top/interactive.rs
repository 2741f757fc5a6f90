//! `prof top` on a terminal: the views of `prof report`, with a newer profile each second.

use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use super::Args;
use super::keeper::Keeper;
use super::recorder::{Message, Recorder};
use crate::cli::filter::FilterArgs;
use crate::cli::record;
use crate::cli::report::interactive::rows;
use crate::cli::sort::Grouping;
use crate::report::terminal::{
    self, Control, LiveSource, LiveStatus, Opened, Shown, Start, Update,
};
use crate::sampler::Recording;
use profile::LiveWindow;
use symbols::SymbolOptions;
use sys::os;

/// Longest wait for the end of the recording after that of the views.
const END: Duration = Duration::from_secs(2);

/// Time after which a profile is shown without names.
const NAMES: Duration = Duration::from_millis(1500);

/// The first page; `None` if the interactive views do not have these rows.
pub fn shown(grouping: &Grouping) -> Option<Shown> {
    let Grouping { granularity, order, labels, .. } = grouping;
    let rows = rows(*granularity, labels)?;
    Some(Shown::Table { rows, order: (*order).into() })
}

/// Shows the views until the user ends them.
pub fn run(
    args: &Args,
    recorder: Recorder,
    names: SymbolOptions,
    start: Start,
) -> anyhow::Result<ExitCode> {
    let Recorder { messages, sender, flags, is_whole_machine } = recorder;
    let keeper = Keeper::new(names, sender.clone(), is_whole_machine)?;
    let (updates, source) = mpsc::channel();
    let window = args.window(LiveWindow::Recent);
    let status = LiveStatus { window, interval: args.interval, ..LiveStatus::default() };
    let ready = flags.clone();
    thread::scope(|scope| {
        let filter = &args.filter;
        let showing = scope.spawn(move || {
            let mut show = Show { keeper, filter, updates, status, is_shown: false };
            show.run(&messages, &|| ready.set_ready())
        });
        let control = sender.clone();
        let source = LiveSource {
            updates: source,
            control: Box::new(move |request| drop(control.send(Message::Control(request)))),
        };
        let start = Start { filters: filter.added(), ..start };
        let ended = terminal::run_live(start, source);
        flags.end();
        drop(sender.send(Message::Quit));
        let recorded = showing.join().ok().flatten();
        let code = ended?;
        let Some(Recording { exit, running, .. }) = recorded.transpose()? else { return Ok(code) };
        if let Some(pid) = running {
            // ^C on the terminal, which reaches a COMMAND of prof record, was a key here.
            os::kill(pid, libc::SIGINT).ok();
        }
        Ok(record::exit_code(exit, None))
    })
}

/// Sends profiles to the views.
struct Show<'a> {
    keeper: Keeper,
    filter: &'a FilterArgs,
    updates: Sender<Update>,
    status: LiveStatus,
    is_shown: bool,
}

impl Show<'_> {
    /// Handles messages until the views and the recording have ended; returns the recording.
    fn run(
        &mut self,
        messages: &Receiver<Message>,
        set_ready: &dyn Fn(),
    ) -> Option<anyhow::Result<Recording>> {
        let mut ended = None;
        while let Ok(message) = messages.recv() {
            match message {
                Message::Part(part) => {
                    self.keeper.add(*part);
                    self.send_status();
                    // The first one with names, if they come soon.
                    let is_late = self.keeper.elapsed > NAMES;
                    if self.is_shown || is_late || !self.keeper.is_naming() {
                        self.send_profile();
                    }
                    set_ready();
                }
                Message::Named(request) => {
                    self.keeper.named(&request);
                    if !self.is_shown {
                        self.send_profile();
                    }
                }
                Message::Control(Control::NextWindow) => self.next_window(),
                Message::Control(Control::Pause) => self.pause(),
                Message::Ended(recorded) => {
                    self.status.has_ended = true;
                    self.send_status();
                    self.send_profile();
                    ended = Some(*recorded);
                }
                Message::Started => {}
                Message::Quit if ended.is_some() => return ended,
                Message::Quit => return wait_for_end(messages),
            }
        }
        ended
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
        let mut profile = self.keeper.profile(self.status.window);
        self.filter.dress(&mut profile);
        let update = match self.filter.type_index(&profile) {
            Ok(type_index) => Update::Profile(Box::new(Opened {
                profile,
                base: None,
                type_index,
                notes: Vec::new(),
            })),
            Err(error) => Update::Message(format!("{error:#}")),
        };
        self.is_shown = true;
        self.updates.send(update).ok();
    }
}

fn wait_for_end(messages: &Receiver<Message>) -> Option<anyhow::Result<Recording>> {
    loop {
        match messages.recv_timeout(END) {
            Ok(Message::Ended(recorded)) => return Some(*recorded),
            Ok(_) => {}
            Err(_) => return None,
        }
    }
}
