//! The filter of processes in the kernel, when whole CPUs are sampled on behalf of a few processes:
//! a program at the sampling event drops the samples of all others before they are written, so that
//! other load does not fill the rings.
//!
//! Processes are identified by PID. A program at `sched_process_fork` adds the children of the
//! processes before they run, and removes a PID that a child of another process reuses. A process
//! that exits is not removed, because the kernel still works for it for a while. If there is no
//! room for a process, all samples are written from then on, since
//! [`ProcessFilter`](crate::sampler::filter::ProcessFilter) filters them again.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use perf_event_open_sys::ioctls;

use super::btf::Btf;
use super::code::{AccessSize, AluOp, BpfCode, Helper, If, Reg};
use super::snippets::{self, KEY};
use super::syscall::{self, EntrySize, Map, MapKind, Programs};

use Reg::{R0, R1, R2, R6, R10};

/// Maximum number of processes in the kernel's filter.
const MAX_PROCESSES: u32 = 1 << 17;

/// The PID of the idle thread, which no process has: its value is 1 if there was no room for a process.
const OVERFLOW_KEY: i32 = 0;

/// Offset of a value on the stack.
const VALUE: i16 = -24;
/// Offset of the PID of the current process on the stack.
const OWN: i16 = -32;

/// The programs and the maps that they share with prof.
#[derive(Debug)]
pub struct SampleFilter {
    processes: Map,
    /// Follows forks as long as it is not dropped.
    _forks: Programs,
    /// The program for sampling events without another program that filters.
    program: OwnedFd,
}

impl SampleFilter {
    /// Loads the programs and starts to follow forks; the filter is empty.
    ///
    /// # Errors
    ///
    /// This kernel is too old, or the user lacks the privilege.
    pub fn load(kernel: &Btf) -> io::Result<SampleFilter> {
        SampleFilter::with_room(kernel, MAX_PROCESSES)
    }

    fn with_room(kernel: &Btf, entries: u32) -> io::Result<SampleFilter> {
        let processes = Map::new(MapKind::Hash, EntrySize::by_number(4), entries)?;
        processes.insert(&OVERFLOW_KEY.to_ne_bytes(), &0_u32.to_ne_bytes())?;
        let forks = on_fork(&processes, kernel.field("task_struct", &["tgid"])?);
        let mut forks = Programs::load(kernel, &[("sched_process_fork", forks)])?;
        let program = syscall::load_for_samples("prof_filter", &filter_only(&processes))?;
        forks.attach()?;
        Ok(SampleFilter { processes, _forks: forks, program })
    }

    /// Adds this process, and those that it starts from now on; all processes, if there is no room.
    pub fn insert(&self, pid: i32) {
        if self.processes.set(&pid.to_ne_bytes(), &1_u32.to_ne_bytes()).is_err() {
            self.admit_all();
        }
    }

    /// Limits an event of a CPU to these processes. It must not be enabled yet.
    pub fn attach(&self, event: RawFd) {
        // SAFETY: both descriptors are open; the call only links them.
        if unsafe { ioctls::SET_BPF(event, self.program.as_raw_fd() as u32) } < 0 {
            self.admit_all();
        }
    }

    /// The filtered processes, for [`drop_others`].
    pub fn processes(&self) -> &Map {
        &self.processes
    }

    /// True if there was room for all processes, and each event drops the samples of others.
    pub fn is_complete(&self) -> bool {
        let mut value = [0; 8];
        let read = self.processes.get(&OVERFLOW_KEY.to_ne_bytes(), &mut value, 1);
        read.is_ok() && value == [0; 8]
    }

    fn admit_all(&self) {
        // The key has a value, so there is room.
        let _ = self.processes.set(&OVERFLOW_KEY.to_ne_bytes(), &1_u32.to_ne_bytes());
    }
}

/// The program that only drops the samples of others.
fn filter_only(processes: &Map) -> Vec<u64> {
    let mut c = BpfCode::default();
    drop_others(&mut c, processes);
    c.exit_with(1);
    c.finish()
}

/// Ends a program at a sampling event with 0, which drops the sample, unless the current process is
/// one of `processes`. Overwrites the registers that calls overwrite.
pub fn drop_others(c: &mut BpfCode, processes: &Map) {
    let [unknown, no, yes] = [(); 3].map(|()| c.label());
    c.call(Helper::PidTgid);
    c.op_value(AluOp::Rsh, R0, 32);
    c.store(AccessSize::Word, R10, KEY, R0);
    snippets::look_up(c, processes, unknown);
    c.load(AccessSize::Word, R1, R0, 0);
    // The idle thread has no samples, but its value would not be that of a process.
    c.jump_if_value(If::Equal, R1, 0, no);
    c.jump(yes);
    c.put(unknown);
    c.store_value(AccessSize::Word, R10, KEY, OVERFLOW_KEY);
    snippets::look_up(c, processes, no);
    c.load(AccessSize::Word, R1, R0, 0);
    c.jump_if_value(If::Differ, R1, 0, yes);
    c.put(no);
    c.exit();
    c.put(yes);
}

/// `sched_process_fork(parent, child)`, in the parent. `tgid`: offset of the process ID in a
/// thread.
fn on_fork(processes: &Map, tgid: i16) -> Vec<u64> {
    let mut c = BpfCode::default();
    let [other, out] = [(); 2].map(|()| c.label());
    c.load(AccessSize::Long, R6, R1, 8);
    c.load(AccessSize::Word, R6, R6, tgid);
    c.call(Helper::PidTgid);
    c.op_value(AluOp::Rsh, R0, 32);
    // A thread of the same process.
    c.jump_if(If::Equal, R0, R6, out);
    c.store(AccessSize::Word, R10, OWN, R0);
    c.store(AccessSize::Word, R10, KEY, R6);
    snippets::look_up_at(&mut c, processes, OWN, other);
    c.store_value(AccessSize::Word, R10, VALUE, 1);
    snippets::update(&mut c, processes, VALUE);
    c.jump_if_value(If::Equal, R0, 0, out);
    c.store_value(AccessSize::Word, R10, KEY, OVERFLOW_KEY);
    snippets::look_up(&mut c, processes, out);
    c.op_value(AluOp::Mov, R2, 1);
    c.store(AccessSize::Word, R0, 0, R2);
    c.jump(out);
    c.put(other);
    snippets::delete(&mut c, processes);
    c.put(out);
    c.exit();
    c.finish()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::testing::skip_programs;
    use super::*;

    fn loaded(entries: u32) -> Option<SampleFilter> {
        let loaded = Btf::running().and_then(|kernel| SampleFilter::with_room(&kernel, entries));
        match loaded {
            Ok(filter) => Some(filter),
            Err(why) => {
                skip_programs(&why.to_string());
                None
            }
        }
    }

    fn value(filter: &SampleFilter, pid: i32) -> Option<u32> {
        let mut value = [0; 8];
        filter.processes.get(&pid.to_ne_bytes(), &mut value, 1).ok()?;
        Some(u32::from_ne_bytes(*value.first_chunk().unwrap()))
    }

    #[test]
    fn what_a_process_starts_is_known_before_it_runs() {
        let Some(filter) = loaded(1 << 16) else { return };
        let ended = |mut command: Command| {
            let mut child = command.spawn().unwrap();
            child.wait().unwrap();
            child.id() as i32
        };
        let before = ended(Command::new("true"));
        filter.insert(std::process::id() as i32);
        filter.insert(std::process::id() as i32);
        let mut shell = Command::new("sh");
        shell.args(["-c", "true; sh -c 'exit 0' & wait"]);
        let after = ended(shell);
        assert_eq!((value(&filter, before), value(&filter, after)), (None, Some(1)));
        assert!(filter.processes.entries().count() >= 4, "its children's children, too");
        assert_eq!(value(&filter, OVERFLOW_KEY), Some(0));
    }

    #[test]
    fn all_are_sampled_when_there_is_no_room() {
        let Some(filter) = loaded(2) else { return };
        filter.insert(std::process::id() as i32);
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(value(&filter, OVERFLOW_KEY), Some(1));
    }
}
