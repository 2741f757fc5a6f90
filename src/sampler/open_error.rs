//! The reason why the kernel does not open an event.

use std::io;

use perf_event_open_sys::bindings as abi;

use super::attach::Attacher;
use super::events::EventKind;
use super::permissions::{Wanted, refusal};
use super::{EventSpec, tracefs};
use messages::Message;
use sys::{Error, ErrorKind};

impl Attacher {
    /// The meaning of an error that the kernel returned for an event.
    pub(super) fn refused(&self, spec: &EventSpec, error: &io::Error) -> Error {
        failure(self.why_refused(spec, error))
    }

    fn why_refused(&self, spec: &EventSpec, error: &io::Error) -> Message {
        let event = spec.name.clone();
        let invalid = is_invalid(error);
        if let Some(filter) = spec.filter.clone().filter(|_| invalid) {
            return Message::FilterRejected { filter, fields: tracefs::fields(&event), event };
        }
        if spec.kind == EventKind::Probe && (invalid || is_missing(error)) {
            return Message::ProbeRejected { event, error: error.to_string() };
        }
        let hardware = spec.kind == EventKind::Hardware;
        let nearest = spec.nearest_software().to_owned();
        if is_missing(error) {
            return Message::EventMissing { event, hardware, nearest };
        }
        if hardware && invalid {
            return Message::EventNotSampled { event, nearest };
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
        refusal(error, wanted)
    }
}

/// The error of a recording: a wrong filter is wrong usage.
fn failure(why: Message) -> Error {
    let kind = match why {
        Message::FilterRejected { .. } => ErrorKind::Usage,
        _ => ErrorKind::Failed,
    };
    Error::stated(kind, why)
}

/// True if the kernel does not support the request.
pub fn is_invalid(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINVAL)
}

/// True if the kernel or the machine lacks the event (rather than refusing it).
pub fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_filter_is_wrong_usage() {
        let filter = "x > 1".to_owned();
        let event = "sched:sched_switch".to_owned();
        let fields = vec!["prev_pid".to_owned(), "next_pid".to_owned()];
        let error = failure(Message::FilterRejected { filter, event, fields });
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert_eq!(
            error.to_string(),
            "the kernel rejects the filter 'x > 1' of sched:sched_switch; its fields are prev_pid, \
             next_pid"
        );
        assert_eq!(failure(Message::NoEvent).kind(), ErrorKind::Failed);
    }
}
