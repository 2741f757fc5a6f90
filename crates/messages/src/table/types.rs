//! Profile types: wall time, what begins and ends, threads, the heap.

macro_rules! types {
    ($next:ident $($more:ident)*; $($before:tt)*) => { $next! { $($more)*; $($before)*

/// Programs in the kernel sampled a part of the short events.
ShortEventsSampled "short-events-sampled" Detail {
    noun: String = "the profile type",
    what: String = "the events",
    known: Option<String> = "the exact figures to which they are scaled, if there are any",
    interval: u64 = "ns: all longer events were recorded",
} ("{noun}: only some of the {what} shorter than {} us were sampled, because there were too many; \
    {}", interval.div_ceil(1000), words::scaled_to(known.as_deref()));

/// Programs in the kernel had no room for some threads.
TooManyThreads "too-many-threads" Missing {
    noun: String = "the profile type", threads: u64 = "the number of missing threads",
} ("{noun}: {} missing: there were too many at once",
   words::agreeing(*threads, "thread", "is", "are"))
    ["; ", "record fewer processes"];

/// Only one in N context switches was sampled.
SwitchesThinned "switches-thinned" Figures if (*without_wakeups) {
    every: u64 = "N",
    without_wakeups: bool = "waits for a CPU after a wake-up count as part of the wait",
} ("threads stopped running so often that only every {} time was sampled from then on; the \
    samples are scaled to the time of each thread in each state{}", words::ordinal(*every),
   if *without_wakeups {
    ", and waiting for a CPU after a wake-up counts as part of the wait"
} else {
    ""
});

/// Operations whose records were lost.
PairsLost "pairs-lost" Detail {
    noun: String = "the profile type", count: u64 = "their number",
} ("{noun}: {count} {} left out: records were lost while {} lasted, or {} end was",
   words::by_number(*count, "is", "are"), words::by_number(*count, "it", "they"),
   words::by_number(*count, "its", "their"));

/// Operations of which too many lasted at the same time.
PairsBeyondLimit "pairs-beyond-limit" Missing {
    noun: String = "the profile type", count: u64 = "their number",
} ("{noun}: {count} {} left out: too many lasted at the same time",
   words::by_number(*count, "is", "are"));

/// Operations without the address of the lock, of which there are too many.
PairsWithoutAddress "pairs-without-address" Detail {
    noun: String = "the profile type", count: u64 = "their number",
} ("{noun}: {count} {} label 'lock': there were too many",
   words::by_number(*count, "has no address in its", "have no address in their"));

/// The creation of threads is not recorded.
NoCreation "no-thread-creation" Missing { why: String = "the reason" }
    ("thread creation is left out: {why}");

/// Created threads that are not counted.
CreatedThreadsMissing "created-threads-missing" Missing { threads: u64 = "their number" }
    ("{} missing in the sample type threads_grown: too many existed at the same time",
    words::agreeing(*threads, "new thread", "is", "are"));

/// The recording ended before the first snapshot of threads.
NoSnapshot "no-snapshot" Missing
    ("no snapshot of threads: the recording ended before it was due")
    ["; ", "lower -d, or use prof threads"];

/// Snapshots of threads, of which the average is recorded.
Snapshots "snapshots-averaged" Detail { snapshots: u64 = "their number" }
    ("{} of threads {}", words::counted(*snapshots, "snapshot"), words::by_number(
        *snapshots,
        "was taken: sample type threads is from it",
        "were taken: sample type threads is their average",
    ));

/// Threads that ended before a snapshot could read them.
ThreadsEnded "threads-ended" Missing { threads: u64 = "their number" }
    ("{} ended before {} could be read", words::counted(*threads, "thread"),
     words::by_number(*threads, "it", "they"));

/// Threads whose stack may not be read.
ThreadsRefused "threads-refused" Missing {
    threads: u64 = "their number", root_may: bool = "root may read them",
} ("this user may not read the {} of {}", words::by_number(*threads, "stack", "stacks"),
   words::counted(*threads, "thread"))
    ["; " => root_may.then_some("run as root")];

/// Running threads could not be sampled.
ThreadsNotSampled "threads-not-sampled" Missing { why: String = "the reason" } ("{why}");

/// Page faults are recorded, because nothing may be injected into the process.
PageFaultsInstead "page-faults-instead" Missing
    ("recording page faults instead: they show where the process's memory grows")
    ["; ", "to record its allocations, add --inject (which injects prof's library), or start it \
            with prof record -T heap -- COMMAND"];

/// No allocation was sampled.
NothingSampled "nothing-sampled" Missing { why: Box<Message> = "the reason" }
    ("no allocation was sampled") [because why];

/// No dynamic linker preloaded the library.
NotPreloaded "library-not-preloaded" Missing
    ("no dynamic linker preloaded prof's library into the command");

/// The command ended before its children allocated.
CommandEnded "command-ended" Missing ("the command ended before");

/// prof's library is in none of the programs.
LibraryNotLoaded "library-not-loaded" Missing { programs: u64 = "their number" }
    ("the command started {}, but {}", words::programs(*programs), words::not_loaded(*programs));

/// The program allocated less than the interval.
BelowInterval "below-interval" Missing { interval: u64 = "bytes" }
    ("malloc and similar functions allocated less than the interval of {}",
    words::counted(*interval, "byte"))
    ["; ", "lower --heap-interval"];

/// Programs that the command started ran without prof's library.
ProgramsWithout "programs-without-library" Missing {
    without: u64 = "their number", programs: u64 = "the number of all programs",
} ("{without} of {} that the command started {} not in the heap's profile: {}",
   words::counted(*programs, "program"), words::by_number(*without, "is", "are"),
   words::not_loaded(*without));

/// The memory that is shared with the program was damaged.
MemoryDamaged "shared-memory-damaged" Missing { how: String = "what is wrong" }
    ("the heap's profile ends early: the memory that the program shares with prof was damaged \
      ({how})");

/// Samples were taken at a longer interval than requested.
Paced "heap-interval-raised" Detail {
    paced: u64 = "their number",
    sampled: u64 = "the number of all samples",
    longest: u64 = "the longest interval in bytes",
    every: bool = "every allocation was to be recorded",
} ("{}the program allocated faster than prof could follow, so {paced} of {} {} taken at a longer \
    interval (up to {}); each is scaled by its own",
   if *every { "not every allocation was recorded: " } else { "" },
   words::counted(*sampled, "sample"), words::by_number(*paced, "was", "were"),
   words::counted(*longest, "byte"));

/// Sampled allocations for which there was no space.
AllocationsLost "allocations-lost" Figures if (matters(*lost, lost.saturating_add(*sampled))) {
    lost: u64 = "their number",
    sampled: u64 = "the number of samples",
    bytes: u64 = "their size in bytes",
} ("{lost} of {} ({:.1} MiB) {} missing because prof could not keep up",
   words::counted(lost.saturating_add(*sampled), "sampled allocation"),
   *bytes as f64 / f64::from(1 << 20), words::by_number(*lost, "is", "are"))
    [": ", "{}", LossRemedy::LongerHeapInterval];

/// Allocations that count as in use, because their end was lost.
FreesLost "frees-lost" Figures if (matters(*lost, lost.saturating_add(*sampled))) {
    lost: u64 = "their number", sampled: u64 = "the number of samples",
} ("{} as in use because {} end was lost",
   words::agreeing(*lost, "sampled allocation", "counts", "count"),
   words::by_number(*lost, "its", "their"))
    [": ", "{}", LossRemedy::LongerHeapInterval];

/// Allocations that do not count as in use.
Untracked "allocations-untracked" Figures
    if (matters(*untracked, untracked.saturating_add(*sampled))) {
    untracked: u64 = "their number", sampled: u64 = "the number of samples",
} ("{} not counted as in use, as there were too many",
   words::agreeing(*untracked, "sampled allocation", "is", "are"))
    [": ", "{}", LossRemedy::LongerHeapInterval];

/// Samples of processes that the kernel did not report.
UnknownProcesses "unknown-processes" Detail { samples: u64 = "their number" }
    ("{} of {}", words::agreeing(*samples, "sampled allocation", "is", "are"), words::by_number(
        *samples,
        "a process that the kernel did not name: it has no stack",
        "processes that the kernel did not name: they have no stacks",
    ));

/// Allocations without a stack.
WithoutStack "allocations-without-stack" Detail { allocations: u64 = "their number" }
    ("{} no stack: too many distinct ones",
    words::agreeing(*allocations, "allocation", "has", "have"));

/// The library's file is not removed.
LibraryStays "library-stays" Detail { path: String = "its path" }
    ("the library for allocations stays in {path} because a program still uses it");

/// Nothing in the process could be redirected to the library.
NothingRedirected "nothing-redirected" Missing { pid: i32 = "the process" }
    ("nothing in process {pid} calls malloc in a way that could be redirected");

/// Binaries that were loaded last were not sampled.
BinariesMissed "binaries-missed" Missing
    ("the binaries that the process loaded last were not sampled: no thread came to a point where \
      they could be hooked");

/// The library was injected into a process.
Injected "library-injected" Detail {
    pid: i32 = "the process",
    #[serde(with = "json::finite")]
    stopped_ms: f64 = "the longest stop of one of its threads",
    lives: bool = "the process still runs",
} ("allocations of process {pid} were recorded since the injection of prof's library{}; one \
    thread was stopped for {stopped_ms:.1} ms at most, not counting waits for a CPU{}",
   if *lives { ", which stays there without effect" } else { "" },
   if *lives { ", the others not at all" } else { "" });

/// The library could not be removed from a process.
StillCalled "library-still-called" Detail { pid: i32 = "the process", why: String = "the reason" }
    ("prof's library is still called by process {pid}, without recording anything, because it \
      could not be removed: {why}")
    ["; ", "the next prof record --inject tries again"];

/// Memory that was never freed, but to which pointers led on exit.
Reachable "reachable-on-exit" Detail { amount: Amount = "the memory" }
    ("not counted as leaks, because pointers still led there on exit: {amount}");

/// Leaks to which pointers lead from memory that may not be in use.
PossiblyLost "leaks-possibly-lost" Figures { amount: Amount = "the memory" }
    ("of the leaks, {amount} (label leak: perhaps) may not be lost: pointers lead there from \
      memory of another allocator than glibc's, which may not be in use");

/// Memory of processes that were not checked for leaks.
LeaksUnchecked "leaks-unchecked" Figures {
    processes: u64 = "the number of processes",
    why: UncheckedLeaks = "the reason",
    amount: Amount = "the memory",
} ("the leaks include all that was in use by {} {why}: {amount} (label leak: unchecked)",
   words::processes_that(*processes));

    } };
}
