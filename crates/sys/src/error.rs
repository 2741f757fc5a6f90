//! Why something cannot be done: what kind of failure it is, for the program, and one line for the
//! user.

use std::fmt;

/// What kind of failure an [`Error`] is. The command line makes an exit code of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The user asked for something that does not exist.
    Usage,
    /// It is not permitted, not available on this machine, or failed.
    Failed,
    /// The command to start does not exist.
    CommandNotFound,
    /// The command to start cannot be executed.
    CommandNotExecutable,
}

/// A failure, with a line that says what happened and what to do.
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

    /// The user asked for something that does not exist.
    pub fn usage(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Usage, message)
    }

    /// It is not permitted, not available on this machine, or failed.
    pub fn failed(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Failed, message)
    }

    /// What kind of failure it is.
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
