//! USDT markers: places that a program's authors have marked for tracing, in `.note.stapsdt`
//! (<https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation>).

use object::Endianness;
use object::elf::{FileHeader64, NoteType, PT_LOAD};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader};

use crate::elf;

/// Type of the notes.
const NT_STAPSDT: NoteType = NoteType(3);

/// A marker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Marker {
    /// Its provider, for example `python`.
    pub provider: String,
    /// Its name.
    pub name: String,
    /// File offset of its instruction.
    pub offset: u64,
    /// File offset of its semaphore: a two-byte count of tracers. If present, the program reaches
    /// the marker only while the count is above 0.
    pub counter: Option<u64>,
}

/// Markers of a 64-bit ELF file, in the order of the file; none if it has none or is damaged. A
/// marker in an inlined function occurs several times.
pub fn markers(data: &[u8]) -> Vec<Marker> {
    read(data).unwrap_or_default()
}

fn read(data: &[u8]) -> Option<Vec<Marker>> {
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    let sections = header.sections(endian, data).ok()?;
    let offset_of = |address: u64| {
        segments
            .iter()
            .take(elf::MAX_PROGRAM_HEADERS)
            .filter(|s| s.p_type(endian) == PT_LOAD)
            .find_map(|s| {
                let into = address.checked_sub(s.p_vaddr(endian))?;
                (into < s.p_filesz(endian)).then(|| s.p_offset(endian).checked_add(into))?
            })
    };
    // The linker may have moved the code (prelink), and this section with it.
    let wanted: [&[u8]; 2] = [b".stapsdt.base", b".note.stapsdt"];
    let [base, section] = elf::sections_named(header, endian, data, &sections, &wanted);
    let base = base.map(|section| section.sh_addr(endian));
    let section = section?;
    let notes = section.data(endian, data).ok()?;
    let align = section.sh_addralign(endian);
    let notes = NoteIterator::<FileHeader64<Endianness>>::new(endian, align, notes).ok()?;
    let mut markers = Vec::new();
    for note in notes {
        let Ok(note) = note else { break };
        if note.name() == b"stapsdt" && note.n_type(endian) == NT_STAPSDT {
            markers.extend(marker(note.desc(), endian, base, offset_of));
        }
    }
    Some(markers)
}

fn marker(
    desc: &[u8],
    endian: Endianness,
    base: Option<u64>,
    offset_of: impl Fn(u64) -> Option<u64>,
) -> Option<Marker> {
    let mut rest = desc;
    let mut word = || -> Option<u64> {
        let (word, tail) = rest.split_first_chunk::<8>()?;
        rest = tail;
        Some(match endian {
            Endianness::Little => u64::from_le_bytes(*word),
            Endianness::Big => u64::from_be_bytes(*word),
        })
    };
    let place = word()?;
    let was_at = word()?;
    let counter = word()?;
    let moved = base.map_or(0, |base| base.wrapping_sub(was_at));
    let mut texts = rest.split(|&b| b == 0).map(|text| String::from_utf8_lossy(text).into_owned());
    let provider = texts.next()?;
    let name = texts.next()?;
    let counter = match counter {
        0 => None,
        at => Some(offset_of(at.wrapping_add(moved))?),
    };
    Some(Marker { provider, name, offset: offset_of(place.wrapping_add(moved))?, counter })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn desc(place: u64, base: u64, counter: u64) -> Vec<u8> {
        let mut desc: Vec<u8> =
            [place, base, counter].iter().flat_map(|w| w.to_le_bytes()).collect();
        desc.extend(b"app\0start\08@%rdi\0");
        desc
    }

    #[test]
    fn a_note_is_a_marker() {
        let file = |address: u64| address.checked_sub(0x40_0000);
        let of = |desc: &[u8], base| marker(desc, Endianness::Little, base, file);
        let m = of(&desc(0x40_1000, 0x50_0000, 0), Some(0x50_0000)).unwrap();
        assert_eq!((m.provider.as_str(), m.name.as_str()), ("app", "start"));
        assert_eq!((m.offset, m.counter), (0x1000, None));
        let moved = of(&desc(0x40_1000, 0x50_0000, 0x40_2000), Some(0x50_0100)).unwrap();
        assert_eq!((moved.offset, moved.counter), (0x1100, Some(0x2100)));
        assert_eq!(of(&desc(0x1000, 0, 0), None), None, "outside of the file");
        assert_eq!(of(&desc(0x40_1000, 0, 1)[..20], None), None, "cut off");
    }

    #[test]
    fn the_c_library_has_markers_or_none() {
        let data = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(markers(&data).iter().all(|m| m.offset < data.len() as u64));
        assert!(markers(b"no ELF file").is_empty());
    }

    proptest! {
        #[test]
        fn any_note_is_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            marker(&bytes, Endianness::Little, Some(7), Some);
        }
    }
}
