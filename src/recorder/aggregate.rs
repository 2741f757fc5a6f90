//! Events in, weighted stacks out: the hot path, from a decoded record to the profile's builder.
//! Nothing here allocates for a stack, thread or image that was seen before.

mod labels;
mod snapshot;
mod state;
mod wall;

use rustc_hash::FxHashMap;

use super::Weight;
use super::ksymbols::Ksymbols;
use crate::os;
use crate::process::elf::{build_id_in_notes, hex};
use crate::process::image::{Image, State};
use crate::process::{ProcessTable, procfs};
use crate::profile::{Builder, Column, LabelSetId, LocationId, Mapping, MappingId};
use crate::sampler::record::{Record, Sample, UserStack};
use crate::sampler::{Event, Stacks};
use crate::unwind::{self, Frame, StackEnd, Unwinder};
use labels::Keys;
pub use snapshot::Asleep;
pub use state::ThreadState;
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
    /// User stacks whose outer part was read later.
    pub completed_later: u64,
    /// Samples by process, for the first so many processes.
    pub by_process: FxHashMap<i32, u64>,
    /// Code was sampled whose mappings are not for this user to read.
    pub hidden_mappings: bool,
    /// Threads whose samples have no thread's labels, because there were too many.
    pub unlabelled: u64,
}

/// How deep stacks are, beside their copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// None was deeper.
    Usual,
    /// Some were.
    Deep,
    /// Most were.
    MostlyDeep,
}

impl Counts {
    /// Most processes that are told apart.
    const MAX_PROCESSES: usize = 1 << 16;

    /// Stacks that end early, by the reason.
    pub fn truncated(&self) -> Vec<(String, u64)> {
        let ends = StackEnd::ALL.iter().zip(self.ends);
        ends.filter_map(|(end, n)| end.reason().filter(|_| n > 0).map(|why| (why.to_owned(), n)))
            .collect()
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
    weights: Vec<Weight>,
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
    /// Stacks that were deeper than their copies since the last look at the rings.
    deep: u32,
    /// Stacks since then.
    taken: u32,
    /// Where each thread's time goes, if that is wanted.
    wall: Option<Wall>,
}

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
    /// An aggregator of samples whose events weigh this much.
    pub fn new(mut builder: Builder, stacks: Stacks, weights: Vec<Weight>) -> Aggregator {
        let keys = Keys::new(&mut builder.profile.strings);
        Aggregator {
            table: ProcessTable::default(),
            builder,
            counts: Counts::default(),
            unwinder: Unwinder::default(),
            stacks,
            max_chain: max_chain(),
            weights,
            keys,
            kernel: None,
            mappings: Vec::new(),
            run_time: FxHashMap::default(),
            now: (0, 0),
            ksymbols: Ksymbols::default(),
            scratch: Scratch::default(),
            trails: Default::default(),
            last_labels: None,
            deep: 0,
            taken: 0,
            wall: None,
        }
    }

    /// How many stacks were deeper than their copies among those taken in last.
    pub fn depth(&self) -> Depth {
        match (self.deep, self.taken) {
            (0, _) => Depth::Usual,
            (deep, taken) if deep * 2 > taken => Depth::MostlyDeep,
            _ => Depth::Deep,
        }
    }

    /// The rings are looked at: nothing may come into the files of JIT compilers between this and
    /// the samples that are taken in.
    pub fn look(&mut self) {
        (self.deep, self.taken) = (0, 0);
        self.table.jit.look();
        self.unwinder.look(os::monotonic_nanos());
    }

    /// Takes in an event.
    pub fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Sample { event, sample, .. } if self.is_switch(*event) => self.goes_off(sample),
            Event::Sample { event, sample, .. } if self.is_clock(*event) => self.runs(sample),
            Event::Sample { event, weight, sample } => {
                let column = &self.weights[*event];
                let (column, weight) = (column.column, column.of(*weight));
                self.sample(sample, column, weight);
            }
            Event::Other(record) => self.record(record),
        }
    }

    fn record(&mut self, record: &Record<'_>) {
        self.last_labels = None;
        if let Record::Ksymbol { start, len, gone, name } = *record {
            self.ksymbols.record(start, len, gone, name);
        }
        self.table.apply(record);
        if self.wall.is_some() {
            self.switches(record);
        }
    }

    fn sample(&mut self, sample: &Sample<'_>, column: Column, weight: i64) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let (leaf, later) = self.stack(sample, &mut scratch);
        let labels = self.labels(sample.pid, sample.tid, later);
        self.builder.add_stack(&scratch.callers, leaf, labels, &[(column, weight)]);
        self.scratch = scratch;
    }

    /// Takes the stack of a sample: puts its callers, outermost first, into `scratch`, and
    /// returns its innermost frame, if it has any, and whether a part was read later.
    fn stack(&mut self, sample: &Sample<'_>, scratch: &mut Scratch) -> (Option<Innermost>, bool) {
        self.counts.of_process(sample.pid);
        self.now = (sample.pid, sample.time);
        scratch.kernel.clear();
        scratch.chain.clear();
        sample.callchain.split(&mut scratch.kernel, &mut scratch.chain);
        if self.stacks == Stacks::None {
            let addresses = if sample.kernel { &mut scratch.kernel } else { &mut scratch.chain };
            addresses.push(sample.ip);
        }
        let later = self.counts.completed_later;
        let in_kernel = scratch.kernel.len();
        let end = self.user_frames(sample, in_kernel, &scratch.chain, &mut scratch.frames);
        let later = self.counts.completed_later > later;
        let leaf = self.callers(scratch, end);
        let nothing = scratch.callers.is_empty().then_some((None, sample.ip));
        (leaf.or(nothing), later)
    }

    /// Puts together the callers of the innermost frame, and returns that.
    fn callers(&mut self, scratch: &mut Scratch, end: StackEnd) -> Option<Innermost> {
        let Scratch { kernel, frames, callers, trail, .. } = scratch;
        callers.clear();
        if let Some(reason) = end.reason() {
            callers.push(self.builder.truncation(reason));
        }
        let user_leaf = frames.first().filter(|_| kernel.is_empty());
        let user_callers = &frames[usize::from(user_leaf.is_some())..];
        self.extend_trail(user_callers, trail, callers);
        if let Some(frame) = user_leaf {
            return Some((self.mapping_of(frame), frame.place.address));
        }
        let (&leaf, kernel_callers) = kernel.split_first()?;
        for &address in kernel_callers.iter().rev() {
            let call = address.wrapping_sub(1);
            let mapping = self.kernel_mapping_of(call);
            callers.push(self.builder.location(Some(mapping), call));
        }
        Some((Some(self.kernel_mapping_of(leaf)), leaf))
    }

    /// Adds the locations of `frames`, innermost first, to `callers`. Those that the stack before
    /// has, too, are known.
    fn extend_trail(
        &mut self,
        frames: &[Frame],
        spare: &mut Vec<LocationId>,
        callers: &mut Vec<LocationId>,
    ) {
        spare.clear();
        let kept = self.unwinder.kept;
        let mut trail = match kept {
            Some(kept) => std::mem::take(&mut self.trails[kept.slot]),
            None => std::mem::take(spare),
        };
        trail.truncate(kept.map_or(0, |k| k.frames).min(frames.len()));
        for frame in frames.iter().rev().skip(trail.len()) {
            let mapping = self.mapping_of(frame);
            trail.push(self.builder.location(mapping, frame.place.address));
        }
        callers.extend_from_slice(&trail);
        match kept {
            Some(kept) => self.trails[kept.slot] = trail,
            None => *spare = trail,
        }
    }

    /// `in_kernel`: so many frames the kernel's walk has besides those of `chain`.
    fn user_frames(
        &mut self,
        sample: &Sample<'_>,
        in_kernel: usize,
        chain: &[u64],
        frames: &mut Vec<Frame>,
    ) -> StackEnd {
        frames.clear();
        self.unwinder.kept = None;
        let dumped = matches!(self.stacks, Stacks::Auto { .. } | Stacks::Dwarf { .. });
        if sample.pid < 0 || (chain.is_empty() && sample.user == UserStack::None) {
            return StackEnd::Complete;
        }
        if let UserStack::Native { regs, .. } = sample.user
            && !self.table.is_current(sample.pid, regs.ip, sample.kernel)
        {
            return StackEnd::Complete;
        }
        let pid = sample.pid;
        let mut end = self.unwind(sample, chain, frames, dumped);
        if !dumped && in_kernel + chain.len() >= self.max_chain {
            end = StackEnd::ChainTooDeep;
        }
        let process = self.table.process(pid);
        let nowhere = |frame: &Frame| frame.place.image.is_none();
        if process.unread
            && (end == StackEnd::BadReturnAddress || frames.last().is_some_and(nowhere))
        {
            end = StackEnd::HiddenMappings;
            self.counts.hidden_mappings |= process.hidden;
        }
        if self.stacks == Stacks::None {
            return StackEnd::Complete;
        }
        self.counts.user_stacks += 1;
        self.counts.ends[end as usize] += 1;
        if matches!(sample.user, UserStack::Native { .. }) {
            self.taken += 1;
            self.deep += u32::from(self.unwinder.source != unwind::Source::Copy);
            let later = self.unwinder.source == unwind::Source::Memory;
            self.counts.completed_later += u64::from(later);
        }
        end
    }

    fn kernel_mapping_of(&mut self, address: u64) -> MappingId {
        let known = self.ksymbols.mapping(address, &mut self.builder);
        known.unwrap_or_else(|| self.kernel_mapping())
    }

    fn unwind(
        &mut self,
        sample: &Sample<'_>,
        chain: &[u64],
        frames: &mut Vec<Frame>,
        dumped: bool,
    ) -> StackEnd {
        let (process, images) = self.table.split(sample.pid);
        let (pid, regions) = (sample.pid, &process.regions);
        match sample.user {
            UserStack::Native { .. } => {
                let of = (pid, sample.tid, sample.time);
                self.unwinder.unwind(of, regions, images, sample.user, chain, frames)
            }
            UserStack::Compat | UserStack::None => {
                unwind::chain_frames(pid, regions, images, chain, frames);
                if dumped { StackEnd::Compat } else { StackEnd::Complete }
            }
        }
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
        for (event, count) in counts {
            let weight = &self.weights[event];
            if weight.fixed.is_none() {
                self.builder.scale_to(weight.column, i64::try_from(count).unwrap_or(i64::MAX));
            }
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
