//! Reading: decodes the stream's fields in order, then resolves their references.

use std::fs::File;
use std::io::Read;

use profile::{
    FunctionId, Label, LabelSetId, LabelTable, LabelValue, LocationId, MappingId, Profile,
    StackTable, StrId, ValueType,
};

use super::decode::DecodedTables;
use super::ids::Resolver;
use super::input::{Input, InputLimits};
use super::others;
use super::times;
use super::wire::{Cursor, FIXED64, FieldTag, LEN, VARINT};
use crate::error::ReadError;
use crate::source::Ahead;

/// Reads a profile: `profile.proto`, with gzip around it or without.
///
/// # Errors
///
/// If `bytes` cannot be read, are truncated or damaged, are not a profile, are inconsistent (an
/// index out of range, two elements with one id), or would take unreasonably much memory: more than
/// 4 GiB uncompressed, or 256 times the size of the file (beyond the first 64 MiB), or tables of
/// more than 512 MiB and 64 bytes for each byte of the file.
pub fn read(mut bytes: impl Read) -> Result<Profile, ReadError> {
    read_within(&mut bytes, InputLimits::DEFAULT)
}

/// [`read`] of a file from its beginning. Another thread unpacks a large one.
///
/// # Errors
///
/// As [`read`].
pub fn read_file(file: &mut File) -> Result<Profile, ReadError> {
    match Ahead::start(file) {
        Some(ahead) => read_input(Input::ahead(ahead, InputLimits::DEFAULT)),
        None => read(file),
    }
}

/// [`read`] with other limits.
pub(super) fn read_within(bytes: &mut dyn Read, limits: InputLimits) -> Result<Profile, ReadError> {
    read_input(Input::new(bytes, limits)?)
}

fn read_input(mut input: Input) -> Result<Profile, ReadError> {
    let result = decode(&mut input).and_then(finish);
    result.map_err(|e| match guess(input.head()) {
        Some(what) if e.may_be_another_format() => ReadError::other_format(what),
        _ => e,
    })
}

/// Probable format of a file that could not be decoded, by its first bytes.
fn guess(head: &[u8]) -> Option<&'static str> {
    let text = |b: &u8| (0x20..0x7f).contains(b) || matches!(b, b'\n' | b'\r' | b'\t');
    let is_text = || head.len() >= 4 && head.iter().take(16).all(text);
    others::guess(head).or_else(|| is_text().then_some("it looks like text"))
}

/// All contents of a file, before they are checked as a whole.
struct Decoded {
    tables: DecodedTables,
    /// The header; strings are indexes into the file's table.
    header: Profile,
}

fn decode(input: &mut Input) -> Result<Decoded, ReadError> {
    let mut out = Decoded { tables: DecodedTables::new(), header: Profile::default() };
    let mut window = u64::MAX;
    while input.more()? {
        if window != input.window() {
            window = input.window();
            check_memory(input, &out.tables)?;
        }
        let at = input.at();
        let tag = FieldTag::decode(input.varint()?, at)?;
        match tag.wire {
            LEN => {
                let len = input.varint()?;
                if matches!(tag.field, 1..=6 | 11 | 13) {
                    let (bytes, at) = input.take(len)?;
                    message_field(&mut out, tag, bytes, at)?;
                } else if matches!(tag.field, 7..=15) {
                    return Err(tag.mismatch(at, "profile"));
                } else {
                    input.skip(len)?;
                }
            }
            VARINT => {
                let value = input.varint()?;
                number_field(&mut out, tag, value, at)?;
            }
            _ if tag.field <= 15 => return Err(tag.mismatch(at, "profile")),
            FIXED64 => input.skip(8)?,
            _ => input.skip(4)?,
        }
    }
    Ok(out)
}

/// Checks that the tables are in proportion to the bytes read.
fn check_memory(input: &Input, tables: &DecodedTables) -> Result<(), ReadError> {
    if tables.bytes() > input.memory_allowed() {
        let mib = input.memory_allowed() >> 20;
        let what = format!("it takes more than {mib} MiB of memory, too much for its size");
        return Err(ReadError::too_large(input.at(), what));
    }
    Ok(())
}

#[inline]
fn message_field(out: &mut Decoded, tag: FieldTag, bytes: &[u8], at: u64) -> Result<(), ReadError> {
    let c = Cursor::new(bytes, at);
    let tables = &mut out.tables;
    match tag.field {
        1 => {
            let value_type = tables.value_type(c)?;
            tables.sample_types.push(value_type);
        }
        2 => return tables.sample(c),
        3 => return tables.mapping(c),
        4 => return tables.location(c),
        5 => return tables.function(c),
        6 => return tables.strings.define(bytes, at),
        11 => out.header.period_type = tables.value_type(c)?,
        _ => {
            let mut packed = c;
            while !packed.is_empty() {
                let at = packed.at();
                let comment = tables.strings.keep(packed.varint()?, at)?;
                out.header.comments.push(comment);
            }
        }
    }
    Ok(())
}

fn number_field(out: &mut Decoded, tag: FieldTag, value: u64, at: u64) -> Result<(), ReadError> {
    let Decoded { header, tables } = out;
    let strings = &mut tables.strings;
    match tag.field {
        1..=6 | 11 => return Err(tag.mismatch(at, "profile")),
        7 => header.drop_frames = strings.keep(value, at)?,
        8 => header.keep_frames = strings.keep(value, at)?,
        9 => {
            if header.time_nanos != 0 {
                let what = "a second profile begins; merge profiles instead of concatenating them";
                return Err(ReadError::at(at, what));
            }
            header.time_nanos = value as i64;
        }
        10 => header.duration_nanos = value as i64,
        12 => header.period = value as i64,
        13 => header.comments.push(strings.keep(value, at)?),
        14 => header.default_sample_type = strings.keep(value, at)?,
        15 => header.doc_url = strings.keep(value, at)?,
        _ => {}
    }
    Ok(())
}

/// Checks and resolves all references, and builds the profile.
fn finish(decoded: Decoded) -> Result<Profile, ReadError> {
    let Decoded { mut tables, header } = decoded;
    tables.strings.check()?;
    check_types(&tables)?;
    resolve_ids(&mut tables)?;
    let mut profile = Profile {
        strings: Default::default(),
        sample_types: tables.sample_types,
        mappings: tables.mappings,
        functions: tables.functions,
        lines: tables.lines,
        locations: tables.locations,
        stacks: StackTable::from_parts(tables.frames, tables.ends),
        labels: tables.labels,
        samples: tables.samples,
        values: tables.values,
        times: tables.times,
        ..header
    };
    if tables.strings.needs_translation() {
        translate_strings(&mut profile, |kept| tables.strings.id(kept));
    }
    profile.strings = tables.strings.table;
    times::take_from_labels(&mut profile);
    Ok(profile)
}

fn check_types(tables: &DecodedTables) -> Result<(), ReadError> {
    let types = tables.sample_types.len();
    if types == 0 {
        return Err(ReadError::content("it names no sample type"));
    }
    match tables.width {
        Some(width) if width != types => Err(ReadError::content(format!(
            "its samples have {width} values, but it names {types} sample types"
        ))),
        _ => Ok(()),
    }
}

fn resolve_ids(tables: &mut DecodedTables) -> Result<(), ReadError> {
    let mappings = tables.mapping_ids.resolver()?;
    for location in &mut tables.locations {
        // A mapping that is not defined counts as none; pprof reads such files too.
        location.mapping = location.mapping.and_then(|m| mappings.index(m.0)).map(MappingId);
    }
    let functions = tables.function_ids.resolver()?;
    for line in &mut tables.lines {
        let kept = line.function.0;
        let index = functions.index(kept).ok_or_else(|| tables.function_ids.undefined(kept))?;
        line.function = FunctionId(index);
    }
    let locations = tables.location_ids.resolver()?;
    if let Resolver::Dense { defined } = locations {
        // Stored ids are indexes already; checking the largest suffices.
        let max = tables.location_ids.max_use();
        if max >= defined && !tables.frames.is_empty() {
            return Err(tables.location_ids.undefined(max));
        }
        return Ok(());
    }
    for frame in &mut tables.frames {
        let index =
            locations.index(frame.0).ok_or_else(|| tables.location_ids.undefined(frame.0))?;
        *frame = LocationId(index);
    }
    Ok(())
}

/// Replaces every string id of a profile by `id`.
fn translate_strings(p: &mut Profile, id: impl Fn(StrId) -> StrId) {
    let in_type = |t: &mut ValueType| {
        t.kind = id(t.kind);
        t.unit = id(t.unit);
    };
    p.sample_types.iter_mut().for_each(in_type);
    in_type(&mut p.period_type);
    for s in [&mut p.default_sample_type, &mut p.drop_frames, &mut p.keep_frames, &mut p.doc_url] {
        *s = id(*s);
    }
    for comment in &mut p.comments {
        *comment = id(*comment);
    }
    for m in &mut p.mappings {
        m.file = id(m.file);
        m.build_id = id(m.build_id);
    }
    for f in &mut p.functions {
        f.name = id(f.name);
        f.system_name = id(f.system_name);
        f.filename = id(f.filename);
    }
    translate_labels(p, id);
}

fn translate_labels(p: &mut Profile, id: impl Fn(StrId) -> StrId) {
    let mut labels = LabelTable::default();
    let mut scratch: Vec<Label> = Vec::new();
    let mut sets = Vec::with_capacity(p.labels.len());
    for set in 0..p.labels.len() as u32 {
        scratch.clear();
        scratch.extend(p.labels.get(LabelSetId(set)).iter().map(|label| {
            let value = match label.value {
                LabelValue::Str(s) if id(s) == StrId::EMPTY => {
                    LabelValue::Num { value: 0, unit: StrId::EMPTY }
                }
                LabelValue::Str(s) => LabelValue::Str(id(s)),
                LabelValue::Num { value, unit } => LabelValue::Num { value, unit: id(unit) },
            };
            Label { key: id(label.key), value }
        }));
        sets.push(labels.intern(&scratch));
    }
    for sample in &mut p.samples {
        sample.labels = sets[sample.labels.0 as usize];
    }
    p.labels = labels;
}

#[cfg(test)]
mod tests;
