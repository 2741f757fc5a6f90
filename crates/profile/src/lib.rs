//! pprof's model in memory: [`Profile`], with interned stacks, labels and strings; the [`Builder`]
//! that aggregates weighted stacks into it; [`merge()`]; and the [`Diagnostics`] that are stored in
//! it.
//!
//! Pure data: nothing here opens a file, reads a clock or prints, and no other crate of prof's is
//! used. (The builder moves data beyond its limits into a file that it receives.) The names are
//! those of [`profile.proto`](https://github.com/google/pprof/blob/main/proto/profile.proto).

mod builder;
mod cause;
pub mod comment;
mod comments;
mod compact;
mod diagnostics;
pub mod label;
mod labels;
mod language;
mod limits;
mod merge;
mod part;
mod recent;
mod scale;
mod slices;
mod source;
mod spill;
mod stacks;
mod strings;
mod tables;
mod thread_state;
mod time_log;
mod times;
mod truncation;
mod unfiltered;
mod units;
mod windows;

pub use builder::{Builder, Column};
pub use cause::{Cause, Gap};
pub use compact::{compact, into_compact};
pub use diagnostics::{BinaryNotes, BinaryShare, Diagnostics, Lack, Reason, set_unsymbolized};
pub use labels::{Label, LabelSetId, LabelTable, LabelValue};
pub use language::Language;
pub use limits::{Detail, Limits};
pub use merge::{MergeError, merge};
pub use part::{Part, PartLocation, PartMarks};
pub use slices::{KeptTime, SliceLimits};
pub use source::SourceFunction;
pub use stacks::{StackId, StackInterner, StackTable};
pub use strings::{StrId, StringTable};
pub use thread_state::ThreadState;
pub use time_log::TimeLimits;
pub use times::{TimeTable, TimesId, share_of_times};
pub use truncation::Truncation;
pub use unfiltered::{Unfiltered, UnfilteredType};
pub use units::{Dimension, Unit, align_units};
pub use windows::{LiveWindow, NameRequest, WindowLimits, Windows};

use rustc_hash::FxHashMap;

/// Name of the mapping of a kernel that its recording does not identify: its addresses must not be
/// looked up in the kernel that runs.
pub const UNIDENTIFIED_KERNEL: &str = "[kernel.unidentified]";

/// Index of a [`Mapping`] in [`Profile::mappings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MappingId(pub u32);

/// Index of a [`Function`] in [`Profile::functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub u32);

/// Index of a [`Location`] in [`Profile::locations`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocationId(pub u32);

/// Meaning of a value: pprof's `ValueType`, for example `cpu`/`nanoseconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct ValueType {
    /// Kind of quantity, for example `cpu` or `inuse_space`.
    pub kind: StrId,
    /// The unit of the values, for example `nanoseconds`, `bytes` or `count`.
    pub unit: StrId,
}

/// A binary (or other code region) that locations point into: pprof's `Mapping`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Mapping {
    /// Lowest address of the region, in the address space of [`Location::address`].
    pub start: u64,
    /// First address after the region.
    pub limit: u64,
    /// Offset in the file of the byte at `start`.
    pub file_offset: u64,
    /// Path of the mapped file, or a name such as `[kernel.kallsyms]` or `[vdso]`.
    pub file: StrId,
    /// GNU build ID in lower-case hexadecimal; empty if there is none.
    pub build_id: StrId,
    /// Function names of this mapping's locations have been looked up.
    pub has_functions: bool,
    /// File names of this mapping's locations have been looked up.
    pub has_filenames: bool,
    /// Line numbers of this mapping's locations have been looked up.
    pub has_line_numbers: bool,
    /// Inlined functions of this mapping's locations have been looked up.
    pub has_inline_frames: bool,
}

/// A function: pprof's `Function`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Function {
    /// Name for display (demangled).
    pub name: StrId,
    /// Name in the binary (mangled); may equal `name`.
    pub system_name: StrId,
    /// Source file, empty if unknown.
    pub filename: StrId,
    /// Line where the function begins, 0 if unknown.
    pub start_line: i64,
}

/// One source line of a location: pprof's `Line`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Line {
    /// The function.
    pub function: FunctionId,
    /// Line in the function's file, 0 if unknown.
    pub line: i64,
    /// Column, 0 if unknown.
    pub column: i64,
}

/// An instruction address and its meaning: pprof's `Location`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Location {
    /// The binary, if known.
    pub mapping: Option<MappingId>,
    /// Address within the mapping's address space; 0 for a location that has only a name.
    ///
    /// For a caller this is the call instruction (return address minus one), as pprof expects.
    pub address: u64,
    /// Index of its first line in [`Profile::lines`].
    pub first_line: u32,
    /// Number of lines; more than one if functions were inlined, innermost first.
    pub line_count: u32,
    /// Several symbols were folded into one at this address (pprof's `is_folded`).
    pub is_folded: bool,
}

/// A stack with its labels; its values are [`Profile::values_of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRow {
    /// The stack, leaf first.
    pub stack: StackId,
    /// The labels.
    pub labels: LabelSetId,
    /// The times of its samples; none, if they are not known.
    pub times: TimesId,
}

/// A profile in memory: weighted stacks and the meaning of their addresses.
///
/// `values` holds `samples.len() * sample_types.len()` numbers, row by row. Every id in a profile
/// is in range; code that builds one from foreign data has to check that first.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// All strings; [`StrId::EMPTY`] is the empty one.
    pub strings: StringTable,
    /// Meaning of each value of a sample.
    pub sample_types: Vec<ValueType>,
    /// Kind of the sample type that views show by default (pprof's `default_sample_type`); empty:
    /// the last one.
    pub default_sample_type: StrId,
    /// Unit of `period`.
    pub period_type: ValueType,
    /// Events between two samples; the largest, if profiles of several periods were merged.
    pub period: i64,
    /// The smallest in that case; 0: all are equal. Not in a file.
    pub least_period: i64,
    /// Start of the recording, nanoseconds since the Unix epoch; 0 if unknown.
    pub time_nanos: i64,
    /// Length of the recording in nanoseconds; 0 if unknown.
    pub duration_nanos: i64,
    /// Free text; prof's own are of the form `key: value` (see [`Diagnostics`]).
    pub comments: Vec<StrId>,
    /// Regular expression of frames to drop (pprof's `drop_frames`); filters apply it.
    pub drop_frames: StrId,
    /// Regular expression of frames to keep in spite of it (pprof's `keep_frames`).
    pub keep_frames: StrId,
    /// Link to documentation of the profile's type (pprof's `doc_url`).
    pub doc_url: StrId,
    /// Binaries; the first is the main one.
    pub mappings: Vec<Mapping>,
    /// Functions.
    pub functions: Vec<Function>,
    /// Lines of all locations, see [`Location::first_line`].
    pub lines: Vec<Line>,
    /// Locations.
    pub locations: Vec<Location>,
    /// Stacks, leaf first.
    pub stacks: StackTable,
    /// Label sets.
    pub labels: LabelTable,
    /// Times of samples.
    pub times: TimeTable,
    /// Samples.
    pub samples: Vec<SampleRow>,
    /// Values of all samples, row by row.
    pub values: Vec<i64>,
    /// Figures from before a filter, if there was one. Not in a file.
    pub unfiltered: Option<Box<Unfiltered>>,
}

impl Profile {
    /// Lines of a location, innermost (inlined) function first; empty if not symbolized.
    #[inline]
    pub fn lines_of(&self, location: LocationId) -> &[Line] {
        let l = &self.locations[location.0 as usize];
        &self.lines[l.first_line as usize..(l.first_line + l.line_count) as usize]
    }

    /// Replaces the lines of a location.
    pub fn set_lines(&mut self, location: LocationId, lines: &[Line]) {
        let first = self.lines.len() as u32;
        self.lines.extend_from_slice(lines);
        let l = &mut self.locations[location.0 as usize];
        l.first_line = first;
        l.line_count = lines.len() as u32;
    }

    /// Values of sample number `index`, one for each of `sample_types`.
    #[inline]
    pub fn values_of(&self, index: usize) -> &[i64] {
        let n = self.sample_types.len();
        &self.values[index * n..(index + 1) * n]
    }

    /// Text of a string.
    pub fn str(&self, id: StrId) -> &str {
        self.strings.get(id)
    }

    /// Index of the sample type that views show by default: the profile's default sample type, else
    /// the last (as in `go tool pprof`).
    pub fn default_type_index(&self) -> usize {
        let last = self.sample_types.len().saturating_sub(1);
        if self.default_sample_type == StrId::EMPTY {
            return last;
        }
        let wanted = self.default_sample_type;
        self.sample_types.iter().position(|t| t.kind == wanted).unwrap_or(last)
    }

    /// Index of the sample type whose kind is `name` (pprof's `-sample_index`); also accepts
    /// `kind/unit` and a number.
    pub fn type_index(&self, name: &str) -> Option<usize> {
        let matches = |t: &ValueType| {
            let kind = self.str(t.kind);
            let unit = self.str(t.unit);
            kind == name || name.strip_prefix(kind).and_then(|r| r.strip_prefix('/')) == Some(unit)
        };
        self.sample_types
            .iter()
            .position(matches)
            .or_else(|| name.parse().ok().filter(|&i: &usize| i < self.sample_types.len()))
    }

    /// Names of the sample types for [`Profile::type_index`]: the kind; of several types of one
    /// kind, with the unit; of several that have both in common, the index.
    pub fn type_names(&self) -> Vec<String> {
        let mut kinds: FxHashMap<StrId, usize> = FxHashMap::default();
        let mut types: FxHashMap<ValueType, usize> = FxHashMap::default();
        for &value_type in &self.sample_types {
            *kinds.entry(value_type.kind).or_default() += 1;
            *types.entry(value_type).or_default() += 1;
        }
        let name = |(index, value_type): (usize, &ValueType)| match (
            kinds[&value_type.kind],
            types[value_type],
        ) {
            (1, _) => self.str(value_type.kind).to_owned(),
            (_, 1) => format!("{}/{}", self.str(value_type.kind), self.str(value_type.unit)),
            _ => index.to_string(),
        };
        self.sample_types.iter().enumerate().map(name).collect()
    }

    /// Sum of the values of type `type_index`, over the samples from before a filter, too.
    pub fn unfiltered_total(&self, type_index: usize) -> i64 {
        let figures = self.unfiltered.as_ref().and_then(|all| all.types.get(type_index));
        figures.map_or_else(|| self.total(type_index), |figures| figures.sum)
    }

    /// True if all values are 0, or there are none.
    pub fn has_no_values(&self) -> bool {
        self.values.iter().all(|&value| value == 0)
    }

    /// Sum over all samples of the values of type `type_index`.
    pub fn total(&self, type_index: usize) -> i64 {
        let n = self.sample_types.len().max(1);
        self.values.iter().skip(type_index).step_by(n).fold(0i64, |sum, &v| sum.saturating_add(v))
    }
}
