//! Notes for the user about a recording: what is missing from it, and how its figures differ from
//! what was requested.
//!
//! A note is an enum with the facts. The [`Display`](fmt::Display) of its group words it, here and
//! nowhere else.

mod events;
mod heap;
mod recording;
mod system;
mod types;

use std::fmt;

pub use events::EventNote;
pub use heap::{Amount, HeapNote, NothingSampled, UncheckedLeaks};
pub use recording::{
    EmptyCause, LossRemedy, LossScope, MissedCause, RecordingNote, SampledPlace, Scope,
    ShortThreadRemedy, UncoveredTime,
};
pub use system::SystemNote;
pub use types::{PairFault, TypeNote, notes_of_program};

use super::LeftOut;

/// The share of samples, in percent, above which a loss is reported: what is missing could move a
/// share in a report by as much, and reports show tenths of a percent.
const LOSS_PERCENT: u64 = 1;

/// Fewer lost samples are chance.
const FEWEST_LOST: u64 = 3;

/// True if this part of the whole is more than chance, and changes what a report shows.
pub fn matters(part: u64, whole: u64) -> bool {
    part >= FEWEST_LOST && part.saturating_mul(100) > whole.saturating_mul(LOSS_PERCENT)
}

/// The importance of a note to the reader of the figures, highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Importance {
    /// A part of what was to be recorded is missing, or all of it.
    Missing,
    /// The figures differ from what was requested, or from what happened.
    Figures,
    /// The figures are as expected.
    Detail,
}

/// A note for the user about a recording, with its facts; [`Display`](fmt::Display) is its sentence.
#[derive(Clone, Debug)]
pub enum Note {
    /// An event or a profile type is not recorded.
    LeftOut(LeftOut),
    /// About the events.
    Events(EventNote),
    /// About limits of the system.
    System(SystemNote),
    /// About the target and its samples as a whole.
    Recording(RecordingNote),
    /// About the samples of a profile type.
    Types(TypeNote),
    /// About the samples of the heap.
    Heap(HeapNote),
}

impl Note {
    /// Its importance to the reader of the figures.
    pub fn importance(&self) -> Importance {
        match self {
            Note::LeftOut(_) => Importance::Missing,
            Note::Events(note) => note.importance(),
            Note::System(note) => note.importance(),
            Note::Recording(note) => note.importance(),
            Note::Types(note) => note.importance(),
            Note::Heap(note) => note.importance(),
        }
    }

    /// The remedy against the loss of samples, if this note reports one.
    pub fn loss_remedy(&self) -> Option<LossRemedy> {
        match self {
            Note::Recording(RecordingNote::Lost { remedies, .. }) => remedies.first().copied(),
            Note::Heap(HeapNote::SamplesLost { .. } | HeapNote::FreesLost { .. }) => {
                Some(LossRemedy::LongerHeapInterval)
            }
            _ => None,
        }
    }

    /// True if it reports samples that were lost.
    pub fn is_loss(&self) -> bool {
        matches!(
            self,
            Note::Recording(RecordingNote::Lost { .. })
                | Note::Heap(HeapNote::SamplesLost { .. } | HeapNote::FreesLost { .. })
        )
    }

    /// The CPU time that the samples do not cover, if this note reports that.
    pub fn uncovered_time(&self) -> Option<&UncoveredTime> {
        match self {
            Note::Recording(RecordingNote::Uncovered(time)) => Some(time),
            _ => None,
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::LeftOut(left_out) => left_out.fmt(f),
            Note::Events(note) => note.fmt(f),
            Note::System(note) => note.fmt(f),
            Note::Recording(note) => note.fmt(f),
            Note::Types(note) => note.fmt(f),
            Note::Heap(note) => note.fmt(f),
        }
    }
}

impl From<LeftOut> for Note {
    fn from(left_out: LeftOut) -> Note {
        Note::LeftOut(left_out)
    }
}

impl From<EventNote> for Note {
    fn from(note: EventNote) -> Note {
        Note::Events(note)
    }
}

impl From<SystemNote> for Note {
    fn from(note: SystemNote) -> Note {
        Note::System(note)
    }
}

impl From<RecordingNote> for Note {
    fn from(note: RecordingNote) -> Note {
        Note::Recording(note)
    }
}

impl From<TypeNote> for Note {
    fn from(note: TypeNote) -> Note {
        Note::Types(note)
    }
}

impl From<HeapNote> for Note {
    fn from(note: HeapNote) -> Note {
        Note::Heap(note)
    }
}

/// The notes of a recording.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// Those that were known before sampling started.
    pub at_start: Vec<Note>,
    /// Those about what happened afterwards.
    pub at_end: Vec<Note>,
}

impl Notes {
    /// All of them, in order of time.
    pub fn all(&self) -> impl Iterator<Item = &Note> {
        self.at_start.iter().chain(&self.at_end)
    }
}

/// Fails unless each note has this importance and sentence.
#[cfg(test)]
#[track_caller]
fn assert_notes<N: Into<Note>>(cases: Vec<(N, Importance, &str)>) {
    for (note, importance, sentence) in cases {
        let note: Note = note.into();
        assert_eq!(note.to_string(), sentence);
        assert_eq!(note.importance(), importance, "{sentence}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::TypeName;
    use sys::Error;

    /// One percent is of no account, nor are two samples.
    #[test]
    fn a_loss_matters_from_one_percent_on() {
        assert!(!matters(10, 1000) && matters(11, 1000));
        assert!(!matters(2, 20) && matters(3, 20));
    }

    #[test]
    fn what_is_left_out_is_missing() {
        let why = || Error::failed("why");
        assert_notes(vec![
            (LeftOut::event("x", why()), Importance::Missing, "'x' is left out: why"),
            (
                LeftOut::profile_type(TypeName::Plural("waits"), why()),
                Importance::Missing,
                "waits are left out: why",
            ),
        ]);
        assert!(Importance::Missing < Importance::Figures);
        assert!(Importance::Figures < Importance::Detail);
    }
}
