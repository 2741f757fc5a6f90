use super::*;

#[test]
fn relocations_of_all_sections_together_are_limited() {
    let of = |offset: u64, addend: i64| {
        let mut relocation = Rela64 {
            r_offset: object::U64::new(LittleEndian, offset),
            r_info: object::U64::default(),
            r_addend: object::I64::new(LittleEndian, addend),
        };
        relocation.set_r_info(LittleEndian, false, 0, RELATIVE);
        relocation
    };
    let (other, right) = (of(8, 1), of(16, 2));
    let among = |n| {
        let all = std::iter::repeat_n(&other, n).chain([&right]);
        relocated(all, 0, 16..17, &FOR_FRAMES).unwrap().get(&16).copied()
    };
    assert_eq!(among(FOR_FRAMES.searched - 1), Some(2));
    assert_eq!(among(FOR_FRAMES.searched), None);
    // A table of which more words are relocations takes no memory of a recorder.
    let both = |limits| relocated([&other, &right].into_iter(), 0, 0..100, limits);
    assert!(both(&FOR_FRAMES).is_none());
    assert_eq!(both(&FOR_NAMES).unwrap().len(), 2);
}

/// A file of these sections: name, address and contents.
fn elf(sections: &[(&str, u64, Vec<u8>)]) -> Vec<u8> {
    let mut file = vec![0; 64];
    let mut names = vec![0];
    let mut headers = vec![[0_u64; 8]];
    for (name, address, contents) in sections {
        let (kind, flags) = (1, 2);
        let place = (file.len() as u64, contents.len() as u64);
        headers.push([names.len() as u64 | kind << 32, flags, *address, place.0, place.1, 0, 8, 0]);
        names.extend_from_slice(name.as_bytes());
        names.push(0);
        file.extend_from_slice(contents);
    }
    headers.push([names.len() as u64 | 3 << 32, 0, 0, file.len() as u64, 0, 0, 1, 0]);
    names.extend_from_slice(b".shstrtab\0");
    headers.last_mut().unwrap()[4] = names.len() as u64;
    file.extend_from_slice(&names);
    file.resize(file.len().next_multiple_of(8), 0);
    let start = file.len() as u64;
    headers.iter().flatten().for_each(|word| file.extend_from_slice(&word.to_le_bytes()));
    file[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
    file[16..24].copy_from_slice(&[2, 0, 0x3e, 0, 1, 0, 0, 0]);
    file[40..48].copy_from_slice(&start.to_le_bytes());
    let count = headers.len() as u8;
    file[52..64].copy_from_slice(&[64, 0, 56, 0, 0, 0, 64, 0, count, 0, count - 1, 0]);
    file
}

/// Since Go 1.26, the table lacks the start of Go's code, which C's may precede.
#[test]
fn the_program_s_description_states_where_its_code_begins() {
    const TABLE: u64 = 0x5000;
    let words = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    // Magic and sizes, two functions, no files, no start, and where the parts are.
    let mut table = words(&[0x0801_0000_ffff_fff1, 2, 0, 0, 72, 72, 72, 72, 72]);
    table.extend(words(&[0, 0x80, 0x100]));
    let described = |table_at: u64, start: u64| {
        let mut all = vec![0; 23];
        (all[0], all[22]) = (table_at, start);
        words(&all)
    };
    let bounds = |code: usize, module: Option<Vec<u8>>| {
        let mut sections =
            vec![(".text", 0x1000, vec![0x90; code]), (".gopclntab", TABLE, table.clone())];
        sections.extend(module.map(|module| (".go.module", 0x6000, module)));
        let file = elf(&sections);
        GoTable::with_names(&file)?.bounds(&file, 0x1090)
    };
    assert_eq!(bounds(0x400, Some(described(TABLE, 0x1040))), Some(0x1040..0x10c0));
    // Of another table, or without a start.
    assert_eq!(bounds(0x400, Some(described(TABLE + 8, 0x1040))), None);
    assert_eq!(bounds(0x400, Some(described(TABLE, 0))), None);
    assert_eq!(bounds(0x400, None), None);
    // There is no room for code of others.
    assert_eq!(bounds(0x120, None), Some(0x1080..0x1100));
    assert_eq!(bounds(0x140, None), None);
}
