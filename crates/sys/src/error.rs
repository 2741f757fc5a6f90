//! Errors: a kind for the program, and one line for the user.

use std::fmt;

/// Kind of an [`Error`]. The command line derives the exit code from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The user named something that does not exist.
    Usage,
    /// It is not permitted, not available on this machine, or failed.
    Failed,
    /// The command to start does not exist.
    CommandNotFound,
    /// The command to start cannot be executed.
    CommandNotExecutable,
}

/// A failure, with a line that states the cause and the remedy.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    /// A failure of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into() }
    }

    /// An [`ErrorKind::Usage`] error.
    pub fn usage(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Usage, message)
    }

    /// An [`ErrorKind::Failed`] error.
    pub fn failed(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Failed, message)
    }

    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
