//! What a [`Builder`] has aggregated is put aside from time to time, so that its memory does not
//! grow with the length of a recording: most stacks are seen once and never again.
//!
//! The calling-context tree and the rows go to a file, as they are; addresses, labels and strings
//! stay. At the end all is read back and added up.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};

use super::builder::Builder;
use super::tables::{Node, Row, Tables};
use super::{LabelSetId, LocationId};

/// Opens a file for a [`Builder`] to write to and to read from, at the first need.
pub type Open = fn() -> io::Result<File>;

/// The file, and what is in it.
pub struct Spill {
    open: Open,
    file: Option<File>,
    /// Nodes and rows of each part.
    parts: Vec<(usize, usize)>,
    /// Bytes of all parts.
    length: u64,
    /// Rows of all parts.
    rows: usize,
    /// It could not be written to: no more parts.
    failed: bool,
}

impl Spill {
    /// Nothing has been put aside yet.
    pub fn new(open: Open) -> Spill {
        Spill { open, file: None, parts: Vec::new(), length: 0, rows: 0, failed: false }
    }

    /// More can be put aside, as far as is known.
    pub fn is_open(&self, most_rows: usize) -> bool {
        !self.failed && self.rows < most_rows
    }

    fn put(&mut self, tables: &Tables) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert((self.open)()?),
        };
        file.seek(SeekFrom::Start(self.length))?;
        let mut out = BufWriter::with_capacity(1 << 16, file);
        for node in &tables.nodes {
            out.write_all(&node.parent.to_le_bytes())?;
            out.write_all(&node.location.0.to_le_bytes())?;
        }
        for row in &tables.rows {
            out.write_all(&row.node.to_le_bytes())?;
            out.write_all(&row.labels.0.to_le_bytes())?;
        }
        for value in &tables.values {
            out.write_all(&value.to_le_bytes())?;
        }
        out.flush()?;
        let counts = (tables.nodes.len(), tables.rows.len());
        self.length += 8 * (counts.0 + counts.1 + tables.values.len()) as u64;
        self.rows += counts.1;
        self.parts.push(counts);
        Ok(())
    }
}

impl Builder {
    /// Puts aside what there is; when that fails it stays where it is.
    pub(super) fn put_aside(&mut self) {
        let Some(spill) = &mut self.spill else { return };
        match spill.put(&self.tables) {
            Ok(()) => self.tables = Tables::default(),
            Err(_) => spill.failed = true,
        }
    }

    /// Takes back all that was put aside; to be called before anything is asked of the whole.
    ///
    /// # Errors
    ///
    /// The file cannot be read: what was put aside is missing, or some of it.
    pub fn settle(&mut self) -> io::Result<()> {
        let Some(Spill { file: Some(mut file), parts, .. }) = self.spill.take() else {
            return Ok(());
        };
        let last = std::mem::take(&mut self.tables);
        let width = self.profile.sample_types.len();
        let mut read = || -> io::Result<()> {
            file.seek(SeekFrom::Start(0))?;
            let mut from = BufReader::with_capacity(1 << 16, &file);
            for &(nodes, rows) in &parts {
                let part = read_part(&mut from, nodes, rows, width)?;
                self.tables.add_all(&part, width);
            }
            Ok(())
        };
        let result = read();
        self.tables.add_all(&last, width);
        result
    }
}

fn read_part(from: &mut impl Read, nodes: usize, rows: usize, width: usize) -> io::Result<Tables> {
    let mut word = || {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes).map(|()| bytes)
    };
    let half = |bytes: [u8; 8], at: usize| {
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    let mut part = Tables::default();
    for _ in 0..nodes {
        let bytes = word()?;
        part.nodes.push(Node { parent: half(bytes, 0), location: LocationId(half(bytes, 4)) });
    }
    for _ in 0..rows {
        let bytes = word()?;
        part.rows.push(Row { node: half(bytes, 0), labels: LabelSetId(half(bytes, 4)) });
    }
    for _ in 0..rows * width {
        part.values.push(i64::from_le_bytes(word()?));
    }
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, Label, LabelValue, Limits, Profile, StrId};

    /// Every sample of a profile as text, sorted.
    fn told(p: &Profile) -> Vec<String> {
        let mut out: Vec<String> = (0..p.samples.len())
            .map(|i| {
                let sample = p.samples[i];
                let stack = p.stacks.get(sample.stack);
                let stack: Vec<u64> =
                    stack.iter().map(|l| p.locations[l.0 as usize].address).collect();
                format!("{stack:?} {:?} {:?}", p.labels.get(sample.labels), p.values_of(i))
            })
            .collect();
        out.sort();
        out
    }

    fn filled(mut b: Builder) -> Builder {
        let key = b.profile.strings.intern("tid");
        let mut seed = 1u64;
        for _ in 0..5000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let stack: Vec<LocationId> = (0..(seed >> 60))
                .map(|i| b.location(None, 100 * i + ((seed >> (3 * i)) & 7)))
                .collect();
            let value = LabelValue::Num { value: (seed >> 50) as i64 & 3, unit: StrId::EMPTY };
            let labels = b.profile.labels.intern(&[Label { key, value }]);
            b.add(&stack, labels, Column(1), (seed >> 40) as i64 & 0xff);
        }
        b
    }

    fn builder() -> Builder {
        Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")])
    }

    #[test]
    fn what_is_put_aside_comes_back() {
        let small = Limits { part_nodes: 300, part_rows: 200, ..Limits::default() };
        let mut aside = filled(builder().with_limits(small).with_spill(tempfile::tempfile));
        assert!(aside.tables.rows.len() <= 200 && aside.tables.nodes.len() <= 320);
        aside.settle().unwrap();
        let whole = filled(builder());
        assert_eq!(aside.distinct(), whole.distinct());
        assert_eq!((aside.folded(), whole.folded()), (0, 0));
        let (aside, whole) = (aside.finish(None), whole.finish(None));
        assert_eq!(told(&aside), told(&whole));
        assert_eq!(aside.total(0), 5000);
    }

    #[test]
    fn a_file_that_cannot_be_had_changes_nothing() {
        let small = Limits { part_nodes: 300, part_rows: 200, ..Limits::default() };
        let none: Open = || Err(io::ErrorKind::StorageFull.into());
        let full: Open = || std::fs::OpenOptions::new().write(true).open("/dev/full");
        for open in [none, full] {
            let mut b = filled(builder().with_limits(small).with_spill(open));
            b.settle().unwrap();
            assert_eq!(told(&b.finish(None)), told(&filled(builder()).finish(None)));
        }
    }

    #[test]
    fn no_more_is_put_aside_than_can_be_taken_back() {
        let small =
            Limits { part_nodes: 300, part_rows: 200, spilled_rows: 500, ..Limits::default() };
        let mut b = filled(builder().with_limits(small).with_spill(tempfile::tempfile));
        assert!(b.tables.rows.len() > 200);
        b.settle().unwrap();
        assert_eq!(told(&b.finish(None)), told(&filled(builder()).finish(None)));
    }
}
