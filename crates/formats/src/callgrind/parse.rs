//! Lines of a file.

use std::collections::HashMap;

use profile::{MappingId, StrId};

use super::graph::{Call, CallGraph, CodePlace, FunctionIndex, GraphFunction};
use super::sums::Sums;
use super::{CREATOR, UNIT};
use crate::assembly::Assembly;

/// Most events of a file.
pub(super) const EVENTS: usize = 256;

/// Names of one kind, by their numbers in the file: `(12) name`, later `(12)`.
#[derive(Default)]
struct Names {
    // The standard hasher, because the keys come from the file.
    by_number: HashMap<u64, StrId>,
}

impl Names {
    fn name(&mut self, all: &mut Assembly, text: &str) -> Result<StrId, String> {
        let numbered = text.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        let numbered =
            numbered.and_then(|(number, name)| Some((number.parse::<u64>().ok()?, name.trim())));
        match numbered {
            None => Ok(all.string(text.trim())),
            Some((number, "")) => self
                .by_number
                .get(&number)
                .copied()
                .ok_or_else(|| format!("name number {number} is used before it is defined")),
            Some((number, name)) => {
                let name = all.string(name);
                self.by_number.insert(number, name);
                Ok(name)
            }
        }
    }

    fn bytes(&self) -> u64 {
        32 * self.by_number.len() as u64
    }
}

/// A call whose costs are on the next line.
#[derive(Clone, Copy, Default)]
struct OpenCall {
    binary: Option<StrId>,
    file: Option<StrId>,
    function: Option<StrId>,
    /// The line `calls=` was read.
    is_counted: bool,
}

/// A position, relative to which the next one may be.
#[derive(Clone, Copy, Default)]
struct Position {
    address: u64,
    line: u64,
}

/// The parts of a position in the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PositionPart {
    Address,
    Line,
}

/// The state between two lines.
pub(super) struct Parser {
    pub all: Assembly,
    pub graph: CallGraph,
    positions: Vec<PositionPart>,
    files: Names,
    functions: Names,
    binaries: Names,
    binary: StrId,
    /// The file of the function.
    file: StrId,
    /// The file of the lines that follow.
    line_file: StrId,
    function: Option<FunctionIndex>,
    call: OpenCall,
    position: Position,
    is_own: bool,
    /// The units of events, in a file of prof's.
    units: HashMap<Box<str>, Box<str>>,
    costs: Vec<i64>,
    sums: Sums,
}

impl Default for Parser {
    fn default() -> Self {
        Parser {
            all: Assembly::default(),
            graph: CallGraph::default(),
            positions: vec![PositionPart::Line],
            files: Names::default(),
            functions: Names::default(),
            binaries: Names::default(),
            binary: StrId::EMPTY,
            file: StrId::EMPTY,
            line_file: StrId::EMPTY,
            function: None,
            call: OpenCall::default(),
            position: Position::default(),
            is_own: false,
            units: HashMap::new(),
            costs: Vec::new(),
            sums: Sums::default(),
        }
    }
}

impl Parser {
    /// Takes a line. The error is a sentence.
    pub(super) fn line(&mut self, line: &str) -> Result<(), String> {
        let line = line.trim();
        let first = line.as_bytes().first().copied();
        match first {
            None | Some(b'#') => Ok(()),
            Some(b'0'..=b'9' | b'+' | b'-' | b'*') => self.costs(line),
            _ => match line.split_once('=') {
                Some((key, value)) if key.bytes().all(|b| b.is_ascii_lowercase()) => {
                    self.body(key, value)
                }
                _ => match line.split_once(':') {
                    Some((key, value)) => self.header(key, value.trim()),
                    None => Err("it is neither KEY: VALUE nor KEY=NAME nor costs".to_owned()),
                },
            },
        }
    }

    /// The sentence about a file that takes more than `allowed` bytes of memory, if it does.
    pub(super) fn excess(&self, allowed: u64) -> Option<String> {
        let names = [&self.files, &self.functions, &self.binaries].map(Names::bytes);
        let others = self.graph.bytes() + names.iter().sum::<u64>();
        self.all.excess(allowed.saturating_sub(others))
    }

    /// The sentence about costs that the file states and does not have, if there are such. After the
    /// last line.
    pub(super) fn missing_costs(&mut self) -> Option<&'static str> {
        self.sums.end_part();
        self.sums.missing()
    }

    /// Makes the first event of a file of Valgrind's (the instructions) the one that is shown, as its
    /// own tools do; the others are its cache misses and the like.
    pub(super) fn choose_event(&mut self) {
        let profile = &mut self.all.profile;
        if !self.is_own
            && let Some(first) = profile.sample_types.first()
        {
            profile.default_sample_type = first.kind;
        }
    }

    fn header(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "creator" => {
                self.is_own = value.split(' ').next() == Some(CREATOR);
                self.sums.is_valgrind = value.starts_with("callgrind-");
            }
            "totals" | "summary" => self.sums.state(key, value),
            "cmd" if !value.is_empty() => self.command(value),
            "positions" => {
                let part = |word| match word {
                    "instr" => Ok(PositionPart::Address),
                    "line" => Ok(PositionPart::Line),
                    _ => Err(format!("a position has an unknown part {word:.20}")),
                };
                self.positions = value.split_whitespace().map(part).collect::<Result<_, _>>()?;
            }
            "events" => self.events(value)?,
            "desc" if self.is_own => self.event_unit(value),
            _ => {}
        }
        Ok(())
    }

    /// Adds a command, which each part of a file has.
    fn command(&mut self, command: &str) {
        let comment = self.all.string(&format!("command: {command}"));
        let comments = &mut self.all.profile.comments;
        if comments.last() != Some(&comment) {
            comments.push(comment);
        }
    }

    /// Takes the names of events. Each part of a file has them, and its positions begin at 0.
    fn events(&mut self, names: &str) -> Result<(), String> {
        let profile = &self.all.profile;
        if !profile.sample_types.is_empty() {
            let known = profile.sample_types.iter().map(|known| profile.str(known.kind));
            if !known.eq(names.split_whitespace()) {
                return Err("a part has other events than the first".to_owned());
            }
            self.position = Position::default();
            self.call = OpenCall::default();
            self.sums.end_part();
            return Ok(());
        }
        for name in names.split_whitespace() {
            if self.costs.len() == EVENTS {
                return Err(format!("there are more than {EVENTS} events"));
            }
            let unit = self.units.get(name).map_or("count", |unit| unit);
            self.all.add_type(name, unit);
            self.costs.push(0);
        }
        Ok(())
    }

    /// Takes `Unit of NAME: UNIT`, of a file of prof's.
    fn event_unit(&mut self, value: &str) {
        let parts = value.strip_prefix(UNIT).and_then(|rest| rest.split_once(": "));
        if let Some((name, unit)) = parts
            && self.units.len() < EVENTS
        {
            self.units.insert(name.into(), unit.into());
        }
    }

    fn body(&mut self, key: &str, value: &str) -> Result<(), String> {
        let all = &mut self.all;
        match key {
            "ob" => self.binary = self.binaries.name(all, value)?,
            "fl" => {
                self.file = self.files.name(all, value)?;
                self.line_file = self.file;
            }
            "fi" | "fe" => self.line_file = self.files.name(all, value)?,
            "fn" => {
                let name = self.functions.name(all, value)?;
                self.line_file = self.file;
                self.function = Some(self.function(self.binary, self.file, name));
                self.call = OpenCall::default();
            }
            "cob" => self.call.binary = Some(self.binaries.name(all, value)?),
            "cfi" | "cfl" => self.call.file = Some(self.files.name(all, value)?),
            "cfn" => self.call.function = Some(self.functions.name(all, value)?),
            "calls" => self.call.is_counted = true,
            // Jumps are not read, but their names have numbers.
            "jfi" => drop(self.files.name(all, value)?),
            "jfn" => drop(self.functions.name(all, value)?),
            _ => {}
        }
        Ok(())
    }

    fn function(&mut self, binary: StrId, file: StrId, name: StrId) -> FunctionIndex {
        let path = self.all.profile.str(binary).to_owned();
        let is_known = !path.is_empty() && path != "???";
        let binary: Option<MappingId> = is_known.then(|| self.all.mapping(&path));
        self.graph.function(GraphFunction { binary, file, name })
    }

    /// Takes `POSITION… COST…`.
    fn costs(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_whitespace();
        for number in 0..self.positions.len() {
            let word = words.next().ok_or("the position is incomplete")?;
            let last = match self.positions[number] {
                PositionPart::Address => &mut self.position.address,
                PositionPart::Line => &mut self.position.line,
            };
            *last = position(word, *last).ok_or_else(|| format!("no position: {word:.20}"))?;
        }
        self.costs.fill(0);
        let mut sums = self.costs.iter_mut();
        for word in words {
            let sum = sums.next().ok_or("there are more costs than events")?;
            *sum = word.parse().map_err(|_| format!("no cost: {word:.20}"))?;
        }
        let function = self.function.ok_or("costs of no function: fn= comes first")?;
        let Position { address, line } = self.position;
        let from = CodePlace { function, file: self.line_file, line, address };
        let call = self.call;
        if !call.is_counted {
            self.sums.add(&self.costs);
            if self.costs.iter().any(|&cost| cost != 0) {
                self.graph.own.add(from, &self.costs);
            }
            return Ok(());
        }
        self.call = OpenCall::default();
        let name = call.function.ok_or("a call of no function: cfn= comes first")?;
        let binary = call.binary.unwrap_or(self.binary);
        let to = self.function(binary, call.file.unwrap_or(self.line_file), name);
        self.graph.calls.add(Call { from, to }, &self.costs);
        Ok(())
    }
}

/// A number, decimal or hexadecimal; `*`, `+N` and `-N` are relative to the last one.
fn position(word: &str, last: u64) -> Option<u64> {
    let number = |word: &str| match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    };
    match word.as_bytes().first()? {
        b'*' => (word.len() == 1).then_some(last),
        b'+' => last.checked_add(number(&word[1..])?),
        b'-' => last.checked_sub(number(&word[1..])?),
        _ => number(word),
    }
}

#[cfg(test)]
mod tests {
    use super::position;

    #[test]
    fn positions_are_absolute_or_relative() {
        for (word, expected) in [
            ("7", Some(7)),
            ("0x1f", Some(31)),
            ("+3", Some(13)),
            ("-0x2", Some(8)),
            ("*", Some(10)),
            ("-11", None),
            ("x", None),
            ("**", None),
        ] {
            assert_eq!(position(word, 10), expected, "{word}");
        }
    }
}
