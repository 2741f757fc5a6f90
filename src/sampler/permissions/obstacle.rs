//! Reasons why the kernel refuses to record, found from its error, its settings and the user's
//! privileges, and the changes that remove them.

use std::io;
use std::path::PathBuf;

use super::facts::{self, Facts};

/// The target or feature that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// A ring buffer of this size in bytes on every CPU.
    Ring(u64),
}

/// The reason why something cannot be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// `kernel.perf_event_paranoid` is too high.
    Paranoid {
        /// Its level.
        level: i32,
        /// The highest level that allows it to everyone.
        needed: i32,
    },
    /// Only root may read tracefs.
    TracefsOfRoot,
    /// Only root may set breakpoints.
    BreakpointsOfRoot,
    /// An unprivileged container.
    Container,
    /// A seccomp filter, in spite of all privileges.
    Seccomp,
    /// A security module or lockdown, in spite of all privileges.
    PolicyForAll,
    /// A security module or lockdown.
    Policy,
    /// The process is another user's.
    OtherUser,
    /// The process has more privileges than its user.
    OtherPrivileges,
    /// The sandbox has no `perf_event_open`.
    NoSystemCall,
    /// The kernel has no perf events.
    NoPerfEvents,
    /// The limit of open files, which is this one, is reached.
    OpenFiles(u64),
    /// The machine's limit of open files is reached.
    OpenFilesOfMachine,
    /// Another program holds the counters.
    CountersHeld,
    /// The hardware has no counters left.
    CountersUsedUp,
    /// The hardware has no such event.
    Hardware,
    /// The kernel lacks an option of the event.
    Option,
    /// The process has ended.
    Ended,
    /// The kernel has no memory.
    NoMemory,
    /// The directory is no cgroup.
    NotCgroup,
    /// tracefs is not mounted.
    TracefsNotMounted,
    /// The kernel lacks the tracepoint.
    NoTracepoint,
    /// The cgroup does not exist.
    NoCgroup,
    /// The machine lacks the event.
    NoEvent,
    /// The memory for ring buffers is limited.
    RingMemory {
        /// The required size of each ring in bytes.
        wanted: u64,
        /// The largest possible size in bytes.
        limit: u64,
        /// `kernel.perf_event_mlock_kb`.
        mlock_kb: u64,
        /// `ulimit -l` in KiB; 0 if there is none.
        memlock_kb: u64,
    },
    /// BPF programs are forbidden in spite of all privileges.
    NoPrograms,
    /// BPF programs need capabilities.
    ProgramsNeedCapabilities,
    /// BPF programs cannot be loaded; the system's error.
    ProgramsFail(String),
    /// The mappings of a process, or of any, cannot be read.
    HiddenMappings {
        /// The process.
        pid: Option<u32>,
    },
    /// `/proc/kallsyms` has no addresses.
    HiddenSymbols {
        /// `kernel.kptr_restrict`.
        kptr: i32,
        /// `kernel.perf_event_paranoid`.
        paranoid: i32,
    },
    /// `/proc/kallsyms` is empty.
    NoSymbols,
    /// `/proc/kallsyms` cannot be read; the system's error.
    SymbolsUnreadable(String),
    /// There is no other user's process to try, and the capability is not held.
    NoOtherProcess,
    /// The machine has no performance counters.
    NoCounters,
    /// The kernel does not aggregate wall time; the system's error.
    NoWallTime(String),
    /// The kernel times neither wall time nor calls; the system's error.
    NoTimedCalls(String),
    /// The hard limit of open files is low.
    FewFiles(FileLimit),
    /// There are no debug symbols of the system's libraries; the distribution's command.
    NoDebugSymbols(Option<&'static str>),
    /// Any other error of the system.
    System(String),
}

/// Limits of open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimit {
    /// The hard limit; `u64::MAX` is none.
    pub hard: u64,
    /// The soft limit; `u64::MAX` is none.
    pub soft: u64,
    /// The number of threads for which it suffices; `u64::MAX`: any.
    pub threads: u64,
    /// Number of online CPUs.
    pub cpus: u64,
}

/// Capabilities that a program needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capabilities {
    /// For events on other processes.
    Profiler,
    /// In addition, for the files of tracefs, which are readable by root only, whatever
    /// `perf_event_paranoid` is.
    Tracepoints,
    /// For events and BPF programs.
    Programs,
}

/// A change that removes an obstacle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// This `kernel.perf_event_paranoid`.
    Paranoid(i32),
    /// Settings that reveal the kernel's symbols.
    Symbols {
        /// `kernel.kptr_restrict` is in the way.
        kptr: bool,
        /// `kernel.perf_event_paranoid` is in the way.
        paranoid: bool,
    },
    /// This `kernel.perf_event_mlock_kb`.
    RingMemory(u64),
    /// No NMI watchdog, which holds a counter.
    NoWatchdog,
    /// This limit of open files.
    OpenFiles(u64),
    /// A higher limit of open files for the machine.
    OpenFilesOfMachine,
    /// tracefs is mounted.
    MountTracefs,
    /// A program has capabilities.
    Capabilities {
        /// The capabilities.
        capabilities: Capabilities,
        /// The path of the program.
        program: PathBuf,
    },
    /// The distribution's command for debug symbols.
    DebugSymbols(&'static str),
}

/// A command that removes an obstacle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlock {
    /// Its effect.
    pub change: Change,
    /// It needs `sudo`.
    pub sudo: bool,
}

/// The reason why something cannot be recorded, and the command that helps, if one does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The reason.
    pub reason: Reason,
    /// The command.
    pub unlock: Option<Unlock>,
}

/// A target or feature that the kernel refused, with the obstacle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The target or feature.
    pub wanted: Wanted,
    /// The obstacle.
    pub obstacle: Obstacle,
}

/// The meaning of an error of `perf_event_open`, or of its ring buffer.
pub fn refusal(error: &io::Error, wanted: Wanted) -> Refusal {
    let obstacle = Obstacle::from_error(error, &wanted, &Facts::read());
    Refusal { wanted, obstacle }
}

/// The reason why the stacks of other users' processes end after one frame although they are
/// sampled.
pub fn hidden_mappings() -> Obstacle {
    Obstacle::new(Reason::HiddenMappings { pid: None }, &Facts::read())
}

/// The reason why stacks end with the kernel's copy of them, from the error of the program that
/// would copy more.
pub fn deep_stacks(error: &io::Error) -> Obstacle {
    Obstacle::for_deep_stacks(error, &Facts::read())
}

impl Obstacle {
    /// For this reason, on a machine with these settings.
    pub(in crate::sampler) fn new(reason: Reason, facts: &Facts) -> Obstacle {
        let change = change(&reason, facts);
        let unlock = change.map(|change| Unlock { change, sudo: facts.uid != 0 });
        Obstacle { reason, unlock }
    }

    /// From an error of the system.
    pub(in crate::sampler) fn from_error(
        error: &io::Error,
        wanted: &Wanted,
        facts: &Facts,
    ) -> Obstacle {
        Obstacle::new(reason(error, wanted, facts), facts)
    }

    /// From the error of a program that copies stacks.
    pub(in crate::sampler) fn for_deep_stacks(error: &io::Error, facts: &Facts) -> Obstacle {
        let reason = match is_denied(error) {
            true if facts.may_load_programs() => Reason::NoPrograms,
            true => Reason::ProgramsNeedCapabilities,
            false => Reason::ProgramsFail(error.to_string()),
        };
        Obstacle::new(reason, facts)
    }

    /// For rings of `wanted` bytes.
    pub(in crate::sampler) fn for_rings(wanted: u64, facts: &Facts) -> Obstacle {
        Obstacle::new(ring_memory(wanted, facts), facts)
    }
}

/// True if the user lacks a privilege.
pub fn is_denied(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

fn reason(error: &io::Error, wanted: &Wanted, facts: &Facts) -> Reason {
    match error.raw_os_error() {
        _ if is_denied(error) => denied(wanted, facts),
        Some(libc::ENOSYS) if facts.paranoid.is_some() => Reason::NoSystemCall,
        Some(libc::ENOSYS) => Reason::NoPerfEvents,
        Some(libc::EMFILE) => Reason::OpenFiles(facts.open_files.0),
        Some(libc::ENFILE) => Reason::OpenFilesOfMachine,
        Some(libc::EBUSY) => Reason::CountersHeld,
        Some(libc::ESRCH) => Reason::Ended,
        Some(libc::ENOMEM) => Reason::NoMemory,
        Some(libc::ENOSPC) => Reason::CountersUsedUp,
        Some(libc::ENODEV | libc::EOPNOTSUPP) => Reason::Hardware,
        Some(libc::EINVAL | libc::E2BIG) => Reason::Option,
        Some(libc::EBADF) => Reason::NotCgroup,
        _ if error.kind() == io::ErrorKind::NotFound => match wanted {
            Wanted::Tracefs(_) if !facts::tracefs_is_mounted() => Reason::TracefsNotMounted,
            Wanted::Tracefs(_) => Reason::NoTracepoint,
            Wanted::Cgroup(_) => Reason::NoCgroup,
            _ => Reason::NoEvent,
        },
        _ => Reason::System(error.to_string()),
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

fn denied(wanted: &Wanted, facts: &Facts) -> Reason {
    let has_the_right = match wanted {
        Wanted::Ring(_) => facts.ring_limit().is_none(),
        Wanted::Tracefs(_) => facts.may_read_all(),
        _ => facts.may_perf(),
    };
    if has_the_right {
        return if facts.seccomp { Reason::Seccomp } else { Reason::PolicyForAll };
    }
    if let Wanted::Ring(bytes) = wanted {
        return ring_memory(*bytes, facts);
    }
    let level = facts.paranoid.unwrap_or(2);
    let is_foreign = match wanted {
        Wanted::OtherProcess(pid) => facts::owner(*pid).is_some_and(|uid| uid != facts.uid),
        _ => false,
    };
    match needed_level(wanted).filter(|_| !is_foreign) {
        Some(needed) if level > needed => Reason::Paranoid { level, needed },
        _ if matches!(wanted, Wanted::Tracefs(_)) && !facts.user_namespace => Reason::TracefsOfRoot,
        _ if matches!(wanted, Wanted::Probe(_)) && !facts.user_namespace => {
            Reason::BreakpointsOfRoot
        }
        _ if facts.seccomp || facts.user_namespace => Reason::Container,
        _ if is_foreign => Reason::OtherUser,
        _ if matches!(wanted, Wanted::OtherProcess(_)) => Reason::OtherPrivileges,
        _ => Reason::Policy,
    }
}

fn ring_memory(wanted: u64, facts: &Facts) -> Reason {
    Reason::RingMemory {
        wanted,
        limit: facts.ring_limit().unwrap_or(0),
        mlock_kb: facts.mlock_kb,
        memlock_kb: if facts.memlock == u64::MAX { 0 } else { facts.memlock >> 10 },
    }
}

/// The change that helps, if one does.
fn change(reason: &Reason, facts: &Facts) -> Option<Change> {
    let give =
        |capabilities| Some(Change::Capabilities { capabilities, program: facts.program.clone() });
    match *reason {
        // Below 0, every user can read the raw data of all others: a capability for one program is
        // better.
        Reason::Paranoid { needed: ..0, .. } => give(Capabilities::Tracepoints),
        Reason::Paranoid { .. } if facts.user_namespace => give(Capabilities::Profiler),
        Reason::Paranoid { needed, .. } => Some(Change::Paranoid(needed)),
        Reason::TracefsOfRoot => give(Capabilities::Tracepoints),
        Reason::BreakpointsOfRoot | Reason::OtherUser | Reason::OtherPrivileges => {
            give(Capabilities::Profiler)
        }
        Reason::HiddenMappings { .. } if !facts.may_trace() => give(Capabilities::Profiler),
        Reason::ProgramsNeedCapabilities => give(Capabilities::Programs),
        Reason::OpenFiles(_) => Some(Change::OpenFiles(1 << 20)),
        Reason::OpenFilesOfMachine => Some(Change::OpenFilesOfMachine),
        Reason::FewFiles(FileLimit { cpus, .. }) => {
            Some(Change::OpenFiles(FileLimit::files(FileLimit::ENOUGH, cpus)))
        }
        Reason::CountersHeld => Some(Change::NoWatchdog),
        Reason::TracefsNotMounted => Some(Change::MountTracefs),
        // One page more, for the ring's header.
        Reason::RingMemory { wanted, .. } => Some(Change::RingMemory((wanted >> 10) + 4)),
        // The kernel shows them to all users when both settings allow it; else to CAP_SYSLOG
        // unless restrict is 2.
        Reason::HiddenSymbols { kptr, paranoid } => {
            Some(Change::Symbols { kptr: kptr > 0, paranoid: paranoid > 1 })
        }
        Reason::NoDebugSymbols(command) => command.map(Change::DebugSymbols),
        _ => None,
    }
}

impl FileLimit {
    /// Number of threads that should be possible.
    pub(in crate::sampler) const ENOUGH: u64 = 1000;

    /// Files that are open in addition to events.
    const OTHERS: u64 = 64;

    /// The limits of this process.
    pub(in crate::sampler) fn new(facts: &Facts) -> FileLimit {
        let ((soft, hard), cpus) = (facts.open_files, facts.cpus);
        // One event for each thread on each CPU.
        let threads = match hard {
            u64::MAX => u64::MAX,
            hard => hard.saturating_sub(FileLimit::OTHERS) / cpus.max(1),
        };
        FileLimit { hard, soft, threads, cpus }
    }

    /// Number of files for this number of threads.
    fn files(threads: u64, cpus: u64) -> u64 {
        threads * cpus + FileLimit::OTHERS
    }
}
