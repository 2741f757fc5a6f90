//! Reasons why the kernel refuses to record, found from its error, its settings and the user's
//! privileges.

use std::io;

use super::facts::{self, Facts};
use messages::{Message, Wanted};
use sys::{Error, ErrorKind};

/// The meaning of an error of `perf_event_open`, or of its ring buffer.
pub fn refusal(error: &io::Error, wanted: Wanted) -> Message {
    let why = Box::new(obstacle(error, &wanted, &Facts::read()));
    Message::Refused { wanted, why }
}

/// The same as the error of a recording.
pub fn refused(error: &io::Error, wanted: Wanted) -> Error {
    Error::stated(ErrorKind::Failed, refusal(error, wanted))
}

/// The reason why the stacks of other users' processes end after one frame although they are
/// sampled.
pub fn hidden_mappings() -> Message {
    let facts = Facts::read();
    Message::HiddenMappings { program: facts.program_without_trace(), sudo: facts.needs_sudo() }
}

/// The reason why no more files can be opened.
pub fn open_files() -> Message {
    let facts = Facts::read();
    Message::OpenFiles { limit: facts.open_files.0, sudo: facts.needs_sudo() }
}

/// The reason why stacks end with the kernel's copy of them, from the error of the program that
/// would copy more.
pub fn deep_stacks(error: &io::Error) -> Message {
    no_deep_stacks(error, &Facts::read())
}

/// The same on a machine with these settings.
pub(in crate::sampler) fn no_deep_stacks(error: &io::Error, facts: &Facts) -> Message {
    match is_denied(error) {
        true if facts.may_load_programs() => Message::NoPrograms,
        true => Message::ProgramsNeedCapabilities {
            program: facts.program_path(),
            sudo: facts.needs_sudo(),
        },
        false => Message::ProgramsFail { error: error.to_string() },
    }
}

/// True if the user lacks a privilege.
pub fn is_denied(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

/// The reason for an error of the system, on a machine with these settings.
pub(in crate::sampler) fn obstacle(error: &io::Error, wanted: &Wanted, facts: &Facts) -> Message {
    let sudo = facts.needs_sudo();
    match error.raw_os_error() {
        _ if is_denied(error) => denied(wanted, facts),
        Some(libc::ENOSYS) if facts.paranoid.is_some() => Message::NoSystemCall,
        Some(libc::ENOSYS) => Message::NoPerfEvents,
        Some(libc::EMFILE) => Message::OpenFiles { limit: facts.open_files.0, sudo },
        Some(libc::ENFILE) => Message::OpenFilesOfMachine { sudo },
        Some(libc::EBUSY) => Message::CountersHeld { sudo },
        Some(libc::ESRCH) => Message::Ended,
        Some(libc::ENOMEM) => Message::NoMemory,
        Some(libc::ENOSPC) => Message::CountersUsedUp,
        Some(libc::ENODEV | libc::EOPNOTSUPP) => Message::Hardware,
        Some(libc::EINVAL | libc::E2BIG) => Message::EventOption,
        Some(libc::EBADF) => Message::NotCgroup,
        _ if error.kind() == io::ErrorKind::NotFound => match wanted {
            Wanted::Tracefs(_) if !facts::tracefs_is_mounted() => {
                Message::TracefsNotMounted { sudo }
            }
            Wanted::Tracefs(_) => Message::NoTracepoint,
            Wanted::Cgroup(_) => Message::NoCgroup,
            _ => Message::NoEvent,
        },
        _ => Message::System { error: error.to_string() },
    }
}

/// Highest `perf_event_paranoid` that lets anyone record this; `None`: no level does.
fn needed_level(wanted: &Wanted) -> Option<i32> {
    match wanted {
        Wanted::OwnProcess | Wanted::OtherProcess(_) => Some(2),
        Wanted::Kernel => Some(1),
        Wanted::WholeMachine | Wanted::Cgroup(_) => Some(0),
        Wanted::Tracepoint(_) => Some(-1),
        Wanted::Ring(_) | Wanted::Tracefs(_) | Wanted::Probe(_) => None,
    }
}

fn denied(wanted: &Wanted, facts: &Facts) -> Message {
    let has_the_right = match wanted {
        Wanted::Ring(_) => facts.ring_limit().is_none(),
        Wanted::Tracefs(_) => facts.may_read_all(),
        _ => facts.may_perf(),
    };
    if has_the_right {
        return if facts.seccomp { Message::Seccomp } else { Message::PolicyForAll };
    }
    if let Wanted::Ring(bytes) = wanted {
        return ring_memory(*bytes, facts);
    }
    let level = facts.paranoid.unwrap_or(2);
    let is_foreign = match wanted {
        Wanted::OtherProcess(pid) => facts::owner(*pid).is_some_and(|uid| uid != facts.uid),
        _ => false,
    };
    let (program, sudo) = (facts.program_path(), facts.needs_sudo());
    match needed_level(wanted).filter(|_| !is_foreign) {
        Some(needed) if level > needed => {
            // Below 0, every user can read the raw data of all others.
            let is_given = needed < 0 || facts.user_namespace;
            Message::Paranoid { level, needed, program: is_given.then_some(program), sudo }
        }
        _ if matches!(wanted, Wanted::Tracefs(_)) && !facts.user_namespace => {
            Message::TracefsOfRoot { program, sudo }
        }
        _ if matches!(wanted, Wanted::Probe(_)) && !facts.user_namespace => {
            Message::BreakpointsOfRoot { program, sudo }
        }
        _ if facts.seccomp || facts.user_namespace => Message::Container,
        _ if is_foreign => Message::OtherUser { program, sudo },
        _ if matches!(wanted, Wanted::OtherProcess(_)) => {
            Message::OtherPrivileges { program, sudo }
        }
        _ => Message::Policy,
    }
}

/// The limit of rings, which are to have `wanted` bytes.
pub(in crate::sampler) fn ring_memory(wanted: u64, facts: &Facts) -> Message {
    Message::RingMemory {
        wanted,
        limit: facts.ring_limit().unwrap_or(0),
        mlock_kb: facts.mlock_kb,
        memlock_kb: if facts.memlock == u64::MAX { 0 } else { facts.memlock >> 10 },
        sudo: facts.needs_sudo(),
    }
}
