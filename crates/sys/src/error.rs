//! Errors: a kind for the program, and one line for the user.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

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
    /// The value of which `message` is the line.
    statement: Option<Arc<dyn Any + Send + Sync>>,
}

impl Error {
    /// A failure of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), statement: None }
    }

    /// A failure of this kind with a value that states it, whose line is that of the error: a
    /// message with a code, for example.
    pub fn stated(kind: ErrorKind, statement: impl fmt::Display + Send + Sync + 'static) -> Error {
        Error { kind, message: statement.to_string(), statement: Some(Arc::new(statement)) }
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

    /// The value that states it, if it is of this type.
    pub fn statement<T: 'static>(&self) -> Option<&T> {
        self.statement.as_deref()?.downcast_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
