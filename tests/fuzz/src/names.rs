//! Names as they are shown, and encoded frames: of the cache, and of worker processes.

use formats::collapsed;
use prof::report::style::{Style, restyle};
use profile::{Function, Profile};

/// Takes an input.
pub fn run(data: &[u8]) {
    let Some((&kind, data)) = data.split_first() else { return };
    if kind % 4 == 0 {
        return symbols::fuzz_encoded_frames(data);
    }
    let name = String::from_utf8_lossy(data);
    for style in [Style::Short, Style::Templates, Style::Full] {
        let mut profile = Profile::default();
        let name = profile.strings.intern(&name);
        let function = Function { name, system_name: name, filename: name, start_line: 0 };
        profile.functions.push(function);
        restyle(&mut profile, style);
    }
    std::hint::black_box(collapsed::folded_name(&name));
}
