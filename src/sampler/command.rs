//! Starts a command stopped, so that it is sampled from its first instruction.

#![allow(unsafe_code)]

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use sys::{Error, ErrorKind};

/// Standard input, output and error of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutput {
    /// All are prof's.
    Inherited,
    /// The standard output is prof's standard error, the others are prof's.
    ToStderr,
    /// All are /dev/null.
    Silent,
}

/// A child process that waits before `execve`.
pub struct StoppedCommand {
    /// Its process ID.
    pub pid: i32,
    go: io::PipeWriter,
    spawner: JoinHandle<io::Result<Child>>,
    name: String,
}

impl StoppedCommand {
    /// Forks; the child waits just before `execve`.
    ///
    /// Standard input, output and error are as `output` says. `environment` is added to prof's; these signals are `ignored`, and
    /// the others that prof handles have their defaults.
    pub fn start(
        words: &[String],
        output: CommandOutput,
        environment: Vec<(OsString, OsString)>,
        ignored: &[i32],
    ) -> Result<StoppedCommand, Error> {
        let (name, args) = words.split_first().ok_or_else(|| Error::usage("no COMMAND given"))?;
        let failed = |e: io::Error| Error::failed(format!("cannot start a process: {e}"));
        let (mut pid_reader, pid_writer) = io::pipe().map_err(failed)?;
        let (go_reader, go) = io::pipe().map_err(failed)?;
        let mut command = Command::new(name);
        command.args(args).envs(environment);
        match output {
            CommandOutput::Inherited => {}
            CommandOutput::ToStderr => {
                command.stdout(io::stderr());
            }
            CommandOutput::Silent => {
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            }
        }
        let go_fd = go_reader.as_raw_fd();
        let pid_fd = pid_writer.as_raw_fd();
        let go_writer_fd = go.as_raw_fd();
        let ignored = ignored.to_vec();
        let ready = move || {
            ignored.iter().for_each(|&signal| ignore(signal));
            wait_for_go(pid_fd, go_fd, go_writer_fd)
        };
        // SAFETY: between fork and exec only system calls that are async-signal-safe are made,
        // on descriptors that the parent keeps open until exec has happened or failed.
        unsafe { command.pre_exec(ready) };
        // spawn() returns only after execve, so it needs a thread.
        let spawner = std::thread::spawn(move || {
            let child = command.spawn();
            drop((go_reader, pid_writer));
            child
        });
        let mut pid = [0; 4];
        match pid_reader.read_exact(&mut pid) {
            Ok(()) => {
                let pid = i32::from_ne_bytes(pid);
                Ok(StoppedCommand { pid, go, spawner, name: name.clone() })
            }
            Err(e) => {
                let e = spawner.join().ok().and_then(Result::err).unwrap_or(e);
                Err(not_started(name, &e))
            }
        }
    }

    /// Continues the child with `execve`.
    ///
    /// # Errors
    ///
    /// It does not exist (exit code 127) or cannot be executed (126).
    pub fn go(mut self) -> Result<Child, Error> {
        let sent = self.go.write_all(&[1]);
        drop(self.go);
        match self.spawner.join() {
            Ok(Ok(child)) => Ok(child),
            Ok(Err(e)) => Err(not_started(&self.name, &e)),
            Err(_) => {
                Err(not_started(&self.name, &sent.err().unwrap_or(io::ErrorKind::Other.into())))
            }
        }
    }
}

fn ignore(signal: i32) {
    // SAFETY: async-signal-safe; no handler is involved.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

fn wait_for_go(pid_fd: i32, go_fd: i32, go_writer_fd: i32) -> io::Result<()> {
    // SAFETY: plain system calls on open descriptors and a local buffer; the writer is closed
    // so that the child sees the end of the pipe if prof dies.
    unsafe {
        libc::close(go_writer_fd);
        let pid = libc::getpid().to_ne_bytes();
        if libc::write(pid_fd, pid.as_ptr().cast(), pid.len()) != pid.len() as isize {
            return Err(io::Error::last_os_error());
        }
        let mut byte = 0u8;
        loop {
            match libc::read(go_fd, (&raw mut byte).cast(), 1) {
                1 => return Ok(()),
                // prof has ended. If this returned, std would report it through a pipe without a
                // reader, and abort with a message.
                0 => libc::_exit(126),
                _ if *libc::__errno_location() == libc::EINTR => {}
                _ => return Err(io::Error::last_os_error()),
            }
        }
    }
}

fn not_started(name: &str, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => {
            let message = format!("command '{name}' does not exist (not in PATH?)");
            Error::new(ErrorKind::CommandNotFound, message)
        }
        io::ErrorKind::PermissionDenied => Error::new(
            ErrorKind::CommandNotExecutable,
            format!("command '{name}' cannot be executed: permission denied; chmod +x?"),
        ),
        _ => Error::new(
            ErrorKind::CommandNotExecutable,
            format!("command '{name}' cannot be executed: {error}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|w| w.to_string()).collect()
    }

    #[test]
    fn a_command_waits_until_told() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ran");
        let stopped = StoppedCommand::start(
            &words(&["touch", file.to_str().unwrap()]),
            CommandOutput::Inherited,
            vec![],
            &[],
        )
        .unwrap();
        let cmdline = std::fs::read(format!("/proc/{}/cmdline", stopped.pid)).unwrap();
        assert!(!cmdline.starts_with(b"touch"));
        assert!(!file.exists());
        assert!(stopped.go().unwrap().wait().unwrap().success());
        assert!(file.exists());
    }

    #[test]
    fn a_command_that_is_never_told_ends() {
        let stopped = StoppedCommand::start(
            &words(&["sleep", "1000"]),
            CommandOutput::Inherited,
            vec![],
            &[],
        )
        .unwrap();
        drop(stopped.go);
        let status = stopped.spawner.join().unwrap().unwrap().wait().unwrap();
        assert_eq!(status.code(), Some(126));
    }

    #[test]
    fn a_command_that_cannot_be_started_is_known_from_one_that_does_not_exist() {
        let start = |name: &str| {
            StoppedCommand::start(&words(&[name]), CommandOutput::Inherited, vec![], &[]).unwrap()
        };
        let kind = |name: &str| start(name).go().unwrap_err().kind();
        assert_eq!(kind("/nonexistent/command"), ErrorKind::CommandNotFound);
        assert_eq!(kind("/etc/passwd"), ErrorKind::CommandNotExecutable);
    }
}
