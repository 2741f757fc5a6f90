//! Why a recording cannot be made: one line, and the exit code that goes with it.

/// An error of the sampler.
#[derive(Clone, Debug)]
pub struct Error {
    message: String,
    code: u8,
}

impl Error {
    /// The user asked for something that does not exist: exit code 2.
    pub fn usage(message: impl Into<String>) -> Error {
        Error { message: message.into(), code: 2 }
    }

    /// Something went wrong: exit code 1.
    pub fn other(message: impl Into<String>) -> Error {
        Error { message: message.into(), code: 1 }
    }

    /// With an exit code of its own (126, 127 for a command that cannot be started).
    pub fn with_code(message: impl Into<String>, code: u8) -> Error {
        Error { message: message.into(), code }
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        self.code
    }
}

/// What was asked for and cannot be had: it is left out, if there is something else to record.
#[derive(Clone, Debug)]
pub struct Refused {
    /// What, as the user names it.
    pub name: String,
    /// Why.
    pub why: Error,
}

impl Refused {
    /// Of an event.
    pub fn event(name: &str, why: Error) -> Refused {
        Refused { name: format!("'{name}'"), why }
    }

    /// It is that event.
    pub fn is_event(&self, name: &str) -> bool {
        self.name.trim_matches('\'') == name
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let are = if self.name.ends_with('s') { "are" } else { "is" };
        write!(f, "{} {are} left out: {}", self.name, self.why)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
