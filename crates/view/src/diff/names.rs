//! Frames of several profiles, matched by text.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{Frame, Granularity, Name, View, base_name};
use profile::{Profile, StrId};

/// A function, line, binary or label that the rows and nodes of a difference refer to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiffFrame {
    /// The kind of its name.
    pub kind: DiffName,
    /// The function, or a label's value; empty for addresses without a name.
    pub name: Arc<str>,
    /// Base name of the binary; empty if unknown or not distinguished.
    pub binary: Arc<str>,
    /// Source file, if files or lines are distinguished; else empty.
    pub file: Arc<str>,
    /// Source line; 0 if unknown or not distinguished.
    pub line: i64,
    /// Address of the instruction; 0 if not distinguished.
    pub address: u64,
    /// It runs in the kernel.
    pub kernel: bool,
}

/// Kind of a [`DiffFrame`]'s name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DiffName {
    /// A function.
    Function,
    /// All addresses without a name of a binary, unless addresses are distinguished. One by one they
    /// cannot be compared: another build has other addresses, and samples of one build move between
    /// neighbouring instructions from run to run.
    Unnamed,
    /// The value of a label.
    Label,
    /// The frame of samples without a stack.
    NoStack,
    /// The frame that replaces those beyond the limits of a view.
    BeyondLimit,
    /// Not distinguished at this granularity.
    Any,
}

/// Two binaries of which functions are compared by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByName {
    /// In the recordings before.
    pub before: Arc<str>,
    /// In those after.
    pub after: Arc<str>,
}

/// The frames of one name that only one side has, of each side.
#[derive(Default)]
struct Namesakes {
    /// Of binaries that only one side has.
    one_sided: [Found; 2],
    all: [Found; 2],
}

/// Frames that were found.
#[derive(Clone, Copy, Default)]
enum Found {
    #[default]
    None,
    One(u32),
    Several,
}

impl Found {
    fn add(&mut self, id: u32) {
        *self = if matches!(self, Found::None) { Found::One(id) } else { Found::Several };
    }
}

/// The frames of several profiles: equal ones are one.
#[derive(Default)]
pub(super) struct NameTable {
    pub(super) frames: Vec<DiffFrame>,
    index: FxHashMap<DiffFrame, u32>,
    texts: FxHashSet<Arc<str>>,
    /// The binaries of functions that are compared by name, each pair once.
    pub(super) by_name: Vec<ByName>,
    /// Only one side has binaries: they are not distinguished.
    drops_binaries: bool,
}

/// Whether functions of these profiles have binaries.
pub(super) fn have_binaries(views: &[View]) -> bool {
    let has_binary = |view: &View, id: usize| {
        let frame = view.frames.get(id as u32);
        matches!(frame.name, Name::Function(_)) && frame.binary != StrId::EMPTY
    };
    views.iter().any(|view| (0..view.frames.len()).any(|id| has_binary(view, id)))
}

/// True for the name that formats without addresses have for one without a function:
/// `libc.so.6+0x2a1` or `0x2a1`.
fn is_address(name: &str) -> bool {
    let digits = name.strip_prefix("0x").or_else(|| Some(name.rsplit_once("+0x")?.1));
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

impl NameTable {
    /// The frames of these recordings, and their ids in each of them; after the signal to end, some
    /// are missing.
    pub(super) fn new(before: &[View], after: &[View]) -> (NameTable, Vec<Vec<u32>>) {
        let drops_binaries = have_binaries(before) != have_binaries(after);
        let mut names = NameTable { drops_binaries, ..NameTable::default() };
        let mut ids: Vec<Vec<u32>> =
            before.iter().chain(after).map(|view| names.add(view)).collect();
        let other = names.match_by_name(&ids, before.len());
        for id in ids.iter_mut().flatten() {
            *id = other.get(id).copied().unwrap_or(*id);
        }
        for id in names.index.values_mut() {
            *id = other.get(id).copied().unwrap_or(*id);
        }
        (names, ids)
    }

    /// Finds functions of another binary that are compared by name: those of binaries that only one
    /// side has, such as `libx.so.1` and `libx.so.2`, if only one of them has the name on each side;
    /// else those that only one side has, if one of the two binaries is on one side only; else those
    /// of two binaries of which other functions are compared so. Returns the ids after by those before.
    fn match_by_name(&mut self, ids: &[Vec<u32>], before: usize) -> FxHashMap<u32, u32> {
        let mut sides = vec![[false; 2]; self.frames.len()];
        for (run, ids) in ids.iter().enumerate() {
            ids.iter().for_each(|&id| sides[id as usize][usize::from(run >= before)] = true);
        }
        let mut binaries: FxHashMap<&str, [bool; 2]> = FxHashMap::default();
        for (frame, sides) in self.frames.iter().zip(&sides) {
            let on = binaries.entry(&frame.binary).or_default();
            *on = [on[0] | sides[0], on[1] | sides[1]];
        }
        let is_on_both = |id: u32| binaries[&*self.frames[id as usize].binary] == [true, true];
        let mut functions: FxHashMap<DiffFrame, Namesakes> = FxHashMap::default();
        let empty: Arc<str> = "".into();
        for (id, (frame, sides)) in (0..).zip(self.frames.iter().zip(&sides)) {
            let is_named = frame.kind == DiffName::Function && frame.address == 0;
            if !is_named || frame.binary.is_empty() || *sides == [true, true] {
                continue;
            }
            let key = DiffFrame { binary: empty.clone(), ..frame.clone() };
            let namesakes = functions.entry(key).or_default();
            let side = usize::from(sides[1]);
            namesakes.all[side].add(id);
            if !is_on_both(id) {
                namesakes.one_sided[side].add(id);
            }
        }
        let mut other = FxHashMap::default();
        let mut by_name: FxHashSet<ByName> = FxHashSet::default();
        for Namesakes { one_sided, all } in functions.values() {
            let (a, b) = match (one_sided, all) {
                (&[Found::One(a), Found::One(b)], _) => (a, b),
                (_, &[Found::One(a), Found::One(b)]) if !is_on_both(a) || !is_on_both(b) => (a, b),
                _ => continue,
            };
            let [before, after] = [a, b].map(|id| self.frames[id as usize].binary.clone());
            by_name.insert(ByName { before, after });
            other.insert(a, b);
        }
        self.match_in_pairs(&by_name, &sides, &mut other);
        self.by_name = by_name.into_iter().collect();
        self.by_name.sort_unstable();
        other
    }

    /// Adds functions of pairs of binaries whose names others have, too, such as `_start`, which the
    /// dynamic linker has.
    fn match_in_pairs(
        &self,
        pairs: &FxHashSet<ByName>,
        sides: &[[bool; 2]],
        other: &mut FxHashMap<u32, u32>,
    ) {
        let mut counts: FxHashMap<(usize, &str), usize> = FxHashMap::default();
        for ByName { before, after } in pairs {
            *counts.entry((0, before)).or_default() += 1;
            *counts.entry((1, after)).or_default() += 1;
        }
        // With several partners, it is open which one.
        let only =
            |pair: &&ByName| counts[&(0, &*pair.before)] == 1 && counts[&(1, &*pair.after)] == 1;
        let partners: FxHashMap<&str, &Arc<str>> =
            pairs.iter().filter(only).map(|pair| (&*pair.before, &pair.after)).collect();
        for (id, frame) in (0..).zip(&self.frames) {
            let is_named = frame.kind == DiffName::Function && frame.address == 0;
            if !is_named || sides[id as usize] != [true, false] || other.contains_key(&id) {
                continue;
            }
            let Some(&partner) = partners.get(&*frame.binary) else { continue };
            let key = DiffFrame { binary: partner.clone(), ..frame.clone() };
            if let Some(&after) = self.index.get(&key)
                && sides[after as usize] == [false, true]
            {
                other.insert(id, after);
            }
        }
    }

    /// The ids of the frames of a view; after the signal to end, some are missing.
    pub(super) fn add(&mut self, view: &View) -> Vec<u32> {
        let frames = (0..view.frames.len()).take_while(|&id| view.goes_on(id));
        let frames = frames.map(|id| view.frames.get(id as u32));
        frames.map(|frame| self.id(view.profile, view.frames.granularity, frame)).collect()
    }

    fn id(&mut self, profile: &Profile, granularity: Granularity, frame: &Frame) -> u32 {
        let path = profile.str(frame.binary);
        let binary = if self.drops_binaries { "" } else { base_name(path) };
        let kind = match frame.name {
            Name::Function(_) if is_address(&frame.display(profile)) => DiffName::Unnamed,
            Name::Function(_) => DiffName::Function,
            Name::Address(_) | Name::Unknown => DiffName::Unnamed,
            Name::Label(..) => DiffName::Label,
            Name::NoStack => DiffName::NoStack,
            Name::BeyondLimit => DiffName::BeyondLimit,
            Name::Any => DiffName::Any,
        };
        let name = match kind {
            DiffName::Unnamed => self.text(""),
            DiffName::Any if frame.file != StrId::EMPTY => self.text(""),
            _ => self.text(&frame.display(profile)),
        };
        // Otherwise, the file is that of any of a function's locations.
        let by_file = match kind {
            DiffName::Function => granularity.file || granularity.line && frame.line != 0,
            DiffName::Any => true,
            _ => false,
        };
        let key = DiffFrame {
            kind,
            name,
            binary: self.text(binary),
            file: self.text(if by_file { profile.str(frame.file) } else { "" }),
            line: if by_file { frame.line } else { 0 },
            address: frame.address,
            kernel: frame.kernel && !binary.is_empty(),
        };
        self.id_of(key)
    }

    /// The id of the frame of samples without the label `key`, as in a profile that has it.
    pub(super) fn no_value(&mut self, key: &str) -> u32 {
        let [name, empty] = [&*format!("[no {key}]"), ""].map(|text| self.text(text));
        self.id_of(DiffFrame {
            kind: DiffName::Label,
            name,
            binary: empty.clone(),
            file: empty,
            line: 0,
            address: 0,
            kernel: false,
        })
    }

    fn id_of(&mut self, key: DiffFrame) -> u32 {
        let frames = &mut self.frames;
        *self.index.entry(key).or_insert_with_key(|key| {
            frames.push(key.clone());
            frames.len() as u32 - 1
        })
    }

    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(there) = self.texts.get(text) {
            return there.clone();
        }
        let new: Arc<str> = text.into();
        self.texts.insert(new.clone());
        new
    }
}
