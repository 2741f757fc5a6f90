//! Addresses relative to the lowest one of an image, as the Firefox Profiler and Breakpad have them,
//! as offsets in the file.

use profile::{Location, Mapping, MappingId, Profile};

use super::SymbolOptions;
use super::source::{Access, PAGE, SymbolFiles, find};

/// Makes the addresses in mappings that begin at 0, which are relative to the lowest address of their
/// binary's segments, offsets in the file.
///
/// A binary that is not found keeps them, and its functions pass for looked up: its offsets are not
/// known.
pub fn place_in_files(profile: &mut Profile, options: &SymbolOptions) {
    for (id, mapping) in (0..).map(MappingId).zip(&mut profile.mappings) {
        if mapping.has_functions {
            continue;
        }
        let locations = &mut profile.locations;
        let mut locations = locations
            .iter_mut()
            .filter(|location| location.mapping == Some(id) && location.address != 0)
            .peekable();
        if locations.peek().is_none() {
            continue;
        }
        let name = profile.strings.get(mapping.file);
        let build_id = profile.strings.get(mapping.build_id);
        match find(name, build_id, Access::default(), options) {
            Ok(files) => place(locations, mapping, &files),
            Err(_) => mapping.has_functions = true,
        }
    }
}

fn place<'l>(
    locations: impl Iterator<Item = &'l mut Location>,
    mapping: &mut Mapping,
    files: &SymbolFiles,
) {
    let Some(lowest) = files.headers.segments.iter().map(|segment| segment.address).min() else {
        mapping.has_functions = true;
        return;
    };
    let base = lowest & !(PAGE - 1);
    for location in locations {
        let address = base.checked_add(location.address);
        let offset = address.and_then(|address| files.address_in_mapping(address));
        location.address = offset.unwrap_or(0);
    }
}
