//! Keys of the comments that prof writes, in the form `key: value`. Part of the file format
//! (`docs/file-format.md`): a key never changes its meaning.

/// Samples taken.
pub const SAMPLES: &str = "samples";
/// Distinct stacks, with their labels.
pub const DISTINCT_STACKS: &str = "distinct-stacks";
/// Samples that the kernel dropped because a ring buffer was full.
pub const LOST: &str = "lost";
/// Records about processes that the kernel dropped for the same reason.
pub const LOST_RECORDS: &str = "lost-records";
/// Nanoseconds of CPU time that the samples represent, and that the target used.
pub const COVERED: &str = "covered";
/// Times that the kernel throttled an event.
pub const THROTTLED: &str = "throttled";
/// Truncated user stacks, of all; and by [`Truncation`](super::Truncation).
pub const TRUNCATED: &str = "truncated";
/// User stacks beyond the kernel's own copy whose rest was copied at the same moment.
pub const DEEP_STACKS: &str = "deep-stacks";
/// Samples whose stack was cut because the table of stacks was full.
pub const FOLDED: &str = "folded";
/// Samples beyond the limit of those whose time is kept.
pub const WITHOUT_TIME: &str = "without-time";
/// Samples whose leaf frame has no name; and by binary.
pub const UNSYMBOLIZED: &str = "unsymbolized";
/// Causes of missing names of a binary.
pub const NO_NAMES: &str = "no-names";
/// Causes of missing source lines of a binary.
pub const NO_LINES: &str = "no-lines";
/// Errors in a binary's files.
pub const BAD_INPUT: &str = "bad-input";
/// A binary without unwind information.
pub const NO_UNWIND_INFORMATION: &str = "no-unwind-information";
/// CPU time of prof itself.
pub const OWN_CPU_SECONDS: &str = "own-cpu-seconds";
/// The part of it that was used while recording.
pub const RECORDING_CPU_SECONDS: &str = "recording-cpu-seconds";
/// Largest resident set of prof itself, in bytes.
pub const OWN_PEAK_MEMORY: &str = "own-peak-memory";
/// The heap's sampling interval in bytes, if the period is that of another type.
pub const HEAP_INTERVAL: &str = "heap-interval";
/// A file that executes functions of a [`Language`](super::Language).
pub const INTERPRETER: &str = "interpreter";
/// Waits that are not contention, by kind.
pub const WAITS_LEFT_OUT: &str = "waits-left-out";
/// Recorded target: [`WHOLE_MACHINE`].
pub const TARGET: &str = "target";
/// Value of [`TARGET`]: everything that ran.
pub const WHOLE_MACHINE: &str = "whole machine";
/// How it is known that the file, which had another format, lacks its end or another part.
pub const INCOMPLETE: &str = "incomplete";
/// The comment of a profile whose stacks are estimates.
pub const ESTIMATED_STACKS: &str =
    "note: stacks are estimated from the calls of a callgrind file, which has no stacks";
/// Any other message to the user.
pub const NOTE: &str = "note";
/// From older versions: stacks that were completed after their sample.
pub(super) const COMPLETED_LATER: &str = "completed-later";

/// Values of the comments of a profile with this key.
pub fn values<'p>(profile: &'p super::Profile, key: &'p str) -> impl Iterator<Item = &'p str> + 'p {
    let all = profile.comments.iter().map(|&comment| profile.str(comment));
    all.filter_map(move |text| text.strip_prefix(key)?.strip_prefix(": ").map(str::trim))
}
