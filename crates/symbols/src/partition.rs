//! Divides the addresses of a binary among threads. Each thread parses what its addresses need, so
//! those of one unit of the debug information stay together.

use addr2line::gimli::{self, EndianSlice, RunTimeEndian};
use object::{CompressionFormat, Object, ObjectSection};

use super::source::Layer;
use sys::mmap;

/// Fewest addresses of one file for a separate thread.
const MIN_SHARE: usize = 16_384;

/// Most units and ranges that are read: many units can refer to the same long list.
const MAX_STEPS: usize = 1 << 22;

/// Index of a unit; [`Unit::MAX`] for addresses outside all units.
type Unit = usize;

/// Divides ascending addresses of one file among at most `jobs` threads; each share ascends.
pub fn shares(layers: &[Layer], addresses: Vec<u64>, jobs: usize) -> Vec<Vec<u64>> {
    let count = (addresses.len() / MIN_SHARE).clamp(1, jobs);
    if count == 1 {
        return vec![addresses];
    }
    let size = addresses.len().div_ceil(count);
    let with_units = layers.iter().find(|layer| layer.debug_info && !layer.split);
    match with_units.and_then(units) {
        Some(units) => by_unit(&units, addresses, count, size),
        None => addresses.chunks(size).map(<[u64]>::to_vec).collect(),
    }
}

/// Assigns the largest unit to the smallest share, until none is left. Lines and functions of a
/// unit are parsed as a whole, a sixth of all work, so only units are divided that would take more
/// than twice as long as an even share.
fn by_unit(
    units: &[(gimli::Range, Unit)],
    addresses: Vec<u64>,
    count: usize,
    size: usize,
) -> Vec<Vec<u64>> {
    let mut with_units: Vec<(Unit, u64)> =
        addresses.into_iter().map(|address| (unit_of(units, address), address)).collect();
    with_units.sort_unstable();
    let part = |unit: &[(Unit, u64)]| if unit.len() > 2 * size { size } else { unit.len() };
    let mut runs: Vec<&[(Unit, u64)]> =
        with_units.chunk_by(|a, b| a.0 == b.0).flat_map(|unit| unit.chunks(part(unit))).collect();
    runs.sort_by_key(|run| std::cmp::Reverse(run.len()));
    let mut shares = vec![Vec::with_capacity(size); count];
    for run in runs {
        if let Some(least) = shares.iter_mut().min_by_key(|share| share.len()) {
            least.extend(run.iter().map(|&(_, address)| address));
        }
    }
    shares.retain(|share| !share.is_empty());
    shares.iter_mut().for_each(|share| share.sort_unstable());
    shares
}

fn unit_of(units: &[(gimli::Range, Unit)], address: u64) -> Unit {
    let before = units.partition_point(|(range, _)| range.begin <= address);
    let last = before.checked_sub(1).map(|i| units[i]);
    last.filter(|(range, _)| address < range.end).map_or(Unit::MAX, |(_, unit)| unit)
}

/// Address ranges of each unit, in ascending order; `None` if they are compressed.
fn units(layer: &Layer) -> Option<Vec<(gimli::Range, Unit)>> {
    let map = mmap::map(&layer.file).ok()?;
    let object = object::File::parse(&*map).ok()?;
    let endian = if object.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let load = |id: gimli::SectionId| -> Result<_, ()> {
        let data = match object.section_by_name(id.name()) {
            Some(section) => match section.compressed_file_range().map_err(drop)?.format {
                CompressionFormat::None => section.data().map_err(drop)?,
                _ => return Err(()),
            },
            None => &[],
        };
        Ok(EndianSlice::new(data, endian))
    };
    let dwarf = gimli::Dwarf::load(load).ok()?;
    let mut units = dwarf.units();
    let mut ranges = Vec::new();
    let mut number = 0;
    let mut steps = 0;
    // Damage ends it: the units so far suffice for dividing.
    while let Ok(Some(header)) = units.next() {
        number += 1;
        steps += 1;
        let Ok(unit) = dwarf.unit(header) else { continue };
        let Ok(mut ranges_of_unit) = dwarf.unit_ranges(&unit) else { continue };
        while let Ok(Some(range)) = ranges_of_unit.next() {
            ranges.push((range, number));
            steps += 1;
            if steps > MAX_STEPS {
                return None;
            }
        }
        if steps > MAX_STEPS {
            return None;
        }
    }
    ranges.retain(|(range, _)| range.begin < range.end);
    ranges.sort_unstable_by_key(|(range, _)| (range.begin, range.end));
    Some(ranges)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use super::*;
    use crate::opener::Place;

    fn range(begin: u64, end: u64) -> gimli::Range {
        gimli::Range { begin, end }
    }

    #[test]
    fn units_stay_together_whatever_the_order_of_their_code() {
        // Two units whose cold code precedes all other, a small one, and a gap.
        let units = [
            (range(0, 100), 1),
            (range(100, 200), 2),
            (range(1000, 2000), 1),
            (range(2000, 3000), 2),
            (range(3000, 3010), 3),
        ];
        let addresses: Vec<u64> = (0..4000).collect();
        let shares = by_unit(&units, addresses.clone(), 2, 2000);
        let mut all = shares.concat();
        all.sort_unstable();
        assert_eq!(all, addresses);
        assert!(shares.iter().all(|share| share.is_sorted()));
        let has = |share: &[u64], unit| share.iter().any(|&a| unit_of(&units, a) == unit);
        for unit in [1, 2, 3, Unit::MAX] {
            assert_eq!(shares.iter().filter(|share| has(share, unit)).count(), 1, "{unit}");
        }
        assert!(shares.iter().all(|share| (1800..=2200).contains(&share.len())));
    }

    #[test]
    fn only_a_unit_of_more_than_two_shares_is_divided() {
        let lengths = |count, size| -> Vec<usize> {
            let units = [(range(0, 3000), 1)];
            let shares = by_unit(&units, (0..4000).collect(), count, size);
            shares.iter().map(Vec::len).collect()
        };
        assert_eq!(lengths(2, 2000), [3000, 1000]);
        assert_eq!(lengths(4, 1000), [1000; 4]);
    }

    #[test]
    fn few_addresses_are_one_share() {
        assert_eq!(shares(&[], vec![1, 2, 3], 8), [[1, 2, 3]]);
        let many: Vec<u64> = (0..3 * MIN_SHARE as u64).collect();
        assert_eq!(shares(&[], many.clone(), 8).concat(), many);
        assert_eq!(shares(&[], many, 2).len(), 2);
    }

    #[test]
    fn the_units_of_this_program_hold_its_functions() {
        let path = std::env::current_exe().unwrap();
        let file = Arc::new(File::open(&path).unwrap());
        let shared = None;
        let unpacked = false;
        let layer = Layer {
            place: Place::own(&path),
            file,
            debug_info: true,
            split: false,
            shared,
            unpacked,
        };
        let units = units(&layer).unwrap();
        assert!(units.iter().map(|u| u.1).collect::<std::collections::HashSet<_>>().len() > 10);
        assert!(units.is_sorted_by_key(|(range, _)| range.begin));
        let none = Layer { file: Arc::new(tempfile::tempfile().unwrap()), ..layer };
        assert!(super::units(&none).is_none());
    }
}
