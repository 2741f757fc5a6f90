//! Parts of the aggregated samples, while the recording goes on.

use rustc_hash::FxHashSet;

use super::StackMaker;
use crate::sampler::recording::{LivePart, PartSpan};
use profile::{MappingId, PartMarks};

impl StackMaker {
    /// Takes what was added since the previous part, with the files of its new addresses. `main` is
    /// the process of the main binary; without one, that with most samples.
    pub fn take_part(
        &mut self,
        marks: &mut PartMarks,
        main: Option<i32>,
        PartSpan { lasted, stats }: PartSpan,
    ) -> LivePart {
        let main = self.main_mapping_of(main);
        // Data that cannot be read back is missing; it was spilled because nobody took parts.
        let (mut part, _) = self.builder.take_part(marks);
        part.main = main;
        let new = part.locations.iter().filter_map(|new| new.location.mapping);
        let new: FxHashSet<MappingId> = new.collect();
        let mut files = Vec::new();
        let mut roots = Vec::new();
        let mut changed = Vec::new();
        for (image, slots) in self.mappings.iter().enumerate() {
            let new = slots.iter().flatten().copied().filter(|id| new.contains(id));
            let new: Vec<MappingId> = new.collect();
            if new.is_empty() {
                continue;
            }
            if let Some(root) = self.root_of_image.get(&(image as u32)) {
                roots.extend(new.iter().map(|&id| (id, root.clone())));
            }
            let image = self.table.images.get(image as u32);
            if image.has_changed() {
                changed.extend(&new);
            }
            if let Some(path) = image.path_now() {
                files.extend(new.into_iter().map(|id| (id, path.clone())));
            }
        }
        let added = self.run_time.iter().filter(|(_, id)| new.contains(id));
        let run_time = added.filter_map(|(&(_, epoch), &id)| {
            let file = self.table.jit.file_of(epoch)?;
            Some((id, file))
        });
        let run_time = run_time.collect();
        let interpreters = self.interpreter_files().map(str::to_owned).collect();
        LivePart { part, lasted, stats, files, roots, run_time, changed, interpreters }
    }
}
