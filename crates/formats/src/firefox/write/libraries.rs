//! The libraries of a profile: its binaries, with their build ids.

use std::collections::HashMap;

use profile::{Profile, StrId};
use serde::Serialize;

/// Bytes of a build id in the id of Breakpad.
const BREAKPAD: usize = 16;

/// A binary.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Library {
    pub name: String,
    path: String,
    debug_name: String,
    debug_path: String,
    breakpad_id: String,
    code_id: Option<String>,
    arch: Option<String>,
}

/// The binaries of a profile.
pub(super) struct Libraries {
    pub list: Vec<Library>,
    /// By paths.
    numbers: HashMap<StrId, u32>,
}

impl Libraries {
    pub(super) fn new(profile: &Profile) -> Libraries {
        let mut libraries = Libraries { list: Vec::new(), numbers: HashMap::new() };
        for mapping in &profile.mappings {
            let next = libraries.list.len() as u32;
            if mapping.file != StrId::EMPTY
                && *libraries.numbers.entry(mapping.file).or_insert(next) == next
            {
                let build_id = profile.str(mapping.build_id);
                libraries.list.push(library(profile.str(mapping.file), build_id));
            }
        }
        libraries
    }

    /// The number of the binary with this path.
    pub(super) fn number(&self, path: StrId) -> Option<u32> {
        self.numbers.get(&path).copied()
    }
}

fn library(path: &str, build_id: &str) -> Library {
    let name = path.rsplit('/').next().unwrap_or(path).to_owned();
    Library {
        debug_name: name.clone(),
        name,
        path: path.to_owned(),
        debug_path: path.to_owned(),
        breakpad_id: breakpad_id(build_id),
        code_id: (!build_id.is_empty()).then(|| build_id.to_owned()),
        arch: None,
    }
}

/// The id of Breakpad: the first bytes of the build id as a GUID, whose first three parts are numbers
/// in the order of little-endian machines, and the age 0.
fn breakpad_id(build_id: &str) -> String {
    let byte = |at: usize| build_id.get(2 * at..2 * at + 2).unwrap_or("00");
    let order = [3, 2, 1, 0, 5, 4, 7, 6].into_iter().chain(8..BREAKPAD);
    let bytes: String = order.map(byte).collect();
    bytes.to_ascii_uppercase() + "0"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_breakpad_is_made_of_the_build_id() {
        // As samply writes it.
        let id = breakpad_id("7294cb6628ddad34f62ee6720ceae51637b2ae5e");
        assert_eq!(id, "66CB9472DD2834ADF62EE6720CEAE5160");
        assert_eq!(breakpad_id("abc"), format!("000000AB{}0", "0".repeat(24)));
    }
}
