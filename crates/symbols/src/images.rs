//! Addresses relative to the lowest one of an image, as the Firefox Profiler and Breakpad have them,
//! as offsets in the file.

use profile::{Mapping, MappingId, Profile};

use super::SymbolOptions;
use super::source::{Access, PAGE, SymbolFiles, find};

/// Makes the addresses in mappings that begin at 0, which are relative to the lowest address of their
/// binary's segments, offsets in the file.
///
/// Those of a binary that is not found, or that has no such address, stay as they are, and their
/// functions pass for looked up: their offsets are not known.
pub fn place_in_files(profile: &mut Profile, options: &SymbolOptions) {
    let mut by_mapping: Vec<Vec<u32>> = vec![Vec::new(); profile.mappings.len()];
    for (number, location) in (0..).zip(&profile.locations) {
        if let Some(mapping) = location.mapping.filter(|_| location.address != 0) {
            by_mapping[mapping.0 as usize].push(number);
        }
    }
    for (number, locations) in by_mapping.into_iter().enumerate() {
        let mapping = &mut profile.mappings[number];
        if mapping.has_functions || locations.is_empty() {
            continue;
        }
        let name = profile.strings.get(mapping.file);
        let build_id = profile.strings.get(mapping.build_id);
        match find(name, build_id, Access::default(), options) {
            Ok(files) => place(profile, number, &locations, &files),
            Err(_) => mapping.has_functions = true,
        }
    }
}

fn place(profile: &mut Profile, number: usize, locations: &[u32], files: &SymbolFiles) {
    let lowest = files.headers.segments.iter().map(|segment| segment.address).min();
    let base = lowest.unwrap_or(0) & !(PAGE - 1);
    let mut outside = Vec::new();
    for &location in locations {
        let place = &mut profile.locations[location as usize];
        let address = base.checked_add(place.address);
        match address.and_then(|address| files.address_in_mapping(address)) {
            Some(offset) => place.address = offset,
            None => outside.push(location),
        }
    }
    if !outside.is_empty() {
        let unknown = Mapping { has_functions: true, ..profile.mappings[number].clone() };
        let id = MappingId(profile.mappings.len() as u32);
        profile.mappings.push(unknown);
        for location in outside {
            profile.locations[location as usize].mapping = Some(id);
        }
    }
}
