//! Diagnoses missing source lines in a file with debug information: its parsers skip damaged parts,
//! so it is checked again if lines are missing.

use addr2line::gimli::{self, EndianSlice, RunTimeEndian};
use object::{Object, ObjectSection};

use super::source::Layer;
use super::split::SectionMemory;
use profile::Cause;

/// Total size of sections, in bytes, above which they are checked only if hardly any line was
/// found: the time grows with the size.
const LARGE: u64 = 16 << 20;

/// Total size above which they are never checked.
const TOO_LARGE: u64 = 64 << 20;

type DwarfReader<'a> = EndianSlice<'a, RunTimeEndian>;

/// Damage in the debug information of a file that had no lines for `bare` of `requested` addresses.
pub fn damage(layer: &Layer, bare: &[u64], requested: usize) -> Option<Cause> {
    let memory = SectionMemory::default();
    let object = memory.parse(&layer.file)?;
    if let Ok(Some((name, _))) = object.gnu_debugaltlink()
        && layer.shared.is_none()
    {
        return Some(Cause::PartMissing(String::from_utf8_lossy(name).into_owned()));
    }
    let debug =
        object.sections().filter(|s| s.name().is_ok_and(|name| name.starts_with(".debug_")));
    let size: u64 = debug.map(|s| s.size()).fold(0, u64::saturating_add);
    let hardly_any = bare.len() * 10 > requested * 9;
    if bare.is_empty() || size > if hardly_any { TOO_LARGE } else { LARGE } {
        return None;
    }
    let dwarf = gimli::Dwarf::load(|id| memory.section(&object, Some(id.name())));
    let damaged = match dwarf {
        Ok(mut dwarf) => {
            dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
            check_lines(&dwarf, bare).err()
        }
        Err(error) => Some(("its debug sections", error)),
    };
    damaged.map(|(what, error)| Cause::Damaged(format!("{what}: {error}")))
}

/// A section, and its parser's error.
type Flaw = (&'static str, gimli::Error);

/// Reads the headers of all units, and the units that contain one of the `addresses`.
fn check_lines(dwarf: &gimli::Dwarf<DwarfReader<'_>>, addresses: &[u64]) -> Result<(), Flaw> {
    let in_info = |e| (".debug_info", e);
    let mut units = dwarf.units();
    while let Some(header) = units.next().map_err(in_info)? {
        dwarf.abbreviations(&header).map_err(|e| (".debug_abbrev", e))?;
        let unit = dwarf.unit(header).map_err(|e| (".debug_info or .debug_line", e))?;
        let mut ranges = dwarf.unit_ranges(&unit).map_err(in_info)?;
        let mut covers = false;
        while let Some(range) = ranges.next().map_err(|e| (".debug_rnglists", e))? {
            let first = addresses.partition_point(|&a| a < range.begin);
            covers |= addresses.get(first).is_some_and(|&a| a < range.end);
        }
        if !covers {
            continue;
        }
        let mut entries = unit.entries();
        while entries.next_dfs().map_err(in_info)?.is_some() {}
        if let Some(program) = unit.line_program.clone() {
            let mut rows = program.rows();
            while rows.next_row().map_err(|e| (".debug_line", e))?.is_some() {}
        }
    }
    Ok(())
}
