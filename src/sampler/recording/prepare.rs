//! Prepares the profile types and the COMMAND of a recording.

use std::process::{Child, ExitStatus};
use std::time::Duration;

use super::Interrupts;
use crate::sampler::types::{Prepared, ProfileTypes, Setup};
use crate::sampler::{CommandOutput, LeftOut, Note, Options, StoppedCommand, Target};
use sys::Error;

/// Prepares the profile types: one that cannot be recorded is left out. Returns notes for the user.
///
/// # Errors
///
/// One line, if nothing else is recorded.
pub fn types(
    types: &mut ProfileTypes,
    options: &mut Options,
    duration: Option<Duration>,
    interrupts: &Interrupts,
) -> Result<Vec<Note>, Error> {
    let alone = is_alone(types, options);
    let mut notes = Vec::new();
    let mut left_out = Vec::new();
    let mut more = Vec::new();
    for (of, one) in types.iter_mut() {
        let setup = Setup { target: &options.target, duration, interrupts };
        match one.prepare(&setup) {
            Ok(Prepared::Ready) => {}
            Ok(Prepared::Replaced { by, note }) => {
                left_out.push(of);
                notes.push(note);
                more.push(*by);
            }
            Err(error) if alone => return Err(error),
            Err(error) => {
                left_out.push(of);
                notes.push(LeftOut::profile_type(one.name(), error).into());
            }
        }
    }
    left_out.into_iter().for_each(|of| types.leave_out(of));
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
pub fn begin(types: &mut ProfileTypes, options: &Options) -> Result<Vec<Note>, Error> {
    let alone = is_alone(types, options);
    let mut notes = Vec::new();
    let mut left_out = Vec::new();
    for (of, one) in types.iter_mut() {
        match one.begin() {
            Ok(()) => {}
            Err(error) if alone => return Err(error),
            Err(error) => {
                left_out.push(of);
                notes.push(LeftOut::profile_type(one.name(), error).into());
            }
        }
    }
    left_out.into_iter().for_each(|of| types.leave_out(of));
    Ok(notes)
}

/// True if only one profile type is recorded.
fn is_alone(types: &ProfileTypes, options: &Options) -> bool {
    types.len() == 1 && options.events.is_empty()
}

/// A COMMAND, if the recording has one.
pub struct Started {
    /// Before its `execve`.
    stopped: Option<StoppedCommand>,
    /// While it runs.
    pub child: Option<Child>,
}

impl Started {
    /// Starts the target's COMMAND and stops it before `execve`. With a delay, the command runs at
    /// once, and its process becomes the target.
    ///
    /// # Errors
    ///
    /// The command cannot be started.
    pub fn new(
        options: &mut Options,
        types: &ProfileTypes,
        delay: Duration,
        interrupts: &Interrupts,
    ) -> Result<Started, Error> {
        let mut command = Started { stopped: None, child: None };
        let Target::Command(words) = &options.target else { return Ok(command) };
        let output = match options {
            Options { silent_command: true, .. } => CommandOutput::Silent,
            Options { stdout_to_stderr: true, .. } => CommandOutput::ToStderr,
            _ => CommandOutput::Inherited,
        };
        let ignored = interrupts.ignored();
        let environment = types.iter().flat_map(|(_, one)| one.environment()).collect();
        let started = StoppedCommand::start(words, output, environment, ignored)?;
        interrupts.set_child(started.pid);
        if delay.is_zero() {
            command.stopped = Some(started);
        } else {
            let pid = started.pid;
            command.child = Some(started.go()?);
            options.target = Target::Processes { pids: vec![pid], tree: true };
        }
        Ok(command)
    }

    /// The PID of a command that is stopped before `execve`.
    pub fn command(&self) -> Option<i32> {
        self.stopped.as_ref().map(|stopped| stopped.pid)
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

    /// The exit status of the command, or its PID if it still runs.
    pub fn end(self, interrupts: &Interrupts) -> (Option<ExitStatus>, Option<i32>) {
        let Some(mut child) = self.child else { return (None, None) };
        match child.try_wait() {
            Ok(Some(status)) => {
                interrupts.forget_child();
                (Some(status), None)
            }
            _ => (None, Some(child.id() as i32)),
        }
    }
}
