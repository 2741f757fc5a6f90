//! The records of the files of a recording: one, or one for each thread of perf
//! (`perf record --threads`).

use super::record::RawRecord;
use super::records::Records;
use crate::error::ReadError;

/// A file.
struct Source<'r> {
    records: Records<'r>,
    /// The time of its last record.
    time: u64,
    is_at_end: bool,
}

/// All files.
pub struct Sources<'r> {
    all: Vec<Source<'r>>,
    /// The file of the last record.
    current: usize,
}

impl<'r> Sources<'r> {
    /// The records of files; the first one has those about what was there before the recording.
    pub fn new(files: impl IntoIterator<Item = Records<'r>>) -> Sources<'r> {
        let files: Vec<Records<'r>> = files.into_iter().collect();
        let count = files.len();
        let source =
            |file: Records<'r>| Source { records: file.beside(count), time: 0, is_at_end: false };
        Sources { all: files.into_iter().map(source).collect(), current: 0 }
    }

    /// True if the records are in several files, each of which is in order by itself.
    pub fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// Bytes that were read so far.
    pub fn bytes_read(&self) -> u64 {
        self.all.iter().map(|source| source.records.bytes_read()).sum()
    }

    /// Sets the time of the last record.
    pub fn set_time(&mut self, time: u64) {
        self.all[self.current].time = time;
    }

    /// Ends the file of the last record, and leaves the others to be read.
    pub fn end_current(&mut self) {
        self.all[self.current].is_at_end = true;
    }

    /// The next record: of the file that is behind the others.
    ///
    /// # Errors
    ///
    /// It is cut off, or damaged.
    pub fn next(&mut self) -> Result<Option<RawRecord>, ReadError> {
        loop {
            let open = self.all.iter().enumerate().filter(|(_, source)| !source.is_at_end);
            let Some((next, _)) = open.min_by_key(|(_, source)| source.time) else {
                return Ok(None);
            };
            self.current = next;
            match self.all[next].records.next()? {
                Some(record) => return Ok(Some(record)),
                None => self.all[next].is_at_end = true,
            }
        }
    }
}
