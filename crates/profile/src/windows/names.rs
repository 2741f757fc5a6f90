//! Names of the locations in windows: requested once, and taken over when they are known.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Windows;
use crate::{Function, FunctionId, Line, Location, LocationId, Mapping, MappingId, Profile};

/// Locations without names, as a profile without samples.
pub struct NameRequest {
    /// Their binaries and addresses; to be symbolized.
    pub profile: Profile,
    /// The builder's mapping of each mapping of `profile`.
    pub mappings: Vec<MappingId>,
    /// Location in the windows of each location of `profile`.
    locations: Vec<LocationId>,
}

impl Windows {
    /// True if there are locations whose names were never requested.
    pub fn has_unnamed(&self) -> bool {
        !self.unnamed.is_empty()
    }

    /// The locations without names that were not requested before.
    pub fn request_names(&mut self) -> Option<NameRequest> {
        let locations = std::mem::take(&mut self.unnamed);
        self.request(locations)
    }

    /// Those of them in binaries of which none was requested before, and whose code is the innermost
    /// frame of at least this part, in percent, of [`LiveWindow::Recent`](super::LiveWindow::Recent).
    pub fn request_new_binaries(&mut self, percent: u64) -> Option<NameRequest> {
        let new = self.new_binaries(percent);
        let is_new = |location: &LocationId| {
            let mapping = self.tables.locations[location.0 as usize].mapping;
            mapping.is_some_and(|mapping| new.contains(&mapping))
        };
        let (locations, rest) = std::mem::take(&mut self.unnamed).into_iter().partition(is_new);
        self.unnamed = rest;
        self.request(locations)
    }

    fn new_binaries(&self, percent: u64) -> FxHashSet<MappingId> {
        let width = self.width();
        let mut sums_of: FxHashMap<MappingId, u64> = FxHashMap::default();
        let mut total = 0u64;
        for sums in self.recent.iter().filter(|_| width > 0) {
            for (&(stack, _), values) in sums.rows.iter().zip(sums.values.chunks(width)) {
                let value = values[0].unsigned_abs();
                total = total.saturating_add(value);
                let leaf = self.stacks.table.get(stack).first();
                let mapping = leaf.and_then(|l| self.tables.locations[l.0 as usize].mapping);
                if let Some(mapping) = mapping.filter(|m| !self.requested.contains(m)) {
                    let sum = sums_of.entry(mapping).or_default();
                    *sum = sum.saturating_add(value);
                }
            }
        }
        let least = u128::from(total) * u128::from(percent);
        sums_of
            .into_iter()
            .filter(|&(_, sum)| u128::from(sum) * 100 >= least)
            .map(|(mapping, _)| mapping)
            .collect()
    }

    fn request(&mut self, locations: Vec<LocationId>) -> Option<NameRequest> {
        if locations.is_empty() {
            return None;
        }
        let mut profile = Profile::default();
        let mut mappings = Vec::new();
        let mut placed: FxHashMap<MappingId, MappingId> = FxHashMap::default();
        for &id in &locations {
            let location = self.tables.locations[id.0 as usize].clone();
            let mapping = location.mapping.map(|mapping| {
                *placed.entry(mapping).or_insert_with(|| {
                    let known_mapping = &self.tables.mappings[mapping.0 as usize];
                    let mut string = |id| profile.strings.intern(self.tables.str(id));
                    let (file, build_id) =
                        (string(known_mapping.file), string(known_mapping.build_id));
                    profile.mappings.push(Mapping { file, build_id, ..known_mapping.clone() });
                    let known_index = self.mappings.iter().position(|&known| known == mapping);
                    mappings.push(MappingId(known_index.unwrap_or(usize::MAX) as u32));
                    MappingId(profile.mappings.len() as u32 - 1)
                })
            });
            profile.locations.push(Location { mapping, ..location });
        }
        self.requested.extend(placed.into_keys());
        Some(NameRequest { profile, mappings, locations })
    }

    /// Takes over the names of a request whose profile was symbolized.
    pub fn name(&mut self, request: &NameRequest) {
        let NameRequest { profile, mappings, locations } = request;
        let mut added: FxHashMap<MappingId, MappingId> = FxHashMap::default();
        for (i, mapping) in profile.mappings.iter().enumerate().take(mappings.len()) {
            let Some(&id) = self.mappings.get(mappings[i].0 as usize) else { continue };
            let known = &mut self.tables.mappings[id.0 as usize];
            known.has_functions |= mapping.has_functions;
            known.has_filenames |= mapping.has_filenames;
            known.has_line_numbers |= mapping.has_line_numbers;
            known.has_inline_frames |= mapping.has_inline_frames;
        }
        for (i, &id) in (0..).map(LocationId).zip(locations) {
            let named: Vec<Line> = profile.lines_of(i).to_vec();
            let lines: Vec<Line> = named
                .into_iter()
                .map(|line| {
                    let function = self.named_function(profile, line.function);
                    Line { function, ..line }
                })
                .collect();
            if !lines.is_empty() {
                self.tables.set_lines(id, &lines);
            }
            // Symbolization has found the kernel module of an address.
            let now = profile.locations[i.0 as usize].mapping;
            if let Some(now) = now.filter(|now| now.0 as usize >= mappings.len()) {
                let mapping =
                    *added.entry(now).or_insert_with(|| self.module_mapping(profile, now));
                self.tables.locations[id.0 as usize].mapping = Some(mapping);
            }
        }
    }

    fn named_function(&mut self, profile: &Profile, function: FunctionId) -> FunctionId {
        let function = profile.functions[function.0 as usize];
        let strings = &mut self.tables.strings;
        let mut string = |id| strings.intern(profile.str(id));
        let function = Function {
            name: string(function.name),
            system_name: string(function.system_name),
            filename: string(function.filename),
            start_line: function.start_line,
        };
        self.function(function)
    }

    /// The mapping of a kernel module: each has one.
    fn module_mapping(&mut self, profile: &Profile, mapping: MappingId) -> MappingId {
        let new = &profile.mappings[mapping.0 as usize];
        let file = self.tables.strings.intern(profile.str(new.file));
        let build_id = self.tables.strings.intern(profile.str(new.build_id));
        let is_module = |m: &Mapping| m.file == file && m.build_id == build_id;
        if let Some(known) = self.tables.mappings.iter().position(is_module) {
            let known_mapping = &mut self.tables.mappings[known];
            known_mapping.start = known_mapping.start.min(new.start);
            known_mapping.limit = known_mapping.limit.max(new.limit);
            return MappingId(known as u32);
        }
        self.tables.mappings.push(Mapping { file, build_id, ..new.clone() });
        MappingId(self.tables.mappings.len() as u32 - 1)
    }
}
