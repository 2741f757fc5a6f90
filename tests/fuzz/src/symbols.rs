//! An ELF file with debug information, as a target may have mapped it, and a request for its names.
#![no_main]

use std::io::Write;

use libfuzzer_sys::fuzz_target;
use profile::{Builder, Mapping};
use symbols::SymbolOptions;

fuzz_target!(|data: &[u8]| {
    if data.len() < 64 {
        return;
    }
    let mut file = tempfile::NamedTempFile::new_in("/dev/shm").expect("a temporary file");
    file.write_all(data).expect("room for it");
    let mut builder = Builder::new(&[("samples", "count")]);
    let path = builder.profile.strings.intern(file.path().to_str().expect("an ASCII path"));
    let mapping = Mapping { limit: 1 << 40, file: path, ..Mapping::default() };
    let mapping = builder.add_mapping(mapping);
    for i in 0..40 {
        builder.location(Some(mapping), (data.len() as u64 * i / 40) | 1);
    }
    let entry = data[24..32].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    for i in 0..8 {
        builder.location(Some(mapping), (entry & 0xffff_ffff) + i * 16);
    }
    let mut profile = builder.finish(None);
    let options = SymbolOptions { jobs: 1, debug_dirs: Vec::new(), ..SymbolOptions::default() };
    let _ = symbols::symbolize(&mut profile, &options, &|_, _| {});
});
