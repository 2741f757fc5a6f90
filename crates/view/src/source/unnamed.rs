//! Code without a name, selected by one of its addresses.

use rustc_hash::FxHashSet;

use super::Selection;
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

impl Selection {
    /// The frames of code without a name, as one listing that is called as `frame`.
    pub fn unnamed_code(view: &View, frame: u32, frames: &[u32]) -> Selection {
        let mut selected = vec![false; view.frames.len()];
        for &frame in frames.iter().chain([&frame]) {
            selected[frame as usize] = true;
        }
        let code = Some(view.frames.get(frame).name);
        Selection { unit: super::Unit::Function, frames: selected, code }
    }

    /// True for code without a name, which has no source lines.
    pub fn is_unnamed(&self) -> bool {
        self.code.is_some()
    }
}
