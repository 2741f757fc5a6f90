//! The recordings of `prof top`, each on a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use crate::cli::summary::Verbosity;
use crate::cli::target::TargetArgs;
use crate::report::terminal::Control;
use crate::sampler::{self, Interrupts, Live, LivePart, Options, Recording, Target, Window};
use messages::Level;
use profile::NameRequest;
use sys::cpu_allowance::{CpuAllowance, Watched};
use sys::printed::Stderr;

/// The number of a recording: there is another one when the user wants other data.
pub type Number = u32;

/// A message to the thread that keeps the data.
pub enum Message {
    /// Sampling has started. With the PID of a COMMAND.
    Started(Number, Option<i32>),
    /// A part of a recording.
    Part(Number, Box<LivePart>),
    /// What is known before sampling starts, for the views.
    Note(String),
    /// Names that were looked up for a recording.
    Named(Number, Box<NameRequest>),
    /// A request of the user.
    Control(Control),
    /// A recording has ended.
    Ended(Number, Box<anyhow::Result<Recording>>),
    /// The user has ended the views.
    Quit,
}

/// State that the threads of a recording share.
#[derive(Default)]
pub struct Flags {
    /// A part can be taken.
    ready: AtomicBool,
    /// The recording is to end.
    over: AtomicBool,
}

impl Flags {
    /// The next part can be taken.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::SeqCst);
    }

    /// Ends the recording.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// True if the recording was ended.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

/// A recording that goes on.
#[derive(Clone)]
pub struct Running {
    /// Its number.
    pub number: Number,
    /// The shared state.
    pub flags: Arc<Flags>,
    /// The target is the whole machine.
    pub is_whole_machine: bool,
    /// The CPU time that prof allows itself for names and analysis.
    pub allowance: Arc<CpuAllowance>,
}

/// Where the notes of a recording go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotesTo {
    /// Standard error, before the views begin.
    Stderr,
    /// The views.
    Views,
}

/// Starts recordings.
pub struct Starter {
    sender: Sender<Message>,
    interrupts: Arc<Interrupts>,
    interval: Duration,
    /// The views are drawn on the terminal.
    draws: bool,
    verbosity: Verbosity,
    /// The user has chosen how many samples are taken.
    has_chosen_rate: bool,
    /// Number of the next recording.
    next: Number,
}

/// A recording that has started, and what starts others.
pub struct Recorder {
    /// Parts and other messages.
    pub messages: Receiver<Message>,
    /// Sends further messages.
    pub sender: Sender<Message>,
    /// The recording.
    pub running: Running,
    /// PID of the COMMAND.
    pub command: Option<i32>,
    /// Starts others.
    pub starter: Starter,
}

impl Recorder {
    /// Starts the recording. Notes are printed before it returns.
    ///
    /// # Errors
    ///
    /// The recording is not possible; the message is one line.
    pub fn start(
        target: TargetArgs,
        interval: Duration,
        draws: bool,
        verbosity: Verbosity,
        has_chosen_rate: bool,
    ) -> anyhow::Result<Recorder> {
        let (sender, messages) = mpsc::channel();
        let is_command = matches!(target.options()?.0.target, Target::Command(_));
        let interrupts = Arc::new(Interrupts::install(is_command)?);
        let mut starter = Starter {
            sender: sender.clone(),
            interrupts,
            interval,
            draws,
            verbosity,
            has_chosen_rate,
            next: 0,
        };
        let running = starter.start(target, NotesTo::Stderr)?;
        match messages.recv()? {
            Message::Started(_, command) => {
                Ok(Recorder { messages, sender, running, command, starter })
            }
            Message::Ended(_, recorded) => {
                (*recorded)?;
                anyhow::bail!("the target ended before it was sampled")
            }
            _ => unreachable!("nothing else is sent before sampling starts"),
        }
    }
}

impl Starter {
    /// Begins another recording in addition to the current one. It sends [`Message::Started`], or
    /// [`Message::Ended`] if it is not possible.
    ///
    /// # Errors
    ///
    /// The recording is not possible; the message is one line.
    pub fn start_another(&mut self, target: TargetArgs) -> anyhow::Result<Running> {
        self.start(target, NotesTo::Views)
    }

    /// The signal that has ended the recordings, if one did.
    pub fn ending_signal(&self) -> Option<i32> {
        self.interrupts.signal()
    }

    fn start(&mut self, target: TargetArgs, notes: NotesTo) -> anyhow::Result<Running> {
        let (mut options, types, window) = target.options()?;
        // Types may not move between threads: they are made again on the recording one.
        drop(types);
        options.silent_command = self.draws;
        options.stdout_to_stderr = !self.draws;
        let window = Window { duration: target.duration, ..window };
        let is_whole_machine = matches!(options.target, Target::Everything);
        let watched = if is_whole_machine { Watched::Machine } else { Watched::Chosen };
        let allowance = Arc::new(CpuAllowance::new(watched));
        options.allowance = Some(allowance.clone());
        // A rate that the user has chosen is kept.
        options.thins_samples = !self.has_chosen_rate;
        let flags = Arc::new(Flags::default());
        flags.set_ready();
        let number = self.next;
        self.next += 1;
        let sender = self.sender.clone();
        let feed =
            Feed { sender: sender.clone(), number, flags: flags.clone(), interval: self.interval };
        let (interrupts, verbosity) = (self.interrupts.clone(), self.verbosity);
        thread::Builder::new().name("record".into()).spawn(move || {
            let ended = sender.clone();
            let show = move |note: &messages::Message| show(note, verbosity, notes, &sender);
            let recorded = record(&target, &options, window, &interrupts, show, feed);
            // The views may have ended.
            ended.send(Message::Ended(number, Box::new(recorded))).ok();
        })?;
        Ok(Running { number, flags, is_whole_machine, allowance })
    }
}

fn show(
    note: &messages::Message,
    Verbosity { quiet, verbose }: Verbosity,
    to: NotesTo,
    sender: &Sender<Message>,
) {
    match to {
        NotesTo::Stderr if verbose || (!quiet && note.level() < Level::Detail) => {
            Stderr::line(&format!("prof: {note}"));
        }
        NotesTo::Views if note.level() < Level::Detail => {
            sender.send(Message::Note(note.to_string())).ok();
        }
        _ => {}
    }
}

fn record(
    target: &TargetArgs,
    options: &Options,
    window: Window,
    interrupts: &Interrupts,
    mut show: impl FnMut(&messages::Message),
    mut feed: Feed,
) -> anyhow::Result<Recording> {
    let (_, types, _) = target.options()?;
    Ok(sampler::record_live(options, types, window, interrupts, &mut show, &mut feed)?)
}

/// Sends the parts.
struct Feed {
    sender: Sender<Message>,
    number: Number,
    flags: Arc<Flags>,
    interval: Duration,
}

impl Live for Feed {
    fn started(&mut self, command: Option<i32>) {
        self.sender.send(Message::Started(self.number, command)).ok();
    }

    fn interval(&self) -> Duration {
        self.interval
    }

    fn is_ready(&mut self) -> bool {
        self.flags.ready.load(Ordering::SeqCst)
    }

    fn take(&mut self, part: LivePart) {
        self.flags.ready.store(false, Ordering::SeqCst);
        self.sender.send(Message::Part(self.number, Box::new(part))).ok();
    }

    fn is_over(&self) -> bool {
        self.flags.is_over()
    }
}
