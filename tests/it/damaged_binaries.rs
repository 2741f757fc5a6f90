//! Binaries whose headers, symbols, debug and unwind information were damaged: the program runs
//! on, since none of that is loaded to run it, and prof records it.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;

use crate::common;
use crate::common::{Build, Prof, target, temp_dir, write_program};
use object::{Object, ObjectSection, ObjectSymbol};

/// Damaged copies of each kind.
const COPIES: usize = 8;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

const UNWIND: &str = "unwind information";

/// A part of a program that may be overwritten without harm to it.
struct Part {
    name: &'static str,
    ranges: Vec<Range<usize>>,
    /// The report contains one of these when all of it is overwritten; empty: the damage need not
    /// show.
    reasons: &'static [&'static str],
    /// The part contains no names: those that prof finds with it are right or missing.
    names_stay: bool,
}

fn parts(data: &[u8]) -> Vec<Part> {
    let elf = object::File::parse(data).unwrap();
    let section = |name: &str| {
        let (start, size) = elf.section_by_name(name)?.file_range()?;
        Some(start as usize..(start + size) as usize)
    };
    let part = |name, sections: &[&str], reasons| {
        let ranges = sections.iter().filter_map(|n| section(n)).collect();
        Part { name, ranges, reasons, names_stay: true }
    };
    let headers = u64::from_le_bytes(data[40..48].try_into().unwrap()) as usize;
    let in_headers = vec![headers..data.len(), 40..48, 58..64];
    const DAMAGED: &[&str] = &["damaged: "];
    vec![
        part("debug information", &[".debug_info"], DAMAGED),
        part("abbreviations", &[".debug_abbrev"], DAMAGED),
        part("lines", &[".debug_line"], DAMAGED),
        Part { names_stay: false, ..part("strings", &[".debug_str", ".strtab", ".shstrtab"], &[]) },
        part("symbols", &[".symtab"], &[]),
        // The instructions have the same information.
        part(UNWIND, &[".eh_frame", ".eh_frame_hdr"], &[]),
        Part { ranges: in_headers, ..part("section headers", &[], &["its section headers: "]) },
        part("ranges", &[".debug_rnglists", ".debug_aranges", ".debug_loclists"], &[]),
    ]
}

fn damage(data: &mut [u8], parts: &[Range<usize>], random: &mut Random) {
    for _ in 0..=random.below(8) {
        let part = &parts[random.below(parts.len())];
        let at = part.start + random.below(part.len());
        let end = (at + 1 + random.below(12)).min(part.end);
        let how = random.below(4);
        for byte in &mut data[at..end] {
            *byte = match how {
                0 => 0,
                1 => 0xff,
                2 => *byte ^ 1 << random.below(8),
                _ => random.below(256) as u8,
            };
        }
    }
}

/// Names that the program may have frames of.
fn names(data: &[u8]) -> BTreeSet<String> {
    let elf = object::File::parse(data).unwrap();
    let all = elf.symbols().chain(elf.dynamic_symbols());
    let own = all.filter_map(|s| Some(s.name().ok()?.split('@').next()?.to_owned()));
    let mut names: BTreeSet<String> = own.flat_map(|name| [format!("{name}@plt"), name]).collect();
    // Functions that are only inlined have no symbols.
    let section = |id: gimli::SectionId| {
        let data = elf.section_by_name(id.name()).and_then(|s| s.data().ok());
        Ok::<_, gimli::Error>(gimli::EndianSlice::new(data.unwrap_or(&[]), gimli::LittleEndian))
    };
    let dwarf = gimli::Dwarf::load(section).unwrap();
    let mut units = dwarf.units();
    while let Some(header) = units.next().unwrap() {
        let unit = dwarf.unit(header).unwrap();
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs().unwrap() {
            let name = entry.attr_value(gimli::DW_AT_name);
            if let Some(name) = name.filter(|_| entry.tag() == gimli::DW_TAG_subprogram) {
                let name = dwarf.attr_string(&unit, name).unwrap();
                names.insert(name.to_string().unwrap().to_owned());
            }
        }
    }
    names
}

#[test]
fn damaged_binaries_are_recorded_without_panic_or_wrong_names() {
    let dir = temp_dir();
    let whole = fs::read(target("known", Build::CDebug)).unwrap();
    let known = names(&whole);
    let mut random = Random(1);
    let program = dir.path().join("damaged");
    let mut named = 0;
    for Part { name, ranges, reasons, names_stay } in parts(&whole) {
        for copy in 0..COPIES {
            let mut data = whole.clone();
            // The first copy has nothing intact there.
            match copy {
                0 => ranges.iter().for_each(|range| data[range.clone()].fill(0xff)),
                _ => damage(&mut data, &ranges, &mut random),
            }
            write_program(&program, &data);
            let run = Prof::new(&dir, "record -F 999 -q").target(&program, "0.05").run();
            assert_eq!(run.code(), 0, "{name} {copy}: {}", run.stderr);
            assert!(!run.stderr.contains("panicked"), "{name} {copy}: {}", run.stderr);
            let p = common::read(dir.path().join("profile.pb.gz"));
            let samples = p.total(p.column("samples"));
            assert!(samples > 20, "{name} {copy}: {samples} samples");
            named += usize::from(p.total_share("bar") > 0.3);
            let own = |l: &&u64| {
                p.mapping_of.get(l).is_some_and(|&m| p.mappings[m].file.ends_with("/damaged"))
            };
            let shown = p.lines.iter().filter(|(l, _)| own(l)).flat_map(|(_, names)| names);
            let wrong: Vec<&String> = shown.filter(|n| !known.contains(*n)).collect();
            assert!(wrong.is_empty() || !names_stay, "{name} {copy}: {wrong:?}");
            // The coverage report contains the damage, and does not fail.
            let report = Prof::new(&dir, "report --coverage").run();
            assert_eq!(report.code(), 0, "{name} {copy}: {}", report.stderr);
            if copy == 0 && name == UNWIND {
                let main = p.total_share("main");
                assert!(main > 80.0, "{name}: {main} % of the stacks reach main");
            }
            if copy == 0 && !reasons.is_empty() {
                let text = report.text();
                assert!(reasons.iter().any(|r| text.contains(r)), "{name}: {text}");
            }
        }
    }
    // Most damage does little harm: the symbol table has the names that the debug information
    // lacks.
    assert!(named > COPIES * 3, "only {named} could be named");
}

/// If a stack ends because of its binary, the reason is that binary's: its unwind information does
/// not cover this code, or cannot be read.
#[test]
fn missing_and_damaged_unwind_information_are_distinguished() {
    let dir = temp_dir();
    let whole = target("lost", Build::C);
    let why = |program: &std::path::Path| {
        let out = Prof::new(&dir, "record -F 999").target(program, "0.2").run().ok();
        assert!(out.stderr.contains("user stacks truncated"), "{}", out.stderr);
        out.stderr
    };
    let uncovered = why(&whole);
    assert!(uncovered.contains("): no unwind information for this address "), "{uncovered}");
    let mut data = fs::read(&whole).unwrap();
    let elf = object::File::parse(&*data).unwrap();
    let (start, size) = elf.section_by_name(".eh_frame").unwrap().file_range().unwrap();
    data[start as usize + 4..(start + size) as usize - 4].fill(0xff);
    let program = dir.path().join("unreadable");
    write_program(&program, &data);
    let unreadable = why(&program);
    assert!(unreadable.contains("damaged unwind information "), "{unreadable}");
    assert!(unreadable.contains(".eh_frame cannot be read"), "{unreadable}");
}
