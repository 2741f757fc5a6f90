//! Values of source lines and instructions.

use std::borrow::Cow;

use serde::Serialize;

use super::{Head, List, known, known_text};
use crate::source::{AddressValue, InlinedLine, Listing, SourceLine, Unit};
use crate::{Name, RowValues, SourceModel, View};

/// Functions or source files with the values of their lines and instructions.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SourceAnswer<'a> {
    /// What it is about.
    #[serde(flatten)]
    pub head: SourceHead<'a>,
    /// The functions or files, largest self value first.
    pub listings: List<'a, ListingAnswer<'a>>,
}

/// What source with values begins with.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SourceHead<'a> {
    /// The members of all answers.
    #[serde(flatten)]
    pub head: Head<'a>,
    /// `function` or `file`: the unit of the listings.
    pub unit: &'static str,
    /// Number of listings before limits.
    pub listing_count: usize,
}

/// A function or a source file with the values of its lines and instructions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListingAnswer<'a> {
    /// What it is.
    #[serde(flatten)]
    pub head: ListingHead<'a>,
    /// Its lines with values, in their order.
    pub lines: Vec<LineAnswer<'a>>,
    /// Its instructions with values; none of a file.
    pub addresses: Vec<AddressAnswer<'a>>,
}

/// A function or a source file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListingHead<'a> {
    /// Name of the function; of code without one, binary and address.
    pub function: Option<Cow<'a, str>>,
    /// Its mangled name.
    pub system_name: Option<&'a str>,
    /// Path of the source file.
    pub file: Option<&'a str>,
    /// Line where the function begins.
    pub start_line: Option<i64>,
    /// Its values.
    #[serde(flatten)]
    pub values: ValuesAnswer,
}

/// The values of a function, a file, a line or an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ValuesAnswer {
    /// Its self value.
    #[serde(rename = "self")]
    pub self_value: i64,
    /// Its total.
    pub total: i64,
}

impl ValuesAnswer {
    /// The values of a row of a view.
    pub fn new(view: &View, RowValues { self_value, total }: RowValues) -> ValuesAnswer {
        ValuesAnswer { self_value: view.shown(self_value), total: view.shown(total) }
    }
}

/// A line with values, and those of the functions that were inlined there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LineAnswer<'a> {
    /// Its number.
    pub line: Option<i64>,
    /// Its values.
    #[serde(flatten)]
    pub values: ValuesAnswer,
    /// Lines of functions inlined there, each after the line that it was inlined at.
    pub inlined: Vec<InlinedAnswer<'a>>,
}

/// A line of a function that was inlined at a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InlinedAnswer<'a> {
    /// Levels of inlining, from 1.
    pub depth: u32,
    /// Its function.
    pub function: Option<&'a str>,
    /// Path of its source file.
    pub file: Option<&'a str>,
    /// Its number.
    pub line: Option<i64>,
    /// Its values as called there.
    #[serde(flatten)]
    pub values: ValuesAnswer,
}

/// An instruction with values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AddressAnswer<'a> {
    /// Path of its binary.
    pub binary: Option<&'a str>,
    /// The binary's build ID.
    pub build_id: Option<&'a str>,
    /// Offset in the binary's file, or the address itself without a binary.
    pub offset: u64,
    /// Its values.
    #[serde(flatten)]
    pub values: ValuesAnswer,
}

impl<'a> SourceAnswer<'a> {
    /// The values of a view's functions or files.
    pub fn new(view: &'a View<'a>, model: &'a SourceModel) -> SourceAnswer<'a> {
        let listing = |listing: &'a Listing| ListingAnswer {
            head: ListingHead::new(view, listing),
            lines: listing.lines.iter().map(|line| LineAnswer::new(view, line)).collect(),
            addresses: listing.addresses.iter().map(|at| AddressAnswer::new(view, at)).collect(),
        };
        SourceAnswer {
            head: SourceHead::new(view, model),
            listings: List::new(move || model.source.listings.iter().map(listing)),
        }
    }
}

impl<'a> SourceHead<'a> {
    /// What the source of a view begins with.
    pub fn new(view: &View<'a>, model: &SourceModel) -> SourceHead<'a> {
        SourceHead {
            head: Head::new(view),
            unit: match model.source.unit {
                Unit::Function => "function",
                Unit::File => "file",
            },
            listing_count: model.listing_count,
        }
    }
}

impl<'a> ListingHead<'a> {
    /// A function or a file of a view.
    pub fn new(view: &View<'a>, listing: &Listing) -> ListingHead<'a> {
        let system_name = match listing.function {
            Name::Function(_) => known_text(view.profile.str(listing.system_name)),
            _ => None,
        };
        ListingHead {
            function: match listing.function {
                Name::Address(_) => Some(listing.name(view)),
                function => function_name(view, function).map(Cow::Borrowed),
            },
            system_name,
            file: known_text(view.profile.str(listing.file)),
            start_line: known(listing.start_line),
            values: ValuesAnswer::new(view, listing.values),
        }
    }
}

impl<'a> LineAnswer<'a> {
    /// A line of a view.
    pub fn new(view: &View<'a>, line: &SourceLine) -> LineAnswer<'a> {
        let inlined = |l: &InlinedLine| InlinedAnswer {
            depth: l.depth,
            function: function_name(view, l.function),
            file: known_text(view.profile.str(l.file)),
            line: known(l.line),
            values: ValuesAnswer::new(view, l.values),
        };
        LineAnswer {
            line: known(line.line),
            values: ValuesAnswer::new(view, line.values),
            inlined: line.inlined.iter().map(inlined).collect(),
        }
    }
}

impl<'a> AddressAnswer<'a> {
    fn new(view: &View<'a>, at: &AddressValue) -> AddressAnswer<'a> {
        let mapping = at.mapping.map(|m| &view.profile.mappings[m.0 as usize]);
        AddressAnswer {
            binary: mapping.and_then(|m| known_text(view.profile.str(m.file))),
            build_id: mapping.and_then(|m| known_text(view.profile.str(m.build_id))),
            offset: at.offset,
            values: ValuesAnswer::new(view, at.values),
        }
    }
}

fn function_name<'a>(view: &View<'a>, name: Name) -> Option<&'a str> {
    match name {
        Name::Function(name) => Some(view.profile.str(name)),
        _ => None,
    }
}
