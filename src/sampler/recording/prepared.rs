//! The first stage of a recording: its profile types are prepared, and its COMMAND is started.

use std::process::{Child, ExitStatus};
use std::time::Instant;

use super::opened::Opened;
use super::window::wait_for_delay;
use super::{Interrupts, Window};
use crate::sampler::types::{self, Preparation, ProfileTypes, Setup};
use crate::sampler::{
    CommandOutput, LeftOut, Options, StoppedCommand, Target, remove_leftover_probes,
};
use messages::Message;
use sys::{Error, procfs};

/// What is recorded, and when.
pub struct Plan<'a> {
    /// The target, the events and the method.
    pub options: Options,
    /// The start and the end of sampling.
    pub window: Window,
    /// Signals that end the recording.
    pub interrupts: &'a Interrupts,
}

impl Plan<'_> {
    /// The process whose binary is the main one, if the target has such a process.
    pub fn main_process(&self) -> Option<i32> {
        match &self.options.target {
            Target::Processes { pids, .. } => pids.first().copied(),
            Target::Threads(tids) => {
                tids.first().and_then(|&tid| procfs::owner(tid)).map(|(pid, _)| pid)
            }
            _ => None,
        }
    }
}

/// A recording whose COMMAND, if it has one, is stopped before its `execve`, or runs since the
/// delay.
pub struct Prepared<'a> {
    /// The moment at which the recording was requested.
    pub(super) requested: Instant,
    pub(super) plan: Plan<'a>,
    pub(super) types: ProfileTypes,
    pub(super) command: TargetCommand,
    /// Notes for the user.
    pub(super) notes: Vec<Message>,
}

impl<'a> Prepared<'a> {
    /// Prepares the profile types, starts the COMMAND and waits for the delay.
    ///
    /// # Errors
    ///
    /// One line that states the obstacle.
    pub fn new(mut plan: Plan<'a>, mut types: ProfileTypes) -> Result<Prepared<'a>, Error> {
        let requested = Instant::now();
        procfs::check_mounted()?;
        remove_leftover_probes();
        types::remove_leftovers();
        let notes = prepare_types(&mut types, &mut plan)?;
        let mut command = TargetCommand::start(&mut plan, &types)?;
        wait_for_delay(plan.window.delay, plan.interrupts, command.child.as_mut())?;
        Ok(Prepared { requested, plan, types, command, notes })
    }

    /// Opens the events. `note` gets the notes that are known then.
    ///
    /// # Errors
    ///
    /// One line that states the obstacle.
    pub fn open(self, note: &mut dyn FnMut(&Message)) -> Result<Opened<'a>, Error> {
        Opened::new(self, note)
    }
}

/// Prepares the profile types: one that cannot be recorded is left out. Returns notes for the user.
///
/// # Errors
///
/// One line, if nothing else is recorded.
fn prepare_types(types: &mut ProfileTypes, plan: &mut Plan<'_>) -> Result<Vec<Message>, Error> {
    let Plan { options, window: Window { duration, .. }, interrupts } = plan;
    let alone = is_alone(types, options);
    let mut notes = Vec::new();
    let mut left_out = Vec::new();
    let mut more = Vec::new();
    for (index, kind) in types.iter_mut() {
        let setup = Setup { target: &options.target, duration: *duration, interrupts };
        match kind.prepare(&setup) {
            Ok(Preparation::Ready) => {}
            Ok(Preparation::Replaced { by, note }) => {
                left_out.push(index);
                notes.push(note);
                more.push(*by);
            }
            Err(error) if alone => return Err(error),
            Err(error) => {
                left_out.push(index);
                notes.push(LeftOut::profile_type(kind.name(), error).into());
            }
        }
    }
    left_out.into_iter().for_each(|index| types.leave_out(index));
    for event in more {
        if !options.events.iter().any(|known| known.name == event.name) {
            options.events.push(event);
        }
    }
    Ok(notes)
}

/// Starts the profile types just before sampling; one that fails is left out. Returns notes for the
/// user.
///
/// # Errors
///
/// One line, if nothing else is recorded.
pub fn begin_types(types: &mut ProfileTypes, options: &Options) -> Result<Vec<Message>, Error> {
    let alone = is_alone(types, options);
    let mut notes = Vec::new();
    let mut left_out = Vec::new();
    for (index, kind) in types.iter_mut() {
        match kind.begin() {
            Ok(()) => {}
            Err(error) if alone => return Err(error),
            Err(error) => {
                left_out.push(index);
                notes.push(LeftOut::profile_type(kind.name(), error).into());
            }
        }
    }
    left_out.into_iter().for_each(|index| types.leave_out(index));
    Ok(notes)
}

/// True if only one profile type is recorded.
fn is_alone(types: &ProfileTypes, options: &Options) -> bool {
    types.len() == 1 && options.events.is_empty()
}

/// A COMMAND, if the recording has one.
pub struct TargetCommand {
    /// Before its `execve`.
    stopped: Option<StoppedCommand>,
    /// While it runs.
    child: Option<Child>,
}

/// The state of a COMMAND when the window has closed.
pub struct CommandEnd {
    /// Its exit status, if it has exited.
    pub exit: Option<ExitStatus>,
    /// Its PID, if it still runs.
    pub running: Option<i32>,
}

impl TargetCommand {
    /// Starts the target's COMMAND and stops it before `execve`. With a delay, the command runs at
    /// once, and its process becomes the target.
    fn start(plan: &mut Plan<'_>, types: &ProfileTypes) -> Result<TargetCommand, Error> {
        let Plan { options, window, interrupts } = plan;
        let mut command = TargetCommand { stopped: None, child: None };
        let Target::Command(words) = &options.target else { return Ok(command) };
        let output = match options {
            Options { silent_command: true, .. } => CommandOutput::Silent,
            Options { stdout_to_stderr: true, .. } => CommandOutput::ToStderr,
            _ => CommandOutput::Inherited,
        };
        let ignored = interrupts.ignored();
        let environment = types.iter().flat_map(|(_, kind)| kind.environment()).collect();
        let started = StoppedCommand::start(words, output, environment, ignored)?;
        interrupts.set_child(started.pid);
        if window.delay.is_zero() {
            command.stopped = Some(started);
        } else {
            let pid = started.pid;
            command.child = Some(started.go()?);
            options.target = Target::Processes { pids: vec![pid], tree: true };
        }
        Ok(command)
    }

    /// The PID of a command that is stopped before `execve`.
    pub fn stopped_pid(&self) -> Option<i32> {
        self.stopped.as_ref().map(|stopped| stopped.pid)
    }

    /// The process of a command that runs.
    pub fn child(&self) -> Option<&Child> {
        self.child.as_ref()
    }

    /// Continues the command.
    ///
    /// # Errors
    ///
    /// The command cannot be started.
    pub fn go(&mut self) -> Result<(), Error> {
        if let Some(stopped) = self.stopped.take() {
            self.child = Some(stopped.go()?);
        }
        Ok(())
    }

    /// The state of the command when the window has closed.
    pub fn end(self, interrupts: &Interrupts) -> CommandEnd {
        let Some(mut child) = self.child else { return CommandEnd { exit: None, running: None } };
        match child.try_wait() {
            Ok(Some(status)) => {
                interrupts.forget_child();
                CommandEnd { exit: Some(status), running: None }
            }
            _ => CommandEnd { exit: None, running: Some(child.id() as i32) },
        }
    }
}
