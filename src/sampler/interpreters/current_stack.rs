//! The user's frames of samples, from what was copied to their places among native ones.

use super::codes::{Functions, NameSource, add_mapping};
use super::{InProcess, Interpreters, Origin};
use crate::sampler::bpf::walk::{read_code, read_copies};
use interpreters::merge::{Merge, NativeStack};
use interpreters::walk::{CopiedCode, WalkCopy};
use interpreters::{Copied, UserFrame};
use profile::{Builder, LocationId};
use sys::ThreadId;
use sys::record::{AllRegs, Sample, UserStack};
use unwind::Frame;

/// The user's frames of a sample.
#[derive(Default)]
pub(super) struct CurrentStack {
    /// The sample, until its stack is used.
    sample: Option<Merged>,
    /// `None`: its process has no known interpreter, or nothing was copied.
    merge: Option<Merge>,
    /// The frames, the innermost first.
    frames: Vec<UserFrame>,
    /// Their locations in the profile; `None`: not known yet.
    locations: Vec<Option<LocationId>>,
}

/// What was merged.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Merged {
    /// The thread and the time of the sample.
    thread: ThreadId,
    time: u64,
    /// The number of its process's walks.
    walks: Option<u64>,
    /// Number of its native frames.
    native: usize,
}

impl Interpreters {
    /// Merges the frames of a sample in advance. True if all of their locations are known, or it has
    /// none.
    pub fn prepare(
        &mut self,
        sample: &Sample<'_>,
        native_frames: &[Frame],
        native: &mut NativeStack,
    ) -> bool {
        if !self.fill_code(sample, native_frames, native, false) {
            return false;
        }
        self.merge(sample, native);
        self.current.locations.iter().all(Option::is_some)
    }

    fn merged(&self, sample: &Sample<'_>, native: &NativeStack) -> Merged {
        let walks = match self.processes.get(&sample.pid) {
            Some(InProcess::Found(found)) => Some(found.id),
            _ => None,
        };
        let native = native.frames.len();
        Merged { thread: sample.thread(), time: sample.time, walks, native }
    }

    /// Sets the compiled code that the interpreter needs to merge its frames. False: it would have to be
    /// read, and may not.
    fn fill_code(
        &mut self,
        sample: &Sample<'_>,
        frames: &[Frame],
        native: &mut NativeStack,
        may_read: bool,
    ) -> bool {
        let Some(InProcess::Found(found)) = self.processes.get_mut(&sample.pid) else {
            return true;
        };
        found.compiled.fill(&*found.runtime, frames, native, sample.time, may_read)
    }

    /// Merges the user's frames of a sample with native ones.
    fn merge(&mut self, sample: &Sample<'_>, native: &NativeStack) {
        self.current.sample = Some(self.merged(sample, native));
        let CurrentStack { merge, frames, locations, .. } = &mut self.current;
        *merge = None;
        frames.clear();
        locations.clear();
        let Some(InProcess::Found(found)) = self.processes.get_mut(&sample.pid) else { return };
        for code in read_code(sample.walked, found.id) {
            self.copied_codes.insert(sample.pid, code.context, CopiedCode::parse(code.bytes));
        }
        let copies = read_copies(sample.walked, found.id, &mut self.copies);
        if copies.len() < found.runtime.walks().len() {
            return;
        }
        let copied = copied(sample, copies);
        let merged = found.runtime.merge(copied, native, frames);
        if merged != Merge::Mismatch {
            found.codes.find_all(frames, sample.time, locations);
        }
        *merge = Some(merged);
    }

    /// The places of a sample's frames: native ones and the user's, whose locations are added, the
    /// innermost first. `None` if its process has no known interpreter, or nothing was copied.
    pub fn user_stack(
        &mut self,
        sample: &Sample<'_>,
        origin: Origin,
        native_frames: &[Frame],
        native: &mut NativeStack,
        builder: &mut Builder,
        locations: &mut Vec<LocationId>,
    ) -> Option<Merge> {
        if self.current.sample != Some(self.merged(sample, native)) {
            self.fill_code(sample, native_frames, native, true);
            self.merge(sample, native);
        }
        self.current.sample = None;
        let InProcess::Found(found) = self.processes.get_mut(&sample.pid)? else { return None };
        let Some(merge) = self.current.merge.take() else {
            match origin {
                Origin::Event if sample.time >= found.since => self.counts.uncopied += 1,
                _ => self.counts.add_native(origin),
            }
            return None;
        };
        if merge == Merge::Mismatch {
            self.counts.mismatched += 1;
            return Some(merge);
        }
        self.counts.shown += u64::from(!self.current.frames.is_empty());
        let language = found.language;
        let mapping = self.mappings.entry(language);
        let mapping = *mapping.or_insert_with(|| add_mapping(language, builder));
        let functions = Functions { language, mapping };
        locations.clear();
        for (frame, known) in self.current.frames.iter().zip(&self.current.locations) {
            locations.push(known.unwrap_or_else(|| {
                let (pid, runtime, copied) = (sample.pid, &*found.runtime, &self.copied_codes);
                let source = NameSource { pid, runtime, copied };
                found.codes.location(&frame.code, source, functions, builder, sample.time)
            }));
        }
        Some(merge)
    }

    /// The beginning of the function that an address of a process belongs to, if that is one which
    /// executes the user's functions.
    pub fn evaluation(&self, pid: i32, address: u64) -> Option<u64> {
        let InProcess::Found(found) = self.processes.get(&pid)? else { return None };
        let beginning = found.runtime.evaluation().first()?.start;
        found.runtime.evaluates(address).then_some(beginning)
    }
}

/// What was copied at a sample.
fn copied<'a>(sample: &Sample<'a>, walks: &'a [WalkCopy]) -> Copied<'a> {
    let registers = match sample.user {
        UserStack::Native { all, .. } => all,
        UserStack::None | UserStack::Compat => AllRegs::default(),
    };
    Copied { walks, registers }
}
