//! The processes of a recording at the time of a record: their names, threads and mappings. All of
//! it is from the records; nothing is read from `/proc`, where other processes run now.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use profile::LabelSetId;
use sys::image::Images;
use sys::maps::{Region, Regions};
use sys::record::FileId;

use super::machine::Machine;
use super::record::{BuildId, Map, MappedFile, Mode};

/// Most executable regions of a process; the kernel's usual limit is 65,530 for all.
const MOST_REGIONS: usize = 1 << 15;

/// Most bytes of the regions of all processes.
const MOST_BYTES: u64 = 512 << 20;

/// Most processes that are kept after they have ended.
const MOST_ENDED: usize = 512;

/// Name of the vDSO of a kernel whose vDSO may not be that of this machine.
const OTHER_VDSO: &str = "[vdso of another kernel]";

/// A process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Its executable regions; shared with children until one of them maps something.
    pub regions: Arc<Regions>,
    /// Name of its first thread.
    pub name: Arc<str>,
    /// It has called `execve` and not been sampled in the new program yet.
    pub is_replaced: bool,
    /// The first file that it mapped.
    pub main_image: Option<u32>,
}

/// A thread.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    pub name: Arc<str>,
    /// The labels of its last sample.
    pub labels: Option<ThreadLabels>,
}

/// The labels of a thread while its process has a name.
#[derive(Clone, Debug)]
pub struct ThreadLabels {
    pub pid: i32,
    pub process: Arc<str>,
    pub set: LabelSetId,
}

/// The processes.
#[derive(Default)]
pub struct Spaces {
    pub images: Images,
    processes: FxHashMap<i32, Process>,
    threads: FxHashMap<i32, Thread>,
    ended: VecDeque<i32>,
    /// Build IDs of files by path; `None`: there are several.
    build_ids: FxHashMap<Vec<u8>, Option<Vec<u8>>>,
    /// The same for modules of the kernel.
    module_build_ids: FxHashMap<Vec<u8>, Option<Vec<u8>>>,
    /// Whether the build ID of an image is the recorded one, not that of the file that is there now.
    identified: FxHashMap<u32, bool>,
    /// Bytes of all regions, at most.
    bytes: u64,
    /// Number of mappings beyond the limits.
    pub left_out: u64,
}

impl Spaces {
    /// Adds a build ID of the header.
    pub fn add_build_id(&mut self, build_id: &BuildId) {
        let build_ids = match build_id.mode {
            Mode::User => &mut self.build_ids,
            Mode::Kernel => &mut self.module_build_ids,
            Mode::Other => return,
        };
        if build_id.id.is_empty() {
            return;
        }
        let known = build_ids.entry(build_id.path.clone());
        let known = known.or_insert_with(|| Some(build_id.id.clone()));
        if known.as_ref() != Some(&build_id.id) {
            *known = None;
        }
    }

    /// The build ID of a module of the kernel, if it has a single one.
    pub fn module_build_id(&self, path: &[u8]) -> Option<&[u8]> {
        self.module_build_ids.get(path)?.as_deref()
    }

    /// The process of a thread.
    pub fn process(&mut self, pid: i32) -> &mut Process {
        self.processes.entry(pid).or_default()
    }

    /// A process and the images, for unwinding.
    pub fn split(&mut self, pid: i32) -> (&Process, &mut Images) {
        let Spaces { processes, images, .. } = self;
        (processes.entry(pid).or_default(), images)
    }

    pub fn thread(&mut self, tid: i32) -> &mut Thread {
        self.threads.entry(tid).or_default()
    }

    /// True if the build ID of an image is from the recording.
    pub fn is_identified(&self, image: u32) -> bool {
        self.identified.get(&image).copied().unwrap_or(false)
    }

    /// Applies a mapping.
    ///
    /// # Errors
    ///
    /// All take too much memory.
    pub fn map(&mut self, map: &Map<'_>, machine: &Machine) -> Result<(), String> {
        const REGION: u64 = size_of::<Region>() as u64;
        let image = self.image(map, machine);
        let process = self.process(map.pid);
        if process.main_image.is_none() && map.path.starts_with(b"/") {
            process.main_image = Some(image);
        }
        if process.regions.len() >= MOST_REGIONS {
            self.left_out += 1;
            return Ok(());
        }
        let is_shared = Arc::strong_count(&process.regions) > 1;
        let copied = if is_shared { process.regions.len() as u64 } else { 0 };
        let Map { start, length, offset, is_writable: writable, .. } = *map;
        let end = start.saturating_add(length);
        Arc::make_mut(&mut process.regions).insert(Region {
            start,
            end,
            offset,
            image,
            writable,
            since: 0,
        });
        // A region may divide another in two.
        self.bytes += (copied + 2) * REGION;
        if self.bytes > MOST_BYTES {
            return Err(format!("its mappings take more than {} MiB of memory", MOST_BYTES >> 20));
        }
        Ok(())
    }

    fn image(&mut self, map: &Map<'_>, machine: &Machine) -> u32 {
        let path = map.path.strip_suffix(b" (deleted)").unwrap_or(map.path);
        let (mut build_id, mut file) = (None, FileId::default());
        match map.file {
            MappedFile::BuildId(id) => build_id = Some(id.to_vec()),
            MappedFile::Inode { major, minor, inode } => {
                file = FileId { device: libc::makedev(major, minor), inode };
            }
            MappedFile::Unknown => {}
        }
        let build_id = build_id.or_else(|| self.build_ids.get(map.path).cloned().flatten());
        let mut name = String::from_utf8_lossy(path);
        if name == "[vdso]" && !machine.has_this_kernel {
            name = OTHER_VDSO.into();
        }
        if self.images.are_many() {
            let regions = self.processes.values().flat_map(|process| {
                process.regions.iter().map(|region| region.image).chain(process.main_image)
            });
            self.images.sweep(regions);
        }
        // A build ID says more than an inode, which may have another number on another machine.
        let file = if build_id.is_some() { FileId::default() } else { file };
        let id = build_id.as_deref().unwrap_or_default();
        let image = self.images.intern(map.pid, &name, id, file);
        self.identified.insert(image, build_id.is_some());
        image
    }

    /// Applies a new name; `is_exec`: with a new program.
    pub fn name(&mut self, pid: i32, tid: i32, is_exec: bool, name: &[u8]) {
        let name: Arc<str> = String::from_utf8_lossy(name).into();
        if is_exec {
            self.forget_regions(pid);
            let process = Process { is_replaced: true, ..Process::default() };
            self.processes.insert(pid, process);
        }
        if tid == pid {
            self.process(pid).name = name.clone();
        }
        self.threads.insert(tid, Thread { name, labels: None });
    }

    /// Applies the start of a thread.
    pub fn fork(&mut self, pid: i32, parent: i32, tid: i32, parent_tid: i32) {
        if pid != parent {
            self.forget_regions(pid);
            let process = self.processes.get(&parent).cloned().unwrap_or_default();
            self.processes.insert(pid, process);
        }
        self.ended.retain(|&old| old != tid);
        // Until it is named, a thread has the name of the thread that cloned it.
        let name = self.threads.get(&parent_tid).map(|thread| thread.name.clone());
        self.threads.insert(tid, Thread { name: name.unwrap_or_default(), labels: None });
    }

    /// Applies the end of a thread.
    pub fn exit(&mut self, tid: i32) {
        self.ended.push_back(tid);
        if self.ended.len() > MOST_ENDED
            && let Some(old) = self.ended.pop_front()
        {
            self.forget_regions(old);
            self.processes.remove(&old);
            self.threads.remove(&old);
        }
    }

    fn forget_regions(&mut self, pid: i32) {
        if let Some(process) = self.processes.get_mut(&pid)
            && let Some(regions) = Arc::get_mut(&mut process.regions)
        {
            let bytes = regions.len() * size_of::<Region>();
            self.bytes = self.bytes.saturating_sub(bytes as u64);
        }
    }

    /// Memory of the tables, estimated in bytes.
    pub fn memory(&self) -> u64 {
        self.bytes + 160 * self.processes.len() as u64 + 120 * self.threads.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pid: i32, start: u64, path: &str) -> Map<'_> {
        let (length, offset) = (0x1000, 0);
        let file = MappedFile::Unknown;
        let path = path.as_bytes();
        Map { mode: Mode::User, pid, start, length, offset, file, is_writable: false, path }
    }

    #[test]
    fn children_have_the_mappings_of_their_parents_until_they_execute() {
        let mut spaces = Spaces::default();
        let machine = Machine::default();
        spaces.name(1, 1, true, b"sh");
        spaces.map(&map(1, 0x1000, "/bin/sh"), &machine).unwrap();
        spaces.fork(2, 1, 2, 1);
        assert_eq!(&*spaces.thread(2).name, "sh");
        assert_eq!(spaces.process(2).regions.len(), 1);
        spaces.name(2, 2, true, b"ls");
        assert_eq!(&*spaces.process(2).name, "ls");
        assert_eq!(spaces.process(2).regions.len(), 0);
        spaces.map(&map(2, 0x1000, "/bin/ls"), &machine).unwrap();
        let image = spaces.process(2).main_image.unwrap();
        assert_eq!(spaces.images.get(image).path, "/bin/ls");
        assert_eq!(spaces.process(1).regions.len(), 1);
    }

    #[test]
    fn ended_processes_are_forgotten_later() {
        let mut spaces = Spaces::default();
        for pid in 1..=2 * MOST_ENDED as i32 {
            spaces.fork(pid, 0, pid, 0);
            spaces.map(&map(pid, 0x1000, "/bin/a"), &Machine::default()).unwrap();
            spaces.exit(pid);
        }
        assert_eq!((spaces.processes.len(), spaces.threads.len()), (MOST_ENDED, MOST_ENDED));
        assert!(spaces.bytes < 3 * MOST_ENDED as u64 * size_of::<Region>() as u64 + 40_000);
    }

    #[test]
    fn mappings_are_bounded() {
        let mut spaces = Spaces::default();
        let machine = Machine::default();
        for number in 0..MOST_REGIONS as u64 + 10 {
            spaces.map(&map(1, number * 0x1000, "/bin/a"), &machine).unwrap();
        }
        assert_eq!(spaces.left_out, 10);
        let copies = (2..).find(|&pid| {
            spaces.fork(pid, 1, pid, 1);
            spaces.process(pid).regions = spaces.process(1).regions.clone();
            let process = spaces.process(pid);
            Arc::make_mut(&mut process.regions);
            spaces.bytes += (MOST_REGIONS * size_of::<Region>()) as u64;
            spaces.map(&map(-pid, 0, "/bin/a"), &machine).is_err()
        });
        assert!(copies.is_some_and(|pid| pid < 1000));
    }

    #[test]
    fn a_path_with_two_builds_has_no_build_id() {
        let mut spaces = Spaces::default();
        for (path, id) in [("/bin/a", 1), ("/bin/b", 2), ("/bin/a", 3)] {
            let path = path.as_bytes().to_vec();
            spaces.add_build_id(&BuildId { mode: Mode::User, path, id: vec![id; 20] });
        }
        let machine = Machine::default();
        let images: Vec<u32> = ["/bin/a", "/bin/b"]
            .iter()
            .map(|path| spaces.image(&map(1, 0, path), &machine))
            .collect();
        assert_eq!(
            images.iter().map(|&i| spaces.is_identified(i)).collect::<Vec<_>>(),
            [false, true]
        );
    }
}
