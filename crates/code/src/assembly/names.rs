//! Source lines of instructions, and names of what they call and of the memory that they state.

use std::collections::BTreeMap;

use profile::{Location, LocationId, Mapping, MappingId, Profile};
use symbols::{Binary, NameAt, SymbolOptions};
use sys::{FileAddress, FileOffset};

use super::{Instruction, Piece, Place, Request};

/// Places of some addresses, looked up as those of a profile are.
struct Places {
    profile: Profile,
    numbers: BTreeMap<u64, u32>,
}

impl Places {
    fn find(
        addresses: impl Iterator<Item = FileAddress>,
        binary: Option<&Binary>,
        request: &Request<'_>,
        options: &SymbolOptions,
    ) -> Places {
        let mut profile = Profile::default();
        let file = profile.strings.intern(request.binary);
        let build_id = profile.strings.intern(request.build_id);
        profile.mappings.push(Mapping { limit: u64::MAX, file, build_id, ..Mapping::default() });
        let mut numbers: BTreeMap<u64, u32> = BTreeMap::new();
        for address in addresses {
            let offset = match binary {
                Some(binary) => binary.offset_of(address),
                // Code made at run time has addresses of its process.
                None => Some(FileOffset(address.0)),
            };
            let Some(FileOffset(offset)) = offset else { continue };
            numbers.entry(address.0).or_insert_with(|| {
                let mapping = Some(MappingId(0));
                profile.locations.push(Location {
                    mapping,
                    address: offset,
                    ..Location::default()
                });
                profile.locations.len() as u32 - 1
            });
        }
        if !numbers.is_empty() {
            symbols::symbolize(&mut profile, options, &|_, _| {});
        }
        Places { profile, numbers }
    }

    /// The places of an address, innermost function first.
    fn at(&self, address: FileAddress) -> Vec<Place> {
        let Some(&number) = self.numbers.get(&address.0) else { return Vec::new() };
        let lines = self.profile.lines_of(LocationId(number)).iter();
        let place = |line: &profile::Line| {
            let function = &self.profile.functions[line.function.0 as usize];
            Place {
                function: self.profile.str(function.name).to_owned(),
                file: self.profile.str(function.filename).to_owned(),
                line: line.line,
            }
        };
        lines.map(place).collect()
    }
}

/// Adds the source of each instruction.
pub fn add_source(
    pieces: &mut [Piece],
    binary: &Binary,
    request: &Request<'_>,
    options: &SymbolOptions,
) {
    let addresses = pieces.iter().flat_map(|piece| &piece.instructions).map(|i| i.address);
    let places = Places::find(addresses, Some(binary), request, options);
    for instruction in pieces.iter_mut().flat_map(|piece| &mut piece.instructions) {
        instruction.places = places.at(instruction.address);
    }
}

/// Adds the names of the functions that instructions call, and of the memory that they state. These
/// are in symbol tables: debug information would be read for each of them. A program without
/// symbols may still have names of functions.
pub fn add_names(
    pieces: &mut [Piece],
    binary: &Binary,
    request: &Request<'_>,
    options: &SymbolOptions,
) {
    let mut addresses: Vec<FileAddress> = Vec::new();
    for piece in pieces.iter() {
        for instruction in &piece.instructions {
            let target = instruction.target.as_ref().map(|target| target.address);
            addresses.extend(target.filter(|target| !piece.function.contains(&target.0)));
            addresses.extend(instruction.reference.as_ref().map(|reference| reference.address));
        }
    }
    addresses.sort_unstable_by_key(|address| address.0);
    addresses.dedup();
    let found = binary.names_at(&addresses, options.demangle);
    let names: BTreeMap<u64, NameAt> = addresses
        .iter()
        .zip(found)
        .filter_map(|(address, name)| Some((address.0, name?)))
        .collect();
    let unnamed = |piece: &Piece, target: FileAddress| {
        !piece.function.contains(&target.0) && !names.contains_key(&target.0)
    };
    let targets = pieces.iter().flat_map(|piece| {
        let targets = piece.instructions.iter().filter_map(|i| Some(i.target.as_ref()?.address));
        targets.filter(|&target| unnamed(piece, target))
    });
    let places = Places::find(targets, Some(binary), request, options);
    for piece in pieces {
        let range = piece.function.clone();
        for instruction in &mut piece.instructions {
            if let Some(target) = &mut instruction.target
                && !range.contains(&target.address.0)
            {
                let outermost = || places.at(target.address).pop().map(|place| place.function);
                let name = names.get(&target.address.0).map(|found| found.name.clone());
                target.name = name.or_else(outermost).unwrap_or_default();
            }
            let reference = instruction.reference.as_mut();
            if let Some((reference, found)) =
                reference.and_then(|r| names.get(&r.address.0).map(|found| (r, found)))
            {
                reference.name.clone_from(&found.name);
                reference.offset = found.offset;
                reference.slot = found.slot;
            }
        }
    }
}

/// Adds source and names of called functions to code made at run time.
pub fn add_jit(pieces: &mut [Piece], request: &Request<'_>, options: &SymbolOptions) {
    let own_and_target = |instruction: &Instruction| {
        let target = instruction.target.as_ref().map(|target| target.address);
        [Some(instruction.address), target]
    };
    let addresses =
        pieces.iter().flat_map(|piece| &piece.instructions).flat_map(own_and_target).flatten();
    let places = Places::find(addresses, None, request, options);
    for piece in pieces {
        let range = piece.function.clone();
        for instruction in &mut piece.instructions {
            instruction.places = places.at(instruction.address);
            if let Some(target) = &mut instruction.target
                && !range.contains(&target.address.0)
            {
                let outermost = places.at(target.address).pop();
                target.name = outermost.map(|place| place.function).unwrap_or_default();
            }
        }
    }
}
