//! Finds the text and the instructions of listings.

use code::assembly::{Limits, Request, disassemble};
use code::sources::{CodeOf, Sources};
use code::text::SourcePaths;
use symbols::SymbolOptions;
use view::View;
use view::source::Listing;

use super::{BinaryCode, Text, by_binary, skids};

/// Finds the text and the instructions of listings of a view.
pub struct Lookup<'a> {
    view: &'a View<'a>,
    options: &'a SymbolOptions,
    /// Texts of source files.
    pub sources: Sources<'a>,
}

impl<'a> Lookup<'a> {
    /// Source below these paths; binaries, and source from debuginfod, by these options.
    pub fn new(
        view: &'a View<'a>,
        paths: &'a SourcePaths,
        options: &'a SymbolOptions,
    ) -> Lookup<'a> {
        Lookup { view, options, sources: Sources::new(paths, options) }
    }

    /// The text of a listing's source file.
    pub fn text(&mut self, listing: &Listing) -> Text {
        let profile = self.view.profile;
        let of = self.binary(listing);
        let text = self.sources.find(profile.str(listing.file), of);
        let recorded = code::text::time(profile.time_nanos);
        let found = text.as_ref().ok();
        let newer_than = found.and_then(|text| self.sources.newer_than(text, of, recorded));
        Text { text, newer_than }
    }

    /// The binary of a listing.
    pub fn binary(&self, listing: &Listing) -> CodeOf<'a> {
        let profile = self.view.profile;
        let mapping = listing.mapping.map(|mapping| &profile.mappings[mapping.0 as usize]);
        mapping.map_or_else(CodeOf::default, |mapping| CodeOf {
            binary: profile.str(mapping.file),
            build_id: profile.str(mapping.build_id),
        })
    }

    /// The instructions of a listing, in each binary.
    pub fn code(&self, listing: &Listing) -> Vec<BinaryCode> {
        let profile = self.view.profile;
        let (kind, unit) = self.view.value_type();
        let of_binaries = by_binary(self.view, listing).into_iter();
        let code = of_binaries.map(|found| {
            let request = Request {
                binary: profile.str(found.binary),
                build_id: profile.str(found.build_id),
                function: profile.str(listing.system_name),
                end: profile.time_nanos.saturating_add(profile.duration_nanos),
                weights: &found.weights,
                skids: skids(kind, unit),
            };
            let code = disassemble(&request, self.options, Limits::default());
            BinaryCode { binary: found.binary, build_id: found.build_id, code }
        });
        code.collect()
    }
}
