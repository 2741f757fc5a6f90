use super::*;

/// A table of two functions, `main.main` at 0x1000 and `main.work` at 0x1100, as Go 1.20 writes it.
fn table(magic: u32, text: u64) -> Vec<u8> {
    let mut data = Vec::new();
    data.extend(magic.to_le_bytes());
    data.extend([0, 0, 1, 8]);
    let names = b"main.main\0main.work\0";
    let files = b"/src/main.go\0";
    // Lines 7 (16 bytes) and 8 (the rest); file 0; inlined nowhere, and in bytes 0 to 31.
    let values = [0, 16, 0x10, 2, 0xf0, 1, 0, 2, 0x80, 4, 0, 2, 32, 1, 0xe0, 1, 0];
    let parts = [0, names.len(), names.len() + 4, names.len() + 4 + files.len()];
    let header = 8 + 8 * 8;
    let functions = header + parts[3] + values.len();
    for word in [2, 1, text].into_iter().chain(parts.map(|p| (header + p) as u64)) {
        data.extend(word.to_le_bytes());
    }
    data.extend((functions as u64).to_le_bytes());
    data.extend(names);
    data.extend(0_u32.to_le_bytes());
    data.extend(files);
    data.extend(values);
    let fields = 4 * 5;
    let size = 4 * 14;
    for (entry, at) in [(0, fields), (0x100, fields + size)] {
        data.extend((entry as u32).to_le_bytes());
        data.extend((at as u32).to_le_bytes());
    }
    data.extend(0x200_u32.to_le_bytes());
    for (entry, name, inlined) in [(0_u32, 0_u32, 0_u32), (0x100, 10, 11)] {
        // Entry, name, arguments, deferred, stack, file, line, tables, unit, start, kinds, tables.
        for field in [entry, name, 0, 0, 0, 7, 1, 3, 0, 1, 0, 0, 0, inlined] {
            data.extend(field.to_le_bytes());
        }
    }
    data
}

/// The table of a file that has nothing else, for code at an address, of a size.
fn read(data: &[u8], code: Option<(u64, u64)>) -> Option<Table<'_>> {
    let table = GoTable::parse(data, 0..data.len())?.starting_in(data, code)?;
    Some(Table::new(data, table))
}

fn frames(data: &[u8], address: u64) -> Option<(String, u32)> {
    let table = read(data, Some((0x1000, 0x200)))?;
    let mut resolved = AddressFrames::default();
    let function = table.table.function(data, address)?;
    let frame = table.frame(&function, address, &mut resolved)?;
    Some((resolved.strings.get(frame.name).to_owned(), frame.line))
}

#[test]
fn functions_and_lines_are_found() {
    let data = table(0xffff_fff1, 0x1000);
    let of = |address| frames(&data, address);
    assert_eq!(of(0x0fff), None);
    assert_eq!(of(0x1000), Some(("main.main".into(), 7)));
    assert_eq!(of(0x1010), Some(("main.main".into(), 8)));
    assert_eq!(of(0x10ff), Some(("main.main".into(), 8)));
    assert_eq!(of(0x1200), None);
    // A line of inlined code would be another function's.
    assert_eq!(of(0x1100), Some(("main.work".into(), 0)));
    assert_eq!(of(0x1120), Some(("main.work".into(), 8)));
}

/// In a position-independent program, the file may lack the start of its code.
#[test]
fn the_code_begins_where_the_section_does_if_that_has_its_size() {
    let data = table(0xffff_fff1, 0);
    assert_eq!(frames(&data, 0x1000), Some(("main.main".into(), 7)));
    let other = read(&data, Some((0x1000, 0x9000)));
    assert!(other.is_none(), "{other:?}");
    assert!(read(&data, None).is_none());
}

#[test]
fn unsupported_tables_are_not_read() {
    assert!(read(&table(0xffff_fff2, 0x1000), None).is_none());
    assert!(read(&[], None).is_none());
}

/// Any byte may be damaged, and the table may end anywhere.
#[test]
fn damage_is_handled() {
    let good = table(0xffff_fff1, 0x1000);
    for end in 0..good.len() {
        frames(&good[..end], 0x1110);
    }
    for at in 0..good.len() {
        for value in [0, 0x7f, 0x80, 0xff] {
            let mut data = good.clone();
            data[at] = value;
            for address in [0x1000, 0x1110, u64::MAX] {
                frames(&data, address);
            }
        }
    }
}

#[test]
fn endless_line_tables_are_abandoned() {
    let mut data = table(0xffff_fff1, 0x1000);
    data.extend([2, 0].repeat(1000));
    let table = read(&data, None).unwrap();
    table.entries.set(100);
    let start = data.len() - 2000 - table.table.parts().values;
    let function = table.table.function(&data, 0x1000).unwrap();
    assert_eq!(table.value(start as u32, &function, 0x1100), None);
    assert_eq!(table.entries.get(), 0);
}
