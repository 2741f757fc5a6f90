//! The reason why the kernel does not open an event.

use std::fmt;
use std::io;

use perf_event_open_sys::bindings as abi;

use super::attach::Attacher;
use super::events::EventKind;
use super::permissions::{Wanted, refusal};
use super::{EventSpec, tracefs};
use messages::Message;
use sys::Error;

/// The reason why an event cannot be opened.
#[derive(Clone, Debug, PartialEq)]
enum OpenError {
    /// The filter is invalid for the tracepoint.
    Filter {
        /// The filter.
        filter: String,
        /// The tracepoint.
        event: String,
        /// Its fields.
        fields: Vec<String>,
    },
    /// The instruction or function cannot be probed.
    Probe {
        /// The event.
        event: String,
        /// The system's error.
        error: String,
    },
    /// The machine lacks the event.
    Missing {
        /// The event.
        event: String,
        /// It is a hardware event.
        hardware: bool,
        /// The nearest event that works.
        nearest: &'static str,
    },
    /// The PMU counts the event, but does not sample it.
    NotSampled {
        /// The event.
        event: String,
        /// The nearest event that works.
        nearest: &'static str,
    },
    /// Anything else.
    Refused(Message),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Filter { filter, event, fields } => write!(
                f,
                "the kernel rejects the filter '{filter}' of {event}; its fields are {}",
                fields.join(", ")
            ),
            OpenError::Probe { event, error } => write!(
                f,
                "event '{event}': the kernel cannot put a probe there ({error}); not every \
                 instruction, and not every kernel function, can be probed"
            ),
            OpenError::Missing { event, hardware, nearest } => write!(
                f,
                "event '{event}' does not exist on this machine{}; nearest that works: {nearest}",
                if *hardware { " (no hardware counters, or not this one)" } else { "" }
            ),
            OpenError::NotSampled { event, nearest } => write!(
                f,
                "event '{event}' cannot be sampled (its PMU counts without interrupts, or has no \
                 such event); it may be possible to count it with another: -e \
                 '{{cpu-clock,{event}}}'; nearest that works: {nearest}"
            ),
            OpenError::Refused(refusal) => refusal.fmt(f),
        }
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Error {
        match error {
            OpenError::Filter { .. } => Error::usage(error.to_string()),
            _ => Error::failed(error.to_string()),
        }
    }
}

impl Attacher {
    /// The meaning of an error that the kernel returned for an event.
    pub(super) fn refused(&self, spec: &EventSpec, error: &io::Error) -> Error {
        self.open_error(spec, error).into()
    }

    fn open_error(&self, spec: &EventSpec, error: &io::Error) -> OpenError {
        let event = spec.name.clone();
        let invalid = is_invalid(error);
        if let Some(filter) = spec.filter.clone().filter(|_| invalid) {
            return OpenError::Filter { filter, fields: tracefs::fields(&event), event };
        }
        if spec.kind == EventKind::Probe && (invalid || is_missing(error)) {
            return OpenError::Probe { event, error: error.to_string() };
        }
        let hardware = spec.kind == EventKind::Hardware;
        let nearest = spec.nearest_software();
        if is_missing(error) {
            return OpenError::Missing { event, hardware, nearest };
        }
        if hardware && invalid {
            return OpenError::NotSampled { event, nearest };
        }
        let wanted = match spec.kind {
            EventKind::Tracepoint => Wanted::Tracepoint(event),
            EventKind::OfType if spec.type_ == abi::PERF_TYPE_TRACEPOINT => {
                Wanted::Tracepoint(event)
            }
            EventKind::Probe => Wanted::Probe(event),
            _ if self.cpu_wide => Wanted::WholeMachine,
            _ if !spec.user => Wanted::Kernel,
            _ => Wanted::OwnProcess,
        };
        OpenError::Refused(refusal(error, wanted))
    }
}

/// True if the kernel does not support the request.
pub fn is_invalid(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINVAL)
}

/// True if the user lacks a privilege.
pub fn is_denied(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

/// True if the kernel or the machine lacks the event (rather than refusing it).
pub fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::ErrorKind;

    #[test]
    fn an_invalid_filter_is_wrong_usage() {
        let filter = "x > 1".to_owned();
        let event = "sched:sched_switch".to_owned();
        let fields = vec!["prev_pid".to_owned(), "next_pid".to_owned()];
        let error = Error::from(OpenError::Filter { filter, event, fields });
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert_eq!(
            error.to_string(),
            "the kernel rejects the filter 'x > 1' of sched:sched_switch; its fields are prev_pid, \
             next_pid"
        );
    }

    #[test]
    fn a_missing_event_has_a_substitute() {
        let event = "cycles".to_owned();
        let nearest = "cpu-clock";
        let error = Error::from(OpenError::Missing { event, hardware: true, nearest });
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert_eq!(
            error.to_string(),
            "event 'cycles' does not exist on this machine (no hardware counters, or not this \
             one); nearest that works: cpu-clock"
        );
    }
}
