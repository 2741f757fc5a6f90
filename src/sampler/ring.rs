//! One perf ring buffer, and several merged by time.
//!
//! The only file that reads memory that the kernel writes to; see `perf_event_open(2)`, "MMAP
//! layout". Records are read in place; only one that wraps around the end of the buffer is copied.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use perf_event::Counter;
use perf_event_open_sys::bindings::perf_event_mmap_page;

use super::arch::prefetch;
use sys::arch;
use sys::record::{HEADER, Header, time_of};

/// Size of a page, which precedes the data.
const PAGE: usize = arch::PAGE as usize;

/// The smallest ring with which a recording works, in bytes: a sample with a stack copy fits.
pub const LEAST: usize = 64 << 10;

/// One CPU's ring buffer and the (dummy) event that owns it.
pub struct Ring {
    owner: Counter,
    cpu: u32,
    map: MmapRaw,
    data_size: u64,
    /// Position up to which prof has read; published to the kernel after each record.
    tail: u64,
    /// Position up to which the kernel had written at the last [`Ring::refresh`].
    head: u64,
    most_waiting: u64,
    /// Copy of a record that wraps around, and the tail at which it was made.
    wrapped: Vec<u8>,
    wrapped_at: u64,
}

impl Ring {
    /// Maps a ring of `data_size` bytes (a power of two) onto `owner`.
    ///
    /// # Errors
    ///
    /// `EPERM` if the size exceeds the memory that this user may lock.
    pub fn new(owner: Counter, cpu: u32, data_size: usize) -> io::Result<Ring> {
        assert!(data_size.is_power_of_two() && data_size >= PAGE);
        let map = MmapOptions::new().len(PAGE + data_size).map_raw(owner.as_raw_fd())?;
        let wrapped = Vec::with_capacity(usize::from(u16::MAX));
        let data_size = data_size as u64;
        let wrapped_at = u64::MAX;
        let tail = 0;
        let head = 0;
        let most_waiting = 0;
        Ok(Ring { owner, cpu, map, data_size, tail, head, most_waiting, wrapped, wrapped_at })
    }

    /// The event to which further events are redirected with `PERF_EVENT_IOC_SET_OUTPUT`, and which
    /// becomes readable at the watermark.
    pub fn fd(&self) -> RawFd {
        self.owner.as_raw_fd()
    }

    /// A duplicate of the descriptor of [`Ring::fd`].
    ///
    /// # Errors
    ///
    /// Too many open files.
    pub fn event(&self) -> io::Result<OwnedFd> {
        // SAFETY: the owner keeps its descriptor open, and it is borrowed for long enough.
        unsafe { BorrowedFd::borrow_raw(self.owner.as_raw_fd()) }.try_clone_to_owned()
    }

    /// The ring's CPU.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    fn field(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the first page of the map is a perf_event_mmap_page for as long as the map
        // lives; both fields are aligned words that kernel and user space access atomically.
        unsafe { &*self.map.as_ptr().add(offset).cast::<AtomicU64>() }
    }

    /// Reads the position up to which the kernel has written.
    pub fn refresh(&mut self) {
        let offset = std::mem::offset_of!(perf_event_mmap_page, data_head);
        // Acquire: the records before data_head are read after it (pairs with the kernel).
        self.head = self.field(offset).load(Ordering::Acquire);
        self.most_waiting = self.most_waiting.max(self.waiting());
    }

    /// The next record as of the last [`Ring::refresh`], or `None`.
    pub fn peek(&mut self) -> Option<(Header, &[u8])> {
        let available = self.head.wrapping_sub(self.tail);
        if available < HEADER as u64 {
            return None;
        }
        let header = Header::parse(self.copy_header());
        let size = u64::from(header.size);
        if size < HEADER as u64 || size > available {
            // Impossible with a working kernel; skip all rather than loop.
            self.tail = self.head;
            return None;
        }
        let start = self.tail & (self.data_size - 1);
        let len = size as usize;
        if start + size <= self.data_size {
            return Some((header, self.slice(start as usize, len)));
        }
        if self.wrapped_at != self.tail {
            let first = (self.data_size - start) as usize;
            let mut wrapped = std::mem::take(&mut self.wrapped);
            wrapped.clear();
            wrapped.extend_from_slice(self.slice(start as usize, first));
            wrapped.extend_from_slice(self.slice(0, len - first));
            (self.wrapped, self.wrapped_at) = (wrapped, self.tail);
        }
        Some((header, &self.wrapped))
    }

    fn copy_header(&self) -> [u8; HEADER] {
        // Records are aligned to eight bytes, so a header never wraps.
        let start = (self.tail & (self.data_size - 1)) as usize;
        *self.slice(start, HEADER).first_chunk().expect("a slice of eight bytes")
    }

    fn slice(&self, start: usize, len: usize) -> &[u8] {
        assert!(start + len <= self.data_size as usize);
        // SAFETY: the range is within the data pages (asserted), and the kernel does not write
        // between data_tail and data_head until we publish a new tail, which needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(PAGE + start), len) }
    }

    /// Passes all records as of the last [`Ring::refresh`] to `visit` without freeing them.
    pub fn scan(&mut self, mut visit: impl FnMut(Header, &[u8])) {
        let tail = self.tail;
        while let Some((header, bytes)) = self.peek() {
            visit(header, bytes);
            self.tail = self.tail.wrapping_add(u64::from(header.size));
        }
        self.tail = tail;
    }

    /// Frees the record that [`Ring::peek`] returned.
    pub fn advance(&mut self, size: u16) {
        self.tail = self.tail.wrapping_add(u64::from(size));
        self.publish();
    }

    /// Prefetches the record behind the first, which has `size` bytes: its beginning, with the
    /// innermost frames, and its end, which contains the length of the stack copy. Another CPU
    /// wrote them, so each cache line would be a miss.
    fn prefetch_behind(&self, size: u16) {
        const LINE: u64 = 64;
        const LINES: u64 = 8;
        let next = self.tail.wrapping_add(u64::from(size));
        if self.head.wrapping_sub(next) < LINES * LINE {
            return;
        }
        // Large records all have the same size.
        let lines = (0..LINES).map(|i| i * LINE);
        for at in lines.chain([u64::from(size).saturating_sub(8)]) {
            let start = (next.wrapping_add(at) & (self.data_size - 1)) as usize;
            prefetch(self.map.as_ptr().wrapping_add(PAGE + start));
        }
    }

    fn publish(&mut self) {
        let offset = std::mem::offset_of!(perf_event_mmap_page, data_tail);
        // Release: what we read of the record is read before the kernel may overwrite it.
        self.field(offset).store(self.tail, Ordering::Release);
    }

    /// Number of unread bytes now.
    pub fn filled(&self) -> u64 {
        let offset = std::mem::offset_of!(perf_event_mmap_page, data_head);
        self.field(offset).load(Ordering::Acquire).wrapping_sub(self.tail)
    }

    /// True if more than one part of so many is filled.
    pub fn is_filled_above(&self, parts: u64) -> bool {
        self.filled() * parts > self.size()
    }

    /// Number of unread bytes as of the last [`Ring::refresh`].
    pub fn waiting(&self) -> u64 {
        self.head.wrapping_sub(self.tail)
    }

    /// Maximum of [`Ring::waiting`] so far.
    pub fn most_waiting(&self) -> u64 {
        self.most_waiting
    }

    /// Size of the data in bytes.
    pub fn size(&self) -> u64 {
        self.data_size
    }
}

/// What [`drain`] does after a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It delivers the next one.
    Deliver,
    /// It ends if little is in the rings.
    MayWait,
}

/// True if no ring holds more than a quarter of its size: more is taken as a sign that events come
/// faster than they are read.
pub fn hold_little(rings: &[Ring]) -> bool {
    !rings.iter().any(|ring| ring.is_filled_above(4))
}

/// Delivers the records of several rings in order of time, up to `until` (exclusive,
/// `CLOCK_MONOTONIC` nanoseconds), and frees each after `consume`, which gets the ring's index.
///
/// Newer records stay: another ring may still get an older one. Of records with the same time, that
/// of the first ring comes first. Returns the time before which all records were delivered: `until`,
/// unless `consume` says that the others may wait.
pub fn drain(
    rings: &mut [Ring],
    until: u64,
    mut consume: impl FnMut(usize, Header, &[u8]) -> Next,
) -> u64 {
    let mut next = Vec::with_capacity(rings.len());
    for ring in rings.iter_mut() {
        ring.refresh();
        next.push(next_record(ring));
    }
    loop {
        let Some((at, time, size)) = next
            .iter()
            .enumerate()
            .filter_map(|(i, record)| record.map(|(time, size)| (i, time, size)))
            .min_by_key(|&(_, time, _)| time)
        else {
            return until;
        };
        if time >= until {
            return until;
        }
        let ring = &mut rings[at];
        ring.prefetch_behind(size);
        if let Some((header, bytes)) = ring.peek() {
            let then = consume(at, header, bytes);
            ring.advance(header.size);
            if then == Next::MayWait && hold_little(rings) {
                return time;
            }
        }
        next[at] = next_record(&mut rings[at]);
    }
}

/// Time and size of a ring's next record; a record without a time has time 0, so that it is
/// delivered at once.
fn next_record(ring: &mut Ring) -> Option<(u64, u16)> {
    ring.peek().map(|(header, bytes)| (time_of(header, bytes).unwrap_or(0), header.size))
}
