//! The sampled CPUs, and attaching a session's events to its target.

use std::sync::Arc;

use crate::sampler::attach::{Attacher, Who};
use crate::sampler::bpf::filter::SampleFilter;
use crate::sampler::bpf::walk::WalkMaps;
use crate::sampler::cgroup::CgroupMembers;
use crate::sampler::events::{EventKind, GroupRole};
use crate::sampler::filter::ProcessFilter;
use crate::sampler::permissions::{Wanted, refused};
use crate::sampler::rings::Rings;
use crate::sampler::types::{NeededClock, ProfileTypes};
use crate::sampler::{Options, Rate, Target, target};
use sys::record::Layout;
use sys::{Error, procfs};

use super::CPU_WIDE_PERIOD;

pub(super) fn cpus(options: &Options) -> Result<Vec<u32>, Error> {
    let online = procfs::online_cpus();
    let Some(wanted) = &options.cpus else { return Ok(online) };
    if let Some(missing) = wanted.iter().find(|c| !online.contains(c)) {
        let last = online.last().copied().unwrap_or(0);
        return Err(Error::usage(format!(
            "CPU {missing} is not online; this machine has {} CPUs up to number {last}",
            online.len()
        )));
    }
    Ok(wanted.clone())
}

/// Chooses between events on whole CPUs (true) and events on the target's threads.
///
/// Whole CPUs are sampled for processes too (see [`ProcessFilter`]) if the user has the privilege
/// and other processes are hardly slowed: CPU time only, at no more than about 1,000 Hz. `walks`:
/// those that programs make.
pub(super) fn new_attacher(
    options: &Options,
    types: &mut ProfileTypes,
    cpus: &[u32],
    walks: Option<&Arc<WalkMaps>>,
) -> Result<(Attacher, bool), Error> {
    let processes = matches!(options.target, Target::Processes { .. } | Target::Command(_));
    let no_event = types.clock() == NeededClock::None && options.events.is_empty();
    let cpu_time = options.events.iter().all(|e| e.kind == EventKind::Clock)
        && !(no_event && types.need_processes());
    let seldom = match options.rate {
        Rate::Frequency(hz) => hz <= 1_000_000_000 / CPU_WIDE_PERIOD,
        Rate::Period(period) => period >= CPU_WIDE_PERIOD && !options.events.is_empty(),
        Rate::Max => false,
    };
    let grouped = options.events.iter().any(|e| e.group == GroupRole::Leader);
    let each_time = types.iter().any(|(_, kind)| kind.program_needs().thread_events);
    let clock_alone = cpu_time && !grouped && !each_time;
    if processes && options.inherit && clock_alone && seldom {
        match Attacher::new(options, types, cpus.to_vec(), true, walks) {
            Ok(attacher) if attacher.features.kernel && attacher.has_everything() => {
                return Ok((attacher, true));
            }
            // Not permitted: events on the target's own threads may be.
            _ => {}
        }
    }
    let cpu_wide = matches!(options.target, Target::Everything | Target::Cgroup(_));
    Ok((Attacher::new(options, types, cpus.to_vec(), cpu_wide, walks)?, false))
}

/// The filter for the target's processes among the events of all CPUs; `kernel` has the same set.
pub(super) fn filter(
    options: &Options,
    command: Option<i32>,
    kernel: Option<&SampleFilter>,
) -> Result<(Option<ProcessFilter>, Vec<i32>), Error> {
    let insert = |pids: &[i32]| {
        if let Some(filter) = kernel {
            pids.iter().for_each(|&pid| filter.insert(pid));
        }
    };
    match (&options.target, command) {
        (_, Some(pid)) => {
            insert(&[pid]);
            Ok((Some(ProcessFilter::after_exec(pid)), vec![pid]))
        }
        (Target::Processes { pids, tree }, None) => {
            // Some may have ended since the user was shown the list.
            let mut pids = target::living_processes(pids)?.ids;
            insert(&pids);
            // Processes started from now on are followed; those started earlier may start more
            // during the search.
            let mut again = *tree;
            while again {
                let mut more = procfs::descendants(&pids);
                more.retain(|pid| !pids.contains(pid));
                insert(&more);
                again = !more.is_empty();
                pids.extend(more);
            }
            Ok((Some(ProcessFilter::for_pids(&pids)), pids))
        }
        _ => Ok((None, Vec::new())),
    }
}

/// The cgroups of the target, if samples have that of their process.
pub(super) fn cgroups(
    options: &Options,
    layouts: &[Layout],
) -> Result<Option<CgroupMembers>, Error> {
    match &options.target {
        Target::Cgroup(path) if layouts.iter().any(|layout| layout.cgroup) => {
            Ok(Some(CgroupMembers::new(&target::cgroup_directory(path)?)))
        }
        _ => Ok(None),
    }
}

/// Opens the events on the target; returns the processes found.
pub(super) fn attach(
    attacher: &mut Attacher,
    options: &Options,
    command: Option<i32>,
    rings: &mut Rings,
) -> Result<Vec<i32>, Error> {
    match &options.target {
        Target::Everything => {
            let opened = attacher.open(Who::Cpu, rings.outputs());
            opened.map_err(|e| refused(&e, Wanted::WholeMachine))?;
            Ok(Vec::new())
        }
        Target::Cgroup(path) => {
            let cgroup = target::open_cgroup(path)?;
            let opened = attacher.open(Who::Cgroup(&cgroup), rings.outputs());
            let wanted = Wanted::Cgroup(path.display().to_string());
            opened.map_err(|e| refused(&e, wanted))?;
            Ok(Vec::new())
        }
        Target::Threads(tids) => attach_threads(attacher, tids, rings),
        Target::Command(_) => {
            let pid = command.expect("a command was started before");
            let opened = attacher.open(Who::Thread(pid), rings.outputs());
            opened.map_err(|e| refused(&e, Wanted::OtherProcess(pid as u32)))?;
            Ok(vec![pid])
        }
        Target::Processes { pids, tree } => {
            let mut pids = pids.clone();
            if *tree {
                let more = procfs::descendants(&pids);
                pids.extend(more);
            }
            let threads = pids.iter().map(|&p| procfs::threads(p).map_or(0, |t| t.len())).sum();
            attacher.reserve_files(threads)?;
            if attacher.attach_processes(&pids, rings)? == 0 {
                return Err(target::gone("process", pids[0]));
            }
            Ok(pids)
        }
    }
}

fn attach_threads(
    attacher: &mut Attacher,
    tids: &[i32],
    rings: &mut Rings,
) -> Result<Vec<i32>, Error> {
    attacher.reserve_files(tids.len())?;
    let mut pids = Vec::new();
    for &tid in tids {
        let pid = procfs::owner(tid).map_or(tid, |(pid, _)| pid);
        let opened = attacher.open(Who::Thread(tid), rings.outputs());
        // Some may have ended since the user was shown the list.
        let lives = opened.map_err(|e| refused(&e, Wanted::OtherProcess(pid as u32)))?;
        if lives && !pids.contains(&pid) {
            pids.push(pid);
        }
    }
    match (pids.is_empty(), tids.first()) {
        (true, Some(&first)) => Err(target::gone("thread", first)),
        _ => Ok(pids),
    }
}
