//! Memory that is not what V8 makes.

use proptest::prelude::*;

use super::*;
use crate::memory::Counted;
use crate::merge::{NativeFrame, NativeStack};
use crate::v8::Offsets;

#[test]
fn a_cycle_of_frames_gives_none() {
    for image in &IMAGES {
        let mut memory = image.memory();
        let v8 = V8::of_recorded(&memory).unwrap();
        let pointer = image.thread("main");
        let user = frames(&v8, &copies(&v8, pointer, &memory)).1;
        memory.insert(user[4].address, &user[1].address.to_le_bytes());
        let counted = Counted::new(&memory);
        let copies = copies(&v8, pointer, &counted);
        assert_eq!(frames(&v8, &copies), (ChainEnd::Damaged, Vec::new()), "{}", image.version);
        assert!(counted.calls.get() < 4 * 1024 + 100);
    }
}

#[test]
fn offsets_outside_of_what_is_copied_are_refused() {
    const SHARED: &str = "class_JSFunction__shared__SharedFunctionInfo";
    for image in &IMAGES {
        let v8 = V8::of_recorded(&image.memory()).unwrap();
        let Offsets { version, constants, function_shared, .. } = v8.offsets.clone();
        let new = |offset: u32| {
            let mut constants = constants.clone();
            constants.insert(SHARED.to_owned(), offset as i32);
            Offsets::new(version, constants)
        };
        assert!(new(function_shared).is_some(), "{}", image.version);
        for offset in [0, 16, 23, 56, 65_535] {
            assert!(new(offset).is_none(), "{}: {offset}", image.version);
        }
    }
}

#[test]
fn lengths_of_the_process_bound_no_read() {
    for image in &IMAGES {
        let original = image.memory();
        let v8 = V8::of_recorded(&original).unwrap();
        let words: &dyn Memory = &original;
        let key = frames(&v8, &copies(&v8, image.thread("main"), words)).1[2].code;
        let offsets = &v8.offsets;
        let word = |object: u64, at: u32| words.word(object - 1 + u64::from(at)).unwrap();
        let script = key.identity[0];
        let scope = word(key.object, offsets.shared_name);
        let name = word(script, offsets.script_name);
        let ends = word(script, offsets.script_line_ends);
        let places = [
            name - 1 + 8,
            scope - 1 + 24,
            ends - 1 + u64::from(offsets.array[0]),
            script - 1 + u64::from(offsets.script_line),
        ];
        for place in places {
            for size in [u64::MAX, 0x7fff_ffff << 32, 1 << 50, 5000 << 32] {
                let mut memory = original.clone();
                memory.insert(place, &size.to_le_bytes());
                let counted = Counted::new(&memory);
                if let Name::Found(code) = v8.name(&key, &counted) {
                    assert!(code.function.len() < 3000 && code.lines.len() <= 1 << 20);
                }
                assert!(counted.bytes.get() < 300 << 10 && counted.calls.get() < 2000);
            }
        }
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
            // Pointers to objects in the image, small integers and anything.
            let word = match kept {
                0 => word,
                1 => (word % 300) << 32,
                2 => 0,
                _ => addresses[word as usize % addresses.len()] | 1,
            };
            memory.insert(*at.get(&addresses), &word.to_le_bytes());
        }
        let counted = Counted::new(&memory);
        let v8 = V8::of_recorded(&memory).unwrap();
        for (pointer, ..) in image.threads() {
            let copies = copies(&v8, pointer, &counted);
            let user = frames(&v8, &copies).1;
            for frame in user.iter().take(20) {
                if let Name::Found(code) = v8.name(&frame.code, &counted) {
                    let _ = code.line(frame.code.position);
                }
            }
            let first = copies[1].first;
            let frame = |i: u64| NativeFrame {
                address: 4096 * i,
                stack: first.wrapping_add(300 * i)..first.wrapping_add(300 * (i + 1)),
                is_run_time: i % 5 == 1,
            };
            let native = NativeStack { frames: (0..40).map(frame).collect(), is_complete: true, code: None };
            let _ = v8.merge(copied(&copies), &native, &mut Vec::new());
        }
        prop_assert!(counted.calls.get() < 3 * (4 * 1024 + 20 * 4000));
        prop_assert!(counted.bytes.get() < 3 * 20 * (9 << 20));
    }
}
