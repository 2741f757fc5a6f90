//! The second stage of a recording: its events are open, and its profile types are ready. Nothing
//! is left to do but to sample.

use std::time::{Duration, Instant, SystemTime};

use super::coverage::CpuTimeBefore;
use super::last_part::LastPart;
use super::live::{Live, PartFeed};
use super::outcome::UsedBefore;
use super::prepared::{Plan, Prepared, TargetCommand, begin_types};
use super::running::Running;
use super::watch::Watch;
use super::window::Sources;
use crate::sampler::aggregator::Aggregator;
use crate::sampler::analysis::AnalysisThread;
use crate::sampler::bpf::btf::Btf;
use crate::sampler::interpreters::Interpreters;
use crate::sampler::stack_maker::BpfFrames;
use crate::sampler::thinning::Thinning;
use crate::sampler::types::ProfileTypes;
use crate::sampler::{Notes, Options, Session, Target};
use messages::Message;
use profile::TimeLimits;
use sys::processes::AtStart;
use sys::{Error, os, procfs};

/// A recording that is ready to sample.
pub struct Opened<'a> {
    requested: Instant,
    plan: Plan<'a>,
    types: ProfileTypes,
    command: TargetCommand,
    used: UsedBefore,
    analysis: AnalysisThread,
    precedence: os::Precedence,
    attached: Attached,
    notes: Notes,
}

/// The kernel before prof's own BPF programs are attached.
struct Unattached {
    /// The functions that will call them, if profile types may have programs. Reading them takes
    /// time, which programs that are attached already would attribute to threads.
    frames: Option<BpfFrames>,
    /// Those of the target's processes, as well.
    interpreters: Interpreters,
}

/// The open events, with prof's own BPF programs.
struct Attached {
    session: Session,
    /// The functions that call the programs, if there are any.
    frames: Option<BpfFrames>,
    interpreters: Interpreters,
    /// Number of the session's notes that are known before sampling starts.
    notes_at_start: usize,
}

impl Unattached {
    fn new(types: &ProfileTypes, options: &Options) -> Unattached {
        let may_have_programs = types.iter().any(|(_, kind)| kind.program_needs().thread_events);
        let pids = match &options.target {
            Target::Processes { pids, tree: true } => {
                [&pids[..], &procfs::descendants(pids)].concat()
            }
            Target::Processes { pids, tree: false } => pids.clone(),
            Target::Threads(tids) => {
                tids.iter().filter_map(|&tid| Some(procfs::owner(tid)?.0)).collect()
            }
            Target::Command(_) | Target::Everything | Target::Cgroup(_) => Vec::new(),
        };
        // Processes that the user has chosen are recognized before their first sample. Those of a whole
        // machine are too many for that, where only waits of threads need it.
        let is_chosen = !matches!(options.target, Target::Everything);
        let walks = options.stacks.has_copies() && (may_have_programs || is_chosen);
        let processes = if walks { options.target.processes(&pids) } else { Vec::new() };
        Unattached {
            frames: may_have_programs.then(BpfFrames::read),
            interpreters: Interpreters::running_in(&processes),
        }
    }

    fn attach(
        self,
        plan: &Plan<'_>,
        types: &mut ProfileTypes,
        command: Option<i32>,
    ) -> Result<Attached, Error> {
        let session = Session::open(&plan.options, types, command)?;
        let frames = self.frames.filter(|_| session.has_programs());
        let notes_at_start = session.notes().len();
        Ok(Attached { session, frames, interpreters: self.interpreters, notes_at_start })
    }
}

/// The moment at which sampling started.
#[derive(Clone, Copy, Debug)]
pub struct StartTime {
    /// To measure the length of the recording.
    pub instant: Instant,
    /// The time of day.
    pub date: SystemTime,
    /// `CLOCK_MONOTONIC` in nanoseconds, the clock of the samples.
    pub monotonic: u64,
}

impl StartTime {
    fn now() -> StartTime {
        let (instant, date) = (Instant::now(), SystemTime::now());
        StartTime { instant, date, monotonic: os::monotonic_nanos() }
    }
}

impl<'a> Opened<'a> {
    /// Opens the events. `note` gets the notes that are known then.
    ///
    /// The thread for analysis is started here, after the fork of the COMMAND, which must not
    /// inherit it, and before prof takes precedence over other processes, which it does not need.
    ///
    /// # Errors
    ///
    /// One line that states the obstacle.
    pub fn new(
        prepared: Prepared<'a>,
        note: &mut dyn FnMut(&Message),
    ) -> Result<Opened<'a>, Error> {
        let Prepared { requested, plan, mut types, command, notes: prepared } = prepared;
        let analysis = start_analysis()?;
        let mut precedence = os::Precedence::take_real_time();
        let used = UsedBefore::now(&plan.options.target);
        let attached = Unattached::new(&types, &plan.options).attach(
            &plan,
            &mut types,
            command.stopped_pid(),
        )?;
        let at_start: Vec<Message> =
            attached.session.notes().iter().chain(&prepared).cloned().collect();
        at_start.iter().for_each(note);
        let at_end = begin_types(&mut types, &plan.options)?;
        Btf::release();
        // Opening the events may have taken longer than it lasts.
        precedence.renew_at_once();
        let notes = Notes { at_start, at_end };
        Ok(Opened { requested, plan, types, command, used, analysis, precedence, attached, notes })
    }

    /// Starts sampling: the rings fill from here on. `started` gets the time that preparation took.
    ///
    /// # Errors
    ///
    /// The COMMAND cannot be started.
    pub fn begin(
        mut self,
        started: &mut dyn FnMut(Duration),
        live: Option<&'a mut dyn Live>,
    ) -> Result<Running<'a>, Error> {
        let walks = self.attached.session.deep().walk_maps().cloned();
        self.attached.interpreters.set_maps(walks);
        self.attached.session.begin();
        let start = StartTime::now();
        let cpu_time = CpuTimeBefore::new(&self.plan.options.target, &self.attached.session);
        let stopped = self.command.stopped_pid();
        self.command.go()?;
        let processes = self.plan.options.target.processes(&self.attached.session.pids);
        let at_start = AtStart::read(&processes);
        started(self.requested.elapsed());
        let Opened { plan, types, command, used, analysis, precedence, attached, notes, .. } = self;
        let Attached { session, frames, interpreters, notes_at_start } = attached;
        let mut aggregator = aggregator(&plan, types, &session, start, frames);
        aggregator.maker.interpreters = interpreters;
        aggregator.maker.table.expect(at_start);
        if let Some(pid) = stopped {
            aggregator.maker.table.expect_exec(pid);
        }
        let watch = Watch::new(&plan.options.target, &session.pids, command.child());
        let main = plan.main_process();
        let last_part =
            plan.window.last.map(|length| LastPart::new(length, start, &mut aggregator));
        let feed = live.map(|live| {
            live.started(command.child().map(|child| child.id() as i32));
            PartFeed::new(live)
        });
        let analysis = {
            let allowance = plan.options.allowance.clone();
            let thinned = allowance.clone().filter(|_| plan.options.thins_samples);
            let thinning = thinned.map(|allowance| Thinning::new(aggregator.weighted(), allowance));
            analysis.begin(aggregator, session.pids.clone(), allowance, thinning)
        };
        let sources = Sources::new(session, analysis, precedence);
        Ok(Running {
            plan,
            command,
            used,
            cpu_time,
            notes,
            notes_at_start,
            start,
            watch,
            main,
            feed,
            last_part,
            sources,
        })
    }
}

fn start_analysis() -> Result<AnalysisThread, Error> {
    AnalysisThread::start().map_err(|e| {
        Error::failed(format!("cannot start a thread for analysis: {e}; check ulimit -u and -n"))
    })
}

fn aggregator(
    plan: &Plan<'_>,
    types: ProfileTypes,
    session: &Session,
    start: StartTime,
    frames: Option<BpfFrames>,
) -> Aggregator {
    let mut aggregator = Aggregator::new(&plan.options, types, session);
    if let Some(max_samples) = plan.options.times {
        let limits = TimeLimits { start: start.monotonic, max_samples };
        aggregator.maker.builder.keep_times(limits);
    }
    if let Some(frames) = frames {
        aggregator.maker.expect_programs(frames);
    }
    aggregator
}
