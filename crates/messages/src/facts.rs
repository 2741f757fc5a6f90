//! Facts that are more than a number or a name.

use serde::{Deserialize, Serialize};

/// What the kernel refused to record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wanted {
    /// A process of this user, user code only.
    OwnProcess,
    /// The process with this PID.
    OtherProcess(u32),
    /// Everything on the machine, or on some CPUs.
    WholeMachine,
    /// Kernel code.
    Kernel,
    /// The tracepoint `SYSTEM:NAME`.
    Tracepoint(String),
    /// The description of the tracepoint `SYSTEM:NAME` in tracefs, which is needed to open it.
    Tracefs(String),
    /// The probe of this name.
    Probe(String),
    /// The cgroup at this path.
    Cgroup(String),
    /// A ring buffer of this size in bytes on every CPU: no target, and the reason names it.
    Ring(u64),
}

impl Wanted {
    /// Its words after the verb, with a blank before them.
    pub(crate) fn after_verb(&self) -> String {
        match self {
            Wanted::OwnProcess => " this process".to_owned(),
            Wanted::OtherProcess(pid) => format!(" process {pid}"),
            Wanted::WholeMachine => " the whole machine".to_owned(),
            Wanted::Kernel => " kernel code".to_owned(),
            Wanted::Tracepoint(name) | Wanted::Tracefs(name) => format!(" the tracepoint {name}"),
            Wanted::Probe(name) => format!(" the probe {name}"),
            Wanted::Cgroup(path) => format!(" the cgroup {path}"),
            Wanted::Ring(_) => String::new(),
        }
    }
}
