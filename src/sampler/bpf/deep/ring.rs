//! prof's side of a BPF ring buffer (`Documentation/bpf/ringbuf.rst` of the kernel): the page that
//! says how far it was read, the page that says how far it was written, and the data, mapped twice
//! in a row so that no record wraps around.

#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use crate::sampler::bpf::syscall::Map;

const PAGE: usize = 4096;

/// Bytes before each record: its length, with two flags, and where it lies.
const PREFIX: usize = 8;

/// The program has not finished the record, or has given it up.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;

/// A record that is in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its bytes are there.
    Done,
    /// It is being written.
    Busy,
    /// There is nothing in it.
    Discarded,
}

/// The ring, mapped.
#[derive(Debug)]
pub struct Ring {
    /// How far it was read.
    read: MmapRaw,
    /// How far it was written, and the data behind that.
    written: MmapRaw,
    size: usize,
}

impl Ring {
    /// Maps a ring of so many bytes.
    ///
    /// # Errors
    ///
    /// There is not enough memory.
    pub fn map(map: &Map, size: usize) -> io::Result<Ring> {
        assert!(size.is_power_of_two() && size >= PAGE);
        let read = MmapOptions::new().len(PAGE).map_raw(map.fd())?;
        let all = PAGE + 2 * size;
        let written =
            MmapOptions::new().offset(PAGE as u64).len(all).map_raw_read_only(map.fd())?;
        Ok(Ring { read, written, size })
    }

    /// How far it was read.
    pub fn read_to(&self) -> u64 {
        self.position(&self.read).load(Ordering::Relaxed)
    }

    /// How far it was written.
    pub fn written_to(&self) -> u64 {
        // Acquire: prefixes before this position are read after it (pairs with the kernel).
        self.position(&self.written).load(Ordering::Acquire)
    }

    fn position<'a>(&self, page: &'a MmapRaw) -> &'a AtomicU64 {
        // SAFETY: both mappings begin with a page whose first word is a position that the kernel and
        // user space access atomically, for as long as the mapping lives.
        unsafe { &*page.as_ptr().cast::<AtomicU64>() }
    }

    /// Gives back to the kernel what lies before a position.
    pub fn release(&self, position: u64) {
        // Release: what was read of the records is read before the kernel may overwrite it.
        self.position(&self.read).store(position, Ordering::Release);
    }

    /// The record at a position: what it is, where its bytes begin, how many it has, and where
    /// the next one lies. `position` must lie between what was read and what was written.
    pub fn record(&self, position: u64) -> (State, usize, usize, u64) {
        let at = (position as usize & (self.size - 1)) + PAGE;
        // SAFETY: records begin at multiples of eight within the data; the word before each is
        // written by the kernel atomically.
        let prefix = unsafe { &*self.written.as_ptr().add(at).cast::<AtomicU32>() };
        // Acquire: the record is read after the kernel has cleared the flag.
        let prefix = prefix.load(Ordering::Acquire);
        let length = (prefix & !(BUSY | DISCARDED)) as usize;
        let state = match prefix {
            p if p & BUSY != 0 => State::Busy,
            p if p & DISCARDED != 0 => State::Discarded,
            _ => State::Done,
        };
        let next = position + (length + PREFIX).next_multiple_of(8) as u64;
        (state, at - PAGE + PREFIX, length, next)
    }

    /// Bytes of a finished record that was not released.
    pub fn bytes(&self, at: usize, length: usize) -> &[u8] {
        assert!(at <= 2 * self.size && length <= 2 * self.size - at);
        // SAFETY: the range is within the data (asserted). The kernel does not write to a finished
        // record until it is released, which [`super::Deep`] does only when nobody holds bytes of it.
        unsafe { std::slice::from_raw_parts(self.written.as_ptr().add(PAGE + at), length) }
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.size
    }
}
