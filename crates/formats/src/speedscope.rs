//! [speedscope](https://www.speedscope.app)'s JSON: frames, and profiles that refer to them, each of
//! a single unit. Its schema is <https://www.speedscope.app/file-format-schema.json>.
//!
//! In files of prof, each profile is a sample type. In those of other tools they are mostly threads;
//! if there are several, the label `profile` of their samples has their names.

mod calls;
mod file;
mod write;

use std::io::Read;
use std::marker::PhantomData;

use profile::{LabelSetId, Line, LocationId, Profile, StackId};

use crate::assembly::{Assembly, ColumnValue, InternedSample, MOST_FRAMES};
use crate::error::ReadError;
use crate::unpacked::text;
use crate::{Contents, Format, HeldLabels, HeldTypes, Part, Writer, json};
use calls::{CallTree, Node, OpenCalls};
use file::{EventKind, FileContent, FileFrame, FileProfile};

/// The format of [`mod@self`].
#[derive(Debug)]
pub struct Speedscope;

/// Its title.
const TITLE: &str = "speedscope JSON";

/// The exporter of files whose profiles are sample types.
const EXPORTER: &str = "prof";

/// Key of the label with the name of a profile.
const PROFILE: &str = "profile";

impl Format for Speedscope {
    fn name(&self) -> &'static str {
        "speedscope"
    }

    fn title(&self) -> &'static str {
        TITLE
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["speedscope.json", "speedscope"]
    }

    fn detect(&self, head: &[u8]) -> bool {
        let Some(text) = text(head).map(str::trim_start) else { return false };
        let has = |key: &str| text.contains(&format!("\"{key}\""));
        let is_profile = ["sampled", "evented"].into_iter().any(has);
        text.starts_with('{')
            && (text.contains("speedscope.app/file-format-schema")
                || has("shared") && has("frames")
                || has("profiles") && is_profile)
    }

    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
        let parsed = json::read(TITLE, input, PhantomData::<FileContent>)?;
        let mut reader = Reader::new(&parsed.value, parsed.memory_allowed)?;
        for profile in &parsed.value.profiles {
            reader.profile(profile)?;
        }
        Ok(reader.finish())
    }

    fn writer(&self) -> Option<Writer> {
        Some(write::write)
    }

    fn contents(&self) -> Contents {
        Contents {
            sample_types: HeldTypes::All,
            labels: HeldLabels::Processes,
            lacks: &[Part::Times, Part::Binaries],
        }
    }
}

/// The kind, the unit and the factor of values in a unit of the format.
struct TypeOfUnit {
    kind: &'static str,
    unit: &'static str,
    factor: f64,
}

impl TypeOfUnit {
    fn new(unit: &str) -> TypeOfUnit {
        let time = |factor| TypeOfUnit { kind: "time", unit: "nanoseconds", factor };
        match unit {
            "nanoseconds" => time(1.0),
            "microseconds" => time(1e3),
            "milliseconds" => time(1e6),
            "seconds" => time(1e9),
            "bytes" => TypeOfUnit { kind: "space", unit: "bytes", factor: 1.0 },
            _ => TypeOfUnit { kind: "samples", unit: "count", factor: 1.0 },
        }
    }
}

/// Rounds values so that their sum is that of the exact ones.
struct Rounding {
    /// Of the unit.
    factor: f64,
    /// What the values so far are larger than the rounded ones.
    rest: f64,
}

impl Rounding {
    fn round(&mut self, value: f64) -> i64 {
        let exact = value * self.factor + self.rest;
        let rounded = exact.round();
        self.rest = exact - rounded;
        rounded as i64
    }
}

struct Reader {
    all: Assembly,
    /// The location of each frame of the file.
    locations: Vec<LocationId>,
    memory_allowed: u64,
    is_own: bool,
    has_several: bool,
    stack: Vec<LocationId>,
    /// The stacks of events so far.
    tree: CallTree,
    /// Number of calls that ended with their callers.
    early_ends: u64,
    samples: u64,
}

impl Reader {
    fn new(content: &FileContent, memory_allowed: u64) -> Result<Reader, ReadError> {
        let mut all = Assembly::default();
        let locations = content.shared.frames.iter().map(|frame| location(&mut all, frame));
        let locations = locations.collect();
        if content.profiles.is_empty() {
            return Err(ReadError::invalid(TITLE, "it has no profile"));
        }
        Ok(Reader {
            all,
            locations,
            memory_allowed,
            is_own: content.exporter.as_deref() == Some(EXPORTER),
            has_several: content.profiles.len() > 1,
            stack: Vec::new(),
            tree: CallTree::default(),
            early_ends: 0,
            samples: 0,
        })
    }

    fn profile(&mut self, profile: &FileProfile) -> Result<(), ReadError> {
        let TypeOfUnit { kind, unit, factor } = TypeOfUnit::new(&profile.unit);
        let kind = if self.is_own { &*profile.name } else { kind };
        let found = self.all.find_type(kind, unit);
        let column = match found.filter(|_| !self.is_own) {
            Some(column) => column,
            None if self.all.profile.sample_types.len() == file::MOST_TYPES => {
                let what = format!("it has more than {} sample types", file::MOST_TYPES);
                return Err(ReadError::invalid(TITLE, what));
            }
            None => self.all.add_type(kind, unit),
        };
        let mut labels = LabelSetId::EMPTY;
        if self.has_several && !self.is_own {
            let label = self.all.text_label(PROFILE, &profile.name);
            labels = self.all.profile.labels.intern(&[label]);
        }
        let rounding = Rounding { factor, rest: 0.0 };
        match profile.kind.as_str() {
            "sampled" => self.sampled(profile, labels, column, rounding),
            "evented" => self.evented(profile, labels, column, rounding),
            _ => Err(ReadError::invalid(TITLE, "a profile is neither sampled nor evented")),
        }
    }

    fn sampled(
        &mut self,
        profile: &FileProfile,
        labels: LabelSetId,
        column: usize,
        mut rounding: Rounding,
    ) -> Result<(), ReadError> {
        let FileProfile { samples, weights, .. } = profile;
        let (stacks, count) = (samples.ends.len(), weights.len());
        if stacks != count {
            let what = format!("a profile has {stacks} samples, but {count} weights");
            return Err(ReadError::invalid(TITLE, what));
        }
        let mut begin = 0;
        for (&end, &weight) in samples.ends.iter().zip(weights) {
            self.stack.clear();
            for &frame in samples.frames[begin..end].iter().rev() {
                let location = self.location(frame)?;
                self.stack.push(location);
            }
            begin = end;
            let stack = self.all.stack(&self.stack);
            self.add(stack, labels, column, rounding.round(weight))?;
        }
        Ok(())
    }

    fn evented(
        &mut self,
        profile: &FileProfile,
        labels: LabelSetId,
        column: usize,
        mut rounding: Rounding,
    ) -> Result<(), ReadError> {
        let events = &profile.events;
        let mut open = OpenCalls::default();
        let mut last = events.first().map_or(0.0, |event| event.at);
        for event in events {
            if event.at < last {
                return Err(ReadError::invalid(TITLE, "its events are not in the order of time"));
            }
            self.add_open(open.calls(), labels, column, &mut rounding, event.at - last)?;
            last = event.at;
            match event.kind {
                EventKind::Open => open.begin(&mut self.tree, event.frame),
                EventKind::Close => open.end(event.frame).map_err(|()| {
                    let what = format!("frame {} ends, but has not begun", event.frame);
                    ReadError::invalid(TITLE, what)
                })?,
            }
        }
        let end = profile.end_value.map_or(0.0, |end| end - last);
        self.add_open(open.calls(), labels, column, &mut rounding, end)?;
        self.early_ends += open.early_ends();
        Ok(())
    }

    /// Adds a value of the stack of open calls.
    fn add_open(
        &mut self,
        open: &[Node],
        labels: LabelSetId,
        column: usize,
        rounding: &mut Rounding,
        value: f64,
    ) -> Result<(), ReadError> {
        if open.is_empty() || value <= 0.0 {
            return Ok(());
        }
        let value = rounding.round(value);
        if value == 0 {
            return Ok(());
        }
        let stack = self.open_stack(open)?;
        self.add(stack, labels, column, value)
    }

    /// The profile.
    fn finish(mut self) -> Profile {
        if self.early_ends > 0 {
            let (calls, s) = (self.early_ends, if self.early_ends == 1 { "" } else { "s" });
            self.all.comment(&format!(
                "note: {calls} call{s} ended with the caller, before the end event"
            ));
        }
        self.all.finish()
    }

    /// Id of the stack of open calls, of which there is at least one.
    fn open_stack(&mut self, open: &[Node]) -> Result<StackId, ReadError> {
        let leaf = open[open.len() - 1];
        if let Some(stack) = self.tree.stack(leaf) {
            return Ok(stack);
        }
        self.stack.clear();
        for node in open.iter().rev().take(MOST_FRAMES + 1) {
            let location = self.location(node.frame)?;
            self.stack.push(location);
        }
        let stack = self.all.stack(&self.stack);
        self.tree.set_stack(leaf, stack);
        self.check()?;
        Ok(stack)
    }

    fn location(&self, frame: u32) -> Result<LocationId, ReadError> {
        self.locations.get(frame as usize).copied().ok_or_else(|| {
            let count = self.locations.len();
            let what = format!("frame number {frame} is used, but there are {count} frames");
            ReadError::invalid(TITLE, what)
        })
    }

    fn add(
        &mut self,
        stack: StackId,
        labels: LabelSetId,
        column: usize,
        value: i64,
    ) -> Result<(), ReadError> {
        let values = &[ColumnValue { column, value }];
        self.all.add_interned(InternedSample { stack, labels, values, time: None });
        self.samples += 1;
        if self.samples.is_multiple_of(1024) { self.check() } else { Ok(()) }
    }

    fn check(&self) -> Result<(), ReadError> {
        let allowed = self.memory_allowed.saturating_sub(self.tree.bytes());
        self.all.excess(allowed).map_or(Ok(()), |excess| Err(ReadError::invalid(TITLE, excess)))
    }
}

fn location(all: &mut Assembly, frame: &FileFrame) -> LocationId {
    let number = |number: Option<f64>| number.map_or(0, |number| number.max(0.0) as i64);
    let file = frame.file.as_deref().unwrap_or_default();
    let function = all.function(&frame.name, file, 0);
    let line = Line { function, line: number(frame.line), column: number(frame.col) };
    all.location(None, 0, &[line])
}

#[cfg(test)]
mod tests;
