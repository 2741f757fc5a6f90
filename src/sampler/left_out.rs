//! Requested events and profile types that a recording lacks.

use messages::Message;
use sys::Error;

/// An event or a profile type that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An event, by its name.
    Event(String),
    /// A profile type.
    ProfileType(TypeName),
}

/// The name of a profile type in sentences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeName {
    /// One thing: `block I/O`.
    Singular(&'static str),
    /// Several: `system calls`.
    Plural(&'static str),
}

impl TypeName {
    /// The name alone.
    pub fn noun(self) -> &'static str {
        match self {
            TypeName::Singular(noun) | TypeName::Plural(noun) => noun,
        }
    }
}

/// A requested event or profile type that cannot be recorded: it is left out if there is something
/// else to record.
#[derive(Clone, Debug)]
pub struct LeftOut {
    /// The event or type.
    pub what: Subject,
    /// The reason.
    pub why: Error,
}

impl LeftOut {
    /// For an event.
    pub fn event(name: impl Into<String>, why: Error) -> LeftOut {
        LeftOut { what: Subject::Event(name.into()), why }
    }

    /// For a profile type.
    pub fn profile_type(name: TypeName, why: Error) -> LeftOut {
        LeftOut { what: Subject::ProfileType(name), why }
    }

    /// True for the event of this name.
    pub fn is_event(&self, name: &str) -> bool {
        matches!(&self.what, Subject::Event(known) if known == name)
    }
}

impl From<LeftOut> for Message {
    fn from(LeftOut { what, why }: LeftOut) -> Message {
        let message = why.statement().cloned().map(Box::new);
        let why = why.to_string();
        match what {
            Subject::Event(event) => Message::EventLeftOut { event, why, message },
            Subject::ProfileType(name) => Message::TypeLeftOut {
                noun: name.noun().to_owned(),
                plural: matches!(name, TypeName::Plural(_)),
                why,
                message,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::ErrorKind;

    #[test]
    fn the_code_of_a_reason_is_kept() {
        let lines = |why: Error| {
            let event = Message::from(LeftOut::event("cycles", why.clone()));
            let kind = Message::from(LeftOut::profile_type(TypeName::Plural("waits"), why));
            [event, kind].map(|message| {
                let json = serde_json::to_value(&message).unwrap();
                let code = json["facts"]["message"]["code"].as_str().map(str::to_owned);
                (message.to_string(), code)
            })
        };
        let stated = Error::stated(ErrorKind::Failed, Message::NoPerfEvents);
        let code = Message::NoPerfEvents.code().to_owned();
        let why = Message::NoPerfEvents;
        assert_eq!(
            lines(stated),
            [
                (format!("'cycles' is left out: {why}"), Some(code.clone())),
                (format!("waits are left out: {why}"), Some(code)),
            ]
        );
        let [(line, code), _] = lines(Error::failed("no reason"));
        assert_eq!((line.as_str(), code), ("'cycles' is left out: no reason", None));
    }
}
