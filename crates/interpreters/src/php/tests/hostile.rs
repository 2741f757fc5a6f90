//! Memory that is not what PHP makes.

use proptest::prelude::*;

use super::*;
use crate::memory::Counted;
use crate::merge::{NativeFrame, NativeStack};

#[test]
fn a_cycle_of_frames_ends_at_the_limit() {
    for image in &IMAGES {
        let (mut memory, php) = (image.memory(), image.php());
        let first = copies(&php, &memory)[0].first;
        let previous = first + u64::from(php.offsets.frame_previous);
        memory.insert(previous, &first.to_le_bytes());
        let counted = Counted::new(&memory);
        let (end, frames) = frames(&php, &copies(&php, &counted));
        assert_eq!((end, frames.len()), (ChainEnd::TooMany, 1024), "{}", image.shape);
        assert!(counted.calls.get() < 3 * 1024 + 100);
    }
}

#[test]
fn lengths_of_the_process_bound_no_read() {
    let image = &IMAGES[CALLS];
    let (original, php) = (image.memory(), image.php());
    let key = frames(&php, &copies(&php, &original)).1[1].code;
    let offsets = &php.offsets;
    let file = original_word(&original, key.object + u64::from(offsets.function_file));
    let lengths = [key.identity[0], file].map(|text| text + u64::from(offsets.string_length));
    for length in lengths {
        for size in [u64::MAX, 1 << 40, 1 << 18, 5000] {
            let mut memory = original.clone();
            memory.insert(length, &size.to_le_bytes());
            let counted = Counted::new(&memory);
            if let Name::Found(code) = php.name(&key, &counted) {
                assert!(code.function.len() < 3000 && code.file.len() < 5000);
            }
            assert!(counted.bytes.get() < 300 << 10 && counted.calls.get() < 30);
        }
    }
    // The number of instructions, at the sample and later.
    for size in [u32::MAX, 1 << 27, 8193, 8192] {
        let mut memory = original.clone();
        memory.insert(key.object + u64::from(offsets.function_size), &size.to_le_bytes());
        let key = frames(&php, &copies(&php, &memory)).1[1].code;
        let counted = Counted::new(&memory);
        let name = php.name(&key, &counted);
        let has_lines = !matches!(name, Name::Gone);
        assert_eq!(has_lines, size > 8192, "the rest is not recorded");
        assert!(counted.bytes.get() <= 270 << 10);
    }
}

fn original_word(memory: &Recorded, address: u64) -> u64 {
    (memory as &dyn Memory).word(address).unwrap()
}

#[test]
fn bytes_that_are_no_frames_give_none() {
    for image in &IMAGES {
        let php = image.php();
        let mut copies = copies(&php, &image.memory());
        // The function of the second frame is none.
        let at = php.walks()[0].frame_size() + php.walks()[0].block.size as usize;
        copies[0].bytes[at] = 77;
        let (end, frames) = frames(&php, &copies);
        assert_eq!((end, frames.len()), (ChainEnd::Damaged, 0), "{}", image.shape);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_memory_is_read_within_bounds(
        image in 0..IMAGES.len(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 0..8_u32), 1..60),
        registers in proptest::collection::vec(any::<u8>(), 8 * sys::arch::REGISTERS),
    ) {
        let image = &IMAGES[image];
        let mut memory = image.memory();
        let addresses = memory.words();
        for (at, word, kept) in changes {
            // Pointers into the image, small numbers and anything.
            let word = match kept {
                0 => word,
                1 => word % 300,
                2 => 0,
                _ => addresses[word as usize % addresses.len()],
            };
            memory.insert(*at.get(&addresses), &word.to_le_bytes());
        }
        let counted = Counted::new(&memory);
        let php = image.php();
        let _ = php.check(&memory);
        let copies = copies(&php, &counted);
        let copied = Copied { walks: &copies, registers: AllRegs::new(&registers) };
        let mut user = Vec::new();
        php.frames(copied, &mut user);
        lines(&php, &user[..user.len().min(20)], &counted);
        let start = copies[0].first & !4095;
        for is_complete in [true, false] {
            let frame = |i: u64| NativeFrame {
                address: php.symbols.evaluation[0].start + 500 * (i % 3),
                stack: start + 64 * i..start + 64 * (i + 1),
                is_run_time: i % 5 == 1,
            };
            let native = NativeStack { frames: (0..40).map(frame).collect(), is_complete, code: None };
            let _ = php.merge(copied, &native, &mut Vec::new());
        }
        prop_assert!(counted.calls.get() < 3 * 1024 + 20 * 20);
        prop_assert!(counted.bytes.get() < (1024 * 250) + 20 * (300 << 10));
    }
}
