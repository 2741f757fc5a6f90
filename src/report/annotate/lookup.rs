//! Finds the text and the instructions of listings.

use code::assembly::{Limits, Request, disassemble, disassemble_around, same_code};
use code::sources::{BinaryId, Sources};
use symbols::SymbolOptions;
use sys::FileOffset;
use view::query::{Query, QueryError};
use view::source::{CodeBounds, Listing};
use view::{Answer, Cancel, Name, Part, View};

use super::{Annotated, BinaryCode, CodeOptions, Text, by_binary, skids};

/// Bounds of functions from the files of binaries.
struct BinaryBounds<'a>(&'a SymbolOptions);

impl CodeBounds for BinaryBounds<'_> {
    fn same_function(&self, binary: &str, build_id: &str, at: u64, offsets: &[u64]) -> Vec<bool> {
        let offsets: Vec<_> = offsets.iter().copied().map(FileOffset).collect();
        same_code(binary, build_id, FileOffset(at), &offsets, self.0).unwrap_or_default()
    }
}

/// The answer to a query about this part of a profile, with code without a name from binaries at
/// these places.
///
/// # Errors
///
/// As of [`Answer::new`].
pub fn answer(
    part: Part,
    query: &Query,
    places: &CodeOptions,
    cancel: &Cancel,
) -> Result<Answer, QueryError> {
    Answer::with_bounds(part, query, &BinaryBounds(&places.symbols), cancel)
}

/// Finds the text and the instructions of listings of a view.
pub struct Lookup<'a> {
    view: &'a View<'a>,
    options: &'a SymbolOptions,
    /// Texts of source files.
    pub sources: Sources<'a>,
}

impl<'a> Lookup<'a> {
    /// Source and binaries at these places.
    pub fn new(view: &'a View<'a>, places: &'a CodeOptions) -> Lookup<'a> {
        let CodeOptions { paths, symbols } = places;
        Lookup { view, options: symbols, sources: Sources::new(paths, symbols) }
    }

    /// The text of a listing, and its instructions if they are shown.
    pub fn annotated<'l>(&mut self, listing: &'l Listing, with_code: bool) -> Annotated<'l> {
        let code = with_code.then(|| self.code(listing));
        Annotated { listing, text: self.text(listing), code }
    }

    /// The text of a listing's source file.
    fn text(&mut self, listing: &Listing) -> Text {
        let profile = self.view.profile;
        let binary = self.binary(listing);
        let text = self.sources.find(profile.str(listing.file), binary);
        let recorded = code::text::time(profile.time_nanos);
        let found = text.as_ref().ok();
        let newer_than = found.and_then(|text| self.sources.newer_than(text, binary, recorded));
        Text { text, newer_than }
    }

    /// The binary of a listing.
    fn binary(&self, listing: &Listing) -> BinaryId<'a> {
        let profile = self.view.profile;
        let mapping = listing.mapping.map(|mapping| &profile.mappings[mapping.0 as usize]);
        mapping.map_or_else(BinaryId::default, |mapping| BinaryId {
            path: profile.str(mapping.file),
            build_id: profile.str(mapping.build_id),
        })
    }

    /// The instructions of a listing, in each binary.
    fn code(&self, listing: &Listing) -> Vec<BinaryCode> {
        let profile = self.view.profile;
        let (kind, unit) = self.view.value_type();
        let found = by_binary(self.view, listing).into_iter();
        let code = found.map(|found| {
            let request = Request {
                binary: profile.str(found.binary),
                build_id: profile.str(found.build_id),
                function: profile.str(listing.system_name),
                end: profile.time_nanos.saturating_add(profile.duration_nanos),
                weights: &found.weights,
                skids: skids(kind, unit),
            };
            let limits = Limits::default();
            let code = match listing.function {
                Name::Address(at) => {
                    disassemble_around(&request, FileOffset(at), self.options, limits)
                }
                _ => disassemble(&request, self.options, limits),
            };
            BinaryCode { binary: found.binary, build_id: found.build_id, code }
        });
        code.collect()
    }
}
