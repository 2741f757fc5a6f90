//! What a recording lacks of what the user asked for.

use std::fmt;

use sys::Error;

/// What is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An event, by its name.
    Event(String),
    /// A profile type, as the subject of a sentence with its verb: `system calls are`.
    ProfileType(&'static str),
}

/// Something that the user asked for and that cannot be recorded: it is left out if there is
/// something else to record.
#[derive(Clone, Debug)]
pub struct LeftOut {
    /// What it is.
    pub what: Subject,
    /// Why.
    pub why: Error,
}

impl LeftOut {
    /// Of an event.
    pub fn event(name: impl Into<String>, why: Error) -> LeftOut {
        LeftOut { what: Subject::Event(name.into()), why }
    }

    /// Of a profile type: see [`Subject::ProfileType`].
    pub fn profile_type(words: &'static str, why: Error) -> LeftOut {
        LeftOut { what: Subject::ProfileType(words), why }
    }

    /// Whether it is the event of this name.
    pub fn is_event(&self, name: &str) -> bool {
        matches!(&self.what, Subject::Event(known) if known == name)
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            Subject::Event(name) => write!(f, "'{name}' is left out: {}", self.why),
            Subject::ProfileType(words) => write!(f, "{words} left out: {}", self.why),
        }
    }
}
