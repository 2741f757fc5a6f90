//! Processes whose interpreter makes code that lies on the native stack. Of HotSpot, the user's functions
//! are native frames: nothing is copied at a sample but its registers and stack. Of PHP and Ruby, that
//! code only leads to its callers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::budgeted::BudgetedMemory;
use super::codes::{self, Functions, NameSource};
use super::{InProcess, Interpreters};
use interpreters::hotspot::{Address, FrameShape, HotSpot, Registers, Shape, Times};
use interpreters::{Budget, CompiledCode, Interpreter, Memory, ProcessMemory, Runtime};
use profile::{Builder, LocationId, Mapping};
use sys::record::{Regs, Sample, UserStack};
use sys::{os, procfs};
use unwind::{Frame, ManagedAddress, ManagedBytes, ManagedCode, ManagedShape};

/// What is read of a process in each second, to find frames and their methods.
const BUDGET: Budget = Budget { bytes: 64 << 20, calls: 40_000 };

/// Most processes without HotSpot that are remembered.
const MOST_SEARCHED: usize = 1 << 14;

/// The mapping of HotSpot's own code in memory. Part of the file format.
const STUBS: &str = "[hotspot]";

/// Position of `r13` in DWARF's order: the interpreter's instruction.
const BYTECODE: usize = 13;

/// A process.
struct ManagedProcess {
    runtime: Arc<dyn Runtime>,
    /// See [`Runtime::compiled_code`].
    compiled: Option<CompiledCode>,
    memory: Mutex<BudgetedMemory>,
}

/// Managed processes.
#[derive(Default)]
pub struct ManagedProcesses {
    /// The time of the sample whose stack is made.
    sample: AtomicU64,
    /// The lock is not held while memory is read.
    processes: Mutex<FxHashMap<i32, Arc<ManagedProcess>>>,
    /// The number of them.
    count: AtomicUsize,
}

impl ManagedProcesses {
    /// Adds a process.
    pub fn insert(&self, pid: i32, runtime: Arc<dyn Runtime>) {
        if let Some(hotspot) = runtime.hotspot() {
            hotspot.read_heaps(os::monotonic_nanos(), &ProcessMemory::new(pid, BUDGET));
        }
        let memory = Mutex::new(BudgetedMemory::new(pid, BUDGET));
        let compiled = runtime.compiled_code();
        if compiled.is_some() || runtime.hotspot().is_some() {
            self.insert_process(pid, Arc::new(ManagedProcess { runtime, compiled, memory }));
        }
    }

    /// Adds a process that was just forked. HotSpot does not fork.
    pub fn insert_child(&self, pid: i32, parent: i32) {
        let process = self.lock().get(&parent).cloned();
        if let Some(process) = process.filter(|process| process.compiled.is_some()) {
            self.insert_process(pid, process);
        }
    }

    fn insert_process(&self, pid: i32, process: Arc<ManagedProcess>) {
        let mut processes = self.lock();
        processes.insert(pid, process);
        self.count.store(processes.len(), Ordering::Relaxed);
    }

    /// Removes a process.
    pub fn remove(&self, pid: i32) {
        let mut processes = self.lock();
        processes.remove(&pid);
        self.count.store(processes.len(), Ordering::Relaxed);
    }

    /// True if there is one.
    pub fn is_used(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    fn get(&self, pid: i32) -> Option<Arc<ManagedProcess>> {
        if self.is_used() { self.lock().get(&pid).cloned() } else { None }
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<i32, Arc<ManagedProcess>>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A result of a process's HotSpot, with its memory if that may be read.
    fn with<T>(
        &self,
        process: &ManagedProcess,
        may_read: bool,
        find: impl FnOnce(&HotSpot, Times, Option<&dyn Memory>) -> T,
    ) -> Option<T> {
        let hotspot = process.runtime.hotspot()?;
        let now = os::monotonic_nanos();
        let times = Times { sample: self.sample.load(Ordering::Relaxed), now };
        if !may_read {
            return Some(find(hotspot, times, None));
        }
        let mut budgeted = process.memory.lock().unwrap_or_else(PoisonError::into_inner);
        budgeted.refill(now);
        Some(find(hotspot, times, Some(budgeted.memory())))
    }
}

impl ManagedCode for ManagedProcesses {
    fn shape(&self, at: ManagedAddress) -> ManagedShape {
        let Some(process) = self.get(at.pid) else { return ManagedShape::Foreign };
        match (&process.compiled, at.is_shared) {
            (Some(CompiledCode::Jumped { from }), true) => {
                return ManagedShape::Jumped { from: *from };
            }
            (Some(CompiledCode::Called { from }), false) => {
                return ManagedShape::Called { from: from.clone() };
            }
            (Some(_), _) => return ManagedShape::Foreign,
            (None, _) => {}
        }
        let address = Address { address: at.address, is_return: at.kind.is_return() };
        let shape = self.with(&process, at.may_read, |hotspot, times, memory| {
            hotspot.shape(address, times, memory)
        });
        match shape {
            None | Some(FrameShape::Foreign) => ManagedShape::Foreign,
            Some(FrameShape::Unread) => ManagedShape::Unread,
            Some(FrameShape::Unknown) => ManagedShape::Unknown,
            Some(FrameShape::Known(shape)) => match shape {
                Shape::Sized(size) => ManagedShape::Sized(size),
                Shape::Linked => ManagedShape::Linked,
                Shape::Interpreted => {
                    ManagedShape::Interpreted { sender: Shape::SENDER, method: Shape::METHOD }
                }
                Shape::Adapter { bytes, start } => {
                    ManagedShape::Adapter(ManagedBytes { bytes, start, body: None })
                }
                Shape::Code { bytes, start, body } => {
                    let body = body.map(|body| (body.start..body.end, body.size));
                    ManagedShape::Code(ManagedBytes { bytes, start, body })
                }
            },
        }
    }

    fn is_method(&self, at: ManagedAddress, word: u64) -> Option<bool> {
        let find = |hotspot: &HotSpot, times, memory: Option<&dyn Memory>| {
            hotspot.is_method(word, times, memory)
        };
        self.get(at.pid)
            .and_then(|process| self.with(&process, at.may_read, find))
            .unwrap_or(Some(false))
    }
}

/// For each native frame of a stack, the innermost first, the locations that replace it, the
/// outermost first; `None` for those that are not managed.
pub type ManagedFrames = Vec<Option<Vec<LocationId>>>;

impl Interpreters {
    /// What describes managed code to the unwinder, for the stack of a sample at this time.
    pub fn managed_code(&self, time: u64) -> Arc<dyn ManagedCode> {
        self.managed.sample.store(time, Ordering::Relaxed);
        self.managed.clone()
    }

    /// The managed processes.
    pub fn managed(&self) -> Arc<ManagedProcesses> {
        self.managed.clone()
    }

    /// True if the user's functions of a process are native frames.
    pub fn is_managed(&self, pid: i32) -> bool {
        self.managed.get(pid).is_some_and(|process| process.compiled.is_none())
    }

    /// True if run-time code of a process is described to the unwinder.
    pub fn describes_code(&self, pid: i32) -> bool {
        self.managed.get(pid).is_some()
    }

    /// True if the user's functions of an interpreter are read here.
    pub(super) fn reads(&self, interpreter: Interpreter) -> bool {
        interpreter == Interpreter::HotSpot || self.is_read()
    }

    /// True if files of interpreters were executed whose frames have to be copied at samples.
    pub fn needs_walks(&self) -> bool {
        let needs = |interpreter| interpreter != Interpreter::HotSpot;
        self.images.iter().filter_map(|kind| kind.interpreter()).any(needs)
    }

    /// True if code in the memory of a process may be of HotSpot, which is not known yet.
    pub(super) fn may_be_managed(&self, pid: i32, time: u64) -> bool {
        !self.searched.contains(&pid) && self.is_due(pid, time)
    }

    /// HotSpot, if a process has mapped it.
    pub(super) fn search(&mut self, pid: i32) -> Option<Interpreter> {
        let maps = procfs::maps(pid).unwrap_or_default();
        if memchr::memmem::find(&maps, b"/libjvm.so").is_some() {
            return Some(Interpreter::HotSpot);
        }
        if self.searched.len() >= MOST_SEARCHED {
            self.searched.clear();
        }
        self.searched.insert(pid);
        None
    }

    /// True if the methods of all managed frames of a sample are known.
    pub fn knows_managed(
        &self,
        sample: &Sample<'_>,
        frames: &[Frame],
        registers: impl Iterator<Item = Regs>,
    ) -> bool {
        let Some(InProcess::Found(found)) = self.processes.get(&sample.pid) else { return true };
        frames.iter().zip(registers).enumerate().all(|(number, (frame, regs))| {
            if !frame.is_run_time_code() {
                return true;
            }
            let methods = self.methods(sample, frame, regs, number == 0, false);
            methods.is_none_or(|methods| {
                methods.is_some_and(|methods| {
                    methods.keys.iter().all(|key| found.codes.knows(key, sample.time))
                })
            })
        })
    }

    /// The methods of a frame; `None` if it is not managed, and inside that, if they are not known.
    fn methods(
        &self,
        sample: &Sample<'_>,
        frame: &Frame,
        regs: Regs,
        is_innermost: bool,
        may_read: bool,
    ) -> Option<Option<interpreters::hotspot::MethodFrames>> {
        let UserStack::Native { regs: first, all, bytes, rest, .. } = sample.user else {
            return None;
        };
        let word = |address: u64| {
            let at = usize::try_from(address.checked_sub(first.sp)?).ok()?;
            let word = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
            word.map(|word| u64::from_le_bytes(*word)).or_else(|| rest.word(address))
        };
        let at = Address { address: frame.address.0, is_return: frame.kind.is_return() };
        let own = all.in_dwarf_order().filter(|_| is_innermost && !at.is_return);
        let bytecode = own.map(|all| all[BYTECODE]);
        let registers = Registers { stack: regs.sp, frame: regs.bp, bytecode };
        let process = self.managed.get(sample.pid)?;
        let methods = self.managed.with(&process, may_read, |hotspot, times, memory| {
            let is_code = hotspot.has_code(at.address);
            is_code.then(|| hotspot.methods(at, registers, &word, times, memory))
        });
        methods.flatten()
    }

    /// The user's frames of a sample of a managed process, in place of native ones.
    pub fn managed_stack(
        &mut self,
        sample: &Sample<'_>,
        frames: &[Frame],
        registers: impl Iterator<Item = Regs>,
        builder: &mut Builder,
    ) -> ManagedFrames {
        let mut registers = registers;
        let mut found_any = false;
        let mut places = Vec::with_capacity(frames.len());
        for (number, frame) in frames.iter().enumerate() {
            let regs = registers.next();
            let methods = regs
                .filter(|_| frame.is_run_time_code())
                .and_then(|regs| self.methods(sample, frame, regs, number == 0, true))
                .flatten();
            let Some(methods) = methods else {
                places.push(None);
                continue;
            };
            let mut locations = Vec::new();
            if let Some(stub) = &methods.stub {
                let mapping = *self.stubs.get_or_insert_with(|| {
                    let file = builder.profile.strings.intern(STUBS);
                    builder.add_mapping(Mapping { file, limit: 1, ..Mapping::default() })
                });
                locations.push(builder.named_location_in(stub, Some(mapping)));
            }
            let Some(InProcess::Found(found)) = self.processes.get_mut(&sample.pid) else {
                places.push(None);
                continue;
            };
            let language = found.language;
            let mapping = self.mappings.entry(language);
            let mapping = *mapping.or_insert_with(|| codes::add_mapping(language, builder));
            for key in methods.keys.iter().rev() {
                let functions = Functions { language, mapping };
                let codes = &mut found.codes;
                let (pid, runtime, copied) = (sample.pid, &*found.runtime, &self.copied_codes);
                locations.push(codes.location(
                    key,
                    NameSource { pid, runtime, copied },
                    functions,
                    builder,
                    sample.time,
                ));
                found_any = true;
            }
            places.push(Some(locations));
        }
        self.counts.shown += u64::from(found_any);
        places
    }

    /// The file of HotSpot's own code in memory, if there are frames of it.
    pub fn stub_file(&self) -> Option<&'static str> {
        self.stubs.map(|_| STUBS)
    }
}
