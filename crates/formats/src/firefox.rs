//! The JSON of the [Firefox Profiler](https://profiler.firefox.com), which samply and other tools
//! write, too: tables of stacks, frames and functions, and the samples of threads.
//!
//! Its versions are described by the upgraders of the profiler
//! (`src/profile-logic/processed-profile-versioning`).

mod file;
mod tables;
mod values;
mod write;

use std::io::Read;
use std::marker::PhantomData;

use profile::{Label, LabelSetId, Profile, ValueType, label};

use crate::assembly::{Assembly, InternedSample};
use crate::error::ReadError;
use crate::unpacked::text;
use crate::{Contents, Format, HeldLabels, HeldTypes, UnnamedFrames, Writer, json};
use file::{FileContent, FileSamples, FileThread, NEWEST, OLDEST};
use tables::{Shared, Tables};
use values::{Allocations, Values};

/// The format of [`mod@self`].
#[derive(Debug)]
pub struct Firefox;

/// Its title.
const TITLE: &str = "Firefox Profiler JSON";

/// Samples between two checks of memory.
const CHECKED: usize = 1024;

impl Format for Firefox {
    fn name(&self) -> &'static str {
        "firefox"
    }

    fn title(&self) -> &'static str {
        TITLE
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["firefox.json", "profile.json"]
    }

    fn detect(&self, head: &[u8]) -> bool {
        let Some(text) = text(head).map(str::trim_start) else { return false };
        let has = |key: &str| text.contains(&format!("\"{key}\""));
        text.starts_with('{') && (has("preprocessedProfileVersion") || has("meta") && has("libs"))
    }

    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
        let parsed = json::read(TITLE, input, PhantomData::<FileContent>)?;
        let mut reader = Reader::new(&parsed.value, parsed.memory_allowed)?;
        for thread in &parsed.value.threads {
            reader.thread(thread)?;
        }
        Ok(reader.finish())
    }

    fn unnamed_frames(&self) -> UnnamedFrames {
        UnnamedFrames::ImageAddresses
    }

    fn writer(&self) -> Option<Writer> {
        Some(write::write)
    }

    fn contents(&self) -> Contents {
        Contents {
            sample_types: HeldTypes::ChosenWithSamples,
            labels: HeldLabels::Threads,
            lacks: &[],
        }
    }
}

fn invalid(what: impl Into<String>) -> ReadError {
    ReadError::invalid(TITLE, what)
}

struct Reader<'f> {
    file: &'f FileContent,
    all: Assembly,
    memory_allowed: u64,
    shared: Shared,
    values: Values,
}

impl<'f> Reader<'f> {
    fn new(file: &'f FileContent, memory_allowed: u64) -> Result<Reader<'f>, ReadError> {
        let mut all = Assembly::default();
        let Some(version) = file.meta.preprocessed_profile_version else {
            return Err(invalid(
                "it is as Firefox recorded it; open it in https://profiler.firefox.com and save it \
                 from there",
            ));
        };
        if !(OLDEST..=NEWEST).contains(&version) {
            all.comment(&format!(
                "note: the file has version {version} of the format; prof knows {OLDEST} to {NEWEST}"
            ));
        }
        if file.threads.is_empty() {
            return Err(invalid("it has no threads"));
        }
        let shared = Shared::new(file, &mut all);
        let values = Values::new(file);
        let start = file.meta.start_time.unwrap_or_default();
        // In whole milliseconds and the rest: a float has no nanoseconds of today.
        let rest = (start.fract() * 1e6).round() as i64;
        all.profile.time_nanos =
            (start.trunc() as i64).saturating_mul(1_000_000).saturating_add(rest);
        Ok(Reader { file, all, memory_allowed, shared, values })
    }

    fn thread(&mut self, thread: &FileThread) -> Result<(), ReadError> {
        let labels = self.labels(thread);
        let mut tables = Tables::new(self.file, thread)?;
        self.samples(&mut tables, &thread.samples, labels)?;
        match &thread.native_allocations {
            Some(allocations) => self.allocations(&mut tables, allocations, labels),
            None => Ok(()),
        }
    }

    fn labels(&mut self, thread: &FileThread) -> LabelSetId {
        let process = thread.process_name.as_deref().filter(|name| !name.is_empty());
        let mut labels: Vec<Label> = Vec::new();
        if let Some(process) = process {
            labels.push(self.all.text_label(label::PROCESS, process));
        }
        if !thread.name.is_empty() {
            labels.push(self.all.text_label(label::THREAD, &thread.name));
        }
        for (key, id) in [(label::PID, thread.pid), (label::TID, thread.tid)] {
            labels.extend(id.0.map(|number| self.all.number_label(key, number)));
        }
        self.all.profile.labels.intern(&labels)
    }

    fn samples(
        &mut self,
        tables: &mut Tables<'_>,
        samples: &FileSamples,
        labels: LabelSetId,
    ) -> Result<(), ReadError> {
        let mut rows = self.values.rows(samples, &mut self.all)?;
        while let Some(row) = rows.next(samples)? {
            if row.number.is_multiple_of(CHECKED) {
                self.check(tables)?;
            }
            if row.values.is_empty() {
                continue;
            }
            let stack = tables.stack(row.stack, &mut self.shared, &mut self.all)?;
            let (values, time) = (row.values, row.time);
            self.all.add_interned(InternedSample { stack, labels, values, time });
        }
        self.check(tables)
    }

    fn allocations(
        &mut self,
        tables: &mut Tables<'_>,
        samples: &FileSamples,
        labels: LabelSetId,
    ) -> Result<(), ReadError> {
        let allocations = Allocations::new(samples, &mut self.all)?;
        for (number, allocation) in allocations.enumerate() {
            if number.is_multiple_of(CHECKED) {
                self.check(tables)?;
            }
            let stack = tables.stack(allocation.stack, &mut self.shared, &mut self.all)?;
            let values = &allocation.values;
            self.all.add_interned(InternedSample { stack, labels, values, time: None });
        }
        self.check(tables)
    }

    fn check(&self, tables: &Tables<'_>) -> Result<(), ReadError> {
        let allowed = self.memory_allowed.saturating_sub(tables.bytes());
        self.all.excess(allowed).map_or(Ok(()), |excess| Err(invalid(excess)))
    }

    /// The profile.
    fn finish(mut self) -> Profile {
        let meta = &self.file.meta;
        let from_times = self.all.begin_times_at_zero().saturating_mul(1000);
        self.all.profile.duration_nanos = match (meta.profiling_start_time, meta.profiling_end_time)
        {
            (Some(begin), Some(end)) if end > begin => ((end - begin) * 1e6) as i64,
            _ => from_times,
        };
        if let Some(period) = self.values.period() {
            let kind = self.all.string("cpu");
            let unit = self.all.string("nanoseconds");
            self.all.profile.period = period;
            self.all.profile.period_type = ValueType { kind, unit };
        }
        let locations = &self.all.profile.locations;
        self.all.frames_are_addresses =
            locations.iter().any(|location| location.mapping.is_some() && location.line_count == 0);
        self.all.finish()
    }
}

#[cfg(test)]
mod tests;
