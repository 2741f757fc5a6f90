//! The words for obstacles, and the commands that help.

use std::fmt;
use std::path::Path;

use super::obstacle::{Capabilities, Change, FileLimit, Obstacle, Reason, Refusal, Unlock, Wanted};
use sys::Error;

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

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.wanted {
            // These are not targets, and the reason names them.
            Wanted::Ring(_) => write!(f, "cannot record: {}", self.obstacle),
            wanted => write!(f, "cannot record {wanted}: {}", self.obstacle),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        Error::failed(refusal.to_string())
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.unlock {
            Some(command) => write!(f, "{}; try: {command}", self.reason),
            None => self.reason.fmt(f),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Paranoid { level, .. } => {
                write!(f, "kernel.perf_event_paranoid is {level}, {}", meaning(*level))
            }
            Reason::OpenFiles(limit) => write!(f, "too many open files (limit {limit})"),
            Reason::RingMemory { limit, mlock_kb, memlock_kb, .. } => write!(
                f,
                "ring buffers of {} KiB a CPU at most: the limit is {mlock_kb} KiB a CPU \
                 (kernel.perf_event_mlock_kb), then {memlock_kb} KiB (ulimit -l)",
                limit >> 10
            ),
            Reason::ProgramsFail(error) => write!(f, "no BPF program can copy more ({error})"),
            Reason::HiddenMappings { pid: Some(pid) } => {
                write!(f, "/proc/{pid}/maps cannot be read")
            }
            Reason::HiddenMappings { pid: None } => f.write_str("/proc/PID/maps cannot be read"),
            Reason::HiddenSymbols { kptr, paranoid } => write!(
                f,
                "/proc/kallsyms hides the addresses (kernel.kptr_restrict is {kptr}, \
                 kernel.perf_event_paranoid {paranoid})"
            ),
            Reason::SymbolsUnreadable(error) => write!(f, "/proc/kallsyms: {error}"),
            Reason::NoWallTime(error) => {
                write!(f, "wall time is not aggregated in the kernel ({error}): {EVENTS_INSTEAD}")
            }
            Reason::NoTimedCalls(error) => write!(
                f,
                "wall time, waits for locks and system calls are not timed in the kernel \
                 ({error}): {EVENTS_INSTEAD}"
            ),
            Reason::FewFiles(limit) => limit.fmt(f),
            Reason::System(error) => f.write_str(error),
            fixed => f.write_str(sentence(fixed)),
        }
    }
}

const EVENTS_INSTEAD: &str = "events report each of them instead, which costs more";

/// The sentence of a reason without facts.
fn sentence(reason: &Reason) -> &'static str {
    match reason {
        Reason::TracefsOfRoot => "tracefs is readable by root only",
        Reason::BreakpointsOfRoot => {
            "only root may put breakpoints into code, whatever perf_event_paranoid says"
        }
        Reason::Container => {
            "the container forbids it: start it with --cap-add PERFMON --cap-add SYS_PTRACE, or \
             run prof outside of it"
        }
        Reason::Seccomp => {
            "a seccomp filter (of the container or sandbox) forbids it, whatever the user's \
             privileges"
        }
        Reason::PolicyForAll => {
            "the kernel's security policy forbids it, whatever the user's privileges"
        }
        Reason::Policy => "the kernel's security policy forbids it",
        Reason::OtherUser => "it belongs to another user",
        Reason::OtherPrivileges => {
            "it has other privileges than its user (set-user-ID, or protected)"
        }
        Reason::NoSystemCall => "the sandbox or container forbids perf_event_open",
        Reason::NoPerfEvents => "the kernel was built without perf events",
        Reason::OpenFilesOfMachine => "too many open files on the whole machine",
        Reason::CountersHeld => "another program holds the performance counters",
        Reason::CountersUsedUp => "all of the hardware's counters are in use",
        Reason::Hardware => "this machine's hardware cannot sample the event",
        Reason::Option => "the kernel does not support an option of the event",
        Reason::Ended => "it has ended",
        Reason::NoMemory => "the kernel has no memory for it",
        Reason::NotCgroup => "it is not a cgroup",
        Reason::TracefsNotMounted => "tracefs is not mounted",
        Reason::NoTracepoint => "the kernel has no such tracepoint",
        Reason::NoCgroup => "there is no such cgroup",
        Reason::NoEvent => "this machine does not have the event",
        Reason::NoPrograms => "BPF programs are forbidden here (a container, or kernel lockdown)",
        Reason::ProgramsNeedCapabilities => {
            "more is copied by a BPF program, which needs CAP_BPF and CAP_PERFMON"
        }
        Reason::NoSymbols => "/proc/kallsyms is empty",
        Reason::NoOtherProcess => "there are none to try, and CAP_SYS_PTRACE is not held",
        Reason::NoCounters => {
            "no performance counters here (as in most virtual machines): the event cpu-clock takes \
             the place of cycles"
        }
        Reason::NoDebugSymbols(_) => {
            "none of the system's libraries in /usr/lib/debug (programs that carry their own need \
             none)"
        }
        // These have facts.
        Reason::Paranoid { .. }
        | Reason::OpenFiles(_)
        | Reason::RingMemory { .. }
        | Reason::ProgramsFail(_)
        | Reason::HiddenMappings { .. }
        | Reason::HiddenSymbols { .. }
        | Reason::SymbolsUnreadable(_)
        | Reason::NoWallTime(_)
        | Reason::NoTimedCalls(_)
        | Reason::FewFiles(_)
        | Reason::System(_) => "",
    }
}

/// The meaning of a level of `perf_event_paranoid` for users without privileges.
fn meaning(paranoid: i32) -> &'static str {
    match paranoid {
        ..=-1 => "which allows everything",
        0 => "which allows all but raw tracepoints",
        1 => "which allows your own processes with kernel frames, not the whole machine",
        2 => "which allows your own processes without kernel frames",
        // Only the kernels of Debian, Ubuntu and Android distinguish these from 2.
        3.. => "which allows your own processes without kernel frames, or nothing at all",
    }
}

impl fmt::Display for FileLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |n: u64| if n == u64::MAX { "unlimited".to_owned() } else { n.to_string() };
        let [hard, soft, threads] = [self.hard, self.soft, self.threads].map(shown);
        write!(f, "limit {hard} (now {soft}): enough for processes of {threads} threads")
    }
}

impl fmt::Display for Unlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.sudo {
            f.write_str("sudo ")?;
        }
        match &self.change {
            Change::Paranoid(level) => write!(f, "sysctl kernel.perf_event_paranoid={level}"),
            Change::Symbols { kptr, paranoid } => {
                f.write_str("sysctl")?;
                f.write_str(if *kptr { " kernel.kptr_restrict=0" } else { "" })?;
                f.write_str(if *paranoid { " kernel.perf_event_paranoid=1" } else { "" })
            }
            Change::RingMemory(kib) => write!(f, "sysctl kernel.perf_event_mlock_kb={kib}"),
            Change::NoWatchdog => f.write_str("sysctl kernel.nmi_watchdog=0"),
            Change::OpenFiles(files) => write!(f, "prlimit --pid $$ --nofile={files}"),
            Change::OpenFilesOfMachine => f.write_str("sysctl fs.file-max=2097152"),
            Change::MountTracefs => f.write_str("mount -t tracefs nodev /sys/kernel/tracing"),
            Change::Capabilities { capabilities, program } => {
                write!(f, "setcap {capabilities}=ep {}", shell_word(program))
            }
            Change::DebugSymbols(command) => f.write_str(command),
        }
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Capabilities::Profiler => "cap_perfmon,cap_sys_ptrace",
            Capabilities::Tracepoints => "cap_perfmon,cap_sys_ptrace,cap_dac_read_search",
            Capabilities::Programs => "cap_bpf,cap_perfmon,cap_sys_ptrace",
        })
    }
}

/// A path, quoted for a shell if necessary.
fn shell_word(path: &Path) -> String {
    let path = path.to_string_lossy();
    let safe = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if path.chars().all(safe) {
        path.into_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::super::facts::{self, Facts};
    use super::super::obstacle::refusal;
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
        let error = io::Error::from_raw_os_error(errno);
        let Obstacle { reason, unlock } = Obstacle::from_error(&error, &what, facts);
        (reason.to_string(), unlock.map_or(String::new(), |unlock| unlock.to_string()))
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
        let line = refusal(&error, Wanted::OtherProcess(42)).to_string();
        assert_eq!(line, "cannot record process 42: it has ended");
    }

    #[test]
    fn hidden_symbols_name_the_settings_in_the_way() {
        let command = |kptr, paranoid| {
            let reason = Reason::HiddenSymbols { kptr, paranoid };
            Obstacle::new(reason, &user(paranoid)).unlock.unwrap().to_string()
        };
        assert_eq!(command(0, 2), "sudo sysctl kernel.perf_event_paranoid=1");
        assert_eq!(command(1, 1), "sudo sysctl kernel.kptr_restrict=0");
        let both = "sudo sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1";
        assert_eq!(command(2, 4), both);
    }

    #[test]
    fn an_obstacle_ends_with_its_command() {
        let bare = Obstacle { reason: Reason::Ended, unlock: None };
        assert_eq!(bare.to_string(), "it has ended");
        let error = io::Error::from_raw_os_error(libc::EPERM);
        assert_eq!(
            Obstacle::for_deep_stacks(&error, &user(2)).to_string(),
            "more is copied by a BPF program, which needs CAP_BPF and CAP_PERFMON; try: sudo \
             setcap cap_bpf,cap_perfmon,cap_sys_ptrace=ep /usr/bin/prof"
        );
        let root = Facts { uid: 0, capabilities: u64::MAX, ..user(2) };
        assert_eq!(Obstacle::for_deep_stacks(&error, &root).reason, Reason::NoPrograms);
    }

    #[test]
    fn the_command_survives_a_shell() {
        let facts = Facts { uid: 0, program: "/a b/it's/prof".into(), ..Facts::default() };
        let obstacle = Obstacle::new(Reason::OtherUser, &facts);
        let command = obstacle.unlock.unwrap().to_string();
        assert_eq!(command, r"setcap cap_perfmon,cap_sys_ptrace=ep '/a b/it'\''s/prof'");
    }
}
