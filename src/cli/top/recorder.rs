//! The recording of `prof top`, on a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use crate::cli::summary::Verbosity;
use crate::cli::target::TargetArgs;
use crate::report::terminal::Control;
use crate::sampler::{
    self, Importance, Interrupts, Live, LivePart, Note, Options, Recording, Target, Window,
};
use profile::NameRequest;
use sys::printed::Stderr;

/// A message to the thread that keeps the data.
pub enum Message {
    /// Sampling has started.
    Started,
    /// A part of the recording.
    Part(Box<LivePart>),
    /// Names that were looked up.
    Named(Box<NameRequest>),
    /// A request of the user.
    Control(Control),
    /// The recording has ended.
    Ended(Box<anyhow::Result<Recording>>),
    /// The user has ended the views.
    Quit,
}

/// State that the threads share.
#[derive(Default)]
pub struct Flags {
    /// A part can be taken.
    ready: AtomicBool,
    /// The recording is to end.
    over: AtomicBool,
    started: AtomicBool,
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

/// A recording that has started.
pub struct Recorder {
    /// Its parts, and other messages.
    pub messages: Receiver<Message>,
    /// Sends further messages.
    pub sender: Sender<Message>,
    /// The shared state.
    pub flags: Arc<Flags>,
    /// The target is the whole machine.
    pub is_whole_machine: bool,
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
    ) -> anyhow::Result<Recorder> {
        let (mut options, types, window) = target.options()?;
        // Types may not move between threads: they are made again on the recording one.
        drop(types);
        options.silent_command = draws;
        options.stdout_to_stderr = !draws;
        let window = Window { duration: target.duration, ..window };
        let is_whole_machine = matches!(options.target, Target::Everything);
        let (sender, messages) = mpsc::channel();
        let flags = Arc::new(Flags::default());
        flags.set_ready();
        let feed = Feed { sender: sender.clone(), flags: flags.clone(), interval };
        let ended = sender.clone();
        thread::Builder::new().name("record".into()).spawn(move || {
            let recorded = record(&target, &options, window, feed, verbosity);
            // The views may have ended.
            ended.send(Message::Ended(Box::new(recorded))).ok();
        })?;
        match messages.recv()? {
            Message::Ended(recorded) => {
                (*recorded)?;
                anyhow::bail!("the target ended before it was sampled")
            }
            _ => Ok(Recorder { messages, sender, flags, is_whole_machine }),
        }
    }
}

fn record(
    target: &TargetArgs,
    options: &Options,
    window: Window,
    mut feed: Feed,
    Verbosity { quiet, verbose }: Verbosity,
) -> anyhow::Result<Recording> {
    let (_, types, _) = target.options()?;
    let interrupts = Interrupts::install(matches!(options.target, Target::Command(_)))?;
    let mut show = |note: &Note| {
        if verbose || (!quiet && note.importance() < Importance::Detail) {
            Stderr::line(&format!("prof: {note}"));
        }
    };
    Ok(sampler::record_live(options, types, window, &interrupts, &mut show, &mut feed)?)
}

/// Sends the parts.
struct Feed {
    sender: Sender<Message>,
    flags: Arc<Flags>,
    interval: Duration,
}

impl Live for Feed {
    fn interval(&self) -> Duration {
        self.interval
    }

    fn is_ready(&mut self) -> bool {
        self.flags.ready.load(Ordering::SeqCst)
    }

    fn take(&mut self, part: LivePart) {
        self.flags.ready.store(false, Ordering::SeqCst);
        self.start();
        self.sender.send(Message::Part(Box::new(part))).ok();
    }

    fn is_over(&self) -> bool {
        self.start();
        self.flags.is_over()
    }
}

impl Feed {
    /// Reports once that sampling has started.
    fn start(&self) {
        if !self.flags.started.swap(true, Ordering::SeqCst) {
            self.sender.send(Message::Started).ok();
        }
    }
}
