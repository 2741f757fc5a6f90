//! Notes for the user about a recording: what is missing from it, and how its figures differ from
//! what was requested.

use super::bpf::Losses;
use messages::Message;

/// The notes of a recording.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// Those that were known before sampling started.
    pub at_start: Vec<Message>,
    /// Those about what happened afterwards.
    pub at_end: Vec<Message>,
}

impl Notes {
    /// All of them, in order of time.
    pub fn all(&self) -> impl Iterator<Item = &Message> {
        self.at_start.iter().chain(&self.at_end)
    }
}

/// Notes about what programs in the kernel could not handle: `noun` is the profile type, `what` is
/// sampled, and `known`, to which they are scaled, is exact.
pub fn notes_of_program(
    noun: &str,
    Losses { threads, largest_interval: interval }: Losses,
    what: &str,
    known: Option<&str>,
) -> Vec<Message> {
    let short = (interval > 0).then(|| Message::ShortEventsSampled {
        noun: noun.to_owned(),
        what: what.to_owned(),
        known: known.map(str::to_owned),
        interval,
    });
    let threads = (threads > 0).then(|| Message::TooManyThreads { noun: noun.to_owned(), threads });
    short.into_iter().chain(threads).collect()
}
