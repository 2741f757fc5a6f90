//! Writing: the samples as `perf script` prints them.

use std::borrow::Cow;
use std::io::{self, Write};

use profile::{LabelSetId, LabelValue, Profile, SampleRow};
use sys::printed;
use view::{Frames, Granularity, Name};

use super::NO_COMMAND;
use super::parse::micros;
use crate::WriteOptions;
use crate::samples::{RowPart, ThreadKeys, ThreadLabels, in_order, samples_column};

/// Most samples that are written one by one: of a profile with more, those without times are a
/// single sample for each stack, with the sum of their values.
const SINGLE: i64 = 1_000_000;

/// A column that is an event.
struct Event {
    column: usize,
    name: String,
}

struct Printed<'p> {
    profile: &'p Profile,
    frames: Frames,
    events: Vec<Event>,
    keys: ThreadKeys,
}

/// Writes each sample with its events; with times, in their order.
pub(super) fn write(profile: &Profile, _: &WriteOptions, out: &mut dyn Write) -> io::Result<()> {
    let keys = ThreadKeys::new(profile);
    let granularity = Granularity { inlined: true, ..Granularity::ADDRESSES };
    let frames = Frames::new(profile, granularity);
    let printed = Printed { profile, frames, events: events(profile), keys };
    let samples = samples_column(profile);
    let singly = samples.is_some_and(|column| profile.total(column) <= SINGLE);
    let count = |row: usize| {
        let counted = samples.filter(|_| singly).map_or(1, |column| profile.values_of(row)[column]);
        counted.clamp(1, SINGLE) as usize
    };
    in_order(profile, count).try_for_each(|part| printed.sample(out, part))
}

/// The columns that are events; the number of samples is one only if it is alone.
fn events(profile: &Profile) -> Vec<Event> {
    let samples = samples_column(profile);
    let all = profile.sample_types.iter().enumerate();
    let events =
        all.filter(|(column, _)| profile.sample_types.len() == 1 || Some(*column) != samples);
    let event = |(column, value_type): (usize, &profile::ValueType)| {
        let name = match (profile.str(value_type.kind), profile.str(value_type.unit)) {
            ("cpu", "nanoseconds") => "cpu-clock".to_owned(),
            (kind, _) => printed::line(kind).split_whitespace().collect::<Vec<_>>().join("_"),
        };
        // A number would be the time.
        let is_name = !name.is_empty() && micros(&name).is_none();
        Event { column, name: if is_name { name } else { format!("event_{name}") } }
    };
    events.map(event).collect()
}

impl Printed<'_> {
    /// Writes a sample once for each event of which it has a value.
    fn sample(&self, out: &mut dyn Write, part: RowPart) -> io::Result<()> {
        let SampleRow { labels, .. } = self.profile.samples[part.row];
        for event in &self.events {
            if self.profile.values_of(part.row)[event.column] == 0 {
                continue;
            }
            let period = part.value(self.profile, event.column);
            self.thread(out, labels)?;
            if let Some(time) = part.time {
                write!(out, " {}.{:06}:", time / 1_000_000, time % 1_000_000)?;
            }
            writeln!(out, " {period:>10} {}: ", event.name)?;
            self.stack(out, part.row)?;
            writeln!(out)?;
        }
        Ok(())
    }

    /// Writes the thread of a sample: `COMMAND PID/TID`.
    fn thread(&self, out: &mut dyn Write, labels: LabelSetId) -> io::Result<()> {
        let ThreadLabels { pid, tid, process, thread } = self.keys.labels(self.profile, labels);
        let text = |name: Option<LabelValue>| match name {
            Some(LabelValue::Str(text)) => Some(printed::line(self.profile.str(text))),
            _ => None,
        };
        let command = text(thread).or_else(|| text(process)).unwrap_or_default();
        // A line that begins with # is a comment.
        let command = command.trim().trim_start_matches('#').trim_start();
        let command = if command.is_empty() { NO_COMMAND } else { command };
        match (pid, tid) {
            (Some(pid), Some(tid)) => write!(out, "{command} {pid}/{tid}"),
            (Some(id), None) | (None, Some(id)) => write!(out, "{command} {id}"),
            (None, None) => write!(out, "{command} 0"),
        }
    }

    fn stack(&self, out: &mut dyn Write, row: usize) -> io::Result<()> {
        let profile = self.profile;
        for &location in profile.stacks.get(profile.samples[row].stack) {
            for &id in self.frames.at(location) {
                let frame = self.frames.get(id);
                let name: Cow<'_, str> = match frame.name {
                    Name::Address(_) => "[unknown]".into(),
                    _ => frame.display(profile),
                };
                let name = printed::line(name.trim());
                let binary = printed::line(profile.str(frame.binary).trim());
                let binary = match &*binary {
                    _ if frame.inlined => "inlined",
                    "" => "[unknown]",
                    binary => binary,
                };
                let name = if name.is_empty() { "[unknown]" } else { &*name };
                writeln!(out, "\t{:16x} {name} ({binary})", frame.address)?;
            }
        }
        Ok(())
    }
}
