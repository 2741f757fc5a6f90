//! The target of a recording: processes, threads, a command, a cgroup, CPUs, everything.

use std::fs::{DirEntry, File};
use std::path::{Path, PathBuf};

use sys::{Error, ThreadId, procfs};

/// The target that the user requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Processes with all their threads, and threads and children created later.
    Processes {
        /// The processes.
        pids: Vec<i32>,
        /// True to include their existing descendants.
        tree: bool,
    },
    /// Single threads, without those that they start.
    Threads(Vec<i32>),
    /// A command that prof starts.
    Command(Vec<String>),
    /// Everything that runs, on all CPUs or those of [`super::Options::cpus`].
    Everything,
    /// A cgroup (v2) and its descendants.
    Cgroup(PathBuf),
}

impl Target {
    /// The processes that run when sampling starts, by PID: mostly the oldest first; `pids`: those
    /// that were attached.
    pub fn processes(&self, pids: &[i32]) -> Vec<i32> {
        let mut running = match self {
            // It is not executed yet.
            Target::Command(_) => Vec::new(),
            Target::Processes { .. } | Target::Threads(_) => pids.to_vec(),
            Target::Everything => procfs::processes(),
            Target::Cgroup(path) => {
                cgroup_directory(path).map(|path| cgroup_processes(&path)).unwrap_or_default()
            }
        };
        running.sort_unstable();
        running
    }

    /// The threads that are recorded from the start, each with its process; `pids`: the processes
    /// found.
    pub fn threads(&self, pids: &[i32]) -> Vec<ThreadId> {
        match self {
            // The command has no threads yet.
            Target::Command(_) => Vec::new(),
            Target::Threads(tids) => tids
                .iter()
                .filter_map(|&tid| Some(ThreadId { pid: procfs::owner(tid)?.0, tid }))
                .collect(),
            _ => {
                let threads = |&pid: &i32| {
                    let tids = procfs::threads(pid).unwrap_or_default();
                    tids.into_iter().map(move |tid| ThreadId { pid, tid })
                };
                pids.iter().flat_map(threads).collect()
            }
        }
    }
}

/// Processes or threads of which some may be missing.
#[derive(Debug, Default)]
pub struct Living {
    /// Those that can be recorded, in their order.
    pub ids: Vec<i32>,
    /// The others, each with the reason.
    pub left_out: Vec<(i32, Error)>,
}

impl Living {
    /// Sorts IDs by what `check` has to say of them.
    ///
    /// # Errors
    ///
    /// None is left: the error of the first.
    fn new(ids: &[i32], check: impl Fn(i32) -> Result<(), Error>) -> Result<Living, Error> {
        let mut living = Living::default();
        for &id in ids {
            match check(id) {
                Ok(()) => living.ids.push(id),
                Err(why) => living.left_out.push((id, why)),
            }
        }
        if living.ids.is_empty() && !living.left_out.is_empty() {
            return Err(living.left_out.swap_remove(0).1);
        }
        Ok(living)
    }
}

/// The processes that can be recorded, found before anything is opened.
///
/// # Errors
///
/// There is none: each has exited, or its ID is that of a thread.
pub fn living_processes(pids: &[i32]) -> Result<Living, Error> {
    Living::new(pids, check_process)
}

/// Fails unless a process can be recorded.
///
/// # Errors
///
/// It has exited, or the ID is that of a thread.
pub fn check_process(pid: i32) -> Result<(), Error> {
    match procfs::owner(pid) {
        None => Err(gone("process", pid)),
        Some((leader, _)) if leader != pid => Err(Error::usage(format!(
            "{pid} is a thread of process {leader}; use -p {leader}, or -t {pid} for this thread \
             alone"
        ))),
        Some(_) if is_zombie(pid) => Err(Error::failed(format!(
            "process {pid} has ended already (it is a zombie); nothing to record"
        ))),
        Some(_) => Ok(()),
    }
}

/// True for a process that has ended. One whose leader alone has ended lives in other threads.
fn is_zombie(pid: i32) -> bool {
    procfs::stat(pid).is_some_and(|stat| stat.state == 'Z') && procfs::live_thread(pid).is_none()
}

/// The threads that can be recorded, which must be of one of the processes `pids`, if any are given.
///
/// # Errors
///
/// All have exited, or a thread belongs to another process.
pub fn living_threads(tids: &[i32], pids: &[i32]) -> Result<Living, Error> {
    for &tid in tids {
        if let Some((leader, _)) = procfs::owner(tid)
            && !pids.is_empty()
            && !pids.contains(&leader)
        {
            return Err(Error::usage(format!(
                "thread {tid} belongs to process {leader}, not to {}; leave out -p or give -p \
                 {leader}",
                list(pids)
            )));
        }
    }
    let lives = |tid| procfs::owner(tid).map(drop).ok_or_else(|| gone("thread", tid));
    Living::new(tids, lives)
}

/// `1, 2, 3`.
fn list(numbers: &[i32]) -> String {
    numbers.iter().map(i32::to_string).collect::<Vec<_>>().join(", ")
}

/// The error for a process or thread that does not exist.
pub fn gone(what: &str, id: i32) -> Error {
    Error::failed(format!("no {what} {id}: it has ended or never was; 'ps -eLf' lists all"))
}

/// The directory of a cgroup (v2), from a path as in `/proc/PID/cgroup` or an absolute one.
///
/// # Errors
///
/// There is no such cgroup, or no cgroup v2 at all.
pub fn cgroup_directory(path: &Path) -> Result<PathBuf, Error> {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let roots: Vec<&str> = mounts
        .lines()
        .filter_map(|l| {
            let mut fields = l.split(' ');
            let (_, at, kind) = (fields.next()?, fields.next()?, fields.next()?);
            (kind == "cgroup2").then_some(at)
        })
        .collect();
    if roots.is_empty() {
        return Err(Error::failed("no cgroup v2 hierarchy is mounted; -G needs one"));
    }
    let below = path.strip_prefix("/").unwrap_or(path);
    let candidates = roots.iter().map(|r| Path::new(r).join(below));
    let full = roots.iter().any(|r| path.starts_with(r)).then(|| path.to_path_buf());
    let mut all = full.into_iter().chain(candidates);
    all.find(|p| p.join("cgroup.procs").exists()).ok_or_else(|| {
        Error::usage(format!(
            "no cgroup '{}' below {}; 'systemd-cgls' lists them",
            path.display(),
            roots.join(", ")
        ))
    })
}

/// Opens a cgroup's directory, for `PERF_FLAG_PID_CGROUP`, and checks that it has a process.
///
/// # Errors
///
/// Those of [`cgroup_directory`], or the cgroup has no process.
pub fn open_cgroup(path: &Path) -> Result<File, Error> {
    let directory = cgroup_directory(path)?;
    if !populated(&directory) {
        return Err(Error::failed(format!(
            "cgroup '{}' holds no process; nothing to record",
            path.display()
        )));
    }
    File::open(&directory)
        .map_err(|e| Error::failed(format!("cgroup {}: {e}", directory.display())))
}

/// `cgroup.events` of the root has no `populated` line; the root always has processes.
fn populated(directory: &Path) -> bool {
    std::fs::read_to_string(directory.join("cgroup.events"))
        .map_or(true, |events| !events.lines().any(|l| l == "populated 0"))
}

/// Processes of a cgroup and its descendants.
pub fn cgroup_processes(directory: &Path) -> Vec<i32> {
    let mut pids = Vec::new();
    for directory in cgroups_below(directory) {
        let text = std::fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
        pids.extend(text.lines().filter_map(|l| l.parse::<i32>().ok()));
    }
    pids
}

/// The directories of a cgroup and of its descendants.
pub fn cgroups_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = vec![directory.to_path_buf()];
    let mut next = 0;
    while let Some(directory) = found.get(next) {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let is_directory = |e: &DirEntry| e.file_type().is_ok_and(|kind| kind.is_dir());
        let below: Vec<PathBuf> = entries.filter(is_directory).map(|e| e.path()).collect();
        found.extend(below);
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_passes_and_its_absence_is_said() {
        let pid = std::process::id() as i32;
        living_processes(&[pid]).unwrap();
        living_threads(&[pid], &[pid]).unwrap();
        let line = living_threads(&[pid], &[1]).unwrap_err().to_string();
        assert!(line.contains(&format!("belongs to process {pid}")), "{line}");
        let line = living_processes(&[i32::MAX]).unwrap_err().to_string();
        assert!(line.contains("no process 2147483647"), "{line}");
    }

    #[test]
    fn those_that_have_ended_are_left_out_unless_none_lives() {
        let pid = std::process::id() as i32;
        for living in [living_processes(&[i32::MAX, pid]), living_threads(&[i32::MAX, pid], &[pid])]
        {
            let living = living.unwrap();
            assert_eq!(living.ids, [pid]);
            assert_eq!(living.left_out[0].0, i32::MAX);
        }
        let line = living_threads(&[i32::MAX, -1], &[]).unwrap_err().to_string();
        assert!(line.contains("no thread 2147483647"), "{line}");
    }
}
