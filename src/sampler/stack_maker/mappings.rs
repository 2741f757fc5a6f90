//! The mappings of a stack's frames in the profile.

use super::{Moment, StackMaker};
use profile::{Mapping, MappingId};
use sys::ProcessAddress;
use sys::arch::KERNEL_START;
use sys::elf::{build_id_in_notes, hex};
use sys::image::State;
use unwind::Place;

impl StackMaker {
    pub(super) fn kernel_mapping_of(&mut self, address: u64) -> MappingId {
        let known = self.kernel_code.mapping(address, &mut self.builder);
        known.unwrap_or_else(|| self.kernel_mapping())
    }

    pub(super) fn kernel_mapping(&mut self) -> MappingId {
        if let Some(id) = self.kernel {
            return id;
        }
        let notes = std::fs::read("/sys/kernel/notes").unwrap_or_default();
        let build_id = build_id_in_notes(&notes).unwrap_or_default();
        let strings = &mut self.builder.profile.strings;
        let mapping = Mapping {
            start: KERNEL_START,
            limit: u64::MAX,
            file: strings.intern("[kernel.kallsyms]"),
            build_id: strings.intern(&hex(&build_id)),
            ..Mapping::default()
        };
        *self.kernel.insert(self.builder.add_mapping(mapping))
    }

    pub(super) fn mapping_of(&mut self, place: Place) -> Option<MappingId> {
        let (image, slot) = match place {
            Place::Elf(place) => (place.image, usize::from(place.segment) + 1),
            Place::File { image, .. } => (image, 0),
            Place::Memory { image, address } => {
                let maker = self.table.images.get(image).pid;
                return Some(self.run_time_mapping(image, maker, address));
            }
            Place::Unmapped { .. } => return None,
        };
        if let Some(Some(id)) = self.mappings.get(image as usize).and_then(|m| m.get(slot)) {
            return Some(*id);
        }
        if !self.root_of_image.contains_key(&image)
            && let Some(root) = self.roots.get(self.now.pid)
        {
            self.root_of_image.insert(image, root);
        }
        if self.mappings.len() <= image as usize {
            self.mappings.resize_with(image as usize + 1, Vec::new);
        }
        let slots = &mut self.mappings[image as usize];
        if slots.len() <= slot {
            slots.resize(slot + 1, None);
        }
        let (start, limit, file_offset) = match &self.table.images.get(image).state {
            State::Elf(loaded) if slot > 0 => loaded.elf.mapping_of(slot - 1),
            _ => (0, u64::MAX, 0),
        };
        let file = self.table.images.get(image);
        let strings = &mut self.builder.profile.strings;
        let mapping = Mapping {
            start,
            limit,
            file_offset,
            file: strings.intern(&file.path),
            build_id: strings.intern(&hex(&file.build_id)),
            ..Mapping::default()
        };
        let id = self.builder.add_mapping(mapping);
        self.mappings[image as usize][slot] = Some(id);
        Some(id)
    }

    /// Mapping of code that a process generated at run time, until it changes.
    fn run_time_mapping(&mut self, image: u32, maker: i32, address: ProcessAddress) -> MappingId {
        let Moment { pid, time, .. } = self.now;
        let epoch = self.table.jit.sampled(pid, maker, address.0, time);
        if let Some(&id) = self.run_time.get(&(image, epoch)) {
            return id;
        }
        let profile = &mut self.builder.profile;
        let file = profile.strings.intern(&self.table.images.get(image).path);
        let mapping = Mapping { limit: u64::MAX, file, ..Mapping::default() };
        let id = self.builder.add_mapping(mapping);
        self.run_time.insert((image, epoch), id);
        id
    }
}
