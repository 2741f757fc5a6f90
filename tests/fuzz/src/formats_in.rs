//! A foreign file in any format: what is read of it can be written in each format, and is read again.

use formats::{Format, WriteOptions};
use profile::Profile;

/// Takes an input. The first format that detects it reads it, and so does that of its first byte:
/// changes would mostly end in no format.
pub fn run(data: &[u8]) {
    if let Ok(profile) = formats::read(&mut &*data) {
        write(&profile);
    }
    let number = usize::from(data.first().copied().unwrap_or_default());
    let format = formats::FORMATS[number % formats::FORMATS.len()];
    if let Ok(profile) = format.read(&mut &*data) {
        write(&profile);
    }
}

/// Writes a profile in all formats, and reads what was written.
fn write(profile: &Profile) {
    // The text of perf script has each sample.
    let types = profile.sample_types.len();
    let is_large = (0..types).any(|column| profile.total(column) > 10_000);
    for format in formats::written().filter(|format| !is_large || format.name() != "perf-script") {
        let mut bytes = Vec::new();
        let options = WriteOptions { type_index: profile.default_type_index() };
        let write = format.writer().expect("it is written");
        write(profile, &options, &mut bytes).expect("a buffer takes everything");
        if !bytes.is_empty() {
            let read = Format::read(format, &mut &*bytes);
            assert!(read.is_ok(), "{}: {:?}", format.name(), read.err());
        }
    }
}
