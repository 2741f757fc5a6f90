//! Binaries whose headers, symbols, debug and unwind information were damaged: the program runs
//! on, since none of that is loaded to run it, and prof records it.

mod common;

use std::fs;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;

use common::{Build, Prof, target, temp_dir};
use object::{Object, ObjectSection};

/// Damaged copies of each kind.
const COPIES: usize = 8;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

/// What may be overwritten in a program without harm to it, by name.
fn parts(data: &[u8]) -> Vec<(&'static str, Vec<Range<usize>>)> {
    let elf = object::File::parse(data).unwrap();
    let section = |name: &str| {
        let (start, size) = elf.section_by_name(name)?.file_range()?;
        Some(start as usize..(start + size) as usize)
    };
    let all = |names: &[&str]| names.iter().filter_map(|n| section(n)).collect();
    let headers = u64::from_le_bytes(data[40..48].try_into().unwrap()) as usize;
    vec![
        ("debug information", all(&[".debug_info", ".debug_abbrev"])),
        ("lines", all(&[".debug_line", ".debug_line_str"])),
        ("strings", all(&[".debug_str", ".strtab", ".shstrtab"])),
        ("symbols", all(&[".symtab"])),
        ("unwind information", all(&[".eh_frame", ".eh_frame_hdr"])),
        ("section headers", vec![headers..data.len(), 40..48, 58..64]),
        ("ranges", all(&[".debug_rnglists", ".debug_aranges", ".debug_loclists"])),
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

#[test]
fn damaged_binaries_are_recorded_without_panic_or_wrong_counts() {
    let dir = temp_dir();
    let whole = fs::read(target("known", Build::CDebug)).unwrap();
    let mut random = Random(1);
    let program = dir.path().join("damaged");
    let (mut named, mut said) = (0, 0);
    for (what, ranges) in parts(&whole) {
        for copy in 0..COPIES {
            let mut data = whole.clone();
            damage(&mut data, &ranges, &mut random);
            fs::write(&program, &data).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            let run = Prof::new(&dir, "record -F 999 -q").target(&program, "0.05").run();
            assert_eq!(run.code(), 0, "{what} {copy}: {}", run.stderr);
            assert!(!run.stderr.contains("panicked"), "{what} {copy}: {}", run.stderr);
            let p = common::read(dir.path().join("profile.pb.gz"));
            let samples = p.total(p.column("samples"));
            assert!(samples > 20, "{what} {copy}: {samples} samples");
            named += usize::from(p.total_share("bar") > 0.3);
            // Whatever is wrong is a matter of the coverage report, not of its end.
            let report = Prof::new(&dir, "report --coverage").run();
            assert_eq!(report.code(), 0, "{what} {copy}: {}", report.stderr);
            said += usize::from(report.text().contains("damaged: "));
        }
    }
    assert!(said > 0, "no damage was ever said");
    // Most of it does little harm: the symbol table names what the debug information cannot.
    assert!(named > COPIES * 3, "only {named} could be named");
}
