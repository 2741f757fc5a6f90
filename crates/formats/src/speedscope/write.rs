//! Writing: each sample type as a sampled profile.

use std::collections::HashMap;
use std::io::{self, Write};

use profile::{LabelValue, Profile, StrId, label};
use view::{Frames, Granularity, View};

use super::EXPORTER;
use crate::WriteOptions;
use crate::samples::in_order;

/// The frames of the file: those of the profile, then the names of processes.
struct Table<'p> {
    profile: &'p Profile,
    frames: Frames,
    /// The number in the file of each frame of the profile that is used.
    numbers: Vec<Option<u32>>,
    /// The frames of the file, as JSON.
    written: Vec<serde_json::Value>,
    /// The label that is the outermost frame, if its values differ.
    process: Option<StrId>,
    processes: HashMap<LabelValue, u32>,
}

/// Writes all sample types, with the one of `options` active. Inlined functions are frames, and so
/// are the processes if there are several.
pub(super) fn write(
    profile: &Profile,
    options: &WriteOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut table = Table::new(profile, options.type_index);
    let stacks: Vec<Vec<u32>> = (0..profile.samples.len()).map(|row| table.stack(row)).collect();
    let frames = serde_json::to_string(&table.written)?;
    let schema = "https://www.speedscope.app/file-format-schema.json";
    let active = options.type_index;
    writeln!(out, "{{\"$schema\":\"{schema}\",\"exporter\":\"{EXPORTER}\",")?;
    writeln!(out, "\"activeProfileIndex\":{active},\"shared\":{{\"frames\":{frames}}},")?;
    write!(out, "\"profiles\":[")?;
    for column in 0..profile.sample_types.len() {
        let comma = if column == 0 { "" } else { "," };
        writeln!(out, "{comma}")?;
        write_type(profile, &stacks, column, out)?;
    }
    writeln!(out, "]}}")
}

fn write_type(
    profile: &Profile,
    stacks: &[Vec<u32>],
    column: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let value_type = profile.sample_types[column];
    let name = serde_json::to_string(profile.str(value_type.kind))?;
    let unit = match profile.str(value_type.unit) {
        unit @ ("nanoseconds" | "microseconds" | "milliseconds" | "seconds" | "bytes") => unit,
        _ => "none",
    };
    write!(out, "{{\"type\":\"sampled\",\"name\":{name},\"unit\":\"{unit}\",\"startValue\":0,")?;
    let parts = || {
        let all = in_order(profile, |_| 1).map(|part| (part.row, part.value(profile, column)));
        all.filter(|(_, value)| *value != 0)
    };
    let total = parts().fold(0i64, |sum, (_, value)| sum.saturating_add(value));
    write!(out, "\"endValue\":{total},\n\"samples\":[")?;
    for (number, (row, _)) in parts().enumerate() {
        let comma = if number == 0 { "" } else { "," };
        write!(out, "{comma}")?;
        serde_json::to_writer(&mut *out, &stacks[row])?;
    }
    write!(out, "],\n\"weights\":[")?;
    for (number, (_, value)) in parts().enumerate() {
        let comma = if number == 0 { "" } else { "," };
        write!(out, "{comma}{value}")?;
    }
    write!(out, "]}}")
}

impl Table<'_> {
    fn new(profile: &Profile, type_index: usize) -> Table<'_> {
        let granularity = Granularity { unknown: true, ..Granularity::LINES };
        let view = View::new(profile, type_index, granularity);
        let has_processes = view.label_values(label::PROCESS).len() > 1;
        let frames = Frames::clone(&view.frames);
        Table {
            profile,
            numbers: vec![None; frames.len()],
            frames,
            written: Vec::new(),
            process: profile.strings.find(label::PROCESS).filter(|_| has_processes),
            processes: HashMap::new(),
        }
    }

    /// The stack of a row in the file, the root first.
    fn stack(&mut self, row: usize) -> Vec<u32> {
        let sample = self.profile.samples[row];
        let mut stack = Vec::new();
        for &location in self.profile.stacks.get(sample.stack) {
            for place in 0..self.frames.at(location).len() {
                let id = self.frames.at(location)[place];
                stack.push(self.number(id));
            }
        }
        if let Some(process) = self.process
            && let Some(value) = self.profile.labels.value(sample.labels, process)
        {
            stack.push(self.process(value));
        }
        stack.reverse();
        stack
    }

    fn number(&mut self, id: u32) -> u32 {
        if let Some(number) = self.numbers[id as usize] {
            return number;
        }
        let frame = self.frames.get(id);
        let mut json = serde_json::json!({ "name": frame.display(self.profile) });
        if frame.file != StrId::EMPTY {
            json["file"] = self.profile.str(frame.file).into();
        }
        if frame.line > 0 {
            json["line"] = frame.line.into();
        }
        self.written.push(json);
        let number = self.written.len() as u32 - 1;
        self.numbers[id as usize] = Some(number);
        number
    }

    fn process(&mut self, value: LabelValue) -> u32 {
        *self.processes.entry(value).or_insert_with(|| {
            let name = view::label_text(self.profile, value);
            self.written.push(serde_json::json!({ "name": name }));
            self.written.len() as u32 - 1
        })
    }
}
