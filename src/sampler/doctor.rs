//! The checks of `prof doctor`: recordings that this user can make on this machine, and the
//! obstacles to others. [`checks`] tries each feature.

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
    Facts, Wanted, is_denied, no_deep_stacks, obstacle, package_manager, process_of_another,
    ring_memory, tracepoint_id,
};
use super::ring;
use super::rings::largest_ring;
use messages::Message;

/// What a trial has found, or the obstacle.
type Trial = Result<Message, Message>;

/// A feature's code, and its trial.
type Feature = (&'static str, fn(&Facts) -> Trial);

/// The features of a recording, the most important first.
const FEATURES: [Feature; 12] = [
    (Check::OWN_PROCESSES, own_processes),
    ("kernel-frames", kernel_frames),
    ("other-processes", other_processes),
    ("whole-machine", whole_machine),
    ("hardware-events", hardware_events),
    ("tracepoints", tracepoints),
    ("kernel-programs", kernel_programs),
    ("deep-stacks", deep_stacks_work),
    ("ring-buffers", ring_buffers),
    ("open-files", file_descriptors),
    ("kernel-symbols", kernel_symbols),
    ("debug-symbols", debug_symbols),
];

/// A feature, and whether it works.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The feature's code, which never changes.
    pub code: &'static str,
    /// What the trial has found, or the obstacle.
    pub result: Trial,
}

impl Check {
    /// The code of the feature without which no recording is possible.
    pub const OWN_PROCESSES: &str = "own-processes";

    /// The feature's name in messages.
    pub fn name(&self) -> String {
        match self.code {
            "other-processes" => "others' processes".to_owned(),
            code => code.replace('-', " "),
        }
    }

    /// The result, whichever it is.
    pub fn message(&self) -> &Message {
        self.result.as_ref().unwrap_or_else(|obstacle| obstacle)
    }
}

/// Size in bytes of a ring buffer that does not lose samples at usual rates.
fn ring_bytes(facts: &Facts) -> u64 {
    largest_ring(facts.cpus as usize) as u64
}

/// All checks, the most important first. Takes some milliseconds.
pub fn checks() -> Vec<Check> {
    let facts = Facts::read();
    FEATURES.map(|(code, tried)| Check { code, result: tried(&facts) }).into()
}

/// Checks an event by opening it.
fn opened(facts: &Facts, event: TriedEvent, works: Message, wanted: &Wanted) -> Trial {
    event.open().map(|_| works).map_err(|error| obstacle(&error, wanted, facts))
}

fn own_processes(facts: &Facts) -> Trial {
    let event = TriedEvent { exclude_kernel: true, ..TriedEvent::cpu_clock() };
    let works = opened(facts, event, Message::OwnProcesses, &Wanted::OwnProcess)?;
    if rings(ring::LEAST as u64, facts).is_err() {
        rings(ring_bytes(facts), facts)?;
    }
    Ok(works)
}

fn kernel_frames(facts: &Facts) -> Trial {
    opened(facts, TriedEvent::cpu_clock(), Message::KernelFrames, &Wanted::Kernel)
}

fn other_processes(facts: &Facts) -> Trial {
    let Some(pid) = process_of_another(facts.uid) else {
        return if facts.may_trace() {
            Ok(Message::AnyProcess)
        } else {
            Err(Message::NoOtherProcess)
        };
    };
    let event = TriedEvent { pid: pid as i32, exclude_kernel: true, ..TriedEvent::cpu_clock() };
    let wanted = Wanted::OtherProcess(pid);
    // Which process: the reason is about it.
    let works = opened(facts, event, Message::OtherProcess { pid }, &wanted)
        .map_err(|why| Message::Refused { wanted, why: Box::new(why) })?;
    // Samples alone are useless: the binaries are named in a file that needs another privilege.
    match fs::File::open(format!("/proc/{pid}/maps")) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(Message::SamplesWithoutMappings {
                pid,
                program: facts.program_without_trace(),
                sudo: facts.needs_sudo(),
            })
        }
        _ => Ok(works),
    }
}

fn whole_machine(facts: &Facts) -> Trial {
    opened(facts, TriedEvent::whole_machine(), Message::WholeMachine, &Wanted::WholeMachine)
}

fn hardware_events(facts: &Facts) -> Trial {
    let event = TriedEvent {
        kind: abi::PERF_TYPE_HARDWARE,
        config: u64::from(abi::PERF_COUNT_HW_CPU_CYCLES),
        exclude_kernel: true,
        ..TriedEvent::cpu_clock()
    };
    let missing = [Some(libc::ENOENT), Some(libc::EOPNOTSUPP), Some(libc::ENODEV)];
    match event.open() {
        Err(error) if missing.contains(&error.raw_os_error()) => Err(Message::NoCounters),
        _ => opened(facts, event, Message::HardwareEvents, &Wanted::OwnProcess),
    }
}

fn tracepoints(facts: &Facts) -> Trial {
    let name = "sched:sched_switch";
    let id = tracepoint_id("sched", "sched_switch")
        .map_err(|error| obstacle(&error, &Wanted::Tracefs(name.into()), facts))?;
    let kind = abi::PERF_TYPE_TRACEPOINT;
    let event = TriedEvent { kind, config: id, period: 1, ..TriedEvent::cpu_clock() };
    opened(
        facts,
        event,
        Message::Tracepoints { tried: name.into() },
        &Wanted::Tracepoint(name.into()),
    )
}

/// Every feature works without them, so no command is shown.
fn kernel_programs(_: &Facts) -> Trial {
    let (wall, calls) = match Btf::running() {
        Ok(kernel) => (
            SchedProgram::load(&kernel, ThreadScope::Alone, None).map(drop),
            SyscallProgram::load(&kernel, TracedCalls::Waits, ThreadScope::Alone, None).map(drop),
        ),
        Err(error) => (Ok(()), Err(error)),
    };
    match (wall, calls) {
        (Ok(()), Ok(())) => Ok(Message::KernelPrograms),
        (Err(wall), Ok(())) => Err(Message::NoWallTime { error: wall.to_string() }),
        (_, Err(error)) => Err(Message::NoTimedCalls { error: error.to_string() }),
    }
}

fn deep_stacks_work(facts: &Facts) -> Trial {
    deep::check()
        .map(|()| Message::DeepStacks)
        .map_err(|error| Message::StacksEndEarly { why: Box::new(no_deep_stacks(&error, facts)) })
}

fn ring_buffers(facts: &Facts) -> Trial {
    let bytes = ring_bytes(facts);
    rings(bytes, facts).map(|()| Message::RingBuffers { mib: bytes >> 20, cpus: facts.cpus })
}

/// Checks whether every CPU can have a ring of this size.
fn rings(bytes: u64, facts: &Facts) -> Result<(), Message> {
    let enough = facts.ring_limit().is_none_or(|limit| limit >= bytes);
    match probe::map_ring(bytes) {
        Ok(()) if enough => Ok(()),
        Err(error) if !is_denied(&error) => Err(obstacle(&error, &Wanted::OwnProcess, facts)),
        _ => Err(ring_memory(bytes, facts)),
    }
}

fn file_descriptors(facts: &Facts) -> Trial {
    /// Number of threads that should be possible.
    const ENOUGH: u64 = 1000;
    /// Files that are open in addition to events.
    const OTHERS: u64 = 64;
    let limited = |limit: u64| (limit != u64::MAX).then_some(limit);
    let ((soft, hard), cpus) = (facts.open_files, facts.cpus);
    let (soft, hard) = (limited(soft), limited(hard));
    // One event for each thread on each CPU.
    let threads = hard.map(|hard| hard.saturating_sub(OTHERS) / cpus.max(1));
    if threads.is_none_or(|threads| threads >= ENOUGH) {
        return Ok(Message::EnoughFiles { hard, soft, threads });
    }
    let needed = ENOUGH * cpus + OTHERS;
    Err(Message::FewFiles { hard, soft, threads, needed, sudo: facts.needs_sudo() })
}

fn kernel_symbols(facts: &Facts) -> Trial {
    let line = fs::File::open("/proc/kallsyms").and_then(|f| {
        let mut line = String::new();
        io::BufRead::read_line(&mut io::BufReader::new(f), &mut line)?;
        Ok(line)
    });
    Err(match line {
        Ok(line) if line.starts_with("0000000000000000 ") || line.starts_with("00000000 ") => {
            let kptr = facts.kptr_restrict.unwrap_or(0);
            let paranoid = facts.paranoid.unwrap_or(2);
            Message::HiddenSymbols { kptr, paranoid, sudo: facts.needs_sudo() }
        }
        Ok(line) if !line.is_empty() => return Ok(Message::KernelSymbols),
        Ok(_) => Message::NoSymbols,
        Err(error) => Message::SymbolsUnreadable { error: error.to_string() },
    })
}

fn debug_symbols(facts: &Facts) -> Trial {
    let dir = Path::new("/usr/lib/debug/.build-id");
    if fs::read_dir(dir).is_ok_and(|mut d| d.next().is_some()) {
        return Ok(Message::DebugSymbols);
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let manager = package_manager(&release);
    Err(Message::NoDebugSymbols { manager, sudo: facts.needs_sudo() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use messages::Level;
    use std::collections::HashSet;

    #[test]
    fn every_check_has_a_reason_and_a_code() {
        let all = checks();
        for check in &all {
            let why = check.message().sentence();
            assert!(!why.is_empty() && !why.contains('\n'), "{check:?}");
            assert_eq!(check.result.is_ok(), check.message().level() == Level::Detail);
        }
        let codes: HashSet<_> = all.iter().map(|c| c.code).collect();
        assert_eq!(codes.len(), all.len());
        assert_eq!([all[0].name(), all[2].name()], ["own processes", "others' processes"]);
    }
}
