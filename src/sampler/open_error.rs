//! Explains in one line why the kernel does not open an event.

use std::io;

use perf_event_open_sys::bindings as abi;

use super::attach::Attacher;
use super::events::EventKind;
use super::permissions::{Wanted, refusal};
use super::{EventSpec, tracefs};
use sys::Error;

impl Attacher {
    /// The meaning of an error that the kernel returned for an event.
    pub(super) fn refused(&self, spec: &EventSpec, error: &io::Error) -> Error {
        let invalid = is_invalid(error);
        if let Some(filter) = spec.filter.as_ref().filter(|_| invalid) {
            return Error::usage(format!(
                "the kernel rejects the filter '{filter}' of {}; its fields are {}",
                spec.name,
                tracefs::fields(&spec.name).join(", ")
            ));
        }
        if spec.kind == EventKind::Probe && (invalid || is_missing(error)) {
            return Error::failed(format!(
                "event '{}': the kernel cannot put a probe there ({error}); not every instruction, \
                 and not every kernel function, can be probed",
                spec.name
            ));
        }
        if is_missing(error) {
            return Error::failed(format!(
                "event '{}' does not exist on this machine{}; nearest that works: {}",
                spec.name,
                if spec.kind == EventKind::Hardware {
                    " (no hardware counters, or not this one)"
                } else {
                    ""
                },
                spec.nearest_software()
            ));
        }
        if spec.kind == EventKind::Hardware && invalid {
            return Error::failed(format!(
                "event '{}' cannot be sampled (its PMU counts without interrupts, or has no such \
                 event); perhaps it can be counted with another: -e '{{cpu-clock,{}}}'; nearest \
                 that works: {}",
                spec.name,
                spec.name,
                spec.nearest_software()
            ));
        }
        let wanted = match spec.kind {
            EventKind::Tracepoint => Wanted::Tracepoint(spec.name.clone()),
            EventKind::OfType if spec.type_ == abi::PERF_TYPE_TRACEPOINT => {
                Wanted::Tracepoint(spec.name.clone())
            }
            EventKind::Probe => Wanted::Probe(spec.name.clone()),
            _ if self.cpu_wide => Wanted::WholeMachine,
            _ if !spec.user => Wanted::Kernel,
            _ => Wanted::OwnProcess,
        };
        Error::from(refusal(error, wanted))
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
