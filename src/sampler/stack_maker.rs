//! Makes stacks of samples: the hot path, from a decoded record to the profile's builder. What is
//! counted by these stacks is for the [profile types](super::types) to say.
//!
//! Nothing here allocates for a stack, thread or image that was seen before.

mod bpf_frames;
mod extrapolation;
mod into_profile;
mod kernel_code;
mod labels;
mod mappings;
mod pending_stack;
mod sleeper;
mod stack;

use rustc_hash::FxHashMap;

use super::StackMethod;
pub use bpf_frames::BpfFrames;
pub use extrapolation::{ColumnSums, Extrapolated, Shares};
pub use into_profile::Aggregated;
use kernel_code::KernelCode;
use labels::{Keys, LabelCache};
pub use pending_stack::PendingStack;
use profile::{Builder, Column, LabelSetId, LocationId, MappingId, Truncation};
use sys::image::State;
use sys::record::{Record, Sample};
use sys::{ThreadId, processes::ProcessTable, procfs};
use unwind::{self, Frame, StackEnd, Unwinder};

/// Counts of the stacks that were made.
#[derive(Clone, Debug, Default)]
pub struct StackCounts {
    /// User stacks, by why they ended (index in [`StackEnd::ALL`]).
    pub ends: [u64; StackEnd::ALL.len()],
    /// User stacks.
    pub user_stacks: u64,
    /// User stacks that are longer than the kernel's copy, where the rest was copied, too.
    pub deep: u64,
    /// Stacks by process, for the first [`StackCounts::MAX_PROCESSES`] processes.
    pub by_process: FxHashMap<i32, u64>,
    /// Code was sampled whose mappings this user may not read.
    pub hidden_mappings: bool,
    /// Threads whose samples have no label `tid`, because there were too many.
    pub unlabelled: u64,
}

impl StackCounts {
    /// Most processes that are counted one by one.
    const MAX_PROCESSES: usize = 1 << 16;

    /// Truncated stacks, by why.
    pub fn truncated(&self) -> Vec<(Truncation, u64)> {
        let ends = StackEnd::ALL.into_iter().zip(self.ends).filter(|&(_, n)| n > 0);
        ends.filter_map(|(end, n)| Some((stack::truncation(end)?, n))).collect()
    }

    fn of_process(&mut self, pid: i32) {
        if let Some(n) = self.by_process.get_mut(&pid) {
            *n += 1;
        } else if self.by_process.len() < StackCounts::MAX_PROCESSES {
            self.by_process.insert(pid, 1);
        }
    }
}

/// A process and a time (`CLOCK_MONOTONIC`, nanoseconds).
#[derive(Clone, Copy, Default)]
struct Moment {
    pid: i32,
    time: u64,
}

/// Makes stacks and their labels, and adds them to the profile.
pub struct StackMaker {
    /// What is known of processes.
    pub table: ProcessTable,
    /// The profile so far.
    pub builder: Builder,
    /// What was counted.
    pub counts: StackCounts,
    unwinder: Unwinder,
    stacks: StackMethod,
    /// Most frames of the kernel's walk along frame pointers.
    max_chain: usize,
    keys: Keys,
    kernel: Option<MappingId>,
    /// Mapping of each image and segment (0: of the whole image, else segment + 1).
    mappings: Vec<Vec<Option<MappingId>>>,
    /// Mapping of code made at run time, by image and epoch.
    run_time: FxHashMap<(u32, u32), MappingId>,
    /// Of the last sample.
    now: Moment,
    kernel_code: KernelCode,
    scratch: Scratch,
    /// The stack that was made last.
    last: PendingStack,
    /// The callers in the last stack of each slot of the unwinder's, outermost first.
    trails: [Vec<LocationId>; unwind::SLOTS],
    /// Labels of the last sample; `None` since a record came.
    last_labels: Option<(ThreadId, LabelSetId)>,
    label_cache: LabelCache,
    /// Frames of prof's own programs in the kernel's stacks.
    bpf_frames: BpfFrames,
    /// The factors for values that are estimates, by their labels.
    shares: Vec<(Column, Shares)>,
}

#[derive(Default)]
struct Scratch {
    kernel: Vec<u64>,
    chain: Vec<u64>,
    frames: Vec<Frame>,
    /// In place of a trail that is kept.
    trail: Vec<LocationId>,
}

/// The innermost frame of a stack, as [`Builder::location`] takes it.
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
            stacks,
            max_chain: max_chain(),
            keys,
            kernel: None,
            mappings: Vec::new(),
            run_time: FxHashMap::default(),
            now: Moment::default(),
            kernel_code: KernelCode::default(),
            scratch: Scratch::default(),
            last: PendingStack::default(),
            trails: Default::default(),
            last_labels: None,
            label_cache: LabelCache::default(),
            bpf_frames: BpfFrames::default(),
            shares: Vec::new(),
        }
    }

    /// Samples of prof's own programs in the kernel will come.
    pub fn expect_programs(&mut self, frames: BpfFrames) {
        self.bpf_frames = frames;
    }

    /// The rings are about to be read: the files of JIT compilers are read first, so that they do
    /// not know more than the samples that follow.
    pub fn read_jit_files(&mut self) {
        self.table.jit.look();
    }

    /// Takes in a record about processes or the kernel's code.
    pub fn record(&mut self, record: &Record<'_>) {
        self.last_labels = None;
        if let Record::Ksymbol { start, len, gone, name } = *record {
            self.kernel_code.record(start, len, gone, name);
        }
        self.table.apply(record);
    }

    /// Makes the stack of a sample and adds it with these values.
    pub fn add_sample(&mut self, sample: &Sample<'_>, values: &[(Column, i64)]) {
        self.make_stack(sample);
        let labels = self.labels(sample.thread());
        self.add_last(labels, values);
    }

    /// Adds the stack that was made last.
    pub fn add_last(&mut self, labels: LabelSetId, values: &[(Column, i64)]) {
        let PendingStack { callers, innermost } = &self.last;
        self.builder.add_stack(callers, *innermost, labels, values);
    }

    /// Adds a stack that was made before.
    pub fn add_pending(
        &mut self,
        stack: &PendingStack,
        labels: LabelSetId,
        values: &[(Column, i64)],
    ) {
        self.builder.add_stack(&stack.callers, stack.innermost, labels, values);
    }

    /// Adds values without a stack: a frame in brackets says why there is none.
    pub fn add_without_stack(&mut self, why: &str, labels: LabelSetId, values: &[(Column, i64)]) {
        let location = [self.builder.named_location(why)];
        self.builder.add_stack(&location, None, labels, values);
    }

    /// The stack that was made last.
    pub fn last_stack(&self) -> &PendingStack {
        &self.last
    }

    /// The locations of the stack that was made last, outermost first, innermost frame included.
    pub fn last_locations(&mut self, locations: &mut Vec<LocationId>) {
        locations.clone_from(&self.last.callers);
        if let Some((mapping, address)) = self.last.innermost {
            locations.push(self.builder.location(mapping, address));
        }
    }

    /// Values of a column that are estimates will be scaled, each by the share of its labels.
    pub fn scale_later(&mut self, column: Column, shares: Shares) {
        self.shares.push((column, shares));
    }

    /// Scales the values that are estimates.
    pub fn scale_estimates(&mut self) {
        for (column, shares) in std::mem::take(&mut self.shares) {
            self.builder.scale_labelled(column, &shares);
        }
    }

    /// Binaries with frames in the profile that have no unwind information.
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
