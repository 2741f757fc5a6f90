//! Copies of sections have the rules of their files, and are bounded.

use super::super::copied::FEW;
use super::functions::File;
use super::*;

const LIBRARY: &str = "/lib/x86_64-linux-gnu/libc.so.6";

#[test]
fn a_copy_has_the_rules_of_its_file() {
    let Some(file) = File::open(LIBRARY) else {
        return sys::testing::skip(&format!("there is no {LIBRARY}"));
    };
    let tables = file.tables(true);
    let (mut rows, mut own) = (Rows::default(), Rows::default());
    let mut context = UnwindContext::new_in();
    let mut copied = |address| tables.described_in_copy(1, &mut rows, &mut context, address);
    // Files of which few rules are needed are not copied.
    for _ in 1..FEW {
        tables.prepare_copy();
        assert_eq!(copied(file.code().start + 0x1000), None);
    }
    tables.prepare_copy();
    let (mut covered, mut missing) = (0, 0);
    let mut context = UnwindContext::new_in();
    for address in file.code().step_by(7) {
        let expected = tables.described_in(1, &mut own, &mut context, address);
        covered += usize::from(expected.rule != Rule::Uncovered);
        match copied(address) {
            Some(described) => assert_eq!(described, expected, "{address:#x}"),
            None => missing += usize::from(expected.rule != Rule::Uncovered),
        }
    }
    // The largest functions are not evaluated from a copy.
    assert!(missing * 20 < covered, "{missing} of {covered}");
}

#[test]
fn copies_of_all_images_together_are_bounded() {
    let Some(file) = File::open(LIBRARY) else {
        return sys::testing::skip(&format!("there is no {LIBRARY}"));
    };
    let sections = [&file.elf.eh_frame_hdr, &file.elf.eh_frame].into_iter().flatten();
    let size: usize = sections.map(|section| section.range.len()).sum();
    let memory = TableMemory::of(size * 2 + 100);
    let images: Vec<UnwindTables> =
        (0..5).map(|_| file.tables(true).with_memory(&TableMemory::default(), &memory)).collect();
    for tables in images.iter().cycle().take(5 * (FEW as usize + 20)) {
        tables.prepare_copy();
        assert!(memory.most() <= size * 2 + 100);
    }
    let small = TableMemory::of(size - 1);
    let tables = file.tables(true).with_memory(&TableMemory::default(), &small);
    (0..2 * FEW).for_each(|_| tables.prepare_copy());
    assert_eq!((small.bytes(), small.builds()), (0, 0));
}
