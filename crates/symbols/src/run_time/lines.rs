//! Source lines of code made at run time, from jitdump files.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustc_hash::FxHashMap;

use super::found::{CodeEntry, FoundCode};
use sys::jit::jitdump::{self, LineEntry};
use sys::jit::perf_map::NameAt;

/// Most bytes of the tables of a jitdump that are read; an entry of 17 bytes takes 32.
const MAX_TABLES: u64 = 32 << 20;

/// Source lines of code in a jitdump.
#[derive(Default)]
pub(super) struct LineTables {
    /// By file offset, sorted by address.
    tables: FxHashMap<u64, Vec<LineEntry>>,
    /// Script in the name of V8's code.
    scripts: FxHashMap<u64, Option<String>>,
    /// Offset that must be subtracted from addresses in the tables.
    shift: u64,
}

impl LineTables {
    pub(super) fn read(dump: &File, found: &FoundCode) -> LineTables {
        /// V8 adds the size of the header that `perf inject` puts before the code.
        const ELF_HEADER: u64 = 0x40;
        let mut lines = LineTables::default();
        let mut all_shifted = true;
        let mut left = MAX_TABLES;
        for code in found.names.iter().flatten() {
            let (Some((at, start)), name_at) = (code.lines, code.name) else { continue };
            if lines.tables.contains_key(&at.start) {
                continue;
            }
            let Some(rest) = left.checked_sub(at.size()) else { break };
            left = rest;
            let mut entries = jitdump::line_entries(dump, at).unwrap_or_default();
            entries.sort_by_key(|e| e.address);
            let first = entries.first().map_or(u64::MAX, |e| e.address);
            all_shifted &= first >= start.saturating_add(ELF_HEADER);
            lines.scripts.insert(at.start, script_of(dump, name_at));
            lines.tables.insert(at.start, entries);
        }
        lines.shift = if all_shifted { ELF_HEADER } else { 0 };
        lines
    }

    /// File and line of an address.
    pub(super) fn position(&self, code: &CodeEntry) -> Option<(&str, u32)> {
        let at = code.lines?.0.start;
        let entries = self.tables.get(&at)?;
        let address = code.address.checked_add(self.shift)?;
        let i = entries.partition_point(|e| e.address <= address).checked_sub(1)?;
        let file = file_name(&entries[i].file).unwrap_or_default();
        // V8 (as in Node 20) may write names from freed memory; the code's name then contradicts
        // them.
        let garbage = self.shift > 0 && self.scripts[&at].as_deref() != Some(file);
        (entries[i].line > 0 && !file.is_empty() && !garbage).then_some((file, entries[i].line))
    }
}

/// The script in the name of V8's code: `JS:*function PATH:LINE:COLUMN`.
fn script_of(dump: &File, name: NameAt) -> Option<String> {
    let mut bytes = vec![0; name.length as usize];
    dump.read_exact_at(&mut bytes, name.offset).ok()?;
    let name = String::from_utf8(bytes).ok()?;
    let mut parts = name.rsplitn(3, ':');
    let column = parts.next()?;
    let line = parts.next()?;
    let number = |text: &str| text.parse::<u32>().is_ok();
    let path = parts.next()?.split_once(' ')?.1;
    (number(column) && number(line))
        .then(|| path.strip_prefix("file://").unwrap_or(path).to_owned())
}

/// Name of a source file; `None` if it is not valid.
fn file_name(bytes: &[u8]) -> Option<&str> {
    let name = str::from_utf8(bytes).ok()?;
    let name = name.strip_prefix("file://").unwrap_or(name);
    (!name.contains(char::is_control)).then_some(name)
}
