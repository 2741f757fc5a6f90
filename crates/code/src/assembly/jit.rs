//! Code made at run time, from the jitdump file that a JIT compiler wrote.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::elf::Machine;

use super::{Assembly, Function, Limits, NoCode, Piece, Request, Weight};
use super::{add_jumps, add_values, decode, hottest_first, names};
use crate::arch::Disassembler;
use profile::Cause;
use symbols::SymbolOptions;
use sys::foreign::{self, Resolved};
use sys::jit::file_names::number_of_dump;
use sys::jit::is_as_recorded;
use sys::jit::jitdump::{self, JitRecord};
use sys::jit::perf_map::NameAt;

/// Most bytes of a function that are read.
const MAX_BYTES: u64 = 4 << 20;

/// Most pieces of code of one name with sampled addresses.
const MAX_PIECES: usize = 1024;

/// Largest jitdump that is read.
const MAX_DUMP: u64 = 4 << 30;

/// A piece of code in a jitdump. Its bytes are read when they are decoded: a dump may have far
/// more code of one name than is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct JitCode {
    address: u64,
    size: u64,
    /// Offset of its bytes in the file.
    bytes_at: u64,
}

impl JitCode {
    fn contains(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|into| into < self.size)
    }

    /// Its bytes, at most [`MAX_BYTES`].
    fn bytes(&self, dump: &File) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.size.min(MAX_BYTES) as usize];
        dump.read_exact_at(&mut bytes, self.bytes_at)?;
        Ok(bytes)
    }

    /// True if both have code at a common address.
    fn overlaps(&self, other: &JitCode) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }
}

/// True if a binary of a profile is a jitdump file.
pub fn is_dump(binary: &str) -> bool {
    number_of_dump(binary.as_bytes()).is_some()
}

/// Disassembles a function that was made at run time. Its code must be of the same process, and
/// have the same name.
pub fn disassemble(
    request: &Request<'_>,
    options: &SymbolOptions,
    limits: Limits,
) -> Result<Assembly, NoCode> {
    let path = Path::new(request.binary);
    let dump = open(path, request.end)?;
    let damaged = |e: io::Error| NoCode::NoBinary(Cause::Damaged(e.to_string()));
    let header = jitdump::header(&dump).map_err(damaged)?;
    if number_of_dump(request.binary.as_bytes()) != Some(header.pid) {
        let why = format!("it is a jitdump of process {}", header.pid);
        return Err(NoCode::NoBinary(Cause::Damaged(why)));
    }
    let machine = u16::try_from(header.machine).ok().map(Machine);
    let mut disassembler =
        machine.and_then(Disassembler::for_machine).ok_or(NoCode::UnknownMachine)?;
    let found = read(&dump, header.size, request).map_err(damaged)?;
    // Of different code at the same addresses, it is unknown which was sampled.
    let differs = |code: &JitCode| found.iter().any(|o| o != code && o.overlaps(code));
    let (unclear, clear): (Vec<&JitCode>, Vec<&JitCode>) = found.iter().partition(|c| differs(c));
    if clear.is_empty() {
        return Err(if unclear.is_empty() { NoCode::NoJitCode } else { NoCode::SeveralCodes });
    }
    let mut functions: Vec<(Function, &JitCode)> =
        clear.into_iter().map(|code| (with_weights(code, request.weights), code)).collect();
    functions.sort_by_key(|(function, _)| hottest_first(function));
    let mut left = limits;
    let mut pieces: Vec<Piece> = Vec::new();
    let mut left_out = unclear.len();
    for (function, code) in &functions {
        if left.bytes == 0 || left.instructions == 0 {
            left_out += 1;
            continue;
        }
        let bytes = code.bytes(&dump).map_err(damaged)?;
        let mut piece = decode(&mut disassembler, function, &bytes, left);
        add_values(&mut piece.instructions, function, request.skids);
        add_jumps(&mut piece);
        left.take(&mut piece);
        pieces.push(piece);
    }
    names::add_jit(&mut pieces, request, options);
    Ok(Assembly { path: path.to_owned(), pieces, left_out })
}

/// Opens the jitdump of a recording that ended at `end` (nanoseconds since the Unix epoch; 0:
/// unknown). Records are only added to it, so that it may be written to later.
fn open(path: &Path, end: i64) -> Result<File, NoCode> {
    let missing = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => NoCode::NoBinary(Cause::FileMissing),
        _ => NoCode::NoBinary(Cause::Unreadable(e.to_string())),
    };
    let found = foreign::resolve(path).map_err(missing)?;
    if end > 0 && !is_of_recording(path, &found, end) {
        return Err(NoCode::NoBinary(Cause::PerfMapNewer));
    }
    if found.metadata.len() > MAX_DUMP {
        return Err(NoCode::NoBinary(Cause::Unreadable("larger than 4 GiB".to_owned())));
    }
    found.open().map_err(missing)
}

fn is_of_recording(path: &Path, found: &Resolved, end: i64) -> bool {
    let end_time = crate::text::time(end);
    let before = found.metadata.created().ok().zip(end_time).is_some_and(|(made, end)| made <= end);
    before || is_as_recorded(path, &found.metadata, end)
}

/// The pieces of code of the requested name that contain requested addresses, each once.
fn read(dump: &File, start: u64, request: &Request<'_>) -> io::Result<Vec<JitCode>> {
    let name = NameAt::new(0, request.function.as_bytes());
    let mut sampled: Vec<u64> = request.weights.iter().map(|weight| weight.offset.0).collect();
    sampled.sort_unstable();
    let mut found: Vec<JitCode> = Vec::new();
    // All code of this name, for moves.
    let mut named: Vec<JitCode> = Vec::new();
    let has_sample = |code: &JitCode| {
        let first = sampled.partition_point(|&at| at < code.address);
        sampled.get(first).is_some_and(|&at| code.contains(at))
    };
    let size = dump.metadata()?.len();
    jitdump::read(dump, start..size, &mut |_, record| {
        let new = match record {
            JitRecord::Load { address, size, name: found, code: Some(bytes_at) } => {
                let same = (found.hash, found.length) == (name.hash, name.length);
                same.then_some(JitCode { address, size, bytes_at })
            }
            JitRecord::Move { from, to, size } => {
                let moved = named.iter().rev().find(|old| (old.address, old.size) == (from, size));
                moved.map(|old| JitCode { address: to, ..*old })
            }
            _ => None,
        };
        if let Some(new) = new {
            named.push(new);
            if has_sample(&new) {
                found.push(new);
            }
        }
        found.len() < MAX_PIECES && named.len() < 1 << 18
    })?;
    each_once(dump, found)
}

/// The pieces without those that have the same bytes at the same addresses as one before.
fn each_once(dump: &File, found: Vec<JitCode>) -> io::Result<Vec<JitCode>> {
    // With random keys, so that no dump is made for equal hashes of different code.
    let random = RandomState::new();
    let mut hashes: HashMap<(u64, u64), u64> = HashMap::new();
    let mut codes: Vec<JitCode> = Vec::new();
    for code in found {
        let mut is_known = false;
        for known in codes.iter().filter(|c| (c.address, c.size) == (code.address, code.size)) {
            let mut hash = |code: &JitCode| -> io::Result<u64> {
                let key = (code.bytes_at, code.size);
                if let Some(&hash) = hashes.get(&key) {
                    return Ok(hash);
                }
                let hash = random.hash_one(code.bytes(dump)?);
                hashes.insert(key, hash);
                Ok(hash)
            };
            is_known |= known.bytes_at == code.bytes_at || hash(known)? == hash(&code)?;
        }
        if !is_known {
            codes.push(code);
        }
    }
    Ok(codes)
}

fn with_weights(code: &JitCode, weights: &[Weight]) -> Function {
    let inside = weights.iter().filter(|weight| code.contains(weight.offset.0));
    Function {
        range: code.address..code.address.saturating_add(code.size),
        weights: inside.map(|weight| (weight.offset.0, *weight)).collect(),
    }
}

#[cfg(test)]
mod tests;
