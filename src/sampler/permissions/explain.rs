//! Explains in one line why the kernel refused, and which command helps.

use std::fmt;
use std::io;

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

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::OwnProcess => f.write_str("this process"),
            Wanted::OtherProcess(pid) => write!(f, "process {pid}"),
            Wanted::WholeMachine => f.write_str("the whole machine"),
            Wanted::Kernel => f.write_str("kernel code"),
            Wanted::Tracepoint(name) | Wanted::Tracefs(name) => {
                write!(f, "the tracepoint {name}")
            }
            Wanted::Probe(name) => write!(f, "the probe {name}"),
            Wanted::Cgroup(path) => write!(f, "the cgroup {path}"),
            Wanted::Ring(bytes) => write!(f, "ring buffers of {} KiB", bytes >> 10),
        }
    }
}

/// Explains an error of `perf_event_open` (or of its ring buffer) in one line that ends with the
/// command that helps, if one does.
pub fn explain(error: &io::Error, what: Wanted) -> String {
    let (why, unlock) = parts(error, &what, &Facts::read());
    match what {
        // These are not targets, and the reason names them.
        Wanted::Ring(_) => line("cannot record", &why, unlock),
        _ => line(&format!("cannot record {what}"), &why, unlock),
    }
}

fn line(what: &str, why: &str, unlock: Option<String>) -> String {
    match unlock {
        Some(command) => format!("{what}: {why}; try: {command}"),
        None => format!("{what}: {why}"),
    }
}

/// Explains why the stacks of other users' processes end after one frame although they are sampled,
/// in one line like [`explain`].
pub fn explain_hidden_mappings() -> String {
    let (why, unlock) = hidden_mappings("PID", &Facts::read());
    line("stacks of other users' processes end at once", &why, unlock)
}

/// The reason and the command.
pub(super) fn parts(error: &io::Error, what: &Wanted, facts: &Facts) -> (String, Option<String>) {
    let sudo = facts.sudo();
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => refused(what, facts),
        Some(libc::ENOSYS) if facts.paranoid.is_some() => {
            ("the sandbox or container forbids perf_event_open".into(), None)
        }
        Some(libc::ENOSYS) => ("the kernel was built without perf events".into(), None),
        Some(libc::EMFILE) => {
            let why = format!("too many open files (limit {})", facts.open_files.0);
            (why, Some(format!("{sudo}prlimit --pid $$ --nofile=1048576")))
        }
        Some(libc::ENFILE) => {
            let why = "too many open files on the whole machine".into();
            (why, Some(format!("{sudo}sysctl fs.file-max=2097152")))
        }
        Some(libc::EBUSY) => {
            let why = "another program holds the performance counters".into();
            (why, Some(format!("{sudo}sysctl kernel.nmi_watchdog=0")))
        }
        Some(libc::ESRCH) => ("it has ended".into(), None),
        Some(libc::ENOMEM) => ("the kernel has no memory for it".into(), None),
        Some(libc::ENOSPC) => ("all of the hardware's counters are in use".into(), None),
        Some(libc::ENODEV | libc::EOPNOTSUPP) => {
            ("this machine's hardware cannot sample the event".into(), None)
        }
        Some(libc::EINVAL | libc::E2BIG) => {
            ("the kernel does not support an option of the event".into(), None)
        }
        Some(libc::EBADF) => ("it is not a cgroup".into(), None),
        _ if error.kind() == io::ErrorKind::NotFound => not_found(what, facts),
        _ => (error.to_string(), None),
    }
}

fn not_found(what: &Wanted, facts: &Facts) -> (String, Option<String>) {
    match what {
        Wanted::Tracefs(_) if !facts::tracefs_is_mounted() => {
            let command = format!("{}mount -t tracefs nodev /sys/kernel/tracing", facts.sudo());
            ("tracefs is not mounted".into(), Some(command))
        }
        Wanted::Tracefs(_) => ("the kernel has no such tracepoint".into(), None),
        Wanted::Cgroup(_) => ("there is no such cgroup".into(), None),
        _ => ("this machine does not have the event".into(), None),
    }
}

/// Highest `perf_event_paranoid` that lets anyone record this; `None`: no level does.
fn level(what: &Wanted) -> Option<i32> {
    match what {
        Wanted::OwnProcess | Wanted::OtherProcess(_) => Some(2),
        Wanted::Kernel => Some(1),
        Wanted::WholeMachine | Wanted::Cgroup(_) => Some(0),
        Wanted::Tracepoint(_) => Some(-1),
        Wanted::Ring(_) | Wanted::Tracefs(_) | Wanted::Probe(_) => None,
    }
}

fn refused(what: &Wanted, facts: &Facts) -> (String, Option<String>) {
    let has_the_right = match what {
        Wanted::Ring(_) => facts.ring_limit().is_none(),
        Wanted::Tracefs(_) => facts.may_read_all(),
        _ => facts.may_perf(),
    };
    if has_the_right {
        return (policy(facts).into(), None);
    }
    if let Wanted::Ring(bytes) = what {
        return ring(*bytes, facts);
    }
    let sudo = facts.sudo();
    let paranoid = facts.paranoid.unwrap_or(2);
    let is_foreign = match what {
        Wanted::OtherProcess(pid) => facts::owner(*pid).is_some_and(|uid| uid != facts.uid),
        _ => false,
    };
    match level(what).filter(|_| !is_foreign) {
        Some(level) if paranoid > level => {
            let why = format!("kernel.perf_event_paranoid is {paranoid}, {}", meaning(paranoid));
            // Below 0, every user can read the raw data of all others: a capability for one program
            // is better.
            let unlock = match what {
                Wanted::Tracepoint(_) => setcap_tracepoints(facts),
                _ if level >= 0 && !facts.user_namespace => {
                    format!("{sudo}sysctl kernel.perf_event_paranoid={level}")
                }
                _ => setcap(facts),
            };
            (why, Some(unlock))
        }
        _ if matches!(what, Wanted::Tracefs(_)) && !facts.user_namespace => {
            ("tracefs is readable by root only".into(), Some(setcap_tracepoints(facts)))
        }
        _ if matches!(what, Wanted::Probe(_)) && !facts.user_namespace => {
            let why = "only root may put breakpoints into code, whatever perf_event_paranoid says";
            (why.into(), Some(setcap(facts)))
        }
        _ if facts.seccomp || facts.user_namespace => {
            let why = "the container forbids it: start it with --cap-add PERFMON \
                       --cap-add SYS_PTRACE, or run prof outside of it";
            (why.into(), None)
        }
        _ if is_foreign => ("it belongs to another user".into(), Some(setcap(facts))),
        _ if matches!(what, Wanted::OtherProcess(_)) => (
            "it has other privileges than its user (set-user-ID, or protected)".into(),
            Some(setcap(facts)),
        ),
        _ => ("the kernel's security policy forbids it".into(), None),
    }
}

/// The policy that refuses what the user's privileges allow.
fn policy(facts: &Facts) -> &'static str {
    if facts.seccomp {
        "a seccomp filter (of the container or sandbox) forbids it, whatever the user's privileges"
    } else {
        "the kernel's security policy forbids it, whatever the user's privileges"
    }
}

/// What a level of `perf_event_paranoid` allows to users without privileges.
pub(super) fn meaning(paranoid: i32) -> &'static str {
    match paranoid {
        ..=-1 => "which allows everything",
        0 => "which allows all but raw tracepoints",
        1 => "which allows your own processes with kernel frames, not the whole machine",
        2 => "which allows your own processes without kernel frames",
        // Only the kernels of Debian, Ubuntu and Android distinguish these from 2.
        3.. => "which allows your own processes without kernel frames, or nothing at all",
    }
}

/// The command that gives this program the capabilities that a profiler needs.
pub(super) fn setcap(facts: &Facts) -> String {
    give(facts, "cap_perfmon,cap_sys_ptrace")
}

/// Like [`setcap`], with the capability that tracepoints need: the files of tracefs are readable by
/// root only, whatever `perf_event_paranoid` is.
fn setcap_tracepoints(facts: &Facts) -> String {
    give(facts, "cap_perfmon,cap_sys_ptrace,cap_dac_read_search")
}

fn give(facts: &Facts, capabilities: &str) -> String {
    let program = facts.program.to_string_lossy();
    let safe = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    let program = if program.chars().all(safe) {
        program.into_owned()
    } else {
        format!("'{}'", program.replace('\'', r"'\''"))
    };
    format!("{}setcap {capabilities}=ep {program}", facts.sudo())
}

/// The reason why stacks end with the kernel's copy, and the command that helps.
pub(super) fn deep_stacks(error: &io::Error, facts: &Facts) -> (String, Option<String>) {
    let denied = matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES));
    match denied {
        true if facts.may_load_programs() => {
            ("BPF programs are forbidden here (a container, or kernel lockdown)".into(), None)
        }
        true => {
            let why = "more is copied by a BPF program, which needs CAP_BPF and CAP_PERFMON";
            (why.into(), Some(give(facts, "cap_bpf,cap_perfmon,cap_sys_ptrace")))
        }
        false => (format!("no BPF program can copy more ({error})"), None),
    }
}

/// The reason why stacks end with the kernel's copy, and what helps, in one sentence.
pub fn explain_deep_stacks(error: &io::Error) -> String {
    match deep_stacks(error, &Facts::read()) {
        (why, Some(unlock)) => format!("{why}; {unlock}"),
        (why, None) => why,
    }
}

/// The reason why the mappings of process `pid` cannot be read, and the command that helps.
pub(super) fn hidden_mappings(pid: &str, facts: &Facts) -> (String, Option<String>) {
    let why = format!("/proc/{pid}/maps cannot be read");
    (why, (!facts.may_trace()).then(|| setcap(facts)))
}

/// The reason why `/proc/kallsyms` has no addresses, and the command that makes it show them.
pub(super) fn hidden_symbols(facts: &Facts) -> (String, String) {
    let (kptr, paranoid) = (facts.kptr_restrict.unwrap_or(0), facts.paranoid.unwrap_or(2));
    let why = format!(
        "/proc/kallsyms hides the addresses (kernel.kptr_restrict is {kptr}, \
         kernel.perf_event_paranoid {paranoid})"
    );
    // The kernel shows them to all users when both settings allow it; else to CAP_SYSLOG unless
    // restrict is 2.
    let mut command = format!("{}sysctl", facts.sudo());
    if kptr > 0 {
        command += " kernel.kptr_restrict=0";
    }
    if paranoid > 1 {
        command += " kernel.perf_event_paranoid=1";
    }
    (why, command)
}

/// The reason why rings of `bytes` are not available, and the command that helps.
pub(super) fn ring(bytes: u64, facts: &Facts) -> (String, Option<String>) {
    let limit = facts.ring_limit().unwrap_or(0);
    let why = format!(
        "ring buffers of {} KiB a CPU at most: the limit is {} KiB a CPU \
         (kernel.perf_event_mlock_kb), then {} KiB (ulimit -l)",
        limit >> 10,
        facts.mlock_kb,
        if facts.memlock == u64::MAX { 0 } else { facts.memlock >> 10 },
    );
    // One page more, for the ring's header.
    let wanted = (bytes >> 10) + 4;
    (why, Some(format!("{}sysctl kernel.perf_event_mlock_kb={wanted}", facts.sudo())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(paranoid: i32) -> Facts {
        Facts {
            uid: 1000,
            paranoid: Some(paranoid),
            mlock_kb: 516,
            memlock: 8 << 20,
            open_files: (1024, 4096),
            cpus: 2,
            program: "/usr/bin/prof".into(),
            ..Facts::default()
        }
    }

    fn parts_of(errno: i32, what: Wanted, facts: &Facts) -> (String, String) {
        let (why, unlock) = parts(&io::Error::from_raw_os_error(errno), &what, facts);
        (why, unlock.unwrap_or_default())
    }

    #[test]
    fn each_level_names_the_one_that_would_do() {
        let tracepoint = || Wanted::Tracepoint("sched:sched_switch".into());
        let tracefs = || Wanted::Tracefs("sched:sched_switch".into());
        let setcap = "sudo setcap cap_perfmon,cap_sys_ptrace=ep /usr/bin/prof";
        let all = "sudo setcap cap_perfmon,cap_sys_ptrace,cap_dac_read_search=ep /usr/bin/prof";
        let cases = [
            (Wanted::OwnProcess, 3, "sudo sysctl kernel.perf_event_paranoid=2"),
            (Wanted::OwnProcess, 4, "sudo sysctl kernel.perf_event_paranoid=2"),
            (Wanted::Kernel, 2, "sudo sysctl kernel.perf_event_paranoid=1"),
            (Wanted::WholeMachine, 1, "sudo sysctl kernel.perf_event_paranoid=0"),
            (Wanted::Cgroup("/x".into()), 1, "sudo sysctl kernel.perf_event_paranoid=0"),
            (Wanted::OtherProcess(1), 0, setcap),
            (Wanted::OtherProcess(1), 4, setcap),
            (
                Wanted::OtherProcess(std::process::id()),
                4,
                "sudo sysctl kernel.perf_event_paranoid=2",
            ),
            (tracepoint(), 1, all),
            (tracefs(), 2, all),
            (tracefs(), -1, all),
            (Wanted::Ring(8 << 20), 2, "sudo sysctl kernel.perf_event_mlock_kb=8196"),
        ];
        for (what, paranoid, command) in cases {
            let facts = match what {
                Wanted::OtherProcess(1) => user(paranoid),
                _ => Facts { uid: facts::owner(std::process::id()).unwrap(), ..user(paranoid) },
            };
            let command =
                if facts.uid == 0 { command.replace("sudo s", "s") } else { command.into() };
            let (why, unlock) = parts_of(libc::EACCES, what.clone(), &facts);
            assert_eq!(unlock, command, "{what:?} at {paranoid}: {why}");
        }
    }

    #[test]
    fn probes_need_a_right_at_any_level() {
        let probe = || Wanted::Probe("probe:f".into());
        let (why, unlock) = parts_of(libc::EACCES, probe(), &user(-1));
        assert!(why.contains("only root") && unlock.contains("cap_perfmon"), "{why}: {unlock}");
        let facts = Facts { capabilities: 1 << 38, ..user(2) };
        assert!(parts_of(libc::EACCES, probe(), &facts).0.contains("security policy"));
    }

    /// The privilege to profile does not include reading tracefs.
    #[test]
    fn tracefs_has_a_reason_of_its_own() {
        let tracefs = || Wanted::Tracefs("sched:sched_switch".into());
        let mut facts = Facts { capabilities: 1 << 38, ..user(2) };
        let (why, unlock) = parts_of(libc::EACCES, tracefs(), &facts);
        assert!(why.contains("readable by root only"), "{why}");
        assert!(unlock.contains("cap_dac_read_search"), "{unlock}");
        facts.capabilities |= 1 << 2;
        let (why, unlock) = parts_of(libc::EPERM, tracefs(), &facts);
        assert!(why.contains("security policy") && unlock.is_empty(), "{why}");
    }

    #[test]
    fn rings_are_refused_by_a_limit_or_by_a_policy() {
        let mut facts = Facts { mlock_kb: 8, memlock: 0, ..user(2) };
        let (why, unlock) = parts_of(libc::EPERM, Wanted::Ring(8 << 20), &facts);
        assert!(why.contains("kernel.perf_event_mlock_kb") && why.contains("ulimit -l"), "{why}");
        assert_eq!(unlock, "sudo sysctl kernel.perf_event_mlock_kb=8196");
        facts.paranoid = Some(-1);
        let (why, unlock) = parts_of(libc::EPERM, Wanted::Ring(8 << 20), &facts);
        assert!(why.contains("security policy") && unlock.is_empty(), "{why}");
    }

    #[test]
    fn a_refusal_in_spite_of_all_rights_is_the_sandboxs() {
        let mut root = Facts { uid: 0, capabilities: u64::MAX, ..user(2) };
        let (why, unlock) = parts_of(libc::EPERM, Wanted::OwnProcess, &root);
        assert!(why.contains("security policy") && unlock.is_empty(), "{why}");
        root.seccomp = true;
        assert!(parts_of(libc::EPERM, Wanted::OwnProcess, &root).0.contains("seccomp"));
        // Root of an unprivileged container has no privileges in the kernel.
        root.user_namespace = true;
        let (why, _) = parts_of(libc::EPERM, Wanted::OwnProcess, &root);
        assert!(why.contains("--cap-add PERFMON"), "{why}");
    }

    #[test]
    fn other_errors_have_their_own_words() {
        let facts = user(2);
        let cases = [
            (libc::EMFILE, "too many open files", true),
            (libc::ENFILE, "whole machine", true),
            (libc::EBUSY, "another program", true),
            (libc::ESRCH, "it has ended", false),
            (libc::ENODEV, "hardware", false),
            (libc::EINVAL, "option", false),
            (libc::ENOENT, "does not have the event", false),
            (libc::ENOSYS, "sandbox", false),
            (libc::EIO, "Input/output error", false),
        ];
        for (errno, words, has_command) in cases {
            let (why, unlock) = parts_of(errno, Wanted::OwnProcess, &facts);
            assert!(why.contains(words), "{errno}: {why}");
            assert_eq!(!unlock.is_empty(), has_command, "{errno}: {unlock}");
        }
        let old = Facts { paranoid: None, ..facts };
        assert!(parts_of(libc::ENOSYS, Wanted::OwnProcess, &old).0.contains("without perf events"));
    }

    #[test]
    fn the_line_names_what_was_wanted() {
        let error = io::Error::from_raw_os_error(libc::ESRCH);
        let line = explain(&error, Wanted::OtherProcess(42));
        assert_eq!(line, "cannot record process 42: it has ended");
    }

    #[test]
    fn hidden_symbols_name_the_settings_in_the_way() {
        let command = |kptr, paranoid| {
            hidden_symbols(&Facts { kptr_restrict: Some(kptr), ..user(paranoid) }).1
        };
        assert_eq!(command(0, 2), "sudo sysctl kernel.perf_event_paranoid=1");
        assert_eq!(command(1, 1), "sudo sysctl kernel.kptr_restrict=0");
        let both = "sudo sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1";
        assert_eq!(command(2, 4), both);
    }

    #[test]
    fn the_command_survives_a_shell() {
        let facts = Facts { uid: 0, program: "/a b/it's/prof".into(), ..Facts::default() };
        assert_eq!(setcap(&facts), r"setcap cap_perfmon,cap_sys_ptrace=ep '/a b/it'\''s/prof'");
    }
}
