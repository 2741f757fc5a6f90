//! Converts the aggregated samples to a profile at the end of a recording.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::StackMaker;
use profile::{MappingId, Profile, comment};
use sys::FileAddress;
use sys::foreign::Root;
use sys::image::{Hit, Images, State};
use sys::jit;
use unwind::{ElfPlace, Place};

/// The profile of a recording, before symbolization.
pub struct Aggregated {
    /// The profile.
    pub profile: Profile,
    /// Current paths of the mappings' files, by mapping index.
    pub files: HashMap<u32, PathBuf>,
    /// Root directories of the processes that mapped them, if not prof's own, by mapping index.
    pub roots: HashMap<u32, Arc<Root>>,
    /// Code generated at run time, by mapping index.
    pub run_time: HashMap<u32, Arc<jit::Epoch>>,
    /// Mappings whose files changed while recording, without a build ID that proves it.
    pub changed: HashSet<u32>,
    /// Keeps the paths valid.
    pub images: Images,
}

impl StackMaker {
    /// The profile. The main binary is that of `main`, or of the process with most samples.
    pub fn into_profile(mut self, main: Option<i32>) -> Aggregated {
        let run_time = self.name_run_time_code();
        self.kernel_code.name(&mut self.builder.profile, self.kernel);
        self.name_interpreters();
        let main = self.main_mapping_of(main);
        // Builder::finish swaps the main mapping with the first.
        let index = |id: MappingId| match main {
            Some(main) if id == main => 0,
            Some(main) if id.0 == 0 => main.0,
            _ => id.0,
        };
        let images = self.table.images;
        let mut files = HashMap::new();
        let mut roots = HashMap::new();
        let mut changed = HashSet::new();
        for (image, slots) in self.mappings.iter().enumerate() {
            if images.get(image as u32).has_changed() {
                changed.extend(slots.iter().flatten().map(|&id| index(id)));
            }
            if let Some(root) = self.root_of_image.get(&(image as u32)) {
                roots.extend(slots.iter().flatten().map(|&id| (index(id), root.clone())));
            }
            let Some(path) = images.get(image as u32).path_now() else { continue };
            files.extend(slots.iter().flatten().map(|&id| (index(id), path.clone())));
        }
        let run_time = run_time.into_iter().map(|(id, epoch)| (index(id), epoch)).collect();
        let profile = self.builder.finish(main);
        Aggregated { profile, files, roots, run_time, changed, images }
    }

    /// States which files are interpreters.
    fn name_interpreters(&mut self) {
        let comment = |file| format!("{}: {file}", comment::INTERPRETER);
        let comments: Vec<String> = self.interpreter_files().map(comment).collect();
        let profile = &mut self.builder.profile;
        for comment in comments {
            profile.comments.push(profile.strings.intern(&comment));
        }
    }

    /// The paths of interpreters.
    pub(super) fn interpreter_files(&self) -> impl Iterator<Item = &str> {
        let files = self.interpreters.images();
        let files = files.map(|image| &*self.table.images.get(image).path);
        files.chain(self.interpreters.stub_file())
    }

    /// Names the mappings of code generated at run time like perf: by the file that has the
    /// symbols.
    fn name_run_time_code(&mut self) -> Vec<(MappingId, Arc<jit::Epoch>)> {
        let epochs = std::mem::take(&mut self.table.jit).finish();
        let mut named = Vec::new();
        for (&(image, epoch), &id) in &self.run_time {
            let Some(epoch) = epochs.get(epoch as usize) else { continue };
            let sources = &epoch.sources;
            let file = match (&sources.dump, &sources.map) {
                (Some(_), _) => sources.dump_path.clone(),
                // A file in place of the map that is not a map.
                (None, map) if map.is_some() || sources.refused => {
                    format!("/tmp/perf-{}.map", self.table.images.get(image).pid)
                }
                (None, _) => continue,
            };
            let profile = &mut self.builder.profile;
            profile.mappings[id.0 as usize].file = profile.strings.intern(&file);
            named.push((id, epoch.clone()));
        }
        named
    }

    /// The main binary of `main`, or of the process with most samples.
    pub(super) fn main_mapping_of(&mut self, main: Option<i32>) -> Option<MappingId> {
        let main = main.or_else(|| {
            let most = self.counts.by_process.iter().filter(|&(&pid, _)| pid > 0);
            most.max_by_key(|&(pid, n)| (n, -pid)).map(|(&pid, _)| pid)
        });
        self.main_mapping(main?)
    }

    fn main_mapping(&mut self, pid: i32) -> Option<MappingId> {
        let process = self.table.process(pid);
        let image = process.main_image?;
        let region = process.regions.iter().find(|r| r.image == image);
        let hit = region.map_or(Hit { pid, start: 0, end: 0 }, |r| Hit {
            pid,
            start: r.start,
            end: r.end,
        });
        let image = self.table.images.load(image, hit);
        if let Some(id) = self.mappings.get(image as usize).and_then(|m| m.iter().flatten().next())
        {
            return Some(*id);
        }
        let State::Elf(loaded) = &self.table.images.get(image).state else { return None };
        let address = FileAddress(loaded.elf.segments.first()?.address);
        self.mapping_of(Place::Elf(ElfPlace { image, segment: 0, address }))
    }
}
