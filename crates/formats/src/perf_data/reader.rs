//! Records become a profile.

use std::sync::Arc;

use profile::{LabelSetId, LocationId, Mapping, Profile, ValueType, comment, label};
use sys::elf::hex;
use sys::image::Images;

use super::attribute::{Interval, SampleFields};
use super::counts::LastCounts;
use super::events::Events;
use super::fields::Fields;
use super::header::{Header, invalid, streamed_event};
use super::kernel::{KernelCode, module_name};
use super::machine::{KernelBase, Machine};
use super::queue::Queue;
use super::record::{BuildId, Map, MappedFile, Mode, RawRecord, Record, kind};
use super::sources::Sources;
use super::spaces::{Spaces, ThreadLabels};
use super::stacks::{StackSource, Stacks};
use crate::ReadOptions;
use crate::assembly::{AddedSample, Assembly, ColumnValue};
use crate::error::ReadError;
use crate::event_types::{EventTypes, is_clock};
use crate::unpacked::memory_allowed;

/// The column of the number of samples.
const SAMPLES: usize = 0;

/// Records between two checks of the memory.
const CHECKED: u64 = 1024;

/// Figures of a recording.
#[derive(Default)]
struct Counts {
    records: u64,
    samples: u64,
    lost: u64,
    /// perf counts the same losses again at the end.
    lost_samples: u64,
    throttled: u64,
    /// Samples of events that the header does not have.
    unknown: u64,
    /// Records that are shorter than their fields.
    damaged: u64,
}

/// Number of samples of a process.
type BySamples = rustc_hash::FxHashMap<i32, u64>;

pub struct Reader {
    header: Header,
    events: Events,
    machine: Machine,
    /// When the recording ended, in nanoseconds since the Unix epoch.
    ended: Option<i64>,
    /// Numbers of the features of a stream so far.
    features: Vec<u64>,
    all: Assembly,
    types: EventTypes,
    /// The column of each event, once it has a sample.
    columns: Vec<Option<usize>>,
    spaces: Spaces,
    stacks: Stacks,
    counts: Counts,
    last_counts: LastCounts,
    by_process: BySamples,
    stack: Vec<LocationId>,
    /// Times of the first and the last sample, in nanoseconds.
    times: Option<(u64, u64)>,
}

impl Reader {
    /// `written`: when the file was written, in nanoseconds since the Unix epoch.
    pub fn new(mut header: Header, written: Option<i64>, options: &ReadOptions) -> Reader {
        let mut all = Assembly::new(&[("samples", "count")]);
        all.frames_are_addresses = true;
        let mut spaces = Spaces::default();
        spaces.images = Images::with_other_paths(options.binaries.clone());
        header.build_ids.iter().for_each(|build_id| spaces.add_build_id(build_id));
        Reader {
            machine: Machine::new(&header),
            events: Events::new(std::mem::take(&mut header.events)),
            header,
            ended: written,
            features: Vec::new(),
            all,
            types: EventTypes::default(),
            columns: Vec::new(),
            spaces,
            stacks: Stacks::default(),
            counts: Counts::default(),
            last_counts: LastCounts::default(),
            by_process: BySamples::default(),
            stack: Vec::new(),
            times: None,
        }
    }

    /// Reads all records, those of several files together.
    pub fn read(mut self, mut records: Sources<'_>) -> Result<Profile, ReadError> {
        let mut queue = Queue::default();
        loop {
            let record = match records.next() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                // The last record of the file was being written.
                Err(error) if self.header.is_unfinished && error.is_malformed() => {
                    records.end_current();
                    continue;
                }
                Err(error) => return Err(error),
            };
            if record.kind == kind::FINISHED_ROUND {
                if records.are_several() {
                    continue;
                }
                while let Some(due) = queue.pop_due() {
                    self.apply(&due, &records)?;
                }
                queue.end_round();
            } else if record.kind >= kind::FIRST_OF_PERF {
                self.apply_header(&record);
            } else if let Some(time) = self.events.time(&record) {
                records.set_time(time);
                queue.push(time, record);
                while let Some(oldest) = queue.pop_excess() {
                    self.apply(&oldest, &records)?;
                }
            } else {
                self.apply(&record, &records)?;
            }
        }
        while let Some(record) = queue.pop() {
            self.apply(&record, &records)?;
        }
        if self.events.all.is_empty() {
            return Err(invalid("it has no events"));
        }
        Ok(self.finish())
    }

    /// Applies a record of perf's own, of a stream.
    fn apply_header(&mut self, record: &RawRecord) {
        let body = &record.body;
        match record.kind {
            kind::HEADER_ATTR => {
                if let Some(event) = streamed_event(body) {
                    self.events.add(event);
                }
            }
            kind::EVENT_UPDATE => self.events.rename(body),
            kind::HEADER_FEATURE => self.apply_feature(body),
            kind::BUILD_ID => {
                if let Some(build_id) = BuildId::parse(record.misc, body) {
                    self.spaces.add_build_id(&build_id);
                    self.machine.add_build_id(&build_id);
                }
            }
            _ => {}
        }
    }

    /// Applies a feature of a stream; a stream has each once.
    fn apply_feature(&mut self, body: &[u8]) {
        /// Numbers are those of the bits of a file's header that prof knows, and more.
        const LAST_FEATURE: u64 = 63;
        let Some(number) = Fields::new(body).u64() else { return };
        if number > LAST_FEATURE || self.features.contains(&number) {
            return;
        }
        self.features.push(number);
        self.header.events = std::mem::take(&mut self.events.all);
        self.header.add_streamed_feature(body);
        self.events = Events::new(std::mem::take(&mut self.header.events));
        self.machine.take_in(&self.header);
    }

    fn apply(&mut self, record: &RawRecord, records: &Sources<'_>) -> Result<(), ReadError> {
        self.counts.records += 1;
        if self.counts.records.is_multiple_of(CHECKED) {
            let allowed = memory_allowed(records.bytes_read());
            let bytes = self.all.bytes() + self.spaces.memory() + self.last_counts.memory();
            if let Some(excess) = crate::assembly::excess(bytes, allowed) {
                return Err(invalid(excess));
            }
        }
        if record.kind == kind::SAMPLE {
            return self.sample(record).map_err(invalid);
        }
        let trailer = self.events.first().map_or(0, |first| first.trailer_size());
        match record.decode(trailer) {
            Some(decoded) => self.sideband(&decoded).map_err(invalid),
            None => {
                self.counts.damaged += 1;
                Ok(())
            }
        }
    }

    fn sideband(&mut self, record: &Record<'_>) -> Result<(), String> {
        match *record {
            Record::Map(ref map) if map.mode == Mode::Kernel => self.kernel_map(map),
            Record::Map(ref map) if map.mode == Mode::User => {
                self.spaces.map(map, &self.machine)?;
            }
            Record::Comm { pid, tid, is_exec, name } => {
                self.spaces.name(pid, tid, is_exec, name);
            }
            Record::Fork { pid, parent, tid, parent_tid } => {
                self.spaces.fork(pid, parent, tid, parent_tid);
            }
            Record::Exit { tid, .. } => self.spaces.exit(tid),
            Record::Lost(count) => self.counts.lost = self.counts.lost.saturating_add(count),
            Record::LostSamples(count) => {
                self.counts.lost_samples = self.counts.lost_samples.saturating_add(count);
            }
            Record::Throttle => self.counts.throttled += 1,
            Record::KernelSymbol { start, is_gone: true, .. } => self.stacks.kernel.remove(start),
            Record::KernelSymbol { start, length, is_bpf: true, name, .. } => {
                let name = String::from_utf8_lossy(name).into_owned();
                let end = start.saturating_add(length.into());
                self.stacks.kernel.insert(start, end, KernelCode::Bpf(name));
            }
            _ => {}
        }
        Ok(())
    }

    /// Applies a mapping of the kernel: its own, or that of a module.
    fn kernel_map(&mut self, map: &Map<'_>) {
        let path = String::from_utf8_lossy(map.path);
        let mut build_id = match map.file {
            MappedFile::BuildId(id) => Some(id),
            _ => None,
        };
        if let Some(base) = KernelBase::parse(&path, map.offset) {
            self.machine.base = Some(base);
            if let Some(id) = build_id {
                self.machine.set_kernel(id);
            }
            return;
        }
        let Some(name) = module_name(&path).filter(|name| !name.starts_with("[kernel")) else {
            return;
        };
        build_id = build_id.or_else(|| self.spaces.module_build_id(map.path));
        let build_id = build_id.map(hex).unwrap_or_default();
        let end = map.start.saturating_add(map.length);
        self.stacks.kernel.insert(map.start, end, KernelCode::Module { name, build_id });
    }

    fn sample(&mut self, record: &RawRecord) -> Result<(), String> {
        let Some(place) = self.events.place_of_sample(&record.body) else {
            self.counts.unknown += 1;
            return Ok(());
        };
        let event = &self.events.all[place];
        let attribute = &event.attribute;
        let Some(fields) = attribute.sample(&record.body) else {
            self.counts.damaged += 1;
            return Ok(());
        };
        let source = StackSource {
            attribute,
            fields: &fields,
            mode: record.mode(),
            machine: &self.machine,
            has_perf_maps: self.machine.is_this() && self.ended.is_some(),
            has_losses: self.counts.lost > 0,
        };
        let mut stack = std::mem::take(&mut self.stack);
        self.stacks.make(&source, &mut self.spaces, &mut self.all, &mut stack);
        let values = self.values(place, &fields)?;
        let labels = self.labels(&fields);
        let time = fields.time;
        let micros = time.map(|time| time / 1000);
        self.all.add(AddedSample { stack: &stack, labels, values: &values, time: micros });
        self.stack = stack;
        self.counts.samples += 1;
        *self.by_process.entry(fields.pid).or_default() += 1;
        if let Some(time) = time {
            let (first, last) = self.times.unwrap_or((time, time));
            self.times = Some((first.min(time), last.max(time)));
        }
        Ok(())
    }

    /// The values of a sample: its number, and those of its event or of all events of the group.
    fn values(
        &mut self,
        place: usize,
        fields: &SampleFields<'_>,
    ) -> Result<Vec<ColumnValue>, String> {
        let mut values = vec![ColumnValue { column: SAMPLES, value: 1 }];
        let mut is_group = false;
        for count in fields.counts.iter() {
            let Some(member) = self.events.place_of_id(count.id) else { continue };
            is_group = true;
            let is_inherited = self.events.all[member].attribute.is_inherited();
            let increase = self.last_counts.increase(count, is_inherited.then_some(fields.tid));
            if increase > 0 {
                let value = i64::try_from(increase).unwrap_or(i64::MAX);
                let column = self.column(member)?;
                values.push(ColumnValue { column, value });
            }
        }
        if !is_group {
            values.push(self.value(place, fields)?);
        }
        Ok(values)
    }

    /// The value of the event of a sample.
    fn value(&mut self, place: usize, fields: &SampleFields<'_>) -> Result<ColumnValue, String> {
        let period = fields.period.or(match self.events.all[place].attribute.interval {
            Interval::Period(period @ 1..) => Some(period),
            _ => None,
        });
        let column = self.column(place)?;
        let value = i64::try_from(period.unwrap_or(1)).unwrap_or(i64::MAX);
        Ok(ColumnValue { column, value })
    }

    /// The column of an event.
    fn column(&mut self, place: usize) -> Result<usize, String> {
        self.columns.resize(self.events.all.len(), None);
        if let Some(column) = self.columns[place] {
            return Ok(column);
        }
        let event = &self.events.all[place];
        let has_periods = event.attribute.has_periods();
        let column = self.types.column(&mut self.all, &event.name, has_periods)?;
        Ok(*self.columns[place].insert(column))
    }

    fn labels(&mut self, fields: &SampleFields<'_>) -> LabelSetId {
        let SampleFields { pid, tid, .. } = *fields;
        if pid < 0 {
            return LabelSetId::EMPTY;
        }
        let mut process = self.spaces.process(pid).name.clone();
        let thread = self.spaces.thread(tid);
        if let Some(known) = &thread.labels
            && known.pid == pid
            && Arc::ptr_eq(&known.process, &process)
        {
            return known.set;
        }
        let kept = process.clone();
        let mut name = thread.name.clone();
        if pid == 0 {
            // The idle task, which has no record.
            [process, name] =
                [process, name].map(|n| if n.is_empty() { "swapper".into() } else { n });
        }
        let all = &mut self.all;
        let mut labels = vec![
            all.number_label(label::PID, pid.into()),
            all.number_label(label::TID, tid.into()),
        ];
        for (key, name) in [(label::PROCESS, process), (label::THREAD, name)] {
            if !name.is_empty() {
                labels.push(all.text_label(key, &name));
            }
        }
        let set = all.profile.labels.intern(&labels);
        self.spaces.thread(tid).labels = Some(ThreadLabels { pid, process: kept, set });
        set
    }

    fn finish(mut self) -> Profile {
        let length = self.all.begin_times_at_zero();
        let main = self.main_file();
        self.add_comments();
        let (period_type, period) = self.period();
        let mut profile = self.all.finish();
        (profile.period_type, profile.period) = (period_type, period);
        profile.duration_nanos = length.saturating_mul(1000);
        profile.time_nanos = start(&self.header, self.times, self.ended, profile.duration_nanos);
        let first = self.columns.iter().flatten().next();
        if let Some(&first) = first.filter(|_| profile.sample_types.len() > 2) {
            profile.default_sample_type = profile.sample_types[first].kind;
        }
        if let Some(main) = main {
            let file = profile.strings.intern(&main);
            let place = profile.mappings.iter().position(|mapping| mapping.file == file);
            let place = place.unwrap_or_else(|| {
                // It has no samples of its own.
                profile.mappings.push(Mapping { file, ..Mapping::default() });
                profile.mappings.len() - 1
            });
            swap_first_mapping(&mut profile, place);
        }
        profile
    }

    /// The main binary of the process with most samples.
    fn main_file(&mut self) -> Option<String> {
        let most = self.by_process.iter().filter(|&(&pid, _)| pid > 0);
        let (&pid, _) = most.max_by_key(|&(&pid, &count)| (count, -i64::from(pid)))?;
        let image = self.spaces.process(pid).main_image?;
        let image = self.spaces.images.resolve(image);
        Some(self.spaces.images.get(image).path.clone())
    }

    /// The period of the first event.
    fn period(&mut self) -> (ValueType, i64) {
        let columns = self.columns.iter().enumerate();
        let Some((place, column)) = columns.filter_map(|(n, c)| Some((n, (*c)?))).next() else {
            return (ValueType::default(), 0);
        };
        let event = &self.events.all[place];
        let period = match event.attribute.interval {
            Interval::Period(period) => period,
            Interval::Frequency(rate @ 1..) if is_clock(&event.name) => 1_000_000_000 / rate,
            Interval::Frequency(_) => 1,
        };
        let period = i64::try_from(period).unwrap_or(i64::MAX);
        (self.all.profile.sample_types[column], period)
    }

    fn add_comments(&mut self) {
        let Counts { samples, throttled, unknown, damaged, .. } = self.counts;
        let lost = self.counts.lost.max(self.counts.lost_samples);
        let truncated = &self.stacks.counts.truncated;
        let other = self.stacks.counts.foreign;
        let total = truncated.values().sum::<u64>() + other;
        let mut comments = vec![
            format!("{}: {samples}", comment::SAMPLES),
            format!("{}: {lost}", comment::LOST),
            format!("{}: {throttled}", comment::THROTTLED),
            format!("{}: {total} of {}", comment::TRUNCATED, self.stacks.counts.all),
        ];
        let mut reasons: Vec<_> = truncated.iter().map(|(why, n)| (why.code(), *n)).collect();
        reasons.sort_unstable();
        let reasons =
            reasons.iter().map(|(code, n)| format!("{}: {code}: {n}", comment::TRUNCATED));
        comments.extend(reasons);
        comments.push(format!("{}: 0", comment::UNSYMBOLIZED));
        let texts = self.header.texts.iter();
        comments.extend(texts.map(|header| format!("{}: {}", header.key, header.text)));
        let notes = [
            (other, "user stacks were recorded on another architecture and are not unwound"),
            (unknown, "samples belong to no event of the header, and are left out"),
            (damaged, "records are too short, and are left out"),
            (self.spaces.left_out, "mappings are left out: there are too many"),
        ];
        for (count, what) in notes.into_iter().filter(|(count, _)| *count > 0) {
            comments.push(format!("{}: {count} {what}", comment::NOTE));
        }
        if self.header.is_unfinished {
            let what =
                "perf did not end the recording: it has neither names of events nor build IDs";
            comments.push(format!("{}: {what}", comment::NOTE));
        }
        comments.iter().for_each(|comment| self.all.comment(comment));
    }
}

/// The start of a recording, in nanoseconds since the Unix epoch; 0 if it is unknown. perf states it
/// with `-k` only; else the file was written at its end.
fn start(header: &Header, times: Option<(u64, u64)>, ended: Option<i64>, duration: i64) -> i64 {
    let stated = header.clocks.zip(times).and_then(|(clocks, (first, _))| {
        let since = i128::from(first) - i128::from(clocks.samples);
        i64::try_from(i128::from(clocks.wall) + since).ok()
    });
    let written = || ended.map(|ended| ended.saturating_sub(duration));
    stated.or_else(written).unwrap_or(0).max(0)
}

/// Makes a mapping the first.
fn swap_first_mapping(profile: &mut Profile, place: usize) {
    profile.mappings.swap(0, place);
    for mapping in profile.locations.iter_mut().filter_map(|l| l.mapping.as_mut()) {
        mapping.0 = match mapping.0 as usize {
            0 => place as u32,
            number if number == place => 0,
            _ => mapping.0,
        };
    }
}
