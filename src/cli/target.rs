//! The arguments of recordings, shared by `record` and `flame`.

mod processes;
mod values;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};

use super::events::EventArgs;
use super::output::WithoutSamples;
use super::{Exit, usage};
use crate::sampler::events::EventKind;
use crate::sampler::probes::ProbePlaces;
use crate::sampler::types::{NeededClock, ProfileTypes, Registered, Selection, TypeOptions};
use crate::sampler::{self, EventSpec, LeftOut, Options, Rate, StackMethod, Target, Window, types};
use sys::record::MAX_DUMP;
use sys::{binaries, procfs};
use values::{parse_delay, parse_frequency, parse_period, parse_stacks};

pub use crate::sampler::parse_duration;
pub use processes::{Found, ProcessArg, parse_tid};
pub use values::{StacksArg, is_stack_method};

/// Limit of the stack copy of a sample above [`HIGH_RATE`]; below, the limit is the kernel's. It
/// copies no more than there is, so only deep stacks cost more.
const DUMP_AT_HIGH_RATE: u32 = 32 << 10;

/// The same with each event of a kind that can happen 100,000 times a second: a ring then holds a
/// thousand.
const DUMP_EACH_TIME: u32 = 8 << 10;

/// Samples per second above which a ring buffer holds too few of the largest copies.
const HIGH_RATE: u64 = 999;

/// Length of a recording without -d or a COMMAND.
const DEFAULT_DURATION: Duration = Duration::from_secs(10);

/// Samples whose times are kept with --timestamps.
const MAX_TIMES: u64 = 10_000_000;

/// The target, the window, and the data to record.
#[derive(Clone, Debug, Default, Args)]
pub struct TargetArgs {
    /// Record these processes, by PID or name, and children that they start
    ///
    /// Several are separated by commas. A name is exactly that of a process (15 bytes at most), or
    /// the base name of its executable, of its first argument, or of the script that its
    /// interpreter runs. Children that were started earlier are recorded with --tree.
    #[arg(
        id = "pid",
        short = 'p',
        long = "pid",
        value_name = "PID|NAME",
        value_delimiter = ',',
        allow_negative_numbers = true,
        help_heading = "Target"
    )]
    pub processes: Vec<ProcessArg>,
    /// Record the processes of this user, and what they start
    ///
    /// USER is a name or a number.
    #[arg(short, long = "uid", value_name = "USER",
          conflicts_with_all = ["pid", "tid", "all_cpus", "cgroup"], help_heading = "Target")]
    pub user: Option<String>,
    /// The processes that were found ([`TargetArgs::find`]).
    #[arg(skip)]
    pub pids: Vec<i32>,
    /// With -p, also record the children that run already
    #[arg(long, requires = "pid", help_heading = "Target")]
    pub tree: bool,
    /// Record these threads only
    ///
    /// Several TIDs are separated by commas.
    #[arg(
        short,
        long,
        value_name = "TID",
        value_delimiter = ',',
        value_parser = parse_tid,
        allow_negative_numbers = true,
        help_heading = "Target"
    )]
    pub tid: Vec<i32>,
    /// Record the whole machine
    #[arg(short, long, conflicts_with_all = ["pid", "tid", "cgroup"],
          help_heading = "Target")]
    pub all_cpus: bool,
    /// Record on these CPUs only, for example 0,2-5
    ///
    /// Without another target, everything that runs on them is recorded.
    #[arg(short = 'C', long, value_name = "LIST", help_heading = "Target")]
    pub cpu: Option<String>,
    /// Record the processes of a cgroup (v2)
    ///
    /// CGROUP is a path as in /proc/PID/cgroup.
    #[arg(short = 'G', long, value_name = "CGROUP", conflicts_with_all = ["pid", "tid"],
          help_heading = "Target")]
    pub cgroup: Option<PathBuf>,
    /// Leave out threads and processes that the target starts
    #[arg(long, help_heading = "Target")]
    pub no_inherit: bool,
    /// Start this command and record it until it exits
    #[arg(last = true, value_name = "COMMAND", help_heading = "Target")]
    pub command: Vec<String>,

    /// Record for this long [default: 10s, or until COMMAND exits]
    ///
    /// TIME has a unit: 500ms, 10s, 5m, 1h. A number alone is seconds.
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration,
          allow_hyphen_values = true, help_heading = "Window")]
    pub duration: Option<Duration>,
    /// Wait this long before recording; a number without a unit is milliseconds
    #[arg(short = 'D', long, value_name = "TIME", value_parser = parse_delay,
          allow_hyphen_values = true, help_heading = "Window")]
    pub delay: Option<Duration>,

    /// Profile types, separated by commas [default: cpu, unless -e is given]
    #[arg(
        short = 'T',
        long = "profile",
        value_name = "TYPE",
        value_delimiter = ',',
        value_parser = profile_type_names(),
        help_heading = "Profile types"
    )]
    pub types: Vec<String>,

    /// Arguments for events.
    #[command(flatten)]
    pub event: EventArgs,
    /// Take HZ samples per second and CPU [default: 99]
    ///
    /// 'max' is the kernel's limit. Avoid round numbers such as 100 and 1000: programs that work in
    /// step with the timer are then always sampled at the same place. Tracepoints and probes are
    /// sampled at each hit, unless -c is given.
    #[arg(short = 'F', long, value_name = "HZ", value_parser = parse_frequency,
          conflicts_with = "count", allow_hyphen_values = true, help_heading = "Events")]
    pub freq: Option<Rate>,
    /// Take a sample every PERIOD events
    ///
    /// Replaces -F. With 1, every event is a sample.
    #[arg(short, long, value_name = "PERIOD", value_parser = parse_period,
          allow_negative_numbers = true, help_heading = "Events")]
    pub count: Option<u64>,
    /// Sample hardware events as precisely as the CPU can
    ///
    /// Samples then have the address of the instruction that caused the event, not of a later one.
    /// The same as the modifier P after each event, as in -e cycles:P.
    #[arg(long, help_heading = "Events")]
    pub precise: bool,

    /// The options of the profile types: the sections of the help are in the order of their first
    /// options.
    #[command(flatten)]
    pub type_options: TypeOptions,

    /// Keep the time of each sample, for prof report --time and --over
    ///
    /// Takes 3 to 12 bytes of the file for each sample. Sums of the heap have no time.
    #[arg(long, help_heading = "Profile types")]
    pub timestamps: bool,
    /// With --timestamps, keep at most N times [default: 10000000]
    ///
    /// Later samples are only aggregated.
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000),
          help_heading = "Profile types")]
    pub max_samples: Option<u64>,

    /// Unwinding of stacks: auto, fp, dwarf[,BYTES] or none [default: auto]
    #[arg(
        short = 'g',
        long,
        value_name = "METHOD",
        value_parser = parse_stacks,
        num_args = 0..=1,
        default_missing_value = "auto",
        help_heading = "Stacks",
        long_help = "Unwinding of stacks [default: auto]\n\n\
            - auto: DWARF call frame information; frame pointers where they reach further\n\
            - dwarf[,BYTES]: DWARF call frame information only; copies at most BYTES of a stack\n\
            - fp: frame pointers only\n\
            - none: no stacks\n\n\
            BYTES is 8 to 65528. -g without METHOD is -g auto."
    )]
    pub call_graph: Option<StacksArg>,
}

impl TargetArgs {
    /// Whether a target was given.
    pub fn is_given(&self) -> bool {
        self.all_cpus
            || !self.processes.is_empty()
            || self.user.is_some()
            || !self.tid.is_empty()
            || !self.command.is_empty()
            || self.cgroup.is_some()
            || self.cpu.is_some()
    }

    /// The first of the given options that apply to recordings only.
    pub fn recording_option(&self) -> Option<&'static str> {
        let given = [
            ("-d", self.duration.is_some()),
            ("-D", self.delay.is_some()),
            ("-F", self.freq.is_some()),
            ("-c", self.count.is_some()),
            ("-e", !self.event.is_empty()),
            ("--precise", self.precise),
            ("-T", !self.types.is_empty()),
            ("--timestamps", self.timestamps),
            ("--max-samples", self.max_samples.is_some()),
            ("-g", self.call_graph.is_some()),
            ("--no-inherit", self.no_inherit),
        ];
        let given = given.into_iter().find_map(|(name, given)| given.then_some(name));
        given.or_else(|| Some(self.type_options.given(|_| true)?.option))
    }

    /// Whether the recording can have a sample type of this kind.
    ///
    /// # Errors
    ///
    /// An event is unknown.
    pub fn can_have_type(&self, kind: &str) -> anyhow::Result<bool> {
        let (events, refused) = self.events()?;
        if let Some(refused) = refused.into_iter().find(|r| r.is_event(kind)) {
            return Err(refused.why.into());
        }
        let types = self.profile_types()?;
        let in_types = match kind {
            "samples" => types.count_samples(events.is_empty()) || !events.is_empty(),
            // Without counters, cpu-clock takes the place of cycles.
            "cpu" | "cycles" => types.has_cpu_time(),
            _ => types
                .iter()
                .any(|(_, recorded)| recorded.sample_types().iter().any(|t| t.kind == kind)),
        };
        Ok(in_types || events.iter().any(|e| e.value_type().0 == kind || e.name == kind))
    }

    fn events(&self) -> anyhow::Result<(Vec<EventSpec>, Vec<LeftOut>)> {
        self.event.specs(&self.places())
    }

    /// The binaries that are searched for probes.
    pub fn places(&self) -> ProbePlaces {
        let mut pids = self.pids.clone();
        pids.extend(binaries::owners(&self.tid));
        ProbePlaces::new(pids, self.command.first().map(String::as_str))
    }

    /// Options for the sampler, checked as far as possible before anything is started.
    ///
    /// # Errors
    ///
    /// There is no target, a target does not exist, an event is unknown, or options contradict each
    /// other.
    pub fn options(&self) -> anyhow::Result<(Options, ProfileTypes, Window)> {
        let cpus = self.cpus()?;
        if let Some(conflict) = self.conflict_with(&self.command) {
            return Err(usage(conflict));
        }
        if self.tree && self.processes.is_empty() {
            return Err(usage("--tree needs -p PID; other targets include what they start"));
        }
        if self.max_samples.is_some() && !self.timestamps {
            return Err(usage("--max-samples needs --timestamps"));
        }
        let target = self.target()?;
        let rate = self.rate();
        let (mut events, refused) = self.events()?;
        if !matches!(self.call_graph, Some(StacksArg::Dwarf(Some(_)))) && self.count.is_none() {
            let each_time = events.iter_mut().filter(|e| e.counts_every_event());
            each_time.for_each(|e| e.most_dump = DUMP_EACH_TIME);
        }
        let types = self.profile_types()?;
        if events.is_empty()
            && types.is_empty()
            && let Some(first) = refused.first()
        {
            return Err(first.why.clone().into());
        }
        let hardware = |e: &EventSpec| e.kind == EventKind::Hardware;
        // With wall time, CPU time comes from a clock, too.
        let cycles = types.clock() == NeededClock::CpuTime;
        if self.precise && !cycles && !events.iter().any(hardware) {
            return Err(usage("--precise applies to hardware events, and none is recorded"));
        }
        let window = self.window(&target)?;
        let options = Options {
            cpus,
            events,
            refused,
            precise: self.precise,
            times: self.timestamps.then(|| self.max_samples.unwrap_or(MAX_TIMES)),
            inherit: !self.no_inherit && !matches!(target, Target::Threads(_)),
            ..Options::new(target, rate, self.stack_method(rate))
        };
        Ok((options, types, window))
    }

    fn cpus(&self) -> anyhow::Result<Option<Vec<u32>>> {
        let parse = |list| procfs::parse_cpu_list(list).ok_or_else(|| no_cpu_list(list));
        self.cpu.as_deref().map(parse).transpose()
    }

    fn rate(&self) -> Rate {
        let period = self.count.map(Rate::Period);
        period.or(self.freq).unwrap_or(Rate::Frequency(99))
    }

    fn stack_method(&self, rate: Rate) -> StackMethod {
        let low_rate = matches!(rate, Rate::Frequency(hz) if hz <= HIGH_RATE);
        let dump = if low_rate { MAX_DUMP } else { DUMP_AT_HIGH_RATE };
        match self.call_graph.unwrap_or(StacksArg::Auto) {
            StacksArg::Auto => StackMethod::Auto { dump },
            StacksArg::Dwarf(bytes) => StackMethod::Dwarf { dump: bytes.unwrap_or(dump) },
            StacksArg::FramePointer => StackMethod::FramePointer,
            StacksArg::None => StackMethod::None,
        }
    }

    fn window(&self, target: &Target) -> anyhow::Result<Window> {
        let is_snapshot = self.types == ["threads"] && self.event.is_empty();
        let default = match self.type_options.threads.snapshots {
            // One snapshot, taken immediately.
            None if is_snapshot => Duration::ZERO,
            _ => DEFAULT_DURATION,
        };
        let ends_by_itself = matches!(target, Target::Command(_));
        let duration = self.duration()?.or((!ends_by_itself).then_some(default));
        if self.type_options.threads.snapshots.is_some() && duration.is_none() {
            return Err(usage("--snapshots needs the length of the recording: add -d TIME"));
        }
        Ok(Window { delay: self.delay.unwrap_or_default(), duration, last: None })
    }

    /// What a recording without samples is: time that was sampled is there in most targets, but
    /// events need not happen.
    pub fn without_samples(&self) -> WithoutSamples {
        let is_time = |name: &String| name == "cpu" || name == "wall";
        if self.event.is_empty() && self.types.iter().all(is_time) {
            WithoutSamples::ReplacesNothing
        } else {
            WithoutSamples::IsAResult
        }
    }

    /// Whether the arguments give the length of the recording.
    ///
    /// # Errors
    ///
    /// The time of `sleep` is wrong.
    pub fn has_length(&self) -> anyhow::Result<bool> {
        Ok(self.duration()?.is_some())
    }

    fn duration(&self) -> anyhow::Result<Option<Duration>> {
        let sleep = self.sleep_time().map(parse_duration).transpose();
        Ok(self.duration.or(sleep.map_err(|why| usage(format!("sleep: {why}")))?))
    }

    /// The profile types that were requested by name, in their order.
    pub fn requested_types(&self) -> &[String] {
        &self.types
    }

    fn profile_types(&self) -> anyhow::Result<ProfileTypes> {
        let mut selection =
            Selection { names: self.types.clone(), options: self.type_options.clone() };
        selection.check()?;
        let mut types = ProfileTypes::new(&selection);
        if self.event.is_empty() && types.is_empty() {
            selection.names.push("cpu".to_owned());
            types = ProfileTypes::new(&selection);
        }
        if self.cpu.is_some() && types.count_every_event() {
            return Err(usage(
                "-C cannot be combined with -T lock, io or syscalls, which need all CPUs: what \
                 begins on one may end on another",
            ));
        }
        Ok(types)
    }

    fn target(&self) -> anyhow::Result<Target> {
        if let Some(name) = self.command.first().filter(|_| self.sleep_time().is_none()) {
            if name.contains('/') && Path::new(name).is_dir() {
                let message = format!("command '{name}' is a directory; name a program in it");
                return Err(Exit { code: 126, message }.into());
            }
            return Ok(Target::Command(self.command.clone()));
        }
        if !self.tid.is_empty() {
            return Ok(Target::Threads(sampler::living_threads(&self.tid, &self.pids)?.ids));
        }
        if !self.pids.is_empty() {
            // The first that was named stays the first: its binary is the main one.
            let pids = sampler::living_processes(&self.pids)?.ids;
            return Ok(Target::Processes { pids, tree: self.tree });
        }
        if let Some(cgroup) = &self.cgroup {
            return Ok(Target::Cgroup(cgroup.clone()));
        }
        if self.all_cpus || self.cpu.is_some() {
            return Ok(Target::Everything);
        }
        Err(usage(
            "nothing to record: give -p PID or NAME, -t TID, -u USER, -G CGROUP, -a for the whole \
             machine, or a COMMAND",
        ))
    }
}

/// The values of `-T`, with their help.
fn profile_type_names() -> PossibleValuesParser {
    profile_types_without(|_| false)
}

/// The same; those that are `hidden` are accepted, but not in the help.
pub fn profile_types_without(hidden: impl Fn(&Registered) -> bool) -> PossibleValuesParser {
    let value =
        |known: &Registered| PossibleValue::new(known.name).help(known.help).hide(hidden(known));
    types::ALL.iter().map(value).collect::<Vec<_>>().into()
}

fn no_cpu_list(list: &str) -> anyhow::Error {
    let largest = list.split([',', '-']).filter_map(|n| n.trim().parse::<u64>().ok()).max();
    usage(match largest {
        Some(cpu) if cpu > 0xffff => format!("-C {list}: there is no CPU {cpu}; lscpu lists all"),
        _ => format!("-C {list}: not a list of CPUs; write 0,2-5"),
    })
}
