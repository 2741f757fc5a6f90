//! Spills a [`Builder`]'s aggregated data to a file from time to time, so that its memory does not
//! grow with the length of a recording: most stacks occur only once.
//!
//! The calling-context tree and the rows are written as they are; addresses, labels and strings
//! stay in memory. At the end all parts are read back and added up.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};

use super::builder::Builder;
use super::tables::{StackNode, StackRow, StackTables};
use super::time_log::TimeLog;
use super::{LabelSetId, LocationId};

/// Opens the spill file of a [`Builder`] for writing and reading, on first use.
pub type OpenSpill = fn() -> io::Result<File>;

/// The file, and its contents.
pub struct Spill {
    pub(super) open: OpenSpill,
    file: Option<File>,
    /// Number of nodes and rows of each part.
    parts: Vec<(usize, usize)>,
    /// Bytes of all parts.
    length: u64,
    /// Rows of all parts.
    rows: usize,
    /// Writing failed: no more parts are written.
    failed: bool,
}

impl Spill {
    /// Without any part.
    pub fn new(open: OpenSpill) -> Spill {
        Spill { open, file: None, parts: Vec::new(), length: 0, rows: 0, failed: false }
    }

    /// True if more can be spilled.
    pub fn is_open(&self, most_rows: usize) -> bool {
        !self.failed && self.rows < most_rows
    }

    fn put(&mut self, tables: &StackTables) -> io::Result<()> {
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
    /// Spills the present data; if that fails, the data stays in memory.
    pub(super) fn spill_tables(&mut self) {
        let Some(spill) = &mut self.spill else { return };
        match spill.put(&self.tables) {
            Ok(()) => {
                self.tables = StackTables::default();
                self.times.iter_mut().for_each(TimeLog::end_part);
            }
            Err(_) => spill.failed = true,
        }
    }

    /// Reads all spilled data back; to be called before the profile is used as a whole.
    ///
    /// # Errors
    ///
    /// The file cannot be read: some or all spilled data is missing.
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
                let rows = self.tables.add_all(&part, width);
                if let Some(times) = &mut self.times {
                    times.place_part(rows);
                }
            }
            Ok(())
        };
        let result = read();
        let rows = self.tables.add_all(&last, width);
        if let Some(times) = &mut self.times {
            times.place_part(rows);
            if result.is_err() {
                times.give_up();
            }
        }
        result
    }
}

fn read_part(
    from: &mut impl Read,
    nodes: usize,
    rows: usize,
    width: usize,
) -> io::Result<StackTables> {
    let mut word = || {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes).map(|()| bytes)
    };
    let half = |bytes: [u8; 8], at: usize| {
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    let mut part = StackTables::default();
    for _ in 0..nodes {
        let bytes = word()?;
        part.nodes.push(StackNode { parent: half(bytes, 0), location: LocationId(half(bytes, 4)) });
    }
    for _ in 0..rows {
        let bytes = word()?;
        part.rows.push(StackRow { node: half(bytes, 0), labels: LabelSetId(half(bytes, 4)) });
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
    fn samples_of(p: &Profile) -> Vec<String> {
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
            b.add(&stack, labels, 1, &[(Column(1), (seed >> 40) as i64 & 0xff)]);
        }
        b
    }

    fn builder() -> Builder {
        Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")])
    }

    #[test]
    fn spilled_data_is_read_back() {
        let small = Limits { part_nodes: 300, part_rows: 200, ..Limits::default() };
        let mut spilled = filled(builder().with_limits(small).with_spill(tempfile::tempfile));
        assert!(spilled.tables.rows.len() <= 200 && spilled.tables.nodes.len() <= 320);
        spilled.settle().unwrap();
        let whole = filled(builder());
        assert_eq!(spilled.distinct(), whole.distinct());
        assert_eq!((spilled.folded(), whole.folded()), (0, 0));
        let spilled = spilled.finish(None);
        let whole = whole.finish(None);
        assert_eq!(samples_of(&spilled), samples_of(&whole));
        assert_eq!(spilled.total(0), 5000);
    }

    #[test]
    fn a_failing_file_changes_nothing() {
        let small = Limits { part_nodes: 300, part_rows: 200, ..Limits::default() };
        let none: OpenSpill = || Err(io::ErrorKind::StorageFull.into());
        let full: OpenSpill = || std::fs::OpenOptions::new().write(true).open("/dev/full");
        for open in [none, full] {
            let mut b = filled(builder().with_limits(small).with_spill(open));
            b.settle().unwrap();
            assert_eq!(samples_of(&b.finish(None)), samples_of(&filled(builder()).finish(None)));
        }
    }

    #[test]
    fn no_more_is_spilled_than_can_be_read_back() {
        let small =
            Limits { part_nodes: 300, part_rows: 200, spilled_rows: 500, ..Limits::default() };
        let mut b = filled(builder().with_limits(small).with_spill(tempfile::tempfile));
        assert!(b.tables.rows.len() > 200);
        b.settle().unwrap();
        assert_eq!(samples_of(&b.finish(None)), samples_of(&filled(builder()).finish(None)));
    }
}
