//! The kernel, its settings and this user's privileges: why something cannot be recorded, and what
//! the doctor finds.

macro_rules! host {
    ($next:ident $($more:ident)*; $($before:tt)*) => { $next! { $($more)*; $($before)*

/// The kernel refuses to record something.
Refused "cannot-record" Missing { wanted: Wanted = "what", why: Box<Message> = "the reason" }
    ("cannot record{}", wanted.after_verb()) [because why];

/// `kernel.perf_event_paranoid` is too high.
Paranoid "perf-event-paranoid" Missing {
    level: i32 = "its level",
    needed: i32 = "the highest level that allows it to everyone",
    program: Option<String> = "path of prof, if a capability is better than another level",
    sudo: bool = "the user is not root",
} ("kernel.perf_event_paranoid is {level}, {}", words::paranoid(*level))
    ["; try: " => Some(match program {
        Some(program) if *needed < 0 => words::rights(words::TRACEPOINTS, program, *sudo),
        Some(program) => words::rights(words::PROFILER, program, *sudo),
        None => words::command(*sudo, &format!("sysctl kernel.perf_event_paranoid={needed}")),
    })];

/// Only root may read tracefs.
TracefsOfRoot "tracefs-of-root" Missing {
    program: String = "path of prof", sudo: bool = "the user is not root",
} ("tracefs is readable by root only")
    ["; try: " => Some(words::rights(words::TRACEPOINTS, program, *sudo))];

/// Only root may set breakpoints.
BreakpointsOfRoot "breakpoints-of-root" Missing {
    program: String = "path of prof", sudo: bool = "the user is not root",
} ("only root may put breakpoints into code, whatever perf_event_paranoid says")
    ["; try: " => Some(words::rights(words::PROFILER, program, *sudo))];

/// An unprivileged container.
Container "forbidden-by-container" Missing
    ("the container forbids it: start it with --cap-add PERFMON --cap-add SYS_PTRACE, or run prof \
      outside of it");

/// A seccomp filter, in spite of all privileges.
Seccomp "forbidden-by-seccomp" Missing
    ("a seccomp filter (of the container or sandbox) forbids it, whatever the user's privileges");

/// A security module or lockdown, in spite of all privileges.
PolicyForAll "forbidden-by-policy-for-all" Missing
    ("the kernel's security policy forbids it, whatever the user's privileges");

/// A security module or lockdown.
Policy "forbidden-by-policy" Missing ("the kernel's security policy forbids it");

/// The process is another user's.
OtherUser "other-user" Missing {
    program: String = "path of prof", sudo: bool = "the user is not root",
} ("it belongs to another user")
    ["; try: " => Some(words::rights(words::PROFILER, program, *sudo))];

/// The process has more privileges than its user.
OtherPrivileges "other-privileges" Missing {
    program: String = "path of prof", sudo: bool = "the user is not root",
} ("it has other privileges than its user (set-user-ID, or protected)")
    ["; try: " => Some(words::rights(words::PROFILER, program, *sudo))];

/// The sandbox has no `perf_event_open`.
NoSystemCall "no-system-call" Missing ("the sandbox or container forbids perf_event_open");

/// The kernel has no perf events.
NoPerfEvents "no-perf-events" Missing ("the kernel was built without perf events");

/// The limit of open files is reached.
OpenFiles "open-files" Missing {
    limit: u64 = "the limit", sudo: bool = "the user is not root",
} ("too many open files (limit {limit})")
    ["; try: " => Some(words::command(*sudo, "prlimit --pid $$ --nofile=1048576"))];

/// The machine's limit of open files is reached.
OpenFilesOfMachine "open-files-of-machine" Missing { sudo: bool = "the user is not root" }
    ("too many open files on the whole machine")
    ["; try: " => Some(words::command(*sudo, "sysctl fs.file-max=2097152"))];

/// Another program holds the counters; the NMI watchdog is the usual one.
CountersHeld "counters-held" Missing { sudo: bool = "the user is not root" }
    ("another program holds the performance counters")
    ["; try: " => Some(words::command(*sudo, "sysctl kernel.nmi_watchdog=0"))];

/// The hardware has no counters left.
CountersUsedUp "counters-used-up" Missing ("all of the hardware's counters are in use");

/// The hardware has no such event.
Hardware "hardware-cannot-sample" Missing ("this machine's hardware cannot sample the event");

/// The kernel lacks an option of the event.
EventOption "event-option-unsupported" Missing ("the kernel does not support an option of the event");

/// The process has ended.
Ended "process-ended" Missing ("it has ended");

/// The kernel has no memory.
NoMemory "no-memory" Missing ("the kernel has no memory for it");

/// The directory is no cgroup.
NotCgroup "not-a-cgroup" Missing ("it is not a cgroup");

/// tracefs is not mounted.
TracefsNotMounted "tracefs-not-mounted" Missing { sudo: bool = "the user is not root" }
    ("tracefs is not mounted")
    ["; try: " => Some(words::command(*sudo, "mount -t tracefs nodev /sys/kernel/tracing"))];

/// The kernel lacks the tracepoint.
NoTracepoint "no-tracepoint" Missing ("the kernel has no such tracepoint");

/// The cgroup does not exist.
NoCgroup "no-cgroup" Missing ("there is no such cgroup");

/// The machine lacks the event.
NoEvent "no-event" Missing ("this machine does not have the event");

/// The memory for ring buffers is limited.
RingMemory "ring-memory" Missing {
    wanted: u64 = "the required size of each ring in bytes",
    limit: u64 = "the largest possible size in bytes",
    mlock_kb: u64 = "`kernel.perf_event_mlock_kb`",
    memlock_kb: u64 = "`ulimit -l` in KiB, 0 if there is none",
    sudo: bool = "the user is not root",
} ("ring buffers of {} KiB a CPU at most: the limit is {mlock_kb} KiB a CPU \
    (kernel.perf_event_mlock_kb), then {memlock_kb} KiB (ulimit -l)", limit >> 10)
    // One page more, for the ring's header.
    ["; try: " => Some(words::command(
        *sudo,
        &format!("sysctl kernel.perf_event_mlock_kb={}", (wanted >> 10) + 4),
    ))];

/// BPF programs are forbidden in spite of all privileges.
NoPrograms "no-bpf-programs" Missing
    ("BPF programs are forbidden here (a container, or kernel lockdown)");

/// BPF programs need capabilities.
ProgramsNeedCapabilities "bpf-programs-need-capabilities" Missing {
    program: String = "path of prof", sudo: bool = "the user is not root",
} ("more is copied by a BPF program, which needs CAP_BPF and CAP_PERFMON")
    ["; try: " => Some(words::rights(words::PROGRAMS, program, *sudo))];

/// BPF programs cannot be loaded.
ProgramsFail "bpf-programs-fail" Missing { error: String = "the system's error" }
    ("no BPF program can copy more ({error})");

/// The mappings of other users' processes cannot be read.
HiddenMappings "hidden-mappings" Missing {
    program: Option<String> = "path of prof, if it lacks the capability",
    sudo: bool = "the user is not root",
} ("/proc/PID/maps cannot be read")
    ["; try: " => program.as_ref().map(|path| words::rights(words::PROFILER, path, *sudo))];

/// Samples of a process are possible, but its mappings cannot be read.
SamplesWithoutMappings "samples-without-mappings" Missing {
    pid: u32 = "the process",
    program: Option<String> = "path of prof, if it lacks the capability",
    sudo: bool = "the user is not root",
} ("samples are possible, but /proc/{pid}/maps cannot be read")
    ["; try: " => program.as_ref().map(|path| words::rights(words::PROFILER, path, *sudo))];

/// `/proc/kallsyms` has no addresses: the kernel shows them to all users when both settings allow
/// it.
HiddenSymbols "hidden-symbols" Missing {
    kptr: i32 = "`kernel.kptr_restrict`",
    paranoid: i32 = "`kernel.perf_event_paranoid`",
    sudo: bool = "the user is not root",
} ("/proc/kallsyms hides the addresses (kernel.kptr_restrict is {kptr}, \
    kernel.perf_event_paranoid {paranoid})")
    ["; try: " => Some(words::command(*sudo, &format!(
        "sysctl{}{}",
        if *kptr > 0 { " kernel.kptr_restrict=0" } else { "" },
        if *paranoid > 1 { " kernel.perf_event_paranoid=1" } else { "" },
    )))];

/// `/proc/kallsyms` is empty.
NoSymbols "no-kernel-symbols" Missing ("/proc/kallsyms is empty");

/// `/proc/kallsyms` cannot be read.
SymbolsUnreadable "kernel-symbols-unreadable" Missing { error: String = "the system's error" }
    ("/proc/kallsyms: {error}");

/// There is no other user's process to try, and the capability is not held.
NoOtherProcess "no-other-process" Missing
    ("there are none to try, and CAP_SYS_PTRACE is not held");

/// The machine has no performance counters.
NoCounters "no-performance-counters" Missing
    ("no performance counters here (as in most virtual machines): the event cpu-clock takes the \
      place of cycles");

/// The kernel does not aggregate wall time.
NoWallTime "wall-time-not-aggregated" Missing { error: String = "the system's error" }
    ("wall time is not aggregated in the kernel ({error}): {}", words::EVENTS_INSTEAD);

/// The kernel times neither wall time nor calls.
NoTimedCalls "calls-not-timed" Missing { error: String = "the system's error" }
    ("wall time, waits for locks and system calls are not timed in the kernel ({error}): {}",
     words::EVENTS_INSTEAD);

/// The hard limit of open files is low.
FewFiles "few-open-files" Missing {
    hard: Option<u64> = "the hard limit, null if unlimited",
    soft: Option<u64> = "the soft limit, null if unlimited",
    threads: Option<u64> = "the number of threads for which it suffices, null if any",
    needed: u64 = "the limit that suffices for 1000 threads",
    sudo: bool = "the user is not root",
} ("{}", words::file_limit(*hard, *soft, *threads))
    ["; try: " => Some(words::command(*sudo, &format!("prlimit --pid $$ --nofile={needed}")))];

/// There are no debug symbols of the system's libraries.
NoDebugSymbols "no-debug-symbols" Missing {
    manager: Option<PackageManager> = "`apt`, `dnf` or `zypper`, if known",
    sudo: bool = "the user is not root",
} ("none of the system's libraries in /usr/lib/debug (programs that carry their own need none)")
    ["; try: " => manager.map(|manager| words::command(*sudo, manager.debug_symbols()))];

/// Any other error of the system.
System "system-error" Missing { error: String = "the system's error" } ("{error}");

/// Stacks end after 64 KiB, which is what the kernel itself copies.
StacksEndEarly "stacks-end-early" Missing { why: Box<Message> = "the reason" }
    ("stacks end after 64 KiB") [because why];

/// Processes of this user can be recorded.
OwnProcesses "own-processes-work" Detail ("prof record -p PID, -- COMMAND");

/// Kernel code can be recorded.
KernelFrames "kernel-frames-work" Detail ("stacks include the kernel's part");

/// A process of another user can be recorded.
OtherProcess "other-process-works" Detail { pid: u32 = "the process" }
    ("process {pid} was tried");

/// Processes of other users can be recorded, as the capability is held.
AnyProcess "any-process-works" Detail ("there are none now, but CAP_SYS_PTRACE is held");

/// The whole machine can be recorded.
WholeMachine "whole-machine-works" Detail ("prof record -a");

/// Hardware events can be recorded.
HardwareEvents "hardware-events-work" Detail ("cycles, instructions, cache-misses, …");

/// Tracepoints can be recorded.
Tracepoints "tracepoints-work" Detail { tried: String = "the one that was tried" }
    ("{tried} was tried");

/// BPF programs aggregate in the kernel.
KernelPrograms "kernel-programs-work" Detail
    ("wall time, waits for locks and system calls are timed in the kernel");

/// Stacks of more than 64 KiB are copied.
DeepStacks "deep-stacks-work" Detail
    ("up to 2 MiB of each stack are copied at 99 Hz, 256 KiB at 999");

/// Ring buffers do not lose samples at usual rates.
RingBuffers "ring-buffers-work" Detail {
    mib: u64 = "the size of each in MiB", cpus: u64 = "their number",
} ("{mib} MiB on {} can be locked in memory", words::each_cpu(*cpus));

/// The hard limit of open files suffices for many threads.
EnoughFiles "enough-open-files" Detail {
    hard: Option<u64> = "the hard limit, null if unlimited",
    soft: Option<u64> = "the soft limit, null if unlimited",
    threads: Option<u64> = "the number of threads for which it suffices, null if any",
} ("{}", words::file_limit(*hard, *soft, *threads));

/// The kernel's functions have names.
KernelSymbols "kernel-symbols-work" Detail ("/proc/kallsyms has them");

/// Functions of the system's libraries have names.
DebugSymbols "debug-symbols-work" Detail
    ("/usr/lib/debug has some of the system's libraries");

    } };
}
