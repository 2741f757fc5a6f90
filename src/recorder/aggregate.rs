//! Events in, weighted stacks out: the hot path, from a decoded record to the profile's builder.
//! Nothing here allocates for a stack, thread or image that was seen before.

mod births;
mod estimates;
mod groups;
mod heap;
mod held;
mod labels;
mod snapshot;
mod spans;
mod stack;
mod wall;

use rustc_hash::FxHashMap;

use super::ksymbols::Ksymbols;
use super::tracing::Tracing;
use super::{Taker, Weight};
use crate::sampler::{Event, Stacks};
pub use births::Births;
pub use groups::Groups;
use labels::{Keys, LabelCache};
use profile::{Builder, Column, LabelSetId, LocationId, Mapping, MappingId, Truncation};
pub use snapshot::Asleep;
pub use spans::Spans;
use sys::elf::{build_id_in_notes, hex};
use sys::image::{Image, State};
use sys::record::{Record, Sample};
use sys::{processes::ProcessTable, procfs};
use unwind::{self, Frame, StackEnd, Unwinder};
pub use wall::{Wall, WallSpec};

/// First address of the kernel's half.
const KERNEL_START: u64 = 0xffff_8000_0000_0000;

/// Counts of what was aggregated.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// User stacks, by why they ended (index in [`StackEnd::ALL`]).
    pub ends: [u64; StackEnd::ALL.len()],
    /// User stacks.
    pub user_stacks: u64,
    /// User stacks that go on beyond the kernel's own copy, where the rest was copied, too.
    pub deep: u64,
    /// Samples by process, for the first so many processes.
    pub by_process: FxHashMap<i32, u64>,
    /// Code was sampled whose mappings are not for this user to read.
    pub hidden_mappings: bool,
    /// Threads whose samples have no thread's labels, because there were too many.
    pub unlabelled: u64,
}

impl Counts {
    /// Most processes that are told apart.
    const MAX_PROCESSES: usize = 1 << 16;

    /// Truncated stacks, by why.
    pub fn truncated(&self) -> Vec<(Truncation, u64)> {
        let ends = StackEnd::ALL.into_iter().zip(self.ends).filter(|&(_, n)| n > 0);
        ends.filter_map(|(end, n)| Some((stack::truncation(end)?, n))).collect()
    }

    fn of_process(&mut self, pid: i32) {
        if let Some(n) = self.by_process.get_mut(&pid) {
            *n += 1;
        } else if self.by_process.len() < Counts::MAX_PROCESSES {
            self.by_process.insert(pid, 1);
        }
    }
}

/// Builds the profile while recording.
pub struct Aggregator {
    /// What is known of processes.
    pub table: ProcessTable,
    /// The profile so far.
    pub builder: Builder,
    /// What was counted.
    pub counts: Counts,
    unwinder: Unwinder,
    stacks: Stacks,
    /// Frames that the kernel's walk along frame pointers has at most.
    max_chain: usize,
    takers: Vec<Taker>,
    keys: Keys,
    pub(super) kernel: Option<MappingId>,
    /// Mapping of each image and segment (0: of the whole image, else segment + 1).
    pub(super) mappings: Vec<Vec<Option<MappingId>>>,
    /// Mapping of code made at run time, by image and epoch.
    pub(super) run_time: FxHashMap<(u32, u32), MappingId>,
    /// Process and time of the last sample.
    now: (i32, u64),
    /// Code that came into the kernel, or left it.
    pub(super) ksymbols: Ksymbols,
    scratch: Scratch,
    /// The callers in the last stack of each slot of the unwinder's, outermost first.
    trails: [Vec<LocationId>; unwind::SLOTS],
    /// Labels of the last sample, with its pid and tid; `None` since a record came.
    last_labels: Option<((i32, i32), LabelSetId)>,
    label_cache: LabelCache,
    /// The column of threads, if they are looked at.
    pub threads: Option<Column>,
    /// Events that are counted together.
    groups: Groups,
    /// Where each thread's time goes, if that is wanted.
    wall: Option<Wall>,
    /// Who starts threads, if that is wanted.
    births: Option<Births>,
    heap: heap::HeapTaker,
    /// Profile types that are made of spans, in the order of their events.
    spans: Vec<Spans>,
    /// What the kernel's stacks have in front where programs in the kernel take them.
    tracing: Option<Tracing>,
    /// By which fractions values are to be scaled, by their labels.
    shares: Vec<(Column, Shares)>,
}

/// Numerator and denominator for samples with some labels.
type Shares = FxHashMap<LabelSetId, (i64, i64)>;

#[derive(Default)]
struct Scratch {
    kernel: Vec<u64>,
    chain: Vec<u64>,
    frames: Vec<Frame>,
    /// Callers, outermost first.
    callers: Vec<LocationId>,
    /// Instead of a trail that is kept.
    trail: Vec<LocationId>,
}

/// The innermost frame of a stack, as [`Builder::location`] takes it.
type Innermost = (Option<MappingId>, u64);

impl Aggregator {
    /// An aggregator of samples; each event has its taker.
    pub fn new(mut builder: Builder, stacks: Stacks, takers: Vec<Taker>) -> Aggregator {
        let keys = Keys::new(&mut builder.profile.strings);
        Aggregator {
            table: ProcessTable::default(),
            builder,
            counts: Counts::default(),
            unwinder: Unwinder::default(),
            stacks,
            max_chain: max_chain(),
            takers,
            keys,
            kernel: None,
            mappings: Vec::new(),
            run_time: FxHashMap::default(),
            now: (0, 0),
            ksymbols: Ksymbols::default(),
            scratch: Scratch::default(),
            trails: Default::default(),
            last_labels: None,
            label_cache: LabelCache::default(),
            groups: Groups::default(),
            wall: None,
            births: None,
            threads: None,
            heap: heap::HeapTaker::default(),
            spans: Vec::new(),
            tracing: None,
            shares: Vec::new(),
        }
    }

    /// Expects samples that programs in the kernel take.
    pub fn expect_programs(&mut self, tracing: Tracing) {
        self.tracing = Some(tracing);
    }

    /// The rings are looked at: nothing may come into the files of JIT compilers between this and
    /// the samples that are taken in.
    pub fn look(&mut self) {
        self.table.jit.look();
    }

    /// Takes in an event.
    pub fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Sample { event, weight, sample } => match self.takers[*event] {
                Taker::Count(_) if !sample.group.is_empty() => self.group(sample),
                Taker::Count(of) => self.sample(sample, of.column, of.of(*weight)),
                Taker::Clock => self.runs(sample, *weight),
                Taker::Switch => self.goes_off(sample),
                Taker::Waited => self.has_waited(sample),
                Taker::Ended => self.has_ended(sample),
                Taker::Wakeup => self.wakes(sample),
                Taker::Birth => self.starts(sample),
                Taker::Nobody => {}
                Taker::Span { of, event } => self.span(of, event, sample),
            },
            Event::Other(record) => self.record(record),
        }
    }

    fn record(&mut self, record: &Record<'_>) {
        if self.heap.shows(record) {
            return;
        }
        self.last_labels = None;
        if let Record::Ksymbol { start, len, gone, name } = *record {
            self.ksymbols.record(start, len, gone, name);
        }
        if let Record::Exit { tid, .. } = *record {
            self.forget_counts(tid);
        }
        self.table.apply(record);
        self.heap.record(record);
        if self.wall.is_some() {
            self.switches(record);
        }
        self.thread_ends(record);
        if !self.spans.is_empty() {
            self.spans_record(record);
        }
    }

    fn sample(&mut self, sample: &Sample<'_>, column: Column, weight: i64) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let leaf = self.stack(sample, &mut scratch);
        let labels = self.labels(sample.pid, sample.tid);
        self.builder.add_stack(&scratch.callers, leaf, labels, &[(column, weight)]);
        self.scratch = scratch;
    }

    fn kernel_mapping_of(&mut self, address: u64) -> MappingId {
        let known = self.ksymbols.mapping(address, &mut self.builder);
        known.unwrap_or_else(|| self.kernel_mapping())
    }

    fn kernel_mapping(&mut self) -> MappingId {
        if let Some(id) = self.kernel {
            return id;
        }
        let notes = std::fs::read("/sys/kernel/notes").unwrap_or_default();
        let build_id = build_id_in_notes(&notes).unwrap_or_default();
        let strings = &mut self.builder.profile.strings;
        let mapping = Mapping {
            start: KERNEL_START,
            limit: u64::MAX,
            file: strings.intern("[kernel.kallsyms]"),
            build_id: strings.intern(&hex(&build_id)),
            ..Mapping::default()
        };
        *self.kernel.insert(self.builder.add_mapping(mapping))
    }

    pub(super) fn mapping_of(&mut self, frame: &Frame) -> Option<MappingId> {
        let image = frame.place.image?;
        if let Image { state: State::Anonymous, pid, .. } = *self.table.images.get(image) {
            return Some(self.run_time_mapping(image, pid, frame.place.address));
        }
        let slot = frame.place.segment.map_or(0, |s| usize::from(s) + 1);
        if let Some(Some(id)) = self.mappings.get(image as usize).and_then(|m| m.get(slot)) {
            return Some(*id);
        }
        if self.mappings.len() <= image as usize {
            self.mappings.resize_with(image as usize + 1, Vec::new);
        }
        let slots = &mut self.mappings[image as usize];
        if slots.len() <= slot {
            slots.resize(slot + 1, None);
        }
        let (start, limit, file_offset) = match &self.table.images.get(image).state {
            State::Elf(loaded) if slot > 0 => loaded.elf.mapping_of(slot - 1),
            _ => (0, u64::MAX, 0),
        };
        let of = self.table.images.get(image);
        let strings = &mut self.builder.profile.strings;
        let mapping = Mapping {
            start,
            limit,
            file_offset,
            file: strings.intern(&of.path),
            build_id: strings.intern(&hex(&of.build_id)),
            ..Mapping::default()
        };
        let id = self.builder.add_mapping(mapping);
        self.mappings[image as usize][slot] = Some(id);
        Some(id)
    }

    /// Mapping of code that a process made at run time, as long as that stays what it is.
    fn run_time_mapping(&mut self, image: u32, maker: i32, address: u64) -> MappingId {
        let (pid, time) = self.now;
        let epoch = self.table.jit.sampled(pid, maker, address, time);
        if let Some(&id) = self.run_time.get(&(image, epoch)) {
            return id;
        }
        let profile = &mut self.builder.profile;
        let file = profile.strings.intern(&self.table.images.get(image).path);
        let mapping = Mapping { limit: u64::MAX, file, ..Mapping::default() };
        let id = self.builder.add_mapping(mapping);
        self.run_time.insert((image, epoch), id);
        id
    }

    /// Scales what events weigh to what the kernel counted of them.
    ///
    /// The period that a sample carries is the next one where the kernel has just chosen it
    /// anew, so the periods of a few samples can add up to many times what happened.
    pub fn scale(&mut self, counts: impl Iterator<Item = (usize, u64)>) {
        for (column, shares) in std::mem::take(&mut self.shares) {
            self.builder.scale_labelled(column, &shares);
        }
        // Several events may be one to the user.
        let mut totals: Vec<(Column, u64)> = Vec::new();
        for (event, count) in counts {
            if let Taker::Count(Weight { column, fixed: None }) = self.takers[event] {
                match totals.iter_mut().find(|(known, _)| *known == column) {
                    Some((_, total)) => *total += count,
                    None => totals.push((column, count)),
                }
            }
        }
        for (column, total) in totals {
            self.builder.scale_to(column, i64::try_from(total).unwrap_or(i64::MAX));
        }
    }

    /// Binaries with frames in the profile that say nothing of how to unwind through them.
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

/// What process-level facts a recording with few samples is explained with.
pub fn cpu_ticks(pids: &[i32]) -> u64 {
    pids.iter().filter_map(|&pid| Some(procfs::stat(pid)?.cpu_ticks)).sum()
}
