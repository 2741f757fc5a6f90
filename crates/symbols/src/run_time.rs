//! Names of code made at run time, from perf maps and jitdump files.
//!
//! The files are read once, whatever their length: only the requested addresses are kept, each with
//! the entries found so far. An address that represented several pieces of code while it was
//! sampled gets no name.

mod found;
mod lines;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;

use super::address_frames::{AddressFrames, SymbolFrame};
use super::demangle;
use found::{CodeEntry, FoundCode};
use lines::LineTables;
use profile::Cause;
use profile::StrId;
use sys::foreign;
use sys::jit::file_names::number_of_dump;
use sys::jit::jitdump::{self, JitRecord};
use sys::jit::perf_map::{self, NameAt};
use sys::jit::{FileReader, SizeMark, Sources, Span, is_as_recorded};

/// Most bytes of a perf map that are read (Node and Java write some megabytes).
const MAX_MAP: u64 = 1 << 30;

/// Most bytes of all perf maps and jitdump files together.
pub const MAX_OF_ALL: u64 = 4 << 30;

/// Delay in nanoseconds after the last sample within which a name is accepted: Java's agents write
/// names late.
const LATE: u64 = 1_000_000_000;

/// Most moves of code in a jitdump.
const MAX_MOVES: usize = 1 << 18;

/// Most moves of one piece of code that are followed.
const MAX_CHAIN: usize = 16;

/// Code made at run time, and its addresses to resolve.
#[derive(Debug)]
pub struct RunTime {
    sources: Arc<Sources>,
    requested: Vec<(u64, Span)>,
    /// Result of reading the files.
    report: OnceLock<Report>,
}

/// Result of reading the files.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Malformed lines of the perf map.
    pub bad_lines: usize,
    /// Requested addresses that represented several pieces of code.
    pub reused: usize,
    /// Error of the files.
    pub error: Option<Cause>,
}

impl RunTime {
    /// From a recording that was just made.
    pub fn new(sources: Arc<Sources>) -> RunTime {
        RunTime { sources, requested: Vec::new(), report: OnceLock::new() }
    }

    /// The file at `path`, from a recording that ended at `end` (nanoseconds since the Unix epoch;
    /// 0: unknown).
    ///
    /// # Errors
    ///
    /// It is missing, cannot be read, is not such a file, or was created after the recording.
    pub fn open(path: &Path, end: i64) -> Result<RunTime, Cause> {
        let unreadable = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound => Cause::PerfMapMissing,
            _ => Cause::Unreadable(e.to_string()),
        };
        let found = foreign::resolve(path).map_err(unreadable)?;
        let file = found.open().map_err(unreadable)?;
        if end > 0 && !is_as_recorded(path, &found.metadata, end) {
            return Err(Cause::PerfMapNewer);
        }
        let mut sources = Sources::default();
        if path.extension().is_some_and(|e| e == "dump") {
            sources.set_dump(file, &path.to_string_lossy());
        } else {
            sources.map = Some(file);
        }
        Ok(RunTime::new(Arc::new(sources)))
    }

    /// Adds an address; returns its number for [`RunTime::resolve`].
    pub fn add(&mut self, address: u64, span: Span) -> u64 {
        self.requested.push((address, span));
        self.requested.len() as u64 - 1
    }

    /// Result of reading the files, after they were read.
    pub fn report(&self) -> Report {
        self.report.get().cloned().unwrap_or_default()
    }

    /// Names of the addresses with these numbers. `left` is the number of bytes of files that may
    /// still be read.
    pub fn resolve(&self, numbers: &[u64], demangle: bool, left: &AtomicU64) -> AddressFrames {
        let requested = numbers.iter().map(|&n| self.requested[n as usize]).collect::<Vec<_>>();
        let mut report = Report::default();
        let mut found =
            FoundCode { names: vec![None; requested.len()], reused: vec![false; requested.len()] };
        let mut resolved = AddressFrames::default();
        let mut dump = self.sources.dump.as_ref();
        let mut map = self.sources.map.as_ref();
        for file in [&mut dump, &mut map] {
            if file.is_some_and(|file| !take(left, file)) {
                *file = None;
                let why = "all perf maps and jitdump files together are larger than 4 GiB";
                report.error = Some(Cause::Unreadable(why.to_owned()));
            }
        }
        if let Some(dump) = dump {
            let path = self.sources.dump_path.as_bytes();
            let read = from_dump(dump, number_of_dump(path), &requested, &mut found);
            report.error = read.unwrap_or_else(|e| match e.kind() {
                io::ErrorKind::UnexpectedEof => Some(Cause::JitdumpCut),
                io::ErrorKind::InvalidData => Some(Cause::Damaged(e.to_string())),
                _ => Some(Cause::Unreadable(e.to_string())),
            });
        }
        let mut lines = LineTables::default();
        if let Some(dump) = dump {
            lines = LineTables::read(dump, &found);
        }
        let in_dump: Vec<bool> = found.names.iter().map(Option::is_some).collect();
        if let Some(map) = map {
            match from_map(map, &self.sources.marks, &requested, &mut found) {
                Ok(read) => {
                    report.bad_lines = read.bad_lines;
                    let none = (read.good_lines == 0 && read.bad_lines > 0)
                        .then_some(Cause::NoPerfMap(read.bad_lines));
                    report.error = report.error.or(none);
                }
                Err(why) => report.error = Some(why),
            }
        }
        if self.sources.refused && self.sources.is_empty() {
            let why = "not a regular file, so it is not opened";
            report.error = Some(Cause::Unreadable(why.to_owned()));
        }
        let mut names = NameReader { demangle, names: FxHashMap::default() };
        for (i, code) in found.names.iter().enumerate() {
            let file = if in_dump[i] { dump } else { map };
            let frame = code.zip(file).and_then(|(code, file)| {
                let (name, system_name) = names.get(file, in_dump[i], code.name, &mut resolved)?;
                let (file, line) = match lines.position(&code) {
                    Some((file, line)) if in_dump[i] => (resolved.strings.intern(file), line),
                    _ => (StrId::EMPTY, 0),
                };
                Some(SymbolFrame { name, system_name, file, line, column: 0 })
            });
            report.reused += usize::from(found.reused[i]);
            resolved.push(frame);
        }
        let _ = self.report.set(report);
        resolved
    }
}

/// Deducts the file's size from the remaining bytes; false if there are too few.
fn take(left: &AtomicU64, file: &File) -> bool {
    let size = file.metadata().map_or(0, |m| m.len());
    left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(size)).is_ok()
}

/// Times between which an entry of a file was created.
#[derive(Clone, Copy, Debug)]
struct TimeWindow {
    after: u64,
    by: u64,
}

/// A requested address, and its entries so far.
#[derive(Clone, Copy, Debug)]
struct Lookup {
    address: u64,
    span: Span,
    /// Number of the request; `usize::MAX` for the previous address of moved code.
    number: usize,
    code: Option<CodeEntry>,
    /// Another piece of code was there while this was sampled.
    clash: bool,
    /// A later entry.
    late: Option<(CodeEntry, u64)>,
}

impl Lookup {
    fn new(address: u64, span: Span, number: usize) -> Lookup {
        Lookup { address, span, number, code: None, clash: false, late: None }
    }

    /// Adds code that exists from some time in the window on.
    fn take(&mut self, code: CodeEntry, window: TimeWindow) {
        let TimeWindow { after, by } = window;
        if by <= self.span.first {
            self.code = Some(code);
            self.clash = false;
        } else if after < self.span.last {
            match self.code {
                Some(before) => self.clash |= before.name.hash != code.name.hash,
                None => self.code = Some(code),
            }
        } else if self.late.is_none() {
            self.late = Some((code, after));
        }
    }

    fn result(&self, late: u64) -> Option<CodeEntry> {
        let later = self.late.filter(|l| l.1.saturating_sub(self.span.last) <= late);
        self.code.or(later.map(|l| l.0)).filter(|_| !self.clash)
    }
}

/// Lookups by address; with a bound on the work that a file can cause.
struct Lookups {
    sorted: Vec<Lookup>,
    work: usize,
}

impl Lookups {
    fn new(mut items: Vec<Lookup>) -> Lookups {
        items.sort_by_key(|item| item.address);
        let work = (items.len() << 12) + (1 << 24);
        Lookups { sorted: items, work }
    }

    /// Visits the lookups in a range of addresses; returns false if the bound was reached.
    fn within(&mut self, start: u64, end: u64, mut each: impl FnMut(usize, &mut Lookup)) -> bool {
        let from = self.sorted.partition_point(|item| item.address < start);
        for (i, item) in self.sorted.iter_mut().enumerate().skip(from) {
            if item.address >= end {
                break;
            }
            if self.work == 0 {
                return false;
            }
            self.work -= 1;
            each(i, item);
        }
        true
    }

    fn resolved(&self, late: u64, found: &mut FoundCode) {
        for item in self.sorted.iter().filter(|item| item.number != usize::MAX) {
            found.names[item.number] = item.result(late);
            found.reused[item.number] = item.clash;
        }
    }
}

fn too_much() -> Cause {
    Cause::Damaged("too many entries for the same addresses".into())
}

/// Counts of a perf map's lines.
struct MapLines {
    good_lines: usize,
    bad_lines: usize,
}

/// Resolves the remaining addresses in a perf map.
fn from_map(
    map: &File,
    marks: &[SizeMark],
    requested: &[(u64, Span)],
    found: &mut FoundCode,
) -> Result<MapLines, Cause> {
    let unreadable = |e: io::Error| Cause::Unreadable(e.to_string());
    let size = map.metadata().map_err(unreadable)?.len();
    if size > MAX_MAP {
        return Err(Cause::Unreadable("the perf map is larger than 1 GiB".into()));
    }
    let open = (0..requested.len()).filter(|&i| found.names[i].is_none() && !found.reused[i]);
    let mut items =
        Lookups::new(open.map(|i| Lookup::new(requested[i].0, requested[i].1, i)).collect());
    let mut fits = true;
    let mut at_mark = 0;
    let mut good_lines = 0;
    let input = FileReader { file: map, offset: 0 }.take(size);
    let read = perf_map::read(&mut BufReader::with_capacity(1 << 16, input), 0, &mut |entry| {
        good_lines += 1;
        while marks.get(at_mark).is_some_and(|mark| mark.size <= entry.name.offset) {
            at_mark += 1;
        }
        let window = match marks.get(at_mark) {
            // The file was not monitored: the time is unknown.
            _ if marks.is_empty() => TimeWindow { after: 0, by: 1 },
            Some(mark) => TimeWindow {
                after: at_mark.checked_sub(1).map_or(0, |i| marks[i].seen),
                by: mark.by.max(1),
            },
            None => TimeWindow { after: marks[marks.len() - 1].seen, by: u64::MAX },
        };
        fits = items.within(entry.start, entry.end, |_, item| {
            let code = CodeEntry { name: entry.name, lines: None, address: item.address };
            item.take(code, window);
        });
        fits
    });
    let read = read.map_err(unreadable)?;
    if !fits {
        return Err(too_much());
    }
    let mut here =
        FoundCode { names: vec![None; requested.len()], reused: vec![false; requested.len()] };
    items.resolved(u64::MAX, &mut here);
    for i in 0..requested.len() {
        found.names[i] = found.names[i].or(here.names[i]);
        found.reused[i] |= here.reused[i];
    }
    Ok(MapLines { good_lines, bad_lines: read.bad_lines + usize::from(read.unfinished) })
}

/// A move of code in a jitdump.
struct Move {
    time: u64,
    from: u64,
    to: u64,
    size: u64,
}

/// Resolves addresses in a jitdump file. Returns an error of the part that was read.
fn from_dump(
    dump: &File,
    pid: Option<u32>,
    requested: &[(u64, Span)],
    found: &mut FoundCode,
) -> io::Result<Option<Cause>> {
    let header = jitdump::header(dump)?;
    if pid.is_some_and(|pid| pid != header.pid) {
        return Ok(Some(Cause::Damaged(format!("it is a jitdump of process {}", header.pid))));
    }
    let range = header.size..dump.metadata()?.len();
    let mut moves = Vec::new();
    jitdump::read(dump, range.clone(), &mut |time, record| {
        if let JitRecord::Move { from, to, size } = record {
            moves.push(Move { time, from, to, size });
        }
        moves.len() < MAX_MOVES
    })?;
    let (mut items, before) = with_moved(requested, &moves, header.monotonic);
    let mut lines = None;
    let mut number = 0;
    let mut fits = true;
    let progress = jitdump::read(dump, range, &mut |time, record| {
        // Without times of our clock, the order is unknown.
        let window = if header.monotonic {
            TimeWindow { after: time, by: time }
        } else {
            TimeWindow { after: 0, by: u64::MAX }
        };
        match record {
            JitRecord::Lines { address, lines: at } => lines = Some((at, address)),
            JitRecord::Load { address: start, size, name, .. } => {
                let lines = lines.take().filter(|l| l.1 == start);
                fits = items.within(start, start.saturating_add(size), |_, item| {
                    item.take(CodeEntry { name, lines, address: item.address }, window);
                });
            }
            JitRecord::Move { to, size, .. } if number < moves.len() => {
                let mut moved = Vec::new();
                fits = items.within(to, to.saturating_add(size), |i, _| moved.push(i));
                for i in moved {
                    let from = before.get(&(number, i)).map(|&from| items.sorted[from]);
                    if let Some(code) = from.and_then(|item| item.result(0)) {
                        items.sorted[i].take(code, window);
                    }
                }
                number += 1;
            }
            _ => {}
        }
        fits
    })?;
    items.resolved(LATE, found);
    Ok(if !fits {
        Some(too_much())
    } else if progress.damaged {
        Some(Cause::Damaged("a record of the jitdump is inconsistent".into()))
    } else if progress.unfinished {
        Some(Cause::JitdumpCut)
    } else {
        None
    })
}

/// Lookups for the requests, and for the previous addresses of moved code: by the number of the
/// move and the index of the request behind it.
fn with_moved(
    requested: &[(u64, Span)],
    moves: &[Move],
    monotonic: bool,
) -> (Lookups, FxHashMap<(usize, usize), usize>) {
    let mut items: Vec<Lookup> =
        requested.iter().enumerate().map(|(i, &(a, span))| Lookup::new(a, span, i)).collect();
    let mut links = Vec::new();
    let mut new = 0;
    for _ in 0..MAX_CHAIN {
        let mut old: Vec<usize> = (new..items.len()).collect();
        old.sort_by_key(|&i| items[i].address);
        new = items.len();
        for (number, m) in moves.iter().enumerate() {
            let from = old.partition_point(|&i| items[i].address < m.to);
            for &i in &old[from..] {
                let Lookup { address, span, .. } = items[i];
                if address - m.to >= m.size {
                    break;
                }
                if items.len() < MAX_MOVES && (!monotonic || m.time < span.last) {
                    let time = if monotonic { m.time } else { u64::MAX };
                    links.push((number, i, items.len()));
                    let span = Span { first: time, last: time };
                    items.push(Lookup::new(
                        (address - m.to).wrapping_add(m.from),
                        span,
                        usize::MAX,
                    ));
                }
            }
        }
        if new == items.len() {
            break;
        }
    }
    // Sorting moves them.
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|&i| items[i].address);
    let mut place = vec![0; items.len()];
    order.iter().enumerate().for_each(|(to, &from)| place[from] = to);
    let links = links.into_iter().map(|(n, i, from)| ((n, place[i]), place[from])).collect();
    (Lookups::new(items), links)
}

/// Names that were read, by file and offset.
struct NameReader {
    demangle: bool,
    names: FxHashMap<(bool, u64), (StrId, StrId)>,
}

impl NameReader {
    /// Name and mangled name at a position; `None` if it is no longer there.
    fn get(
        &mut self,
        file: &File,
        in_dump: bool,
        at: NameAt,
        resolved: &mut AddressFrames,
    ) -> Option<(StrId, StrId)> {
        let key = (in_dump, at.offset);
        if let Some(&names) = self.names.get(&key) {
            return Some(names);
        }
        let mut bytes = vec![0; at.length as usize];
        file.read_exact_at(&mut bytes, at.offset).ok()?;
        // The file may have been rewritten.
        if NameAt::new(at.offset, &bytes) != at {
            return None;
        }
        let system_name = String::from_utf8_lossy(&bytes);
        let readable = self.demangle.then(|| demangle(&system_name)).flatten();
        let name = resolved.strings.intern(readable.as_deref().unwrap_or(&system_name));
        let names = (name, resolved.strings.intern(&system_name));
        self.names.insert(key, names);
        Some(names)
    }
}

#[cfg(test)]
mod tests;
