//! Listings as JSON: the members of [`crate::report::json`], and
//!
//! * `unit`: `function` or `file`; `listing_count`: the number of listings before `--nodecount`;
//! * `listings`, hottest first, each with `function` and `system_name` (null for a file), `file`,
//!   `start_line`, `self`, `total`; `source`: an object of `path` (of the file that was read),
//!   `origin` (`file`, `embedded`, `debuginfod`), `newer_than` (`binary`, `recording`) and `missing` (`unnamed`, `missing`, `not_regular`,
//!   `too_large`, `unreadable`) and, with `--all-lines`, `text`, all lines; `lines` with values, each with `line`, `self`, `total`, `text` and
//!   `inlined`: the lines of functions inlined there, each with `depth` (from 1, as in a tree),
//!   `function`, `file`, `line`, `self`, `total`;
//! * `notes`: what failed with debuginfod servers;
//! * with `--asm`, in each listing, `code`: an object for each binary with `binary`, `build_id`,
//!   `path`, `missing` (`no_binary`, `unknown_machine`, `no_bounds`, `no_jit_code`, `several_codes`), `functions_left_out`, and
//!   `pieces`, each with `start` and `end` (addresses in the file), `bytes_left_out`, and
//!   `instructions`, each with `address`, `length`, `text` (null: not an instruction), `self`,
//!   `total`, `skid`, `target` (an object of `address` and `function`), `reference` (an object of
//!   `address`, `symbol`, `offset`, `slot`), and `source`: objects of `function`, `file`, `line`,
//!   innermost first.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::{Annotated, BinaryCode};
use crate::report::json::{head, known, or_null, write_head, write_member};
use code::assembly::{Instruction, Piece};
use code::sources::Newer;
use view::source::{Source, SourceLine, Unit};
use view::{Name, View};

/// Writes the listings, then the `notes` about how they were found.
pub fn write<'a>(
    out: &mut dyn Write,
    view: &View,
    source: &Source,
    listings: impl Iterator<Item = Annotated<'a>>,
    all_lines: bool,
    notes: impl FnOnce() -> Vec<String>,
) -> io::Result<()> {
    let mut head = head(view);
    let unit = match source.unit {
        Unit::Function => "function",
        Unit::File => "file",
    };
    head.insert("unit".into(), unit.into());
    head.insert("listing_count".into(), source.listings.len().into());
    write_head(out, head)?;
    write_member(out, "listings", listings.map(|annotated| listing(view, &annotated, all_lines)))?;
    // They are known after the last listing.
    writeln!(out, ",\n\"notes\":{}}}", Value::from(notes()))
}

fn listing(view: &View, annotated: &Annotated<'_>, all_lines: bool) -> Map<String, Value> {
    let p = view.profile;
    let listing = annotated.listing;
    let text = annotated.text.text.as_ref();
    let newer = annotated.text.newer_than.map(|newer| match newer {
        Newer::Binary => "binary",
        Newer::Recording => "recording",
    });
    let lines: Vec<Value> = listing
        .lines
        .iter()
        .map(|l| {
            let text = text.ok().and_then(|text| text.line(l.line));
            json!({
                "line": known(l.line), "self": l.values.self_value, "total": l.values.total,
                "text": text, "inlined": inlined(view, l),
            })
        })
        .collect();
    let mut out = Map::new();
    let function = match listing.function {
        Name::Address(_) => listing.name(view).into(),
        function => name(view, function),
    };
    out.insert("function".into(), function);
    let system_name = match listing.function {
        Name::Function(_) => p.str(listing.system_name),
        _ => "",
    };
    out.insert("system_name".into(), or_null(system_name));
    out.insert("file".into(), or_null(p.str(listing.file)));
    out.insert("start_line".into(), known(listing.start_line));
    out.insert("self".into(), listing.values.self_value.into());
    out.insert("total".into(), listing.values.total.into());
    let whole = text.ok().filter(|_| all_lines);
    let source = json!({
        "path": text.ok().map(|text| text.path.to_string_lossy()),
        "origin": text.ok().map(|text| text.origin.code()),
        "newer_than": newer,
        "missing": text.err().map(|why| why.code()),
        "text": whole.map(|text| text.lines().collect::<Vec<_>>()),
    });
    out.insert("source".into(), source);
    out.insert("lines".into(), lines.into());
    if let Some(code) = &annotated.code {
        let code: Vec<Value> = code.iter().map(|code| binary(view, code)).collect();
        out.insert("code".into(), code.into());
    }
    out
}

fn name(view: &View, name: Name) -> Value {
    match name {
        Name::Function(name) => view.profile.str(name).into(),
        _ => Value::Null,
    }
}

fn inlined(view: &View, line: &SourceLine) -> Vec<Value> {
    let inlined_line = |l: &view::source::InlinedLine| {
        json!({
            "depth": l.depth, "function": name(view, l.function),
            "file": or_null(view.profile.str(l.file)), "line": known(l.line),
            "self": l.values.self_value, "total": l.values.total,
        })
    };
    line.inlined.iter().map(inlined_line).collect()
}

fn binary(view: &View, code: &BinaryCode) -> Value {
    let p = view.profile;
    let found = code.code.as_ref();
    let pieces = found.map_or(&[][..], |assembly| assembly.pieces.as_slice());
    json!({
        "binary": or_null(p.str(code.binary)),
        "build_id": or_null(p.str(code.build_id)),
        "path": found.ok().map(|assembly| assembly.path.to_string_lossy()),
        "missing": found.err().map(|why| why.code()),
        "functions_left_out": found.map_or(0, |assembly| assembly.left_out),
        "pieces": pieces.iter().map(piece).collect::<Vec<_>>(),
    })
}

fn piece(piece: &Piece) -> Value {
    json!({
        "start": piece.function.start,
        "end": piece.function.end,
        "bytes_left_out": piece.left_out,
        "instructions": piece.instructions.iter().map(instruction).collect::<Vec<_>>(),
    })
}

fn instruction(i: &Instruction) -> Value {
    let target = i.target.as_ref();
    let target = target.map(|t| json!({"address": t.address.0, "function": or_null(&t.name)}));
    let reference = i.reference.as_ref().map(|r| {
        json!({
            "address": r.address.0, "symbol": or_null(&r.name), "offset": r.offset, "slot": r.slot,
        })
    });
    let place = |place: &code::assembly::Place| {
        json!({
            "function": or_null(&place.function), "file": or_null(&place.file),
            "line": known(place.line),
        })
    };
    json!({
        "address": i.address.0, "length": i.length, "text": i.text, "self": i.self_value,
        "total": i.total, "skid": i.skid, "target": target,
        "reference": reference,
        "source": i.places.iter().map(place).collect::<Vec<_>>(),
    })
}
