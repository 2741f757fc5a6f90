//! A recording as a whole: its target, its samples, and limits of the system.

macro_rules! recording {
    ($next:ident $($more:ident)*; $($before:tt)*) => { $next! { $($more)*; $($before)*

/// The target used hardly any CPU, but its children did, which were not recorded.
IdleParent "idle-parent" Missing {
    pid: i32 = "the target's first process",
    #[serde(with = "json::finite")]
    seconds: f64 = "CPU time of its children",
} ("process {pid} was idle while its children used {seconds:.1} s of CPU")
    ["; ", "--tree records them too"];

/// There are no samples.
NoSamples "no-samples" Missing {
    #[serde(with = "json::finite")]
    seconds: f64 = "length of the recording",
    why: Box<Message> = "the reason",
} ("no samples in {seconds:.1} s") [because why];

/// The user ended the recording before a sample, and the target still runs.
Interrupted "interrupted-early" Missing { scope: Scope = "the target" }
    ("the {scope} was interrupted too early, or used no CPU until then");

/// The recorded events did not occur.
NothingHappened "nothing-happened" Missing {
    scope: Scope = "the target", events: Vec<String> = "their names",
} ("the {scope} had no {} in that time", events.join(", "));

/// The target used less CPU time than there is between two samples.
LittleTime "little-cpu-time" Missing {
    scope: Scope = "the target",
    #[serde(with = "json::finite")]
    seconds: f64 = "its CPU time",
    period: u64 = "ns between two samples",
} ("the {scope} used {:.1} ms of CPU, and a sample is due every {:.1} ms", seconds * 1e3,
   *period as f64 / 1e6) ["; ", "raise -F"];

/// The target ended before a sample.
EndedEarly "target-ended" Missing {
    scope: Scope = "the target", place: SampledPlace = "the restriction of samples",
} ("the {scope} ended before a sample was due{place}") ["; ", "raise -F"];

/// The target used no CPU.
Idle "target-idle" Missing {
    scope: Scope = "the target", place: SampledPlace = "the restriction of samples",
} ("the {scope} used no CPU{place} in that time (it slept or waited)");

/// The samples do not cover all CPU time of the target.
Uncovered "uncovered-cpu-time" Figures if (why.is_systematic() || covered.is_certain(*period)) {
    covered: CpuCoverage = "the sampled part",
    period: u64 = "ns between two samples",
    scope: Scope = "the target",
    why: Box<Message> = "the cause",
} ("the samples cover {:.0} % of the {:.1} s of CPU time that {} used", covered.percent(),
   covered.used as f64 / 1e9, scope.user_of_time()) [because why];

/// The machine is too slow for the rate.
TooFrequent "too-frequent" Figures ("the machine cannot take samples that often")
    ["; ", "{}", LossRemedy::LowerRateOrLongerPeriod];

/// The kernel skips samples whose timer is late.
LateTimers "late-timers" Figures ("the kernel skips samples whose timer is late");

/// The kernel skips samples whose timer is late, and drops those that interrupt BPF programs.
LateTimersAndPrograms "late-timers-and-programs" Figures {
    frame_pointers_help: bool = "`-g fp` records without the programs",
} ("the kernel skips samples whose timer is late, and those that come while BPF programs or calls \
    of bpf(2) run") ["; " => frame_pointers_help.then_some("-g fp takes the latter")];

/// Threads end before their first sample is due.
ShortThreads "short-threads" Figures {
    period: u64 = "ns between two samples",
    whole_cpus: bool = "at a higher rate, whole CPUs are sampled",
} ("threads that use less than {:.1} ms each are missed", *period as f64 / 1e6)
    ["; " => Some(if *whole_cpus {
        "-F 999 samples them"
    } else {
        "raise -F, or record the whole machine with -a"
    })];

/// The command has other privileges than its user.
PrivilegedCommand "privileged-command" Missing {
    program: String = "the program, with its privileges", root: bool = "the user is root",
} ("{program}: when it starts, the kernel {}", if *root {
    "ends the recording of its threads"
} else {
    "hides it from this user"
}) ["; " => Some(if *root { "record it with -a, or with -p when it runs" } else { "run prof as root" })];

/// Processes that the command started outlived it.
Outlived "command-outlived" Missing {
    pid: i32 = "one of them",
    name: Option<String> = "the name of that process, unless it has ended",
    processes: u64 = "their number",
    arguments: String = "the arguments of `prof record` for the recorded profile types",
} ("the recording ended with the command, but {}",
   words::still_running(*pid, name.as_deref(), *processes))
    [": ", "start it in the foreground, or record it with prof record{} -p {pid}",
     words::arguments(arguments)];

/// The mappings of other users' processes cannot be read, so that their stacks end.
StacksWithoutMappings "stacks-without-mappings" Figures { why: Box<Message> = "the reason" }
    ("stacks of other users' processes end at once") [because why];

/// Threads without a label of their own.
UnlabelledThreads "unlabelled-threads" Detail { threads: u64 = "their number" }
    ("{} labelled by name and process only (no label tid): there were too many",
    words::agreeing(*threads, "thread", "is", "are"));

/// Mappings that were not distinguished.
IndistinctMappings "indistinct-mappings" Detail { mappings: u64 = "their number" }
    ("{} not distinguished, because there were too many: samples in {} have no names",
    words::agreeing(*mappings, "file mapping", "was", "were"),
    words::by_number(*mappings, "it", "them"));

/// Binaries whose unwind information or code was not read completely.
AnalysisLimits "analysis-limits" Figures { binaries: Vec<String> = "their paths" }
    ("stacks through {} may be truncated: the limit of time and memory for unwind information and \
      code was reached", words::first(binaries));

/// Binaries could not be opened.
NotOpened "binaries-not-opened" Figures {
    binaries: Vec<String> = "their paths", why: Box<Message> = "the reason",
} ("stacks through {} may be truncated, and names in them missing", words::first(binaries))
    [because why];

/// This user may not open the files.
Forbidden "files-forbidden" Missing ("not readable by this user");

/// A binary was truncated while it was read.
BinaryTruncated "binary-truncated" Detail
    ("a program's or library's file was truncated while it was read: stacks through it may be \
      truncated, names in it missing");

/// Deep stacks are not copied completely.
NoDeepStacks "deep-stacks-not-copied" Detail { why: Box<Message> = "the reason" }
    ("deep stacks end where the kernel's copy of them does") [because why];

/// Deep stacks that were not copied in time.
DeepStacksLate "deep-stacks-late" Detail { stacks: u64 = "their number" }
    ("{} truncated because prof could not copy {} in time",
     words::agreeing(*stacks, "deep stack", "is", "are"), words::by_number(*stacks, "it", "them"))
    [": ", "{}", LossRemedy::LowerRate];

/// Deep stacks of which two copies differ.
DeepStacksDiffered "deep-stacks-differed" Detail { stacks: u64 = "their number" }
    ("{} truncated because two copies of the same moment differ",
    words::agreeing(*stacks, "deep stack", "is", "are"));

/// Functions of interpreted programs are not read.
InterpretersNotRead "interpreters-not-read" Detail { why: Box<Message> = "the reason" }
    ("functions of interpreted programs are not shown") [because why];

/// Functions are read at samples of some events only.
NotReadAtEvents "not-read-at-these-events" Missing
    ("they are read at samples of CPU clocks and hardware events, and where programs in the kernel \
      time waits and calls");

/// Functions of interpreted programs are read with copies of stacks.
NoStackCopies "no-stack-copies" Missing ("they are read with copies of stacks") ["; ", "leave out -g"];

/// Functions of interpreted programs are not read within a PID namespace.
InnerPidNamespace "inner-pid-namespace" Missing
    ("prof runs in a PID namespace of its own")
    ["; ", "record from the host, or start the container with --pid=host"];

/// The kernel is too old for the programs that read functions of interpreted programs.
NoProgramLoops "no-bpf-program-loops" Missing ("Linux 6.9 or newer is needed");

/// An interpreter whose programs' functions prof cannot read.
InterpreterNotSupported "interpreter-not-supported" Detail {
    interpreter: String = "its name",
    why: String = "what is not supported of it",
    processes: u64 = "the number of processes",
} ("functions of {} with {interpreter} are not shown: {why}",
   words::counted_as(*processes, "process", "processes"));

/// Stacks of interpreted programs with native frames only, of samples before they were recognized.
NativeInterpreterStacks "native-interpreter-stacks" Detail {
    stacks: u64 = "their number", shown: u64 = "the number of those with the program's functions",
} ("{} of interpreted programs {} native frames only: the sample came before the interpreter was \
    recognized", words::counted(*stacks, "stack"), words::by_number(*stacks, "has", "have"));

/// Stacks of interpreted programs with native frames only, of later samples.
UncopiedInterpreterStacks "uncopied-interpreter-stacks" Detail {
    stacks: u64 = "their number",
} ("{} of interpreted programs {} native frames only: the program's functions were not copied at the \
    sample", words::counted(*stacks, "stack"), words::by_number(*stacks, "has", "have"));

/// Functions of interpreted programs that do not fit the native frames.
InterpreterMismatch "interpreter-mismatch" Detail { stacks: u64 = "the number of stacks" }
    ("{} no functions of the interpreted program, which do not fit the native frames",
     words::agreeing(*stacks, "stack", "shows", "show"));

/// The kernel dropped samples.
Lost "samples-lost" Figures if (matters(*lost, lost.saturating_add(*taken))) {
    lost: u64 = "their number",
    taken: u64 = "the number of other samples",
    any_process: bool = "they may belong to any process, not only the target's",
    covered: Option<CpuCoverage> = "the CPU time that the other samples cover, if known",
    remedies: Vec<LossRemedy> = "what helps, the best first",
} ("{}{} {} lost because prof could not read {} in time{}", words::counted(*lost, "sample"),
   if *any_process { " of all processes" } else { "" }, words::by_number(*lost, "was", "were"),
   words::by_number(*lost, "it", "them"), words::others_cover(*taken, covered.as_ref()))
    ["; " => words::any_of(remedies)];

/// The values of events include those of lost samples.
ScaledForLosses "scaled-for-losses" Detail { events: Vec<String> = "their names" }
    ("the values of {} are scaled to what the kernel counted, lost ones included",
     events.join(", "));

/// Records about mappings and names were lost.
LostRecords "records-lost" Detail { records: u64 = "their number" }
    ("{} about mappings and names {} lost, because there were more than prof could read in time; \
      processes that still ran were read from /proc again", words::counted(*records, "record"),
    words::by_number(*records, "was", "were"));

/// Samples beyond the limit of those whose time is kept.
WithoutTime "samples-without-time" Figures { samples: u64 = "their number" }
    ("{} no time, because there were more than --max-samples; {} in the profile",
    words::agreeing(*samples, "sample", "has", "have"),
    words::by_number(*samples, "its value is", "their values are"));

/// Fewer of the last moments are kept than requested, for lack of memory.
LastPartShortened "last-part-shortened" Figures {
    #[serde(with = "json::finite")]
    seconds: f64 = "the length of what is kept",
} ("only the last {seconds:.1} s are kept: more would take more than 64 MiB")
    ["; ", "{}", LossRemedy::LowerRate];

/// The condition of `--when` held.
ConditionHeld "condition-held" Detail {
    condition: String = "the condition",
    process: Option<String> = "the process whose CPU time fulfilled it",
    pid: Option<i32> = "its PID",
    percent: Option<u64> = "its share of one CPU",
} ("the recording ended because {condition} held{}",
   words::busy_process(process.as_deref(), *pid, *percent));

/// The recording ended before the condition of `--when` held.
ConditionNotHeld "condition-not-held" Detail { condition: String = "the condition" }
    ("the recording ended before {condition} held");

/// Samples were moved to a file that cannot be read.
SpillUnreadable "spill-unreadable" Missing { error: String = "the reason" }
    ("samples are missing: the spill file cannot be read: {error}");

/// The limit of open files was raised.
OpenFilesRaised "open-files-raised" Detail {
    from: u64 = "the limit before",
    to: u64 = "the limit now",
    threads: u64 = "the number of threads that need it",
} ("raised the limit of open files from {from} to {to} for {}", words::counted(*threads, "thread"));

/// The rings are smaller than they should be.
SmallRings "small-rings" Detail {
    size: u64 = "their size in bytes",
    wanted: u64 = "the intended size in bytes",
    mlock_kb: u64 = "the `kernel.perf_event_mlock_kb` that allows it",
} ("ring buffers are {} KiB a CPU instead of {} KiB, so samples may be lost at high rates: the \
    locked-memory limit", size >> 10, wanted >> 10)
    ["; as root: ", "sysctl kernel.perf_event_mlock_kb={mlock_kb}"];

/// CPUs went offline.
CpusLeft "cpus-left" Figures {
    cpus: Vec<u32> = "the CPUs", returns: bool = "they are sampled again when they come back",
} ("{} went offline during the recording: {} {}", words::cpus(cpus),
   words::by_number(cpus.len() as u64, "it was", "they were"), if *returns {
    words::by_number(
        cpus.len() as u64,
        "sampled again within about 0.2 s after it came back, if it did",
        "sampled again within about 0.2 s after they came back, if they did",
    )
} else {
    "not sampled after that"
});

/// CPUs came online and were not sampled.
CpusCame "cpus-came" Figures { cpus: Vec<u32> = "the CPUs" }
    ("{} came online during the recording and {} not sampled", words::cpus(cpus),
    words::by_number(cpus.len() as u64, "was", "were"));

    } };
}
