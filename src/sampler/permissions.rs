//! What this user may record on this machine, the reasons why not the rest, and the commands that
//! unlock it.
//!
//! [`checks`] tries each feature; [`explain`] describes a refusal in one line.

mod explain;
mod facts;
pub mod probe;

pub use explain::{Wanted, explain, explain_deep_stacks, explain_hidden_mappings};
pub use facts::{Facts, tracefs_is_mounted, tracepoint_id};

use std::fs;
use std::io;
use std::path::Path;

use perf_event_open_sys::bindings as abi;
use probe::TriedEvent;

use super::bpf::ThreadScope;
use super::bpf::btf::Btf;
use super::bpf::deep;
use super::bpf::sched::Waits;
use super::bpf::syscalls::{Calls, Which};
use super::ring;
use super::rings::largest_ring;

/// One feature of a recording, and whether it works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The name of the feature, for example `whole machine`.
    pub name: &'static str,
    /// True if it works.
    pub ok: bool,
    /// The trial and its result.
    pub why: String,
    /// The exact command that unlocks it; `None` if it works, or if no command helps.
    pub unlock: Option<String>,
}

impl Check {
    fn yes(name: &'static str, why: impl Into<String>) -> Check {
        Check { name, ok: true, why: why.into(), unlock: None }
    }

    fn no(name: &'static str, why: impl Into<String>, unlock: Option<String>) -> Check {
        Check { name, ok: false, why: why.into(), unlock }
    }
}

/// Name of the check without which no recording is possible.
pub const MAIN_CHECK: &str = "own processes";

/// Size in bytes of a ring buffer that does not lose samples at usual rates.
fn ring_bytes(facts: &Facts) -> u64 {
    largest_ring(facts.cpus as usize) as u64
}

/// True if this user may sample whole CPUs.
pub fn may_sample_cpus() -> bool {
    whole_machine(&Facts::read()).ok
}

/// All checks, the most important first. Takes some milliseconds.
pub fn checks() -> Vec<Check> {
    let facts = Facts::read();
    vec![
        own_processes(&facts),
        kernel_frames(&facts),
        other_processes(&facts),
        whole_machine(&facts),
        hardware_events(&facts),
        tracepoints(&facts),
        kernel_programs(),
        deep_stacks(&facts),
        ring_buffers(&facts),
        file_descriptors(&facts),
        kernel_symbols(&facts),
        debug_symbols(),
    ]
}

/// Checks an event by opening it.
fn opened(
    facts: &Facts,
    name: &'static str,
    event: TriedEvent,
    works: &str,
    wanted: &Wanted,
) -> Check {
    match event.open() {
        Ok(_) => Check::yes(name, works),
        Err(error) => {
            let (why, unlock) = explain::parts(&error, wanted, facts);
            Check::no(name, why, unlock)
        }
    }
}

fn own_processes(facts: &Facts) -> Check {
    let event = TriedEvent { exclude_kernel: true, ..TriedEvent::cpu_clock() };
    let works = "prof record -p PID, -- COMMAND";
    let check = opened(facts, MAIN_CHECK, event, works, &Wanted::OwnProcess);
    if check.ok
        && rings(ring::LEAST as u64, facts).is_err()
        && let Err((why, unlock)) = rings(ring_bytes(facts), facts)
    {
        return Check::no(MAIN_CHECK, why, unlock);
    }
    check
}

fn kernel_frames(facts: &Facts) -> Check {
    let works = "stacks include the kernel's part";
    opened(facts, "kernel frames", TriedEvent::cpu_clock(), works, &Wanted::Kernel)
}

fn other_processes(facts: &Facts) -> Check {
    let name = "others' processes";
    let Some(pid) = facts::process_of_another(facts.uid) else {
        return if facts.may_trace() {
            Check::yes(name, "there are none now, but CAP_SYS_PTRACE is held")
        } else {
            Check::no(name, "there are none to try, and CAP_SYS_PTRACE is not held", None)
        };
    };
    let event = TriedEvent { pid: pid as i32, exclude_kernel: true, ..TriedEvent::cpu_clock() };
    let wanted = Wanted::OtherProcess(pid);
    let check = opened(facts, name, event, &format!("process {pid} was tried"), &wanted);
    // Samples alone are useless: the binaries are named in a file that needs another privilege.
    match fs::File::open(format!("/proc/{pid}/maps")) {
        Err(error) if check.ok && error.kind() == io::ErrorKind::PermissionDenied => {
            let (why, unlock) = explain::hidden_mappings(&pid.to_string(), facts);
            Check::no(name, format!("samples are possible, but {why}"), unlock)
        }
        _ => check,
    }
}

fn whole_machine(facts: &Facts) -> Check {
    let event = TriedEvent { pid: -1, cpu: 0, exclude_kernel: true, ..TriedEvent::cpu_clock() };
    opened(facts, "whole machine", event, "prof record -a", &Wanted::WholeMachine)
}

fn hardware_events(facts: &Facts) -> Check {
    let name = "hardware events";
    let cycles = u64::from(abi::PERF_COUNT_HW_CPU_CYCLES);
    let event = TriedEvent {
        kind: abi::PERF_TYPE_HARDWARE,
        config: cycles,
        exclude_kernel: true,
        ..TriedEvent::cpu_clock()
    };
    match event.open() {
        Err(e)
            if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV)) =>
        {
            let why = "no performance counters here (as in most virtual machines): \
                       the event cpu-clock takes the place of cycles";
            Check::no(name, why, None)
        }
        _ => {
            opened(facts, name, event, "cycles, instructions, cache-misses, …", &Wanted::OwnProcess)
        }
    }
}

fn tracepoints(facts: &Facts) -> Check {
    let name = "tracepoints";
    let tried = "sched:sched_switch";
    match tracepoint_id("sched", "sched_switch") {
        Ok(id) => {
            let kind = abi::PERF_TYPE_TRACEPOINT;
            let event = TriedEvent { kind, config: id, period: 1, ..TriedEvent::cpu_clock() };
            let wanted = Wanted::Tracepoint(tried.into());
            opened(facts, name, event, &format!("{tried} was tried"), &wanted)
        }
        Err(error) => {
            let (why, unlock) = explain::parts(&error, &Wanted::Tracefs(tried.into()), facts);
            Check::no(name, why, unlock)
        }
    }
}

/// Every feature works without them, so no command is shown.
fn kernel_programs() -> Check {
    let name = "kernel programs";
    let (wall, calls) = match Btf::of_kernel() {
        Ok(kernel) => (
            Waits::load(&kernel, ThreadScope::Alone).map(drop),
            Calls::load(&kernel, Which::Waits, ThreadScope::Alone).map(drop),
        ),
        Err(why) => (Ok(()), Err(why)),
    };
    let instead = "events report each of them instead, which costs more";
    match (wall, calls) {
        (Ok(()), Ok(())) => {
            Check::yes(name, "wall time, waits for locks and system calls are timed in the kernel")
        }
        (Err(wall), Ok(())) => {
            let why = format!("wall time is not aggregated in the kernel ({wall}): {instead}");
            Check::no(name, why, None)
        }
        (_, Err(why)) => {
            let what = "wall time, waits for locks and system calls are not timed in the kernel";
            Check::no(name, format!("{what} ({why}): {instead}"), None)
        }
    }
}

/// Stacks of more than 64 KiB.
fn deep_stacks(facts: &Facts) -> Check {
    let name = "deep stacks";
    match deep::check() {
        Ok(()) => Check::yes(name, "up to 2 MiB of each stack are copied at 99 Hz, 256 KiB at 999"),
        Err(error) => {
            let (why, unlock) = explain::deep_stacks(&error, facts);
            Check::no(name, format!("stacks end after 64 KiB: {why}"), unlock)
        }
    }
}

fn ring_buffers(facts: &Facts) -> Check {
    let name = "ring buffers";
    let cpus = facts.cpus;
    match rings(ring_bytes(facts), facts) {
        Ok(()) => Check::yes(
            name,
            format!(
                "{} MiB on each of {cpus} CPUs can be locked in memory",
                ring_bytes(facts) >> 20
            ),
        ),
        Err((why, unlock)) => Check::no(name, why, unlock),
    }
}

/// Checks whether every CPU can have a ring of this size; else the reason, and the command that
/// helps.
fn rings(bytes: u64, facts: &Facts) -> Result<(), (String, Option<String>)> {
    let enough = facts.ring_limit().is_none_or(|limit| limit >= bytes);
    match probe::map_ring(bytes) {
        Ok(()) if enough => Ok(()),
        Err(error) if !is_refusal(&error) => {
            Err(explain::parts(&error, &Wanted::OwnProcess, facts))
        }
        _ => Err(explain::ring(bytes, facts)),
    }
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES))
}

fn file_descriptors(facts: &Facts) -> Check {
    let name = "open files";
    let (soft, hard) = facts.open_files;
    // One event for each thread on each CPU.
    let threads = hard.saturating_sub(64) / facts.cpus.max(1);
    let shown = |n: u64| if n == u64::MAX { "unlimited".to_owned() } else { n.to_string() };
    let why = format!(
        "limit {} (now {}): enough for processes of {} threads",
        shown(hard),
        shown(soft),
        shown(if hard == u64::MAX { hard } else { threads }),
    );
    if threads >= 1000 {
        Check::yes(name, why)
    } else {
        let wanted = 1000 * facts.cpus + 64;
        let unlock = format!("{}prlimit --pid $$ --nofile={wanted}", facts.sudo());
        Check::no(name, why, Some(unlock))
    }
}

fn kernel_symbols(facts: &Facts) -> Check {
    let name = "kernel symbols";
    let line = fs::File::open("/proc/kallsyms").and_then(|f| {
        let mut line = String::new();
        io::BufRead::read_line(&mut io::BufReader::new(f), &mut line)?;
        Ok(line)
    });
    match line {
        Ok(line) if line.starts_with("0000000000000000 ") || line.starts_with("00000000 ") => {
            let (why, unlock) = explain::hidden_symbols(facts);
            Check::no(name, why, Some(unlock))
        }
        Ok(line) if !line.is_empty() => Check::yes(name, "/proc/kallsyms has them"),
        Ok(_) => Check::no(name, "/proc/kallsyms is empty", None),
        Err(error) => Check::no(name, format!("/proc/kallsyms: {error}"), None),
    }
}

fn debug_symbols() -> Check {
    let name = "debug symbols";
    let dir = Path::new("/usr/lib/debug/.build-id");
    if fs::read_dir(dir).is_ok_and(|mut d| d.next().is_some()) {
        return Check::yes(name, "/usr/lib/debug has some of the system's libraries");
    }
    let why = "none of the system's libraries in /usr/lib/debug (programs that carry \
               their own need none)";
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let sudo = Facts::read().sudo();
    Check::no(name, why, facts::debug_package(&release).map(|c| format!("{sudo}{c}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_says_why() {
        let all = checks();
        assert_eq!(all[0].name, MAIN_CHECK);
        for check in &all {
            assert!(!check.why.is_empty(), "{check:?}");
            assert!(!(check.ok && check.unlock.is_some()), "{check:?}");
            assert!(!check.why.contains('\n'), "{check:?}");
        }
        let names: std::collections::HashSet<_> = all.iter().map(|c| c.name).collect();
        assert_eq!(names.len(), all.len());
    }
}
