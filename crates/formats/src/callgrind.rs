//! [callgrind's format](https://valgrind.org/docs/manual/cl-format.html): for each function its own
//! costs by line, and the costs of its calls. cachegrind's files have the same form, without calls.
//!
//! The format has no stacks. Those that are read from it are estimates: the costs of a function are
//! divided among its callers in proportion to the costs of their calls, and so on up to functions
//! without a caller. Own costs are exact; a comment says that stacks are not.

mod graph;
mod parse;
mod stacks;
mod sums;
mod write;

use std::io::Read;

use profile::Profile;

use crate::error::ReadError;
use crate::lines::Lines;
use crate::unpacked::{text, whole_lines};
use crate::{Contents, Format, HeldLabels, HeldTypes, Part, Writer};
use parse::Parser;

/// The format of [`mod@self`].
#[derive(Debug)]
pub struct Callgrind;

/// Its title.
const TITLE: &str = "callgrind file";

/// The program that wrote a file, if it is prof: its events have units.
const CREATOR: &str = "prof";

/// The begin of a description with the unit of an event.
const UNIT: &str = "Unit of ";

impl Format for Callgrind {
    fn name(&self) -> &'static str {
        "callgrind"
    }

    fn title(&self) -> &'static str {
        TITLE
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["callgrind"]
    }

    fn detect(&self, head: &[u8]) -> bool {
        let Some(text) = text(head) else { return false };
        let has = |start: &str| whole_lines(text).any(|line| line.starts_with(start));
        text.starts_with("# callgrind format")
            || has("creator: callgrind")
            || has("events: ") && ["version: ", "positions: ", "cmd: ", "fn="].into_iter().any(has)
    }

    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
        let mut lines = Lines::new(TITLE, input)?;
        let mut parser = Parser::default();
        while let Some(line) = lines.next()? {
            parser.line(line).or_else(|what| lines.unless_cut(what))?;
            if lines.is_check_due()
                && let Some(excess) = parser.excess(lines.memory_allowed())
            {
                return Err(lines.error(excess));
            }
        }
        let cut = lines.cut().or_else(|| parser.missing_costs());
        parser.choose_event();
        let Parser { mut all, graph, .. } = parser;
        cut.into_iter().for_each(|why| all.set_incomplete(why));
        if all.profile.sample_types.is_empty() {
            return Err(ReadError::invalid(TITLE, "it names no events"));
        }
        let allowed = lines.memory_allowed();
        stacks::profile(all, graph, allowed).map_err(|what| ReadError::invalid(TITLE, what))
    }

    fn writer(&self) -> Option<Writer> {
        Some(write::write)
    }

    fn contents(&self) -> Contents {
        Contents {
            sample_types: HeldTypes::All,
            labels: HeldLabels::None,
            lacks: &[Part::Stacks, Part::Times],
        }
    }
}

#[cfg(test)]
mod tests;
