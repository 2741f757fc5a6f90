//! Detects the end of the target.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::process::Child;

use crate::sampler::Target;
use crate::sampler::aggregator::Aggregator;
use messages::Message;
use sys::born::BornProcesses;
use sys::procfs;
use sys::{ThreadId, os};

/// Number of processes whose end is polled by descriptor; others are checked one by one.
const MAX_DESCRIPTORS: usize = 256;

/// The condition that ends a recording.
pub enum Watch {
    /// Only the time.
    Forever,
    /// The end of a COMMAND.
    Command(Vec<OwnedFd>),
    /// The end of processes, and of those that they start.
    Processes {
        /// Those that have not ended.
        left: Vec<i32>,
        /// Descriptors of the first of them.
        descriptors: Vec<(i32, OwnedFd)>,
    },
    /// The end of threads.
    Threads(Vec<i32>),
}

impl Watch {
    /// Watches a target.
    pub fn new(target: &Target, pids: &[i32], child: Option<&Child>) -> Watch {
        if let Some(child) = child {
            // Without a descriptor (impossible: the child was not waited for), it ends at once.
            return Watch::Command(os::pidfd(child.id() as i32).into_iter().collect());
        }
        match target {
            Target::Everything | Target::Cgroup(_) => Watch::Forever,
            Target::Threads(tids) => Watch::Threads(tids.clone()),
            Target::Command(_) | Target::Processes { .. } => Watch::Processes {
                left: pids.to_vec(),
                descriptors: pids
                    .iter()
                    .take(MAX_DESCRIPTORS)
                    .filter_map(|&pid| Some((pid, os::pidfd(pid).ok()?)))
                    .collect(),
            },
        }
    }

    /// Descriptors that become readable when a process ends.
    pub fn fds(&self) -> impl Iterator<Item = RawFd> + '_ {
        let (command, processes): (&[OwnedFd], &[(i32, OwnedFd)]) = match self {
            Watch::Command(fds) => (fds, &[]),
            Watch::Processes { descriptors, .. } => (&[], descriptors),
            _ => (&[], &[]),
        };
        command.iter().chain(processes.iter().map(|(_, fd)| fd)).map(AsRawFd::as_raw_fd)
    }

    /// True if the target has ended: nothing is left to sample.
    pub fn ended(&mut self, born: &BornProcesses) -> bool {
        match self {
            Watch::Forever => false,
            Watch::Command(fds) => fds.iter().all(has_ended),
            Watch::Threads(tids) => !tids.iter().any(|&tid| is_alive(tid)),
            Watch::Processes { left, descriptors } => {
                descriptors.retain(|(pid, fd)| {
                    let ended = has_ended(fd);
                    if ended {
                        left.retain(|p| p != pid);
                    }
                    !ended
                });
                let watched = |pid: &i32| descriptors.iter().any(|(p, _)| p == pid);
                left.retain(|pid| watched(pid) || is_alive(*pid));
                left.is_empty() && !born.alive().any(is_alive)
            }
        }
    }
}

/// A note about processes that the command has started and that still run, like daemons: the
/// recording ended with the command.
pub fn outlived(aggregator: &Aggregator) -> Option<Message> {
    let mut pids: Vec<i32> =
        aggregator.maker.table.born_alive().filter(|&pid| is_alive(pid)).collect();
    pids.sort_unstable();
    let &pid = pids.first()?;
    let arguments = aggregator.types.arguments_for_process();
    let name = procfs::comm(ThreadId::main_thread(pid));
    let processes = pids.len() as u64;
    Some(Message::Outlived { pid, name, processes, arguments })
}

fn has_ended(fd: &OwnedFd) -> bool {
    let mut fds = [libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    os::poll(&mut fds, 0);
    fds[0].revents != 0
}

/// True for a process or thread that exists and is no zombie.
fn is_alive(tid: i32) -> bool {
    procfs::stat(tid).is_some_and(|s| !matches!(s.state, 'Z' | 'X'))
}
