//! Frames of locations, at one granularity.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::Range;

use hashbrown::HashTable;
use rustc_hash::{FxHashSet, FxHasher};

use super::binaries::{KERNEL_START, KernelMappings, base_name, is_kernel, is_run_time};
use super::cancel::STEPS;
use super::{Cancel, Expansion, Granularity};
use profile::{LabelValue, Line, Location, LocationId, Profile, StrId};

/// Name of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// A function.
    Function(StrId),
    /// An address without a function: offset in the binary's file; the address itself without a
    /// binary, and in the kernel.
    Address(u64),
    /// All code without a function, or without a source file, of a binary.
    Unknown,
    /// Value of a label, as the lowest frame of a stack.
    Label(Option<LabelValue>, StrId),
    /// Placeholder for the frames of a sample without any.
    NoStack,
    /// Replaces frames beyond the limits of a view, see [`Expansion`].
    BeyondLimit,
    /// Not distinguished at this granularity.
    Any,
}

/// A frame: the unit of table rows and flame graph boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Its name.
    pub name: Name,
    /// Path of the binary; empty if unknown or not distinguished.
    pub binary: StrId,
    /// Source file; if lines are not distinguished, that of one of its locations.
    pub file: StrId,
    /// Source line, 0 if unknown or not distinguished.
    pub line: i64,
    /// Its name in the binary (mangled), at one of its locations.
    pub system_name: StrId,
    /// Its address, as in [`Name::Address`]; 0 if not distinguished.
    pub address: u64,
    /// It runs in the kernel.
    pub kernel: bool,
    /// The function was inlined (distinguished only if the granularity includes it).
    pub inlined: bool,
}

/// Distinct frames of a profile, and the frames of each location.
#[derive(Clone)]
pub struct Frames {
    frames: Vec<Frame>,
    /// End of each location's part of `ids`; it begins at the end of the previous one.
    ends: Vec<u32>,
    ids: Vec<u32>,
    /// Ids of frames by their keys ([`Frame::key`]), with the hashes of these: growing visits no
    /// frame.
    index: HashTable<(u32, Hash32)>,
    /// The frame of samples without frames.
    pub no_stack: u32,
    /// The frame that replaces those beyond the limits.
    pub beyond_limit: u32,
    /// What the stacks are expanded to.
    pub expansion: Expansion,
    /// The parts in which equal frames agree.
    pub granularity: Granularity,
    /// The files of run-time code.
    run_time: FxHashSet<StrId>,
    /// The first of them: they are one binary, which has this path.
    run_time_binary: StrId,
}

impl Frames {
    /// The frames of all locations.
    pub fn new(profile: &Profile, granularity: Granularity) -> Frames {
        Frames::cancelable(profile, granularity, &Cancel::default())
    }

    /// The same. After `cancel`, all other locations have the frame of samples without frames.
    pub(super) fn cancelable(
        profile: &Profile,
        granularity: Granularity,
        cancel: &Cancel,
    ) -> Frames {
        let mut frames = Frames {
            frames: Vec::new(),
            ends: Vec::with_capacity(profile.locations.len()),
            ids: Vec::with_capacity(profile.locations.len()),
            index: HashTable::new(),
            no_stack: 0,
            beyond_limit: 0,
            expansion: Expansion::new(profile),
            granularity,
            run_time: FxHashSet::default(),
            run_time_binary: StrId::EMPTY,
        };
        for mapping in profile.mappings.iter().filter(|m| is_run_time(profile.str(m.file))) {
            if frames.run_time.is_empty() {
                frames.run_time_binary = mapping.file;
            }
            frames.run_time.insert(mapping.file);
        }
        frames.no_stack = frames.intern(Frame::bare(Name::NoStack));
        frames.beyond_limit = frames.insert(Frame::bare(Name::BeyondLimit));
        let kernel = KernelMappings::new(profile);
        for i in 0..profile.locations.len() {
            if i.is_multiple_of(STEPS) && cancel.is_canceled() {
                let rest = profile.locations.len() - i;
                let first = frames.ids.len() as u32 + 1;
                frames.ids.extend(std::iter::repeat_n(frames.no_stack, rest));
                frames.ends.extend(first..first + rest as u32);
                break;
            }
            frames.add_location(profile, LocationId(i as u32), &kernel);
        }
        frames
    }

    fn add_location(&mut self, profile: &Profile, id: LocationId, kernel: &KernelMappings) {
        let location = &profile.locations[id.0 as usize];
        let mapping = location.mapping.map(|m| &profile.mappings[m.0 as usize]);
        let address = address_in_file(profile, location);
        let place = Frame {
            address,
            binary: mapping.map_or(StrId::EMPTY, |m| m.file),
            kernel: kernel.has(location),
            ..Frame::bare(Name::Address(address))
        };
        let lines = profile.lines_of(id);
        let left_out = self.left_out_of(lines.len());
        for (i, line) in lines.iter().enumerate() {
            if left_out.contains(&i) {
                if i == left_out.start {
                    self.ids.push(self.beyond_limit);
                }
                continue;
            }
            let frame = with_line(profile, place, line, i + 1 < lines.len());
            let id = self.intern(frame);
            self.ids.push(id);
        }
        if lines.is_empty() {
            let id = self.intern(place);
            self.ids.push(id);
        }
        self.ends.push(self.ids.len() as u32);
    }

    /// The part of a location's lines that is left out: neither the innermost nor the outermost.
    fn left_out_of(&self, lines: usize) -> Range<usize> {
        match self.expansion.frames_per_location.map(|most| most as usize) {
            Some(most) if lines > most => {
                let inner = most / 2;
                inner..lines - (most - inner - 1)
            }
            _ => 0..0,
        }
    }

    /// Id of `frame` at this granularity.
    fn intern(&mut self, frame: Frame) -> u32 {
        let granularity = self.granularity;
        let mut key = frame;
        key.system_name = StrId::EMPTY;
        if !granularity.line {
            key.line = 0;
        }
        if !granularity.line && !granularity.file {
            key.file = StrId::EMPTY;
        }
        if !granularity.address {
            key.address = 0;
        }
        if !granularity.inlined {
            key.inlined = false;
        }
        let is_code = matches!(key.name, Name::Function(_) | Name::Address(_));
        let is_unknown = if granularity.function {
            matches!(key.name, Name::Address(_)) && !granularity.unknown
        } else {
            is_code && granularity.file && key.file == StrId::EMPTY
        };
        if is_unknown {
            key.name = Name::Unknown;
        } else if !granularity.function {
            key.name = Name::Any;
        }
        // Without a name, an address of one process is not that of another.
        if !matches!(key.name, Name::Address(_)) && self.run_time.contains(&key.binary) {
            key.binary = self.run_time_binary;
        }
        if !granularity.binary && !key.needs_binary() {
            (key.binary, key.kernel) = (StrId::EMPTY, false);
        }
        let mut shown = key;
        if granularity.function {
            (shown.file, shown.system_name) = (frame.file, frame.system_name);
            shown.kernel = frame.kernel;
        }
        self.insert(shown)
    }

    /// Id of a frame, of which all but the key may be that of another location.
    fn insert(&mut self, shown: Frame) -> u32 {
        let granularity = self.granularity;
        let key = shown.key(granularity);
        let hash = Hash32::new(&key);
        let Frames { frames, index, .. } = self;
        let same = |&(id, other): &(u32, Hash32)| {
            other == hash && frames[id as usize].key(granularity) == key
        };
        if let Some(&(id, _)) = index.find(hash.expanded(), same) {
            return id;
        }
        let id = frames.len() as u32;
        frames.push(shown);
        index.insert_unique(hash.expanded(), (id, hash), |(_, hash)| hash.expanded());
        id
    }

    /// Id of a label's value as a frame.
    pub fn label(&mut self, key: StrId, value: Option<LabelValue>) -> u32 {
        self.insert(Frame::bare(Name::Label(value, key)))
    }

    /// Frames of a location, innermost first.
    #[inline]
    pub fn at(&self, location: LocationId) -> &[u32] {
        let i = location.0 as usize;
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.ids[start as usize..self.ends[i] as usize]
    }

    /// A frame.
    pub fn get(&self, id: u32) -> &Frame {
        &self.frames[id as usize]
    }

    /// Number of frames of all locations together.
    pub(super) fn id_count(&self) -> usize {
        self.ids.len()
    }

    /// Number of distinct frames.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Always false: the frame for samples without frames always exists.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

/// Hash of a frame's key.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Hash32(u32);

impl Hash32 {
    fn new(key: &Frame) -> Hash32 {
        let mut hasher = FxHasher::default();
        key.hash(&mut hasher);
        Hash32((hasher.finish() >> 32) as u32)
    }

    /// A hash that differs in its highest and its lowest bits, as a table needs it.
    fn expanded(self) -> u64 {
        u64::from(self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

fn with_line(profile: &Profile, place: Frame, line: &Line, inlined: bool) -> Frame {
    let function = &profile.functions[line.function.0 as usize];
    let name = match (function.name, function.system_name) {
        (StrId::EMPTY, StrId::EMPTY) => place.name,
        (StrId::EMPTY, name) | (name, _) => Name::Function(name),
    };
    Frame {
        name,
        file: function.filename,
        line: line.line,
        system_name: function.system_name,
        inlined,
        ..place
    }
}

/// The address of a location as it is shown: that in the file of its binary. Without a file, it is
/// the address itself; so it is in the kernel, as in `/proc/kallsyms`.
pub(crate) fn address_in_file(profile: &Profile, location: &Location) -> u64 {
    let mapping = location.mapping.map(|m| &profile.mappings[m.0 as usize]);
    match mapping {
        Some(m) if m.file != StrId::EMPTY && !has_no_file(profile.str(m.file), location) => {
            location.address.wrapping_sub(m.start).wrapping_add(m.file_offset)
        }
        _ => location.address,
    }
}

/// True for code of the kernel that is in memory only: `[kernel.kallsyms]`, `[ext4]`.
fn has_no_file(file: &str, location: &Location) -> bool {
    location.address >= KERNEL_START && file.starts_with('[') && is_kernel(file)
}

/// An address without a name, as it is shown in a binary.
pub(crate) fn address_name(binary: &str, at: u64) -> String {
    match base_name(binary) {
        // No file has such an offset.
        name if name.is_empty() || at >= KERNEL_START => format!("{at:#x}"),
        name => format!("{name}+{at:#x}"),
    }
}

/// Leaves of each location only the outermost function, into which the others were inlined.
pub fn fold_inlined(profile: &mut Profile) {
    for location in profile.locations.iter_mut().filter(|l| l.line_count > 1) {
        location.first_line += location.line_count - 1;
        location.line_count = 1;
    }
}

/// A label's value as text, a number with its unit.
pub fn label_text(profile: &Profile, value: LabelValue) -> String {
    match value {
        LabelValue::Str(s) => profile.str(s).to_string(),
        LabelValue::Num { value, unit: StrId::EMPTY } => value.to_string(),
        LabelValue::Num { value, unit } => format!("{value} {}", profile.str(unit)),
    }
}

impl Name {
    fn rank(self) -> u8 {
        match self {
            Name::Function(_) => 0,
            Name::Address(_) => 1,
            Name::Unknown => 2,
            Name::Label(..) => 3,
            Name::NoStack => 4,
            Name::BeyondLimit => 5,
            Name::Any => 6,
        }
    }
}

impl Frame {
    /// A frame that no code belongs to.
    const fn bare(name: Name) -> Frame {
        Frame {
            name,
            binary: StrId::EMPTY,
            file: StrId::EMPTY,
            line: 0,
            system_name: StrId::EMPTY,
            address: 0,
            kernel: false,
            inlined: false,
        }
    }

    /// The properties that distinguish it from other frames of this granularity. It may have others,
    /// which are those of one of its locations.
    fn key(&self, granularity: Granularity) -> Frame {
        let mut key = *self;
        key.system_name = StrId::EMPTY;
        if !granularity.line && !granularity.file {
            key.file = StrId::EMPTY;
        }
        if !granularity.binary && !self.needs_binary() {
            key.kernel = false;
        }
        key
    }

    /// It is code without a function or a source file, which is distinguished by its binary at every
    /// granularity.
    pub fn needs_binary(&self) -> bool {
        matches!(self.name, Name::Address(_) | Name::Unknown)
    }

    /// Text to print: the function, `binary+0xoffset`, `0xaddress` (without a binary, and in the
    /// kernel), or the label's value.
    pub fn display<'p>(&self, profile: &'p Profile) -> Cow<'p, str> {
        match self.name {
            Name::Function(name) => profile.str(name).into(),
            Name::Address(at) => address_name(profile.str(self.binary), at).into(),
            Name::Label(Some(LabelValue::Str(s)), _) => profile.str(s).into(),
            Name::Label(Some(value), key) => {
                format!("{} {}", profile.str(key), label_text(profile, value)).into()
            }
            Name::Label(None, key) => format!("[no {}]", profile.str(key)).into(),
            Name::NoStack => "[no stack]".into(),
            Name::BeyondLimit => "[beyond prof's memory limit]".into(),
            Name::Unknown if self.binary == StrId::EMPTY => "[unknown]".into(),
            Name::Unknown => match self.binary_name(profile) {
                name if name.starts_with('[') => name.into(),
                name => format!("[{name}]").into(),
            },
            Name::Any if self.file != StrId::EMPTY => self.place(profile).into(),
            Name::Any => "[all]".into(),
        }
    }

    /// Name of the binary without its directory; empty if unknown.
    pub fn binary_name<'p>(&self, profile: &'p Profile) -> &'p str {
        base_name(profile.str(self.binary))
    }

    /// `file:line` if known, with the file as in the profile.
    pub fn place(&self, profile: &Profile) -> String {
        match (profile.str(self.file), self.line) {
            ("", _) => String::new(),
            (file, 0) => file.to_string(),
            (file, line) => format!("{file}:{line}"),
        }
    }

    /// Orders frames by name, then binary, file and line: first functions, then addresses, then
    /// others. Allocates nothing for functions.
    pub fn cmp_name(&self, other: &Frame, profile: &Profile) -> Ordering {
        let by_name = match (self.name, other.name) {
            (a, b) if a == b => Ordering::Equal,
            (Name::Function(a), Name::Function(b)) => profile.str(a).cmp(profile.str(b)),
            (Name::Address(a), Name::Address(b)) => {
                (profile.str(self.binary), a).cmp(&(profile.str(other.binary), b))
            }
            // Not by their text: addresses of one binary are ordered by number, and mixing both
            // would not be an order.
            (a, b) if a.rank() != b.rank() => a.rank().cmp(&b.rank()),
            _ => self.display(profile).cmp(&other.display(profile)),
        };
        by_name
            .then_with(|| profile.str(self.binary).cmp(profile.str(other.binary)))
            .then_with(|| profile.str(self.file).cmp(profile.str(other.file)))
            .then(self.line.cmp(&other.line))
            .then(self.address.cmp(&other.address))
            .then(self.inlined.cmp(&other.inlined))
    }
}

#[cfg(test)]
mod tests;
