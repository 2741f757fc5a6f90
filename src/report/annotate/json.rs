//! Listings as JSON, which `docs/json.md` describes.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io::{self, Write};

use serde::ser::{Serialize, Serializer};

use super::{Annotated, BinaryCode, CodeOptions, Lookup, server_notes};
use crate::report::json;
use code::assembly::{Instruction, Piece, Place};
use code::sources::Newer;
use profile::StrId;
use view::answer::{
    InlinedAnswer, LineAnswer, ListingHead, SourceHead, ValuesAnswer, known, known_text,
};
use view::source::SourceLine;
use view::{SourceModel, View};

/// Writes the listings of an answer, then notes about how their code was found.
pub fn write(
    out: &mut dyn Write,
    view: &View,
    model: &SourceModel,
    places: &CodeOptions,
    all_lines: bool,
) -> io::Result<()> {
    let mut lookup = Lookup::new(view, places);
    let listings = model.source.listings.iter();
    let listings = listings.map(|listing| {
        let annotated = lookup.annotated(listing, model.assembly);
        Listed { view, annotated, all_lines }
    });
    let answer = CodeAnswers {
        head: SourceHead::new(view, model),
        listings: Once(RefCell::new(listings)),
        notes: Last(|| server_notes(&places.symbols)),
    };
    json::write(out, &answer)
}

/// The schema of the JSON.
#[cfg(test)]
pub fn schema(generator: &mut schemars::SchemaGenerator) -> serde_json::Value {
    type Answer = CodeAnswers<'static, Vec<AnnotatedAnswer<'static>>, Vec<String>>;
    generator.subschema_for::<Answer>().into()
}

/// Source with values.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CodeAnswers<'a, L: Serialize, N: Serialize> {
    #[serde(flatten)]
    head: SourceHead<'a>,
    listings: L,
    notes: N,
}

/// A list whose elements are made one by one, and only once.
struct Once<I>(RefCell<I>);

impl<I: Iterator<Item: Serialize>> Serialize for Once<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&mut *self.0.borrow_mut())
    }
}

/// A list that is known after all members before it.
struct Last<F>(F);

impl<F: Fn() -> Vec<String>> Serialize for Last<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.0)().serialize(serializer)
    }
}

/// A function or file with its source and code.
struct Listed<'v, 'a> {
    view: &'v View<'v>,
    annotated: Annotated<'a>,
    all_lines: bool,
}

/// A listing with its source and code.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AnnotatedAnswer<'a> {
    #[serde(flatten)]
    listing: ListingHead<'a>,
    source: TextAnswer<'a>,
    lines: Vec<TextLineAnswer<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Vec<CodeAnswer<'a>>>,
}

/// The text of a source file.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TextAnswer<'a> {
    path: Option<Cow<'a, str>>,
    origin: Option<&'static str>,
    newer_than: Option<&'static str>,
    missing: Option<&'static str>,
    text: Option<Vec<&'a str>>,
}

/// A line with its text and values.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TextLineAnswer<'a> {
    line: Option<i64>,
    #[serde(flatten)]
    values: ValuesAnswer,
    text: Option<&'a str>,
    inlined: Vec<InlinedAnswer<'a>>,
}

/// The code of a function in a binary.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CodeAnswer<'a> {
    binary: Option<&'a str>,
    build_id: Option<&'a str>,
    path: Option<Cow<'a, str>>,
    missing: Option<&'static str>,
    functions_left_out: usize,
    pieces: Vec<PieceAnswer<'a>>,
}

/// The code of one function.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PieceAnswer<'a> {
    start: u64,
    end: u64,
    bytes_left_out: u64,
    instructions: Vec<InstructionAnswer<'a>>,
}

/// An instruction with values.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct InstructionAnswer<'a> {
    address: u64,
    length: usize,
    text: Option<&'a str>,
    #[serde(rename = "self")]
    self_value: i64,
    total: i64,
    skid: bool,
    target: Option<TargetAnswer<'a>>,
    reference: Option<ReferenceAnswer<'a>>,
    source: Vec<PlaceAnswer<'a>>,
}

/// The target of a jump or a call.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TargetAnswer<'a> {
    address: u64,
    function: Option<&'a str>,
}

/// The address that an operand states.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ReferenceAnswer<'a> {
    address: u64,
    symbol: Option<&'a str>,
    offset: u64,
    slot: bool,
}

/// The source of an instruction.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PlaceAnswer<'a> {
    function: Option<&'a str>,
    file: Option<&'a str>,
    line: Option<i64>,
}

impl Serialize for Listed<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.answer().serialize(serializer)
    }
}

impl Listed<'_, '_> {
    fn answer(&self) -> AnnotatedAnswer<'_> {
        let listing = self.annotated.listing;
        let code = self.annotated.code.as_ref();
        AnnotatedAnswer {
            listing: ListingHead::new(self.view, listing),
            source: self.source(),
            lines: listing.lines.iter().map(|line| self.line(line)).collect(),
            code: code.map(|code| code.iter().map(|code| self.code(code)).collect()),
        }
    }

    fn source(&self) -> TextAnswer<'_> {
        let text = self.annotated.text.text.as_ref();
        let whole = text.ok().filter(|_| self.all_lines);
        TextAnswer {
            path: text.ok().map(|text| text.path.to_string_lossy()),
            origin: text.ok().map(|text| text.origin.code()),
            newer_than: self.annotated.text.newer_than.map(|newer| match newer {
                Newer::Binary => "binary",
                Newer::Recording => "recording",
            }),
            missing: text.err().map(|why| why.code()),
            text: whole.map(|text| text.lines().collect()),
        }
    }

    fn line(&self, line: &SourceLine) -> TextLineAnswer<'_> {
        let text = self.annotated.text.text.as_ref().ok();
        let text = text.and_then(|text| text.line(line.line));
        let LineAnswer { line, values, inlined } = LineAnswer::new(self.view, line);
        TextLineAnswer { line, values, text, inlined }
    }

    fn code<'c>(&'c self, code: &'c BinaryCode) -> CodeAnswer<'c> {
        let found = code.code.as_ref();
        let pieces = found.map_or(&[][..], |assembly| assembly.pieces.as_slice());
        CodeAnswer {
            binary: self.text(code.binary),
            build_id: self.text(code.build_id),
            path: found.ok().map(|assembly| assembly.path.to_string_lossy()),
            missing: found.err().map(|why| why.code()),
            functions_left_out: found.map_or(0, |assembly| assembly.left_out),
            pieces: pieces.iter().map(|found| piece(self.view, found)).collect(),
        }
    }

    fn text(&self, id: StrId) -> Option<&str> {
        known_text(self.view.profile.str(id))
    }
}

fn piece<'a>(view: &View, piece: &'a Piece) -> PieceAnswer<'a> {
    PieceAnswer {
        start: piece.function.start,
        end: piece.function.end,
        bytes_left_out: piece.left_out,
        instructions: piece.instructions.iter().map(|i| instruction(view, i)).collect(),
    }
}

fn instruction<'a>(view: &View, i: &'a Instruction) -> InstructionAnswer<'a> {
    InstructionAnswer {
        address: i.address.0,
        length: i.length,
        text: i.text.as_deref(),
        self_value: view.shown(i.self_value),
        total: view.shown(i.total),
        skid: i.skid,
        target: i
            .target
            .as_ref()
            .map(|t| TargetAnswer { address: t.address.0, function: known_text(&t.name) }),
        reference: i.reference.as_ref().map(|r| ReferenceAnswer {
            address: r.address.0,
            symbol: known_text(&r.name),
            offset: r.offset,
            slot: r.slot,
        }),
        source: i.places.iter().map(source_place).collect(),
    }
}

fn source_place(place: &Place) -> PlaceAnswer<'_> {
    PlaceAnswer {
        function: known_text(&place.function),
        file: known_text(&place.file),
        line: known(place.line),
    }
}
