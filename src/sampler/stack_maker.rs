//! Builds the stacks of samples: the hot path, from a decoded record to the profile's builder. The
//! [profile types](super::types) determine the values of the stacks.
//!
//! Does not allocate for a stack, thread or image that was seen before.

mod bpf_frames;
mod extrapolation;
mod into_profile;
mod kernel_code;
mod labels;
mod mappings;
mod pending_stack;
mod prepare;
mod sleeper;
mod stack;
mod take_part;
mod user_frames;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::StackMethod;
use super::interpreters::{Interpreters, Origin};
pub use bpf_frames::BpfFrames;
pub use extrapolation::{ColumnSums, Extrapolated, SampledSums, Shares};
pub use into_profile::Aggregated;
use kernel_code::KernelCode;
use labels::{Keys, LabelCache};
pub use pending_stack::{NOT_SAMPLED, PendingStack};
use prepare::{Prepared, Unwound};
use profile::{Builder, Column, LabelSetId, LocationId, MappingId, Truncation};
use sys::foreign::{Root, Roots};
use sys::image::{NotOpened, State};
use sys::record::{Record, Sample};
use sys::{ThreadId, processes::ProcessTable, procfs};
use unwind::{self, Frame, StackEnd, Unwinder};
use user_frames::MergeBuffers;

/// Statistics of the stacks.
#[derive(Clone, Debug, Default)]
pub struct StackCounts {
    /// Number of user stacks by end (index in [`StackEnd::ALL`]).
    pub ends: [u64; StackEnd::ALL.len()],
    /// Number of user stacks.
    pub user_stacks: u64,
    /// Number of user stacks that are longer than the kernel's copy and were copied completely.
    pub deep: u64,
    /// Number of stacks by process, for the first [`StackCounts::MAX_PROCESSES`] processes.
    pub by_process: FxHashMap<i32, u64>,
    /// True if code was sampled whose mappings this user may not read.
    pub hidden_mappings: bool,
    /// Number of threads whose samples have no label `tid`, because there were too many.
    pub unlabelled: u64,
}

impl StackCounts {
    /// Maximum number of processes that are counted individually.
    const MAX_PROCESSES: usize = 1 << 16;

    fn add_process(&mut self, pid: i32) {
        if let Some(n) = self.by_process.get_mut(&pid) {
            *n += 1;
        } else if self.by_process.len() < StackCounts::MAX_PROCESSES {
            self.by_process.insert(pid, 1);
        }
    }
}

/// Number of truncated stacks by reason, from the number of stacks by end.
pub fn truncated(ends: &[u64; StackEnd::ALL.len()]) -> Vec<(Truncation, u64)> {
    let ends = StackEnd::ALL.into_iter().zip(*ends).filter(|&(_, n)| n > 0);
    ends.filter_map(|(end, n)| Some((stack::truncation(end)?, n))).collect()
}

/// The process and the time (`CLOCK_MONOTONIC`, nanoseconds) of a sample, and what took it.
#[derive(Clone, Copy, Default)]
struct Moment {
    pid: i32,
    time: u64,
    origin: Origin,
}

/// Builds stacks and their labels, and adds them to the profile.
pub struct StackMaker {
    /// The process table.
    pub table: ProcessTable,
    /// The profile so far.
    pub builder: Builder,
    /// The statistics so far.
    pub counts: StackCounts,
    unwinder: Unwinder,
    /// The interpreters of processes.
    pub interpreters: Interpreters,
    /// See [`StackMaker::set_frugal`].
    is_frugal: bool,
    stacks: StackMethod,
    /// Maximum number of frames of the kernel's walk along frame pointers.
    max_chain: usize,
    keys: Keys,
    kernel: Option<MappingId>,
    /// Mapping of each image and segment (0: of the whole image, else segment + 1).
    mappings: Vec<Vec<Option<MappingId>>>,
    /// Root directories of other containers and mount namespaces.
    roots: Roots,
    /// Root directory of the process in which each image was sampled first, if it is one of these.
    root_of_image: FxHashMap<u32, Arc<Root>>,
    /// Mapping of code generated at run time, by image and epoch.
    run_time: FxHashMap<(u32, u32), MappingId>,
    /// Process and time of the last sample.
    now: Moment,
    kernel_code: KernelCode,
    scratch: Scratch,
    /// A stack that was unwound in advance, whose frames are in `scratch`.
    prepared: Option<Prepared>,
    /// The last stack.
    last: PendingStack,
    /// The callers in the last stack of each slot of the unwinder, outermost first.
    trails: [Vec<LocationId>; unwind::SLOTS],
    /// Labels of the last sample; `None` after a record.
    last_labels: Option<(ThreadId, LabelSetId)>,
    label_cache: LabelCache,
    /// Frames of prof's own BPF programs in kernel stacks.
    bpf_frames: BpfFrames,
    /// The factors for extrapolated values, by their labels.
    shares: Vec<(Column, Shares)>,
}

#[derive(Default)]
struct Scratch {
    kernel: Vec<u64>,
    chain: Vec<u64>,
    frames: Vec<Frame>,
    merge: MergeBuffers,
    /// Buffer that replaces a trail that is kept.
    trail: Vec<LocationId>,
}

/// The innermost frame of a stack, as an argument of [`Builder::location`].
type Innermost = (Option<MappingId>, u64);

impl StackMaker {
    /// Adds stacks to a profile.
    pub fn new(mut builder: Builder, stacks: StackMethod) -> StackMaker {
        let keys = Keys::new(&mut builder.profile.strings);
        StackMaker {
            table: ProcessTable::default(),
            builder,
            counts: StackCounts::default(),
            unwinder: Unwinder::default(),
            interpreters: Interpreters::default(),
            is_frugal: false,
            stacks,
            max_chain: max_chain(),
            keys,
            kernel: None,
            mappings: Vec::new(),
            roots: Roots::default(),
            root_of_image: FxHashMap::default(),
            run_time: FxHashMap::default(),
            now: Moment::default(),
            kernel_code: KernelCode::default(),
            scratch: Scratch::default(),
            prepared: None,
            last: PendingStack::default(),
            trails: Default::default(),
            last_labels: None,
            label_cache: LabelCache::default(),
            bpf_frames: BpfFrames::default(),
            shares: Vec::new(),
        }
    }

    /// Prepares for samples of prof's own BPF programs.
    pub fn expect_programs(&mut self, frames: BpfFrames) {
        self.bpf_frames = frames;
    }

    /// Reads the files of JIT compilers. To be called before the rings are read, so that they are
    /// not newer than the samples that follow.
    pub fn read_jit_files(&mut self) {
        self.table.jit.read_changes();
    }

    /// From now on, code without unwind information is not analysed unless it was before, or is
    /// again, if `hurried` is false.
    pub fn set_hurried(&mut self, hurried: bool) {
        self.unwinder.set_hurried(hurried);
    }

    /// From now on, a stack whose unwinding needs more than cached results has its innermost frame
    /// only; or again all frames, if `is_frugal` is false.
    pub fn set_frugal(&mut self, is_frugal: bool) {
        self.is_frugal = is_frugal;
    }

    /// Releases half of the memory that has copies of files.
    pub fn drop_copies(&mut self) {
        self.unwinder.drop_copies();
    }

    /// Releases the memory of what can be read from files again.
    pub fn drop_caches(&mut self) {
        self.unwinder.drop_caches();
    }

    /// Applies a record about processes or the kernel's code.
    pub fn record(&mut self, record: &Record<'_>) {
        self.last_labels = None;
        if let Record::Ksymbol { start, len, gone, name } = *record {
            self.kernel_code.record(start, len, gone, name);
        }
        self.table.apply(record);
        self.interpreters.record(record);
    }

    /// Builds the stack of a sample and adds values to it; see [`Builder::add`].
    pub fn add_sample(&mut self, sample: &Sample<'_>, samples: u32, values: &[(Column, i64)]) {
        self.make_stack(sample);
        let labels = self.labels(sample.thread());
        self.add_last(labels, samples, values);
    }

    /// Adds values to the last stack; see [`Builder::add`].
    pub fn add_last(&mut self, labels: LabelSetId, samples: u32, values: &[(Column, i64)]) {
        let PendingStack { callers, innermost } = &self.last;
        self.builder.add_stack(callers, *innermost, labels, samples, values);
    }

    /// Adds values to a stack that was built earlier; see [`Builder::add`].
    pub fn add_pending(
        &mut self,
        stack: &PendingStack,
        labels: LabelSetId,
        samples: u32,
        values: &[(Column, i64)],
    ) {
        self.builder.add_stack(&stack.callers, stack.innermost, labels, samples, values);
    }

    /// Adds values without a stack: a frame in brackets gives the reason.
    pub fn add_without_stack(
        &mut self,
        why: &str,
        labels: LabelSetId,
        samples: u32,
        values: &[(Column, i64)],
    ) {
        let location = [self.builder.named_location(why)];
        self.builder.add_stack(&location, None, labels, samples, values);
    }

    /// The last stack.
    pub fn last_stack(&self) -> &PendingStack {
        &self.last
    }

    /// The locations of the last stack, outermost first, including the innermost frame.
    pub fn last_locations(&mut self, locations: &mut Vec<LocationId>) {
        locations.clone_from(&self.last.callers);
        if let Some((mapping, address)) = self.last.innermost {
            locations.push(self.builder.location(mapping, address));
        }
    }

    /// Registers a column of extrapolated values, which will be scaled by the share of their
    /// labels.
    pub fn scale_later(&mut self, column: Column, shares: Shares) {
        self.shares.push((column, shares));
    }

    /// Scales the extrapolated values.
    pub fn scale_estimates(&mut self) {
        for (column, shares) in std::mem::take(&mut self.shares) {
            self.builder.scale_labelled(column, &shares);
        }
    }

    /// Binaries whose unwind information or code was not read completely, because that exceeded a
    /// limit.
    pub fn over_budget(&self) -> Vec<String> {
        let images: BTreeSet<u32> = self.unwinder.over_budget().collect();
        images.into_iter().map(|image| self.table.images.get(image).path.clone()).collect()
    }

    /// Binaries with frames in the profile that could not be opened, by the reasons.
    pub fn not_opened(&self) -> BTreeMap<NotOpened, Vec<String>> {
        let mut by_reason: BTreeMap<NotOpened, Vec<String>> = BTreeMap::new();
        let seen = self.mappings.iter().enumerate().filter(|(_, slots)| !slots.is_empty());
        for image in seen.map(|(image, _)| self.table.images.get(image as u32)) {
            if let State::Unreadable(why) = image.state {
                by_reason.entry(why).or_default().push(image.path.clone());
            }
        }
        by_reason
    }

    /// Binaries with frames in the profile but without unwind information.
    pub fn without_unwind_info(&self) -> Vec<String> {
        let seen = self.mappings.iter().enumerate().filter(|(_, slots)| !slots.is_empty());
        let images = seen.map(|(image, _)| self.table.images.get(image as u32));
        let without = images.filter(|image| match &image.state {
            State::Elf(loaded) => !loaded.elf.can_unwind(),
            _ => false,
        });
        without.map(|image| image.path.clone()).collect()
    }
}

fn max_chain() -> usize {
    /// The kernel's default (`PERF_MAX_STACK_DEPTH`).
    const DEFAULT: usize = 127;
    let set = procfs::sysctl("kernel/perf_event_max_stack");
    set.and_then(|n| usize::try_from(n).ok()).unwrap_or(DEFAULT)
}
