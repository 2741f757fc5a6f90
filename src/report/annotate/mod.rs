//! Source lines and instructions with their values: rows, which text and the terminal draw, and
//! JSON.

mod asm;
mod json;
mod listing;
mod lookup;
mod rows;
#[cfg(test)]
mod tests;
mod text;

use std::sync::Arc;

use code::assembly::{Assembly, NoCode, Weight};
use code::sources::Newer;
use code::text::{NoText, SourcePaths, SourceText};
use profile::StrId;
use symbols::SymbolOptions;
use sys::FileOffset;
use view::View;
use view::source::Listing;

#[cfg(test)]
pub use json::schema;
pub use json::write as write_json;
pub use listing::head_notes;
pub use lookup::{Lookup, answer};
pub use rows::{
    CodeRow, Content, Section, SectionKind, all_instructions, assembly_sections, source_rows,
};
pub use text::{write as write_text, write_section};

/// Places of source and binaries.
#[derive(Clone, Debug, Default)]
pub struct CodeOptions {
    /// Directories with source.
    pub paths: SourcePaths,
    /// Places of binaries and debug information.
    pub symbols: SymbolOptions,
}

/// Layout of a listing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layout {
    /// The whole file or function, without gaps.
    pub all_lines: bool,
    /// Values in percent of the total.
    pub percent: bool,
    /// Only lines with a value, in this order.
    pub order: Order,
}

/// The order of the source lines of a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As in the file, with the lines around them.
    #[default]
    Line,
    /// Largest self value first.
    SelfValue,
    /// Largest total first.
    Total,
}

/// The text of a listing's source file.
#[derive(Clone, Debug)]
pub struct Text {
    /// The text, or the cause of its absence.
    pub text: Result<Arc<SourceText>, NoText>,
    /// The file was modified after this.
    pub newer_than: Option<Newer>,
}

/// Code of a listing in one binary.
#[derive(Clone, Debug)]
pub struct BinaryCode {
    /// Path of the binary in the profile.
    pub binary: StrId,
    /// Its build ID.
    pub build_id: StrId,
    /// Its instructions, or the cause of their absence.
    pub code: Result<Assembly, NoCode>,
}

/// What was found for a listing.
#[derive(Clone, Debug)]
pub struct Annotated<'a> {
    /// The values.
    pub listing: &'a Listing,
    /// The source.
    pub text: Text,
    /// The code, in each binary, if it was requested.
    pub code: Option<Vec<BinaryCode>>,
}

/// Addresses of a listing in one binary.
struct SampledBinary {
    /// Path of the binary in the profile.
    binary: StrId,
    /// Its build ID.
    build_id: StrId,
    /// Its addresses.
    weights: Vec<Weight>,
}

/// The addresses of a listing, by binary.
fn by_binary(view: &View, listing: &Listing) -> Vec<SampledBinary> {
    let mut found: Vec<SampledBinary> = Vec::new();
    for address in &listing.addresses {
        let mapping = address.mapping.map(|m| &view.profile.mappings[m.0 as usize]);
        let (binary, build_id) = mapping.map_or_else(Default::default, |m| (m.file, m.build_id));
        let weight = Weight {
            offset: FileOffset(address.offset),
            self_value: address.values.self_value,
            total: address.values.total,
        };
        match found.iter_mut().find(|f| (f.binary, f.build_id) == (binary, build_id)) {
            Some(known) => known.weights.push(weight),
            None => found.push(SampledBinary { binary, build_id, weights: vec![weight] }),
        }
    }
    found
}

/// What failed with the debuginfod servers, one line each.
pub fn server_notes(options: &SymbolOptions) -> Vec<String> {
    let errors = options.debuginfod.as_ref().map_or_else(Vec::new, |client| client.errors());
    let note = |error: String| match error.strip_prefix("debuginfod") {
        Some(_) => format!("note: {error}"),
        None => format!("note: debuginfod: {error}"),
    };
    errors.into_iter().map(|error| sys::printed::line(&note(error)).into_owned()).collect()
}

/// True if samples of a type may have the address of the instruction after the one that they
/// belong to: those of timers and of counters without a precise mode.
fn skids(kind: &str, unit: &str) -> bool {
    const COUNTED: [&str; 9] = [
        "samples",
        "cpu",
        "cycles",
        "cpu-cycles",
        "instructions",
        "cpu-clock",
        "task-clock",
        "wall",
        "branches",
    ];
    let (event, modifiers) = kind.split_once(':').unwrap_or((kind, ""));
    COUNTED.contains(&event) && !modifiers.contains('p') && unit != "bytes"
}

/// Whether each of `count` rows is shown: those with a value, `context` before and after them, and
/// what is between two of these if it is no more than `gap`.
fn shown_rows(count: usize, with_value: &[usize], context: usize, gap: usize) -> Vec<bool> {
    let mut shown = vec![false; count];
    let mut end: Option<usize> = None;
    for &row in with_value.iter().filter(|&&row| row < count) {
        let mut first = row.saturating_sub(context);
        if let Some(end) = end
            && first <= end + gap
        {
            first = first.min(end);
        }
        let last = (row + context).min(count - 1);
        shown[first..=last].iter_mut().for_each(|row| *row = true);
        end = Some(last + 1);
    }
    shown
}
