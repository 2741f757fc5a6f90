//! Wall time of each thread: on a CPU, by the sampled stacks; off-CPU, by the blocking stack.
//!
//! If permitted, BPF programs aggregate each thread's time in each state ([`from_bpf`]). Otherwise,
//! the kernel records each switch ([`from_switches`]), so the time in each state is exact, too.

mod from_bpf;
mod from_switches;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use perf_event_open_sys::bindings as abi;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    End, EventTrial, KernelProgram, NeededClock, Needs, OptionGroup, Periodic, Poll, ProfileType,
    ProgramLoad, ProgramNeeds, Registered, SampleCounting, SampleType, Selection, TypeEvent,
    TypeStart, ValuesKnown,
};
use crate::sampler::bpf::sched::{SchedProgram, WAIT_SIZE};
use crate::sampler::bpf::stack_parts;
use crate::sampler::notes::notes_of_program;
use crate::sampler::stack_maker::{
    ColumnSums, Extrapolated, NOT_SAMPLED, PendingStack, Shares, StackMaker,
};
use crate::sampler::{TypeName, parse_duration};
use from_bpf::FromBpf;
use from_switches::FromSwitches;
use messages::Message;
use profile::{Column, LabelSetId, ThreadState};
use sys::record::{Record, Sample};
use sys::{Error, ThreadId};

/// `-T wall`.
pub const REGISTERED: Registered = Registered {
    name: "wall",
    help: "Time of each thread on and off the CPU, by state",
    shown_first: &["wall"],
    values: ValuesKnown::WhileRecording,
    options: Some(OptionGroup {
        add: WallOptions::augment_args,
        given: |options| options.wall.given(),
        applies: is_selected,
        needs: "-T wall or --off-cpu",
    }),
    clean_up: None,
    new: |selection| is_selected(selection).then(|| Wall::boxed(&selection.options.wall)),
};

/// The options of `-T wall`.
#[derive(Clone, Debug, Default, Args)]
pub struct WallOptions {
    /// Record off-CPU time only: -T wall without the running state
    #[arg(long, help_heading = "Profile types")]
    pub off_cpu: bool,
    /// Report waits shorter than TIME only as a total, without stacks: 1us, 5ms
    ///
    /// For -T wall and --off-cpu.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Profile types")]
    pub min_block: Option<Duration>,
}

impl WallOptions {
    fn given(&self) -> Option<&'static str> {
        let given = [("--off-cpu", self.off_cpu), ("--min-block", self.min_block.is_some())];
        given.into_iter().find_map(|(name, given)| given.then_some(name))
    }
}

fn is_selected(selection: &Selection) -> bool {
    selection.options.wall.off_cpu || selection.has("wall")
}

/// The frame in place of a stack.
const SHORT: &str = "[waits shorter than --min-block]";

/// The options and columns of wall time.
struct Spec {
    /// The column of wall time.
    column: Column,
    /// True to record time on a CPU, too.
    running: bool,
    /// Shorter waits are not counted by stack, in nanoseconds.
    min_block: u64,
    /// The column of CPU time, with the weight of a sample of the clock.
    cpu_time: Option<(Column, i64)>,
}

/// Wall time, with the parts that both sources share.
struct Wall {
    spec: Spec,
    program: Option<Arc<SchedProgram>>,
    way: WallSource,
}

/// The source of threads' running and waiting times.
enum WallSource {
    /// BPF programs.
    Bpf(FromBpf),
    /// The kernel's records of context switches.
    Switches(FromSwitches),
}

impl Wall {
    fn boxed(options: &WallOptions) -> Box<dyn ProfileType> {
        let min_block = options.min_block.unwrap_or_default();
        let spec = Spec {
            column: Column::default(),
            running: !options.off_cpu,
            min_block: u64::try_from(min_block.as_nanos()).unwrap_or(u64::MAX),
            cpu_time: None,
        };
        Box::new(Wall { spec, program: None, way: WallSource::Switches(FromSwitches::default()) })
    }

    /// Handles a sample of the clock: a thread runs, and the sample represents `time` of it, if the
    /// thread counts.
    fn add_running(
        &self,
        maker: &mut StackMaker,
        thread: ThreadId,
        time: Option<u64>,
    ) -> Option<Ran> {
        let mut values = [(self.spec.column, 0); 2];
        let mut count = 0;
        let time = time.filter(|_| self.spec.running);
        if let Some(time) = time {
            values[count].1 = time as i64;
            count += 1;
        }
        if let Some(cpu_time) = self.spec.cpu_time {
            values[count] = cpu_time;
            count += 1;
        }
        if count == 0 {
            return None;
        }
        let labels = maker.labels_in_state(thread, Some(ThreadState::Running));
        maker.add_last(labels, 1, &values[..count]);
        Some(Ran { labels, nanos: time? as i64 })
    }
}

/// Time on a CPU that was added.
struct Ran {
    labels: LabelSetId,
    nanos: i64,
}

impl ProfileType for Wall {
    fn name(&self) -> TypeName {
        TypeName::Singular("wall time")
    }

    fn sample_types(&self) -> Vec<SampleType> {
        vec![SampleType::nanoseconds("wall")]
    }

    fn needs(&self) -> Needs {
        let clock = NeededClock::Nanoseconds;
        Needs { clock, samples: SampleCounting::Always, ..Needs::default() }
    }

    fn load_program(&mut self, load: &ProgramLoad<'_>) -> Option<Arc<dyn KernelProgram>> {
        let ProgramLoad { kernel, scope, walks } = *load;
        let program = Arc::new(SchedProgram::load(kernel, scope, walks).ok()?);
        self.program = Some(program.clone());
        self.way = WallSource::Bpf(FromBpf::default());
        Some(program)
    }

    fn program_needs(&self) -> ProgramNeeds {
        let without = self.program.is_none();
        ProgramNeeds { thread_events: without, switch_records: without }
    }

    fn events(&mut self, trial: &mut EventTrial<'_>) -> Result<Vec<TypeEvent>, Error> {
        match &mut self.way {
            WallSource::Bpf(_) => Ok(from_bpf::events()),
            WallSource::Switches(switches) => switches.events(trial),
        }
    }

    fn start(&mut self, maker: &mut StackMaker, start: &TypeStart<'_>) {
        (self.spec.column, self.spec.cpu_time) = (start.first, start.cpu_time);
        if let WallSource::Switches(switches) = &mut self.way {
            switches.start(maker, start.target.threads(start.pids));
        }
    }

    fn durations(&self) -> Vec<Column> {
        vec![self.spec.column]
    }

    fn forget_labels(&mut self) {
        match &mut self.way {
            WallSource::Bpf(bpf) => bpf.forget_labels(),
            WallSource::Switches(switches) => switches.sums = StateSums::default(),
        }
    }

    /// Event 0 is the clock.
    fn complete(&self, event: usize, sample: &mut Sample<'_>) {
        if matches!(self.way, WallSource::Bpf(_)) && from_bpf::is_wait(event) {
            stack_parts::complete(sample, WAIT_SIZE);
        }
    }

    fn sample(&mut self, maker: &mut StackMaker, event: usize, sample: &Sample<'_>, weight: u64) {
        match (event, &mut self.way) {
            (0, WallSource::Bpf(bpf)) => {
                maker.make_stack(sample);
                let time = bpf.runs(sample.thread()).then_some(weight);
                let ran = self.add_running(maker, sample.thread(), time);
                if let (Some(ran), WallSource::Bpf(bpf)) = (ran, &mut self.way) {
                    bpf.ran(sample.thread(), &ran);
                }
            }
            (0, WallSource::Switches(switches)) => {
                maker.make_stack(sample);
                let time = switches.runs(sample, maker.last_stack());
                self.add_running(maker, sample.thread(), time);
            }
            (_, WallSource::Bpf(bpf)) => bpf.sample(&self.spec, maker, event, sample),
            (_, WallSource::Switches(switches)) => switches.sample(maker, event, sample),
        }
    }

    fn record(&mut self, maker: &mut StackMaker, record: &Record<'_>) {
        match &mut self.way {
            WallSource::Bpf(bpf) => bpf.record(record),
            WallSource::Switches(switches) => switches.record(&self.spec, maker, record),
        }
    }

    fn periodic(&mut self) -> Option<&mut dyn Periodic> {
        match &mut self.way {
            WallSource::Bpf(_) => None,
            WallSource::Switches(switches) => Some(switches),
        }
    }

    fn end(&mut self, maker: &mut StackMaker, end: &End) -> Vec<Message> {
        let mut notes = Vec::new();
        match (&mut self.way, &self.program) {
            (WallSource::Bpf(bpf), Some(program)) => {
                bpf.end(&self.spec, maker, end, program.threads());
                if !end.is_last_part {
                    bpf.sums.scale(maker, self.spec.column);
                }
                let known = (!end.is_last_part).then_some("the time of each thread in each state");
                notes.extend(notes_of_program("wall time", program.losses(), "waits", known));
            }
            (WallSource::Switches(switches), _) => {
                switches.end(&self.spec, maker, end.time);
                if !end.is_last_part {
                    switches.sums.scale(maker, self.spec.column);
                }
                notes.extend(end.thinned.then(|| switches.note_thinned()));
            }
            _ => {}
        }
        notes
    }
}

impl Periodic for FromSwitches {
    fn is_due(&self, thinned: bool) -> bool {
        thinned
    }

    fn poll(&mut self, maker: &mut StackMaker, now: &Poll<'_>) {
        if now.thinned {
            self.read_long_waits(maker);
        }
    }
}

/// A software event by its name and number.
fn software_event(name: &str, config: u32) -> crate::sampler::EventSpec {
    let kind = crate::sampler::events::EventKind::OfType;
    crate::sampler::EventSpec::plain(name, kind, abi::PERF_TYPE_SOFTWARE, u64::from(config))
}

/// Sums of waits by labels, that is, by thread and state, to which the samples are scaled.
#[derive(Default)]
struct StateSums {
    sums: FxHashMap<LabelSetId, ColumnSums>,
    extrapolated: Extrapolated,
}

impl StateSums {
    /// Adds the known sum of samples with these labels, and the sums of the samples.
    fn add(&mut self, labels: LabelSetId, sum: ColumnSums) {
        self.sums.entry(labels).or_default().add(sum);
    }

    /// Scales the samples of waits, of which only some were taken, to the total time.
    fn scale(&mut self, maker: &mut StackMaker, column: Column) {
        // Time that was not sampled has no known end.
        maker.builder.set_time(None);
        let mut sums = std::mem::take(&mut self.sums);
        sums.retain(|_, known| known.all != known.exact);
        let mut shares = Shares::default();
        for (labels, known) in sums {
            if known.exact == 0 && known.estimated == 0 {
                maker.add_without_stack(NOT_SAMPLED, labels, 1, &[(column, known.all)]);
            }
            self.extrapolated.share(&mut shares, labels, known);
        }
        maker.scale_later(column, shares);
    }
}

/// Threads that have exited: samples and switches of them may still come for a few microseconds.
#[derive(Default)]
struct ExitedThreads(FxHashSet<i32>);

impl ExitedThreads {
    /// Maximum size.
    const MAX: usize = 4096;

    fn forked(&mut self, tid: i32) {
        self.0.remove(&tid);
    }

    fn exited(&mut self, tid: i32) {
        if self.0.len() >= ExitedThreads::MAX {
            self.0.clear();
        }
        self.0.insert(tid);
    }

    /// True for a thread that has not exited. Samples of one that is exiting have process ID -1, and
    /// thread ID 0 is the idle thread.
    fn is_alive(&self, thread: ThreadId) -> bool {
        thread.pid >= 0 && thread.tid > 0 && !self.0.contains(&thread.tid)
    }
}

/// A stack, or the reason why there is none.
type StackOr<'a> = Result<&'a PendingStack, &'static str>;

/// Adds time with or without a stack.
fn add(maker: &mut StackMaker, stack: StackOr<'_>, labels: LabelSetId, column: Column, nanos: i64) {
    match stack {
        Ok(stack) => maker.add_pending(stack, labels, 1, &[(column, nanos)]),
        Err(why) => maker.add_without_stack(why, labels, 1, &[(column, nanos)]),
    }
}

#[cfg(test)]
mod tests;
