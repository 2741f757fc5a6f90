//! What the recorder, the doctor, the agent and readers of files report: messages, each of which is a code with
//! facts. The tables in `table/` give the level, the sentence and the remedy of each code. The
//! crate never finds a fact, and prints nothing.
//!
//! A message is JSON on its way to another host: `{"code": …, "facts": {…}, "level": …}`. A code
//! never changes its meaning, and gets further facts only as an `Option`: a reader that is older or
//! newer than the writer keeps what it cannot interpret as [`Message::Unknown`]. Whatever a peer
//! sends, a message is one line without control characters, the commands in it are prof's own with
//! quoted names, and what is nested more than 16 deep (8 messages) is refused.

mod facts;
mod json;
#[macro_use]
mod define;
#[macro_use]
mod table;
mod words;

use std::fmt;

pub use facts::{
    Amount, CpuCoverage, LossRemedy, PackageManager, SampledPlace, Scope, UncheckedLeaks, Wanted,
};
use serde::{Deserialize, Serialize};

/// The importance of a message to the reader of the figures, highest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", from = "String")]
pub enum Level {
    /// A part of what was to be recorded is missing, or all of it; also any level that this version
    /// does not have, which is shown rather than hidden.
    #[default]
    Missing,
    /// The figures differ from what was requested, or from what happened.
    Figures,
    /// The figures are as expected.
    Detail,
}

impl From<String> for Level {
    fn from(word: String) -> Level {
        match word.as_str() {
            "detail" => Level::Detail,
            "figures" => Level::Figures,
            _ => Level::Missing,
        }
    }
}

events! { recording types host files define; }

impl Message {
    /// The reason, if it is a message of its own.
    pub fn cause(&self) -> Option<&Message> {
        self.parts().1.cause
    }

    /// What is the case, without the reason that is a message of its own.
    pub fn headline(&self) -> String {
        words::line(self.parts().0)
    }

    /// What is the case, and why.
    pub fn sentence(&self) -> String {
        match self.cause() {
            Some(cause) => format!("{}: {}", self.headline(), cause.sentence()),
            None => self.headline(),
        }
    }

    /// What helps: a command, or an advice.
    pub fn remedy(&self) -> Option<String> {
        self.joined_remedy().map(|(_, remedy)| remedy)
    }

    /// True for the cause of a loss that is not chance, however small it is.
    fn is_systematic(&self) -> bool {
        matches!(self, Message::LateTimers | Message::LateTimersAndPrograms { .. })
    }

    /// The remedy, after what joins it with the sentence.
    fn joined_remedy(&self) -> Option<(&'static str, String)> {
        let (_, Rest { cause, remedy }) = self.parts();
        let remedy = remedy.map(|(join, remedy)| (join, words::line(remedy)));
        remedy.or_else(|| cause?.joined_remedy())
    }
}

/// The share of samples, in percent, above which a loss is reported: what is missing could move a
/// share in a report by as much, and reports show tenths of a percent.
const LOSS_PERCENT: u64 = 1;

/// Fewer lost samples are chance.
const FEWEST_LOST: u64 = 3;

/// True if this part of the whole is more than chance, and changes what a report shows.
pub fn matters(part: u64, whole: u64) -> bool {
    part >= FEWEST_LOST && part.saturating_mul(100) > whole.saturating_mul(LOSS_PERCENT)
}

/// What follows a headline.
#[derive(Default)]
struct Rest<'a> {
    cause: Option<&'a Message>,
    /// After what joins it with the sentence.
    remedy: Option<(&'static str, String)>,
}

/// The line for the user: the sentence, with the remedy if there is one.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence())?;
        match self.joined_remedy() {
            Some((join, remedy)) => write!(f, "{join}{remedy}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
