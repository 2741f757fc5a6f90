//! Recordings that have only addresses.

use std::path::Path;

use formats::pprof;
use object::{Object, ObjectSegment};
use profile::{Builder, Column, LabelSetId, Mapping, Profile};

/// A recording of `program` with a sample at each of `addresses` (link-time ones); the first one
/// weighs 1 ms, the second 2 ms and so on.
pub fn unnamed(program: &Path, addresses: &[u64]) -> Profile {
    let data = std::fs::read(program).unwrap();
    let elf = object::File::parse(&*data).unwrap();
    let code = elf.segments().find(|s| s.permissions().executable()).unwrap();
    let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
    let file = b.profile.strings.intern(program.to_str().unwrap());
    let id = elf.build_id().unwrap().unwrap_or_default();
    let id: String = id.iter().map(|b| format!("{b:02x}")).collect();
    let build_id = b.profile.strings.intern(&id);
    let mapping = b.add_mapping(Mapping {
        start: code.address() & !4095,
        limit: code.address() + code.size(),
        file_offset: code.file_range().0 & !4095,
        file,
        build_id,
        ..Mapping::default()
    });
    for (&address, weight) in addresses.iter().zip(1..) {
        let location = b.location(Some(mapping), address);
        b.add(&[location], LabelSetId::EMPTY, 1, &[(Column(1), weight * 1_000_000)]);
    }
    b.finish(None)
}

/// Writes a recording.
pub fn write(profile: &Profile, path: &Path) {
    pprof::write(profile, std::fs::File::create(path).unwrap()).unwrap();
}
