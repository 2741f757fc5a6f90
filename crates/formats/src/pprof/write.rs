//! Writing: `profile.proto`, compressed by gzip.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use profile::{LabelValue, Profile, StrId, ValueType};

use super::times::TimeKey;
use super::wire::{LEN, put_bytes, put_number, put_tag, put_varint};

/// Bytes that are encoded before they are compressed.
const CHUNK: usize = 64 << 10;

/// gzip's level: files are 12 % larger than at level 6, in 40 % of the time.
const LEVEL: u32 = 2;

/// The level if most times are those of a single sample: a sample takes 12 bytes instead of 14.
const LEVEL_OF_SINGLE_TIMES: u32 = 6;

/// Writes a profile as `profile.proto`, compressed by gzip.
///
/// Ids are index + 1, and `profile.mappings[0]` stays the main binary. A label whose value is the
/// empty text is omitted: the format cannot represent it. If there are times, the strings precede
/// the samples, so that a reader recognizes the labels of times at once.
///
/// # Errors
///
/// Those of `out`.
pub fn write(profile: &Profile, out: impl Write) -> io::Result<()> {
    let gzip = GzEncoder::new(out, Compression::new(level(profile)));
    let times = TimeKey::for_writing(profile);
    let [out, body, part] = [const { Vec::new() }; 3];
    let mut e = Encoder { profile, times, gzip, out, body, part };
    e.types()?;
    if times.is_some() {
        e.strings()?;
    }
    e.samples()?;
    e.mappings()?;
    e.locations()?;
    e.functions()?;
    if times.is_none() {
        e.strings()?;
    }
    e.header()?;
    e.gzip.write_all(&e.out)?;
    e.gzip.finish()?.flush()
}

/// The level for a profile.
fn level(profile: &Profile) -> u32 {
    let times = &profile.times;
    if times.len() < 2 * times.lists() { LEVEL_OF_SINGLE_TIMES } else { LEVEL }
}

struct Encoder<'p, W: Write> {
    profile: &'p Profile,
    times: Option<TimeKey>,
    gzip: GzEncoder<W>,
    /// Encoded bytes, not compressed yet.
    out: Vec<u8>,
    /// The message being encoded.
    body: Vec<u8>,
    /// A message or packed field within it.
    part: Vec<u8>,
}

impl<W: Write> Encoder<'_, W> {
    /// Ends a message of the profile: `body` becomes field number `field`.
    fn message(&mut self, field: u32) -> io::Result<()> {
        put_bytes(&mut self.out, field, &self.body);
        self.body.clear();
        if self.out.len() >= CHUNK {
            self.gzip.write_all(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }

    fn value_type(&mut self, field: u32, t: ValueType) -> io::Result<()> {
        put_number(&mut self.body, 1, u64::from(t.kind.0));
        put_number(&mut self.body, 2, u64::from(t.unit.0));
        self.message(field)
    }

    fn types(&mut self) -> io::Result<()> {
        self.profile.sample_types.iter().try_for_each(|&t| self.value_type(1, t))
    }

    fn samples(&mut self) -> io::Result<()> {
        let p = self.profile;
        for (i, sample) in p.samples.iter().enumerate() {
            let Encoder { body, part, .. } = self;
            let stack = p.stacks.get(sample.stack);
            packed(body, part, 1, stack.iter().map(|l| u64::from(l.0) + 1));
            packed(body, part, 2, p.values_of(i).iter().map(|&v| v as u64));
            for label in p.labels.get(sample.labels) {
                part.clear();
                put_number(part, 1, u64::from(label.key.0));
                match label.value {
                    LabelValue::Str(StrId::EMPTY) => continue,
                    LabelValue::Str(s) => put_number(part, 2, u64::from(s.0)),
                    LabelValue::Num { value, unit } => {
                        put_number(part, 3, value as u64);
                        put_number(part, 4, u64::from(unit.0));
                    }
                }
                put_bytes(body, 3, part);
            }
            if let Some(TimeKey { key, unit }) = self.times {
                for &time in p.times.get(sample.times) {
                    part.clear();
                    put_number(part, 1, u64::from(key));
                    put_number(part, 3, time);
                    put_number(part, 4, u64::from(unit));
                    put_bytes(body, 3, part);
                }
            }
            self.message(2)?;
        }
        Ok(())
    }

    fn mappings(&mut self) -> io::Result<()> {
        for (i, m) in self.profile.mappings.iter().enumerate() {
            let numbers = [
                i as u64 + 1,
                m.start,
                m.limit,
                m.file_offset,
                u64::from(m.file.0),
                u64::from(m.build_id.0),
                u64::from(m.has_functions),
                u64::from(m.has_filenames),
                u64::from(m.has_line_numbers),
                u64::from(m.has_inline_frames),
            ];
            for (field, number) in (1..).zip(numbers) {
                put_number(&mut self.body, field, number);
            }
            self.message(3)?;
        }
        Ok(())
    }

    fn locations(&mut self) -> io::Result<()> {
        let p = self.profile;
        for (i, l) in p.locations.iter().enumerate() {
            let Encoder { body, part, .. } = self;
            put_number(body, 1, i as u64 + 1);
            put_number(body, 2, l.mapping.map_or(0, |m| u64::from(m.0) + 1));
            put_number(body, 3, l.address);
            let first = l.first_line as usize;
            for line in &p.lines[first..first + l.line_count as usize] {
                part.clear();
                put_number(part, 1, u64::from(line.function.0) + 1);
                put_number(part, 2, line.line as u64);
                put_number(part, 3, line.column as u64);
                put_bytes(body, 4, part);
            }
            put_number(body, 5, u64::from(l.is_folded));
            self.message(4)?;
        }
        Ok(())
    }

    fn functions(&mut self) -> io::Result<()> {
        for (i, f) in self.profile.functions.iter().enumerate() {
            put_number(&mut self.body, 1, i as u64 + 1);
            put_number(&mut self.body, 2, u64::from(f.name.0));
            put_number(&mut self.body, 3, u64::from(f.system_name.0));
            put_number(&mut self.body, 4, u64::from(f.filename.0));
            put_number(&mut self.body, 5, f.start_line as u64);
            self.message(5)?;
        }
        Ok(())
    }

    fn strings(&mut self) -> io::Result<()> {
        let profile = self.profile;
        let missing = self.times.iter().flat_map(|times| times.missing(profile));
        let missing: Vec<&str> = missing.collect();
        for s in profile.strings.iter().chain(missing) {
            self.body.extend_from_slice(s.as_bytes());
            self.message(6)?;
        }
        Ok(())
    }

    fn header(&mut self) -> io::Result<()> {
        let p = self.profile;
        put_number(&mut self.out, 7, u64::from(p.drop_frames.0));
        put_number(&mut self.out, 8, u64::from(p.keep_frames.0));
        put_number(&mut self.out, 9, p.time_nanos as u64);
        put_number(&mut self.out, 10, p.duration_nanos as u64);
        if p.period_type != ValueType::default() {
            self.value_type(11, p.period_type)?;
        }
        put_number(&mut self.out, 12, p.period as u64);
        packed(&mut self.out, &mut self.part, 13, p.comments.iter().map(|c| u64::from(c.0)));
        put_number(&mut self.out, 14, u64::from(p.default_sample_type.0));
        put_number(&mut self.out, 15, u64::from(p.doc_url.0));
        Ok(())
    }
}

/// Appends a packed field, unless it has no numbers.
fn packed(out: &mut Vec<u8>, part: &mut Vec<u8>, field: u32, numbers: impl Iterator<Item = u64>) {
    part.clear();
    numbers.for_each(|n| put_varint(part, n));
    if !part.is_empty() {
        put_tag(out, field, LEN);
        put_varint(out, part.len() as u64);
        out.extend_from_slice(part);
    }
}
