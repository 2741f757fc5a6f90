//! Values by source line and by instruction address, of functions or whole source files.
//!
//! A line of inlined code has its value in the function that it was inlined from, and again below
//! the line of the call in the function that it was inlined into.

mod selection;
mod unnamed;

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use super::frames::{address_in_file, address_name};
use super::row_sums::RowSums;
use super::{Name, RowValues, View, base_name};
use profile::{LocationId, MappingId, StrId};

pub use selection::Selection;
pub use unnamed::{CodeBounds, NoBounds, UnnamedAddress};

/// Levels of inlined functions that are kept below a line. A file could claim any number.
const MAX_INLINED: usize = 64;

/// The part of a profile that a listing is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A function in a source file.
    Function,
    /// A source file, with all functions in it.
    File,
}

/// A line of a function that was inlined at a line of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlinedLine {
    /// Levels of inlining, from 1.
    pub depth: u32,
    /// Its function.
    pub function: Name,
    /// Its source file.
    pub file: StrId,
    /// Its line, 0 if unknown.
    pub line: i64,
    /// Its values as called there.
    pub values: RowValues,
}

/// A source line with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// Its number, 0 if unknown.
    pub line: i64,
    /// Its values.
    pub values: RowValues,
    /// Lines of functions inlined there: each after the line that it was inlined at, largest total
    /// first.
    pub inlined: Vec<InlinedLine>,
}

/// An instruction address with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressValue {
    /// A mapping that contains it.
    pub mapping: Option<MappingId>,
    /// Offset in the binary's file, or the address itself without a binary.
    pub offset: u64,
    /// Its values.
    pub values: RowValues,
}

/// The values of a function or a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The function; [`Name::Any`] for a whole file.
    pub function: Name,
    /// The function's name in the binary (mangled).
    pub system_name: StrId,
    /// The source file, empty if unknown.
    pub file: StrId,
    /// Line where the function begins, 0 if unknown.
    pub start_line: i64,
    /// Its values.
    pub values: RowValues,
    /// Its lines with values, in their order.
    pub lines: Vec<SourceLine>,
    /// Addresses of the function's own code, in the order of mappings and offsets; of the code that
    /// it was inlined into, if it has none. Empty for a file. Self values include inlined code.
    pub addresses: Vec<AddressValue>,
    /// A mapping with code of it.
    pub mapping: Option<MappingId>,
}

impl Listing {
    /// The name of its function; of code without one, binary and address.
    pub fn name<'p>(&self, view: &View<'p>) -> Cow<'p, str> {
        match self.function {
            Name::Function(name) if name != StrId::EMPTY => view.profile.str(name).into(),
            Name::Address(at) => {
                let mapping = self.mapping.map(|m| &view.profile.mappings[m.0 as usize]);
                let binary = mapping.map_or("", |mapping| view.profile.str(mapping.file));
                address_name(binary, at).into()
            }
            _ => "[unknown]".into(),
        }
    }

    /// True for code without a name.
    pub fn is_unnamed(&self) -> bool {
        matches!(self.function, Name::Address(_))
    }
}

/// Listings of the selected functions or files, hottest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The unit of the listings.
    pub unit: Unit,
    /// By self value, then total, then name.
    pub listings: Vec<Listing>,
}

/// A cell that a location adds to.
#[derive(Clone, Copy)]
struct Touch {
    cell: u32,
    /// It is the location's innermost frame, which has the self value.
    innermost: bool,
}

/// A place with a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Listing(Name, StrId),
    Line {
        listing: u32,
        line: i64,
    },
    /// A line of a function that was inlined at a line, or at another inlined line.
    Inlined {
        at: u32,
        function: Name,
        file: StrId,
        line: i64,
    },
    Address {
        listing: u32,
        file: StrId,
        build_id: StrId,
        offset: u64,
    },
}

/// A found place, and further facts of it.
struct Place {
    key: Key,
    mapping: Option<MappingId>,
    /// Of an address: it is the function's own code.
    own: bool,
    system_name: StrId,
}

/// The source file of each selected function in a binary, if all of its code with a file has the
/// same one; else empty.
type Files = FxHashMap<(Name, StrId), StrId>;

/// Stripped programs of Go have no file for code with inlined functions, but one for other code.
fn files(view: &View, selection: &Selection) -> Files {
    let mut files = Files::default();
    for i in (0..view.profile.locations.len()).take_while(|&i| view.goes_on(i)) {
        let id = LocationId(i as u32);
        let chain = view.frames.at(id).iter().filter(|&&at| selection.frames[at as usize]);
        for frame in chain.map(|&at| view.frames.get(at)).filter(|f| f.file != StrId::EMPTY) {
            let file = files.entry((frame.name, binary_of(view, id))).or_insert(frame.file);
            if *file != frame.file {
                *file = StrId::EMPTY;
            }
        }
    }
    files
}

/// Path of a location's binary, empty if unknown.
fn binary_of(view: &View, id: LocationId) -> StrId {
    let mapping = view.profile.locations[id.0 as usize].mapping;
    mapping.map_or(StrId::EMPTY, |m| view.profile.mappings[m.0 as usize].file)
}

/// The cells of the selected frames, and those that each location adds to.
struct Cells<'v, 'p> {
    view: &'v View<'p>,
    selection: &'v Selection,
    files: Files,
    index: FxHashMap<Key, u32>,
    places: Vec<Place>,
    touches: Vec<Touch>,
    /// End of each location's part of `touches`.
    ends: Vec<u32>,
}

impl Cells<'_, '_> {
    fn cell(&mut self, key: Key, mapping: Option<MappingId>) -> u32 {
        *self.index.entry(key).or_insert_with(|| {
            self.places.push(Place { key, mapping, own: false, system_name: StrId::EMPTY });
            self.places.len() as u32 - 1
        })
    }

    fn touch(&mut self, key: Key, mapping: Option<MappingId>, innermost: bool) -> u32 {
        let cell = self.cell(key, mapping);
        self.touches.push(Touch { cell, innermost });
        cell
    }

    /// Adds the cells of a location's selected frames.
    fn add_location(&mut self, id: LocationId) {
        let view = self.view;
        let chain = view.frames.at(id);
        let mapping = view.profile.locations[id.0 as usize].mapping;
        for (at, &frame_id) in chain.iter().enumerate() {
            if !self.selection.frames[frame_id as usize] {
                continue;
            }
            let mut frame = *view.frames.get(frame_id);
            if frame.file == StrId::EMPTY {
                let known = self.files.get(&(frame.name, binary_of(view, id)));
                frame.file = known.copied().unwrap_or_default();
            }
            let function = match (self.selection.code, self.selection.unit) {
                (Some(code), _) => code,
                (None, Unit::Function) => frame.name,
                (None, Unit::File) => Name::Any,
            };
            let innermost = at == 0;
            let listing = self.touch(Key::Listing(function, frame.file), mapping, innermost);
            if self.selection.unit == Unit::Function {
                self.places[listing as usize].system_name = frame.system_name;
                // The instruction was executed there, whatever it was inlined from.
                let address = self.touch(self.address(id, listing), mapping, true);
                self.places[address as usize].own |= at + 1 == chain.len();
            }
            let line = Key::Line { listing, line: frame.line };
            let mut parent = self.touch(line, mapping, innermost);
            for below in (0..at).rev().take(MAX_INLINED) {
                let inner = view.frames.get(chain[below]);
                let (function, file, line) = (inner.name, inner.file, inner.line);
                let key = Key::Inlined { at: parent, function, file, line };
                parent = self.touch(key, mapping, below == 0);
            }
        }
        self.ends.push(self.touches.len() as u32);
    }

    fn address(&self, id: LocationId, listing: u32) -> Key {
        let profile = self.view.profile;
        let location = &profile.locations[id.0 as usize];
        let mapping = location.mapping.map(|m| &profile.mappings[m.0 as usize]);
        let offset = address_in_file(profile, location);
        let (file, build_id) = match mapping {
            Some(m) if m.file != StrId::EMPTY => (m.file, m.build_id),
            _ => (StrId::EMPTY, StrId::EMPTY),
        };
        Key::Address { listing, file, build_id, offset }
    }

    /// The sums of all cells, of the samples of a view with these frames.
    fn sums(&self, view: &View) -> RowSums<RowValues> {
        let mut sums = RowSums::new(self.places.len());
        for sample in view.samples() {
            sums.begin_sample();
            let mut is_leaf = true;
            for &location in sample.stack {
                let i = location.0 as usize;
                let start = if i == 0 { 0 } else { self.ends[i - 1] };
                for touch in &self.touches[start as usize..self.ends[i] as usize] {
                    sums.add(touch.cell, sample.value, is_leaf && touch.innermost);
                }
                // The frames of a location may all be hidden.
                is_leaf &= self.view.frames.at(location).is_empty();
            }
        }
        sums
    }
}

impl Source {
    /// The listings of the selected frames of a view whose granularity includes lines.
    pub fn new(view: &View, selection: &Selection) -> Source {
        let mut cells = Cells {
            view,
            selection,
            files: files(view, selection),
            index: FxHashMap::default(),
            places: Vec::new(),
            touches: Vec::new(),
            ends: Vec::with_capacity(view.profile.locations.len()),
        };
        // After the signal, no sample follows that needs the other locations.
        for i in (0..view.profile.locations.len()).take_while(|&i| view.goes_on(i)) {
            cells.add_location(LocationId(i as u32));
        }
        let mut sums = cells.sums(view);
        if let Some(counts) = view.counts() {
            sums.average(&cells.sums(&counts));
        }
        let mut listings = listings(&cells, &sums);
        add_start_lines(view, &mut listings);
        let profile = view.profile;
        let name = |listing: &Listing| match listing.function {
            Name::Function(name) => profile.str(name),
            _ => "",
        };
        listings.sort_by(|a, b| {
            let by_value = |v: &RowValues| (v.self_value.unsigned_abs(), v.total.unsigned_abs());
            by_value(&b.values)
                .cmp(&by_value(&a.values))
                .then_with(|| name(a).cmp(name(b)))
                .then_with(|| profile.str(a.file).cmp(profile.str(b.file)))
        });
        Source { unit: selection.unit, listings }
    }
}

/// The lines of functions inlined below each cell, with their cells.
type Inlined = FxHashMap<u32, Vec<u32>>;

/// The listings of all cells with a value.
fn listings(cells: &Cells, sums: &RowSums<RowValues>) -> Vec<Listing> {
    let mut listings: Vec<Listing> = Vec::new();
    let mut number: FxHashMap<u32, usize> = FxHashMap::default();
    let mut below: Inlined = FxHashMap::default();
    let with_value = || {
        let sums = |i: usize| Some((i, *sums.get(i as u32)?));
        (0..cells.places.len()).filter_map(sums)
    };
    for (i, values) in with_value() {
        let place = &cells.places[i];
        match place.key {
            Key::Listing(function, file) => {
                number.insert(i as u32, listings.len());
                listings.push(Listing {
                    function,
                    system_name: place.system_name,
                    file,
                    start_line: 0,
                    values,
                    lines: Vec::new(),
                    addresses: Vec::new(),
                    mapping: place.mapping,
                });
            }
            Key::Inlined { at, .. } => below.entry(at).or_default().push(i as u32),
            Key::Line { .. } | Key::Address { .. } => {}
        }
    }
    let mut own = vec![false; listings.len()];
    for (i, _) in with_value() {
        if let Key::Address { listing, .. } = cells.places[i].key {
            own[number[&listing]] |= cells.places[i].own;
        }
    }
    for (i, values) in with_value() {
        let place = &cells.places[i];
        match place.key {
            Key::Line { listing, line } => {
                let inlined = inlined(cells, sums, &mut below, i as u32);
                listings[number[&listing]].lines.push(SourceLine { line, values, inlined });
            }
            Key::Address { listing, offset, .. } => {
                let number = number[&listing];
                if place.own || !own[number] {
                    let mapping = place.mapping;
                    listings[number].addresses.push(AddressValue { mapping, offset, values });
                }
            }
            Key::Listing(..) | Key::Inlined { .. } => {}
        }
    }
    for listing in &mut listings {
        listing.lines.sort_by_key(|line| line.line);
        listing.addresses.sort_by_key(|address| (address.mapping, address.offset));
    }
    listings
}

/// The inlined lines below a cell, in the order of a tree.
fn inlined(
    cells: &Cells,
    sums: &RowSums<RowValues>,
    below: &mut Inlined,
    line: u32,
) -> Vec<InlinedLine> {
    let values = |cell: u32| sums.get(cell).copied().unwrap_or_default();
    let mut out = Vec::new();
    let mut pending: Vec<(u32, u32)> = Vec::new();
    let mut next = Some((line, 0));
    while let Some((at, depth)) = next {
        if let Key::Inlined { function, file, line, .. } = cells.places[at as usize].key {
            out.push(InlinedLine { depth, function, file, line, values: values(at) });
        }
        let mut children = below.remove(&at).unwrap_or_default();
        let total = |&cell: &u32| values(cell).total.unsigned_abs();
        children.sort_by_key(|cell| (total(cell), std::cmp::Reverse(*cell)));
        pending.extend(children.into_iter().map(|cell| (cell, depth + 1)));
        next = pending.pop();
    }
    out
}

/// Sets the lines where the functions begin.
fn add_start_lines(view: &View, listings: &mut [Listing]) {
    let mut first: FxHashMap<(Name, StrId), i64> = FxHashMap::default();
    for function in view.profile.functions.iter().filter(|f| f.start_line > 0) {
        let name = if function.name == StrId::EMPTY { function.system_name } else { function.name };
        let line = first.entry((Name::Function(name), function.filename)).or_insert(i64::MAX);
        *line = function.start_line.min(*line);
    }
    for listing in listings {
        let key = (listing.function, listing.file);
        listing.start_line = first.get(&key).copied().unwrap_or(0);
    }
}

/// Names of all functions and files of a view, for suggestions.
pub fn candidates<'p>(view: &View<'p>) -> Vec<&'p str> {
    let mut names: Vec<&str> = Vec::new();
    for frame in (0..view.frames.len()).map(|i| view.frames.get(i as u32)) {
        if let Name::Function(name) = frame.name {
            names.push(view.profile.str(name));
        }
        if frame.file != StrId::EMPTY {
            names.push(base_name(view.profile.str(frame.file)));
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests;
