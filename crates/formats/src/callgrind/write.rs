//! Writing: the own costs and the calls of each function, with all sample types as events.

use std::borrow::Cow;
use std::io::{self, Write};

use rustc_hash::{FxHashMap, FxHashSet};

use profile::{Profile, StrId};
use sys::printed;
use view::{Frames, Granularity, Name};

use super::{CREATOR, UNIT};
use crate::WriteOptions;

/// A function of the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct WrittenFunction {
    name: Name,
    file: StrId,
    binary: StrId,
}

/// A line of a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct FunctionLine {
    function: u32,
    line: i64,
}

/// A call from a line to a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct WrittenCall {
    from: FunctionLine,
    to: u32,
}

/// What is written of a profile.
struct Content<'p> {
    profile: &'p Profile,
    frames: Frames,
    functions: Vec<WrittenFunction>,
    /// A frame of each function.
    ids: Vec<u32>,
    numbers: FxHashMap<WrittenFunction, u32>,
    own: FxHashMap<FunctionLine, Vec<i64>>,
    calls: FxHashMap<WrittenCall, Vec<i64>>,
}

/// The numbers of names of one kind that were written.
#[derive(Default)]
struct WrittenNames {
    by_name: FxHashMap<String, usize>,
}

/// The names of functions that were written.
#[derive(Default)]
struct WrittenFunctionNames {
    binaries: WrittenNames,
    files: WrittenNames,
    functions: WrittenNames,
}

/// Writes a profile. Inlined functions are functions that are called; the numbers of calls are not
/// known: each is 1, as callgrind_annotate takes the costs of no call for own ones.
pub(super) fn write(profile: &Profile, _: &WriteOptions, out: &mut dyn Write) -> io::Result<()> {
    let content = Content::new(profile);
    content.header(out)?;
    content.body(out)
}

impl WrittenNames {
    /// `(12) name`, the second time `(12)`.
    fn name(&mut self, name: &str) -> String {
        let name = printed::line(name);
        let name = match name.trim() {
            "" => "???",
            name => name,
        };
        let next = self.by_name.len() + 1;
        match self.by_name.get(name) {
            Some(number) => format!("({number})"),
            None => {
                self.by_name.insert(name.to_owned(), next);
                format!("({next}) {name}")
            }
        }
    }
}

impl Content<'_> {
    fn new(profile: &Profile) -> Content<'_> {
        let granularity = Granularity { binary: true, unknown: true, ..Granularity::LINES };
        let mut content = Content {
            profile,
            frames: Frames::new(profile, granularity),
            functions: Vec::new(),
            ids: Vec::new(),
            numbers: FxHashMap::default(),
            own: FxHashMap::default(),
            calls: FxHashMap::default(),
        };
        let mut lines = Vec::new();
        let mut seen = FxHashSet::default();
        for (row, sample) in profile.samples.iter().enumerate() {
            lines.clear();
            for &location in profile.stacks.get(sample.stack) {
                for place in 0..content.frames.at(location).len() {
                    let id = content.frames.at(location)[place];
                    lines.push(content.line(id));
                }
            }
            if lines.is_empty() {
                lines.push(content.line(content.frames.no_stack));
            }
            let values = profile.values_of(row);
            add(content.own.entry(lines[0]).or_default(), values);
            // In a recursion, a call counts once.
            seen.clear();
            for pair in lines.windows(2) {
                let call = WrittenCall { from: pair[1], to: pair[0].function };
                if seen.insert(call) {
                    add(content.calls.entry(call).or_default(), values);
                }
            }
        }
        content
    }

    fn line(&mut self, id: u32) -> FunctionLine {
        let frame = self.frames.get(id);
        let function = WrittenFunction { name: frame.name, file: frame.file, binary: frame.binary };
        let number = *self.numbers.entry(function).or_insert_with(|| {
            self.functions.push(function);
            self.ids.push(id);
            self.functions.len() as u32 - 1
        });
        FunctionLine { function: number, line: frame.line.max(0) }
    }

    fn header(&self, out: &mut dyn Write) -> io::Result<()> {
        let profile = self.profile;
        let names: Vec<String> = profile
            .type_names()
            .iter()
            .map(|name| printed::line(name).split_whitespace().collect::<Vec<_>>().join("_"))
            .map(|name| if name.is_empty() { "event".to_owned() } else { name })
            .collect();
        writeln!(out, "# callgrind format\nversion: 1\ncreator: {CREATOR}")?;
        for (name, value_type) in names.iter().zip(&profile.sample_types) {
            let unit = printed::line(profile.str(value_type.unit));
            writeln!(out, "desc: {UNIT}{name}: {}", unit.trim())?;
        }
        writeln!(out, "positions: line\nevents: {}", names.join(" "))?;
        let totals: Vec<String> =
            (0..names.len()).map(|column| profile.total(column).to_string()).collect();
        writeln!(out, "summary: {}", totals.join(" "))
    }

    fn body(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut own: Vec<(&FunctionLine, &Vec<i64>)> = self.own.iter().collect();
        own.sort_unstable();
        let mut calls: Vec<(&WrittenCall, &Vec<i64>)> = self.calls.iter().collect();
        calls.sort_unstable();
        let names = &mut WrittenFunctionNames::default();
        let (mut own, mut calls) = (own.as_slice(), calls.as_slice());
        for number in 0..self.functions.len() as u32 {
            let count = own.partition_point(|(line, _)| line.function <= number);
            let (lines, rest) = own.split_at(count);
            own = rest;
            let count = calls.partition_point(|(call, _)| call.from.function <= number);
            let (called, rest) = calls.split_at(count);
            calls = rest;
            writeln!(out)?;
            self.function(out, number, ["ob", "fl", "fn"], names)?;
            for (line, costs) in lines {
                writeln!(out, "{}{}", line.line, words(costs))?;
            }
            for (call, costs) in called {
                self.function(out, call.to, ["cob", "cfi", "cfn"], names)?;
                writeln!(out, "calls=1 0\n{}{}", call.from.line, words(costs))?;
            }
        }
        Ok(())
    }

    /// Writes the binary, the file and the name of a function with these keys.
    fn function(
        &self,
        out: &mut dyn Write,
        number: u32,
        keys: [&str; 3],
        names: &mut WrittenFunctionNames,
    ) -> io::Result<()> {
        let WrittenFunction { name, file, binary } = self.functions[number as usize];
        let text: Cow<'_, str> = match name {
            Name::Address(at) => format!("{at:#x}").into(),
            _ => self.frames.get(self.ids[number as usize]).display(self.profile),
        };
        let [binary_key, file_key, name_key] = keys;
        let binary = names.binaries.name(self.profile.str(binary));
        let file = names.files.name(self.profile.str(file));
        let name = names.functions.name(&text);
        writeln!(out, "{binary_key}={binary}\n{file_key}={file}\n{name_key}={name}")
    }
}

/// Costs, each after a space.
fn words(costs: &[i64]) -> String {
    costs.iter().map(|cost| format!(" {cost}")).collect()
}

fn add(sums: &mut Vec<i64>, values: &[i64]) {
    sums.resize(values.len(), 0);
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum = sum.saturating_add(*value);
    }
}
