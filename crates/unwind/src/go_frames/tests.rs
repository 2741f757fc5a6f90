use super::MAX_SIZES;
use sys::go_table::GoTable;

const START: u64 = 0x40_1000;
const MAGIC: [u32; 4] = [0xffff_fffb, 0xffff_fffa, 0xffff_fff0, 0xffff_fff1];

/// A table of functions at [`START`] and 0x100 bytes later, as Go writes it. The first one has a
/// frame of 24 bytes in its bytes 4 to 31 and none around them, the second one 8 bytes.
fn table(magic: u32) -> Vec<u8> {
    // Differences of values and of addresses; the lists begin at 1 and 9.
    let lists = [0, 2, 4, 48, 28, 47, 0xe0, 1, 0, 18, 0x80, 2, 0];
    let is_relative = magic < 0xffff_fffa;
    let address = |a: u64| if is_relative { a } else { START + a };
    let field = |n: u64| n.to_le_bytes()[..if is_relative { 4 } else { 8 }].to_vec();
    let words = match magic {
        0xffff_fffb => 1,
        0xffff_fffa => 7,
        _ => 8,
    };
    let values = 8 + words * 8;
    let functions = values + lists.len();
    let text = is_relative.then_some(START);
    // Only the last two parts are read.
    let parts = [2, 1].into_iter().chain(text).chain([0, 0, 0, values as u64, functions as u64]);
    let parts = parts.take(words).collect::<Vec<u64>>();
    let mut data = [&magic.to_le_bytes()[..], &[0, 0, 1, 8]].concat();
    parts.iter().for_each(|part| data.extend(part.to_le_bytes()));
    // The oldest tables have no parts: all positions count from the beginning.
    let (list_base, base) = if words == 1 { (functions + 200, 0) } else { (0, functions) };
    if words == 1 {
        data.truncate(16);
    } else {
        data.extend(lists);
    }
    let start = data.len();
    let of_functions = start - base + 5 * field(0).len();
    let size = field(0).len() + 4 * 4;
    for (at, n) in [(0, 0), (0x100, 1)] {
        data.extend(field(address(at)));
        data.extend(field((of_functions + n * size) as u64));
    }
    data.extend(field(address(0x200)));
    for (at, list) in [(0, 1), (0x100, 9)] {
        data.extend(field(address(at)));
        for n in [0, 0, 0, (list_base + list) as u32] {
            data.extend(n.to_le_bytes());
        }
    }
    if words == 1 {
        data.resize(list_base, 0);
        data.extend(lists);
    }
    data
}

fn frame_size(data: &[u8], address: u64) -> Option<i32> {
    super::frame_size(&GoTable::parse(data, 0..data.len())?, data, address)
}

#[test]
fn frames_have_the_size_that_go_states() {
    for magic in MAGIC {
        let data = table(magic);
        let sizes = [
            (START - 1, None),
            (START, Some(0)),
            (START + 3, Some(0)),
            (START + 4, Some(24)),
            (START + 31, Some(24)),
            (START + 32, Some(0)),
            (START + 0xff, Some(0)),
            (START + 0x100, Some(8)),
            (START + 0x1ff, Some(8)),
            (START + 0x200, None),
            (u64::MAX, None),
        ];
        for (address, size) in sizes {
            assert_eq!(frame_size(&data, address), size, "{magic:x} {address:x}");
        }
    }
    assert_eq!(frame_size(&table(0xffff_fff2), START), None);
}

/// Any byte may be damaged, and the table may end anywhere.
#[test]
fn damage_is_handled() {
    for magic in MAGIC {
        let good = table(magic);
        for end in 0..good.len() {
            frame_size(&good[..end], START + 16);
        }
        for at in 0..good.len() {
            for value in [0, 0x7f, 0x80, 0xff] {
                let mut data = good.clone();
                data[at] = value;
                for address in [START, START + 0x110, u64::MAX] {
                    frame_size(&data, address);
                }
            }
        }
    }
}

#[test]
fn long_lists_are_abandoned() {
    let mut data = table(0xffff_fffb);
    // The second function is longer, and its list, the last one, has a change for each byte.
    data[48..56].copy_from_slice(&(START + 0x10_0000).to_le_bytes());
    data.truncate(data.len() - 4);
    data.extend([2, 1].repeat(2 * MAX_SIZES as usize));
    assert_eq!(frame_size(&data, START + 0x100 + 100), Some(100));
    assert_eq!(frame_size(&data, START + 0x100 + MAX_SIZES - 1), Some(MAX_SIZES as i32 - 1));
    assert_eq!(frame_size(&data, START + 0x100 + MAX_SIZES), None);
}
