//! The interpreters of recorded processes, from the first stack that leads through one: which
//! version it is, what the program at the samples is to copy, and the user's frames in what it has
//! copied.
//!
//! A process gets its walks at a sample, and the next one has copies. `fork` copies them, `execve`
//! and exit remove them.

mod budgeted;
mod code_before;
mod codes;
mod copied_codes;
mod current_stack;
mod managed;
mod outside;
mod search;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::bpf::thread_pointers::ThreadPointers;
use super::bpf::walk::WalkMaps;
use code_before::CodeCache;
use codes::Codes;
use copied_codes::CopiedCodes;
use current_stack::CurrentStack;
use interpreters::walk::WalkCopy;
use interpreters::{Interpreter, Runtime};
pub use managed::{ManagedFrames, ManagedProcesses};
use profile::{Language, MappingId};
use search::{Found, Patience, Search};
use sys::image::{Images, State};
use sys::jit::file_names::number_of_dump;
use sys::os;
use sys::procfs;
use sys::record::Record;
use unwind::Frame;

/// Number of processes above which those that have ended are forgotten.
const MANY_PROCESSES: usize = 1 << 13;

/// Numbers of stacks of processes with an interpreter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterpreterCounts {
    /// With the user's frames.
    pub shown: u64,
    /// Whose native frames are those of another moment or thread than the user's: these were left
    /// out.
    pub mismatched: u64,
    /// With native frames only: the sample came before the interpreter was recognized.
    pub native: u64,
    /// With native frames only: the copy of the user's was lost.
    pub uncopied: u64,
    /// With native frames only: nothing copies the user's at their event.
    pub elsewhere: u64,
}

impl InterpreterCounts {
    fn add_native(&mut self, origin: Origin) {
        match origin {
            Origin::Event => self.native += 1,
            Origin::Elsewhere => self.elsewhere += 1,
        }
    }
}

/// The interpreters of a recording.
#[derive(Default)]
pub struct Interpreters {
    /// Takes the walks of processes; `None`: no program walks.
    maps: Option<Arc<WalkMaps>>,
    /// What is known of each image.
    images: Vec<ImageKind>,
    /// The number of interpreters among them.
    interpreted: usize,
    processes: FxHashMap<i32, InProcess>,
    /// Those of them that are managed: their frames are native ones, and need no walk.
    managed: Arc<ManagedProcesses>,
    /// Processes with code in memory that have no known interpreter, as far as their mappings show.
    searched: FxHashSet<i32>,
    /// Reasons for which interpreters are not supported, with the number of their processes.
    refused: BTreeMap<Refused, u64>,
    /// Where the frames of threads that sleep begin; `None`: nothing finds it here.
    pointers: OnceCell<Option<ThreadPointers>>,
    /// Whether looks at processes may wait.
    patience: Patience,
    /// The number of the last walks.
    last_id: u64,
    /// The mapping of each language's functions.
    mappings: FxHashMap<Language, MappingId>,
    /// The mapping of HotSpot's own code in memory.
    stubs: Option<MappingId>,
    /// What was copied of code.
    copied_codes: CopiedCodes,
    /// Buffer.
    copies: Vec<WalkCopy>,
    current: CurrentStack,
    /// The numbers so far.
    pub counts: InterpreterCounts,
}

/// What an image is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ImageKind {
    /// It was not looked at.
    #[default]
    Unknown,
    /// A file with the code of an interpreter.
    Interpreter(Interpreter),
    /// Memory without a file, with code that an interpreter may have made.
    Memory,
    /// Anything else.
    Other,
}

impl ImageKind {
    fn interpreter(self) -> Option<Interpreter> {
        match self {
            ImageKind::Interpreter(interpreter) => Some(interpreter),
            ImageKind::Unknown | ImageKind::Memory | ImageKind::Other => None,
        }
    }
}

/// What is known of a process that has executed an interpreter's file.
enum InProcess {
    /// It is not recognized yet.
    Searched(Box<Search>),
    /// Its interpreter is not supported, or names its code itself.
    Refused,
    /// It is recognized.
    Found(Box<FoundRuntime>),
    /// It was forked from this process, which had the walks with this number, and not sampled yet.
    Forked { parent: i32, id: u64 },
}

/// An interpreter that is not supported, as it is, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// The interpreter.
    pub interpreter: Interpreter,
    /// The reason.
    pub why: String,
}

/// A recognized interpreter.
struct FoundRuntime {
    language: Language,
    runtime: Arc<dyn Runtime>,
    /// The number of its walks.
    id: u64,
    /// The time at which the process had got its walks.
    since: u64,
    codes: Codes,
    compiled: CodeCache,
}

/// Where a sample comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// An event whose program copies frames of interpreters, if programs do, or a program that writes
    /// samples.
    #[default]
    Event,
    /// A tracepoint, a library in the process, or a look from outside that does not find them: nothing
    /// copies them.
    Elsewhere,
}

/// What a sample needs before its stack is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// A look at files or memory of its process.
    Look,
}

impl Interpreters {
    /// Applies a record about processes.
    pub fn record(&mut self, record: &Record<'_>) {
        match *record {
            Record::Fork { pid, parent, .. } if pid != parent => {
                // The record of the exit of another process with this number may be lost.
                self.forget(pid);
                let Some(maps) = &self.maps else { return };
                let parent = match self.processes.get(&parent) {
                    Some(InProcess::Forked { parent, .. }) => *parent,
                    _ => parent,
                };
                if let Some(InProcess::Found(found)) = self.processes.get(&parent)
                    && !found.runtime.walks().is_empty()
                {
                    // Without room, its stacks stay native.
                    let _ = maps.set(pid, found.id, found.runtime.walks());
                    self.managed.insert_child(pid, parent);
                    self.processes.insert(pid, InProcess::Forked { parent, id: found.id });
                }
            }
            Record::Comm { pid, exec: true, .. } => self.forget(pid),
            Record::Exit { pid, tid, .. }
                if pid == tid && self.processes.contains_key(&pid) && !has_other_threads(pid) =>
            {
                self.forget(pid);
            }
            _ => {}
        }
    }

    fn forget(&mut self, pid: i32) {
        self.searched.remove(&pid);
        self.managed.remove(pid);
        if self.processes.remove(&pid).is_some() {
            self.maps.iter().for_each(|maps| maps.remove(pid));
        }
    }

    /// What the stack of a sample needs: `new` are its native frames that the last stack of the
    /// thread had not.
    pub fn need(&self, pid: i32, time: u64, new: &[Frame], walked: bool) -> Need {
        let kind = |frame: &Frame| {
            let image = frame.place.image()? as usize;
            Some(self.images.get(image).copied().unwrap_or_default())
        };
        let mut needs = false;
        for kind in new.iter().filter_map(kind) {
            needs |= match kind {
                ImageKind::Unknown => true,
                ImageKind::Interpreter(interpreter) => {
                    self.reads(interpreter) && self.is_due(pid, time)
                }
                ImageKind::Memory => self.may_be_managed(pid, time),
                ImageKind::Other => false,
            };
        }
        needs |= match self.processes.get(&pid) {
            Some(InProcess::Searched(search)) => {
                self.reads(search.interpreter()) && search.is_due(time)
            }
            Some(InProcess::Forked { .. }) => walked,
            Some(InProcess::Refused | InProcess::Found(_)) | None => false,
        };
        if needs { Need::Look } else { Need::Nothing }
    }

    /// True if a process that has executed an interpreter's file has to be looked at.
    fn is_due(&self, pid: i32, time: u64) -> bool {
        match self.processes.get(&pid) {
            None => true,
            Some(InProcess::Searched(search)) => search.is_due(time),
            Some(InProcess::Refused | InProcess::Found(_) | InProcess::Forked { .. }) => false,
        }
    }

    /// Looks at what [`Interpreters::need`] has found to be unknown: reads files and memory of the
    /// process.
    pub fn look(&mut self, pid: i32, time: u64, new: &[Frame], images: &Images) {
        let mut interpreter = None;
        for image in new.iter().filter_map(|frame| frame.place.image()) {
            let at = image as usize;
            if self.images.len() <= at {
                self.images.resize(at + 1, ImageKind::Unknown);
            }
            if self.images[at] == ImageKind::Unknown {
                self.images[at] = kind_of(image, images);
                self.interpreted += usize::from(self.images[at].interpreter().is_some());
            }
            interpreter = interpreter.or(self.images[at].interpreter());
        }
        self.adopt(pid);
        if let Some(InProcess::Searched(search)) = self.processes.get(&pid) {
            interpreter = interpreter.or(Some(search.interpreter()));
        }
        let has_memory = || new.iter().any(Frame::is_run_time_code);
        if interpreter.is_none() && has_memory() && self.may_be_managed(pid, time) {
            interpreter = self.search(pid);
        }
        let interpreter = interpreter.filter(|interpreter| self.reads(*interpreter));
        if let Some(interpreter) = interpreter.filter(|_| self.is_due(pid, time)) {
            self.recognize(pid, interpreter);
        }
    }

    /// A forked process has what its parent has.
    fn adopt(&mut self, pid: i32) {
        let Some(&InProcess::Forked { parent, id }) = self.processes.get(&pid) else { return };
        let found = match self.processes.get_mut(&parent) {
            Some(InProcess::Found(found)) if found.id == id => Some(found.for_child(pid)),
            _ => None,
        };
        match found {
            Some(found) => {
                self.processes.insert(pid, InProcess::Found(Box::new(found)));
            }
            // Its parent has ended, or executes another program.
            None => self.forget(pid),
        }
    }

    fn recognize(&mut self, pid: i32, interpreter: Interpreter) {
        if self.processes.len() >= MANY_PROCESSES {
            self.forget_ended();
        }
        let mut search = match self.processes.remove(&pid) {
            Some(InProcess::Searched(search)) => search,
            _ => Box::new(Search::new(pid, interpreter)),
        };
        search.turn_to(interpreter);
        let now = self.searched(pid, interpreter, search);
        self.processes.insert(pid, now);
    }

    /// Looks at a process once more.
    fn searched(
        &mut self,
        pid: i32,
        interpreter: Interpreter,
        mut search: Box<Search>,
    ) -> InProcess {
        if interpreter == Interpreter::V8 && names_its_code(pid) {
            return InProcess::Refused;
        }
        match search.look(self.patience) {
            // Another machine for Java has a file of the same name.
            Found::Nothing if interpreter == Interpreter::HotSpot && search.has_no_candidate() => {
                InProcess::Refused
            }
            Found::Nothing => InProcess::Searched(search),
            Found::Runtime(runtime) => self.begin(pid, interpreter, runtime, search),
            Found::Refused(refusal) => {
                let refused = Refused { interpreter, why: refusal.to_string() };
                *self.refused.entry(refused).or_default() += 1;
                InProcess::Refused
            }
        }
    }

    /// Forgets processes that have ended.
    fn forget_ended(&mut self) {
        let (maps, managed) = (self.maps.clone(), self.managed.clone());
        self.processes.retain(|pid, _| {
            let lives = procfs::stat(*pid).is_some();
            if !lives {
                managed.remove(*pid);
                maps.iter().for_each(|maps| maps.remove(*pid));
            }
            lives
        });
    }

    /// Gives a process its walks, if there is room.
    fn begin(
        &mut self,
        pid: i32,
        interpreter: Interpreter,
        runtime: Arc<dyn Runtime>,
        search: Box<Search>,
    ) -> InProcess {
        let id = self.last_id + 1;
        if let Some(maps) = self.maps.as_ref().filter(|_| !runtime.walks().is_empty())
            && maps.set(pid, id, runtime.walks()).is_err()
        {
            return InProcess::Searched(search);
        }
        self.last_id = id;
        self.managed.insert(pid, runtime.clone());
        let language = language_of(interpreter);
        let (codes, compiled) = (Codes::new(pid), CodeCache::new(pid));
        let since = os::monotonic_nanos();
        let found = FoundRuntime { language, runtime, id, since, codes, compiled };
        InProcess::Found(Box::new(found))
    }

    /// True if frames of interpreters are read: by programs at samples, or of threads that sleep.
    pub fn is_read(&self) -> bool {
        self.maps.is_some() || self.reads_sleepers()
    }

    /// Counts a stack that has no frames of the user's, if it leads through an interpreter that is
    /// not recognized yet.
    pub fn count_native(&mut self, pid: i32, frames: &[Frame], origin: Origin) {
        if self.interpreted == 0 || matches!(self.processes.get(&pid), Some(InProcess::Refused)) {
            return;
        }
        let images = &self.images;
        let interpreter = |frame: &Frame| images.get(frame.place.image()? as usize)?.interpreter();
        let is_interpreter = |frame: &Frame| interpreter(frame).is_some();
        if frames.iter().any(is_interpreter) {
            self.counts.add_native(origin);
        }
    }

    /// True if a process has a known interpreter.
    pub fn has_runtime(&self, pid: i32) -> bool {
        matches!(self.processes.get(&pid), Some(InProcess::Found(_)))
    }

    /// The files that are interpreters.
    pub fn images(&self) -> impl Iterator<Item = u32> + '_ {
        let is_one = |(_, kind): &(usize, &ImageKind)| kind.interpreter().is_some();
        self.images.iter().enumerate().filter(is_one).map(|(image, _)| image as u32)
    }

    /// The reasons for which interpreters are not supported, with the number of their processes.
    pub fn refused(&self) -> &BTreeMap<Refused, u64> {
        &self.refused
    }
}

impl FoundRuntime {
    /// The same in a process that was forked.
    fn for_child(&mut self, pid: i32) -> FoundRuntime {
        FoundRuntime {
            language: self.language,
            runtime: self.runtime.clone(),
            id: self.id,
            since: self.since,
            codes: self.codes.for_child(pid),
            compiled: CodeCache::new(pid),
        }
    }
}

/// The language of an interpreter's programs.
fn language_of(interpreter: Interpreter) -> Language {
    match interpreter {
        Interpreter::Cpython => Language::Python,
        Interpreter::Ruby => Language::Ruby,
        Interpreter::Php => Language::Php,
        Interpreter::V8 => Language::JavaScript,
        Interpreter::HotSpot => Language::Java,
    }
}

/// True if a process writes a perf map or a jitdump, with `--perf-basic-prof` or `--perf-prof` of node.
/// Its functions are those of its compiled code then, which have addresses and instructions.
fn names_its_code(pid: i32) -> bool {
    let maps = procfs::maps(pid).unwrap_or_default();
    let path = |line: &[u8]| line.rsplit(|byte| *byte == b' ').next().and_then(number_of_dump);
    let inner = procfs::inner_pid(pid).unwrap_or(pid);
    let map = format!("/proc/{pid}/root/tmp/perf-{inner}.map");
    // At first, there is no file yet.
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let options: [&[u8]; 4] =
        [b"--perf-basic-prof", b"--perf_basic_prof", b"--perf-prof", b"--perf_prof"];
    maps.split(|byte| *byte == b'\n').any(|line| path(line).is_some())
        || std::fs::symlink_metadata(map).is_ok()
        || options.iter().any(|option| memchr::memmem::find(&command, option).is_some())
}

/// What a file is.
fn kind_of(image: u32, images: &Images) -> ImageKind {
    match &images.get(image).state {
        State::Unseen | State::Unreadable(_) => ImageKind::Unknown,
        State::Elf(loaded) => {
            let interpreter = Interpreter::of_file(&loaded.bytes);
            interpreter.map_or(ImageKind::Other, ImageKind::Interpreter)
        }
        State::Anonymous => ImageKind::Memory,
        State::Same(_) => ImageKind::Other,
    }
}

/// True if a process whose first thread ends has others.
fn has_other_threads(pid: i32) -> bool {
    procfs::threads(pid).is_ok_and(|threads| threads.iter().any(|tid| *tid != pid))
}
