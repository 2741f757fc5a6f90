//! Reads the memory of a process from outside, within a time limit.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use super::Failure;
pub use sys::arch::PAGE;
use sys::os;

/// Bytes of a piece for random access, and number of cached pieces.
const PIECE: usize = 16 << 10;
const PIECES: usize = 1 << 11;

/// Bytes that are read at a time sequentially: as much as a page of the page map covers.
const STRETCH: u64 = 2 << 20;

/// Size above which a range is read sequentially.
const LONG: u64 = 128 << 10;

/// A process's memory.
pub struct ProcessMemory {
    pid: i32,
    until: Instant,
    /// Index of the piece in each cache slot, and its contents (none: unreadable).
    numbers: Vec<u64>,
    pieces: Vec<Option<Box<[u8; PIECE]>>>,
    stretch: Vec<u8>,
    /// The page map, which shows present pages.
    map: Option<File>,
}

impl ProcessMemory {
    /// The memory of this process, readable until the time limit.
    pub fn new(pid: i32, until: Instant) -> ProcessMemory {
        let map = File::open(format!("/proc/{pid}/pagemap")).ok();
        let pieces = (0..PIECES).map(|_| None).collect();
        ProcessMemory {
            pid,
            until,
            numbers: vec![u64::MAX; PIECES],
            pieces,
            stretch: Vec::new(),
            map,
        }
    }

    /// Checks the time limit.
    ///
    /// # Errors
    ///
    /// The time is over.
    pub fn check_time(&self) -> Result<(), Failure> {
        if Instant::now() < self.until { Ok(()) } else { Err(Failure::TooLong) }
    }

    /// Copies the bytes at an address.
    ///
    /// # Errors
    ///
    /// Not all of it can be read.
    pub fn copy(&self, address: u64, to: &mut [u8]) -> Result<(), Failure> {
        let read = os::read_memory(self.pid, address, to)?;
        if read == to.len() {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::EFAULT).into())
        }
    }

    /// The piece that contains an address.
    fn piece(&mut self, address: u64) -> Result<Option<&[u8; PIECE]>, Failure> {
        let number = address / PIECE as u64;
        let place = number as usize % PIECES;
        if self.numbers[place] != number {
            self.check_time()?;
            let mut bytes = self.pieces[place].take().unwrap_or_else(|| Box::new([0; PIECE]));
            self.numbers[place] = number;
            let read = self.read_pages(number * PIECE as u64, &mut bytes[..])?;
            self.pieces[place] = read.then_some(bytes);
        }
        Ok(self.pieces[place].as_deref())
    }

    /// Reads whole pages; unreadable ones are zeros. False if all are unreadable.
    fn read_pages(&self, address: u64, to: &mut [u8]) -> Result<bool, Failure> {
        let mut any = false;
        let mut done = 0;
        while done < to.len() {
            match os::read_memory(self.pid, address + done as u64, &mut to[done..]) {
                Ok(read) if read > 0 => {
                    any = true;
                    done += read;
                }
                Err(e) if e.raw_os_error() != Some(libc::EFAULT) => return Err(e.into()),
                _ => {
                    let next = (done + PAGE as usize).min(to.len());
                    to[done..next].fill(0);
                    done = next;
                }
            }
        }
        Ok(any)
    }

    /// The word at an address that is a multiple of 8; `None` if it cannot be read.
    ///
    /// # Errors
    ///
    /// The time is over, or the process has ended.
    pub fn word(&mut self, address: u64) -> Result<Option<u64>, Failure> {
        let at = address as usize % PIECE;
        let piece = self.piece(address)?;
        let bytes = piece.and_then(|piece| piece.get(at..at + 8));
        Ok(bytes.and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes))
    }

    /// Passes the words in a range to `visit`, with their addresses; unreadable ones are omitted.
    ///
    /// # Errors
    ///
    /// The time is over, or the process has ended.
    pub fn each_word(
        &mut self,
        start: u64,
        end: u64,
        mut visit: impl FnMut(u64, u64),
    ) -> Result<(), Failure> {
        let start = start.saturating_add(7) & !7;
        let end = end & !7;
        if end.saturating_sub(start) > LONG {
            return self.each_word_of_much(start, end, visit);
        }
        let mut at = start;
        while at < end {
            let next = ((at / PIECE as u64 + 1) * PIECE as u64).min(end);
            let first = at as usize % PIECE;
            if let Some(piece) = self.piece(at)? {
                let words = words(&piece[first..first + (next - at) as usize]);
                (at..).step_by(8).zip(words).for_each(|(at, word)| visit(at, word));
            }
            at = next;
        }
        Ok(())
    }

    fn each_word_of_much(
        &mut self,
        start: u64,
        end: u64,
        mut visit: impl FnMut(u64, u64),
    ) -> Result<(), Failure> {
        let mut at = start;
        let mut buffer = std::mem::take(&mut self.stretch);
        buffer.resize(STRETCH as usize, 0);
        while at < end {
            self.check_time()?;
            let next = ((at / STRETCH + 1) * STRETCH).min(end);
            for (from, to) in self.present(at, next) {
                let bytes = &mut buffer[..(to - from) as usize];
                self.read_pages(from, bytes)?;
                (from..).step_by(8).zip(words(bytes)).for_each(|(at, word)| visit(at, word));
            }
            at = next;
        }
        self.stretch = buffer;
        Ok(())
    }

    /// The parts of a range that are present, in memory or swapped out; others were never written
    /// to (`Documentation/admin-guide/mm/pagemap.rst`).
    fn present(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        const PRESENT: u64 = 3 << 62;
        let first = start / PAGE;
        let last = end.div_ceil(PAGE);
        let mut entries = vec![0; 8 * (last - first) as usize];
        let read = self.map.as_ref().map(|map| map.read_exact_at(&mut entries, 8 * first));
        if !matches!(read, Some(Ok(()))) {
            return vec![(start, end)];
        }
        let mut parts: Vec<(u64, u64)> = Vec::new();
        for (page, entry) in (first..).zip(words(&entries)) {
            let from = (page * PAGE).max(start);
            let to = ((page + 1) * PAGE).min(end);
            match parts.last_mut() {
                _ if entry & PRESENT == 0 => {}
                Some(part) if part.1 == from => part.1 = to,
                _ => parts.push((from, to)),
            }
        }
        parts
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word))
}
