//! Memory that is not what an interpreter makes.

use proptest::prelude::*;

use super::*;
use crate::CodeKey;
use crate::memory::Counted;
use crate::merge::{NativeFrame, NativeStack};

/// A frame's code in an image, and the address of a member of it.
fn key(cpython: &Cpython, image: &Image, memory: &Recorded) -> CodeKey {
    let copies = copies(cpython, image.thread("sorting"), memory);
    frames(cpython, &copies).1[1].code
}

#[test]
fn a_cycle_of_frames_ends_at_the_limit() {
    for image in &IMAGES {
        let mut memory = image.memory();
        let cpython = Cpython::of_recorded(&memory).unwrap();
        let pointer = image.thread("recursion");
        let first = copies(&cpython, pointer, &memory)[0].first;
        let previous = first + u64::from(cpython.offsets.frame_previous);
        memory.insert(previous, &first.to_le_bytes());
        let counted = Counted::new(&memory);
        let (end, frames) = frames(&cpython, &copies(&cpython, pointer, &counted));
        assert_eq!((end, frames.len()), (ChainEnd::TooMany, 1024), "{}", image.version);
        assert!(counted.calls.get() < 3 * 1024 + 100);
    }
}

#[test]
fn lengths_of_the_process_bound_no_read() {
    for image in &IMAGES {
        let original = image.memory();
        let cpython = Cpython::of_recorded(&original).unwrap();
        let key = key(&cpython, image, &original);
        let [file, function, lines, _] = key.identity;
        let offsets = &cpython.offsets;
        let lengths = [
            file + u64::from(offsets.str_length),
            function + u64::from(offsets.str_length),
            lines + u64::from(offsets.object_size),
        ];
        for length in lengths {
            for size in [u64::MAX, 1 << 40, 1 << 18, 5000] {
                let mut memory = original.clone();
                memory.insert(length, &size.to_le_bytes());
                let counted = Counted::new(&memory);
                let name = cpython.name(&key, &counted);
                if let Name::Found(code) = name {
                    assert!(code.function.len() < 3000 && code.lines.len() <= 256 << 10);
                }
                assert!(counted.bytes.get() < 300 << 10 && counted.calls.get() < 30);
            }
        }
    }
}

#[test]
fn bytes_that_are_no_frames_give_none() {
    for image in &IMAGES {
        let cpython = Cpython::of_recorded(&image.memory()).unwrap();
        let pointer = image.thread("sorting");
        let mut copies = copies(&cpython, pointer, &image.memory());
        let size = cpython.walks()[0].frame_size();
        // The code of the second frame is no pointer.
        let code =
            size + (cpython.offsets.frame_code - cpython.walks()[0].block.lo as u32) as usize;
        copies[0].bytes[code..code + 8].copy_from_slice(&5_u64.to_le_bytes());
        let (end, frames) = frames(&cpython, &copies);
        assert_eq!((end, frames.len()), (ChainEnd::Damaged, 0), "{}", image.version);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_memory_is_read_within_bounds(
        version in 0..IMAGES.len(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 0..8_u32), 1..60),
    ) {
        let image = &IMAGES[version];
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
        if let Ok(cpython) = Cpython::of_recorded(&memory) {
            let _ = cpython.check(&[1, 2, 3], &memory);
            for (pointer, ..) in image.threads() {
                let copies = copies(&cpython, pointer, &counted);
                let user = frames(&cpython, &copies).1;
                lines(&cpython, &user[..user.len().min(20)], &counted);
                let frame = |i: u64| NativeFrame {
                    address: cpython.symbols.evaluation[0].start + 500,
                    stack: pointer - 4096 * (40 - i)..pointer - 4096 * (39 - i),
                    is_run_time: i % 5 == 1,
                };
                let native = NativeStack { frames: (0..40_u64).map(frame).collect(), is_complete: true, code: None };
                let _ = cpython.merge(copied(&copies), &native, &mut Vec::new());
            }
        }
        prop_assert!(counted.calls.get() < 14 * (3 * 1024 + 2 * 1024 + 20 * 20));
        prop_assert!(counted.bytes.get() < 14 * 20 * (300 << 10));
    }
}
