//! Collapsed (folded) stacks: `main;foo;bar 123`, one line for each distinct stack, as
//! `stackcollapse-perf.pl`, py-spy, rbspy, async-profiler and bpftrace's converters write them.
//!
//! The format has no escape. When it is written, a `;` in a name becomes `:` (as in perf's
//! `stackcollapse`), and hidden characters are replaced as everywhere ([`printed`]). A name may
//! contain spaces: the value follows the last one. Values are numbers in the unit of the sample type,
//! of which the file has no name.

use std::io::{self, Read, Write};

use rustc_hash::FxHashMap;

use profile::{LabelSetId, Line, LocationId, MappingId, Profile, label};
use sys::printed;
use view::{Cut, Direction, Granularity, Tree, View};

use crate::assembly::{AddedSample, Assembly, ColumnValue};
use crate::error::ReadError;
use crate::lines::Lines;
use crate::unpacked::{text, whole_lines};
use crate::{Contents, Format, HEAD, HeldLabels, HeldTypes, Part, WriteOptions, Writer};

/// The format of [`mod@self`].
#[derive(Debug)]
pub struct Collapsed;

/// Its description.
const COLLAPSED: &str = "collapsed stacks";

/// The frame of a name that is empty.
const NO_NAME: &str = "[no name]";

impl Format for Collapsed {
    fn name(&self) -> &'static str {
        "collapsed"
    }

    fn title(&self) -> &'static str {
        COLLAPSED
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["folded", "collapsed", "stacks"]
    }

    /// True if most lines are stacks, and half of them have two frames; or all are, and one has.
    fn detect(&self, head: &[u8]) -> bool {
        // A name may be in another encoding.
        let head = String::from_utf8_lossy(head);
        let Some(text) = text(head.as_bytes()) else { return false };
        let lines = whole_lines(text).filter(|line| !is_comment(line));
        let count = lines.clone().count();
        let stacks = lines.filter(|line| is_stack(line));
        let deep = stacks.clone().filter(|line| line.contains(';')).count();
        // A sentence has a blank after it.
        let is_deep = |line: &str| line.split(';').skip(1).all(|frame| !frame.starts_with(' '));
        let has_deep = deep > 0 && stacks.clone().filter(|line| line.contains(';')).all(is_deep);
        let all = stacks.count();
        2 * all > count && 2 * deep >= count || all == count && has_deep || is_long_stack(text)
    }

    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
        read(input)
    }

    fn writer(&self) -> Option<Writer> {
        Some(write)
    }

    fn contents(&self) -> Contents {
        Contents {
            sample_types: HeldTypes::Chosen,
            labels: HeldLabels::Processes,
            lacks: &[Part::Times, Part::Lines, Part::Binaries],
        }
    }
}

/// Whether a text begins with a stack that is longer than it.
fn is_long_stack(text: &str) -> bool {
    let mut rest = text;
    while let Some((line, after)) = rest.split_once('\n') {
        if !(line.trim().is_empty() || is_comment(line)) {
            return false;
        }
        rest = after;
    }
    let Some((first, _)) = rest.split_once(';') else { return false };
    // The first frame may be `<module>`, `[unknown]` or `{main}`.
    let is_markup = first.starts_with('<')
        && ["<?", "<!", "=\"", "</", "><"].iter().any(|markup| first.contains(markup));
    let inner = first.strip_prefix(['[', '{']).map(str::trim_start);
    let is_json = inner.is_some_and(|inner| inner.starts_with(['{', '[', '"', ']', '}']));
    rest.len() > HEAD / 2 && !is_markup && !is_json
}

/// Whether a line is a comment: the name of a function may begin with `#`.
fn is_comment(line: &str) -> bool {
    line.starts_with('#') && (!is_stack(line) || line.starts_with("# ") && !line.contains(';'))
}

fn is_stack(line: &str) -> bool {
    let (stack, count) = split(line);
    !stack.is_empty() && Count::parse(count).is_some()
}

/// The stack and the count of a line.
fn split(line: &str) -> (&str, &str) {
    let line = line.trim_end();
    line.rsplit_once([' ', '\t']).map_or(("", line), |(stack, count)| (stack.trim(), count))
}

/// The number at the end of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Count {
    Whole(i64),
    Decimal(f64),
}

impl Count {
    fn parse(text: &str) -> Option<Count> {
        if let Ok(whole) = text.parse() {
            return Some(Count::Whole(whole));
        }
        let is_number = text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b))
            && text.bytes().any(|b| b.is_ascii_digit());
        let number: f64 = text.parse().ok().filter(|_| is_number)?;
        (number.abs() < i64::MAX as f64).then_some(Count::Decimal(number))
    }
}

/// Reads collapsed stacks.
///
/// # Errors
///
/// The stream cannot be read, a line has no count, no line has a stack, all counts are 0, the lines
/// have two counts each, or they would take unreasonably much memory.
pub fn read(input: &mut dyn Read) -> Result<Profile, ReadError> {
    let mut lines = Lines::new(COLLAPSED, input)?;
    let mut reader = Reader::new();
    let mut sums = Sums::default();
    while let Some(line) = lines.next()? {
        if line.trim().is_empty() || is_comment(line) {
            continue;
        }
        let (stack, count) = split(line);
        let Some(count) = Count::parse(count) else {
            lines.unless_cut("it has no count at its end: main;work 123".to_owned())?;
            continue;
        };
        let value = sums.add(stack, count);
        reader.add(stack, value);
        if lines.is_check_due()
            && let Some(excess) = reader.all.excess(lines.memory_allowed())
        {
            return Err(lines.error(excess));
        }
    }
    if let Some(fault) = sums.fault() {
        return Err(lines.error(fault));
    }
    lines.cut().into_iter().for_each(|why| reader.all.set_incomplete(why));
    let rounded = sums.rounded;
    if rounded > 0 {
        let s = if rounded == 1 { "" } else { "s" };
        reader.all.comment(&format!("note: {rounded} count{s} with decimals rounded"));
    }
    Ok(reader.all.finish())
}

/// What the lines of a file have in common.
#[derive(Default)]
struct Sums {
    lines: u64,
    /// Counts with decimals.
    rounded: u64,
    /// What rounding has left out up to here.
    remainder: f64,
    has_value: bool,
    has_stack: bool,
    has_deep_stack: bool,
    /// Lines with two counts.
    differential: u64,
}

impl Sums {
    /// The value of a line. What is rounded off is added to the next, so that their sum is right.
    fn add(&mut self, stack: &str, count: Count) -> i64 {
        let value = match count {
            Count::Whole(value) => value,
            Count::Decimal(number) => {
                self.rounded += 1;
                let exact = number + self.remainder;
                self.remainder = exact - exact.round();
                exact.round() as i64
            }
        };
        self.lines += 1;
        self.has_value |= value != 0;
        self.has_stack |= !stack.is_empty();
        self.has_deep_stack |= stack.contains(';');
        self.differential += u64::from(is_stack(stack));
        value
    }

    fn fault(&self) -> Option<&'static str> {
        if self.has_deep_stack && self.differential == self.lines {
            return Some(
                "these are differential stacks, with two counts in each line; \
                 compare the two profiles instead: prof diff BEFORE AFTER",
            );
        }
        if self.lines > 0 && !self.has_stack {
            return Some("no line up to here has a stack before its count: main;work 123");
        }
        (self.lines > 0 && !self.has_value).then_some("all counts up to here are 0")
    }
}

/// A frame of a line.
#[derive(Clone, Copy)]
struct TextFrame {
    line: Line,
    /// The address, of a frame without a name.
    address: u64,
    binary: Option<MappingId>,
    /// Inlined into the frame before it.
    inlined: bool,
}

struct Reader {
    all: Assembly,
    frames: FxHashMap<Box<str>, TextFrame>,
    /// Frames of the current line, root first.
    line: Vec<TextFrame>,
    stack: Vec<LocationId>,
    /// Lines of a location.
    lines: Vec<Line>,
}

impl Reader {
    fn new() -> Reader {
        Reader {
            all: Assembly::new(&[("samples", "count")]),
            frames: FxHashMap::default(),
            line: Vec::new(),
            stack: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// Adds a line. Without a stack it is a sample without frames, of which py-spy writes some.
    fn add(&mut self, stack: &str, value: i64) {
        self.line.clear();
        let names = (!stack.is_empty()).then(|| crate::lines::frames(stack));
        for name in names.into_iter().flatten() {
            let frame = match self.frames.get(name) {
                Some(frame) => *frame,
                None => {
                    let frame = frame(&mut self.all, name);
                    self.frames.insert(name.into(), frame);
                    frame
                }
            };
            self.line.push(frame);
        }
        self.stack.clear();
        // Those that were inlined into a frame come before it.
        self.lines.clear();
        for (i, frame) in self.line.iter().enumerate().rev() {
            let has_name = frame.address == 0;
            self.lines.extend(has_name.then_some(frame.line));
            if frame.inlined && i > 0 && self.line[i - 1].address == 0 {
                continue;
            }
            let location = self.all.location(frame.binary, frame.address, &self.lines);
            self.stack.push(location);
            self.lines.clear();
        }
        let values = &[ColumnValue { column: 0, value }];
        let labels = LabelSetId::EMPTY;
        self.all.add(AddedSample { stack: &self.stack, labels, values, time: None });
    }
}

/// A frame by its text. The ends `_[k]` (kernel), `_[j]` and `_[1]` (made by a JIT compiler), `_[0]`
/// (interpreted) and `_[i]` (inlined) are those of `stackcollapse-perf.pl --all` and async-profiler.
fn frame(all: &mut Assembly, text: &str) -> TextFrame {
    let text = text.trim();
    let marked = text.strip_suffix(']').and_then(|text| text.rsplit_once("_["));
    let (name, mark) = match marked {
        Some((name, mark @ ("k" | "j" | "i" | "0" | "1"))) if !name.is_empty() => (name, mark),
        _ => (text, ""),
    };
    let binary = match mark {
        "k" => Some(all.mapping("[kernel.kallsyms]")),
        "j" | "1" => Some(all.mapping("[JIT]")),
        _ => None,
    };
    let digits = name.strip_prefix("0x").filter(|digits| !digits.starts_with('+'));
    let address = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0);
    let name = if name.is_empty() { NO_NAME } else { name };
    let function = all.function(name, "", 0);
    TextFrame { line: Line { function, line: 0, column: 0 }, address, binary, inlined: mark == "i" }
}

/// Writes the stacks of a sample type, under their processes if there are several.
fn write(profile: &Profile, options: &WriteOptions, out: &mut dyn Write) -> io::Result<()> {
    let mut view = View::new(profile, options.type_index, Granularity::SYMBOL);
    let has_processes = view.label_values(label::PROCESS).len() > 1;
    let process = profile.strings.find(label::PROCESS).filter(|_| has_processes);
    let tree = Tree::new(&mut view, Direction::Callees, process.as_slice(), Cut::Nothing);
    write_tree(out, &view, &tree)
}

/// A name without separators.
pub fn folded_name(name: &str) -> String {
    let name = printed::line(name).replace(';', ":");
    let trimmed = name.trim();
    // An empty frame would vanish between two separators.
    if trimmed.is_empty() { NO_NAME.to_owned() } else { trimmed.to_string() }
}

/// The place of the blank before a number at the end of a name.
fn blank_before_number(name: &str) -> Option<usize> {
    let blank = name.rfind([' ', '\t'])?;
    Count::parse(&name[blank + 1..]).map(|_| blank)
}

/// Writes the stacks of `tree` (a complete one, see [`view::Cut`]) with a self value, sorted by
/// name. If all of these names end in a number, which would make the stacks differential, the blank
/// before it becomes `_`.
pub fn write_tree(out: &mut dyn Write, view: &View, tree: &Tree) -> io::Result<()> {
    let mut names: Vec<String> = (0..view.frames.len() as u32)
        .map(|f| folded_name(&view.frames.get(f).display(view.profile)))
        .collect();
    let ends_in_number = |node: &view::Node| {
        node.self_value == 0 || blank_before_number(&names[node.frame as usize]).is_some()
    };
    if tree.nodes.iter().skip(1).all(ends_in_number) {
        for name in &mut names {
            if let Some(blank) = blank_before_number(name) {
                name.replace_range(blank..blank + 1, "_");
            }
        }
    }
    let children = tree.children();
    let name_of = |node: u32| names[tree.node(node).frame as usize].as_str();
    let sorted = |node: u32| {
        let mut ids = children.get(node).to_vec();
        // Last first, as they are popped from the end.
        ids.sort_by(|&a, &b| name_of(b).cmp(name_of(a)));
        ids
    };
    let mut line = String::new();
    // End of the line of each node on the way.
    let mut ends: Vec<usize> = Vec::new();
    let mut pending: Vec<(u32, usize)> = sorted(Tree::ROOT).into_iter().map(|c| (c, 0)).collect();
    while let Some((node, depth)) = pending.pop() {
        ends.truncate(depth);
        line.truncate(ends.last().copied().unwrap_or(0));
        if depth > 0 {
            line.push(';');
        }
        line.push_str(name_of(node));
        ends.push(line.len());
        let value = tree.node(node).self_value;
        if value != 0 {
            writeln!(out, "{line} {value}")?;
        }
        pending.extend(sorted(node).into_iter().map(|c| (c, depth + 1)));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
