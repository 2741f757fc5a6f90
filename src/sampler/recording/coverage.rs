//! The share of the target's CPU time that the samples cover.

use std::time::{Instant, SystemTime};

use crate::sampler::events::EventKind;
use crate::sampler::stack_maker::StackMaker;
use crate::sampler::{Session, Target};
use messages::CpuCoverage;
use sys::os;
use sys::procfs;

/// Maximum number of processes whose CPU time is read from `/proc`.
const MAX_PROCESSES: usize = 1024;

/// Least busy share (1/N) of the CPUs' time: below it, the kernel's accounting is too coarse, since
/// it is done at ticks.
const LEAST_BUSY: u64 = 10;

/// CPU time used before sampling started.
pub struct CpuTimeBefore {
    /// Processes with their start time and CPU time in clock ticks.
    processes: Vec<(i32, Option<SystemTime>, u64)>,
    /// CPU seconds of COMMANDs that have exited before.
    children: f64,
    /// CPU time of all sampled CPUs, in clock ticks.
    machine: Option<Busy>,
}

/// CPU time of CPUs at one moment.
struct Busy {
    at: Instant,
    ticks: u64,
}

impl CpuTimeBefore {
    /// Reads it now, unless the kernel counts the target's CPU time anyway.
    pub fn new(target: &Target, session: &Session) -> CpuTimeBefore {
        let pids = match target {
            Target::Processes { .. } if session.is_cpu_wide() => session.pids.as_slice(),
            _ => &[],
        };
        let ticks = |&pid: &i32| Some((pid, procfs::start_time(pid), procfs::stat(pid)?.cpu_ticks));
        let processes = pids.iter().take(MAX_PROCESSES).filter_map(ticks).collect();
        let machine = match target {
            Target::Everything => procfs::busy_ticks(session.cpus()),
            _ => None,
        };
        let machine = machine.map(|ticks| Busy { at: Instant::now(), ticks });
        CpuTimeBefore { processes, children: os::children_cpu(), machine }
    }

    /// After [`Session::stop`]: the coverage of CPU time that is sampled by a clock, if the total
    /// is known. Both values are those of the same processes.
    pub fn coverage(
        &self,
        target: &Target,
        session: &Session,
        maker: &StackMaker,
    ) -> Option<CpuCoverage> {
        let period = session.period().filter(|_| session.events()[0].kind == EventKind::Clock)?;
        // The samples of several events are counted together.
        let events = session.events().iter().filter(|e| e.stack).count();
        if events > 1 {
            return None;
        }
        let samples = session.stats().samples;
        if let Some(used) = session.cpu_time() {
            return Some(CpuCoverage { sampled: samples * period, used });
        }
        let stats = session.stats();
        let exact = session.loses_only_target_samples().then(|| {
            let due = samples + stats.lost;
            CpuCoverage { sampled: samples * period, used: due * period }
        });
        match exact.filter(|_| stats.lost > 0) {
            Some(exact) => Some(exact),
            None => self.measured(target, session, maker, period).or(exact),
        }
    }

    /// From the kernel's accounting of processes that have exited or still run.
    fn measured(
        &self,
        target: &Target,
        session: &Session,
        maker: &StackMaker,
        period: u64,
    ) -> Option<CpuCoverage> {
        let samples = session.stats().samples;
        if let Target::Command(_) = target {
            let used = ((os::children_cpu() - self.children) * 1e9) as u64;
            return (used > 0).then_some(CpuCoverage { sampled: samples * period, used });
        }
        let tick = 1_000_000_000 / os::ticks_per_second();
        if let Some(Busy { at, ticks }) = &self.machine {
            let event = &session.events()[0];
            let cpus = session.cpus();
            let lasted = at.elapsed().as_nanos() as u64;
            let used = procfs::busy_ticks(cpus)?.saturating_sub(*ticks) * tick;
            let least = lasted * cpus.len() as u64 / LEAST_BUSY;
            let whole = event.user && event.kernel && used >= least;
            return whole.then_some(CpuCoverage { sampled: samples * period, used });
        }
        let mut sampled = 0;
        let mut used = 0;
        for &(pid, began, before) in &self.processes {
            let now = procfs::stat(pid).filter(|_| procfs::start_time(pid) == began);
            let Some(now) = now else { continue };
            sampled += maker.counts.by_process.get(&pid).unwrap_or(&0) * period;
            used += now.cpu_ticks.saturating_sub(before) * tick;
        }
        (used > 0).then_some(CpuCoverage { sampled, used })
    }
}
