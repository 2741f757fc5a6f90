//! Coverage of binaries, and the metadata of a file.

use serde::Serialize;

use super::{Bounded, Head, List, known_text, mappings};
use crate::{Coverage, Covered, View};
use profile::{Gap, Mapping, StrId};

/// The coverage of binaries by names, lines and whole stacks.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CoverageAnswer<'a> {
    /// The members of all answers.
    #[serde(flatten)]
    pub head: Head<'a>,
    /// Number of the binaries beyond the limit of text.
    pub rows_left_out: usize,
    /// The binaries.
    pub rows: Vec<CoverageRow<'a>>,
}

/// The coverage of a binary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CoverageRow<'a> {
    /// Its path.
    pub binary: Option<&'a str>,
    /// Its build ID.
    pub build_id: Option<&'a str>,
    /// Why names are missing.
    pub why_without_names: Option<String>,
    /// Why lines are missing.
    pub why_without_lines: Option<String>,
    /// What is wrong with its files.
    pub bad_input: Option<String>,
    /// True if it has no unwind information.
    pub no_unwind_information: bool,
    /// Value of the samples with the innermost frame in it.
    #[serde(rename = "self")]
    pub self_value: i64,
    /// Value of the samples with any frame in it.
    pub total: i64,
    /// Sum over its frames of the values of their samples.
    pub frames: i64,
    /// The part of `frames` with a name.
    pub with_names: i64,
    /// The part of `frames` with a source line.
    pub with_lines: i64,
    /// The part of `total` whose stacks end early in it.
    pub truncated: Vec<TruncatedAnswer<'a>>,
    /// What helps, one sentence each.
    pub remedies: Vec<String>,
}

/// The value of truncated stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TruncatedAnswer<'a> {
    /// Why they end.
    pub reason: &'a str,
    /// Their value.
    pub value: i64,
}

/// The binaries that are shown.
pub fn binaries<'c>(view: &View, coverage: &'c Coverage) -> Bounded<'c, Covered> {
    let length = |id| view.profile.str(id).len();
    let texts = |b: &Covered| b.truncated.iter().map(|(why, _)| why.len()).sum::<usize>();
    Bounded::new(&coverage.binaries, |b| length(b.file) + length(b.build_id) + texts(b))
}

impl<'a> CoverageAnswer<'a> {
    /// These binaries of a view, with what helps each; `left_out`: the number of others.
    pub fn new(
        view: &'a View<'a>,
        binaries: &'a [Covered],
        left_out: usize,
        mut remedies: impl FnMut(&Covered) -> Vec<String>,
    ) -> CoverageAnswer<'a> {
        let text = |id: StrId| known_text(view.profile.str(id));
        let sentence = |gap: &Option<Gap>| gap.as_ref().map(ToString::to_string);
        let row = |b: &'a Covered| CoverageRow {
            binary: text(b.file),
            build_id: text(b.build_id),
            why_without_names: sentence(&b.why),
            why_without_lines: sentence(&b.why_no_lines),
            bad_input: sentence(&b.bad_input),
            no_unwind_information: b.no_unwind_info,
            self_value: view.shown(b.itself),
            total: view.shown(b.total),
            frames: view.shown(b.frames),
            with_names: view.shown(b.named),
            with_lines: view.shown(b.with_lines),
            truncated: b
                .truncated
                .iter()
                .map(|(reason, value)| TruncatedAnswer { reason, value: view.shown(*value) })
                .collect(),
            remedies: remedies(b),
        };
        let rows = binaries.iter().map(row).collect();
        CoverageAnswer { head: Head::new(view), rows_left_out: left_out, rows }
    }
}

/// The metadata of a file.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeaderAnswer<'a> {
    /// The members of all answers.
    #[serde(flatten)]
    pub head: Head<'a>,
    /// Sums of all values before the filter, by sample type.
    pub totals: Vec<i64>,
    /// Documentation of the profile's type.
    pub doc_url: Option<&'a str>,
    /// Number of the mappings beyond the limit of text.
    pub mappings_left_out: usize,
    /// The mappings.
    pub mappings: List<'a, MappingAnswer<'a>>,
}

/// A mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MappingAnswer<'a> {
    /// Its first address, hexadecimal.
    pub start: String,
    /// The address behind it, hexadecimal.
    pub limit: String,
    /// Its offset in the file, hexadecimal.
    pub file_offset: String,
    /// Path of the file.
    pub file: Option<&'a str>,
    /// Build ID of the file.
    pub build_id: Option<&'a str>,
}

impl<'a> HeaderAnswer<'a> {
    /// The metadata of the profile of a view.
    pub fn new(view: &View<'a>) -> HeaderAnswer<'a> {
        let profile = view.profile;
        let shown = mappings(profile);
        let mapping = |mapping: &'a Mapping| MappingAnswer {
            start: format!("{:#x}", mapping.start),
            limit: format!("{:#x}", mapping.limit),
            file_offset: format!("{:#x}", mapping.file_offset),
            file: known_text(profile.str(mapping.file)),
            build_id: known_text(profile.str(mapping.build_id)),
        };
        HeaderAnswer {
            head: Head::new(view),
            totals: (0..profile.sample_types.len())
                .map(|i| view.shown(profile.unfiltered_total(i)))
                .collect(),
            doc_url: known_text(profile.str(profile.doc_url)),
            mappings_left_out: shown.left_out,
            mappings: List::new(move || shown.items.iter().map(mapping)),
        }
    }
}
