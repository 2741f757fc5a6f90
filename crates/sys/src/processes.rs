//! Processes and threads, from the kernel's records; state from before the recording is read from
//! `/proc` when the first record names a process.

mod at_start;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::born::BornProcesses;
use super::container::{self, Container};
use super::image::Images;
use super::jit::Jit;
use super::loader;
use super::maps::{MapsLine, Region, Regions, parse_line};
use super::os;
use super::procfs::{self, Cgroup};
use crate::record::{Mmap, Record};
use crate::{ProcessAddress, ThreadId};
pub use at_start::AtStart;
use at_start::ProcState;

/// Most processes that are kept after they have ended: samples of theirs may still come.
const MAX_ENDED: usize = 512;

/// Shortest interval between readings of processes from `/proc` while records are being lost.
const READ_AGAIN: Duration = Duration::from_millis(250);

/// Most regions of a process before `/proc` is checked for unmapped ones.
const MANY_REGIONS: usize = 4096;

/// Number of threads and processes above which those are dropped whose ends may have been lost.
const MANY_THREADS: usize = 1 << 14;

/// A process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Its executable regions; shared with children until one of them maps something.
    pub regions: Arc<Regions>,
    /// Mappings from before the recording could not be read: the process has ended, or is
    /// [`Process::hidden`].
    pub unread: bool,
    /// This user may not read mappings from before the recording.
    pub hidden: bool,
    /// Records of it may have been lost, and it could not be read again.
    incomplete: bool,
    /// Name of its leader.
    pub name: Arc<str>,
    /// Its cgroup and container, once they have been read.
    cgroup: Arc<Cgroup>,
    /// They are those of the program before `execve`: a container's starter moves into it first.
    old_cgroup: bool,
    /// It has called `execve` and not been sampled in the new program yet: its user registers may
    /// be those of the previous program, whose memory is gone.
    pub replaced: bool,
    /// [`ProcessTable::losses`] when it was read from `/proc` or created by a record.
    losses: u32,
    /// Number of regions above which they are read again.
    most_regions: usize,
    /// First region with a path that was mapped by `execve`, or if that is a dynamic linker, the
    /// first that it mapped: the main binary.
    pub main_image: Option<u32>,
    /// The main binary is a dynamic linker, so far.
    is_loader: bool,
}

impl Process {
    /// Replaces it after a new reading, because records of it may have been lost; its threads are
    /// forgotten.
    fn renew(&mut self, now: Process, pid: i32, threads: &mut FxHashMap<i32, Thread>) {
        // Of one that has ended, the records are all there is.
        if now.unread {
            self.incomplete = true;
            return;
        }
        let main_image = now.main_image.or(self.main_image);
        *self = Process { losses: self.losses, main_image, ..now };
        threads.retain(|_, thread| thread.pid != pid);
    }
}

/// A thread.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its process.
    pub pid: i32,
    /// Its name.
    pub name: Arc<str>,
    /// Changes whenever the name of the thread or of its process may have: data derived from them
    /// is valid for this version only. No two threads of a table ever share one.
    pub version: u64,
}

/// All processes and threads that records have named.
#[derive(Default)]
pub struct ProcessTable {
    /// Mapped images.
    pub images: Images,
    /// Code made at run time.
    pub jit: Jit,
    processes: FxHashMap<i32, Process>,
    threads: FxHashMap<i32, Thread>,
    ended: VecDeque<i32>,
    /// Number of times that records were lost. The state of processes may be wrong since: they may
    /// have mapped files, or called `execve`.
    losses: u32,
    /// Time when `losses` last grew, and true if it has to grow again.
    counted: Option<Instant>,
    lost: bool,
    /// Names of containers by ID.
    containers: FxHashMap<String, Arc<str>>,
    /// Number of threads and processes above which ended ones are searched for.
    many: usize,
    /// The last [`Thread::version`] that was assigned.
    last_version: u64,
    /// Those that started while recording.
    born: BornProcesses,
    /// Those that ran before.
    at_start: AtStart,
}

impl ProcessTable {
    /// Applies a record.
    pub fn apply(&mut self, record: &Record<'_>) {
        self.born.apply(record);
        match *record {
            Record::Mmap(ref mmap) => self.mmap(mmap),
            Record::Comm { pid, tid, exec, name } => self.comm(ThreadId { pid, tid }, exec, name),
            Record::Fork { pid, parent, tid, parent_tid, .. } => {
                let by = ThreadId { pid: parent, tid: parent_tid };
                self.fork(ThreadId { pid, tid }, by);
            }
            Record::Exit { pid, tid, .. } => self.exit(ThreadId { pid, tid }),
            Record::Lost(_) => {
                self.lost = true;
                // Other processes may have their numbers, or other programs be executed.
                self.at_start = AtStart::default();
            }
            Record::Sample(_)
            | Record::Ksymbol { .. }
            | Record::Switch { .. }
            | Record::LostSamples(_)
            | Record::Throttle
            | Record::Other => {}
        }
    }

    /// True if applying a record reads nothing but whether a process lives: what it depends on is
    /// known.
    pub fn is_quick(&self, record: &Record<'_>) -> bool {
        match *record {
            Record::Mmap(ref m) => {
                let few = |process: &Process| {
                    process.regions.len() < process.most_regions.max(MANY_REGIONS)
                };
                let announces = self.jit.is_announced_by(m);
                !announces && !self.images.are_many() && self.known(m.pid).is_some_and(few)
            }
            Record::Comm { pid, tid, exec, .. } => exec || tid != pid || self.known(pid).is_some(),
            Record::Fork { pid, parent, parent_tid, .. } => {
                self.threads.contains_key(&parent_tid)
                    && (pid == parent || self.known(parent).is_some())
            }
            _ => true,
        }
    }

    /// A process whose state is known and need not be read again.
    pub fn known(&self, pid: i32) -> Option<&Process> {
        let current = |process: &&Process| !self.lost && process.losses == self.losses;
        self.processes.get(&pid).filter(current)
    }

    /// The version of a thread that is known.
    pub fn known_version(&self, thread: ThreadId) -> Option<u64> {
        self.threads.get(&thread.tid).map(|thread| thread.version)
    }

    /// True if mappings of a process may be missing because records about them were lost.
    pub fn may_lack_mappings(&mut self, pid: i32) -> bool {
        let incomplete = self.process(pid).incomplete;
        incomplete || self.lost
    }

    /// A process; read from `/proc` when no record has named it before.
    pub fn process(&mut self, pid: i32) -> &Process {
        self.process_mut(pid)
    }

    fn process_mut(&mut self, pid: i32) -> &mut Process {
        self.split_mut(pid).0
    }

    /// Records were lost: all state may be out of date, once or again.
    fn count_losses(&mut self) {
        // Reading everything again costs most when there is no time for it.
        if self.lost && self.counted.is_none_or(|before| before.elapsed() >= READ_AGAIN) {
            (self.lost, self.counted) = (false, Some(Instant::now()));
            self.losses += 1;
            self.forget_gone();
        }
    }

    /// A thread; read from `/proc` when no record has named it before.
    pub fn thread_mut(&mut self, thread: ThreadId) -> &mut Thread {
        let ThreadId { pid, tid } = thread;
        let processes = &self.processes;
        let (last_version, at_start) = (&mut self.last_version, &mut self.at_start);
        self.threads.entry(tid).or_insert_with(|| {
            let before = at_start.take_name(tid);
            let name = procfs::comm(thread).or(before).map(Arc::from);
            // A thread that ended before any record named it: threads have this name unless they
            // choose another.
            let name = name.or_else(|| processes.get(&pid).map(|p| p.name.clone()));
            *last_version += 1;
            Thread { pid, name: name.unwrap_or_default(), version: *last_version }
        })
    }

    /// Keeps what is known of processes that run when sampling starts, in case that they end before
    /// they are looked at.
    pub fn expect(&mut self, at_start: AtStart) {
        self.at_start = at_start;
    }

    /// Prepares for a process that is sampled from its `execve` on. The first samples come before the
    /// record of it.
    pub fn expect_exec(&mut self, pid: i32) {
        let process = Process { replaced: true, losses: self.losses, ..Process::default() };
        self.processes.insert(pid, process);
    }

    /// Checks a sample with this user instruction pointer, taken in the kernel or not. Returns
    /// false if it is left over from the program before `execve`.
    pub fn is_current(&mut self, pid: i32, ip: u64, kernel: bool) -> bool {
        let process = self.process_mut(pid);
        if process.replaced && kernel && process.regions.find(ProcessAddress(ip)).is_none() {
            return false;
        }
        process.replaced = false;
        true
    }

    /// Cgroup and container of a process, read from `/proc` once for each program, when it is
    /// sampled.
    pub fn cgroup(&mut self, pid: i32) -> Arc<Cgroup> {
        let process = self.process_mut(pid);
        if std::mem::take(&mut process.old_cgroup)
            && let Some(now) = procfs::cgroup(pid)
            && now != *process.cgroup
        {
            process.cgroup = Arc::new(now);
        }
        process.cgroup.clone()
    }

    /// Display name of the container, and its ID, if it has one.
    pub fn container(&mut self, pid: i32, container: &Container) -> (Arc<str>, Option<String>) {
        let id = match container {
            Container::Name(name) => return (name.as_str().into(), None),
            Container::Id(id) => id,
        };
        /// Number of digits of an ID that container managers show.
        const SHORT: usize = 12;
        let name = self.containers.entry(id.clone()).or_insert_with(|| {
            let user = procfs::owner(pid).map(|(_, uid)| uid);
            let name = container::name_of(std::path::Path::new("/"), id, user);
            name.unwrap_or_else(|| id[..SHORT].to_owned()).into()
        });
        (name.clone(), Some(id.clone()))
    }

    /// Process and images, for unwinding.
    pub fn split(&mut self, pid: i32) -> (&Process, &mut Images) {
        let (process, images) = self.split_mut(pid);
        (process, images)
    }

    fn split_mut(&mut self, pid: i32) -> (&mut Process, &mut Images) {
        self.count_losses();
        let ProcessTable { processes, threads, images, jit, losses, at_start, .. } = self;
        let losses = *losses;
        let process = match processes.entry(pid) {
            Entry::Vacant(new) => {
                let (before, now) = (at_start.take(pid), ProcState::read(pid));
                let state = before.filter(|_| now.maps.is_err()).unwrap_or(now);
                new.insert(Process { losses, ..Process::new(pid, state, images, jit) })
            }
            Entry::Occupied(entry) => {
                let process = entry.into_mut();
                if process.losses != losses {
                    process.losses = losses;
                    let now = Process::new(pid, ProcState::read(pid), images, jit);
                    process.renew(now, pid, threads);
                }
                process
            }
        };
        (process, images)
    }

    /// Processes born while recording that have not ended.
    pub fn born_alive(&self) -> impl Iterator<Item = i32> + '_ {
        self.born.alive()
    }

    fn mmap(&mut self, m: &Mmap<'_>) {
        self.jit.mapped(m);
        if self.images.are_many() {
            self.sweep_images();
        }
        let path = String::from_utf8_lossy(m.path);
        let deleted = path.strip_suffix(" (deleted)").unwrap_or(&path);
        let image = self.images.intern(m.pid, deleted, m.build_id.unwrap_or(&[]), m.file);
        let region = Region {
            start: m.start,
            end: m.start.saturating_add(m.len),
            offset: m.offset,
            image,
            writable: m.prot & libc::PROT_WRITE as u32 != 0,
            since: 0,
        };
        let process = self.process_mut(m.pid);
        if process.main_image.is_none() && deleted.starts_with('/') {
            process.main_image = Some(image);
            process.is_loader = loader::is_loader(deleted);
        } else if process.is_loader && deleted.starts_with('/') && !loader::is_loader(deleted) {
            process.is_loader = false;
            process.main_image = Some(image);
            process.name = loader::comm_of(deleted).into();
            self.renew_versions(m.pid);
        }
        let process = self.process_mut(m.pid);
        Arc::make_mut(&mut process.regions).insert(region);
        if process.regions.len() > process.most_regions.max(MANY_REGIONS) {
            self.forget_unmapped(m.pid);
        }
    }

    /// Removes unmapped regions. No record reports those, so a process's regions are read from
    /// `/proc` when there are many, and again when their number has doubled.
    fn forget_unmapped(&mut self, pid: i32) {
        let now = Process::new(pid, ProcState::read(pid), &mut self.images, &mut self.jit);
        let process = self.process_mut(pid);
        process.regions = if now.unread { Arc::default() } else { now.regions };
        process.most_regions = process.regions.len() * 2;
    }

    /// Forgets images that are mapped nowhere.
    fn sweep_images(&mut self) {
        let ProcessTable { processes, images, .. } = self;
        let mapped = processes.values().flat_map(|process| {
            process.regions.iter().map(|region| region.image).chain(process.main_image)
        });
        images.sweep(mapped);
    }

    /// Forgets processes and threads whose end was not recorded, when there are many.
    fn forget_gone(&mut self) {
        if self.threads.len() + self.processes.len() < self.many.max(MANY_THREADS) {
            return;
        }
        self.threads.retain(|&tid, _| os::exists(tid));
        self.processes.retain(|&pid, _| os::exists(pid));
        self.many = (self.threads.len() + self.processes.len()) * 2;
    }

    fn comm(&mut self, thread: ThreadId, exec: bool, name: &[u8]) {
        let ThreadId { pid, tid } = thread;
        let name: Arc<str> = String::from_utf8_lossy(name).into();
        if exec {
            self.jit.forget(pid);
            self.at_start.forget(pid);
            // Everything that was mapped is gone; /proc must not be read, which may already contain
            // what the next records will report.
            let cgroup = self.processes.get(&pid).map(|p| p.cgroup.clone()).unwrap_or_default();
            let process = Process {
                name: name.clone(),
                cgroup,
                old_cgroup: true,
                replaced: true,
                losses: self.losses,
                ..Process::default()
            };
            self.processes.insert(pid, process);
        }
        if tid == pid && !exec {
            self.process_mut(pid).name = name.clone();
        }
        if tid == pid {
            self.renew_versions(pid);
        }
        self.insert(thread, name);
    }

    fn renew_versions(&mut self, pid: i32) {
        for thread in self.threads.values_mut().filter(|t| t.pid == pid) {
            self.last_version += 1;
            thread.version = self.last_version;
        }
    }

    fn insert(&mut self, thread: ThreadId, name: Arc<str>) {
        let ThreadId { pid, tid } = thread;
        self.last_version += 1;
        self.threads.insert(tid, Thread { pid, name, version: self.last_version });
    }

    /// Handles the start of a thread, which `by` has cloned.
    fn fork(&mut self, thread: ThreadId, by: ThreadId) {
        let ThreadId { pid, tid } = thread;
        let parent = by.pid;
        self.at_start.forget(tid);
        if pid != parent {
            self.jit.forked(pid, parent);
            self.images.set_parent(pid, parent);
            let process = self.process_mut(parent).clone();
            self.processes.insert(pid, process);
        }
        // Until it is named, a thread has the name of the thread that cloned it.
        let name = self.thread_mut(by).name.clone();
        self.insert(thread, name);
    }

    fn exit(&mut self, thread: ThreadId) {
        self.ended.push_back(thread.tid);
        if self.ended.len() > MAX_ENDED
            && let Some(old) = self.ended.pop_front()
            && !os::exists(old)
        {
            self.threads.remove(&old);
            self.processes.remove(&old);
            self.images.forget_parent(old);
        }
    }
}

impl Process {
    /// A process as `/proc` has it, or had it.
    fn new(pid: i32, state: ProcState, images: &mut Images, jit: &mut Jit) -> Process {
        let ProcState { name, cgroup, executable, loaded, maps } = state;
        let mut process =
            Process { name: name.into(), cgroup: Arc::new(cgroup), ..Process::default() };
        let maps = maps.unwrap_or_else(|e| {
            process.unread = true;
            process.hidden = e.kind() == std::io::ErrorKind::PermissionDenied;
            Vec::new()
        });
        let is_main = |path: &str| match &loaded {
            Some(name) => loader::comm_of(path) == name,
            None => executable.as_deref() == Some(path),
        };
        if let Some(name) = &loaded {
            process.name = name.as_str().into();
        }
        let regions = Arc::make_mut(&mut process.regions);
        for line in String::from_utf8_lossy(&maps).lines().filter_map(parse_line) {
            if !line.executable {
                continue;
            }
            jit.found(pid, &line);
            let image = images.intern(pid, line.path, &[], line.file);
            if process.main_image.is_none() && is_main(line.path) {
                process.main_image = Some(image);
            }
            let MapsLine { start, end, offset, writable, .. } = line;
            regions.insert(Region { start, end, offset, image, writable, since: 0 });
        }
        process
    }
}
