//! The text of `perf script`: for each sample a line with its thread, time, period and event, then a
//! line for each frame, the leaf first.
//!
//! ```text
//! nginx  1234/1240 [001] 37002.118373:    1001001 cpu-clock:
//!             118b inner+0x12 (inlined)
//!             118b work+0x12 (/usr/bin/nginx)
//!            2724a __libc_start_call_main+0x7a (/usr/lib/libc.so.6)
//! ```

mod parse;
mod write;

use std::io::Read;

use rustc_hash::FxHashMap;

use profile::{Label, LabelSetId, LabelTable, LabelValue, Line, LocationId, Profile, label};

use crate::assembly::{AddedSample, Assembly, ColumnValue};
use crate::error::ReadError;
use crate::event_types::EventTypes;
use crate::lines::Lines;
use crate::unpacked::{text, whole_lines};
use crate::{Contents, Format, HeldLabels, HeldTypes, Part, Writer};
use parse::{Header, TextFrame, frame, header, only_frame, source_line};

/// The format of [`mod@self`].
#[derive(Debug)]
pub struct PerfScript;

/// Its title.
const TITLE: &str = "text of perf script";

/// The command of samples without one.
const NO_COMMAND: &str = "[unknown]";

/// The column of the number of samples.
const SAMPLES: usize = 0;

impl Format for PerfScript {
    fn name(&self) -> &'static str {
        "perf-script"
    }

    fn title(&self) -> &'static str {
        TITLE
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["perf", "perf-script"]
    }

    /// True if the first line is that of a sample, and those after it are frames or samples.
    fn detect(&self, head: &[u8]) -> bool {
        let Some(text) = text(head) else { return false };
        let mut lines = whole_lines(text).filter(|line| !line.starts_with('#'));
        let Some(line) = lines.next() else { return false };
        let Some(first) = header(line) else { return false };
        if line.starts_with([' ', '\t']) && !first.is_certain() {
            return false;
        }
        match lines.next() {
            Some(line) if line.starts_with([' ', '\t']) => {
                frame(line).is_some_and(|frame| frame.address.is_some()) || first.time.is_some()
            }
            Some(line) => first.time.is_some() && header(line).is_some(),
            None => first.time.is_some(),
        }
    }

    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
        let mut lines = Lines::new(TITLE, input)?;
        let mut reader = Reader::default();
        reader.all.add_type("samples", "count");
        while let Some(line) = lines.next()? {
            reader.line(line).or_else(|what| lines.unless_cut(what))?;
            if lines.is_check_due()
                && let Some(excess) = reader.all.excess(lines.memory_allowed())
            {
                return Err(lines.error(excess));
            }
        }
        let cut = lines.cut().or_else(|| reader.open_stack());
        cut.into_iter().for_each(|why| reader.all.set_incomplete(why));
        reader.end_sample();
        Ok(reader.finish())
    }

    fn writer(&self) -> Option<Writer> {
        Some(write::write)
    }

    fn contents(&self) -> Contents {
        Contents {
            sample_types: HeldTypes::All,
            labels: HeldLabels::Threads,
            lacks: &[Part::Lines],
        }
    }
}

/// The sample whose frames are being read.
struct OpenSample {
    labels: LabelSetId,
    /// The event's column, and its value.
    value: Option<ColumnValue>,
    time: Option<u64>,
}

/// Frames of one address that were inlined, of which the function they belong to may follow.
#[derive(Default)]
struct Inlined {
    address: u64,
    lines: Vec<Line>,
}

#[derive(Default)]
struct Reader {
    all: Assembly,
    events: EventTypes,
    open: Option<OpenSample>,
    stack: Vec<LocationId>,
    inlined: Inlined,
    /// The last frame, for its source line.
    last: Option<LastFrame>,
    /// Whether the sample has a frame with an address.
    has_address: bool,
    /// What follows the event of the open sample.
    rest: String,
    /// Whether the last record was no sample: its other lines are left out.
    is_other_record: bool,
    /// Whether a sample's frames were followed by an empty line.
    has_ends: bool,
    /// Names of processes: the last names of their first threads.
    processes: FxHashMap<i64, Box<str>>,
}

/// A location that has just been added to the stack.
struct LastFrame {
    place: usize,
    line: usize,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if line.trim().is_empty() {
            self.has_ends |= self.open.is_some() && !self.stack.is_empty();
            self.end_sample();
            return Ok(());
        }
        if line.starts_with('#') {
            return Ok(());
        }
        let is_indented = line.starts_with([' ', '\t']);
        let is_within = is_indented && (self.open.is_some() || self.is_other_record);
        // The lines of samples without a stack are indented, too.
        let header = header(line).filter(|header| !is_within || header.is_certain());
        if header.is_none() && is_within {
            self.detail(line);
            return Ok(());
        }
        self.end_sample();
        let Some(header) = header else {
            return Err("it is neither a sample (COMMAND PID TIME: EVENT:) nor a frame".into());
        };
        self.is_other_record = header.is_other_record();
        if !self.is_other_record {
            self.begin_sample(&header)?;
        }
        Ok(())
    }

    /// Reads a line of the open sample, if there is one.
    fn detail(&mut self, line: &str) {
        if self.open.is_none() {
            return;
        }
        if let Some((file, number)) = source_line(line) {
            self.set_source(file, number);
        } else if let Some(frame) = frame(line) {
            // After an address, a line without one is the place of code whose source is not known.
            let is_place = frame.address.is_none() && frame.binary.is_none() && !frame.is_inlined;
            if !(is_place && self.has_address) {
                self.frame(&frame);
            }
        }
    }

    fn begin_sample(&mut self, header: &Header<'_>) -> Result<(), String> {
        let value = match header.event {
            Some(event) => Some(self.event(event, header.period)?),
            None => None,
        };
        let labels = self.labels(header);
        self.open = Some(OpenSample { labels, value, time: header.time });
        self.rest.push_str(header.rest.trim());
        Ok(())
    }

    /// The value of an event: its period, or 1.
    fn event(&mut self, name: &str, period: Option<i64>) -> Result<ColumnValue, String> {
        let column = self.events.column(&mut self.all, name, period.is_some())?;
        Ok(ColumnValue { column, value: period.unwrap_or(1) })
    }

    fn labels(&mut self, header: &Header<'_>) -> LabelSetId {
        if header.command == NO_COMMAND && header.pid.is_none() && header.tid == 0 {
            return LabelSetId::EMPTY;
        }
        let mut labels = Vec::with_capacity(4);
        if let Some(pid) = header.pid {
            labels.push(self.all.number_label(label::PID, pid));
        }
        labels.push(self.all.number_label(label::TID, header.tid));
        if let Some(pid) = header.pid
            && pid == header.tid
            && self.processes.get(&pid).is_none_or(|command| **command != *header.command)
        {
            self.processes.insert(pid, header.command.into());
        }
        labels.push(self.all.text_label(label::THREAD, header.command));
        self.all.profile.labels.intern(&labels)
    }

    fn frame(&mut self, frame: &TextFrame<'_>) {
        let address = frame.address.unwrap_or(0);
        self.has_address |= frame.address.is_some();
        if !self.inlined.lines.is_empty() && self.inlined.address != address {
            self.end_inlined();
        }
        if let Some(name) = frame.name {
            let function = self.all.function(name, "", 0);
            self.inlined.lines.push(Line { function, line: 0, column: 0 });
        }
        self.inlined.address = address;
        if frame.is_inlined {
            let line = self.inlined.lines.len().saturating_sub(1);
            self.last = Some(LastFrame { place: self.stack.len(), line });
            return;
        }
        let mapping = frame.binary.map(|binary| self.all.mapping(binary));
        let lines = std::mem::take(&mut self.inlined.lines);
        self.last =
            lines.len().checked_sub(1).map(|line| LastFrame { place: self.stack.len(), line });
        self.stack.push(self.all.location(mapping, address, &lines));
    }

    /// Adds inlined frames whose function does not follow.
    fn end_inlined(&mut self) {
        let lines = std::mem::take(&mut self.inlined.lines);
        self.stack.push(self.all.location(None, self.inlined.address, &lines));
        self.last = None;
    }

    /// Sets the source of the last frame.
    fn set_source(&mut self, file: &str, number: i64) {
        let Some(LastFrame { place, line }) = self.last.take() else { return };
        if let Some(&location) = self.stack.get(place) {
            let mut lines = self.all.profile.lines_of(location).to_vec();
            let Some(changed) = lines.get_mut(line) else { return };
            self.all.set_line(changed, file, number);
            let place_of_code = &self.all.profile.locations[location.0 as usize];
            let (mapping, address) = (place_of_code.mapping, place_of_code.address);
            self.stack[place] = self.all.location(mapping, address, &lines);
        } else if let Some(changed) = self.inlined.lines.get_mut(line) {
            self.all.set_line(changed, file, number);
        }
    }

    /// The sentence about the last stack, if it has no end as others have.
    fn open_stack(&self) -> Option<&'static str> {
        let is_open = self.open.is_some() && self.has_ends;
        is_open.then_some("its last stack has no empty line after it")
    }

    fn end_sample(&mut self) {
        let Some(open) = self.open.take() else { return };
        let rest = std::mem::take(&mut self.rest);
        if self.stack.is_empty()
            && self.inlined.lines.is_empty()
            && let Some(frame) = only_frame(&rest)
        {
            self.frame(&frame);
        }
        self.rest = rest;
        self.rest.clear();
        if !self.inlined.lines.is_empty() {
            self.end_inlined();
        }
        let count = ColumnValue { column: SAMPLES, value: 1 };
        let values: Vec<ColumnValue> = std::iter::once(count).chain(open.value).collect();
        let OpenSample { labels, time, .. } = open;
        self.all.add(AddedSample { stack: &self.stack, labels, values: &values, time });
        self.stack.clear();
        self.last = None;
        self.has_address = false;
    }

    fn finish(mut self) -> Profile {
        let length = self.all.begin_times_at_zero();
        let mut profile = self.all.finish();
        profile.duration_nanos = length.saturating_mul(1000);
        if profile.sample_types.len() > 2 {
            profile.default_sample_type = profile.sample_types[1].kind;
        }
        name_processes(&mut profile, &self.processes);
        profile
    }
}

/// Adds the names of processes to the labels of their threads.
fn name_processes(profile: &mut Profile, processes: &FxHashMap<i64, Box<str>>) {
    let [pid, process] = [label::PID, label::PROCESS].map(|key| profile.strings.intern(key));
    let mut labels = LabelTable::default();
    let mut ids = Vec::with_capacity(profile.labels.len());
    for id in 0..profile.labels.len() as u32 {
        let id = LabelSetId(id);
        let mut set = profile.labels.get(id).to_vec();
        if let Some(LabelValue::Num { value, .. }) = profile.labels.value(id, pid)
            && let Some(name) = processes.get(&value)
        {
            let value = LabelValue::Str(profile.strings.intern(name));
            set.insert(set.len() - 1, Label { key: process, value });
        }
        ids.push(labels.intern(&set));
    }
    profile.labels = labels;
    for sample in &mut profile.samples {
        sample.labels = ids[sample.labels.0 as usize];
    }
}

#[cfg(test)]
mod tests;
