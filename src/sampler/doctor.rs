//! The checks of `prof doctor`: recordings that this user can make on this machine, and the
//! obstacles to others. [`checks`] tries each feature.

mod text;

use std::fs;
use std::io;
use std::path::Path;

use perf_event_open_sys::bindings as abi;

use super::bpf::ThreadScope;
use super::bpf::btf::Btf;
use super::bpf::deep;
use super::bpf::sched::SchedProgram;
use super::bpf::syscalls::{SyscallProgram, TracedCalls};
use super::permissions::probe::{self, TriedEvent};
use super::permissions::{
    Facts, FileLimit, Obstacle, Reason, Wanted, debug_package, is_denied, process_of_another,
    tracepoint_id,
};
use super::ring;
use super::rings::largest_ring;

/// A feature of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// Processes of this user, without which no recording is possible.
    OwnProcesses,
    /// The kernel's part of stacks.
    KernelFrames,
    /// Processes of other users.
    OtherProcesses,
    /// Everything on the machine.
    WholeMachine,
    /// Counters of the CPU.
    HardwareEvents,
    /// Tracepoints.
    Tracepoints,
    /// BPF programs that aggregate in the kernel.
    KernelPrograms,
    /// Stacks of more than 64 KiB.
    DeepStacks,
    /// Ring buffers that do not lose samples at usual rates.
    RingBuffers,
    /// Open files for the events of many threads.
    OpenFiles,
    /// Names of kernel functions.
    KernelSymbols,
    /// Names of functions in the system's libraries.
    DebugSymbols,
}

/// A feature that works, with the facts of the trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Works {
    /// [`Feature::OwnProcesses`].
    OwnProcesses,
    /// [`Feature::KernelFrames`].
    KernelFrames,
    /// [`Feature::OtherProcesses`]: this one was tried.
    OtherProcess(u32),
    /// [`Feature::OtherProcesses`]: the capability is held.
    AnyProcess,
    /// [`Feature::WholeMachine`].
    WholeMachine,
    /// [`Feature::HardwareEvents`].
    HardwareEvents,
    /// [`Feature::Tracepoints`]: this one was tried.
    Tracepoint(&'static str),
    /// [`Feature::KernelPrograms`].
    KernelPrograms,
    /// [`Feature::DeepStacks`].
    DeepStacks,
    /// [`Feature::RingBuffers`].
    RingBuffers {
        /// The size of each in MiB.
        mib: u64,
        /// Their number.
        cpus: u64,
    },
    /// [`Feature::OpenFiles`].
    OpenFiles(FileLimit),
    /// [`Feature::KernelSymbols`].
    KernelSymbols,
    /// [`Feature::DebugSymbols`].
    DebugSymbols,
}

/// A feature, and whether it works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The feature.
    pub feature: Feature,
    /// The facts of the trial, or the obstacle.
    pub result: Result<Works, Obstacle>,
}

/// Size in bytes of a ring buffer that does not lose samples at usual rates.
fn ring_bytes(facts: &Facts) -> u64 {
    largest_ring(facts.cpus as usize) as u64
}

/// All checks, the most important first. Takes some milliseconds.
pub fn checks() -> Vec<Check> {
    let facts = &Facts::read();
    let checks = [
        (Feature::OwnProcesses, own_processes(facts)),
        (Feature::KernelFrames, kernel_frames(facts)),
        (Feature::OtherProcesses, other_processes(facts)),
        (Feature::WholeMachine, whole_machine(facts)),
        (Feature::HardwareEvents, hardware_events(facts)),
        (Feature::Tracepoints, tracepoints(facts)),
        (Feature::KernelPrograms, kernel_programs(facts)),
        (Feature::DeepStacks, deep_stacks_work(facts)),
        (Feature::RingBuffers, ring_buffers(facts)),
        (Feature::OpenFiles, file_descriptors(facts)),
        (Feature::KernelSymbols, kernel_symbols(facts)),
        (Feature::DebugSymbols, debug_symbols(facts)),
    ];
    checks.into_iter().map(|(feature, result)| Check { feature, result }).collect()
}

/// Checks an event by opening it.
fn opened(
    facts: &Facts,
    event: TriedEvent,
    works: Works,
    wanted: &Wanted,
) -> Result<Works, Obstacle> {
    event.open().map(|_| works).map_err(|error| Obstacle::from_error(&error, wanted, facts))
}

fn own_processes(facts: &Facts) -> Result<Works, Obstacle> {
    let event = TriedEvent { exclude_kernel: true, ..TriedEvent::cpu_clock() };
    let works = opened(facts, event, Works::OwnProcesses, &Wanted::OwnProcess)?;
    if rings(ring::LEAST as u64, facts).is_err() {
        rings(ring_bytes(facts), facts)?;
    }
    Ok(works)
}

fn kernel_frames(facts: &Facts) -> Result<Works, Obstacle> {
    opened(facts, TriedEvent::cpu_clock(), Works::KernelFrames, &Wanted::Kernel)
}

fn other_processes(facts: &Facts) -> Result<Works, Obstacle> {
    let Some(pid) = process_of_another(facts.uid) else {
        return if facts.may_trace() {
            Ok(Works::AnyProcess)
        } else {
            Err(Obstacle::new(Reason::NoOtherProcess, facts))
        };
    };
    let event = TriedEvent { pid: pid as i32, exclude_kernel: true, ..TriedEvent::cpu_clock() };
    let works = opened(facts, event, Works::OtherProcess(pid), &Wanted::OtherProcess(pid))?;
    // Samples alone are useless: the binaries are named in a file that needs another privilege.
    match fs::File::open(format!("/proc/{pid}/maps")) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(Obstacle::new(Reason::HiddenMappings { pid: Some(pid) }, facts))
        }
        _ => Ok(works),
    }
}

fn whole_machine(facts: &Facts) -> Result<Works, Obstacle> {
    opened(facts, TriedEvent::whole_machine(), Works::WholeMachine, &Wanted::WholeMachine)
}

fn hardware_events(facts: &Facts) -> Result<Works, Obstacle> {
    let event = TriedEvent {
        kind: abi::PERF_TYPE_HARDWARE,
        config: u64::from(abi::PERF_COUNT_HW_CPU_CYCLES),
        exclude_kernel: true,
        ..TriedEvent::cpu_clock()
    };
    let missing = [Some(libc::ENOENT), Some(libc::EOPNOTSUPP), Some(libc::ENODEV)];
    match event.open() {
        Err(error) if missing.contains(&error.raw_os_error()) => {
            Err(Obstacle::new(Reason::NoCounters, facts))
        }
        _ => opened(facts, event, Works::HardwareEvents, &Wanted::OwnProcess),
    }
}

fn tracepoints(facts: &Facts) -> Result<Works, Obstacle> {
    let tried = "sched:sched_switch";
    let id = tracepoint_id("sched", "sched_switch")
        .map_err(|error| Obstacle::from_error(&error, &Wanted::Tracefs(tried.into()), facts))?;
    let kind = abi::PERF_TYPE_TRACEPOINT;
    let event = TriedEvent { kind, config: id, period: 1, ..TriedEvent::cpu_clock() };
    opened(facts, event, Works::Tracepoint(tried), &Wanted::Tracepoint(tried.into()))
}

/// Every feature works without them, so no command is shown.
fn kernel_programs(facts: &Facts) -> Result<Works, Obstacle> {
    let (wall, calls) = match Btf::running() {
        Ok(kernel) => (
            SchedProgram::load(&kernel, ThreadScope::Alone).map(drop),
            SyscallProgram::load(&kernel, TracedCalls::Waits, ThreadScope::Alone).map(drop),
        ),
        Err(error) => (Ok(()), Err(error)),
    };
    let reason = match (wall, calls) {
        (Ok(()), Ok(())) => return Ok(Works::KernelPrograms),
        (Err(wall), Ok(())) => Reason::NoWallTime(wall.to_string()),
        (_, Err(error)) => Reason::NoTimedCalls(error.to_string()),
    };
    Err(Obstacle::new(reason, facts))
}

fn deep_stacks_work(facts: &Facts) -> Result<Works, Obstacle> {
    deep::check()
        .map(|()| Works::DeepStacks)
        .map_err(|error| Obstacle::for_deep_stacks(&error, facts))
}

fn ring_buffers(facts: &Facts) -> Result<Works, Obstacle> {
    let bytes = ring_bytes(facts);
    rings(bytes, facts).map(|()| Works::RingBuffers { mib: bytes >> 20, cpus: facts.cpus })
}

/// Checks whether every CPU can have a ring of this size.
fn rings(bytes: u64, facts: &Facts) -> Result<(), Obstacle> {
    let enough = facts.ring_limit().is_none_or(|limit| limit >= bytes);
    match probe::map_ring(bytes) {
        Ok(()) if enough => Ok(()),
        Err(error) if !is_denied(&error) => {
            Err(Obstacle::from_error(&error, &Wanted::OwnProcess, facts))
        }
        _ => Err(Obstacle::for_rings(bytes, facts)),
    }
}

fn file_descriptors(facts: &Facts) -> Result<Works, Obstacle> {
    let limit = FileLimit::new(facts);
    if limit.threads >= FileLimit::ENOUGH {
        Ok(Works::OpenFiles(limit))
    } else {
        Err(Obstacle::new(Reason::FewFiles(limit), facts))
    }
}

fn kernel_symbols(facts: &Facts) -> Result<Works, Obstacle> {
    let line = fs::File::open("/proc/kallsyms").and_then(|f| {
        let mut line = String::new();
        io::BufRead::read_line(&mut io::BufReader::new(f), &mut line)?;
        Ok(line)
    });
    let reason = match line {
        Ok(line) if line.starts_with("0000000000000000 ") || line.starts_with("00000000 ") => {
            let kptr = facts.kptr_restrict.unwrap_or(0);
            Reason::HiddenSymbols { kptr, paranoid: facts.paranoid.unwrap_or(2) }
        }
        Ok(line) if !line.is_empty() => return Ok(Works::KernelSymbols),
        Ok(_) => Reason::NoSymbols,
        Err(error) => Reason::SymbolsUnreadable(error.to_string()),
    };
    Err(Obstacle::new(reason, facts))
}

fn debug_symbols(facts: &Facts) -> Result<Works, Obstacle> {
    let dir = Path::new("/usr/lib/debug/.build-id");
    if fs::read_dir(dir).is_ok_and(|mut d| d.next().is_some()) {
        return Ok(Works::DebugSymbols);
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let package = debug_package(&release);
    Err(Obstacle::new(Reason::NoDebugSymbols(package), facts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_a_reason_and_a_code() {
        let all = checks();
        assert_eq!(all[0].feature, Feature::OwnProcesses);
        for check in &all {
            assert!(!check.why().is_empty() && !check.why().contains('\n'), "{check:?}");
        }
        let codes: std::collections::HashSet<_> = all.iter().map(|c| c.feature.code()).collect();
        assert_eq!(codes.len(), all.len());
    }

    #[test]
    fn checks_say_what_a_reason_means_for_their_feature() {
        let check = |feature, reason| {
            Check { feature, result: Err(Obstacle { reason, unlock: None }) }.why()
        };
        assert_eq!(
            check(Feature::OtherProcesses, Reason::HiddenMappings { pid: Some(7) }),
            "samples are possible, but /proc/7/maps cannot be read"
        );
        let failed = Reason::ProgramsFail("no memory".to_owned());
        assert_eq!(
            check(Feature::DeepStacks, failed),
            "stacks end after 64 KiB: no BPF program can copy more (no memory)"
        );
        assert_eq!(Feature::OtherProcesses.to_string(), "others' processes");
        assert_eq!(Feature::OwnProcesses.to_string(), "own processes");
    }
}
