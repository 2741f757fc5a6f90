//! Names of the locations in windows: requested once, and taken over when they are known.

use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Windows;
use crate::{Function, FunctionId, Line, Location, LocationId, Mapping, MappingId, Profile, StrId};

/// Path and build ID of a binary.
type BinaryKey = (StrId, StrId);

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
        let mut locations: Vec<LocationId> =
            std::mem::take(&mut self.unnamed).into_iter().collect();
        locations.sort_unstable();
        self.request(locations)
    }

    /// Those of them in the binaries that are worth most: with the largest part of the samples of
    /// [`LiveWindow::Recent`](super::LiveWindow::Recent) for the `cost` of a lookup in a file. The
    /// costs of all binaries add up to `most` at most, but for the first.
    pub fn request_best(
        &mut self,
        cost: impl Fn(&str) -> Duration,
        most: Duration,
    ) -> Option<NameRequest> {
        let mut files: Vec<(f64, Duration, BinaryKey)> = self
            .unnamed_sums()
            .into_iter()
            .map(|(file, sum)| {
                let cost = cost(self.tables.str(file.0));
                (sum as f64 / cost.as_secs_f64().max(1e-6), cost, file)
            })
            .collect();
        files.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.2.cmp(&b.2)));
        let mut total = Duration::ZERO;
        let taken = files.iter().take_while(|(_, cost, _)| {
            let is_first = total.is_zero();
            total += *cost;
            is_first || total <= most
        });
        let taken: FxHashSet<BinaryKey> = taken.map(|&(.., file)| file).collect();
        let is_taken =
            |&id: &LocationId| self.binary_of(id).is_some_and(|file| taken.contains(&file));
        let mut locations: Vec<LocationId> =
            self.unnamed.iter().copied().filter(is_taken).collect();
        locations.sort_unstable();
        self.unnamed.retain(|id| locations.binary_search(id).is_err());
        self.request(locations)
    }

    /// The binary of a location.
    fn binary_of(&self, location: LocationId) -> Option<BinaryKey> {
        let mapping = self.tables.locations[location.0 as usize].mapping?;
        let mapping = &self.tables.mappings[mapping.0 as usize];
        Some((mapping.file, mapping.build_id))
    }

    /// The values of stacks with names that were not requested, by their binaries. What is
    /// innermost counts more: tables begin with it.
    fn unnamed_sums(&self) -> FxHashMap<BinaryKey, u128> {
        const INNERMOST: u128 = 4;
        let width = self.width();
        let files = self.unnamed.iter().filter_map(|&id| self.binary_of(id));
        // What is in no stack of the last seconds comes after all others.
        let mut sums_of: FxHashMap<BinaryKey, u128> = files.map(|file| (file, 0)).collect();
        for sums in self.recent.iter().filter(|_| width > 0 && self.has_unnamed()) {
            for (&(stack, _), values) in sums.rows.iter().zip(sums.values.chunks(width)) {
                let value = u128::from(values[0].unsigned_abs());
                let mut last = None;
                for (depth, location) in self.stacks.table.get(stack).iter().enumerate() {
                    let is_unnamed = self.unnamed.contains(location);
                    let Some(file) = is_unnamed.then(|| self.binary_of(*location)).flatten() else {
                        continue;
                    };
                    if last != Some(file) {
                        let weight = if depth == 0 { INNERMOST } else { 1 };
                        *sums_of.entry(file).or_default() += weight * value;
                    }
                    last = Some(file);
                }
            }
        }
        sums_of
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
