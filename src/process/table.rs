//! Processes and threads as the kernel's records tell of them; what was there before comes from
//! `/proc` when the first record names it.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::image::Images;
use super::maps::{Region, Regions, parse_line};
use super::procfs::{self, Cgroup};
use crate::profile::LabelSetId;
use crate::sampler::record::{Mmap, Record};

/// Processes that have ended are kept until so many have: samples of theirs may still come.
const MAX_ENDED: usize = 512;

/// A process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Its executable regions; shared with children until one of them maps something.
    pub regions: Arc<Regions>,
    /// What was mapped before the recording could not be read: the process has ended, or it is
    /// [`Process::hidden`].
    pub unread: bool,
    /// What was mapped before the recording is not for this user to read.
    pub hidden: bool,
    /// Name of its leader.
    pub name: Arc<str>,
    /// Its cgroup and container.
    pub cgroup: Arc<Cgroup>,
    /// It has called `execve` and not been seen in the new program yet: its user registers may
    /// be those of the program before, whose memory is gone.
    pub replaced: bool,
    /// First region with a path that was mapped by `execve`, that is the main binary's.
    pub main_image: Option<u32>,
}

/// A thread.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its process.
    pub pid: i32,
    /// Its name.
    pub name: Arc<str>,
    /// Its labels, once they have been made: as they are, and of stacks that were completed
    /// later.
    pub labels: [Option<LabelSetId>; 2],
}

/// All processes and threads that records have named.
#[derive(Default)]
pub struct ProcessTable {
    /// What is mapped.
    pub images: Images,
    processes: FxHashMap<i32, Process>,
    threads: FxHashMap<i32, Thread>,
    ended: VecDeque<i32>,
    /// Threads that were born minus those that ended, of processes born while recording.
    alive: FxHashMap<i32, i64>,
}

impl ProcessTable {
    /// Takes in a record.
    pub fn apply(&mut self, record: &Record<'_>) {
        match *record {
            Record::Mmap(ref mmap) => self.mmap(mmap),
            Record::Comm { pid, tid, exec, name } => self.comm(pid, tid, exec, name),
            Record::Fork { pid, parent, tid, parent_tid } => {
                self.fork(pid, parent, tid, parent_tid)
            }
            Record::Exit { pid, tid } => self.exit(pid, tid),
            Record::Sample(_) | Record::Lost(_) | Record::Throttle | Record::Other => {}
        }
    }

    /// A process; read from `/proc` when no record has named it before.
    pub fn process(&mut self, pid: i32) -> &Process {
        self.process_mut(pid)
    }

    fn process_mut(&mut self, pid: i32) -> &mut Process {
        let images = &mut self.images;
        self.processes.entry(pid).or_insert_with(|| from_proc(pid, images))
    }

    /// A thread; read from `/proc` when no record has named it before.
    pub fn thread_mut(&mut self, pid: i32, tid: i32) -> &mut Thread {
        let processes = &self.processes;
        self.threads.entry(tid).or_insert_with(|| {
            // One that has ended before anything was known of it: the name that threads have
            // unless they choose another.
            let name = procfs::comm(pid, tid).map(Arc::from);
            let name = name.or_else(|| processes.get(&pid).map(|p| p.name.clone()));
            Thread { pid, name: name.unwrap_or_default(), labels: [None; 2] }
        })
    }

    /// A sample with this user program counter was taken, in the kernel or not. Returns false
    /// when it is a left-over of the program before `execve`.
    pub fn is_current(&mut self, pid: i32, ip: u64, kernel: bool) -> bool {
        let process = self.process_mut(pid);
        if process.replaced && kernel && process.regions.find(ip).is_none() {
            return false;
        }
        process.replaced = false;
        true
    }

    /// Process and images, for unwinding.
    pub fn split(&mut self, pid: i32) -> (&Process, &mut Images) {
        let ProcessTable { processes, images, .. } = self;
        (processes.entry(pid).or_insert_with(|| from_proc(pid, images)), images)
    }

    /// Processes born while recording that have not ended.
    pub fn born_alive(&self) -> impl Iterator<Item = i32> + '_ {
        self.alive.iter().filter(|&(_, &n)| n > 0).map(|(&pid, _)| pid)
    }

    fn mmap(&mut self, m: &Mmap<'_>) {
        let path = String::from_utf8_lossy(m.path);
        let deleted = path.strip_suffix(" (deleted)").unwrap_or(&path);
        let image = self.images.intern(m.pid, deleted, m.build_id.unwrap_or(&[]), m.inode);
        let region =
            Region { start: m.start, end: m.start.saturating_add(m.len), offset: m.offset, image };
        let process = self.process_mut(m.pid);
        if process.main_image.is_none() && deleted.starts_with('/') {
            process.main_image = Some(image);
        }
        Arc::make_mut(&mut process.regions).insert(region);
    }

    fn comm(&mut self, pid: i32, tid: i32, exec: bool, name: &[u8]) {
        let name: Arc<str> = String::from_utf8_lossy(name).into();
        if exec {
            // Everything that was mapped is gone; so /proc must not be asked, which may
            // already show what the next records will say.
            let cgroup = match self.processes.get(&pid) {
                Some(process) => process.cgroup.clone(),
                None => Arc::new(procfs::cgroup(pid).unwrap_or_default()),
            };
            let process =
                Process { name: name.clone(), cgroup, replaced: true, ..Process::default() };
            self.processes.insert(pid, process);
        }
        if tid == pid && !exec {
            self.process_mut(pid).name = name.clone();
        }
        if tid == pid {
            self.forget_labels(pid);
        }
        self.threads.insert(tid, Thread { pid, name, labels: [None; 2] });
    }

    fn forget_labels(&mut self, pid: i32) {
        self.threads.values_mut().filter(|t| t.pid == pid).for_each(|t| t.labels = [None; 2]);
    }

    fn fork(&mut self, pid: i32, parent: i32, tid: i32, parent_tid: i32) {
        if pid != parent {
            let process = self.process_mut(parent).clone();
            self.processes.insert(pid, process);
            self.alive.insert(pid, 0);
        }
        if let Some(alive) = self.alive.get_mut(&pid) {
            *alive += 1;
        }
        // Until it is named, a thread has the name of the thread that cloned it.
        let name = self.thread_mut(parent, parent_tid).name.clone();
        self.threads.insert(tid, Thread { pid, name, labels: [None; 2] });
    }

    fn exit(&mut self, pid: i32, tid: i32) {
        if let Some(alive) = self.alive.get_mut(&pid) {
            *alive -= 1;
            if *alive <= 0 {
                self.alive.remove(&pid);
            }
        }
        self.ended.push_back(tid);
        if self.ended.len() > MAX_ENDED
            && let Some(old) = self.ended.pop_front()
        {
            let gone = !std::path::Path::new(&format!("/proc/{old}")).exists();
            if gone {
                self.threads.remove(&old);
                self.processes.remove(&old);
            }
        }
    }
}

fn from_proc(pid: i32, images: &mut Images) -> Process {
    let mut process = Process {
        name: procfs::comm(pid, pid).unwrap_or_default().into(),
        cgroup: Arc::new(procfs::cgroup(pid).unwrap_or_default()),
        ..Process::default()
    };
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let exe = exe.as_deref().and_then(std::path::Path::to_str);
    let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_else(|e| {
        process.unread = true;
        process.hidden = e.kind() == std::io::ErrorKind::PermissionDenied;
        Vec::new()
    });
    let regions = Arc::make_mut(&mut process.regions);
    for line in String::from_utf8_lossy(&maps).lines().filter_map(parse_line) {
        if !line.executable {
            continue;
        }
        let image = images.intern(pid, line.path, &[], line.inode);
        if process.main_image.is_none() && exe == Some(line.path) {
            process.main_image = Some(image);
        }
        regions.insert(Region { start: line.start, end: line.end, offset: line.offset, image });
    }
    process
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_process_comes_from_proc() {
        let pid = std::process::id() as i32;
        let mut table = ProcessTable::default();
        let here = an_unknown_process_comes_from_proc as fn() as usize as u64;
        assert!(table.process(pid).regions.find(here).is_some());
        assert!(table.process(pid).main_image.is_some());
        assert!(!table.thread_mut(pid, pid).name.is_empty());
    }

    #[test]
    fn a_process_that_is_gone_has_unread_mappings() {
        let mut table = ProcessTable::default();
        let gone = table.process(i32::MAX);
        assert!(gone.unread && !gone.hidden);
        assert!(!table.process(std::process::id() as i32).unread);
    }

    #[test]
    fn exec_forgets_and_fork_copies() {
        let mut table = ProcessTable::default();
        let (parent, child) = (i32::MAX - 1, i32::MAX);
        table.apply(&Record::Comm { pid: parent, tid: parent, exec: true, name: b"sh" });
        let mmap = Mmap {
            pid: parent,
            tid: parent,
            start: 0x1000,
            len: 0x1000,
            offset: 0,
            prot: 5,
            build_id: None,
            inode: 3,
            path: b"/bin/sh",
        };
        table.apply(&Record::Mmap(mmap));
        table.apply(&Record::Fork { pid: child, parent, tid: child, parent_tid: parent });
        assert!(table.process(child).regions.find(0x1800).is_some());
        assert_eq!(table.born_alive().collect::<Vec<_>>(), [child]);
        table.apply(&Record::Comm { pid: child, tid: child, exec: true, name: b"ls" });
        assert!(table.process(child).regions.find(0x1800).is_none());
        assert!(table.process(parent).regions.find(0x1800).is_some());
        assert_eq!(&*table.thread_mut(child, child).name, "ls");
        table.apply(&Record::Exit { pid: child, tid: child });
        assert_eq!(table.born_alive().count(), 0);
    }
}
