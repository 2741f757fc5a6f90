//! Code without a name, selected by one of its addresses.

use rustc_hash::FxHashSet;

use super::{Selection, Unit};
use crate::{Name, View};
use profile::{LocationId, StrId};

/// An address of a binary without a function, which is a row of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnnamedAddress {
    /// Its frame in the view.
    pub frame: u32,
    /// Path of the binary.
    pub binary: StrId,
    /// The binary's build ID, empty if unknown.
    pub build_id: StrId,
    /// Offset in the binary's file.
    pub offset: u64,
}

impl UnnamedAddress {
    /// All of a view, each once.
    pub fn all(view: &View) -> Vec<UnnamedAddress> {
        let mut seen = FxHashSet::default();
        let mut all = Vec::new();
        for i in (0..view.profile.locations.len()).take_while(|&i| view.goes_on(i)) {
            let id = LocationId(i as u32);
            let mapping = view.profile.locations[i].mapping;
            let Some(mapping) = mapping.map(|m| &view.profile.mappings[m.0 as usize]) else {
                continue;
            };
            for &frame in view.frames.at(id) {
                let Name::Address(offset) = view.frames.get(frame).name else { continue };
                let (binary, build_id) = (mapping.file, mapping.build_id);
                let address = UnnamedAddress { frame, binary, build_id, offset };
                if binary != StrId::EMPTY && seen.insert(address) {
                    all.push(address);
                }
            }
        }
        all
    }

    /// True if tables show it under this name.
    pub fn has_name(&self, view: &View, name: &str) -> bool {
        view.frames.get(self.frame).display(view.profile) == name
    }
}

/// The bounds of functions, which the files of binaries have.
pub trait CodeBounds {
    /// For each of these offsets in the file of a binary, whether its code is in the same function
    /// as that at the offset `at`. Empty if the file is missing.
    fn same_function(&self, binary: &str, build_id: &str, at: u64, offsets: &[u64]) -> Vec<bool>;
}

/// No binary has a file.
pub struct NoBounds;

impl CodeBounds for NoBounds {
    fn same_function(&self, _: &str, _: &str, _: u64, _: &[u64]) -> Vec<bool> {
        Vec::new()
    }
}

impl Selection {
    /// The code around the address without a name that tables show as `what`: all addresses without
    /// a name in the same function, as one listing. `None` if there is no such row.
    pub(super) fn unnamed(view: &View, what: &str, bounds: &dyn CodeBounds) -> Option<Selection> {
        let all = UnnamedAddress::all(view);
        let rows: Vec<_> = all.iter().filter(|address| address.has_name(view, what)).collect();
        let first = rows.first()?;
        let mut frames = vec![false; view.frames.len()];
        // Without the binary, the listing has this address only, and its code states the cause.
        frames[first.frame as usize] = true;
        for row in &rows {
            let is_there = |other: &&UnnamedAddress| {
                (other.binary, other.build_id) == (row.binary, row.build_id)
            };
            let others: Vec<_> = all.iter().filter(is_there).collect();
            let offsets: Vec<u64> = others.iter().map(|other| other.offset).collect();
            let [binary, build_id] = [row.binary, row.build_id].map(|id| view.profile.str(id));
            let same = bounds.same_function(binary, build_id, row.offset, &offsets);
            let found = others.iter().zip(same).filter(|(_, same)| *same);
            found.for_each(|(other, _)| frames[other.frame as usize] = true);
        }
        let code = Some(view.frames.get(first.frame).name);
        Some(Selection { unit: Unit::Function, frames, code })
    }

    /// True for code without a name, which has no source lines.
    pub fn is_unnamed(&self) -> bool {
        self.code.is_some()
    }
}
