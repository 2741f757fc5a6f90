//! Finds the text and the instructions of listings.

use code::assembly::{Limits, Request, disassemble, disassemble_around, same_code};
use code::sources::{BinaryId, Sources};
use code::text::SourcePaths;
use symbols::SymbolOptions;
use sys::FileOffset;
use view::source::{Listing, Selection, UnnamedAddress};
use view::{Name, View};

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

    /// The code around the address without a name that tables show as `what`: all addresses without
    /// a name in the same function. `None` if there is no such row.
    pub fn unnamed(&self, what: &str) -> Option<Selection> {
        let view = self.view;
        let all = UnnamedAddress::all(view);
        let rows: Vec<_> = all.iter().filter(|address| address.has_name(view, what)).collect();
        let mut frames = Vec::new();
        for row in &rows {
            let is_there = |other: &&UnnamedAddress| {
                (other.binary, other.build_id) == (row.binary, row.build_id)
            };
            let others: Vec<_> = all.iter().filter(is_there).collect();
            let offsets: Vec<_> = others.iter().map(|other| FileOffset(other.offset)).collect();
            let [binary, build_id] = [row.binary, row.build_id].map(|id| view.profile.str(id));
            let same = same_code(binary, build_id, FileOffset(row.offset), &offsets, self.options);
            // Without the binary, the listing has this address only, and its code states the cause.
            let same = same.unwrap_or_default();
            let found = others.iter().zip(same).filter(|(_, same)| *same);
            frames.extend(found.map(|(other, _)| other.frame));
        }
        rows.first().map(|row| Selection::unnamed_code(view, row.frame, &frames))
    }

    /// The text of a listing's source file.
    pub fn text(&mut self, listing: &Listing) -> Text {
        let profile = self.view.profile;
        let binary = self.binary(listing);
        let text = self.sources.find(profile.str(listing.file), binary);
        let recorded = code::text::time(profile.time_nanos);
        let found = text.as_ref().ok();
        let newer_than = found.and_then(|text| self.sources.newer_than(text, binary, recorded));
        Text { text, newer_than }
    }

    /// The binary of a listing.
    pub fn binary(&self, listing: &Listing) -> BinaryId<'a> {
        let profile = self.view.profile;
        let mapping = listing.mapping.map(|mapping| &profile.mappings[mapping.0 as usize]);
        mapping.map_or_else(BinaryId::default, |mapping| BinaryId {
            path: profile.str(mapping.file),
            build_id: profile.str(mapping.build_id),
        })
    }

    /// The instructions of a listing, in each binary.
    pub fn code(&self, listing: &Listing) -> Vec<BinaryCode> {
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
